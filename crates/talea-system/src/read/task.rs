//! Reader of `[[task]]` with its versions, critical sections and suspensions.

use super::curve::{Curve, curve};
use super::health::health;
use super::preemption::preemption;
use super::program::{is_greedy, program, user};
use super::values::{
    Field, Table, affinity, bits, byte, list, name, named, optional, spans, time_of, work_of,
};
use crate::draft::{
    CpuUse, Named, ParametersDraft, ProgramDraft, SectionDraft, StepsDraft, SuspensionDraft,
    TaskDraft, VersionDraft,
};
use crate::keys::{CPU_USES, Section};
use std::collections::BTreeSet;
use talea_config::diagnostic::quoted;
use talea_config::key::FileSection;
use talea_config::source::{Findings, words};
use talea_core::engine::MAX_RUN;
use talea_core::workload::{Arrivals, Cost, Source};
use talea_core::{Span, Time, Work};
use toml::de::{DeTable, DeValue};

fn cost(field: &Field<'_>, findings: &mut Findings<'_>) -> Option<Cost> {
    match field.value {
        DeValue::String(_) => field.duration(findings).map(|span| Cost::Constant(work_of(span))),
        DeValue::Array(items) if !items.is_empty() => {
            let costs = spans(field, items, findings)?;
            if costs.iter().any(|cost| cost.is_zero()) {
                field.mistyped(findings);
                return None;
            }
            Some(Cost::List(costs.into_iter().map(work_of).collect()))
        }
        DeValue::Table(table) if table.contains_key("low") || table.contains_key("high") => {
            let pair = pair(field, table, findings);
            if pair.is_none() {
                let remedy = "write `cost = { low = \"1ms\", high = \"4ms\", share = 10 }`";
                let what = "`cost` has no `low` up to `high` with a `share` of 0 to 1000";
                findings.error(&field.at, words(what, field.key.reason(), remedy));
            }
            pair
        }
        DeValue::Table(table) => {
            let part = |name: &str, findings: &mut Findings<'_>| {
                let (_, value) = table.get_key_value(name)?;
                let at = value.span();
                Field { key: field.key, key_at: field.key_at.clone(), at, value: value.get_ref() }
                    .duration(findings)
            };
            let (min, max) = (part("min", findings), part("max", findings));
            match (min, max) {
                (Some(min), Some(max)) if min <= max && table.len() == 2 => {
                    Some(Cost::Uniform { min: work_of(min), max: work_of(max) })
                }
                _ => {
                    let remedy = "write `cost = { min = \"1ms\", max = \"4ms\" }`";
                    findings.error(
                        &field.at,
                        words("`cost` has no `min` up to `max`", field.key.reason(), remedy),
                    );
                    None
                }
            }
        }
        _ => {
            field.mistyped(findings);
            None
        }
    }
}

/// Reads a pair of costs: `{ low = "1ms", high = "4ms", share = 10 }`.
fn pair(field: &Field<'_>, table: &DeTable<'_>, findings: &mut Findings<'_>) -> Option<Cost> {
    let part = |name: &str| {
        let (_, value) = table.get_key_value(name)?;
        Some(Field {
            key: field.key,
            key_at: field.key_at.clone(),
            at: value.span(),
            value: value.get_ref(),
        })
    };
    let (low, high) = (part("low")?.duration(findings), part("high")?.duration(findings));
    let share = part("share").and_then(|part| match part.value {
        DeValue::Integer(number) => {
            number.as_str().parse::<u32>().ok().filter(|&share| share <= 1_000)
        }
        _ => None,
    });
    match (low, high, share) {
        (Some(low), Some(high), Some(share)) if low <= high && table.len() == 3 => {
            Some(Cost::Pair { low: work_of(low), high: work_of(high), share })
        }
        _ => None,
    }
}

