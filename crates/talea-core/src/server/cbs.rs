//! Constant bandwidth server, hard and soft.
//!
//! Abeni and Buttazzo, RTSS 1998.
//!
//! | event | D = T, or budget unused | D < T and budget partly used |
//! | --- | --- | --- |
//! | wake-up, budget fits the density | keep budget and deadline | keep budget and deadline |
//! | wake-up, budget does not fit | full budget, deadline D from now | cut budget to the density |
//! | wake-up between D and T | full budget, deadline D from now | throttle until the next period |
//! | exhausted, soft | full budget, deadline T later | full budget, deadline T later |
//! | exhausted, hard | throttle until the next period | throttle until the next period |
//! | exhausted, hard, after the start of the next period | start that period at once, as in Linux | start that period at once |
//!
//! The budget *fits* if the remaining budget can be consumed before the deadline at the reserved
//! density Q/D. Equality fits, as in Linux; on equality the paper resets budget and deadline. The
//! right column is the *revised* wake-up rule (Abeni, Lipari, Parri and Sun, SAC 2015, as in
//! Linux). The hard server is `SCHED_DEADLINE`.

use super::{Reservation, Server};
use crate::mutate;
use crate::{Span, Time, Work};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Overrun {
    Throttle,
    PostponeDeadline,
}

#[derive(Debug)]
pub(crate) struct Cbs {
    capacity: Work,
    period: Span,
    relative_deadline: Span,
    /// Density ⌈Q·2^64/D⌉, computed once, because the engine does not divide while it runs.
    density: u128,
    on_overrun: Overrun,
    remaining: Work,
    deadline: Time,
    /// End of throttling, which is the start of the first or the next period.
    throttled_until: Option<Time>,
}

impl Cbs {
    pub(crate) fn new(of: &Reservation, on_overrun: Overrun) -> Cbs {
        let relative_deadline = of.relative_deadline();
        let density =
            (u128::from(of.budget.as_ns()) << 64).div_ceil(u128::from(relative_deadline.as_ns()));
        Cbs {
            capacity: of.budget,
            period: of.period,
            relative_deadline,
            density,
            on_overrun,
            remaining: of.budget,
            deadline: Time::ZERO + of.offset,
            throttled_until: (!of.offset.is_zero()).then_some(Time::ZERO + of.offset),
        }
    }

    /// Whether `remaining` exceeds the reserved density until the deadline.
    fn exceeds_density(&self, remaining: Work, laxity: Span) -> bool {
        mutate!(
            "core-server-cbs-fits",
            u128::from(remaining.as_ns()) * u128::from(self.relative_deadline.as_ns())
                > u128::from(laxity.as_ns()) * u128::from(self.capacity.as_ns()),
            u128::from(remaining.as_ns()) * u128::from(self.relative_deadline.as_ns())
                >= u128::from(laxity.as_ns()) * u128::from(self.capacity.as_ns())
        )
    }

    /// Returns the largest budget that fits: ⌊laxity·Q/D⌋.
    fn fitting_budget(&self, laxity: Span) -> Work {
        // The density is rounded up, so with periods of seconds the result may be one too large. It
        // is checked.
        let fits = Work::from_ns(((self.density * u128::from(laxity.as_ns())) >> 64) as u64);
        mutate!(
            "core-server-cbs-cut",
            if self.exceeds_density(fits, laxity) { Work::from_ns(fits.as_ns() - 1) } else { fits },
            fits
        )
    }

    /// Returns the start of the next period.
    fn next_period(&self) -> Time {
        let rest =
            self.period.checked_sub(self.relative_deadline).expect("D is at most the period");
        self.deadline.saturating_add(rest)
    }

    fn start_period(&mut self, now: Time) {
        self.remaining = self.capacity;
        self.deadline = now + self.relative_deadline;
    }
}

impl Server for Cbs {
    fn wake(&mut self, now: Time) {
        if self.throttled_until.is_some() {
            return;
        }
        // An unused budget may start a new period now; a used budget stays within its period.
        let is_used = mutate!("core-server-cbs-unused", self.remaining < self.capacity, true);
        let is_short = self.relative_deadline < self.period;
        let is_within = mutate!("core-server-cbs-revised", is_short && is_used, false);
        if now >= self.deadline {
            if is_within
                && mutate!(
                    "core-server-cbs-between",
                    now < self.next_period(),
                    now > self.next_period()
                )
            {
                self.throttled_until = Some(self.next_period());
            } else {
                self.start_period(now);
            }
        } else {
            let laxity = self.deadline.since(now);
            if !self.exceeds_density(
                mutate!("core-server-cbs-wake", self.remaining, Work::ZERO),
                laxity,
            ) {
                return;
            }
            if is_within {
                self.remaining = self.fitting_budget(laxity);
                self.throttled_until = self.remaining.is_zero().then(|| self.next_period());
            } else {
                self.start_period(now);
            }
        }
    }

    fn idle(&mut self, _now: Time) {}

    fn charge(&mut self, now: Time, used: Work) {
        self.remaining = self.remaining.checked_sub(used).expect("no more than the budget");
        // Without a pause: a polling server above would lose its budget in it.
        if self.remaining.is_zero()
            && mutate!("core-server-cbs-behind", self.next_period() < now, false)
            && self.on_overrun == Overrun::Throttle
        {
            self.throttled_until = Some(self.next_period());
            self.refill(now);
        }
        // A soft server is never out of budget.
        let is_soft = self.on_overrun == Overrun::PostponeDeadline;
        if self.remaining.is_zero() && mutate!("core-server-cbs-hard", is_soft, true) {
            self.remaining = self.capacity;
            // Saturates: a small budget with a long period advances by centuries within a second.
            let next = mutate!(
                "core-far-deadline",
                self.deadline.saturating_add(self.period),
                self.deadline + self.period
            );
            mutate!("core-server-cbs-soft", self.deadline = next);
        }
    }

    fn exhausted(&mut self, _now: Time) {
        self.throttled_until = Some(self.next_period());
    }

    fn refill(&mut self, now: Time) {
        let Some(period) = self.throttled_until.take() else { return };
        self.start_period(period);
        // The whole period has passed. The missed budget is lost; otherwise it would accumulate.
        mutate!(
            "core-server-cbs-late",
            if self.deadline < now {
                self.start_period(now);
            }
        );
    }

    fn budget(&self, _now: Time) -> Work {
        if self.throttled_until.is_some() { Work::ZERO } else { self.remaining }
    }

    fn next_refill(&self, _now: Time) -> Option<Time> {
        self.throttled_until
    }

    fn deadline(&self) -> Time {
        self.deadline
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;
    use crate::server::ServerKind;

    #[test]
    fn l5_the_fitting_budget_is_rounded_down_for_any_lengths() {
        let mut rng = Rng::new(1);
        let mut random = |below: u64| 1 + rng.below(below);
        for case in 0..20_000 {
            // From nanoseconds up to seventy years.
            let within = random(1 << (2 + case % 60));
            let (budget, laxity) = (random(within), random(within));
            let of = Reservation {
                deadline: Some(Span::from_ns(within)),
                ..Reservation::new(
                    ServerKind::HardCbs,
                    Work::from_ns(budget),
                    Span::from_ns(within),
                )
            };
            let exact = u128::from(laxity) * u128::from(budget) / u128::from(within);
            let fitting = Cbs::new(&of, Overrun::Throttle).fitting_budget(Span::from_ns(laxity));
            assert_eq!(u128::from(fitting.as_ns()), exact, "{laxity} of {budget} in {within}");
        }
    }
}
