//! RandFixedSum.
//!
//! R. Stafford, *Random Vectors with Fixed Sum*, 2006; applied to task sets by Emberson, Stafford
//! and Davis, *Techniques for the Synthesis of Multiprocessor Tasksets*, WATERS 2010.
//!
//! Guaranteed: uniform over all vectors of the total whose components lie between two common
//! bounds. No vector is rejected.
//!
//! Model: scaled to the bounds 0 and 1, the vectors form a slice through the unit cube. The slice
//! is divided into simplices. A walk descends one dimension at a time, towards a side of the cube
//! where a component is 0 or is 1. A table holds the probability of 1 (the ratio of the volumes)
//! for each step and each number of components that are 1 so far. Within a simplex a point is drawn
//! as in UUniFast. The components are ordered, so the generator shuffles them.

use super::Bounds;
use super::math::root;
use crate::rng::Rng;
use talea_core::mutate;

/// Values that depend only on the number of tasks, the total and the bounds.
#[derive(Clone, Debug)]
pub(super) struct Table {
    n: usize,
    /// Scaled sum.
    sum: f64,
    /// First column of the walk: one more than the number of ones in the corner below the sum.
    column: usize,
    /// `up[size - 2][column]`: probability that a component becomes 1 when `size` are left.
    up: Vec<Vec<f64>>,
    min: f64,
    range: f64,
}

impl Table {
    /// Creates the table for `n` components of `bounds`, which allow the `total`.
    pub(super) fn new(n: usize, total: u64, bounds: Bounds) -> Table {
        let (min, range) = (bounds.min as f64, (bounds.max - bounds.min) as f64);
        let scaled = if range > 0.0 { (total as f64 - n as f64 * min) / range } else { 0.0 };
        let sum = scaled.clamp(0.0, n as f64);
        let ones = (sum as usize).min(n - 1);
        // Distances of the sum from the corners below and above it.
        let below = |column: usize| sum - ones as f64 + (column - 1) as f64;
        let above = |column: usize, size: usize| (ones + size + 1 - column) as f64 - sum;
        // `volumes[column]`: relative volumes.
        let mut volumes = vec![0.0, 1.0];
        let mut up = Vec::with_capacity(n.saturating_sub(1));
        for size in 2..=n {
            volumes.resize(size + 1, 0.0);
            let (mut next, mut chances) = (vec![0.0; size + 1], vec![0.0; size + 1]);
            // Columns that a walk can still reach: unreachable volumes would dominate the others.
            let reached = (ones + 1).saturating_sub(n - size).max(1)..=(ones + 1).min(size);
            for column in reached {
                let from_zero = volumes[column] * below(column) / size as f64;
                let from_one = volumes[column - 1] * above(column, size) / size as f64;
                next[column] = from_zero + from_one;
                let all = next[column] + f64::MIN_POSITIVE;
                // The smaller one is divided, because it loses less precision.
                let is_below = above(column, size) > below(column);
                chances[column] = if is_below { from_one / all } else { 1.0 - from_zero / all };
            }
            // Only ratios within a row matter. Without normalisation they would underflow.
            let peak = next.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
            volumes = next.iter().map(|volume| volume / peak).collect();
            up.push(chances);
        }
        Table { n, sum, column: ones + 1, up, min, range }
    }

    /// Generates a vector.
    pub(super) fn draw(&self, rng: &mut Rng) -> Vec<f64> {
        let mut shares = Vec::with_capacity(self.n);
        let (mut sum, mut column) = (self.sum, self.column);
        let (mut shift, mut scale) = (0.0, 1.0);
        for left in (1..self.n).rev() {
            let (roll, shrink) = (rng.unit(), root(rng.unit(), left));
            // If all remaining components must become 1, or none, the random number is ignored, and
            // with it rounding.
            let to_one = column > left
                || (column > 1
                    && mutate!(
                        "generate-randfixedsum",
                        roll < self.up[left - 1][column],
                        roll > self.up[left - 1][column]
                    ));
            shift += (1.0 - shrink) * scale * sum / (left + 1) as f64;
            scale *= shrink;
            shares.push(shift + if to_one { scale } else { 0.0 });
            if to_one {
                sum -= 1.0;
                column -= 1;
            }
        }
        shares.push(shift + scale * sum);
        // Shuffle of Fisher and Yates.
        for at in (1..self.n).rev() {
            shares.swap(at, rng.below(at as u64 + 1) as usize);
        }
        shares.iter().map(|share| self.min + share * self.range).collect()
    }
}
