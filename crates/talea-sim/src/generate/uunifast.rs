//! UUniFast and UUniFast-Discard: utilisations of a given sum, uniformly distributed.
//!
//! Reference of UUniFast: Bini and Buttazzo, *Measuring the Performance of Schedulability Tests*,
//! Real-Time Systems 30 (2005). Let the sum of the first i + 1 shares be given. The sum of the
//! first i shares is this value times the i-th root of a uniform number. The vector is uniform over
//! all vectors of the sum.
//!
//! Reference of UUniFast-Discard: Davis and Burns, *Improved priority assignment for global fixed
//! priority pre-emptive scheduling in multiprocessor real-time systems*, Real-Time Systems 47
//! (2011). For totals above 1, the algorithm discards vectors with a share above 1. The remaining
//! vectors stay uniform.
//!
//! Guaranteed: uniform over all vectors within the bounds. Limit: the number of rejected vectors
//! grows fast as the total approaches the number of tasks. With bounds of one CPU, an accepted
//! vector costs 12 rejected vectors at n = 10, U = 5, and 300 at n = 20, U = 10. Generation fails
//! after [`MAX_TRIES`].

use super::math::root;
use super::{Bounds, GenerationError, Method};
use crate::rng::Rng;
use talea_core::mutate;

/// Maximum number of vectors generated for one result.
const MAX_TRIES: u32 = 200_000;

/// Generates a vector of `n` shares, uniform over all non-negative vectors with the sum `total`.
pub(super) fn simplex(n: usize, total: f64, rng: &mut Rng) -> Vec<f64> {
    let mut shares = vec![0.0; n];
    within(total, &mut shares, |_, _| true, rng);
    shares
}

/// Fills `shares` while `keep` accepts them. Returns whether it has accepted all shares.
fn within(
    total: f64,
    shares: &mut [f64],
    keep: impl Fn(usize, f64) -> bool,
    rng: &mut Rng,
) -> bool {
    let last = shares.len() - 1;
    let mut rest = total;
    for (at, share) in shares.iter_mut().enumerate() {
        // The last share takes the remainder.
        let next = if at < last {
            rest * mutate!("generate-uunifast", root(rng.unit(), last - at), rng.unit())
        } else {
            0.0
        };
        *share = rest - next;
        if !keep(at, *share) {
            return false;
        }
        rest = next;
    }
    true
}

/// Generates a vector within `bounds`.
pub(super) fn discard(
    total: u64,
    bounds: &[Bounds],
    rng: &mut Rng,
) -> Result<Vec<f64>, GenerationError> {
    let mut shares = vec![0.0; bounds.len()];
    let limits: Vec<(f64, f64)> =
        bounds.iter().map(|bound| (bound.min as f64, bound.max as f64)).collect();
    let keep = |at: usize, share: f64| limits[at].0 <= share && share <= limits[at].1;
    for _ in 0..MAX_TRIES {
        if within(total as f64, &mut shares, keep, rng) {
            return Ok(shares);
        }
    }
    Err(GenerationError::Unlikely {
        method: Method::UUniFastDiscard,
        tries: MAX_TRIES,
        unequal: Bounds::differ(bounds),
    })
}
