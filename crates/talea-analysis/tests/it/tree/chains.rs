//! Chains in the simulator: no latency exceeds its bound, also in any phase of small sets, and
//! known phases have exactly the latencies of a long simulation.

use crate::rng::{Rng, rng, rounds};
use talea_analysis::test_info::TestKind;
use talea_analysis::tree::{ChainBound, ChainModel, ChainReason, RootModel};
use talea_core::chain::{Latencies, Latency, Link, ReadWrite, latencies};
use talea_core::engine::{Backlog, Cpu, NodeId, NodeSpec, SchedulerSpec, TaskId, TaskSpec, Tree};
use talea_core::sched::PolicySpec;
use talea_core::workload::{Arrivals, Cost, Source};
use talea_core::{Span, Time, Work};
use talea_sim::{Completion, Simulation, Sink, Workload};

const POLICIES: [PolicySpec; 5] = [
    PolicySpec::FixedPriority,
    PolicySpec::RateMonotonic,
    PolicySpec::DeadlineMonotonic,
    PolicySpec::Edf,
    PolicySpec::Fifo,
];

/// Recorder of first dispatches and completions; of releases and deadlines for tasks with logical
/// execution time.
struct Recorder {
    reads: Vec<Option<Time>>,
    jobs: Vec<Vec<ReadWrite>>,
    logical: Vec<bool>,
}

impl Recorder {
    fn new(logical: Vec<bool>) -> Recorder {
        let tasks = logical.len();
        Recorder { reads: vec![None; tasks], jobs: vec![Vec::new(); tasks], logical }
    }
}

impl Sink for Recorder {
    fn on_start(&mut self, now: Time, _cpu: Cpu, task: TaskId, _job: u64, _version: u32) {
        self.reads[task.0 as usize] = Some(now);
    }

    fn on_completion(&mut self, job: &Completion) {
        let task = job.task.0 as usize;
        let read = self.reads[task].take().expect("a first dispatch");
        let (read, write) =
            if self.logical[task] { (job.release, job.deadline) } else { (read, job.end) };
        self.jobs[task].push(ReadWrite { read, write });
    }
}

/// Roots with a chain through some of their tasks.
struct Case {
    roots: Vec<(Tree, Vec<Source>)>,
    tasks: Vec<(usize, usize)>,
    links: Vec<Link>,
    /// `logical[i]`: whether task `i` of the chain has logical execution time.
    logical: Vec<bool>,
}

impl Case {
    fn new(roots: Vec<(Tree, Vec<Source>)>, tasks: Vec<(usize, usize)>, links: Vec<Link>) -> Case {
        let logical = vec![false; tasks.len()];
        Case { roots, tasks, links, logical }
    }

    /// Draws the tasks with logical execution time.
    fn with_logical(self, rng: &mut Rng) -> Case {
        let logical = self.tasks.iter().map(|_| rng.below(3) == 0).collect();
        Case { logical, ..self }
    }

    fn bound(&self, phases_known: bool) -> ChainBound {
        let models: Vec<RootModel<'_>> = self
            .roots
            .iter()
            .map(|(tree, sources)| RootModel::new(tree, sources).with_phases_known(phases_known))
            .collect();
        let responses: Vec<Vec<Option<Span>>> = models
            .iter()
            .map(|model| model.bounds().into_iter().map(|bound| bound.bound.ok()).collect())
            .collect();
        let (tasks, links, logical) = (&self.tasks, &self.links, &self.logical);
        ChainModel { roots: &models, tasks, links, logical }.bound(&responses)
    }

