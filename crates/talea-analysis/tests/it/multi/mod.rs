//! Tests of the analysis for several CPUs.

mod graphs;
mod oracle;
mod packing;
mod plain;
mod reach;
mod reference_models;
mod simulated;

use talea_analysis::Sporadic;
use talea_core::{Span, Work};
use talea_sim::rng::Rng;

/// Returns a task from C, D and T.
fn task(cost: u64, deadline: u64, period: u64) -> Sporadic {
    Sporadic::new(Work::from_ns(cost), Span::from_ns(period), Span::from_ns(deadline))
}

/// Returns every task with a period up to `longest`.
fn small_tasks(longest: u64) -> Vec<Sporadic> {
    let mut tasks = Vec::new();
    for period in 1..=longest {
        for deadline in 1..=period {
            tasks.extend((1..=deadline).map(|cost| task(cost, deadline, period)));
        }
    }
    tasks
}

/// Passes every list of `count` of `tasks` to `f`. If `sorted`, the function passes only one of the
/// lists that differ in order alone.
fn lists(tasks: &[Sporadic], count: usize, sorted: bool, f: &mut dyn FnMut(&[Sporadic])) {
    fn go(
        tasks: &[Sporadic],
        from: usize,
        left: usize,
        sorted: bool,
        list: &mut Vec<Sporadic>,
        f: &mut dyn FnMut(&[Sporadic]),
    ) {
        if left == 0 {
            return f(list);
        }
        for at in from..tasks.len() {
            list.push(tasks[at]);
            go(tasks, if sorted { at } else { 0 }, left - 1, sorted, list, f);
            list.pop();
        }
    }
    go(tasks, 0, count, sorted, &mut Vec::new(), f);
}

/// Returns a random set with deadlines up to periods, in deadline-monotonic order. The utilisation
/// of the set is about `load` hundredths of `cpus`.
fn random_set(
    rng: &mut Rng,
    count: u64,
    longest: u64,
    cpus: u32,
    load: u64,
    implicit: bool,
) -> Vec<Sporadic> {
    let mut tasks: Vec<Sporadic> = (0..count)
        .map(|_| {
            let period = rng.between(2, longest);
            // Shares between nothing and twice the mean.
            let share = rng.between(1, 2 * load * u64::from(cpus));
            let cost = (period * share / (100 * count)).clamp(1, period);
            let deadline = if implicit { period } else { rng.between(cost, period) };
            task(cost, deadline, period)
        })
        .collect();
    tasks.sort_by_key(|task| (task.deadline, task.period, task.cost));
    tasks
}
