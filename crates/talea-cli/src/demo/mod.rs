//! `talea demo`: one audio job, one CPU, one load, three times: as it is today, by libtalea,
//! through `talea run`.
//!
//! Model: [`workshop`] makes or finds the programs, [`stage`] puts them where an unprivileged user
//! can run them, [`show`] runs them one after another, [`judge`] turns times into numbers,
//! [`picture`] and [`page`] draw them. The same seconds of the same sound are computed each time;
//! only how the demand is declared to the kernel differs.
//!
//! Invariants: whatever is started ends with this process or with its own time; nothing is changed
//! on the machine that is not put back; a miss is blamed on the machine only where the independent
//! monitor ([`Monitor`]) saw it stand still for long enough.
//!
//! [`Monitor`]: talea_exec::stalls::Monitor

mod daemon;
mod job;
mod judge;
mod load;
mod page;
mod picture;
mod report;
mod show;
mod stage;
mod workshop;

use crate::exit::Exit;
use crate::output;
use anyhow::Context;
use std::path::PathBuf;

/// Options of `talea demo`.
///
/// Needs root to be complete: it starts a private daemon and runs the job as an unprivileged user.
/// Without, it shows what it can and says what is missing.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Seconds of sound for each of the three runs.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 8,
        value_parser = clap::value_parser!(u32).range(1..=60)
    )]
    seconds: u32,
    /// The CPU for job and load; the last one unless said otherwise.
    #[arg(long, value_name = "CPU")]
    cpu: Option<u32>,
    /// Ordinary busy processes on that CPU. As many as leave an equal share smaller than what the
    /// job needs.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 6,
        value_parser = clap::value_parser!(u32).range(0..=16)
    )]
    load: u32,
    /// Directory for the pictures and the raw times.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    #[command(flatten)]
    output: crate::args::Output,
}

/// Runs the demonstration.
pub(crate) fn run(args: Args) -> anyhow::Result<Exit> {
    let workshop = workshop::Workshop::find()?;
    let out = args.out.unwrap_or_else(|| workshop.default_output());
    std::fs::create_dir_all(&out).with_context(|| format!("cannot create {}", out.display()))?;
    let programs = workshop.programs()?;
    let plan = show::Plan { seconds: args.seconds, cpu: args.cpu, load: args.load };
    let outcome = show::run(&programs, plan)?;
    let written = report::write(&outcome, &out)?;
    if args.output.json {
        output::print_json(&report::Answer::new(&outcome, &written))?;
    } else {
        output::print(&report::text(&outcome, &written))?;
    }
    Ok(if outcome.is_complete() { Exit::Ok } else { Exit::Failure })
}
