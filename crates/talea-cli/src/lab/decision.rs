//! Part of `talea lab sim`: what one decision of the scheduler machine takes, beside the same reference loop.
//!
//! All tasks are ready. The job that runs ends, its task's next one arrives with a random deadline within the coming
//! second, and the machine is polled until it has no more orders: the public path, as a driver goes it. Time goes on so
//! far with each decision that all tasks have been replaced once in that second. Further levels are schedulers above the
//! one that has the tasks, each with one more task that never comes first.
//!
//! The clock is read once for 50 decisions, and the figure is the median of these. The reference is a median, too, of pieces of
//! the loop that take about as long, so that whoever else uses the machine spoils neither.

#![allow(clippy::cast_precision_loss, reason = "printed")]

use super::speed::{REFERENCE, REFERENCE_STEPS, xorshift};
use serde::Serialize;
use std::time::Instant;
use talea_core::machine::{Event, Machine, Order, SchedulerSpec, TaskId, TaskSpec, Tree};
use talea_core::sched::Policy;
use talea_core::{Span, Time};
use talea_sim::dice::Dice;

const SECOND: u64 = 1_000_000_000;
const BATCH: u64 = 50;

#[derive(Serialize)]
pub(super) struct Case {
    pub(super) tasks: u64,
    pub(super) levels: u32,
    pub(super) nanoseconds: f64,
    pub(super) reference_seconds: f64,
    pub(super) scaled: f64,
}

/// `tasks` tasks that are all ready, `levels` schedulers deep; the first task of those is the machine's first.
fn machine(tasks: u64, levels: u32, dice: &mut Dice, now: Time) -> Machine {
    let mut tree = Tree::new(1, SchedulerSpec::new("root", Policy::Edf));
    let mut deepest = Tree::ROOT;
    let mut others = 0;
    for _ in 1..levels {
        tree.task(deepest, TaskSpec::new("late", Span::from_ns(1 << 60)));
        deepest = tree.scheduler(deepest, SchedulerSpec::new("level", Policy::Edf));
        others += 1;
    }
    for _ in 0..tasks {
        tree.task(deepest, TaskSpec::new("task", Span::from_ns(2 * SECOND)));
    }
    let mut machine = tree.build().expect("a chain of schedulers");
    for task in 0..others + tasks {
        let arrival = Time::from_ns(now.as_ns() - dice.below(SECOND));
        let _ = machine.handle(now, Event::Arrived { task: TaskId(task as u32), arrival });
    }
    machine
}

fn median(mut of: Vec<f64>) -> f64 {
    of.sort_by(f64::total_cmp);
    of[of.len() / 2]
}

/// The reference loop in pieces: seconds for all of it.
fn reference() -> f64 {
    const PIECE: u32 = 10_000;
    let pieces = (0..1_000).map(|_| xorshift(PIECE)).collect();
    median(pieces) * f64::from(REFERENCE_STEPS / PIECE)
}

fn measure(tasks: u64, levels: u32, batches: u64) -> Case {
    let mut dice = Dice::new(7);
    let mut now = 2 * SECOND;
    let mut machine = machine(tasks, levels, &mut dice, Time::from_ns(now));
    let mut runs = TaskId(0);
    while let Some(order) = machine.poll(Time::from_ns(now)) {
        if let Order::Run { task, .. } = order {
            runs = task;
        }
    }
    let mut decide = |count: u64| {
        for _ in 0..count {
            now += SECOND / tasks;
            let at = Time::from_ns(now);
            let arrival = Time::from_ns(now - dice.below(SECOND));
            let _ = machine.handle(at, Event::Completed { task: runs });
            let _ = machine.handle(at, Event::Arrived { task: runs, arrival });
            while let Some(order) = machine.poll(at) {
                if let Order::Run { task, .. } = order {
                    runs = task;
                }
            }
        }
    };
    decide(3 * tasks);
    let before = reference();
    let taken = (0..batches)
        .map(|_| {
            let begun = Instant::now();
            decide(BATCH);
            begun.elapsed().as_nanos() as f64 / BATCH as f64
        })
        .collect();
    let reference_seconds = f64::midpoint(before, reference());
    let nanoseconds = median(taken);
    Case {
        tasks,
        levels,
        nanoseconds,
        reference_seconds,
        scaled: nanoseconds * REFERENCE / reference_seconds,
    }
}

/// One level with few and many tasks, and some more levels.
pub(super) fn cases(quick: bool) -> Vec<Case> {
    let batches = if quick { 20 } else { 20_000 };
    let sizes = [(100, 1), (1_000, 1), (10_000, 1), (1_000, 2), (1_000, 3), (1_000, 4), (1_000, 5)];
    sizes.map(|(tasks, levels)| measure(tasks, levels, batches)).into()
}
