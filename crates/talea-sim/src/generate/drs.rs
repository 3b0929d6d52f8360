//! Dirichlet-Rescale (DRS): utilisations of a given sum within unequal bounds.
//!
//! Griffin, Bate and Davis, *Generating Utilization Vectors for the Systematic Evaluation of
//! Schedulability Tests*, RTSS 2020. The algorithm draws a point uniformly from the simplex of all
//! vectors with the given sum. Components above their bound span a smaller simplex, with the bounds
//! as its corner. The algorithm scales this simplex, with the point, to the whole simplex, until no
//! bound is exceeded. If the simplex of the distances to the upper bounds is smaller, the algorithm
//! draws the distances instead.
//!
//! Guaranteed: the sum, and the bounds of each task. The result is uniform if no two bounds can be
//! exceeded at once, because the scaled simplex is then complete and uniformly filled. Otherwise
//! the result is *not* uniform: the set of other exceeded bounds depends on the point, so the
//! scaled simplex is filled unevenly. The reference is Willemsen et al., *Generating Random Vectors
//! satisfying Linear and Nonlinear Constraints*, 2025. The authors of DRS have withdrawn the claim.
//!
//! The plane of two shares was compared with rejection. With bounds 0.1, 0.1, 0.1, 1, 1 and total
//! 1, every sixth vector is misplaced. With equal bounds of one CPU and totals up to a quarter of
//! their number, 300,000 vectors show no difference. With half of their number, they show a small
//! one.
//!
//! The algorithm is provided because published experiments used it, for example those of YASMIN.
//! RandFixedSum is uniform for equal bounds. UUniFast-Discard is uniform for unequal bounds, as
//! long as it finds any vector.

use super::uunifast::simplex;
use super::{Bounds, GenerationError, Method};
use crate::rng::Rng;
use talea_core::mutate;

/// Maximum number of points drawn for one vector.
const MAX_TRIES: u32 = 10_000;
/// Maximum number of rescalings of one point.
const MAX_RESCALES: u32 = 1_000;
/// Maximum total scale of one point. Every doubling loses one random bit. Beyond this scale a new
/// point is drawn.
const MAX_SCALE: f64 = (1u64 << 20) as f64;

/// Region of points: the components with a choice, each from 0 up.
#[derive(Clone, Debug)]
pub(super) struct Region {
    total: f64,
    /// Upper bounds of these components.
    max: Vec<f64>,
    /// Direction of the map from a component to a share, `origin + direction · component`.
    direction: f64,
    /// `origin[c]`: share of component `c` at zero.
    origin: Vec<f64>,
    /// `free[c]`: index of the share of component `c`.
    free: Vec<usize>,
    /// Whether the bounds differ.
    unequal: bool,
}

impl Region {
    /// Creates the region for bounds that allow the total.
    pub(super) fn new(total: u64, bounds: &[Bounds]) -> Region {
        let least: u64 = bounds.iter().map(|bound| bound.min).sum();
        let max: u128 = bounds.iter().map(|bound| u128::from(bound.max)).sum();
        let (above, missing) = (total - least, max - u128::from(total));
        let mirrored = missing < u128::from(above);
        let free: Vec<usize> =
            (0..bounds.len()).filter(|&at| bounds[at].min < bounds[at].max).collect();
        Region {
            total: if mirrored { missing as f64 } else { above as f64 },
            max: free.iter().map(|&at| (bounds[at].max - bounds[at].min) as f64).collect(),
            direction: if mirrored { -1.0 } else { 1.0 },
            origin: bounds
                .iter()
                .map(|b| if mirrored { b.max as f64 } else { b.min as f64 })
                .collect(),
            free,
            unequal: Bounds::differ(bounds),
        }
    }

    /// Generates a vector.
    pub(super) fn draw(&self, rng: &mut Rng) -> Result<Vec<f64>, GenerationError> {
        let mut shares = self.origin.clone();
        if self.free.is_empty() {
            return Ok(shares);
        }
        for _ in 0..MAX_TRIES {
            let mut point = simplex(self.max.len(), self.total, rng);
            if self.rescale(&mut point) {
                for (&at, component) in self.free.iter().zip(point) {
                    shares[at] += self.direction * component;
                }
                return Ok(shares);
            }
        }
        Err(GenerationError::Unlikely {
            method: Method::Drs,
            tries: MAX_TRIES,
            unequal: self.unequal,
        })
    }

    /// Rescales the point. Returns whether it is within all bounds.
    fn rescale(&self, point: &mut [f64]) -> bool {
        let mut scale = 1.0;
        for _ in 0..MAX_RESCALES {
            let mut corner = 0.0;
            for (component, max) in point.iter_mut().zip(&self.max) {
                if *component > *max {
                    mutate!("generate-drs", *component -= max, *component = 0.0);
                    corner += max;
                }
            }
            if corner <= 0.0 {
                return true;
            }
            scale *= self.total / (self.total - corner);
            // Also if only rounding errors are left.
            if !(1.0..=MAX_SCALE).contains(&scale) {
                return false;
            }
            let factor = self.total / (self.total - corner);
            for component in point.iter_mut() {
                *component *= factor;
            }
        }
        false
    }
}