pub(super) fn task(
    table: &Table<'_>,
    file: usize,
    findings: &mut Findings<'_>,
) -> Option<TaskDraft> {
    let name = name(table, "name", file, findings);
    let parent = optional(table, "in", findings, |field, findings| named(field, file, findings));
    // Whether it may do without one is known when the channels are.
    let period = optional(table, "period", findings, Field::duration);
    let deadline = optional(table, "deadline", findings, Field::duration);
    let priority = optional(table, "priority", findings, byte);
    let criticality = optional(table, "criticality", findings, byte);
    let enforce = optional(table, "enforce", findings, Field::boolean);
    let is_logical = optional(table, "logical_execution_time", findings, Field::boolean);
    let backlog =
        optional(table, "backlog", findings, |field, findings| field.integer(0, 1 << 20, findings));
    let count =
        optional(table, "count", findings, |field, findings| field.integer(1, 10_000, findings));
    let affinity =
        optional(table, "affinity", findings, |field, findings| affinity(field, file, findings));
    let versions: Vec<Option<VersionDraft>> = list(table, "version", Section::Version, findings)
        .iter()
        .map(|table| version(table, file, findings))
        .collect();
    // The required keys of a task whose program is unreadable are unknown.
    let program = program(table, findings).ok()?;
    let user = user(table, program.is_some(), findings).ok()?;
    let health = health(table, program.is_some(), findings).ok()?;
    let is_greedy = program.is_some() && is_greedy(table, findings).ok()?;
    let endless = is_greedy.then(Source::endless);
    let (cost, endless) = match endless {
        Some(Source { arrivals, cost }) => (Some(cost), Some(arrivals)),
        None => (costs(table, &versions, findings), None),
    };
    let period = period.ok()?.or(is_greedy.then_some(MAX_RUN));
    let curve = curve(table, period, findings).ok()?;
    let mean = curve.as_ref().map(|curve| curve.distances.mean_distance());
    let period = period.or(mean);
    let arrivals = endless.or_else(|| arrivals(table, period, curve, findings));
    let most = cost.as_ref().map(Cost::max);
    let preemption = preemption(table, most, findings);
    let sections = sections(table, file, most, findings);
    let suspensions: Vec<Option<SuspensionDraft>> =
        list(table, "suspension", Section::Suspension, findings)
            .iter()
            .map(|table| {
                let start = optional(table, "start", findings, Field::duration_or_zero);
                let length =
                    table.require("length", findings).and_then(|field| field.duration(findings));
                let [free, spin, hold] = CPU_USES;
                let words = [(free, CpuUse::Free), (spin, CpuUse::Spin), (hold, CpuUse::Hold)];
                let cpu_use = optional(table, "while", findings, |field, findings| {
                    field.word(&words, findings)
                });
                let version = optional(table, "version", findings, |field, findings| {
                    named(field, file, findings)
                });
                let (after, length) = (work_of(start.ok()?.unwrap_or(Span::ZERO)), length?);
                within(table, after, most, findings)?;
                let cpu_use = cpu_use.ok()?.unwrap_or_default();
                Some(SuspensionDraft { after, length, cpu_use, version: version.ok()? })
            })
            .collect();
    let about_arrivals = ["offset", "jitter", "arrivals", "separation_max", "curve"]
        .into_iter()
        .filter_map(|key| Some((key, table.take(key)?.key_at)))
        .collect();
    if period.is_none() && table.take("period").is_none() && !table.lacks("period", findings) {
        // It stands in a line that could not be read, or is misspelt: that was said.
        return None;
    }
    Some(TaskDraft {
        name: name?,
        parent: parent.ok()?,
        parameters: ParametersDraft {
            period,
            deadline: deadline.ok()?,
            is_logical: is_logical.ok()?.unwrap_or(false),
            priority: priority.ok()?,
            criticality: criticality.ok()?,
        },
        cost: cost?,
        arrivals: arrivals?,
        about_arrivals,
        enforce: enforce.ok()?.unwrap_or(false),
        backlog: backlog.ok()?,
        count: count.ok()?,
        affinity: affinity.ok()?,
        versions: versions.into_iter().collect::<Option<_>>()?,
        steps: StepsDraft {
            sections: sections?,
            suspensions: suspensions.into_iter().collect::<Option<_>>()?,
            preemption: preemption?,
        },
        program: program.map(|(words, at)| ProgramDraft { words, at, user, health }),
        at: table.at.clone(),
    })
}

