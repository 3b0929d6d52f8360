//! Squeaky wheel optimisation: a late job moves forward in the list.
//!
//! D. E. Joslin and D. P. Clements, "Squeaky wheel optimization", J. Artificial Intelligence
//! Research 10, 1999. Each round builds a table, finds the late jobs and increases their weights.
//! The first list is ordered by the latest completion that chains allow.

use super::list_scheduler::Builder;
use super::model::{Problem, Synthesis};
use super::necessary::{JobWindows, min_cost};
use alloc::collections::BinaryHeap;
use alloc::vec::Vec;
use core::cmp::Reverse;
use talea_core::Span;
use talea_core::mutate;

pub(super) fn search(problem: &Problem, frame: &JobWindows, rounds: u32) -> Synthesis {
    let jobs = problem.jobs.len();
    let successors = successors(problem);
    // The smaller the key, the earlier in the list. Signed, because a job that is often late may
    // move before time zero.
    let mut keys: Vec<i128> = frame.latest.iter().map(|end| i128::from(end.as_ns())).collect();
    let mut builder = Builder::new(problem);
    let mut best: Option<(usize, Span, usize)> = None;
    for round in 0..=rounds {
        builder.clear();
        let mut late = Vec::new();
        for job in order(problem, &keys, &successors) {
            let end = builder.place(job);
            if let Some(by) = end.checked_sub(problem.jobs[job].deadline).filter(|by| !by.is_zero())
            {
                late.push((job, by));
            }
        }
        let Some(&(job, by)) = late.iter().max_by_key(|&&(job, by)| (by, Reverse(job))) else {
            return Synthesis::Found { pieces: builder.pieces(), rounds: round };
        };
        let is_better =
            |&(count, least, _): &(usize, Span, usize)| (late.len(), by) < (count, least);
        if best.as_ref().is_none_or(is_better) {
            best = Some((late.len(), by, job));
        }
        mutate!(
            "offline-squeaky",
            for &(job, by) in &late {
                // Its lateness, and a varying amount, so that no two rounds are equal.
                keys[job] -= i128::from(by.as_ns())
                    + i128::from(min_cost(problem, job, problem.overhead).as_ns())
                        * i128::from(round % 7);
            },
            for &(job, by) in &late[..0] {
                // Its lateness, and a varying amount, so that no two rounds are equal.
                keys[job] -= i128::from(by.as_ns())
                    + i128::from(min_cost(problem, job, problem.overhead).as_ns())
                        * i128::from(round % 7);
            }
        )
    }
    let (late, by, job) = best.expect("at least one round");
    debug_assert!(late <= jobs);
    Synthesis::NotFound { late, job, by }
}

/// Returns the successors of each job.
fn successors(problem: &Problem) -> Vec<Vec<usize>> {
    let mut successors = alloc::vec![Vec::new(); problem.jobs.len()];
    for (at, job) in problem.jobs.iter().enumerate() {
        for &before in &job.predecessors {
            successors[before].push(at);
        }
    }
    successors
}

/// Returns the jobs ordered by key. Each job follows its predecessors, which count as at least as
/// urgent as their successors.
fn order(problem: &Problem, keys: &[i128], successors: &[Vec<usize>]) -> Vec<usize> {
    let mut urgent = keys.to_vec();
    for at in (0..urgent.len()).rev() {
        for &next in &successors[at] {
            urgent[at] = urgent[at]
                .min(urgent[next] - i128::from(min_cost(problem, next, problem.overhead).as_ns()));
        }
    }
    let mut missing: Vec<usize> = problem.jobs.iter().map(|job| job.predecessors.len()).collect();
    let free = (0..missing.len()).filter(|&at| missing[at] == 0);
    let mut ready: BinaryHeap<Reverse<(i128, usize)>> =
        free.map(|at| Reverse((urgent[at], at))).collect();
    let mut order = Vec::with_capacity(missing.len());
    while let Some(Reverse((_, at))) = ready.pop() {
        order.push(at);
        for &next in &successors[at] {
            missing[next] -= 1;
            if missing[next] == 0 {
                ready.push(Reverse((urgent[next], next)));
            }
        }
    }
    order
}
