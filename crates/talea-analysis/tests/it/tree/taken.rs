//! What a node is said to take of any window, held against every window of random runs.

use super::made::{Family, Made, made};
use crate::dice::{dice, rounds};
use talea_analysis::tree::Roots;
use talea_analysis::tree::disturb::interference;
use talea_core::machine::{Body, Cpu, NodeId, TaskId};
use talea_core::{Span, Time};
use talea_sim::{Sink, World};

const UNTIL: u64 = 700;

/// Which task has the CPU, nanosecond by nanosecond.
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
    fn runs(&mut self, now: Time, _: Cpu, task: TaskId, _: u64) {
        self.up_to(now);
        self.running = Some(task.0);
    }

    fn idles(&mut self, now: Time, _: Cpu) {
        self.up_to(now);
        self.running = None;
    }
}

fn timeline(made: &Made) -> Vec<Option<u32>> {
    let machine = made.tree.build().expect("a tree");
    let mut timeline = Timeline { running: None, of: Vec::new() };
    World::new(machine, 1, &made.workload).run(Time::from_ns(UNTIL), &mut timeline);
    timeline.up_to(Time::from_ns(UNTIL));
    timeline.of
}

#[test]
fn no_node_takes_more_of_any_window_than_is_said() {
    let mut dice = dice(53);
    for family in [
        Family::Mixed,
        Family::Partitions,
        Family::NonPreemptive,
        Family::NonPreemptiveAbove,
        Family::Band,
    ] {
        let (mut nodes, mut known, mut reached) = (0u64, 0u64, 0u64);
        for _ in 0..rounds(300) {
            let made = made(&mut dice, family);
            let mut roots = Roots::new(&made.tree, &made.workload.sources);
            roots.steps = 1 << 15;
            let timeline = timeline(&made);
            let is_task = |node: &NodeId| {
                matches!(made.tree.get(*node).map(|node| &node.body), Some(Body::Task(_)))
            };
            let tasks: Vec<NodeId> =
                made.tree.nodes().map(|(node, _)| node).filter(is_task).collect();
            for (node, _) in made.tree.nodes() {
                nodes += 1;
                let Ok(curves) = roots.taken_anywhere(node) else { continue };
                known += 1;
                let is_of = |task: &NodeId| {
                    *task == node || made.tree.above(*task).any(|(above, _)| above == node)
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
                        "{node:?} takes {most} of {length}, not {said}: {curves:?}\n{made:#?}"
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
