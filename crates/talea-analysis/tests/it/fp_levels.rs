//! Tests of [`first_late_level`] against two reference models: the response time of each task as
//! the last of its level, and a simulated schedule.

use crate::rng::{rng, set, task};
use talea_analysis::Sporadic;
use talea_analysis::uni::fp_levels::{LateLevel, first_late_level};
use talea_analysis::uni::{Scratch, fp_response};
use talea_analysis::verdict::Inconclusive;
use talea_core::{Span, Work};

fn first(tasks: &[Sporadic], above: usize, ends: &[usize]) -> Option<LateLevel> {
    first_late_level(tasks, above, ends, &mut Scratch::new()).expect("in range")
}

/// Random task set in levels, by deadline. Some tasks before the first level have jitter.
struct Drawn {
    tasks: Vec<Sporadic>,
    above: usize,
    ends: Vec<usize>,
}

fn drawn(roll: &mut impl FnMut(u64) -> u64) -> Drawn {
    let count = 1 + roll(6) as usize;
    let above = roll(count as u64) as usize;
    let mut tasks: Vec<Sporadic> = (0..count)
        .map(|at| {
            let period = 2 + roll(14);
            let most = period.min(2 + roll(4));
            let cost = 1 + roll(most);
            let deadline = (cost + roll(period - cost.min(period) + 1)).min(period);
            let late = if at < above && roll(3) == 0 { roll(period) } else { 0 };
            Sporadic { jitter: Span::from_ns(late), ..task(cost, period, deadline) }
        })
        .collect();
    tasks[above..].sort_by_key(|task| (task.deadline, task.period, task.cost));
    let mut ends: Vec<usize> = (above + 1..count).filter(|_| roll(2) == 0).collect();
    ends.push(count);
    Drawn { tasks, above, ends }
}

/// Returns the first level in which a task misses its deadline below all tasks above and all other
/// tasks of its level; `None` if there is none.
fn plain(drawn: &Drawn) -> Option<usize> {
    let mut from = drawn.above;
    for (level, &end) in drawn.ends.iter().enumerate() {
        for last in from..end {
            let mut order = drawn.tasks[..end].to_vec();
            let own = order.remove(last);
            order.push(own);
            let response = fp_response::lowest_priority_response(&order, &mut Scratch::new())
                .expect("in range");
            if response.is_none_or(|bound| bound.arrival > own.deadline) {
                return Some(level);
            }
        }
        from = end;
    }
    None
}

/// Returns the response of the first job of `last`, which is the last in its level. All tasks
/// arrive together, the tasks above after their jitter.
fn runs(drawn: &Drawn, level: usize, last: usize, until: u64) -> Option<u64> {
    let end = drawn.ends[level];
    let from = if level == 0 { drawn.above } else { drawn.ends[level - 1] };
    // By level: 0 above all, then the others; within one by arrival, and by number, the last one
    // last.
    let level_of = |at: usize| u64::from(at >= from);
    let mut ready: Vec<(u64, u64, usize, u64)> = vec![];
    for now in 0..until {
        for (at, task) in drawn.tasks[..end].iter().enumerate() {
            let (period, early) = (task.period.as_ns(), task.jitter.as_ns());
            // Job k at max(0, k·T − J).
            let mut job = 0;
            while job * period <= now + early {
                if (job * period).saturating_sub(early) == now {
                    let number = if at == last { usize::MAX } else { at };
                    ready.push((level_of(at), now, number, task.cost.as_ns()));
                }
                job += 1;
            }
        }
        let Some(next) = (0..ready.len()).min_by_key(|&at| ready[at]) else { continue };
        ready[next].3 -= 1;
        if ready[next].3 == 0 {
            let (_, released, number, _) = ready.swap_remove(next);
            if number == usize::MAX && released == 0 {
                return Some(now + 1);
            }
        }
    }
    None
}

#[test]
fn a_level_meets_its_deadlines_if_each_of_its_tasks_does_as_the_last() {
    let mut rng = rng(6_001);
    let (mut yes, mut no) = (0, 0);
    for _ in 0..30_000 {
        let drawn = drawn(&mut |sides| rng.between(0, sides - 1));
        let late = first(&drawn.tasks, drawn.above, &drawn.ends).map(|late| late.level);
        assert_eq!(late, plain(&drawn), "{:?} {} {:?}", drawn.tasks, drawn.above, drawn.ends);
        *if late.is_none() { &mut yes } else { &mut no } += 1;
    }
    assert!(yes > 5_000 && no > 5_000, "{yes} {no}");
}

