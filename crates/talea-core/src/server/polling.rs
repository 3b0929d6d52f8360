//! Polling server: looks for work when its period begins, and gives the budget up as soon as there
//! is none.
//!
//! Lehoczky, Sha and Strosnider, RTSS 1987. Behaves towards others as a periodic task (Q, T); in
//! return work that comes just after the poll waits for a whole period.

use super::{Reservation, Server};
use crate::mutate;
use crate::{Span, Time, Work};

#[derive(Debug)]
pub(crate) struct Polling {
    full: Work,
    period: Span,
    relative_deadline: Span,
    left: Work,
    pending: bool,
    /// When it last looked.
    looked: Option<Time>,
    next: Time,
    deadline: Time,
}

impl Polling {
    pub(crate) fn new(of: &Reservation) -> Polling {
        Polling {
            full: of.budget,
            period: of.period,
            relative_deadline: of.relative_deadline(),
            left: Work::ZERO,
            pending: false,
            looked: None,
            next: Time::ZERO + of.offset,
            deadline: Time::NEVER,
        }
    }
}

impl Server for Polling {
    fn wake(&mut self, now: Time) {
        self.pending = true;
        // Who comes with the poll is found by it, also when it is the refill of a server inside
        // this one.
        if mutate!(
            "core-server-polling-instant",
            self.looked == Some(now),
            self.looked.is_some_and(|looked| looked > now)
        ) {
            self.left = self.full;
        }
    }

    fn idle(&mut self, _now: Time) {
        self.pending = false;
        mutate!(
            "core-server-polling-idle",
            {
                self.left = Work::ZERO;
            },
            {}
        );
    }

    fn charge(&mut self, _now: Time, used: Work) {
        self.left = self.left.checked_sub(used).expect("no more than the budget");
    }

    fn exhausted(&mut self, _now: Time) {}

    fn refill(&mut self, now: Time) {
        self.looked = Some(now);
        self.left = mutate!(
            "core-server-polling-poll",
            if self.pending { self.full } else { Work::ZERO },
            self.full
        );
        self.deadline = self.next + self.relative_deadline;
        self.next += self.period;
    }

    fn budget(&self, _now: Time) -> Work {
        self.left
    }

    fn next_refill(&self, _now: Time) -> Option<Time> {
        Some(self.next)
    }

    fn deadline(&self) -> Time {
        self.deadline
    }
}
