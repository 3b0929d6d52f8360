//! Reader of the YAML of ReTiF's published daemon: a parser of the subset that its files use.
//!
//! The reader accepts block mappings, lists with `-`, flow lists `[1, 2]` and quoted or plain
//! scalars on one line. These suffice for the keys of the daemon: `system`, `plugins` with `name`,
//! `plugin`, `priority`, `cores`, and `rules`. The daemon ignores `rules`, so the import only notes
//! them. Absent on purpose: anchors, tags, multi-line scalars, flow mappings. The import reports
//! the line of a file that uses them as an error.

use super::rows::{Cell, PluginRow, Rows, content_lines};
use std::ops::Range;
use talea_config::diagnostic::quoted;
use talea_config::source::{Findings, words};

/// Whether the first line with content is a key with a colon, which no listing has.
pub(super) fn is_yaml(text: &str) -> bool {
    let first =
        content_lines(text).map(|(_, line)| line.trim_matches(['\u{feff}', ' ', '\t', '\r', '\n']));
    let mut first = first.skip_while(|line| line.is_empty());
    first.next().is_some_and(|line| {
        let key = line.split(':').next().unwrap_or_default();
        line == "---"
            || (line.contains(':') && !key.contains(char::is_whitespace) && !key.starts_with('!'))
    })
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Outside,
    System,
    Plugins,
    Rules,
}

/// Plugin whose lines are being read.
struct Item<'s> {
    at: Range<usize>,
    cells: [Option<Cell<'s>>; 4],
}

impl Item<'_> {
    fn new(at: &Range<usize>) -> Self {
        Item { at: at.clone(), cells: [None, None, None, None] }
    }
}

const KEYS: [&str; 4] = ["name", "plugin", "priority", "cores"];

/// Reads the file into `rows`.
pub(super) fn read<'s>(rows: &mut Rows<'s>, findings: &mut Findings<'s>) {
    let text = findings.source.text;
    let mut part = Part::Outside;
    let mut item: Option<Item<'s>> = None;
    let mut open: Option<usize> = None;
    for (offset, line) in content_lines(text) {
        let line = line.trim_end();
        let body = line.trim_start_matches([' ', '\u{feff}']);
        if body.is_empty() || body == "---" {
            continue;
        }
        let at = offset + (line.len() - body.len())..offset + line.len();
        let dashed = body
            .strip_prefix("- ")
            .or_else(|| body.strip_prefix('-').filter(|rest| rest.is_empty()));
        let content = dashed.unwrap_or(body).trim_start();
        let content_at = at.end - content.len()..at.end;
        let pair = content
            .split_once(':')
            .filter(|(_, value)| value.is_empty() || value.starts_with([' ', '\t']));
        // An element of a list that the key before announced: a list of CPUs, one a line.
        if let (Some(index), Some(item), Some(_), None, false) =
            (open, item.as_mut(), dashed, pair, content.is_empty())
        {
            let start = item.cells[index].as_ref().map_or(content_at.start, |cell| cell.at.start);
            let range = start..content_at.end;
            item.cells[index] = Some(Cell { text: &text[range.clone()], at: range });
            continue;
        }
        if dashed.is_some() && part == Part::Plugins {
            close(rows, item.replace(Item::new(&at)), findings);
        }
        let Some((key, value)) = pair else {
            if part != Part::Rules && !content.is_empty() {
                let remedy = "write `key: value`; this reader takes the simple form that ReTiF's own files have";
                findings.error(
                    &at,
                    words("this line is no `key: value`", "nothing else is expected here", remedy),
                );
            }
            continue;
        };
        open = None;
        let value = value.trim();
        let value_at = at.end - value.len()..at.end;
        if let ("system" | "plugins" | "rules" | "configuration", None) = (key, dashed) {
            close(rows, item.take(), findings);
            part = match key {
                "system" => Part::System,
                "plugins" => Part::Plugins,
                "rules" => Part::Rules,
                _ => Part::Outside,
            };
            if part == Part::Rules {
                rows.notes.push(
                    "`rules` are not imported: the daemon that reads this file ignores them."
                        .to_owned(),
                );
            }
            if !value.is_empty() && value != "[]" {
                let remedy = format!("put the content of `{key}` on the lines below it");
                findings.error(
                    &value_at,
                    words(
                        "this form is not read",
                        "flow mappings are not part of ReTiF's files",
                        remedy,
                    ),
                );
            }
            continue;
        }
        match part {
            Part::Rules => {}
            Part::System | Part::Outside => {
                let note = match key {
                    "sched_max_util" => format!(
                        "`sched_max_util: {value}` was never enforced; `threshold = …` under an edf plugin is."
                    ),
                    "rr_timeslice" => {
                        "`rr_timeslice` sets the kernel; Talea leaves those settings alone."
                            .to_owned()
                    }
                    _ => format!("the key {} is unknown and was ignored.", quoted(key)),
                };
                rows.notes.push(note);
            }
            Part::Plugins => {
                let item = item.get_or_insert_with(|| Item::new(&at));
                let Some(index) = KEYS.iter().position(|known| *known == key) else {
                    rows.notes.push(format!(
                        "the key {} of a plugin is unknown and was ignored.",
                        quoted(key)
                    ));
                    continue;
                };
                if value.is_empty() {
                    open = Some(index);
                } else {
                    item.cells[index] = Some(Cell { text: value, at: value_at });
                }
            }
        }
    }
    close(rows, item, findings);
}

/// Returns `cell` without quotes or brackets.
fn bare(cell: Cell<'_>) -> Cell<'_> {
    for (open, end) in [('"', '"'), ('\'', '\''), ('[', ']')] {
        if let Some(inner) = cell.text.strip_prefix(open).and_then(|rest| rest.strip_suffix(end)) {
            let text = inner.trim();
            let start = cell.at.start + 1 + (inner.len() - inner.trim_start().len());
            return Cell { text, at: start..start + text.len() };
        }
    }
    cell
}

fn close<'s>(rows: &mut Rows<'s>, item: Option<Item<'s>>, findings: &mut Findings<'s>) {
    let Some(Item { at, cells }) = item else { return };
    let mut missing = false;
    for (key, cell) in KEYS.iter().zip(&cells) {
        if cell.is_none() {
            missing = true;
            let what = format!("this plugin has no `{key}`");
            let why = "a plugin has name, plugin (its module), priority and cores";
            findings.error(&at, words(what, why, format!("add a line `{key}: …`")));
        }
    }
    let [Some(name), Some(module), Some(band), Some(cpus)] = cells else { return };
    if !missing {
        rows.plugins.push(PluginRow {
            name: bare(name),
            module: Some(bare(module)),
            band: bare(band),
            cpus: bare(cpus),
        });
    }
}
