//! Tasks inside a server under fixed priorities, among other servers.
//!
//! R. I. Davis and A. Burns, "Hierarchical fixed priority pre-emptive scheduling", RTSS 2005,
//! equations 9 and 10:
//!
//! > L(w) = C + B + Σ_{in the server, above} ⌈(w + J_j)/T_j⌉·C_j,
//! > w = L(w) + (⌈L(w)/Q⌉ − 1)·(T − Q)
//! >   + Σ_{servers above, X} ⌈((w − (⌈L(w)/Q⌉ − 1)·T)⁺ + J_X)/T_X⌉·Q_X,
//!
//! and T − Q more for a task that is not released with the server, because the task may have just
//! consumed the budget. For a polling server it is T − 1, because a polling server discards its
//! budget. All times count from the arrival of the task, T − Q included. So the more urgent tasks
//! in the server need no additional jitter. The analysis is [`super::fp`] on the supply
//! [`NestedServer`] over the remaining supply below the more urgent servers.
//!
//! Assumptions: those of [`super::fp`], and:
//!
//! 7. Every server above is one of [`InterferenceCurve::of_server`].
//! 8. **The server itself receives its budget within its period**. The test checks this and does
//!    not presume it. Without the check the analysis would yield bounds for starved servers.
//!
//! Sufficient. Sustainable in C, T, D, J, B of the tasks.

use super::{Dedicated, InterferenceCurve, Leftover, NestedServer, fp};
use crate::Sporadic;
use crate::test_info::{Platform, TestInfo, TestKind};
use crate::uni::Bound;
use crate::verdict::Inconclusive;
use alloc::vec::Vec;
use talea_core::mutate;
use talea_core::server::Reservation;

/// Entry of this test in the catalogue.
pub const INFO: TestInfo = TestInfo {
    name: "davis-burns",
    policy: "FP within servers under FP",
    platform: Platform::Supply,
    model: "sporadic, any D, jitter, preemptive; polling, deferrable, sporadic servers and CBS",
    kind: TestKind::Sufficient,
    paper: "Davis and Burns, RTSS 2005, equations 9 and 10",
    sustainable: "costs, periods, deadlines, jitter, blocking",
    tests: &[
        "crates/talea-analysis/tests/it/supply/servers.rs::davis_and_burns_2005_as_printed_gives_the_same",
        "crates/talea-analysis/tests/it/supply/servers.rs::a_starved_server_yields_no_bound",
    ],
};

/// Returns the longest response times of `tasks`, most urgent first, inside `server` below the
/// servers (or tasks) `above`.
///
/// # Errors
/// [`Inconclusive::Assumption`] 8 if the server does not receive its budget within its period, and
/// 7 if the kind of the server guarantees nothing; otherwise as [`fp::bounds`].
pub fn bounds(
    tasks: &[Sporadic],
    server: &Reservation,
    above: &[InterferenceCurve],
    rounds: u64,
) -> Result<Vec<Option<Bound>>, Inconclusive> {
    if super::server::max_wait(server).is_none() {
        return Err(Inconclusive::Assumption { number: 7, task: 0 });
    }
    let level = Leftover::new(Dedicated, above, rounds);
    let inside = mutate!(
        "supply-starved",
        NestedServer::new(server, level),
        NestedServer::served(server, level)
    );
    fp::bounds(tasks, &inside.ok_or(Inconclusive::Assumption { number: 8, task: 0 })?, rounds)
}
