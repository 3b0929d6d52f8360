//! Parameters that an application declares about a task.
//!
//! ReTiF (J. Systems Architecture 2021), section 3 and Table 3: an application declares any subset
//! of period, runtime, desired runtime, deadline and priority. An undeclared parameter is `None`,
//! never zero.

use crate::{Charge, Priority, Span, Work};

/// Declared parameters of a task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Params {
    /// T: distance between activations.
    pub period: Option<Span>,
    /// Q: CPU time that each activation needs.
    pub runtime: Option<Work>,
    /// Q^d: CPU time that each activation could use; at least `runtime`.
    pub desired: Option<Work>,
    /// D: relative deadline; `None` means the period.
    pub deadline: Option<Span>,
    /// P: static priority, 1..=99.
    pub priority: Option<Priority>,
}

impl Params {
    /// Returns D, or T if no deadline is declared (ReTiF section 3).
    pub fn deadline_or_period(&self) -> Option<Span> {
        self.deadline.or(self.period)
    }

    /// Returns min(T, D): the denominator of a task's density (ReTiF Eq. 1). The value that is
    /// declared, if only one is; `None` if neither is.
    pub fn density_span(&self) -> Option<Span> {
        match (self.period, self.deadline) {
            (Some(t), Some(d)) => Some(t.min(d)),
            (t, d) => t.or(d),
        }
    }

    /// Returns the charge of `runtime` for this task: Q / min(T, D) (ReTiF Eq. 1).
    ///
    /// The result is `None` if neither period nor deadline is declared, or if one of them is zero.
    pub fn charge_of(&self, runtime: Work) -> Option<Charge> {
        self.density_span().filter(|span| !span.is_zero()).map(|span| Charge::new(runtime, span))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn utilisation_is_measured_against_the_shorter_of_period_and_deadline() {
        let span = |ms: u64| Some(Span::from_ns(ms * 1_000_000));
        let params = |period, deadline| Params { period, deadline, ..Params::default() };
        assert_eq!(params(span(10), None).density_span(), span(10));
        assert_eq!(params(span(10), span(4)).density_span(), span(4));
        assert_eq!(params(span(10), span(40)).density_span(), span(10));
        assert_eq!(params(None, span(4)).density_span(), span(4));
        assert_eq!(params(None, None).density_span(), None);
        assert_eq!(params(None, None).charge_of(Work::from_ns(1)), None);
        assert_eq!(params(span(10), None).deadline_or_period(), span(10));
        let charge = params(span(10), span(4)).charge_of(Work::from_ns(1_000_000));
        assert_eq!(charge, Some(Charge::ratio(1, 4)));
    }
}
