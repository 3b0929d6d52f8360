//! Combination of all tables: resolves names, builds trees and checks them.

mod chains;
mod graph;
mod left_out;
mod plan;
mod refused;
mod tree;

use crate::draft::{Draft, Named, Place, SchedulerDraft, SharedDraft};
use crate::registry::Registry;
use crate::system::{Root, System};
pub(crate) use chains::default_name as default_chain_name;
use plan::{NEAR, Plan, unknown};
use std::borrow::Cow;
use std::collections::BTreeMap;
use talea_config::diagnostic::quoted;
use talea_config::source::{Findings, words};
use talea_config::suggest;
use talea_core::Span;
use talea_core::engine::Cpu;
use talea_core::mutate;
use talea_core::workload::{Environment, Stall};

const DURATION: Span = Span::from_ns(10_000_000_000);
/// Maximum number of tasks of a system, with all copies. This limit and the next two bound the
/// memory of an engine, which is allocated when it is built.
const TASKS_MAX: u64 = 1 << 20;
/// Maximum number of waiting jobs of a system.
const BACKLOGS_MAX: u64 = 1 << 26;
/// Maximum number of tokens in the channels of a system.
const TOKENS_MAX: u64 = 1 << 26;

/// Returns `groups[h]`, the indices of the items whose home is `h`, for `h` below `count`.
fn grouped(count: usize, homes: impl Iterator<Item = usize>) -> Vec<Vec<usize>> {
    let mut groups = vec![Vec::new(); count];
    homes.enumerate().for_each(|(member, home)| groups[home].push(member));
    groups
}

