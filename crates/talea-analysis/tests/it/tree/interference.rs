//! Interference curves of a node, against every window of random runs.

use super::random_trees::{Family, RandomTree, random_tree};
use crate::rng::{rng, rounds};
use talea_analysis::tree::RootModel;
use talea_analysis::tree::slot_interference::interference;
use talea_core::engine::{Cpu, NodeId, NodeSpec, TaskId};
use talea_core::{Span, Time};
use talea_sim::{Simulation, Sink};

const UNTIL: u64 = 700;

/// Task that has the CPU in each nanosecond of a run.
struct Timeline {
    running: Option<u32>,
    of: Vec<Option<u32>>,
}

impl Timeline {
    fn up_to(&mut self, now: Time) {
        self.of.resize(now.as_ns() as usize, self.running);
    }
}

impl Sink for Timeline {
    fn on_dispatch(&mut self, now: Time, _: Cpu, task: TaskId, _: u64) {
        self.up_to(now);
        self.running = Some(task.0);
    }

    fn on_idle(&mut self, now: Time, _: Cpu) {
        self.up_to(now);
        self.running = None;
    }
}

fn timeline(system: &RandomTree) -> Vec<Option<u32>> {
    let machine = system.tree.build().expect("a tree");
    let mut timeline = Timeline { running: None, of: Vec::new() };
    Simulation::new(machine, 1, &system.workload).run(Time::from_ns(UNTIL), &mut timeline);
    timeline.up_to(Time::from_ns(UNTIL));
    timeline.of
}

#[test]
fn no_node_exceeds_its_interference_in_any_window() {
    let mut rng = rng(53);
    for family in [
        Family::Mixed,
        Family::Partitions,
        Family::NonPreemptive,
        Family::NonPreemptiveAbove,
        Family::Band,
    ] {
        let (mut nodes, mut known, mut reached) = (0u64, 0u64, 0u64);
        for _ in 0..rounds(300) {
            let system = random_tree(&mut rng, family);
            let mut roots = RootModel::new(&system.tree, &system.workload.sources);
            roots.steps = 1 << 15;
            let timeline = timeline(&system);
            let is_task = |node: &NodeId| {
                matches!(system.tree.get(*node).map(|node| &node.spec), Some(NodeSpec::Task(_)))
            };
            let tasks: Vec<NodeId> =
                system.tree.nodes().map(|(node, _)| node).filter(is_task).collect();
            for (node, _) in system.tree.nodes() {
                nodes += 1;
                let Ok(curves) = roots.interference_in_any_window(node) else { continue };
                known += 1;
                let is_of = |task: &NodeId| {
                    *task == node || system.tree.ancestors(*task).any(|(above, _)| above == node)
                };
                let mine: Vec<bool> = tasks.iter().map(is_of).collect();
                // What it has had up to each instant.
                let mut had = vec![0u64];
                for running in &timeline {
                    let one = running.is_some_and(|task| mine[task as usize]);
                    had.push(had[had.len() - 1] + u64::from(one));
                }
                for length in 1..=80 {
                    let most =
                        had.windows(length + 1).map(|window| window[length] - window[0]).max();
                    let said = interference(&curves, Span::from_ns(length as u64)).as_ns();
                    let most = most.unwrap_or(0);
                    assert!(
                        most <= said,
                        "{node:?} takes {most} of {length}, not {said}: {curves:?}\n{system:#?}"
                    );
                    reached += u64::from(most == said);
                }
            }
        }
        println!(
            "{family:?}: {nodes} nodes, {known} known, {reached} of {} windows filled",
            known * 80
        );
        assert!(known * 10 > nodes && reached > 1_000, "{family:?}");
    }
}
