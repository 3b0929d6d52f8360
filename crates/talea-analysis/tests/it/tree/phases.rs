//! Flat roots with known phases: the longest responses of long simulations.

use super::flat::simulate;
use crate::rng::{Rng, rng, rounds};
use talea_analysis::test_info::TestKind;
use talea_analysis::tree::RootModel;
use talea_core::engine::{SchedulerSpec, TaskSpec, Tree};
use talea_core::sched::PolicySpec;
use talea_core::workload::{Arrivals, Cost, Source};
use talea_core::{Span, Work};

const POLICIES: [PolicySpec; 5] = [
    PolicySpec::FixedPriority,
    PolicySpec::RateMonotonic,
    PolicySpec::DeadlineMonotonic,
    PolicySpec::Edf,
    PolicySpec::Fifo,
];

fn random(rng: &mut Rng, policy: &PolicySpec) -> (Tree, Vec<Source>) {
    let mut root = SchedulerSpec::new("root", policy.clone());
    root.preemptive = rng.below(3) > 0;
    let mut tree = Tree::new(1, root);
    let mut sources = Vec::new();
    let varies = rng.below(3) == 0;
    for _ in 0..rng.between(1, 4) {
        let period = [4, 6, 8, 12, 24][rng.below(5) as usize];
        let mut spec = TaskSpec::new("task", Span::from_ns(period));
        spec.deadline = Span::from_ns(rng.between(3, 40));
        spec.priority = rng.below(5) as u8;
        let (max, offset) = (Work::from_ns(rng.between(1, period / 2)), rng.below(30));
        let cost =
            if varies { Cost::Uniform { min: Work::from_ns(1), max } } else { Cost::Constant(max) };
        tree.task(Tree::ROOT, spec);
        let (offset, period) = (Span::from_ns(offset), Span::from_ns(period));
        sources.push(Source {
            arrivals: Arrivals::Periodic { offset, period, jitter: Span::ZERO },
            cost,
        });
    }
    (tree, sources)
}

#[test]
fn known_phases_have_the_responses_of_a_long_simulation() {
    let mut rng = rng(314);
    let (mut exact, mut below, mut other, mut late_start) = (0, 0, 0, 0);
    for round in 0..rounds(4_000) {
        let (tree, sources) = random(&mut rng, &POLICIES[round as usize % 5]);
        let model = RootModel::new(&tree, &sources);
        let bounds = model.with_phases_known(true).bounds();
        let is_constant = sources.iter().all(|source| matches!(source.cost, Cost::Constant(_)));
        let longest = simulate(&tree, &sources, round, 3_000);
        for (bound, longest) in bounds.iter().zip(longest) {
            if bound.test.name != "known-phases" {
                other += 1;
                if let Ok(most) = bound.bound {
                    assert!(longest <= most, "{tree:?} {sources:?}");
                }
                continue;
            }
            let most = *bound.bound.as_ref().expect("a schedule has responses");
            assert!(longest <= most, "{longest} exceeds {most}: {tree:?} {sources:?}");
            assert_eq!(bound.kind, TestKind::Exact);
            if is_constant {
                assert_eq!(longest, most, "{tree:?} {sources:?}");
                exact += 1;
            } else {
                below += 1;
            }
        }
        // With all phases covered no bound is shorter.
        for (all, known) in model.bounds().iter().zip(&bounds) {
            if let (Ok(all), Ok(known)) = (&all.bound, &known.bound) {
                assert!(known <= all, "{tree:?} {sources:?}");
                late_start += u64::from(known < all);
            }
        }
    }
    println!(
        "{exact} exact, {below} with other costs, {other} by other tests, {late_start} shorter"
    );
    assert!(exact > 2_000 && below > 300 && other > 500 && late_start > 1_000);
}

#[test]
fn costs_that_vary_need_a_preemptive_root_and_jobs_with_a_fixed_order() {
    // Without preemption the shorter first job lets the second begin, which blocks the third.
    let source = |offset, cost| Source {
        arrivals: Arrivals::Periodic {
            offset: Span::from_ns(offset),
            period: Span::from_ns(20),
            jitter: Span::ZERO,
        },
        cost,
    };
    let sources = [
        source(0, Cost::Uniform { min: Work::from_ns(1), max: Work::from_ns(3) }),
        source(1, Cost::Constant(Work::from_ns(8))),
        source(2, Cost::Constant(Work::from_ns(2))),
    ];
    let test = |preemptive: bool, policy: PolicySpec, priorities: [u8; 3]| {
        let mut root = SchedulerSpec::new("root", policy);
        root.preemptive = preemptive;
        let mut tree = Tree::new(1, root);
        for priority in priorities {
            let mut spec = TaskSpec::new("task", Span::from_ns(20));
            spec.priority = priority;
            tree.task(Tree::ROOT, spec);
        }
        let bounds = RootModel::new(&tree, &sources).with_phases_known(true).bounds();
        bounds[0].test.name
    };
    assert_eq!(test(true, PolicySpec::FixedPriority, [3, 1, 2]), "known-phases");
    assert_eq!(test(true, PolicySpec::Edf, [0; 3]), "known-phases");
    assert_ne!(test(false, PolicySpec::FixedPriority, [3, 1, 2]), "known-phases");
    assert_ne!(test(true, PolicySpec::FixedPriority, [3, 1, 1]), "known-phases");
    assert_ne!(test(true, PolicySpec::Fifo, [0; 3]), "known-phases");
}
