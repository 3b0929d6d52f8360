//! EDF: response times and demand against published numbers, the reference models and the
//! simulator.

use crate::plain::{self, plain};
use crate::replay::{self, Order};
use crate::rng::{Deadlines, every, random, rng, rounds, set, task};
use talea_analysis::uni::{Bound, Scratch, edf_response, qpa};
use talea_analysis::verdict::{Inconclusive, Release};
use talea_analysis::{Sporadic, Verdict, Witness};
use talea_core::{Span, Work};

/// Returns the bounds from release and from arrival; `None` in overload.
fn bounds(tasks: &[Sporadic]) -> Option<Vec<(u64, u64)>> {
    let mut out = vec![None; tasks.len()];
    edf_response::bounds(tasks, &mut Scratch::new(), &mut out).expect("in range");
    out.iter()
        .map(|bound| bound.map(|Bound { release, arrival }| (release.as_ns(), arrival.as_ns())))
        .collect()
}

#[test]
fn buttazzo_2011_section_4_6_the_processor_demand_of_three_tasks() {
    // (C, T, D); g(0, L) at the deadlines up to L* = 25.
    let tasks = set(&[(2, 6, 4), (2, 8, 5), (3, 9, 7)]);
    let numbers = plain(&tasks);
    let demands = [4, 5, 7, 10, 13, 16, 22].map(|at| plain::demand(&numbers, at));
    assert_eq!(demands, [2, 4, 7, 9, 11, 16, 20]);
    assert!(qpa::verdict(&tasks).is_proved());
    // One more nanosecond of the first does not fit at 7.
    let more = set(&[(3, 6, 4), (2, 8, 5), (3, 9, 7)]);
    let Verdict::Refuted { witness } = qpa::verdict(&more) else { panic!("8 > 7") };
    replay::misses(&more, &witness, Order::Deadline { last: 0 }, true);
}

#[test]
fn zhang_burns_2009_the_example_of_eight_tasks() {
    let tasks = set(&[
        (6_000, 31_000, 18_000),
        (2_000, 9_800, 9_000),
        (1_000, 17_000, 12_000),
        (90, 4_200, 3_000),
        (8, 96, 78),
        (2, 12, 16),
        (10, 280, 120),
        (26, 660, 160),
    ]);
    assert!(qpa::verdict(&tasks).is_proved());
    assert!(edf_response::verdict(&tasks).is_proved());
}

#[test]
fn liu_layland_1973_theorem_7_a_full_cpu_meets_every_deadline() {
    let tasks = set(&[(1, 2, 2), (1, 3, 3), (1, 6, 6)]);
    assert_eq!(bounds(&tasks), Some(vec![(2, 2), (3, 3), (6, 6)]));
    assert!(qpa::verdict(&tasks).is_proved());
    let over = set(&[(1, 2, 2), (1, 3, 3), (1, 6, 6), (1, 1_000, 1_000)]);
    for verdict in [edf_response::verdict(&over), qpa::verdict(&over)] {
        assert_eq!(verdict, Verdict::Refuted { witness: Witness::Overload { task: 3 } });
    }
}

#[test]
fn spuri_1996_the_longest_response_need_not_begin_with_a_synchronous_release() {
    // Released together, the second ends after 5; after a while its job meets a later deadline of
    // the first: 6.
    let tasks = set(&[(2, 4, 4), (3, 7, 7)]);
    let (first, longest) = (5, bounds(&tasks).expect("no overload")[1].0);
    let ended =
        replay::simulate(&tasks, &replay::together(&tasks), Order::Deadline { last: 1 }, true, 7);
    assert_eq!(replay::longest(&tasks, &ended)[1], first);
    assert!(longest > first, "{longest}");
}

#[test]
fn limits_and_assumptions_are_reported_and_nothing_wraps() {
    let unknown = |verdict: Verdict| match verdict {
        Verdict::Unknown { why } => why,
        other => panic!("{other:?}"),
    };
    for test in [edf_response::verdict, qpa::verdict] {
        assert_eq!(
            unknown(test(&set(&[(1, 2, 2), (0, 2, 2)]))),
            Inconclusive::Assumption { number: 1, task: 1 }
        );
        assert_eq!(unknown(test(&set(&[(1, u64::MAX, 2)]))), Inconclusive::Limit);
        let huge = (1 << 59) + 1;
        assert!(test(&set(&[(huge, huge + 1, huge)])).is_proved());
        assert_eq!(test(&[]), Verdict::Proved { bounds: vec![] });
        // Where U is 1, jitter makes the hyperperiod count, and this one is beyond every clock.
        let half = |cost| Sporadic { jitter: Span::from_ns(1), ..task(cost, 2 * cost, 4 * cost) };
        let full = [half(1 << 36), half((1 << 36) + 1)];
        assert_eq!(unknown(test(&full)), Inconclusive::Limit);
    }
    let tasks = set(&[(1, 2, 2), (1, 3, 3)]);
    assert_eq!(
        unknown(edf_response::verdict_in(&tasks, &mut Scratch::with_limit(5))),
        Inconclusive::Limit
    );
    assert_eq!(unknown(qpa::verdict_in(&tasks, &mut Scratch::with_limit(1))), Inconclusive::Limit);
    let blocked = [Sporadic { blocking: Work::from_ns(9), ..task(1, 10, 9) }];
    assert_eq!(unknown(edf_response::verdict(&blocked)), Inconclusive::Insufficient { task: 0 });
    assert_eq!(unknown(qpa::verdict(&blocked)), Inconclusive::Insufficient { task: 0 });
}

