//! SCHED_DEADLINE: admission by Linux, and the guarantees that follow from it.
//!
//! Assumptions: those of [`super`], 1 to 3, with a thread's runtime, period and deadline for C, T
//! and D. In addition:
//!
//! 4. D ≤ T, which the kernel enforces. The CPUs are one root domain of equal capacity, and every
//!    thread may run on all of them, which the kernel enforces. Threads keep to their runtime. (The
//!    kernel throttles a thread that exceeds its runtime, which delays only that thread.) The
//!    enforcement granularity is zero (without HRTICK it is a tick).
//!
//! *Admission* (`sched_setattr`, `__dl_overflow` and `__checkparam_dl` in kernel/sched/deadline.c;
//! the same from 6.1 to 7.2):
//! - The runtime is at least 1,024 ns and at most the deadline. The deadline is at most the period.
//! - The period is between 100 µs and 2^22 µs (the defaults of two sysctls).
//! - Σ ⌊2^20·C/T⌋ ≤ m·⌊2^20·share⌋ over the root domain. The share is
//!   `sched_rt_runtime_us`/`sched_rt_period_us`, 95 % by default.
//!
//! The kernel sums utilisations, not densities: constrained deadlines have no influence. Rounding
//! down lets n threads exceed the share by n·2^-20.
//!
//! *Guarantees*. On one CPU (a partition of its own) with D = T, every deadline is met, because
//! U ≤ 1. On several CPUs with D = T no deadline is guaranteed, as Dhall and Liu's sets of
//! utilisation just above 1 show. Tardiness is bounded there ([`tardiness`]). With constrained
//! deadlines admission guarantees nothing. Only a deadline test can decide, and [`guarantee`] runs
//! one.
//!
//! Sources: Documentation/scheduler/sched-deadline.rst, section 3; J. Lelli, C. Scordino, L. Abeni
//! and D. Faggioli, "Deadline scheduling in the Linux kernel", Software: Practice and Experience
//! 46(6), 2016.

use super::Scratch;
use super::bertogna_cirinei::GlobalPolicy;
use super::portfolio::{self, Accepted};
use super::tardiness;
use crate::Sporadic;
use crate::test_info::{Platform, TestInfo, TestKind};
use crate::verdict::{Verdict, Witness};
use alloc::vec::Vec;
use talea_core::mutate;
use talea_core::{Charge, Span};

/// Entry of [`admission`] in the catalogue.
pub const INFO: TestInfo = TestInfo {
    name: "sched-deadline",
    policy: "global EDF",
    platform: Platform::Global,
    model: "SCHED_DEADLINE threads of a root domain; sufficient for bounded tardiness if D = T, for nothing if D < T",
    kind: TestKind::Sufficient,
    paper: "Linux 6.1 to 7.2, kernel/sched/deadline.c; Documentation/scheduler/sched-deadline.rst",
    sustainable: "costs, periods",
    tests: &[
        "crates/talea-analysis/src/multi/linux.rs::the_kernel_s_own_limits_refuse",
        "crates/talea-analysis/src/multi/linux.rs::admitted_threads_have_bounded_tardiness_or_no_guarantee",
    ],
};

/// Least runtime that the kernel accepts, in nanoseconds.
pub const RUNTIME_MIN_NS: u64 = 1 << 10;
/// Least period, in nanoseconds: `sched_deadline_period_min_us`.
pub const PERIOD_MIN_NS: u64 = 100_000;
/// Largest period, in nanoseconds: `sched_deadline_period_max_us`.
pub const PERIOD_MAX_NS: u64 = (1 << 22) * 1_000;
/// Default share of a root domain that may be reserved.
pub const SHARE: Charge = Charge::ratio(19, 20);

/// Decision of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// All threads are admitted.
    Admitted,
    /// `EINVAL` for this thread: its parameters are inconsistent or out of range.
    Invalid {
        /// Index of the task.
        task: usize,
    },
    /// `EBUSY` for this thread. All threads before it are admitted.
    Full {
        /// Index of the task.
        task: usize,
    },
}

/// Returns the decision of Linux about the threads `tasks`, in this order. `share` of each of
/// `cpus` CPUs may be reserved.
pub fn admission(tasks: &[Sporadic], cpus: u32, share: Charge) -> Admission {
    // The unit of shares is 2^-64 here and 2^-20 in the kernel.
    let room = u128::from(cpus) * (share.bits() >> 44);
    let mut sum = 0u128;
    for (at, task) in tasks.iter().enumerate() {
        let (runtime, deadline, period) =
            (task.cost.as_ns(), task.deadline.as_ns(), task.period.as_ns());
        let in_order = runtime <= deadline && deadline <= period;
        if !in_order
            || runtime < RUNTIME_MIN_NS
            || !(PERIOD_MIN_NS..=PERIOD_MAX_NS).contains(&period)
        {
            return Admission::Invalid { task: at };
        }
        sum += (u128::from(runtime) << 20) / u128::from(mutate!("multi-linux", period, deadline));
        if sum > room {
            return Admission::Full { task: at };
        }
    }
    Admission::Admitted
}

