//! Polling server: polls for work at the start of each period, and drops the budget if there is no
//! work.
//!
//! Lehoczky, Sha and Strosnider, RTSS 1987. The interference of the server is that of a periodic
//! task (Q, T). Work that arrives just after the poll waits for a whole period.

use super::{Reservation, Server};
use crate::mutate;
use crate::{Span, Time, Work};

#[derive(Debug)]
pub(crate) struct Polling {
    capacity: Work,
    period: Span,
    relative_deadline: Span,
    remaining: Work,
    pending: bool,
    /// Time of the last poll.
    polled_at: Option<Time>,
    next: Time,
    deadline: Time,
}

impl Polling {
    pub(crate) fn new(of: &Reservation) -> Polling {
        Polling {
            capacity: of.budget,
            period: of.period,
            relative_deadline: of.relative_deadline(),
            remaining: Work::ZERO,
            pending: false,
            polled_at: None,
            next: Time::ZERO + of.offset,
            deadline: Time::NEVER,
        }
    }
}

impl Server for Polling {
    fn wake(&mut self, now: Time) {
        self.pending = true;
        // A client that becomes ready at the time of the poll is served, even if the refill of a
        // nested server wakes it.
        if mutate!(
            "core-server-polling-instant",
            self.polled_at == Some(now),
            self.polled_at.is_some_and(|polled_at| polled_at > now)
        ) {
            self.remaining = self.capacity;
        }
    }

    fn idle(&mut self, _now: Time) {
        self.pending = false;
        mutate!("core-server-polling-idle", self.remaining = Work::ZERO);
    }

    fn charge(&mut self, _now: Time, used: Work) {
        self.remaining = self.remaining.checked_sub(used).expect("no more than the budget");
    }

    fn exhausted(&mut self, _now: Time) {}

    fn refill(&mut self, now: Time) {
        self.polled_at = Some(now);
        self.remaining = mutate!(
            "core-server-polling-poll",
            if self.pending { self.capacity } else { Work::ZERO },
            self.capacity
        );
        self.deadline = self.next + self.relative_deadline;
        self.next += self.period;
    }

    fn budget(&self, _now: Time) -> Work {
        self.remaining
    }

    fn next_refill(&self, _now: Time) -> Option<Time> {
        Some(self.next)
    }

    fn deadline(&self) -> Time {
        self.deadline
    }
}
