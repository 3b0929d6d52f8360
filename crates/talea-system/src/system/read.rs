//! Each table by itself.

use super::Expectation;
use super::build::{Draft, Named, SchedulerDraft, SlotDraft, TaskDraft};
use super::keys::{POLICIES, SERVERS};
use crate::config::keys::Section;
use crate::config::table::{Field, Table};
use crate::diagnostic::quoted;
use crate::source::{Findings, words};
use talea_core::machine::Migration;
use talea_core::server::Kind;
use talea_core::workload::{Arrivals, Cost};
use talea_core::{Span, Time, Work};
use toml::de::{DeTable, DeValue};

/// Tasks and schedulers of one file at most.
const TABLES_MAX: usize = 100_000;
const NAME_MAX: usize = 63;

const KINDS: [(&str, Kind); 5] = [
    (SERVERS[0], Kind::Polling),
    (SERVERS[1], Kind::Deferrable),
    (SERVERS[2], Kind::Sporadic),
    (SERVERS[3], Kind::HardCbs),
    (SERVERS[4], Kind::SoftCbs),
];

/// Everything that one file holds.
pub(super) fn file(document: &DeTable<'_>, file: usize, draft: &mut Draft, findings: &mut Findings<'_>) {
    let top = Table::new(Section::System, document, 0..0, findings);
    if let Some(field) = top.take("duration") {
        draft.duration = field.duration(findings).or(draft.duration);
    }
    if let Some(field) = top.take("seed") {
        draft.seed = field.integer(0, u32::MAX, findings).map(u64::from).or(draft.seed);
    }
    for table in list(&top, "scheduler", Section::Scheduler, findings) {
        match scheduler(&table, file, findings) {
            Some(scheduler) => draft.schedulers.push(scheduler),
            None => draft.broken.extend(table.take("name").and_then(|field| {
                let name = field.value.as_str()?.to_owned();
                Some(Named { name, file, at: field.at })
            })),
        }
    }
    for table in list(&top, "task", Section::Task, findings) {
        draft.tasks.extend(task(&table, file, findings));
    }
    for table in list(&top, "expect", Section::Expect, findings) {
        draft.expectations.extend(expectation(&table, file, findings));
    }
}

fn list<'a>(top: &Table<'a>, name: &str, section: Section, findings: &mut Findings<'_>) -> Vec<Table<'a>> {
    let Some(field) = top.take(name) else { return Vec::new() };
    let DeValue::Array(items) = field.value else {
        let what = format!("`{name}` is not written as {}", section.header());
        let remedy = format!("write {} in double brackets, once for each", section.header());
        findings.error(&field.key_at, words(what, field.key.reason(), remedy));
        return Vec::new();
    };
    let mut tables = Vec::new();
    for item in items {
        match item.get_ref() {
            DeValue::Table(table) if tables.len() < TABLES_MAX => {
                tables.push(Table::new(section, table, item.span(), findings));
            }
            DeValue::Table(_) => {
                let what = format!("there are more than {TABLES_MAX} of {}", section.header());
                findings.error(
                    &item.span(),
                    words(what, "what one file may hold is bounded", "use several files"),
                );
                break;
            }
            _ => {
                let what = format!("an element of `{name}` is not a table");
                let remedy = format!("write {} in double brackets, once for each", section.header());
                findings.error(&item.span(), words(what, field.key.reason(), remedy));
            }
        }
    }
    tables
}

fn name(table: &Table<'_>, key: &str, file: usize, findings: &mut Findings<'_>) -> Option<Named> {
    let field = table.require(key, findings)?;
    named(&field, file, findings)
}

fn named(field: &Field<'_>, file: usize, findings: &mut Findings<'_>) -> Option<Named> {
    let piece = field.text(findings)?;
    let is_fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    if piece.text.is_empty() || piece.text.len() > NAME_MAX || !piece.text.chars().all(is_fine) {
        let what = format!("{} can't be a name", quoted(piece.text));
        let why = format!("names have 1 to {NAME_MAX} letters, digits, `_`, `-` and `.`");
        findings.error(
            &field.at,
            words(what, why, format!("write it like `{} = {}`", field.key.name, field.key.example)),
        );
        return None;
    }
    Some(Named { name: piece.text.to_owned(), file, at: field.at.clone() })
}

