//! Utilisation vectors with an exact sum, by any of the algorithms.

use super::{Bounds, CPU, GenerationError, Method, TASKS_MAX, TOTAL_MAX};
use super::{drs, randfixedsum, round, uunifast};
use crate::rng::Rng;

/// Generator of utilisation vectors. All checks and constant computations are done in advance.
#[derive(Clone, Debug)]
pub struct Shares {
    total: u64,
    bounds: Vec<Bounds>,
    sampler: Sampler,
}

#[derive(Clone, Debug)]
enum Sampler {
    Discard,
    Table(randfixedsum::Table),
    Rescale(drs::Region),
}

impl Shares {
    /// Creates a generator of vectors with one share for each of `bounds`, and `total` parts of a
    /// [`CPU`] in total.
    ///
    /// # Errors
    /// The reason why no vector satisfies the bounds, or why `method` cannot generate them.
    pub fn new(method: Method, total: u64, bounds: &[Bounds]) -> Result<Shares, GenerationError> {
        if bounds.is_empty() || bounds.len() > TASKS_MAX {
            return Err(GenerationError::Tasks(bounds.len()));
        }
        if let Some(wrong) = bounds.iter().find(|bound| bound.min > bound.max) {
            return Err(GenerationError::Bounds(*wrong));
        }
        let sum = |of: fn(&Bounds) -> u64| bounds.iter().map(of).fold(0, u64::saturating_add);
        let (least, most) = (sum(|bound| bound.min), sum(|bound| bound.max));
        let cap = TOTAL_MAX * CPU;
        if total < least || total > most || total > cap {
            return Err(GenerationError::Total { total, least, most: most.min(cap) });
        }
        // Bounds above the total are unreachable, and ignored.
        let bounds: Vec<Bounds> = bounds
            .iter()
            .map(|bound| Bounds { min: bound.min, max: bound.max.min(total) })
            .collect();
        let sampler = match method {
            Method::UUniFastDiscard => Sampler::Discard,
            Method::RandFixedSum if Bounds::differ(&bounds) => {
                return Err(GenerationError::Unequal(method));
            }
            Method::RandFixedSum => {
                Sampler::Table(randfixedsum::Table::new(bounds.len(), total, bounds[0]))
            }
            Method::Drs => Sampler::Rescale(drs::Region::new(total, &bounds)),
        };
        Ok(Shares { total, bounds, sampler })
    }

    /// Generates one vector with an exact total, and every share within its bounds.
    ///
    /// # Errors
    /// [`GenerationError::Unlikely`] after a bounded number of rejected vectors.
    pub fn draw(&self, rng: &mut Rng) -> Result<Vec<u64>, GenerationError> {
        let drawn = match &self.sampler {
            Sampler::Discard => uunifast::discard(self.total, &self.bounds, rng)?,
            Sampler::Table(table) => table.draw(rng),
            Sampler::Rescale(region) => region.draw(rng)?,
        };
        // Rounding would hide a numerical failure of an algorithm.
        let (sum, total) = (drawn.iter().sum::<f64>(), self.total as f64);
        assert!(
            (sum - total).abs() <= 1e-6 * total + drawn.len() as f64,
            "{sum} was generated for {total}"
        );
        Ok(round::rounded(&drawn, self.total, &self.bounds))
    }
}
