//! `talea lab ipc`: what it costs to ask, beside a raw exchange of the same sizes and the direct system calls.
//!
//! Every operation is measured right after its baseline, so that both find the caches alike and meet the same
//! disturbances; one plugin at a time serves. The bars speak of the exchange by way of the C library's functions; the
//! same system calls without the library are measured in every second place and shown beside it (module `raw`). Between
//! turns everybody sleeps for a moment, so that real-time throttling and fair servers find nothing to do.

use super::bars::{self, Bar};
use super::raw::Raw;
use super::reapply::{self, Reapplication};
use super::rig::{Cpus, Place, Rig};
use super::samples::{Samples, Summary, ratio};
use super::server::{LabServer, Shape};
use super::tasks::{Kind, Random, task};
use crate::exit::Exit;
use crate::output::{self, Table};
use anyhow::Context;
use serde::Serialize;
use std::fmt::Write;
use std::time::Duration;
use talea_client::{Client, Grant, Refusal};
use talea_core::CpuSet;
use talea_os::{Attr, Policy, Tid, sched};
use talea_proto::{MESSAGE_MAX, Reply, Request, SpecId};

/// Options of `talea lab ipc`.
///
/// Needs root, and some minutes; the machine should have nothing else to do.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Small numbers: shows that it works, not what it costs.
    #[arg(long)]
    quick: bool,
    /// Only these plugins.
    #[arg(long, value_name = "KIND", value_delimiter = ',')]
    plugin: Vec<String>,
    /// Only with client and daemon on the same CPU.
    #[arg(long)]
    same_core: bool,
    #[command(flatten)]
    output: crate::args::Output,
}

/// Operations that are measured in one turn.
const TURN: usize = 32;

/// How much to measure.
struct Effort {
    turns: usize,
    specs: &'static [usize],
    idle: &'static [usize],
    instances: &'static [u32],
    attached: usize,
}

const FULL: Effort =
    Effort { turns: 64, specs: &[0, 1024, 16_384], idle: &[0, 1000], instances: &[1, 16], attached: 1000 };
const QUICK: Effort = Effort { turns: 1, specs: &[0, 64], idle: &[0, 8], instances: &[1, 3], attached: 20 };

/// One setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Setting {
    pub(super) same_core: bool,
    pub(super) plugin: Kind,
    pub(super) specs: usize,
    pub(super) idle: usize,
    pub(super) instances: u32,
}

/// What was measured in one setting.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    #[serde(flatten)]
    pub(super) setting: Setting,
    /// Raw exchange of the sizes of create.
    pub(super) raw: Summary,
    /// The same without the C library's functions around the system calls.
    pub(super) raw_inlined: Summary,
    pub(super) create: Summary,
    pub(super) change: Summary,
    pub(super) attach: Summary,
    pub(super) detach: Summary,
    /// Attach and detach as one.
    pub(super) attach_detach: Summary,
    pub(super) release: Summary,
    /// Raw exchange of the sizes of attach, detach and release.
    pub(super) raw_small: Summary,
    /// What a program with the rights would do itself: set, and put back.
    pub(super) direct: Summary,
    pub(super) create_ratio: f64,
    pub(super) change_ratio: f64,
    pub(super) release_ratio: f64,
    pub(super) attach_detach_ratio: f64,
    /// Create and change against the inlined exchange.
    pub(super) create_inlined_ratio: f64,
    pub(super) change_inlined_ratio: f64,
    /// Memory of the daemon for each spec that was there before; only where many were.
    pub(super) bytes_per_spec: Option<u64>,
    pub(super) mirrored_bytes_per_spec: Option<u64>,
}

#[derive(Serialize)]
struct Answer {
    quick: bool,
    kernel: String,
    rows: Vec<Row>,
    reapplication: Reapplication,
    bars: Vec<Bar>,
}

