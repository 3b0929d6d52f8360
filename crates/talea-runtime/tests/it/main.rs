//! Applications on real threads behave as declared.
//!
//! The speed of the system does not matter. The applications run with or without the right to
//! real-time priorities.

mod edits;
mod graphs;
mod lives;
mod manual;
mod oracles;
mod random_sets;
mod rights;
mod servers;
mod shields;
mod starts;
mod stress;
mod tables;
mod timed;
mod user;
mod verdict;
mod versions;
mod waits;

use std::time::Duration;
use talea_kernel_tests::eventually;
use talea_runtime::{Application, Report, Running};

pub(crate) const MS: Duration = Duration::from_millis(1);

/// Runs the application until a condition holds, and returns its report.
pub(crate) fn run(app: Application, what: &str, is_so: impl Fn() -> bool) -> (Application, Report) {
    let running = app.start().expect("it can be run");
    eventually(what, is_so);
    stopped(running)
}

/// Whether one of a few attempts shows the behaviour. The function serves behaviour that a CPU
/// stall may hide and that a wrong runtime never shows.
pub(crate) fn one_of_some(mut shows: impl FnMut() -> bool) -> bool {
    (0..5).any(|_| shows())
}

pub(crate) fn stopped(running: Running) -> (Application, Report) {
    running.stop().expect("it ends by itself")
}
