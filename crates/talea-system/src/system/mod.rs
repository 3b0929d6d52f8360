//! System files: TOML to trees, tasks and a workload, and back to TOML ([`write()`]).
//!
//! Model: schedulers and tasks name the scheduler above them by `in`. So a file reads from the CPU
//! down, and parts by independent teams fit together by names alone ([`Include`]). A scheduler
//! without `in` is a root. The reader reads each table by itself first, then resolves names. Then
//! `talea_core` checks each tree, and the reader reports its errors at the lines that cause them. A
//! file with an error yields no system.

mod build;
mod draft;
pub mod keys;
mod read;
mod registry;
pub mod what_if;
mod write;

pub use registry::Registry;
use talea_core::mutate;
pub use write::{Unwritable, write};

use crate::config::keys::Section;
use crate::config::{FILE_MAX, syntax};
use crate::diagnostic::Diagnostic;
use crate::source::{Findings, Source, words};
use std::path::{Component, Path, PathBuf};
use talea_core::Span;
use talea_core::engine::Tree;
use talea_core::workload::Source as Load;
use talea_core::workload::{Environment, Workload};
use toml::de::DeTable;

/// A complete system.
#[derive(Clone, Debug)]
pub struct System {
    /// Length of a run.
    pub duration: Span,
    /// Seed of all random values.
    pub seed: u64,
    /// The trees, in the order of the file.
    pub roots: Vec<Root>,
    /// Conditions that a run must meet.
    pub expectations: Vec<Expectation>,
    /// Warnings about a system that can be run.
    pub warnings: Vec<Diagnostic>,
}

/// Tree with the load of its tasks.
#[derive(Clone, Debug)]
pub struct Root {
    /// Name in the file.
    pub name: String,
    /// Tree from which an engine is built.
    pub tree: Tree,
    /// `sources[t]`: source of task `t`, in the order of the engine's tasks.
    pub sources: Vec<Load>,
    /// `tasks[t]`: name of task `t`.
    pub tasks: Vec<String>,
    /// `programs[t]`: program with its arguments that runs on real threads in place of the
    /// generated work of task `t`. It has at least one word.
    pub programs: Vec<Option<Vec<String>>>,
    /// `users[t]`: account of the program of task `t`, if the file names one.
    pub users: Vec<Option<String>>,
    /// Overheads, stalls, and changes of battery, mode and mask.
    pub surroundings: Environment,
}

impl Root {
    /// Returns the workload of the root's tasks. A caller with several roots passes a separate seed
    /// for each root.
    pub fn workload(&self, seed: u64) -> Workload {
        Workload { sources: self.sources.clone(), seed }
    }
}

/// Condition that a run must meet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expectation {
    /// Name of a task, or a prefix of several names with `*`; `None` means all tasks.
    pub task: Option<String>,
    /// Maximum number of late jobs.
    pub misses: Option<u64>,
    /// Maximum response time.
    pub response: Option<Span>,
    /// Line number for reports.
    pub line: u32,
}

impl Expectation {
    /// Whether the expectation applies to the task with the name `name`.
    pub fn is_about(&self, name: &str) -> bool {
        match &self.task {
            None => true,
            Some(task) => match task.strip_suffix('*') {
                Some(start) => {
                    mutate!("system-expect-star", name.starts_with(start), name == start)
                }
                None => task == name,
            },
        }
    }
}

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

/// Reads a system. `origin` is the name of the file in diagnostics.
///
/// # Errors
/// All diagnostics, in file order. At least one is an error.
pub fn read(text: &str, origin: &str, include: &dyn Include) -> Result<System, Vec<Diagnostic>> {
    read_with(text, origin, include, &Registry::default())
}

/// Reads a system as [`read`] does, for a program that adds policies and selections to those of
/// Talea.
///
/// # Errors
/// See [`read`].
pub fn read_with(
    text: &str,
    origin: &str,
    include: &dyn Include,
    registry: &Registry,
) -> Result<System, Vec<Diagnostic>> {
    let mut parts = Vec::new();
    gather(text.to_owned(), origin.to_owned(), include, &mut parts, 0)?;
    let sources: Vec<Source<'_>> =
        parts.iter().map(|part| Source::new(&part.origin, &part.text)).collect();
    let mut findings: Vec<Findings<'_>> = sources.iter().map(Findings::new).collect();
    let mut draft = draft::Draft::default();
    for (file, part) in parts.iter().enumerate() {
        let (document, errors) = DeTable::parse_recoverable(&part.text);
        if syntax::report(errors, document.get_ref(), &mut findings[file]) {
            read::file(document.get_ref(), file, registry, &mut draft, &mut findings[file]);
        }
    }
    if draft.schedulers.is_empty() && findings.iter().all(|found| !found.has_errors()) {
        let remedy = "add a line `[[scheduler]]`, then `name` and `policy`";
        findings[0].error(
            &(0..0),
            words("there is no scheduler", "a scheduler must decide which task runs", remedy),
        );
    }
    let system = build::system(&draft, registry, &mut findings);
    let failed = findings.iter().any(Findings::has_errors);
    let found: Vec<Diagnostic> = findings.into_iter().flat_map(Findings::finish).collect();
    match system {
        Some(system) if !failed => Ok(System { warnings: found, ..system }),
        _ => Err(found),
    }
}

/// File of the system.
struct Part {
    origin: String,
    text: String,
}

/// Maximum depth of includes.
const DEPTH_MAX: usize = 8;
/// Maximum number of files of a system.
const FILES_MAX: usize = 256;

/// Collects the file and all files that it includes, each once.
fn gather(
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
        let table = crate::config::table::Table::new(
            Section::System,
            document.get_ref(),
            0..0,
            &mut Findings::new(&source),
        );
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
                    let what = format!("{} can't be read", crate::diagnostic::quoted(path.text));
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
