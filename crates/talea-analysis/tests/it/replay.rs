//! Counterexamples and worst cases, replayed in the simulator.

use crate::plain::{Job, jobs, run};
use talea_analysis::Sporadic;
use talea_analysis::verdict::{Release, Witness};
use talea_core::criteria::Overrides;
use talea_core::engine::{NodeId, SchedulerSpec, TaskSpec, Tree};
use talea_core::sched::PolicySpec;
use talea_core::workload::{Arrivals, Cost};
use talea_core::{Span, Time};
use talea_sim::{Completion, Jobs, Simulation, Source, Workload};

/// Policy of the replay: the order in which it prefers jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// The task that is earlier in the list is preferred.
    Priority,
    /// The earlier deadline is preferred. Of equal deadlines, task `last` comes last, so that ties
    /// are adverse to it.
    Deadline { last: usize },
}

/// Returns the releases of all tasks together, without jitter.
pub(crate) fn together(tasks: &[Sporadic]) -> Vec<Release> {
    vec![Release::default(); tasks.len()]
}

/// Returns the jobs that complete before `until`, with the indices of `tasks`.
pub(crate) fn simulate(
    tasks: &[Sporadic],
    releases: &[Release],
    order: Order,
    preemptive: bool,
    until: u64,
) -> Vec<Completion> {
    let policy = match order {
        Order::Priority => PolicySpec::FixedPriority,
        Order::Deadline { .. } => PolicySpec::Edf,
    };
    let last = if let Order::Deadline { last } = order { Some(last) } else { None };
    let tree = Tree::new(1, SchedulerSpec { preemptive, ..SchedulerSpec::new("root", policy) });
    let parents = vec![Tree::ROOT; tasks.len()];
    run_in(tree, &parents, tasks, releases, last, until)
}

/// Returns the jobs that complete before `until` under EDF within fixed priorities. `levels` is the
/// argument of the analysis. Ties are adverse to the task `last`.
pub(crate) fn simulate_bands(
    tasks: &[Sporadic],
    levels: &[u32],
    releases: &[Release],
    last: usize,
    until: u64,
) -> Vec<Completion> {
    let mut tree = Tree::new(1, SchedulerSpec::new("root", PolicySpec::FixedPriority));
    let mut bands: Vec<u32> = levels.to_vec();
    bands.dedup();
    let nodes: Vec<NodeId> = bands
        .iter()
        .map(|&level| {
            let own = Overrides { priority: Some(255 - level as u8), ..Overrides::default() };
            tree.scheduler(
                Tree::ROOT,
                SchedulerSpec { overrides: own, ..SchedulerSpec::new("band", PolicySpec::Edf) },
            )
        })
        .collect();
    let parent = |level: &u32| nodes[bands.iter().position(|band| band == level).expect("a band")];
    let parents: Vec<NodeId> = levels.iter().map(parent).collect();
    run_in(tree, &parents, tasks, releases, Some(last), until)
}

fn run_in(
    mut tree: Tree,
    parents: &[NodeId],
    tasks: &[Sporadic],
    releases: &[Release],
    last: Option<usize>,
    until: u64,
) -> Vec<Completion> {
    let mut workload = Workload::default();
    // Siblings with equal criteria: the lowest number first.
    let mut listed: Vec<usize> = (0..tasks.len()).filter(|&at| Some(at) != last).collect();
    listed.extend(last);
    for &at in &listed {
        let (task, release) = (&tasks[at], &releases[at]);
        let mut spec = TaskSpec::new(&at.to_string(), task.period);
        spec.deadline = task.deadline;
        spec.priority = 255 - u8::try_from(at).expect("a level for each");
        let first = release.first.as_ns();
        let times = (0..).map(|job| {
            (first + job * task.period.as_ns()).saturating_sub(release.early.as_ns()).max(first)
        });
        let times: Vec<Time> = times.take_while(|&time| time < until).map(Time::from_ns).collect();
        // Room for all of them, and for no more: it is set aside before anything runs.
        spec.backlog.capacity = times.len() as u32 + 1;
        tree.task(parents[at], spec);
        workload
            .sources
            .push(Source { arrivals: Arrivals::List(times), cost: Cost::Constant(task.cost) });
    }
    let mut world = Simulation::new(tree.build().expect("a tree"), 1, &workload);
    let mut jobs = Jobs::default();
    world.run(Time::from_ns(until) + Span::from_ns(1), &mut jobs);
    for job in &mut jobs.ended {
        job.task.0 = listed[job.task.0 as usize] as u32;
    }
    jobs.ended
}

