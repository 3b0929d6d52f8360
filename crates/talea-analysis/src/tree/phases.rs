//! Flat roots with known phases: the schedule itself, until it repeats.
//!
//! J. Y.-T. Leung and M. L. Merrill, "A note on preemptive scheduling of periodic, real-time
//! tasks", Information Processing Letters 11(3), 1980: the schedule of periodic tasks repeats with
//! the hyperperiod H. The search runs the engine until its state at O + k·H equals that at O +
//! (k − 1)·H, where O is the latest offset, and all jobs that arrived before have completed. From
//! then on the schedule repeats, because a decision depends on the pending jobs only.
//!
//! Assumptions:
//! 1. One CPU, without overheads, stalls, servers, resources, graphs and versions. The root orders
//!    by fixed keys, by deadlines or by arrivals.
//! 2. All tasks are directly below the root, and periodic without jitter; their offsets hold.
//! 3. Either all costs are constant, or the root is preemptive and each job has a priority that
//!    does not depend on the schedule (EDF, or distinct fixed keys). In the second case a shorter
//!    job delays no other one: R. Ha and J. W. S. Liu, ICDCS 1994 (predictable).
//!
//! *Exact* if all jobs can have their maximum costs together. O(n) for each arrival and each
//! completion of the jobs in the offsets and some hyperperiods; at most [`MAX_JOBS`] jobs.

use super::flat::FlatBounds;
use super::model::Model;
use super::priority_keys::KeyOrder;
use super::task_model::can_always_cost_most;
use crate::test_info::{Platform, TestInfo, TestKind};
use alloc::vec::Vec;
use talea_core::chain::ReadWrite;
use talea_core::engine::{
    Engine, Event, Handled, NodeId, NodeSpec, Order, Preemption, TaskId, Tree,
};
use talea_core::mutate;
use talea_core::sched::PolicySpec;
use talea_core::workload::{Arrivals, Cost};
use talea_core::{Span, Time};

/// Entry of this test in the catalogue.
pub const INFO: TestInfo = TestInfo {
    name: "known-phases",
    policy: "FP, EDF, FIFO, also non-preemptive",
    platform: Platform::One,
    model: "periodic with known offsets, any D",
    kind: TestKind::Exact,
    paper: "Leung and Merrill, Information Processing Letters 11(3), 1980",
    sustainable: "costs, if preemptive",
    tests: &[
        "crates/talea-analysis/tests/it/tree/phases.rs::known_phases_have_the_responses_of_a_long_simulation",
    ],
};

/// Largest number of jobs that a search runs.
const MAX_JOBS: u64 = 200_000;

/// Task with known arrivals, and its progress.
struct Periodic {
    node: NodeId,
    period: u64,
    cost: u64,
    next_arrival: u64,
    arrived: u64,
    completed: u64,
    /// Number of the job that has begun, and its remaining work.
    begun: Option<(u64, u64)>,
    /// First dispatch of that job.
    read: Time,
    /// Completed jobs.
    jobs: Vec<ReadWrite>,
    longest: u64,
}

/// Root whose schedule is known, at time zero.
struct Known {
    schedule: Schedule,
    is_constant: bool,
    is_exact: bool,
}

/// Returns the bounds of a root with known phases; `None` for a root that the search does not cover
/// or that takes too long.
pub(super) fn bounds(model: &Model<'_>) -> Option<FlatBounds> {
    let mut known = Known::of(model)?;
    known.schedule.run()?;
    let kind = if known.is_exact { TestKind::Exact } else { TestKind::Sufficient };
    let bound = |task: &Periodic| (task.node, (Ok(Span::from_ns(task.longest)), kind));
    Some(known.schedule.tasks.iter().map(bound).collect())
}

/// Schedule that repeats, of a root with known phases and constant costs.
pub(super) struct RepeatingSchedule {
    /// Instant from which it repeats.
    pub(super) steady: u64,
    pub(super) hyperperiod: u64,
}

impl RepeatingSchedule {
    /// Returns the schedule of a root; `None` for a root that the search does not cover.
    pub(super) fn of(model: &Model<'_>) -> Option<RepeatingSchedule> {
        let mut known = Known::constant(model)?;
        let steady = known.schedule.run()?;
        Some(RepeatingSchedule { steady, hyperperiod: known.schedule.hyperperiod()? })
    }
}