/// Guarantee for threads that share CPUs under SCHED_DEADLINE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Guarantee {
    /// Every deadline is met.
    Deadlines(Accepted),
    /// Jobs may be late by at most these bounds.
    Tardiness {
        /// Bound for each task.
        bounds: Vec<Span>,
    },
    /// No guarantee: some deadlines are shorter than periods, and no test accepts.
    Nothing,
    /// Jobs can miss deadlines. In overload their lateness grows without bound.
    Misses {
        /// Counterexample.
        witness: Witness,
    },
}

/// Returns the guarantee for admitted tasks on `cpus` CPUs under SCHED_DEADLINE, as far as a test
/// of this crate can decide.
pub fn guarantee(
    tasks: &[Sporadic],
    cpus: u32,
    points_max: u64,
    scratch: &mut Scratch,
) -> Guarantee {
    let answer = portfolio::first_accepting(GlobalPolicy::Edf, tasks, cpus, points_max, scratch);
    match answer {
        Ok(accepted) => return Guarantee::Deadlines(accepted),
        Err(Verdict::Refuted { witness }) => return Guarantee::Misses { witness },
        Err(_) => {}
    }
    match tardiness::devi_anderson(tasks, cpus, scratch) {
        Ok(bounds) => Guarantee::Tardiness { bounds },
        Err(_) => Guarantee::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::multi::sets::{implicit, set};

    const MS: u64 = 1_000_000;

    #[test]
    fn the_kernel_s_own_limits_refuse() {
        let one = |c, d, t| admission(&set(&[(c, d, t)]), 2, SHARE);
        assert_eq!(one(1_024, 100_000, 100_000), Admission::Admitted);
        assert_eq!(one(1_023, 100_000, 100_000), Admission::Invalid { task: 0 });
        assert_eq!(one(1_024, 99_999, 99_999), Admission::Invalid { task: 0 });
        assert_eq!(one(1_024, 10_000, 100_000), Admission::Admitted);
        assert_eq!(one(20_000, 10_000, 100_000), Admission::Invalid { task: 0 });
        assert_eq!(one(1_024, 200_000, 100_000), Admission::Invalid { task: 0 });
        assert_eq!(one(MS, 4_194_304_000, 4_194_304_000), Admission::Admitted);
        assert_eq!(one(MS, 4_194_304_001, 4_194_304_001), Admission::Invalid { task: 0 });
    }

    #[test]
    fn the_sum_over_the_root_domain_is_what_counts_rounded_down() {
        // A whole CPU on two CPUs: the kernel does not check whether a thread fits on one.
        let whole = implicit(&[(10 * MS, 10 * MS)]);
        assert_eq!(admission(&whole, 2, SHARE), Admission::Admitted);
        assert_eq!(admission(&whole, 1, SHARE), Admission::Full { task: 0 });
        // 0.95 exactly, and as much more as rounding swallows, but not 2^-20 more.
        let share = |c| admission(&implicit(&[(c, 1_000_000_000)]), 1, SHARE);
        assert_eq!(share(950_000_000), Admission::Admitted);
        assert_eq!(share(950_000_600), Admission::Admitted);
        assert_eq!(share(950_001_600), Admission::Full { task: 0 });
        let many = implicit(&[(MS, 10 * MS)].repeat(10));
        assert_eq!(admission(&many, 1, SHARE), Admission::Full { task: 9 });
    }

    #[test]
    fn admitted_threads_have_bounded_tardiness_or_no_guarantee() {
        let mut scratch = Scratch::new();
        let mut admit = |tasks: &[Sporadic], cpus| {
            assert_eq!(admission(tasks, cpus, SHARE), Admission::Admitted);
            guarantee(tasks, cpus, 1_000, &mut scratch)
        };
        // One CPU, D = T.
        let one = admit(&implicit(&[(4 * MS, 10 * MS), (5 * MS, 11 * MS)]), 1);
        assert!(matches!(one, Guarantee::Deadlines(_)), "{one:?}");
        // Dhall and Liu 1978, the documentation's example: M light threads and one of almost a
        // whole CPU.
        let mut dhall = implicit(&[(2 * MS, 100 * MS)].repeat(4));
        dhall.extend(implicit(&[(100 * MS, 101 * MS)]));
        let late = admit(&dhall, 4);
        assert!(
            matches!(&late, Guarantee::Tardiness { bounds } if !bounds[4].is_zero()),
            "{late:?}"
        );
        // The same with a deadline just before the end of the period: no guarantee.
        dhall[4].deadline = Span::from_ns(100 * MS + MS / 10);
        assert_eq!(admit(&dhall, 4), Guarantee::Nothing);
        // And with constrained deadlines it admits an infeasible set.
        let both = admit(&set(&[(4 * MS, 4 * MS, 10 * MS); 2]), 1);
        assert!(matches!(both, Guarantee::Misses { witness: Witness::Demand { .. } }), "{both:?}");
    }
}
