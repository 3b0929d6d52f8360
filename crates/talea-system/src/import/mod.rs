//! Imports: files of other programs to Talea's files.
//!
//! Model: each import is a function from texts to a text. Talea's own reader reads the result once.
//! An import reports the diagnostics of the reader at the position in the imported file that they
//! come from. So an imported file is a file that loads. A part that Talea's files cannot express is
//! an error with its position, never left out silently. A comment at the top of the result
//! describes a part that is expressed differently.

mod json;
mod lines;
mod retif;
mod rtapp;
mod sf3p;

pub use retif::retif;
pub use rtapp::rtapp;
pub use sf3p::sf3p;

use crate::config::FILE_MAX;
use crate::diagnostic::{Diagnostic, harmless};
use crate::source::{Findings, Source, words};
use crate::system;
use lines::Lines;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// Text with its name for diagnostics.
#[derive(Clone, Copy, Debug)]
pub struct File<'t> {
    /// Name of the file in messages.
    pub origin: &'t str,
    /// Text of the file.
    pub text: &'t str,
}

/// Converts one file into a system file. `translate` writes lines, and notes for the readers of the
/// result.
fn system_file(
    file: File<'_>,
    form: &str,
    translate: impl FnOnce(&str, &mut Lines, &mut Vec<String>, &mut Findings<'_>),
) -> Result<String, Vec<Diagnostic>> {
    let large = file.text.len() > FILE_MAX;
    let source = Source::new(file.origin, if large { "" } else { file.text });
    let mut findings = Findings::new(&source);
    let (mut body, mut notes) = (Lines::default(), Vec::new());
    if large {
        let what = format!("the file is larger than {FILE_MAX} bytes");
        findings.error(
            &(0..0),
            words(what, "no description is; is this the right file?", "name another file"),
        );
    } else {
        translate(source.text, &mut body, &mut notes, &mut findings);
    }
    if !findings.has_errors() && body.is_full() {
        let what = format!("what this would become is larger than {FILE_MAX} bytes");
        let why = "a file of that size is not read: loops and instances are written out";
        findings.error(&(0..0), words(what, why, "use fewer threads, instances or loops"));
    }
    if !findings.has_errors() {
        verify(&body, &mut findings);
    }
    if findings.has_errors() {
        return Err(findings.finish().into_iter().filter(Diagnostic::is_error).collect());
    }
    let plain = |text: &str| -> String { text.chars().map(harmless).collect() };
    let mut text =
        format!("# Imported by `talea import --from {form}` from {}.\n", plain(file.origin));
    for note in notes {
        // Writing to a String can't fail.
        let _ = writeln!(text, "# Note: {}", plain(&note));
    }
    Ok(text + &body.text)
}

/// Reads the result. Diagnostics are reported at the position that the line comes from.
fn verify(lines: &Lines, findings: &mut Findings<'_>) {
    let Err(found) = system::read(&lines.text, "imported", &()) else { return };
    for diagnostic in found.into_iter().filter(Diagnostic::is_error) {
        let at = lines.origin(diagnostic.line).map_or(0..0, |((), at)| at);
        findings.error(&at, words(diagnostic.what, diagnostic.why, diagnostic.remedy));
    }
}

/// Names that are valid in system files, each used once.
#[derive(Default)]
struct Names {
    given: BTreeSet<String>,
    /// `next[prefix]`: the number to try next for names with this prefix. Without it, many requests
    /// for one name would take quadratic time.
    next: BTreeMap<String, usize>,
}

impl Names {
    /// Returns `text` as a valid name, or `instead` if it is empty. A number distinguishes equal
    /// names.
    fn give(&mut self, text: &str, instead: &str) -> String {
        const LONGEST: usize = 50;
        let fine = |c: char| {
            if c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.') { c } else { '_' }
        };
        let plain: String = text.chars().map(fine).take(LONGEST).collect();
        let start = if plain.is_empty() { instead.to_owned() } else { plain };
        let mut name = start.clone();
        while self.given.contains(&name) {
            let next = self.next.entry(start.clone()).or_insert(2);
            name = format!("{start}.{next}");
            *next += 1;
        }
        self.given.insert(name.clone());
        name
    }
}
