//! Reader of `[task.curve]`: the arrival curve of a task, as minimum distances.

use super::values::{Field, Table, optional, spans, time_of};
use crate::keys::Section;
use talea_config::source::{Findings, words};
use talea_core::Span;
use talea_core::workload::distances::{
    DistanceError, DistanceFunction, DistanceSpec, MAX_DISTANCES, MAX_PREFIX,
};
use toml::de::DeValue;

/// Arrival curve of a task.
pub(super) struct Curve {
    pub(super) distances: DistanceFunction,
    pub(super) extra_delay: Span,
}

/// Forms of a curve, each with the keys that it needs and those that it may have.
const FORMS: [(&str, &[&str], &[&str]); 4] = [
    ("distances", &[], &[]),
    ("trace", &["jobs"], &[]),
    ("burst", &["within"], &["separation"]),
    ("jitter", &[], &["separation"]),
];

/// Reads the curve of a task, if it has one. The result is `Err` if the curve is invalid.
pub(super) fn curve(
    task: &Table<'_>,
    period: Option<Span>,
    findings: &mut Findings<'_>,
) -> Result<Option<Curve>, ()> {
    let Some(field) = task.take("curve") else { return Ok(None) };
    let DeValue::Table(table) = field.value else {
        field.mistyped(findings);
        return Err(());
    };
    let table = Table::new(Section::Curve, table, field.at.clone(), findings);
    let extra_delay = optional(&table, "extra_delay", findings, Field::duration_or_zero)?;
    let form = form(&field, &table, findings).ok_or(())?;
    let separation = optional(&table, "separation", findings, Field::duration_or_zero)?;
    let separation = separation.unwrap_or(Span::ZERO);
    let found = match form {
        "distances" => {
            let list = durations(&table, form, findings).ok_or(())?;
            DistanceFunction::new(DistanceSpec::List(list))
        }
        "trace" => {
            let times = durations(&table, form, findings).ok_or(())?;
            let jobs = table.require("jobs", findings).ok_or(())?;
            let count = jobs.integer(1, MAX_DISTANCES as u32, findings).ok_or(())? as usize;
            if let Some(at) = times.windows(2).position(|two| two[0] > two[1]) {
                let field = table.take("trace").ok_or(())?;
                let what = format!("time {} of `trace` is before the one above", at + 2);
                findings.error(&field.at, words(what, "a trace is in order", "sort the times"));
                return Err(());
            }
            let times: Vec<_> = times.into_iter().map(time_of).collect();
            DistanceFunction::of_trace(&times, count)
        }
        "burst" => {
            let burst = table.require("burst", findings).ok_or(())?;
            let jobs = burst.integer(1, MAX_DISTANCES as u32, findings).ok_or(())?;
            let within = table.require("within", findings).ok_or(())?;
            let within = within.duration(findings).ok_or(())?;
            DistanceFunction::burst(jobs, within, separation)
        }
        _ => {
            let jitter = optional(&table, "jitter", findings, Field::duration_or_zero)?;
            let Some(period) = period else {
                if task.lacks("period", findings) {
                    let what = "`jitter` of a curve has no `period`";
                    let why = "the arrivals are late against periodic ones";
                    findings.error(&field.at, words(what, why, "add `period` to the task"));
                }
                return Err(());
            };
            let jitter = jitter.unwrap_or(Span::ZERO);
            DistanceFunction::new(DistanceSpec::Jittered { period, jitter, separation })
        }
    };
    let distances = found.map_err(|error| report(error, form, &table, findings))?;
    Ok(Some(Curve { distances, extra_delay: extra_delay.unwrap_or(Span::ZERO) }))
}

/// Returns the form of a curve, and reports keys that do not belong to it.
fn form(field: &Field<'_>, table: &Table<'_>, findings: &mut Findings<'_>) -> Option<&'static str> {
    let remedy = "write one of `distances`, `trace`, `burst` and `jitter`";
    let mut forms = FORMS.iter().filter(|(name, ..)| table.take(name).is_some());
    let Some(&(form, needed, permitted)) = forms.next() else {
        // A misspelt key was reported.
        if FORMS.iter().all(|(name, ..)| table.lacks(name, findings)) {
            let what = "`curve` does not say how dense arrivals may be";
            findings.error(&field.at, words(what, field.key.reason(), remedy));
        }
        return None;
    };
    let others = ["jobs", "within", "separation"];
    let others = others.into_iter().filter(|key| !needed.contains(key) && !permitted.contains(key));
    let mut is_fine = true;
    for key in forms.map(|(name, ..)| *name).chain(others) {
        if let Some(other) = table.take(key) {
            let what = format!("`{key}` means nothing beside `{form}`");
            let why = "a curve has one form";
            findings.error(&other.key_at, words(what, why, "leave the line out"));
            is_fine = false;
        }
    }
    is_fine.then_some(form)
}

fn durations(table: &Table<'_>, key: &str, findings: &mut Findings<'_>) -> Option<Vec<Span>> {
    let field = table.require(key, findings)?;
    let DeValue::Array(items) = field.value else {
        field.mistyped(findings);
        return None;
    };
    spans(&field, items, findings)
}

/// Reports why a declaration is no arrival curve.
fn report(error: DistanceError, form: &str, table: &Table<'_>, findings: &mut Findings<'_>) {
    let (key, what, why, remedy) = match error {
        DistanceError::Length if form == "trace" => (
            "jobs",
            "the trace has too few arrivals for `jobs`".to_owned(),
            "n distances need n + 1 arrivals",
            "lower `jobs`, or extend `trace`".to_owned(),
        ),
        DistanceError::Length => (
            form,
            format!("`{form}` has no element, or more than {MAX_DISTANCES}"),
            "the list gives the distance to the next arrival, to the second after it, and so on",
            format!("write 1 to {MAX_DISTANCES} durations"),
        ),
        DistanceError::Order(at) => (
            form,
            format!("distance {} is shorter than the one before it", at + 1),
            "a later arrival is at least as far away",
            "write distances that do not decrease".to_owned(),
        ),
        DistanceError::Unlimited => (
            form,
            "the curve permits any number of jobs at one instant".to_owned(),
            "all distances are zero",
            "write at least one distance above zero".to_owned(),
        ),
        DistanceError::Separation => (
            "separation",
            "`separation` is longer than the period".to_owned(),
            "the arrivals have the period as their mean distance",
            "write at most the period".to_owned(),
        ),
        DistanceError::Burst => (
            "jitter",
            format!("the jitter permits a burst of more than {MAX_PREFIX} jobs"),
            "the burst is what `jitter` exceeds the period by, at `separation`",
            "lower `jitter`, or write a longer `separation`".to_owned(),
        ),
        DistanceError::Range => (
            form,
            "the sums of the distances are out of range".to_owned(),
            "times are below 584 years",
            "write shorter durations".to_owned(),
        ),
    };
    let at = table.take(key).map_or(table.at.clone(), |field| field.at);
    findings.error(&at, words(what, why, remedy));
}