/// Reads an optional key: `Err` when it is there and wrong.
fn optional<'a, T>(
    table: &Table<'a>,
    key: &str,
    findings: &mut Findings<'_>,
    read: impl FnOnce(&Field<'a>, &mut Findings<'_>) -> Option<T>,
) -> Result<Option<T>, ()> {
    match table.take(key) {
        None => Ok(None),
        Some(field) => read(&field, findings).map(Some).ok_or(()),
    }
}

fn byte(field: &Field<'_>, findings: &mut Findings<'_>) -> Option<u8> {
    field.integer(0, 255, findings).map(|value| value as u8)
}

fn scheduler(table: &Table<'_>, file: usize, findings: &mut Findings<'_>) -> Option<SchedulerDraft> {
    let name = name(table, "name", file, findings);
    let parent = optional(table, "in", findings, |field, findings| named(field, file, findings));
    let server = optional(table, "server", findings, |field, findings| field.word(&KINDS, findings));
    let policies = POLICIES.map(|word| (word, word));
    let policy = match (table.take("policy"), &server) {
        (None, Ok(Some(_))) => Some("fifo"),
        _ => table.require("policy", findings).and_then(|field| field.word(&policies, findings)),
    };
    let cpus = optional(table, "cpus", findings, |field, findings| field.integer(1, 64, findings));
    let migration = optional(table, "migration", findings, |field, findings| {
        field.word(&[("anytime", Migration::Anytime), ("job-boundaries", Migration::JobBoundaries)], findings)
    });
    let preemptive = optional(table, "preemptive", findings, Field::boolean);
    let lending = optional(table, "lending", findings, Field::boolean);
    let priority = optional(table, "priority", findings, byte);
    let criticality = optional(table, "criticality", findings, byte);
    let mut spans = [Ok(None); 6];
    for (span, key) in spans.iter_mut().zip(["quantum", "frame", "budget", "period", "deadline", "offset"]) {
        *span = optional(table, key, findings, |field, findings| {
            if key == "offset" { field.duration_or_zero(findings) } else { field.duration(findings) }
        });
    }
    let [quantum, frame, budget, period, deadline, offset] = spans;
    let mut slots = Vec::new();
    for slot in list(table, "slot", Section::Slot, findings) {
        slots.push(self::slot(&slot, file, findings));
    }
    // What belongs to another kind of scheduler would be ignored without a word.
    let (kind, is_server) = (policy?, server.ok()?.is_some());
    for (key, fits, whose) in [
        ("quantum", kind == "rr", "policy `rr`"),
        ("frame", kind == "partitions", "policy `partitions`"),
        ("slot", kind == "partitions", "policy `partitions`"),
        ("lending", kind == "partitions", "policy `partitions`"),
        ("budget", is_server, "a `server`"),
        ("deadline", is_server, "a `server`"),
        ("offset", is_server, "a `server`"),
        ("period", is_server, "a `server`"),
        ("cpus", parent == Ok(None), "a root"),
        ("migration", parent == Ok(None), "a root"),
    ] {
        if let (false, Some(field)) = (fits, table.take(key)) {
            let what = format!("`{key}` belongs to {whose}, and this is none");
            findings.error(
                &field.key_at,
                words(what, "it would be ignored without a word", "leave the line out"),
            );
        }
    }
    let needed: &[&str] = match kind {
        "rr" => &["quantum"],
        "partitions" => &["frame", "slot"],
        _ => &[],
    };
    let of_a_server: &[&str] = if is_server { &["budget", "period"] } else { &[] };
    let mut complete = true;
    for key in needed.iter().chain(of_a_server) {
        complete &= table.require(key, findings).is_some();
    }
    if !complete {
        return None;
    }
    Some(SchedulerDraft {
        name: name?,
        parent: parent.ok()?,
        policy: kind,
        server: server.ok()?,
        cpus: cpus.ok()?.unwrap_or(1),
        migration: migration.ok()?.unwrap_or_default(),
        preemptive: preemptive.ok()?.unwrap_or(true),
        lending: lending.ok()?.unwrap_or(false),
        priority: priority.ok()?,
        criticality: criticality.ok()?,
        quantum: quantum.ok()?,
        frame: frame.ok()?,
        budget: budget.ok()?,
        period: period.ok()?,
        deadline: deadline.ok()?,
        offset: offset.ok()?.unwrap_or(Span::ZERO),
        slots: slots.into_iter().collect::<Option<_>>()?,
    })
}