    fn simulate(&self, seed: u64, until: u64) -> Latencies {
        let jobs: Vec<Vec<Vec<ReadWrite>>> = self
            .roots
            .iter()
            .zip(0..)
            .map(|((tree, sources), number)| {
                let mut logical = vec![false; sources.len()];
                let of_chain = self.tasks.iter().zip(&self.logical);
                for (&(root, task), &is_logical) in of_chain {
                    if root as u64 == number {
                        logical[task] = is_logical;
                    }
                }
                let workload = Workload { sources: sources.clone(), seed: seed + number };
                let mut world =
                    Simulation::new(tree.build().expect("a tree"), tree.cpus, &workload);
                let mut seen = Recorder::new(logical);
                world.run(Time::from_ns(until), &mut seen);
                seen.jobs
            })
            .collect();
        let of_chain: Vec<_> = self.tasks.iter().map(|&(root, task)| &jobs[root][task]).collect();
        latencies(&self.links, &of_chain)
    }

    fn describe(&self) -> String {
        format!("{:?} {:?} {:?} {:?}", self.roots, self.tasks, self.links, self.logical)
    }
}

fn periodic(offset: u64, period: u64, jitter: u64) -> Arrivals {
    Arrivals::Periodic {
        offset: Span::from_ns(offset),
        period: Span::from_ns(period),
        jitter: Span::from_ns(jitter),
    }
}

/// Returns a flat root without channels.
fn flat(rng: &mut Rng, policy: &PolicySpec, varies: bool) -> (Tree, Vec<Source>) {
    let cpus = if varies && rng.below(6) == 0 { 2 } else { 1 };
    let mut root = SchedulerSpec::new("root", policy.clone());
    root.preemptive = rng.below(4) > 0;
    let mut tree = Tree::new(cpus, root);
    let mut sources = Vec::new();
    for _ in 0..rng.between(1, 3) {
        let period = [4, 6, 8, 12, 24][rng.below(5) as usize];
        let mut spec = TaskSpec::new("task", Span::from_ns(period));
        spec.deadline = Span::from_ns(if cpus > 1 { period } else { rng.between(3, 30) });
        spec.priority = rng.below(5) as u8;
        let max = Work::from_ns(rng.between(1, period / 2));
        let (offset, period) = (rng.below(30), period);
        let (arrivals, cost) = if varies {
            let arrivals = if rng.below(2) == 0 {
                let jitter = if cpus > 1 { 0 } else { rng.below(2) * rng.below(8) };
                periodic(offset, period, jitter)
            } else {
                Arrivals::Sporadic {
                    offset: Span::from_ns(offset),
                    separation: Span::from_ns(period),
                    extra_separation: Span::from_ns(rng.below(10)),
                }
            };
            let cost = match rng.below(2) {
                0 => Cost::Constant(max),
                _ => Cost::Uniform { min: Work::from_ns(1), max },
            };
            let cost = match rng.below(6) {
                0 => cost.suspending(Work::ZERO, Span::from_ns(rng.between(1, 4))),
                _ => cost,
            };
            (arrivals, cost)
        } else {
            (periodic(offset, period, 0), Cost::Constant(max))
        };
        tree.task(Tree::ROOT, spec);
        sources.push(Source { arrivals, cost });
    }
    (tree, sources)
}

/// Returns a chain of registers through tasks of one or two roots.
fn random(rng: &mut Rng, policy: &PolicySpec, varies: bool) -> Case {
    let roots: Vec<_> = (0..rng.between(1, 2)).map(|_| flat(rng, policy, varies)).collect();
    let mut all: Vec<(usize, usize)> = roots
        .iter()
        .enumerate()
        .flat_map(|(root, (_, sources))| (0..sources.len()).map(move |task| (root, task)))
        .collect();
    let count = rng.between(1, 4).min(all.len() as u64);
    let tasks: Vec<_> = (0..count)
        .map(|_| {
            let at = rng.below(all.len() as u64) as usize;
            all.swap_remove(at)
        })
        .collect();
    let links = vec![Link::Register; tasks.len() - 1];
    Case::new(roots, tasks, links).with_logical(rng)
}

