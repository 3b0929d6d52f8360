//! Reader of the tables other than schedulers and tasks.

use super::values::{Field, Table, bits, name, named, optional, time_of};
use crate::draft::{ChainDraft, ChannelDraft, Draft, Named, Place, SharedDraft, StallDraft};
use crate::keys::PROTOCOLS;
use crate::keys::Section;
use crate::system::Expectation;
use talea_config::diagnostic::quoted;
use talea_config::source::{Findings, words};
use talea_core::engine::{Condition, Protocol};
use talea_core::workload::Overheads;
use talea_core::{Span, Time};
use toml::de::DeValue;

/// Maximum overhead. A larger value is an error, and sums of larger values might overflow.
const OVERHEAD_MAX: Span = Span::from_ns(1_000_000_000);

pub(super) fn accelerator(
    table: &Table<'_>,
    file: usize,
    findings: &mut Findings<'_>,
) -> Option<SharedDraft> {
    shared(table, file, Some(Protocol::default()), findings)
}

pub(super) fn resource(
    table: &Table<'_>,
    file: usize,
    findings: &mut Findings<'_>,
) -> Option<SharedDraft> {
    let [none, inheritance, ceiling] = PROTOCOLS;
    let words = [
        (none, Protocol::None),
        (inheritance, Protocol::Inheritance),
        (ceiling, Protocol::Ceiling),
    ];
    let protocol =
        optional(table, "protocol", findings, |field, findings| field.word(&words, findings));
    shared(table, file, protocol.ok().map(Option::unwrap_or_default), findings)
}

fn shared(
    table: &Table<'_>,
    file: usize,
    protocol: Option<Protocol>,
    findings: &mut Findings<'_>,
) -> Option<SharedDraft> {
    let name = name(table, "name", file, findings);
    let root = optional(table, "in", findings, |field, findings| named(field, file, findings));
    Some(SharedDraft { name: name?, root: root.ok()?, protocol: protocol? })
}

pub(super) fn channel(
    table: &Table<'_>,
    file: usize,
    findings: &mut Findings<'_>,
) -> Option<ChannelDraft> {
    let (from, to) = (name(table, "from", file, findings), name(table, "to", file, findings));
    let size =
        optional(table, "size", findings, |field, findings| field.integer(0, 1 << 20, findings));
    let tokens =
        optional(table, "tokens", findings, |field, findings| field.integer(1, 64, findings));
    let counts = |key: &str, findings: &mut Findings<'_>| {
        optional(table, key, findings, |field, findings| {
            let counts = field.integers(0, 1_024, findings)?;
            if counts.is_empty() {
                let what = format!("`{key}` is an empty list");
                let remedy =
                    format!("write it like `{key} = {}`, or leave the line out", field.key.example);
                findings.error(&field.at, words(what, field.key.reason(), remedy));
            }
            (!counts.is_empty()).then_some(counts)
        })
    };
    let (push, pop) = (counts("push", findings), counts("pop", findings));
    let (size, tokens) = (size.ok()?.unwrap_or(0), tokens.ok()?.unwrap_or(1));
    for key in ["push", "pop"] {
        if let (0, Some(field)) = (size, table.take(key)) {
            let what = format!("`{key}` belongs to a channel with a size, and this has none");
            let why = "without data there is one token for each job, which an activation takes";
            findings.error(&field.key_at, words(what, why, "add `size`, or leave the line out"));
        }
    }
    if size > 0 && tokens > size {
        let at = table.take("tokens").map_or(table.at.clone(), |field| field.at);
        let why = format!("it holds {size}, so its end would never be activated");
        let remedy = format!("write `size = {tokens}`, or `tokens = {size}`");
        findings.error(
            &at,
            words("an activation takes more tokens than the channel holds", why, remedy),
        );
        return None;
    }
    let (push, pop, place) = (push.ok()?, pop.ok()?, Place { file, at: table.at.clone() });
    Some(ChannelDraft { from: from?, to: to?, size, tokens, push, pop, place })
}

/// Range of the number of tasks in a chain.
const CHAIN_TASKS: std::ops::RangeInclusive<usize> = 2..=64;

pub(super) fn chain(
    table: &Table<'_>,
    file: usize,
    findings: &mut Findings<'_>,
) -> Option<ChainDraft> {
    let name = optional(table, "name", findings, |field, findings| named(field, file, findings));
    let reaction = optional(table, "reaction", findings, Field::duration);
    let age = optional(table, "age", findings, Field::duration);
    let field = table.require("tasks", findings)?;
    let texts = field.texts(findings)?;
    let tasks: Vec<Named> = texts
        .into_iter()
        .map(|text| Named { name: text.text.to_owned(), file, at: text.at })
        .collect();
    let remedy = format!("write it like `tasks = {}`", field.key.example);
    if !CHAIN_TASKS.contains(&tasks.len()) {
        let what = format!("the number of tasks in a chain is {}", tasks.len());
        let why = "it leads from one task to another, through 64 at most";
        findings.error(&field.at, words(what, why, remedy));
        return None;
    }
    let twice = (1..tasks.len())
        .find(|&at| tasks[..at].iter().any(|earlier| earlier.name == tasks[at].name));
    if let Some(at) = twice {
        let what = format!("{} is twice in a chain", quoted(&tasks[at].name));
        findings.error(&tasks[at].at, words(what, "data pass each task once", remedy));
        return None;
    }
    let line = findings.source.line(table.at.start);
    let (reaction, age) = (reaction.ok()?, age.ok()?);
    let place = Place { file, at: table.at.clone() };
    Some(ChainDraft { name: name.ok()?, tasks, reaction, age, line, place })
}

