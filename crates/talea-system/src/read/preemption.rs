//! Reader of the keys about limited preemption.

use super::values::{Field, Table, optional, spans, work_of};
use crate::draft::PreemptionDraft;
use talea_config::source::{Findings, words};
use talea_core::{Span, Work};
use toml::de::DeValue;

/// Reads where siblings may preempt the jobs of a task. `most` is the largest cost of a job.
pub(super) fn preemption(
    table: &Table<'_>,
    most: Option<Work>,
    findings: &mut Findings<'_>,
) -> Option<PreemptionDraft> {
    let points = optional(table, "preemption_points", findings, |field, findings| {
        let DeValue::Array(items) = field.value else {
            field.mistyped(findings);
            return None;
        };
        points(field, spans(field, items, findings)?, most, findings)
    });
    let longest = optional(table, "nonpreemptive_max", findings, Field::duration_or_zero);
    let last = optional(table, "nonpreemptive_last", findings, Field::duration_or_zero);
    let (points, longest, last) = (points.ok()?, longest.ok()?, last.ok()?);
    let refuse =
        |key: &str, what: String, why: String, remedy: String, findings: &mut Findings<'_>| {
            if let Some(field) = table.take(key) {
                findings.error(&field.at, words(what, why, remedy));
            }
            None
        };
    for key in ["nonpreemptive_max", "nonpreemptive_last"] {
        if points.is_some()
            && let Some(field) = table.take(key)
        {
            let what = format!("`{key}` means nothing beside `preemption_points`");
            let why = "the points divide the whole job";
            findings.error(&field.key_at, words(what, why, "leave one of the two out"));
            return None;
        }
    }
    if let Some(points) = points {
        return Some(PreemptionDraft::Points(points));
    }
    let last = last.unwrap_or(Span::ZERO);
    let longest = work_of(longest.unwrap_or(Span::ZERO));
    if let Some(most) = most.filter(|&most| longest > most) {
        let why = format!("no job does more than {most}");
        let what = "`nonpreemptive_max` is longer than the job".to_owned();
        return refuse("nonpreemptive_max", what, why, format!("write at most {most}"), findings);
    }
    if work_of(last) > longest {
        let what = "`nonpreemptive_last` is above `nonpreemptive_max`".to_owned();
        let why = "the last section is one of them".to_owned();
        let remedy = format!("write `nonpreemptive_max = \"{last}\"`, or more");
        return refuse("nonpreemptive_last", what, why, remedy, findings);
    }
    if longest.is_zero() {
        return Some(PreemptionDraft::Anywhere);
    }
    Some(PreemptionDraft::Floating { longest, last: work_of(last) })
}

/// Checks that preemption points are within the job, in order.
fn points(
    field: &Field<'_>,
    points: Vec<Span>,
    most: Option<Work>,
    findings: &mut Findings<'_>,
) -> Option<Vec<Work>> {
    let points: Vec<Work> = points.into_iter().map(work_of).collect();
    let order = points.windows(2).position(|two| two[0] >= two[1]).map(|at| at + 1);
    let within = |&point: &Work| !point.is_zero() && most.is_none_or(|most| point < most);
    let outside = points.iter().position(|point| !within(point));
    let (at, what, why, remedy) = if let Some(at) = outside {
        let most = most.map_or_else(|| "its cost".to_owned(), |most| most.to_string());
        let why =
            format!("the point is before the start of a job, or not before its end at {most}");
        (at, "is outside of the job", why, format!("write more than 0 and less than {most}"))
    } else if let Some(at) = order {
        let why = "the points count the work of a job from its start".to_owned();
        (at, "is not after the one before", why, "sort the points".to_owned())
    } else {
        return Some(points);
    };
    let what = format!("preemption point {} {what}", at + 1);
    findings.error(&field.at, words(what, why, remedy));
    None
}
