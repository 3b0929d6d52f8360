//! Tasks inside a server under fixed priorities, among other servers.
//!
//! R. I. Davis and A. Burns, "Hierarchical fixed priority pre-emptive scheduling", RTSS 2005,
//! equations 9 and 10:
//!
//! > L(w) = C + B + Σ_{in the server, above} ⌈(w + J_j)/T_j⌉·C_j, > w = L(w) + (⌈L(w)/Q⌉ − 1)·(T −
//! Q) + Σ_{servers above, X} ⌈((w − (⌈L(w)/Q⌉ − 1)·T)⁺ + J_X)/T_X⌉·Q_X,
//!
//! and T − Q more for a task that is not released with the server, which may have just used its
//! budget (T − 1 for a polling server, whose budget is given up). Everything is counted from when
//! the task comes, T − Q included, so that no jitter is to be added to those above it in the
//! server: that is [`super::fp`] on the supply [`Inside`] the leftover of the servers above.
//!
//! Assumptions: those of [`super::fp`], and 7. every server above is one of [`Curve::of_server`];
//! 8. **the server itself has its budget within its period**, which is asked for here and not
//! presumed: the trap of this analysis, which otherwise gives bounds for servers that are starved.
//!
//! Sufficient. Sustainable in C, T, D, J, B of the tasks.

use super::{Curve, Dedicated, Inside, Leftover, fp};
use crate::Sporadic;
use crate::card::{Card, Kind, Platform};
use crate::uni::Bound;
use crate::verdict::Why;
use alloc::vec::Vec;
use talea_core::mutate;
use talea_core::server::Reservation;

/// Its catalogue entry.
pub const CARD: Card = Card {
    name: "davis-burns",
    policy: "FP within servers under FP",
    platform: Platform::Supply,
    model: "sporadic, any D, jitter, preemptive; polling, deferrable, sporadic servers and CBS",
    kind: Kind::Sufficient,
    paper: "Davis and Burns, RTSS 2005, equations 9 and 10",
    sustainable: "costs, periods, deadlines, jitter, blocking",
    tests: &[
        "crates/talea-analysis/tests/it/supply/servers.rs::davis_and_burns_2005_as_printed_gives_the_same",
        "crates/talea-analysis/tests/it/supply/servers.rs::a_server_that_is_starved_gives_no_bound",
    ],
};

/// The longest response times of `tasks`, most urgent first, inside `server` below the servers (or
/// tasks) `above`.
///
/// # Errors
/// [`Why::Assumption`] 8 where the server does not have its budget within its period, 7 where its
/// kind promises nothing; else as [`fp::bounds`].
pub fn bounds(
    tasks: &[Sporadic],
    server: &Reservation,
    above: &[Curve],
    rounds: u64,
) -> Result<Vec<Option<Bound>>, Why> {
    if super::server::wait(server).is_none() {
        return Err(Why::Assumption { number: 7, task: 0 });
    }
    let level = Leftover::new(Dedicated, above, rounds);
    let inside =
        mutate!("supply-starved", Inside::new(server, level), Inside::served(server, level));
    fp::bounds(tasks, &inside.ok_or(Why::Assumption { number: 8, task: 0 })?, rounds)
}