pub(super) fn overheads(
    field: &Field<'_>,
    file: usize,
    draft: &mut Draft,
    findings: &mut Findings<'_>,
) {
    let DeValue::Table(table) = field.value else {
        field.mistyped(findings);
        return;
    };
    let table = Table::new(Section::Overheads, table, field.at.clone(), findings);
    if let Some((_, Place { file: other, at })) = &draft.overheads {
        // Only one file of a system may say it, and within one file it can't be said twice.
        debug_assert!(*other != file || *at != field.at);
        let remedy = "leave it to the file that describes the machine";
        findings.error(
            &field.key_at,
            words("[overheads] are said twice", "another file has them", remedy),
        );
        return;
    }
    let mut span = |key: &str| {
        let Ok(Some(span)) = optional(&table, key, findings, Field::duration_or_zero) else {
            return Span::ZERO;
        };
        if let (true, Some(field)) = (span > OVERHEAD_MAX, table.take(key)) {
            let what = format!("`{key}` is longer than {OVERHEAD_MAX}");
            let remedy =
                "write microseconds, such as `\"5us\"`; a longer stop of a CPU is a [[stall]]";
            findings.error(&field.at, words(what, field.key.reason(), remedy));
        }
        span.min(OVERHEAD_MAX)
    };
    let overheads = Overheads {
        release: span("release"),
        decision: span("decision"),
        level: span("level"),
        switch: span("switch"),
        migration: span("migration"),
    };
    draft.overheads = Some((overheads, Place { file, at: field.at.clone() }));
}

pub(super) fn stall(
    table: &Table<'_>,
    file: usize,
    findings: &mut Findings<'_>,
) -> Option<StallDraft> {
    let root = optional(table, "in", findings, |field, findings| named(field, file, findings));
    let cpu = optional(table, "cpu", findings, |field, findings| field.integer(0, 63, findings));
    let start = table.require("start", findings).and_then(|field| field.duration_or_zero(findings));
    let length = table.require("length", findings).and_then(|field| field.duration(findings));
    let from = time_of(start?);
    let to = from.saturating_add(length?);
    let (cpu, place) = (cpu.ok()?.unwrap_or(0), Place { file, at: table.at.clone() });
    Some(StallDraft { root: root.ok()?, cpu, from, to, place })
}

pub(super) fn change(
    table: &Table<'_>,
    findings: &mut Findings<'_>,
) -> Option<Vec<(Time, Condition)>> {
    let at = table.require("at", findings).and_then(|field| field.duration_or_zero(findings));
    let battery = optional(table, "battery", findings, |field, findings| {
        field.integer(0, u32::MAX, findings)
    });
    let mode = optional(table, "mode", findings, |field, findings| field.integer(0, 63, findings));
    let permitted = optional(table, "permitted", findings, bits);
    let (battery, mode, permitted) = (battery.ok()?, mode.ok()?, permitted.ok()?);
    let all: Vec<Condition> = [
        battery.map(|battery| Condition::Battery(u64::from(battery))),
        mode.map(|mode| Condition::Mode(mode as u8)),
        permitted.map(Condition::Permitted),
    ]
    .into_iter()
    .flatten()
    .collect();
    if all.is_empty() {
        let remedy = "add `battery = 40`, `mode = 2` or `permitted = [0, 3]`";
        findings.error(
            &table.at,
            words("[[change]] changes nothing", "versions depend on these three", remedy),
        );
    }
    let at = time_of(at?);
    Some(all.into_iter().map(|condition| (at, condition)).collect())
}

pub(super) fn expectation(
    table: &Table<'_>,
    file: usize,
    findings: &mut Findings<'_>,
) -> Option<(Expectation, Named)> {
    let task = optional(table, "task", findings, |field, findings| {
        Some(field.text(findings)?.text.to_owned())
    });
    let misses =
        optional(table, "misses", findings, |field, findings| field.integer(0, u32::MAX, findings));
    let response = optional(table, "response", findings, Field::duration);
    let (misses, response) = (misses.ok()?.map(u64::from), response.ok()?);
    if misses.is_none() && response.is_none() {
        let remedy = "add `misses = 0` or `response = \"13ms\"`";
        findings
            .error(&table.at, words("[[expect]] expects nothing", "it could never fail", remedy));
        return None;
    }
    let at = table.take("task").map_or(table.at.clone(), |field| field.at);
    let line = findings.source.line(table.at.start);
    let expectation = Expectation { task: task.ok()?, misses, response, line };
    let name = expectation.task.clone().unwrap_or_default();
    Some((expectation, Named { name, file, at }))
}
