//! Tardiness bounds for global EDF.
//!
//! Assumptions: those of [`super`], 1 to 3, and 5: D = T; 6: Σ C/T ≤ m.
//!
//! *Devi and Anderson*: U. Devi and J. Anderson, "Tardiness bounds under global EDF scheduling on a
//! multiprocessor", Real-Time Systems 38(2), 2008 (RTSS 2005). With Λ = ⌈U⌉ − 1, task k is late by
//! at most x + C_k, where x = (sum of the Λ largest costs − C_min)/(m − sum of the Λ − 1 largest
//! utilisations). If U ≤ 1, no job is late, because the density test holds: U ≤ m − (m−1)·U_max.
//!
//! *The kernel's documentation* (`Documentation/scheduler/sched-deadline.rst`, section 3, for M
//! CPUs): any task is late by at most ((M−1)·C_max − C_min)/(M − (M−2)·U_max) + C_max.
//!
//! Sufficient: the results are upper bounds. The result is rounded up to whole nanoseconds, after
//! the utilisations have been rounded up to 2^-32.

use super::load::compare_utilisation;
use super::prepared::Scratch;
use crate::Sporadic;
use crate::test_info::{Platform, TestInfo, TestKind};
use crate::verdict::{Inconclusive, Verdict, Witness};
use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Ordering;
use talea_core::Span;
use talea_core::mutate;

/// Entry of [`devi_anderson`] in the catalogue.
pub const DEVI_ANDERSON: TestInfo = TestInfo {
    name: "devi-anderson",
    policy: "global EDF",
    platform: Platform::Global,
    model: "sporadic, D = T, U ≤ m, preemptive; bounds tardiness, not response within D",
    kind: TestKind::Sufficient,
    paper: "Devi and Anderson, Real-Time Systems 38(2), 2008",
    sustainable: "",
    tests: &[
        "crates/talea-analysis/src/multi/tardiness.rs::devi_anderson_2008_three_tasks_of_two_thirds_on_two_cpus",
        "crates/talea-analysis/tests/it/multi/simulated.rs::no_job_is_later_than_its_tardiness_bound",
        "crates/talea-analysis/tests/it/tree/tardiness.rs::no_response_exceeds_period_and_tardiness",
    ],
};

/// Entry of [`kernel`] in the catalogue.
pub const KERNEL: TestInfo = TestInfo {
    name: "tardiness-kernel",
    policy: "global EDF",
    platform: Platform::Global,
    model: "sporadic, D = T, U ≤ m, preemptive; bounds tardiness, not response within D",
    kind: TestKind::Sufficient,
    paper: "Linux, Documentation/scheduler/sched-deadline.rst, after Devi and Anderson, RTSS 2005",
    sustainable: "",
    tests: &[
        "crates/talea-analysis/src/multi/tardiness.rs::the_kernel_s_bound_is_the_coarser_one",
        "crates/talea-analysis/tests/it/multi/simulated.rs::no_job_is_later_than_its_tardiness_bound",
    ],
};

/// Returns an upper bound of the tardiness of each task.
///
/// # Errors
/// `Refuted` if lateness grows without bound, `Unknown` if the theorem does not cover the set.
pub fn devi_anderson(
    tasks: &[Sporadic],
    cpus: u32,
    scratch: &mut Scratch,
) -> Result<Vec<Span>, Verdict> {
    let many = begin(tasks, cpus, scratch)?;
    let rows = &scratch.rows;
    // Λ = ⌈U⌉ − 1: the largest integer below U.
    let mut below = super::load::utilisation(rows).0 >> 32;
    while below > 0 && compare_utilisation(rows, tasks, below) != Ordering::Greater {
        below -= 1;
    }
    while compare_utilisation(rows, tasks, below + 1) == Ordering::Greater {
        below += 1;
    }
    if below == 0 {
        return Ok(vec![Span::ZERO; tasks.len()]);
    }
    let mut costs: Vec<u64> = rows.iter().map(|row| row.cost).collect();
    let mut shares: Vec<u64> = rows.iter().map(|row| share(row.cost, row.period.get())).collect();
    let least = costs.iter().copied().min().unwrap_or(0);
    let work = mutate!(
        "multi-tardiness",
        super::load::largest(&mut costs, below as usize) - least,
        super::load::largest(&mut costs, below as usize - 1)
    );
    let held = super::load::largest(&mut shares, below as usize - 1);
    let x = late(work, (u128::from(many) << 32) - u128::from(held));
    Ok(rows.iter().map(|row| Span::from_ns(x + row.cost)).collect())
}

