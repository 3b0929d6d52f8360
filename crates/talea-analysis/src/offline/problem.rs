//! Translation of a described tree into a table problem, and of its solution into table entries.

use super::model::{Choice, Job, Piece, Problem};
use crate::demand::gcd;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::fmt;
use talea_core::engine::{NodeId, NodeSpec, TaskSpec, Tree};
use talea_core::mutate;
use talea_core::sched::TableEntry;
use talea_core::workload::{Arrivals, Cost, Overheads, Source};
use talea_core::{Span, Work};

/// Largest number of jobs. The search for a table would take too long for larger problems.
const MAX_JOBS: u64 = 20_000;

/// Reason why a tree has no table, with the node that causes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unsuitable {
    /// Task or scheduler that prevents a table.
    pub node: NodeId,
    /// Message for users.
    pub why: &'static str,
}

impl fmt::Display for Unsuitable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.why)
    }
}

/// Task of the tree with its versions and CPUs.
struct PlannedTask<'a> {
    node: NodeId,
    spec: &'a TaskSpec,
    cpus: u64,
    choices: Vec<Choice>,
}

/// Arrivals of a task, or of the graph that it belongs to.
#[derive(Clone, Copy)]
struct ArrivalPattern {
    period: Span,
    offset: Span,
    jitter: Span,
    deadline: Span,
}

/// Returns the jobs of one hyperperiod of `tree`. `sources` holds the source of each task, in the
/// tree's order. Schedulers between the root and its tasks are ignored: the table replaces them.
/// Deadlines beyond the hyperperiod are cut to its end.
///
/// # Errors
/// Constructs that a table cannot serve: servers, arrivals at unknown times, resources, suspension,
/// channels that move other than one token for one job, offsets of a period or more, a hyperperiod
/// beyond the range, more than 20,000 jobs.
pub fn from_tree(
    tree: &Tree,
    sources: &[Source],
    overheads: &Overheads,
    preemptive: bool,
) -> Result<Problem, Unsuitable> {
    let asked = tasks(tree, sources)?;
    let arrival_patterns = arrival_patterns(tree, sources, &asked)?;
    let hyperperiod = hyperperiod(&asked, &arrival_patterns)?;
    let order = topological_order(tree, &asked);
    let place: BTreeMap<NodeId, usize> =
        asked.iter().enumerate().map(|(at, task)| (task.node, at)).collect();
    let mut jobs: Vec<Job> = Vec::new();
    // `begins[t]`: index in `jobs` of the first job of task t.
    let mut begins: BTreeMap<usize, usize> = BTreeMap::new();
    for &task in &order {
        let PlannedTask { node, cpus, choices, .. } = &asked[task];
        let pattern = arrival_patterns[task];
        let first = jobs.len();
        begins.insert(task, first);
        let inputs = tree.channels.iter().filter(|channel| channel.to == *node);
        let before: Vec<usize> = inputs.map(|channel| begins[&place[&channel.from]]).collect();
        for k in 0..hyperperiod.as_ns() / pattern.period.as_ns() {
            let arrival = pattern.offset + Span::from_ns(pattern.period.as_ns() * k);
            let due = arrival + pattern.deadline;
            let own = (k > 0).then(|| jobs.len() - 1);
            let after = own.into_iter().chain(before.iter().map(|first| first + k as usize));
            jobs.push(Job {
                task,
                release: arrival + pattern.jitter,
                deadline: due.min(hyperperiod),
                due,
                choices: choices.clone(),
                predecessors: after.collect(),
                cpus: *cpus,
            });
        }
    }
    // A table is one scheduler above its tasks.
    let decision = overheads.decision + overheads.level;
    let overhead = overheads.release + decision + overheads.switch + overheads.migration;
    // A job that continues on the same CPU pays no migration, and the release is paid at the
    // arrival, perhaps before the job is released.
    let overhead_least = mutate!(
        "offline-spared",
        decision + overheads.switch,
        overhead.min(decision + overheads.switch + overheads.migration)
    );
    Ok(Problem { hyperperiod, cpus: tree.cpus, overhead, overhead_least, preemptive, jobs })
}

/// Returns the entries of a root with policy `table`. The children of the root are the tasks of
/// `problem`, in their order.
pub fn entries(problem: &Problem, pieces: &[Piece]) -> Vec<TableEntry> {
    let entry = |(number, piece): (usize, &Piece)| {
        let job = &problem.jobs[piece.job];
        TableEntry {
            version: job.choices[piece.choice].version,
            continues: pieces[number + 1..].iter().any(|later| later.job == piece.job),
            ..TableEntry::new(piece.cpu, piece.start, piece.end, job.task as u32)
        }
    };
    pieces.iter().enumerate().map(entry).collect()
}

fn tasks<'a>(tree: &'a Tree, sources: &[Source]) -> Result<Vec<PlannedTask<'a>>, Unsuitable> {
    let mut asked: Vec<PlannedTask<'a>> = Vec::new();
    let all = u64::MAX >> (64 - tree.cpus.clamp(1, 64));
    for (node, described) in tree.nodes() {
        match &described.spec {
            NodeSpec::Scheduler(spec) if spec.reservation.is_some() => {
                return Err(Unsuitable {
                    node,
                    why: "a server cannot be in a table: its jobs arrive at unknown times",
                });
            }
            NodeSpec::Scheduler(_) => {}
            NodeSpec::Task(spec) => {
                let cost = &sources[asked.len()].cost;
                let choices = choices(spec, cost).map_err(|why| Unsuitable { node, why })?;
                let above = tree.ancestors(node).map(|(_, spec)| spec.affinity.0);
                let cpus = above.fold(spec.affinity.0, |cpus, above| cpus & above) & all;
                asked.push(PlannedTask { node, spec, cpus, choices });
            }
        }
    }
    Ok(asked)
}

