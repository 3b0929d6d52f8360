//! SCHED_DEADLINE: whom Linux lets in, and what that is worth.
//!
//! Assumptions: those of [`super`], 1 to 3, with a thread's runtime, period and deadline for C, T
//! and D; 4. D ≤ T, which the kernel enforces; the CPUs are one root domain of equal capacity, and
//! every thread may run on all of them, which the kernel enforces; threads keep to their runtime
//! (whoever does not is throttled, and only hurts itself), and budgets are enforced without grain
//! (without HRTICK it is a tick).
//!
//! *Admission* (`sched_setattr`, `__dl_overflow` and `__checkparam_dl` in kernel/sched/deadline.c;
//! the same from 6.1 to 7.2): runtime of at least 1,024 ns, at most the deadline, that at most the
//! period, a period between 100 µs and 2^22 µs (sysctls, here their defaults); and Σ ⌊2^20·C/T⌋ ≤
//! m·⌊2^20·share⌋ over the root domain, where the share is
//! `sched_rt_runtime_us`/`sched_rt_period_us`, 95 % by default. Utilisations, not densities: that
//! threads have constrained deadlines is not looked at. Rounding down lets n threads exceed the
//! share by n·2^-20.
//!
//! *What it is worth*. One CPU (a partition of its own): every deadline if D = T, as U ≤ 1. Several
//! CPUs and D = T: no deadline, as Dhall and Liu's sets of utilisation just above 1 show, but a
//! bound on how late anything is ([`tardiness`]). Constrained deadlines: nothing, on one CPU as on
//! several; only a test of deadlines can tell, and [`guarantee`] asks one.
//!
//! Sources: Documentation/scheduler/sched-deadline.rst, section 3; J. Lelli, C. Scordino, L. Abeni
//! and D. Faggioli, "Deadline scheduling in the Linux kernel", Software: Practice and Experience
//! 46(6), 2016.

use super::Scratch;
use super::any::{self, Accepted};
use super::bertogna_cirinei::Policy;
use super::tardiness;
use crate::Sporadic;
use crate::card::{Card, Kind, Platform};
use crate::verdict::{Verdict, Witness};
use alloc::vec::Vec;
use talea_core::mutate;
use talea_core::{Charge, Span};

/// The catalogue entry of [`admission`].
pub const CARD: Card = Card {
    name: "sched-deadline",
    policy: "global EDF",
    platform: Platform::Global,
    model: "SCHED_DEADLINE threads of a root domain; sufficient for bounded tardiness if D = T, for nothing if D < T",
    kind: Kind::Sufficient,
    paper: "Linux 6.1 to 7.2, kernel/sched/deadline.c; Documentation/scheduler/sched-deadline.rst",
    sustainable: "costs, periods",
    tests: &[
        "crates/talea-analysis/src/multi/linux.rs::the_kernel_s_own_limits_refuse",
        "crates/talea-analysis/src/multi/linux.rs::what_linux_lets_in_is_late_by_a_bounded_time_or_by_anything",
    ],
};

/// The least runtime.
pub const RUNTIME_MIN_NS: u64 = 1 << 10;
/// The least period: `sched_deadline_period_min_us`.
pub const PERIOD_MIN_NS: u64 = 100_000;
/// The largest period: `sched_deadline_period_max_us`.
pub const PERIOD_MAX_NS: u64 = (1 << 22) * 1_000;
/// The share of a root domain that may be given out unless an administrator changed it.
pub const SHARE: Charge = Charge::ratio(19, 20);

/// The kernel's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// All are let in.
    Admitted,
    /// `EINVAL` for this one: its parameters are out of order or out of range.
    Invalid {
        /// Index of the task.
        task: usize,
    },
    /// `EBUSY` for this one, with those before it let in.
    Full {
        /// Index of the task.
        task: usize,
    },
}

/// What Linux answers when these threads ask one after the other for `cpus` CPUs of which `share`
/// may be given out.
pub fn admission(tasks: &[Sporadic], cpus: u32, share: Charge) -> Admission {
    // Shares are 2^-64 here and 2^-20 there.
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

/// What threads that share CPUs under SCHED_DEADLINE can count on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Guarantee {
    /// Every deadline is met.
    Deadlines(Accepted),
    /// Jobs may be late, by at most so much.
    Tardiness {
        /// For each task.
        bounds: Vec<Span>,
    },
    /// That it is not known how late jobs can be: some deadlines are shorter than periods, and no
    /// test accepts.
    Nothing,
    /// Jobs can miss deadlines, and are later and later if it is an overload.
    Misses {
        /// How.
        witness: Witness,
    },
}

/// What `cpus` CPUs of SCHED_DEADLINE promise these tasks beyond being let in, as far as a test
/// here can tell.
pub fn guarantee(
    tasks: &[Sporadic],
    cpus: u32,
    points_max: u64,
    scratch: &mut Scratch,
) -> Guarantee {
    let answer = any::of(Policy::Edf, tasks, cpus, points_max, scratch);
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
        // A whole CPU for one of two: nobody asks whether it fits on one.
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
    fn what_linux_lets_in_is_late_by_a_bounded_time_or_by_anything() {
        let mut scratch = Scratch::new();
        let mut let_in = |tasks: &[Sporadic], cpus| {
            assert_eq!(admission(tasks, cpus, SHARE), Admission::Admitted);
            guarantee(tasks, cpus, 1_000, &mut scratch)
        };
        // One CPU, D = T.
        let one = let_in(&implicit(&[(4 * MS, 10 * MS), (5 * MS, 11 * MS)]), 1);
        assert!(matches!(one, Guarantee::Deadlines(_)), "{one:?}");
        // Dhall and Liu 1978, the documentation's example: M light threads and one of almost a
        // whole CPU.
        let mut dhall = implicit(&[(2 * MS, 100 * MS)].repeat(4));
        dhall.extend(implicit(&[(100 * MS, 101 * MS)]));
        let late = let_in(&dhall, 4);
        assert!(
            matches!(&late, Guarantee::Tardiness { bounds } if !bounds[4].is_zero()),
            "{late:?}"
        );
        // The same with a deadline a little before the end of the period: nothing at all.
        dhall[4].deadline = Span::from_ns(100 * MS + MS / 10);
        assert_eq!(let_in(&dhall, 4), Guarantee::Nothing);
        // And with constrained deadlines it lets in what can't be done.
        let both = let_in(&set(&[(4 * MS, 4 * MS, 10 * MS); 2]), 1);
        assert!(matches!(both, Guarantee::Misses { witness: Witness::Demand { .. } }), "{both:?}");
    }
}
