//! Partitioned scheduling: bin packing with an exact test for one CPU inside.
//!
//! Assumptions: those of the test for one CPU. In addition, tasks do not migrate.
//!
//! First fit chooses the first CPU on which the test accepts, best fit the fullest, worst fit the
//! emptiest (by utilisation). *Decreasing* places the densest task first. D. Oh and T. Baker,
//! "Utilization bounds for n-processor rate monotone scheduling with static processor assignment",
//! Real-Time Systems 15(2), 1998; S. Baruah and N. Fisher, "The partitioned multiprocessor
//! scheduling of sporadic task systems", RTSS 2005; J. López, J. Díaz and D. García, "Utilization
//! bounds for EDF scheduling on real-time multiprocessor systems", Real-Time Systems 28(1), 2004,
//! for [`lopez`].
//!
//! Sufficient: another packing may place a set that this packing does not place. Not sustainable: a
//! smaller cost changes the order of packing and may leave no capacity for other tasks (as in bin
//! packing). A *given* placement is as sustainable as its test.

use crate::biguint::BigUint;
use crate::demand::sum;
use crate::test_info::{Platform, TestInfo, TestKind};
use crate::uni::{self, fp_response, qpa};
use crate::{Demand, Sporadic};
use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Reverse;
use talea_core::mutate;

/// Entry of [`pack`] in the catalogue.
pub const INFO: TestInfo = TestInfo {
    name: "partitioned",
    policy: "partitioned EDF or FP, by the test inside",
    platform: Platform::Global,
    model: "as the test inside",
    kind: TestKind::Sufficient,
    paper: "Baruah and Fisher, RTSS 2005",
    sustainable: "",
    tests: &[
        "crates/talea-analysis/src/multi/partition.rs::each_fit_chooses_the_cpu_that_it_is_named_after",
        "crates/talea-analysis/tests/it/multi/packing.rs::packed_sets_meet_their_deadlines_and_sets_without_placement_are_not_packed",
    ],
};

/// Entry of [`lopez`] in the catalogue.
pub const LOPEZ: TestInfo = TestInfo {
    name: "lopez",
    policy: "partitioned EDF, first fit",
    platform: Platform::Global,
    model: "sporadic, D = T, preemptive",
    kind: TestKind::Sufficient,
    paper: "López, Díaz and García, Real-Time Systems 28(1), 2004",
    sustainable: "costs, periods",
    tests: &[
        "crates/talea-analysis/src/multi/partition.rs::lopez_2004_the_bound_and_the_set_that_shows_it_tight",
        "crates/talea-analysis/tests/it/multi/packing.rs::lopez_2004_first_and_best_fit_place_every_set_that_the_bound_accepts",
    ],
};

/// Choice among the CPUs on which the test accepts a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fit {
    /// The first CPU.
    First,
    /// The CPU with the largest utilisation; of equal CPUs the first.
    Best,
    /// The CPU with the least utilisation; of equal CPUs the first.
    Worst,
}

/// Order in which tasks are placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PackingOrder {
    /// Input order.
    Given,
    /// Densest first, by C/min(T, D). Tasks of equal density keep their input order.
    Decreasing,
}

