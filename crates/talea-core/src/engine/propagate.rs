//! Bottom-up phase: a change of a node is propagated to its ancestors (SF3P section VI).
//!
//! Each node's entry holds the criteria that its parent's policy knows. A change is propagated as
//! follows.
//!
//! | step | function | effect |
//! | --- | --- | --- |
//! | 1 | [`Engine::update_task`] | computes eligibility and criteria of a task |
//! | 2 | [`Engine::notify_parent`] | calls `ready`, `finished` or `update` of the parent's policy |
//! | 3 | [`Engine::refresh_criteria`] | recomputes eligibility and criteria of the parent |
//! | 4 | [`Engine::propagate_from`] | repeats steps 2 and 3 with the parent's parent |
//!
//! The call in step 2 follows from the eligibility before and after the change. `requeue` marks a
//! task whose next job follows a completed one: the task moves to the end of its queue.
//!
//! | before | after | call | condition |
//! | --- | --- | --- | --- |
//! | not eligible | eligible | `ready` | always |
//! | eligible | not eligible | `finished` | always |
//! | eligible | eligible | `update` | criteria changed, or `requeue` |
//! | not eligible | not eligible | none | always |
//!
//! The propagation ends at the first parent whose policy returns [`Resched::Keep`]: its head and
//! the head's criteria are unchanged. It also ends at the root, which requests a decision
//! ([`Engine::need_resched`](super::Engine)). Two rules extend this.
//!
//! 1. A change of a nonpreemptive scheduler's current child always counts as [`Resched::Pick`].
//! 2. Below a root with a table, every change counts: each child may have a CPU of its own.

use super::{ChildRef, Engine, NONE, Observer, Signal};
use crate::Time;
use crate::criteria::Criteria;
use crate::mutate;
use crate::sched::{Policy, Resched};
use crate::server::Server;

impl<W: Observer> Engine<W> {
    /// Clears the current child of every nonpreemptive scheduler above `node`.
    pub(super) fn clear_nonpreemptive(&mut self, mut node: u32) {
        while self.nodes[node as usize].parent != NONE {
            let scheduler = &mut self.schedulers[self.nodes[node as usize].parent as usize];
            scheduler.current = None;
            node = scheduler.node;
        }
    }

    pub(super) fn recompute_ancestors(&mut self, now: Time, mut node: u32) {
        while self.nodes[node as usize].parent != NONE {
            let parent = self.nodes[node as usize].parent;
            node = self.schedulers[parent as usize].node;
            let (eligible, changed) = self.refresh_criteria(now, parent);
            self.propagate(now, node, eligible, changed, false);
        }
    }

    /// Updates a task after a change, and propagates the result.
    ///
    /// With `requeue` the task moves to the end of its queue.
    #[inline(always)]
    pub(super) fn update_task(&mut self, now: Time, task: u32, requeue: bool) {
        let state = &self.tasks[task as usize];
        let (node, eligible) = (state.node, state.released && state.blocked_on == 0);
        let presented = &mut self.nodes[node as usize].entry.criteria;
        let mut changed = false;
        if self.optional.sharing.is_some() {
            let criteria = self.task_criteria(task);
            return self.update_node(now, node, eligible, criteria, requeue);
        }
        if let (true, Some(job)) = (state.released, state.jobs.first()) {
            changed = (presented.arrival, presented.deadline) != (job.release, job.deadline);
            (presented.arrival, presented.deadline) = mutate!(
                "core-job-queued",
                (job.release, job.deadline),
                (job.release, job.deadline.min(presented.deadline))
            );
        }
        self.propagate(now, node, eligible, changed, requeue);
    }

    /// Stores eligibility and criteria of `node`, and propagates the change.
    pub(super) fn update_node(
        &mut self,
        now: Time,
        node: u32,
        eligible: bool,
        criteria: Criteria,
        requeue: bool,
    ) {
        let presented = &mut self.nodes[node as usize].entry.criteria;
        let changed = *presented != criteria;
        *presented = criteria;
        self.propagate(now, node, eligible, changed, requeue);
    }

    /// Propagates a change of `node`, whose criteria are already stored. `changed` states that they
    /// differ from the criteria before.
    #[inline(always)]
    fn propagate(&mut self, now: Time, node: u32, eligible: bool, changed: bool, requeue: bool) {
        if let Some(scheduler) = self.notify_parent(now, node, eligible, changed, requeue) {
            self.propagate_from(now, scheduler);
        }
    }

