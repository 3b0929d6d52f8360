//! Reader of `[[mode]]`, and of the tables of a system in one mode.
//!
//! A mode is the system that results from its changes. So the changes are made in the tables of the
//! file before the tables are read. A mode can change each key that its tables can state, except
//! those in [`FIXED`], and its faults are reported as those of a file without modes.

use super::values::{Field, Table, list, name, named, optional};
use crate::draft::Named;
use crate::keys::Section;
use std::collections::{BTreeMap, BTreeSet};
use talea_config::diagnostic::quoted;
use talea_config::source::{Findings, words};
use talea_config::suggest;
use talea_core::mutate;
use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

/// Maximum number of modes of a system.
const MODES_MAX: usize = 32;
/// Maximum number of names in the search for a suggestion, which takes quadratic time.
const NEAR: usize = 2_000;

/// Keys that are equal in all modes: structure, CPUs and programs.
const FIXED: [&str; 7] = ["in", "policy", "server", "cpus", "count", "program", "user"];

/// Kinds of tables that a mode may change.
const KINDS: [&str; 2] = ["task", "scheduler"];

/// A mode: the tasks that run, and the keys that differ.
pub(crate) struct Mode<'a> {
    pub(crate) name: Named,
    pub(crate) initial: Option<Named>,
    pub(crate) fallback: Option<Named>,
    /// Tasks that run; all if there is no list.
    tasks: Option<Patterns<'a>>,
    changes: Vec<Change<'a>>,
}

/// Changed keys of one table.
struct Change<'a> {
    /// Index in [`KINDS`].
    kind: usize,
    name: Named,
    keys: &'a DeTable<'a>,
}

/// Names, and beginnings of names.
#[derive(Default)]
struct Patterns<'a> {
    names: BTreeSet<&'a str>,
    beginnings: BTreeSet<&'a str>,
}

impl Patterns<'_> {
    fn has(&self, name: &str) -> bool {
        self.names.contains(name)
            || (0..=name.len())
                .any(|end| name.get(..end).is_some_and(|b| self.beginnings.contains(b)))
    }
}

/// Names of tasks with their copies.
#[derive(Default)]
struct Names {
    single: BTreeSet<String>,
    /// Tables with a `count`: their copies have the name and a number.
    counted: BTreeSet<String>,
}

impl Names {
    fn add(&mut self, task: &DeTable<'_>) {
        let Some(name) = text(task, "name") else { return };
        let names = if task.contains_key("count") { &mut self.counted } else { &mut self.single };
        names.insert(name.to_owned());
    }

    /// Whether `pattern` is a name, or with `*` the beginning of a name.
    fn has(&self, pattern: &str) -> bool {
        let (pattern, is_whole) = match pattern.strip_suffix('*') {
            Some(beginning) => (beginning, false),
            None => (pattern, true),
        };
        let table = pattern.trim_end_matches(|c: char| c.is_ascii_digit());
        // The name of the table may end in digits, too.
        let is_copy = (table.len()..pattern.len() + usize::from(!is_whole))
            .any(|end| self.counted.contains(&pattern[..end]));
        let begins = |names: &BTreeSet<String>| {
            let mut from = names.range(pattern.to_owned()..);
            from.next().is_some_and(|name| name.starts_with(pattern))
        };
        is_copy
            || if is_whole {
                self.single.contains(pattern)
            } else {
                begins(&self.single) || begins(&self.counted)
            }
    }
}

/// Returns the text of a key.
fn text<'t>(table: &'t DeTable<'_>, key: &str) -> Option<&'t str> {
    table.get(key)?.get_ref().as_str()
}

/// Iterates over the tables of one kind.
fn tables<'t, 'a>(
    document: &'t DeTable<'a>,
    kind: &str,
) -> impl Iterator<Item = (&'t DeTable<'a>, std::ops::Range<usize>)> + use<'t, 'a> {
    let items = document.get(kind).and_then(|value| value.get_ref().as_array());
    items.into_iter().flatten().filter_map(|item| Some((item.get_ref().as_table()?, item.span())))
}

