//! What is analysed, and what can be asked of it.

use super::answer::{Answer, NoTest};
use super::walk::Walk;
use crate::supply::{Curve, Supply};
use alloc::vec::Vec;
use talea_core::machine::{NodeId, Tree};
use talea_core::mutate;
use talea_core::workload::{Hole, Overheads, Source, Surroundings};
use talea_core::{Span, Work};

/// A root with its workload, as it is analysed.
#[derive(Clone, Copy, Debug)]
pub struct Roots<'a> {
    /// The described root.
    pub tree: &'a Tree,
    /// A source for each task, in the order of the tree's tasks.
    pub sources: &'a [Source],
    /// What scheduling costs.
    pub overheads: Overheads,
    /// When nothing progresses: no test is known where there are any.
    pub holes: &'a [Hole],
    /// What its CPU loses at most, whenever it likes and in as many pieces, from when there is
    /// something to do until nothing is left.
    pub lost: Span,
    /// How many steps the search for one bound may take, each of which looks at one thing that is
    /// above: about a nanosecond.
    pub steps: u64,
}

impl<'a> Roots<'a> {
    /// Without overheads, holes and losses, with a generous limit.
    pub fn new(tree: &'a Tree, sources: &'a [Source]) -> Roots<'a> {
        Roots {
            tree,
            sources,
            overheads: Overheads::default(),
            holes: &[],
            lost: Span::ZERO,
            steps: 1 << 21,
        }
    }

    /// With the overheads and holes of what surrounds it.
    pub fn within(
        tree: &'a Tree,
        sources: &'a [Source],
        surroundings: &'a Surroundings,
    ) -> Roots<'a> {
        let Surroundings { overheads, holes, changes: _ } = surroundings;
        mutate!(
            "analyze-holes",
            Roots { overheads: *overheads, holes, ..Roots::new(tree, sources) },
            Roots {
                overheads: *overheads,
                holes: &holes[holes.len()..],
                ..Roots::new(tree, sources)
            }
        )
    }

    /// An answer for each task, in the tree's order.
    pub fn bounds(&self) -> Vec<Answer> {
        self.bounds_with(|_, _| ())
    }

    /// The same; tells `progress` how many of how many tasks are done, after each.
    pub fn bounds_with(&self, mut progress: impl FnMut(usize, usize)) -> Vec<Answer> {
        let mut walk = Walk::new(self);
        let tasks: Vec<NodeId> = walk.tasks();
        let mut answers = Vec::with_capacity(tasks.len());
        for (done, &node) in tasks.iter().enumerate() {
            answers.push(walk.answer(node));
            progress(done + 1, tasks.len());
        }
        answers
    }

    /// The answers for these tasks only, in this order; as those of [`Roots::bounds`].
    pub fn bounds_of(&self, tasks: &[NodeId]) -> Vec<Answer> {
        let mut walk = Walk::new(self);
        tasks.iter().map(|&node| walk.answer(node)).collect()
    }

    /// Whether every deadline is proved; asks no further than the first that is not.
    pub fn are_proved(&self) -> bool {
        let mut walk = Walk::new(self);
        walk.tasks()
            .into_iter()
            .map(|node| walk.answer(node))
            .all(|of| of.is_proved() || !of.has_deadline())
    }

    /// What the clients of the server at `node` are supplied within any window of `window`; `Err`
    /// where it is starved or unknown.
    ///
    /// # Errors
    /// [`NoTest`].
    pub fn supplied(&self, node: NodeId, window: Span) -> Result<Work, NoTest> {
        let mut walk = Walk::new(self);
        walk.is_covered()?;
        walk.supply_of(node).map(|supply| supply.without(self.lost).least(window))
    }

    /// What `nodes` (tasks, servers, groups) take at most of others' time in any window in which
    /// these wait: see [`super::disturb`].
    ///
    /// # Errors
    /// [`NoTest`] for a node of which nothing is known.
    pub fn taken(&self, nodes: &[NodeId]) -> Result<Vec<Curve>, NoTest> {
        let mut walk = Walk::new(self);
        walk.is_covered()?;
        let mut out = Vec::new();
        for &node in nodes {
            walk.collect_all(node, &mut out)?;
        }
        Ok(out)
    }
}