#[test]
fn a_search_from_far_begins_within_the_hyperperiod() {
    // U = 1 − 1/10000: the walk down from Σ (T − D)·U/(1 − U) = 919,141 would take 3,206 steps.
    let tasks = set(&[(259, 1_000, 772), (58, 200, 185), (216, 500, 434), (189, 10_000, 10_000)]);
    let found = qpa::find(&tasks, &mut Scratch::with_limit(1_000));
    assert_eq!(found, qpa::find(&tasks, &mut Scratch::new()));
    assert_eq!(found, Ok(qpa::Finding::Fits));
}

/// Checks both tests against their reference models, and against each other where both are exact.
fn agrees(tasks: &[Sporadic]) {
    let numbers = plain(tasks);
    let found = bounds(tasks);
    if plain::is_overloaded(&numbers) {
        assert_eq!(found, None, "{tasks:?}");
        let finding = qpa::find(tasks, &mut Scratch::new()).expect("in range");
        assert!(
            matches!(finding, qpa::Finding::Overload | qpa::Finding::Alone { .. }),
            "{tasks:?}"
        );
        return;
    }
    let expected: Vec<_> = (0..tasks.len()).map(|at| plain::edf_response(&numbers, at)).collect();
    assert_eq!(found, Some(expected.clone()), "{tasks:?}");
    let alone = numbers.iter().position(|task| task.d < task.j + task.c);
    let excess = if alone.is_some() { None } else { plain::first_excess(&numbers) };
    match qpa::find(tasks, &mut Scratch::new()).expect("in range") {
        qpa::Finding::Fits => assert_eq!((alone, excess), (None, None), "{tasks:?}"),
        qpa::Finding::Alone { task } => assert_eq!(Some(task), alone, "{tasks:?}"),
        qpa::Finding::Exceeds { at, demand, blocking } => {
            assert!(excess.is_some_and(|first| first <= at.as_ns()), "{tasks:?}");
            assert_eq!(demand.as_ns(), plain::demand(&numbers, at.as_ns()), "{tasks:?}");
            assert!((demand + blocking).as_ns() > at.as_ns(), "{tasks:?}");
        }
        qpa::Finding::Overload => panic!("U is at most 1: {tasks:?}"),
    }
    if numbers.iter().all(|task| task.b == 0) {
        let meet = expected.iter().zip(&numbers).all(|(bound, task)| bound.1 <= task.d);
        assert_eq!(
            meet,
            alone.or(excess.map(|_| 0)).is_none(),
            "response times and demand differ: {tasks:?}"
        );
    }
}

#[test]
fn every_candidate_tried_gives_the_same() {
    let mut choices = Vec::new();
    for period in 1..=5 {
        for cost in 1..=period {
            for deadline in [cost, period, period + 3] {
                for jitter in [0, 2, 6] {
                    choices.push(Sporadic {
                        jitter: Span::from_ns(jitter),
                        ..task(cost, period, deadline)
                    });
                }
            }
        }
    }
    every(&choices, 2, agrees);
    let mut rng = rng(11);
    for round in 0..rounds(3_000) {
        let count = rng.between(1, 4);
        let kind = if round % 2 == 0 { Deadlines::Constrained } else { Deadlines::Arbitrary };
        agrees(&random(&mut rng, count, 12, 130 / count, kind));
    }
}

#[test]
fn demand_at_every_instant_gives_the_same() {
    let mut rng = rng(12);
    for _ in 0..rounds(3_000) {
        let count = rng.between(1, 4);
        let mut tasks = random(&mut rng, count, 12, 120 / count, Deadlines::Arbitrary);
        for task in &mut tasks {
            task.jitter = Span::from_ns(rng.below(3) * rng.below(5));
            task.blocking = Work::from_ns(rng.below(3) * rng.below(4));
        }
        agrees(&tasks);
    }
}

