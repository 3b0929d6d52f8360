//! Sporadic server with corrected replenishments.
//!
//! Sprunt, Sha and Lehoczky, Real-Time Systems 1(1), 1989, as corrected by Stanovich, Baker, Wang
//! and González Harbour, RTAS 2010. Each refill carries the time from which it may be used. The
//! server refills its used part one period after *that* time. A full list delays budget instead of
//! multiplying it. The interference is that of a periodic task (Q, T).
//!
//! A refill may become usable only a whole period after its time: the CPU was stalled, or the
//! servers are overbooked. Such a refill starts at the current time. The missed budget is lost;
//! otherwise it would accumulate. A refill that has only missed its deadline (D < T) keeps its
//! time, and the next one follows it after one period.
//!
//! Invariants:
//! 1. The refills sum to Q.
//! 2. The refills are ordered by time and do not overlap.

use super::{Reservation, Server};
use crate::mutate;
use crate::{Span, Time, Work};

/// Maximum number of refills (L3C's prototype and POSIX's `sched_ss_max_repl` bound it too).
const MAX_REFILLS: usize = 16;

#[derive(Clone, Copy, Debug)]
struct Refill {
    /// Time from which the refill may be used.
    at: Time,
    amount: Work,
}

#[derive(Clone, Debug)]
pub(crate) struct Sporadic {
    capacity: Work,
    period: Span,
    relative_deadline: Span,
    refills: [Refill; MAX_REFILLS],
    count: usize,
    /// Used part of the first refill.
    used: Work,
    /// Whether the first refill may be used.
    is_usable: bool,
}

impl Sporadic {
    pub(crate) fn new(of: &Reservation) -> Sporadic {
        let first = Refill {
            at: mutate!("core-server-sporadic-offset", Time::ZERO + of.offset, Time::ZERO),
            amount: of.budget,
        };
        Sporadic {
            capacity: of.budget,
            period: of.period,
            relative_deadline: of.relative_deadline(),
            refills: [first; MAX_REFILLS],
            count: 1,
            used: Work::ZERO,
            is_usable: false,
        }
    }

    /// Returns the refills that may not be used before a time after `now`.
    pub(super) fn refills_after(&self, now: Time) -> impl Iterator<Item = (Time, Work)> + '_ {
        let refills = self.refills[usize::from(self.is_usable)..self.count].iter();
        refills.filter(move |refill| refill.at > now).map(|refill| (refill.at, refill.amount))
    }

    /// Makes a refill that was used ahead of `now` unusable until its time.
    pub(super) fn hold(&mut self, now: Time) {
        self.is_usable &= self.refills[0].at <= now;
    }

    fn check(&self) {
        debug_assert!((1..=MAX_REFILLS).contains(&self.count));
        debug_assert_eq!(
            self.refills[..self.count].iter().fold(Work::ZERO, |sum, refill| sum + refill.amount),
            self.capacity,
            "budget leaked"
        );
        debug_assert!(
            self.refills[..self.count].windows(2).all(|two| end(two[0]) <= two[1].at),
            "{:?}",
            self.refills
        );
    }

    fn remove_first(&mut self) -> Refill {
        let first = self.refills[0];
        self.refills.copy_within(1..self.count, 0);
        self.count -= 1;
        first
    }

    /// Schedules the used part of the first refill one period after its start.
    ///
    /// The server calls this function only when it has no more work or the refill is exhausted. A
    /// split at every preemption would move the server's deadline each time.
    fn schedule_refill(&mut self, now: Time) {
        let used = core::mem::take(&mut self.used);
        if used.is_zero() {
            return;
        }
        let first = &mut self.refills[0];
        let back = Refill {
            at: mutate!("core-server-sporadic-late", first.at, now) + self.period,
            amount: used,
        };
        first.at += Span::from_ns(used.as_ns());
        first.amount = first.amount.checked_sub(used).expect("no more than the budget");
        let is_gone = first.amount.is_zero();
        if is_gone {
            self.remove_first();
        }
        self.append_refill(back);
        if is_gone {
            // A refill for exactly this time is performed in the phase of refills.
            self.is_usable = self.refills[0].at < now;
            self.skip_missed_refill(now);
        }
        self.check();
    }

    /// Restarts the first refill at the current time if a whole period has passed since its time.
    fn skip_missed_refill(&mut self, now: Time) {
        let first = self.refills[0].at;
        let last =
            first + mutate!("core-server-sporadic-deadline", self.period, self.relative_deadline);
        if mutate!("core-server-sporadic-missed", last < now, false) {
            self.refills[0].at = now;
            self.merge();
        }
    }

    /// Merges refills that touch the first refill into it.
    fn merge(&mut self) {
        while self.count > 1 && self.refills[1].at <= end(self.refills[0]) {
            let first = self.remove_first();
            self.refills[0] =
                Refill { at: first.at, amount: first.amount + self.refills[0].amount };
        }
    }

    fn append_refill(&mut self, refill: Refill) {
        match self.refills[..self.count].last_mut() {
            Some(last) if refill.at <= end(*last) => last.amount += refill.amount,
            Some(last) if self.count == MAX_REFILLS => {
                // The list is full: the last refill is delayed to the new one. Late is safe, early
                // is not.
                let delayed = Time::from_ns(refill.at.as_ns() - last.amount.as_ns());
                let at = mutate!("core-server-sporadic-full", delayed, last.at);
                *last = Refill { at, amount: last.amount + refill.amount };
            }
            _ => {
                self.refills[self.count] = refill;
                self.count += 1;
            }
        }
    }
}

/// Returns the end of a refill that is used without interruption from its start.
fn end(refill: Refill) -> Time {
    refill.at + Span::from_ns(refill.amount.as_ns())
}

impl Server for Sporadic {
    fn wake(&mut self, now: Time) {
        // Unused budget may be used from now on, and is refilled one period from now.
        if self.refills[0].at < now {
            mutate!("core-server-sporadic-wake", self.refills[0].at = now);

            self.is_usable = true;
            self.merge();
        }
        self.check();
    }

    fn idle(&mut self, now: Time) {
        self.schedule_refill(now);
    }

    fn charge(&mut self, now: Time, used: Work) {
        self.used += used;
        assert!(self.used <= self.refills[0].amount, "no more than the budget");
        if self.used == self.refills[0].amount {
            self.schedule_refill(now);
        }
    }

    fn exhausted(&mut self, _now: Time) {}

    fn refill(&mut self, now: Time) {
        self.is_usable = self.refills[0].at <= now;
        self.skip_missed_refill(now);
    }

    fn budget(&self, _now: Time) -> Work {
        if !self.is_usable {
            return Work::ZERO;
        }
        self.refills[0].amount.checked_sub(self.used).expect("no more than the budget")
    }

    fn next_refill(&self, _now: Time) -> Option<Time> {
        (!self.is_usable).then_some(self.refills[0].at)
    }

    fn deadline(&self) -> Time {
        self.refills[0].at + self.relative_deadline
    }
}
