//! Reader of `program`: the program that runs on real threads in place of generated work.

use super::values::{Field, Table, optional};
use std::ops::Range;
use talea_config::diagnostic::quoted;
use talea_config::source::{Findings, words};

/// Program with its arguments, and its position.
pub(super) type Program = (Vec<String>, Range<usize>);

/// Keys about the interior of a job, which is unknown for a program.
const NOT_OF_A_PROGRAM: [&str; 6] = [
    "version",
    "section",
    "suspension",
    "preemption_points",
    "nonpreemptive_max",
    "nonpreemptive_last",
];
/// Keys about recurring jobs.
const NOT_WITHOUT_END: [&str; 7] =
    ["deadline", "offset", "jitter", "separation_max", "curve", "enforce", "backlog"];

/// Reads the program of a task; `Ok(None)` if the task has none. `Err` after a reported error.
pub(super) fn program(
    table: &Table<'_>,
    findings: &mut Findings<'_>,
) -> Result<Option<Program>, ()> {
    let program = optional(table, "program", findings, |field, findings| {
        let texts = field.texts(findings)?;
        let remedy = || format!("write it like `program = {}`", field.key.example);
        if let Some(piece) = texts.iter().find(|piece| piece.text.contains('\0')) {
            let what = format!("{} has a zero byte", quoted(piece.text));
            findings.error(&piece.at, words(what, "no program can be given one", remedy()));
            return None;
        }
        if texts.first().is_none_or(|first| first.text.is_empty()) {
            let at = texts.first().map_or(&field.at, |first| &first.at);
            findings.error(at, words("`program` names no program", field.key.reason(), remedy()));
            return None;
        }
        Some((texts.into_iter().map(|piece| piece.text.to_owned()).collect(), field.at.clone()))
    })?;
    if program.is_some()
        && refuse(
            table,
            &NOT_OF_A_PROGRAM,
            "Talea does not observe the interior of a program",
            findings,
        )
    {
        return Err(());
    }
    Ok(program)
}

/// Reads the account of the program of a task, if the table names one.
pub(super) fn user(
    table: &Table<'_>,
    has_program: bool,
    findings: &mut Findings<'_>,
) -> Result<Option<String>, ()> {
    optional(table, "user", findings, |field, findings| {
        let remedy = || format!("write it like `user = {}`", field.key.example);
        if !has_program {
            let why = "only a `program` has a user of its own";
            let what = "`user` means nothing here";
            findings.error(&field.key_at, words(what, why, "leave it out"));
            return None;
        }
        let name = field.text(findings)?.text;
        if name.is_empty() || name.contains('\0') {
            findings
                .error(&field.at, words("`user` names no account", field.key.reason(), remedy()));
            return None;
        }
        Some(name.to_owned())
    })
}

/// Whether a program always requires the CPU. It does if its table states nothing about jobs: it
/// then has one job, which never ends.
pub(super) fn is_greedy(table: &Table<'_>, findings: &mut Findings<'_>) -> Result<bool, ()> {
    if ["period", "cost", "arrivals"].iter().any(|key| !table.lacks(key, findings)) {
        return Ok(false);
    }
    if refuse(
        table,
        &NOT_WITHOUT_END,
        "without `period` and `cost` it has one job, which never ends",
        findings,
    ) {
        return Err(());
    }
    Ok(true)
}

/// Reports each of `keys` that the table has. Returns whether there was one.
fn refuse(
    table: &Table<'_>,
    keys: &[&str],
    why: &'static str,
    findings: &mut Findings<'_>,
) -> bool {
    let found: Vec<Field<'_>> = keys.iter().filter_map(|key| table.take(key)).collect();
    for field in &found {
        let what = format!("`{}` means nothing beside this `program`", field.key.name);
        findings.error(&field.key_at, words(what, why, "leave it out"));
    }
    !found.is_empty()
}
