//! What something more urgent takes from those below it, in any window in which they wait.

use talea_core::mutate;
use talea_core::server::{Kind, Reservation};
use talea_core::{Span, Work};

/// At most ⌈(t + jitter)/period⌉·cost within a window t that begins when nothing of it is pending.
///
/// | who | jitter | because |
/// | --- | --- | --- |
/// | a task | J | Audsley et al., Software Engineering Journal 8(5), 1993 |
/// | a polling server | 0 | its budget exists only from the poll on: a periodic task (Q, T) |
/// | a sporadic server | 0 | a piece comes back T after it could be used, and the window begins when nothing pends: pieces that may be used then count as one from there on (Stanovich et al., RTAS 2010) |
/// | a deferrable server | T − Q | late in one period and early in the next (Lehoczky, Sha and Strosnider, RTSS 1987) |
/// | a hard CBS under fixed priorities | T − Q | what is kept at a wake-up is at most Q/T of the time to its deadline: never above the line Q + (t − Q)·Q/T, on which the deferrable server's steps stand |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Curve {
    /// C or Q.
    pub cost: Work,
    /// T.
    pub period: Span,
    /// J.
    pub jitter: Span,
}

impl Curve {
    /// Of a server with a hard budget; `None` for one that has none (a soft CBS), or from outside.
    pub fn of_server(of: &Reservation) -> Option<Curve> {
        let (budget, period) = (of.budget, of.period);
        let late = Span::from_ns(period.as_ns().saturating_sub(budget.as_ns()));
        let jitter = match of.kind {
            Kind::Polling | Kind::Sporadic => Span::ZERO,
            Kind::Deferrable | Kind::HardCbs => mutate!("supply-curve", late, Span::ZERO),
            Kind::SoftCbs | Kind::Custom { .. } => return None,
        };
        Some(Curve { cost: budget, period, jitter })
    }

    /// What it takes at most within a window of this length; saturates.
    #[inline]
    pub fn within(&self, window: u64) -> u64 {
        let jobs = (window.saturating_add(self.jitter.as_ns())).div_ceil(self.period.as_ns());
        jobs.saturating_mul(self.cost.as_ns())
    }
}

/// Σ; saturates.
pub(crate) fn all_within(curves: &[Curve], window: u64) -> u64 {
    curves.iter().fold(0u64, |sum, curve| sum.saturating_add(curve.within(window)))
}
