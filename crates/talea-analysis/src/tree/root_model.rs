//! Input of the tree analysis and the functions that query it.

use super::analysis::TreeAnalysis;
use super::task_bound::{NoBound, TaskBound};
use crate::supply::{InterferenceCurve, Supply};
use alloc::vec::Vec;
use talea_core::engine::{NodeId, Tree};
use talea_core::mutate;
use talea_core::workload::{Environment, Overheads, Source, Stall};
use talea_core::{Span, Work};

/// A root with its workload and the parameters of its analysis.
#[derive(Clone, Copy, Debug)]
pub struct RootModel<'a> {
    /// Scheduler tree of the root.
    pub tree: &'a Tree,
    /// Source of each task, in the order of the tree's tasks.
    pub sources: &'a [Source],
    /// Scheduling overheads.
    pub overheads: Overheads,
    /// CPU stalls. With any stall no test is known.
    pub stalls: &'a [Stall],
    /// Upper limit of the CPU time that is lost in one busy period, in any number of parts.
    pub lost: Span,
    /// Step limit of the search for one bound. A step evaluates one interference curve, which takes
    /// about a nanosecond.
    pub steps: u64,
}

impl<'a> RootModel<'a> {
    /// Creates a model without overheads, stalls and losses, with a generous step limit.
    pub fn new(tree: &'a Tree, sources: &'a [Source]) -> RootModel<'a> {
        RootModel {
            tree,
            sources,
            overheads: Overheads::default(),
            stalls: &[],
            lost: Span::ZERO,
            steps: 1 << 21,
        }
    }

    /// Creates a model with the overheads and stalls of the environment.
    pub fn with_environment(
        tree: &'a Tree,
        sources: &'a [Source],
        environment: &'a Environment,
    ) -> RootModel<'a> {
        let Environment { overheads, stalls, changes: _ } = environment;
        mutate!(
            "analyze-stalls",
            RootModel { overheads: *overheads, stalls, ..RootModel::new(tree, sources) },
            RootModel {
                overheads: *overheads,
                stalls: &stalls[stalls.len()..],
                ..RootModel::new(tree, sources)
            }
        )
    }

    /// Returns a bound for each task, in the tree's order.
    pub fn bounds(&self) -> Vec<TaskBound> {
        self.bounds_with_progress(|_, _| ())
    }

    /// Returns a bound for each task, in the tree's order. After each task, calls `progress` with
    /// the number of finished tasks and the number of all tasks.
    pub fn bounds_with_progress(&self, mut progress: impl FnMut(usize, usize)) -> Vec<TaskBound> {
        let mut analysis = TreeAnalysis::new(self);
        let tasks: Vec<NodeId> = analysis.tasks();
        let mut answers = Vec::with_capacity(tasks.len());
        for (done, &node) in tasks.iter().enumerate() {
            answers.push(analysis.task_bound(node));
            progress(done + 1, tasks.len());
        }
        answers
    }

    /// Returns the bounds of `tasks`, in this order, equal to those of [`RootModel::bounds`].
    pub fn bounds_of(&self, tasks: &[NodeId]) -> Vec<TaskBound> {
        let mut analysis = TreeAnalysis::new(self);
        tasks.iter().map(|&node| analysis.task_bound(node)).collect()
    }

    /// Whether the analysis proves every deadline. The analysis stops at the first deadline without
    /// proof.
    pub fn are_proved(&self) -> bool {
        let mut analysis = TreeAnalysis::new(self);
        analysis
            .tasks()
            .into_iter()
            .map(|node| analysis.task_bound(node))
            .all(|of| of.is_proved() || !of.has_deadline())
    }

    /// Returns the least supply of the server at `node` to its clients in any window of length
    /// `window`.
    ///
    /// # Errors
    /// [`NoBound`] if the server is starved or its supply is unknown.
    pub fn supplied(&self, node: NodeId, window: Span) -> Result<Work, NoBound> {
        let mut analysis = TreeAnalysis::new(self);
        analysis.check_covered()?;
        analysis.server_supply(node).map(|supply| supply.with_loss(self.lost).sbf(window))
    }

    /// Returns interference curves of `nodes` (tasks, servers, schedulers) for windows in which
    /// other nodes wait: see [`super::slot_interference`].
    ///
    /// # Errors
    /// [`NoBound`] for a node without a known model.
    pub fn interference_of(&self, nodes: &[NodeId]) -> Result<Vec<InterferenceCurve>, NoBound> {
        let mut analysis = TreeAnalysis::new(self);
        analysis.check_covered()?;
        let mut out = Vec::new();
        for &node in nodes {
            analysis.collect_all_interference(node, &mut out)?;
        }
        Ok(out)
    }
}
