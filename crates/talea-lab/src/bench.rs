//! Measurement of one setting of `talea-lab ipc`: a daemon, its client, and the times of a round.
//!
//! Rounds are short, and the rounds of all settings alternate. A disturbance of one second affects
//! one round of each setting and no median. Ratios are computed within a round, from times of the
//! same tenth of a second.

use super::baseline::RawExchange;
use super::ipc::row::{Baselines, IpcRow, Ratios, Setting};
use super::placement::{Cpus, MeasuringThread};
use super::reapply::Sleeper;
use super::request::granted;
use super::samples::{Samples, median, ratio};
use super::server::{LabServer, Shape};
use super::tasks::{Kind, task};
use anyhow::ensure;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};
use talea_client::{Client, Grant};
use talea_core::CpuSet;
use talea_core::rng::Rng;
use talea_os::{Attr, Policy, Tid, proc, sched};
use talea_proto::{MESSAGE_MAX, Reply, Request, SpecId, ThreadRef};

/// Number of operations that are measured in one turn.
const TURN: usize = 32;
/// Time limit within which a new thread must sleep, even on a busy computer.
const TIME_LIMIT: Duration = Duration::from_secs(10);

/// Setting that can be measured repeatedly.
pub(super) struct Bench {
    setting: Setting,
    client: Client,
    _idle: Vec<Client>,
    random: Rng,
    bytes: Option<u64>,
    mirrored: Option<u64>,
    /// Times of all rounds.
    all: Times,
    rounds: Vec<Ratios>,
    // Last, so that its clients are dropped first.
    _server: LabServer,
}

impl Bench {
    /// Starts the daemon and creates the specs of the setting.
    pub(super) fn start(setting: Setting, cpus: Cpus) -> anyhow::Result<Bench> {
        let shape = Shape { kind: setting.plugin, instances: setting.instances, declared: None };
        let server = LabServer::start(shape, cpus.server)?;
        let client = server.client()?;
        allow_descriptors();
        let idle = (0..setting.idle).map(|_| server.client()).collect::<Result<Vec<_>, _>>()?;
        let mut random = Rng::new(20_211_201);
        let (memory, mirrored) = (server.memory()?, server.mirrored()?);
        for _ in 0..setting.specs {
            // A grant that is disowned, and so never dropped, sends no release message.
            granted(client.create(&task(setting.plugin, &mut random)))?.disown();
        }
        let per_spec = |now: u64, before: u64| {
            (setting.specs >= 1024).then(|| now.saturating_sub(before) / setting.specs as u64)
        };
        let (bytes, mirrored) =
            (per_spec(server.memory()?, memory), per_spec(server.mirrored()?, mirrored));
        let (all, rounds) = (Times::default(), Vec::new());
        Ok(Bench {
            setting,
            client,
            _idle: idle,
            random,
            bytes,
            mirrored,
            all,
            rounds,
            _server: server,
        })
    }

