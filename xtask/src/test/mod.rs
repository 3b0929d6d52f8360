//! `cargo xtask test`: the project's only test command, the same on a laptop and on the server.
//!
//! Model: a *step* is one call of cargo or of a tool. The step `tests` builds all programs and adds
//! one *job* per test program. [`queue`] runs the jobs in two phases:
//!
//! | phase | jobs | at the same time |
//! | --- | --- | --- |
//! | shared | all steps, and test programs that do not measure time | three |
//! | exclusive | all other test programs | one |
//!
//! In the shared phase, the test programs that change the state of the machine run one at a time
//! ([`programs::Needs`]).
//!
//! Invariants: every job runs once, independent of the results of other jobs. The command prints
//! the output of a job in one piece at the end of the job. The last line is the total, `N passed, N
//! failed, N skipped`: a step counts as one, a test as one. The command prints the reason of a
//! skip, which does not count as a pass.
//!
//! A server keeps only the end of a log. For this reason [`report`] repeats at the end every failed
//! test with its panic, every failed step with its output, and the load of the machine.

pub(crate) mod conclusive;
mod excerpt;
mod libtest;
mod machine;
mod programs;
mod queue;
mod report;
mod steps;
mod system;

use crate::shell;
use anyhow::{Result, bail};
use lexopt::{Arg, Parser, ValueExt};
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::{Duration, Instant};

pub(crate) use programs::build_release;
pub(crate) use report::Report;
pub(crate) use system::ensure_packages;

/// Time limit of the whole command. It exceeds the longest run on the slowest machine.
const TIME_LIMIT: Duration = Duration::from_hours(1);

/// Result of a step.
#[derive(Debug)]
pub(crate) enum Verdict {
    Passed,
    /// The step failed: a reason in the first line, followed by the output to repeat at the end of
    /// the run.
    Failed(String),
    Skipped(String),
}

/// Runs the test command.
pub(crate) fn run(args: &mut Parser) -> Result<ExitCode> {
    let selected = parse(args)?;
    println!("{}", machine::name());
    let _limit = machine::RtLimit::ensure(system::may_install());
    shell::end_programs_at(Instant::now() + TIME_LIMIT);
    let report = Mutex::new(Report::new());
    let is_selected =
        |step: &&steps::Step| selected.is_empty() || selected.iter().any(|name| name == step.name);
    queue::run(steps::ALL.iter().filter(is_selected).map(queue::Job::step).collect(), &report);
    let report = shell::lock(&report);
    print!("{}", report.summary());
    if selected.is_empty() {
        report.keep_conclusive()?;
    }
    Ok(if report.is_green() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn parse(args: &mut Parser) -> Result<Vec<String>> {
    let mut selected = Vec::new();
    while let Some(arg) = args.next()? {
        match arg {
            Arg::Long("only") => selected.push(args.value()?.string()?),
            other => return Err(other.unexpected().into()),
        }
    }
    let known: Vec<_> = steps::ALL.iter().map(|step| step.name).collect();
    if let Some(name) = selected.iter().find(|name| !known.contains(&name.as_str())) {
        bail!("no step {name:?}; the steps are: {}", known.join(", "));
    }
    Ok(selected)
}
