//! One processor that serves now and then: what it supplies at least, and the tests of tasks that
//! live on that.
//!
//! A [`Supply`] promises work within any window of a given length, wherever the window begins: the
//! supply bound function sbf. Its inverse, [`Supply::time_for`], is what the tests ask: a job that
//! needs `w` together with all that comes before it has ended after `time_for(w)`.
//!
//! | supply | file |
//! | --- | --- |
//! | a CPU of one's own | [`dedicated`] |
//! | periodic resource Γ = (Π, Θ) | [`periodic_resource`] |
//! | explicit-deadline resource Ω = (Π, Θ, Δ) | [`explicit_deadline`] |
//! | bounded delay (α, Δ) | [`bounded_delay`] |
//! | the slots of a partition table | [`table`] |
//! | what a server gives to its clients | [`server`] |
//! | what more urgent work leaves | [`leftover`] |
//!
//! *Composition.* A supply of a supply: what is left by more urgent work ([`leftover`]), and what a
//! server that lives on that gives ([`server`]). Both are supplies again.
//!
//! *Range.* Every length is below 2^60 ([`crate::uni::LONGEST`]), no instant above 2^61
//! ([`crate::uni::HORIZON`]): products are formed in 128 bits, and what lies beyond is `None`,
//! never a wrapped number.

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
pub use curve::Curve;
pub use dedicated::Dedicated;
pub use explicit_deadline::ExplicitDeadline;
pub use leftover::Leftover;
pub use periodic_resource::PeriodicResource;
pub use server::{Inside, Server};
pub use table::Table;
use talea_core::mutate;

use crate::uni::HORIZON;
use talea_core::{Span, Work};

/// What is supplied in the long run: exactly `work` more in every window that is longer by `every`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Work.
    pub work: Work,
    /// Within this.
    pub every: Span,
}

/// Whether there are windows that supply no more than the bound says: what a test that asks for too
/// much may conclude.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reached {
    /// By one pattern for all lengths at once: a response time of the worst case happens.
    ByOnePattern,
    /// For each length by another one, perhaps: one demand that is too large is, but a response
    /// time asks for many lengths.
    ForEachLength,
    /// Not known: what is asked for beyond the bound may be there all the same.
    NotKnown,
}

/// The least that is supplied within any window of a length.
///
/// Invariants: sbf(0) = 0; sbf grows by 0 or 1 with each nanosecond of the window; sbf(a + b) ≥
/// sbf(a) + sbf(b).
pub trait Supply {
    /// The least window that surely supplies `work`; zero for none. `None` where that is beyond
    /// [`HORIZON`], or never.
    fn time_for(&self, work: Work) -> Option<Span>;

    /// sbf: what any window of this length supplies at least. By default the inverse of
    /// [`Supply::time_for`].
    fn least(&self, window: Span) -> Work {
        let window = window.as_ns().min(HORIZON);
        let fits = |work| {
            self.time_for(Work::from_ns(work)).is_some_and(|time: Span| time.as_ns() <= window)
        };
        // The largest that fits: no more than the window itself.
        let (mut fit, mut over) = (0, window + 1);
        while over - fit > 1 {
            let middle = fit + (over - fit) / 2;
            if fits(middle) { fit = middle } else { over = middle }
        }
        Work::from_ns(fit)
    }

    /// The long-run rate, where there is one that is known exactly.
    fn rate(&self) -> Option<Rate>;

    /// How tight the bound is.
    fn reached(&self) -> Reached {
        mutate!("supply-reached-server", Reached::NotKnown, Reached::ForEachLength)
    }
}

impl<S: Supply + ?Sized> Supply for &S {
    fn time_for(&self, work: Work) -> Option<Span> {
        (**self).time_for(work)
    }
    fn least(&self, window: Span) -> Work {
        (**self).least(window)
    }
    fn rate(&self) -> Option<Rate> {
        (**self).rate()
    }
    fn reached(&self) -> Reached {
        (**self).reached()
    }
}

/// A number of nanoseconds that is within the horizon.
fn span(ns: u128) -> Option<Span> {
    u64::try_from(ns).ok().filter(|&ns| ns <= HORIZON).map(Span::from_ns)
}
