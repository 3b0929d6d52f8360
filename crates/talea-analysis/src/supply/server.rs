//! What a server gives to its clients when it can be served itself.
//!
//! *Schedulable* means here: whenever Q is to be had of it, the level at which the server stands
//! gives Q within R ≤ T, where R is what [`super::Leftover`] says at its level, or D under EDF
//! where all deadlines of its level are met. **Nothing below holds without that**: a server that
//! does not get its budget gives none (the trap of analyses that take the budget for granted).
//! Refills follow docs/model.md, section 6.
//!
//! | server | from when nothing is left until the next budget may be used, δ | because |
//! | --- | --- | --- |
//! | periodic, deferrable | T − Q | used up at once, and back with the next period |
//! | sporadic | T − Q | each piece comes back T after it was taken up, and the first of Q was taken up at least Q ago, for all of Q has been used since; pieces that are delayed for want of room still end T after the last use |
//! | hard CBS | T − Q | the next period begins T after the budget; what a wake-up cuts (D < T) is y − ⌊yQ/D⌋ ≤ D − Q of the time y to the deadline, and no longer to wait |
//! | polling | T − 1 | whoever comes just after the poll waits for the next |
//!
//! Whoever comes before the first period begins waits for that, if it is longer than δ.
//!
//! A window in which clients wait throughout then has: nothing for δ, then Q in every T, each
//! within R of when it may be used. So a blackout of δ + R − Q, then Q at the beginning of every T
//! ([`Server`]): Γ where R = T and δ = T − Q (I. Shin and I. Lee, RTSS 2003), Ω with Δ = R
//! otherwise (A. Easwaran et al., RTSS 2007).
//!
//! *A deferrable or polling budget that is overwritten* by the next refill is lost; but only the
//! first in a window can be, when clients came so late that R reached beyond the period. They then
//! had budget throughout: what they get by then is at least T − x − (R − Q) if they came x into the
//! period, and so the pattern above is still met from the refill on.
//!
//! [`Inside`] is tighter where the supply at the server's level is known as a whole: the last
//! budget waits only as long as what it needs takes, not R (R. I. Davis and A. Burns, "Hierarchical
//! fixed priority pre-emptive scheduling", RTSS 2005, equations 9 and 10): for w and k = ⌈w/Q⌉ − 1
//! full budgets before the last one
//!
//! > time_for(w) = δ + k·T + level.time_for(w − k·Q).
//!
//! It presumes that the level is superadditive in its inverse: what fits into R ≤ T does so again
//! from there on; so it is for what is left by tasks of constrained interference
//! ([`super::Curve`]), whose steps do not add up to more when a window is cut.
//!
//! *A soft CBS* never waits: in its level it is a group of its clients. *From outside*: no supply
//! is known.

use super::pulse::{self, Pulse};
use super::{Rate, Supply};
use talea_core::mutate;
use talea_core::server::{Kind, Reservation};
use talea_core::{Span, Work};

/// δ of the table above, or the offset of the first period where that is longer; `None` where no
/// supply is known.
pub fn wait(of: &Reservation) -> Option<Span> {
    let (budget, period) = (of.budget.as_ns(), of.period.as_ns());
    let wait = match of.kind {
        Kind::Polling => period.saturating_sub(mutate!("supply-polling", 1, budget)),
        Kind::Deferrable | Kind::Sporadic | Kind::HardCbs => period.saturating_sub(budget),
        Kind::SoftCbs | Kind::Custom { .. } => return None,
    };
    Some(of.offset.max(Span::from_ns(wait)))
}

/// What the clients of a server have that is served within some time of when it may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Server(Pulse);

impl Server {
    /// `None` where no supply is known: `within` is above the period or below the budget, or the
    /// kind promises nothing.
    ///
    /// # Panics
    /// Unless the budget is at most the period, and there is a period.
    pub fn new(of: &Reservation, within: Span) -> Option<Server> {
        pulse::check(of.budget, of.period, of.period);
        let late = within.as_ns().checked_sub(of.budget.as_ns())?;
        if within > of.period {
            return None;
        }
        let blackout = wait(of)? + Span::from_ns(late);
        Some(Server(Pulse { budget: of.budget, period: of.period, blackout }))
    }
}

impl Supply for Server {
    fn time_for(&self, work: Work) -> Option<Span> {
        self.0.time_for(work)
    }
    fn least(&self, window: Span) -> Work {
        self.0.least(window)
    }
    fn rate(&self) -> Option<Rate> {
        Some(self.0.rate())
    }
}

/// The same, with the supply at the server's level as a whole.
#[derive(Clone, Copy, Debug)]
pub struct Inside<S> {
    budget: Work,
    period: Span,
    wait: Span,
    level: S,
}

impl<S: Supply> Inside<S> {
    /// `None` where no supply is known: `level` does not give the budget within the period, or the
    /// kind promises nothing.
    pub fn new(of: &Reservation, level: S) -> Option<Inside<S>> {
        let wait = wait(of)?;
        let within = level.time_for(of.budget)?;
        let is_served = within <= of.period && !of.budget.is_zero();
        is_served.then_some(Inside { budget: of.budget, period: of.period, wait, level })
    }

    /// The same where it is known that the budget is served within the period.
    pub(crate) fn served(of: &Reservation, level: S) -> Option<Inside<S>> {
        Some(Inside { budget: of.budget, period: of.period, wait: wait(of)?, level })
    }
}

impl<S: Supply> Supply for Inside<S> {
    fn time_for(&self, work: Work) -> Option<Span> {
        if work.is_zero() {
            return Some(Span::ZERO);
        }
        let (work, budget) = (work.as_ns(), self.budget.as_ns());
        let before = (work - 1) / budget;
        let last = self.level.time_for(Work::from_ns(work - before * budget))?;
        let waited = u128::from(before) * u128::from(self.period.as_ns());
        super::span(u128::from(self.wait.as_ns()) + waited + u128::from(last.as_ns()))
    }

    fn rate(&self) -> Option<Rate> {
        Some(Rate { work: self.budget, every: self.period })
    }
}
