//! The jobs of a described tree, and the entries of a table for it.

use super::{Choice, Job, Piece, Problem};
use crate::demand::gcd;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::fmt;
use talea_core::machine::{Body, NodeId, TaskSpec, Tree};
use talea_core::mutate;
use talea_core::sched::TableEntry;
use talea_core::workload::{Arrivals, Cost, Overheads, Source};
use talea_core::{Span, Work};

/// Larger problems are refused: nobody waits for their tables.
const MOST_JOBS: u64 = 20_000;

/// Why a tree has no table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unsuitable {
    /// The task or scheduler.
    pub node: NodeId,
    /// What stands against it.
    pub why: &'static str,
}

impl fmt::Display for Unsuitable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.why)
    }
}

/// A task of the tree with what it asks.
struct Asked<'a> {
    node: NodeId,
    spec: &'a TaskSpec,
    cpus: u64,
    choices: Vec<Choice>,
}

/// When the jobs of a task, or of the graph that it belongs to, come.
#[derive(Clone, Copy)]
struct Rhythm {
    period: Span,
    offset: Span,
    jitter: Span,
    deadline: Span,
}

/// The jobs of one hyperperiod of `tree`, whose tasks ask what `sources` say, in the order of its
/// tasks. Schedulers between the root and its tasks are left aside: the table takes their place.
/// Deadlines beyond the hyperperiod are cut to its end.
///
/// # Errors
/// What a table cannot serve: servers, arrivals at unknown times, resources, suspension, channels
/// that move other than one token for one job, more than 20,000 jobs.
pub fn from_tree(
    tree: &Tree,
    sources: &[Source],
    overheads: &Overheads,
    preemptive: bool,
) -> Result<Problem, Unsuitable> {
    let asked = tasks(tree, sources)?;
    let rhythms = rhythms(tree, sources, &asked)?;
    let hyperperiod = hyperperiod(&asked, &rhythms)?;
    let order = chains_first(tree, &asked);
    let place: BTreeMap<NodeId, usize> =
        asked.iter().enumerate().map(|(at, task)| (task.node, at)).collect();
    let mut jobs: Vec<Job> = Vec::new();
    // Where the jobs of each task begin in `jobs`.
    let mut begins: BTreeMap<usize, usize> = BTreeMap::new();
    for &task in &order {
        let Asked { node, cpus, choices, .. } = &asked[task];
        let rhythm = rhythms[task];
        let first = jobs.len();
        begins.insert(task, first);
        let inputs = tree.channels.iter().filter(|channel| channel.to == *node);
        let before: Vec<usize> = inputs.map(|channel| begins[&place[&channel.from]]).collect();
        for k in 0..hyperperiod.as_ns() / rhythm.period.as_ns() {
            let arrival = rhythm.offset + Span::from_ns(rhythm.period.as_ns() * k);
            let due = arrival + rhythm.deadline;
            let own = (k > 0).then(|| jobs.len() - 1);
            let after = own.into_iter().chain(before.iter().map(|first| first + k as usize));
            jobs.push(Job {
                task,
                release: arrival + rhythm.jitter,
                deadline: due.min(hyperperiod),
                due,
                choices: choices.clone(),
                after: after.collect(),
                cpus: *cpus,
            });
        }
    }
    // A table is one scheduler above its tasks.
    let decision = overheads.decision + overheads.level;
    let overhead = overheads.release + decision + overheads.switch + overheads.migration;
    // Who goes on where he was pays no migration, and the arrival is paid when it comes, perhaps
    // before the job is released.
    let overhead_least = mutate!(
        "offline-spared",
        decision + overheads.switch,
        overhead.min(decision + overheads.switch + overheads.migration)
    );
    Ok(Problem { hyperperiod, cpus: tree.cpus, overhead, overhead_least, preemptive, jobs })
}

/// The entries that a root of policy `table` has, whose children are the tasks in their order.
pub fn entries(problem: &Problem, pieces: &[Piece]) -> Vec<TableEntry> {
    let entry = |(number, piece): (usize, &Piece)| {
        let job = &problem.jobs[piece.job];
        TableEntry {
            version: job.choices[piece.choice].version,
            goes_on: pieces[number + 1..].iter().any(|later| later.job == piece.job),
            ..TableEntry::new(piece.cpu, piece.start, piece.end, job.task as u32)
        }
    };
    pieces.iter().enumerate().map(entry).collect()
}