/// Returns the system of all files, which is meaningful only if `findings` has no error.
pub(super) fn system<'d>(
    draft: &'d Draft,
    registry: &'d Registry,
    findings: &mut [Findings<'_>],
) -> Option<System> {
    bounded(draft, findings)?;
    unique(draft, findings);
    let by_name: BTreeMap<&str, usize> = draft
        .schedulers
        .iter()
        .enumerate()
        .map(|(at, spec)| (spec.name.name.as_str(), at))
        .collect();
    let find = |named: &Named, findings: &mut [Findings<'_>]| {
        let found = by_name.get(named.name.as_str()).copied();
        if found.is_none() && draft.broken.iter().all(|broken| broken.name != named.name) {
            unknown(named, "scheduler", by_name.keys().copied(), findings);
        }
        found
    };
    let mut parents = Vec::new();
    for scheduler in &draft.schedulers {
        parents.push(match &scheduler.parent {
            None => Some(None),
            Some(named) => find(named, findings).map(Some),
        });
    }
    let parents: Vec<Option<usize>> = parents.into_iter().collect::<Option<_>>()?;
    let homes = circles(draft, &parents, findings)?;
    let roots: Vec<usize> = (0..parents.len()).filter(|&at| parents[at].is_none()).collect();
    let example = roots.first().map_or("cpu0", |&root| &draft.schedulers[root].name.name);
    // Where something stands that does not say it.
    let only = |what: String, place: &Place, findings: &mut [Findings<'_>]| {
        // Without a root and with something that could not be read, there may well be one.
        let is_known = !roots.is_empty() || draft.broken.is_empty();
        if roots.len() != 1 && is_known {
            let why = format!("there are {} roots, so it must say where", roots.len());
            findings[place.file]
                .error(&place.at, words(what, why, format!("add `in = \"{example}\"`")));
        }
        roots.first().copied().filter(|_| roots.len() == 1)
    };
    let mut owners: Vec<Option<usize>> = Vec::new();
    for task in &draft.tasks {
        let what = || format!("task {} stands in no scheduler", quoted(&task.name.name));
        let place = || Place { file: task.name.file, at: task.at.clone() };
        owners.push(match &task.parent {
            Some(named) => find(named, findings),
            None => only(what(), &place(), findings),
        });
    }
    let owners: Vec<usize> = owners.into_iter().collect::<Option<_>>()?;
    let root_of =
        |named: &Option<Named>, what: String, place: &Place, findings: &mut [Findings<'_>]| {
            let Some(named) = named else { return only(what, place, findings) };
            let found = find(named, findings)?;
            if parents[found].is_some() {
                let what = format!("{} is not a root", quoted(&named.name));
                let why = "what CPUs and those who share them have belongs to a root";
                let root = &draft.schedulers[homes[found]].name.name;
                findings[named.file].error(
                    &named.at,
                    words(what, why, format!("write `in = \"{root}\"`, or another root")),
                );
                return None;
            }
            Some(found)
        };
    let of_roots = |shared: &[SharedDraft], kind: &str, findings: &mut [Findings<'_>]| {
        let each = shared.iter().map(|one| {
            let what = format!("{kind} {} belongs to no root", quoted(&one.name.name));
            root_of(&one.root, what, &one.name.place(), findings)
        });
        each.collect::<Vec<Option<usize>>>().into_iter().collect::<Option<Vec<usize>>>()
    };
    let accelerators = of_roots(&draft.accelerators, "accelerator", findings);
    let resources = of_roots(&draft.resources, "resource", findings);
    let mut stalls: Vec<Option<(usize, Stall)>> = Vec::new();
    for stall in &draft.stalls {
        let root = root_of(&stall.root, "a stall is in no root".into(), &stall.place, findings);
        let has = root.map(|root| draft.schedulers[root].cpus);
        if let Some(has) = has.filter(|&has| stall.cpu >= has) {
            let what = format!("a stall is on CPU {}, which its root does not own", stall.cpu);
            let why = format!("the root has {has}, numbered from 0");
            findings[stall.place.file].error(
                &stall.place.at,
                words(what, why, format!("write `cpu = {}`, or less", has - 1)),
            );
        }
        stalls.push(
            root.map(|root| (root, Stall { cpu: Cpu(stall.cpu), from: stall.from, to: stall.to })),
        );
    }
    let channels = graph::joined(draft, &homes, &owners, findings);
    let count = parents.len();
    let mut below = vec![Vec::new(); count];
    for (child, parent) in parents.iter().enumerate() {
        if let Some(parent) = parent {
            below[*parent].push(child);
        }
    }
    let channels = channels?;
    let activating = |(at, scheduler): (usize, &'d SchedulerDraft)| {
        let entries = scheduler.policy.entries().iter().filter(|entry| entry.activates);
        entries.map(move |entry| (at, entry.owner.name.as_str()))
    };
    let plan = Plan {
        draft,
        registry,
        below,
        members: grouped(count, owners.iter().copied()),
        tasks: grouped(count, owners.iter().map(|&owner| homes[owner])),
        accelerators: grouped(count, accelerators?.into_iter()),
        resources: grouped(count, resources?.into_iter()),
        joined: grouped(count, channels.iter().map(|channel| channel.root)),
        by_table: draft.schedulers.iter().enumerate().flat_map(activating).collect(),
        owners,
        channels,
        parents,
    };
    graph::check_arrivals(&plan, findings)?;
    let mut built: Vec<Option<Root>> = Vec::new();
    for &root in &roots {
        let surroundings = Environment {
            overheads: draft
                .overheads
                .as_ref()
                .map(|(overheads, _)| *overheads)
                .unwrap_or_default(),
            stalls: stalls
                .iter()
                .flatten()
                .filter(|(of, _)| mutate!("system-stall", *of == root, *of != root))
                .map(|(_, stall)| *stall)
                .collect(),
            changes: draft.changes.clone(),
        };
        built.push(tree::tree(&plan, root, surroundings, findings));
    }
    let built: Vec<Root> = built.into_iter().collect::<Option<_>>()?;
    expected(draft, &built, findings);
    let chains = chains::chains(draft, &built, findings);
    Some(System {
        duration: draft.duration.unwrap_or(DURATION),
        seed: draft.seed.unwrap_or(1),
        roots: built,
        chains,
        expectations: draft
            .expectations
            .iter()
            .map(|(expectation, _)| expectation.clone())
            .collect(),
        warnings: Vec::new(),
        modes: Vec::new(),
    })
}

