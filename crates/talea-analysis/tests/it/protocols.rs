//! Blocking terms: by hand, in relation to each other, and against jobs that lock.

use crate::rng::{Deadlines, Rng, random, rng, rounds};
use talea_analysis::Sporadic;
use talea_analysis::uni::protocols::{Section, ceiling, inheritance, non_preemptive};
use talea_analysis::uni::{Scratch, fp_response, qpa};
use talea_core::engine::{Protocol, SchedulerSpec, TaskSpec, Tree};
use talea_core::sched::PolicySpec;
use talea_core::workload::{Arrivals, Cost};
use talea_core::{Span, Time, Work};
use talea_sim::{Jobs, Simulation, Source, Workload};

fn section(task: usize, resource: usize, length: u64) -> Section {
    Section { task, resource, length: Work::from_ns(length), is_contiguous: false }
}

fn numbers(blocking: &[Work]) -> Vec<u64> {
    blocking.iter().map(|work| work.as_ns()).collect()
}

#[test]
fn sha_rajkumar_lehoczky_1990_four_tasks_and_three_resources_by_hand() {
    // A row a task, a column a resource.
    let lengths = [[1, 2, 0], [0, 9, 3], [8, 7, 0], [6, 5, 4]];
    let mut sections = Vec::new();
    for (task, row) in lengths.iter().enumerate() {
        for (resource, &length) in row.iter().enumerate().filter(|&(_, &length)| length > 0) {
            sections.push(section(task, resource, length));
        }
    }
    // Once in all: of the first two resources, then of all three.
    assert_eq!(numbers(&ceiling(4, &sections)), [9, 8, 6, 0]);
    // By task 9 + 8 + 6 and by resource 8 + 9; 8 + 6 and 8 + 7 + 4; 6 and 6 + 5 + 4.
    assert_eq!(numbers(&inheritance(4, &sections).expect("small")), [17, 14, 6, 0]);
    assert_eq!(numbers(&non_preemptive(4, &sections)), [9, 8, 6, 0]);
    // A resource without a more urgent user blocks no task, unless its sections are non-preemptive.
    let own = [section(1, 0, 5), section(2, 0, 7), section(2, 1, 9)];
    assert_eq!(numbers(&ceiling(3, &own)), [0, 7, 0]);
    assert_eq!(numbers(&non_preemptive(3, &own)), [9, 9, 0]);
    assert_eq!(
        inheritance(2, &[section(0, 0, 1), section(1, 0, u64::MAX)]).map(|b| numbers(&b)),
        Some(vec![u64::MAX, 0])
    );
    assert_eq!(ceiling(2, &[]), [Work::ZERO; 2]);
}

#[test]
fn contiguous_sections_form_one_run_as_long_as_each_of_them_blocks() {
    let next =
        |task, resource, length| Section { is_contiguous: true, ..section(task, resource, length) };
    // Of the third task: a, b and a again, of which the first task uses a only, and the second
    // both.
    let all = [
        section(0, 0, 1),
        section(1, 1, 1),
        section(2, 0, 3),
        next(2, 1, 5),
        next(2, 0, 7),
        section(2, 0, 2),
    ];
    assert_eq!(numbers(&ceiling(3, &all)), [7, 15, 0]);
    // The second task can also wait for nothing of the first, which is above; once through each
    // resource holds no more.
    assert_eq!(numbers(&inheritance(3, &all).expect("small")), [7, 15, 0]);
    assert_eq!(numbers(&non_preemptive(3, &all)), [15, 15, 0]);
    // Two tasks' runs do not become one.
    let two = [section(0, 0, 1), section(1, 0, 3), section(2, 0, 5)];
    assert_eq!(numbers(&ceiling(3, &two)), [5, 5, 0]);
    let long = [section(0, 0, 1), section(1, 0, u64::MAX), next(1, 0, 2)];
    assert_eq!(numbers(&ceiling(2, &long)), [u64::MAX, 0]);
}

/// Returns random sections of each task, inside its cost: (from, to, resource). Some are
/// contiguous.
fn sections(rng: &mut Rng, tasks: &[Sporadic]) -> Vec<Vec<(u64, u64, usize)>> {
    let one = |task: &Sporadic| {
        let (mut from, mut list) = (rng.below(2), Vec::new());
        while from < task.cost.as_ns() && rng.below(3) > 0 {
            let to = rng.between(from + 1, task.cost.as_ns());
            list.push((from, to, rng.below(2) as usize));
            from = to + rng.below(2) * rng.between(1, 3);
        }
        list
    };
    tasks.iter().map(one).collect()
}