/// Checks that the latencies are at most the bounds. Returns whether one of them is attained: the
/// bounds are least upper bounds of real numbers, and each hop takes a nanosecond less.
fn check(case: &Case, bound: &ChainBound, found: &Latencies) -> bool {
    let Ok(most) = bound.bounds else { return false };
    let mut is_equal = false;
    for (found, most) in [(found.reaction, most.reaction), (found.age, most.age)] {
        let Some(found) = found else { continue };
        assert!(found.length <= most, "{found:?} exceeds {most}: {}", case.describe());
        is_equal |= most.as_ns() - found.length.as_ns() <= case.links.len() as u64;
    }
    is_equal
}

#[test]
fn no_simulated_latency_exceeds_its_bound() {
    let mut rng = rng(27);
    let (mut bounded, mut equal, mut none) = (0, 0, 0);
    for round in 0..rounds(5_000) {
        let case = random(&mut rng, &POLICIES[round as usize % 5], true);
        let bound = case.bound(false);
        if bound.bounds.is_err() {
            none += 1;
            continue;
        }
        bounded += 1;
        equal += u64::from(check(&case, &bound, &case.simulate(round, 400)));
    }
    println!("{bounded} with a bound, {equal} attained, {none} without");
    assert!(bounded > 2_500 && equal > 100);
}

#[test]
fn known_phases_have_the_latencies_of_a_long_simulation() {
    let mut rng = rng(2_019);
    let (mut exact, mut other, mut shorter) = (0, 0, 0);
    for round in 0..rounds(5_000) {
        let case = random(&mut rng, &POLICIES[round as usize % 5], false);
        let (known, all) = (case.bound(true), case.bound(false));
        let found = case.simulate(round, 600);
        check(&case, &known, &found);
        check(&case, &all, &found);
        if known.test.name != "chain-known-phases" {
            other += 1;
            continue;
        }
        let most = known.bounds.expect("a schedule has latencies");
        assert_eq!(known.kind, TestKind::Exact);
        assert_eq!(found.reaction.map(|of| of.length), Some(most.reaction), "{}", case.describe());
        assert_eq!(found.age.map(|of| of.length), Some(most.age), "{}", case.describe());
        exact += 1;
        shorter += u64::from(all.bounds.is_ok_and(|all| most.age < all.age));
    }
    println!("{exact} exact, {other} by sums, {shorter} shorter than for all phases");
    assert!(exact > 2_500 && shorter > 1_000);
}

/// All phases of three small tasks in two orders of their urgency: the longest latency of any phase
/// is at most the bound that covers all phases.
#[test]
fn the_longest_latency_of_all_phases_is_at_most_the_bound() {
    let periods = [3, 4, 6];
    let (mut sets, mut equal, mut equal_logical) = (0, 0, 0);
    for policy in [PolicySpec::FixedPriority, PolicySpec::Edf] {
        for shape in 0..27_u64 {
            let period = |task: u32| periods[(shape / 3_u64.pow(task) % 3) as usize];
            for (order, preemptive, logical) in [
                (0, true, [false; 3]),
                (1, true, [false; 3]),
                (1, false, [false; 3]),
                (0, true, [false, true, false]),
                (0, true, [true; 3]),
            ] {
                let mut longest = Latencies::default();
                let case = |offsets: [u64; 3]| {
                    let mut root = SchedulerSpec::new("root", policy.clone());
                    root.preemptive = preemptive;
                    let mut tree = Tree::new(1, root);
                    let mut sources = Vec::new();
                    for task in 0..3 {
                        let mut spec = TaskSpec::new("task", Span::from_ns(period(task)));
                        spec.priority = if order == 0 { 3 - task as u8 } else { task as u8 };
                        if order == 1 {
                            spec.deadline = Span::from_ns(7 - 2 * u64::from(task));
                        }
                        tree.task(Tree::ROOT, spec);
                        sources.push(Source {
                            arrivals: periodic(offsets[task as usize], period(task), 0),
                            cost: Cost::Constant(Work::from_ns(1)),
                        });
                    }
                    let tasks = vec![(0, 0), (0, 1), (0, 2)];
                    let case = Case::new(vec![(tree, sources)], tasks, vec![Link::Register; 2]);
                    Case { logical: logical.to_vec(), ..case }
                };
                let bound = case([0; 3]).bound(false);
                for offsets in 0..period(0) * period(1) * period(2) {
                    let offsets = [
                        offsets % period(0),
                        offsets / period(0) % period(1),
                        offsets / period(0) / period(1),
                    ];
                    let case = case(offsets);
                    let found = case.simulate(0, 60);
                    check(&case, &bound, &found);
                    longest.reaction = longest.reaction.max_by_length(found.reaction);
                    longest.age = longest.age.max_by_length(found.age);
                }
                sets += 1;
                let is_equal = u64::from(check(&case([0; 3]), &bound, &longest));
                let is_logical = u64::from(logical == [true; 3]);
                equal_logical += is_equal * is_logical;
                equal += is_equal;
            }
        }
    }
    println!("{equal} of {sets} bounds attained, {equal_logical} with logical execution time");
    assert!(sets == 270 && equal > 40, "{equal}");
    assert!(equal_logical > 40, "{equal_logical}");
}

