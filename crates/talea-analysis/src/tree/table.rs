//! Response-time bounds for the tasks of an off-line table.
//!
//! A job executes only in the entries of its task, so tasks of a table delay each other only
//! through tokens (docs/model.md, section 9; YASMIN, section 3.4). The analysis follows a task with
//! known arrivals job by job. (Arrivals are known if the task is periodic, or activated by the
//! entries or by the completion of predecessors.) Each job arrives as late as possible and has its
//! worst cost. The analysis ends when a hyperperiod of the period and the table repeats the
//! hyperperiod before. For other tasks the entries are a supply ([`crate::supply::Table`]) without
//! interference.
//!
//! This case is the worst: a queue that is served in order at fixed times completes no earlier if a
//! job arrives later or costs more. The entry in which a job starts determines its version. If a
//! job may start in several entries, from its earliest arrival to its latest start, the analysis
//! assumes the most costly version of these entries.
//!
//! Assumptions: 1. the root is the table, preemptive, without overheads; 2. as [`super`]; 3.
//! channels move one token for one job.

use super::context::Context;
use super::model::Model;
use super::node_supply::NodeSupply;
use super::task_bound::{NoBound, Reason};
use super::task_model::unsupported_action;
use crate::demand::gcd;
use crate::supply;
use crate::test_info::{Platform, TestInfo, TestKind};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use talea_core::engine::{NodeId, NodeSpec, SchedulerSpec, TaskSpec, Tree};
use talea_core::mutate;
use talea_core::sched::{Child, PolicySpec, Slot, TableEntry};
use talea_core::workload::{Arrivals, Cost, Source};
use talea_core::{Span, Work};

/// Entry of this test in the catalogue.
pub const INFO: TestInfo = TestInfo {
    name: "table-entries",
    policy: "off-line table",
    platform: Platform::Global,
    model: "periodic with offsets, jitter, graphs, versions; sporadic",
    kind: TestKind::Sufficient,
    paper: "Rouxel, Altmeyer and Grelck, Middleware 2021, section 3.4 (the dispatcher); Mok, Feng and Chen, RTAS 2001 (a supply of slots)",
    sustainable: "costs, jitter (entries keep their times)",
    tests: &[
        "crates/talea-analysis/tests/it/offline.rs::y11_tables_found_are_proved_and_no_response_exceeds_its_bound",
        "crates/talea-analysis/tests/it/offline.rs::y11_tables_at_random_keep_their_bounds",
    ],
};

/// Maximum number of hyperperiods that the analysis follows.
const MAX_HYPERPERIODS: u64 = 6;

/// Returns a bound for every task, counted from the arrival of its job or of its graph; `None` if
/// the root is not a supported table.
pub(super) fn bounds(model: &Model<'_>) -> Option<BTreeMap<NodeId, Result<Span, NoBound>>> {
    let NodeSpec::Scheduler(SchedulerSpec {
        policy: PolicySpec::Table { hyperperiod, entries },
        preemptive: true,
        ..
    }) = model.node_spec(Tree::ROOT)
    else {
        return None;
    };
    let children = model.children(Tree::ROOT);
    let mut table = Table {
        model,
        hyperperiod: *hyperperiod,
        entries,
        sources: model.tasks().into_iter().zip(model.sources).collect(),
        owners: children.iter().zip(0..).map(|(&node, child)| (node, child)).collect(),
        sequences: BTreeMap::new(),
    };
    Some(model.tasks().into_iter().map(|node| (node, table.bound(node))).collect())
}

/// Table with the results for its tasks so far.
struct Table<'a> {
    model: &'a Model<'a>,
    hyperperiod: Span,
    entries: &'a [TableEntry],
    sources: BTreeMap<NodeId, &'a Source>,
    owners: BTreeMap<NodeId, Child>,
    sequences: BTreeMap<NodeId, Result<JobSequence, Reason>>,
}

/// Jobs at known times, in order of arrival, through some hyperperiods.
#[derive(Clone)]
struct JobSequence {
    /// Length after which the sequence repeats.
    every: u64,
    /// Number of jobs within `every`.
    count: usize,
    jobs: Vec<Job>,
}

#[derive(Clone, Copy)]
struct Job {
    /// Nominal arrival. In a graph, it is the latest nominal arrival of its graph roots.
    arrival: u64,
    /// Earliest release.
    earliest: u64,
    /// Latest release. After [`Table::serve`] it is the latest completion.
    latest: u64,
}

