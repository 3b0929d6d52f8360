//! EDF within fixed priorities: its two special cases, the reference model, and the simulator with
//! a tree of two levels.

use crate::plain::{self, plain};
use crate::replay;
use crate::rng::{Deadlines, Rng, random, rng, rounds, set};
use talea_analysis::uni::{Bound, Scratch, edf_in_fp, edf_response, fp_response};
use talea_analysis::verdict::{Inconclusive, Release};
use talea_analysis::{Sporadic, Verdict, Witness};
use talea_core::{Span, Work};

fn bounds(tasks: &[Sporadic], levels: &[u32]) -> Vec<Option<Bound>> {
    let mut out = vec![None; tasks.len()];
    edf_in_fp::bounds(tasks, levels, &mut Scratch::new(), &mut out).expect("in range");
    out
}

/// Returns up to five tasks in levels, with jitter or without.
fn levels(rng: &mut Rng, jitter: bool) -> (Vec<Sporadic>, Vec<u32>) {
    let count = rng.between(1, 5);
    let mut tasks = random(rng, count, 12, 110 / count, Deadlines::Arbitrary);
    if jitter {
        for task in &mut tasks {
            task.jitter = Span::from_ns(rng.below(3) * rng.below(5));
        }
    }
    let mut level = 0;
    let levels = (0..count).map(|_| {
        level += rng.below(2) as u32;
        level
    });
    let levels = levels.collect();
    (tasks, levels)
}

#[test]
fn one_level_is_edf_and_a_level_for_each_is_fixed_priorities() {
    let mut rng = rng(31);
    for _ in 0..rounds(5_000) {
        let (mut tasks, _) = levels(&mut rng, true);
        for task in &mut tasks {
            task.blocking = Work::from_ns(rng.below(2) * rng.below(4));
        }
        let mut out = vec![None; tasks.len()];
        let mut scratch = Scratch::new();
        let same = vec![3; tasks.len()];
        let ok = edf_response::bounds(&tasks, &mut scratch, &mut out).expect("in range");
        assert_eq!(bounds(&tasks, &same), out, "{tasks:?}");
        assert_eq!(edf_in_fp::verdict(&tasks, &same), edf_response::verdict(&tasks));
        assert_eq!(edf_in_fp::verdict(&tasks, &same).is_proved(), ok);
        let each: Vec<u32> = (0..tasks.len() as u32).collect();
        fp_response::bounds(&tasks, &mut scratch, &mut out).expect("in range");
        assert_eq!(bounds(&tasks, &each), out, "{tasks:?}");
    }
}

/// Returns the longest response over all phases of the task. The other tasks are released together,
/// and ties are adverse to the task.
fn longest(tasks: &[Sporadic], levels: &[u32], at: usize, until: u64) -> u64 {
    let mut longest = 0;
    for phase in 0..tasks[at].period.as_ns() {
        let mut releases = replay::together(tasks);
        releases[at] = Release { first: Span::from_ns(phase), early: Span::ZERO };
        let ended = replay::simulate_bands(tasks, levels, &releases, at, until);
        longest = longest.max(replay::longest(tasks, &ended)[at]);
    }
    longest
}

fn run(
    tasks: &[Sporadic],
    levels: &[u32],
    releases: &[Release],
    last: usize,
    until: i64,
) -> Vec<plain::Job> {
    let key = |job: &plain::Job| {
        (i64::from(levels[job.task]) << 40) + 2 * job.due + i64::from(job.task == last)
    };
    plain::run(plain::jobs(tasks, releases, until), |_, _| true, until, key)
}

#[test]
fn bounds_are_the_longest_simulated_responses() {
    let mut rng = rng(32);
    let (mut mixed, mut proved) = (0, 0);
    let all = rounds(400);
    for _ in 0..all {
        let (tasks, levels) = levels(&mut rng, false);
        let numbers = plain(&tasks);
        let bounds = bounds(&tasks, &levels);
        mixed += u64::from(
            levels.windows(2).any(|pair| pair[0] == pair[1]) && levels.last() != Some(&levels[0]),
        );
        let served = bounds.iter().take_while(|bound| bound.is_some()).count();
        let latest = numbers.iter().map(|task| task.d).max().expect("a task");
        if served > 0 {
            let until = (latest + 2 * plain::hyperperiod(&numbers[..served])).min(600);
            for (at, bound) in bounds[..served].iter().enumerate() {
                let bound = bound.expect("served").release.as_ns();
                let found = longest(&tasks[..served], &levels[..served], at, until);
                assert!(found <= bound, "task {at} of {tasks:?} {levels:?}");
                if until < 600 {
                    assert_eq!(found, bound, "task {at} of {tasks:?} {levels:?}");
                }
            }
        }
        proved += u64::from(edf_in_fp::verdict(&tasks, &levels).is_proved());
    }
    println!("{all} sets, {mixed} of several levels with several tasks, {proved} schedulable");
    assert!(mixed > all / 8 && proved > all / 10, "{mixed} mixed, {proved} schedulable of {all}");
}

#[test]
fn with_jitter_every_witness_is_a_miss() {
    let mut rng = rng(33);
    let mut replayed = 0;
    for _ in 0..rounds(2_000) {
        let (tasks, levels) = levels(&mut rng, true);
        let Verdict::Refuted { witness } = edf_in_fp::verdict(&tasks, &levels) else { continue };
        let Witness::Miss { task, job, response, releases } = &witness else { continue };
        let nominal = releases[*task].first + *response + tasks[*task].period;
        let until = (nominal.as_ns() + job * tasks[*task].period.as_ns()) as i64;
        let ended = run(&tasks, &levels, releases, *task, until);
        let found =
            ended.iter().find(|end| end.task == *task && end.number == *job).expect("it arrives");
        assert_eq!(
            found.end - found.release,
            response.as_ns() as i64,
            "{witness:?}: {tasks:?} {levels:?}"
        );
        assert!(found.end > found.due, "{witness:?}: {tasks:?} {levels:?}");
        replayed += 1;
    }
    assert!(replayed > 300, "{replayed} witnesses");
}

#[test]
fn levels_come_in_order_and_an_overloaded_one_ends_the_list() {
    let tasks = set(&[(1, 4, 4), (1, 4, 4), (2, 4, 4), (1, 4, 4)]);
    let why = |levels: &[u32]| edf_in_fp::verdict(&tasks, levels);
    assert_eq!(
        why(&[0, 1, 0, 1]),
        Verdict::Unknown { why: Inconclusive::Assumption { number: 7, task: 2 } }
    );
    assert_eq!(why(&[0, 0, 1, 2]), Verdict::Refuted { witness: Witness::Overload { task: 3 } });
    assert_eq!(why(&[0, 0, 1, 1]), Verdict::Refuted { witness: Witness::Overload { task: 3 } });
    let bounds = bounds(&tasks, &[0, 0, 1, 2]);
    let releases: Vec<_> =
        bounds.iter().map(|bound| bound.map(|bound| bound.release.as_ns())).collect();
    assert_eq!(releases, [Some(2), Some(2), Some(4), None]);
}
