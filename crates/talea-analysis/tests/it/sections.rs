//! EDF with sections that no other job preempts: response times against the equations as printed,
//! the simulator and a CPU that is simulated instant by instant.

use crate::plain::{self, Job, Plain, jobs, plain, run};
use crate::replay::{self, Order};
use crate::rng::{Deadlines, Rng, every, random, rng, rounds, set, short_tasks};
use talea_analysis::uni::{
    Bound, Scratch, Sections, edf_response, limited_edf, limited_fp, np_edf,
};
use talea_analysis::verdict::{Inconclusive, Release};
use talea_analysis::{Sporadic, Verdict, Witness};
use talea_core::{Span, Work};

type Bounds = Option<Vec<(u64, u64)>>;

fn pairs(out: &[Option<Bound>]) -> Bounds {
    let pair =
        |bound: &Option<Bound>| bound.map(|bound| (bound.release.as_ns(), bound.arrival.as_ns()));
    out.iter().map(pair).collect()
}

fn sections_of(sections: &[(u64, u64)]) -> impl Fn(usize) -> Sections {
    |at: usize| {
        let (longest, last) = sections[at];
        Sections { longest: Work::from_ns(longest), last: Work::from_ns(last) }
    }
}

/// Returns the bounds from release and from arrival under fixed priorities; `None` in overload.
fn limited_fp(tasks: &[Sporadic], sections: &[(u64, u64)]) -> Vec<Option<(u64, u64)>> {
    let mut out = vec![None; tasks.len()];
    let sections = sections_of(sections);
    limited_fp::bounds(tasks, sections, &mut Scratch::new(), &mut out).expect("in range");
    out.iter()
        .map(|bound| Some((bound.as_ref()?.release.as_ns(), bound.as_ref()?.arrival.as_ns())))
        .collect()
}

/// Returns the bounds from release and from arrival under EDF; `None` in overload.
fn limited(tasks: &[Sporadic], sections: &[(u64, u64)]) -> Bounds {
    let mut out = vec![None; tasks.len()];
    let sections = sections_of(sections);
    limited_edf::bounds(tasks, sections, &mut Scratch::new(), &mut out).expect("in range");
    pairs(&out)
}

fn non_preemptive(tasks: &[Sporadic]) -> Bounds {
    let mut out = vec![None; tasks.len()];
    np_edf::bounds(tasks, &mut Scratch::new(), &mut out).expect("in range");
    pairs(&out)
}

#[test]
fn george_1996_a_later_deadline_blocks_only_those_before_it() {
    // A job of the third blocks those that are due before 20 for 8. The first waits longest if it
    // comes 2 later than the second, which is due at the same time: 8 + 3 + 2 − 2.
    let tasks = set(&[(2, 10, 10), (3, 15, 12), (9, 30, 20)]);
    assert_eq!(non_preemptive(&tasks), Some(vec![(11, 11), (13, 13), (14, 14)]));
    // Preemptive jobs, and sections in between.
    assert_eq!(limited(&tasks, &[(1, 1); 3]), Some(vec![(6, 6), (8, 8), (16, 16)]));
    assert_eq!(limited(&tasks, &[(1, 1), (1, 1), (4, 1)]), Some(vec![(6, 6), (8, 8), (16, 16)]));
}

#[test]
fn sections_outside_the_job_are_refused() {
    let tasks = set(&[(2, 10, 10), (3, 15, 12)]);
    for (longest, last) in [(0, 0), (1, 0), (2, 3), (4, 1), (4, 4)] {
        let sections = |_| Sections { longest: Work::from_ns(longest), last: Work::from_ns(last) };
        let mut out = vec![None; 2];
        let refused = limited_edf::bounds(&tasks, sections, &mut Scratch::new(), &mut out);
        let task = usize::from(longest <= 2 && last <= longest && last > 0);
        assert_eq!(refused, Err(Inconclusive::Assumption { number: 8, task }), "{longest} {last}");
    }
}

/// Adds jitter and blocking to some of the tasks, and returns sections for all.
fn vary(rng: &mut Rng, tasks: &mut [Sporadic]) -> Vec<(u64, u64)> {
    for task in &mut *tasks {
        task.jitter = Span::from_ns(rng.below(3) * rng.below(7));
        task.blocking = Work::from_ns(rng.below(2) * rng.below(4));
    }
    let one = |task: &Sporadic| {
        let cost = task.cost.as_ns();
        match rng.below(4) {
            0 => (cost, cost),
            1 => (1, 1),
            2 => (rng.between(1, cost), 1),
            _ => {
                let longest = rng.between(1, cost);
                (longest, rng.between(1, longest))
            }
        }
    };
    tasks.iter().map(one).collect()
}

