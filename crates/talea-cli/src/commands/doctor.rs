//! `talea doctor`: why would real time fail here, and what to do about it.
//!
//! Model: [`facts`] are read once, the checks are pure functions of them, so that every verdict is
//! tested against machines that are not this one. Each check says what was found, what that means,
//! and what to do; nothing is changed without `--repair`, and then only threads that a vanished
//! broker left real-time.

mod check;
mod facts;
mod groups;
mod kernel;
mod leftovers;
mod rights;
mod talea;
#[cfg(test)]
mod tests;

use crate::args::DoctorArgs;
use crate::exit::Exit;
use crate::link::Options;
use crate::output::{Tone, colored, count, paint, print, print_json};
use check::{Check, Grade};
use facts::Facts;
use serde::Serialize;
use std::fmt::Write;

#[derive(Serialize)]
struct Answer<'a> {
    failures: usize,
    warnings: usize,
    checks: &'a [Check],
    repaired: Option<&'a [String]>,
}

pub(crate) fn run(options: &Options, args: &DoctorArgs) -> anyhow::Result<Exit> {
    let repaired = args.repair.then(|| leftovers::repair(options)).transpose()?;
    let facts = Facts::read(options)?;
    let checks = all(&facts);
    let number = |grade: Grade| checks.iter().filter(|check| check.status == grade).count();
    let (failures, warnings) = (number(Grade::Fail), number(Grade::Warn));
    if args.output.json {
        print_json(&Answer { failures, warnings, checks: &checks, repaired: repaired.as_deref() })?;
    } else {
        for line in repaired.iter().flatten() {
            print(&format!("{line}\n"))?;
        }
        print(&text(&checks, options.verbose, colored()))?;
    }
    Ok(if failures == 0 { Exit::Ok } else { Exit::Failure })
}

/// Every check, in the order in which a thread meets them on its way to real time.
fn all(facts: &Facts) -> Vec<Check> {
    let mut checks = Vec::new();
    checks.extend(rights::checks(facts));
    checks.extend(groups::checks(facts));
    checks.extend(kernel::checks(facts));
    checks.extend(talea::checks(facts));
    checks
}

/// Findings first; what they mean and what to do where there is something to do, or with `-v`
/// everywhere.
fn text(checks: &[Check], verbose: bool, color: bool) -> String {
    let mut text = String::new();
    let width = checks.iter().map(|check| check.id.len()).max().unwrap_or(0);
    let indent = " ".repeat(6 + width + 2);
    for check in checks {
        let tone = match check.status {
            Grade::Ok => Tone::Good,
            Grade::Warn => Tone::Doubtful,
            Grade::Fail => Tone::Bad,
        };
        // Padded before it is painted: colour codes have no width on the screen.
        let word = paint(&format!("{:4}", check.status.word()), tone, color);
        // Writing to a String can't fail.
        let _ = writeln!(text, "{word}  {:width$}  {}", check.id, check.finding);
        if verbose || check.status != Grade::Ok {
            let _ = writeln!(text, "{indent}{}", check.meaning);
            if let Some(fix) = &check.fix {
                let _ = writeln!(text, "{indent}{} {fix}", paint("fix:", Tone::Strong, color));
            }
        }
    }
    let number = |grade: Grade| checks.iter().filter(|check| check.status == grade).count();
    let summary = match (number(Grade::Fail), number(Grade::Warn)) {
        (0, 0) => "nothing stands in the way of real time".to_owned(),
        (0, warnings) => format!("nothing fails; {}", count(warnings, "warning")),
        (failures, warnings) => {
            format!("{}, {}", count(failures, "failure"), count(warnings, "warning"))
        }
    };
    let _ = writeln!(text, "\n{summary}");
    text
}