/// Returns the CPU of each task. `accepts` receives the tasks of one CPU, with the candidate, in
/// input order. So a list in priority order stays in priority order under any order of packing.
///
/// # Errors
/// The first task for which no CPU is found.
///
/// # Panics
/// If a period or a deadline is zero.
pub fn pack(
    tasks: &[Sporadic],
    cpus: u32,
    fit: Fit,
    order: PackingOrder,
    mut accepts: impl FnMut(&[Sporadic]) -> bool,
) -> Result<Vec<u32>, usize> {
    let mut queue: Vec<usize> = (0..tasks.len()).collect();
    if order == PackingOrder::Decreasing {
        queue.sort_by_key(|&task| {
            Reverse(share(&tasks[task], tasks[task].deadline.min(tasks[task].period).as_ns()))
        });
    }
    let mut used = vec![0u128; cpus as usize];
    let mut members: Vec<Vec<usize>> = vec![Vec::new(); cpus as usize];
    let mut candidate: Vec<Sporadic> = Vec::with_capacity(tasks.len());
    let mut cpu_of = vec![0; tasks.len()];
    let mut cpus: Vec<usize> = (0..cpus as usize).collect();
    for task in queue {
        match fit {
            Fit::First => {}
            Fit::Best => mutate!(
                "multi-partition",
                cpus.sort_by_key(|&cpu| (Reverse(used[cpu]), cpu)),
                cpus.sort_by_key(|&cpu| (used[cpu], cpu))
            ),
            Fit::Worst => cpus.sort_by_key(|&cpu| (used[cpu], cpu)),
        }
        let place = cpus.iter().copied().find(|&cpu| {
            let at = members[cpu].partition_point(|&other| other < task);
            candidate.clear();
            candidate.extend(members[cpu][..at].iter().map(|&other| tasks[other]));
            mutate!("multi-partition-candidate", candidate.push(tasks[task]));

            candidate.extend(members[cpu][at..].iter().map(|&other| tasks[other]));
            accepts(&candidate)
        });
        let cpu = place.ok_or(task)?;
        let at = members[cpu].partition_point(|&other| other < task);
        members[cpu].insert(at, task);
        used[cpu] = used[cpu].saturating_add(share(&tasks[task], tasks[task].period.as_ns()));
        cpu_of[task] = cpu as u32;
    }
    Ok(cpu_of)
}

/// Places tasks as [`pack`] does, for EDF on each CPU, by processor demand (exact).
///
/// # Errors
/// The first task for which no CPU is found, or for which the test is inconclusive on every
/// remaining CPU.
///
/// # Panics
/// As [`pack`].
pub fn edf(
    tasks: &[Sporadic],
    cpus: u32,
    fit: Fit,
    order: PackingOrder,
) -> Result<Vec<u32>, usize> {
    let mut scratch = uni::Scratch::new();
    pack(tasks, cpus, fit, order, |tasks| qpa::find(tasks, &mut scratch) == Ok(qpa::Finding::Fits))
}

/// Places tasks as [`pack`] does, for fixed priorities on each CPU, by response times (exact).
/// Tasks are given in order of priority, the most urgent first.
///
/// # Errors
/// As [`edf`].
///
/// # Panics
/// As [`pack`].
pub fn fp(tasks: &[Sporadic], cpus: u32, fit: Fit, order: PackingOrder) -> Result<Vec<u32>, usize> {
    let (mut scratch, mut out) = (uni::Scratch::new(), vec![None; tasks.len()]);
    pack(tasks, cpus, fit, order, |tasks| {
        fp_response::bounds(tasks, &mut scratch, &mut out[..tasks.len()]) == Ok(true)
    })
}

/// Returns C/`within` in units of 2^-64, rounded down. The value only determines an order.
fn share(task: &Sporadic, within: u64) -> u128 {
    (u128::from(task.cost.as_ns()) << 64) / u128::from(within)
}

