//! Tardiness on several CPUs: tasks with D = T + c that no test accepts have a bound, which may be
//! beyond their deadline, and no simulated response exceeds it.

use super::flat::simulate_on;
use crate::rng::{rng, rounds};
use talea_analysis::tree::RootModel;
use talea_core::Span;
use talea_core::Work;
use talea_core::engine::{SchedulerSpec, TaskSpec, Tree};
use talea_core::sched::PolicySpec;
use talea_core::workload::{Arrivals, Cost, Source};

/// The deadline of Devi and Anderson's example is its bound, by which no other test proves it.
#[test]
fn deadlines_beyond_the_period_are_proved_by_tardiness() {
    let mut tree = Tree::new(2, SchedulerSpec::new("root", PolicySpec::Edf));
    let mut sources = Vec::new();
    for _ in 0..3 {
        let spec = TaskSpec::new("task", Span::from_ns(10));
        tree.task(Tree::ROOT, TaskSpec { deadline: Span::from_ns(20), ..spec });
        sources.push(Source::periodic(Span::from_ns(10), Work::from_ns(6)));
    }
    for bound in RootModel::new(&tree, &sources).bounds() {
        assert_eq!((bound.bound, bound.test.name), (Ok(Span::from_ns(16)), "devi-anderson"));
    }
}

#[test]
fn no_response_exceeds_period_and_tardiness() {
    let mut rng = rng(2_008);
    let (mut sets, mut late, mut attained, mut shifted) = (0, 0, 0, 0);
    for round in 0..rounds(1_500) {
        let cpus = rng.between(2, 3) as u32;
        let mut tree = Tree::new(cpus, SchedulerSpec::new("root", PolicySpec::Edf));
        let mut sources = Vec::new();
        // One constant for all tasks, or, without a bound, one for each.
        let (common, is_common) = (rng.below(3) / 2 * rng.below(8), rng.below(4) > 0);
        for _ in 0..rng.between(u64::from(cpus) + 1, 6) {
            let period = rng.between(3, 20);
            let beyond = if is_common { common } else { rng.below(40) };
            let deadline = Span::from_ns(period + beyond);
            let spec = TaskSpec { deadline, ..TaskSpec::new("task", Span::from_ns(period)) };
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
        shifted += u64::from(common > 0);
        for (bound, longest) in bounds.iter().zip(simulate_on(&tree, &sources, round, 800)) {
            let most = *bound.bound.as_ref().expect("a bound");
            assert!(longest <= most, "{longest} exceeds {most}: {tree:?} {sources:?}");
            assert_eq!(bound.is_proved(), most <= bound.deadline);
            late += u64::from(longest > bound.deadline);
            attained += u64::from(longest == most);
        }
    }
    println!("{sets} sets, {shifted} with D > T, {late} late tasks, {attained} bounds attained");
    assert!(sets > 200 && shifted > 50 && late > 100, "{sets} {shifted} {late}");
}
