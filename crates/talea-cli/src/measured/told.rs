//! A measured root as pictures and tables have it, and what whoever reads the numbers should know.

use super::native;
use super::place::Places;
use super::retell::retell;
use super::sketch::Sketch;
use crate::exit::Exit;
use crate::outcome::{self, RootAnswer, Seen};
use crate::output::note;
use crate::report::{Drawn, Outline};
use anyhow::Context;
use std::path::Path;
use talea_core::machine::Machine;
use talea_core::{Span, Time};
use talea_exec::RootReport;
use talea_exec::replay::Difference;
use talea_system::system::{Root, System};

/// Of a program that is scheduled by itself, and what was seen of that.
pub(crate) fn says_strayed(what: &str) -> String {
    format!(
        "its program changed its own policy or place: what it gets is not what was ordered ({what})"
    )
}

/// Tells `seen` what was recorded, with a fresh machine of the root, and says what it has seen.
pub(crate) fn tell<'a>(
    machine: &mut Machine,
    outline: &'a Outline,
    real: &RootReport,
    length: Span,
    mut seen: Seen<'_>,
) -> anyhow::Result<(RootAnswer, Option<Drawn<'a>>)> {
    if let Some(unfinished) = native::of(real, length, &mut seen) {
        let end = Time::ZERO + length;
        seen.close(machine, end, &unfinished);
        if let Some(error) = seen.failed.take() {
            return Err(error).context("cannot write the jobs");
        }
        return Ok(outcome::answer(outline, seen, unfinished, end));
    }
    let has_budgets = seen.has_budgets();
    let settled = |seen: &mut Seen<'_>, machine: &Machine, now| {
        if has_budgets {
            seen.look(machine, now);
        }
    };
    retell(machine, &real.record, &mut seen, settled).map_err(not_replayed)?;
    let recorded = real.record.last().map_or(Time::ZERO, |entry| entry.now);
    let end = if real.lost > 0 { recorded } else { recorded.max(Time::ZERO + length) };
    let unfinished = seen.finish(machine, end, &[]);
    if let Some(error) = seen.failed.take() {
        return Err(error).context("cannot write the jobs");
    }
    Ok(outcome::answer(outline, seen, unfinished, end))
}

/// The machine depends on nothing but what it is told; it must not differ from itself.
#[expect(clippy::needless_pass_by_value, reason = "what `map_err` gives")]
pub(crate) fn not_replayed(differs: Difference) -> anyhow::Error {
    anyhow::anyhow!("the run is not replayed, which is a defect of this program: {differs}")
}

/// Says why a file is not run here.
pub(crate) fn refuse(file: &Path, why: &str) -> Exit {
    note(&format!("{} can't be executed: {why}", file.display()));
    Exit::Refused
}

/// Thousandths of a CPU up to which the kernel's fair server and its throttling leave real-time
/// threads alone.
const MOST_BUSY: u64 = 930;

/// Says beforehand what whoever reads the numbers should know.
pub(crate) fn remark(system: &System, places: &Places, sketches: &[Sketch], duration: Span) {
    let is_spoiled = |root: &Root| {
        !root.surroundings.holes.is_empty()
            || root.surroundings.overheads != talea_sim::Overheads::default()
    };
    if system.roots.iter().any(is_spoiled) {
        note("the holes and overheads of the file are not executed: this machine has its own");
    }
    for (cpus, sketch) in places.iter().zip(sketches) {
        for (cpu, busy) in cpus.iter().zip(&sketch.busy) {
            let thousandths = busy.as_ns().saturating_mul(1_000) / duration.as_ns().max(1);
            if thousandths > MOST_BUSY {
                note(&format!(
                    "CPU {cpu} will be busy for {}.{} % of the run: where ordinary threads wait there, the kernel \
                     gives them up to 50 ms of each second in one go, which shows as holes",
                    thousandths / 10,
                    thousandths % 10,
                ));
            }
        }
    }
}