/// Whether U ≤ (β·m + 1)/(β + 1) with β = ⌊1/U_max⌋. First fit with the exact EDF test places every
/// set of tasks with D = T below this bound, in any order. The empty set passes. A set with C > T
/// or D < T does not pass.
///
/// # Panics
/// If a period is zero.
pub fn lopez(tasks: &[Sporadic], cpus: u32) -> bool {
    if tasks
        .iter()
        .any(|task| task.cost.as_ns() > task.period.as_ns() || task.deadline < task.period)
    {
        return false;
    }
    let working = || tasks.iter().filter(|task| !task.cost.is_zero());
    let Some(beta) = working().map(|task| task.period.as_ns() / task.cost.as_ns()).min() else {
        return true;
    };
    if cpus == 0 {
        return false;
    }
    let demands: Vec<Demand> = working().map(|task| Demand::new(task.cost, task.period)).collect();
    let (numerator, denominator) = sum(&demands);
    let beta = u128::from(beta);
    let big = |value: u128| BigUint::from(value);
    numerator.times(&big(beta + 1))
        <= denominator.times(&big(beta * u128::from(cpus) + mutate!("multi-partition-lopez", 1, 2)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::edf::partitioned;
    use crate::multi::sets::implicit;
    use talea_core::Charge;

    /// Whether the tasks meet their deadlines under EDF with D = T on one CPU, exactly.
    fn fits(tasks: &[Sporadic]) -> bool {
        let demands: Vec<Demand> =
            tasks.iter().map(|task| Demand::new(task.cost, task.period)).collect();
        partitioned(&demands, Charge::ONE)
    }

    #[test]
    fn each_fit_chooses_the_cpu_that_it_is_named_after() {
        // 2/3 and 1/2 on CPUs of their own, then 1/4, which fits beside either.
        let tasks = implicit(&[(2, 3), (1, 2), (1, 4)]);
        assert_eq!(pack(&tasks, 2, Fit::First, PackingOrder::Given, fits), Ok(vec![0, 1, 0]));
        assert_eq!(pack(&tasks, 2, Fit::Best, PackingOrder::Given, fits), Ok(vec![0, 1, 0]));
        assert_eq!(pack(&tasks, 2, Fit::Worst, PackingOrder::Given, fits), Ok(vec![0, 1, 1]));
        assert_eq!(pack(&tasks, 3, Fit::Worst, PackingOrder::Given, fits), Ok(vec![0, 1, 2]));
    }

    #[test]
    fn decreasing_order_places_a_set_that_the_given_order_does_not() {
        let tasks = implicit(&[(1, 3), (1, 3), (2, 3), (2, 3)]);
        assert_eq!(pack(&tasks, 2, Fit::First, PackingOrder::Given, fits), Err(3));
        assert_eq!(
            pack(&tasks, 2, Fit::First, PackingOrder::Decreasing, fits),
            Ok(vec![0, 1, 0, 1])
        );
        assert_eq!(pack(&tasks, 0, Fit::First, PackingOrder::Given, fits), Err(0));
        assert_eq!(pack(&[], 0, Fit::First, PackingOrder::Given, fits), Ok(vec![]));
    }

    #[test]
    fn the_test_receives_tasks_in_input_order() {
        let tasks = implicit(&[(1, 9), (5, 9), (2, 9)]);
        let mut tested = Vec::new();
        let placed = pack(&tasks, 1, Fit::First, PackingOrder::Decreasing, |tasks| {
            tested.push(tasks.iter().map(|task| task.cost.as_ns()).collect::<Vec<_>>());
            true
        });
        assert_eq!(placed, Ok(vec![0, 0, 0]));
        assert_eq!(tested, [vec![5], vec![5, 2], vec![1, 5, 2]]);
    }

    #[test]
    fn lopez_2004_the_bound_and_the_set_that_shows_it_tight() {
        // β = 1 on two CPUs: 3/2. Three tasks of a little more than half can't be placed.
        assert!(lopez(&implicit(&[(1, 1), (1, 2)]), 2));
        let halves = implicit(&[(51, 100); 3]);
        assert!(
            !lopez(&halves, 2)
                && pack(&halves, 2, Fit::Best, PackingOrder::Decreasing, fits).is_err()
        );
        // β = 2: (2m + 1)/3, reached by 2m + 1 tasks of a third; β = 3 then, and the bound above
        // it.
        for cpus in 1..5 {
            let thirds = implicit(&[(1, 3)].repeat(2 * cpus as usize + 1));
            assert!(lopez(&thirds, cpus), "{cpus}");
            let more = implicit(&[(1_000_001, 3_000_000)].repeat(2 * cpus as usize + 1));
            assert!(!lopez(&more, cpus), "{cpus}");
            assert!(pack(&more, cpus, Fit::First, PackingOrder::Given, fits).is_err(), "{cpus}");
        }
        assert!(
            lopez(&[], 0) && !lopez(&implicit(&[(1, 2)]), 0) && !lopez(&implicit(&[(3, 2)]), 9)
        );
    }
}
