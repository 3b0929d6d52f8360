//! Affinities found for flat roots: those of federated scheduling, and no job is late with them.

use crate::rng::{Rng, rng, rounds};
use talea_analysis::multi::graham::{Graph, GraphTask, Share, federated};
use talea_analysis::multi::partition::Fit;
use talea_analysis::tree::{AffinityAssignment, RootModel, assign_affinities};
use talea_analysis::uni::qpa;
use talea_core::engine::{AcceleratorId, Affinity, NodeId, NodeSpec};
use talea_core::engine::{Migration, SchedulerSpec, TaskSpec, Tree, Version};
use talea_core::sched::PolicySpec;
use talea_core::workload::{Arrivals, Cost, CostMode, Source};
use talea_core::{Span, Time, Work};
use talea_sim::{Jobs, Simulation, Workload};

/// Flat root with graphs.
struct System {
    tree: Tree,
    sources: Vec<Source>,
    graphs: Vec<Nodes>,
}

/// Nodes of one graph, by their numbers in it.
#[derive(Default)]
struct Nodes {
    ids: Vec<NodeId>,
    costs: Vec<Work>,
    edges: Vec<(usize, usize)>,
    period: u64,
    deadline: u64,
}

impl System {
    fn new(cpus: u32, policy: PolicySpec) -> System {
        let tree = Tree::new(cpus, SchedulerSpec::new("root", policy));
        System { tree, sources: Vec::new(), graphs: Vec::new() }
    }

    /// Adds a graph whose first node is its root.
    fn graph(&mut self, costs: &[u64], edges: &[(usize, usize)], period: u64, deadline: u64) {
        let mut ids = Vec::new();
        for (number, &cost) in costs.iter().enumerate() {
            let mut spec = TaskSpec::node("node");
            let cost = Cost::Constant(Work::from_ns(cost));
            let mut source = Source::activated(cost.clone());
            if number == 0 {
                spec = TaskSpec::new("first", Span::from_ns(period));
                spec.deadline = Span::from_ns(deadline);
                let period = Span::from_ns(period);
                let arrivals =
                    Arrivals::Periodic { offset: Span::ZERO, period, jitter: Span::ZERO };
                source = Source { arrivals, cost };
            }
            ids.push(self.tree.task(Tree::ROOT, spec));
            self.sources.push(source);
        }
        for &(from, to) in edges {
            self.tree.channel(ids[from], ids[to], 0);
        }
        let costs = costs.iter().map(|&cost| Work::from_ns(cost)).collect();
        self.graphs.push(Nodes { ids, costs, edges: edges.to_vec(), period, deadline });
    }

    /// Draws up to four graphs of up to five nodes.
    fn random(rng: &mut Rng, policy: PolicySpec) -> System {
        let mut system = System::new(rng.between(2, 4) as u32, policy);
        for _ in 0..rng.between(1, 4) {
            let nodes = rng.between(1, 5) as usize;
            let period = [20, 30, 60][rng.below(3) as usize];
            let costs: Vec<u64> = (0..nodes).map(|_| rng.between(1, 9)).collect();
            let mut edges = Vec::new();
            for to in 1..nodes {
                let first = rng.below(to as u64) as usize;
                edges.extend((0..to).filter(|&from| from == first).map(|from| (from, to)));
            }
            system.graph(&costs, &edges, period, rng.between(period / 2, period));
        }
        system
    }

    fn affinity(&self, node: NodeId) -> Affinity {
        match self.tree.get(node).map(|node| &node.spec) {
            Some(NodeSpec::Task(spec)) => spec.affinity,
            _ => panic!("a task"),
        }
    }

    /// Returns the shares of the library's algorithm, with EDF on the shared CPUs.
    fn shares(&self) -> Option<Vec<Share>> {
        let task = |of: &Nodes| (of.period, of.deadline);
        let graphs: Vec<GraphTask<'_>> = (self.graphs.iter())
            .map(|of| GraphTask {
                graph: Graph { costs: &of.costs, edges: &of.edges },
                period: Span::from_ns(task(of).0),
                deadline: Span::from_ns(task(of).1),
            })
            .collect();
        federated(&graphs, self.tree.cpus, Fit::First, |tasks| qpa::verdict(tasks).is_proved()).ok()
    }

    /// Returns the number of late jobs with phases at random.
    fn late(&self, rng: &mut Rng) -> usize {
        let mut sources = self.sources.clone();
        for source in &mut sources {
            if let Arrivals::Periodic { offset, period, .. } = &mut source.arrivals {
                *offset = Span::from_ns(rng.below(period.as_ns()));
            }
        }
        let workload = Workload { sources, seed: 1 };
        let engine = self.tree.build().expect("a tree");
        let world = Simulation::new(engine, self.tree.cpus, &workload);
        let mut jobs = Jobs::default();
        world.with_cost_mode(CostMode::Worst).run(Time::from_ns(600), &mut jobs);
        jobs.ended.iter().filter(|job| job.end > job.deadline).count()
    }
}

