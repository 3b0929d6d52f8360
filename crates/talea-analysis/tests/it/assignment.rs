//! Priority assignment against all orders.

use crate::rng::{Deadlines, random, rng, rounds, set, task};
use talea_analysis::Sporadic;
use talea_analysis::uni::assignment::{self, Assignment, ordered};
use talea_analysis::uni::{Scratch, fp_response, np_fp};
use talea_analysis::verdict::Inconclusive;
use talea_core::{Span, Work};

/// Returns all orders of `0..count`.
fn orders(count: usize) -> Vec<Vec<usize>> {
    if count == 0 {
        return vec![vec![]];
    }
    let longer = |order: Vec<usize>| {
        (0..count).map(move |place| {
            let mut order = order.clone();
            order.insert(place, count - 1);
            order
        })
    };
    orders(count - 1).into_iter().flat_map(longer).collect()
}

/// Checks the result of Audsley's algorithm: an order that passes, or no order passes.
fn check(tasks: &[Sporadic], found: Assignment, passes: impl Fn(&[Sporadic]) -> bool) -> bool {
    match found {
        Assignment::Found(order) => {
            let mut all = order.clone();
            all.sort_unstable();
            assert!(all.iter().copied().eq(0..tasks.len()), "{order:?}");
            assert!(passes(&ordered(tasks, &order)), "{order:?}: {tasks:?}");
            true
        }
        Assignment::Stuck(open) => {
            assert!(!open.is_empty());
            let any = orders(tasks.len()).iter().any(|order| passes(&ordered(tasks, order)));
            assert!(!any, "an order passes: {tasks:?}");
            false
        }
    }
}

#[test]
fn audsley_finds_an_order_if_there_is_one() {
    let mut rng = rng(51);
    let mut scratch = Scratch::new();
    let (mut found, mut better) = ([0; 2], 0);
    let all = rounds(1_500);
    for _ in 0..all {
        let count = rng.between(1, 4);
        let mut tasks = random(&mut rng, count, 20, 110 / count, Deadlines::Arbitrary);
        for task in &mut tasks {
            task.jitter = Span::from_ns(rng.below(2) * rng.below(9));
            task.blocking = Work::from_ns(rng.below(2) * rng.below(4));
        }
        let preemptive = assignment::preemptive(&tasks, &mut scratch).expect("in range");
        let passes = |tasks: &[Sporadic]| fp_response::verdict(tasks).is_proved();
        let monotonic = passes(&ordered(&tasks, &assignment::deadline_monotonic(&tasks)));
        let has_order = check(&tasks, preemptive, passes);
        assert!(has_order || !monotonic);
        better += u64::from(has_order && !monotonic);
        found[0] += u64::from(has_order);
        let other = assignment::non_preemptive(&tasks, &mut scratch).expect("in range");
        found[1] += u64::from(check(&tasks, other, |tasks| np_fp::verdict(tasks).is_proved()));
    }
    println!("{all} sets: {found:?} have an order, {better} a better one than by deadline");
    assert!(found.iter().all(|&found| found > all / 10 && found < all) && better > 0);
}

#[test]
fn leung_whitehead_1982_deadline_monotonic_is_optimal_for_constrained_deadlines() {
    let mut rng = rng(52);
    for _ in 0..rounds(2_000) {
        let count = rng.between(1, 5);
        let mut tasks = random(&mut rng, count, 30, 110 / count, Deadlines::Constrained);
        let passes = |tasks: &[Sporadic]| fp_response::verdict(tasks).is_proved();
        let by_deadline = passes(&ordered(&tasks, &assignment::deadline_monotonic(&tasks)));
        let any = |tasks: &[Sporadic]| {
            let found = assignment::preemptive(tasks, &mut Scratch::new()).expect("in range");
            matches!(found, Assignment::Found(_))
        };
        assert_eq!(by_deadline, any(&tasks), "{tasks:?}");
        // Zuhily and Burns 2007.
        for task in &mut tasks {
            task.jitter = Span::from_ns(rng.below(4));
        }
        let order = assignment::deadline_minus_jitter_monotonic(&tasks);
        assert_eq!(passes(&ordered(&tasks, &order)), any(&tasks), "{tasks:?}");
        // Liu and Layland 1973.
        for task in &mut tasks {
            (task.jitter, task.deadline) = (Span::ZERO, task.period);
        }
        let order = assignment::rate_monotonic(&tasks);
        assert_eq!(passes(&ordered(&tasks, &order)), any(&tasks), "{tasks:?}");
    }
}

#[test]
fn stuck_tasks_are_named_and_errors_end_the_search() {
    let tasks = set(&[(1, 10, 10), (3, 7, 5), (3, 7, 5)]);
    let found = assignment::preemptive(&tasks, &mut Scratch::new()).expect("in range");
    assert_eq!(found, Assignment::Stuck(vec![1, 2]));
    let found = assignment::preemptive(&tasks[..2], &mut Scratch::new()).expect("in range");
    assert_eq!(found, Assignment::Found(vec![0, 1]), "an order that is right stays");
    assert_eq!(
        assignment::preemptive(&[task(0, 1, 1)], &mut Scratch::new()),
        Err(Inconclusive::Assumption { number: 1, task: 0 })
    );
    assert_eq!(assignment::audsley(0, |_, _, _| Ok(false)), Ok(Assignment::Found(vec![])));
}
