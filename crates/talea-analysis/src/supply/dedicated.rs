//! A CPU of one's own: it always serves, sbf(t) = t.

use super::{Rate, Reached, Supply, span};
use talea_core::{Span, Work};

/// A CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dedicated;

impl Supply for Dedicated {
    fn time_for(&self, work: Work) -> Option<Span> {
        span(work.as_ns().into())
    }

    fn least(&self, window: Span) -> Work {
        Work::from_ns(window.as_ns())
    }

    fn rate(&self) -> Option<Rate> {
        Some(Rate { work: Work::from_ns(1), every: Span::from_ns(1) })
    }

    fn reached(&self) -> Reached {
        Reached::ByOnePattern
    }
}
