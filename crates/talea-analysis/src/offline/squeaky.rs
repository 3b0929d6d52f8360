//! Better lists: whoever was late goes further to the front.
//!
//! D. E. Joslin and D. P. Clements, "Squeaky wheel optimization", J. Artificial Intelligence
//! Research 10, 1999: build, find who is in trouble, give them more weight, build again. The first
//! list goes by the latest ends that chains allow.

use super::bounds::{Frame, least};
use super::list::Builder;
use super::{Problem, Synthesis};
use alloc::collections::BinaryHeap;
use alloc::vec::Vec;
use core::cmp::Reverse;
use talea_core::Span;
use talea_core::mutate;

pub(super) fn search(problem: &Problem, frame: &Frame, rounds: u32) -> Synthesis {
    let jobs = problem.jobs.len();
    let behind = behind(problem);
    // The smaller, the earlier in the list. Signed: whoever squeaks often may come before time
    // zero.
    let mut keys: Vec<i128> = frame.latest.iter().map(|end| i128::from(end.as_ns())).collect();
    let mut builder = Builder::new(problem);
    let mut best: Option<(usize, Span, usize)> = None;
    for round in 0..=rounds {
        builder.clear();
        let mut late = Vec::new();
        for job in order(problem, &keys, &behind) {
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
                // What it was late by, and a little more each round, so that no two rounds are the
                // same.
                keys[job] -= i128::from(by.as_ns())
                    + i128::from(least(problem, job, problem.overhead).as_ns())
                        * i128::from(round % 7);
            },
            for &(job, by) in &late[..0] {
                // What it was late by, and a little more each round, so that no two rounds are the
                // same.
                keys[job] -= i128::from(by.as_ns())
                    + i128::from(least(problem, job, problem.overhead).as_ns())
                        * i128::from(round % 7);
            }
        )
    }
    let (late, by, job) = best.expect("at least one round");
    debug_assert!(late <= jobs);
    Synthesis::NotFound { late, job, by }
}

/// Of each job, those that wait for it.
fn behind(problem: &Problem) -> Vec<Vec<usize>> {
    let mut behind = alloc::vec![Vec::new(); problem.jobs.len()];
    for (at, job) in problem.jobs.iter().enumerate() {
        for &before in &job.after {
            behind[before].push(at);
        }
    }
    behind
}

/// By keys, but nobody before those it waits for; these are as urgent as whoever waits for them.
fn order(problem: &Problem, keys: &[i128], behind: &[Vec<usize>]) -> Vec<usize> {
    let mut urgent = keys.to_vec();
    for at in (0..urgent.len()).rev() {
        for &next in &behind[at] {
            urgent[at] = urgent[at]
                .min(urgent[next] - i128::from(least(problem, next, problem.overhead).as_ns()));
        }
    }
    let mut missing: Vec<usize> = problem.jobs.iter().map(|job| job.after.len()).collect();
    let free = (0..missing.len()).filter(|&at| missing[at] == 0);
    let mut ready: BinaryHeap<Reverse<(i128, usize)>> =
        free.map(|at| Reverse((urgent[at], at))).collect();
    let mut order = Vec::with_capacity(missing.len());
    while let Some(Reverse((_, at))) = ready.pop() {
        order.push(at);
        for &next in &behind[at] {
            missing[next] -= 1;
            if missing[next] == 0 {
                ready.push(Reverse((urgent[next], next)));
            }
        }
    }
    order
}