/// Returns the upper bound of the tardiness of any job by the kernel's documentation.
///
/// # Errors
/// As [`devi_anderson`].
pub fn kernel(tasks: &[Sporadic], cpus: u32, scratch: &mut Scratch) -> Result<Span, Verdict> {
    begin(tasks, cpus, scratch)?;
    let rows = &scratch.rows;
    let costs = || rows.iter().map(|row| row.cost);
    let (Some(most), Some(least)) = (costs().max(), costs().min()) else { return Ok(Span::ZERO) };
    let densest = rows.iter().map(|row| share(row.cost, row.period.get())).max().unwrap_or(0);
    // (M − 1)·C_max grows with M and with it the quotient, so unused CPUs count here as in the
    // documentation.
    let work = u128::from(cpus - 1) * u128::from(most);
    let divisor =
        (u128::from(cpus) << 32) - u128::from(cpus.saturating_sub(2)) * u128::from(densest);
    let work = u64::try_from(work).map_err(|_| Verdict::Unknown { why: Inconclusive::Limit })?;
    let x = late(work.saturating_sub(least), divisor);
    x.checked_add(most).map(Span::from_ns).ok_or(Verdict::Unknown { why: Inconclusive::Limit })
}

fn begin(tasks: &[Sporadic], cpus: u32, scratch: &mut Scratch) -> Result<u64, Verdict> {
    let many = scratch.read(tasks, cpus)?;
    if let Some(task) = tasks.iter().position(|task| {
        mutate!("multi-linux-promise", task.deadline != task.period, task.deadline > task.period)
    }) {
        return Err(Verdict::Unknown { why: Inconclusive::Assumption { number: 5, task } });
    }
    if compare_utilisation(&scratch.rows, tasks, many) == Ordering::Greater {
        return Err(Verdict::Refuted { witness: Witness::Overload { task: tasks.len() - 1 } });
    }
    Ok(many)
}

/// Returns C/T in units of 2^-32, rounded up.
fn share(cost: u64, period: u64) -> u64 {
    (u128::from(cost) << 32).div_ceil(u128::from(period)) as u64
}

/// Returns `work` / (`divisor` / 2^32), rounded up. Every caller passes a divisor above 2^32, so
/// the result fits.
fn late(work: u64, divisor: u128) -> u64 {
    (u128::from(work) << 32).div_ceil(divisor) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::multi::sets::{implicit, set};

    fn both(tasks: &[(u64, u64)], cpus: u32) -> (Vec<u64>, u64) {
        let tasks = implicit(tasks);
        let mut scratch = Scratch::new();
        let each = devi_anderson(&tasks, cpus, &mut scratch).expect("a bound");
        let all = kernel(&tasks, cpus, &mut scratch).expect("a bound");
        (each.iter().map(|bound| bound.as_ns()).collect(), all.as_ns())
    }

    #[test]
    fn devi_anderson_2008_three_tasks_of_two_thirds_on_two_cpus() {
        // Λ = 1: x = (2 − 2)/2.
        assert_eq!(both(&[(2, 3); 3], 2), (vec![2; 3], 2));
        // Λ = 2: x = (3 + 3 − 3)/(3 − 3/4) = 4/3, up to whole units.
        assert_eq!(both(&[(3, 4); 4], 3), (vec![5; 4], 5));
        // Λ = 1 although there are four CPUs: x = (8 − 1)/4.
        assert_eq!(both(&[(8, 9), (1, 2), (1, 9)], 4).0, [10, 3, 3]);
    }

    #[test]
    fn the_kernel_s_bound_is_the_coarser_one() {
        // (3·8 − 1)/(4 − 2·8/9) + 8 = 18.35.
        assert_eq!(both(&[(8, 9), (1, 2), (1, 9)], 4).1, 19);
        for cpus in 3..6 {
            for (a, b, c) in [(1, 2, 3), (5, 5, 5), (6, 1, 4)] {
                let (each, all) = both(&[(a, 7), (b, 6), (c, 9), (1, 40)], cpus);
                assert!(each.iter().all(|&each| each <= all), "{each:?} {all}");
            }
        }
    }

    #[test]
    fn no_job_is_late_up_to_one_cpu_and_overload_is_refuted() {
        assert_eq!(both(&[(1, 2), (1, 3), (1, 6)], 3).0, [0, 0, 0]);
        assert_ne!(both(&[(1, 2), (1, 3), (1, 6), (1, 1 << 40)], 3).0, [0, 0, 0, 0]);
        let over = implicit(&[(2, 3), (2, 3), (2, 3), (1, 1 << 40)]);
        let refuted = devi_anderson(&over, 2, &mut Scratch::new());
        assert!(matches!(refuted, Err(Verdict::Refuted { witness: Witness::Overload { .. } })));
    }

    #[test]
    fn constrained_deadlines_are_not_covered() {
        let early = devi_anderson(&set(&[(1, 2, 3), (1, 2, 2)]), 2, &mut Scratch::new());
        assert_eq!(
            early,
            Err(Verdict::Unknown { why: Inconclusive::Assumption { number: 5, task: 0 } })
        );
    }
}
