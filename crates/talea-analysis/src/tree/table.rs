//! Tasks of an off-line table: each by itself, in its own entries.
//!
//! A job runs in its task's entries and nowhere else, so that tasks of a table do not delay each
//! other, but where one waits for another's tokens (docs/model.md, section 9; YASMIN, section 3.4).
//! A task whose jobs come at known times (periodic, by the entries themselves, or when those have
//! ended that it waits for) is walked through, job by job, each as late as it may come and at its
//! worst cost, until a hyperperiod of its period and the table repeats the one before. Of others,
//! which come when they come, the entries are a supply ([`crate::supply::Table`]) with nobody
//! above.
//!
//! That worst is the worst: a queue that is served in order at fixed times ends later, if anything,
//! when a job comes later or costs more. The version of a job is that of the entry in which it
//! begins; of every entry between the earliest that it may come and the latest that it begins the
//! most costly one is reckoned with.
//!
//! Assumptions: 1. the root is the table, preemptive, without overheads; 2. as [`super`]; 3.
//! channels move one token for one job.

use super::answer::{NoTest, Reason};
use super::read::marks;
use super::servers::Supplied;
use super::walk::{Place, Walk};
use crate::card::{Card, Kind, Platform};
use crate::demand::gcd;
use crate::supply;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use talea_core::machine::{Body, NodeId, SchedulerSpec, TaskSpec, Tree};
use talea_core::mutate;
use talea_core::sched::{Child, Policy, Slot, TableEntry};
use talea_core::workload::{Arrivals, Cost, Source};
use talea_core::{Span, Work};

/// Its catalogue entry.
pub const CARD: Card = Card {
    name: "table-entries",
    policy: "off-line table",
    platform: Platform::Global,
    model: "periodic with offsets, jitter, graphs, versions; sporadic",
    kind: Kind::Sufficient,
    paper: "Rouxel, Altmeyer and Grelck, Middleware 2021, section 3.4 (the dispatcher); Mok, Feng and Chen, RTAS 2001 (a supply of slots)",
    sustainable: "costs, jitter (entries keep their times)",
    tests: &[
        "crates/talea-analysis/tests/it/offline.rs::y11_tables_that_are_found_are_proved_and_no_response_is_beyond_its_bound",
        "crates/talea-analysis/tests/it/offline.rs::y11_tables_at_random_keep_their_bounds",
    ],
};

/// Hyperperiods that are walked through at most.
const ROUNDS: u64 = 6;

/// A bound for every task, counted from the arrival of its job, or of its graph's; nothing if the
/// root is no table that is known.
pub(super) fn bounds(
    walk: &Walk<'_>,
    sources: &[Source],
) -> Option<BTreeMap<NodeId, Result<Span, NoTest>>> {
    let Body::Scheduler(SchedulerSpec {
        policy: Policy::Table { hyperperiod, entries },
        preemptive: true,
        ..
    }) = walk.body(Tree::ROOT)
    else {
        return None;
    };
    let kids = walk.kids(Tree::ROOT);
    let mut table = Table {
        walk,
        hyperperiod: *hyperperiod,
        entries,
        sources: walk.tasks().into_iter().zip(sources).collect(),
        owners: kids.iter().zip(0..).map(|(&node, child)| (node, child)).collect(),
        courses: BTreeMap::new(),
    };
    Some(walk.tasks().into_iter().map(|node| (node, table.bound(node))).collect())
}

/// The table with what is known of its tasks so far.
struct Table<'a> {
    walk: &'a Walk<'a>,
    hyperperiod: Span,
    entries: &'a [TableEntry],
    sources: BTreeMap<NodeId, &'a Source>,
    owners: BTreeMap<NodeId, Child>,
    courses: BTreeMap<NodeId, Result<Course, Reason>>,
}

/// Jobs at known times, in their order, through some hyperperiods.
#[derive(Clone)]
struct Course {
    /// After so long everything repeats.
    every: u64,
    /// So many jobs come in that time.
    count: usize,
    jobs: Vec<Job>,
}

#[derive(Clone, Copy)]
struct Job {
    /// Nominal; of the latest of its graph's roots.
    arrival: u64,
    /// Not before.
    earliest: u64,
    /// Not after.
    latest: u64,
}

