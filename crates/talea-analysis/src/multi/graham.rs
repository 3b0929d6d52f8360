//! Graphs of jobs on several CPUs: a single graph under any work-conserving scheduler, and
//! federated scheduling.
//!
//! Assumptions:
//! 1. m equal CPUs that serve nothing else.
//! 2. No CPU idles while a ready node waits. Nodes may be preempted. No overheads.
//! 3. Costs are whole nanoseconds, so nodes end at whole nanoseconds.
//! 4. D ≤ T for a recurring graph, so that one activation completes before the next.
//!
//! *Graham*: R. Graham, "Bounds on multiprocessing timing anomalies", SIAM Journal on Applied
//! Mathematics 17(2), 1969: R ≤ len + (vol − len)/m, with the longest path len and the sum of all
//! costs vol. Sufficient. The bound (unlike a schedule) is sustainable in costs and edges, because
//! the longest path and the sum only shrink.
//!
//! *Federated*: J. Li, J. Chen, K. Agrawal, C. Lu, C. Gill and A. Saifullah, "Analysis of federated
//! and global scheduling for parallel real-time tasks", ECRTS 2014. A graph with vol > D gets ⌈(vol
//! − len)/(D − len)⌉ CPUs of its own. All other graphs are sequential tasks with C = vol on the
//! remaining CPUs. Sufficient. (The paper assumes D = T; the same proof holds for D ≤ T.)

use super::partition::{Fit, PackingOrder, pack};
use crate::Sporadic;
use crate::test_info::{Platform, TestInfo, TestKind};
use crate::verdict::Inconclusive;
use alloc::vec;
use alloc::vec::Vec;
use talea_core::mutate;
use talea_core::{Span, Work};

/// Entry of [`Graph::response`] in the catalogue.
pub const INFO: TestInfo = TestInfo {
    name: "graham",
    policy: "any work-conserving",
    platform: Platform::Global,
    model: "one graph alone, D ≤ T",
    kind: TestKind::Sufficient,
    paper: "Graham, SIAM Journal on Applied Mathematics 17(2), 1969",
    sustainable: "costs, edges, periods, deadlines",
    tests: &[
        "crates/talea-analysis/src/multi/graham.rs::graham_1969_the_bound_is_reached",
        "crates/talea-analysis/tests/it/multi/graphs.rs::no_list_schedule_of_a_graph_is_longer_than_its_bound",
        "crates/talea-analysis/tests/it/tree/graphs.rs::no_node_of_a_graph_with_dedicated_cpus_completes_after_its_bound",
    ],
};

/// Entry of [`federated`] in the catalogue.
pub const FEDERATED: TestInfo = TestInfo {
    name: "federated",
    policy: "federated: heavy graphs on CPUs of their own, the rest partitioned",
    platform: Platform::Global,
    model: "sporadic graphs, D ≤ T",
    kind: TestKind::Sufficient,
    paper: "Li, Chen, Agrawal, Lu, Gill and Saifullah, ECRTS 2014",
    sustainable: "",
    tests: &[
        "crates/talea-analysis/src/multi/graham.rs::li_2014_a_heavy_graph_gets_cpus_of_its_own",
        "crates/talea-analysis/tests/it/tree/federated.rs::affinities_are_those_of_federated_scheduling_and_no_job_is_late",
    ],
};

/// Nodes with costs and precedence edges.
#[derive(Clone, Copy, Debug)]
pub struct Graph<'a> {
    /// `costs[n]`: cost C of node `n`.
    pub costs: &'a [Work],
    /// Predecessor and successor of each edge, as node numbers. Duplicates have no effect.
    pub edges: &'a [(usize, usize)],
}

