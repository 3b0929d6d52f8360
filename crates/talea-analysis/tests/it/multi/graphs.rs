//! Graphs of jobs against list schedules of all kinds.

use crate::rng::{Rng, rng, rounds};
use talea_analysis::multi::graham::{Graph, GraphTask, Share, federated};
use talea_analysis::multi::partition::Fit;
use talea_analysis::{Demand, Sporadic, edf};
use talea_core::{Charge, Span, Work};

struct Drawn {
    costs: Vec<Work>,
    edges: Vec<(usize, usize)>,
}

impl Drawn {
    fn new(rng: &mut Rng, nodes: u64, percent: u64, cost_max: u64) -> Drawn {
        let nodes = nodes as usize;
        let costs = (0..nodes).map(|_| Work::from_ns(rng.between(1, cost_max))).collect();
        let mut edges = Vec::new();
        for before in 0..nodes {
            edges.extend(
                (before + 1..nodes)
                    .filter(|_| rng.below(100) < percent)
                    .map(|after| (before, after)),
            );
        }
        Drawn { costs, edges }
    }

    fn graph(&self) -> Graph<'_> {
        Graph { costs: &self.costs, edges: &self.edges }
    }

    /// Returns the completion of the last node if nodes are scheduled in order of `rank` and cost
    /// `costs`. With `preemptive` a node of lower rank interrupts a running node.
    fn schedule(&self, rank: &[u64], costs: &[u64], cpus: usize, preemptive: bool) -> u64 {
        let mut left = costs.to_vec();
        let mut running: Vec<usize> = Vec::new();
        for now in 0.. {
            if preemptive {
                running.clear();
            }
            running.retain(|&node| left[node] > 0);
            let mut ready: Vec<usize> = (0..left.len())
                .filter(|&node| {
                    left[node] > 0
                        && self.edges.iter().all(|&(from, to)| to != node || left[from] == 0)
                })
                .filter(|node| !running.contains(node))
                .collect();
            ready.sort_by_key(|&node| rank[node]);
            ready.truncate(cpus - running.len());
            running.extend(ready);
            if running.is_empty() {
                return now;
            }
            for &node in &running {
                left[node] -= 1;
            }
        }
        unreachable!("it ends when nothing runs")
    }

    /// Returns the longest path by trying all paths.
    fn longest_path(&self) -> u64 {
        fn from(drawn: &Drawn, node: usize) -> u64 {
            let next =
                drawn.edges.iter().filter(|edge| edge.0 == node).map(|edge| from(drawn, edge.1));
            drawn.costs[node].as_ns() + next.max().unwrap_or(0)
        }
        (0..self.costs.len()).map(|node| from(self, node)).max().unwrap_or(0)
    }
}

#[test]
fn no_list_schedule_of_a_graph_is_longer_than_its_bound() {
    let mut rng = rng(41);
    let (mut reached, mut anomalies) = (0, 0);
    for _ in 0..rounds(1_500) {
        let (nodes, percent) = (rng.between(1, 9), rng.between(0, 60));
        let drawn = Drawn::new(&mut rng, nodes, percent, 6);
        assert_eq!(drawn.graph().length(), Ok(drawn.longest_path()));
        let full: Vec<u64> = drawn.costs.iter().map(|cost| cost.as_ns()).collect();
        for cpus in 1..4 {
            let bound = drawn.graph().response(cpus as u32).expect("a graph").as_ns();
            for _ in 0..4 {
                let rank: Vec<u64> = full.iter().map(|_| rng.below(1_000)).collect();
                let less: Vec<u64> = full.iter().map(|&cost| rng.between(1, cost)).collect();
                for preemptive in [false, true] {
                    let whole = drawn.schedule(&rank, &full, cpus, preemptive);
                    let shorter = drawn.schedule(&rank, &less, cpus, preemptive);
                    assert!(
                        whole <= bound && shorter <= bound,
                        "{full:?} {:?} {cpus}",
                        drawn.edges
                    );
                    reached += u64::from(whole == bound);
                    anomalies += u64::from(shorter > whole);
                }
            }
        }
    }
    println!("{reached} schedules as long as their bounds, {anomalies} longer with shorter jobs");
    assert!(reached > 1_000 && anomalies > 0);
}

fn fits(tasks: &[Sporadic]) -> bool {
    let demands: Vec<Demand> =
        tasks.iter().map(|task| Demand::new(task.cost, task.deadline)).collect();
    edf::partitioned(&demands, Charge::ONE)
}

#[test]
fn li_2014_half_the_capacity_and_paths_of_half_the_deadline_are_always_placed() {
    // Capacity augmentation bound 2: Σ vol/T ≤ m/2 and len ≤ T/2 suffice, D = T.
    let mut rng = rng(42);
    let (mut placed, mut heavy) = (0, 0);
    for _ in 0..rounds(800) {
        let count = rng.between(1, 6);
        let drawn: Vec<Drawn> = (0..count)
            .map(|_| {
                let (nodes, percent) = (rng.between(1, 12), rng.between(0, 40));
                Drawn::new(&mut rng, nodes, percent, 20)
            })
            .collect();
        let tasks: Vec<GraphTask<'_>> = drawn
            .iter()
            .map(|drawn| {
                let length = drawn.graph().length().expect("a graph");
                let period = Span::from_ns(rng.between(2 * length, 4 * length));
                GraphTask { graph: drawn.graph(), period, deadline: period }
            })
            .collect();
        let volume = |task: &GraphTask<'_>| u128::from(task.graph.volume().expect("a sum"));
        let demands: Vec<Demand> = tasks
            .iter()
            .map(|task| Demand { work: 2 * volume(task), within: task.period })
            .collect();
        // The least m with 2·U ≤ m.
        let cpus = (1..100u32).find(|&m| {
            talea_analysis::demand::sum_at_most(&demands, Charge::from_bits(u128::from(m) << 64))
        });
        let shares = federated(&tasks, cpus.expect("few tasks"), Fit::First, fits);
        let shares = shares.unwrap_or_else(|why| panic!("{why:?} on {cpus:?}: {tasks:?}"));
        placed += 1;
        for (share, task) in shares.iter().zip(&tasks) {
            if let Share::Own(cpus) = share {
                heavy += 1;
                let response = task.graph.response(*cpus).expect("a graph");
                assert!(response <= task.deadline, "{task:?} on {cpus}");
            }
        }
    }
    println!("{placed} placed, {heavy} graphs with CPUs of their own");
    assert!(heavy > 100);
}
