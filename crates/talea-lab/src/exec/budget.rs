//! Overrun of budgets by a greedy client of a server, and its share of the CPU.
//!
//! The client only computes. A second client, measured beside it, polls the clock of its thread, so
//! that it is in the kernel most of the time. On some virtual machines an interrupt that arrives in
//! kernel mode takes ten or twenty microseconds longer. No visible property of such a machine
//! predicts the difference.

#![allow(clippy::cast_precision_loss, reason = "shown with a few digits")]

use super::super::samples::{Samples, Summary};
use super::super::thresholds::Threshold;
use super::releases::periodic;
use crate::units::us;
use serde::Serialize;
use talea_core::engine::{Event, Order, SchedulerSpec, TaskSpec, Tree};
use talea_core::sched::PolicySpec;
use talea_core::server::{Reservation, ServerKind};
use talea_core::{Span, Time, Work};
use talea_exec::stalls::PROBE_PERIOD;
use talea_exec::work::{self, Calibration, JobBody};
use talea_exec::{Options, RecordEntry, RecordKind, Report, RootPlan, Stall, TaskPlan, execute};

const BUDGET: Work = Work::from_ns(1_000_000);

/// Measurements of budget enforcement.
#[derive(Debug, Serialize)]
pub(super) struct BudgetReport {
    /// Overrun of each budget outside of stalls. It is 0 for a budget that was not exhausted.
    overrun: Summary,
    budgets_in_stalls: usize,
    /// Overrun of each budget of a client that polls its own clock.
    polling_overrun: Summary,
    /// CPU share of a client with a budget of 1 ms in 50 ms, in percent. The next field is the
    /// duration of that run.
    share_percent: f64,
    seconds: u64,
}

/// Runs a server with 1 ms in each `period`, and a client that always has work.
fn run(cpu: u32, period: Span, duration: Span, body: JobBody<'_>) -> anyhow::Result<Report> {
    let mut tree = Tree::new(1, SchedulerSpec::new("root", PolicySpec::FixedPriority));
    let mut server = SchedulerSpec::new("server", PolicySpec::Fifo);
    server.reservation = Some(Reservation::new(ServerKind::Deferrable, BUDGET, period));
    let server = tree.scheduler(Tree::ROOT, server);
    let ever = Span::from_ns(1_000_000_000_000);
    let _ = tree.task(server, TaskSpec::new("greedy", ever));
    let load = periodic(Span::ZERO, ever, 1, Work::from_ns(ever.as_ns()));
    let tasks = vec![TaskPlan { load, body }];
    let plan =
        RootPlan { tree: &tree, tasks, changes: Vec::new(), flows: Vec::new(), cpus: vec![cpu] };
    Ok(execute(vec![plan], &Options { audit: false, ..Options::new(duration) })?)
}

/// Returns the overrun of each budget in ns, and the number of budgets that stalls exclude. Two
/// budgets without a pause between them count as one.
fn overruns(record: &[RecordEntry], stalls: &[Stall]) -> (Vec<u64>, usize) {
    let is_perturbed =
        |from: Time, to: Time| stalls.iter().any(|stall| stall.may_affect(from, to, PROBE_PERIOD));
    let (mut since, mut used, mut all, mut within) = (None, 0u64, Vec::new(), 0);
    for entry in record {
        match entry.kind {
            RecordKind::Event(Event::Ran { work, .. }) if since.is_some() => used += work.as_ns(),
            RecordKind::Order(Order::Run { .. }) => since = since.or(Some(entry.now)),
            RecordKind::Order(Order::Idle { .. }) => {
                let Some(from) = since.take() else { continue };
                let used = std::mem::take(&mut used);
                if is_perturbed(from, entry.now) {
                    within += 1;
                } else {
                    all.push(used.saturating_sub(BUDGET.as_ns()));
                }
            }
            _ => {}
        }
    }
    (all, within)
}

/// Measures the overruns, then the share.
pub(super) fn measure(cpu: u32, quick: bool) -> anyhow::Result<BudgetReport> {
    let ms = |ms: u64| Span::from_ns(ms * 1_000_000);
    let (rounds, seconds) = if quick { (1, 1) } else { (6, 10) };
    let calibration = Calibration::measure();
    let (mut all, mut polling, mut within) = (Vec::new(), Vec::new(), 0);
    for _ in 0..rounds {
        let used = |body, all: &mut Vec<u64>| -> anyhow::Result<usize> {
            let report = run(cpu, ms(10), ms(1_000), body)?;
            let (mut some, stalls) = overruns(&report.roots[0].record, &report.stalls);
            all.append(&mut some);
            Ok(stalls)
        };
        within += used(work::counter(calibration), &mut all)?;
        let _ = used(work::spender(), &mut polling)?;
    }
    let report = run(cpu, ms(50), ms(seconds * 1_000), work::counter(calibration))?;
    let used: u64 = report.roots[0].consumed.iter().map(|consumed| consumed.total.as_ns()).sum();
    Ok(BudgetReport {
        overrun: Samples::from(all).summary(),
        polling_overrun: Samples::from(polling).summary(),
        budgets_in_stalls: within,
        share_percent: 100.0 * used as f64 / report.length.as_ns() as f64,
        seconds,
    })
}

impl BudgetReport {
    pub(super) fn thresholds(&self) -> Vec<Threshold> {
        let threshold = |what: &str, ns: u64, most: u64| Threshold {
            what: format!("overrun of a budget, {what}"),
            found: format!(
                "{:.1} µs of {} budgets, at most {:.0} µs",
                us(ns),
                self.overrun.count,
                us(most)
            ),
            passed: self.overrun.count > 0 && ns <= most,
        };
        vec![
            threshold("median", self.overrun.median_ns, 5_000),
            threshold("p99", self.overrun.p99_ns, 20_000),
            Threshold {
                what: format!("a greedy client of 1 ms in 50 ms, {} s", self.seconds),
                found: format!("{:.3} % of the CPU, 2.0 ± 0.1", self.share_percent),
                passed: (1.9..=2.1).contains(&self.share_percent),
            },
        ]
    }

    pub(super) fn text(&self) -> String {
        format!(
            "budgets of 1 ms overrun by {:.1} (median), {:.1} (p99), {:.1} (max) µs, {} of them; {} in stalls; 1 ms in 50: {:.3} %\n\
             the same by a client that is in the kernel most of the time: {:.1} (median), {:.1} (p99) µs\n",
            us(self.overrun.median_ns),
            us(self.overrun.p99_ns),
            us(self.overrun.max_ns),
            self.overrun.count,
            self.budgets_in_stalls,
            self.share_percent,
            us(self.polling_overrun.median_ns),
            us(self.polling_overrun.p99_ns),
        )
    }
}
