//! Rows of the report: one test on the random sets of one size.

#![allow(clippy::cast_precision_loss, reason = "printed")]

use crate::calibration::{Quartiles, Stretch, reference, scaled};
use serde::Serialize;
use talea_analysis::Sporadic;
use talea_core::{Span, Work};
use talea_os::clock::thread_cpu_time;
use talea_sim::generate::{Bounds, CPU, Deadlines, Method, Periods, Spec, generate};

/// Sizes of the sets.
pub(super) const SIZES: [usize; 3] = [10, 20, 50];
/// Number of pieces of the reference loop between two stretches: about a millisecond.
const PIECES: u32 = 70;

/// Rates of one test on the sets of one size.
#[derive(Serialize)]
pub(super) struct AnalysisRow {
    pub(super) test: &'static str,
    pub(super) sets: &'static str,
    pub(super) tasks: usize,
    pub(super) accepted_percent: f64,
    pub(super) sets_per_second: Quartiles,
    pub(super) reference_seconds: Quartiles,
    pub(super) scaled: Quartiles,
    pub(super) threshold: Option<u64>,
    pub(super) passed: Option<bool>,
}

/// Collector of the rows.
pub(super) struct Bench {
    pub(super) quick: bool,
    pub(super) only: Option<String>,
    pub(super) rows: Vec<AnalysisRow>,
}

/// Parameters of random task sets.
#[derive(Clone, Copy, Debug)]
pub(super) struct Draw {
    /// Total utilization in hundredths of a CPU.
    pub(super) percent: u64,
    /// Shortest period in milliseconds. Periods are log-uniform up to a second.
    pub(super) shortest_ms: u64,
    /// Rule of the deadlines.
    pub(super) deadlines: Deadlines,
}

impl Draw {
    /// Draws 400 sets of `tasks` tasks, sorted by deadline, period and cost.
    pub(super) fn sets(self, tasks: usize) -> Vec<Vec<Sporadic>> {
        let (min, max) =
            (Span::from_ns(self.shortest_ms * 1_000_000), Span::from_ns(1_000_000_000));
        let spec = Spec {
            tasks,
            total: CPU / 100 * self.percent,
            bounds: vec![Bounds::ONE_CPU],
            method: Method::UUniFastDiscard,
            periods: Periods::LogUniform { min, max, granularity: Span::from_ns(1_000) },
            deadlines: self.deadlines,
            graphs: None,
        };
        let set = |number| {
            let drawn = generate(&spec, 7, number).expect("such sets exist");
            let mut set: Vec<Sporadic> = drawn
                .iter()
                .map(|task| Sporadic::new(task.cost, task.period, task.deadline))
                .collect();
            set.sort_by_key(|task| (task.deadline, task.period, task.cost));
            set
        };
        (0..400).map(set).collect()
    }
}

/// Returns the CPU time of this thread since `begun`, in nanoseconds, at least one. CPU time of
/// other threads does not count.
fn since(begun: Work) -> u64 {
    thread_cpu_time().checked_sub(begun).unwrap_or(Work::ZERO).as_ns().max(1)
}

impl Bench {
    /// Adds a row for each of [`SIZES`], with the threshold of the size. The row measures the test
    /// `name` on the sets that `sets` draws. The test returns whether it accepts a set.
    pub(super) fn case<T, F: FnMut(&T) -> bool>(
        &mut self,
        name: (&'static str, &'static str),
        thresholds: Option<[u64; 3]>,
        sets: impl Fn(usize) -> Vec<T>,
        test: impl Fn(usize) -> F,
    ) {
        let (test_name, drawn) = name;
        if self.only.as_ref().is_some_and(|only| !test_name.contains(only) && !drawn.contains(only))
        {
            return;
        }
        for (at, tasks) in SIZES.into_iter().enumerate() {
            let (sets, mut test) = (sets(tasks), test(tasks));
            let begun = thread_cpu_time();
            let accepted = sets.iter().filter(|set| test(set)).count();
            // Whole rounds of the sets; a stretch takes some milliseconds even if a round is
            // shorter.
            let rounds = (4_000_000 / since(begun)).clamp(1, 10_000) as usize;
            let mut stretch = |before: f64| {
                let begun = thread_cpu_time();
                for _ in 0..rounds {
                    for set in &sets {
                        std::hint::black_box(test(std::hint::black_box(set)));
                    }
                }
                let value = (rounds * sets.len()) as f64 / since(begun) as f64 * 1e9;
                let after = reference(PIECES);
                (Stretch { value, reference: f64::midpoint(before, after) }, after)
            };
            let stretches = if self.quick { 3 } else { 61 };
            let stretches: Vec<Stretch> = (0..stretches)
                .scan(reference(PIECES), |before, _| {
                    let (stretch, after) = stretch(*before);
                    *before = after;
                    Some(stretch)
                })
                .collect();
            let [rate, loop_seconds, scaled] = scaled(&stretches, false);
            let threshold = thresholds.map(|thresholds| thresholds[at]);
            self.rows.push(AnalysisRow {
                test: test_name,
                sets: drawn,
                tasks,
                accepted_percent: 100.0 * accepted as f64 / sets.len() as f64,
                sets_per_second: rate,
                reference_seconds: loop_seconds,
                scaled,
                threshold,
                passed: threshold.map(|threshold| scaled.median >= threshold as f64),
            });
        }
    }
}
