//! What a simulation says within reason: the earliest and the latest of each begin and end.
//!
//! A single simulation says too much: where two things lie near each other, a real machine may turn them round, and what follows is
//! another course altogether, as right as the first. So the same jobs are simulated with costs that are longer by up to
//! two hundredths and with up to 250 µs for each order, which is more than a dispatcher takes; what all of these have in common a
//! real run must have too. In half of them all jobs are longer by the same share, in the others each by its own: a job that ends exactly
//! when its budget does, because another job used that up before, ends so whatever both are longer by, and on a real machine every
//! other time.

use super::lives::{Lives, Name};
use crate::measured::with_changes;
use std::collections::BTreeMap;
use talea_analysis::tree::Roots;
use talea_core::machine::{Body, TaskId, Tree};
use talea_core::sched::Policy;
use talea_core::workload::{Cost, Source, Workload};
use talea_core::{Span, Time, Work};
use talea_sim::dice::Dice;
use talea_sim::{Overheads, World};
use talea_system::system::Root;

/// Thousandths by which costs are longer, and microseconds for each order to run: two things that lie near each other are turned
/// round in some of these.
const WITHIN_REASON: [(u64, u64); 8] =
    [(0, 0), (1, 10), (2, 25), (4, 50), (7, 80), (10, 120), (15, 180), (20, 250)];
/// The most of both.
pub(crate) const MOST_LONGER: u64 = WITHIN_REASON[WITHIN_REASON.len() - 1].0;
pub(crate) const MOST_ORDER: Span = Span::from_ns(WITHIN_REASON[WITHIN_REASON.len() - 1].1 * 1_000);
/// At least so many jobs of a task have shares of their own before these begin anew.
const JOBS: usize = 61;
/// The same for bounds, which have no tolerance of their own for how often a job is interrupted.
const FOR_BOUNDS: (u64, u64) = (10, 100);

/// The earliest and the latest; nothing, where some simulation does not know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) first: Time,
    pub(crate) last: Time,
}

/// What is said of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Expected {
    pub(crate) begin: Option<Range>,
    pub(crate) end: Option<Range>,
}

/// All of it, for one root.
pub(crate) struct Model {
    pub(crate) jobs: BTreeMap<Name, Expected>,
    /// By task.
    pub(crate) bounds: Vec<Bound>,
}

/// What analysis says of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bound {
    pub(crate) exactly: Option<Span>,
    /// With costs as much longer and slots as much shorter as a real machine may make them; nothing, where then there is no bound any
    /// more: the exact one holds by a thread, and no real run can be held against it.
    pub(crate) within_reason: Option<Span>,
}

/// Simulates `root` until `end` and asks for its bounds.
pub(crate) fn model(root: &Root, seed: u64, end: Time) -> anyhow::Result<Model> {
    let mut all: Vec<Lives> = Vec::new();
    let alike = WITHIN_REASON
        .map(|(longer, order)| (with_costs(&root.sources, |_, cost| lengthen(cost, longer)), order));
    let unlike = (0..).zip(WITHIN_REASON).map(|(case, (_, order))| {
        let own = |task: TaskId, cost: &mut Cost| scatter(cost, &mut Dice::of(case, task.0.into()));
        (with_costs(&root.sources, own), order)
    });
    for (sources, order) in alike.into_iter().chain(unlike) {
        let machine = root.tree.build().map_err(|error| anyhow::anyhow!("{}: {}", root.name, error.why))?;
        let overheads = Overheads { decision: Span::from_ns(order * 1_000), ..Overheads::default() };
        let workload = Workload { sources, seed };
        let world = World::new(machine, root.tree.cpus, &workload);
        let mut world = with_changes(world, root).with_overheads(overheads);
        let mut lives = Lives::default();
        world.run(end, &mut lives);
        all.push(lives);
    }
    let mut jobs: BTreeMap<Name, Expected> = BTreeMap::new();
    for &name in all.iter().flat_map(|lives| lives.jobs.keys()) {
        jobs.entry(name).or_insert_with(|| {
            let lives = || all.iter().map(|lives| lives.jobs.get(&name).copied().unwrap_or_default());
            Expected {
                begin: range(lives().map(|life| life.begin)),
                end: range(lives().map(|life| life.end)),
            }
        });
    }
    Ok(Model { jobs, bounds: bounds(root) })
}

fn range(mut times: impl Iterator<Item = Option<Time>>) -> Option<Range> {
    let first = times.next()??;
    times.try_fold(Range { first, last: first }, |range, time| {
        let time = time?;
        Some(Range { first: range.first.min(time), last: range.last.max(time) })
    })
}

/// What analysis says of each task of `root`.
pub(crate) fn bounds(root: &Root) -> Vec<Bound> {
    let exactly = analyzed(root, &root.tree, &root.sources);
    let both = exactly.into_iter().zip(within_reason(root, None));
    both.map(|(exactly, within_reason)| Bound { exactly, within_reason }).collect()
}

/// The bound within reason of a task, where the CPU may lose so much while one of its jobs is under way. That may let others come in
/// between whom the job would have gone before, as it does where the job is as much longer.
pub(crate) fn bound_despite(root: &Root, task: TaskId, lost: Span) -> Option<Span> {
    within_reason(root, Some((task, lost)))[task.0 as usize]
}

fn analyzed(root: &Root, tree: &Tree, sources: &[Source]) -> Vec<Option<Span>> {
    let mut roots = Roots::new(tree, sources);
    roots.overheads = root.surroundings.overheads;
    roots.bounds().into_iter().map(|answer| answer.bound.ok()).collect()
}

