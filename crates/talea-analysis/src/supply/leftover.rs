//! What more urgent work leaves of a supply: a supply again, for those below.
//!
//! The residual service of a fixed-priority server, as in real-time calculus (L. Thiele, S.
//! Chakraborty and M. Naedele, "Real-time calculus for scheduling hard real-time systems", ISCAS
//! 2000, equation 6), for the busy windows of those below: in a window t that begins when nothing
//! above is pending, and in which somebody below waits throughout, those below have sbf(t) − Σ ⌈(t
//! + J)/T⌉·C, and what they had once they keep: the least t with sbf(t) ≥ w + Σ … surely gives them
//! w.
//!
//! Assumptions: 1. `above` is served before those below, and takes no more than its curves say; 2.
//! preemptive: those above never wait for those below.

use super::curve::{Curve, all_within};
use super::{Rate, Supply};
use crate::uni::HORIZON;
use talea_core::mutate;
use talea_core::{Span, Work};

/// `supply` less what `above` takes.
#[derive(Clone, Copy, Debug)]
pub struct Leftover<'a, S> {
    supply: S,
    above: &'a [Curve],
    rounds: u64,
}

impl<'a, S: Supply> Leftover<'a, S> {
    /// What `above` leaves of `supply`. A question that would take more than `rounds`
    /// approximations, each of which looks at all of `above`, is answered with `None`.
    pub fn new(supply: S, above: &'a [Curve], rounds: u64) -> Leftover<'a, S> {
        Leftover { supply, above, rounds }
    }
}

impl<S: Supply> Supply for Leftover<'_, S> {
    fn time_for(&self, work: Work) -> Option<Span> {
        if work.is_zero() {
            return Some(Span::ZERO);
        }
        let mut window = 1;
        for _ in 0..self.rounds {
            let asked = work
                .as_ns()
                .saturating_add(all_within(self.above, mutate!("supply-leftover", window, 1)));
            let next = self.supply.time_for(Work::from_ns(asked.min(HORIZON + 1)))?.as_ns();
            if next <= window {
                return Some(Span::from_ns(window));
            }
            window = next;
        }
        None
    }

    /// Not known in general.
    fn rate(&self) -> Option<Rate> {
        None
    }
}