fn tasks<'a>(tree: &'a Tree, sources: &[Source]) -> Result<Vec<Asked<'a>>, Unsuitable> {
    let mut asked: Vec<Asked<'a>> = Vec::new();
    let all = u64::MAX >> (64 - tree.cpus.clamp(1, 64));
    for (node, body) in tree.nodes() {
        match &body.body {
            Body::Scheduler(spec) if spec.reservation.is_some() => {
                return Err(Unsuitable {
                    node,
                    why: "a server has no place in a table: its jobs come when they come",
                });
            }
            Body::Scheduler(_) => {}
            Body::Task(spec) => {
                let cost = &sources[asked.len()].cost;
                let choices = choices(spec, cost).map_err(|why| Unsuitable { node, why })?;
                let above = tree.above(node).map(|(_, spec)| spec.affinity.0);
                let cpus = above.fold(spec.affinity.0, |cpus, above| cpus & above) & all;
                asked.push(Asked { node, spec, cpus, choices });
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
        if matches!(cost, Cost::Marked { .. }) {
            return Err(
                "does something on its way (locks, suspends itself, moves tokens): a table plans plain jobs",
            );
        }
        let accelerators = spec.versions.get(number).map_or(0, |version| {
            version.accelerators.iter().fold(0, |held, accelerator| held | 1u64 << accelerator.0)
        });
        let work = cost.most().max(Work::from_ns(1));
        let version = (!spec.versions.is_empty()).then_some(number as u32);
        choices.push(Choice { version, cost: Span::from_ns(work.as_ns()), accelerators });
    }
    Ok(choices)
}

/// Of every task; the nodes of a graph have that of its roots.
fn rhythms(
    tree: &Tree,
    sources: &[Source],
    asked: &[Asked<'_>],
) -> Result<Vec<Rhythm>, Unsuitable> {
    let mut rhythms: BTreeMap<NodeId, Rhythm> = BTreeMap::new();
    for channel in &tree.channels {
        if channel.tokens != 1 {
            return Err(Unsuitable {
                node: channel.to,
                why: "waits for several tokens: a table plans one job for one job",
            });
        }
    }
    for &at in &chains_first(tree, asked) {
        let node = asked[at].node;
        let inputs: Vec<NodeId> = tree
            .channels
            .iter()
            .filter(|channel| channel.to == node)
            .map(|channel| channel.from)
            .collect();
        let rhythm = if inputs.is_empty() {
            match &sources[at].arrivals {
                Arrivals::Periodic { offset, period, jitter } => Rhythm {
                    period: *period,
                    offset: *offset,
                    jitter: *jitter,
                    deadline: asked[at].spec.deadline,
                },
                _ => {
                    return Err(Unsuitable {
                        node,
                        why: "arrives at times that nobody knows beforehand",
                    });
                }
            }
        } else {
            // Joined roots have one period and deadline (the tree is checked); the latest to come
            // decides.
            let roots = inputs.iter().map(|input| rhythms[input]);
            roots
                .reduce(|a, b| Rhythm {
                    offset: a.offset.max(b.offset),
                    jitter: a.jitter.max(b.jitter),
                    ..a
                })
                .expect("not empty")
        };
        rhythms.insert(node, rhythm);
    }
    Ok(asked.iter().map(|task| rhythms[&task.node]).collect())
}

/// Tasks in an order in which nobody comes before those it waits for.
fn chains_first(tree: &Tree, asked: &[Asked<'_>]) -> Vec<usize> {
    let mut order: Vec<usize> = Vec::with_capacity(asked.len());
    let mut is_listed = alloc::vec![false; asked.len()];
    while order.len() < asked.len() {
        let before = order.len();
        for at in 0..asked.len() {
            let waits = |task: &Asked<'_>| {
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
        assert!(order.len() > before, "a checked tree has no circle");
    }
    order
}

fn hyperperiod(asked: &[Asked<'_>], rhythms: &[Rhythm]) -> Result<Span, Unsuitable> {
    let too_long = |at: usize| Unsuitable {
        node: asked[at].node,
        why: "makes the hyperperiod too long, or its jobs too many",
    };
    let mut all = 1u64;
    for (at, rhythm) in rhythms.iter().enumerate() {
        let period = rhythm.period.as_ns();
        if period == 0 {
            return Err(too_long(at));
        }
        all = (all / gcd(all, period)).checked_mul(period).ok_or(too_long(at))?;
        let jobs: u64 = rhythms[..=at].iter().map(|rhythm| all / rhythm.period.as_ns()).sum();
        if jobs > MOST_JOBS || all > talea_core::machine::LONGEST.as_ns() {
            return Err(too_long(at));
        }
    }
    for (at, rhythm) in rhythms.iter().enumerate() {
        if rhythm.offset >= rhythm.period {
            return Err(Unsuitable {
                node: asked[at].node,
                why: "has an offset of a period or more: the table begins at zero",
            });
        }
    }
    Ok(Span::from_ns(all))
}
