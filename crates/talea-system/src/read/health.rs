//! Reader of the health of a program: `ready`, `on_failure` and `[task.restart]`.

use super::values::{Field, Table, optional};
use crate::keys::{FAILURE_ACTIONS, RESTART_EXITS, Section};
use talea_config::source::{Findings, words};
use talea_core::health::{Health, OnFailure, Restart, RestartOn};
use talea_core::mutate;
use toml::de::DeValue;

/// Maximum number of restarts in a window. A deployment stores the time of each.
const MAX_ATTEMPTS: u32 = 1_000;

/// Reads the health of a task's program. `Err` after a reported error.
pub(super) fn health(
    task: &Table<'_>,
    has_program: bool,
    findings: &mut Findings<'_>,
) -> Result<Health, ()> {
    if !has_program {
        let found: Vec<_> =
            ["ready", "on_failure", "restart"].iter().filter_map(|key| task.take(key)).collect();
        for field in &found {
            let what = format!("`{}` means nothing here", field.key.name);
            let why = "only a `program` starts and fails";
            findings.error(&field.key_at, words(what, why, "leave it out"));
        }
        return if found.is_empty() { Ok(Health::default()) } else { Err(()) };
    }
    let ready = optional(task, "ready", findings, Field::duration);
    let [again, idle, ignore] = FAILURE_ACTIONS;
    let actions =
        [(again, OnFailure::Restart), (idle, OnFailure::Idle), (ignore, OnFailure::Ignore)];
    let on_failure =
        optional(task, "on_failure", findings, |field, findings| field.word(&actions, findings));
    let restart = restart(task, findings);
    let health = Health {
        ready: ready?,
        on_failure: on_failure?.unwrap_or_default(),
        restart: restart?.unwrap_or_default(),
    };
    let is_used = health.on_failure == OnFailure::Restart;
    if let Some(field) =
        task.take("restart").filter(|_| mutate!("system-restart-unused", !is_used, false))
    {
        let what = "`restart` means nothing beside this `on_failure`";
        let remedy = "leave one of the two out";
        findings.error(&field.key_at, words(what, "its program is not restarted", remedy));
        return Err(());
    }
    Ok(health)
}

/// Reads `[task.restart]`; `Ok(None)` if the task has none.
fn restart(task: &Table<'_>, findings: &mut Findings<'_>) -> Result<Option<Restart>, ()> {
    let Some(field) = task.take("restart") else { return Ok(None) };
    let DeValue::Table(table) = field.value else {
        field.mistyped(findings);
        return Err(());
    };
    let table = Table::new(Section::Restart, table, field.at.clone(), findings);
    let [failure, always] = RESTART_EXITS;
    let exits = [(failure, RestartOn::Failure), (always, RestartOn::Always)];
    let when = optional(&table, "when", findings, |field, findings| field.word(&exits, findings));
    let attempts = optional(&table, "attempts", findings, |field, findings| {
        field.integer(0, MAX_ATTEMPTS, findings)
    });
    let within = optional(&table, "within", findings, Field::duration);
    let backoff = optional(&table, "backoff", findings, Field::duration_or_zero);
    let usual = Restart::default();
    let within = within?.unwrap_or(usual.within);
    let backoff = backoff?;
    if let (Some(wait), Some(field)) = (backoff, table.take("backoff"))
        && wait > within
    {
        let what = format!("`backoff` is longer than the window of {within}");
        let why = "the window would end before the restart, and no attempt would count";
        let remedy = format!("write at most {within}, or a longer `within`");
        findings.error(&field.at, words(what, why, remedy));
        return Err(());
    }
    Ok(Some(Restart {
        when: when?.unwrap_or_default(),
        attempts: attempts?.unwrap_or(usual.attempts),
        within,
        backoff: backoff.unwrap_or(usual.backoff.min(within)),
    }))
}
