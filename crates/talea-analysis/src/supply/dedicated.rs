//! Supply of a dedicated CPU, which always serves: sbf(t) = t.

use super::{Rate, Supply, Tightness, span};
use talea_core::{Span, Work};

/// Supply of a dedicated CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dedicated;

impl Supply for Dedicated {
    fn time_for(&self, work: Work) -> Option<Span> {
        span(work.as_ns().into())
    }

    fn sbf(&self, window: Span) -> Work {
        Work::from_ns(window.as_ns())
    }

    fn rate(&self) -> Option<Rate> {
        Some(Rate { work: Work::from_ns(1), every: Span::from_ns(1) })
    }

    fn tightness(&self) -> Tightness {
        Tightness::ByOnePattern
    }
}
