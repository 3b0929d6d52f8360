//! Tests for several CPUs against the simulator: random sets with synchronous, offset or late
//! arrivals.

use super::{random_set, task};
use crate::rng::{Rng, rng, rounds};
use std::collections::BTreeMap;
use talea_analysis::multi::bertogna_cirinei::{self, GlobalPolicy};
use talea_analysis::multi::{
    Scratch, baruah, bcl, da_lc, ff_dbf, gfb, guan, linux, necessary, tardiness,
};
use talea_analysis::{Sporadic, Verdict, Witness};
use talea_core::engine::{SchedulerSpec, TaskSpec, Tree};
use talea_core::workload::{Arrivals, Cost};
use talea_core::{Span, Time};
use talea_sim::{Completion, Jobs, Simulation, Source, Workload};

const POINTS: u64 = 1 << 16;

/// Simulates tasks that arrive at `times` until every job has completed. Returns all jobs.
pub(super) fn simulate(
    policy: GlobalPolicy,
    tasks: &[Sporadic],
    cpus: u32,
    times: &[Vec<u64>],
) -> Vec<Completion> {
    use talea_core::sched::PolicySpec as Sched;
    let root =
        if policy == GlobalPolicy::FixedPriority { Sched::FixedPriority } else { Sched::Edf };
    let mut tree = Tree::new(cpus, SchedulerSpec::new("root", root));
    let mut workload = Workload::default();
    let mut all = 0;
    for ((at, task), times) in tasks.iter().enumerate().zip(times) {
        let mut spec = TaskSpec::new(&at.to_string(), task.period);
        spec.deadline = task.deadline;
        spec.priority = 255 - u8::try_from(at).expect("a level for each");
        spec.backlog.capacity = 1 << 16;
        tree.task(Tree::ROOT, spec);
        let arrivals = Arrivals::List(times.iter().copied().map(Time::from_ns).collect());
        workload.sources.push(Source { arrivals, cost: Cost::Constant(task.cost) });
        all += times.last().copied().unwrap_or(0) + task.cost.as_ns() * times.len() as u64;
    }
    let mut world = Simulation::new(tree.build().expect("a tree"), cpus, &workload);
    let mut jobs = Jobs::default();
    // By then everything has ended, whatever is late.
    world.run(Time::from_ns(all + 1), &mut jobs);
    assert_eq!(jobs.ended.len(), times.iter().map(Vec::len).sum::<usize>());
    jobs.ended
}

/// Returns arrivals until `until`: synchronous at minimum separation, or, with `late`, at random
/// distances.
pub(super) fn arrivals(rng: &mut Rng, tasks: &[Sporadic], until: u64, late: bool) -> Vec<Vec<u64>> {
    let one = |task: &Sporadic| {
        let period = task.period.as_ns();
        let mut at = if late { rng.below(period) } else { 0 };
        let mut times = Vec::new();
        while at < until {
            times.push(at);
            // Now and then one comes late, which the synchronous release never shows.
            at += period + if late && rng.below(4) == 0 { rng.below(period) } else { 0 };
        }
        times
    };
    tasks.iter().map(one).collect()
}

fn longest(tasks: &[Sporadic], ended: &[Completion]) -> Vec<u64> {
    let mut longest = vec![0; tasks.len()];
    for job in ended {
        let slot: &mut u64 = &mut longest[job.task.0 as usize];
        *slot = job.response().as_ns().max(*slot);
    }
    longest
}

type Test = fn(&[Sporadic], u32, &mut Scratch) -> Verdict;

