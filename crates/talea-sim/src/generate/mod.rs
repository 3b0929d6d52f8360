//! Random task sets for experiments: utilisations of a given sum, periods, deadlines, graphs.
//!
//! Model: a set has utilisations ([`Method`]: one published algorithm per file), then periods, then
//! costs and deadlines. Utilisations are whole numbers of [`CPU`]'s parts with an exact total. A
//! cost is the task's share of its period, rounded down to whole nanoseconds and never zero. So the
//! utilisation of a set is lower than its total by less than 1 ns in each period. The utilisation
//! exceeds the total only by tasks with a share below one nanosecond.
//!
//! Invariant: the same [`Spec`], seed and number give the same set on every computer. The generator
//! uses integers, the four basic floating-point operations, which have one result, and functions
//! built from these operations. Floats serve the generation only; the results are integers.
//!
//! References: in the file of each algorithm.

#![allow(
    clippy::cast_precision_loss,
    reason = "drawn in floats; what is drawn are integers below 2^53"
)]

pub mod dag;
mod deadlines;
mod drs;
mod math;
mod periods;
mod randfixedsum;
mod round;
mod set;
mod shares;
#[cfg(test)]
mod tests;
mod uunifast;

pub use deadlines::Deadlines;
pub use periods::Periods;
pub use set::{Graphs, Node, Spec, Task, generate};
pub use shares::Shares;

use std::fmt;
use talea_core::Span;

/// One CPU, in the parts in which utilisations count.
pub const CPU: u64 = 1_000_000_000_000;
/// Maximum number of tasks of a set.
pub const TASKS_MAX: usize = 1_000;
/// Maximum total in CPUs. Up to this total, a float represents every part exactly.
pub const TOTAL_MAX: u64 = 1_024;

/// Algorithm that generates utilisations of a given sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Uniform over all vectors with the given sum. The algorithm rejects vectors outside the
    /// bounds and generates them again.
    UUniFastDiscard,
    /// Uniform over all vectors with the given sum within bounds that are equal for every task.
    RandFixedSum,
    /// Vectors within the bounds of each task; *not* uniform in general.
    Drs,
}

impl Method {
    /// All algorithms.
    pub const ALL: [Method; 3] = [Method::UUniFastDiscard, Method::RandFixedSum, Method::Drs];

    /// Returns the name in options.
    pub fn name(self) -> &'static str {
        match self {
            Method::UUniFastDiscard => "uunifast-discard",
            Method::RandFixedSum => "randfixedsum",
            Method::Drs => "drs",
        }
    }
}

/// Limits of a utilisation, in parts of a [`CPU`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Lower limit.
    pub min: u64,
    /// Upper limit.
    pub max: u64,
}

impl Bounds {
    /// Limits of one sequential task: at most one CPU.
    pub const ONE_CPU: Bounds = Bounds { min: 0, max: CPU };

    /// Whether the bounds of tasks differ.
    fn differ(bounds: &[Bounds]) -> bool {
        bounds.windows(2).any(|two| two[0] != two[1])
    }
}

/// Reason why a set cannot be generated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GenerationError {
    /// The number of tasks is not in 1..=[`TASKS_MAX`].
    Tasks(usize),
    /// The number of bounds differs from the number of tasks.
    BoundsCount {
        /// Number of given bounds.
        given: usize,
        /// Number of tasks.
        tasks: usize,
    },
    /// A lower bound exceeds its upper bound.
    Bounds(Bounds),
    /// The total utilization is outside the sums of the bounds, or above [`TOTAL_MAX`] CPUs. All
    /// values are in parts of a [`CPU`].
    Total {
        /// Requested total.
        total: u64,
        /// Sum of the lower bounds.
        least: u64,
        /// Sum of the upper bounds, at most [`TOTAL_MAX`] CPUs.
        most: u64,
    },
    /// The algorithm requires equal bounds for all tasks.
    Unequal(Method),
    /// All generated vectors were rejected.
    Unlikely {
        /// Algorithm that rejected them.
        method: Method,
        /// Number of generated vectors.
        tries: u32,
        /// Whether the bounds differ, so that an algorithm for equal bounds is no alternative.
        unequal: bool,
    },
    /// There is no period, or a period or the granularity has length zero.
    NoPeriod,
    /// The shortest period exceeds the longest.
    PeriodRange {
        /// Shortest period.
        min: Span,
        /// Longest period.
        max: Span,
    },
    /// A limit of the range is not a multiple of the granularity.
    Granularity {
        /// Limit that is no multiple.
        limit: Span,
        /// Granularity of periods.
        granularity: Span,
    },
    /// A period exceeds the maximum of 2^52 ns.
    PeriodTooLong(Span),
    /// The range of the number of nodes is empty, or not inside 1..=[`TASKS_MAX`].
    Nodes {
        /// Smallest number of nodes.
        min: usize,
        /// Largest number of nodes.
        max: usize,
    },
    /// A graph has no layers.
    Layers,
    /// A probability exceeds 1 000 thousandths.
    Probability(u32),
}

/// Formats `parts` of a [`CPU`] as a decimal.
pub fn decimal(parts: u64) -> String {
    let text = format!("{}.{:012}", parts / CPU, parts % CPU);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

impl fmt::Display for GenerationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GenerationError::Tasks(n) => write!(f, "a set has 1 to {TASKS_MAX} tasks, not {n}"),
            GenerationError::BoundsCount { given, tasks } => {
                write!(f, "there are {given} bounds for {tasks} tasks; give one, or one for each")
            }
            GenerationError::Bounds(Bounds { min, max }) => {
                write!(
                    f,
                    "no utilisation is at least {} and at most {}",
                    decimal(*min),
                    decimal(*max)
                )
            }
            GenerationError::Total { total, least, most } => write!(
                f,
                "utilisations within these bounds add up to {} at least and {} at most, not to {}",
                decimal(*least),
                decimal(*most),
                decimal(*total)
            ),
            GenerationError::Unequal(method) => write!(
                f,
                "{} requires the same bounds for every task; {} and {} accept bounds for each",
                method.name(),
                Method::Drs.name(),
                Method::UUniFastDiscard.name()
            ),
            GenerationError::Unlikely { method, tries, unequal } => {
                write!(
                    f,
                    "{} has generated {tries} vectors and all of them exceeded a bound; ",
                    method.name()
                )?;
                match (unequal, method) {
                    (false, _) => {
                        write!(f, "{} generates none that does", Method::RandFixedSum.name())
                    }
                    (true, Method::Drs) => f.write_str("choose wider bounds"),
                    (true, _) => write!(
                        f,
                        "{} accepts such bounds too and moves vectors inside, but is not uniform",
                        Method::Drs.name()
                    ),
                }
            }
            GenerationError::NoPeriod => {
                f.write_str("there is no period, or a period or the granularity is zero")
            }
            GenerationError::PeriodRange { min, max } => {
                write!(f, "no period is at least {min} and at most {max}")
            }
            GenerationError::Granularity { limit, granularity } => {
                write!(f, "{limit} is not a multiple of the granularity, {granularity}")
            }
            GenerationError::PeriodTooLong(period) => write!(f, "a period of {period} is too long"),
            GenerationError::Nodes { min, max } => {
                write!(f, "a graph has 1 to {TASKS_MAX} nodes, not {min} to {max}")
            }
            GenerationError::Layers => f.write_str("a graph needs at least one layer"),
            GenerationError::Probability(thousandths) => {
                write!(f, "a probability is at most 1, not {thousandths} thousandths")
            }
        }
    }
}

impl std::error::Error for GenerationError {}