trait Longer: Sized {
    fn max_by_length(self, other: Self) -> Self;
}

impl Longer for Option<Latency> {
    fn max_by_length(self, other: Self) -> Self {
        if other.map(|of| of.length) > self.map(|of| of.length) { other } else { self }
    }
}

/// Returns a graph with dedicated CPUs, and a task of another root that reads its last node.
fn graph(rng: &mut Rng) -> Case {
    let mut root = SchedulerSpec::new("root", POLICIES[rng.below(5) as usize].clone());
    root.preemptive = rng.below(3) > 0;
    let mut tree = Tree::new(rng.between(1, 2) as u32, root);
    let period = rng.between(12, 30);
    let cost = |rng: &mut Rng| Cost::Uniform {
        min: Work::from_ns(1),
        max: Work::from_ns(rng.between(1, 5)),
    };
    let mut nodes = vec![tree.task(Tree::ROOT, TaskSpec::new("root", Span::from_ns(period)))];
    let arrivals = match rng.below(2) {
        0 => periodic(rng.below(9), period, 0),
        _ => Arrivals::Sporadic {
            offset: Span::from_ns(rng.below(9)),
            separation: Span::from_ns(period),
            extra_separation: Span::from_ns(rng.below(10)),
        },
    };
    let mut sources = vec![Source { arrivals, cost: cost(rng) }];
    for _ in 0..rng.between(1, 3) {
        let node = tree.task(Tree::ROOT, TaskSpec::node("node"));
        sources.push(Source::activated(cost(rng)));
        tree.channel(*nodes.last().expect("a node"), node, 0);
        nodes.push(node);
    }
    let first = rng.below(nodes.len() as u64) as usize;
    let mut tasks: Vec<_> = (first..nodes.len()).map(|task| (0, task)).collect();
    let mut links = vec![Link::Channel; tasks.len() - 1];
    let policy = &POLICIES[rng.below(5) as usize];
    let (other, reads) = (flat(rng, policy, true), rng.below(3));
    if reads > 0 {
        tasks.push((1, 0));
        links.push(Link::Register);
    }
    if reads == 2 && other.1.len() > 1 {
        tasks.insert(0, (1, 1));
        links.insert(0, Link::Register);
    }
    Case::new(vec![(tree, sources), other], tasks, links)
}

#[test]
fn no_latency_through_a_graph_exceeds_its_bound() {
    let mut rng = rng(2_007);
    let (mut bounded, mut equal) = (0, 0);
    for round in 0..rounds(1_500) {
        let case = graph(&mut rng);
        let bound = case.bound(false);
        bounded += u64::from(bound.bounds.is_ok());
        equal += u64::from(check(&case, &bound, &case.simulate(round, 600)));
    }
    println!("{bounded} with a bound, {equal} attained");
    assert!(bounded > 800 && equal > 20);
}