/// Checks that each expectation matches a task.
fn expected(draft: &Draft, built: &[Root], findings: &mut [Findings<'_>]) {
    let names: Vec<&str> =
        built.iter().flat_map(|root| root.tasks.iter().map(String::as_str)).collect();
    for (expectation, named) in &draft.expectations {
        if mutate!(
            "system-expect",
            !names.iter().any(|name| expectation.is_about(name)),
            names.is_empty()
        ) {
            let task = expectation.task.as_deref().unwrap_or("*");
            if findings[named.file].is_full() {
                findings[named.file].count_errors(1);
                continue;
            }
            let names =
                names.iter().copied().take(if findings[named.file].has_room() { NEAR } else { 0 });
            let remedy = match suggest::nearest(task, names) {
                Some(near) => format!("did you mean {}?", quoted(near)),
                None => "write the name of a task".to_owned(),
            };
            let what = format!("no task is called {}", quoted(task));
            findings[named.file].error(
                &named.at,
                words(what, "an expectation that matches no task could never fail", remedy),
            );
        }
    }
}

/// Checks the limits that bound the memory of the engines.
fn bounded(draft: &Draft, findings: &mut [Findings<'_>]) -> Option<()> {
    let (mut tasks, mut waiting) = (0, 0);
    for task in &draft.tasks {
        let copies = u64::from(task.count.unwrap_or(1));
        tasks += copies;
        waiting += copies * u64::from(task.backlog.unwrap_or(0));
        let (what, remedy) = if tasks > TASKS_MAX {
            (format!("these are more than {TASKS_MAX} tasks"), "lower `count`")
        } else if waiting > BACKLOGS_MAX {
            (format!("more than {BACKLOGS_MAX} jobs may wait together"), "lower `backlog`")
        } else {
            continue;
        };
        findings[task.name.file].error(
            &task.name.at,
            words(what, "room for all of them is taken before a run", remedy),
        );
        return None;
    }
    let mut tokens = 0;
    for channel in &draft.channels {
        tokens += u64::from(channel.size);
        if tokens > TOKENS_MAX {
            let what = format!("channels hold more than {TOKENS_MAX} tokens together");
            let why = "room for all of them is taken before a run";
            findings[channel.place.file].error(&channel.place.at, words(what, why, "lower `size`"));
            return None;
        }
    }
    Some(())
}

fn unique(draft: &Draft, findings: &mut [Findings<'_>]) {
    let mut first: BTreeMap<String, (usize, u32)> = BTreeMap::new();
    let mut add = |name: Cow<'_, str>, named: &Named, findings: &mut [Findings<'_>]| {
        let line = findings[named.file].source.line(named.at.start);
        let known = first.get(name.as_ref()).copied();
        if let Some((file, line)) = mutate!("system-names", known, None) {
            let origin = findings[file].source.origin.to_owned();
            let text = words(
                format!("{} is the name of two things", quoted(&name)),
                format!("the other one is in {origin}, line {line}"),
                "give one of them another name",
            );
            findings[named.file].error(&named.at, text);
        } else {
            first.insert(name.into_owned(), (named.file, line));
        }
        known.is_none()
    };
    let schedulers = draft.schedulers.iter().map(|scheduler| &scheduler.name);
    let tasks = draft.tasks.iter().map(|task| &task.name);
    let shared = draft.accelerators.iter().chain(&draft.resources).map(|shared| &shared.name);
    for named in schedulers.chain(tasks).chain(shared) {
        add(Cow::Borrowed(&named.name), named, findings);
    }
    for task in draft.tasks.iter().filter(|task| task.count.is_some()) {
        // One of the copies is enough.
        let _ = task.names().all(|name| add(Cow::Owned(name), &task.name, findings));
    }
}

/// Returns the root above each scheduler, and reports schedulers that contain each other.
fn circles(
    draft: &Draft,
    parents: &[Option<usize>],
    findings: &mut [Findings<'_>],
) -> Option<Vec<usize>> {
    // Of each scheduler that was looked at: the root above it, or that there is none.
    let mut homes: Vec<Option<Option<usize>>> = vec![None; parents.len()];
    let mut fine = true;
    for start in 0..parents.len() {
        let (mut way, mut at) = (Vec::new(), start);
        let home = loop {
            if let Some(known) = homes[at] {
                break known;
            }
            // Provisional: a scheduler that reaches this entry again is in a cycle.
            homes[at] = Some(None);
            way.push(at);
            match parents[at] {
                None => break Some(at),
                Some(parent) => at = parent,
            }
        };
        for at in way {
            homes[at] = Some(home);
        }
        if home.is_none() {
            let named = &draft.schedulers[start].name;
            let what = format!("{} contains itself", quoted(&named.name));
            let remedy = "remove `in` of one of them: it becomes the root";
            let message = words(what, "a tree has no cycles", remedy);
            mutate!("system-circle", findings[named.file].error(&named.at, message));
            fine = false;
        }
    }
    fine.then_some(homes.into_iter().flatten().flatten().collect())
}
