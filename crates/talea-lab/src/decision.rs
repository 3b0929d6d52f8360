//! Part of `talea-lab sim`: duration of one decision of the engine, beside the loop of
//! [`calibration`](super::calibration).
//!
//! All tasks are ready. The running job completes, and the next job of its task arrives with a
//! random deadline within the next second. Then the engine is polled until it has no more orders,
//! as a driver does. The time advances with each decision, so that each task is replaced once per
//! second. Each further level is a scheduler above the one with the tasks, with one additional task
//! that never has the earliest deadline.
//!
//! The clock is read once per 50 decisions, and a stretch is the median of some hundred such
//! readings. The reference is the median of pieces of the loop that take about as long. A stretch
//! begins with decisions that are not measured, so that the caches are warm. The cost of a level is
//! measured in pairs: the stretch of the deepest tree minus that of the flat tree in the same
//! round.

#![allow(clippy::cast_precision_loss, reason = "printed")]

use super::calibration::{Quartiles, SmtInterference, Stretch, reference, scaled, wide};
use serde::Serialize;
use std::time::Instant;
use talea_core::engine::{Engine, Event, Order, SchedulerSpec, TaskId, TaskSpec, Tree};
use talea_core::sched::PolicySpec;
use talea_core::{Span, Time};
use talea_sim::rng::Rng;

const SECOND: u64 = 1_000_000_000;
const DECISIONS_PER_READING: u64 = 50;
/// Numbers of tasks and of levels. The flat tree and the deepest tree, of 1,000 tasks each, are
/// compared.
const SIZES: [(u64, u32); 7] =
    [(100, 1), (1_000, 1), (10_000, 1), (1_000, 2), (1_000, 3), (1_000, 4), (1_000, 5)];
const FLAT: usize = 1;
const DEEPEST: usize = 6;

#[derive(Serialize)]
pub(super) struct Case {
    pub(super) tasks: u64,
    pub(super) levels: u32,
    pub(super) nanoseconds: Quartiles,
    pub(super) reference_seconds: Quartiles,
    pub(super) scaled: Quartiles,
    /// Quartiles over the stretches on an unshared core, if there are any. The next field is their
    /// number.
    pub(super) scaled_alone: Option<Quartiles>,
    pub(super) stretches_alone: usize,
    pub(super) stretches: usize,
}

#[derive(Serialize)]
pub(super) struct Decisions {
    /// Minimum duration of the loop that fills a core.
    pub(super) wide_ns: f64,
    pub(super) cases: Vec<Case>,
    /// Scaled duration of one level, in nanoseconds.
    pub(super) level: Quartiles,
    /// Difference of the medians over the stretches on an unshared core, if there are any.
    pub(super) level_alone: Option<f64>,
}

/// Engine with ready tasks only, and the state of its driver.
struct Bench {
    tasks: u64,
    engine: Engine,
    rng: Rng,
    now: u64,
    runs: TaskId,
    stretches: Vec<Stretch>,
    interference: SmtInterference,
}

impl Bench {
    /// Builds an engine with `tasks` tasks below `levels` schedulers.
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
        let mut engine = tree.build().expect("a chain of schedulers");
        for task in 0..engine.tasks() as u32 {
            let arrival = Time::from_ns(now - rng.below(SECOND));
            let _ =
                engine.handle(Time::from_ns(now), Event::Arrived { task: TaskId(task), arrival });
        }
        let (stretches, interference) = (Vec::new(), SmtInterference::default());
        let mut bench = Bench { tasks, engine, rng, now, runs: TaskId(0), stretches, interference };
        bench.poll();
        bench
    }

    #[inline]
    fn poll(&mut self) {
        while let Some(order) = self.engine.poll(Time::from_ns(self.now)) {
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
            let _ = self.engine.handle(now, Event::Completed { task });
            let _ = self.engine.handle(now, Event::Arrived { task, arrival });
            self.poll();
        }
    }

    fn stretch(&mut self, batches: u32) {
        self.decide(self.tasks);
        let (before, around) = (reference(batches / 4 + 1), wide(batches / 8 + 1));
        let taken = (0..batches).map(|_| {
            let begun = Instant::now();
            self.decide(DECISIONS_PER_READING);
            begun.elapsed().as_nanos() as f64 / DECISIONS_PER_READING as f64
        });
        let value = Quartiles::of(taken).median;
        let reference = f64::midpoint(before, reference(batches / 4 + 1));
        self.interference.add(around, wide(batches / 8 + 1));
        self.stretches.push(Stretch { value, reference });
    }
}

/// Measures one level with few and with many tasks, and more levels.
pub(super) fn measure(quick: bool) -> Decisions {
    let (rounds, batches) = if quick { (1, 20) } else { (60, 300) };
    let mut all = SIZES.map(|(tasks, levels)| Bench::new(tasks, levels));
    for _ in 0..rounds {
        for bench in &mut all {
            bench.stretch(batches);
        }
    }
    let minimum = SmtInterference::minimum(all.iter().map(|bench| &bench.interference));
    let more = f64::from(SIZES[DEEPEST].1 - SIZES[FLAT].1);
    let nanoseconds = |stretch: &Stretch| scaled(&[*stretch], true)[2].median;
    let level = |flat: &Stretch, deep: &Stretch| (nanoseconds(deep) - nanoseconds(flat)) / more;
    let pairs = all[FLAT].stretches.iter().zip(&all[DEEPEST].stretches);
    let levels = Quartiles::of(pairs.map(|(flat, deep)| level(flat, deep)));
    let alone: Vec<Vec<Stretch>> =
        all.iter().map(|bench| bench.interference.unshared(&bench.stretches, minimum)).collect();
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
    let alone = |case: &Case| case.scaled_alone.map(|quartiles| quartiles.median);
    let level_alone =
        alone(&cases[FLAT]).zip(alone(&cases[DEEPEST])).map(|(flat, deep)| (deep - flat) / more);
    Decisions { wide_ns: minimum, cases, level: levels, level_alone }
}
