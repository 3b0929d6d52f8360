//! Timers: refills, slots, delayed releases and exhausted budgets.
//!
//! Each scheduler has one timer for its server and one for its policy. Each task has one timer for
//! a delayed release. Timers of one instant expire in the order of its [`Phase`]s.

use super::{Engine, Observer};
use crate::Time;
use crate::mutate;
use crate::sched::{Phase, Policy};
use crate::server::Server;

/// Largest time of a timer. A run is at most [`MAX_RUN`](super::MAX_RUN) long, half of this value.
const MAX_TIMER: Time = Time::from_ns(u64::MAX >> 2);

/// Returns the key of a timer: its time, and the phase of that instant.
#[inline]
fn key(at: Time, phase: Phase) -> u64 {
    debug_assert!(at <= MAX_TIMER, "{at:?} is later than any run");
    at.as_ns() << 2 | phase as u64
}

/// Identity of a timer: its kind, with the index of its scheduler or task.
#[derive(Clone, Copy)]
pub(super) enum TimerId {
    Refill(u32),
    Policy(u32),
    Release(u32),
}

impl<W: Observer> Engine<W> {
    pub(super) fn timer_index(&self, of: TimerId) -> u32 {
        match of {
            TimerId::Refill(scheduler) => scheduler,
            TimerId::Policy(scheduler) => self.schedulers.len() as u32 + scheduler,
            TimerId::Release(task) => 2 * self.schedulers.len() as u32 + task,
        }
    }

    /// Sets a timer to a phase of an instant. Removes it if the time is later than any run.
    #[inline]
    pub(super) fn set_timer(&mut self, of: TimerId, at: Time, phase: Phase) {
        let timer = self.timer_index(of);
        if at <= mutate!("core-far-timer", MAX_TIMER, Time::NEVER) {
            self.timers.set(timer, key(at, phase));
        } else {
            self.timers.remove(timer);
        }
    }

    pub(super) fn update_refill_timer(&mut self, now: Time, scheduler: u32) {
        let Some(server) = &self.schedulers[scheduler as usize].server else { return };
        let timer = TimerId::Refill(scheduler);
        match server.next_refill(now) {
            // An overdue refill is performed with the refills of this instant, not before its
            // arrivals.
            Some(at) => self.set_timer(
                timer,
                at.max(now),
                mutate!("core-instant-refills", Phase::Starts, Phase::Ends),
            ),
            None => _ = self.timers.remove(self.timer_index(timer)),
        }
    }

    pub(super) fn update_policy_timer(&mut self, scheduler: u32) {
        let timer = TimerId::Policy(scheduler);
        let next = match &self.optional.table {
            Some(table) if scheduler == 0 => table.next_edge(),
            _ => self.schedulers[scheduler as usize].policy.next_wakeup(),
        };
        match next {
            Some((at, phase)) => self.set_timer(timer, at, phase),
            None => _ = self.timers.remove(self.timer_index(timer)),
        }
    }

    /// Processes exhausted budgets and timers that are due up to this phase of this instant.
    #[inline(always)]
    pub(super) fn process_due(&mut self, now: Time, phase: Phase) {
        let until = key(now, phase);
        if !self.exhausted.is_empty() || self.timers.first().is_some_and(|(due, _)| due <= until) {
            self.process_due_until(now, until);
        }
    }

    pub(super) fn process_due_until(&mut self, now: Time, until: u64) {
        while let Some(scheduler) = self.exhausted.pop() {
            let state = &mut self.schedulers[scheduler as usize];
            state.is_exhausted = false;
            if let Some(server) = &mut state.server
                && server.budget(now).is_zero()
            {
                server.exhausted(now);
            }
            self.propagate_from(now, scheduler);
        }
        while let Some((due, timer)) = self.timers.first().filter(|&(due, _)| due <= until) {
            self.expire(now, due, timer);
        }
    }

    pub(super) fn expire(&mut self, now: Time, due: u64, timer: u32) {
        let schedulers = self.schedulers.len() as u32;
        if timer < schedulers {
            if let Some(server) = &mut self.schedulers[timer as usize].server {
                server.refill(now);
            }
            self.update_refill_timer(now, timer);
            self.propagate_from(now, timer);
        } else if timer < 2 * schedulers {
            let scheduler = timer - schedulers;
            let phase = if due & 3 == Phase::Ends as u64 { Phase::Ends } else { Phase::Starts };
            let at = Time::from_ns(due >> 2);
            if scheduler == 0 && self.optional.table.is_some() {
                self.advance_table(now, (at, phase));
                return self.update_policy_timer(scheduler);
            }
            let _ = self.schedulers[scheduler as usize].policy.wake(at, phase);
            self.update_policy_timer(scheduler);
            self.propagate_from(now, scheduler);
        } else {
            self.timers.remove(timer);
            self.release_due(now, timer - 2 * schedulers);
        }
    }
}
