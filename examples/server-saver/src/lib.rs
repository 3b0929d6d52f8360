//! A server from outside: deferrable with a bonus. What is not used in one period is added to the
//! next, up to as much again.
//!
//! L3C (RTNS 2017), section 4.1, leaves reservation types of one's own to whoever needs them. This
//! one serves a client that is quiet for a while and then asks for more than usual. Promises Q in
//! each period to whoever waits at its begin; in return others must stand 3Q in a little more than
//! T, where a deferrable server disturbs them with 2Q.

use talea_core::server::{Reservation, Server};
use talea_core::{Time, Work};

#[derive(Debug)]
struct Saver {
    of: Reservation,
    left: Work,
    /// When the next period begins.
    next: Time,
    deadline: Time,
}

/// What a [`Registry`](talea_system::system::Registry) is given.
pub fn make(of: &Reservation) -> Box<dyn Server + Send> {
    Box::new(Saver {
        of: *of,
        left: Work::ZERO,
        next: Time::ZERO + of.offset,
        deadline: Time::NEVER,
    })
}

impl Server for Saver {
    fn wake(&mut self, _: Time) {}

    fn idle(&mut self, _: Time) {}

    fn charge(&mut self, _: Time, used: Work) {
        self.left = self.left.checked_sub(used).expect("no more than the budget");
    }

    fn exhausted(&mut self, _: Time) {}

    fn refill(&mut self, _: Time) {
        self.left = self.left.min(self.of.budget) + self.of.budget;
        self.deadline = self.next + self.of.relative_deadline();
        self.next += self.of.period;
    }

    fn budget(&self, _: Time) -> Work {
        self.left
    }

    fn next_refill(&self, _: Time) -> Option<Time> {
        Some(self.next)
    }

    fn deadline(&self) -> Time {
        self.deadline
    }
}