impl<'a> Table<'a> {
    fn bound(&mut self, node: NodeId) -> Result<Span, NoBound> {
        let no = |reason| NoBound { node, reason };
        let spec = self.spec(node);
        let Some(&owner) = self.owners.get(&node) else { return Err(no(Reason::OfflineTable)) };
        if !spec.uses.is_empty() {
            return Err(no(Reason::Resources));
        }
        let source = self.sources.get(&node).ok_or(no(Reason::Arrivals))?;
        let has_times = matches!(source.arrivals, Arrivals::Periodic { .. }) && !spec.enforced;
        let is_alone = !self.is_of_graph(node);
        if !has_times && is_alone && !self.activates(owner) {
            return self.bound_by_supply(node, owner);
        }
        let sequence = self.job_sequence(node).map_err(no)?;
        let latest = sequence.jobs.iter().map(|job| job.latest - job.arrival).max();
        Ok(Span::from_ns(latest.unwrap_or(0)))
    }

    fn spec(&self, node: NodeId) -> &'a TaskSpec {
        match self.model.node_spec(node) {
            NodeSpec::Task(spec) => spec,
            NodeSpec::Scheduler(_) => unreachable!("tasks only"),
        }
    }

    fn inputs(&self, node: NodeId) -> Vec<NodeId> {
        let into = self.model.tree.channels.iter().filter(|channel| channel.to == node);
        into.map(|channel| channel.from).collect()
    }

    fn is_of_graph(&self, node: NodeId) -> bool {
        self.model.tree.channels.iter().any(|channel| channel.from == node || channel.to == node)
    }

    fn own_entries(&self, owner: Child) -> Vec<TableEntry> {
        let mut own: Vec<TableEntry> =
            self.entries.iter().filter(|entry| entry.owner == owner).copied().collect();
        own.sort_by_key(|entry| entry.start);
        own
    }

    fn activates(&self, owner: Child) -> bool {
        self.entries.iter().any(|entry| entry.owner == owner && entry.activates)
    }

    /// Returns the longest response of a task with arrivals at unknown times.
    fn bound_by_supply(&self, node: NodeId, owner: Child) -> Result<Span, NoBound> {
        let own = self.own_entries(owner);
        if own.is_empty() {
            return Err(NoBound { node, reason: Reason::Overload });
        }
        let slots: Vec<Slot> =
            own.iter().map(|entry| Slot { start: entry.start, end: entry.end, owner }).collect();
        let supply = NodeSupply::Table(supply::Table::new(self.hyperperiod, &slots, owner));
        self.model.response(node, &self.model.task_model(node)?.task, &Context::top(supply))
    }

    /// Returns the sequence with the latest completion of each job.
    fn job_sequence(&mut self, node: NodeId) -> Result<JobSequence, Reason> {
        if let Some(found) = self.sequences.get(&node) {
            return found.clone();
        }
        let found = self.arrivals(node).and_then(|sequence| self.serve(node, sequence));
        self.sequences.insert(node, found.clone());
        found
    }

    /// Returns the sequence of arrivals.
    fn arrivals(&mut self, node: NodeId) -> Result<JobSequence, Reason> {
        let (spec, inputs) = (self.spec(node), self.inputs(node));
        let owner = self.owners.get(&node).copied().ok_or(Reason::OfflineTable)?;
        let activates = self.activates(owner);
        let source = self.sources[&node];
        if source.is_endless() {
            return Err(Reason::Endless);
        }
        if let Some(reason) = unsupported_action(&source.cost) {
            return Err(reason);
        }
        let table = self.hyperperiod.as_ns();
        match &source.arrivals {
            _ if spec.enforced => Err(Reason::Arrivals),
            Arrivals::List(times) if times.is_empty() && !inputs.is_empty() && !activates => {
                if self.model.tree.channels.iter().any(|to| to.to == node && to.tokens != 1) {
                    return Err(Reason::Graph);
                }
                let all = inputs.into_iter().map(|input| self.job_sequence(input));
                all.reduce(|a, b| join_inputs(a?, &b?)).unwrap_or(Err(Reason::Graph))
            }
            Arrivals::List(times) if times.is_empty() && inputs.is_empty() && activates => {
                let own = self.own_entries(owner);
                let starts: Vec<u64> = own
                    .iter()
                    .filter(|entry| entry.activates)
                    .map(|entry| entry.start.as_ns())
                    .collect();
                let jobs = (0..MAX_HYPERPERIODS).flat_map(|round| {
                    starts.iter().map(move |start| {
                        let at = round.checked_mul(table)?.checked_add(*start)?;
                        Some(Job { arrival: at, earliest: at, latest: at })
                    })
                });
                let jobs: Option<Vec<Job>> = jobs.collect();
                Ok(JobSequence {
                    every: table,
                    count: starts.len(),
                    jobs: jobs.ok_or(Reason::Limit)?,
                })
            }
            Arrivals::Periodic { offset, period, jitter } if inputs.is_empty() && !activates => {
                let period = period.as_ns();
                if period == 0 {
                    return Err(Reason::Arrivals);
                }
                let every =
                    (table / gcd(table, period)).checked_mul(period).ok_or(Reason::Limit)?;
                let count = every / period;
                if count.saturating_mul(MAX_HYPERPERIODS) > self.model.iteration_limit(0) {
                    return Err(Reason::Limit);
                }
                let job = |number: u64| {
                    let arrival = number.checked_mul(period)?.checked_add(offset.as_ns())?;
                    let latest = arrival.checked_add(jitter.as_ns())?;
                    Some(Job { arrival, earliest: arrival, latest })
                };
                let jobs: Option<Vec<Job>> = (0..count * MAX_HYPERPERIODS).map(job).collect();
                Ok(JobSequence { every, count: count as usize, jobs: jobs.ok_or(Reason::Limit)? })
            }
            _ if inputs.is_empty() && !activates => Err(Reason::Arrivals),
            // Activated both by itself and by entries, or by entries and by predecessors.
            _ => Err(Reason::OfflineTable),
        }
    }

    /// Replaces the latest release of each job of a sequence by the latest completion.
    fn serve(&self, node: NodeId, mut sequence: JobSequence) -> Result<JobSequence, Reason> {
        let owner = self.owners[&node];
        let own = self.own_entries(owner);
        if own.is_empty() {
            return Err(Reason::Overload);
        }
        let (source, mut free, mut steps) = (self.sources[&node], 0, self.model.iteration_limit(0));
        for job in &mut sequence.jobs {
            let begin = next_entry_part(
                &own,
                self.hyperperiod,
                mutate!("analysis-table-latest", job.latest.max(free), job.earliest.max(free)),
            )?
            .start;
            let mut cost = 0;
            let mut at = job.earliest;
            // Any entry in which the job may start.
            while at <= begin {
                let entry = next_entry_part(&own, self.hyperperiod, at)?;
                if entry.start <= begin {
                    cost = mutate!(
                        "analysis-table-version",
                        cost.max(cost_of(source, entry.version)),
                        if cost > 0 { cost } else { cost_of(source, entry.version) }
                    );
                }
                at = entry.end;
                steps = steps.checked_sub(1).ok_or(Reason::Limit)?;
            }
            (at, free) = (begin, begin);
            while cost > 0 {
                let entry = next_entry_part(&own, self.hyperperiod, at)?;
                let done = cost.min(entry.end - entry.start);
                (at, free, cost) = (entry.end, entry.start + done, cost - done);
                steps = steps.checked_sub(1).ok_or(Reason::Limit)?;
            }
            job.latest = free;
        }
        // If the last two rounds are equal, so are all that follow. A sequence that idles in a
        // round is as late in the next one; a sequence that never idles becomes later by the
        // excess.
        let last = sequence.jobs.len() - sequence.count;
        let mut both = sequence.jobs[last..].iter().zip(&sequence.jobs[last - sequence.count..]);
        let grows = both.any(|(job, before)| job.latest - before.latest > sequence.every);
        if grows { Err(Reason::Overload) } else { Ok(sequence) }
    }
}

