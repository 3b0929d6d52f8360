//! All tables together: names resolved, trees built and checked.

use super::{Expectation, Root, System};
use crate::diagnostic::quoted;
use crate::source::{Findings, words};
use crate::suggest;
use std::collections::BTreeMap;
use std::ops::Range;
use talea_core::criteria::Own;
use talea_core::machine::{Backlog, Migration, NodeId, SchedulerSpec, TaskSpec, Tree, Wrong};
use talea_core::sched::{Policy, Slot};
use talea_core::server::{Kind, Reservation};
use talea_core::workload::{Arrivals, Cost, Source};
use talea_core::{Span, Work};

/// A name and where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Named {
    pub(super) name: String,
    pub(super) file: usize,
    pub(super) at: Range<usize>,
}

pub(super) struct SlotDraft {
    pub(super) owner: Named,
    pub(super) start: Option<Span>,
    pub(super) length: Span,
}

pub(super) struct SchedulerDraft {
    pub(super) name: Named,
    pub(super) parent: Option<Named>,
    pub(super) policy: &'static str,
    pub(super) server: Option<Kind>,
    pub(super) cpus: u32,
    pub(super) migration: Migration,
    pub(super) preemptive: bool,
    pub(super) lending: bool,
    pub(super) priority: Option<u8>,
    pub(super) criticality: Option<u8>,
    pub(super) quantum: Option<Span>,
    pub(super) frame: Option<Span>,
    pub(super) budget: Option<Span>,
    pub(super) period: Option<Span>,
    pub(super) deadline: Option<Span>,
    pub(super) offset: Span,
    pub(super) slots: Vec<SlotDraft>,
}

pub(super) struct TaskDraft {
    pub(super) name: Named,
    pub(super) parent: Option<Named>,
    pub(super) period: Span,
    pub(super) deadline: Span,
    pub(super) priority: u8,
    pub(super) criticality: u8,
    pub(super) cost: Cost,
    pub(super) arrivals: Arrivals,
    pub(super) enforce: bool,
    pub(super) backlog: Option<u32>,
    pub(super) count: Option<u32>,
    pub(super) at: Range<usize>,
}

/// Everything that the files say.
#[derive(Default)]
pub(super) struct Draft {
    pub(super) duration: Option<Span>,
    pub(super) seed: Option<u64>,
    pub(super) schedulers: Vec<SchedulerDraft>,
    pub(super) tasks: Vec<TaskDraft>,
    pub(super) expectations: Vec<(Expectation, Named)>,
    /// Schedulers that have a name and nothing else that could be used; whoever names them is not told again.
    pub(super) broken: Vec<Named>,
}

const DURATION: Span = Span::from_ns(10_000_000_000);

