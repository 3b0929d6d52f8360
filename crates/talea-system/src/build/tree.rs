//! Construction of one root with all nodes below it.

use super::graph::{join, marked};
use super::left_out::left_out;
use super::plan::{Copy, Plan, unknown};
use super::refused::{Places, refused};
use crate::draft::{
    CpuUse, EntryDraft, Named, Place, PolicyDraft, PreemptionDraft, ProgramDraft, SharedDraft,
    SlotDraft, SuspensionDraft, TaskDraft,
};
use crate::system::Root;
use std::collections::{BTreeMap, BTreeSet};
use talea_config::diagnostic::quoted;
use talea_config::source::{Findings, words};
use talea_core::criteria::Overrides;
use talea_core::engine::{
    AcceleratorId, Affinity, Backlog, NodeId, Preemption, ResourceId, SchedulerSpec, TaskSpec,
    Tree, Version,
};
use talea_core::mutate;
use talea_core::sched::{PolicySpec, Slot, TableEntry};
use talea_core::server::Reservation;
use talea_core::workload::{Arrivals, Cost, Environment, Source};
use talea_core::{Span, Work};

fn work_of(span: Span) -> Work {
    Work::from_ns(span.as_ns())
}

pub(super) fn tree(
    plan: &Plan<'_>,
    root: usize,
    surroundings: Environment,
    findings: &mut [Findings<'_>],
) -> Option<Root> {
    let (draft, parents) = (plan.draft, &plan.parents);
    // From the root down, each level in the order of the files: children are numbered as they are
    // written.
    let mut order = vec![root];
    let mut next = 0;
    while let Some(&above) = order.get(next) {
        order.extend(&plan.below[above]);
        next += 1;
    }
    let mut ids: BTreeMap<usize, NodeId> = BTreeMap::new();
    let mut places = Places::default();
    let mut tree: Option<Tree> = None;
    for &at in &order {
        let spec = scheduler(plan, root, at, findings)?;
        let id = if let (Some(tree), Some(parent)) = (&mut tree, parents[at]) {
            tree.scheduler(ids[&parent], spec)
        } else {
            let of = &draft.schedulers[at];
            let mut new = Tree::new(of.cpus, spec);
            (new.migration, new.selection, new.inheritance) =
                (of.migration, of.selection, of.inheritance);
            tree = Some(new);
            Tree::ROOT
        };
        ids.insert(at, id);
        places.nodes.insert(id, &draft.schedulers[at].name);
        places.schedulers.insert(id, at);
    }
    let mut tree = tree?;
    let accelerators = names_of(&draft.accelerators, &plan.accelerators[root]);
    for (name, _) in &accelerators {
        tree.accelerator(name);
    }
    let resources = names_of(&draft.resources, &plan.resources[root]);
    for (name, shared) in &resources {
        tree.resource(
            name,
            mutate!("system-protocol", shared.protocol, talea_core::engine::Protocol::default()),
        );
    }
    let (mut nodes, mut costs, mut tasks) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
    for &number in &plan.tasks[root] {
        let (task, owner) = (&draft.tasks[number], plan.owners[number]);
        let (spec, cost) = self::task(plan, task, root, &accelerators, &resources, findings)?;
        for (name, copy) in task.names().zip(0..) {
            let id = tree.task(ids[&owner], TaskSpec { name: name.clone(), ..spec.clone() });
            places.nodes.insert(id, &task.name);
            nodes.insert((number, copy), id);
            costs.insert((number, copy), cost.clone());
            tasks.push((name, (number, copy)));
        }
    }
    join(plan, root, &mut tree, &nodes, &mut costs);
    let is_logical = |number: usize| draft.tasks[number].parameters.is_logical;
    for (&(number, _), &id) in nodes.iter().filter(|((number, _), _)| is_logical(*number)) {
        if tree.channels.iter().any(|channel| channel.from == id || channel.to == id) {
            channel_of_logical(&draft.tasks[number].name, findings);
            return None;
        }
    }
    places.channels = plan.joined[root].iter().map(|&at| &draft.channels[at].place).collect();
    if let Err(error) =
        mutate!("system-admit", tree.check().and_then(|()| tree.admit()), tree.check())
    {
        refused(draft, &places, &error, findings);
        return None;
    }
    for &at in &order {
        left_out(plan, at, findings);
    }
    let sources = sources(plan, root, &tasks, costs);
    let program = |&(_, (number, _)): &(String, Copy)| draft.tasks[number].program.as_ref();
    let programs: Vec<Option<&ProgramDraft>> = tasks.iter().map(program).collect();
    Some(Root {
        programs: programs.iter().map(|program| Some(program.as_ref()?.words.clone())).collect(),
        users: programs.iter().map(|program| program.as_ref()?.user.clone()).collect(),
        health: programs
            .iter()
            .map(|program| program.map(|program| program.health).unwrap_or_default())
            .collect(),
        logical: tasks.iter().map(|&(_, (number, _))| is_logical(number)).collect(),
        name: draft.schedulers[root].name.name.clone(),
        tree,
        sources,
        phases_known: plan.tasks[root].iter().any(|&number| {
            draft.tasks[number].about_arrivals.iter().any(|(key, _)| *key == "offset")
        }),
        tasks: tasks.into_iter().map(|(name, _)| name).collect(),
        surroundings,
    })
}

/// Reports a channel of a task with logical execution time.
fn channel_of_logical(task: &Named, findings: &mut [Findings<'_>]) {
    let what = format!("{} has `logical_execution_time` and a channel", quoted(&task.name));
    let why = "a channel passes its tokens at the completion of a job, not at its deadline";
    let remedy =
        "leave out `logical_execution_time`, or let a register take the place of the channel";
    findings[task.file].error(&task.at, words(what, why, remedy));
}

/// Returns the shared resources of one root, in its order.
fn names_of<'d>(all: &'d [SharedDraft], mine: &[usize]) -> Vec<(&'d str, &'d SharedDraft)> {
    mine.iter().map(|&at| (all[at].name.name.as_str(), &all[at])).collect()
}

fn sources(
    plan: &Plan<'_>,
    root: usize,
    tasks: &[(String, Copy)],
    mut costs: BTreeMap<Copy, Cost>,
) -> Vec<Source> {
    let ends: BTreeSet<Copy> = plan.joined[root].iter().map(|&at| plan.channels[at].to).collect();
    let mut by_table: BTreeMap<usize, bool> = BTreeMap::new();
    let source = |(_, copy): &(String, Copy)| {
        let cost = costs.remove(copy).expect("every task has a cost");
        let by_table = *by_table.entry(copy.0).or_insert_with(|| plan.table_activates(copy.0));
        if by_table || ends.contains(copy) {
            return Source::activated(cost);
        }
        let arrivals: Arrivals = plan.draft.tasks[copy.0].arrivals.clone();
        Source { arrivals, cost }
    };
    tasks.iter().map(source).collect()
}

/// Returns a task with the cost and steps of its jobs, without channels.
fn task(
    plan: &Plan<'_>,
    task: &TaskDraft,
    root: usize,
    accelerators: &[(&str, &SharedDraft)],
    resources: &[(&str, &SharedDraft)],
    findings: &mut [Findings<'_>],
) -> Option<(TaskSpec, Cost)> {
    // One that a graph activates gets what it lacks later.
    let mut spec = TaskSpec::new("", task.parameters.period.unwrap_or(Span::ZERO));
    spec.deadline = task.parameters.deadline.or(task.parameters.period).unwrap_or(Span::ZERO);
    spec.priority = task.parameters.priority.unwrap_or(0);
    spec.criticality = task.parameters.criticality.unwrap_or(0);
    spec.enforced = task.enforce;
    spec.backlog = task.backlog.map_or_else(Backlog::default, |capacity| Backlog { capacity });
    spec.cost = Some(task.cost.max());
    if let Some((affinity, place)) = &task.affinity {
        mutate!("system-affinity", spec.affinity = *affinity);

        owned(plan, root, *affinity, place, findings)?;
    }
    for version in &task.versions {
        let mut ids = Vec::new();
        for named in &version.accelerators {
            let at =
                number(named, "accelerator", accelerators, &plan.draft.accelerators, findings)?;
            ids.push(AcceleratorId(at));
        }
        spec.versions.push(Version {
            name: version.name.name.clone(),
            accelerators: ids,
            energy: mutate!(
                "system-energy",
                u64::from(version.energy),
                u64::from(version.energy.min(1))
            ),
            time: version.time.map_or(version.cost.max(), work_of),
            modes: version.modes,
            needs: version.needs,
        });
    }
    let mut cost = locking(plan, task, &mut spec, resources, findings)?;
    match &task.steps.preemption {
        PreemptionDraft::Anywhere => {}
        PreemptionDraft::Points(points) => {
            spec.preemption = Preemption::AtPoints;
            let points = mutate!("system-points", &points[..], &[]);
            cost = marked(cost, |cost| cost.preemptible_at(points));
        }
        &PreemptionDraft::Floating { longest, last } => {
            spec.preemption = Preemption::Floating;
            cost = marked(cost, |cost| cost.with_floating_sections(longest, last));
        }
    }
    Some((spec, cost))
}

/// Returns the cost of a task with its critical sections and suspensions.
fn locking(
    plan: &Plan<'_>,
    task: &TaskDraft,
    spec: &mut TaskSpec,
    resources: &[(&str, &SharedDraft)],
    findings: &mut [Findings<'_>],
) -> Option<Cost> {
    let mut cost = task.cost.clone();
    for section in &task.steps.sections {
        let id = ResourceId(number(
            &section.resource,
            "resource",
            resources,
            &plan.draft.resources,
            findings,
        )?);
        if !spec.uses.contains(&id) {
            spec.uses.push(id);
        }
        cost = marked(cost, |cost| {
            cost.locking(
                id,
                section.from,
                mutate!("system-section", section.to, Work::from_ns(u64::MAX)),
            )
        });
    }
    for suspension in &task.steps.suspensions {
        cost = waiting(task, cost, suspension, findings)?;
    }
    Some(cost)
}

/// Adds a wait for a device to the cost of its version, or of all versions.
fn waiting(
    task: &TaskDraft,
    mut cost: Cost,
    wait: &SuspensionDraft,
    findings: &mut [Findings<'_>],
) -> Option<Cost> {
    let at = mutate!("system-suspension", wait.after, Work::ZERO);
    let add = |cost: Cost| match wait.cpu_use {
        CpuUse::Free => cost.suspending(at, wait.length),
        CpuUse::Spin => cost.occupying(at, wait.length, true),
        CpuUse::Hold => cost.occupying(at, wait.length, false),
    };
    let Some(named) = &wait.version else { return Some(marked(cost, add)) };
    let names = || task.versions.iter().map(|version| version.name.name.as_str());
    let Some(number) = names().position(|name| name == named.name) else {
        unknown(named, "version", names(), findings);
        return None;
    };
    match &mut cost {
        Cost::Versions(costs) => {
            let own = mutate!("system-wait-version", number, 0);
            costs[own] = add(core::mem::replace(&mut costs[own], Cost::Constant(Work::ZERO)));
        }
        only => *only = add(only.clone()),
    }
    Some(cost)
}

/// Returns the number of an accelerator or resource of this root.
fn number(
    named: &Named,
    what: &str,
    here: &[(&str, &SharedDraft)],
    all: &[SharedDraft],
    findings: &mut [Findings<'_>],
) -> Option<u32> {
    let found = here.iter().position(|(name, _)| *name == named.name);
    if found.is_none() {
        if all.iter().any(|shared| shared.name.name == named.name) {
            let text = format!("{} belongs to another root", quoted(&named.name));
            let why = format!(
                "who shares {} {what} is scheduled together",
                if what.starts_with('a') { "an" } else { "a" }
            );
            let remedy =
                "put all who use it into one root with several `cpus`, each with its `affinity`";
            findings[named.file].error(&named.at, words(text, why, remedy));
        } else {
            unknown(named, what, here.iter().map(|(name, _)| *name), findings);
        }
    }
    found.map(|at| at as u32)
}

/// Reports CPUs that a root does not own.
fn owned(
    plan: &Plan<'_>,
    root: usize,
    affinity: Affinity,
    place: &Place,
    findings: &mut [Findings<'_>],
) -> Option<()> {
    let cpus = plan.draft.schedulers[root].cpus;
    let allowed = u64::MAX >> (64 - cpus);
    let beyond = affinity.0 & mutate!("system-cpus", !allowed, !allowed & 1);
    if beyond == 0 {
        return Some(());
    }
    let what =
        format!("`affinity` names CPU {}, which its root does not own", beyond.trailing_zeros());
    let why = format!("the root has {cpus}, numbered from 0");
    findings[place.file].error(&place.at, words(what, why, format!("write CPUs below {cpus}")));
    None
}

/// Returns one scheduler with the numbers of its children.
fn scheduler(
    plan: &Plan<'_>,
    root: usize,
    at: usize,
    findings: &mut [Findings<'_>],
) -> Option<SchedulerSpec> {
    let spec = &plan.draft.schedulers[at];
    let policy = match spec.policy {
        PolicyDraft::RoundRobin { quantum } => PolicySpec::RoundRobin { quantum: work_of(quantum) },
        PolicyDraft::Partitions { frame, lending, ref slots } => PolicySpec::Partitions {
            frame,
            slots: self::slots(plan, at, slots, findings)?,
            lending,
        },
        PolicyDraft::Table { hyperperiod, ref entries } => {
            PolicySpec::Table { hyperperiod, entries: self::entries(plan, at, entries, findings)? }
        }
        PolicyDraft::Named("edf") => PolicySpec::Edf,
        PolicyDraft::Named("fp") => PolicySpec::FixedPriority,
        PolicyDraft::Named("rm") => PolicySpec::RateMonotonic,
        PolicyDraft::Named("dm") => {
            mutate!("system-policy", PolicySpec::DeadlineMonotonic, PolicySpec::RateMonotonic)
        }
        PolicyDraft::Named("criticality") => PolicySpec::CriticalityMonotonic,
        PolicyDraft::Named("fifo") => PolicySpec::Fifo,
        PolicyDraft::Named(other) => {
            let (name, make) = plan.registry.policies().find(|(name, _)| *name == other)?;
            PolicySpec::Custom { name, make }
        }
    };
    let mut built = SchedulerSpec::new(&spec.name.name, policy);
    mutate!("system-preemptive", built.preemptive = spec.preemptive);

    built.overrides = mutate!(
        "system-own",
        Overrides {
            priority: spec.priority,
            criticality: spec.criticality,
            ..Overrides::default()
        },
        Overrides { criticality: spec.criticality, ..Overrides::default() }
    );
    if let Some((affinity, place)) = spec.affinity.as_ref().filter(|_| spec.parent.is_some()) {
        built.affinity = *affinity;
        owned(plan, root, *affinity, place, findings)?;
    }
    built.reservation = spec.server.map(|server| Reservation {
        deadline: mutate!("system-server", server.deadline, None),
        ..server
    });
    Some(built)
}

/// Returns the children of a scheduler by name, each with its number in the tree and its table.
/// Schedulers precede tasks, in file order.
fn children(plan: &Plan<'_>, at: usize) -> BTreeMap<String, (u32, Option<usize>)> {
    let schedulers = plan.below[at].iter();
    let schedulers =
        schedulers.map(|&child| (plan.draft.schedulers[child].name.name.clone(), None));
    let tasks = plan.members[at].iter();
    let tasks = tasks
        .flat_map(|&number| plan.draft.tasks[number].names().map(move |name| (name, Some(number))));
    schedulers.chain(tasks).zip(0..).map(|((name, task), child)| (name, (child, task))).collect()
}

fn slots(
    plan: &Plan<'_>,
    at: usize,
    drafts: &[SlotDraft],
    findings: &mut [Findings<'_>],
) -> Option<Vec<Slot>> {
    let children = children(plan, at);
    let mut slots = Vec::new();
    let mut free = Span::ZERO;
    for slot in drafts {
        let start = slot.start.unwrap_or(mutate!("system-slots", free, Span::ZERO));
        let Some(&(owner, _)) = children.get(&slot.owner.name) else {
            unknown(&slot.owner, "scheduler", children.keys().map(String::as_str), findings);
            return None;
        };
        free = start.checked_add(slot.length).unwrap_or(Span::from_ns(u64::MAX));
        slots.push(Slot { start, end: free, owner });
    }
    Some(slots)
}

fn entries(
    plan: &Plan<'_>,
    at: usize,
    drafts: &[EntryDraft],
    findings: &mut [Findings<'_>],
) -> Option<Vec<TableEntry>> {
    let children = children(plan, at);
    let mut entries = Vec::new();
    let mut free = [Span::ZERO; 64];
    for entry in drafts {
        let Some(&(owner, task)) = children.get(&entry.owner.name) else {
            unknown(&entry.owner, "task", children.keys().map(String::as_str), findings);
            return None;
        };
        let start = entry.start.unwrap_or(free[entry.cpu as usize]);
        let end = start.checked_add(entry.length).unwrap_or(Span::from_ns(u64::MAX));
        free[entry.cpu as usize] = end;
        let mut built = TableEntry::new(entry.cpu, start, end, owner);
        (built.activates, built.continues) =
            (entry.activates, mutate!("system-entries", entry.continues, false));
        if let Some(named) = &entry.version {
            let versions = task.map_or(&[][..], |task| &plan.draft.tasks[task].versions);
            let Some(version) = versions.iter().position(|version| version.name.name == named.name)
            else {
                unknown(named, "version", versions.iter().map(|v| v.name.name.as_str()), findings);
                return None;
            };
            built.version = Some(version as u32);
        }
        entries.push(built);
    }
    Some(entries)
}
