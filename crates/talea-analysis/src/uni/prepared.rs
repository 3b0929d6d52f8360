//! Tasks prepared for the inner loops. The parameters are checked once, and multiplications replace
//! divisions by the period.

use crate::Sporadic;
use crate::demand::gcd;
use crate::demand::{Demand, sum_at_most};
use crate::verdict::Inconclusive;
use alloc::vec::Vec;
use talea_core::Charge;
use talea_core::mutate;

/// Exclusive upper bound of every parameter, and of the sum of all costs, blockings and jitters: 36
/// years in nanoseconds.
pub const MAX_PARAMETER_NS: u64 = 1 << 60;
/// Latest time that a test evaluates, in nanoseconds.
pub const HORIZON_NS: u64 = 1 << 61;

/// Default step limit of a test: some seconds. The tests are pseudo-polynomial: for example, a set
/// whose utilisation is within 2^-30 of one would take years.
pub const DEFAULT_STEP_LIMIT: u64 = 1 << 32;

/// Task with the reciprocal of its period. All times are in nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PreparedTask {
    pub(crate) cost: u64,
    /// ⌈2^(63 + l) / T⌉ with l = ⌊log2 T⌋; at most 2^63.
    magic: u64,
    /// The exponent l.
    shift: u8,
    pub(crate) jitter: u64,
    pub(crate) period: u64,
    pub(crate) deadline: u64,
    pub(crate) blocking: u64,
}

impl PreparedTask {
    pub(crate) fn of(task: &Sporadic) -> PreparedTask {
        let period = task.period.as_ns();
        let shift = period.ilog2();
        // 2^64 = whole · T + rest with 1 ≤ rest ≤ T, so that 2^(63 + l) / T = (whole + rest / T) ·
        // 2^l / 2.
        let whole = u64::MAX / period;
        let rest = u64::MAX - whole * period + 1;
        let magic = if shift < 32 {
            // rest · 2^l ≤ T · 2^l < 2^(2l + 1) ≤ 2^63. And ⌈x / 2⌉ = ⌈⌈x⌉ / 2⌉.
            let twice = (u128::from(whole) << shift) + u128::from((rest << shift).div_ceil(period));
            mutate!("analysis-magic", twice.div_ceil(2), twice / 2) as u64
        } else {
            mutate!(
                "analysis-wrap",
                (1u128 << (63 + shift)).div_ceil(u128::from(period)) as u64,
                (1u128 << (63 + shift)) as u64 / period
            )
        };
        PreparedTask {
            cost: task.cost.as_ns(),
            magic,
            shift: shift as u8,
            jitter: task.jitter.as_ns(),
            period,
            deadline: task.deadline.as_ns(),
            blocking: task.blocking.as_ns(),
        }
    }

    /// Returns ⌊span / T⌋ for a span up to 2^62.
    ///
    /// The magic number is (2^(63+l) + e) / T with 0 ≤ e < T < 2^(l+1). So 2·span·magic / 2^(64+l)
    /// = span / T + span·e / (T·2^(63+l)). The second term is below 1 / T if span·e < 2^(63+l),
    /// which span ≤ 2^62 ensures. The second term is therefore too small to reach the next whole
    /// number (Granlund and Montgomery, PLDI 1994, theorem 4.2).
    #[inline]
    pub(crate) fn quotient(&self, span: u64) -> u64 {
        (((u128::from(span << 1) * u128::from(self.magic)) >> 64) as u64) >> (self.shift & 63)
    }

    /// Returns the cost of the jobs that arrive within an interval of length `span` + 1, if the
    /// first job arrives at its beginning.
    ///
    /// No value wraps within the range of [`super`]. Checked operators would take a fifth more
    /// time.
    #[inline]
    pub(crate) fn work(&self, span: u64) -> u64 {
        self.quotient(span).wrapping_add(1).wrapping_mul(self.cost)
    }

