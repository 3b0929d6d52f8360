//! `talea-lab wakeup`: cost of a grant in each period, which must be zero (ReTiF, JSA 2021, section
//! 6).
//!
//! Two threads on one CPU sleep until absolute times that are half a period apart. One is attached
//! under `rm`, the other one is configured by hand with the same priority. They exchange their
//! roles in each round, so that effects of a thread, of its place in the period and of the minute
//! cancel out. The daemon must not wake up meanwhile.

use super::placement::{self, Cpus, Place};
use super::request::{granted, us};
use super::samples::{Samples, Summary, ratio};
use super::server::{LabServer, Shape};
use super::tasks::Kind;
use anyhow::Context;
use serde::Serialize;
use std::sync::mpsc;
use std::thread::JoinHandle;
use talea_client::{Client, Spec};
use talea_core::{CpuSet, Monotonic, Params, Span, Work};
use talea_os::{Thread, Tid, clock, sched};
use talea_proto::Task;
use talea_study::exit::Exit;
use talea_study::output;

/// Options of `talea-lab wakeup`.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Seconds to measure.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 10,
        value_parser = clap::value_parser!(u32).range(1..=600)
    )]
    seconds: u32,
    #[command(flatten)]
    output: talea_study::options::Output,
}

/// Period of each thread. The threads are half a period apart.
const PERIOD: Span = Span::from_ns(2_000_000);
/// Number of activations of each thread in a round.
const ACTIVATIONS: u64 = 125;

#[derive(Serialize)]
struct WakeupReport {
    attached: Summary,
    by_hand: Summary,
    /// Ratio of the medians.
    ratio: f64,
    /// Number of exchanges of the roles, plus one.
    rounds: u64,
    /// Number of activations of each thread, in all rounds.
    periods: u64,
    /// Number of wake-ups of the daemon while the threads ran.
    daemon_wakeups: u64,
}

/// Measures and prints the result.
pub(super) fn run(args: &Args) -> anyhow::Result<Exit> {
    let cpus = Cpus::of(Place::CrossCore).or_else(|_| Cpus::of(Place::SameCore))?;
    let server =
        LabServer::start(Shape { kind: Kind::Rm, instances: 1, declared: None }, cpus.server)?;
    let client = server.client()?;
    let _awake = placement::KeepCpusAwake::on(cpus)?;
    let rounds = u64::from(args.seconds) * 1_000_000_000 / PERIOD.as_ns() / ACTIVATIONS;
    // An even number, so that each thread has each role equally often.
    let rounds = rounds.next_multiple_of(2);
    let (mut attached, mut by_hand) = (Samples::default(), Samples::default());
    let mut daemon_wakeups = 0;
    for round in 0..rounds {
        let (late, woken) = one_round(&client, cpus.client, round % 2 == 1)?;
        late[0].iter().for_each(|&ns| attached.push(ns));
        late[1].iter().for_each(|&ns| by_hand.push(ns));
        daemon_wakeups += woken;
    }
    let report = WakeupReport {
        ratio: ratio(attached.quantile(50), by_hand.quantile(50)),
        attached: attached.summary(),
        by_hand: by_hand.summary(),
        rounds,
        periods: rounds * ACTIVATIONS,
        daemon_wakeups,
    };
    if args.output.json {
        output::print_json(&report)?;
    } else {
        let both =
            |summary: &Summary| format!("{} / {} µs", us(summary.median_ns), us(summary.p99_ns));
        output::print(&format!(
            "wake-up latency, median / p99: attached {}, by hand {}, ratio of the medians {:.2}\n\
             {} periods of each, in {} rounds; the daemon woke up {} times meanwhile\n",
            both(&report.attached),
            both(&report.by_hand),
            report.ratio,
            report.periods,
            report.rounds,
            report.daemon_wakeups,
        ))?;
    }
    Ok(Exit::Ok)
}

/// Returns the lateness of the attached thread and of the thread configured by hand, and the number
/// of wake-ups of the daemon meanwhile.
fn one_round(client: &Client, cpu: u32, swap: bool) -> anyhow::Result<([Vec<u64>; 2], u64)> {
    let [first, second] = [Sleeper::start(cpu)?, Sleeper::start(cpu)?];
    let (ours, theirs) = if swap { (&second, &first) } else { (&first, &second) };
    let grant = granted(client.create(&spec(cpu)))?;
    granted(grant.attach(ours.tid.as_raw() as u32))?;
    let given = sched::get(ours.tid)?;
    Thread::open(theirs.tid)?.apply(&given, None)?;
    let before = granted(client.status())?.wakeups;
    let start = clock::now() + Span::from_ns(5_000_000);
    first.go(start)?;
    second.go(start + Span::from_ns(PERIOD.as_ns() / 2))?;
    let late = [ours.lateness()?, theirs.lateness()?];
    // The second status request wakes the daemon itself.
    let woken = (granted(client.status())?.wakeups - before).saturating_sub(1);
    granted(grant.release())?;
    first.end()?;
    second.end()?;
    Ok((late, woken))
}

fn spec(cpu: u32) -> Spec {
    let params =
        Params { period: Some(PERIOD), runtime: Some(Work::from_ns(100_000)), ..Params::default() };
    Spec::from_task(Task {
        params,
        cpus: CpuSet::single(cpu),
        cpus_mandatory: true,
        ..Task::default()
    })
}

/// Thread that sleeps until given times and reports its lateness. The thread lives until it is
/// stopped, because its end would wake the daemon.
struct Sleeper {
    tid: Tid,
    go: mpsc::Sender<Monotonic>,
    late: mpsc::Receiver<Vec<u64>>,
    thread: JoinHandle<()>,
}

impl Sleeper {
    fn start(cpu: u32) -> anyhow::Result<Sleeper> {
        let (sender, receiver) = mpsc::channel();
        let (go, wait) = mpsc::channel::<Monotonic>();
        let (say, late) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            let placed =
                sched::set_affinity(Tid::current(), &CpuSet::single(cpu)).map(|()| Tid::current());
            let able = placed.is_ok();
            // Without a receiver or a start signal there is nothing to measure.
            let Some(start) =
                sender.send(placed).ok().filter(|()| able).and_then(|()| wait.recv().ok())
            else {
                return;
            };
            if say.send(lateness(start)).is_ok() {
                // The thread ends when the other end of the channel is dropped.
                let _ = wait.recv();
            }
        });
        let tid = receiver.recv().context("a thread that did not start")??;
        Ok(Sleeper { tid, go, late, thread })
    }

    fn go(&self, start: Monotonic) -> anyhow::Result<()> {
        self.go.send(start).ok().context("a thread that ended early")
    }

    fn lateness(&self) -> anyhow::Result<Vec<u64>> {
        self.late.recv().context("a measuring thread failed")
    }

    fn end(self) -> anyhow::Result<()> {
        drop(self.go);
        self.thread.join().ok().context("a measuring thread failed")
    }
}

fn lateness(start: Monotonic) -> Vec<u64> {
    let mut late = Vec::with_capacity(ACTIVATIONS as usize);
    let mut at = start;
    for _ in 0..ACTIVATIONS {
        clock::sleep_until(at);
        late.push(clock::now().since(at).as_ns());
        at += PERIOD;
    }
    late
}