/// Returns a root with fixed priorities and tasks (T, C, priority), all in a chain.
fn in_order(tasks: &[(u64, u64, u8)]) -> Case {
    let mut tree = Tree::new(1, SchedulerSpec::new("root", PolicySpec::FixedPriority));
    let mut sources = Vec::new();
    for &(period, cost, priority) in tasks {
        let mut spec = TaskSpec::new("task", Span::from_ns(period));
        spec.priority = priority;
        tree.task(Tree::ROOT, spec);
        let cost = Cost::Constant(Work::from_ns(cost));
        sources.push(Source { arrivals: periodic(0, period, 0), cost });
    }
    let tasks = (0..tasks.len()).map(|task| (0, task)).collect::<Vec<_>>();
    let links = vec![Link::Register; tasks.len() - 1];
    Case::new(vec![(tree, sources)], tasks, links)
}

/// Davare et al., DAC 2007: the sum of periods and responses. Dürr et al., CASES 2019: without the
/// response of a task that is more urgent than the next one.
#[test]
fn bounds_are_the_published_sums() {
    let sum = |case: &Case| {
        let most = case.bound(false).bounds.expect("bounds");
        (most.reaction.as_ns(), most.age.as_ns())
    };
    // Responses 8, 4 and 1; the first task is the least urgent.
    let rising = in_order(&[(30, 3, 1), (12, 3, 2), (6, 1, 3)]);
    assert_eq!(sum(&rising), (30 + 8 + 12 + 4 + 6 + 1, 30 + 8 + 12 + 4 + 1));
    let falling = in_order(&[(6, 1, 3), (12, 3, 2), (30, 3, 1)]);
    assert_eq!(sum(&falling), (6 + 12 + 30 + 8, 6 + 12 + 8));
    // Henzinger et al., Proc. IEEE 91(1), 2003: the deadlines in place of the responses.
    let logical = Case { logical: vec![true; 3], ..falling };
    assert_eq!(sum(&logical), (12 + 24 + 60, 12 + 24 + 30));
}

/// A job that costs less may complete before the next task reads, or after.
#[test]
fn a_chain_of_costs_that_vary_is_not_exact() {
    let mut case = in_order(&[(6, 1, 3), (12, 3, 2)]);
    assert_eq!(case.bound(true).test.name, "chain-known-phases");
    case.roots[0].1[1].cost = Cost::Uniform { min: Work::from_ns(1), max: Work::from_ns(3) };
    assert_eq!(case.bound(true).test.name, "chain");
    assert_eq!(case.bound(true).kind, TestKind::Sufficient);
}

#[test]
fn a_chain_without_a_longest_separation_or_with_refusals_has_no_bound() {
    let mut case = in_order(&[(6, 1, 3), (12, 3, 2)]);
    let reason = |case: &Case| case.bound(false).bounds.map_err(|no| (no.task, no.reason));
    assert!(reason(&case).is_ok());
    case.roots[0].1[1].arrivals = Arrivals::List(vec![Time::ZERO, Time::from_ns(12)]);
    assert_eq!(reason(&case), Err((1, ChainReason::Arrivals)));
    // The second task has a response of 7, longer than its period: two of its jobs are pending.
    let mut case = in_order(&[(4, 2, 3), (6, 3, 2)]);
    assert!(reason(&case).is_ok());
    let spec = &mut case.roots[0].0.get_mut(NodeId(2)).expect("a task").spec;
    let NodeSpec::Task(spec) = spec else { panic!("a task") };
    spec.backlog = Backlog { capacity: 0 };
    assert_eq!(reason(&case), Err((1, ChainReason::Refusals)));
}

#[test]
fn late_jobs_with_logical_execution_time_have_no_bound() {
    let mut case = in_order(&[(4, 2, 3), (6, 3, 2)]);
    let reason = |case: &Case| case.bound(false).bounds.map_err(|no| (no.task, no.reason));
    assert!(reason(&case).is_ok(), "a response of 7 beyond the deadline of 6");
    case.logical[1] = true;
    assert_eq!(reason(&case), Err((1, ChainReason::Deadline)));
}
