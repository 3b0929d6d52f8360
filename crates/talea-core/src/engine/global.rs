//! Global scheduling: a root with several CPUs runs the m most urgent of its children.
//!
//! # Model
//!
//! A child is a task or a scheduler, and uses one CPU at a time. A running child is in `running`,
//! not in a queue. Waiting children are in *run queues*, which are copies of the root's policy:
//!
//! 1. one queue for each distinct set of CPUs (an *affinity class*);
//! 2. one queue for each CPU, for jobs that were started there and must not migrate (YASMIN section
//!    3.3).
//!
//! Affinities are weak, as in Linux and LITMUS^RT. A waiting child preempts the least urgent child
//! on a CPU of its own class. The engine migrates no child to free a CPU for a third child. With
//! one CPU per class this is partitioned scheduling in one engine, in which tasks on different CPUs
//! can share accelerators and graphs.
//!
//! # Protocol
//!
//! | location of a child | event | next location |
//! | --- | --- | --- |
//! | `Nowhere` | ready | `Queue`; `Pending` if there is one ranked queue and no pending child |
//! | `Pending` | decision | `Cpu` if it preempts or a CPU is idle, otherwise `Queue` |
//! | `Queue` | decision | `Cpu` if it is the most urgent and a CPU is preemptible |
//! | `Cpu` | preempted by a decision | `Queue` |
//! | `Cpu` | job completed, another one pending | `Queue` |
//! | `Cpu` | yields, root is nonpreemptive | `Queue` |
//! | any | finished | `Nowhere` |
//!
//! A decision repeats the most urgent move until none is left. `changed_cpus` collects the CPUs
//! whose child changed, and the engine descends only there.
//!
//! # Cost
//!
//! With one run queue (no affinities, free migration), a change costs O(m): a scan of the CPUs.
//! After a decision no waiting child precedes a running one, so each change moves at most one
//! child. With several queues, each move compares the head of every queue with the running
//! children: O(queues · m). A policy that orders by a number ([`Rank`]) compares that number. The
//! engine calls other policies ([`Policy::before`]), so external policies serve several CPUs as
//! well.

use super::{Affinity, ChildRef, Migration, NONE, Runnable};
use crate::Time;
use crate::heap::Heap;
use crate::mutate;
use crate::sched::{Child, Policy, PolicyImpl, Rank, ReadyChild};
use alloc::vec::Vec;
use core::hint::select_unpredictable;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Location {
    Nowhere,
    /// Ready since the last decision, and neither on a CPU nor in a run queue.
    Pending,
    Queue(u8),
    Cpu(u8),
}

#[derive(Clone, Copy, Debug)]
struct ChildState {
    location: Location,
    /// CPU on which the current job was started, if jobs are bound.
    bound_to: Option<u8>,
    /// Number of started, incomplete jobs of the child or below it. The number may exceed one for a
    /// scheduler.
    started_jobs: u32,
    /// Affinity class: the index of its run queue.
    class: u8,
    /// CPU on which the child ran last, preferred for its warm caches.
    last_cpu: u8,
    /// Number of the child in the policy's order, if the policy orders by a number.
    rank: u64,
}

/// Run queues of waiting children: one for each affinity class, and one for each CPU if jobs are
/// bound.
#[derive(Debug)]
enum RunQueues {
    /// Queues of a policy that orders by a number.
    Ranked(Rank, Vec<Heap>),
    /// Queues of any other policy.
    Policies(Vec<PolicyImpl>),
}

/// Child on a CPU, with its number in the policy's order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Running {
    rank: u64,
    /// The child, or [`NONE`].
    child: Child,
}

impl Running {
    /// State of a CPU without a child, which every child precedes.
    const EMPTY: Running = Running { rank: u64::MAX, child: NONE };

    /// Returns the sort key. The child with the larger key is preempted.
    ///
    /// The key is one number, because the outcome of comparisons is random and the CPU would
    /// mispredict a branch on it.
    #[inline]
    fn order(self) -> u128 {
        u128::from(self.rank) << 32 | u128::from(self.child)
    }
}

/// Children of the root, by number.
#[derive(Clone, Copy)]
pub(super) struct Children<'a> {
    pub(super) nodes: &'a [Runnable],
    pub(super) children: &'a [ChildRef],
}

impl<'a> Children<'a> {
    #[inline]
    fn entry(self, child: Child) -> &'a ReadyChild {
        &self.nodes[self.children[child as usize].node as usize].entry
    }
}

