//! The gate: `cargo xtask test`.
//!
//! A list of steps, each one call of cargo or of a tool. Every step runs, whatever the earlier ones
//! said, and the run ends with one plain line that adds everything up: `N passed, N failed, N
//! skipped`. A step counts as one; tests count as themselves. A skip is printed with its reason and
//! is no pass. Nothing is tried twice.
//!
//! A server shows the end of a log only: there stand, once more, every failed test with its panic,
//! every failed step with its output, and what the machine was like; or, where nothing failed, each
//! test program's own summary.

mod excerpt;
mod libtest;
mod machine;
mod steps;
mod system;
mod tally;
mod watchdog;

use anyhow::{Result, bail};
use lexopt::{Arg, Parser, ValueExt};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
pub(crate) use system::may_install;
pub(crate) use tally::Tally;
use watchdog::Watchdog;

/// After this long something hangs, and a run that hangs must still say where.
const LIMIT: Duration = Duration::from_hours(1);

/// How a step ended.
pub(crate) enum Verdict {
    Passed,
    /// A reason in one line, and behind it what should be repeated at the end of the run.
    Failed(String),
    Skipped(String),
}

/// Runs the gate.
pub(crate) fn run(args: &mut Parser) -> Result<ExitCode> {
    let only = parse(args)?;
    let tally = Arc::new(Mutex::new(Tally::new()));
    println!("{}", machine::name());
    let watchdog = Watchdog::start(LIMIT, Arc::clone(&tally));
    for step in steps::ALL {
        if !only.is_empty() && !only.iter().any(|name| name == step.name) {
            continue;
        }
        println!("\n== {}: {}", step.name, step.what);
        watchdog.now_at(step.name);
        let start = Instant::now();
        let verdict =
            (step.run)(&tally).unwrap_or_else(|error| Verdict::Failed(format!("{error:#}")));
        let verdict = if watchdog.has_bitten() {
            Verdict::Failed(format!(
                "killed, the gate ran for more than {} minutes",
                LIMIT.as_secs() / 60
            ))
        } else {
            verdict
        };
        let mut tally = tally.lock().unwrap_or_else(PoisonError::into_inner);
        println!(
            "== {}: {} ({:.0} s)",
            step.name,
            tally.step(step.name, verdict),
            start.elapsed().as_secs_f64()
        );
        if watchdog.has_bitten() {
            break;
        }
    }
    let tally = tally.lock().unwrap_or_else(PoisonError::into_inner);
    print!("{}", tally.summary());
    Ok(if tally.is_green() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn parse(args: &mut Parser) -> Result<Vec<String>> {
    let mut only = Vec::new();
    while let Some(arg) = args.next()? {
        match arg {
            Arg::Long("only") => only.push(args.value()?.string()?),
            other => return Err(other.unexpected().into()),
        }
    }
    if let Some(name) =
        only.iter().find(|name| steps::ALL.iter().all(|step| step.name != name.as_str()))
    {
        let known: Vec<_> = steps::ALL.iter().map(|step| step.name).collect();
        bail!("no step {name:?}; there are: {}", known.join(", "));
    }
    Ok(only)
}
