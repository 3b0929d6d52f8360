//! Applications on real threads: what they declare happens. How fast this machine is says nothing
//! here; without the right to real-time priorities they run as well.

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

use std::time::Duration;
use talea_kernel_tests::eventually;
use talea_runtime::{Application, Report, Running};

pub(crate) const MS: Duration = Duration::from_millis(1);

/// Runs the application until it is so, and says what became of it.
pub(crate) fn run(app: Application, what: &str, is_so: impl Fn() -> bool) -> (Application, Report) {
    let running = app.start().expect("it can be run");
    eventually(what, is_so);
    stopped(running)
}

/// Whether one of a few tries shows it. For what a machine that stands still may hide, and what a
/// wrong runtime never shows.
pub(crate) fn one_of_some(mut shows: impl FnMut() -> bool) -> bool {
    (0..5).any(|_| shows())
}

pub(crate) fn stopped(running: Running) -> (Application, Report) {
    running.stop().expect("it ends by itself")
}