#[derive(Debug)]
pub(super) struct Global {
    queues: RunQueues,
    /// `class_cpus[c]`: CPUs of affinity class `c`.
    class_cpus: Vec<u64>,
    /// `running[cpu]`: the child on `cpu`.
    running: Vec<Running>,
    /// Bit mask of idle CPUs.
    idle: u64,
    /// Bit mask of CPUs whose child was replaced or re-assigned.
    changed_cpus: u64,
    /// The child at [`Location::Pending`], or [`NONE`]; only with one ranked queue.
    pending: Child,
    /// Children that became ready, left a CPU or changed their number since the last decision.
    pending_changes: u32,
    states: Vec<ChildState>,
    migration: Migration,
    preemptive: bool,
}

impl Global {
    /// Creates the run queues. `queue` copies the policy, and `rank` returns a child's number in
    /// the policy's order. `affinities[c]` is the affinity of child `c`.
    pub(super) fn new(
        rank: Option<Rank>,
        queue: impl Fn() -> PolicyImpl,
        affinities: &[Affinity],
        cpus: u32,
        migration: Migration,
        preemptive: bool,
    ) -> Global {
        let all = u64::MAX >> (64 - cpus);
        let mut class_cpus: Vec<u64> = affinities.iter().map(|affinity| affinity.0 & all).collect();
        class_cpus.sort_unstable();
        class_cpus.dedup();
        let state = |affinity: &Affinity| {
            let class =
                class_cpus.binary_search(&(affinity.0 & all)).expect("every child has a class");
            let last_cpu = class_cpus[class].trailing_zeros() as u8;
            ChildState {
                location: Location::Nowhere,
                bound_to: None,
                started_jobs: 0,
                class: class as u8,
                last_cpu,
                rank: 0,
            }
        };
        let states: Vec<ChildState> = affinities.iter().map(state).collect();
        let queues = match migration {
            Migration::Anytime => class_cpus.len(),
            Migration::JobBoundaries => class_cpus.len() + cpus as usize,
        };
        let children = affinities.len();
        Global {
            queues: match rank {
                Some(rank) => {
                    RunQueues::Ranked(rank, (0..queues).map(|_| Heap::new(children)).collect())
                }
                None => RunQueues::Policies((0..queues).map(|_| queue()).collect()),
            },
            class_cpus,
            running: alloc::vec![Running::EMPTY; cpus as usize],
            idle: all,
            changed_cpus: all,
            pending: NONE,
            pending_changes: 0,
            states,
            migration,
            preemptive,
        }
    }

    /// Returns the number of comparisons so far.
    #[cfg(test)]
    pub(super) fn compared(&self) -> u64 {
        match &self.queues {
            RunQueues::Ranked(_, queues) => queues.iter().map(|queue| queue.compared).sum(),
            RunQueues::Policies(queues) => queues.iter().map(PolicyImpl::compared).sum(),
        }
    }

    /// Returns the child on `cpu`, or `None` if the CPU is idle.
    #[inline]
    pub(super) fn running_on(&self, cpu: usize) -> Option<Child> {
        Some(self.running[cpu].child).filter(|&child| child != NONE)
    }

    /// Returns the first CPU that `child` may use.
    pub(super) fn first_cpu(&self, child: Child) -> u32 {
        self.class_cpus[self.states[child as usize].class as usize].trailing_zeros()
    }

    /// Returns the bit mask of CPUs whose child has changed, and clears it.
    #[inline]
    pub(super) fn take_changed_cpus(&mut self) -> u64 {
        core::mem::take(&mut self.changed_cpus)
    }

    /// Whether jobs stay on the CPU on which they were started.
    #[inline]
    pub(super) fn binds_jobs(&self) -> bool {
        self.migration == Migration::JobBoundaries
    }

    /// Whether a child may have to wait although a CPU is idle.
    pub(super) fn may_wait_beside_idle_cpu(&self) -> bool {
        let cpus = self.running.len() as u32;
        self.binds_jobs() || self.class_cpus.iter().any(|class| class.count_ones() < cpus)
    }

    /// Whether the child on CPU `a` comes before the child on `b`. Every child comes before an idle
    /// CPU.
    pub(super) fn outranks(&self, now: Time, children: Children<'_>, a: usize, b: usize) -> bool {
        match (self.running_on(a), self.running_on(b)) {
            (Some(a), Some(b)) => self.before(now, children, a, b),
            (a, _) => a.is_some(),
        }
    }

    /// Whether no waiting child should run. The audit checks this.
    pub(super) fn is_settled(&self, now: Time, children: Children<'_>) -> bool {
        self.next_preemption(now, children).is_none()
    }