/// Reads the modes of all files, in order. The list is complete only if `findings` has no error.
pub(crate) fn modes<'a>(
    documents: &'a [DeTable<'a>],
    findings: &mut [Findings<'_>],
) -> Vec<Mode<'a>> {
    let mut modes = Vec::new();
    let mut homes: [BTreeMap<&str, usize>; 2] = Default::default();
    for (file, document) in documents.iter().enumerate() {
        for (kind, homes) in KINDS.iter().zip(&mut homes) {
            for (table, _) in tables(document, kind) {
                if let Some(name) = text(table, "name") {
                    homes.entry(name).or_insert(file);
                }
            }
        }
        // The reader of the file reports unknown keys.
        let top =
            Table::new(Section::Top, document, 0..0, &mut Findings::new(findings[file].source));
        for table in list(&top, "mode", Section::Mode, &mut findings[file]) {
            if let Some(mode) = mode(&table, file, &mut findings[file]) {
                modes.push(mode);
            }
        }
    }
    if let Some(extra) = modes.get(MODES_MAX) {
        let what = format!("there are more than {MODES_MAX} modes");
        let why = "each mode and each transition is analysed";
        findings[extra.name.file]
            .error(&extra.name.at, words(what, why, "merge some of the modes"));
        modes.truncate(MODES_MAX);
    }
    unique(&modes, findings);
    for mode in &modes {
        resolve(mode, &homes, findings);
    }
    if !findings.iter().any(Findings::has_errors) {
        unused(&modes, documents, findings);
    }
    modes
}

fn mode<'a>(table: &Table<'a>, file: usize, findings: &mut Findings<'_>) -> Option<Mode<'a>> {
    let name = name(table, "name", file, findings);
    let mut flag = |key: &str| {
        let value = optional(table, key, findings, Field::boolean);
        let at = table.take(key).filter(|_| value == Ok(Some(true)))?.at;
        Some(Named { name: key.to_owned(), file, at })
    };
    let (initial, fallback) = (flag("initial"), flag("fallback"));
    let tasks = optional(table, "tasks", findings, Field::texts);
    let mut changes = Vec::new();
    for (kind, key) in KINDS.into_iter().enumerate() {
        let Some(field) = table.take(key) else { continue };
        changes.extend(self::changes(&field, kind, file, findings));
    }
    let mut patterns = Patterns::default();
    let tasks = tasks.ok()?.map(|tasks| {
        for piece in tasks {
            match piece.text.strip_suffix('*') {
                Some(beginning) => patterns.beginnings.insert(beginning),
                None => patterns.names.insert(piece.text),
            };
        }
        patterns
    });
    Some(Mode { name: name?, initial, fallback, tasks, changes })
}

/// Reads the tables `[[mode.task]]` or `[[mode.scheduler]]`.
fn changes<'a>(
    field: &Field<'a>,
    kind: usize,
    file: usize,
    findings: &mut Findings<'_>,
) -> Vec<Change<'a>> {
    let key = KINDS[kind];
    let DeValue::Array(items) = field.value else {
        field.mistyped(findings);
        return Vec::new();
    };
    let section = [Section::Task, Section::Scheduler][kind];
    let mut changes: Vec<Change<'a>> = Vec::new();
    for item in items {
        let DeValue::Table(keys) = item.get_ref() else {
            let what = format!("an element of `{key}` is not a table");
            let remedy = format!("write [[mode.{key}]] in double brackets, once for each");
            findings.error(&item.span(), words(what, field.key.reason(), remedy));
            continue;
        };
        let table = Table::new(section, keys, item.span(), findings);
        let Some(field) = table.take("name") else {
            let what = format!("[[mode.{key}]] has no `name`");
            let why = format!("it changes the {key} of that name");
            let remedy = format!("add the `name` of a {key} of this file");
            findings.error(&table.at, words(what, why, remedy));
            continue;
        };
        let Some(name) = named(&field, file, findings) else { continue };
        for fixed in FIXED.iter().filter(|fixed| keys.contains_key(**fixed)) {
            let Some((at, _)) = keys.get_key_value(*fixed) else { continue };
            let what = format!("a mode changes `{fixed}` of {}", quoted(&name.name));
            let why = "structure, CPUs and programs are those of all modes";
            let remedy = match kind {
                0 => "leave the line out, or describe another task that only this mode runs",
                _ => "leave the line out, or describe another scheduler for the tasks of this mode",
            };
            findings.error(&at.span(), words(what, why, remedy));
        }
        changes.push(Change { kind, name, keys });
    }
    changes
}

