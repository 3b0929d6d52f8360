//! Exhaustive search over every schedule of small sporadic sets: all arrivals, all tie-breaking.
//!
//! A state holds, for each task, the remaining work of its job, the time to its deadline, and the
//! time to its next arrival. At each instant the adversary chooses arrivals and breaks ties. Then
//! one unit of time passes. (V. Bonifaci and A. Marchetti-Spaccamela, "Feasibility analysis of
//! sporadic real-time multiprocessor task systems", Algorithmica 63(4), 2012.) Jobs take their full
//! cost: under preemptive EDF and fixed priorities no job completes later if a job takes less.

use super::{lists, random_set, small_tasks};
use crate::rng::{rng, rounds};
use std::collections::{BTreeMap, HashSet};
use talea_analysis::multi::bertogna_cirinei::GlobalPolicy;
use talea_analysis::multi::{
    Scratch, baruah, bcl, bertogna_cirinei, da_lc, ff_dbf, gfb, guan, necessary,
};
use talea_analysis::{Sporadic, Verdict};

const POINTS: u64 = 1 << 16;
/// Limit of tasks, above the size of any set of this module.
const TASKS: usize = 4;

#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
struct Job {
    left: u8,
    due: u8,
    wait: u8,
}

type State = [Job; TASKS];

/// Returns a unique number of a state, whose times are below 16.
fn number(state: &State) -> u64 {
    let digits = state.iter().flat_map(|job| [job.left, job.due, job.wait]);
    digits.fold(0, |sum, digit| sum << 4 | u64::from(digit))
}

/// Returns the longest response of each task over all schedules of `policy`, or a state in which a
/// deadline is missed.
fn explore(policy: GlobalPolicy, tasks: &[Sporadic], cpus: u32) -> Result<Vec<u64>, State> {
    let start = State::default();
    let mut seen = HashSet::from([number(&start)]);
    let mut open = vec![start];
    let mut response = vec![0u64; tasks.len()];
    while let Some(state) = open.pop() {
        for coming in 0..1u32 << tasks.len() {
            let comes = |i: usize| coming >> i & 1 == 1;
            if (0..tasks.len()).any(|i| comes(i) && state[i].wait > 0) {
                continue;
            }
            let mut now = state;
            for (i, task) in tasks.iter().enumerate().filter(|&(i, _)| comes(i)) {
                let small = |x: u64| x as u8;
                now[i] = Job {
                    left: small(task.cost.as_ns()),
                    due: small(task.deadline.as_ns()),
                    wait: small(task.period.as_ns()),
                };
            }
            for running in choices(policy, &now[..tasks.len()], cpus) {
                let mut next = now;
                for (i, job) in next[..tasks.len()].iter_mut().enumerate() {
                    let was = job.left;
                    job.left -= u8::from(running >> i & 1 == 1);
                    job.due = job.due.saturating_sub(1);
                    job.wait = job.wait.saturating_sub(1);
                    if job.left > 0 && job.due == 0 {
                        return Err(now);
                    }
                    if was > 0 && job.left == 0 {
                        let late = tasks[i].deadline.as_ns() - u64::from(job.due);
                        response[i] = response[i].max(late);
                        job.due = 0;
                    }
                }
                if seen.insert(number(&next)) {
                    open.push(next);
                }
            }
        }
    }
    Ok(response)
}

/// Returns the sets of tasks, as bits, that `policy` may run.
fn choices(policy: GlobalPolicy, jobs: &[Job], cpus: u32) -> Vec<u32> {
    let ready = (0..jobs.len()).filter(|&i| jobs[i].left > 0).fold(0u32, |set, i| set | 1 << i);
    let count = ready.count_ones().min(cpus);
    let urgency = |i: usize| match policy {
        GlobalPolicy::WorkConserving => 0,
        GlobalPolicy::Edf => usize::from(jobs[i].due),
        GlobalPolicy::FixedPriority => i,
    };
    let is_right = |set: u32| {
        let of = |set: u32| (0..jobs.len()).filter(move |&i| set >> i & 1 == 1);
        set & !ready == 0
            && set.count_ones() == count
            && of(set).all(|i| of(ready & !set).all(|j| urgency(i) <= urgency(j)))
    };
    (0..1 << jobs.len()).filter(|&set| is_right(set)).collect()
}

type Test = fn(&[Sporadic], u32, &mut Scratch) -> Verdict;