impl<'a> Table<'a> {
    fn bound(&mut self, node: NodeId) -> Result<Span, NoTest> {
        let no = |reason| NoTest { node, reason };
        let spec = self.spec(node);
        let Some(&owner) = self.owners.get(&node) else { return Err(no(Reason::OfflineTable)) };
        if !spec.uses.is_empty() {
            return Err(no(Reason::Resources));
        }
        let source = self.sources.get(&node).ok_or(no(Reason::Arrivals))?;
        let has_times = matches!(source.arrivals, Arrivals::Periodic { .. }) && !spec.enforced;
        let is_alone = !self.is_of_graph(node);
        if !has_times && is_alone && !self.activates(owner) {
            return self.supplied(node, owner);
        }
        let course = self.course(node).map_err(no)?;
        let latest = course.jobs.iter().map(|job| job.latest - job.arrival).max();
        Ok(Span::from_ns(latest.unwrap_or(0)))
    }

    fn spec(&self, node: NodeId) -> &'a TaskSpec {
        match self.walk.body(node) {
            Body::Task(spec) => spec,
            Body::Scheduler(_) => unreachable!("tasks only"),
        }
    }

    fn inputs(&self, node: NodeId) -> Vec<NodeId> {
        let into = self.walk.tree.channels.iter().filter(|channel| channel.to == node);
        into.map(|channel| channel.from).collect()
    }

    fn is_of_graph(&self, node: NodeId) -> bool {
        self.walk.tree.channels.iter().any(|channel| channel.from == node || channel.to == node)
    }

    fn own(&self, owner: Child) -> Vec<TableEntry> {
        let mut own: Vec<TableEntry> =
            self.entries.iter().filter(|entry| entry.owner == owner).copied().collect();
        own.sort_by_key(|entry| entry.start);
        own
    }

    fn activates(&self, owner: Child) -> bool {
        self.entries.iter().any(|entry| entry.owner == owner && entry.activates)
    }

    /// The longest response to arrivals that come when they come.
    fn supplied(&self, node: NodeId, owner: Child) -> Result<Span, NoTest> {
        let own = self.own(owner);
        if own.is_empty() {
            return Err(NoTest { node, reason: Reason::Overload });
        }
        let slots: Vec<Slot> =
            own.iter().map(|entry| Slot { start: entry.start, end: entry.end, owner }).collect();
        let supply = Supplied::Table(supply::Table::new(self.hyperperiod, &slots, owner));
        self.walk.response(node, &self.walk.leaf(node)?.task, &Place::below_nobody(supply))
    }

    /// When each job ends at the latest.
    fn course(&mut self, node: NodeId) -> Result<Course, Reason> {
        if let Some(found) = self.courses.get(&node) {
            return found.clone();
        }
        let found = self.arrivals(node).and_then(|course| self.serve(node, course));
        self.courses.insert(node, found.clone());
        found
    }

    /// The jobs as they come.
    fn arrivals(&mut self, node: NodeId) -> Result<Course, Reason> {
        let (spec, inputs) = (self.spec(node), self.inputs(node));
        let owner = self.owners.get(&node).copied().ok_or(Reason::OfflineTable)?;
        let activates = self.activates(owner);
        let source = self.sources[&node];
        if source.is_endless() {
            return Err(Reason::Endless);
        }
        if let Some(reason) = marks(&source.cost) {
            return Err(reason);
        }
        let table = self.hyperperiod.as_ns();
        match &source.arrivals {
            _ if spec.enforced => Err(Reason::Arrivals),
            Arrivals::List(times) if times.is_empty() && !inputs.is_empty() && !activates => {
                if self.walk.tree.channels.iter().any(|to| to.to == node && to.tokens != 1) {
                    return Err(Reason::Graph);
                }
                let all = inputs.into_iter().map(|input| self.course(input));
                all.reduce(|a, b| join(a?, &b?)).unwrap_or(Err(Reason::Graph))
            }
            Arrivals::List(times) if times.is_empty() && inputs.is_empty() && activates => {
                let own = self.own(owner);
                let starts: Vec<u64> = own
                    .iter()
                    .filter(|entry| entry.activates)
                    .map(|entry| entry.start.as_ns())
                    .collect();
                let jobs = (0..ROUNDS).flat_map(|round| {
                    starts.iter().map(move |start| {
                        let at = round.checked_mul(table)?.checked_add(*start)?;
                        Some(Job { arrival: at, earliest: at, latest: at })
                    })
                });
                let jobs: Option<Vec<Job>> = jobs.collect();
                Ok(Course { every: table, count: starts.len(), jobs: jobs.ok_or(Reason::Limit)? })
            }
            Arrivals::Periodic { offset, period, jitter } if inputs.is_empty() && !activates => {
                let period = period.as_ns();
                if period == 0 {
                    return Err(Reason::Arrivals);
                }
                let every =
                    (table / gcd(table, period)).checked_mul(period).ok_or(Reason::Limit)?;
                let count = every / period;
                if count.saturating_mul(ROUNDS) > self.walk.rounds(0) {
                    return Err(Reason::Limit);
                }
                let job = |number: u64| {
                    let arrival = number.checked_mul(period)?.checked_add(offset.as_ns())?;
                    let latest = arrival.checked_add(jitter.as_ns())?;
                    Some(Job { arrival, earliest: arrival, latest })
                };
                let jobs: Option<Vec<Job>> = (0..count * ROUNDS).map(job).collect();
                Ok(Course { every, count: count as usize, jobs: jobs.ok_or(Reason::Limit)? })
            }
            _ if inputs.is_empty() && !activates => Err(Reason::Arrivals),
            // By itself and by its entries, or by its entries and by others.
            _ => Err(Reason::OfflineTable),
        }
    }

    /// The same jobs with the times at which they end for those at which they come, until they
    /// repeat.
    fn serve(&self, node: NodeId, mut course: Course) -> Result<Course, Reason> {
        let owner = self.owners[&node];
        let own = self.own(owner);
        if own.is_empty() {
            return Err(Reason::Overload);
        }
        let (source, mut free, mut steps) = (self.sources[&node], 0, self.walk.rounds(0));
        for job in &mut course.jobs {
            let begin = piece(
                &own,
                self.hyperperiod,
                mutate!("analysis-table-latest", job.latest.max(free), job.earliest.max(free)),
            )?
            .start;
            let mut cost = 0;
            let mut at = job.earliest;
            // Whatever entry it may begin in.
            while at <= begin {
                let entry = piece(&own, self.hyperperiod, at)?;
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
                let entry = piece(&own, self.hyperperiod, at)?;
                let done = cost.min(entry.end - entry.start);
                (at, free, cost) = (entry.end, entry.start + done, cost - done);
                steps = steps.checked_sub(1).ok_or(Reason::Limit)?;
            }
            job.latest = free;
        }
        // If the last two rounds are alike, so are all that follow. Whoever was idle in a round is
        // as late in the next one; whoever never is gets later by what is too much.
        let last = course.jobs.len() - course.count;
        let mut both = course.jobs[last..].iter().zip(&course.jobs[last - course.count..]);
        let grows = both.any(|(job, before)| job.latest - before.latest > course.every);
        if grows { Err(Reason::Overload) } else { Ok(course) }
    }
}

