//! Supplies of one processor, with lower bounds, and the tests of tasks on a supply.
//!
//! A [`Supply`] guarantees work within any window of a given length, wherever the window begins:
//! the supply bound function sbf. The tests use its inverse, [`Supply::time_for`]: a job that needs
//! `w`, together with all interference before it, has completed after `time_for(w)`.
//!
//! | supply | file |
//! | --- | --- |
//! | dedicated CPU | [`dedicated`] |
//! | periodic resource Γ = (Π, Θ) | [`periodic_resource`] |
//! | explicit-deadline resource Ω = (Π, Θ, Δ) | [`explicit_deadline`] |
//! | bounded delay (α, Δ) | [`bounded_delay`] |
//! | slots of a partition table | [`table`] |
//! | server, for its clients | [`server`] |
//! | remaining supply below more urgent work | [`leftover`] |
//!
//! *Composition.* Two supplies are built on another supply: the remaining supply below more urgent
//! work ([`leftover`]), and a server on such a supply ([`server`]).
//!
//! *Range.* Every length is below 2^60 ([`crate::uni::MAX_PARAMETER_NS`]), and no time is above
//! 2^61 ([`crate::uni::HORIZON_NS`]). Products are formed in 128 bits. A value beyond the range is
//! `None`, never a wrapped number.

pub mod bounded_delay;
pub mod curve;
pub mod davis_burns;
pub mod dedicated;
pub mod edf;
pub mod explicit_deadline;
pub mod fp;
pub mod least_budget;
pub mod leftover;
pub mod periodic_resource;
mod pulse;
pub mod server;
pub mod table;

pub use bounded_delay::BoundedDelay;
pub use curve::InterferenceCurve;
pub use dedicated::Dedicated;
pub use explicit_deadline::ExplicitDeadline;
pub use leftover::Leftover;
pub use periodic_resource::PeriodicResource;
pub use server::{NestedServer, Server};
pub use table::Table;
use talea_core::mutate;

use crate::uni::HORIZON_NS;
use talea_core::{Span, Work};

/// Long-run supply: a window that is longer by `every` has exactly `work` more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Work in each interval of length `every`.
    pub work: Work,
    /// Length of the interval.
    pub every: Span,
}

/// Tightness of a supply bound, which determines the conclusion of a test whose demand exceeds the
/// supply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tightness {
    /// One pattern of supply attains the bound for all lengths at once: a worst-case response time
    /// occurs.
    ByOnePattern,
    /// Each length has a pattern that attains the bound: a single excessive demand occurs, but a
    /// response time depends on many lengths.
    ForEachLength,
    /// The supply may exceed the bound.
    Unknown,
}

/// Lower bound of the supply within any window of a given length.
///
/// Invariants: sbf(0) = 0; sbf grows by 0 or 1 with each nanosecond of the window; sbf(a + b) ≥
/// sbf(a) + sbf(b).
pub trait Supply {
    /// Returns the shortest window that is guaranteed to supply `work`; zero if `work` is zero. The
    /// result is `None` if the window is beyond [`HORIZON_NS`], or does not exist.
    fn time_for(&self, work: Work) -> Option<Span>;

    /// Returns sbf(`window`): the supply that any window of this length is guaranteed. The default
    /// implementation inverts [`Supply::time_for`].
    fn sbf(&self, window: Span) -> Work {
        let window = window.as_ns().min(HORIZON_NS);
        let fits = |work| {
            self.time_for(Work::from_ns(work)).is_some_and(|time: Span| time.as_ns() <= window)
        };
        // The largest value that fits is at most the window itself.
        let (mut fit, mut over) = (0, window + 1);
        while over - fit > 1 {
            let middle = fit + (over - fit) / 2;
            if fits(middle) { fit = middle } else { over = middle }
        }
        Work::from_ns(fit)
    }

    /// Returns the long-run rate; `None` if it is not known exactly.
    fn rate(&self) -> Option<Rate>;

    /// Returns the tightness of the bound.
    fn tightness(&self) -> Tightness {
        mutate!("supply-reached-server", Tightness::Unknown, Tightness::ForEachLength)
    }
}

impl<S: Supply + ?Sized> Supply for &S {
    fn time_for(&self, work: Work) -> Option<Span> {
        (**self).time_for(work)
    }
    fn sbf(&self, window: Span) -> Work {
        (**self).sbf(window)
    }
    fn rate(&self) -> Option<Rate> {
        (**self).rate()
    }
    fn tightness(&self) -> Tightness {
        (**self).tightness()
    }
}

/// Returns nanoseconds as a span; `None` beyond the horizon.
fn span(ns: u128) -> Option<Span> {
    u64::try_from(ns).ok().filter(|&ns| ns <= HORIZON_NS).map(Span::from_ns)
}