/// Returns the jobs of each task that complete until `end`, for a root with a
/// [`RepeatingSchedule`]; `None` if there are too many.
pub(super) fn jobs_until(model: &Model<'_>, end: u64) -> Option<Vec<Vec<ReadWrite>>> {
    let mut schedule = Known::constant(model)?.schedule;
    let jobs = schedule.tasks.iter().map(|task| end / task.period).sum::<u64>();
    if jobs > MAX_JOBS {
        return None;
    }
    while let (next, arrival) = schedule.next()?
        && next <= end
    {
        schedule.advance(next);
        schedule.step(arrival == next)?;
    }
    Some(schedule.tasks.into_iter().map(|task| task.jobs).collect())
}

impl Known {
    /// Returns the root if all costs are constant, nothing disturbs it, and each job can take its
    /// cost.
    fn constant(model: &Model<'_>) -> Option<Known> {
        let is_disturbed = model.has_stalls || model.has_overheads || !model.lost.is_zero();
        let known = if is_disturbed { None } else { Known::of(model) };
        known.filter(|known| {
            mutate!("analysis-chain-constant", known.is_constant && known.is_exact, known.is_exact)
        })
    }

    fn of(model: &Model<'_>) -> Option<Known> {
        let NodeSpec::Scheduler(root) = model.node_spec(Tree::ROOT) else { return None };
        let order = KeyOrder::of(&root.policy);
        let is_by_arrival = matches!(root.policy, PolicySpec::Fifo);
        if !model.phases_known
            || model.tree.cpus > 1
            || root.reservation.is_some()
            || !(order.is_some() || is_by_arrival || matches!(root.policy, PolicySpec::Edf))
        {
            return None;
        }
        let nodes = model.tasks();
        if model.tree.nodes().count() != nodes.len() + 1 {
            return None;
        }
        let mut tasks = Vec::new();
        let (mut keys, mut is_constant, mut is_exact) = (Vec::new(), true, true);
        for (&node, source) in nodes.iter().zip(model.sources) {
            let NodeSpec::Task(spec) = model.node_spec(node) else { return None };
            // Graphs, accelerators and suspensions have no model.
            let work = model.task_model(node).ok()?.task.cost.as_ns();
            let Arrivals::Periodic { offset, period, jitter: Span::ZERO } = source.arrivals else {
                return None;
            };
            let is_plain = spec.uses.is_empty()
                && spec.versions.is_empty()
                && !spec.enforced
                && spec.preemption == Preemption::Anywhere
                && !matches!(source.cost, Cost::WithSteps { .. } | Cost::Versions(_));
            if !is_plain {
                return None;
            }
            is_constant &= matches!(source.cost, Cost::Constant(_));
            is_exact &= can_always_cost_most(&source.cost);
            keys.push(order.map(|order| model.key_range(order, node)));
            tasks.push(Periodic {
                node,
                period: period.as_ns(),
                cost: work,
                next_arrival: offset.as_ns(),
                arrived: 0,
                completed: 0,
                begun: None,
                read: Time::ZERO,
                jobs: Vec::new(),
                longest: 0,
            });
        }
        let has_ties = order.is_some_and(KeyOrder::is_fifo)
            && (0..keys.len()).any(|at| keys[..at].contains(&keys[at]));
        let is_predictable = root.preemptive && !is_by_arrival && !has_ties;
        if !is_constant && mutate!("tree-phases-costs", !is_predictable, false) {
            return None;
        }
        let schedule = Schedule { engine: model.tree.build().ok()?, tasks, running: None, now: 0 };
        Some(Known { schedule, is_constant, is_exact })
    }
}

struct Schedule {
    engine: Engine,
    tasks: Vec<Periodic>,
    running: Option<usize>,
    now: u64,
}

impl Schedule {
    fn hyperperiod(&self) -> Option<u64> {
        self.tasks
            .iter()
            .try_fold(1u64, |all, task| (all / gcd(all, task.period)).checked_mul(task.period))
    }

    /// Returns the next instant and the next arrival.
    fn next(&self) -> Option<(u64, u64)> {
        let arrival = self.tasks.iter().map(|task| task.next_arrival).min()?;
        Some((self.end().map_or(arrival, |end| end.min(arrival)), arrival))
    }