    /// Measures `turns` turns, after a turn for warm-up.
    pub(super) fn round(
        &mut self,
        cpus: Cpus,
        raw: &mut RawExchanges,
        turns: usize,
    ) -> anyhow::Result<()> {
        // Started before this thread is pinned, so that they are ordinary threads without an
        // affinity.
        let mut sleepers = Sleepers::of(self.setting.plugin, turns + 1)?;
        let _measuring = MeasuringThread::set_up(cpus)?;
        let mut times = Times::default();
        for number in 0..=turns {
            times.turn(self.setting.plugin, &self.client, raw, &mut sleepers, &mut self.random)?;
            if number == 0 {
                times = Times::default();
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        self.rounds.push(times.ratios());
        self.all.extend(&times);
        Ok(())
    }

    /// Returns the measurements as a row.
    pub(super) fn row(&self) -> IpcRow {
        self.all.row(self.setting, &self.rounds, self.bytes, self.mirrored)
    }
}

/// Threads to be attached. Under `edf` there are few per turn, and each is attached only once,
/// because at the first attachment the kernel's caches have no data about a thread.
struct Sleepers {
    all: Vec<Sleeper>,
    given: usize,
    /// Number of attachments per turn.
    per_turn: usize,
}

impl Sleepers {
    fn of(kind: Kind, turns: usize) -> anyhow::Result<Sleepers> {
        let (per_turn, count) =
            if kind == Kind::Edf { (TURN / 4, turns * TURN / 4 * 2) } else { (TURN, 1) };
        let all = (0..count).map(|_| Sleeper::start()).collect::<anyhow::Result<Vec<_>>>()?;
        for sleeper in &all {
            wait_until_asleep(sleeper.tid())?;
        }
        Ok(Sleepers { all, given: 0, per_turn })
    }

    fn next(&mut self) -> Tid {
        self.given += 1;
        self.all[self.given % self.all.len()].tid()
    }
}

/// Waits until the thread sleeps.
///
/// The read is outside of every measurement, because the first access creates an entry under
/// `/proc`.
fn wait_until_asleep(tid: Tid) -> anyhow::Result<()> {
    let start = Instant::now();
    while proc::stat_of(Tid::of_process(), tid)?.state != b'S' {
        ensure!(start.elapsed() < TIME_LIMIT, "a thread that should sleep does not");
        std::thread::sleep(Duration::from_micros(100));
    }
    Ok(())
}

/// Raises the descriptor limit to the hard limit, because a thousand connections need as many
/// descriptors.
fn allow_descriptors() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    // If this fails, the connections report it.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

/// Both raw exchanges of a setting.
pub(super) struct RawExchanges {
    library: RawExchange,
    inlined: RawExchange,
}

impl RawExchanges {
    pub(super) fn start(cpus: Cpus) -> anyhow::Result<RawExchanges> {
        Ok(RawExchanges {
            library: RawExchange::start(cpus.server)?,
            inlined: RawExchange::start_inlined(cpus.server)?,
        })
    }
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
    direct_calls: Samples,
}

impl Times {
    /// Measures `TURN` creations, changes and releases of grants, and up to `sleepers.per_turn`
    /// attachments, alternately with their baselines. Releases every grant that it creates.
    fn turn(
        &mut self,
        kind: Kind,
        client: &Client,
        raw: &mut RawExchanges,
        sleepers: &mut Sleepers,
        random: &mut Rng,
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
        for (number, grant) in grants.iter().take(sleepers.per_turn).enumerate() {
            let tid = sleepers.next();
            self.raw_small.time(|| raw.library.exchange(sizes.attach))?;
            self.attach.time(|| granted(grant.attach(tid.as_raw() as u32)))?;
            self.detach.time(|| granted(grant.detach()))?;
            self.attach_detach.push(self.attach.last() + self.detach.last());
            let tid = sleepers.next();
            if number.is_multiple_of(2) {
                self.direct.time(|| by_hand(kind, tid))?;
            } else {
                self.direct_calls.time(|| calls(kind, tid, || Ok(())))?;
            }
        }
        for grant in grants {
            self.raw_small.time(|| raw.library.exchange(sizes.attach))?;
            self.release.time(|| granted(grant.release()))?;
        }
        Ok(())
    }

    /// Measures a raw exchange. Every second exchange is inlined.
    fn exchange(
        &mut self,
        raw: &mut RawExchanges,
        number: usize,
        sizes: (usize, usize),
    ) -> anyhow::Result<()> {
        if number.is_multiple_of(2) {
            self.raw.time(|| raw.library.exchange(sizes))
        } else {
            self.raw_inlined.time(|| raw.inlined.exchange(sizes))
        }
    }

    fn each<'a>(&'a mut self, others: &'a Times) -> [(&'a mut Samples, &'a Samples); 11] {
        [
            (&mut self.raw, &others.raw),
            (&mut self.raw_inlined, &others.raw_inlined),
            (&mut self.create, &others.create),
            (&mut self.change, &others.change),
            (&mut self.attach, &others.attach),
            (&mut self.detach, &others.detach),
            (&mut self.attach_detach, &others.attach_detach),
            (&mut self.release, &others.release),
            (&mut self.raw_small, &others.raw_small),
            (&mut self.direct, &others.direct),
            (&mut self.direct_calls, &others.direct_calls),
        ]
    }

    fn extend(&mut self, others: &Times) {
        self.each(others).into_iter().for_each(|(mine, theirs)| mine.extend(theirs));
    }

    fn ratios(&self) -> Ratios {
        let against =
            |samples: &Samples, raw: &Samples| ratio(samples.quantile(50), raw.quantile(50));
        let beside = |direct: &Samples| {
            ratio(
                self.attach_detach.quantile(50),
                2 * self.raw_small.quantile(50) + direct.quantile(50),
            )
        };
        Ratios {
            create_ratio: against(&self.create, &self.raw),
            change_ratio: against(&self.change, &self.raw),
            release_ratio: against(&self.release, &self.raw_small),
            attach_detach_ratio: beside(&self.direct),
            attach_detach_calls_ratio: beside(&self.direct_calls),
            create_inlined_ratio: against(&self.create, &self.raw_inlined),
            change_inlined_ratio: against(&self.change, &self.raw_inlined),
        }
    }

    fn row(
        &self,
        setting: Setting,
        rounds: &[Ratios],
        bytes: Option<u64>,
        mirrored: Option<u64>,
    ) -> IpcRow {
        let of = |one: fn(&Ratios) -> f64| median(rounds.iter().map(one));
        IpcRow {
            setting,
            baselines: Baselines {
                raw: self.raw.summary(),
                raw_inlined: self.raw_inlined.summary(),
                raw_small: self.raw_small.summary(),
                direct: self.direct.summary(),
                direct_calls: self.direct_calls.summary(),
            },
            create: self.create.summary(),
            change: self.change.summary(),
            attach: self.attach.summary(),
            detach: self.detach.summary(),
            attach_detach: self.attach_detach.summary(),
            release: self.release.summary(),
            ratios: Ratios {
                create_ratio: of(|round| round.create_ratio),
                change_ratio: of(|round| round.change_ratio),
                release_ratio: of(|round| round.release_ratio),
                attach_detach_ratio: of(|round| round.attach_detach_ratio),
                attach_detach_calls_ratio: of(|round| round.attach_detach_calls_ratio),
                create_inlined_ratio: of(|round| round.create_inlined_ratio),
                change_inlined_ratio: of(|round| round.change_inlined_ratio),
            },
            rounds: rounds.to_vec(),
            bytes_per_spec: bytes,
            mirrored_bytes_per_spec: mirrored,
        }
    }
}

/// Sizes of request and reply in bytes.
pub(super) struct Sizes {
    pub(super) create: (usize, usize),
    attach: (usize, usize),
}

impl Sizes {
    pub(super) fn of(spec: &talea_client::Spec) -> Sizes {
        let mut buffer = vec![0; MESSAGE_MAX];
        let create = Request::Create(*spec.task()).encode(1, &mut buffer);
        let granted = Reply::Granted(empty_grant()).encode(1, &mut buffer);
        let attach =
            Request::Attach { spec: SpecId(1), thread: ThreadRef::Pidfd }.encode(1, &mut buffer);
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
        granularity: talea_core::Span::ZERO,
        notes: talea_client::Notes(0),
    }
}

/// Attaches and detaches by the system calls of a program that has the rights.
///
/// A program that moves another thread out of the deadline class must know whether that thread has
/// run since it entered the class. If a thread is shrunk or demoted with overrun debt, its next
/// policy may freeze it. So the program reads the same files as the daemon, equally often
/// (`docs/decisions/0006` and `0007`).
fn by_hand(kind: Kind, tid: Tid) -> anyhow::Result<()> {
    if kind != Kind::Edf {
        return calls(kind, tid, || Ok(()));
    }
    let meter = File::open(format!("/proc/{tid}/schedstat"))?;
    let mut buffer = [0; 128];
    let mut inspect = || meter.read_at(&mut buffer, 0).map(|length| (length, buffer));
    let before = inspect()?;
    calls(kind, tid, || {
        ensure!(inspect()? == before, "a thread that should sleep has run");
        Ok(())
    })
}

/// Makes the scheduling calls alone. Calls `inspect` while the thread is in the deadline class, and
/// after the thread has left the class.
fn calls(
    kind: Kind,
    tid: Tid,
    mut inspect: impl FnMut() -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    use talea_core::{Span, Work};
    let ordinary = Attr::plain(Policy::Other { nice: 0 });
    let before = sched::get_affinity(tid)?;
    if kind == Kind::Edf {
        let (runtime, long) = (Work::from_ns(1_024), Span::from_ns(4_000_000_000));
        let attr =
            |runtime| Attr::grant(Policy::Deadline { runtime, deadline: long, period: long });
        sched::set(tid, &attr(Work::from_ns(4_000)))?;
        inspect()?;
        // A sleeping deadline thread is shrunk before it is demoted; otherwise the kernel loses its
        // bandwidth.
        sched::set(tid, &attr(runtime))?;
        sched::set(tid, &ordinary)?;
        inspect()?;
    } else {
        sched::set_affinity(tid, &CpuSet::single(before.iter().next().unwrap_or(0)))?;
        sched::set(
            tid,
            &Attr::grant(if kind == Kind::Rr { Policy::Rr(10) } else { Policy::Fifo(10) }),
        )?;
        sched::set(tid, &ordinary)?;
        sched::set_affinity(tid, &before)?;
    }
    Ok(())
}
