//! Comparison with published numbers, and of every small set with a simulation tick by tick.

use super::*;
use alloc::vec;
use alloc::vec::Vec;
use talea_core::rng::Rng;
use talea_core::{Span, Work};

fn set(tasks: &[(u64, u64)]) -> Vec<Demand> {
    tasks.iter().map(|&(q, t)| Demand::new(Work::from_ns(q), Span::from_ns(t))).collect()
}

/// Returns the largest total utilisation, in millionths, that the test accepts for `n` equal tasks.
fn bound(n: u64, test: fn(&[Demand]) -> bool) -> u64 {
    let accepted = |u: u64| {
        test(&vec![Demand::new(Work::from_ns(u), Span::from_ns(n * 1_000_000)); n as usize])
    };
    (0..=1_000_000).collect::<Vec<_>>().partition_point(|&u| accepted(u)) as u64 - 1
}

#[test]
fn liu_layland_1973_the_bound_for_one_to_ten_tasks() {
    let published = [1_000, 828, 780, 757, 743, 735, 729, 724, 721, 718];
    for (n, thousandths) in (1..).zip(published) {
        assert_eq!((bound(n, liu_layland) + 500) / 1_000, thousandths, "{n} tasks");
    }
}

#[test]
fn bini_buttazzo_2003_for_equal_tasks_the_hyperbolic_bound_is_liu_and_layland_s() {
    for n in [1, 2, 3, 7] {
        assert_eq!(bound(n, hyperbolic), bound(n, liu_layland), "{n} tasks");
    }
}

#[test]
fn buttazzo_2011_exercises_4_1_to_4_3() {
    // (C, T); Hard Real-Time Computing Systems, chapter 4: the first passes Liu and Layland, the
    // second only the hyperbolic bound, the third neither (though it is schedulable, which is for
    // an exact test to find).
    let verdicts = |tasks: &[(u64, u64)]| {
        let set = set(tasks);
        (liu_layland(&set), hyperbolic(&set), necessary(&set))
    };
    assert_eq!(verdicts(&[(2, 6), (2, 8), (2, 12)]), (true, true, true));
    assert_eq!(verdicts(&[(3, 5), (1, 8), (1, 10)]), (false, true, true));
    assert_eq!(verdicts(&[(1, 4), (2, 6), (3, 10)]), (false, false, true));
    assert_eq!(verdicts(&[(1, 4), (2, 6), (3, 10), (1, 3)]), (false, false, false));
}

#[test]
fn the_bounds_themselves_pass_and_a_nanosecond_more_does_not() {
    const SECOND: u64 = 1_000_000_000;
    assert!(hyperbolic(&set(&[(SECOND / 2, SECOND), (SECOND, 3 * SECOND)])), "3/2 · 4/3 = 2");
    assert!(!hyperbolic(&set(&[(SECOND / 2, SECOND), (SECOND + 1, 3 * SECOND)])));
    // (1 + 1/k) over k = 60..=119 telescopes to 2.
    let telescope: Vec<(u64, u64)> = (60..120).map(|k| (SECOND, k * SECOND)).collect();
    assert!(hyperbolic(&set(&telescope)));
    assert!(
        necessary(&set(&[(1, 3); 3])) && !necessary(&set(&[(1, 3), (1, 3), (1, 3), (1, u64::MAX)]))
    );
    assert!(liu_layland(&set(&[(7, 7)])) && !liu_layland(&set(&[(7, 7), (1, u64::MAX)])));
    for test in [necessary, liu_layland, hyperbolic] {
        assert!(test(&[]));
    }
}

/// Task of the reference simulation, with its level. Level 0 is the most urgent.
#[derive(Clone, Copy, Debug)]
struct Task {
    work: u64,
    period: u64,
    deadline: u64,
    level: usize,
    offset: u64,
}

/// Order within a level: FIFO, or round robin with a tick as quantum.
#[derive(Clone, Copy, PartialEq)]
enum Within {
    Fifo,
    RoundRobin,
}

/// Whether any task of `checked` misses a deadline in `until` ticks of the simulated set.
fn misses(tasks: &[Task], checked: &[usize], within: Within, until: u64) -> bool {
    // One entry a pending job: (level, moment of queueing, task, release, left).
    let mut ready: Vec<(usize, u64, usize, u64, u64)> = Vec::new();
    for now in 0..until {
        for (i, task) in tasks.iter().enumerate() {
            if now >= task.offset && (now - task.offset) % task.period == 0 {
                ready.push((task.level, now, i, now, task.work));
            }
        }
        let late = |&(_, _, i, release, left): &(usize, u64, usize, u64, u64)| {
            left > 0 && now >= release + tasks[i].deadline && checked.contains(&i)
        };
        if ready.iter().any(late) {
            return true;
        }
        let Some(next) = (0..ready.len()).min_by_key(|&k| (ready[k].0, ready[k].1, ready[k].2))
        else {
            continue;
        };
        ready[next].4 -= 1;
        if within == Within::RoundRobin {
            ready[next].1 = now + 1;
        }
        if ready[next].4 == 0 {
            ready.remove(next);
        }
    }
    false
}

