//! Dirichlet-Rescale.
//!
//! Griffin, Bate and Davis, *Generating Utilization Vectors for the Systematic Evaluation of
//! Schedulability Tests*, RTSS
//! 2020. A point is drawn uniformly from the simplex of all vectors with the right sum. Components
//!       above their bound span
//! a smaller simplex, with the bounds as its corner; it is blown up to the whole one, the point
//! with it, and so on until no bound is broken. Where the vectors of what is *missing* to the upper
//! bounds have the smaller simplex, these are drawn instead.
//!
//! Guaranteed: the sum, and the bounds of each task. Uniform where no two bounds can be broken at
//! once, because then what is blown up is a whole simplex, uniformly filled. *Not* uniform
//! otherwise: which others are broken too tells something about the point, so that what is blown up
//! is filled unevenly (Willemsen et al., *Generating Random Vectors satisfying Linear and Nonlinear
//! Constraints*, 2025; its authors have withdrawn the claim). Measured in the plane of two shares
//! against rejection: with bounds 0.1, 0.1, 0.1, 1, 1 and total 1 every sixth vector lies elsewhere
//! than it should; with equal bounds of one CPU and totals up to a quarter of their number no
//! difference shows in 300,000 vectors, with half of their number a small one.
//!
//! It is here because published experiments were made with it, YASMIN's among them. For equal
//! bounds RandFixedSum is uniform, for unequal ones UUniFast-Discard as long as it finds any.

use super::uunifast::simplex;
use super::{Bounds, Impossible, Method};
use crate::dice::Dice;
use talea_core::mutate;

/// Points that are drawn afresh at most.
const TRIES: u32 = 10_000;
/// Rescalings of one point at most.
const RESCALES: u32 = 1_000;
/// Blown up by more than this in all, a point is drawn afresh: every doubling uses up a bit of what
/// was drawn.
const BLOWN_UP_MAX: f64 = (1u64 << 20) as f64;

/// Where points are drawn: the components that have a choice, from 0 up.
#[derive(Clone, Debug)]
pub(super) struct Region {
    total: f64,
    /// Upper bounds of these components.
    most: Vec<f64>,
    /// From a component back to a share: `origin + direction · component`.
    direction: f64,
    origin: Vec<f64>,
    /// Which shares they are.
    free: Vec<usize>,
    /// Whether bounds differ.
    unequal: bool,
}

impl Region {
    /// For bounds that allow the total.
    pub(super) fn new(total: u64, bounds: &[Bounds]) -> Region {
        let least: u64 = bounds.iter().map(|bound| bound.min).sum();
        let most: u128 = bounds.iter().map(|bound| u128::from(bound.max)).sum();
        let (above, missing) = (total - least, most - u128::from(total));
        let mirrored = missing < u128::from(above);
        let free: Vec<usize> =
            (0..bounds.len()).filter(|&at| bounds[at].min < bounds[at].max).collect();
        Region {
            total: if mirrored { missing as f64 } else { above as f64 },
            most: free.iter().map(|&at| (bounds[at].max - bounds[at].min) as f64).collect(),
            direction: if mirrored { -1.0 } else { 1.0 },
            origin: bounds
                .iter()
                .map(|b| if mirrored { b.max as f64 } else { b.min as f64 })
                .collect(),
            free,
            unequal: super::differ(bounds),
        }
    }

    /// A vector.
    pub(super) fn draw(&self, dice: &mut Dice) -> Result<Vec<f64>, Impossible> {
        let mut shares = self.origin.clone();
        if self.free.is_empty() {
            return Ok(shares);
        }
        for _ in 0..TRIES {
            let mut point = simplex(self.most.len(), self.total, dice);
            if self.rescale(&mut point) {
                for (&at, component) in self.free.iter().zip(point) {
                    shares[at] += self.direction * component;
                }
                return Ok(shares);
            }
        }
        Err(Impossible::Unlikely { method: Method::Drs, tries: TRIES, unequal: self.unequal })
    }

    /// Whether the point has come to lie within all bounds.
    fn rescale(&self, point: &mut [f64]) -> bool {
        let mut blown_up = 1.0;
        for _ in 0..RESCALES {
            let mut corner = 0.0;
            for (component, most) in point.iter_mut().zip(&self.most) {
                if *component > *most {
                    mutate!("generate-drs", *component -= most, *component = 0.0);
                    corner += most;
                }
            }
            if corner <= 0.0 {
                return true;
            }
            blown_up *= self.total / (self.total - corner);
            // Also if nothing but rounding is left of it.
            if !(1.0..=BLOWN_UP_MAX).contains(&blown_up) {
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
