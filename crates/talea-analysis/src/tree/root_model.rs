//! Input of the tree analysis.

use talea_core::Span;
use talea_core::engine::Tree;
use talea_core::mutate;
use talea_core::workload::{Environment, Overheads, Source, Stall};

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
    /// Whether the offsets of the sources hold, so that a schedule may prove or refute deadlines.
    /// Otherwise bounds cover all phases.
    pub phases_known: bool,
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
            phases_known: false,
            lost: Span::ZERO,
            steps: 1 << 21,
        }
    }

    /// Sets whether the offsets of the sources hold.
    #[must_use]
    pub fn with_phases_known(self, phases_known: bool) -> RootModel<'a> {
        RootModel { phases_known, ..self }
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
}