/// Part of one entry, from a time to the end of the entry.
struct EntryPart {
    start: u64,
    end: u64,
    version: Option<u32>,
}

/// Returns the part of the entry that is open at `from`, or the next entry.
fn next_entry_part(own: &[TableEntry], hyperperiod: Span, from: u64) -> Result<EntryPart, Reason> {
    let (round, within) = (from / hyperperiod.as_ns(), from % hyperperiod.as_ns());
    let at = own.partition_point(|entry| entry.end.as_ns() <= within);
    let (round, entry) = own.get(at).map_or((round + 1, &own[0]), |entry| (round, entry));
    let begun = round.checked_mul(hyperperiod.as_ns()).ok_or(Reason::Limit)?;
    let in_time = |at: Span| begun.checked_add(at.as_ns()).ok_or(Reason::Limit);
    Ok(EntryPart {
        start: in_time(entry.start)?.max(from),
        end: in_time(entry.end)?,
        version: entry.version,
    })
}

/// Returns the worst cost in a version, at least one nanosecond, because a job without work is
/// dispatched nevertheless.
fn cost_of(source: &Source, version: Option<u32>) -> u64 {
    let most = match (&source.cost, version) {
        (Cost::Versions(each), Some(version)) => {
            each.get(version as usize).or(each.last()).map_or(Work::ZERO, Cost::max)
        }
        (cost, _) => cost.max(),
    };
    most.as_ns().max(1)
}

/// Joins the sequences of two predecessors. The successor arrives when the later predecessor has
/// completed.
fn join_inputs(mut one: JobSequence, other: &JobSequence) -> Result<JobSequence, Reason> {
    if (one.every, one.count) != (other.every, other.count) {
        return Err(Reason::Graph);
    }
    for (job, other) in one.jobs.iter_mut().zip(&other.jobs) {
        job.arrival = job.arrival.max(other.arrival);
        job.earliest = job.earliest.max(other.earliest);
        job.latest = job.latest.max(other.latest);
    }
    Ok(one)
}
