//! Import of rt-app's JSON into a system file.
//!
//! rt-app 1.0 (its tutorial is the reference): `tasks` holds threads by name. A thread has
//! `phases`, and a phase has events in the order in which they are written. Both have loops. Keys
//! may repeat and have suffixes (`run0`, `run1`). Times are whole microseconds.
//!
//! Model: [`read`] reads the contents of a file. [`sharing`] gives each thread its own expiries of
//! shared timers. [`timeline`] converts threads with timers to tasks: the events between two timers
//! are a job. A thread without timers is one job that suspends itself ([`shape`]). Threads that
//! wait for each other are a graph of tasks ([`graph`]). [`place`] writes the schedulers: one
//! fixed-priority root per CPU, with deadline reservations at the top and the fair class at the
//! bottom.
//!
//! Differences have a note in the result. Relative timers start anew after an overrun, while jobs
//! of Talea queue. The fair class is round robin. `runtime` is work. A wake-up that finds no
//! waiting thread is kept.

mod graph;
mod job;
mod place;
mod read;
mod shape;
mod sharing;
#[cfg(test)]
mod tests;
mod timeline;
mod workload;

use crate::json;
use crate::system_file::{File, system_file, too_large};
use std::collections::BTreeMap;
use talea_config::FILE_MAX;
use talea_config::diagnostic::Diagnostic;
use talea_config::source::Findings;
use talea_core::Span;

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
        let Some(mut workload) = read::workload(&root, notes, findings) else { return };
        let duration = workload.duration.as_ref().map(|(duration, _)| *duration);
        workload.threads = match sharing::expand(workload.threads, notes, findings) {
            Some(threads) => threads,
            None => return,
        };
        let Some((parts, edges)) = graph::tasks(&workload.threads, duration, notes, findings)
        else {
            return;
        };
        let (mut alone, mut listed) = (Vec::new(), 0);
        for thread in workload.threads.iter().filter(|thread| !graph::joins(thread)) {
            let Some(task) = task(thread, duration, notes, findings) else { continue };
            listed += task.listed();
            if listed > FILE_MAX / 3 {
                return findings.error(&thread.at, too_large());
            }
            alone.push(task);
        }
        if findings.has_errors() {
            return;
        }
        // The order of the file decides between equals: edges follow their tasks.
        let mut tasks: Vec<(usize, shape::Task<'_>)> = parts.into_iter().enumerate().collect();
        let count = tasks.len();
        tasks.extend(alone.into_iter().enumerate().map(|(n, task)| (n + count, task)));
        let order: BTreeMap<*const workload::Thread, usize> = workload
            .threads
            .iter()
            .enumerate()
            .map(|(at, thread)| (&raw const *thread, at))
            .collect();
        tasks.sort_by_key(|(number, task)| (order.get(&(&raw const *task.thread)), *number));
        let mut place = vec![0; tasks.len()];
        for (at, (number, _)) in tasks.iter().enumerate() {
            place[*number] = at;
        }
        let edges: Vec<graph::Edge> =
            edges.into_iter().map(|(from, to)| (place[from], place[to])).collect();
        let tasks: Vec<shape::Task<'_>> = tasks.into_iter().map(|(_, task)| task).collect();
        let _ = place::write(&workload, &tasks, &edges, cpus, lines, notes, findings);
    })
}

/// Converts a thread that no other waits for.
fn task<'w>(
    thread: &'w workload::Thread,
    duration: Option<Span>,
    notes: &mut Vec<String>,
    findings: &mut Findings<'_>,
) -> Option<shape::Task<'w>> {
    shape::check(thread, notes, findings)?;
    if thread.events().any(|event| matches!(event.what, workload::What::Timer(_))) {
        return timeline::task(thread, duration, notes, findings);
    }
    shape::one_job(thread, duration, notes, findings)
}