/// Reads the cost of jobs, by version if there are versions.
fn costs(
    table: &Table<'_>,
    versions: &[Option<VersionDraft>],
    findings: &mut Findings<'_>,
) -> Option<Cost> {
    if table.take("version").is_none() {
        return table.require("cost", findings).and_then(|field| cost(&field, findings));
    }
    if let Some(field) = table.take("cost") {
        let what = "a task with versions has no `cost` of its own";
        let why = "each of them says what it costs";
        findings.error(&field.key_at, words(what, why, "leave the line out"));
    }
    let mut names: BTreeSet<&str> = BTreeSet::new();
    for version in versions.iter().flatten() {
        if !names.insert(version.name.name.as_str()) {
            let what = format!("{} is the name of two versions", quoted(&version.name.name));
            let why = "who names it would mean either";
            findings.error(&version.name.at, words(what, why, "give one of them another name"));
        }
    }
    let costs = versions.iter().map(|version| Some(version.as_ref()?.cost.clone()));
    Some(Cost::Versions(costs.collect::<Option<_>>()?)).filter(|_| !versions.is_empty())
}

fn version(table: &Table<'_>, file: usize, findings: &mut Findings<'_>) -> Option<VersionDraft> {
    let name = name(table, "name", file, findings);
    let cost = table.require("cost", findings).and_then(|field| cost(&field, findings));
    let accelerators = optional(table, "accelerators", findings, |field, findings| {
        let names = field.texts(findings)?;
        Some(
            names
                .into_iter()
                .map(|name| Named { name: name.text.to_owned(), file, at: name.at })
                .collect(),
        )
    });
    let energy =
        optional(table, "energy", findings, |field, findings| field.integer(0, u32::MAX, findings));
    let time = optional(table, "time", findings, Field::duration);
    let modes = optional(table, "modes", findings, bits);
    let needs = optional(table, "needs", findings, bits);
    Some(VersionDraft {
        name: name?,
        cost: cost?,
        accelerators: accelerators.ok()?.unwrap_or_default(),
        energy: energy.ok()?.unwrap_or(0),
        time: time.ok()?,
        modes: modes.ok()?.unwrap_or(u64::MAX),
        needs: needs.ok()?.unwrap_or(0),
    })
}

/// Reports an offset `after` that no job reaches. `most` is the largest cost of a job.
fn within(
    table: &Table<'_>,
    after: Work,
    most: Option<Work>,
    findings: &mut Findings<'_>,
) -> Option<()> {
    let Some(most) = most.filter(|&most| after >= most) else { return Some(()) };
    let at = table.take("start").map_or(table.at.clone(), |field| field.at);
    let what = format!("{} begins after the end of the job", table.section.header());
    let why = format!("no job does more than {most}");
    findings.error(&at, words(what, why, format!("write a `start` below {most}")));
    None
}

/// Reads the critical sections. Of sections that begin together, the outer section precedes.
fn sections(
    table: &Table<'_>,
    file: usize,
    most: Option<Work>,
    findings: &mut Findings<'_>,
) -> Option<Vec<SectionDraft>> {
    let mut sections = Vec::new();
    for table in list(table, "section", Section::CriticalSection, findings) {
        let resource = name(&table, "resource", file, findings);
        let start = optional(&table, "start", findings, Field::duration_or_zero);
        let length = table.require("length", findings).and_then(|field| field.duration(findings));
        let (from, length) = (work_of(start.ok()?.unwrap_or(Span::ZERO)), work_of(length?));
        within(&table, from, most, findings)?;
        let to = from.checked_add(length)?;
        if let Some(most) = most.filter(|&most| to > most) {
            let field = table.take("length")?;
            let why = format!("no job does more than {most}");
            let rest = most.checked_sub(from)?;
            let remedy = format!("write `length = \"{rest}\"`, up to the end of the job");
            findings.error(
                &field.at,
                words("the section goes on after the end of the job", why, remedy),
            );
            return None;
        }
        sections.push(SectionDraft { resource: resource?, from, to, at: table.at.clone() });
    }
    sections.sort_by_key(|section| (section.from, std::cmp::Reverse(section.to)));
    // A section that ends within the enclosing one is nested, so only open sections are compared.
    let mut open: Vec<&SectionDraft> = Vec::new();
    for section in &sections {
        open.retain(|outer| outer.to > section.from);
        for outer in &open {
            let (what, remedy) = if outer.resource.name == section.resource.name {
                ("a section locks what its job holds already", "leave one of the two out")
            } else if outer.to < section.to {
                ("two sections of a job cross", "end the inner one first, or with the outer one")
            } else {
                continue;
            };
            let name = quoted(&outer.resource.name);
            let why =
                format!("the section of {name} around it ends after {}: sections nest", outer.to);
            findings.error(&section.at, words(what, why, remedy));
            return None;
        }
        open.push(section);
    }
    Some(sections)
}

