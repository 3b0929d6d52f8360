//! Third pass: bounds by tests for a whole root, an off-line table or a single graph.

use super::model::Model;
use super::task_bound::{NoBound, Reason};
use super::{graph, table};
use crate::multi::graham;
use crate::test_info::TestInfo;
use alloc::collections::BTreeMap;
use talea_core::Span;
use talea_core::engine::{NodeId, Tree};

/// Bounds of all tasks of an off-line table or of a single graph. Empty for other roots.
#[derive(Clone, Debug)]
pub(super) struct WholeRoot {
    bounds: BTreeMap<NodeId, Result<Span, NoBound>>,
    test: &'static TestInfo,
    /// Reason why the test of this root does not apply: no task of the root has a bound.
    pub(super) uncovered: Option<NoBound>,
}

impl WholeRoot {
    /// Returns the bounds of a model.
    pub(super) fn of(model: &Model<'_>) -> WholeRoot {
        let none = WholeRoot { bounds: BTreeMap::new(), test: &table::INFO, uncovered: None };
        if model.has_stalls || model.has_overheads {
            return none;
        }
        let table = table::bounds(model).map(|bounds| (bounds, &table::INFO));
        let graph = || graph::bounds(model).map(|bounds| (bounds, &graham::INFO));
        match table.or_else(graph) {
            Some(_) if !model.lost.is_zero() => {
                let no = NoBound { node: Tree::ROOT, reason: Reason::CpuStalls };
                WholeRoot { uncovered: Some(no), ..none }
            }
            Some((bounds, test)) => WholeRoot { bounds, test, ..none },
            None => none,
        }
    }

    /// Returns the bound of the task at `node` with its test.
    pub(super) fn bound(&self, node: NodeId) -> Option<(Result<Span, NoBound>, &'static TestInfo)> {
        self.bounds.get(&node).map(|bound| (bound.clone(), self.test))
    }
}