    /// Returns the CPUs of a run queue.
    #[inline]
    fn cpus_of(&self, queue: usize) -> u64 {
        mutate!(
            "core-global-affinity",
            self.class_cpus
                .get(queue)
                .copied()
                .unwrap_or_else(|| 1 << (queue - self.class_cpus.len())),
            if queue < self.class_cpus.len() {
                u64::MAX >> (64 - self.running.len())
            } else {
                1 << (queue - self.class_cpus.len())
            }
        )
    }

    /// Inserts a child into its run queue.
    #[inline]
    fn enqueue(&mut self, now: Time, entry: &ReadyChild) {
        let RunQueues::Policies(queues) = &mut self.queues else {
            return self.enqueue_ranked(entry.child);
        };
        let state = &mut self.states[entry.child as usize];
        let queue =
            state.bound_to.map_or(state.class as usize, |cpu| self.class_cpus.len() + cpu as usize);
        state.location = Location::Queue(queue as u8);
        let _ = queues[queue].ready(now, entry);
    }

    /// Inserts a child whose number is known into its run queue.
    #[inline]
    fn enqueue_ranked(&mut self, child: Child) {
        let RunQueues::Ranked(_, queues) = &mut self.queues else { return };
        let state = &mut self.states[child as usize];
        let queue =
            state.bound_to.map_or(state.class as usize, |cpu| self.class_cpus.len() + cpu as usize);
        state.location = Location::Queue(queue as u8);
        queues[queue].set(child, state.rank);
    }

    #[inline]
    pub(super) fn ready(&mut self, now: Time, entry: &ReadyChild) {
        self.pending_changes += 1;
        let RunQueues::Ranked(rank, queues) = &mut self.queues else {
            return self.enqueue(now, entry);
        };
        let state = &mut self.states[entry.child as usize];
        state.rank = rank(entry).min(Heap::LAST);
        if queues.len() == 1 && self.pending == NONE {
            state.location = Location::Pending;
            self.pending = entry.child;
        } else {
            self.enqueue(now, entry);
        }
    }

    #[inline]
    fn remove(&mut self, now: Time, child: Child) {
        let at = core::mem::replace(&mut self.states[child as usize].location, Location::Nowhere);
        // In order of likelihood; an indirect jump would be mispredicted.
        if let Location::Cpu(cpu) = at {
            self.running[cpu as usize] = Running::EMPTY;
            self.idle |= 1 << cpu;
            self.changed_cpus |= 1 << cpu;
            self.pending_changes += 1;
        } else if let Location::Queue(queue) = at {
            match &mut self.queues {
                RunQueues::Ranked(_, queues) => _ = queues[queue as usize].remove(child),
                RunQueues::Policies(queues) => _ = queues[queue as usize].finished(now, child),
            }
        } else if at == Location::Pending {
            self.pending = NONE;
        }
    }

    #[inline]
    pub(super) fn finished(&mut self, now: Time, child: Child) {
        self.remove(now, child);
    }

    pub(super) fn update(&mut self, now: Time, entry: &ReadyChild) {
        self.pending_changes += 1;
        let state = &mut self.states[entry.child as usize];
        if let RunQueues::Ranked(rank, _) = self.queues {
            state.rank = rank(entry).min(Heap::LAST);
        }
        match (state.location, &mut self.queues) {
            (Location::Queue(queue), RunQueues::Ranked(_, queues)) => {
                queues[queue as usize].set(entry.child, state.rank);
            }
            (Location::Queue(queue), RunQueues::Policies(queues)) => {
                _ = queues[queue as usize].update(now, entry);
            }
            (Location::Cpu(cpu), _) => self.running[cpu as usize].rank = state.rank,
            (Location::Nowhere | Location::Pending, _) => {}
        }
    }

    /// Records that a job of the child on `cpu`, or below it, runs for the first time and is bound
    /// to the CPU.
    ///
    /// Earlier in the same instant, the child may have been assigned the CPU and have lost it.
    pub(super) fn job_started(&mut self, cpu: usize) {
        if let Some(child) = self.running_on(cpu) {
            let state = &mut self.states[child as usize];
            state.started_jobs += 1;
            state.bound_to = mutate!("core-global-bound", Some(cpu as u8), None);
        }
    }

    /// Handles a job of the child, or below it, that yields its CPU. In a nonpreemptive root the
    /// most urgent child follows.
    pub(super) fn yield_cpu(&mut self, now: Time, entry: &ReadyChild) {
        if let (false, Location::Cpu(_)) =
            (self.preemptive, self.states[entry.child as usize].location)
        {
            self.remove(now, entry.child);
            self.enqueue(now, entry);
        }
    }