impl Graph<'_> {
    /// Returns vol: the sum of all costs.
    ///
    /// # Errors
    /// `Limit` if the sum exceeds the range of the type.
    pub fn volume(&self) -> Result<u64, Inconclusive> {
        let sum = self.costs.iter().try_fold(0u64, |sum, cost| sum.checked_add(cost.as_ns()));
        sum.ok_or(Inconclusive::Limit)
    }

    /// Returns len: the length of the longest path.
    ///
    /// # Errors
    /// As [`Graph::chains`].
    pub fn length(&self) -> Result<u64, Inconclusive> {
        Ok(self.chains()?.into_iter().max().unwrap_or(0))
    }

    /// Returns the length of the longest path to the end of each node.
    ///
    /// # Errors
    /// As [`Graph::volume`]; `Assumption` 2 for a node on a cycle, or for an edge to a missing
    /// node.
    pub fn chains(&self) -> Result<Vec<u64>, Inconclusive> {
        // No path is longer than the sum.
        self.volume()?;
        let nodes = self.costs.len();
        let mut waits_for = vec![0usize; nodes];
        for &(before, after) in self.edges {
            if before >= nodes || after >= nodes {
                return Err(Inconclusive::Assumption { number: 2, task: before.max(after) });
            }
            waits_for[after] += 1;
        }
        let mut sorted: Vec<(usize, usize)> = self.edges.to_vec();
        sorted.sort_unstable();
        let mut ready: Vec<usize> = (0..nodes).filter(|&node| waits_for[node] == 0).collect();
        let mut ends: Vec<u64> = self.costs.iter().map(|cost| cost.as_ns()).collect();
        let mut done = 0;
        while let Some(node) = ready.pop() {
            done += 1;
            let end = ends[node];
            let from = sorted.partition_point(|&(before, _)| before < node);
            for &(_, after) in sorted[from..].iter().take_while(|&&(before, _)| before == node) {
                ends[after] = ends[after].max(end + self.costs[after].as_ns());
                waits_for[after] -= 1;
                if waits_for[after] == 0 {
                    ready.push(after);
                }
            }
        }
        let stuck = (0..nodes).find(|&node| waits_for[node] > 0);
        match stuck {
            Some(task) if done < nodes => Err(Inconclusive::Assumption { number: 2, task }),
            _ => Ok(ends),
        }
    }

    /// Returns the longest time from the activation to the completion of the last node, on `cpus`
    /// CPUs.
    ///
    /// # Errors
    /// As [`Graph::length`]; `Assumption` 1 if there is no CPU.
    pub fn response(&self, cpus: u32) -> Result<Span, Inconclusive> {
        let (length, volume) = (self.length()?, self.volume()?);
        if cpus == 0 {
            return Err(Inconclusive::Assumption { number: 1, task: 0 });
        }
        // All completion times are integers, so the bound may be rounded down.
        Ok(Span::from_ns(mutate!(
            "multi-graham",
            length
                + (volume - length)
                    / mutate!("multi-graham-cpus", u64::from(cpus), u64::from(cpus) + 1),
            length.max(volume / u64::from(cpus))
        )))
    }
}

/// Recurring graph.
#[derive(Clone, Copy, Debug)]
pub struct GraphTask<'a> {
    /// Graph of one activation.
    pub graph: Graph<'a>,
    /// Minimum separation of activations.
    pub period: Span,
    /// Relative deadline of the last node.
    pub deadline: Span,
}

/// CPUs that serve a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Share {
    /// This number of dedicated CPUs, under any work-conserving scheduler.
    Own(u32),
    /// The `n`-th of the remaining CPUs, as a sequential task.
    Shared(u32),
}

