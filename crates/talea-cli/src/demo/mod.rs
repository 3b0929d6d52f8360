//! `talea demo`: one audio job beside one background load on one CPU, in three variants: without
//! Talea, through libtalea, and through `talea run`.
//!
//! Model: [`mod@build`] finds or builds the programs. [`tempdir`] copies them to a directory where
//! an unprivileged user can run them. [`mod@run`] runs the variants one after another, [`evaluate`]
//! evaluates the times, [`picture`] and [`page`] draw them. Each run computes the same seconds of
//! the same sound; only the declaration of the demand to the kernel differs.
//!
//! Invariants:
//!
//! 1. Each started process ends with this process or after its own run time.
//! 2. All settings of the computer that were changed are restored.
//! 3. A miss is attributed to the computer only if the independent monitor ([`Monitor`]) has
//!    detected stalls that are long enough.
//!
//! [`Monitor`]: talea_exec::stalls::Monitor

mod build;
mod daemon;
mod evaluate;
mod job;
mod load;
mod page;
mod picture;
mod report;
mod run;
mod tempdir;

use anyhow::Context;
use std::path::PathBuf;
use talea_study::exit::Exit;

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
    output: talea_study::options::Output,
}

/// Runs the demonstration.
pub(crate) fn run(args: Args) -> anyhow::Result<Exit> {
    let source = build::ProgramSource::find()?;
    let out = args.out.unwrap_or_else(|| source.default_output());
    std::fs::create_dir_all(&out).with_context(|| format!("cannot create {}", out.display()))?;
    let programs = source.programs()?;
    let plan = run::Plan { seconds: args.seconds, cpu: args.cpu, load: args.load };
    let outcome = run::run(&programs, plan)?;
    let written = report::write(&outcome, &out)?;
    args.output
        .print(&report::DemoReport::new(&outcome, &written), || report::text(&outcome, &written))?;
    Ok(if outcome.is_complete() { Exit::Ok } else { Exit::Failure })
}