fn within_reason(root: &Root, loses: Option<(TaskId, Span)>) -> Vec<Option<Span>> {
    let (longer, order) = FOR_BOUNDS;
    // A job pays for its own order to run, and for that of whoever goes on after it; a slot for the first in it.
    let sources = with_costs(&root.sources, |task, cost| {
        let lost = loses.filter(|&(loser, _)| loser == task).map_or(0, |(_, lost)| lost.as_ns());
        lengthen(cost, longer);
        each(cost, &|work| work.saturating_add(2 * order * 1_000 + lost));
    });
    analyzed(root, &with_shorter_slots(&root.tree, Span::from_ns(order * 1_000)), &sources)
}

/// Slots that begin so much later, if they are long enough for that.
fn with_shorter_slots(tree: &Tree, by: Span) -> Tree {
    let mut tree = tree.clone();
    let nodes: Vec<_> = tree.nodes().map(|(id, _)| id).collect();
    for id in nodes {
        if let Some(Body::Scheduler(spec)) = tree.get_mut(id).map(|node| &mut node.body)
            && let Policy::Partitions { slots, .. } = &mut spec.policy
        {
            for slot in slots.iter_mut().filter(|slot| slot.end > slot.start + by) {
                slot.start += by;
            }
        }
    }
    tree
}

/// With other costs; `change` is told whose.
fn with_costs(sources: &[Source], mut change: impl FnMut(TaskId, &mut Cost)) -> Vec<Source> {
    let mut sources = sources.to_vec();
    sources.iter_mut().zip((0..).map(TaskId)).for_each(|(source, task)| change(task, &mut source.cost));
    sources
}

/// Makes a job longer by so many thousandths; what it does on its way it does where it did.
fn lengthen(cost: &mut Cost, by: u64) {
    each(cost, &|work| work.saturating_add(work / 1_000 * by));
}

/// Makes each job longer by a share of its own.
fn scatter(cost: &mut Cost, dice: &mut Dice) {
    let mut longer = |work: Work| {
        Work::from_ns(work.as_ns().saturating_add(work.as_ns() / 1_000 * dice.between(0, MOST_LONGER)))
    };
    match cost {
        Cost::Constant(work) => *cost = Cost::List((0..JOBS).map(|_| longer(*work)).collect()),
        Cost::List(list) => {
            // Whole rounds, so that each job stays what it is.
            let rounds = JOBS.div_ceil(list.len().max(1));
            *list = (0..rounds).flat_map(|_| list.iter().copied()).map(longer).collect();
        }
        // Drawn: no two are alike anyway.
        Cost::Uniform { .. } | Cost::Pair { .. } => lengthen(cost, dice.between(0, MOST_LONGER)),
        Cost::Versions(costs) => costs.iter_mut().for_each(|cost| scatter(cost, dice)),
        Cost::Marked { of, .. } => scatter(of, dice),
    }
}

/// All that a job may cost.
fn each(cost: &mut Cost, longer: &impl Fn(u64) -> u64) {
    let change = |work: &mut Work| *work = Work::from_ns(longer(work.as_ns()));
    match cost {
        Cost::Constant(work) => change(work),
        Cost::Uniform { min: a, max: b } | Cost::Pair { low: a, high: b, .. } => {
            change(a);
            change(b);
        }
        Cost::List(list) => list.iter_mut().for_each(change),
        Cost::Versions(costs) => costs.iter_mut().for_each(|cost| each(cost, longer)),
        Cost::Marked { of, .. } => each(of, longer),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use talea_system::system;

    #[test]
    fn s18_l11_a_job_that_ends_with_its_budget_in_one_simulation_goes_on_in_another() {
        // What the first job of `short` uses comes back at 20 ms, and is exactly what the second one needs. If it needs a little more, that
        // comes at 26 ms.
        let text = r#"
            duration = "60ms"
            [[scheduler]]
            name = "cpu"
            policy = "fp"
            [[scheduler]]
            name = "served"
            in = "cpu"
            policy = "edf"
            priority = 50
            server = "sporadic"
            budget = "3ms"
            period = "20ms"
            [[task]]
            name = "short"
            in = "served"
            period = "15ms"
            cost = "1ms"
            [[task]]
            name = "long"
            in = "served"
            period = "60ms"
            offset = "6ms"
            cost = "10ms"
        "#;
        let system = system::read(text, "the test's own", &()).expect("a sound file");
        let model = model(&system.roots[0], 1, Time::from_ns(60_000_000)).expect("a model");
        let end = model.jobs[&(TaskId(0), 1)].end.expect("it ends in all of them");
        let (first, last) = (end.first.as_ns() / 1_000_000, end.last.as_ns() / 1_000_000);
        assert_eq!((first, last), (21, 26));
    }

    #[test]
    fn s18_what_a_cpu_loses_may_let_one_more_come_in_between() {
        // The lower one is done just before the other one's next job, unless it loses half a millisecond.
        let text = r#"
            [[scheduler]]
            name = "cpu"
            policy = "rm"
            [[task]]
            name = "short"
            in = "cpu"
            period = "20ms"
            cost = "9ms"
            [[task]]
            name = "long"
            in = "cpu"
            period = "60ms"
            cost = "10ms"
        "#;
        let system = system::read(text, "the test's own", &()).expect("a sound file");
        let root = &system.roots[0];
        let us = |bound: Option<Span>| bound.map(|bound| bound.as_ns() / 1_000);
        assert_eq!(us(bounds(root)[1].within_reason), Some(19_590));
        assert_eq!(us(bound_despite(root, TaskId(1), Span::from_ns(300_000))), Some(19_890));
        assert_eq!(us(bound_despite(root, TaskId(1), Span::from_ns(500_000))), Some(29_380));
        assert_eq!(us(bound_despite(root, TaskId(0), Span::from_ns(500_000))), Some(9_790));
    }
}
