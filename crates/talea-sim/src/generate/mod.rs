//! Random task sets, as the field's experiments are made of: utilisations of a given sum, periods,
//! deadlines, graphs.
//!
//! Model: a set is utilisations ([`Method`]: one published algorithm a file), then periods, then
//! costs and deadlines. Utilisations are whole numbers of [`CPU`]'s parts and add up to the total
//! exactly; a cost is its share of its period, rounded down to whole nanoseconds and never zero. So
//! the utilisation of a set is never above its total (but for tasks whose share is less than a
//! nanosecond), and below it by less than 1 ns in each period.
//!
//! Invariant: the same [`Spec`], seed and number give the same set on every machine: besides
//! integers only the four basic floating-point operations are used, which have one result, and
//! roots and logarithms are made of these. Floats are for drawing only; what is drawn is integers.
//!
//! References: with each algorithm.

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
#[cfg(test)]
mod tests;
mod uunifast;

pub use deadlines::Deadlines;
pub use periods::Periods;
pub use set::{Graphs, Node, Spec, Task, generate};

use crate::dice::Dice;
use std::fmt;
use talea_core::Span;

/// One CPU, in the parts that utilisations are counted in.
pub const CPU: u64 = 1_000_000_000_000;
/// Tasks of a set at most.
pub const TASKS_MAX: usize = 1_000;
/// The largest total, in CPUs: up to there a part is exact in a float.
pub const TOTAL_MAX: u64 = 1_024;

/// How utilisations of a given sum are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Uniform over all that add up; what breaks a bound is thrown away and drawn again.
    UUniFastDiscard,
    /// Uniform over all that add up and keep bounds which are the same for every task.
    RandFixedSum,
    /// Keeps bounds of each task; *not* uniform in general.
    Drs,
}

impl Method {
    /// All of them.
    pub const ALL: [Method; 3] = [Method::UUniFastDiscard, Method::RandFixedSum, Method::Drs];

    /// As people write it.
    pub fn word(self) -> &'static str {
        match self {
            Method::UUniFastDiscard => "uunifast-discard",
            Method::RandFixedSum => "randfixedsum",
            Method::Drs => "drs",
        }
    }
}

/// Between what a utilisation lies, in parts of a [`CPU`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// At least.
    pub min: u64,
    /// At most.
    pub max: u64,
}

impl Bounds {
    /// What one sequential task can have.
    pub const ONE_CPU: Bounds = Bounds { min: 0, max: CPU };
}

/// Why there is no such set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Impossible {
    /// Not 1 to [`TASKS_MAX`] tasks.
    Tasks(usize),
    /// Not as many bounds as tasks.
    BoundsCount {
        /// Bounds that are given.
        given: usize,
        /// Tasks.
        tasks: usize,
    },
    /// A lower bound above its upper one.
    Bounds(Bounds),
    /// The bounds don't allow this total.
    Total {
        /// What is asked for.
        total: u64,
        /// The sum of the lower bounds.
        least: u64,
        /// The sum of the upper bounds.
        most: u64,
    },
    /// The algorithm knows only bounds that are the same for all tasks.
    Unequal(Method),
    /// So many vectors were drawn and none could be kept.
    Unlikely {
        /// Who gave up.
        method: Method,
        /// After how many.
        tries: u32,
        /// Whether the bounds differ, so that who needs the same for all is no way out.
        unequal: bool,
    },
    /// No period, or one of length zero.
    NoPeriod,
    /// The least period is above the largest.
    PeriodRange {
        /// The least.
        min: Span,
        /// The largest.
        max: Span,
    },
    /// A limit of the range is not a multiple of the granularity.
    Granularity {
        /// The limit.
        limit: Span,
        /// What it must be a multiple of.
        granularity: Span,
    },
    /// A period too long for its task's cost to be counted.
    PeriodTooLong(Span),
    /// Graphs without nodes, or with more than [`TASKS_MAX`].
    Nodes {
        /// The least.
        min: usize,
        /// The most.
        max: usize,
    },
    /// Graphs with no layer.
    Layers,
    /// A probability above 1 000 thousandths.
    Probability(u32),
}

