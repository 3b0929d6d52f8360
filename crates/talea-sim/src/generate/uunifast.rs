//! UUniFast, and UUniFast-Discard.
//!
//! Bini and Buttazzo, *Measuring the Performance of Schedulability Tests*, Real-Time Systems 30,
//! 2005: the sum of the first i shares, given that of the first i + 1, is that sum times the i-th
//! root of a uniform number; the vector is uniform over all that add up. Davis and Burns, *Improved
//! priority assignment for global fixed priority pre-emptive scheduling in multiprocessor real-time
//! systems*, Real-Time Systems 47, 2011: for totals above 1, vectors with a share above 1 are
//! discarded, which leaves the rest uniform.
//!
//! Claim: uniform over all vectors within the bounds. Limit: how many are thrown away grows fast as
//! the total comes near the number of tasks (with bounds of one CPU: 12 for each that is kept at n
//! = 10, U = 5; 300 at n = 20, U = 10), and after [`TRIES`] it gives up.

use super::math::root;
use super::{Bounds, Impossible, Method};
use crate::dice::Dice;
use talea_core::mutate;

/// Vectors that are drawn at most for one.
const TRIES: u32 = 200_000;

/// A vector of `n` shares, uniform over all that are not negative and add up to `total`.
pub(super) fn simplex(n: usize, total: f64, dice: &mut Dice) -> Vec<f64> {
    let mut shares = vec![0.0; n];
    within(total, &mut shares, |_, _| true, dice);
    shares
}

/// Fills `shares` while `keep` likes them; whether it has liked all.
fn within(
    total: f64,
    shares: &mut [f64],
    keep: impl Fn(usize, f64) -> bool,
    dice: &mut Dice,
) -> bool {
    let last = shares.len() - 1;
    let mut rest = total;
    for (at, share) in shares.iter_mut().enumerate() {
        // The last takes what is left.
        let next = if at < last {
            rest * mutate!("generate-uunifast", root(dice.unit(), last - at), dice.unit())
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

/// A vector within `bounds`.
pub(super) fn discard(
    total: u64,
    bounds: &[Bounds],
    dice: &mut Dice,
) -> Result<Vec<f64>, Impossible> {
    let mut shares = vec![0.0; bounds.len()];
    let limits: Vec<(f64, f64)> =
        bounds.iter().map(|bound| (bound.min as f64, bound.max as f64)).collect();
    let keep = |at: usize, share: f64| limits[at].0 <= share && share <= limits[at].1;
    for _ in 0..TRIES {
        if within(total as f64, &mut shares, keep, dice) {
            return Ok(shares);
        }
    }
    Err(Impossible::Unlikely {
        method: Method::UUniFastDiscard,
        tries: TRIES,
        unequal: super::differ(bounds),
    })
}