const BY_EDF: [(&str, Test); 6] = [
    ("gfb", |tasks, cpus, _| gfb::test(tasks, cpus)),
    ("bcl", bcl::plain),
    ("bcl-iterative", bcl::iterative),
    ("bertogna-cirinei", |tasks, cpus, scratch| {
        bertogna_cirinei::test(GlobalPolicy::Edf, tasks, cpus, scratch)
    }),
    ("bar", |tasks, cpus, scratch| baruah::test(tasks, cpus, POINTS, scratch)),
    ("ff-dbf", |tasks, cpus, scratch| ff_dbf::test(tasks, cpus, POINTS, scratch)),
];
const BY_FP: [(&str, Test); 4] = [
    ("any policy", |tasks, cpus, scratch| {
        bertogna_cirinei::test(GlobalPolicy::WorkConserving, tasks, cpus, scratch)
    }),
    ("bertogna-cirinei", |tasks, cpus, scratch| {
        bertogna_cirinei::test(GlobalPolicy::FixedPriority, tasks, cpus, scratch)
    }),
    ("guan", guan::test),
    ("da-lc", da_lc::test),
];

#[test]
fn no_job_exceeds_the_bound_of_a_test() {
    let mut rng = rng(31);
    let mut scratch = Scratch::new();
    // Accepted sets, and in percent how near the longest response comes to its bound at the mean.
    let mut counts = BTreeMap::<(String, &str), (u64, u64, u64)>::new();
    for round in 0..rounds(1_500) {
        let cpus = 2 + (round % 3) as u32;
        let (count, load) = (rng.between(u64::from(cpus) + 1, 10), rng.between(20, 70));
        let tasks = random_set(&mut rng, count, 200, cpus, load, round % 2 == 0);
        for (policy, tests) in
            [(GlobalPolicy::Edf, &BY_EDF[..]), (GlobalPolicy::FixedPriority, &BY_FP)]
        {
            let verdicts: Vec<(&str, Verdict)> = tests
                .iter()
                .map(|(name, test)| (*name, test(&tasks, cpus, &mut scratch)))
                .collect();
            if !verdicts.iter().any(|(_, verdict)| verdict.is_proved()) {
                continue;
            }
            let mut seen = vec![0; tasks.len()];
            for late in [false, true, true] {
                let times = arrivals(&mut rng, &tasks, 2_000, late);
                let ended = simulate(policy, &tasks, cpus, &times);
                assert!(
                    !ended.iter().any(Completion::is_late),
                    "{verdicts:?}: {tasks:?} {cpus} {times:?}"
                );
                for (seen, longest) in seen.iter_mut().zip(longest(&tasks, &ended)) {
                    *seen = longest.max(*seen);
                }
            }
            for (name, verdict) in verdicts {
                let Verdict::Proved { bounds } = verdict else { continue };
                let (sets, bounded, percent) =
                    counts.entry((format!("{policy:?}"), name)).or_default();
                *sets += 1;
                for (bound, &seen) in bounds.iter().zip(&seen) {
                    assert!(seen <= bound.as_ns(), "{name}: {seen} > {bound:?}: {tasks:?} {cpus}");
                    *bounded += 1;
                    *percent += 100 * seen / bound.as_ns();
                }
            }
        }
    }
    for ((policy, name), (sets, bounded, percent)) in counts {
        let mean =
            percent.checked_div(bounded).map_or("no bounds".to_owned(), |mean| format!("{mean} %"));
        println!("{policy}, {name}: {sets} sets, longest response of its bound: {mean}");
    }
}

