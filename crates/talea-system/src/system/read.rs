//! Reader of each table by itself, before names are resolved.

mod parts;
mod program;
mod scheduler;
mod task;

use super::draft::{Draft, Named, Place};
use super::registry::Registry;
use crate::config::keys::Section;
use crate::config::table::{Field, Table};
use crate::diagnostic::quoted;
use crate::source::{Findings, words};
use talea_core::cpus::CpuListError;
use talea_core::engine::Affinity;
use talea_core::{CpuSet, Span, Time, Work};
use toml::de::{DeTable, DeValue};

/// Maximum number of tables of one kind in one file.
const TABLES_MAX: usize = 100_000;
const NAME_MAX: usize = 63;

/// Reads the contents of one file into `draft`.
pub(super) fn file(
    document: &DeTable<'_>,
    file: usize,
    registry: &Registry,
    draft: &mut Draft,
    findings: &mut Findings<'_>,
) {
    let top = Table::new(Section::System, document, 0..0, findings);
    if let Some(field) = top.take("duration") {
        draft.duration = field.duration(findings).or(draft.duration);
    }
    if let Some(field) = top.take("seed") {
        draft.seed = field.integer(0, u32::MAX, findings).map(u64::from).or(draft.seed);
    }
    for table in list(&top, "scheduler", Section::Scheduler, findings) {
        match scheduler::scheduler(&table, file, registry, findings) {
            Some(scheduler) => draft.schedulers.push(scheduler),
            None => draft.broken.extend(broken(&table, file)),
        }
    }
    for table in list(&top, "task", Section::Task, findings) {
        match task::task(&table, file, findings) {
            Some(task) => draft.tasks.push(task),
            None => draft.broken.extend(broken(&table, file)),
        }
    }
    for table in list(&top, "accelerator", Section::Accelerator, findings) {
        match parts::accelerator(&table, file, findings) {
            Some(accelerator) => draft.accelerators.push(accelerator),
            None => draft.broken.extend(broken(&table, file)),
        }
    }
    for table in list(&top, "resource", Section::Resource, findings) {
        match parts::resource(&table, file, findings) {
            Some(resource) => draft.resources.push(resource),
            None => draft.broken.extend(broken(&table, file)),
        }
    }
    for table in list(&top, "channel", Section::Channel, findings) {
        let channel = parts::channel(&table, file, findings);
        draft.lost_channels |= channel.is_none();
        draft.channels.extend(channel);
    }
    if let Some(field) = top.take("overheads") {
        parts::overheads(&field, file, draft, findings);
    }
    for table in list(&top, "stall", Section::Stall, findings) {
        draft.stalls.extend(parts::stall(&table, file, findings));
    }
    for table in list(&top, "change", Section::Change, findings) {
        draft.changes.extend(parts::change(&table, findings).into_iter().flatten());
    }
    for table in list(&top, "expect", Section::Expect, findings) {
        draft.expectations.extend(parts::expectation(&table, file, findings));
    }
}

/// Returns the name of an item that could not be read.
fn broken(table: &Table<'_>, file: usize) -> Option<Named> {
    let field = table.take("name")?;
    Some(Named { name: field.value.as_str()?.to_owned(), file, at: field.at })
}

fn list<'a>(
    top: &Table<'a>,
    name: &str,
    section: Section,
    findings: &mut Findings<'_>,
) -> Vec<Table<'a>> {
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
                let remedy =
                    format!("write {} in double brackets, once for each", section.header());
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

/// Reads an optional key. The result is `Err` if the key has an invalid value.
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

fn spans(
    field: &Field<'_>,
    items: &[toml::Spanned<DeValue<'_>>],
    findings: &mut Findings<'_>,
) -> Option<Vec<Span>> {
    let read = |item: &toml::Spanned<DeValue<'_>>, findings: &mut Findings<'_>| {
        Field {
            key: field.key,
            key_at: field.key_at.clone(),
            at: item.span(),
            value: item.get_ref(),
        }
        .duration_or_zero(findings)
    };
    items.iter().map(|item| read(item, findings)).collect()
}

/// Reads a list of numbers below 64 as a bit mask.
fn bits(field: &Field<'_>, findings: &mut Findings<'_>) -> Option<u64> {
    Some(field.integers(0, 63, findings)?.into_iter().fold(0, |mask, bit| mask | 1 << bit))
}

/// Reads the CPUs of a root.
fn affinity(
    field: &Field<'_>,
    file: usize,
    findings: &mut Findings<'_>,
) -> Option<(Affinity, Place)> {
    let piece = field.text(findings)?;
    let remedy =
        format!("write numbers, ranges and commas like `affinity = {}`", field.key.example);
    match CpuSet::parse(piece.text) {
        Ok(set) if set.iter().all(|cpu| cpu < 64) => {
            Some((Affinity(set.words()[0]), Place { file, at: field.at.clone() }))
        }
        Ok(_) => {
            findings.error(
                &field.at,
                words("`affinity` names a CPU above 63", "a root has 64 at most", remedy),
            );
            None
        }
        Err(error) => {
            let at = match error {
                CpuListError::Syntax(at) => {
                    let at = at.min(piece.text.len());
                    piece.part(at..at + piece.text[at..].chars().next().map_or(0, char::len_utf8))
                }
                _ => field.at.clone(),
            };
            let what = format!("{} is not a list of CPUs", quoted(piece.text));
            findings.error(&at, words(what, error.to_string(), remedy));
            None
        }
    }
}

fn work_of(span: Span) -> Work {
    Work::from_ns(span.as_ns())
}

fn time_of(span: Span) -> Time {
    Time::ZERO + span
}