/// A stretch of one entry, in time.
struct Piece {
    start: u64,
    end: u64,
    version: Option<u32>,
}

/// What is open at `from`, from there on, or opens next.
fn piece(own: &[TableEntry], hyperperiod: Span, from: u64) -> Result<Piece, Reason> {
    let (round, within) = (from / hyperperiod.as_ns(), from % hyperperiod.as_ns());
    let at = own.partition_point(|entry| entry.end.as_ns() <= within);
    let (round, entry) = own.get(at).map_or((round + 1, &own[0]), |entry| (round, entry));
    let begun = round.checked_mul(hyperperiod.as_ns()).ok_or(Reason::Limit)?;
    let in_time = |at: Span| begun.checked_add(at.as_ns()).ok_or(Reason::Limit);
    Ok(Piece {
        start: in_time(entry.start)?.max(from),
        end: in_time(entry.end)?,
        version: entry.version,
    })
}

/// At least one: whoever has no work is ordered to run all the same.
fn cost_of(source: &Source, version: Option<u32>) -> u64 {
    let most = match (&source.cost, version) {
        (Cost::Versions(each), Some(version)) => {
            each.get(version as usize).or(each.last()).map_or(Work::ZERO, Cost::most)
        }
        (cost, _) => cost.most(),
    };
    most.as_ns().max(1)
}

/// Whoever waits for both comes when the later one has ended.
fn join(mut one: Course, other: &Course) -> Result<Course, Reason> {
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
