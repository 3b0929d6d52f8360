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
mod plain;
mod releases;
mod slots;
mod wake;

use super::computer;
use super::placement::{Cpus, KeepCpusAwake, Place};
use super::thresholds::{self, Threshold};
use serde::Serialize;
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
    let before = computer::load_averages();
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
    let kernel = computer::kernel_release();
    let load = [before, computer::load_averages()];
    let report =
        ExecReport { quick: args.quick, kernel, load, cost, wake, slots, budget, thresholds };
    args.output.print(&report, || text(&report))?;
    Ok(thresholds::exit(&report.thresholds))
}

fn text(report: &ExecReport) -> String {
    let mut text = format!("load {} before, {} after\n\n", report.load[0], report.load[1]);
    for found in [
        report.cost.as_ref().map(cost::CostReport::text),
        report.wake.as_ref().map(wake::WakeReport::text),
        report.slots.as_ref().map(slots::SlotReport::text),
        report.budget.as_ref().map(budget::BudgetReport::text),
    ] {
        text.push_str(&found.unwrap_or_default());
    }
    text.push('\n');
    text + &thresholds::text(&report.thresholds)
}