fn arrivals(
    table: &Table<'_>,
    period: Option<Span>,
    curve: Option<Curve>,
    findings: &mut Findings<'_>,
) -> Option<Arrivals> {
    let offset = optional(table, "offset", findings, Field::duration_or_zero);
    let jitter = optional(table, "jitter", findings, Field::duration_or_zero);
    let separation_max = optional(table, "separation_max", findings, Field::duration);
    let listed = optional(table, "arrivals", findings, |field, findings| {
        let DeValue::Array(items) = field.value else {
            field.mistyped(findings);
            return None;
        };
        let times = spans(field, items, findings)?;
        if times.windows(2).any(|two| two[0] > two[1]) {
            let what = "`arrivals` are not in order";
            findings.error(&field.at, words(what, "time does not run backwards", "sort them"));
            return None;
        }
        Some(times.into_iter().map(time_of).collect::<Vec<Time>>())
    });
    let (offset, jitter) = (offset.ok()?.unwrap_or(Span::ZERO), jitter.ok()?.unwrap_or(Span::ZERO));
    let separation_max = separation_max.ok()?;
    let extra_separation = match (period, separation_max) {
        (Some(period), Some(separation_max)) => {
            let extra = separation_max.checked_sub(period).filter(|extra| !extra.is_zero());
            if extra.is_none() {
                let at = table.take("separation_max")?.at;
                let what = "`separation_max` is not above the period";
                let why = "two arrivals are at least the period apart";
                findings.error(&at, words(what, why, format!("write more than {period}")));
                return None;
            }
            extra
        }
        _ => None,
    };
    if let Some(Curve { distances, extra_delay }) = curve {
        for key in ["jitter", "separation_max", "arrivals"] {
            if let Some(field) = table.take(key) {
                let what = format!("`{key}` means nothing beside `curve`");
                let why = "the curve states all distances";
                findings.error(&field.key_at, words(what, why, "leave the line out"));
            }
        }
        return Some(Arrivals::Curve { offset, distances: Box::new(distances), extra_delay });
    }
    if let Some(times) = listed.ok()? {
        for key in ["offset", "jitter", "separation_max"] {
            if let Some(field) = table.take(key) {
                let what = format!("`{key}` means nothing beside `arrivals`");
                findings.error(
                    &field.key_at,
                    words(what, "the list says every time", "leave the line out"),
                );
            }
        }
        return Some(Arrivals::List(times));
    }
    if extra_separation.is_some()
        && let Some(field) = table.take("jitter")
    {
        let why = "the separation of its arrivals is random already";
        let what = "`jitter` means nothing beside `separation_max`";
        findings.error(&field.key_at, words(what, why, "leave one of the two out"));
    }
    Some(match (period, extra_separation) {
        // Another task or a table releases its jobs; a task without either is refused later.
        (None, _) => Arrivals::List(Vec::new()),
        (Some(period), Some(extra_separation)) => {
            Arrivals::Sporadic { offset, separation: period, extra_separation }
        }
        (Some(period), None) => Arrivals::Periodic { offset, period, jitter },
    })
}
