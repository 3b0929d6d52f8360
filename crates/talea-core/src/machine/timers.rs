//! What happens by itself: refills, slots, delayed releases, and budgets that are used up.
//!
//! Each group has an alarm for its server and one for its policy, each task one for a release that
//! has to wait. Those of one instant ring in the order of its [`Part`]s.

use super::{Machine, Watch};
use crate::Time;
use crate::mutate;
use crate::sched::{Part, Scheduler};
use crate::server::Server;

/// No timer is set for a later time: a run is at most as long as [`LONGEST`](super::LONGEST), which
/// is half of this.
const LAST: Time = Time::from_ns(u64::MAX >> 2);

/// A timer's key: its time, and the part of that instant.
#[inline]
fn key(at: Time, part: Part) -> u64 {
    debug_assert!(at <= LAST, "{at:?} is later than any run");
    at.as_ns() << 2 | part as u64
}

/// Of the three timers that a node may have.
#[derive(Clone, Copy)]
pub(super) enum Alarm {
    Refill(u32),
    Policy(u32),
    Release(u32),
}

impl<W: Watch> Machine<W> {
    pub(super) fn alarm(&self, of: Alarm) -> u32 {
        match of {
            Alarm::Refill(group) => group,
            Alarm::Policy(group) => self.groups.len() as u32 + group,
            Alarm::Release(task) => 2 * self.groups.len() as u32 + task,
        }
    }

    /// Rings in that part of that instant; never, if that is later than any run.
    #[inline]
    pub(super) fn set_alarm(&mut self, of: Alarm, at: Time, part: Part) {
        let alarm = self.alarm(of);
        if at <= mutate!("core-far-timer", LAST, Time::NEVER) {
            self.timers.set(alarm, key(at, part));
        } else {
            self.timers.remove(alarm);
        }
    }

    pub(super) fn rearm(&mut self, now: Time, group: u32) {
        let Some(server) = &self.groups[group as usize].server else { return };
        let alarm = Alarm::Refill(group);
        match server.next_refill(now) {
            // One that is overdue comes with the refills of this instant, not before its arrivals.
            Some(at) => self.set_alarm(
                alarm,
                at.max(now),
                mutate!("core-instant-refills", Part::Starts, Part::Ends),
            ),
            None => _ = self.timers.remove(self.alarm(alarm)),
        }
    }

    pub(super) fn rearm_policy(&mut self, group: u32) {
        let alarm = Alarm::Policy(group);
        let next = match &self.table {
            Some(table) if group == 0 => table.edge(),
            _ => self.groups[group as usize].policy.next_wakeup(),
        };
        match next {
            Some((at, part)) => self.set_alarm(alarm, at, part),
            None => _ = self.timers.remove(self.alarm(alarm)),
        }
    }

    /// Does what was due before or in this part of this instant.
    #[inline(always)]
    pub(super) fn catch_up(&mut self, now: Time, part: Part) {
        let until = key(now, part);
        if !self.spent.is_empty() || self.timers.first().is_some_and(|(due, _)| due <= until) {
            self.catch_up_until(now, until);
        }
    }

    pub(super) fn catch_up_until(&mut self, now: Time, until: u64) {
        while let Some(group) = self.spent.pop() {
            let state = &mut self.groups[group as usize];
            state.is_spent = false;
            if let Some(server) = &mut state.server
                && server.budget(now).is_zero()
            {
                server.exhausted(now);
            }
            self.refresh(now, group);
        }
        while let Some((due, alarm)) = self.timers.first().filter(|&(due, _)| due <= until) {
            self.ring(now, due, alarm);
        }
    }

    pub(super) fn ring(&mut self, now: Time, due: u64, alarm: u32) {
        let groups = self.groups.len() as u32;
        if alarm < groups {
            if let Some(server) = &mut self.groups[alarm as usize].server {
                server.refill(now);
            }
            self.rearm(now, alarm);
            self.refresh(now, alarm);
        } else if alarm < 2 * groups {
            let group = alarm - groups;
            let part = if due & 3 == Part::Ends as u64 { Part::Ends } else { Part::Starts };
            let at = Time::from_ns(due >> 2);
            if group == 0 && self.table.is_some() {
                self.turn_table(now, (at, part));
                return self.rearm_policy(group);
            }
            let _ = self.groups[group as usize].policy.wake(at, part);
            self.rearm_policy(group);
            self.refresh(now, group);
        } else {
            self.timers.remove(alarm);
            self.release_due(now, alarm - 2 * groups);
        }
    }
}
