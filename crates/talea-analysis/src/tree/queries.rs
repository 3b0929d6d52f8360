//! Questions to the tree analysis.

use super::passes::Passes;
use super::root_model::RootModel;
use super::task_bound::{NoBound, TaskBound};
use crate::supply::{InterferenceCurve, Supply};
use alloc::vec::Vec;
use talea_core::engine::NodeId;
use talea_core::{Span, Work};

impl RootModel<'_> {
    /// Returns a bound for each task, in the tree's order.
    pub fn bounds(&self) -> Vec<TaskBound> {
        self.bounds_with_progress(|_, _| ())
    }

    /// Returns a bound for each task, in the tree's order. After each task, calls `progress` with
    /// the number of finished tasks and the number of all tasks.
    pub fn bounds_with_progress(&self, mut progress: impl FnMut(usize, usize)) -> Vec<TaskBound> {
        let passes = Passes::of(self);
        let mut bounds = passes.bounds();
        let tasks: Vec<NodeId> = passes.model.tasks();
        let mut answers = Vec::with_capacity(tasks.len());
        for (done, &node) in tasks.iter().enumerate() {
            answers.push(bounds.task_bound(node));
            progress(done + 1, tasks.len());
        }
        answers
    }

    /// Returns the bounds of `tasks`, in this order, equal to those of [`RootModel::bounds`].
    pub fn bounds_of(&self, tasks: &[NodeId]) -> Vec<TaskBound> {
        let passes = Passes::of(self);
        let mut bounds = passes.bounds();
        tasks.iter().map(|&node| bounds.task_bound(node)).collect()
    }

    /// Whether the analysis proves every deadline. The analysis stops at the first deadline without
    /// proof.
    pub fn are_proved(&self) -> bool {
        let passes = Passes::of(self);
        let mut bounds = passes.bounds();
        passes
            .model
            .tasks()
            .into_iter()
            .map(|node| bounds.task_bound(node))
            .all(|of| of.is_proved() || !of.has_deadline())
    }

    /// Returns the least supply of the server at `node` to its clients in any window of length
    /// `window`.
    ///
    /// # Errors
    /// [`NoBound`] if the server is starved or its supply is unknown.
    pub fn supplied(&self, node: NodeId, window: Span) -> Result<Work, NoBound> {
        let passes = Passes::of(self);
        let mut bounds = passes.bounds();
        bounds.check_covered()?;
        bounds.server_supply(node).map(|supply| supply.with_loss(self.lost).sbf(window))
    }

    /// Returns interference curves of `nodes` (tasks, servers, schedulers) for windows in which
    /// other nodes wait: see [`super::slot_interference`].
    ///
    /// # Errors
    /// [`NoBound`] for a node without a known model.
    pub fn interference_of(&self, nodes: &[NodeId]) -> Result<Vec<InterferenceCurve>, NoBound> {
        let passes = Passes::of(self);
        let mut bounds = passes.bounds();
        bounds.check_covered()?;
        let mut out = Vec::new();
        for &node in nodes {
            bounds.collect_all_interference(node, &mut out)?;
        }
        Ok(out)
    }
}