/// vol = 34 within 18, len = 12: ⌈22/6⌉ = 4 CPUs. Two graphs of 1/2 share the fifth.
#[test]
fn li_2014_a_heavy_graph_gets_cpus_of_its_own() {
    let light = ([2, 3], [(0, 1)]);
    for (cpus, lights) in [(5, 2), (5, 3), (4, 2)] {
        let mut system = System::new(cpus, PolicySpec::Edf);
        let edges: Vec<(usize, usize)> = (1..9).map(|to| (0, to)).collect();
        system.graph(&[3, 2, 2, 2, 4, 4, 4, 4, 9], &edges, 20, 18);
        for _ in 0..lights {
            system.graph(&light.0, &light.1, 10, 10);
        }
        let answer = assign_affinities(&RootModel::new(&system.tree, &system.sources));
        let stuck = match (cpus, lights) {
            (5, 2) => None,
            (5, _) => Some(3),
            _ => Some(1),
        };
        match (answer, stuck) {
            (AffinityAssignment::Found(tree), None) => {
                system.tree = tree;
                let of = |graph: usize| system.affinity(system.graphs[graph].ids[1]);
                assert_eq!([of(0), of(1), of(2)], [Affinity(15), Affinity(16), Affinity(16)]);
            }
            (AffinityAssignment::Stuck(nodes), Some(graph)) => {
                assert_eq!(nodes, system.graphs[graph].ids);
            }
            (answer, _) => panic!("{cpus} CPUs, {lights} light graphs: {answer:?}"),
        }
    }
}

#[test]
fn affinities_are_those_of_federated_scheduling_and_no_job_is_late() {
    let mut rng = rng(88);
    let (mut found, mut needed, mut stuck) = (0, 0, 0);
    for _ in 0..rounds(1_000) {
        let mut system = System::random(&mut rng, PolicySpec::Edf);
        let root = RootModel::new(&system.tree, &system.sources);
        let (shares, is_proved) = (system.shares(), root.are_proved());
        match assign_affinities(&root) {
            AffinityAssignment::Found(tree) => {
                system.tree = tree;
                found += 1;
                if !is_proved {
                    let shares = shares.expect("the library's algorithm finds shares as well");
                    needed += 1;
                    for (graph, share) in system.graphs.iter().zip(shares) {
                        let count = system.affinity(graph.ids[0]).0.count_ones();
                        assert_eq!(count, if let Share::Own(count) = share { count } else { 1 });
                    }
                }
                for _ in 0..4 {
                    assert_eq!(system.late(&mut rng), 0, "{:?}", system.tree);
                }
            }
            AffinityAssignment::Stuck(_) => {
                assert_eq!(shares, None, "{:?}", system.tree);
                stuck += 1;
            }
            other => panic!("{other:?}: {:?}", system.tree),
        }
    }
    assert!(found > 100 && needed > 50 && stuck > 50, "{found} found, {needed}; {stuck} stuck");
}

/// Accelerators and job boundaries connect the CPUs.
#[test]
fn affinities_are_proved_as_a_whole() {
    let mut rng = rng(89);
    let policies = [PolicySpec::Edf, PolicySpec::DeadlineMonotonic, PolicySpec::Fifo];
    let (mut found, mut not_found) = (0, 0);
    for number in 0..rounds(600) {
        let mut system = System::random(&mut rng, policies[number as usize % 3].clone());
        if rng.below(3) == 0 {
            system.tree.migration = Migration::JobBoundaries;
        }
        system.tree.accelerator("device");
        let nodes: Vec<NodeId> = system.graphs.iter().flat_map(|of| of.ids.clone()).collect();
        for node in nodes {
            if rng.below(3) == 0
                && let Some(NodeSpec::Task(spec)) =
                    system.tree.get_mut(node).map(|node| &mut node.spec)
            {
                let mut version = Version::new("only");
                version.accelerators.push(AcceleratorId(0));
                spec.versions.push(version);
            }
        }
        match assign_affinities(&RootModel::new(&system.tree, &system.sources)) {
            AffinityAssignment::Found(tree) => {
                assert!(RootModel::new(&tree, &system.sources).are_proved(), "{tree:?}");
                system.tree = tree;
                assert_eq!(system.late(&mut rng), 0, "{:?}", system.tree);
                found += 1;
            }
            AffinityAssignment::NotFound => not_found += 1,
            AffinityAssignment::Stuck(_) => {}
            AffinityAssignment::Uncovered(node) => panic!("{node:?}: {:?}", system.tree),
        }
    }
    assert!(found > 50 && not_found > 10, "{found} found, {not_found} not");
}

#[test]
fn schedulers_below_the_root_and_tables_are_not_covered() {
    let mut system = System::new(2, PolicySpec::Edf);
    let below = system.tree.scheduler(Tree::ROOT, SchedulerSpec::new("group", PolicySpec::Edf));
    system.graph(&[2], &[], 9, 9);
    let answer = assign_affinities(&RootModel::new(&system.tree, &system.sources));
    assert!(matches!(answer, AffinityAssignment::Uncovered(node) if node == below), "{answer:?}");
}