    /// Handles the completion of a job. Unless a job below the child was preempted, the next job of
    /// the child may start on any CPU.
    #[inline]
    pub(super) fn job_ended(&mut self, now: Time, entry: &ReadyChild, was_started: bool) {
        let state = &mut self.states[entry.child as usize];
        state.started_jobs -= mutate!(
            "core-global-group",
            u32::from(was_started),
            state.started_jobs * u32::from(was_started)
        );
        if state.location == Location::Nowhere {
            mutate!(
                "core-global-unbound",
                if state.started_jobs == 0 {
                    state.bound_to = None;
                }
            );

            return;
        }
        self.remove(now, entry.child);
        let state = &mut self.states[entry.child as usize];
        if state.started_jobs == 0 {
            state.bound_to = None;
        }
        self.enqueue(now, entry);
    }

    #[inline]
    fn before(&self, now: Time, children: Children<'_>, a: Child, b: Child) -> bool {
        match &self.queues {
            RunQueues::Ranked(..) => {
                (self.states[a as usize].rank, a) < (self.states[b as usize].rank, b)
            }
            RunQueues::Policies(queues) => {
                queues[0].before(now, children.entry(a), children.entry(b))
            }
        }
    }

    /// Returns the most urgent waiting child that should run, and its CPU.
    #[inline]
    fn next_preemption(&self, now: Time, children: Children<'_>) -> Option<(Child, usize)> {
        match &self.queues {
            RunQueues::Ranked(_, queues) => self.next_by_rank(queues),
            RunQueues::Policies(queues) => self.next_by_policy(now, children, queues),
        }
    }

    fn next_by_rank(&self, queues: &[Heap]) -> Option<(Child, usize)> {
        let moves = queues.iter().enumerate().filter_map(|(at, queue)| {
            let (rank, child) = queue.first()?;
            let head = Running { rank, child };
            Some((head, self.preemptible_cpu(head, self.cpus_of(at))?))
        });
        moves.min_by_key(|(head, _)| head.order()).map(|(head, cpu)| (head.child, cpu))
    }

    /// Returns the CPU in `cpus` on which `head` should run: an idle CPU, or a CPU with a less
    /// urgent child.
    #[inline]
    fn preemptible_cpu(&self, head: Running, cpus: u64) -> Option<usize> {
        let idle = cpus & self.idle;
        if idle != 0 {
            let last_cpu = u32::from(self.states[head.child as usize].last_cpu);
            let cpu = if idle >> last_cpu & 1 == 1 {
                mutate!("core-global-last", last_cpu, idle.trailing_zeros())
            } else {
                idle.trailing_zeros()
            };
            return Some(cpu as usize);
        }
        let cpu = self.lowest_priority_cpu(cpus);
        (mutate!(
            "core-nonpreemptive-global",
            mutate!("core-preemptive-global", self.preemptive, !self.preemptive)
                && self.running[cpu].order() > head.order(),
            self.running[cpu].order() > head.order()
        ))
        .then_some(cpu)
    }

    /// Returns the CPU of `cpus` with the least urgent child. All of `cpus` are busy.
    #[inline]
    fn lowest_priority_cpu(&self, mut cpus: u64) -> usize {
        let (mut lowest, mut at) =
            (self.running[cpus.trailing_zeros() as usize], cpus.trailing_zeros() as usize);
        cpus &= cpus - 1;
        while cpus != 0 {
            let cpu = cpus.trailing_zeros() as usize;
            cpus &= cpus - 1;
            let entry = self.running[cpu];
            let is_lower = mutate!(
                "core-global-least",
                entry.order() > lowest.order(),
                entry.order() < lowest.order()
            );
            lowest.rank = select_unpredictable(is_lower, entry.rank, lowest.rank);
            lowest.child = select_unpredictable(is_lower, entry.child, lowest.child);
            at = select_unpredictable(is_lower, cpu, at);
        }
        at
    }

    fn next_by_policy(
        &self,
        now: Time,
        children: Children<'_>,
        queues: &[PolicyImpl],
    ) -> Option<(Child, usize)> {
        let mut best: Option<(Child, usize)> = None;
        for (queue, waiting) in queues.iter().enumerate() {
            let Some(head) = waiting.head(now) else { continue };
            let cpu = self.target_cpu(now, children, self.cpus_of(queue), head);
            let running = self.running_on(cpu);
            let preempts = running
                .is_none_or(|running| self.preemptive && self.before(now, children, head, running));
            if preempts && best.is_none_or(|(best, _)| self.before(now, children, head, best)) {
                best = Some((head, cpu));
            }
        }
        best
    }

