//! Deferrable server: refilled at each period. The server keeps the remaining budget until the next
//! refill.
//!
//! Strosnider, Lehoczky and Sha, IEEE Trans. Computers 44(1), 1995. The server serves late requests
//! immediately. So it can interfere for up to 2Q in T + ε: late in one period and early in the next
//! (L5).

use super::{Reservation, Server};
use crate::mutate;
use crate::{Span, Time, Work};

#[derive(Debug)]
pub(crate) struct Deferrable {
    capacity: Work,
    period: Span,
    relative_deadline: Span,
    remaining: Work,
    next: Time,
    deadline: Time,
}

impl Deferrable {
    pub(crate) fn new(of: &Reservation) -> Deferrable {
        Deferrable {
            capacity: of.budget,
            period: of.period,
            relative_deadline: of.relative_deadline(),
            remaining: Work::ZERO,
            next: Time::ZERO + of.offset,
            deadline: Time::NEVER,
        }
    }
}

impl Server for Deferrable {
    fn wake(&mut self, _now: Time) {}

    fn idle(&mut self, _now: Time) {
        mutate!("core-server-deferrable-idle", {}, {
            self.remaining = Work::ZERO;
        });
    }

    fn charge(&mut self, _now: Time, used: Work) {
        self.remaining = self.remaining.checked_sub(used).expect("no more than the budget");
    }

    fn exhausted(&mut self, _now: Time) {}

    fn refill(&mut self, _now: Time) {
        mutate!(
            "core-server-deferrable-carry",
            self.remaining = self.capacity,
            self.remaining += self.capacity
        );
        mutate!(
            "core-server-deferrable-deadline",
            {
                self.deadline = self.next + self.relative_deadline;
                self.next += self.period;
            },
            {
                self.next += self.period;
                self.deadline = self.next + self.relative_deadline;
            }
        );
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
