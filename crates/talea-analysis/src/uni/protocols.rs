//! Blocking from shared resources: the B of each task from the critical sections of all.
//!
//! L. Sha, R. Rajkumar and J. P. Lehoczky, "Priority inheritance protocols: an approach to
//! real-time synchronization", IEEE Trans. Computers 39(9), 1990: with inheritance a task is
//! blocked at most once by each less urgent task, and at most once through each resource that
//! somebody as urgent as itself uses; with ceilings at most once in all. T. P. Baker, "Stack-based
//! scheduling of realtime processes", Real-Time Systems 3(1), 1991: with the stack resource policy
//! (and with ceilings that are taken immediately) also at most once, before the job begins; the
//! same for EDF, where the order is that of D.
//!
//! Assumptions: 1. one CPU; 2. distinct priorities, or preemption levels, in the order of the
//! tasks' indices, 0 most urgent;
//! 3. jobs do not suspend themselves; 4. sections of a task are not nested, or given by their
//!    outermost lengths with the resource of
//! the highest ceiling; for inheritance not nested at all (nesting chains blocking); 5. a length is
//! the most that a section takes alone; 6. the sections of a task are given in its order, and one
//! that is entered at the very instant at which the one before is left says so.
//!
//! *Sections that touch.* Nobody is let in between leaving one section and entering the next at the
//! same instant. So a less urgent task is in the way for a whole run of such sections, as long as
//! each of them would block by itself; in the first that would not, whoever is more urgent comes
//! in. The papers' "at most once" then holds of runs: with ceilings one run in all, with
//! inheritance one run of each less urgent task. Once through each *resource* does not hold any
//! more, since whoever inherits for one resource may go on into another that was given back before;
//! that sum is used only if no sections touch.
//!
//! *Sufficient*: the terms are upper bounds. A nanosecond could be taken off each (whoever is in
//! the way has begun before), and is not.

use alloc::vec;
use alloc::vec::Vec;
use talea_core::Work;
use talea_core::mutate;

/// A critical section of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Section {
    /// Whose.
    pub task: usize,
    /// Of what.
    pub resource: usize,
    /// Its longest time.
    pub length: Work,
    /// Whether it is entered at the instant at which the same task leaves the section before it in
    /// the list.
    pub touches: bool,
}

/// The most urgent user of each resource: its ceiling. `usize::MAX` for one that nobody uses.
fn ceilings(sections: &[Section]) -> Vec<usize> {
    let count = sections.iter().map(|section| section.resource + 1).max().unwrap_or(0);
    let mut ceilings = vec![usize::MAX; count];
    for section in sections {
        let ceiling = &mut ceilings[section.resource];
        *ceiling = mutate!(
            "analysis-ceiling",
            section.task.min(*ceiling),
            if *ceiling == usize::MAX { section.task } else { section.task.max(*ceiling) }
        );
    }
    ceilings
}

/// The longest run of sections that touch, and of each of which `blocks` holds.
fn longest_run(sections: &[Section], blocks: impl Fn(&Section) -> bool) -> Work {
    let (mut longest, mut run) = (0u64, 0u64);
    for section in sections {
        if !section.touches {
            run = 0;
        }
        run = if blocks(section) {
            run.saturating_add(section.length.as_ns())
        } else {
            mutate!("protocols-run", 0, run)
        };
        longest = longest.max(run);
    }
    Work::from_ns(longest)
}

/// B under the priority ceiling protocol, immediate ceilings, or the stack resource policy: the
/// longest run of sections of a less urgent task whose resources somebody as urgent uses.
pub fn ceiling(tasks: usize, sections: &[Section]) -> Vec<Work> {
    let ceilings = ceilings(sections);
    let blocking = |task: usize| {
        longest_run(sections, |section| section.task > task && ceilings[section.resource] <= task)
    };
    (0..tasks).map(blocking).collect()
}

/// B under priority inheritance: the sum over less urgent tasks of the longest run of sections that
/// can block, or, where no sections touch, the sum over resources if that is less; `None` where it
/// does not fit.
pub fn inheritance(tasks: usize, sections: &[Section]) -> Option<Vec<Work>> {
    let ceilings = ceilings(sections);
    let any_touch = sections.iter().any(|section| section.touches);
    let longest = |task: usize, of: &dyn Fn(&Section) -> bool| {
        longest_run(sections, |section| {
            section.task > task && ceilings[section.resource] <= task && of(section)
        })
    };
    let sum = |mut lengths: &mut dyn Iterator<Item = Work>| {
        (&mut lengths).try_fold(Work::ZERO, Work::checked_add)
    };
    let blocking = |task: usize| {
        let by_task = sum(
            &mut (task + 1..tasks).map(|other| longest(task, &|section| section.task == other))
        );
        mutate!(
            "protocols-once",
            if any_touch {
                return by_task;
            },
            if any_touch && tasks == 0 {
                return by_task;
            }
        );
        let by_resource =
            sum(&mut (0..ceilings.len())
                .map(|one| longest(task, &|section| section.resource == one)));
        Some(by_task?.min(by_resource?))
    };
    (0..tasks).map(blocking).collect()
}

/// B where sections, whatever they are of, are not preempted: the longest run of all less urgent
/// tasks.
pub fn non_preemptive(tasks: usize, sections: &[Section]) -> Vec<Work> {
    (0..tasks).map(|task| longest_run(sections, |section| section.task > task)).collect()
}