fn choices(spec: &TaskSpec, cost: &Cost) -> Result<Vec<Choice>, &'static str> {
    if !spec.uses.is_empty() {
        return Err("uses a shared resource: a table keeps jobs apart by time, not by locks");
    }
    let each = match cost {
        Cost::Versions(each) => each.as_slice(),
        one => core::slice::from_ref(one),
    };
    let mut choices = Vec::with_capacity(spec.versions.len().max(1));
    for number in 0..spec.versions.len().max(1) {
        let cost = each.get(number).or(each.last()).ok_or("has no cost")?;
        if matches!(cost, Cost::WithSteps { .. }) {
            return Err("locks, suspends itself or moves tokens: a table supports plain jobs only");
        }
        let accelerators = spec.versions.get(number).map_or(0, |version| {
            version.accelerators.iter().fold(0, |held, accelerator| held | 1u64 << accelerator.0)
        });
        let work = cost.max().max(Work::from_ns(1));
        let version = (!spec.versions.is_empty()).then_some(number as u32);
        choices.push(Choice { version, cost: Span::from_ns(work.as_ns()), accelerators });
    }
    Ok(choices)
}

/// Returns the arrival pattern of every task. The nodes of a graph have the pattern of its graph
/// roots.
fn arrival_patterns(
    tree: &Tree,
    sources: &[Source],
    asked: &[PlannedTask<'_>],
) -> Result<Vec<ArrivalPattern>, Unsuitable> {
    let mut arrival_patterns: BTreeMap<NodeId, ArrivalPattern> = BTreeMap::new();
    for channel in &tree.channels {
        if channel.tokens != 1 {
            return Err(Unsuitable {
                node: channel.to,
                why: "waits for several tokens: a table plans one job for one job",
            });
        }
    }
    for &at in &topological_order(tree, asked) {
        let node = asked[at].node;
        let inputs: Vec<NodeId> = tree
            .channels
            .iter()
            .filter(|channel| channel.to == node)
            .map(|channel| channel.from)
            .collect();
        let pattern = if inputs.is_empty() {
            match &sources[at].arrivals {
                Arrivals::Periodic { offset, period, jitter } => ArrivalPattern {
                    period: *period,
                    offset: *offset,
                    jitter: *jitter,
                    deadline: asked[at].spec.deadline,
                },
                _ => {
                    return Err(Unsuitable {
                        node,
                        why: "arrives at times that are unknown before the run",
                    });
                }
            }
        } else {
            // Joined roots have one period and deadline (the tree is checked); the latest arrival
            // decides.
            let roots = inputs.iter().map(|input| arrival_patterns[input]);
            roots
                .reduce(|a, b| ArrivalPattern {
                    offset: a.offset.max(b.offset),
                    jitter: a.jitter.max(b.jitter),
                    ..a
                })
                .expect("not empty")
        };
        arrival_patterns.insert(node, pattern);
    }
    Ok(asked.iter().map(|task| arrival_patterns[&task.node]).collect())
}

/// Returns the tasks in topological order: each task follows its predecessors.
fn topological_order(tree: &Tree, asked: &[PlannedTask<'_>]) -> Vec<usize> {
    let mut order: Vec<usize> = Vec::with_capacity(asked.len());
    let mut is_listed = alloc::vec![false; asked.len()];
    while order.len() < asked.len() {
        let before = order.len();
        for at in 0..asked.len() {
            let waits = |task: &PlannedTask<'_>| {
                tree.channels.iter().any(|channel| {
                    channel.to == task.node
                        && asked
                            .iter()
                            .zip(&is_listed)
                            .any(|(other, listed)| other.node == channel.from && !listed)
                })
            };
            if !is_listed[at] && !waits(&asked[at]) {
                is_listed[at] = true;
                order.push(at);
            }
        }
        assert!(order.len() > before, "a checked tree has no cycle");
    }
    order
}

fn hyperperiod(
    asked: &[PlannedTask<'_>],
    arrival_patterns: &[ArrivalPattern],
) -> Result<Span, Unsuitable> {
    let too_long = |at: usize| Unsuitable {
        node: asked[at].node,
        why: "makes the hyperperiod too long, or its jobs too many",
    };
    let mut all = 1u64;
    for (at, pattern) in arrival_patterns.iter().enumerate() {
        let period = pattern.period.as_ns();
        if period == 0 {
            return Err(too_long(at));
        }
        all = (all / gcd(all, period)).checked_mul(period).ok_or(too_long(at))?;
        let jobs: u64 =
            arrival_patterns[..=at].iter().map(|pattern| all / pattern.period.as_ns()).sum();
        if jobs > MAX_JOBS || all > talea_core::engine::MAX_RUN.as_ns() {
            return Err(too_long(at));
        }
    }
    for (at, pattern) in arrival_patterns.iter().enumerate() {
        if pattern.offset >= pattern.period {
            return Err(Unsuitable {
                node: asked[at].node,
                why: "has an offset of a period or more: the table begins at zero",
            });
        }
    }
    Ok(Span::from_ns(all))
}
