//! `talea-lab analysis`: throughput of the schedulability tests in sets per second, beside a
//! reference loop.
//!
//! Each row is one test on 400 random sets of one size: utilizations by UUniFast-Discard,
//! log-uniform periods. The test runs in stretches of some milliseconds beside the loop of
//! [`calibration`](super::calibration). A figure is the median of the stretches at the reference
//! speed. Thresholds are rates at the same speed; the row of a lower rate fails.
//!
//! Each module has the rows of one topic.

#![allow(clippy::cast_precision_loss, reason = "printed")]

mod multi;
mod uni;

use super::calibration::{Quartiles, REFERENCE, Stretch, reference, scaled};
use super::thresholds;
use serde::Serialize;
use talea_analysis::Sporadic;
use talea_core::{Span, Work};
use talea_os::clock::thread_cpu_time;
use talea_sim::generate::{Bounds, CPU, Deadlines, Method, Periods, Spec, generate};
use talea_study::exit::Exit;
use talea_study::output::{self, Table};

/// Options of `talea-lab analysis`.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Small numbers: shows that it works, not how fast.
    #[arg(long)]
    quick: bool,
    /// Only rows whose test or sets contain this.
    #[arg(long, value_name = "WORD")]
    only: Option<String>,
    #[command(flatten)]
    output: talea_study::options::Output,
}

/// Sizes of the sets.
pub(super) const SIZES: [usize; 3] = [10, 20, 50];
/// Number of pieces of the reference loop between two stretches: about a millisecond.
const PIECES: u32 = 70;

#[derive(Serialize)]
struct AnalysisRow {
    test: &'static str,
    sets: &'static str,
    tasks: usize,
    accepted_percent: f64,
    sets_per_second: Quartiles,
    reference_seconds: Quartiles,
    scaled: Quartiles,
    threshold: Option<u64>,
    passed: Option<bool>,
}

/// Collector of the rows.
pub(super) struct Bench {
    quick: bool,
    only: Option<String>,
    rows: Vec<AnalysisRow>,
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

/// Measures all rows and prints them.
pub(super) fn run(args: &Args) -> anyhow::Result<Exit> {
    let mut bench = Bench { quick: args.quick, only: args.only.clone(), rows: Vec::new() };
    uni::measure(&mut bench);
    multi::measure(&mut bench);
    let exit = thresholds::exit_of(bench.rows.iter().filter_map(|row| row.passed));
    if args.output.json {
        output::print_json(&bench.rows)?;
        return Ok(exit);
    }
    let mut table = Table::new(
        "TEST | SETS | >TASKS | >ACCEPTED % | >SETS/S | >REFERENCE s | >SCALED SETS/S | >BAR | ",
    );
    for row in &bench.rows {
        table.row(vec![
            row.test.to_owned(),
            row.sets.to_owned(),
            row.tasks.to_string(),
            format!("{:.0}", row.accepted_percent),
            format!("{:.0}", row.sets_per_second.median),
            format!("{:.3}", row.reference_seconds.median),
            format!("{:.0}", row.scaled.median),
            row.threshold.map_or_else(String::new, |threshold| threshold.to_string()),
            row.passed.map_or("", thresholds::verdict).to_owned(),
        ]);
    }
    output::print(&table.render())?;
    output::print(&format!(
        "scaled to the pace at which the reference loop takes {REFERENCE} s\n"
    ))?;
    Ok(exit)
}
