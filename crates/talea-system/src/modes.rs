//! Systems from the tables of their files. Each mode is read as a system of its own, and the
//! diagnostics are merged.

use crate::build;
use crate::draft::{Draft, Named};
use crate::read;
use crate::registry::Registry;
use crate::system::{Mode, System};
use std::collections::BTreeMap;
use talea_config::Diagnostic;
use talea_config::diagnostic::quoted;
use talea_config::source::{Findings, Source, words};
use toml::de::DeTable;

/// Maximum number of diagnostics about a file with modes.
const SHOWN: usize = 100;
/// Maximum number of tasks of all modes together.
const TASKS_MAX: usize = 1 << 20;

/// Returns the system that the tables of all files describe. The system of a file with modes is
/// that of its initial mode.
pub(super) fn system(
    documents: &[DeTable<'_>],
    registry: &Registry,
    mut findings: Vec<Findings<'_>>,
) -> Result<System, Vec<Diagnostic>> {
    if documents.iter().all(|document| !document.contains_key("mode")) {
        return system_of(documents, registry, findings);
    }
    let modes = read::modes(documents, &mut findings);
    if findings.iter().any(Findings::has_errors) {
        // The systems of the modes are not known. The tables themselves can be checked.
        let _ = draft_of(documents, registry, &mut findings);
        return Err(findings.into_iter().flat_map(Findings::finish).collect());
    }
    if modes.is_empty() {
        return system_of(documents, registry, findings);
    }
    let sources: Vec<_> = findings.iter().map(|found| found.source).collect();
    let (mut systems, mut tasks) = (Vec::new(), 0);
    // Each diagnostic with the modes that have it, by file.
    let mut found: Vec<(Diagnostic, Vec<usize>)> = Vec::new();
    for (at, mode) in modes.iter().enumerate() {
        let documents = mode.documents(documents);
        let findings = sources.iter().copied().map(Findings::new).collect();
        let complaints = match system_of(&documents, registry, findings) {
            Ok(system) => {
                tasks += system.roots.iter().map(|root| root.tasks.len()).sum::<usize>();
                if tasks > TASKS_MAX {
                    return Err(too_many(&mode.name, &sources));
                }
                let complaints = system.warnings.clone();
                systems.push(system);
                complaints
            }
            Err(complaints) => complaints,
        };
        for complaint in complaints {
            let known = found.iter().position(|(known, _)| *known == complaint);
            match known {
                Some(known) => found[known].1.push(at),
                None if found.len() < SHOWN => found.push((complaint, vec![at])),
                None => {}
            }
        }
    }
    let files: BTreeMap<&str, usize> =
        sources.iter().zip(0..).map(|(source, file)| (source.origin, file)).collect();
    found.sort_by_key(|(found, _)| {
        (files.get(found.origin.as_str()).copied(), found.line, found.column, found.severity)
    });
    let complaints: Vec<Diagnostic> = found
        .into_iter()
        .map(|(mut complaint, of)| {
            if of.len() < modes.len() {
                let names: Vec<String> =
                    of.iter().map(|&at| quoted(&modes[at].name.name)).collect();
                complaint.what = format!("{}, in mode {}", complaint.what, names.join(", "));
            }
            complaint
        })
        .collect();
    if systems.len() < modes.len() {
        return Err(complaints);
    }
    let initial = modes.iter().position(|mode| mode.initial.is_some()).unwrap_or(0);
    let modes: Vec<Mode> = modes
        .into_iter()
        .zip(systems)
        .enumerate()
        .map(|(at, (mode, system))| Mode {
            name: mode.name.name,
            initial: at == initial,
            fallback: mode.fallback.is_some(),
            system,
        })
        .collect();
    Ok(System { warnings: complaints, modes: modes.clone(), ..modes[initial].system.clone() })
}

fn too_many(mode: &Named, sources: &[&Source<'_>]) -> Vec<Diagnostic> {
    let mut findings = Findings::new(sources[mode.file]);
    let what = format!("up to this mode these are more than {TASKS_MAX} tasks");
    let why = "the memory of a system is bounded, and each mode has its own tasks";
    findings.error(&mode.at, words(what, why, "lower `count`, or write fewer modes"));
    findings.finish()
}

/// Returns the system of tables without modes.
fn system_of(
    documents: &[DeTable<'_>],
    registry: &Registry,
    mut findings: Vec<Findings<'_>>,
) -> Result<System, Vec<Diagnostic>> {
    let draft = draft_of(documents, registry, &mut findings);
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

/// Reads each table by itself.
fn draft_of(
    documents: &[DeTable<'_>],
    registry: &Registry,
    findings: &mut [Findings<'_>],
) -> Draft {
    let mut draft = Draft::default();
    for (file, document) in documents.iter().enumerate() {
        read::file(document, file, registry, &mut draft, &mut findings[file]);
    }
    draft
}