/// The value of all files; meaningful only if nothing was found to be an error.
pub(super) fn system(draft: &Draft, findings: &mut [Findings<'_>]) -> Option<System> {
    unique(draft, findings);
    let by_name: BTreeMap<&str, usize> =
        draft.schedulers.iter().enumerate().map(|(at, spec)| (spec.name.name.as_str(), at)).collect();
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
    let mut owners: Vec<Option<usize>> = Vec::new();
    for task in &draft.tasks {
        owners.push(match &task.parent {
            Some(named) => find(named, findings),
            None if roots.len() == 1 => roots.first().copied(),
            None => {
                let what = format!("task {} stands in no scheduler", quoted(&task.name.name));
                let why = format!("there are {} roots, so it must say where", roots.len());
                let example = roots.first().map_or("cpu0", |&root| &draft.schedulers[root].name.name);
                findings[task.name.file]
                    .error(&task.at, words(what, why, format!("add `in = \"{example}\"`")));
                None
            }
        });
    }
    let owners: Vec<usize> = owners.into_iter().collect::<Option<_>>()?;
    let mut built = Vec::new();
    for &root in &roots {
        built.push(tree(draft, root, &parents, &homes, &owners, findings)?);
    }
    let names: Vec<&str> =
        built.iter().flat_map(|root: &Root| root.tasks.iter().map(String::as_str)).collect();
    for (expectation, named) in &draft.expectations {
        if !names.iter().any(|name| expectation.is_about(name)) {
            let task = expectation.task.as_deref().unwrap_or("*");
            let remedy = match suggest::nearest(task, names.iter().copied()) {
                Some(near) => format!("did you mean {}?", quoted(near)),
                None => "write the name of a task".to_owned(),
            };
            let what = format!("no task is called {}", quoted(task));
            findings[named.file]
                .error(&named.at, words(what, "an expectation about nobody could never fail", remedy));
        }
    }
    Some(System {
        duration: draft.duration.unwrap_or(DURATION),
        seed: draft.seed.unwrap_or(1),
        roots: built,
        expectations: draft.expectations.iter().map(|(expectation, _)| expectation.clone()).collect(),
    })
}

fn unknown<'n>(
    named: &Named,
    what: &str,
    names: impl Iterator<Item = &'n str>,
    findings: &mut [Findings<'_>],
) {
    let remedy = match suggest::nearest(&named.name, names) {
        Some(near) => format!("did you mean {}?", quoted(near)),
        None => format!("add a [[{what}]] with that name"),
    };
    let text =
        words(format!("no {what} is called {}", quoted(&named.name)), "it must stand somewhere", remedy);
    findings[named.file].error(&named.at, text);
}

fn unique(draft: &Draft, findings: &mut [Findings<'_>]) {
    let mut first: BTreeMap<&str, (usize, u32)> = BTreeMap::new();
    let names = draft.schedulers.iter().map(|s| &s.name).chain(draft.tasks.iter().map(|t| &t.name));
    for named in names {
        let line = findings[named.file].source.line(named.at.start);
        if let Some((file, line)) = first.insert(&named.name, (named.file, line)) {
            let origin = findings[file].source.origin.to_owned();
            let text = words(
                format!("{} is the name of two things", quoted(&named.name)),
                format!("the other one is in {origin}, line {line}"),
                "give one of them another name",
            );
            findings[named.file].error(&named.at, text);
        }
    }
}

/// The root above each scheduler; reports schedulers that stand in each other.
fn circles(draft: &Draft, parents: &[Option<usize>], findings: &mut [Findings<'_>]) -> Option<Vec<usize>> {
    let mut homes = Vec::new();
    let mut fine = true;
    for start in 0..parents.len() {
        let mut at = start;
        let mut steps = 0;
        while let Some(parent) = parents[at] {
            at = parent;
            steps += 1;
            if steps > parents.len() {
                break;
            }
        }
        if steps > parents.len() {
            let named = &draft.schedulers[start].name;
            let what = format!("{} stands in itself", quoted(&named.name));
            let remedy = "let one of them stand in none: it is the root";
            findings[named.file].error(&named.at, words(what, "a tree has no circles", remedy));
            fine = false;
        }
        homes.push(at);
    }
    fine.then_some(homes)
}

fn work_of(span: Span) -> Work {
    Work::from_ns(span.as_ns())
}

fn tree(
    draft: &Draft,
    root: usize,
    parents: &[Option<usize>],
    homes: &[usize],
    owners: &[usize],
    findings: &mut [Findings<'_>],
) -> Option<Root> {
    let mine: Vec<usize> = (0..parents.len()).filter(|&at| homes[at] == root).collect();
    // From the root down, each level in the order of the files: children are numbered as they are written.
    let mut order = vec![root];
    let mut next = 0;
    while let Some(&above) = order.get(next) {
        order.extend(mine.iter().copied().filter(|&at| parents[at] == Some(above)));
        next += 1;
    }
    let mut ids: BTreeMap<usize, NodeId> = BTreeMap::new();
    let mut places: BTreeMap<NodeId, &Named> = BTreeMap::new();
    let mut tree: Option<Tree> = None;
    for &at in &order {
        let spec = scheduler(draft, at, parents, owners, findings)?;
        let id = if let (Some(tree), Some(parent)) = (&mut tree, parents[at]) {
            tree.scheduler(ids[&parent], spec)
        } else {
            let mut new = Tree::new(draft.schedulers[at].cpus, spec);
            new.migration = draft.schedulers[at].migration;
            tree = Some(new);
            Tree::ROOT
        };
        ids.insert(at, id);
        places.insert(id, &draft.schedulers[at].name);
    }
    let mut tree = tree?;
    let (mut sources, mut tasks) = (Vec::new(), Vec::new());
    for (task, &owner) in draft.tasks.iter().zip(owners).filter(|&(_, owner)| homes[*owner] == root) {
        for copy in 0..task.count.unwrap_or(1) {
            let name = match task.count {
                Some(_) => format!("{}{copy}", task.name.name),
                None => task.name.name.clone(),
            };
            let mut spec = TaskSpec::new(&name, task.period);
            spec.deadline = task.deadline;
            spec.priority = task.priority;
            spec.criticality = task.criticality;
            spec.enforced = task.enforce;
            spec.backlog = task.backlog.map_or_else(Backlog::default, |capacity| Backlog { capacity });
            let id = tree.task(ids[&owner], spec);
            places.insert(id, &task.name);
            sources.push(Source { arrivals: task.arrivals.clone(), cost: task.cost.clone() });
            tasks.push(name);
        }
    }
    if let Err(error) = tree.check() {
        let named = places[&error.node];
        let what = format!("{} can't be scheduled like this", quoted(&named.name));
        findings[named.file].error(&named.at, words(what, error.why.to_string(), remedy(&error.why)));
        return None;
    }
    Some(Root { name: draft.schedulers[root].name.name.clone(), tree, sources, tasks })
}

/// What would be right.
fn remedy(wrong: &Wrong) -> &'static str {
    match wrong {
        Wrong::Cpus(_) => "write `cpus = 1`, or as many as the root owns",
        Wrong::TimeSharing { .. } => "let it stand at the root, or directly under an `fp` root",
        Wrong::ManyCpus { .. } => "give each CPU a root of its own",
        Wrong::Slot { .. } => {
            "let each slot begin where the one before ends, and the last end with the frame"
        }
        Wrong::SlotOwner { .. } => "name a child of the table",
        Wrong::Empty(_) => "write a duration above zero",
        Wrong::Budget { .. } => "lower the budget, or lengthen deadline and period",
        Wrong::ServerDeadline => "write a deadline between budget and period, or leave it out",
        Wrong::Offset => "write an offset below the period",
        Wrong::ServerInPartition => "put the server beside the table, and give it a priority",
        Wrong::Range(_) => "write it in `ns`, `us`, `ms` or `s`, above zero and below 73 years",
        _ => "see the chapter on system files",
    }
}

/// One scheduler with the numbers of its children.
fn scheduler(
    draft: &Draft,
    at: usize,
    parents: &[Option<usize>],
    owners: &[usize],
    findings: &mut [Findings<'_>],
) -> Option<SchedulerSpec> {
    let spec = &draft.schedulers[at];
    let policy = match spec.policy {
        "edf" => Policy::Edf,
        "fp" => Policy::FixedPriority,
        "rm" => Policy::RateMonotonic,
        "dm" => Policy::DeadlineMonotonic,
        "criticality" => Policy::CriticalityMonotonic,
        "fifo" => Policy::Fifo,
        "rr" => Policy::RoundRobin { quantum: work_of(spec.quantum?) },
        _ => Policy::Partitions {
            frame: spec.frame?,
            slots: slots(draft, at, parents, owners, findings)?,
            lending: spec.lending,
        },
    };
    let mut built = SchedulerSpec::new(&spec.name.name, policy);
    built.preemptive = spec.preemptive;
    built.own = Own { priority: spec.priority, criticality: spec.criticality, ..Own::default() };
    if let Some(kind) = spec.server {
        built.reservation = Some(Reservation {
            kind,
            budget: work_of(spec.budget?),
            period: spec.period?,
            deadline: spec.deadline,
            offset: spec.offset,
        });
    }
    Some(built)
}

fn slots(
    draft: &Draft,
    at: usize,
    parents: &[Option<usize>],
    owners: &[usize],
    findings: &mut [Findings<'_>],
) -> Option<Vec<Slot>> {
    // Children as the tree numbers them: schedulers first, then tasks, as written.
    let schedulers = (0..parents.len()).filter(|&child| parents[child] == Some(at));
    let mut children: Vec<String> =
        schedulers.map(|child| draft.schedulers[child].name.name.clone()).collect();
    for (task, _) in draft.tasks.iter().zip(owners).filter(|&(_, &owner)| owner == at) {
        match task.count {
            None => children.push(task.name.name.clone()),
            Some(count) => children.extend((0..count).map(|copy| format!("{}{copy}", task.name.name))),
        }
    }
    let mut slots = Vec::new();
    let mut free = Span::ZERO;
    for slot in &draft.schedulers[at].slots {
        let start = slot.start.unwrap_or(free);
        let Some(owner) = children.iter().position(|name| *name == slot.owner.name) else {
            unknown(&slot.owner, "scheduler", children.iter().map(String::as_str), findings);
            return None;
        };
        free = start.checked_add(slot.length).unwrap_or(Span::from_ns(u64::MAX));
        slots.push(Slot { start, end: free, owner: owner as u32 });
    }
    Some(slots)
}
