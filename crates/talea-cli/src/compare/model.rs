//! What a simulation says within reason: the earliest and the latest of each begin and end.
//!
//! A single simulation says too much: where two things lie near each other, a real machine may turn
//! them round, and what follows is another course altogether, as right as the first. So the same
//! jobs are simulated with costs that are longer by up to two hundredths and with up to 250 µs for
//! each order, which is more than a dispatcher takes; what all of these have in common a real run
//! must have too. In half of them all jobs are longer by the same share, in the others each by its
//! own: a job that ends exactly when its budget does, because another job used that up before, ends
//! so whatever both are longer by, and on a real machine every other time. In those, arrivals are
//! seen a little late, too: a server counts its deadline from when it is asked, which is never
//! quite the instant from which a job beside it counts its own.

use super::lives::{Lives, Name};
use crate::measured::with_changes;
use std::cell::OnceCell;
use std::collections::BTreeMap;
use talea_analysis::tree::{Answer, Reason, Roots};
use talea_core::machine::{Body, TaskId, Tree};
use talea_core::mutate;
use talea_core::sched::Policy;
use talea_core::workload::{Arrivals, Cost, Source, Workload};
use talea_core::{Span, Time, Work};
use talea_sim::dice::Dice;
use talea_sim::{Overheads, World, draw};
use talea_system::system::Root;

/// Thousandths by which costs are longer, and microseconds for each order to run: two things that
/// lie near each other are turned round in some of these.
const WITHIN_REASON: [(u64, u64); 8] =
    [(0, 0), (1, 10), (2, 25), (4, 50), (7, 80), (10, 120), (15, 180), (20, 250)];
/// The most of both: bounds have it in each job and for two orders, and what takes no more of an
/// order has not brushed its job.
pub(crate) const MOST_LONGER: u64 = WITHIN_REASON[WITHIN_REASON.len() - 1].0;
pub(crate) const MOST_ORDER: Span = Span::from_ns(WITHIN_REASON[WITHIN_REASON.len() - 1].1 * 1_000);
/// At least so many jobs of a task have shares of their own before these begin anew.
const JOBS: usize = 61;

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
    /// With costs as much longer and slots as much shorter as a real machine may make them;
    /// nothing, where then there is no bound any more: the exact one holds by a thread, and no real
    /// run can be held against it.
    pub(crate) within_reason: Option<Span>,
}