    /// Returns an idle CPU of `cpus` for `child`, or the CPU with the least urgent child.
    fn target_cpu(&self, now: Time, children: Children<'_>, cpus: u64, child: Child) -> usize {
        let last_cpu = self.states[child as usize].last_cpu as usize;
        if cpus >> last_cpu & 1 == 1 && self.running_on(last_cpu).is_none() {
            return last_cpu;
        }
        let mut cpus = (0..self.running.len()).filter(|cpu| cpus >> cpu & 1 == 1);
        let mut lowest = cpus.next().expect("a queue has a CPU");
        for cpu in cpus {
            let Some(least) = self.running_on(lowest) else { break };
            if self.running_on(cpu).is_none_or(|running| {
                mutate!(
                    "core-global-asked",
                    self.before(now, children, least, running),
                    self.before(now, children, running, least)
                )
            }) {
                lowest = cpu;
            }
        }
        lowest
    }

    /// Moves children until no waiting child should run.
    #[inline(always)]
    pub(super) fn decide(&mut self, now: Time, children: Children<'_>) {
        let pending_changes = core::mem::take(&mut self.pending_changes);
        match &self.queues {
            RunQueues::Ranked(_, queues) if queues.len() == 1 => {
                self.decide_single_queue(now, children, pending_changes);
            }
            _ => self.decide_several_queues(now, children),
        }
        self.pending_changes = 0;
    }

    fn decide_several_queues(&mut self, now: Time, children: Children<'_>) {
        while let Some((child, cpu)) = self.next_preemption(now, children) {
            self.remove(now, child);
            self.assign(now, children, child, cpu);
        }
    }

    /// Decides with one ranked queue. After the last decision no waiting child preceded a running
    /// child, so each change moves at most one child.
    #[inline(always)]
    fn decide_single_queue(&mut self, now: Time, children: Children<'_>, pending_changes: u32) {
        let steps = mutate!("core-global-moves", pending_changes, pending_changes.min(1));
        for _ in 0..steps {
            let pending = match self.pending {
                NONE => Running::EMPTY,
                child => Running { rank: self.states[child as usize].rank, child },
            };
            // If the pending child is the only change, only that child can have a claim.
            let waiting = if mutate!(
                "core-global-fresh",
                pending_changes == 1 && pending != Running::EMPTY,
                pending != Running::EMPTY
            ) {
                Running::EMPTY
            } else {
                self.first_queued()
            };
            let head = if waiting.order() < pending.order() { waiting } else { pending };
            if head == Running::EMPTY {
                break;
            }
            let Some(cpu) = self.preemptible_cpu(head, self.class_cpus[0]) else { break };
            if head == pending {
                self.pending = NONE;
            } else if let RunQueues::Ranked(_, queues) = &mut self.queues {
                queues[0].remove(head.child);
            }
            self.assign(now, children, head.child, cpu);
        }
        if self.pending != NONE {
            let pending = core::mem::replace(&mut self.pending, NONE);
            self.enqueue_ranked(pending);
        }
    }

    /// Returns the first child of the single queue.
    #[inline]
    fn first_queued(&self) -> Running {
        let RunQueues::Ranked(_, queues) = &self.queues else { return Running::EMPTY };
        queues[0].first().map_or(Running::EMPTY, |(rank, child)| Running { rank, child })
    }

    /// Assigns `cpu` to `child`, which is in no run queue and on no CPU. A preempted child returns
    /// to its run queue.
    #[inline]
    fn assign(&mut self, now: Time, children: Children<'_>, child: Child, cpu: usize) {
        let state = &mut self.states[child as usize];
        state.location = Location::Cpu(cpu as u8);
        state.last_cpu = cpu as u8;
        mutate!("core-global-unbegun", {}, {
            if self.migration == Migration::JobBoundaries {
                state.bound_to = Some(cpu as u8);
            }
        });
        let running = Running { rank: state.rank, child };
        let preempted = core::mem::replace(&mut self.running[cpu], running);
        mutate!("core-global-idle", self.idle &= !(1 << cpu));

        self.changed_cpus |= 1 << cpu;
        if preempted.child == NONE {
            return;
        }
        match self.queues {
            RunQueues::Ranked(..) => self.enqueue_ranked(preempted.child),
            RunQueues::Policies(_) => self.enqueue(now, children.entry(preempted.child)),
        }
    }
}
