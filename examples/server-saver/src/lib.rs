//! An external server: a deferrable server that carries unused budget over. A refill adds the
//! budget Q to the unused budget, of which at most Q counts.
//!
//! L3C (RTNS 2017), section 4.1, permits custom reservation types. This server suits clients with
//! bursts of requests after idle periods.
//!
//! Guarantee: a client that is pending at the start of a period has at least the budget Q in that
//! period. Limit: the interference on other tasks reaches 3Q in little more than a period T; the
//! interference of a deferrable server reaches 2Q.

use talea_core::server::{Reservation, Server};
use talea_core::{Time, Work};

#[derive(Debug)]
struct Saver {
    reservation: Reservation,
    budget: Work,
    /// Start of the next period.
    next_refill: Time,
    deadline: Time,
}

/// Creates the server; constructor for a `talea_system::Registry`.
pub fn make(reservation: &Reservation) -> Box<dyn Server + Send> {
    Box::new(Saver {
        reservation: *reservation,
        budget: Work::ZERO,
        next_refill: Time::ZERO + reservation.offset,
        deadline: Time::NEVER,
    })
}

impl Server for Saver {
    fn wake(&mut self, _: Time) {}

    fn idle(&mut self, _: Time) {}

    fn charge(&mut self, _: Time, used: Work) {
        self.budget = self.budget.checked_sub(used).expect("at most the budget");
    }

    fn exhausted(&mut self, _: Time) {}

    fn refill(&mut self, _: Time) {
        self.budget = self.budget.min(self.reservation.budget) + self.reservation.budget;
        self.deadline = self.next_refill + self.reservation.relative_deadline();
        self.next_refill += self.reservation.period;
    }

    fn budget(&self, _: Time) -> Work {
        self.budget
    }

    fn next_refill(&self, _: Time) -> Option<Time> {
        Some(self.next_refill)
    }

    fn deadline(&self) -> Time {
        self.deadline
    }
}