/// Simulates `root` until `end` and asks for its bounds.
pub(crate) fn model(root: &Root, seed: u64, end: Time) -> anyhow::Result<Model> {
    let alike = WITHIN_REASON.map(|(longer, order)| {
        (with_costs(&root.sources, |_, cost| lengthen(cost, longer)), order)
    });
    let run = |(sources, order): (Vec<Source>, u64)| -> anyhow::Result<Lives> {
        let machine =
            root.tree.build().map_err(|error| anyhow::anyhow!("{}: {}", root.name, error.why))?;
        let overheads =
            Overheads { decision: Span::from_ns(order * 1_000), ..Overheads::default() };
        let workload = Workload { sources, seed };
        let world = World::new(machine, root.tree.cpus, &workload);
        let mut world = with_changes(world, root).with_overheads(overheads);
        let mut lives = Lives::default();
        world.run(end, &mut lives);
        Ok(lives)
    };
    let mut all = alike.into_iter().map(run).collect::<anyhow::Result<Vec<Lives>>>()?;
    // What each job of a task costs, and some more than any of these has.
    let begun = |task: usize| {
        let task = TaskId(task as u32);
        let last = |lives: &Lives| {
            lives.jobs.range((task, 0)..=(task, u64::MAX)).next_back().map(|(name, _)| name.1)
        };
        all.iter().filter_map(last).max().map_or(0, |last| last as usize + 1) + JOBS
    };
    let drawn = draw(&root.workload(seed), end, begun);
    let unlike = (0..).zip(WITHIN_REASON).map(|(case, (_, order))| {
        let own = |task: TaskId, cost: &mut Cost| {
            mutate!(
                "compare-model-unlike",
                scatter(cost, &drawn[task.0 as usize].costs, &mut Dice::of(case, task.0.into())),
                lengthen(cost, case + drawn[task.0 as usize].costs.len() as u64 / 64)
            );
        };
        let mut sources = with_costs(&root.sources, own);
        for (source, drawn) in
            sources.iter_mut().zip(&drawn).filter(|(_, drawn)| !drawn.arrivals.is_empty())
        {
            source.arrivals = seen_late(&drawn.arrivals, case, Span::from_ns(order * 1_000));
        }
        (sources, order)
    });
    all.extend(unlike.map(run).collect::<anyhow::Result<Vec<Lives>>>()?);
    let mut jobs: BTreeMap<Name, Expected> = BTreeMap::new();
    for &name in all.iter().flat_map(|lives| lives.jobs.keys()) {
        jobs.entry(name).or_insert_with(|| {
            let lives =
                || all.iter().map(|lives| lives.jobs.get(&name).copied().unwrap_or_default());
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
    let exactly = analyzed(root, &root.tree, &root.sources, Span::ZERO);
    let both = exactly.into_iter().zip(within_reason(root, Span::ZERO));
    let bound = |(exactly, within_reason): (Answer, _)| Bound {
        exactly: exactly.bound.ok(),
        within_reason,
    };
    both.map(bound).collect()
}

/// The bounds within reason of the tasks of a root that loses so much at most from when there is
/// something to do until nothing is left: looked for once, when somebody asks. A loss in anybody's
/// job may let others come in between whom a job would have gone before.
pub(crate) struct Despite<'a> {
    root: &'a Root,
    lost: Span,
    bounds: OnceCell<Vec<Option<Span>>>,
}

impl<'a> Despite<'a> {
    pub(crate) fn new(root: &'a Root, lost: Span) -> Despite<'a> {
        Despite { root, lost, bounds: OnceCell::new() }
    }

    /// Of a task.
    pub(crate) fn of(&self, task: TaskId) -> Option<Span> {
        self.bounds.get_or_init(|| within_reason(self.root, self.lost))[task.0 as usize]
    }
}

fn analyzed(root: &Root, tree: &Tree, sources: &[Source], lost: Span) -> Vec<Answer> {
    let mut roots = Roots::new(tree, sources);
    (roots.overheads, roots.lost) =
        (root.surroundings.overheads, mutate!("compare-model-lost", lost, Span::ZERO));
    roots.bounds()
}

fn within_reason(root: &Root, lost: Span) -> Vec<Option<Span>> {
    let tree = with_shorter_slots(&root.tree, MOST_ORDER);
    // A job pays for its own order to run, and for that of whoever goes on after it; a slot for the
    // first in it.
    let sources = |more: Span| {
        with_costs(&root.sources, |_, cost| {
            lengthen(cost, MOST_LONGER);
            each(cost, &|work| {
                work.saturating_add(
                    mutate!("compare-model-orders", 2 * MOST_ORDER.as_ns(), MOST_ORDER.as_ns())
                        + more.as_ns(),
                )
            });
        })
    };
    let mut answers = analyzed(root, &tree, &sources(Span::ZERO), lost);
    let knows_no_loss =
        |answer: &Answer| answer.bound.as_ref().is_err_and(|no| no.reason == Reason::Holes);
    if answers.iter().any(knows_no_loss) {
        // Whoever runs while something is lost takes longer: nobody knows who, so that every job
        // may.
        answers = analyzed(
            root,
            &tree,
            &sources(mutate!("compare-model-anybody", lost, Span::ZERO)),
            Span::ZERO,
        );
    }
    answers.into_iter().map(|answer| answer.bound.ok()).collect()
}

/// The same arrivals, seen by up to so much later: whoever is told of one is told of all that come
/// with it.
fn seen_late(drawn: &[(Time, Time)], case: u64, most: Span) -> Arrivals {
    let mut last = Time::ZERO;
    let late = |&(seen, nominal): &(Time, Time)| {
        let by = Dice::of(case, nominal.as_ns()).between(0, most.as_ns());
        last = last.max(seen.saturating_add(Span::from_ns(by)));
        (nominal, last)
    };
    Arrivals::Seen(drawn.iter().map(late).collect())
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
    sources
        .iter_mut()
        .zip((0..).map(TaskId))
        .for_each(|(source, task)| change(task, &mut source.cost));
    sources
}

/// Makes a job longer by so many thousandths; what it does on its way it does where it did.
fn lengthen(cost: &mut Cost, by: u64) {
    each(cost, &|work| work.saturating_add(work / 1_000 * by));
}

/// Makes each job longer by a share of its own; `drawn` is what jobs cost, by version.
fn scatter(cost: &mut Cost, drawn: &[Vec<Work>], dice: &mut Dice) {
    let mut longer = |work: Work| {
        Work::from_ns(
            work.as_ns().saturating_add(work.as_ns() / 1_000 * dice.between(0, MOST_LONGER)),
        )
    };
    match cost {
        Cost::Constant(work) => *cost = Cost::List((0..JOBS).map(|_| longer(*work)).collect()),
        Cost::List(list) => {
            // Whole rounds, so that each job stays what it is.
            let rounds = JOBS.div_ceil(list.len().max(1));
            *list = (0..rounds).flat_map(|_| list.iter().copied()).map(longer).collect();
        }
        // One of two: most are alike.
        Cost::Pair { .. } => {
            mutate!(
                "compare-model-pair",
                *cost = Cost::List(drawn.iter().take(1).flatten().copied().map(longer).collect()),
                lengthen(cost, drawn.len() as u64)
            );
        }
        // Drawn: no two are alike anyway.
        Cost::Uniform { .. } => lengthen(cost, dice.between(0, MOST_LONGER)),
        Cost::Versions(costs) => {
            costs
                .iter_mut()
                .zip(drawn.chunks(1))
                .for_each(|(cost, drawn)| scatter(cost, drawn, dice));
        }
        Cost::Marked { of, .. } => scatter(of, drawn, dice),
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
    use std::collections::BTreeSet;
    use talea_core::machine::Cpu;
    use talea_system::system;

    #[test]
    fn s18_l11_a_job_that_ends_with_its_budget_in_one_simulation_goes_on_in_another() {
        // What the first job of `short` uses comes back at 20 ms, and is exactly what the second
        // one needs. If it needs a little more, that comes at 26 ms.
        for cost in [r#""1ms""#, r#"{ low = "1ms", high = "1ms", share = 500 }"#] {
            let text = TIED.replace("COST", cost);
            let system = system::read(&text, "the test's own", &()).expect("a sound file");
            let model = model(&system.roots[0], 1, Time::from_ns(60_000_000)).expect("a model");
            let end = model.jobs[&(TaskId(0), 1)].end.expect("it ends in all of them");
            let (first, last) = (end.first.as_ns() / 1_000_000, end.last.as_ns() / 1_000_000);
            assert_eq!((first, last), (21, 26), "{cost}");
        }
    }

    const TIED: &str = r#"
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
            cost = COST
            [[task]]
            name = "long"
            in = "served"
            period = "60ms"
            offset = "6ms"
            cost = "10ms"
        "#;

    #[test]
    fn s18_each_job_has_the_one_of_two_costs_that_a_run_draws_and_a_share_of_its_own() {
        let cost = Cost::Pair {
            low: Work::from_ns(1_000_000),
            high: Work::from_ns(4_000_000),
            share: 300,
        };
        let arrivals = Arrivals::Periodic {
            offset: Span::ZERO,
            period: Span::from_ns(10_000_000),
            jitter: Span::ZERO,
        };
        let workload = Workload { sources: vec![Source { arrivals, cost }], seed: 7 };
        let drawn = draw(&workload, Time::from_ns(1_000_000_000), |_| 0);
        let marked = Cost::Versions(vec![
            workload.sources[0].cost.clone().suspending(Work::ZERO, Span::ZERO),
        ]);
        for mut cost in [workload.sources[0].cost.clone(), marked] {
            scatter(&mut cost, &drawn[0].costs, &mut Dice::of(1, 0));
            let Cost::List(costs) = plain(&cost) else { panic!("{cost:?}") };
            assert_eq!(costs.len(), 100);
            let share =
                |(cost, was): (&Work, &Work)| (cost.as_ns() - was.as_ns()) * 1_000 / was.as_ns();
            let shares: Vec<u64> = costs.iter().zip(&drawn[0].costs[0]).map(share).collect();
            assert!(shares.iter().all(|&share| share <= MOST_LONGER), "{shares:?}");
            assert_eq!(shares.iter().collect::<BTreeSet<_>>().len() as u64, MOST_LONGER + 1);
        }
    }

    #[test]
    fn s18_of_two_deadlines_that_are_the_same_a_servers_may_be_a_little_later() {
        let text = r#"
            duration = "60ms"
            [[scheduler]]
            name = "cpu"
            policy = "edf"
            [[scheduler]]
            name = "served"
            in = "cpu"
            policy = "fifo"
            server = "cbs"
            budget = "7ms"
            period = "26ms"
            [[task]]
            name = "beside"
            in = "cpu"
            period = "26ms"
            offset = "8ms"
            cost = "3ms"
            [[task]]
            name = "inside"
            in = "served"
            period = "60ms"
            offset = "8ms"
            cost = "6ms"
        "#;
        let system = system::read(text, "the test's own", &()).expect("a sound file");
        let model = model(&system.roots[0], 1, Time::from_ns(60_000_000)).expect("a model");
        let ms = |task| {
            let end = model.jobs[&(TaskId(task), 0)].end.expect("it ends in all of them");
            (end.first.as_ns() / 1_000_000, end.last.as_ns() / 1_000_000)
        };
        assert_eq!((ms(0), ms(1)), ((11, 17), (14, 17)));
        // Later than its period is none seen, and those that come together are seen together.
        let at = Time::from_ns;
        let drawn = [(at(5_000), at(5_000)), (at(5_000), at(5_000)), (at(9_000), at(8_000))];
        for case in 0..9 {
            let Arrivals::Seen(seen) = seen_late(&drawn, case, Span::from_ns(700)) else {
                panic!()
            };
            assert!(
                seen[0] == seen[1] && seen[0].0 == at(5_000) && seen[2].0 == at(8_000),
                "{seen:?}"
            );
            assert!(
                seen[0].1 <= at(5_700) && at(9_000) <= seen[2].1 && seen[2].1 <= at(9_700),
                "{seen:?}"
            );
        }
    }

    fn plain(cost: &Cost) -> &Cost {
        match cost {
            Cost::Versions(costs) => plain(&costs[0]),
            Cost::Marked { of, .. } => plain(of),
            cost => cost,
        }
    }

    #[test]
    fn s18_what_a_cpu_loses_may_let_one_more_come_in_between() {
        // The lower one is done just before the other one's next job, unless it loses half a
        // millisecond more than orders take.
        let system = flat("policy = \"rm\"", &[(0, 20_000, 9_000), (0, 60_000, 9_000)]);
        let root = &system.roots[0];
        assert_eq!(us(bounds(root)[1].within_reason), Some(19_360));
        assert_eq!(us_despite(root, 1, 500), Some(19_860));
        assert_eq!(us_despite(root, 1, 700), Some(29_740));
        assert_eq!(us_despite(root, 0, 500), Some(10_180));
    }

    fn us(bound: Option<Span>) -> Option<u64> {
        bound.map(|bound| bound.as_ns() / 1_000)
    }

    /// Where so many microseconds are lost.
    fn us_despite(root: &Root, task: u32, lost: u64) -> Option<u64> {
        us(Despite::new(root, Span::from_ns(lost * 1_000)).of(TaskId(task)))
    }

    /// Tasks below a scheduler: priority, and microseconds of period and cost.
    fn flat(scheduler: &str, tasks: &[(u8, u64, u64)]) -> system::System {
        let task = |(number, (priority, period, cost)): (usize, &(u8, u64, u64))| {
            let priority = if scheduler.contains("fp") {
                format!("priority = {priority}")
            } else {
                String::new()
            };
            let numbers = format!("period = \"{period}us\"\ncost = \"{cost}us\"\n{priority}\n");
            format!("[[task]]\nname = \"t{number}\"\nin = \"cpu\"\n{numbers}")
        };
        let tasks: String = tasks.iter().enumerate().map(task).collect();
        let text =
            format!("duration = \"1s\"\n[[scheduler]]\nname = \"cpu\"\n{scheduler}\n{tasks}");
        system::read(&text, "the test's own", &()).expect("a sound file")
    }

    /// Among jobs of which each could be as much longer there would be no bound.
    #[test]
    fn s18_what_a_cpu_loses_counts_once_and_not_in_each_job() {
        let system = flat("policy = \"fp\"", &[(9, 10_000, 5_000), (1, 20_000, 6_000)]);
        let root = &system.roots[0];
        // 6.62 ms, and 5.6 in each 10. With four more in each of its jobs it would ask for more
        // than there is.
        assert_eq!(us_despite(root, 1, 0), Some(17_820));
        assert_eq!(us_despite(root, 1, 2_000), Some(19_820));
        assert_eq!(us_despite(root, 1, 4_000), Some(27_420));
        assert_eq!(us_despite(root, 0, 4_000), Some(9_600));
    }

    #[test]
    fn s18_what_another_job_loses_may_let_one_more_begin_where_nobody_is_interrupted() {
        let system = flat(
            "policy = \"fp\"\npreemptive = false",
            &[(90, 20_000, 9_000), (50, 60_000, 10_000), (10, 60_000, 5_000)],
        );
        let root = &system.roots[0];
        // In the middle one, after which the first is there again.
        let (from, to) = (Time::from_ns(15_000_000), Time::from_ns(16_500_000));
        let machine = root.tree.build().expect("a machine");
        let world = World::new(machine, 1, &root.workload(1));
        let mut lives = Lives::default();
        world.with_holes(Cpu(0), vec![(from, to)]).run(Time::from_ns(60_000_000), &mut lives);
        let end = lives.jobs[&(TaskId(2), 0)].end.expect("it ends");
        assert_eq!(end, Time::from_ns(34_500_000));
        assert_eq!(us_despite(root, 2, 1_500), Some(37_160));
        // What orders take lets it in there already; not so where the middle one is shorter.
        let system = flat(
            "policy = \"fp\"\npreemptive = false",
            &[(90, 20_000, 9_000), (50, 60_000, 9_000), (10, 60_000, 5_000)],
        );
        let root = &system.roots[0];
        assert_eq!(us(bounds(root)[2].within_reason), Some(24_960));
        assert_eq!(us_despite(root, 2, 500), Some(25_460));
        assert_eq!(us_despite(root, 2, 700), Some(35_340));
    }

    #[test]
    fn s18_a_root_that_loses_something_is_analysed_once_and_only_when_somebody_asks() {
        let system = flat("policy = \"edf\"", &[(0, 20_000, 5_000), (0, 20_000, 5_000)]);
        let despite = Despite::new(&system.roots[0], Span::from_ns(2_000_000));
        assert!(despite.bounds.get().is_none());
        assert_eq!(us(despite.of(TaskId(0))), Some(13_200));
        let kept = despite.bounds.get().map(Vec::as_ptr);
        assert_eq!(us(despite.of(TaskId(1))), Some(13_200));
        assert_eq!((kept.is_some(), despite.bounds.get().map(Vec::as_ptr)), (true, kept));
    }

    #[test]
    fn s18_on_several_cpus_every_job_may_have_lost() {
        let system = flat("policy = \"edf\"\ncpus = 2", &[(0, 20_000, 5_000), (0, 20_000, 5_000)]);
        let root = &system.roots[0];
        assert_eq!(us_despite(root, 0, 0), Some(5_600));
        assert_eq!(us_despite(root, 0, 2_000), Some(7_600));
    }
}
