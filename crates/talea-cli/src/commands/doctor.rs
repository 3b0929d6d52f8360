//! `talea doctor`: reasons why real-time scheduling would fail here, with remedies.
//!
//! Model: the command reads the [`facts`] once. The checks are pure functions of the facts, so that
//! tests cover every verdict with the facts of other computers. Each check states its finding, the
//! consequence and a remedy. Without `--repair` the command changes nothing. With `--repair` it
//! changes only what dead brokers, runs and applications left, and exits with 1 if anything is
//! left.

mod check;
mod facts;
mod front_ends;
mod groups;
mod kernel;
mod leftovers;
mod rights;
mod talea;
#[cfg(test)]
mod tests;

use crate::args::DoctorArgs;
use crate::broker_client::Options;
use check::{Check, Status};
use facts::Facts;
use serde::Serialize;
use std::fmt::Write;
use talea_core::mutate;
use talea_study::exit::Exit;
use talea_study::output::{Tone, colored, count, paint, print, print_json};

#[derive(Serialize)]
struct DoctorReport<'a> {
    failures: usize,
    warnings: usize,
    checks: &'a [Check],
    repaired: Option<&'a [String]>,
}

pub(crate) fn run(options: &Options, args: &DoctorArgs) -> anyhow::Result<Exit> {
    let repaired = args.repair.then(|| leftovers::repair(options)).transpose()?;
    let facts = Facts::read(options)?;
    let checks = all(&facts);
    let number = |status: Status| checks.iter().filter(|check| check.status == status).count();
    let (failures, warnings) = (number(Status::Fail), number(Status::Warn));
    if args.output.json {
        print_json(&DoctorReport {
            failures,
            warnings,
            checks: &checks,
            repaired: repaired.as_deref(),
        })?;
    } else {
        for line in repaired.iter().flatten() {
            print(&format!("{line}\n"))?;
        }
        print(&text(&checks, options.verbose, colored()))?;
    }
    Ok(exit(failures, args.repair, &facts))
}

/// Returns the exit code: a repair fails if anything is left after it.
fn exit(failures: usize, is_repair: bool, facts: &Facts) -> Exit {
    let is_incomplete = is_repair && !facts.leftovers.is_empty();
    if failures > 0 || mutate!("repair-exit-code", is_incomplete, false) {
        Exit::Failure
    } else {
        Exit::Ok
    }
}

/// Runs every check, in the order in which the causes prevent a thread from becoming real-time.
fn all(facts: &Facts) -> Vec<Check> {
    let mut checks = Vec::new();
    checks.extend(rights::checks(facts));
    checks.extend(groups::checks(facts));
    checks.extend(kernel::checks(facts));
    checks.extend(talea::checks(facts));
    checks
}

/// Formats the findings. Consequence and remedy follow if there is something to do, and always with
/// `-v`.
fn text(checks: &[Check], verbose: bool, color: bool) -> String {
    let mut text = String::new();
    let width = checks.iter().map(|check| check.id.len()).max().unwrap_or(0);
    let indent = " ".repeat(6 + width + 2);
    for check in checks {
        let tone = match check.status {
            Status::Ok => Tone::Good,
            Status::Warn => Tone::Doubtful,
            Status::Fail => Tone::Bad,
        };
        // Padded before painting, because colour codes have no width on the screen.
        let word = paint(&format!("{:4}", check.status.word()), tone, color);
        // Writing to a String can't fail.
        let _ = writeln!(text, "{word}  {:width$}  {}", check.id, check.finding);
        if verbose || check.status != Status::Ok {
            let _ = writeln!(text, "{indent}{}", check.meaning);
            if let Some(fix) = &check.fix {
                let _ = writeln!(text, "{indent}{} {fix}", paint("fix:", Tone::Strong, color));
            }
        }
    }
    let number = |status: Status| checks.iter().filter(|check| check.status == status).count();
    let summary = match (number(Status::Fail), number(Status::Warn)) {
        (0, 0) => "nothing prevents real-time scheduling".to_owned(),
        (0, warnings) => format!("nothing fails; {}", count(warnings, "warning")),
        (failures, warnings) => {
            format!("{}, {}", count(failures, "failure"), count(warnings, "warning"))
        }
    };
    let _ = writeln!(text, "\n{summary}");
    text
}