/// Returns the longest response of each task from its release.
pub(crate) fn longest(tasks: &[Sporadic], ended: &[Completion]) -> Vec<u64> {
    let mut longest = vec![0; tasks.len()];
    for job in ended {
        let slot = &mut longest[job.task.0 as usize];
        *slot = job.response().as_ns().max(*slot);
    }
    longest
}

/// Replays a witness.
///
/// # Panics
/// If no job misses its deadline, or a job other than the named job misses it.
pub(crate) fn misses(tasks: &[Sporadic], witness: &Witness, order: Order, preemptive: bool) {
    match witness {
        Witness::Overload { task } => {
            let (to, order) = match order {
                Order::Priority => (*task, Order::Priority),
                Order::Deadline { .. } => (tasks.len() - 1, Order::Deadline { last: 0 }),
            };
            // Lateness grows with every hyperperiod by a nanosecond at least: some deadlines later
            // it is above all.
            let tasks = &tasks[..=to];
            let all = super::plain::hyperperiod(&super::plain::plain(tasks));
            let longest = tasks.iter().map(|task| task.deadline.as_ns()).max().expect("a task");
            let until = all * (2 * longest + 2);
            let ended = simulate(tasks, &together(tasks), order, preemptive, until);
            // Some may never end.
            let due: u64 = (tasks.iter().map(|task| (task.period.as_ns(), task.deadline.as_ns())))
                .map(|(period, deadline)| (until - deadline) / period + 1)
                .sum();
            let met = |job: &&Completion| !job.is_late() && job.deadline <= Time::from_ns(until);
            assert!(
                (ended.iter().filter(met).count() as u64) < due,
                "no miss in overload: {tasks:?}"
            );
        }
        Witness::Demand { .. } => late(tasks, witness, preemptive),
        Witness::Miss { task, job, response, releases } => {
            let spec = &tasks[*task];
            let nominal = releases[*task].first.as_ns() + job * spec.period.as_ns();
            let until = nominal + response.as_ns() + 1;
            let ended = simulate(tasks, releases, order, preemptive, until);
            let found = ended.iter().find(|end| end.task.0 as usize == *task && end.job == *job);
            let found = found.unwrap_or_else(|| panic!("{witness:?} does not end: {tasks:?}"));
            assert_eq!(found.response(), *response, "{witness:?}: {tasks:?}");
            // Counted from the arrival, which may lie before the release.
            let due = nominal + spec.deadline.as_ns();
            assert!(
                found.end.as_ns() + releases[*task].early.as_ns() > due,
                "{witness:?} is met: {tasks:?}"
            );
        }
    }
}

/// Replays a witness on the plain CPU, under EDF with deadlines that count from the arrival. (The
/// simulator counts them from the release, which jitter delays.)
///
/// # Panics
/// If no job misses its deadline, or a job other than the named job misses it.
pub(crate) fn late(tasks: &[Sporadic], witness: &Witness, preemptive: bool) {
    match witness {
        Witness::Demand { at, demand, supply, releases } => {
            assert!(demand.as_ns() > supply.as_ns());
            let (at, until) = (at.as_ns() as i64, (at.as_ns() + demand.as_ns() + 1) as i64);
            let ended = run(jobs(tasks, releases, until), |_, _| preemptive, until, |job| job.due);
            let due = || ended.iter().filter(|job| job.due <= at);
            assert_eq!(
                due().map(|job| job.cost).sum::<u64>(),
                demand.as_ns(),
                "{witness:?}: {tasks:?}"
            );
            assert!(due().any(|job| job.end > job.due), "{witness:?}: {tasks:?}");
        }
        Witness::Miss { task, job, response, releases } => {
            let first = &releases[*task];
            let until = (first.first + *response + tasks[*task].period).as_ns()
                + job * tasks[*task].period.as_ns();
            // Ties are adverse to the task.
            let key = |job: &Job| 2 * job.due + i64::from(job.task == *task);
            let ended =
                run(jobs(tasks, releases, until as i64), |_, _| preemptive, until as i64, key);
            let found = ended.iter().find(|end| end.task == *task && end.number == *job);
            let found = found.unwrap_or_else(|| panic!("{witness:?} does not end: {tasks:?}"));
            assert_eq!(
                found.end - found.release,
                response.as_ns() as i64,
                "{witness:?}: {tasks:?}"
            );
            assert!(found.end > found.due, "{witness:?} is met: {tasks:?}");
        }
        Witness::Overload { .. } => panic!("{witness:?} names no window"),
    }
}
