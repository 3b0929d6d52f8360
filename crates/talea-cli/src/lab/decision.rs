//! Part of `talea lab sim`: what one decision of the scheduler machine takes, beside the loop of
//! [`pace`](super::pace).
//!
//! All tasks are ready. The job that runs ends, its task's next one arrives with a random deadline
//! within the coming second, and the machine is polled until it has no more orders: the public
//! path, as a driver goes it. Time goes on so far with each decision that all tasks have been
//! replaced once in that second. Further levels are schedulers above the one that has the tasks,
//! each with one more task that never comes first.
//!
//! The clock is read once for 50 decisions, and a stretch is the median of some hundred of these;
//! so is the reference, of pieces of the loop that take about as long. A stretch begins with
//! decisions that are not measured, so that it finds the caches as it would leave them. What a
//! level adds is measured in pairs: the deepest tree's stretch less that of the flat one of the
//! same round.

#![allow(clippy::cast_precision_loss, reason = "printed")]

use super::pace::{Company, Middle, Stretch, reference, scaled, wide};
use serde::Serialize;
use std::time::Instant;
use talea_core::engine::{Engine, Event, Order, SchedulerSpec, TaskId, TaskSpec, Tree};
use talea_core::sched::PolicySpec;
use talea_core::{Span, Time};
use talea_sim::rng::Rng;

const SECOND: u64 = 1_000_000_000;
const BATCH: u64 = 50;
/// Tasks and levels; the flat tree and the deepest of 1,000 tasks are compared.
const SIZES: [(u64, u32); 7] =
    [(100, 1), (1_000, 1), (10_000, 1), (1_000, 2), (1_000, 3), (1_000, 4), (1_000, 5)];
const FLAT: usize = 1;
const DEEPEST: usize = 6;

#[derive(Serialize)]
pub(super) struct Case {
    pub(super) tasks: u64,
    pub(super) levels: u32,
    pub(super) nanoseconds: Middle,
    pub(super) reference_seconds: Middle,
    pub(super) scaled: Middle,
    /// Median over the stretches on an unshared core, if any, and their number of all stretches.
    pub(super) scaled_alone: Option<Middle>,
    pub(super) stretches_alone: usize,
    pub(super) stretches: usize,
}

#[derive(Serialize)]
pub(super) struct Decisions {
    /// The least that the loop took that fills a core.
    pub(super) wide_ns: f64,
    pub(super) cases: Vec<Case>,
    /// Scaled nanoseconds for each level.
    pub(super) level: Middle,
    /// Difference of the medians over the stretches on an unshared core.
    pub(super) level_alone: Option<f64>,
}

/// A machine whose tasks are all ready, and who drives it.
struct Bench {
    tasks: u64,
    machine: Engine,
    rng: Rng,
    now: u64,
    runs: TaskId,
    stretches: Vec<Stretch>,
    company: Company,
}

impl Bench {
    /// `tasks` tasks, `levels` schedulers deep.
    fn new(tasks: u64, levels: u32) -> Bench {
        let (mut rng, now) = (Rng::new(7), 2 * SECOND);
        let mut tree = Tree::new(1, SchedulerSpec::new("root", PolicySpec::Edf));
        let mut deepest = Tree::ROOT;
        for _ in 1..levels {
            tree.task(deepest, TaskSpec::new("late", Span::from_ns(1 << 60)));
            deepest = tree.scheduler(deepest, SchedulerSpec::new("level", PolicySpec::Edf));
        }
        for _ in 0..tasks {
            tree.task(deepest, TaskSpec::new("task", Span::from_ns(2 * SECOND)));
        }
        let mut machine = tree.build().expect("a chain of schedulers");
        for task in 0..machine.tasks() as u32 {
            let arrival = Time::from_ns(now - rng.below(SECOND));
            let _ =
                machine.handle(Time::from_ns(now), Event::Arrived { task: TaskId(task), arrival });
        }
        let (stretches, company) = (Vec::new(), Company::default());
        let mut bench = Bench { tasks, machine, rng, now, runs: TaskId(0), stretches, company };
        bench.poll();
        bench
    }

    #[inline]
    fn poll(&mut self) {
        while let Some(order) = self.machine.poll(Time::from_ns(self.now)) {
            if let Order::Run { task, .. } = order {
                self.runs = task;
            }
        }
    }

    fn decide(&mut self, count: u64) {
        for _ in 0..count {
            self.now += SECOND / self.tasks;
            let (now, task) = (Time::from_ns(self.now), self.runs);
            let arrival = Time::from_ns(self.now - self.rng.below(SECOND));
            let _ = self.machine.handle(now, Event::Completed { task });
            let _ = self.machine.handle(now, Event::Arrived { task, arrival });
            self.poll();
        }
    }

    fn stretch(&mut self, batches: u32) {
        self.decide(self.tasks);
        let (before, around) = (reference(batches / 4 + 1), wide(batches / 8 + 1));
        let taken = (0..batches).map(|_| {
            let begun = Instant::now();
            self.decide(BATCH);
            begun.elapsed().as_nanos() as f64 / BATCH as f64
        });
        let value = Middle::of(taken).median;
        let reference = f64::midpoint(before, reference(batches / 4 + 1));
        self.company.beside(around, wide(batches / 8 + 1));
        self.stretches.push(Stretch { value, reference });
    }
}

/// One level with few and many tasks, and some more levels.
pub(super) fn measure(quick: bool) -> Decisions {
    let (rounds, batches) = if quick { (1, 20) } else { (60, 300) };
    let mut all = SIZES.map(|(tasks, levels)| Bench::new(tasks, levels));
    for _ in 0..rounds {
        for bench in &mut all {
            bench.stretch(batches);
        }
    }
    let least = Company::least(all.iter().map(|bench| &bench.company));
    let more = f64::from(SIZES[DEEPEST].1 - SIZES[FLAT].1);
    let nanoseconds = |stretch: &Stretch| scaled(&[*stretch], true)[2].median;
    let level = |flat: &Stretch, deep: &Stretch| (nanoseconds(deep) - nanoseconds(flat)) / more;
    let pairs = all[FLAT].stretches.iter().zip(&all[DEEPEST].stretches);
    let levels = Middle::of(pairs.map(|(flat, deep)| level(flat, deep)));
    let alone: Vec<Vec<Stretch>> =
        all.iter().map(|bench| bench.company.alone(&bench.stretches, least)).collect();
    let cases = SIZES.iter().zip(&all).zip(&alone).map(|((&(tasks, levels), bench), alone)| {
        let [nanoseconds, reference_seconds, all] = scaled(&bench.stretches, true);
        Case {
            tasks,
            levels,
            nanoseconds,
            reference_seconds,
            scaled: all,
            scaled_alone: (!alone.is_empty()).then(|| scaled(alone, true)[2]),
            stretches_alone: alone.len(),
            stretches: bench.stretches.len(),
        }
    });
    let cases: Vec<Case> = cases.collect();
    let alone = |case: &Case| case.scaled_alone.map(|middle| middle.median);
    let level_alone =
        alone(&cases[FLAT]).zip(alone(&cases[DEEPEST])).map(|(flat, deep)| (deep - flat) / more);
    Decisions { wide_ns: least, cases, level: levels, level_alone }
}
