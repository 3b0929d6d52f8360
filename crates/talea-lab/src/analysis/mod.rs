//! `talea-lab analysis`: throughput of the schedulability tests in sets per second, beside a
//! reference loop.
//!
//! Each row is one test on 400 random sets of one size: utilizations by UUniFast-Discard,
//! log-uniform periods. The test runs in stretches of some milliseconds beside the loop of
//! [`calibration`](super::calibration). A figure is the median of the stretches at the reference
//! speed. Thresholds are rates at the same speed; the row of a lower rate fails.
//!
//! Each module has the rows of one topic.

mod multi;
mod rows;
mod uni;

use super::calibration::REFERENCE;
use super::thresholds;
use rows::Bench;
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
