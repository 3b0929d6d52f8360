//! Blocking from shared resources: the B of each task from the critical sections of all.
//!
//! L. Sha, R. Rajkumar and J. P. Lehoczky, "Priority inheritance protocols: an approach to real-time synchronization", IEEE Trans.
//! Computers 39(9), 1990: with inheritance a task is blocked at most once by each less urgent task, and at most once through
//! each resource that somebody as urgent as itself uses; with ceilings at most once in all. T. P. Baker, "Stack-based
//! scheduling of realtime processes", Real-Time Systems 3(1), 1991: with the stack resource policy (and with ceilings
//! that are taken immediately) also at most once, before the job begins; the same for EDF, where the order is that of D.
//!
//! Assumptions: 1. one CPU; 2. distinct priorities, or preemption levels, in the order of the tasks' indices, 0 most urgent;
//! 3. jobs do not suspend themselves; 4. sections of a task are not nested, or given by their outermost lengths with the resource of
//! the highest ceiling; for inheritance not nested at all (nesting chains blocking); two that follow each other at once are one; 5. a length is the most that a section takes alone.
//!
//! *Sufficient*: the terms are upper bounds. A nanosecond could be taken off each (whoever is in the way has begun before), and is not.

use alloc::vec;
use alloc::vec::Vec;
use talea_core::Work;

/// A critical section of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Section {
    /// Whose.
    pub task: usize,
    /// Of what.
    pub resource: usize,
    /// Its longest time.
    pub length: Work,
}

/// The most urgent user of each resource: its ceiling. `usize::MAX` for one that nobody uses.
fn ceilings(sections: &[Section]) -> Vec<usize> {
    let count = sections.iter().map(|section| section.resource + 1).max().unwrap_or(0);
    let mut ceilings = vec![usize::MAX; count];
    for section in sections {
        let ceiling = &mut ceilings[section.resource];
        *ceiling = section.task.min(*ceiling);
    }
    ceilings
}

/// B under the priority ceiling protocol, immediate ceilings, or the stack resource policy: the longest section of a less
/// urgent task whose resource somebody as urgent uses.
pub fn ceiling(tasks: usize, sections: &[Section]) -> Vec<Work> {
    let ceilings = ceilings(sections);
    let blocking = |task: usize| {
        let blocks = |section: &&Section| section.task > task && ceilings[section.resource] <= task;
        sections.iter().filter(blocks).map(|section| section.length).max().unwrap_or(Work::ZERO)
    };
    (0..tasks).map(blocking).collect()
}

/// B under priority inheritance: the lesser of the sum over less urgent tasks and the sum over resources of the longest
/// section that can block; `None` where that does not fit.
pub fn inheritance(tasks: usize, sections: &[Section]) -> Option<Vec<Work>> {
    let ceilings = ceilings(sections);
    let longest = |task: usize, of: &dyn Fn(&Section) -> bool| {
        let blocks =
            |section: &&Section| section.task > task && ceilings[section.resource] <= task && of(section);
        sections.iter().filter(blocks).map(|section| section.length).max().unwrap_or(Work::ZERO)
    };
    let sum =
        |mut lengths: &mut dyn Iterator<Item = Work>| (&mut lengths).try_fold(Work::ZERO, Work::checked_add);
    let blocking = |task: usize| {
        let by_task =
            sum(&mut (task + 1..tasks).map(|other| longest(task, &|section| section.task == other)));
        let by_resource =
            sum(&mut (0..ceilings.len()).map(|one| longest(task, &|section| section.resource == one)));
        Some(by_task?.min(by_resource?))
    };
    (0..tasks).map(blocking).collect()
}

/// B where sections, whatever they are of, are not preempted: the longest of all less urgent tasks.
pub fn non_preemptive(tasks: usize, sections: &[Section]) -> Vec<Work> {
    let blocking = |task: usize| {
        let below = sections.iter().filter(|section| section.task > task);
        below.map(|section| section.length).max().unwrap_or(Work::ZERO)
    };
    (0..tasks).map(blocking).collect()
}
