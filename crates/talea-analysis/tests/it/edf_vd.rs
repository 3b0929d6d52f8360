//! EDF-VD against a simulated CPU with mode switches.

use crate::rng::{Rng, rng, rounds, task};
use talea_analysis::uni::amc_rtb::DualCriticalityTask;
use talea_analysis::uni::edf_vd::verdict;
use talea_analysis::verdict::Inconclusive;
use talea_analysis::{Verdict, Witness};
use talea_core::{Span, Work};

fn low(cost: u64, period: u64) -> DualCriticalityTask {
    DualCriticalityTask { task: task(cost, period, period), high: None }
}

fn high(cost: u64, cost_high: u64, period: u64) -> DualCriticalityTask {
    DualCriticalityTask { task: task(cost, period, period), high: Some(Work::from_ns(cost_high)) }
}

#[test]
fn three_tasks_by_hand() {
    // a = 1/2, b = 1/4, c = 3/4: x = 1/2, and x·a + c = 1. Plain EDF has a + c = 5/4.
    let set = [low(2, 4), high(1, 4, 8), high(1, 2, 8)];
    assert_eq!(verdict(&set), Verdict::Proved { bounds: Vec::new() });
    let more = [low(2, 4), high(1, 4, 8), high(1, 3, 8)];
    assert_eq!(verdict(&more), Verdict::Unknown { why: Inconclusive::Insufficient { task: 2 } });
    let overload = Verdict::Refuted { witness: Witness::Overload { task: 1 } };
    assert_eq!(verdict(&[low(3, 4), high(3, 3, 8)]), overload);
    assert_eq!(verdict(&[high(1, 5, 8), high(1, 4, 8)]), overload);
    assert_eq!(verdict(&[low(4, 8), high(1, 4, 8)]), Verdict::Proved { bounds: Vec::new() });
    assert_eq!(verdict(&[]), Verdict::Proved { bounds: Vec::new() });
}

#[test]
fn assumptions_are_reported() {
    let why = |set: &[DualCriticalityTask]| match verdict(set) {
        Verdict::Unknown { why } => why,
        other => panic!("{other:?}"),
    };
    let assumption = |number, task| Inconclusive::Assumption { number, task };
    assert_eq!(why(&[low(1, 5), high(3, 2, 9)]), assumption(1, 1));
    assert_eq!(why(&[low(0, 5)]), assumption(1, 0));
    assert_eq!(why(&[DualCriticalityTask { task: task(1, 5, 4), high: None }]), assumption(4, 0));
    let mut late = low(1, 5);
    late.task.jitter = Span::from_ns(1);
    assert_eq!(why(&[late]), assumption(5, 0));
}

/// Draws tasks whose periods divide 840.
fn draw(rng: &mut Rng) -> Vec<DualCriticalityTask> {
    let one = |rng: &mut Rng| {
        let period = [4_u64, 5, 6, 7, 8, 10, 12, 14, 15, 20][rng.below(10) as usize];
        let cost = rng.between(1, period.div_ceil(3));
        if rng.below(2) == 0 {
            low(cost, period)
        } else {
            high(cost, rng.between(cost, (4 * cost).min(period)), period)
        }
    };
    (0..rng.between(2, 4)).map(|_| one(rng)).collect()
}

/// Returns the utilization of the selected costs, in 840ths.
fn load(set: &[DualCriticalityTask], cost: impl Fn(&DualCriticalityTask) -> Option<Work>) -> u64 {
    let one = |dual: &DualCriticalityTask| {
        cost(dual).map_or(0, Work::as_ns) * 840 / dual.task.period.as_ns()
    };
    set.iter().map(one).sum()
}

struct Job {
    task: usize,
    release: u64,
    ran: u64,
    cost: u64,
}

/// Whether a job is late. The simulation proceeds tick by tick with sporadic arrivals. From a
/// random time on, jobs of high criticality take C(HI). The factor of the virtual deadlines is a
/// fraction.
fn is_late(set: &[DualCriticalityTask], (x, of): (u64, u64), rng: &mut Rng, until: u64) -> bool {
    let mut next: Vec<u64> = set.iter().map(|_| rng.below(2) * rng.below(5)).collect();
    let mut jobs: Vec<Job> = Vec::new();
    let is_sporadic = rng.below(2) == 0;
    let overrun = rng.below(until);
    let mut is_switched = false;
    for now in 0..until {
        for (at, dual) in set.iter().enumerate() {
            if now == next[at] {
                let cost = dual.high.filter(|_| now >= overrun).unwrap_or(dual.task.cost).as_ns();
                if !is_switched || dual.high.is_some() {
                    jobs.push(Job { task: at, release: now, ran: 0, cost });
                }
                next[at] += dual.task.period.as_ns();
                next[at] += if is_sporadic { rng.below(2) * rng.below(4) } else { 0 };
            }
        }
        let deadline = |job: &Job| {
            let dual = &set[job.task];
            let is_virtual = dual.high.is_some() && !is_switched;
            let factor = if is_virtual { x } else { of };
            (job.release * of + dual.task.period.as_ns() * factor, job.task)
        };
        let Some(at) = (0..jobs.len()).min_by_key(|&at| deadline(&jobs[at])) else { continue };
        let job = &mut jobs[at];
        job.ran += 1;
        let dual = &set[job.task];
        if job.ran == job.cost {
            jobs.swap_remove(at);
        } else if job.ran == dual.task.cost.as_ns() {
            is_switched = true;
            jobs.retain(|job| set[job.task].high.is_some());
        }
        if jobs.iter().any(|job| now + 1 >= job.release + set[job.task].task.period.as_ns()) {
            return true;
        }
    }
    false
}

/// Also the speed-up of the paper: sets of which each mode needs at most three quarters of the CPU
/// are proved. Jobs of some sets without a verdict are late, so that the simulation can refute.
#[test]
fn no_job_of_a_proved_set_is_late() {
    let mut rng = rng(2_012);
    let (mut proved, mut by_virtual, mut late) = (0, 0, 0);
    for _ in 0..rounds(20_000) {
        let set = draw(&mut rng);
        let a = load(&set, |dual| dual.high.is_none().then_some(dual.task.cost));
        let b = load(&set, |dual| dual.high.map(|_| dual.task.cost));
        let c = load(&set, |dual| dual.high);
        let found = verdict(&set);
        assert_eq!(a + b > 840 || c > 840, matches!(found, Verdict::Refuted { .. }), "{set:?}");
        if (a + b).max(c) <= 630 {
            assert!(found.is_proved(), "{set:?}");
        }
        let needs_virtual = a + c > 840;
        if !found.is_proved() {
            let is_unknown = matches!(found, Verdict::Unknown { .. });
            late += u64::from(is_unknown && is_late(&set, (b, 840 - a), &mut rng, 300));
            continue;
        }
        proved += 1;
        by_virtual += u64::from(needs_virtual);
        let factor = if needs_virtual { (b, 840 - a) } else { (1, 1) };
        for _ in 0..if needs_virtual { 10 } else { 1 } {
            assert!(!is_late(&set, factor, &mut rng, 300), "{set:?}");
        }
    }
    println!("{proved} sets proved, {by_virtual} by virtual deadlines; {late} others late");
    assert!(proved > 2_000 && by_virtual > 200 && late > 100);
}