/// Returns the longest response of each task, and whether any job was late, with random offsets.
fn simulate(
    tasks: &[Sporadic],
    sections: &[Vec<(u64, u64, usize)>],
    policy: PolicySpec,
    protocol: Protocol,
    rng: &mut Rng,
) -> (Vec<u64>, bool) {
    let mut tree = Tree::new(1, SchedulerSpec::new("root", policy));
    let resources = [tree.resource("a", protocol), tree.resource("b", protocol)];
    let mut workload = Workload::default();
    for (at, (task, list)) in tasks.iter().zip(sections).enumerate() {
        let mut spec = TaskSpec::new(&at.to_string(), task.period);
        spec.deadline = task.deadline;
        spec.priority = 255 - at as u8;
        spec.uses = (0..2)
            .filter(|&one| list.iter().any(|section| section.2 == one))
            .map(|one| resources[one])
            .collect();
        tree.task(Tree::ROOT, spec);
        let work = Work::from_ns;
        let cost = list.iter().fold(Cost::Constant(task.cost), |cost, &(from, to, resource)| {
            cost.locking(resources[resource], work(from), work(to))
        });
        let offset = Span::from_ns(rng.below(task.period.as_ns()));
        let arrivals = Arrivals::Periodic { offset, period: task.period, jitter: Span::ZERO };
        workload.sources.push(Source { arrivals, cost });
    }
    let mut world = Simulation::new(tree.build().expect("a tree"), 1, &workload);
    let mut jobs = Jobs::default();
    world.run(Time::from_ns(400), &mut jobs);
    let mut longest = vec![0; tasks.len()];
    for job in &jobs.ended {
        let slot = &mut longest[job.task.0 as usize];
        *slot = job.response().as_ns().max(*slot);
    }
    (longest, jobs.ended.iter().any(talea_sim::Completion::is_late))
}

#[test]
fn no_simulated_response_is_longer_than_with_the_blocking_of_its_protocol() {
    let mut rng = rng(81);
    let (mut blocked, mut reached, mut proved, mut touched) = (0, 0, 0, 0);
    for _ in 0..rounds(1_200) {
        let count = rng.between(2, 4);
        let mut tasks = random(&mut rng, count, 40, 100 / count, Deadlines::Constrained);
        // One order for both: of priorities and of deadlines.
        tasks.sort_by_key(|task| task.deadline);
        tasks.dedup_by_key(|task| task.deadline);
        let sections = sections(&mut rng, &tasks);
        let listed: Vec<Section> = (sections.iter().enumerate())
            .flat_map(|(task, list)| {
                let ends = std::iter::once(u64::MAX).chain(list.iter().map(|&(_, to, _)| to));
                list.iter().zip(ends).map(move |(&(from, to, one), before)| Section {
                    is_contiguous: from == before,
                    ..section(task, one, to - from)
                })
            })
            .collect();
        let any_contiguous = listed.iter().any(|section| section.is_contiguous);
        let (ceilings, inherited) =
            (ceiling(tasks.len(), &listed), inheritance(tasks.len(), &listed).expect("small"));
        let uninterrupted = non_preemptive(tasks.len(), &listed);
        for ((ceiling, inherited), uninterrupted) in
            ceilings.iter().zip(&inherited).zip(uninterrupted)
        {
            assert!(ceiling <= inherited && *ceiling <= uninterrupted, "{listed:?}");
        }
        for (protocol, terms) in
            [(Protocol::Ceiling, &ceilings), (Protocol::Inheritance, &inherited)]
        {
            let with: Vec<Sporadic> = tasks
                .iter()
                .zip(terms)
                .map(|(task, &blocking)| Sporadic { blocking, ..*task })
                .collect();
            let mut out = vec![None; with.len()];
            fp_response::bounds(&with, &mut Scratch::new(), &mut out).expect("in range");
            let (longest, _) =
                simulate(&tasks, &sections, PolicySpec::FixedPriority, protocol, &mut rng);
            let mut without = vec![None; with.len()];
            fp_response::bounds(&tasks, &mut Scratch::new(), &mut without).expect("in range");
            for ((longest, bound), without) in longest.iter().zip(&out).zip(&without) {
                let Some(bound) = bound else { break };
                assert!(*longest <= bound.release.as_ns(), "{protocol:?} {with:?} {sections:?}");
                blocked += u64::from(*longest > without.expect("less").release.as_ns());
                reached += u64::from(longest + 1 >= bound.release.as_ns());
            }
        }
        touched += u64::from(any_contiguous);
        // The stack resource policy under EDF: here the deadline floor, which blocks as often,
        // unless sections are contiguous.
        if any_contiguous {
            continue;
        }
        let with: Vec<Sporadic> = tasks
            .iter()
            .zip(&ceilings)
            .map(|(task, &blocking)| Sporadic { blocking, ..*task })
            .collect();
        if qpa::verdict(&with).is_proved() {
            let (_, late) =
                simulate(&tasks, &sections, PolicySpec::Edf, Protocol::Ceiling, &mut rng);
            assert!(!late, "{with:?} {sections:?}");
            proved += 1;
        }
    }
    println!(
        "{blocked} responses longer than without blocking, {reached} bounds reached, {proved} sets proved for EDF"
    );
    assert!(
        blocked > 50 && reached > 500 && proved > 100 && touched > 100,
        "{blocked} {reached} {proved} {touched}"
    );
}