    /// Calls the policy of the parent of `node`. Returns the parent if its own entry may change.
    #[inline(always)]
    fn notify_parent(
        &mut self,
        now: Time,
        node: u32,
        eligible: bool,
        changed: bool,
        requeue: bool,
    ) -> Option<u32> {
        let runnable = &mut self.nodes[node as usize];
        let was = core::mem::replace(&mut runnable.eligible, eligible);
        let has_changed = if eligible { !was || requeue || changed } else { was };
        if !has_changed {
            return None;
        }
        if eligible && (!was || requeue) {
            self.ready_seq += 1;
            runnable.entry.ready_seq = self.ready_seq;
        }
        let signal = match (was, eligible) {
            (false, _) => Signal::Ready,
            (true, false) => Signal::Finished,
            (true, true) => Signal::Update,
        };
        mutate!(
            "core-signals",
            if W::ENABLED {
                self.observer.on_signal(now, signal, self.shape.ids[node as usize]);
            },
            if W::ENABLED && signal != Signal::Update {
                self.observer.on_signal(now, signal, self.shape.ids[node as usize]);
            }
        );
        let (entry, parent) = (&runnable.entry, runnable.parent);
        if parent == NONE {
            return None;
        }
        if let (0, Some(global)) = (parent, &mut self.global) {
            match signal {
                Signal::Ready => global.ready(now, entry),
                Signal::Finished => global.finished(now, entry.child),
                _ => global.update(now, entry),
            }
            self.decision.need_resched = true;
            return None;
        }
        let scheduler = &mut self.schedulers[parent as usize];
        let mut resched = match signal {
            Signal::Ready => scheduler.policy.ready(now, entry),
            Signal::Finished => scheduler.policy.finished(now, entry.child),
            _ => scheduler.policy.update(now, entry),
        };
        if scheduler.current == Some(entry.child) {
            resched = Resched::Pick;
            if !eligible {
                scheduler.current = None;
            }
        }
        // Below a table, no child waits for another: a newly ready child may have a CPU of its own.
        (mutate!(
            "core-table-new-child",
            resched == Resched::Pick || (parent == 0 && self.optional.table.is_some()),
            resched == Resched::Pick
        ))
        .then_some(parent)
    }

    /// Computes eligibility and criteria of a scheduler from its head, its server and its
    /// overrides.
    #[inline]
    pub(super) fn compute_criteria(&mut self, now: Time, scheduler: u32) -> (bool, Criteria) {
        self.decision.need_resched = true;
        self.decision.cpus_to_recheck = u64::MAX;
        let state = &mut self.schedulers[scheduler as usize];
        let head = state.current.or_else(|| state.policy.settled_head(now));
        let mut eligible = head.is_some();
        let mut criteria = match head {
            Some(head) => {
                let child = self.shape.children[(state.first_child + head) as usize].node;
                state.overrides.apply_to(&self.nodes[child as usize].entry.criteria)
            }
            None => self.nodes[state.node as usize].entry.criteria,
        };
        if let Some(server) = &mut state.server {
            let pending = head.is_some();
            if pending != state.pending {
                if pending { server.wake(now) } else { server.idle(now) }
            }
            eligible &= !server.budget(now).is_zero();
            mutate!("core-server-shown", criteria.deadline = server.deadline());

            if mutate!(
                "core-server-job",
                state.last_deadline != criteria.deadline,
                state.last_deadline == Time::ZERO
            ) {
                state.last_deadline = criteria.deadline;
                let entry = &mut self.nodes[state.node as usize].entry;
                entry.job = entry.job.wrapping_add(1);
            }
            state.pending = pending;
            self.update_refill_timer(now, scheduler);
        }
        if let (true, Some(head)) = (self.optional.sharing.is_some(), head) {
            criteria = self.scheduler_criteria(scheduler, head, &criteria);
        }
        (eligible, criteria)
    }

    /// Stores the result of [`Engine::compute_criteria`]. Returns the eligibility, and whether the
    /// criteria or the server's job have changed.
    #[inline]
    fn refresh_criteria(&mut self, now: Time, scheduler: u32) -> (bool, bool) {
        let node = self.schedulers[scheduler as usize].node as usize;
        let job = self.nodes[node].entry.job;
        let (eligible, criteria) = self.compute_criteria(now, scheduler);
        let entry = &mut self.nodes[node].entry;
        let changed = entry.criteria != criteria || entry.job != job;
        entry.criteria = criteria;
        (eligible, changed)
    }

    /// Whether the engine needs the criteria of this scheduler.
    ///
    /// The root has no parent. The engine needs the criteria of the root only for its server or an
    /// attached observer.
    #[inline(always)]
    pub(super) fn is_observed(&self, scheduler: u32) -> bool {
        mutate!(
            "core-root-server",
            W::ENABLED || scheduler != 0 || self.schedulers[0].server.is_some(),
            W::ENABLED || scheduler != 0
        )
    }

    /// Recomputes a scheduler after a change of its policy, server, slot or child, and propagates
    /// the result.
    pub(super) fn propagate_from(&mut self, now: Time, scheduler: u32) {
        let mut next = Some(scheduler);
        while let Some(scheduler) = next {
            if !self.is_observed(scheduler) {
                return self.update_root(now);
            }
            let node = self.schedulers[scheduler as usize].node;
            let (eligible, changed) = self.refresh_criteria(now, scheduler);
            next = self.notify_parent(now, node, eligible, changed, false);
        }
    }

    /// Updates a root without server and observer: only its eligibility is needed.
    #[inline]
    fn update_root(&mut self, now: Time) {
        self.decision.need_resched = true;
        self.decision.cpus_to_recheck = u64::MAX;
        let root = &self.schedulers[0];
        let eligible = root.current.is_some() || !root.policy.is_idle(now);
        self.nodes[ChildRef::ROOT.node as usize].eligible = eligible;
    }
}
