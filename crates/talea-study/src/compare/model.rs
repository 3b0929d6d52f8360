//! Perturbed simulations: the earliest and latest time of each start and end.
//!
//! A single simulation is too precise: if two events are close to each other, real threads may
//! invert them, and the rest of the schedule then differs. So the same jobs are simulated with
//! costs that are up to two percent longer, and with up to 250 µs per order, which is more than a
//! dispatcher needs. A real run must have what all these simulations have in common. In half of the
//! simulations, all jobs are longer by the same share; in the others, each job has its own share.
//! This matters if a job ends exactly with its budget because another job used that budget before:
//! with equal shares it does so in every simulation, on real threads only sometimes. In these
//! simulations arrivals are also seen slightly late: a server computes its deadline from its
//! activation, which is never exactly the release of a job beside it.

use super::job_times::{JobId, JobLog};
use crate::live_run::with_changes;
use std::cell::OnceCell;
use std::collections::BTreeMap;
use talea_analysis::tree::{Reason, RootModel, TaskBound};
use talea_core::engine::{NodeSpec, TaskId, Tree};
use talea_core::mutate;
use talea_core::sched::PolicySpec;
use talea_core::workload::{Arrivals, Cost, Source, Workload};
use talea_core::{Span, Time, Work};
use talea_sim::rng::Rng;
use talea_sim::{Overheads, Simulation, generate_jobs};
use talea_system::Root;

/// Perturbations: additional costs in thousandths, and microseconds per order. Events that are
/// close to each other are inverted in some of these simulations.
const PERTURBATIONS: [(u64, u64); 8] =
    [(0, 0), (1, 10), (2, 25), (4, 50), (7, 80), (10, 120), (15, 180), (20, 250)];
/// Maximum of the additional costs, in thousandths. Bounds include the maximum for each job, and
/// [`MAX_ORDER_DELAY`] for two orders. Lost time within both does not perturb a job.
pub const MAX_COST_PERMILLE: u64 = PERTURBATIONS[PERTURBATIONS.len() - 1].0;
/// Maximum of the additional delays of an order.
pub const MAX_ORDER_DELAY: Span = Span::from_ns(PERTURBATIONS[PERTURBATIONS.len() - 1].1 * 1_000);
/// Minimum number of jobs of a task with distinct shares. After these jobs the shares repeat.
const MIN_DISTINCT_JOBS: usize = 61;

/// Earliest and latest time of an event that occurs in every simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeRange {
    pub(crate) first: Time,
    pub(crate) last: Time,
}

/// Expected times of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Expected {
    pub(crate) begin: Option<TimeRange>,
    pub(crate) end: Option<TimeRange>,
}

/// Expected times and bounds of one root.
pub struct Model {
    pub(crate) jobs: BTreeMap<JobId, Expected>,
    /// `bounds[task]`: bound of the task.
    pub bounds: Vec<Bound>,
}

/// Bounds of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    /// Bound with the costs of the file. `None` if there is no bound.
    pub nominal: Option<Span>,
    /// Bound with longer costs and shorter slots, as on real threads. `None` if there is no such
    /// bound. Then the nominal bound is too tight to check a real run.
    pub tolerant: Option<Span>,
}

