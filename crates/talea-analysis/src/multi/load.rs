//! Sums of utilisations with directed rounding, and the demand at successive deadlines.

use super::prepared::{MAX_PRODUCT, PreparedTask};
use crate::Sporadic;
use crate::demand::{Demand, sum};
use alloc::vec::Vec;
use core::cmp::Ordering;
use talea_core::mutate;

/// Returns Σ C/T in units of 2^-32, rounded down and rounded up. The two differ by at most the
/// number of tasks.
///
/// Costs are at most periods, so a term is at most 2^32, and a sum of fewer than 2^31 terms fits.
pub(crate) fn utilisation(rows: &[PreparedTask]) -> (u64, u64) {
    let mut sum = 0;
    for row in rows {
        sum += ((u128::from(row.cost) << 32) / u128::from(row.period.get())) as u64;
    }
    (sum, sum + rows.len() as u64)
}

/// Compares Σ C/T with `cpus`, exactly. `rows` are the prepared `tasks`.
pub(crate) fn compare_utilisation(
    rows: &[PreparedTask],
    tasks: &[Sporadic],
    cpus: u64,
) -> Ordering {
    let (least, most) = utilisation(rows);
    let room = u128::from(cpus) << 32;
    if u128::from(most) < room {
        return Ordering::Less;
    }
    if u128::from(least) > room {
        return Ordering::Greater;
    }
    let demands: Vec<Demand> =
        tasks.iter().map(|task| Demand::new(task.cost, task.period)).collect();
    let (numerator, denominator) = sum(&demands);
    numerator.cmp(&denominator.times(&u128::from(cpus).into()))
}

/// Returns the longest window that any test evaluates. `cpus` times the window, and the demand of
/// `rows` in it, fit into 63 bits.
pub(crate) fn window_max(rows: &[PreparedTask], cpus: u64) -> u64 {
    MAX_PRODUCT / cpus.max(rows.len() as u64).max(1)
}

/// Returns `fixed` / (`cpus` − Σ C/T), rounded up. `None` beyond [`window_max`], or if the sum is
/// too close to `cpus` to decide.
pub(crate) fn over_idle(fixed: u128, rows: &[PreparedTask], cpus: u64) -> Option<u64> {
    let (_, used) = utilisation(rows);
    let idle = (u128::from(cpus) << 32).checked_sub(u128::from(used)).filter(|&idle| idle > 0)?;
    let window = fixed.checked_mul(1 << 32)?.div_ceil(idle);
    u64::try_from(window).ok().filter(|&window| window <= window_max(rows, cpus))
}

/// Returns Σ (T − D)·C/T, with each term rounded up.
pub(crate) fn early(rows: &[PreparedTask]) -> u128 {
    let term = |row: &PreparedTask| {
        let period = u128::from(row.period.get());
        ((period - u128::from(row.deadline)) * u128::from(row.cost)).div_ceil(period)
    };
    rows.iter().map(term).sum()
}

/// Returns the sum of the `count` largest values.
pub(crate) fn largest(values: &mut [u64], count: usize) -> u64 {
    if count == 0 {
        return 0;
    }
    if count < values.len() {
        values.select_nth_unstable_by(count - 1, |a, b| b.cmp(a));
    }
    values.iter().take(count).sum()
}

/// Successive absolute deadlines of a synchronous release, with the demand at each of them.
pub(crate) struct Deadlines<'a> {
    rows: &'a [PreparedTask],
    /// `next[k]`: next deadline of task k.
    pub(crate) next: &'a mut Vec<u64>,
    /// `due[k]`: demand of the jobs of task k that are due until now.
    pub(crate) due: &'a mut Vec<u64>,
    /// Sum of `due`.
    pub(crate) demand: u64,
}

impl<'a> Deadlines<'a> {
    pub(crate) fn new(
        rows: &'a [PreparedTask],
        next: &'a mut Vec<u64>,
        due: &'a mut Vec<u64>,
    ) -> Deadlines<'a> {
        next.clear();
        next.extend(rows.iter().map(|row| row.deadline));
        due.clear();
        due.resize(rows.len(), 0);
        Deadlines { rows, next, due, demand: 0 }
    }

    /// Advances to the next deadline and returns it; `None` after `until`.
    pub(crate) fn advance(&mut self, until: u64) -> Option<u64> {
        let now = self.next.iter().copied().min().filter(|&now| now <= until)?;
        for ((next, due), row) in self.next.iter_mut().zip(self.due.iter_mut()).zip(self.rows) {
            if *next == now {
                mutate!("multi-load", *next += row.period.get(), *next = u64::MAX >> 4);
                *due += row.cost;
                self.demand += row.cost;
            }
        }
        Some(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::multi::Scratch;
    use crate::multi::sets::implicit;

    #[test]
    fn utilisations_are_compared_exactly() {
        let compare = |tasks: &[(u64, u64)], cpus| {
            let tasks = implicit(tasks);
            let mut scratch = Scratch::new();
            scratch.read(&tasks, 4).expect("within the assumptions");
            compare_utilisation(&scratch.rows, &tasks, cpus)
        };
        const BIG: u64 = (1 << 58) - 27;
        assert_eq!(compare(&[(1, 3), (1, 3), (1, 3)], 1), Ordering::Equal);
        assert_eq!(compare(&[(1, 3), (2, 3), (1, 2), (1, 2)], 2), Ordering::Equal);
        // Off by less than 2^-110.
        assert_eq!(compare(&[(1, 3), (BIG / 3 * 2, BIG)], 1), Ordering::Less);
        assert_eq!(compare(&[(1, 3), (BIG / 3 * 2 + 1, BIG)], 1), Ordering::Greater);
        assert_eq!(compare(&[(1, BIG), (BIG - 1, BIG)], 1), Ordering::Equal);
        assert_eq!(compare(&[(1, BIG), (BIG - 2, BIG - 1)], 1), Ordering::Less);
        assert_eq!(compare(&[], 0), Ordering::Equal);
        assert_eq!(compare(&[], 1), Ordering::Less);
    }

    #[test]
    fn the_largest_are_summed() {
        for count in 0..6 {
            let mut values = [5, 1, 9, 9, 3];
            assert_eq!(largest(&mut values, count), [0, 9, 18, 23, 26, 27][count]);
        }
    }
}
