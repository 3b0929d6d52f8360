//! Tardiness on several CPUs: tasks with the same D − T that no test accepts have a bound, perhaps
//! beyond their deadline, and no simulated response exceeds it.

use super::flat::simulate_on;
use crate::rng::{rng, rounds};
use talea_analysis::tree::RootModel;
use talea_core::Span;
use talea_core::Work;
use talea_core::engine::{SchedulerSpec, TaskSpec, Tree};
use talea_core::sched::PolicySpec;
use talea_core::workload::{Arrivals, Cost, Source};

#[test]
fn no_response_exceeds_period_and_tardiness() {
    let mut rng = rng(2_008);
    let (mut sets, mut late, mut shifted, mut attained) = (0, 0, 0, 0);
    for round in 0..rounds(1_500) {
        let cpus = rng.between(2, 3) as u32;
        let mut tree = Tree::new(cpus, SchedulerSpec::new("root", PolicySpec::Edf));
        let mut sources = Vec::new();
        let (shift, uneven) = (rng.below(2) * rng.between(1, 15), rng.below(4) / 3 * 20);
        for _ in 0..rng.between(u64::from(cpus) + 1, 6) {
            let period = rng.between(3, 20);
            let mut spec = TaskSpec::new("task", Span::from_ns(period));
            spec.deadline = Span::from_ns(period + shift + rng.below(uneven + 1));
            tree.task(Tree::ROOT, spec);
            let (offset, extra) = (rng.below(4) / 3 * rng.below(12), rng.below(3) / 2);
            sources.push(Source {
                arrivals: Arrivals::Sporadic {
                    offset: Span::from_ns(offset),
                    separation: Span::from_ns(period),
                    extra_separation: Span::from_ns(extra),
                },
                cost: Cost::Constant(Work::from_ns(rng.between(1, period))),
            });
        }
        let bounds = RootModel::new(&tree, &sources).bounds();
        if bounds.iter().any(|bound| bound.test.name != "devi-anderson" || bound.bound.is_err()) {
            continue;
        }
        sets += 1;
        for (bound, longest) in bounds.iter().zip(simulate_on(&tree, &sources, round, 800)) {
            let most = *bound.bound.as_ref().expect("a bound");
            assert!(longest <= most, "{longest} exceeds {most}: {tree:?} {sources:?}");
            assert!(shift > 0 || !bound.is_proved() || most == bound.deadline);
            shifted += u64::from(shift > 0 && bound.is_proved());
            late += u64::from(longest > bound.deadline);
            attained += u64::from(longest == most);
        }
    }
    println!(
        "{sets} sets, {late} late tasks, {shifted} proved with D > T, {attained} bounds attained"
    );
    assert!(sets > 200 && late > 50 && shifted > 50, "{sets} {late} {shifted}");
}
