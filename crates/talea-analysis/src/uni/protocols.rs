//! Blocking by shared resources: the B of each task, computed from the critical sections of all
//! tasks.
//!
//! L. Sha, R. Rajkumar and J. P. Lehoczky, "Priority inheritance protocols: an approach to
//! real-time synchronization", IEEE Trans. Computers 39(9), 1990. With inheritance a task is
//! blocked at most once by each less urgent task, and at most once through each resource that a
//! task at least as urgent uses. With ceilings a task is blocked at most once in total.
//!
//! T. P. Baker, "Stack-based scheduling of realtime processes", Real-Time Systems 3(1), 1991. With
//! the stack resource policy (and with immediate ceilings) a task is also blocked at most once,
//! before the job starts. The same holds for EDF, where the order is that of D.
//!
//! Assumptions:
//! 1. One CPU.
//! 2. Distinct priorities, or preemption levels, in the order of the tasks' indices; 0 is the most
//!    urgent.
//! 3. Jobs do not suspend themselves.
//! 4. Sections of a task are not nested, or given by their outermost lengths with the resource of
//!    the highest ceiling. For inheritance they are not nested at all (nesting chains blocking).
//! 5. A length is the longest execution of a section alone.
//! 6. The sections of a task are given in its order. A section that is entered at the instant at
//!    which the previous section is left is marked as contiguous.
//!
//! *Contiguous sections.* No other job starts between leaving one section and entering the next at
//! the same instant. So a less urgent task blocks for a whole run of contiguous sections, as long
//! as each of them would block by itself. In the first section that would not block, more urgent
//! jobs start. The "at most once" of the papers then applies to runs: with ceilings one run in
//! total, with inheritance one run of each less urgent task. "Once through each *resource*" no
//! longer holds, because a task that inherits for one resource may continue with another resource
//! that was unlocked before. So the sum over resources applies only if no sections are contiguous.
//!
//! *Sufficient*: the terms are upper bounds. A nanosecond could be subtracted from each term (a
//! blocking job has started before). This is not done.

use alloc::vec;
use alloc::vec::Vec;
use talea_core::Work;
use talea_core::mutate;

/// Critical section of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Section {
    /// Index of the task.
    pub task: usize,
    /// Index of the resource.
    pub resource: usize,
    /// Longest execution.
    pub length: Work,
    /// Whether the section is entered at the instant at which the same task leaves the previous
    /// section of the list.
    pub is_contiguous: bool,
}

/// Returns the ceiling of each resource: the index of its most urgent user. `usize::MAX` for an
/// unused resource.
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

/// Returns the longest run of contiguous sections that all satisfy `blocks`.
fn longest_run(sections: &[Section], blocks: impl Fn(&Section) -> bool) -> Work {
    let (mut longest, mut run) = (0u64, 0u64);
    for section in sections {
        if !section.is_contiguous {
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

/// Returns B under the priority ceiling protocol, immediate ceilings, or the stack resource policy.
/// B is the longest run of sections of a less urgent task whose resources a task at least as urgent
/// uses.
pub fn ceiling(tasks: usize, sections: &[Section]) -> Vec<Work> {
    let ceilings = ceilings(sections);
    let blocking = |task: usize| {
        longest_run(sections, |section| section.task > task && ceilings[section.resource] <= task)
    };
    (0..tasks).map(blocking).collect()
}

/// Returns B under priority inheritance: the sum over less urgent tasks of the longest run of
/// sections that can block. If no sections are contiguous and the sum over resources is less, B is
/// that sum. `None` if B does not fit.
pub fn inheritance(tasks: usize, sections: &[Section]) -> Option<Vec<Work>> {
    let ceilings = ceilings(sections);
    let any_contiguous = sections.iter().any(|section| section.is_contiguous);
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
            if any_contiguous {
                return by_task;
            },
            if any_contiguous && tasks == 0 {
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

/// Returns B if sections of any resource are not preempted: the longest run of all less urgent
/// tasks.
pub fn non_preemptive(tasks: usize, sections: &[Section]) -> Vec<Work> {
    (0..tasks).map(|task| longest_run(sections, |section| section.task > task)).collect()
}