/// Simulates `root` until `end` and computes its bounds.
pub fn model(root: &Root, seed: u64, end: Time) -> anyhow::Result<Model> {
    let alike = PERTURBATIONS.map(|(longer, order)| {
        (with_costs(&root.sources, |_, cost| lengthen(cost, longer)), order)
    });
    let run = |(sources, order): (Vec<Source>, u64)| -> anyhow::Result<JobLog> {
        let machine =
            root.tree.build().map_err(|error| anyhow::anyhow!("{}: {}", root.name, error.kind))?;
        let overheads =
            Overheads { decision: Span::from_ns(order * 1_000), ..Overheads::default() };
        let workload = Workload { sources, seed };
        let world = Simulation::new(machine, root.tree.cpus, &workload);
        let mut world = with_changes(world, root).with_overheads(overheads);
        let mut log = JobLog::default();
        world.run(end, &mut log);
        Ok(log)
    };
    let mut all = alike.into_iter().map(run).collect::<anyhow::Result<Vec<JobLog>>>()?;
    // Costs of each job of a task, with a reserve beyond the number of simulated jobs.
    let begun = |task: usize| {
        let task = TaskId(task as u32);
        let last = |log: &JobLog| {
            log.jobs.range((task, 0)..=(task, u64::MAX)).next_back().map(|(name, _)| name.1)
        };
        all.iter().filter_map(last).max().map_or(0, |last| last as usize + 1) + MIN_DISTINCT_JOBS
    };
    let drawn = generate_jobs(&root.workload(seed), end, begun);
    let unlike = (0..).zip(PERTURBATIONS).map(|(case, (_, order))| {
        let own = |task: TaskId, cost: &mut Cost| {
            mutate!(
                "compare-model-unlike",
                perturb_costs(
                    cost,
                    &drawn[task.0 as usize].costs,
                    &mut Rng::for_part(case, task.0.into())
                ),
                lengthen(cost, case + drawn[task.0 as usize].costs.len() as u64 / 64)
            );
        };
        let mut sources = with_costs(&root.sources, own);
        for (source, drawn) in
            sources.iter_mut().zip(&drawn).filter(|(_, drawn)| !drawn.arrivals.is_empty())
        {
            source.arrivals = delay_arrivals(&drawn.arrivals, case, Span::from_ns(order * 1_000));
        }
        (sources, order)
    });
    all.extend(unlike.map(run).collect::<anyhow::Result<Vec<JobLog>>>()?);
    let mut jobs: BTreeMap<JobId, Expected> = BTreeMap::new();
    for &name in all.iter().flat_map(|log| log.jobs.keys()) {
        jobs.entry(name).or_insert_with(|| {
            let times = || all.iter().map(|log| log.jobs.get(&name).copied().unwrap_or_default());
            Expected {
                begin: range(times().map(|times| times.begin)),
                end: range(times().map(|times| times.end)),
            }
        });
    }
    Ok(Model { jobs, bounds: bounds(root) })
}

fn range(mut times: impl Iterator<Item = Option<Time>>) -> Option<TimeRange> {
    let first = times.next()??;
    times.try_fold(TimeRange { first, last: first }, |range, time| {
        let time = time?;
        Some(TimeRange { first: range.first.min(time), last: range.last.max(time) })
    })
}

/// Computes the bounds of each task of `root`.
pub fn bounds(root: &Root) -> Vec<Bound> {
    let nominal = analyze(root, &root.tree, &root.sources, Span::ZERO);
    let both = nominal.into_iter().zip(tolerant_bounds(root, Span::ZERO));
    let bound =
        |(nominal, tolerant): (TaskBound, _)| Bound { nominal: nominal.bound.ok(), tolerant };
    both.map(bound).collect()
}

/// Tolerant bounds of the tasks of a root that loses at most `lost` CPU time per busy period. Lost
/// time in any job may let other jobs interfere that would have arrived later. The bounds are
/// computed once, on demand.
pub struct LostTimeBound<'a> {
    root: &'a Root,
    lost: Span,
    bounds: OnceCell<Vec<Option<Span>>>,
}

