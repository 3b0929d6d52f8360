//! Interference curve: upper bound of the time that more urgent work consumes in any window in
//! which less urgent work waits.

use talea_core::mutate;
use talea_core::server::{Reservation, ServerKind};
use talea_core::{Span, Work};

/// Upper bound ⌈(t + jitter)/period⌉·cost of the work of one node within a window t. The window
/// begins when no work of the node is pending.
///
/// - Task: jitter J (Audsley et al., Software Engineering Journal 8(5), 1993).
/// - Polling server: jitter 0. The budget exists only from the poll on, so the server is a periodic
///   task (Q, T).
/// - Sporadic server: jitter 0. A refill is available T after the consumed budget became available,
///   and the window begins when no work is pending. Refills that are available then count as one
///   refill at the start of the window (Stanovich et al., RTAS 2010).
/// - Deferrable server: jitter T − Q. The server can be late in one period and early in the next
///   (Lehoczky, Sha and Strosnider, RTSS 1987).
/// - Hard CBS under fixed priorities: jitter T − Q. The budget kept at a wake-up is at most Q/T of
///   the time to its deadline. So the work never exceeds the line Q + (t − Q)·Q/T, on which the
///   steps of a deferrable server stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InterferenceCurve {
    /// Cost C or budget Q.
    pub cost: Work,
    /// Period T.
    pub period: Span,
    /// Jitter J.
    pub jitter: Span,
}

impl InterferenceCurve {
    /// Returns the curve of a server with a hard budget; `None` for a soft CBS or a custom server.
    pub fn of_server(of: &Reservation) -> Option<InterferenceCurve> {
        let (budget, period) = (of.budget, of.period);
        let late = Span::from_ns(period.as_ns().saturating_sub(budget.as_ns()));
        let jitter = match of.kind {
            ServerKind::Polling | ServerKind::Sporadic => Span::ZERO,
            ServerKind::Deferrable | ServerKind::HardCbs => {
                mutate!("supply-curve", late, Span::ZERO)
            }
            ServerKind::SoftCbs | ServerKind::Custom { .. } => return None,
        };
        Some(InterferenceCurve { cost: budget, period, jitter })
    }

    /// Returns the upper bound within a window of length `window`; saturates.
    #[inline]
    pub fn within(&self, window: u64) -> u64 {
        let jobs = (window.saturating_add(self.jitter.as_ns())).div_ceil(self.period.as_ns());
        jobs.saturating_mul(self.cost.as_ns())
    }
}

/// Returns the sum of the curves within a window of length `window`; saturates.
pub(crate) fn all_within(curves: &[InterferenceCurve], window: u64) -> u64 {
    curves.iter().fold(0u64, |sum, curve| sum.saturating_add(curve.within(window)))
}