    /// Returns U in parts of 2^-64, rounded up; `u64::MAX` if U is 1 or more.
    #[inline]
    pub(crate) fn utilisation_up(&self) -> u64 {
        // C·magic / 2^(63 + l) = U + C·e / (T·2^(63 + l)): too much by less than 2C / 2^l parts,
        // four where C ≤ T.
        let twice = (u128::from(self.cost) * u128::from(self.magic)) >> self.shift;
        u64::try_from(2 * twice + 2).unwrap_or(u64::MAX)
    }
}

/// Working memory of the tests, which grows to the largest set tested so far.
#[derive(Debug)]
pub struct Scratch {
    pub(crate) rows: Vec<PreparedTask>,
    pub(crate) spare: Vec<u64>,
    limit: u64,
    left: u64,
}

impl Default for Scratch {
    fn default() -> Scratch {
        Scratch::new()
    }
}

impl Scratch {
    /// Creates a scratch with the limit [`DEFAULT_STEP_LIMIT`].
    pub fn new() -> Scratch {
        Scratch::with_limit(DEFAULT_STEP_LIMIT)
    }

    /// Creates a scratch with a step limit. A test that would take more than `steps` returns
    /// [`Inconclusive::Limit`]. A step evaluates one task, which takes about a nanosecond.
    pub fn with_limit(steps: u64) -> Scratch {
        Scratch { rows: Vec::new(), spare: Vec::new(), limit: steps, left: steps }
    }

    /// Loads the tasks, in their order.
    ///
    /// # Errors
    /// [`Inconclusive::Assumption`] number 1 for a task without cost or period;
    /// [`Inconclusive::Limit`] outside the range.
    pub(crate) fn load(&mut self, tasks: &[Sporadic]) -> Result<(), Inconclusive> {
        self.left = self.limit;
        self.rows.clear();
        let mut sum = 0u64;
        for (at, task) in tasks.iter().enumerate() {
            if task.cost.is_zero() || task.period.is_zero() {
                return Err(Inconclusive::Assumption { number: 1, task: at });
            }
            let (cost, jitter, blocking) =
                (task.cost.as_ns(), task.jitter.as_ns(), task.blocking.as_ns());
            let bits = cost | jitter | blocking | task.period.as_ns() | task.deadline.as_ns();
            if bits >= MAX_PARAMETER_NS {
                return Err(Inconclusive::Limit);
            }
            // Four numbers below 2^60: no overflow.
            sum += cost + jitter + blocking;
            if sum >= MAX_PARAMETER_NS {
                return Err(Inconclusive::Limit);
            }
            self.rows.push(PreparedTask::of(task));
        }
        Ok(())
    }

    /// Returns the rows, the spare numbers and the remaining steps separately.
    pub(crate) fn parts(&mut self) -> (&mut [PreparedTask], &mut Vec<u64>, &mut u64) {
        (&mut self.rows, &mut self.spare, &mut self.left)
    }
}

/// Returns ⌈`value` · `parts` / 2^64⌉, or one more.
pub(crate) fn scaled_up(value: u64, parts: u64) -> u64 {
    ((u128::from(value) * u128::from(parts)) >> 64) as u64 + 1
}

/// Returns ⌊`value` · `parts` / 2^64⌋.
pub(crate) fn scaled_down(value: u64, parts: u64) -> u64 {
    ((u128::from(value) * u128::from(parts)) >> 64) as u64
}

/// Returns the least common multiple of the periods; `None` if it is beyond the horizon.
pub(crate) fn hyperperiod<'a>(mut rows: impl Iterator<Item = &'a PreparedTask>) -> Option<u64> {
    rows.try_fold(1u64, |all, row| {
        all.checked_mul(row.period / gcd(all, row.period)).filter(|&all| all <= HORIZON_NS)
    })
}