#[test]
fn late_levels_are_late_in_a_simulated_schedule() {
    let mut rng = rng(6_002);
    let (mut seen, mut endless) = (0, 0);
    for _ in 0..8_000 {
        let drawn = drawn(&mut |sides| rng.between(0, sides - 1));
        let Some(late) = first(&drawn.tasks, drawn.above, &drawn.ends) else { continue };
        let from = if late.level == 0 { drawn.above } else { drawn.ends[late.level - 1] };
        let own = from..drawn.ends[late.level];
        let shortest = own.min_by_key(|&at| drawn.tasks[at].deadline).expect("a level has tasks");
        match late.response {
            Some(response) if response.as_ns() > 4_000 => {}
            Some(response) => {
                seen += 1;
                assert!(response > drawn.tasks[shortest].deadline);
                assert_eq!(
                    runs(&drawn, late.level, shortest, 5_000),
                    Some(response.as_ns()),
                    "{:?}",
                    drawn.tasks
                );
            }
            None => endless += 1,
        }
    }
    assert!(seen > 500 && endless > 500, "{seen} {endless}");
}

#[test]
fn a_divided_level_stays_schedulable() {
    let mut rng = rng(6_003);
    let mut divided = 0;
    for _ in 0..30_000 {
        let mut drawn = drawn(&mut |sides| rng.between(0, sides - 1));
        if first(&drawn.tasks, drawn.above, &drawn.ends).is_some() {
            continue;
        }
        let before = drawn.ends.len();
        drawn.ends = (drawn.above + 1..=drawn.tasks.len()).collect();
        divided += usize::from(drawn.ends.len() > before);
        assert_eq!(first(&drawn.tasks, drawn.above, &drawn.ends), None, "{:?}", drawn.tasks);
    }
    assert!(divided > 500, "{divided}");
}

#[test]
fn one_task_a_level_is_the_test_of_response_times() {
    let mut rng = rng(6_004);
    for _ in 0..5_000 {
        let mut drawn = drawn(&mut |sides| rng.between(0, sides - 1));
        drawn.tasks.iter_mut().for_each(|task| task.jitter = Span::ZERO);
        drawn.tasks.sort_by_key(|task| task.deadline);
        let ends: Vec<usize> = (1..=drawn.tasks.len()).collect();
        let meets = fp_response::meets(&drawn.tasks, &mut Scratch::new()).expect("in range");
        assert_eq!(first(&drawn.tasks, 0, &ends).is_none(), meets, "{:?}", drawn.tasks);
    }
}

#[test]
fn unsupported_levels_are_reported_and_nothing_wraps() {
    let mut scratch = Scratch::new();
    let mut why = |tasks: &[Sporadic], above| {
        first_late_level(tasks, above, &[tasks.len()], &mut scratch).unwrap_err()
    };
    assert_eq!(why(&[task(1, 5, 6)], 0), Inconclusive::Assumption { number: 6, task: 0 });
    let late = Sporadic { jitter: Span::from_ns(1), ..task(1, 5, 5) };
    assert_eq!(why(&[late, late], 1), Inconclusive::Assumption { number: 4, task: 1 });
    let blocked = Sporadic { blocking: Work::from_ns(1), ..task(1, 5, 5) };
    assert_eq!(why(&[blocked], 0), Inconclusive::Assumption { number: 5, task: 0 });
    assert_eq!(why(&[task(1, 1 << 60, 5)], 0), Inconclusive::Limit);
    // Those above ask for a thousand CPUs.
    let above = task(1 << 30, 1 << 20, 1 << 20);
    let long = 1 << 59;
    assert_eq!(
        first(&[above, task(1, long, long)], 1, &[2]),
        Some(LateLevel { level: 0, response: None })
    );
    let half = long / 2;
    assert_eq!(first(&set(&[(half, long, long), (half, long, long)]), 0, &[2]), None);
    assert_eq!(
        first(&set(&[(half, long, long), (half, long, long - 1)]), 0, &[2]),
        Some(LateLevel { level: 0, response: Some(Span::from_ns(long)) })
    );
    assert_eq!(first(&[], 0, &[]), None);
}
