//! Summaries of real runs, and warnings before a run.

use super::dry_run::LoadEstimate;
use super::native;
use super::place::CpuAssignment;
use crate::exit::CommandError;
use crate::output::note;
use crate::report::{DrawnRoot, Outline};
use crate::run_summary::{self, RootSummary, RunRecorder, short};
use anyhow::Context;
use std::path::Path;
use talea_core::engine::Engine;
use talea_core::{Span, Time};
use talea_exec::replay::{Divergence, replay_to_sink};
use talea_exec::{Isolation, RootReport, StoppedTime};
use talea_system::{Root, System};

/// Describes a program that ran while it was stopped and another task had the CPU.
pub fn isolation_failure_text(stopped: &StoppedTime, isolation: Isolation) -> String {
    format!(
        "its program used {} while it was stopped and another task had the CPU, at most {} at once: {isolation} did not isolate it",
        short(stopped.busy.as_ns()),
        short(stopped.max_busy.as_ns()),
    )
}

/// Describes a program that changed its own policy or CPU.
pub fn policy_change_text(what: &str) -> String {
    format!("its program changed its own policy or CPU, so it is not scheduled as ordered ({what})")
}

/// Replays the record of a root to `seen` with a new engine and returns the summary.
pub fn summarize<'a>(
    machine: &mut Engine,
    outline: &'a Outline,
    real: &RootReport,
    length: Span,
    mut seen: RunRecorder<'_>,
) -> anyhow::Result<(RootSummary, Option<DrawnRoot<'a>>)> {
    if let Some(unfinished) = native::replay_if_native(real, length, &mut seen) {
        let end = Time::ZERO + length;
        seen.close(machine, end, &unfinished);
        if let Some(error) = seen.failed.take() {
            return Err(error).context("cannot write the jobs");
        }
        return Ok(run_summary::summarize(outline, seen, unfinished, end));
    }
    let has_budgets = seen.tracks_budgets();
    let settled = |seen: &mut RunRecorder<'_>, machine: &Engine, now| {
        if has_budgets {
            seen.observe(machine, now);
        }
    };
    replay_to_sink(machine, &real.record, &mut seen, settled).map_err(replay_error)?;
    let recorded = real.record.last().map_or(Time::ZERO, |entry| entry.now);
    let end = if real.lost > 0 { recorded } else { recorded.max(Time::ZERO + length) };
    let unfinished = seen.finish(machine, end, &[]);
    if let Some(error) = seen.failed.take() {
        return Err(error).context("cannot write the jobs");
    }
    Ok(run_summary::summarize(outline, seen, unfinished, end))
}

/// Converts a divergence to an error. The engine depends only on its inputs, so a replay must give
/// the same orders.
#[expect(clippy::needless_pass_by_value, reason = "what `map_err` gives")]
pub fn replay_error(differs: Divergence) -> anyhow::Error {
    anyhow::anyhow!("the replay differs from the run, which is a defect of this program: {differs}")
}

/// Names the file in the error that this computer does not execute it. Returns other errors as they
/// are.
pub fn refused_file(error: anyhow::Error, file: &Path) -> anyhow::Error {
    match error.downcast_ref() {
        Some(CommandError::NotExecutable(_)) => {
            error.context(format!("{} can't be executed", file.display()))
        }
        _ => error,
    }
}

/// Load of a CPU, in thousandths, up to which the kernel's fair server and throttling do not
/// interrupt real-time threads.
const MAX_BUSY_PERMILLE: u64 = 930;

/// Prints limits of the measurement before the run.
pub fn print_limits(system: &System, places: &CpuAssignment, estimates: &[LoadEstimate]) {
    let has_interference = |root: &Root| {
        !root.surroundings.stalls.is_empty()
            || root.surroundings.overheads != talea_sim::Overheads::default()
    };
    if system.roots.iter().any(has_interference) {
        note(
            "the stalls and overheads of the file are not executed, because real CPUs have their own",
        );
    }
    for (cpus, sketch) in places.iter().zip(estimates) {
        for (cpu, busy) in cpus.iter().zip(&sketch.busy) {
            let thousandths = busy.as_ns().saturating_mul(1_000) / sketch.length.as_ns().max(1);
            if thousandths > MAX_BUSY_PERMILLE {
                note(&format!(
                    "CPU {cpu} will be busy for {}.{} % of the run: if ordinary threads wait there, the kernel runs them for up to 50 ms of each second at once, which appears as a CPU stall",
                    thousandths / 10,
                    thousandths % 10,
                ));
            }
        }
    }
}
