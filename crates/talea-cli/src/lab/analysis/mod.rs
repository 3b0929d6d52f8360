//! `talea lab analysis`: sets per second of the schedulability tests, beside a loop that says how fast this machine is.
//!
//! Each row is a test on 400 random sets of each size: utilisations by UUniFast-Discard, periods log-uniform. Sets and
//! pieces of the reference loop (see `talea lab sim`) take turns of some milliseconds, both measured in CPU time of this
//! thread; the figure is the median of the turns, scaled to the pace at which the whole loop takes 0.153 s, so that
//! whoever else uses the machine spoils little. Bars are rates at that pace, below which a row says so.
//!
//! A file per topic, with its rows.

#![allow(clippy::cast_precision_loss, reason = "printed")]

mod uni;

use super::speed::{REFERENCE, REFERENCE_STEPS};
use crate::exit::Exit;
use crate::output::{self, Table};
use serde::Serialize;
use std::time::Duration;
use talea_analysis::Sporadic;
use talea_core::Span;
use talea_sim::generate::{Bounds, CPU, Deadlines, Method, Periods, Spec, generate};

/// Options of `talea lab analysis`.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Small numbers: shows that it works, not how fast.
    #[arg(long)]
    quick: bool,
    /// Only rows whose test or sets contain this.
    #[arg(long, value_name = "WORD")]
    only: Option<String>,
    #[command(flatten)]
    output: crate::args::Output,
}

/// The sizes of the sets.
pub(super) const SIZES: [usize; 3] = [10, 20, 50];
/// Steps of a piece of the reference loop: about a millisecond.
const PIECE: u32 = 700_000;

#[derive(Serialize)]
struct Row {
    test: &'static str,
    sets: &'static str,
    tasks: usize,
    accepted_percent: f64,
    sets_per_second: f64,
    reference_seconds: f64,
    scaled: f64,
    bar: Option<u64>,
    met: Option<bool>,
}

/// Collects rows.
pub(super) struct Bench {
    quick: bool,
    only: Option<String>,
    rows: Vec<Row>,
}

/// What random sets are wanted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Draw {
    /// ΣU in hundredths of a CPU.
    pub(super) percent: u64,
    /// Log-uniform from this on to a second, in milliseconds.
    pub(super) shortest_ms: u64,
    /// Their deadlines.
    pub(super) deadlines: Deadlines,
}

impl Draw {
    /// 400 sets of so many tasks, by deadline, period and cost.
    pub(super) fn sets(self, tasks: usize) -> Vec<Vec<Sporadic>> {
        let (min, max) = (Span::from_ns(self.shortest_ms * 1_000_000), Span::from_ns(1_000_000_000));
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
            let mut set: Vec<Sporadic> =
                drawn.iter().map(|task| Sporadic::new(task.cost, task.period, task.deadline)).collect();
            set.sort_by_key(|task| (task.deadline, task.period, task.cost));
            set
        };
        (0..400).map(set).collect()
    }
}

/// CPU time of this thread.
fn cpu() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or(0))
}

/// CPU time of this thread since then, at least a nanosecond.
fn since(begun: Duration) -> Duration {
    cpu().saturating_sub(begun).max(Duration::from_nanos(1))
}

/// Seconds for the whole reference loop, from a piece of it.
fn reference() -> f64 {
    let begun = cpu();
    super::speed::xorshift(PIECE);
    since(begun).as_secs_f64() * f64::from(REFERENCE_STEPS) / f64::from(PIECE)
}

fn median(mut of: Vec<f64>) -> f64 {
    of.sort_by(f64::total_cmp);
    of[of.len() / 2]
}

impl Bench {
    /// A row for each of [`SIZES`]: the test `name` on what `sets` draws for a size, with the bars of the sizes. The test
    /// says whether it accepts.
    pub(super) fn case<T, F: FnMut(&T) -> bool>(
        &mut self,
        name: (&'static str, &'static str),
        bars: Option<[u64; 3]>,
        sets: impl Fn(usize) -> Vec<T>,
        test: impl Fn(usize) -> F,
    ) {
        let (test_name, drawn) = name;
        if self.only.as_ref().is_some_and(|only| !test_name.contains(only) && !drawn.contains(only)) {
            return;
        }
        for (at, tasks) in SIZES.into_iter().enumerate() {
            let (sets, mut test) = (sets(tasks), test(tasks));
            let begun = cpu();
            let accepted = sets.iter().filter(|set| test(set)).count();
            let once = since(begun);
            // Turns of four milliseconds or so, of whole rounds of the sets where these are shorter.
            let rounds = (4_000_000 / once.as_nanos()).clamp(1, 10_000) as usize;
            let turns = if self.quick { 3 } else { 61 };
            let (mut rates, mut references) = (Vec::new(), Vec::new());
            for _ in 0..turns {
                let before = reference();
                let begun = cpu();
                for _ in 0..rounds {
                    for set in &sets {
                        std::hint::black_box(test(std::hint::black_box(set)));
                    }
                }
                let seconds = since(begun).as_secs_f64();
                let pace = f64::midpoint(before, reference());
                rates.push((rounds * sets.len()) as f64 / seconds);
                references.push(pace);
            }
            let scaled = rates.iter().zip(&references).map(|(rate, pace)| rate * pace / REFERENCE).collect();
            let scaled = median(scaled);
            let bar = bars.map(|bars| bars[at]);
            self.rows.push(Row {
                test: test_name,
                sets: drawn,
                tasks,
                accepted_percent: 100.0 * accepted as f64 / sets.len() as f64,
                sets_per_second: median(rates),
                reference_seconds: median(references),
                scaled,
                bar,
                met: bar.map(|bar| scaled >= bar as f64),
            });
        }
    }
}

/// Measures and prints.
pub(super) fn run(args: &Args) -> anyhow::Result<Exit> {
    let mut bench = Bench { quick: args.quick, only: args.only.clone(), rows: Vec::new() };
    uni::measure(&mut bench);
    if args.output.json {
        output::print_json(&bench.rows)?;
        return Ok(Exit::Ok);
    }
    let mut table = Table::new(&[
        "TEST",
        "SETS",
        ">TASKS",
        ">ACCEPTED %",
        ">SETS/S",
        ">REFERENCE s",
        ">SCALED SETS/S",
        ">BAR",
        "",
    ]);
    for row in &bench.rows {
        table.row(vec![
            row.test.to_owned(),
            row.sets.to_owned(),
            row.tasks.to_string(),
            format!("{:.0}", row.accepted_percent),
            format!("{:.0}", row.sets_per_second),
            format!("{:.3}", row.reference_seconds),
            format!("{:.0}", row.scaled),
            row.bar.map_or_else(String::new, |bar| bar.to_string()),
            match row.met {
                Some(true) => "met",
                Some(false) => "MISSED",
                None => "",
            }
            .to_owned(),
        ]);
    }
    output::print(&table.render())?;
    output::print(&format!("scaled to the pace at which the reference loop takes {REFERENCE} s\n"))?;
    Ok(Exit::Ok)
}
