//! Periods.
//!
//! Log-uniform: Emberson, Stafford and Davis, *Techniques for the Synthesis of Multiprocessor
//! Tasksets*, WATERS 2010: as many between 1 and 10 ms as between 10 and 100, in multiples of a
//! granularity. From a list, such as the periods that automotive software has, each is as likely as
//! the next.

use super::Impossible;
use super::math::{exp, ln};
use crate::dice::Dice;
use talea_core::Span;
use talea_core::mutate;

/// How periods are drawn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Periods {
    /// The logarithm uniform, rounded down to a multiple of the granularity.
    LogUniform {
        /// The least; a multiple of the granularity.
        min: Span,
        /// The largest; a multiple of the granularity.
        max: Span,
        /// Above zero.
        granularity: Span,
    },
    /// One of these.
    List(Vec<Span>),
}

/// The longest period: a float still holds every nanosecond of it.
const LONGEST: Span = Span::from_ns(1 << 52);

impl Periods {
    /// Whether there are such periods.
    pub(super) fn check(&self) -> Result<(), Impossible> {
        let longest = match self {
            Periods::List(list) => {
                if list.is_empty() || list.iter().any(|period| period.is_zero()) {
                    return Err(Impossible::NoPeriod);
                }
                list.iter().copied().max().unwrap_or(LONGEST)
            }
            &Periods::LogUniform { min, max, granularity } => {
                if granularity.is_zero() || min.is_zero() {
                    return Err(Impossible::NoPeriod);
                }
                if min > max {
                    return Err(Impossible::PeriodRange { min, max });
                }
                for limit in [min, max] {
                    if limit.as_ns() % granularity.as_ns() != 0 {
                        return Err(Impossible::Granularity { limit, granularity });
                    }
                }
                max
            }
        };
        if longest > LONGEST { Err(Impossible::PeriodTooLong(longest)) } else { Ok(()) }
    }

    /// A period.
    pub(super) fn draw(&self, dice: &mut Dice) -> Span {
        match self {
            Periods::List(list) => list[dice.below(list.len() as u64) as usize],
            &Periods::LogUniform { min, max, granularity } => {
                let step = granularity.as_ns();
                // The largest has a whole granularity to itself, as the others have.
                let (low, high) = (ln(min.as_ns() as f64), ln((max.as_ns() + step) as f64));
                let drawn = mutate!(
                    "generate-periods",
                    exp(low + (high - low) * dice.unit()),
                    exp(low) + (exp(high) - exp(low)) * dice.unit()
                ) as u64;
                Span::from_ns((drawn / step * step).clamp(min.as_ns(), max.as_ns()))
            }
        }
    }
}
