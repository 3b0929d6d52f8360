//! Life of a job: arrival, release, completion.
//!
//! | event | state before | action |
//! | --- | --- | --- |
//! | arrival, no job pending | idle | release now, or at a timer if the separation is enforced |
//! | arrival, a job pending | any | queue behind it |
//! | release timer expires | waiting | release |
//! | completion | released | release held resources; release the next job |
//! | block | released | set [`SELF_SUSPENDED`]; yield the CPU |
//! | preemption point | released | begin or end a nonpreemptive section; decide again |

use super::state::{BEGINS_IN_SECTION, IN_SECTION};
use super::timers::TimerId;
use super::{Engine, Handled, Observer, SELF_SUSPENDED};
use crate::Time;
use crate::mutate;
use crate::sched::Phase;

impl<W: Observer> Engine<W> {
    pub(super) fn job_arrived(&mut self, now: Time, task: u32, arrival: Time) -> Handled {
        self.process_due(now, Phase::Ends);
        mutate!(
            "core-stop",
            if self.stopped {
                return Handled::Stopped;
            }
        );

        let state = &mut self.tasks[task as usize];
        if !state.jobs.push(mutate!("core-job-nominal", arrival, now.max(arrival)), state.deadline)
        {
            return Handled::Refused;
        }
        // Behind a job whose release is delayed there is nothing to do.
        if state.jobs.len() == 1 {
            self.release(now, task, false);
        }
        Handled::Done
    }

    /// Releases the first job of the queue, or sets a timer for its release.
    ///
    /// `ended` states that another job of the task has just completed.
    #[inline(always)]
    pub(super) fn release(&mut self, now: Time, task: u32, ended: bool) {
        let state = &mut self.tasks[task as usize];
        let first = state.jobs.first();
        state.released =
            first.is_some_and(|job| job.release <= now || !state.jobs.enforces_separation());
        if let (false, Some(job)) = (state.released, first) {
            self.set_timer(TimerId::Release(task), job.release, Phase::Arrivals);
        }
        self.update_task(now, task, ended);
        mutate!(
            "core-ceiling-comes",
            if self.optional.sharing.is_some() {
                self.apply_ceilings(now, task);
            }
        );
    }

    /// Performs a delayed release that is due.
    #[cold]
    pub(super) fn release_due(&mut self, now: Time, task: u32) {
        self.release(now, task, false);
    }

    /// Schedules the release of the first job with the arrivals of its instant, unless a job is
    /// released.
    pub(super) fn schedule_release(&mut self, now: Time, task: u32) {
        let state = &self.tasks[task as usize];
        if let (false, Some(job)) = (state.released, state.jobs.first()) {
            self.set_timer(TimerId::Release(task), job.release.max(now), Phase::Arrivals);
        }
    }

    pub(super) fn job_completed(&mut self, now: Time, task: u32) {
        let state = &mut self.tasks[task as usize];
        assert!(state.released, "a job completed that was not released");
        // The deadline that its successors in a graph inherit.
        let deadline = state.jobs.first().map_or(now, |job| job.deadline);
        state.jobs.pop();
        state.blocked_on = 0;
        state.section = (state.section & BEGINS_IN_SECTION)
            | if state.section & BEGINS_IN_SECTION == 0 { 0 } else { IN_SECTION };
        let (node, was_started) = (state.node, core::mem::take(&mut state.started));
        let entry = &mut self.nodes[node as usize].entry;
        entry.job =
            mutate!("core-job-number", entry.job.wrapping_add(1), entry.job.wrapping_mul(1));
        if self.optional.sharing.is_some() {
            self.release_held(task);
        }
        mutate!(
            "core-nonpreemptive-end",
            if self.shape.nonpreemptive.any() {
                self.clear_nonpreemptive(node);
            }
        );

        self.release(now, task, true);
        if self.shape.nonpreemptive.any() {
            self.recompute_ancestors(now, node);
        }
        if self.global.is_some() {
            let top = self.root_child_of(node);
            if let Some(global) = &mut self.global {
                global.job_ended(now, &self.nodes[top as usize].entry, was_started);
            }
        }
        if self.optional.sharing.is_some() {
            self.wake_waiters(now);
        }
        if self.optional.graph.is_some() {
            self.publish(now, task, deadline);
        }
        self.decision.need_resched = true;
    }

    /// Blocks the current job of `task`, which waits for an event other than a CPU.
    pub(super) fn job_blocked(&mut self, now: Time, task: u32) {
        self.tasks[task as usize].blocked_on |= SELF_SUSPENDED;
        mutate!(
            "core-nonpreemptive-suspension",
            self.yield_cpu(now, task, |engine| engine.update_task(now, task, false)),
            self.update_task(now, task, false)
        );
    }

    /// Ends the nonpreemptive section of the current job of `task`, if it is in one, and begins
    /// another if `nonpreemptive`. The decision at this instant may select a sibling.
    pub(super) fn pass_preemption_point(&mut self, now: Time, task: u32, nonpreemptive: bool) {
        let state = &mut self.tasks[task as usize];
        let node = state.node;
        state.section = (state.section & BEGINS_IN_SECTION)
            | if mutate!("core-section-floats", nonpreemptive, false) { IN_SECTION } else { 0 };
        let above = &mut self.schedulers[self.nodes[node as usize].parent as usize];
        if above.preemptive {
            above.current = mutate!("core-section-point", None, above.current);
            self.recompute_ancestors(now, node);
        }
        self.decision.need_resched = true;
    }

    /// Makes the current job of `task` yield its CPU voluntarily. `how` propagates the change.
    ///
    /// Nonpreemptive schedulers above the task may then select another child.
    pub(super) fn yield_cpu(&mut self, now: Time, task: u32, how: impl FnOnce(&mut Self)) {
        let node = self.tasks[task as usize].node;
        if self.shape.nonpreemptive.any() {
            self.clear_nonpreemptive(node);
        }
        how(self);
        if !self.shape.nonpreemptive.any() {
            return;
        }
        self.recompute_ancestors(now, node);
        if self.global.is_some() {
            let top = self.root_child_of(node);
            if let Some(global) = &mut self.global {
                global.yield_cpu(now, &self.nodes[top as usize].entry);
            }
        }
    }

    /// Returns the child of the root at or above `node`.
    pub(super) fn root_child_of(&self, mut node: u32) -> u32 {
        // The root is scheduler 0.
        while self.nodes[node as usize].parent != 0 {
            node = self.schedulers[self.nodes[node as usize].parent as usize].node;
        }
        node
    }
}