/// Measures everything and says how it compares with the bars.
pub(super) fn run(args: &Args) -> anyhow::Result<Exit> {
    let effort = if args.quick { &QUICK } else { &FULL };
    let places: &[Place] =
        if args.same_core { &[Place::SameCore] } else { &[Place::SameCore, Place::CrossCore] };
    let mut rows = Vec::new();
    for &place in places {
        let cpus = Cpus::of(place)?;
        for kind in Kind::ALL.into_iter().filter(|kind| wanted(args, *kind)) {
            for &specs in effort.specs {
                for &idle in effort.idle {
                    for &instances in effort.instances {
                        let same_core = place == Place::SameCore;
                        let setting = Setting { same_core, plugin: kind, specs, idle, instances };
                        output::note(&format!(
                            "{}, {}: {specs} specs, {idle} idle connections, {instances} plugins",
                            place.name(),
                            kind.name()
                        ));
                        rows.push(
                            measure(setting, cpus, effort.turns).with_context(|| format!("{setting:?}"))?,
                        );
                    }
                }
            }
        }
    }
    let reapplication = reapply::measure(Cpus::of(Place::SameCore)?, effort.attached)?;
    let bars = bars::judge(&rows);
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned();
    let answer = Answer { quick: args.quick, kernel, rows, reapplication, bars };
    if args.output.json {
        output::print_json(&answer)?;
    } else {
        output::print(&text(&answer))?;
    }
    Ok(Exit::Ok)
}

fn wanted(args: &Args, kind: Kind) -> bool {
    args.plugin.is_empty() || args.plugin.iter().any(|name| name == kind.name())
}

/// A refusal here means that the experiment is wrong.
pub(super) fn granted<T>(outcome: Result<Result<T, Refusal>, talea_client::Failure>) -> anyhow::Result<T> {
    outcome?.map_err(|refusal| anyhow::anyhow!("{}", crate::words::refusal(&refusal)))
}

