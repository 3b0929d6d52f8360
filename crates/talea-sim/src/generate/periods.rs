//! Distributions of periods.
//!
//! Log-uniform: Emberson, Stafford and Davis, *Techniques for the Synthesis of Multiprocessor
//! Tasksets*, WATERS 2010. The periods between 1 and 10 ms are as many as between 10 and 100 ms.
//! All are multiples of a granularity. List: uniform over given periods, such as those of
//! automotive software.

use super::GenerationError;
use super::math::{exp, ln};
use crate::rng::Rng;
use talea_core::Span;
use talea_core::mutate;

/// Distribution of periods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Periods {
    /// Uniform in the logarithm, rounded down to a multiple of the granularity.
    LogUniform {
        /// Shortest period; a multiple of the granularity.
        min: Span,
        /// Longest period; a multiple of the granularity.
        max: Span,
        /// Granularity, above zero.
        granularity: Span,
    },
    /// Uniform over the periods of this list.
    List(Vec<Span>),
}

/// Maximum period. A float represents each nanosecond up to this period.
const MAX_PERIOD: Span = Span::from_ns(1 << 52);

impl Periods {
    /// Checks that the distribution is valid.
    pub(super) fn check(&self) -> Result<(), GenerationError> {
        let longest = match self {
            Periods::List(list) => {
                if list.is_empty() || list.iter().any(|period| period.is_zero()) {
                    return Err(GenerationError::NoPeriod);
                }
                list.iter().copied().max().unwrap_or(MAX_PERIOD)
            }
            &Periods::LogUniform { min, max, granularity } => {
                if granularity.is_zero() || min.is_zero() {
                    return Err(GenerationError::NoPeriod);
                }
                if min > max {
                    return Err(GenerationError::PeriodRange { min, max });
                }
                for limit in [min, max] {
                    if limit.as_ns() % granularity.as_ns() != 0 {
                        return Err(GenerationError::Granularity { limit, granularity });
                    }
                }
                max
            }
        };
        if longest > MAX_PERIOD { Err(GenerationError::PeriodTooLong(longest)) } else { Ok(()) }
    }

    /// Generates a period.
    pub(super) fn draw(&self, rng: &mut Rng) -> Span {
        match self {
            Periods::List(list) => list[rng.below(list.len() as u64) as usize],
            &Periods::LogUniform { min, max, granularity } => {
                let step = granularity.as_ns();
                // The longest period has a whole granularity to itself, like the others.
                let (low, high) = (ln(min.as_ns() as f64), ln((max.as_ns() + step) as f64));
                let drawn = mutate!(
                    "generate-periods",
                    exp(low + (high - low) * rng.unit()),
                    exp(low) + (exp(high) - exp(low)) * rng.unit()
                ) as u64;
                Span::from_ns((drawn / step * step).clamp(min.as_ns(), max.as_ns()))
            }
        }
    }
}