/// Compares with simulations of each phase of each task, with ties adverse to the task. A negative
/// verdict must equal the first miss.
fn equals_the_simulation(tasks: &[Sporadic]) -> bool {
    let numbers = plain(tasks);
    let verdicts = [edf_response::verdict(tasks), qpa::verdict(tasks)];
    let proved = verdicts[0].is_proved();
    assert_eq!(proved, verdicts[1].is_proved(), "{tasks:?}");
    for verdict in &verdicts {
        match verdict {
            Verdict::Refuted { witness } => {
                if let Witness::Demand { at, .. } = witness {
                    assert_eq!(Some(at.as_ns()), plain::first_excess(&numbers), "{tasks:?}");
                }
                let last = if let Witness::Miss { task, .. } = witness { *task } else { 0 };
                replay::misses(tasks, witness, Order::Deadline { last }, true);
            }
            Verdict::Proved { .. } => {}
            Verdict::Unknown { why } => panic!("{why:?}: {tasks:?}"),
        }
    }
    let Some(bounds) = bounds(tasks) else { return false };
    let latest = numbers.iter().map(|task| task.d).max().expect("a task");
    let until = latest + 2 * plain::hyperperiod(&numbers);
    for (at, task) in numbers.iter().enumerate() {
        let order = Order::Deadline { last: at };
        let mut longest = 0;
        for phase in 0..task.t {
            let mut releases = replay::together(tasks);
            releases[at] = Release { first: Span::from_ns(phase), early: Span::ZERO };
            let ended = replay::simulate(tasks, &releases, order, true, until);
            longest = longest.max(replay::longest(tasks, &ended)[at]);
            let first_miss = ended.iter().any(talea_sim::Completion::is_late);
            assert!(!(first_miss && proved), "{tasks:?} {releases:?}");
            assert!(
                phase > 0 || first_miss != proved,
                "together is the worst case for the verdict: {tasks:?}"
            );
        }
        assert_eq!(bounds[at].0, longest, "task {at} of {tasks:?}");
    }
    proved
}

#[test]
fn bounds_are_the_longest_simulated_responses_and_verdicts_the_first_miss() {
    let mut choices = Vec::new();
    for period in 2..=5 {
        for cost in 1..period {
            for deadline in [cost, period, period + 2] {
                choices.push(task(cost, period, deadline));
            }
        }
    }
    let (mut proved, mut all) = (0u64, 0u64);
    every(&choices, 2, |tasks| {
        proved += u64::from(equals_the_simulation(tasks));
        all += 1;
    });
    let mut rng = rng(13);
    for round in 0..rounds(300) {
        let kind = if round % 2 == 0 { Deadlines::Constrained } else { Deadlines::Arbitrary };
        let count = rng.between(2, 4);
        proved += u64::from(equals_the_simulation(&random(&mut rng, count, 9, 120 / count, kind)));
        all += 1;
    }
    println!("{all} sets, {proved} schedulable");
    assert!(
        proved > all / 10 && proved < all * 9 / 10,
        "both answers are tried: {proved} of {all}"
    );
}

#[test]
fn with_jitter_every_witness_is_a_miss_and_no_pattern_is_worse_than_the_bound() {
    let mut rng = rng(14);
    let mut replayed = 0;
    for _ in 0..rounds(1_500) {
        let count = rng.between(1, 4);
        let mut tasks = random(&mut rng, count, 12, 110 / count, Deadlines::Arbitrary);
        for task in &mut tasks {
            task.jitter = Span::from_ns(rng.below(9));
        }
        let numbers = plain(&tasks);
        for verdict in [edf_response::verdict(&tasks), qpa::verdict(&tasks)] {
            match verdict {
                Verdict::Refuted { witness: Witness::Overload { .. } } | Verdict::Proved { .. } => {
                }
                Verdict::Refuted { witness } => {
                    replay::late(&tasks, &witness, true);
                    replayed += 1;
                }
                Verdict::Unknown { why } => panic!("{why:?}: {tasks:?}"),
            }
        }
        let Some(bounds) = bounds(&tasks) else { continue };
        let any: Vec<_> = tasks
            .iter()
            .map(|task| Release {
                first: Span::from_ns(rng.below(12)),
                early: Span::from_ns(rng.between(0, task.jitter.as_ns())),
            })
            .collect();
        let until = (plain::hyperperiod(&numbers) + 60).min(400) as i64;
        for job in plain::run(plain::jobs(&tasks, &any, until), |_, _| true, until, |job| job.due) {
            if job.end < i64::MAX {
                let (release, arrival) = bounds[job.task];
                assert!(job.end - job.release <= release as i64, "{tasks:?} {any:?}");
                assert!(job.end - job.arrival <= arrival as i64, "{tasks:?} {any:?}");
            }
        }
    }
    assert!(replayed > 300, "{replayed} witnesses");
}