#[test]
fn a_hundred_thousand_small_sets_keep_their_bounds() {
    let mut rng = rng(35);
    let mut scratch = Scratch::new();
    let (mut accepted, mut jobs, mut reached) = ([0; 2], 0, [0; 2]);
    for round in 0..100_000u32 {
        let cpus = 2 + round / 2 % 2;
        let (count, load) = (u64::from(cpus) + 1 + rng.below(2), rng.between(30, 80));
        let tasks = random_set(&mut rng, count, 16, cpus, load, round % 4 < 2);
        let by_fp = (round % 2) as usize;
        let (policy, tests) =
            [(GlobalPolicy::Edf, &BY_EDF[..]), (GlobalPolicy::FixedPriority, &BY_FP[..])][by_fp];
        let proved = tests.iter().map(|(_, test)| test(&tasks, cpus, &mut scratch));
        let proved: Vec<Verdict> = proved.filter(Verdict::is_proved).collect();
        if proved.is_empty() {
            continue;
        }
        accepted[by_fp] += 1;
        let times = arrivals(&mut rng, &tasks, 60, round % 8 >= 4);
        let ended = simulate(policy, &tasks, cpus, &times);
        assert!(!ended.iter().any(Completion::is_late), "{policy:?}: {tasks:?} {cpus} {times:?}");
        let longest = longest(&tasks, &ended);
        for verdict in &proved {
            let Verdict::Proved { bounds } = verdict else { continue };
            let within =
                bounds.iter().zip(&longest).all(|(bound, &longest)| longest <= bound.as_ns());
            assert!(within, "{policy:?}: {longest:?} {bounds:?}: {tasks:?} {cpus} {times:?}");
            let equal =
                bounds.iter().zip(&longest).all(|(bound, &longest)| longest == bound.as_ns());
            reached[by_fp] += usize::from(!bounds.is_empty() && equal);
        }
        jobs += ended.len();
    }
    println!(
        "accepted by EDF and FP {accepted:?}, {jobs} jobs, bounds all reached {reached:?} times"
    );
    assert!(accepted.iter().all(|&count| count > 5_000));
}

#[test]
fn no_job_is_later_than_its_tardiness_bound() {
    let mut rng = rng(32);
    let mut scratch = Scratch::new();
    let (mut sets, mut late) = (0, 0u64);
    let (mut nearest, mut coarsest) = (0, 0);
    for round in 0..rounds(1_000) {
        let cpus = 2 + (round % 3) as u32;
        let count = u64::from(cpus) + 1 + round % 4;
        let tasks = random_set(&mut rng, count, 60, cpus, 95, true);
        let Ok(bounds) = tardiness::devi_anderson(&tasks, cpus, &mut scratch) else { continue };
        let all = tardiness::kernel(&tasks, cpus, &mut scratch).expect("the same assumptions");
        sets += 1;
        for later in [false, true] {
            let times = arrivals(&mut rng, &tasks, 3_000, later);
            for job in simulate(GlobalPolicy::Edf, &tasks, cpus, &times) {
                let by = job.end.as_ns().saturating_sub(job.deadline.as_ns());
                let bound = bounds[job.task.0 as usize];
                assert!(
                    by <= bound.as_ns() && by <= all.as_ns(),
                    "{by}: {bounds:?}: {tasks:?} {cpus}"
                );
                late += u64::from(by > 0);
                if by > 0 {
                    nearest = nearest.max(100 * by / bound.as_ns());
                    coarsest = coarsest.max(100 * by / all.as_ns());
                }
            }
        }
    }
    println!(
        "{sets} sets, {late} late jobs, by at most {nearest} % of their bounds, {coarsest} % of the kernel's"
    );
    assert!(sets > 200 && late > 1_000);
}