#[test]
fn every_candidate_tried_gives_the_same() {
    let mut rng = rng(71);
    let mut blocked = 0;
    for round in 0..rounds(6_000) {
        let count = rng.between(1, 4);
        let kind = if round % 2 == 0 { Deadlines::Constrained } else { Deadlines::Arbitrary };
        let mut tasks = random(&mut rng, count, 12, 125 / count, kind);
        let sections = vary(&mut rng, &mut tasks);
        let numbers = plain(&tasks);
        let found = limited(&tasks, &sections);
        if plain::is_overloaded(&numbers) {
            assert_eq!(found, None, "{tasks:?}");
            continue;
        }
        let expected: Vec<_> = (0..tasks.len())
            .map(|at| plain::limited_edf_response(&numbers, &sections, at))
            .collect();
        let mut plain_bounds = vec![None; tasks.len()];
        edf_response::bounds(&tasks, &mut Scratch::new(), &mut plain_bounds).expect("in range");
        blocked += u64::from(pairs(&plain_bounds).as_ref() != Some(&expected));
        assert_eq!(found, Some(expected), "{tasks:?} {sections:?}");
    }
    assert!(blocked > 1_000, "sections matter in {blocked}");
}

/// Evaluates the equations as printed, for as many jobs as two hyperperiods have.
fn fp_reference(tasks: &[Plain], sections: &[(u64, u64)], at: usize) -> Option<(u64, u64)> {
    if plain::is_overloaded(&tasks[..=at]) {
        return None;
    }
    let (own, last) = (tasks[at], sections[at].1);
    let below = sections[at + 1..].iter().map(|&(longest, _)| longest - 1).max().unwrap_or(0);
    let (mut release, mut arrival) = (0, 0);
    for q in 0..2 * plain::hyperperiod(&tasks[..=at]) / own.t + own.j + 2 {
        let mut w = 0;
        loop {
            let more: u64 =
                tasks[..at].iter().map(|task| ((w + task.j) / task.t + 1) * task.c).sum();
            let next = own.b + below + (q + 1) * own.c - last + more;
            if next == w {
                break;
            }
            w = next;
        }
        let end = w + last;
        // A job that arrives after its predecessors have completed belongs to another busy period.
        if q > 0 && end + own.j <= q * own.t {
            break;
        }
        release = release.max(end.saturating_sub((q * own.t).saturating_sub(own.j)));
        arrival = arrival.max((end + own.j).saturating_sub(q * own.t));
    }
    Some((release, arrival))
}

#[test]
fn fixed_priority_equations_as_printed_give_the_same() {
    let mut rng = rng(75);
    for _ in 0..rounds(5_000) {
        let count = rng.between(1, 5);
        let mut tasks = random(&mut rng, count, 16, 120 / count, Deadlines::Arbitrary);
        let sections = vary(&mut rng, &mut tasks);
        let numbers = plain(&tasks);
        let expected: Vec<_> =
            (0..tasks.len()).map(|at| fp_reference(&numbers, &sections, at)).collect();
        assert_eq!(limited_fp(&tasks, &sections), expected, "{tasks:?} {sections:?}");
    }
}

/// Compares with simulations of each phase of each task behind each blocking job, with ties adverse
/// to the task.
fn equals_the_simulation(tasks: &[Sporadic]) -> bool {
    let numbers = plain(tasks);
    let verdict = np_edf::response_verdict(tasks);
    assert_eq!(verdict.is_proved(), np_edf::verdict(tasks).is_proved(), "{tasks:?}");
    match &verdict {
        Verdict::Refuted { witness } => {
            let last = if let Witness::Miss { task, .. } = witness { *task } else { 0 };
            replay::misses(tasks, witness, Order::Deadline { last }, false);
        }
        Verdict::Proved { .. } => {}
        Verdict::Unknown { why } => panic!("{why:?}: {tasks:?}"),
    }
    let Some(bounds) = non_preemptive(tasks) else { return false };
    let latest = numbers.iter().map(|task| task.d).max().expect("a task");
    let until = latest + 2 * plain::hyperperiod(&numbers) + 20;
    for (at, task) in numbers.iter().enumerate() {
        let order = Order::Deadline { last: at };
        let mut longest = 0;
        for blocker in (0..tasks.len()).filter(|&other| other != at).map(Some).chain([None]) {
            let start = u64::from(blocker.is_some());
            for phase in 0..task.t {
                let release = |ns| Release { first: Span::from_ns(ns), early: Span::ZERO };
                let mut releases = vec![release(start); tasks.len()];
                releases[at] = release(start + phase);
                if let Some(blocker) = blocker {
                    releases[blocker] = release(0);
                }
                let ended = replay::simulate(tasks, &releases, order, false, until);
                let response = replay::longest(tasks, &ended)[at];
                assert!(response <= bounds[at].0, "task {at} of {tasks:?}: {releases:?}");
                longest = longest.max(response);
            }
        }
        assert_eq!(bounds[at].0, longest, "task {at} of {tasks:?}");
    }
    verdict.is_proved()
}

