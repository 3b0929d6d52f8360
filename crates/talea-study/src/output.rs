//! Output as text and as JSON.
//!
//! Invariant: JSON output does not depend on the terminal, the locale or the width. Colour is only
//! for terminals, and never if `NO_COLOR` is set (no-color.org) or the terminal is dumb.

use crate::exit::CommandError;
use anyhow::Context;
use serde::Serialize;
use std::io::{self, IsTerminal, Write};
use std::path::Path;

/// Version of all JSON outputs. Within one version fields may be added, and no field changes its
/// meaning.
pub const SCHEMA: u32 = 1;

/// JSON output: the schema number first, then the fields of the report.
#[derive(Serialize)]
struct Versioned<'a, T> {
    schema: u32,
    #[serde(flatten)]
    answer: &'a T,
}

/// Returns JSON text with a line end.
pub fn to_json<T: Serialize>(answer: &T) -> anyhow::Result<String> {
    let mut text = serde_json::to_string_pretty(&Versioned { schema: SCHEMA, answer })?;
    text.push('\n');
    Ok(text)
}

/// Prints a report as JSON.
pub fn print_json<T: Serialize>(answer: &T) -> anyhow::Result<()> {
    print(&to_json(answer)?)
}

/// Prints text. A closed pipe (`talea list | head -1`) is no failure.
pub fn print(text: &str) -> anyhow::Result<()> {
    crate::answer::answer_begins();
    match io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(anyhow::Error::new(error).context("cannot write to standard output"))
        }
        _ => Ok(()),
    }
}

/// Writes an output file at once. From here on the limit of the command does not end it, so that
/// it leaves no half file.
pub fn write_file(path: &Path, text: &str) -> anyhow::Result<()> {
    crate::answer::answer_begins();
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// Prints the error that ends the command to standard error. Ignores a failure to print.
pub fn print_error(error: &anyhow::Error) {
    match error.downcast_ref() {
        // Diagnostics name their file.
        Some(CommandError::File(_)) => eprint!("{error:#}"),
        _ => note(&format!("{error:#}")),
    }
}

/// Prints a remark to standard error, after the name of the program.
pub fn note(text: &str) {
    let path = std::env::args_os().next().unwrap_or_default();
    let name = Path::new(&path).file_name().unwrap_or("talea".as_ref());
    let _ = writeln!(io::stderr().lock(), "{}: {text}", name.display());
}

/// Meaning of a colour.
#[derive(Clone, Copy, Debug)]
pub enum Tone {
    /// The state is in order.
    Good,
    /// The state needs attention.
    Doubtful,
    /// The state needs action.
    Bad,
    /// The text is a heading.
    Strong,
}

/// Whether standard output is a terminal with colours.
pub fn colored() -> bool {
    let unset = |name: &str| std::env::var_os(name).is_none_or(|value| value.is_empty());
    io::stdout().is_terminal()
        && unset("NO_COLOR")
        && std::env::var_os("TERM").is_none_or(|t| t != "dumb")
}

/// Returns `text` in a tone if `color` is set.
pub fn paint(text: &str, tone: Tone, color: bool) -> String {
    let code = match tone {
        Tone::Good => "32",
        Tone::Doubtful => "33",
        Tone::Bad => "1;31",
        Tone::Strong => "1",
    };
    if color { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
}

/// Returns the number with `word`, in the plural unless it is 1.
pub fn count(number: usize, word: &str) -> String {
    if number == 1 { format!("1 {word}") } else { format!("{number} {word}s") }
}

/// Table of aligned columns.
///
/// Widths count characters, because no printed character is wider than one cell.
#[derive(Debug, Default)]
pub struct Table {
    rows: Vec<Vec<String>>,
    right: Vec<usize>,
}

impl Table {
    /// Creates a table with a line of headings, which ` | ` separates. Columns whose headings start
    /// with `>` are right-aligned.
    pub fn new(headings: &str) -> Table {
        Table::of(&headings.split(" | ").collect::<Vec<_>>())
    }

    /// Variant of [`Table::new`] with a list of headings.
    pub fn of(headings: &[&str]) -> Table {
        let mut table = Table::bare(headings);
        table.rows.push(
            headings.iter().map(|heading| heading.trim_start_matches('>').to_owned()).collect(),
        );
        table
    }

    /// Creates a table without the line of headings.
    pub fn bare(headings: &[&str]) -> Table {
        let right = (0..headings.len()).filter(|&i| headings[i].starts_with('>')).collect();
        Table { rows: Vec::new(), right }
    }

    /// Adds a line.
    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// Returns the text, with a line end after each line and no trailing blanks.
    pub fn render(&self) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            self.rows
                .iter()
                .filter_map(|row| row.get(column))
                .map(|cell| cell.chars().count())
                .max()
                .unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let mut text = String::new();
        for row in &self.rows {
            let mut line = String::new();
            for (column, cell) in row.iter().enumerate() {
                let blanks = " ".repeat(widths[column] - cell.chars().count());
                if column > 0 {
                    line.push_str("  ");
                }
                if self.right.contains(&column) {
                    line.push_str(&blanks);
                    line.push_str(cell);
                } else {
                    line.push_str(cell);
                    line.push_str(&blanks);
                }
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell_and_lines_end_without_blanks() {
        let mut table = Table::new("NAME | >SIZE | NOTE");
        table.row(vec!["é".into(), "1".into(), "x".into()]);
        table.row(vec!["longer".into(), "1000".into(), String::new()]);
        assert_eq!(table.render(), "NAME    SIZE  NOTE\né          1  x\nlonger  1000\n");
    }

    #[test]
    fn json_starts_with_the_schema_number() {
        #[derive(Serialize)]
        struct Answer {
            yes: bool,
        }
        assert_eq!(
            to_json(&Answer { yes: true }).unwrap(),
            "{\n  \"schema\": 1,\n  \"yes\": true\n}\n"
        );
    }
}