#[test]
fn every_refutation_is_a_miss_in_the_simulator() {
    let mut rng = rng(33);
    let mut scratch = Scratch::new();
    let mut replayed = BTreeMap::<&str, usize>::new();
    for round in 0..rounds(600) {
        let cpus = 1 + (round % 3) as u32;
        let count = rng.between(u64::from(cpus), 7);
        let load = rng.between(60, 130);
        let mut tasks = random_set(&mut rng, count, 24, cpus, load, round % 4 == 0);
        if round % 10 == 0 {
            // A job that is too long for its deadline.
            tasks[0] = task(9, 8, 12);
        }
        let Verdict::Refuted { witness } = necessary::test(&tasks, cpus, POINTS, &mut scratch)
        else {
            continue;
        };
        for policy in [GlobalPolicy::Edf, GlobalPolicy::FixedPriority] {
            let (kind, firsts, until) = match &witness {
                Witness::Overload { .. } => ("overload", vec![0; tasks.len()], 30_000),
                Witness::Demand { at, releases, .. } => (
                    "demand",
                    releases.iter().map(|release| release.first.as_ns()).collect(),
                    at.as_ns(),
                ),
                Witness::Miss { task, job, response, releases } => {
                    assert_eq!((*job, response.as_ns()), (0, tasks[*task].cost.as_ns()));
                    // Long enough for the one, short enough for the others to come once.
                    (
                        "miss",
                        releases.iter().map(|release| release.first.as_ns()).collect(),
                        response.as_ns(),
                    )
                }
            };
            let times = |(task, &first): (&Sporadic, &u64)| {
                (first..until.max(first + 1)).step_by(task.period.as_ns() as usize).collect()
            };
            let times: Vec<Vec<u64>> = tasks.iter().zip(&firsts).map(times).collect();
            let ended = simulate(policy, &tasks, cpus, &times);
            let late = ended.iter().filter(|job| job.is_late());
            let named = |job: &Completion| match witness {
                Witness::Miss { task, response, .. } => {
                    job.task.0 as usize == task && job.job == 0 && job.response() == response
                }
                Witness::Demand { at, .. } => job.deadline.as_ns() <= at.as_ns(),
                Witness::Overload { .. } => true,
            };
            let late = late.filter(|job| named(job)).count();
            assert!(late > 0, "{policy:?}: {witness:?}: {tasks:?} {cpus}");
            *replayed.entry(kind).or_default() += 1;
        }
    }
    println!("{replayed:?}");
    assert_eq!(replayed.len(), 3);
}

#[test]
fn guarantees_of_sched_deadline_hold() {
    use linux::{Admission, Guarantee, SHARE};
    let mut rng = rng(34);
    let mut scratch = Scratch::new();
    let mut counts = [0; 4];
    for round in 0..rounds(500) {
        let cpus = 1 + (round % 4) as u32;
        let count = u64::from(cpus) + 1 + round % 3;
        // Microseconds instead of nanoseconds, so that the kernel takes them.
        let load = rng.between(40, 95);
        let small = random_set(&mut rng, count, 60, cpus, load, round % 3 > 0);
        let scaled = |task: &Sporadic| {
            let scale = |ns: u64| ns * 100_000;
            super::task(
                scale(task.cost.as_ns()),
                scale(task.deadline.as_ns()),
                scale(task.period.as_ns()),
            )
        };
        let tasks: Vec<Sporadic> = small.iter().map(scaled).collect();
        if linux::admission(&tasks, cpus, SHARE) != Admission::Admitted {
            continue;
        }
        let times = arrivals(&mut rng, &tasks, 200_000_000, round % 2 == 0);
        let ended = simulate(GlobalPolicy::Edf, &tasks, cpus, &times);
        let late =
            |job: &Completion| Span::from_ns(job.end.as_ns().saturating_sub(job.deadline.as_ns()));
        match linux::guarantee(&tasks, cpus, POINTS, &mut scratch) {
            Guarantee::Deadlines(_) => {
                counts[0] += 1;
                assert!(!ended.iter().any(Completion::is_late), "{tasks:?} {cpus}");
            }
            Guarantee::Tardiness { bounds } => {
                counts[1] += 1;
                assert!(
                    ended.iter().all(|job| late(job) <= bounds[job.task.0 as usize]),
                    "{tasks:?} {cpus}"
                );
            }
            Guarantee::Nothing => counts[2] += 1,
            Guarantee::Misses { .. } => counts[3] += 1,
        }
        // One CPU and D = T: admission itself is the proof.
        let implicit = tasks.iter().all(|task| task.deadline == task.period);
        assert!(cpus > 1 || !implicit || !ended.iter().any(Completion::is_late), "{tasks:?}");
    }
    println!(
        "deadlines {}, tardiness {}, nothing {}, misses {}",
        counts[0], counts[1], counts[2], counts[3]
    );
    assert!(counts.iter().all(|&count| count > 0));
}