    /// Runs until the schedule repeats, and returns the instant from which it does. `None` if it
    /// does not within [`MAX_JOBS`] jobs.
    fn run(&mut self) -> Option<u64> {
        let hyperperiod = self.hyperperiod()?;
        let jobs = self.tasks.iter().map(|task| hyperperiod / task.period).sum::<u64>();
        if jobs > MAX_JOBS || self.tasks.is_empty() {
            return None;
        }
        let mut boundary = self.tasks.iter().map(|task| task.next_arrival).max()?;
        let mut states: Option<Vec<(u64, Option<u64>)>> = None;
        // Arrivals of each task before the state repeated.
        let mut until: Option<Vec<u64>> = None;
        let mut steady = boundary;
        loop {
            let (next, arrival) = self.next()?;
            while until.is_none() && boundary <= next {
                self.advance(boundary);
                let state = self.state();
                if states.as_ref() == Some(&state) {
                    steady = boundary;
                    until = Some(self.tasks.iter().map(|task| task.arrived).collect());
                }
                states = Some(state);
                boundary =
                    mutate!("tree-phases-boundary", boundary.checked_add(hyperperiod)?, next + 1);
            }
            self.advance(next);
            self.step(arrival == next)?;
            if let Some(until) = &until
                && self.tasks.iter().zip(until).all(|(task, until)| task.completed >= *until)
            {
                return Some(steady);
            }
            if self.tasks.iter().map(|task| task.arrived).sum::<u64>() > MAX_JOBS {
                return None;
            }
        }
    }

    /// Returns the end of the running job.
    fn end(&self) -> Option<u64> {
        let (_, left) = self.tasks[self.running?].begun?;
        self.now.checked_add(left)
    }

    /// Lets the running job progress until `to`.
    fn advance(&mut self, to: u64) {
        if let Some(running) = self.running
            && let Some((_, left)) = &mut self.tasks[running].begun
        {
            *left -= to - self.now;
        }
        self.now = to;
    }

    /// Returns the pending jobs and the remaining work of the job that has begun, by task.
    fn state(&self) -> Vec<(u64, Option<u64>)> {
        let of =
            |task: &Periodic| (task.arrived - task.completed, task.begun.map(|(_, left)| left));
        self.tasks.iter().map(of).collect()
    }

    /// Handles one instant. `None` if the engine refuses a job.
    fn step(&mut self, arrives: bool) -> Option<()> {
        let now = Time::from_ns(self.now);
        let id = |task: usize| TaskId(task as u32);
        if let Some(running) = self.running
            && self.tasks[running].begun.is_some_and(|(_, left)| left == 0)
        {
            let job = self.engine.job(id(running))?;
            let task = &mut self.tasks[running];
            task.longest = task.longest.max(self.now - job.release.as_ns());
            task.completed += 1;
            task.jobs.push(ReadWrite { read: task.read, write: now });
            task.begun = None;
            self.running = None;
            let _ = self.engine.handle(now, Event::Completed { task: id(running) });
        }
        for at in 0..if arrives { self.tasks.len() } else { 0 } {
            let task = &mut self.tasks[at];
            if task.next_arrival == self.now {
                task.next_arrival = task.next_arrival.checked_add(task.period)?;
                task.arrived += 1;
                let event = Event::Arrived { task: id(at), arrival: now };
                if self.engine.handle(now, event) != Handled::Done {
                    return None;
                }
            }
        }
        while let Some(order) = self.engine.poll(now) {
            self.running = match order {
                Order::Idle { .. } => None,
                Order::Run { task, job, .. } => {
                    let of = &mut self.tasks[task.0 as usize];
                    if of.begun.is_none_or(|(begun, _)| begun != job) {
                        (of.begun, of.read) = (Some((job, of.cost)), now);
                    }
                    Some(task.0 as usize)
                }
            };
        }
        Some(())
    }
}

pub(super) fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::gcd;

    #[test]
    fn common_divisors() {
        assert_eq!([gcd(12, 18), gcd(7, 1), gcd(5, 5), gcd(0, 3)], [6, 1, 5, 3]);
    }
}
