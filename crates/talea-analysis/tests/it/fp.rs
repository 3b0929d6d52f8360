//! Response times under fixed priorities: published numbers, the reference model, the simulator.

use crate::plain::{self, plain};
use crate::replay::{self, Order};
use crate::rng::{Deadlines, every, random, rng, rounds, set, task};
use talea_analysis::uni::{Bound, Scratch, fp_response};
use talea_analysis::verdict::Inconclusive;
use talea_analysis::{Sporadic, Verdict, Witness};
use talea_core::{Span, Work};

fn bounds(tasks: &[Sporadic]) -> Vec<Option<(u64, u64)>> {
    let mut out = vec![None; tasks.len()];
    fp_response::bounds(tasks, &mut Scratch::new(), &mut out).expect("in range");
    out.iter()
        .map(|bound| bound.map(|Bound { release, arrival }| (release.as_ns(), arrival.as_ns())))
        .collect()
}

fn responses(tasks: &[(u64, u64, u64)]) -> Vec<u64> {
    bounds(&set(tasks)).into_iter().map(|bound| bound.expect("no overload").0).collect()
}

#[test]
fn buttazzo_2011_exercise_4_4_and_the_three_tasks_of_section_4_5() {
    // (C, T): schedulable although neither Liu and Layland nor the hyperbolic bound say so.
    assert_eq!(responses(&[(1, 4, 4), (2, 6, 6), (3, 10, 10)]), [1, 3, 10]);
    // Response time analysis for constrained deadlines, figure 4.17: (C, T, D).
    assert_eq!(responses(&[(1, 4, 3), (1, 5, 4), (2, 6, 5), (1, 11, 10)]), [1, 2, 4, 10]);
}

#[test]
fn lehoczky_1990_the_longest_response_is_not_that_of_the_first_job() {
    // C = (26, 62), T = (70, 100): the first job ends after 114, the fifth takes longest, and the
    // window ends at 696.
    assert_eq!(responses(&[(26, 70, 70), (62, 100, 118)]), [26, 118]);
    let tight = set(&[(26, 70, 70), (62, 100, 117)]);
    let Verdict::Refuted { witness } = fp_response::verdict(&tight) else { panic!("118 > 117") };
    let Witness::Miss { task: 1, job: 4, response, .. } = &witness else { panic!("{witness:?}") };
    assert_eq!(response.as_ns(), 118);
    replay::misses(&tight, &witness, Order::Priority, true);
}

#[test]
fn audsley_1993_jitter_of_more_urgent_tasks_delays_less_urgent_ones() {
    let late = Sporadic { jitter: Span::from_ns(3), ..task(2, 10, 10) };
    let tasks = [late, task(5, 20, 20)];
    // Two jobs of the first within 7 + 3 > 10 − … only if the window is longer than 10 − 3.
    assert_eq!(bounds(&tasks), [Some((2, 5)), Some((7, 7))]);
    let tasks = [late, task(6, 20, 20)];
    assert_eq!(bounds(&tasks), [Some((2, 5)), Some((10, 10))]);
}

#[test]
fn overload_leaves_less_urgent_tasks_unbounded_and_a_full_cpu_is_no_overload() {
    assert_eq!(
        bounds(&set(&[(1, 2, 2), (1, 3, 3), (1, 6, 6), (1, 100, 100)]))[2..],
        [Some((6, 6)), None]
    );
    let witness = fp_response::verdict(&set(&[(1, 2, 2), (2, 3, 3), (1, 6, 6)]));
    assert_eq!(witness, Verdict::Refuted { witness: Witness::Overload { task: 1 } });
    assert_eq!(fp_response::verdict(&[]), Verdict::Proved { bounds: vec![] });
}

