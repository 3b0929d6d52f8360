//! Constant bandwidth server, hard and soft.
//!
//! Abeni and Buttazzo, RTSS 1998. When it wakes, budget and deadline are kept if what is left fits
//! before the deadline at the reserved density (also if it only just does, as in Linux; the paper
//! sets them anew then), else they are set anew; with D < T the *revised* wake-up rule (Abeni,
//! Lipari, Parri and Sun, SAC 2015, as in Linux) cuts the budget to what the density allows
//! instead, and between D and T it waits. Exhausted, the soft server goes on with a deadline T
//! later; the hard one (`SCHED_DEADLINE`) waits for its next period.

use super::{Reservation, Server};
use crate::mutate;
use crate::{Span, Time, Work};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exhausted {
    Waits,
    Postpones,
}

#[derive(Debug)]
pub(crate) struct Cbs {
    full: Work,
    period: Span,
    relative_deadline: Span,
    /// ⌈Q·2^64/D⌉, computed once: there is no division while the machine runs.
    density: u128,
    when_exhausted: Exhausted,
    left: Work,
    deadline: Time,
    /// Waits for its first or its next period, which begins then.
    waits: Option<Time>,
}

impl Cbs {
    pub(crate) fn new(of: &Reservation, when_exhausted: Exhausted) -> Cbs {
        let relative_deadline = of.relative_deadline();
        let density =
            (u128::from(of.budget.as_ns()) << 64).div_ceil(u128::from(relative_deadline.as_ns()));
        Cbs {
            full: of.budget,
            period: of.period,
            relative_deadline,
            density,
            when_exhausted,
            left: of.budget,
            deadline: Time::ZERO + of.offset,
            waits: (!of.offset.is_zero()).then_some(Time::ZERO + of.offset),
        }
    }

    /// Whether `left` would ask for more than the reserved density until the deadline.
    fn is_too_much(&self, left: Work, laxity: Span) -> bool {
        mutate!(
            "core-server-cbs-fits",
            u128::from(left.as_ns()) * u128::from(self.relative_deadline.as_ns())
                > u128::from(laxity.as_ns()) * u128::from(self.full.as_ns()),
            u128::from(left.as_ns()) * u128::from(self.relative_deadline.as_ns())
                >= u128::from(laxity.as_ns()) * u128::from(self.full.as_ns())
        )
    }

    /// The most that is not: ⌊laxity·Q/D⌋.
    fn what_fits(&self, laxity: Span) -> Work {
        // The density was rounded up: with periods of seconds that may be one too much. So it is
        // looked at.
        let fits = Work::from_ns(((self.density * u128::from(laxity.as_ns())) >> 64) as u64);
        mutate!(
            "core-server-cbs-cut",
            if self.is_too_much(fits, laxity) { Work::from_ns(fits.as_ns() - 1) } else { fits },
            fits
        )
    }

    /// Where the period after the present one begins.
    fn next_period(&self) -> Time {
        let rest =
            self.period.checked_sub(self.relative_deadline).expect("no longer than the period");
        self.deadline.saturating_add(rest)
    }

    fn begin(&mut self, now: Time) {
        self.left = self.full;
        self.deadline = now + self.relative_deadline;
    }
}

impl Server for Cbs {
    fn wake(&mut self, now: Time) {
        if self.waits.is_some() {
            return;
        }
        // A budget of which nothing was used may as well begin now; a used one stays within its
        // period.
        let is_within = mutate!(
            "core-server-cbs-revised",
            mutate!(
                "core-server-cbs-unused",
                self.relative_deadline < self.period && self.left < self.full,
                self.relative_deadline < self.period
            ),
            false
        );
        if now >= self.deadline {
            if is_within
                && mutate!(
                    "core-server-cbs-between",
                    now < self.next_period(),
                    now > self.next_period()
                )
            {
                self.waits = Some(self.next_period());
            } else {
                self.begin(now);
            }
        } else {
            let laxity = self.deadline.since(now);
            if !self.is_too_much(mutate!("core-server-cbs-wake", self.left, Work::ZERO), laxity) {
                return;
            }
            if is_within {
                self.left = self.what_fits(laxity);
                self.waits = self.left.is_zero().then(|| self.next_period());
            } else {
                self.begin(now);
            }
        }
    }

    fn idle(&mut self, _now: Time) {}

    fn charge(&mut self, _now: Time, used: Work) {
        self.left = self.left.checked_sub(used).expect("no more than the budget");
        // There is no instant at which a soft server is out of budget.
        mutate!(
            "core-server-cbs-hard",
            if self.left.is_zero() && self.when_exhausted == Exhausted::Postpones {
                self.left = self.full;
                // However far away: a small budget with a long period goes through centuries in a
                // second.
                mutate!(
                    "core-server-cbs-soft",
                    {
                        mutate!(
                            "core-far-deadline",
                            self.deadline = self.deadline.saturating_add(self.period),
                            self.deadline += self.period
                        );
                    },
                    {}
                );
            },
            if self.left.is_zero() {
                self.left = self.full;
                // However far away: a small budget with a long period goes through centuries in a
                // second.
                self.deadline = self.deadline.saturating_add(self.period);
            }
        )
    }

    fn exhausted(&mut self, _now: Time) {
        self.waits = Some(self.next_period());
    }

    fn refill(&mut self, now: Time) {
        let Some(period) = self.waits.take() else { return };
        self.begin(period);
        // So late that all of it has passed: what was missed is lost, or it would come in one go.
        mutate!(
            "core-server-cbs-late",
            {
                if self.deadline < now {
                    self.begin(now);
                }
            },
            {}
        );
    }

    fn budget(&self, _now: Time) -> Work {
        if self.waits.is_some() { Work::ZERO } else { self.left }
    }

    fn next_refill(&self, _now: Time) -> Option<Time> {
        self.waits
    }

    fn deadline(&self) -> Time {
        self.deadline
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::Kind;

    #[test]
    fn l5_what_fits_is_rounded_down_whatever_the_lengths() {
        let mut seed = 1u64;
        let mut random = |below: u64| {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            1 + (seed >> 2) % below
        };
        for case in 0..20_000 {
            // Up to nanoseconds, or up to seventy years.
            let within = random(1 << (2 + case % 60));
            let (budget, laxity) = (random(within), random(within));
            let of = Reservation {
                deadline: Some(Span::from_ns(within)),
                ..Reservation::new(Kind::HardCbs, Work::from_ns(budget), Span::from_ns(within))
            };
            let exact = u128::from(laxity) * u128::from(budget) / u128::from(within);
            let said = Cbs::new(&of, Exhausted::Waits).what_fits(Span::from_ns(laxity));
            assert_eq!(u128::from(said.as_ns()), exact, "{laxity} of {budget} in {within}");
        }
    }
}
