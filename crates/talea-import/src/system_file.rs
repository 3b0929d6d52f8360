//! Frame of an import that yields a system file: bounds, notes, and the check of the result.

use crate::lines::Lines;
use std::fmt::Write as _;
use talea_config::FILE_MAX;
use talea_config::diagnostic::{Diagnostic, harmless};
use talea_config::source::{Findings, Source, Words, words};

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
pub(crate) fn system_file(
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
        findings.error(&(0..0), too_large());
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

/// Text of the error about a result that exceeds the largest file.
pub(crate) fn too_large() -> Words {
    let what = format!("what this would become is larger than {FILE_MAX} bytes");
    let why = "a file of that size is not read: loops and instances are written out";
    words(what, why, "use fewer threads, instances or loops")
}

/// Reads the result. Diagnostics are reported at the position that the line comes from.
fn verify(lines: &Lines, findings: &mut Findings<'_>) {
    let Err(found) = talea_system::read(&lines.text, "imported", &()) else { return };
    for diagnostic in found.into_iter().filter(Diagnostic::is_error) {
        let at = lines.origin(diagnostic.line).map_or(0..0, |((), at)| at);
        findings.error(&at, words(diagnostic.what, diagnostic.why, diagnostic.remedy));
    }
}
