//! AMC-rtb against a simulated CPU with mode switches.

use crate::rng::{Rng, rng, rounds, task};
use talea_analysis::uni::amc_rtb::{self, DualCriticalityTask, DualResponse};
use talea_analysis::uni::{Scratch, fp_response};
use talea_analysis::verdict::Inconclusive;
use talea_analysis::{Verdict, Witness};
use talea_core::{Span, Work};

fn low(cost: u64, period: u64, deadline: u64) -> DualCriticalityTask {
    DualCriticalityTask { task: task(cost, period, deadline), high: None }
}

fn high(cost: u64, cost_high: u64, period: u64, deadline: u64) -> DualCriticalityTask {
    DualCriticalityTask { task: task(cost, period, deadline), high: Some(Work::from_ns(cost_high)) }
}

#[test]
fn two_tasks_by_hand() {
    // Low above high: R(LO) = 2 + 2 = 4 with one job of the first; R(HI) = 5 + 2, though ⌈7/5⌉ = 2
    // jobs would fit in.
    let tasks = [low(2, 5, 5), high(2, 5, 12, 12)];
    let mut out = vec![None; 2];
    assert_eq!(amc_rtb::bounds(&tasks, &mut Scratch::new(), &mut out), Ok(None));
    let span = Span::from_ns;
    assert_eq!(out[1], Some(DualResponse { low: span(4), high: Some(span(7)) }));
    assert_eq!(amc_rtb::verdict(&tasks), Verdict::Proved { bounds: vec![span(2), span(7)] });
    // Late only after a switch: inconclusive. Late before it: a miss.
    let late = [low(2, 5, 5), high(2, 5, 12, 6)];
    assert_eq!(
        amc_rtb::verdict(&late),
        Verdict::Unknown { why: Inconclusive::Insufficient { task: 1 } }
    );
    let never = [low(2, 5, 5), high(2, 5, 12, 3)];
    assert!(matches!(
        amc_rtb::verdict(&never),
        Verdict::Refuted { witness: Witness::Miss { task: 1, job: 0, .. } }
    ));
}

#[test]
fn with_one_criticality_it_is_the_response_time_analysis() {
    let mut rng = rng(71);
    for _ in 0..rounds(3_000) {
        let tasks: Vec<DualCriticalityTask> = draw(&mut rng)
            .into_iter()
            .map(|dual| DualCriticalityTask { high: None, ..dual })
            .collect();
        let plain: Vec<_> = tasks.iter().map(|dual| dual.task).collect();
        assert_eq!(amc_rtb::verdict(&tasks), fp_response::verdict(&plain), "{tasks:?}");
    }
}

#[test]
fn assumptions_are_reported() {
    let why = |tasks: &[DualCriticalityTask]| match amc_rtb::verdict(tasks) {
        Verdict::Unknown { why } => why,
        other => panic!("{other:?}"),
    };
    assert_eq!(
        why(&[low(1, 5, 5), high(3, 2, 9, 9)]),
        Inconclusive::Assumption { number: 1, task: 1 }
    );
    assert_eq!(why(&[low(0, 5, 5)]), Inconclusive::Assumption { number: 1, task: 0 });
    assert_eq!(why(&[low(1, 5, 6)]), Inconclusive::Assumption { number: 5, task: 0 });
    let mut late = low(1, 5, 5);
    late.task.jitter = Span::from_ns(1);
    assert_eq!(why(&[late]), Inconclusive::Assumption { number: 6, task: 0 });
    assert_eq!(why(&[high(1, u64::MAX, 5, 5)]), Inconclusive::Limit);
}

fn draw(rng: &mut Rng) -> Vec<DualCriticalityTask> {
    let count = rng.between(1, 5);
    let one = |rng: &mut Rng| {
        let period = rng.between(3, 30);
        let cost = rng.between(1, (period * 120 / count / 100).clamp(1, period));
        let deadline = rng.between(cost, period);
        if rng.below(2) == 0 {
            low(cost, period, deadline)
        } else {
            high(cost, rng.between(cost, (2 * cost).min(period)), period, deadline)
        }
    };
    (0..count).map(|_| one(rng)).collect()
}

/// Returns the longest response of each task, without abandoned jobs. The simulation proceeds tick
/// by tick with sporadic arrivals. From a random time on, jobs of high criticality take C(HI).
fn simulate(tasks: &[DualCriticalityTask], rng: &mut Rng, until: u64) -> Vec<u64> {
    let mut next: Vec<u64> = tasks.iter().map(|_| rng.below(3)).collect();
    // Per task: release, ran, cost.
    let mut jobs: Vec<Option<(u64, u64, u64)>> = vec![None; tasks.len()];
    let mut longest = vec![0; tasks.len()];
    let overrun = rng.below(until);
    let mut switched = false;
    for now in 0..until {
        for (at, dual) in tasks.iter().enumerate() {
            if now == next[at] {
                let cost = dual.high.filter(|_| now >= overrun).unwrap_or(dual.task.cost).as_ns();
                if !(switched && dual.high.is_none()) {
                    jobs[at] = Some((now, 0, cost));
                }
                next[at] += dual.task.period.as_ns() + rng.below(2) * rng.below(4);
            }
        }
        let Some(at) = jobs.iter().position(Option::is_some) else { continue };
        let (release, ran, cost) = jobs[at].expect("the first that is there");
        let (ran, end) = (ran + 1, now + 1);
        jobs[at] = if ran == cost { None } else { Some((release, ran, cost)) };
        if ran == cost {
            longest[at] = longest[at].max(end - release);
        } else if ran == tasks[at].task.cost.as_ns() {
            switched = true;
            for (job, dual) in jobs.iter_mut().zip(tasks) {
                if dual.high.is_none() {
                    *job = None;
                }
            }
        }
    }
    longest
}

#[test]
fn no_simulated_response_is_longer_than_the_bound() {
    let mut rng = rng(72);
    let (mut proved, mut tight) = (0, 0);
    for _ in 0..rounds(4_000) {
        let tasks = draw(&mut rng);
        let Verdict::Proved { bounds } = amc_rtb::verdict(&tasks) else { continue };
        proved += 1;
        for _ in 0..6 {
            let longest = simulate(&tasks, &mut rng, 150);
            for (longest, bound) in longest.iter().zip(&bounds) {
                assert!(*longest <= bound.as_ns(), "{longest} > {bound}: {tasks:?}");
                tight += u64::from(*longest == bound.as_ns());
            }
        }
    }
    assert!(proved > 500 && tight > 1_000, "{proved} sets, {tight} bounds reached");
}