#[test]
fn r16_what_the_sufficient_tests_accept_never_misses() {
    const PERIODS: [u64; 6] = [3, 4, 5, 6, 8, 10];
    let mut accepted = 0;
    for chosen in (0u32..1 << PERIODS.len()).filter(|chosen| chosen.count_ones() == 3) {
        let periods = (0..PERIODS.len()).filter(|i| chosen & (1 << i) != 0).map(|i| PERIODS[i]);
        for packed in 0..4 * 5 * 6 {
            let work = [packed % 4 + 1, packed / 4 % 5 + 1, packed / 20 + 1];
            let tasks: Vec<(u64, u64)> = work.into_iter().zip(periods.clone()).collect();
            let demands = set(&tasks);
            let (ll, hb) = (liu_layland(&demands), hyperbolic(&demands));
            assert!(
                hb || !ll,
                "the hyperbolic bound accepts what Liu and Layland accept: {tasks:?}"
            );
            assert!(necessary(&demands) || !hb);
            if !hb {
                continue;
            }
            accepted += 1;
            let run: Vec<Task> = (tasks.iter().enumerate())
                .map(|(level, &(work, period))| Task {
                    work,
                    period,
                    deadline: period,
                    level,
                    offset: 0,
                })
                .collect();
            assert!(!misses(&run, &[0, 1, 2], Within::Fifo, 240), "{tasks:?}");
        }
    }
    assert!(accepted > 50, "{accepted} sets were accepted");
}

#[test]
fn r31_shared_levels_and_outranking_tasks_are_judged_safely() {
    let mut rng = Rng::new(31);
    let (mut accepted, mut shared) = (0, 0);
    for _ in 0..60_000 {
        // Distinct spans in order, cut into levels at random; up to two tasks above, with any
        // parameters.
        let mut spans: Vec<u64> = (0..=rng.below(4)).map(|_| 3 + rng.below(18)).collect();
        spans.sort_unstable();
        spans.dedup();
        let mut levels: Vec<Vec<Demand>> = vec![];
        let mut run: Vec<Task> = vec![];
        let mut above = vec![];
        for _ in 0..rng.below(3) {
            let (work, period) = (1 + rng.below(2), 2 + rng.below(20));
            if work > period {
                continue;
            }
            run.push(Task {
                work,
                period,
                deadline: period,
                level: run.len(),
                offset: rng.below(period),
            });
            above.push(Demand::new(Work::from_ns(work), Span::from_ns(period)));
        }
        let outranking = run.len();
        for span in spans {
            if levels.is_empty() || rng.below(2) == 0 {
                levels.push(vec![]);
            }
            for _ in 0..=rng.below(2) {
                let work = (1 + rng.below(3)).min(span);
                // D < T for some: the span is the deadline then.
                let period = span + rng.below(2) * rng.below(6);
                let level = 10 + levels.len();
                run.push(Task { work, period, deadline: span, level, offset: rng.below(period) });
                levels
                    .last_mut()
                    .unwrap()
                    .push(Demand::new(Work::from_ns(work), Span::from_ns(span)));
            }
        }
        let classes = classes(&levels, &above);
        assert!(hyperbolic(&classes) || !liu_layland(&classes));
        if !hyperbolic(&classes) {
            continue;
        }
        accepted += 1;
        shared += usize::from(levels.iter().any(|level| level.len() > 1));
        let checked: Vec<usize> = (outranking..run.len()).collect();
        for within in [Within::Fifo, Within::RoundRobin] {
            let mut together = run.clone();
            for task in &mut together {
                task.offset = 0;
            }
            assert!(!misses(&together, &checked, within, 60), "{together:?}");
            assert!(!misses(&run, &checked, within, 60), "{run:?}");
        }
    }
    assert!(accepted > 5_000 && shared > 1_000, "{accepted} accepted, {shared} with shared levels");
}

#[test]
fn merging_equal_spans_accepts_more_and_distinct_spans_alike() {
    let halves = set(&[(45, 100), (45, 100)]);
    assert!(
        !hyperbolic(&halves) && hyperbolic(&merged(halves)),
        "90 % of one period is one task of 90 %"
    );
    let mut rng = Rng::new(7);
    for _ in 0..5_000 {
        let tasks: Vec<(u64, u64)> =
            (0..rng.below(6)).map(|_| (rng.below(6), 1 + rng.below(40))).collect();
        let demands = set(&tasks);
        let classes = merged(demands.clone());
        assert!(hyperbolic(&classes) || !hyperbolic(&demands), "{tasks:?}");
        assert!(classes.windows(2).all(|pair| pair[0].within < pair[1].within));
        let total = |demands: &[Demand]| demands.iter().map(|d| d.work).sum::<u128>();
        assert_eq!(total(&classes), total(&demands));
    }
}