impl<'a> LostTimeBound<'a> {
    /// Creates the bounds of `root` with `lost` time in each interval; computed on demand.
    pub fn new(root: &'a Root, lost: Span) -> LostTimeBound<'a> {
        LostTimeBound { root, lost, bounds: OnceCell::new() }
    }

    /// Returns the bound of a task.
    pub fn bound_of(&self, task: TaskId) -> Option<Span> {
        self.bounds.get_or_init(|| tolerant_bounds(self.root, self.lost))[task.0 as usize]
    }
}

fn analyze(root: &Root, tree: &Tree, sources: &[Source], lost: Span) -> Vec<TaskBound> {
    let mut roots = RootModel::new(tree, sources);
    (roots.overheads, roots.lost) =
        (root.surroundings.overheads, mutate!("compare-model-lost", lost, Span::ZERO));
    roots.bounds()
}

fn tolerant_bounds(root: &Root, lost: Span) -> Vec<Option<Span>> {
    let tree = with_shorter_slots(&root.tree, MAX_ORDER_DELAY);
    // A job pays for its own order and for that of the job that continues after it; a slot pays for
    // its first order.
    let sources = |more: Span| {
        with_costs(&root.sources, |_, cost| {
            lengthen(cost, MAX_COST_PERMILLE);
            map_costs(cost, &|work| {
                work.saturating_add(
                    mutate!(
                        "compare-model-orders",
                        2 * MAX_ORDER_DELAY.as_ns(),
                        MAX_ORDER_DELAY.as_ns()
                    ) + more.as_ns(),
                )
            });
        })
    };
    let mut answers = analyze(root, &tree, &sources(Span::ZERO), lost);
    let knows_no_loss =
        |answer: &TaskBound| answer.bound.as_ref().is_err_and(|no| no.reason == Reason::CpuStalls);
    if answers.iter().any(knows_no_loss) {
        // The job that runs during the loss takes longer. It is unknown which one, so every job
        // may.
        answers = analyze(
            root,
            &tree,
            &sources(mutate!("compare-model-any-task", lost, Span::ZERO)),
            Span::ZERO,
        );
    }
    answers.into_iter().map(|answer| answer.bound.ok()).collect()
}

/// Delays arrivals by at most `most`. Arrivals at the same instant stay together, because one
/// notification reports them all.
fn delay_arrivals(drawn: &[(Time, Time)], case: u64, most: Span) -> Arrivals {
    let mut last = Time::ZERO;
    let late = |&(seen, nominal): &(Time, Time)| {
        let most = mutate!("compare-model-seen", most.as_ns(), most.as_ns() / 1_000_000);
        let by = Rng::for_part(case, nominal.as_ns()).between(0, most);
        last = last.max(seen.saturating_add(Span::from_ns(by)));
        (nominal, last)
    };
    Arrivals::Observed(drawn.iter().map(late).collect())
}

/// Returns the tree with slots that begin later, if they are long enough.
fn with_shorter_slots(tree: &Tree, by: Span) -> Tree {
    let mut tree = tree.clone();
    let nodes: Vec<_> = tree.nodes().map(|(id, _)| id).collect();
    for id in nodes {
        if let Some(NodeSpec::Scheduler(spec)) = tree.get_mut(id).map(|node| &mut node.spec)
            && let PolicySpec::Partitions { slots, .. } = &mut spec.policy
        {
            for slot in slots.iter_mut().filter(|slot| slot.end > slot.start + by) {
                slot.start += by;
            }
        }
    }
    tree
}

/// Returns the sources with changed costs. `change` gets the task and its cost.
fn with_costs(sources: &[Source], mut change: impl FnMut(TaskId, &mut Cost)) -> Vec<Source> {
    let mut sources = sources.to_vec();
    sources
        .iter_mut()
        .zip((0..).map(TaskId))
        .for_each(|(source, task)| change(task, &mut source.cost));
    sources
}

/// Lengthens a job by `by` thousandths of its cost. The steps within the job stay at their
/// positions.
fn lengthen(cost: &mut Cost, by: u64) {
    map_costs(cost, &|work| work.saturating_add(work / 1_000 * by));
}

/// Lengthens each job by a share of its own. `drawn[version]` has the costs of the jobs.
fn perturb_costs(cost: &mut Cost, drawn: &[Vec<Work>], rng: &mut Rng) {
    let mut longer = |work: Work| {
        Work::from_ns(
            work.as_ns().saturating_add(work.as_ns() / 1_000 * rng.between(0, MAX_COST_PERMILLE)),
        )
    };
    match cost {
        Cost::Constant(work) => {
            *cost = Cost::List((0..MIN_DISTINCT_JOBS).map(|_| longer(*work)).collect());
        }
        Cost::List(list) => {
            // Whole rounds, so that each job keeps its cost.
            let rounds = MIN_DISTINCT_JOBS.div_ceil(list.len().max(1));
            *list = (0..rounds).flat_map(|_| list.iter().copied()).map(longer).collect();
        }
        // One of two costs: most jobs are equal.
        Cost::Pair { .. } => {
            mutate!(
                "compare-model-pair",
                *cost = Cost::List(drawn.iter().take(1).flatten().copied().map(longer).collect()),
                lengthen(cost, drawn.len() as u64)
            );
        }
        // Random costs: no two jobs are equal anyway.
        Cost::Uniform { .. } => lengthen(cost, rng.between(0, MAX_COST_PERMILLE)),
        Cost::Versions(costs) => {
            costs
                .iter_mut()
                .zip(drawn.chunks(1))
                .for_each(|(cost, drawn)| perturb_costs(cost, drawn, rng));
        }
        Cost::WithSteps { base: of, .. } => perturb_costs(of, drawn, rng),
    }
}

/// Applies `longer` to each possible cost of a job.
fn map_costs(cost: &mut Cost, longer: &impl Fn(u64) -> u64) {
    let change = |work: &mut Work| *work = Work::from_ns(longer(work.as_ns()));
    match cost {
        Cost::Constant(work) => change(work),
        Cost::Uniform { min: a, max: b } | Cost::Pair { low: a, high: b, .. } => {
            change(a);
            change(b);
        }
        Cost::List(list) => list.iter_mut().for_each(change),
        Cost::Versions(costs) => costs.iter_mut().for_each(|cost| map_costs(cost, longer)),
        Cost::WithSteps { base: of, .. } => map_costs(of, longer),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use talea_core::engine::Cpu;
    use talea_system as system;

    #[test]
    fn s18_l11_a_job_that_ends_with_its_budget_in_one_simulation_goes_on_in_another() {
        // The budget that the first job of `short` uses is refilled at 20 ms and suffices exactly
        // for the second one. If the second one needs more, it gets that at 26 ms.
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
        let drawn = generate_jobs(&workload, Time::from_ns(1_000_000_000), |_| 0);
        let marked = Cost::Versions(vec![
            workload.sources[0].cost.clone().suspending(Work::ZERO, Span::ZERO),
        ]);
        for mut cost in [workload.sources[0].cost.clone(), marked] {
            perturb_costs(&mut cost, &drawn[0].costs, &mut Rng::for_part(1, 0));
            let Cost::List(costs) = plain(&cost) else { panic!("{cost:?}") };
            assert_eq!(costs.len(), 100);
            let share =
                |(cost, was): (&Work, &Work)| (cost.as_ns() - was.as_ns()) * 1_000 / was.as_ns();
            let shares: Vec<u64> = costs.iter().zip(&drawn[0].costs[0]).map(share).collect();
            assert!(shares.iter().all(|&share| share <= MAX_COST_PERMILLE), "{shares:?}");
            assert_eq!(shares.iter().collect::<BTreeSet<_>>().len() as u64, MAX_COST_PERMILLE + 1);
        }
    }

    #[test]
    fn s18_of_two_equal_deadlines_a_servers_may_be_slightly_later() {
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
        // No arrival is delayed beyond its period, and simultaneous arrivals stay simultaneous.
        let at = Time::from_ns;
        let drawn = [(at(5_000), at(5_000)), (at(5_000), at(5_000)), (at(9_000), at(8_000))];
        for case in 0..9 {
            let Arrivals::Observed(seen) = delay_arrivals(&drawn, case, Span::from_ns(700)) else {
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
            Cost::WithSteps { base: of, .. } => plain(of),
            cost => cost,
        }
    }

    #[test]
    fn s18_lost_cpu_time_may_let_one_more_job_interfere() {
        // The lower-priority job ends just before the next job of the other task, unless it loses
        // half a millisecond more than orders cost.
        let system = flat("policy = \"rm\"", &[(0, 20_000, 9_000), (0, 60_000, 9_000)]);
        let root = &system.roots[0];
        assert_eq!(us(bounds(root)[1].tolerant), Some(19_360));
        assert_eq!(us_with_lost_time(root, 1, 500), Some(19_860));
        assert_eq!(us_with_lost_time(root, 1, 700), Some(29_740));
        assert_eq!(us_with_lost_time(root, 0, 500), Some(10_180));
    }

    fn us(bound: Option<Span>) -> Option<u64> {
        bound.map(|bound| bound.as_ns() / 1_000)
    }

    /// Returns the bound of a task with this lost time, in microseconds.
    fn us_with_lost_time(root: &Root, task: u32, lost: u64) -> Option<u64> {
        us(LostTimeBound::new(root, Span::from_ns(lost * 1_000)).bound_of(TaskId(task)))
    }

    /// Builds tasks below one scheduler: priority, period and cost in microseconds.
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

    /// If each job could lose this time, there would be no bound.
    #[test]
    fn s18_lost_cpu_time_counts_once_and_not_in_each_job() {
        let system = flat("policy = \"fp\"", &[(9, 10_000, 5_000), (1, 20_000, 6_000)]);
        let root = &system.roots[0];
        // 6.62 ms, and 5.6 in each 10. With four more in each job the demand would exceed the
        // supply.
        assert_eq!(us_with_lost_time(root, 1, 0), Some(17_820));
        assert_eq!(us_with_lost_time(root, 1, 2_000), Some(19_820));
        assert_eq!(us_with_lost_time(root, 1, 4_000), Some(27_420));
        assert_eq!(us_with_lost_time(root, 0, 4_000), Some(9_600));
    }

    #[test]
    fn s18_lost_time_of_another_job_may_let_one_more_start_without_preemption() {
        let system = flat(
            "policy = \"fp\"\npreemptive = false",
            &[(90, 20_000, 9_000), (50, 60_000, 10_000), (10, 60_000, 5_000)],
        );
        let root = &system.roots[0];
        // During the middle job, after which the first one has arrived again.
        let (from, to) = (Time::from_ns(15_000_000), Time::from_ns(16_500_000));
        let machine = root.tree.build().expect("a machine");
        let world = Simulation::new(machine, 1, &root.workload(1));
        let mut log = JobLog::default();
        world.with_stalls(Cpu(0), vec![(from, to)]).run(Time::from_ns(60_000_000), &mut log);
        let end = log.jobs[&(TaskId(2), 0)].end.expect("it ends");
        assert_eq!(end, Time::from_ns(34_500_000));
        assert_eq!(us_with_lost_time(root, 2, 1_500), Some(37_160));
        // The cost of orders alone lets it interfere here; not so with a shorter middle job.
        let system = flat(
            "policy = \"fp\"\npreemptive = false",
            &[(90, 20_000, 9_000), (50, 60_000, 9_000), (10, 60_000, 5_000)],
        );
        let root = &system.roots[0];
        assert_eq!(us(bounds(root)[2].tolerant), Some(24_960));
        assert_eq!(us_with_lost_time(root, 2, 500), Some(25_460));
        assert_eq!(us_with_lost_time(root, 2, 700), Some(35_340));
    }

    #[test]
    fn s18_bounds_with_lost_time_are_computed_once_and_on_demand() {
        let system = flat("policy = \"edf\"", &[(0, 20_000, 5_000), (0, 20_000, 5_000)]);
        let lost_time_bound = LostTimeBound::new(&system.roots[0], Span::from_ns(2_000_000));
        assert!(lost_time_bound.bounds.get().is_none());
        assert_eq!(us(lost_time_bound.bound_of(TaskId(0))), Some(13_200));
        let kept = lost_time_bound.bounds.get().map(Vec::as_ptr);
        assert_eq!(us(lost_time_bound.bound_of(TaskId(1))), Some(13_200));
        assert_eq!((kept.is_some(), lost_time_bound.bounds.get().map(Vec::as_ptr)), (true, kept));
    }

    #[test]
    fn s18_on_several_cpus_every_job_may_lose_time() {
        let system = flat("policy = \"edf\"\ncpus = 2", &[(0, 20_000, 5_000), (0, 20_000, 5_000)]);
        let root = &system.roots[0];
        assert_eq!(us_with_lost_time(root, 0, 0), Some(5_600));
        assert_eq!(us_with_lost_time(root, 0, 2_000), Some(7_600));
    }
}