#[test]
fn edf_bounds_are_the_longest_simulated_responses() {
    let choices = short_tasks();
    let (mut proved, mut all) = (0u64, 0u64);
    let mut count = |tasks: &[Sporadic]| {
        proved += u64::from(equals_the_simulation(tasks));
        all += 1;
    };
    every(&choices, 2, &mut count);
    let mut rng = rng(72);
    for round in 0..rounds(250) {
        let size = rng.between(2, 4);
        let kind = if round % 2 == 0 { Deadlines::Constrained } else { Deadlines::Arbitrary };
        count(&random(&mut rng, size, 10, 110 / size, kind));
    }
    println!("{all} sets, {proved} schedulable");
    assert!(proved > all / 10 && proved < all * 9 / 10, "{proved} of {all}");
}

#[test]
fn with_jitter_every_witness_is_a_miss() {
    let mut rng = rng(73);
    let mut replayed = 0;
    for _ in 0..rounds(2_000) {
        let count = rng.between(2, 4);
        let mut tasks = random(&mut rng, count, 12, 110 / count, Deadlines::Arbitrary);
        for task in &mut tasks {
            task.jitter = Span::from_ns(rng.below(9));
        }
        if plain::is_overloaded(&plain(&tasks)) {
            continue;
        }
        match np_edf::verdict(&tasks) {
            Verdict::Refuted { witness } => {
                replayed += 1;
                replay::late(&tasks, &witness, false);
            }
            Verdict::Proved { .. } => {}
            Verdict::Unknown { why } => panic!("{why:?}: {tasks:?}"),
        }
    }
    assert!(replayed > 300, "{replayed}");
}

/// Returns the ends of the sections of a job of `cost`, at random.
fn points(rng: &mut Rng, cost: u64) -> Vec<u64> {
    (1..cost).filter(|_| rng.below(3) == 0).chain([cost]).collect()
}

#[test]
fn no_job_with_sections_takes_longer_than_its_bound() {
    let mut rng = rng(74);
    let (mut attained, mut all) = (0, 0);
    for _ in 0..rounds(1_200) {
        let count = rng.between(2, 4);
        let mut tasks = random(&mut rng, count, 14, 110 / count, Deadlines::Arbitrary);
        for task in &mut tasks {
            task.jitter = Span::from_ns(rng.below(2) * rng.below(6));
        }
        let numbers = plain(&tasks);
        if plain::is_overloaded(&numbers) {
            continue;
        }
        let points: Vec<Vec<u64>> = numbers.iter().map(|task| points(&mut rng, task.c)).collect();
        let sections: Vec<(u64, u64)> = points
            .iter()
            .map(|ends| {
                let starts = [0].iter().chain(ends);
                let lengths: Vec<u64> =
                    ends.iter().zip(starts).map(|(end, start)| end - start).collect();
                (*lengths.iter().max().expect("a section"), *lengths.last().expect("a section"))
            })
            .collect();
        let bounds = limited(&tasks, &sections).expect("no overload");
        let by_priority = limited_fp(&tasks, &sections);
        let until = (3 * plain::hyperperiod(&numbers) + 40).min(400) as i64;
        for (at, bound) in bounds.iter().enumerate() {
            let mut longest = 0;
            for _ in 0..12 {
                let release = |task: &Sporadic| Release {
                    first: Span::from_ns(rng.below(task.period.as_ns())),
                    early: Span::from_ns(rng.below(task.jitter.as_ns() + 1)),
                };
                let releases: Vec<Release> = tasks.iter().map(release).collect();
                let may_preempt = |job: &Job, done: u64| points[job.task].contains(&done);
                let key = |job: &Job| 2 * job.due + i64::from(job.task == at);
                let all = jobs(&tasks, &releases, until);
                let priority = |job: &Job| job.task as i64;
                for job in run(all.clone(), may_preempt, until, priority) {
                    let bound = by_priority[job.task].expect("no overload");
                    assert!(
                        job.end == i64::MAX
                            || (job.end - job.release) as u64 <= bound.0
                                && (job.end - job.arrival) as u64 <= bound.1,
                        "{job:?} of {tasks:?} with {points:?}: {bound:?}"
                    );
                }
                let ended = run(all, may_preempt, until, key);
                for job in ended.iter().filter(|job| job.task == at && job.end < i64::MAX) {
                    let (release, arrival) = (job.end - job.release, job.end - job.arrival);
                    assert!(
                        release as u64 <= bound.0 && arrival as u64 <= bound.1,
                        "{job:?} of {tasks:?} with {points:?}: {bound:?}"
                    );
                    longest = longest.max(release as u64);
                }
            }
            attained += u64::from(longest == bound.0);
            all += 1;
        }
    }
    println!("{attained} of {all} attained");
    assert!(attained * 4 > all, "{attained} of {all}");
}
