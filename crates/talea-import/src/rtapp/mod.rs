//! Import of rt-app's JSON into a system file.
//!
//! rt-app 1.0 (its tutorial is the reference): `tasks` holds threads by name. A thread has
//! `phases`, and a phase has events in the order in which they are written. Both have loops. Keys
//! may repeat and have suffixes (`run0`, `run1`). Times are whole microseconds.
//!
//! Model: [`read`] reads the contents of a file. [`shape`] converts threads to tasks: the events
//! between two timers are a job. A thread without timers is one job that suspends itself. [`place`]
//! writes the schedulers: one fixed-priority root per CPU, with deadline reservations at the top
//! and the fair class at the bottom.
//!
//! Three differences have a note in the result. Relative timers start anew after an overrun, while
//! jobs of Talea queue. The fair class is round robin. `runtime` is work.

mod place;
mod read;
mod shape;
mod workload;

use crate::json;
use crate::system_file::{File, system_file};
use talea_config::diagnostic::Diagnostic;

/// Converts an rt-app workload into a system file, for a computer with `cpus` CPUs. Without a
/// number, the file determines the number of CPUs.
///
/// # Errors
/// All diagnostics, with their positions.
pub fn rtapp(file: File<'_>, cpus: Option<u32>) -> Result<String, Vec<Diagnostic>> {
    system_file(file, "rt-app", |text, lines, notes, findings| {
        let root = match json::parse(text) {
            Ok(root) => root,
            Err((at, words)) => return findings.error(&at, words),
        };
        let Some(workload) = read::workload(&root, notes, findings) else { return };
        let duration = workload.duration.as_ref().map(|(duration, _)| *duration);
        let tasks: Vec<Option<shape::Task<'_>>> = workload
            .threads
            .iter()
            .map(|thread| shape::task(thread, duration, notes, findings))
            .collect();
        let Some(tasks) = tasks.into_iter().collect::<Option<Vec<_>>>() else { return };
        place::write(&workload, &tasks, cpus, lines, notes, findings);
    })
}
