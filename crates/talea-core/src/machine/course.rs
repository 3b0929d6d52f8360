//! A job's way: it arrives, is released, and ends.

use super::timers::Alarm;
use super::{BLOCKED, Handled, Machine, Watch};
use crate::Time;
use crate::mutate;
use crate::sched::Part;

impl<W: Watch> Machine<W> {
    pub(super) fn arrived(&mut self, now: Time, task: u32, arrival: Time) -> Handled {
        self.catch_up(now, Part::Ends);
        mutate!(
            "core-stop",
            {
                if self.stopped {
                    return Handled::Stopped;
                }
            },
            {}
        );

        let state = &mut self.tasks[task as usize];
        if !state.ring.push(mutate!("core-job-nominal", arrival, now.max(arrival)), state.deadline)
        {
            return Handled::Refused;
        }
        // Behind one that has to keep its distance there is nothing to do.
        if state.ring.len() == 1 {
            self.release(now, task, false);
        }
        Handled::Done
    }

    /// Lets the first job of the ring run, or sets the alarm for when it may. `ended`: another one
    /// has just ended.
    #[inline(always)]
    pub(super) fn release(&mut self, now: Time, task: u32, ended: bool) {
        let state = &mut self.tasks[task as usize];
        let first = state.ring.first();
        state.released = first.is_some_and(|job| job.release <= now || !state.ring.is_spaced());
        if let (false, Some(job)) = (state.released, first) {
            self.set_alarm(Alarm::Release(task), job.release, Part::Arrivals);
        }
        self.show_task(now, task, ended);
        mutate!(
            "core-ceiling-comes",
            {
                if self.share.is_some() {
                    self.meet_ceilings(now, task);
                }
            },
            {}
        );
    }

    /// A delayed release is due.
    #[cold]
    pub(super) fn release_due(&mut self, now: Time, task: u32) {
        self.release(now, task, false);
    }

    /// Releases the first job of the ring with the arrivals of its instant, unless one is under
    /// way.
    pub(super) fn release_later(&mut self, now: Time, task: u32) {
        let state = &self.tasks[task as usize];
        if let (false, Some(job)) = (state.released, state.ring.first()) {
            self.set_alarm(Alarm::Release(task), job.release.max(now), Part::Arrivals);
        }
    }

    pub(super) fn completed(&mut self, now: Time, task: u32) {
        let state = &mut self.tasks[task as usize];
        assert!(state.released, "a job ended that was not under way");
        // The deadline that its successors in a graph inherit.
        let deadline = state.ring.first().map_or(now, |job| job.deadline);
        state.ring.pop();
        state.held = 0;
        let (node, was_started) = (state.node, core::mem::take(&mut state.started));
        let entry = &mut self.nodes[node as usize].entry;
        entry.job =
            mutate!("core-job-number", entry.job.wrapping_add(1), entry.job.wrapping_mul(1));
        if self.share.is_some() {
            self.job_gives_back(task);
        }
        mutate!(
            "core-nonpreemptive-end",
            {
                if self.any_nonpreemptive {
                    self.let_go(node);
                }
            },
            {}
        );

        self.release(now, task, true);
        if self.any_nonpreemptive {
            self.look_again(now, node);
        }
        if self.global.is_some() {
            let top = self.top_of(node);
            if let Some(global) = &mut self.global {
                global.job_ended(now, &self.nodes[top as usize].entry, was_started);
            }
        }
        if self.share.is_some() {
            self.wake_waiters(now);
        }
        if self.graph.is_some() {
            self.publish(now, task, deadline);
        }
        self.dirty = true;
    }

    /// The job under way of `task` waits for something that is not a CPU.
    pub(super) fn blocked(&mut self, now: Time, task: u32) {
        self.tasks[task as usize].held |= BLOCKED;
        mutate!(
            "core-nonpreemptive-suspension",
            self.gives_up(now, task, |machine| machine.show_task_again(now, task)),
            self.show_task_again(now, task)
        );
    }

    /// The job under way of `task` gives its CPU up by itself, as `how` shows: no scheduler that
    /// does not preempt holds on to what is above it any more.
    pub(super) fn gives_up(&mut self, now: Time, task: u32, how: impl FnOnce(&mut Self)) {
        let node = self.tasks[task as usize].node;
        if self.any_nonpreemptive {
            self.let_go(node);
        }
        how(self);
        if !self.any_nonpreemptive {
            return;
        }
        self.look_again(now, node);
        if self.global.is_some() {
            let top = self.top_of(node);
            if let Some(global) = &mut self.global {
                global.give_up(now, &self.nodes[top as usize].entry);
            }
        }
    }

    /// The child of the root above or at `node`.
    pub(super) fn top_of(&self, mut node: u32) -> u32 {
        // The root's group is the first.
        while self.nodes[node as usize].parent != 0 {
            node = self.groups[self.nodes[node as usize].parent as usize].node;
        }
        node
    }
}