fn slot(table: &Table<'_>, file: usize, findings: &mut Findings<'_>) -> Option<SlotDraft> {
    let owner = name(table, "owner", file, findings);
    let start = optional(table, "start", findings, Field::duration_or_zero);
    let length = table.require("length", findings).and_then(|field| field.duration(findings));
    Some(SlotDraft { owner: owner?, start: start.ok()?, length: length? })
}

fn work_of(span: Span) -> Work {
    Work::from_ns(span.as_ns())
}

fn spans(
    field: &Field<'_>,
    items: &[toml::Spanned<DeValue<'_>>],
    findings: &mut Findings<'_>,
) -> Option<Vec<Span>> {
    let read = |item: &toml::Spanned<DeValue<'_>>, findings: &mut Findings<'_>| {
        Field { key: field.key, key_at: field.key_at.clone(), at: item.span(), value: item.get_ref() }
            .duration_or_zero(findings)
    };
    items.iter().map(|item| read(item, findings)).collect()
}

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

fn task(table: &Table<'_>, file: usize, findings: &mut Findings<'_>) -> Option<TaskDraft> {
    let name = name(table, "name", file, findings);
    let parent = optional(table, "in", findings, |field, findings| named(field, file, findings));
    let period = table.require("period", findings).and_then(|field| field.duration(findings));
    let cost = table.require("cost", findings).and_then(|field| cost(&field, findings));
    let deadline = optional(table, "deadline", findings, Field::duration);
    let priority = optional(table, "priority", findings, byte);
    let criticality = optional(table, "criticality", findings, byte);
    let offset = optional(table, "offset", findings, Field::duration_or_zero);
    let jitter = optional(table, "jitter", findings, Field::duration_or_zero);
    let slack = optional(table, "slack", findings, Field::duration);
    let enforce = optional(table, "enforce", findings, Field::boolean);
    let backlog = optional(table, "backlog", findings, |field, findings| field.integer(0, 1 << 20, findings));
    let count = optional(table, "count", findings, |field, findings| field.integer(1, 10_000, findings));
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
        Some(times.into_iter().map(|span| Time::ZERO + span).collect::<Vec<_>>())
    });
    let (period, offset) = (period?, offset.ok()?.unwrap_or(Span::ZERO));
    let jitter = jitter.ok()?.unwrap_or(Span::ZERO);
    if jitter >= period {
        let at = table.take("jitter")?.at;
        let why = "an arrival would be seen after the next one";
        findings.error(
            &at,
            words("`jitter` is not shorter than the period", why, format!("write less than {period}")),
        );
        return None;
    }
    let slack = slack.ok()?;
    let arrivals = match listed.ok()? {
        Some(times) => {
            for key in ["offset", "jitter", "slack"] {
                if let Some(field) = table.take(key) {
                    let what = format!("`{key}` means nothing beside `arrivals`");
                    findings
                        .error(&field.key_at, words(what, "the list says every time", "leave the line out"));
                }
            }
            Arrivals::List(times)
        }
        None => match slack {
            Some(slack) => Arrivals::Sporadic { offset, separation: period, slack },
            None => Arrivals::Periodic { offset, period, jitter },
        },
    };
    Some(TaskDraft {
        name: name?,
        parent: parent.ok()?,
        period,
        deadline: deadline.ok()?.unwrap_or(period),
        priority: priority.ok()?.unwrap_or(0),
        criticality: criticality.ok()?.unwrap_or(0),
        cost: cost?,
        arrivals,
        enforce: enforce.ok()?.unwrap_or(false),
        backlog: backlog.ok()?,
        count: count.ok()?,
        at: table.at.clone(),
    })
}

fn expectation(table: &Table<'_>, file: usize, findings: &mut Findings<'_>) -> Option<(Expectation, Named)> {
    let task =
        optional(table, "task", findings, |field, findings| Some(field.text(findings)?.text.to_owned()));
    let misses = optional(table, "misses", findings, |field, findings| field.integer(0, u32::MAX, findings));
    let response = optional(table, "response", findings, Field::duration);
    let (misses, response) = (misses.ok()?.map(u64::from), response.ok()?);
    if misses.is_none() && response.is_none() {
        let remedy = "add `misses = 0` or `response = \"13ms\"`";
        findings.error(&table.at, words("[[expect]] expects nothing", "it could never fail", remedy));
        return None;
    }
    let at = table.take("task").map_or(table.at.clone(), |field| field.at);
    let line = findings.source.line(table.at.start);
    let expectation = Expectation { task: task.ok()?, misses, response, line };
    let name = expectation.task.clone().unwrap_or_default();
    Some((expectation, Named { name, file, at }))
}
