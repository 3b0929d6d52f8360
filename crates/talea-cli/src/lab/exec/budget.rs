//! A greedy client of a server: by how much it goes beyond each budget, and what share it gets.
//!
//! It computes and does nothing else. One that enters the kernel all the time, as who polls the
//! clock of a thread does, is measured beside it: on some virtual machines an interrupt that falls
//! into the kernel takes longer than one that does not, by ten or twenty microseconds, and nobody
//! can see from outside which it is going to be.

#![allow(clippy::cast_precision_loss, reason = "shown with a few digits")]

use super::super::bars::Bar;
use super::super::samples::{Samples, Summary};
use super::{periodic, us};
use serde::Serialize;
use talea_core::machine::{Event, Order, SchedulerSpec, TaskSpec, Tree};
use talea_core::sched::Policy;
use talea_core::server::{Kind, Reservation};
use talea_core::{Span, Time, Work};
use talea_exec::work::{self, Body, Pace};
use talea_exec::{Entry, Hole, Options, Report, RootPlan, TaskPlan, What, execute};

const BUDGET: Work = Work::from_ns(1_000_000);

/// What was found.
#[derive(Debug, Serialize)]
pub(super) struct Found {
    /// Beyond its budget, of each that lies outside of holes; 0 for one that was not used up to the
    /// end.
    overrun: Summary,
    budgets_in_holes: usize,
    /// The same by a client that polls its own clock.
    polling_overrun: Summary,
    /// Of one millisecond in each fifty, in percent of the CPU, and for how many seconds.
    share_percent: f64,
    seconds: u64,
}

/// A server with one millisecond in each `period`, and a client that always has work.
fn run(cpu: u32, period: Span, duration: Span, body: Body<'_>) -> anyhow::Result<Report> {
    let mut tree = Tree::new(1, SchedulerSpec::new("root", Policy::FixedPriority));
    let mut server = SchedulerSpec::new("server", Policy::Fifo);
    server.reservation = Some(Reservation::new(Kind::Deferrable, BUDGET, period));
    let server = tree.scheduler(Tree::ROOT, server);
    let ever = Span::from_ns(1_000_000_000_000);
    let _ = tree.task(server, TaskSpec::new("greedy", ever));
    let load = periodic(Span::ZERO, ever, 1, Work::from_ns(ever.as_ns()));
    let tasks = vec![TaskPlan { load, body }];
    let plan =
        RootPlan { tree: &tree, tasks, changes: Vec::new(), flows: Vec::new(), cpus: vec![cpu] };
    Ok(execute(vec![plan], &Options { audit: false, ..Options::new(duration) })?)
}

/// What was used beyond each budget, in ns, and how many were touched by holes. Two that follow
/// each other without a rest are one here, with the sum of their budgets.
fn overruns(record: &[Entry], holes: &[Hole]) -> (Vec<u64>, usize) {
    let margin = talea_exec::holes::DISTANCE;
    let touched = |from: Time, to: Time| {
        holes.iter().any(|hole| {
            let begin = Time::from_ns(hole.from.as_ns().saturating_sub(margin.as_ns()));
            begin <= to && from <= hole.to.saturating_add(margin)
        })
    };
    let (mut since, mut used, mut all, mut within) = (None, 0u64, Vec::new(), 0);
    for entry in record {
        match entry.what {
            What::Told(Event::Ran { work, .. }) if since.is_some() => used += work.as_ns(),
            What::Ordered(Order::Run { .. }) => since = since.or(Some(entry.now)),
            What::Ordered(Order::Idle { .. }) => {
                let Some(from) = since.take() else { continue };
                let used = std::mem::take(&mut used);
                if touched(from, entry.now) {
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

/// First the budgets, then the share.
pub(super) fn measure(cpu: u32, quick: bool) -> anyhow::Result<Found> {
    let ms = |ms: u64| Span::from_ns(ms * 1_000_000);
    let (rounds, seconds) = if quick { (1, 1) } else { (6, 10) };
    let pace = Pace::measure();
    let (mut all, mut polling, mut within) = (Vec::new(), Vec::new(), 0);
    for _ in 0..rounds {
        let used = |body, all: &mut Vec<u64>| -> anyhow::Result<usize> {
            let report = run(cpu, ms(10), ms(1_000), body)?;
            let (mut some, holes) = overruns(&report.roots[0].record, &report.holes);
            all.append(&mut some);
            Ok(holes)
        };
        within += used(work::counter(pace), &mut all)?;
        let _ = used(work::spender(), &mut polling)?;
    }
    let report = run(cpu, ms(50), ms(seconds * 1_000), work::counter(pace))?;
    let used: u64 = report.roots[0].consumed.iter().map(|consumed| consumed.total.as_ns()).sum();
    Ok(Found {
        overrun: Samples::from(all).summary(),
        polling_overrun: Samples::from(polling).summary(),
        budgets_in_holes: within,
        share_percent: 100.0 * used as f64 / report.length.as_ns() as f64,
        seconds,
    })
}

impl Found {
    pub(super) fn bars(&self) -> Vec<Bar> {
        let bar = |what: &str, ns: u64, most: u64| Bar {
            what: format!("overrun of a budget, {what}"),
            found: format!(
                "{:.1} µs of {} budgets, at most {:.0} µs",
                us(ns),
                self.overrun.count,
                us(most)
            ),
            met: self.overrun.count > 0 && ns <= most,
        };
        vec![
            bar("median", self.overrun.median_ns, 5_000),
            bar("p99", self.overrun.p99_ns, 20_000),
            Bar {
                what: format!("a greedy client of 1 ms in 50 ms, {} s", self.seconds),
                found: format!("{:.3} % of the CPU, 2.0 ± 0.1", self.share_percent),
                met: (1.9..=2.1).contains(&self.share_percent),
            },
        ]
    }

    pub(super) fn text(&self) -> String {
        format!(
            "budgets of 1 ms overrun by {:.1} (median), {:.1} (p99), {:.1} (max) µs, {} of them; {} in holes; 1 ms in 50: {:.3} %\n\
             the same by a client that is in the kernel most of the time: {:.1} (median), {:.1} (p99) µs\n",
            us(self.overrun.median_ns),
            us(self.overrun.p99_ns),
            us(self.overrun.max_ns),
            self.overrun.count,
            self.budgets_in_holes,
            self.share_percent,
            us(self.polling_overrun.median_ns),
            us(self.polling_overrun.p99_ns),
        )
    }
}