/// Returns the share of each graph, or the reason why there is none. `accepts` is the test for one
/// CPU.
///
/// # Errors
/// `Insufficient` with the first graph that is not placed; `Assumption` as [`Graph::length`], and
/// number 4 for D > T.
pub fn federated(
    graphs: &[GraphTask<'_>],
    cpus: u32,
    fit: Fit,
    accepts: impl FnMut(&[Sporadic]) -> bool,
) -> Result<Vec<Share>, Inconclusive> {
    let mut left = cpus;
    let mut shares = vec![Share::Shared(0); graphs.len()];
    let (mut light, mut light_tasks) = (Vec::new(), Vec::new());
    for (task, graph) in graphs.iter().enumerate() {
        let (length, volume) = (graph.graph.length()?, graph.graph.volume()?);
        let deadline = graph.deadline.as_ns();
        if graph.deadline > graph.period || graph.period.is_zero() {
            return Err(Inconclusive::Assumption { number: 4, task });
        }
        if volume <= deadline {
            light.push(Sporadic::new(Work::from_ns(volume), graph.period, graph.deadline));
            light_tasks.push(task);
            continue;
        }
        // A path as long as the deadline leaves no time for other nodes, on any number of CPUs.
        let spare = deadline.checked_sub(length).filter(|&spare| spare > 0);
        let own = spare.and_then(|spare| {
            u32::try_from(mutate!(
                "multi-graham-federated",
                (volume - length).div_ceil(spare),
                (volume - length) / spare
            ))
            .ok()
        });
        let own = own.filter(|&own| own <= left).ok_or(Inconclusive::Insufficient { task })?;
        left -= own;
        shares[task] = Share::Own(own);
    }
    let places = pack(&light, left, fit, PackingOrder::Decreasing, accepts);
    let places = places.map_err(|at| Inconclusive::Insufficient { task: light_tasks[at] })?;
    for (task, place) in light_tasks.into_iter().zip(places) {
        shares[task] = Share::Shared(place);
    }
    Ok(shares)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Demand;
    use crate::edf;
    use talea_core::Charge;

    fn costs(of: &[u64]) -> Vec<Work> {
        of.iter().map(|&cost| Work::from_ns(cost)).collect()
    }

    /// Returns the completion of the last node under list scheduling in list order. Time passes
    /// unit by unit.
    fn list_schedule(costs: &[u64], edges: &[(usize, usize)], cpus: usize) -> u64 {
        let mut left = costs.to_vec();
        let mut running: Vec<usize> = Vec::new();
        for now in 0.. {
            running.retain(|&node| left[node] > 0);
            for node in 0..costs.len() {
                let ready = edges.iter().all(|&(before, after)| after != node || left[before] == 0);
                if ready && left[node] > 0 && !running.contains(&node) && running.len() < cpus {
                    running.push(node);
                }
            }
            if running.is_empty() {
                return now;
            }
            for &node in &running {
                left[node] -= 1;
            }
        }
        unreachable!("it ends when nothing runs")
    }

    #[test]
    fn graham_1969_the_bound_is_reached() {
        // m·(m − 1) short nodes first, then one as long as m: 2m − 1.
        for m in 1..7usize {
            let mut list = vec![1; m * (m - 1)];
            list.push(m as u64);
            let work = costs(&list);
            let graph = Graph { costs: &work, edges: &[] };
            assert_eq!(graph.response(m as u32).map(Span::as_ns), Ok(2 * m as u64 - 1));
            assert_eq!(list_schedule(&list, &[], m), 2 * m as u64 - 1);
        }
    }

    #[test]
    fn graham_1969_the_anomalies_stay_below_the_bound() {
        // Nine jobs on three CPUs need 12; with a CPU more 15, with every job shorter 13, with
        // fewer edges 16.
        let list = [3, 2, 2, 2, 4, 4, 4, 4, 9];
        let edges = [(0, 8), (3, 4), (3, 5), (3, 6), (3, 7)];
        let shorter = list.map(|cost| cost - 1);
        let fewer = [(0, 8), (3, 6), (3, 7)];
        for (list, edges, cpus, published) in [
            (list, &edges[..], 3, 12),
            (list, &edges, 4, 15),
            (shorter, &edges, 3, 13),
            (list, &fewer, 3, 16),
        ] {
            assert_eq!(list_schedule(&list, edges, cpus), published);
            let work = costs(&list);
            let bound = Graph { costs: &work, edges }.response(cpus as u32).expect("a graph");
            assert!(bound.as_ns() >= published, "{bound:?}");
        }
        // len = 12, vol = 34: 12 + 22/3.
        let work = costs(&list);
        assert_eq!(Graph { costs: &work, edges: &edges }.response(3).map(Span::as_ns), Ok(19));
    }

    #[test]
    fn invalid_graphs_are_reported() {
        let work = costs(&[1, 2, 3]);
        let of = |edges: &[(usize, usize)]| Graph { costs: &work, edges }.length();
        assert_eq!(of(&[(0, 1), (1, 2), (0, 1)]), Ok(6));
        assert_eq!(of(&[(0, 2), (1, 2)]), Ok(5));
        assert_eq!(
            of(&[(0, 1), (1, 2), (2, 1)]),
            Err(Inconclusive::Assumption { number: 2, task: 1 })
        );
        assert_eq!(of(&[(0, 0)]), Err(Inconclusive::Assumption { number: 2, task: 0 }));
        assert_eq!(of(&[(0, 3)]), Err(Inconclusive::Assumption { number: 2, task: 3 }));
        let huge = costs(&[u64::MAX, 1]);
        assert_eq!(Graph { costs: &huge, edges: &[] }.response(2), Err(Inconclusive::Limit));
        assert_eq!(
            Graph { costs: &work, edges: &[] }.response(0),
            Err(Inconclusive::Assumption { number: 1, task: 0 })
        );
        assert_eq!(Graph { costs: &[], edges: &[] }.response(1), Ok(Span::ZERO));
    }

    fn fits(tasks: &[Sporadic]) -> bool {
        let demands: Vec<Demand> =
            tasks.iter().map(|task| Demand::new(task.cost, task.deadline)).collect();
        edf::partitioned(&demands, Charge::ONE)
    }

    #[test]
    fn li_2014_a_heavy_graph_gets_cpus_of_its_own() {
        // vol = 34 within 18, len = 12: ⌈22/6⌉ = 4 CPUs. Two light ones of 1/2 share another; three
        // need two.
        let (work, small) = (costs(&[3, 2, 2, 2, 4, 4, 4, 4, 9]), costs(&[2, 3]));
        let edges = [(0, 8), (3, 4), (3, 5), (3, 6), (3, 7)];
        let span = Span::from_ns;
        let heavy = GraphTask {
            graph: Graph { costs: &work, edges: &edges },
            period: span(20),
            deadline: span(18),
        };
        let light = GraphTask {
            graph: Graph { costs: &small, edges: &[] },
            period: span(10),
            deadline: span(10),
        };
        let on = |graphs: &[GraphTask<'_>], cpus| federated(graphs, cpus, Fit::First, fits);
        assert_eq!(
            on(&[light, heavy, light], 5),
            Ok(vec![Share::Shared(0), Share::Own(4), Share::Shared(0)])
        );
        assert_eq!(
            on(&[light, heavy, light, light], 5),
            Err(Inconclusive::Insufficient { task: 3 })
        );
        assert_eq!(on(&[heavy], 3), Err(Inconclusive::Insufficient { task: 0 }));
        let hopeless = GraphTask { deadline: span(12), ..heavy };
        assert_eq!(on(&[hopeless], 100), Err(Inconclusive::Insufficient { task: 0 }));
        let late = GraphTask { deadline: span(21), ..heavy };
        assert_eq!(on(&[late], 100), Err(Inconclusive::Assumption { number: 4, task: 0 }));
    }
}
