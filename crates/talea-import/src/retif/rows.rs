//! Reader of the papers' listings: one row per line, columns separated by blanks, comments after
//! `#`.
//!
//! ReTiF (JSA 2021) Listing 2: `RM1 RM.so 50-99 1,2`; Listing 3: `user1 EDF max_utilization 0.7`.
//! ISORC 2020 Listing 2: `RM 50-99 1,2`. The file of its daemon has these rows under headings that
//! start with `!`, after three kernel settings. Talea does not change these settings, and the
//! import only notes them.

use std::ops::Range;
use talea_config::diagnostic::quoted;
use talea_config::source::{Findings, words};

/// Index of the file that a cell belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Which {
    Plugins = 0,
    Rules = 1,
}

/// Part of a line, with its position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cell<'t> {
    pub(super) text: &'t str,
    pub(super) at: Range<usize>,
}

/// A row that describes a plugin.
#[derive(Clone, Debug)]
pub(super) struct PluginRow<'t> {
    pub(super) name: Cell<'t>,
    /// Module of the plugin; `None` if the row has only a name.
    pub(super) module: Option<Cell<'t>>,
    pub(super) band: Cell<'t>,
    pub(super) cpus: Cell<'t>,
}

/// A row that describes a rule.
#[derive(Clone, Debug)]
pub(super) struct RuleRow<'t> {
    pub(super) which: Which,
    pub(super) domain: Cell<'t>,
    pub(super) plugin: Cell<'t>,
    pub(super) property: Cell<'t>,
    pub(super) value: Cell<'t>,
}

/// All rows of the files, in order.
#[derive(Default)]
pub(super) struct Rows<'t> {
    pub(super) plugins: Vec<PluginRow<'t>>,
    pub(super) rules: Vec<RuleRow<'t>>,
    /// Notes for the readers of the result.
    pub(super) notes: Vec<String>,
}

/// Iterates over all lines with their offsets, without comments.
pub(super) fn content_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut offset = 0;
    text.split_inclusive('\n').map(move |line| {
        let at = offset;
        offset += line.len();
        let mut before = ' ';
        let end = line.char_indices().find(|&(_, c)| {
            let starts = c == '#' && before.is_whitespace();
            before = c;
            starts
        });
        (at, &line[..end.map_or(line.len(), |(i, _)| i)])
    })
}

/// Returns the columns of a line that starts at byte `at`.
fn columns(at: usize, line: &str) -> Vec<Cell<'_>> {
    let start = |part: &str| part.as_ptr() as usize - line.as_ptr() as usize;
    line.split(|c: char| c.is_whitespace() || c == '\u{feff}')
        .filter(|part| !part.is_empty())
        .map(|part| Cell { text: part, at: at + start(part)..at + start(part) + part.len() })
        .collect()
}

/// Whether the cell has the form of a range of priorities.
fn is_band(cell: &Cell<'_>) -> bool {
    cell.text.bytes().all(|b| b.is_ascii_digit() || b == b'-')
        && cell.text.bytes().any(|b| b.is_ascii_digit())
}

/// Whether the cell is a number, as the kernel's settings are.
fn is_number(cell: &Cell<'_>) -> bool {
    let digits = cell.text.trim_start_matches('-');
    digits.starts_with(|c: char| c.is_ascii_digit())
        && digits.bytes().all(|b| b.is_ascii_digit() || b == b'.')
}

/// Joins the columns from `from` on to one cell, because lists of CPUs may contain blanks.
fn joined<'t>(text: &'t str, columns: &[Cell<'t>]) -> Cell<'t> {
    let (first, last) = (&columns[0], &columns[columns.len() - 1]);
    let at = first.at.start..last.at.end;
    Cell { text: &text[at.clone()], at }
}

/// Reads a plugin file of either paper.
pub(super) fn read_plugins<'s>(rows: &mut Rows<'s>, findings: &mut Findings<'s>) {
    let text = findings.source.text;
    for (at, line) in content_lines(text) {
        let columns = columns(at, line);
        match columns.as_slice() {
            [] => {}
            [heading, ..] if heading.text.starts_with('!') => {}
            [name, band, _, ..] if is_band(band) => rows.plugins.push(PluginRow {
                name: name.clone(),
                module: None,
                band: band.clone(),
                cpus: joined(text, &columns[2..]),
            }),
            [name, module, band, _, ..] if is_band(band) => rows.plugins.push(PluginRow {
                name: name.clone(),
                module: Some(module.clone()),
                band: band.clone(),
                cpus: joined(text, &columns[3..]),
            }),
            [domain, plugin, property, value] if property.text.contains('_') => {
                rows.rules.push(RuleRow {
                    which: Which::Plugins,
                    domain: domain.clone(),
                    plugin: plugin.clone(),
                    property: property.clone(),
                    value: value.clone(),
                });
            }
            [setting @ .., value] if setting.len() < 2 && is_number(value) => {
                let line = findings.source.line(at);
                let shown = quoted(joined(text, &columns).text);
                rows.notes.push(format!(
                    "line {line}, {shown}, sets the kernel; Talea leaves those settings alone."
                ));
            }
            [first, ..] => findings.error(
                &(first.at.start..columns[columns.len() - 1].at.end),
                words(
                    format!("this line of {} columns is no plugin", columns.len()),
                    "a plugin is a name, a module, priorities and CPUs; the older form has no module",
                    "write it like `RM1 RM.so 50-99 1,2`",
                ),
            ),
        }
    }
}

/// Reads a rule file.
pub(super) fn read_rules<'s>(rows: &mut Rows<'s>, findings: &mut Findings<'s>) {
    for (at, line) in content_lines(findings.source.text) {
        match columns(at, line).as_slice() {
            [] => {}
            [domain, plugin, property, value] => rows.rules.push(RuleRow {
                which: Which::Rules,
                domain: domain.clone(),
                plugin: plugin.clone(),
                property: property.clone(),
                value: value.clone(),
            }),
            [heading, ..] if heading.text.starts_with('!') => {}
            columns => findings.error(
                &(columns[0].at.start..columns[columns.len() - 1].at.end),
                words(
                    format!("this line has {} columns", columns.len()),
                    "a rule has four: domain, plugin, property, value",
                    "write it like `user1 EDF max_utilization 0.7`, with - for any domain or plugin",
                ),
            ),
        }
    }
}