#[test]
fn limits_and_assumptions_are_reported_and_nothing_wraps() {
    let unknown = |tasks: &[Sporadic]| match fp_response::verdict(tasks) {
        Verdict::Unknown { why } => why,
        other => panic!("{other:?}"),
    };
    assert_eq!(
        unknown(&set(&[(1, 2, 2), (0, 2, 2)])),
        Inconclusive::Assumption { number: 1, task: 1 }
    );
    assert_eq!(unknown(&set(&[(1, u64::MAX, 2)])), Inconclusive::Limit);
    let huge = (1 << 59) + 1;
    assert!(fp_response::verdict(&set(&[(huge, huge + 1, huge)])).is_proved());
    // U = 1 − tiny, and enough blocking: the window is longer than any clock.
    let endless = Sporadic { blocking: Work::from_ns(huge / 2), ..task(huge / 2, huge, huge) };
    assert_eq!(unknown(&[task(1, 2, 2), endless]), Inconclusive::Limit);
    let mut few = Scratch::with_limit(2);
    assert_eq!(
        fp_response::verdict_in(&set(&[(1, 2, 2), (1, 3, 3)]), &mut few),
        Verdict::Unknown { why: Inconclusive::Limit }
    );
    // Blocking is not caused by a given task, so nothing is refuted.
    let blocked = Sporadic { blocking: Work::from_ns(9), ..task(1, 10, 9) };
    assert_eq!(unknown(&[blocked]), Inconclusive::Insufficient { task: 0 });
}

/// Compares the test with the equations as printed, for random jitter and blocking.
fn agrees(tasks: &[Sporadic]) {
    let numbers = plain(tasks);
    let mut scratch = Scratch::new();
    let meets = fp_response::meets(tasks, &mut scratch).expect("in range");
    assert_eq!(
        meets,
        fp_response::bounds(tasks, &mut scratch, &mut vec![None; tasks.len()]).expect("in range"),
        "{tasks:?}"
    );
    let expected: Vec<_> = (0..tasks.len()).map(|at| plain::fp_response(&numbers, at)).collect();
    assert_eq!(bounds(tasks), expected, "{tasks:?}");
}

#[test]
fn the_equations_as_printed_give_the_same() {
    let mut choices = Vec::new();
    for period in 1..=5 {
        for cost in 1..=period {
            for jitter in [0, 1, 2, 7] {
                for blocking in [0, 2] {
                    let blocking = Work::from_ns(blocking);
                    let jitter = Span::from_ns(jitter);
                    choices.push(Sporadic { blocking, jitter, ..task(cost, period, period) });
                }
            }
        }
    }
    every(&choices, 2, agrees);
    let mut rng = rng(1);
    for _ in 0..rounds(4_000) {
        let count = rng.between(1, 5);
        let mut tasks = random(&mut rng, count, 24, 120 / count, Deadlines::Constrained);
        for task in &mut tasks {
            task.jitter = Span::from_ns(rng.below(4) * rng.below(10));
            task.blocking = Work::from_ns(rng.below(3) * rng.below(5));
        }
        agrees(&tasks);
    }
}

#[test]
fn bini_2009_settling_tasks_by_an_upper_bound_changes_no_verdict() {
    let mut rng = rng(4);
    let (mut accepted, all) = (0, rounds(4_000));
    for _ in 0..all {
        let count = rng.between(1, 12);
        let mut tasks = random(&mut rng, count, 10_000, 160 / count, Deadlines::Arbitrary);
        tasks.sort_by_key(|task| task.deadline);
        for task in &mut tasks {
            task.jitter = Span::from_ns(rng.below(2) * rng.below(2_000));
            task.blocking = Work::from_ns(rng.below(2) * rng.below(300));
        }
        let mut scratch = Scratch::new();
        let meets = fp_response::meets(&tasks, &mut scratch).expect("in range");
        let bounds = fp_response::bounds(&tasks, &mut scratch, &mut vec![None; tasks.len()]);
        assert_eq!(Ok(meets), bounds, "{tasks:?}");
        accepted += u64::from(meets);
    }
    assert!(accepted > all / 5 && accepted < all * 4 / 5, "{accepted} of {all}");
}

