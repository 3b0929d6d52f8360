//! `talea lab wakeup`: what a grant costs once it is there, which must be nothing (ReTiF, JSA 2021, section 6).
//!
//! Two threads on one CPU sleep to absolute times in turns: one attached under `rm`, one configured by hand with the same
//! priority. Half-way they change roles, so that what belongs to a thread and not to its role cancels out. The daemon must
//! sleep through all of it.

use super::ipc::{granted, us};
use super::rig::{self, Cpus, Place};
use super::samples::{Samples, Summary, ratio};
use super::server::{LabServer, Shape};
use super::tasks::Kind;
use crate::exit::Exit;
use crate::output;
use anyhow::Context;
use serde::Serialize;
use std::sync::mpsc;
use std::thread::JoinHandle;
use talea_client::{Client, Spec};
use talea_core::{CpuSet, Params, Span, Time, Work};
use talea_os::{Thread, Tid, clock, sched};
use talea_proto::Task;

/// Options of `talea lab wakeup`.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// For how long.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=600))]
    seconds: u32,
    #[command(flatten)]
    output: crate::args::Output,
}

/// Each thread's; they take turns half a period apart.
const PERIOD: Span = Span::from_ns(2_000_000);

#[derive(Serialize)]
struct Answer {
    attached: Summary,
    by_hand: Summary,
    /// Of the medians.
    ratio: f64,
    periods: u64,
    /// Without those for our own questions.
    daemon_wakeups: u64,
}

/// Measures and tells.
pub(super) fn run(args: &Args) -> anyhow::Result<Exit> {
    let cpus = Cpus::of(Place::CrossCore).or_else(|_| Cpus::of(Place::SameCore))?;
    let server = LabServer::start(Shape { kind: Kind::Rm, instances: 1, declared: None }, cpus.server)?;
    let client = server.client()?;
    let _awake = rig::Awake::on(cpus)?;
    let periods = u64::from(args.seconds) * 1_000_000_000 / PERIOD.as_ns();
    let (mut attached, mut by_hand) = (Samples::default(), Samples::default());
    let before = granted(client.status())?.wakeups;
    let mut asked = 0;
    for swap in [false, true] {
        let [first, second] = [Sleeper::start(cpus.client)?, Sleeper::start(cpus.client)?];
        let (ours, theirs) = if swap { (&second, &first) } else { (&first, &second) };
        let grant = granted(client.create(&spec(cpus.client)))?;
        granted(grant.attach(ours.tid.as_raw() as u32))?;
        let given = sched::get(ours.tid)?;
        Thread::open(theirs.tid)?.apply(&given, None)?;
        let start = clock::now() + Span::from_ns(5_000_000);
        let half = Span::from_ns(PERIOD.as_ns() / 2);
        first.go(start, periods / 2)?;
        second.go(start + half, periods / 2)?;
        let late = [first.finish()?, second.finish()?];
        late[usize::from(swap)].iter().for_each(|&ns| attached.push(ns));
        late[usize::from(!swap)].iter().for_each(|&ns| by_hand.push(ns));
        granted(grant.release())?;
        // Create, attach, release, and the end of the attached thread.
        asked += 4;
    }
    let answer = Answer {
        ratio: ratio(attached.quantile(50), by_hand.quantile(50)),
        attached: attached.summary(),
        by_hand: by_hand.summary(),
        periods,
        daemon_wakeups: wakeups(&client, before, asked)?,
    };
    if args.output.json {
        output::print_json(&answer)?;
    } else {
        let both = |summary: &Summary| format!("{} / {} µs", us(summary.median_ns), us(summary.p99_ns));
        output::print(&format!(
            "wake-up latency, median / p99: attached {}, by hand {}, ratio {:.2}\n\
             the daemon woke up {} times in {} periods\n",
            both(&answer.attached),
            both(&answer.by_hand),
            answer.ratio,
            answer.daemon_wakeups,
            answer.periods
        ))?;
    }
    Ok(Exit::Ok)
}

/// How often the daemon woke up since `before`, less at most `asked` times for our own requests and this one.
fn wakeups(client: &Client, before: u64, asked: u64) -> anyhow::Result<u64> {
    Ok((granted(client.status())?.wakeups - before).saturating_sub(asked + 1))
}

fn spec(cpu: u32) -> Spec {
    let params = Params { period: Some(PERIOD), runtime: Some(Work::from_ns(100_000)), ..Params::default() };
    Spec::from_task(Task { params, cpus: CpuSet::single(cpu), cpus_mandatory: true, ..Task::default() })
}

/// A thread that will sleep to given times and say how late it woke.
struct Sleeper {
    tid: Tid,
    go: mpsc::Sender<(Time, u64)>,
    thread: JoinHandle<Vec<u64>>,
}

impl Sleeper {
    fn start(cpu: u32) -> anyhow::Result<Sleeper> {
        let (tell, told) = mpsc::channel();
        let (go, wait) = mpsc::channel::<(Time, u64)>();
        let thread = std::thread::spawn(move || {
            let told = sched::set_affinity(Tid::current(), &CpuSet::single(cpu)).map(|()| Tid::current());
            let able = told.is_ok();
            // Nobody listens, or nobody says go: then there is nothing to measure.
            let plan = tell.send(told).ok().filter(|()| able).and_then(|()| wait.recv().ok());
            plan.map_or_else(Vec::new, |(start, count)| lateness(start, count))
        });
        let tid = told.recv().context("a thread that did not start")??;
        Ok(Sleeper { tid, go, thread })
    }

    fn go(&self, start: Time, count: u64) -> anyhow::Result<()> {
        self.go.send((start, count)).ok().context("a thread that ended early")
    }

    fn finish(self) -> anyhow::Result<Vec<u64>> {
        self.thread.join().ok().context("a measuring thread failed")
    }
}

fn lateness(start: Time, count: u64) -> Vec<u64> {
    let mut late = Vec::with_capacity(count as usize);
    let mut at = start;
    for _ in 0..count {
        clock::sleep_until(at);
        late.push(clock::now().since(at).as_ns());
        at += PERIOD;
    }
    late
}
