//! Diagnostics about a file: position, fault, reason and remedy.
//!
//! Invariant: no field holds a control character. So a printed diagnostic about a hostile file
//! sends no control sequence to the user's terminal.

use std::fmt::{self, Write};

/// Whether a diagnostic prevents the use of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The file is not used.
    Error,
    /// The file is used unchanged. The author of the file should check the position.
    Warning,
}

impl Severity {
    /// Returns the word that reports use.
    pub fn word(self) -> &'static str {
        match self {
            Severity::Error => "error",
            Severity::Warning => "warning",
        }
    }
}

/// One diagnostic about a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// Error or warning.
    pub severity: Severity,
    /// Name of the file, as the caller stated it.
    pub origin: String,
    /// Line number, from 1.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: u32,
    /// The fault.
    pub what: String,
    /// Reason why the fault is a problem.
    pub why: String,
    /// A correct alternative.
    pub remedy: String,
    /// Part of the line that the report shows.
    pub(crate) excerpt: Excerpt,
}

/// Part of a source line with an underlined range.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Excerpt {
    /// Text of the part, without control characters.
    pub(crate) text: String,
    /// Number of characters before the underlined range.
    pub(crate) indent: usize,
    /// Number of underlined characters, at least 1.
    pub(crate) width: usize,
}

impl Diagnostic {
    /// Whether the diagnostic is an error, so that the file is not used.
    pub fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }

    /// Returns several lines for users: the fault, the source line, a caret, reason and remedy.
    pub fn render(&self, color: bool) -> String {
        let paint = Paint { color };
        let tone = match self.severity {
            Severity::Error => "1;31",
            Severity::Warning => "1;33",
        };
        let number = self.line.to_string();
        let gutter = " ".repeat(number.len());
        let bar = paint.with("1;34", "|");
        let mut out = String::new();
        // Writing to a String can't fail.
        let _ = writeln!(
            out,
            "{}: {}",
            paint.with(tone, self.severity.word()),
            paint.with("1", &self.what)
        );
        let _ = writeln!(
            out,
            "{gutter}{} {}:{}:{}",
            paint.with("1;34", "-->"),
            self.origin,
            self.line,
            self.column
        );
        if !self.excerpt.text.trim().is_empty() {
            let _ = writeln!(out, "{gutter} {bar}");
            let _ = writeln!(
                out,
                "{} {bar} {}",
                paint.with("1;34", &number),
                self.excerpt.text.trim_end()
            );
            let carets = "^".repeat(self.excerpt.width.max(1));
            let _ = writeln!(
                out,
                "{gutter} {bar} {}{}",
                " ".repeat(self.excerpt.indent),
                paint.with(tone, &carets)
            );
        }
        for (label, text) in [("why", &self.why), ("help", &self.remedy)] {
            if !text.is_empty() {
                let _ = writeln!(out, "{gutter} {} {label}: {text}", paint.with("1;34", "="));
            }
        }
        out
    }
}

impl fmt::Display for Diagnostic {
    /// Writes one line for logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Diagnostic { origin, line, column, what, why, remedy, .. } = self;
        write!(f, "{origin}:{line}:{column}: {}: {what}", self.severity.word())?;
        for text in [why, remedy] {
            if !text.is_empty() {
                write!(f, "; {text}")?;
            }
        }
        Ok(())
    }
}

impl std::error::Error for Diagnostic {}

/// Returns all diagnostics, separated by blank lines, with a final count of errors and warnings.
pub fn render(diagnostics: &[Diagnostic], color: bool) -> String {
    let mut out = String::new();
    for diagnostic in diagnostics {
        out.push_str(&diagnostic.render(color));
        out.push('\n');
    }
    let errors = diagnostics.iter().filter(|d| d.is_error()).count();
    let warnings = diagnostics.len() - errors;
    let count = |n: usize, word: &str| match n {
        0 => None,
        1 => Some(format!("1 {word}")),
        _ => Some(format!("{n} {word}s")),
    };
    let parts: Vec<String> =
        [count(errors, "error"), count(warnings, "warning")].into_iter().flatten().collect();
    if !parts.is_empty() {
        let _ = writeln!(out, "{}", parts.join(", "));
    }
    out
}

/// Returns `text` in back quotes, without control characters. A long text is cut.
pub fn quoted(text: &str) -> String {
    const LONGEST: usize = 60;
    let mut out = String::from("`");
    for (n, c) in text.chars().enumerate() {
        if n == LONGEST {
            out.push('…');
            break;
        }
        out.push(harmless(c));
    }
    out.push('`');
    out
}

/// Returns `c`, or a replacement if a terminal might interpret it.
pub fn harmless(c: char) -> char {
    match c {
        '\t' => ' ',
        // Directions and line separators change what a reader sees and are no control characters.
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
            '\u{fffd}'
        }
        c if c.is_control() => '\u{fffd}',
        c => c,
    }
}

struct Paint {
    color: bool,
}

impl Paint {
    fn with(&self, code: &str, text: &str) -> String {
        if self.color { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}
