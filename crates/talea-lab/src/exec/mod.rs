//! `talea-lab exec`: cost and timing accuracy of the executor, beside the same work on plain
//! threads.
//!
//! Rounds of each measurement alternate with rounds of its baseline, on one CPU that a `SCHED_IDLE`
//! spinner keeps awake. Thresholds apply to the median over the rounds, or to quantiles of all
//! samples. Samples within a stall are excluded on both sides and counted. Absolute times depend on
//! the computer, so thresholds are ratios or differences to a baseline of the same second. Only the
//! thresholds from SF3P's own figures are absolute.
//!
//! Reference: SF3P (RSP 2014), section VII and Fig. 7, where scheduler overhead is that of
//! dispatchers and schedulers. Here the code of Talea within workers counts, too. On the paper's
//! sets this is the CPU time that workers use beyond that of plain threads, elsewhere all CPU time
//! outside of job bodies.

mod budget;
pub(super) mod cost;
mod job_cost;
mod native;
mod plain;
mod slots;
mod wake;

use super::placement::{Cpus, KeepCpusAwake, Place};
use super::thresholds::{self, Threshold};
use serde::Serialize;
use talea_core::{CpuSet, Span, Time, Work};
use talea_exec::{Arrival, Load};
use talea_os::sched::{self, Attr, Policy};
use talea_os::{Tid, clock};
use talea_study::exit::Exit;
use talea_study::output;

/// Options of `talea-lab exec`.
///
/// Needs root or CAP_SYS_NICE, and some minutes; the machine should have nothing else to do.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Small numbers: shows that it works, not what it costs.
    #[arg(long)]
    quick: bool,
    /// Only these parts.
    #[arg(long, value_enum, value_name = "PART", value_delimiter = ',')]
    part: Vec<Part>,
    #[command(flatten)]
    output: talea_study::options::Output,
}

#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// Cost of scheduling: per job, per level, and on SF3P's sets.
    Cost,
    /// How late a task in a tree is awake, and a partition at its slot.
    Wake,
    /// How exactly budgets are kept.
    Budget,
}

#[derive(Serialize)]
struct ExecReport {
    quick: bool,
    kernel: String,
    /// Load averages of the kernel, before and after.
    load: [String; 2],
    #[serde(skip_serializing_if = "Option::is_none")]
    cost: Option<cost::CostReport>,
    #[serde(skip_serializing_if = "Option::is_none")]
    wake: Option<wake::WakeReport>,
    #[serde(skip_serializing_if = "Option::is_none")]
    native: Option<native::NativeReport>,
    #[serde(skip_serializing_if = "Option::is_none")]
    slots: Option<slots::SlotReport>,
    #[serde(skip_serializing_if = "Option::is_none")]
    budget: Option<budget::BudgetReport>,
    thresholds: Vec<Threshold>,
}

/// Measures all selected parts and compares the results with the thresholds.
pub(super) fn run(args: &Args) -> anyhow::Result<Exit> {
    let wanted = |part| args.part.is_empty() || args.part.contains(&part);
    let cpus = Cpus::of(Place::SameCore)?;
    let cpu = cpus.client;
    let before = load();
    let _awake = KeepCpusAwake::on(cpus)?;
    let part = |is: bool, name: &str| {
        if is {
            output::note(name);
        }
        is
    };
    let cost = part(wanted(Part::Cost), "what scheduling costs")
        .then(|| cost::measure(cpu, args.quick))
        .transpose()?;
    let wake =
        part(wanted(Part::Wake), "wake-ups").then(|| wake::measure(cpu, args.quick)).transpose()?;
    let native = wanted(Part::Wake).then(|| native::measure(cpu, args.quick)).transpose()?;
    let slots = part(wanted(Part::Wake), "partitions")
        .then(|| slots::measure(cpu, args.quick))
        .transpose()?;
    let budget = part(wanted(Part::Budget), "budgets")
        .then(|| budget::measure(cpu, args.quick))
        .transpose()?;
    let mut thresholds = Vec::new();
    thresholds.extend(cost.iter().flat_map(cost::CostReport::thresholds));
    thresholds.extend(wake.iter().flat_map(wake::WakeReport::thresholds));
    thresholds.extend(slots.iter().flat_map(slots::SlotReport::thresholds));
    thresholds.extend(budget.iter().flat_map(budget::BudgetReport::thresholds));
    let kernel =
        std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned();
    let load = [before, load()];
    let report = ExecReport {
        quick: args.quick,
        kernel,
        load,
        cost,
        wake,
        native,
        slots,
        budget,
        thresholds,
    };
    if args.output.json {
        output::print_json(&report)?;
    } else {
        output::print(&text(&report))?;
    }
    Ok(thresholds::exit(&report.thresholds))
}

fn text(report: &ExecReport) -> String {
    let mut text = format!("load {} before, {} after\n\n", report.load[0], report.load[1]);
    for found in [
        report.cost.as_ref().map(cost::CostReport::text),
        report.wake.as_ref().map(wake::WakeReport::text),
        report.native.as_ref().map(native::NativeReport::text),
        report.slots.as_ref().map(slots::SlotReport::text),
        report.budget.as_ref().map(budget::BudgetReport::text),
    ] {
        text.push_str(&found.unwrap_or_default());
    }
    text.push('\n');
    text + &thresholds::text(&report.thresholds)
}

/// Returns the load averages of the last one, five and fifteen minutes.
pub(super) fn load() -> String {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    load.split_whitespace().take(3).collect::<Vec<_>>().join(" ")
}

/// Runs `what` on a plain FIFO thread on `cpu`, at the priority of a dispatcher.
fn by_hand<T: Send>(cpu: u32, what: impl FnOnce() -> T + Send) -> anyhow::Result<T> {
    let thread = || -> std::io::Result<T> {
        let me = Tid::current();
        sched::set_affinity(me, &CpuSet::single(cpu))?;
        sched::set(me, &Attr::grant(Policy::Fifo(talea_exec::Band::default().top)))?;
        Ok(what())
    };
    let done = std::thread::scope(|scope| scope.spawn(thread).join());
    Ok(done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?)
}

/// Measures the lateness of a plain thread after each of `times` sleeps, in ns.
fn lateness_by_hand(cpu: u32, period: Span, times: usize) -> anyhow::Result<Vec<u64>> {
    by_hand(cpu, move || {
        let mut due = clock::now() + period;
        let mut late = Vec::with_capacity(times);
        for _ in 0..times {
            due += period;
            clock::sleep_until(due);
            late.push(clock::now().since(due).as_ns());
        }
        late
    })
}

/// Returns a load of `jobs` jobs with equal costs, one per `period` from `offset` on.
fn periodic(offset: Span, period: Span, jobs: u64, cost: Work) -> Load {
    let at = |k: u64| Time::ZERO + offset + Span::from_ns(k * period.as_ns());
    Load::new((0..jobs).map(|k| Arrival { observed: at(k), nominal: at(k) }).collect(), vec![cost])
}

/// Lateness in ns above which the computer was stalled. The value is that of the executor's
/// monitor.
const STALL: u64 = 300_000;

/// Splits latenesses into those outside of stalls and the number of those within.
fn outside_stalls(late: Vec<u64>) -> (Vec<u64>, usize) {
    let all = late.len();
    let kept: Vec<u64> = late.into_iter().filter(|&ns| ns <= STALL).collect();
    let within = all - kept.len();
    (kept, within)
}

/// Converts nanoseconds to microseconds.
#[allow(clippy::cast_precision_loss, reason = "shown with a few digits")]
fn us(ns: u64) -> f64 {
    ns as f64 / 1e3
}