/// Checks that names are unique, and that at most one mode is initial, and one the fallback.
fn unique(modes: &[Mode<'_>], findings: &mut [Findings<'_>]) {
    let mut names: BTreeMap<&str, u32> = BTreeMap::new();
    for mode in modes {
        let line = findings[mode.name.file].source.line(mode.name.at.start);
        if let Some(first) = names.insert(&mode.name.name, line) {
            let what = format!("{} is the name of two modes", quoted(&mode.name.name));
            let why = format!("the other one is in line {first}");
            findings[mode.name.file]
                .error(&mode.name.at, words(what, why, "give one of them another name"));
        }
    }
    let flags: [fn(&Mode<'_>) -> Option<Named>; 2] =
        [|mode| mode.initial.clone(), |mode| mode.fallback.clone()];
    for flag in flags {
        for second in modes.iter().filter_map(flag).skip(1) {
            let what = format!("a second mode has `{} = true`", second.name);
            let why = "at most one mode can be it";
            findings[second.file].error(&second.at, words(what, why, "leave the line out"));
        }
    }
}

/// Checks that the names in a mode are those of tasks and schedulers.
fn resolve(mode: &Mode<'_>, homes: &[BTreeMap<&str, usize>; 2], findings: &mut [Findings<'_>]) {
    let missing = |kind: usize, wanted: &str| {
        let key = KINDS[kind];
        let near = suggest::nearest(wanted, homes[kind].keys().copied().take(NEAR));
        let remedy = match near {
            Some(near) => format!("did you mean {}?", quoted(near)),
            None => format!("write the name of a [[{key}]]"),
        };
        words(
            format!("no {key} is called {}", quoted(wanted)),
            "a mode changes tables of this file",
            remedy,
        )
    };
    if let Some(tasks) = &mode.tasks {
        let has = |beginning: &str| {
            let mut from = homes[0].range(beginning..);
            from.next().is_some_and(|(name, _)| name.starts_with(beginning))
        };
        let names = tasks.names.iter().filter(|name| !homes[0].contains_key(*name));
        let beginnings = tasks.beginnings.iter().filter(|beginning| !has(beginning));
        for wanted in names.chain(beginnings) {
            findings[mode.name.file].error(&mode.name.at, missing(0, wanted));
        }
    }
    let mut changed = BTreeSet::new();
    for Change { kind, name, .. } in &mode.changes {
        let key = KINDS[*kind];
        let text = match homes[*kind].get(name.name.as_str()) {
            None => missing(*kind, &name.name),
            Some(home) if *home != name.file => words(
                format!("{key} {} is in another file", quoted(&name.name)),
                "a mode changes the tables of its own file",
                format!("describe the mode in {}", quoted(findings[*home].source.origin)),
            ),
            Some(_) if !changed.insert((*kind, name.name.as_str())) => words(
                format!("the mode changes {} twice", quoted(&name.name)),
                "one of the changes would be ignored",
                "merge the two tables",
            ),
            Some(_) if *kind == 0 && !mode.runs(&name.name) => words(
                format!("the mode changes {}, which does not run in it", quoted(&name.name)),
                "the change would be ignored",
                "add its name to `tasks`, or leave the table out",
            ),
            Some(_) => continue,
        };
        findings[name.file].error(&name.at, text);
    }
}

/// Reports tasks that run in no mode.
fn unused(modes: &[Mode<'_>], documents: &[DeTable<'_>], findings: &mut [Findings<'_>]) {
    for (file, document) in documents.iter().enumerate() {
        for (table, at) in tables(document, "task") {
            let Some(name) = text(table, "name") else { continue };
            if !modes.is_empty() && !modes.iter().any(|mode| mode.runs(name)) {
                let what = format!("task {} runs in no mode", quoted(name));
                let why = "it would be ignored";
                let remedy = "add its name to the `tasks` of a mode, or take it out";
                findings[file].error(&at, words(what, why, remedy));
            }
        }
    }
}

impl<'a> Mode<'a> {
    /// Whether a task runs in the mode.
    fn runs(&self, task: &str) -> bool {
        self.tasks.as_ref().is_none_or(|tasks| tasks.has(task))
    }

    /// Returns the tables of the system in this mode. Channels, chains and expectations of tasks
    /// that do not run are left out.
    pub(crate) fn documents(&self, documents: &[DeTable<'a>]) -> Vec<DeTable<'a>> {
        let (mut running, mut stopped) = (Names::default(), Names::default());
        for (task, _) in documents.iter().flat_map(|document| tables(document, "task")) {
            let is_running = text(task, "name").is_none_or(|name| self.runs(name));
            if is_running { running.add(task) } else { stopped.add(task) }
        }
        // An unknown name stays, and is reported.
        let is_stopped = |name: &str| stopped.has(name) && !running.has(name);
        let names_stopped =
            |table: &DeTable<'_>, key: &str| text(table, key).is_some_and(is_stopped);
        let mut documents = documents.to_vec();
        for (file, document) in documents.iter_mut().enumerate() {
            document.remove("mode");
            for change in self.changes.iter().filter(|change| change.name.file == file) {
                change.make(document);
            }
            keep(document, "task", |task| text(task, "name").is_none_or(|name| self.runs(name)));
            keep(document, "expect", |expect| !names_stopped(expect, "task"));
            keep(document, "channel", |channel| {
                !names_stopped(channel, "from") && !names_stopped(channel, "to")
            });
            keep(document, "chain", |chain| {
                let tasks = chain.get("tasks").and_then(|tasks| tasks.get_ref().as_array());
                let mut names =
                    tasks.into_iter().flatten().filter_map(|task| task.get_ref().as_str());
                !names.any(is_stopped)
            });
        }
        documents
    }
}

impl<'a> Change<'a> {
    fn make(&self, document: &mut DeTable<'a>) {
        let Some(DeValue::Array(items)) = document.get_mut(KINDS[self.kind]).map(Spanned::get_mut)
        else {
            return;
        };
        for item in items.iter_mut() {
            let DeValue::Table(table) = item.get_mut() else { continue };
            if text(table, "name") != Some(self.name.name.as_str()) {
                continue;
            }
            for (key, value) in self.keys {
                // The key is removed first, because an insertion keeps the position of the old key.
                mutate!("system-mode-key", _ = table.remove(key.get_ref().as_ref()), {});
                table.insert(key.clone(), value.clone());
            }
        }
    }
}

/// Keeps the tables of a kind that satisfy `is`.
fn keep(document: &mut DeTable<'_>, kind: &str, is: impl Fn(&DeTable<'_>) -> bool) {
    let Some(DeValue::Array(items)) = document.get_mut(kind).map(Spanned::get_mut) else { return };
    let all = std::mem::replace(items, DeArray::new());
    *items = all.into_iter().filter(|item| item.get_ref().as_table().is_none_or(&is)).collect();
}
