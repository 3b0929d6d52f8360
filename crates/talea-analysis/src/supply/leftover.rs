//! Remaining supply below more urgent work.
//!
//! This is the residual service of a fixed-priority server for the busy windows of less urgent
//! work, as in real-time calculus (L. Thiele, S. Chakraborty and M. Naedele, "Real-time calculus
//! for scheduling hard real-time systems", ISCAS 2000, equation 6). Consider a window t that begins
//! when no more urgent work is pending, and in which less urgent work waits throughout. The
//! remaining supply is the maximum up to t of sbf(t) − Σ ⌈(t + J)/T⌉·C. So the least t with sbf(t)
//! ≥ w + Σ ⌈(t + J)/T⌉·C is guaranteed to supply w.
//!
//! Assumptions:
//! 1. The work `above` is served first and consumes no more than its curves.
//! 2. Scheduling is preemptive: more urgent work never waits for less urgent work.

use super::curve::{InterferenceCurve, all_within};
use super::{Rate, Supply};
use crate::uni::HORIZON_NS;
use talea_core::mutate;
use talea_core::{Span, Work};

/// `supply` less the interference of `above`.
#[derive(Clone, Copy, Debug)]
pub struct Leftover<'a, S> {
    supply: S,
    above: &'a [InterferenceCurve],
    rounds: u64,
}

impl<'a, S: Supply> Leftover<'a, S> {
    /// Creates the remaining supply of `supply` below `above`. A query that needs more than
    /// `rounds` iterations over all of `above` returns `None`.
    pub fn new(supply: S, above: &'a [InterferenceCurve], rounds: u64) -> Leftover<'a, S> {
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
            let next = self.supply.time_for(Work::from_ns(asked.min(HORIZON_NS + 1)))?.as_ns();
            if next <= window {
                return Some(Span::from_ns(window));
            }
            window = next;
        }
        None
    }

    /// Returns `None`: the rate is unknown in general.
    fn rate(&self) -> Option<Rate> {
        None
    }
}
