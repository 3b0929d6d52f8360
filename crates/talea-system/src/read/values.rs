//! Readers of values that several tables have.

use crate::draft::{Named, Place};
use crate::keys::Section;
use talea_config::diagnostic::quoted;
use talea_config::key::FileSection;
use talea_config::source::{Findings, words};
use talea_config::table;
use talea_core::cpus::CpuListError;
use talea_core::engine::Affinity;
use talea_core::{CpuSet, Span, Time, Work};
use toml::de::DeValue;

/// Table of a system file.
pub(super) type Table<'a> = table::Table<'a, Section>;
/// Value of a system file.
pub(super) type Field<'a> = table::Field<'a, Section>;

/// Maximum number of tables of one kind in one file.
const TABLES_MAX: usize = 100_000;
const NAME_MAX: usize = 63;

pub(super) fn list<'a>(
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

pub(super) fn name(
    table: &Table<'_>,
    key: &str,
    file: usize,
    findings: &mut Findings<'_>,
) -> Option<Named> {
    let field = table.require(key, findings)?;
    named(&field, file, findings)
}

pub(super) fn named(field: &Field<'_>, file: usize, findings: &mut Findings<'_>) -> Option<Named> {
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
pub(super) fn optional<'a, T>(
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

pub(super) fn byte(field: &Field<'_>, findings: &mut Findings<'_>) -> Option<u8> {
    field.integer(0, 255, findings).map(|value| value as u8)
}

pub(super) fn spans(
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
pub(super) fn bits(field: &Field<'_>, findings: &mut Findings<'_>) -> Option<u64> {
    Some(field.integers(0, 63, findings)?.into_iter().fold(0, |mask, bit| mask | 1 << bit))
}

/// Reads the CPUs of a root.
pub(super) fn affinity(
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

pub(super) fn work_of(span: Span) -> Work {
    Work::from_ns(span.as_ns())
}

pub(super) fn time_of(span: Span) -> Time {
    Time::ZERO + span
}
