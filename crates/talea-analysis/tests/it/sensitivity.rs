//! Sensitivity analysis: the last accepted value is accepted, and the next one is not.

use crate::rng::{Deadlines, random, rng, rounds, set};
use talea_analysis::Sporadic;
use talea_analysis::uni::sensitivity::{largest_cost, largest_factor, scaled, shortest_period};
use talea_analysis::uni::{Scratch, edf_response, fp_response, qpa};
use talea_analysis::verdict::Inconclusive;
use talea_core::{Span, Work};

fn accepts(tasks: &[Sporadic]) -> Result<bool, Inconclusive> {
    Ok(qpa::find(tasks, &mut Scratch::new())? == qpa::Finding::Fits)
}

fn accepts_fp(tasks: &[Sporadic]) -> Result<bool, Inconclusive> {
    let mut out = vec![None; tasks.len()];
    fp_response::bounds(tasks, &mut Scratch::new(), &mut out)
}

#[test]
fn liu_layland_1973_sensitivity_of_a_full_cpu() {
    let tasks = set(&[(1_000, 4_000, 4_000), (1_000, 8_000, 8_000)]);
    assert_eq!(largest_cost(&tasks, 0, accepts), Ok(Some(Work::from_ns(3_500))));
    assert_eq!(largest_cost(&tasks, 1, accepts), Ok(Some(Work::from_ns(6_000))));
    // U = 3/8: 8/3 of it, in thousandths.
    assert_eq!(largest_factor(&tasks, 1_000, accepts), Ok(Some(2_666)));
    let longest = Span::from_ns(4_000);
    assert_eq!(
        shortest_period(&tasks, 0, longest, accepts),
        Ok(Some(Span::from_ns(1_143))),
        "⌈1000 / (7/8)⌉"
    );
    let over = set(&[(3_000, 4_000, 4_000), (4_000, 8_000, 8_000)]);
    assert_eq!(largest_factor(&over, 1_000, accepts), Ok(Some(800)));
    assert_eq!(largest_factor(&[], 1_000, accepts), Ok(None));
    assert_eq!(
        largest_cost(&set(&[(4, 4, 4), (1, 9, 9)]), 1, accepts),
        Ok(None),
        "the first takes all"
    );
    assert_eq!(
        largest_cost(&tasks, 0, |_: &[Sporadic]| Err(Inconclusive::Limit)),
        Err(Inconclusive::Limit)
    );
}

/// Compares each result with a search through every value.
fn agrees(tasks: &[Sporadic], accepts: fn(&[Sporadic]) -> Result<bool, Inconclusive>) {
    let ok = |tasks: &[Sporadic]| accepts(tasks).expect("in range");
    for at in 0..tasks.len() {
        let with = |cost: u64| {
            let mut tasks = tasks.to_vec();
            tasks[at].cost = Work::from_ns(cost);
            tasks
        };
        let most = tasks[at].period.min(tasks[at].deadline).as_ns();
        let expected = (1..=most).rev().find(|&cost| ok(&with(cost)));
        assert_eq!(largest_cost(tasks, at, accepts), Ok(expected.map(Work::from_ns)), "{tasks:?}");
        let with = |period: u64| {
            let mut tasks = tasks.to_vec();
            let task = &mut tasks[at];
            if task.deadline <= task.period {
                task.deadline = task.deadline.min(Span::from_ns(period));
            }
            task.period = Span::from_ns(period);
            tasks
        };
        let longest = tasks[at].period.as_ns() + 5;
        // From the longest down to the first that is refused.
        let expected =
            (tasks[at].cost.as_ns()..=longest).rev().take_while(|&period| ok(&with(period))).last();
        let found = shortest_period(tasks, at, Span::from_ns(longest), accepts);
        assert_eq!(found, Ok(expected.map(Span::from_ns)), "{tasks:?}");
    }
    let expected =
        (1..200).rev().find(|&parts| scaled(tasks, parts, 20).is_some_and(|tasks| ok(&tasks)));
    let found = largest_factor(tasks, 20, accepts).expect("in range");
    assert_eq!(found.map(|parts| parts.min(199)), expected, "{tasks:?}");
}

#[test]
fn trying_every_value_gives_the_same() {
    let mut rng = rng(61);
    for _ in 0..rounds(300) {
        let count = rng.between(1, 4);
        let kind = if rng.below(2) == 0 { Deadlines::Constrained } else { Deadlines::Arbitrary };
        let tasks = random(&mut rng, count, 20, 130 / count, kind);
        agrees(&tasks, accepts);
        agrees(&tasks, accepts_fp);
    }
}

#[test]
fn the_tests_are_sustainable_as_their_catalogue_entries_say() {
    let mut rng = rng(62);
    let proved = |tasks: &[Sporadic]| {
        [fp_response::verdict(tasks), qpa::verdict(tasks), edf_response::verdict(tasks)]
            .map(|verdict| verdict.is_proved())
    };
    for _ in 0..rounds(4_000) {
        let count = rng.between(1, 4);
        let mut tasks = random(&mut rng, count, 24, 120 / count, Deadlines::Arbitrary);
        for task in &mut tasks {
            task.jitter = Span::from_ns(rng.below(4));
            task.blocking = Work::from_ns(rng.below(3));
        }
        let before = proved(&tasks);
        let task = &mut tasks[rng.below(count) as usize];
        match rng.below(5) {
            0 => task.cost = Work::from_ns(rng.between(1, task.cost.as_ns())),
            1 => task.period += Span::from_ns(rng.below(9)),
            2 => task.deadline += Span::from_ns(rng.below(9)),
            3 => task.jitter = Span::from_ns(rng.between(0, task.jitter.as_ns())),
            _ => task.blocking = Work::from_ns(rng.between(0, task.blocking.as_ns())),
        }
        let after = proved(&tasks);
        // Blocking is that of deadlines in their order: longer ones may change it, so that this is
        // the caller's.
        assert!(before.iter().zip(after).all(|(&before, after)| after || !before), "{tasks:?}");
    }
}