fn tests(policy: GlobalPolicy) -> Vec<(&'static str, Test)> {
    let any: (&str, Test) = ("any policy", |tasks, cpus, scratch| {
        bertogna_cirinei::test(GlobalPolicy::WorkConserving, tasks, cpus, scratch)
    });
    match policy {
        GlobalPolicy::WorkConserving => vec![any],
        GlobalPolicy::Edf => vec![
            any,
            ("gfb", |tasks, cpus, _| gfb::test(tasks, cpus)),
            ("bcl", bcl::plain),
            ("bcl-iterative", bcl::iterative),
            ("response times", |tasks, cpus, scratch| {
                bertogna_cirinei::test(GlobalPolicy::Edf, tasks, cpus, scratch)
            }),
            ("bar", |tasks, cpus, scratch| baruah::test(tasks, cpus, POINTS, scratch)),
            ("ff-dbf", |tasks, cpus, scratch| ff_dbf::test(tasks, cpus, POINTS, scratch)),
        ],
        GlobalPolicy::FixedPriority => vec![
            any,
            ("response times", |tasks, cpus, scratch| {
                bertogna_cirinei::test(GlobalPolicy::FixedPriority, tasks, cpus, scratch)
            }),
            ("guan", guan::test),
            ("da-lc", da_lc::test),
        ],
    }
}

#[test]
fn every_accepted_small_set_meets_every_deadline_under_all_arrivals() {
    let mut scratch = Scratch::new();
    let mut counts = BTreeMap::<(String, &str), (usize, usize)>::new();
    for policy in [GlobalPolicy::Edf, GlobalPolicy::FixedPriority, GlobalPolicy::WorkConserving] {
        let mut check = |tasks: &[Sporadic], cpus: u32| {
            let mut accepted: Vec<(&str, Vec<u64>)> = Vec::new();
            for (name, test) in tests(policy) {
                if let Verdict::Proved { bounds } = test(tasks, cpus, &mut scratch) {
                    accepted.push((name, bounds.iter().map(|bound| bound.as_ns()).collect()));
                }
            }
            let refuted = matches!(
                necessary::test(tasks, cpus, POINTS, &mut scratch),
                Verdict::Refuted { .. }
            );
            if accepted.is_empty() && !refuted {
                return;
            }
            let found = explore(policy, tasks, cpus);
            assert!(
                !(refuted && found.is_ok()),
                "refuted, and no schedule misses: {tasks:?} {cpus} {policy:?}"
            );
            for (name, bounds) in accepted {
                match &found {
                    Err(state) => {
                        panic!("{name} accepts what misses: {tasks:?} {cpus} at {state:?}")
                    }
                    Ok(responses) => {
                        assert!(
                            bounds.iter().zip(responses).all(|(bound, response)| bound >= response),
                            "{name}: {bounds:?}, but {responses:?}: {tasks:?} {cpus}"
                        );
                        let (sets, tight) =
                            counts.entry((format!("{policy:?}"), name)).or_default();
                        *sets += 1;
                        *tight += usize::from(&bounds == responses);
                    }
                }
            }
        };
        // Under fixed priorities every order is another set.
        let sorted = policy != GlobalPolicy::FixedPriority;
        lists(&small_tasks(4), 3, sorted, &mut |tasks| check(tasks, 2));
        lists(&small_tasks(3), 4, true, &mut |tasks| {
            check(tasks, 2);
            check(tasks, 3);
        });
        // And some with longer periods, where what is carried in matters.
        let mut rng = rng(61);
        for round in 0..rounds(1_200) {
            let cpus = 2 + u32::from(round % 6 == 0);
            let load = rng.between(45, 75);
            check(&random_set(&mut rng, 4, 8, cpus, load, round % 4 > 0), cpus);
        }
    }
    for ((policy, name), (sets, tight)) in counts {
        println!("{policy}, {name}: {sets} sets accepted, all bounds equal in {tight}");
    }
}

#[test]
fn releasing_all_together_is_not_the_worst_case() {
    // Trap: a set whose synchronous schedule meets every deadline and that misses when jobs come at
    // other times.
    let mut found = 0;
    lists(&small_tasks(4), 3, true, &mut |tasks| {
        if found < 3 && synchronous(tasks, 2) && explore(GlobalPolicy::Edf, tasks, 2).is_err() {
            found += 1;
            println!("{tasks:?}");
        }
    });
    assert!(found > 0, "every set that misses does so at the first instant");
}

/// Whether the synchronous schedule under EDF with ties by number meets every deadline in two
/// hyperperiods of 12.
fn synchronous(tasks: &[Sporadic], cpus: u32) -> bool {
    let mut jobs = vec![Job::default(); tasks.len()];
    for now in 0..24u64 {
        for (job, task) in jobs.iter_mut().zip(tasks) {
            if now % task.period.as_ns() == 0 {
                *job = Job {
                    left: task.cost.as_ns() as u8,
                    due: task.deadline.as_ns() as u8,
                    wait: 0,
                };
            }
        }
        let mut order: Vec<usize> = (0..jobs.len()).filter(|&i| jobs[i].left > 0).collect();
        order.sort_by_key(|&i| (jobs[i].due, i));
        for &i in order.iter().take(cpus as usize) {
            jobs[i].left -= 1;
        }
        for job in &mut jobs {
            job.due = job.due.saturating_sub(1);
            if job.left > 0 && job.due == 0 {
                return false;
            }
        }
    }
    true
}