/// Subtracts `steps` from the steps in `left`.
///
/// # Errors
/// [`Inconclusive::Limit`] if no steps are left.
#[inline]
pub(crate) fn count_steps(left: &mut u64, steps: usize) -> Result<(), Inconclusive> {
    *left = left.checked_sub(steps as u64).ok_or(Inconclusive::Limit)?;
    Ok(())
}

/// Whether ΣU ≤ 1 over `tasks`, exactly. The function allocates, so it is called only if rounding
/// leaves the result open.
pub(crate) fn fits(tasks: &[Sporadic]) -> bool {
    let demands: Vec<Demand> =
        tasks.iter().map(|task| Demand::new(task.cost, task.period)).collect();
    sum_at_most(&demands, Charge::ONE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use talea_core::rng::Rng;
    use talea_core::{Span, Work};

    #[test]
    fn multiplication_divides_exactly() {
        let mut rng = Rng::new(1);
        let mut next = |bits: u32| rng.next() >> (64 - bits);
        let mut periods: Vec<u64> = (1..200).collect();
        for bits in 1..60 {
            periods.extend([(1 << bits) - 1, 1 << bits, (1 << bits) + 1, 1 + next(bits)]);
        }
        for period in periods.into_iter().filter(|&period| period > 0) {
            let row = PreparedTask::of(&Sporadic::new(
                Work::from_ns(1),
                Span::from_ns(period),
                Span::ZERO,
            ));
            let check =
                |span: u64| assert_eq!(row.quotient(span), span / period, "{span} / {period}");
            for span in 0..100 {
                check(span);
            }
            for bits in 1..60 {
                let around = next(bits) / period * period;
                for span in [around, around.saturating_sub(1), around + period - 1, next(bits)] {
                    check(span);
                }
            }
            let last = (1u64 << 62) / period * period;
            for span in [last, last - 1, 1 << 62, (1 << 62) - 1] {
                check(span);
            }
        }
    }

    #[test]
    fn utilisations_are_rounded_up_by_a_few_parts() {
        for (cost, period) in
            [(1, 3), (1, 1 << 59), (7, 7), ((1 << 59) - 1, 1 << 59), (123_456, 1_000_003), (9, 4)]
        {
            let row = PreparedTask::of(&Sporadic::new(
                Work::from_ns(cost),
                Span::from_ns(period),
                Span::ZERO,
            ));
            let exact = (u128::from(cost) << 64).div_ceil(u128::from(period));
            let up = u128::from(row.utilisation_up());
            if exact < u128::from(u64::MAX) - 8 {
                assert!(exact <= up && up <= exact + 8, "{cost} / {period}");
            } else {
                assert_eq!(up, u128::from(u64::MAX), "{cost} / {period}");
            }
        }
    }

    #[test]
    fn values_out_of_range_are_reported() {
        let task = |cost, period, deadline| {
            Sporadic::new(Work::from_ns(cost), Span::from_ns(period), Span::from_ns(deadline))
        };
        let mut scratch = Scratch::new();
        assert_eq!(
            scratch.load(&[task(1, 2, 2), task(0, 2, 2)]),
            Err(Inconclusive::Assumption { number: 1, task: 1 })
        );
        assert_eq!(
            scratch.load(&[task(1, 0, 2)]),
            Err(Inconclusive::Assumption { number: 1, task: 0 })
        );
        assert_eq!(scratch.load(&[task(1, 2, MAX_PARAMETER_NS)]), Err(Inconclusive::Limit));
        assert_eq!(
            scratch.load(&[task(MAX_PARAMETER_NS - 1, 2, 2), task(1, 2, 2)]),
            Err(Inconclusive::Limit)
        );
        assert_eq!(scratch.load(&[task(MAX_PARAMETER_NS - 1, MAX_PARAMETER_NS - 1, 0)]), Ok(()));
        let mut left = 2;
        assert_eq!(
            (count_steps(&mut left, 2), count_steps(&mut left, 1)),
            (Ok(()), Err(Inconclusive::Limit))
        );
    }
}