/// Checks that the bound of each task is the longest response when all are released together, and
/// that the verdicts follow from it.
fn equals_the_simulation(tasks: &[Sporadic]) -> bool {
    let numbers = plain(tasks);
    let bounds = bounds(tasks);
    let served: Vec<u64> = bounds.iter().map_while(|bound| bound.map(|bound| bound.0)).collect();
    let until = 2 * plain::hyperperiod(&numbers[..served.len().max(1)]);
    let alone = &tasks[..served.len()];
    let ended = replay::simulate(alone, &replay::together(alone), Order::Priority, true, until);
    assert_eq!(replay::longest(alone, &ended), served, "{tasks:?}");
    match fp_response::verdict(tasks) {
        Verdict::Proved { bounds } => {
            assert!(bounds.iter().zip(tasks).all(|(bound, task)| *bound <= task.deadline));
            true
        }
        Verdict::Refuted { witness } => {
            replay::misses(tasks, &witness, Order::Priority, true);
            false
        }
        Verdict::Unknown { why } => panic!("{why:?}: {tasks:?}"),
    }
}

#[test]
fn bounds_are_the_simulated_responses_where_the_worst_case_is_known() {
    let mut choices = Vec::new();
    for period in 2..=5 {
        for cost in 1..=period {
            for deadline in [cost, period, 2 * period] {
                choices.push(task(cost, period, deadline));
            }
        }
    }
    let (mut proved, mut all) = (0u64, 0u64);
    every(&choices, 2, |tasks| {
        proved += u64::from(equals_the_simulation(tasks));
        all += 1;
    });
    let mut rng = rng(2);
    for round in 0..rounds(3_000) {
        let deadlines = if round % 2 == 0 { Deadlines::Constrained } else { Deadlines::Arbitrary };
        let count = rng.between(1, 4);
        let tasks = random(&mut rng, count, 16, 130 / count, deadlines);
        proved += u64::from(equals_the_simulation(&tasks));
        all += 1;
    }
    println!("{all} sets, {proved} schedulable");
    assert!(proved > all / 5 && proved < all * 4 / 5, "both answers are tried: {proved} of {all}");
}

#[test]
fn with_jitter_every_witness_is_a_miss_and_no_pattern_is_worse_than_the_bound() {
    let mut rng = rng(3);
    let (mut replayed, mut reached) = (0, 0);
    for _ in 0..rounds(2_000) {
        let count = rng.between(1, 4);
        let mut tasks = random(&mut rng, count, 14, 100 / count, Deadlines::Arbitrary);
        for task in &mut tasks {
            task.jitter = Span::from_ns(rng.below(12));
        }
        let numbers = plain(&tasks);
        if plain::is_overloaded(&numbers) {
            continue;
        }
        let bounds = bounds(&tasks);
        // The worst case itself, and random phases.
        let worst: Vec<_> = tasks
            .iter()
            .map(|task| talea_analysis::Release { first: Span::ZERO, early: task.jitter })
            .collect();
        let any: Vec<_> = tasks
            .iter()
            .map(|task| talea_analysis::Release {
                first: Span::from_ns(rng.below(20)),
                early: Span::from_ns(rng.between(0, task.jitter.as_ns())),
            })
            .collect();
        let until = 2 * plain::hyperperiod(&numbers) + 40;
        for (pattern, exact) in [(worst, true), (any, false)] {
            let ended = replay::simulate(&tasks, &pattern, Order::Priority, true, until);
            let longest = replay::longest(&tasks, &ended);
            for (longest, bound) in longest.iter().zip(&bounds) {
                let bound = bound.expect("no overload").0;
                assert!(*longest <= bound, "{tasks:?} {pattern:?}");
                if exact {
                    assert_eq!(*longest, bound, "{tasks:?}");
                    reached += 1;
                }
            }
        }
        if let Verdict::Refuted { witness } = fp_response::verdict(&tasks) {
            replay::misses(&tasks, &witness, Order::Priority, true);
            replayed += 1;
        }
    }
    assert!(replayed > 300 && reached > 2_000, "{replayed} witnesses, {reached} bounds");
}