/// `parts` of a [`CPU`] as a decimal.
pub fn decimal(parts: u64) -> String {
    let text = format!("{}.{:012}", parts / CPU, parts % CPU);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

impl fmt::Display for Impossible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Impossible::Tasks(n) => write!(f, "a set has 1 to {TASKS_MAX} tasks, not {n}"),
            Impossible::BoundsCount { given, tasks } => {
                write!(f, "there are {given} bounds for {tasks} tasks; give one, or one for each")
            }
            Impossible::Bounds(Bounds { min, max }) => {
                write!(
                    f,
                    "no utilisation is at least {} and at most {}",
                    decimal(*min),
                    decimal(*max)
                )
            }
            Impossible::Total { total, least, most } => write!(
                f,
                "utilisations within these bounds add up to {} at least and {} at most, not to {}",
                decimal(*least),
                decimal(*most),
                decimal(*total)
            ),
            Impossible::Unequal(method) => write!(
                f,
                "{} needs the same bounds for every task; {} and {} take a bound for each",
                method.word(),
                Method::Drs.word(),
                Method::UUniFastDiscard.word()
            ),
            Impossible::Unlikely { method, tries, unequal } => {
                write!(
                    f,
                    "{} has drawn {tries} vectors and all of them broke a bound; ",
                    method.word()
                )?;
                match (unequal, method) {
                    (false, _) => write!(f, "{} draws none that does", Method::RandFixedSum.word()),
                    (true, Method::Drs) => f.write_str("choose wider bounds"),
                    (true, _) => write!(
                        f,
                        "{} takes such bounds too and moves vectors inside, but does not draw uniformly",
                        Method::Drs.word()
                    ),
                }
            }
            Impossible::NoPeriod => f.write_str("there is no period, or one of length zero"),
            Impossible::PeriodRange { min, max } => {
                write!(f, "no period is at least {min} and at most {max}")
            }
            Impossible::Granularity { limit, granularity } => {
                write!(f, "{limit} is not a multiple of the granularity, {granularity}")
            }
            Impossible::PeriodTooLong(period) => write!(f, "a period of {period} is too long"),
            Impossible::Nodes { min, max } => {
                write!(f, "a graph has 1 to {TASKS_MAX} nodes, not {min} to {max}")
            }
            Impossible::Layers => f.write_str("a graph of no layers has no nodes"),
            Impossible::Probability(thousandths) => {
                write!(f, "a probability is at most 1, not {thousandths} thousandths")
            }
        }
    }
}

impl std::error::Error for Impossible {}

/// A source of utilisation vectors: what can be checked and computed once has been.
#[derive(Clone, Debug)]
pub struct Shares {
    total: u64,
    bounds: Vec<Bounds>,
    how: How,
}

#[derive(Clone, Debug)]
enum How {
    Discard,
    Table(randfixedsum::Table),
    Rescale(drs::Region),
}

/// Whether tasks have different bounds.
fn differ(bounds: &[Bounds]) -> bool {
    bounds.windows(2).any(|two| two[0] != two[1])
}

impl Shares {
    /// Vectors of one share for each of `bounds`, which add up to `total` parts of a [`CPU`].
    ///
    /// # Errors
    /// Says why there are none, or why `method` can't draw them.
    pub fn new(method: Method, total: u64, bounds: &[Bounds]) -> Result<Shares, Impossible> {
        if bounds.is_empty() || bounds.len() > TASKS_MAX {
            return Err(Impossible::Tasks(bounds.len()));
        }
        if let Some(wrong) = bounds.iter().find(|bound| bound.min > bound.max) {
            return Err(Impossible::Bounds(*wrong));
        }
        let sum = |of: fn(&Bounds) -> u64| bounds.iter().map(of).fold(0, u64::saturating_add);
        let (least, most) = (sum(|bound| bound.min), sum(|bound| bound.max));
        let cap = TOTAL_MAX * CPU;
        if total < least || total > most || total > cap {
            return Err(Impossible::Total { total, least, most: most.min(cap) });
        }
        // What nobody can reach need not be reckoned with.
        let bounds: Vec<Bounds> = bounds
            .iter()
            .map(|bound| Bounds { min: bound.min, max: bound.max.min(total) })
            .collect();
        let how = match method {
            Method::UUniFastDiscard => How::Discard,
            Method::RandFixedSum if differ(&bounds) => {
                return Err(Impossible::Unequal(method));
            }
            Method::RandFixedSum => {
                How::Table(randfixedsum::Table::new(bounds.len(), total, bounds[0]))
            }
            Method::Drs => How::Rescale(drs::Region::new(total, &bounds)),
        };
        Ok(Shares { total, bounds, how })
    }

    /// One vector: adds up to the total exactly, and every share is within its bounds.
    ///
    /// # Errors
    /// [`Impossible::Unlikely`] if none could be had within a bounded number of tries.
    pub fn draw(&self, dice: &mut Dice) -> Result<Vec<u64>, Impossible> {
        let drawn = match &self.how {
            How::Discard => uunifast::discard(self.total, &self.bounds, dice)?,
            How::Table(table) => table.draw(dice),
            How::Rescale(region) => region.draw(dice)?,
        };
        // Rounding would hide that an algorithm has lost its way.
        let (sum, total) = (drawn.iter().sum::<f64>(), self.total as f64);
        assert!(
            (sum - total).abs() <= 1e-6 * total + drawn.len() as f64,
            "{sum} was drawn for {total}"
        );
        Ok(round::rounded(&drawn, self.total, &self.bounds))
    }
}
