//! Sporadic server with the corrected replenishments.
//!
//! Sprunt, Sha and Lehoczky, Real-Time Systems 1(1), 1989, as corrected by Stanovich, Baker, Wang
//! and González Harbour, RTAS 2010: every piece of budget carries the time from which it may be
//! used, a piece that is taken up comes back one period after *that* time, and a full list delays
//! budget instead of multiplying it. Towards others it behaves as a periodic task (Q, T). What
//! comes back so late that its deadline has passed (the CPU stood still, or the server was promised
//! what there was not) begins then: what was missed is lost, or it would come in one go.
//!
//! Invariants: the pieces always sum to Q; they are ordered by time and do not overlap.

use super::{Reservation, Server};
use crate::mutate;
use crate::{Span, Time, Work};

/// Pieces that the budget may be in at most (L3C's prototype and POSIX's `sched_ss_max_repl` bound
/// it too).
const PIECES: usize = 16;

#[derive(Clone, Copy, Debug)]
struct Piece {
    /// From when it may be used.
    at: Time,
    amount: Work,
}

#[derive(Debug)]
pub(crate) struct Sporadic {
    full: Work,
    period: Span,
    relative_deadline: Span,
    pieces: [Piece; PIECES],
    count: usize,
    /// Of the first piece, since it was taken up.
    used: Work,
    /// The first piece may be used.
    is_due: bool,
}

impl Sporadic {
    pub(crate) fn new(of: &Reservation) -> Sporadic {
        let first = Piece {
            at: mutate!("core-server-sporadic-offset", Time::ZERO + of.offset, Time::ZERO),
            amount: of.budget,
        };
        Sporadic {
            full: of.budget,
            period: of.period,
            relative_deadline: of.relative_deadline(),
            pieces: [first; PIECES],
            count: 1,
            used: Work::ZERO,
            is_due: false,
        }
    }

    fn check(&self) {
        debug_assert!((1..=PIECES).contains(&self.count));
        debug_assert_eq!(
            self.pieces[..self.count].iter().fold(Work::ZERO, |sum, piece| sum + piece.amount),
            self.full,
            "budget leaked"
        );
        debug_assert!(
            self.pieces[..self.count].windows(2).all(|two| end(two[0]) <= two[1].at),
            "{:?}",
            self.pieces
        );
    }

    fn remove_first(&mut self) -> Piece {
        let first = self.pieces[0];
        self.pieces.copy_within(1..self.count, 0);
        self.count -= 1;
        first
    }

    /// What was used of the first piece comes back one period after the time from which it could
    /// be. Only now, when the server has nothing more to run or the piece is gone: were it split at
    /// every preemption, its deadline would move with them.
    fn give_back(&mut self, now: Time) {
        let used = core::mem::take(&mut self.used);
        if used.is_zero() {
            return;
        }
        let first = &mut self.pieces[0];
        let back = Piece {
            at: mutate!("core-server-sporadic-late", first.at, now) + self.period,
            amount: used,
        };
        first.at += Span::from_ns(used.as_ns());
        first.amount = first.amount.checked_sub(used).expect("no more than the budget");
        let is_gone = first.amount.is_zero();
        if is_gone {
            self.remove_first();
        }
        self.add(back);
        if is_gone {
            // One that falls due at this very moment comes with the refills.
            self.is_due = self.pieces[0].at < now;
            self.forgo(now);
        }
        self.check();
    }

    /// Lets the first piece begin now if the time until which it was to be had has passed.
    fn forgo(&mut self, now: Time) {
        if mutate!(
            "core-server-sporadic-missed",
            self.deadline() < now,
            false && self.deadline() < now
        ) {
            self.pieces[0].at = now;
            self.merge();
        }
    }

    /// Lays pieces that touch the first into it.
    fn merge(&mut self) {
        while self.count > 1 && self.pieces[1].at <= end(self.pieces[0]) {
            let first = self.remove_first();
            self.pieces[0] = Piece { at: first.at, amount: first.amount + self.pieces[0].amount };
        }
    }

    fn add(&mut self, piece: Piece) {
        match self.pieces[..self.count].last_mut() {
            Some(last) if piece.at <= end(*last) => last.amount += piece.amount,
            Some(last) if self.count == PIECES => {
                // No room: the last piece waits for the new one. Late is safe, early is not.
                let at = Time::from_ns(piece.at.as_ns() - last.amount.as_ns());
                *last = Piece { at, amount: last.amount + piece.amount };
            }
            _ => {
                self.pieces[self.count] = piece;
                self.count += 1;
            }
        }
    }
}

/// Where a piece that is used from its start without a pause ends.
fn end(piece: Piece) -> Time {
    piece.at + Span::from_ns(piece.amount.as_ns())
}

impl Server for Sporadic {
    fn wake(&mut self, now: Time) {
        // Budget that nobody wanted before may be used from now on, and comes back a period after
        // now.
        if self.pieces[0].at < now {
            mutate!(
                "core-server-sporadic-wake",
                {
                    self.pieces[0].at = now;
                },
                {}
            );

            self.is_due = true;
            self.merge();
        }
        self.check();
    }

    fn idle(&mut self, now: Time) {
        self.give_back(now);
    }

    fn charge(&mut self, now: Time, used: Work) {
        self.used += used;
        assert!(self.used <= self.pieces[0].amount, "no more than the budget");
        if self.used == self.pieces[0].amount {
            self.give_back(now);
        }
    }

    fn exhausted(&mut self, _now: Time) {}

    fn refill(&mut self, now: Time) {
        self.is_due = self.pieces[0].at <= now;
        self.forgo(now);
    }

    fn budget(&self, _now: Time) -> Work {
        if !self.is_due {
            return Work::ZERO;
        }
        self.pieces[0].amount.checked_sub(self.used).expect("no more than the budget")
    }

    fn next_refill(&self, _now: Time) -> Option<Time> {
        (!self.is_due).then_some(self.pieces[0].at)
    }

    fn deadline(&self) -> Time {
        self.pieces[0].at + self.relative_deadline
    }
}
