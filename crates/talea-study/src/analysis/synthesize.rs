//! `--synthesize table`: an off-line table for each root, as entries of a system file.

use super::args::AnalyzeArgs;
use super::names::name_of;
use crate::exit::Exit;
use crate::output::{count, note, print, print_json};
use crate::run_summary::short;
use serde::Serialize;
use std::fmt::Write;
use talea_analysis::offline::{Infeasible, Problem, Synthesis, entries, from_tree, synthesize};
use talea_analysis::tree::Reason;
use talea_core::Span;
use talea_core::engine::{NodeSpec, TaskSpec};
use talea_core::sched::TableEntry;
use talea_system::{Root, System};

/// Number of job orders that the list scheduler tries.
const JOB_ORDERS_TRIED: u32 = 1_000;

#[derive(Serialize)]
struct TableReport {
    file: String,
    what_if: Vec<String>,
    found: bool,
    roots: Vec<RootTable>,
}

#[derive(Serialize)]
struct RootTable {
    name: String,
    hyperperiod_ns: Option<u64>,
    entries: Vec<EntryJson>,
    why_not: Option<String>,
}

#[derive(Serialize)]
struct EntryJson {
    cpu: u32,
    owner: String,
    start_ns: u64,
    length_ns: u64,
    version: Option<String>,
    continues: bool,
}

pub(super) fn table(args: &AnalyzeArgs, system: &System) -> anyhow::Result<Exit> {
    let mut roots = Vec::new();
    let mut text = String::new();
    let what_if: Vec<String> = args.what_if.iter().map(ToString::to_string).collect();
    for change in &what_if {
        // A comment in the system file.
        let _ = writeln!(text, "# what if {change}");
    }
    for root in &system.roots {
        roots.push(synthesize_root(root, &mut text));
    }
    let found = roots.iter().all(|root| root.why_not.is_none());
    if args.output.json {
        print_json(&TableReport { file: args.file.display().to_string(), what_if, found, roots })?;
    } else {
        for root in &roots {
            if let Some(why) = &root.why_not {
                note(&format!("{}: no table: {why}", root.name));
            }
        }
        print(&text)?;
    }
    Ok(if found { Exit::Ok } else { Exit::Failure })
}

fn tasks(root: &Root) -> Vec<&TaskSpec> {
    let specs = root.tree.nodes().filter_map(|(_, node)| match &node.spec {
        NodeSpec::Task(spec) => Some(spec),
        NodeSpec::Scheduler(_) => None,
    });
    specs.collect()
}

fn synthesize_root(root: &Root, text: &mut String) -> RootTable {
    let none = |why: String| RootTable {
        name: root.name.clone(),
        hyperperiod_ns: None,
        entries: Vec::new(),
        why_not: Some(why),
    };
    if !root.surroundings.stalls.is_empty() {
        return none(Reason::CpuStalls.text().to_owned());
    }
    let problem = match from_tree(&root.tree, &root.sources, &root.surroundings.overheads, true) {
        Ok(problem) => problem,
        Err(unsuitable) => {
            let node = name_of(&root.tree, unsuitable.node);
            return none(format!("{node}: {unsuitable}"));
        }
    };
    let specs = tasks(root);
    let of_job = |problem: &Problem, job: usize| {
        let job = &problem.jobs[job];
        format!(
            "the job of {} that is released at {}",
            specs[job.task].name,
            short(job.release.as_ns())
        )
    };
    match synthesize(&problem, JOB_ORDERS_TRIED) {
        Synthesis::Found { pieces, .. } => {
            let entries = entries(&problem, &pieces);
            write(text, root, problem.hyperperiod, &entries, &specs);
            let answers = entries.iter().map(|entry| answer(entry, &specs)).collect();
            RootTable {
                name: root.name.clone(),
                hyperperiod_ns: Some(problem.hyperperiod.as_ns()),
                entries: answers,
                why_not: None,
            }
        }
        Synthesis::Infeasible(Infeasible::Chain { job, end }) => none(format!(
            "there is none: with the jobs that it waits for, {} cannot end before {}, and is due at {}",
            of_job(&problem, job),
            short(end.as_ns()),
            short(problem.jobs[job].due.as_ns())
        )),
        Synthesis::Narrow { job, end } => none(format!(
            "none is searched: with all overheads {} cannot end before {}, and the table ends at {}. That is no proof: an entry may continue from the end of a table to its beginning",
            of_job(&problem, job),
            short(end.as_ns()),
            short(problem.hyperperiod.as_ns())
        )),
        Synthesis::Infeasible(Infeasible::Window { from, to, need }) => none(format!(
            "there is none: between {} and {} at least {} of CPU time are needed, and {} have less",
            short(from.as_ns()),
            short(to.as_ns()),
            short(u64::try_from(need).unwrap_or(u64::MAX)),
            count(problem.cpus as usize, "CPU")
        )),
        Synthesis::NotFound { late, job, by } => none(format!(
            "none was found, which proves nothing: in the best of {JOB_ORDERS_TRIED} tries {} late, {} by {}",
            if late == 1 { "1 job was".to_owned() } else { format!("{late} jobs were") },
            of_job(&problem, job),
            short(by.as_ns())
        )),
    }
}

fn version(entry: &TableEntry, specs: &[&TaskSpec]) -> Option<String> {
    let versions = &specs[entry.owner as usize].versions;
    entry.version.map(|version| versions[version as usize].name.clone())
}

fn length(entry: &TableEntry) -> Span {
    entry.end.checked_sub(entry.start).unwrap_or(Span::ZERO)
}

fn answer(entry: &TableEntry, specs: &[&TaskSpec]) -> EntryJson {
    EntryJson {
        cpu: entry.cpu,
        owner: specs[entry.owner as usize].name.clone(),
        start_ns: entry.start.as_ns(),
        length_ns: length(entry).as_ns(),
        version: version(entry, specs),
        continues: entry.continues,
    }
}

/// Writes the table as part of a system file. The table replaces the root and the schedulers below
/// it.
fn write(
    text: &mut String,
    root: &Root,
    hyperperiod: Span,
    entries: &[TableEntry],
    specs: &[&TaskSpec],
) {
    let quoted = |name: &str| toml_edit::Value::from(name).to_string();
    // Writing to a String can't fail.
    let _ = writeln!(text, "[[scheduler]]\nname = {}\npolicy = \"table\"", quoted(&root.name));
    let _ = writeln!(text, "cpus = {}\nhyperperiod = \"{hyperperiod}\"", root.tree.cpus);
    for entry in entries {
        let owner = quoted(&specs[entry.owner as usize].name);
        let _ = writeln!(text, "\n[[scheduler.entry]]\ncpu = {}\nowner = {owner}", entry.cpu);
        let _ = writeln!(text, "start = \"{}\"\nlength = \"{}\"", entry.start, length(entry));
        if let Some(version) = version(entry, specs) {
            let _ = writeln!(text, "version = {}", quoted(&version));
        }
        if entry.continues {
            text.push_str("continues = true\n");
        }
    }
    text.push('\n');
}
