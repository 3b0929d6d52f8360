//! A job that comes too late: what a bound beyond a deadline may be about.
//!
//! The simulator runs the root as it is described, all costs at their worst. What it misses is missed; what it does not
//! miss says nothing, since another run may.

use crate::commands::simulate::short;
use serde::Serialize;
use std::fmt;
use talea_core::workload::Case;
use talea_core::{Span, Time};
use talea_sim::{Completion, Sink, World};
use talea_system::system::Root;

/// A late job.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Miss {
    /// From 0.
    job: u64,
    release_ns: u64,
    deadline_ns: u64,
    end_ns: u64,
}

#[cfg(test)]
pub(super) const LATE: Miss = Miss { job: 0, release_ns: 0, deadline_ns: 10, end_ns: 12 };

impl fmt::Display for Miss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "simulated with all costs at their worst, job {}, released at {}, ends at {}, {} late",
            self.job,
            short(self.release_ns),
            short(self.end_ns),
            short(self.end_ns - self.deadline_ns)
        )
    }
}

/// The first late job of each task.
struct First(Vec<Option<Miss>>);

impl Sink for First {
    fn completed(&mut self, job: &Completion) {
        let first = &mut self.0[job.task.0 as usize];
        if job.is_late() && first.is_none() {
            *first = Some(Miss {
                job: job.job,
                release_ns: job.release.since(Time::ZERO).as_ns(),
                deadline_ns: job.deadline.since(Time::ZERO).as_ns(),
                end_ns: job.end.since(Time::ZERO).as_ns(),
            });
        }
    }
}

/// Of each task the first job that is late within `duration`.
pub(super) fn misses(root: &Root, duration: Span, seed: u64) -> anyhow::Result<Vec<Option<Miss>>> {
    let machine = root.tree.build().map_err(|error| anyhow::anyhow!("{}: {}", root.name, error.why))?;
    let world = World::new(machine, root.tree.cpus, &root.workload(seed));
    let mut first = First(vec![None; root.tasks.len()]);
    world.with_case(Case::Worst).within(&root.surroundings).run(Time::ZERO + duration, &mut first);
    Ok(first.0)
}