fn measure(setting: Setting, cpus: Cpus, turns: usize) -> anyhow::Result<Row> {
    let shape = Shape { kind: setting.plugin, instances: setting.instances, declared: None };
    let server = LabServer::start(shape, cpus.server)?;
    let client = server.client()?;
    allow_descriptors();
    let _idle = (0..setting.idle).map(|_| server.client()).collect::<Result<Vec<_>, _>>()?;
    let mut random = Random::new(20_211_201);
    let (memory, mirrored) = (server.memory()?, server.mirrored()?);
    for _ in 0..setting.specs {
        // Not a grant: what nobody drops needs no message to give back.
        granted(client.create(&task(setting.plugin, &mut random)))?.leave_to_owner();
    }
    let per_spec = |now: u64, before: u64| {
        (setting.specs >= 1024).then(|| now.saturating_sub(before) / setting.specs as u64)
    };
    let (bytes, mirrored) = (per_spec(server.memory()?, memory), per_spec(server.mirrored()?, mirrored));

    let mut sleepers = Sleepers::of(setting.plugin, turns + 1)?;
    let mut raw = Raws { library: Raw::start(cpus.server)?, inlined: Raw::start_inlined(cpus.server)? };
    let _rig = Rig::set_up(cpus)?;
    let mut times = Times::default();
    // The first turn warms everything up.
    for number in 0..=turns {
        times.turn(setting.plugin, &client, &mut raw, &mut sleepers, &mut random)?;
        if number == 0 {
            times = Times::default();
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(times.row(setting, bytes, mirrored))
}

/// Threads to be attached. One that has left the deadline class must stay out of it for a while, so `edf` takes a new
/// one each time, and fewer of them.
struct Sleepers {
    all: Vec<reapply::Sleeper>,
    given: usize,
    /// Attachments in a turn.
    a_turn: usize,
}

impl Sleepers {
    fn of(kind: Kind, turns: usize) -> anyhow::Result<Sleepers> {
        let (a_turn, count) = if kind == Kind::Edf { (TURN / 4, turns * TURN / 4 * 2) } else { (TURN, 1) };
        let all = (0..count).map(|_| reapply::Sleeper::start()).collect::<anyhow::Result<_>>()?;
        Ok(Sleepers { all, given: 0, a_turn })
    }

    fn next(&mut self) -> Tid {
        self.given += 1;
        self.all[self.given % self.all.len()].tid()
    }
}

/// As many as the hard limit allows: a thousand connections need as many descriptors.
fn allow_descriptors() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    // Where it does not work, the connections will say so.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

/// Both raw exchanges.
struct Raws {
    library: Raw,
    inlined: Raw,
}

#[derive(Default)]
struct Times {
    raw: Samples,
    raw_inlined: Samples,
    create: Samples,
    change: Samples,
    attach: Samples,
    detach: Samples,
    attach_detach: Samples,
    release: Samples,
    raw_small: Samples,
    direct: Samples,
}

impl Times {
    /// Some of each, and their baselines in between; afterwards everything is as before.
    fn turn(
        &mut self,
        kind: Kind,
        client: &Client,
        raw: &mut Raws,
        sleepers: &mut Sleepers,
        random: &mut Random,
    ) -> anyhow::Result<()> {
        let sizes = Sizes::of(&task(kind, random));
        let mut grants: Vec<Grant> = Vec::with_capacity(TURN);
        for number in 0..TURN {
            let spec = task(kind, random);
            self.exchange(raw, number, sizes.create)?;
            grants.push(self.create.time(|| granted(client.create(&spec)))?);
        }
        for (number, grant) in grants.iter().enumerate() {
            let spec = task(kind, random);
            self.exchange(raw, number, sizes.create)?;
            self.change.time(|| granted(grant.change(&spec)))?;
        }
        for grant in grants.iter().take(sleepers.a_turn) {
            let tid = sleepers.next();
            self.raw_small.time(|| raw.library.exchange(sizes.attach))?;
            self.attach.time(|| granted(grant.attach(tid.as_raw() as u32)))?;
            self.detach.time(|| granted(grant.detach()))?;
            self.attach_detach.push(self.attach.last() + self.detach.last());
            let tid = sleepers.next();
            self.direct.time(|| direct(kind, tid))?;
        }
        for grant in grants {
            self.raw_small.time(|| raw.library.exchange(sizes.attach))?;
            self.release.time(|| granted(grant.release()))?;
        }
        Ok(())
    }

    /// A raw exchange, in every second place an inlined one.
    fn exchange(&mut self, raw: &mut Raws, number: usize, sizes: (usize, usize)) -> anyhow::Result<()> {
        if number.is_multiple_of(2) {
            self.raw.time(|| raw.library.exchange(sizes))
        } else {
            self.raw_inlined.time(|| raw.inlined.exchange(sizes))
        }
    }

    fn row(&self, setting: Setting, bytes_per_spec: Option<u64>, mirrored: Option<u64>) -> Row {
        let raw = self.raw.summary();
        let against = |samples: &Samples, raw: &Samples| ratio(samples.quantile(50), raw.quantile(50));
        let (raw_small, direct) = (self.raw_small.summary(), self.direct.summary());
        let by_hand = 2 * raw_small.median_ns + direct.median_ns;
        Row {
            setting,
            raw,
            raw_inlined: self.raw_inlined.summary(),
            create: self.create.summary(),
            change: self.change.summary(),
            attach: self.attach.summary(),
            detach: self.detach.summary(),
            attach_detach: self.attach_detach.summary(),
            release: self.release.summary(),
            raw_small,
            direct,
            create_ratio: against(&self.create, &self.raw),
            change_ratio: against(&self.change, &self.raw),
            release_ratio: against(&self.release, &self.raw_small),
            attach_detach_ratio: ratio(self.attach_detach.quantile(50), by_hand),
            create_inlined_ratio: against(&self.create, &self.raw_inlined),
            change_inlined_ratio: against(&self.change, &self.raw_inlined),
            bytes_per_spec,
            mirrored_bytes_per_spec: mirrored,
        }
    }
}

/// Bytes of request and reply.
pub(super) struct Sizes {
    pub(super) create: (usize, usize),
    attach: (usize, usize),
}

impl Sizes {
    pub(super) fn of(spec: &talea_client::Spec) -> Sizes {
        let mut buffer = vec![0; MESSAGE_MAX];
        let create = Request::Create(*spec.task()).encode(1, &mut buffer);
        let granted = Reply::Granted(empty_grant()).encode(1, &mut buffer);
        let attach = Request::Attach { spec: SpecId(1), tid: None }.encode(1, &mut buffer);
        let done = Reply::Done.encode(1, &mut buffer);
        Sizes { create: (create, granted), attach: (attach.max(4), done.max(4)) }
    }
}

fn empty_grant() -> talea_proto::Granted {
    talea_proto::Granted {
        spec: SpecId(1),
        token: talea_proto::message::Token([0; 16]),
        plugin: 0,
        cpu: None,
        runtime: None,
        charge: talea_core::Charge::ZERO,
        priority: 0,
        mechanism: talea_client::Mechanism::Fifo,
        grain: talea_core::Span::ZERO,
        notes: talea_client::Notes(0),
    }
}

/// What attach and detach come down to, by hand.
fn direct(kind: Kind, tid: Tid) -> anyhow::Result<()> {
    use talea_core::{Span, Work};
    let ordinary = Attr::plain(Policy::Other { nice: 0 });
    let before = sched::get_affinity(tid)?;
    if kind == Kind::Edf {
        let (runtime, long) = (Work::from_ns(1_024), Span::from_ns(4_000_000_000));
        let attr = |runtime| Attr::grant(Policy::Deadline { runtime, deadline: long, period: long });
        sched::set(tid, &attr(Work::from_ns(4_000)))?;
        // A sleeping deadline thread is shrunk before it is demoted; else the kernel loses its bandwidth.
        sched::set(tid, &attr(runtime))?;
        sched::set(tid, &ordinary)?;
    } else {
        sched::set_affinity(tid, &CpuSet::single(before.iter().next().unwrap_or(0)))?;
        sched::set(tid, &Attr::grant(if kind == Kind::Rr { Policy::Rr(10) } else { Policy::Fifo(10) }))?;
        sched::set(tid, &ordinary)?;
        sched::set_affinity(tid, &before)?;
    }
    Ok(())
}

fn text(answer: &Answer) -> String {
    let mut text = String::new();
    for same_core in [true, false] {
        let rows: Vec<_> = answer.rows.iter().filter(|row| row.setting.same_core == same_core).collect();
        if rows.is_empty() {
            continue;
        }
        let place = if same_core { Place::SameCore } else { Place::CrossCore };
        let _ = write!(
            text,
            "\n{}: median / p99 in µs, × against RAW and against 2 RAW+DIRECT; INLINED: the raw exchange without the C \
             library's functions\n\n",
            place.name()
        );
        let mut table = Table::new(&[
            "PLUGIN",
            ">SPECS",
            ">IDLE",
            ">PLUGINS",
            ">RAW",
            ">INLINED",
            ">CREATE",
            ">×",
            ">CHANGE",
            ">×",
            ">RELEASE",
            ">×",
            ">2 RAW+DIRECT",
            ">ATTACH+DETACH",
            ">×",
            ">BYTES/SPEC",
        ]);
        for row in rows {
            table.row(cells(row));
        }
        text.push_str(&table.render());
    }
    let again = &answer.reapplication;
    let _ = write!(
        text,
        "\nre-application: {} attached threads, a period between theirs: create median {}, worst {}; release median {}, \
         worst {} µs; at most {} threads moved\n",
        again.attached,
        us(again.create.median_ns),
        us(again.create.max_ns),
        us(again.release.median_ns),
        us(again.release.max_ns),
        again.most_moved
    );
    text.push('\n');
    for bar in &answer.bars {
        let verdict = if bar.met { "met" } else { "MISSED" };
        let _ = writeln!(text, "{verdict:6}  {}: {}", bar.what, bar.found);
    }
    text
}

fn cells(row: &Row) -> Vec<String> {
    let setting = &row.setting;
    let both = |summary: &Summary| format!("{} / {}", us(summary.median_ns), us(summary.p99_ns));
    vec![
        setting.plugin.name().to_owned(),
        setting.specs.to_string(),
        setting.idle.to_string(),
        setting.instances.to_string(),
        both(&row.raw),
        us(row.raw_inlined.median_ns),
        both(&row.create),
        format!("{:.2}", row.create_ratio),
        both(&row.change),
        format!("{:.2}", row.change_ratio),
        both(&row.release),
        format!("{:.2}", row.release_ratio),
        us(2 * row.raw_small.median_ns + row.direct.median_ns),
        both(&row.attach_detach),
        format!("{:.2}", row.attach_detach_ratio),
        row.bytes_per_spec.map_or_else(|| "-".to_owned(), |bytes| bytes.to_string()),
    ]
}

/// Nanoseconds as microseconds with one digit.
pub(super) fn us(ns: u64) -> String {
    format!("{}.{}", ns / 1000, ns % 1000 / 100)
}
