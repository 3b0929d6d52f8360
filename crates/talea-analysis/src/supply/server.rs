//! Supply of a server to its clients, if the server itself receives its budget.
//!
//! *Schedulable* means here: whenever the server has budget Q, its level supplies Q within R ≤ T. R
//! is the value of [`super::Leftover`] at the level, or D under EDF if all deadlines of the level
//! are met. **All results below require this**: a server that does not receive its budget supplies
//! none. Refills follow docs/model.md, section 6.
//!
//! δ is the longest time without budget, from its exhaustion until the next budget is available:
//!
//! - Deferrable: δ = T − Q. The budget is consumed at once, and refilled with the next period.
//! - Sporadic: δ = T − Q. Each refill is available T after its budget was first used. The first
//!   part of Q was used at least Q ago, because all of Q has been consumed since. Refills that are
//!   delayed by the limit on their number still occur within T of the last use.
//! - Hard CBS: δ = T − Q. The next period begins T after the budget. A wake-up (D < T) cuts y −
//!   ⌊yQ/D⌋ ≤ D − Q of the time y to the deadline, and the wait is no longer.
//! - Polling: δ = T − 1. A client that arrives just after the poll waits for the next poll.
//!
//! A client that arrives before the first period waits for its beginning, if that wait is longer
//! than δ.
//!
//! A window in which clients wait throughout has no supply for δ. Then it has Q in every T, each
//! within R of its availability. So the supply is a blackout of δ + R − Q, then Q at the beginning
//! of every T ([`Server`]). This is Γ if R = T and δ = T − Q (I. Shin and I. Lee, RTSS 2003),
//! otherwise Ω with Δ = R (A. Easwaran et al., RTSS 2007).
//!
//! *A deferrable or polling budget that is overwritten* by the next refill is lost. Only the first
//! budget in a window can be lost, and only if clients arrived so late that R extended beyond the
//! period. The clients then had budget throughout. If the clients arrived x into the period, their
//! supply until the refill is at least T − x − (R − Q). So the pattern above still holds from the
//! refill on.
//!
//! [`NestedServer`] is tighter if the whole supply at the server's level is known. The last budget
//! waits only as long as its own demand takes, not R (R. I. Davis and A. Burns, "Hierarchical fixed
//! priority pre-emptive scheduling", RTSS 2005, equations 9 and 10). For w and k = ⌈w/Q⌉ − 1 full
//! budgets before the last budget
//!
//! > time_for(w) = δ + k·T + level.time_for(w − k·Q).
//!
//! The equation presumes that the inverse supply of the level is superadditive: work that once fits
//! into R ≤ T fits again at any later time. This holds below tasks of constrained interference
//! ([`super::InterferenceCurve`]), whose steps do not add up to more if a window is divided.
//!
//! *A soft CBS* never waits: in its level it counts as its clients. *Custom servers*: no supply is
//! known.

use super::pulse::{self, Pulse};
use super::{Rate, Supply};
use talea_core::mutate;
use talea_core::server::{Reservation, ServerKind};
use talea_core::{Span, Work};

/// Returns δ, or the offset of the first period if that is longer; `None` if no supply is known.
pub fn max_wait(of: &Reservation) -> Option<Span> {
    let (budget, period) = (of.budget.as_ns(), of.period.as_ns());
    let wait = match of.kind {
        ServerKind::Polling => period.saturating_sub(mutate!("supply-polling", 1, budget)),
        ServerKind::Deferrable | ServerKind::Sporadic | ServerKind::HardCbs => {
            period.saturating_sub(budget)
        }
        ServerKind::SoftCbs | ServerKind::Custom { .. } => return None,
    };
    Some(of.offset.max(Span::from_ns(wait)))
}

/// Supply of a server that receives its budget within a known time of its availability.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Server(Pulse);

impl Server {
    /// Creates the supply of a server that receives its budget within `within`. The result is
    /// `None` if no supply is known: `within` is above the period or below the budget, or the kind
    /// guarantees nothing.
    ///
    /// # Panics
    /// Unless the budget is at most the period, and the period is positive.
    pub fn new(of: &Reservation, within: Span) -> Option<Server> {
        pulse::check(of.budget, of.period, of.period);
        let late = within.as_ns().checked_sub(of.budget.as_ns())?;
        if within > of.period {
            return None;
        }
        let blackout = max_wait(of)? + Span::from_ns(late);
        Some(Server(Pulse { budget: of.budget, period: of.period, blackout }))
    }
}

impl Supply for Server {
    fn time_for(&self, work: Work) -> Option<Span> {
        self.0.time_for(work)
    }
    fn sbf(&self, window: Span) -> Work {
        self.0.sbf(window)
    }
    fn rate(&self) -> Option<Rate> {
        Some(self.0.rate())
    }
}

/// Supply of a server on a known supply at its level.
#[derive(Clone, Copy, Debug)]
pub struct NestedServer<S> {
    budget: Work,
    period: Span,
    wait: Span,
    level: S,
}

impl<S: Supply> NestedServer<S> {
    /// Creates the supply of a server on `level`. The result is `None` if no supply is known:
    /// `level` does not supply the budget within the period, or the kind guarantees nothing.
    pub fn new(of: &Reservation, level: S) -> Option<NestedServer<S>> {
        let wait = max_wait(of)?;
        let within = level.time_for(of.budget)?;
        let is_served = within <= of.period && !of.budget.is_zero();
        is_served.then_some(NestedServer { budget: of.budget, period: of.period, wait, level })
    }

    /// Creates the supply of a server that is known to receive its budget within the period.
    pub(crate) fn served(of: &Reservation, level: S) -> Option<NestedServer<S>> {
        Some(NestedServer { budget: of.budget, period: of.period, wait: max_wait(of)?, level })
    }
}

impl<S: Supply> Supply for NestedServer<S> {
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
