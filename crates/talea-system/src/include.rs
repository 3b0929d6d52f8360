//! Files of a system: the file that is read, and the files that it includes, each once.

use crate::keys::Section;
use std::path::{Component, Path, PathBuf};
use talea_config::source::{FILE_MAX, Findings, Source, words};
use talea_config::table::Table;
use talea_config::{Diagnostic, diagnostic};
use talea_core::mutate;
use toml::de::DeTable;

/// Source of included files. The reader opens no file itself.
pub trait Include {
    /// Returns the name and text of the file at `path`, which the file `from` includes, or the
    /// reason why there is none.
    fn text(&self, from: &str, path: &str) -> Result<(String, String), String>;
}

/// Refuses every include.
impl Include for () {
    fn text(&self, _from: &str, _path: &str) -> Result<(String, String), String> {
        Err("includes are not read here".into())
    }
}

/// Source of included files beside the including file. The function returns the text of a file, or
/// the reason why there is none. The function receives [`folded`] paths only.
#[derive(Clone, Copy, Debug)]
pub struct Beside<F>(pub F);

impl<F: Fn(&Path) -> Result<String, String>> Include for Beside<F> {
    fn text(&self, from: &str, path: &str) -> Result<(String, String), String> {
        let found = folded(&Path::new(from).parent().unwrap_or(Path::new("")).join(path));
        let text = self.0(&found)?;
        Ok((found.display().to_string(), text))
    }
}

/// Returns a path without redundant parts: `./a` becomes `a`, and `a/../b` becomes `b`. Only the
/// text counts, even if `a` is a link or does not exist. So a file has one name in all files that
/// include it.
pub fn folded(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => match out.components().next_back() {
                Some(Component::Normal(_)) => mutate!(
                    "system-include-folded",
                    {
                        out.pop();
                    },
                    {
                        out.push("..");
                    }
                ),
                Some(Component::RootDir | Component::Prefix(_)) => {}
                _ => out.push(".."),
            },
            part => out.push(part),
        }
    }
    out
}

/// File of the system.
pub(crate) struct Part {
    pub(crate) origin: String,
    pub(crate) text: String,
}

/// Maximum depth of includes.
const DEPTH_MAX: usize = 8;
/// Maximum number of files of a system.
const FILES_MAX: usize = 256;

/// Collects the file and all files that it includes, each once.
pub(crate) fn gather(
    text: String,
    origin: String,
    include: &dyn Include,
    parts: &mut Vec<Part>,
    depth: usize,
) -> Result<(), Vec<Diagnostic>> {
    let mut wanted = Vec::new();
    {
        let large = text.len() > FILE_MAX;
        let source = Source::new(&origin, if large { "" } else { &text });
        let mut findings = Findings::new(&source);
        if large {
            let what = format!("the file is larger than {FILE_MAX} bytes");
            findings.error(
                &(0..0),
                words(what, "no description is; is this the right file?", "name another file"),
            );
            return Err(findings.finish());
        }
        // Syntax errors are reported when the file itself is read.
        let (document, _) = DeTable::parse_recoverable(&text);
        let table = Table::new(Section::Top, document.get_ref(), 0..0, &mut Findings::new(&source));
        let Some(field) = table.take("include") else {
            parts.push(Part { origin: origin.clone(), text: text.clone() });
            return Ok(());
        };
        for path in field.texts(&mut findings).unwrap_or_default() {
            if depth == DEPTH_MAX {
                let what = "too many files include each other";
                let why = format!("includes are at most {DEPTH_MAX} deep");
                findings.error(&path.at, words(what, why, "does a file include itself?"));
                continue;
            }
            match include.text(&origin, path.text) {
                Ok((origin, text)) => wanted.push((path.at, origin, text)),
                Err(why) => {
                    let what = format!("{} can't be read", diagnostic::quoted(path.text));
                    let remedy =
                        "name a regular file; paths are relative to the file that names them";
                    findings.error(&path.at, words(what, why, remedy));
                }
            }
        }
        if findings.has_errors() {
            return Err(findings.finish());
        }
    }
    let index = parts.len();
    parts.push(Part { origin, text });
    for (at, origin, text) in wanted {
        // Two teams may include the same part, each from where it stands.
        if parts.iter().all(|part| {
            mutate!(
                "system-include",
                folded(Path::new(&part.origin)) != folded(Path::new(&origin)),
                depth > 0 || folded(Path::new(&part.origin)) != folded(Path::new(&origin))
            )
        }) {
            if parts.len() >= FILES_MAX {
                let source = Source::new(&parts[index].origin, &parts[index].text);
                let mut findings = Findings::new(&source);
                let why = format!("a system has at most {FILES_MAX} files");
                findings.error(&at, words("too many files", why, "merge some of the files"));
                return Err(findings.finish());
            }
            gather(text, origin, include, parts, depth + 1)?;
        }
    }
    Ok(())
}
