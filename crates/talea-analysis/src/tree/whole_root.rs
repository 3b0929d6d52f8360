//! Third pass: bounds by tests for a whole root: an off-line table, a single graph, or a flat root
//! with known phases, self-suspension, arrival curves or limited preemption.

use super::model::Model;
use super::task_bound::{NoBound, Reason};
use super::{flat, graph, phases, suspension, table};
use crate::multi::graham;
use crate::test_info::{TestInfo, TestKind};
use crate::uni;
use alloc::collections::BTreeMap;
use talea_core::Span;
use talea_core::engine::{NodeId, Tree};

/// Bounds of the tasks of an off-line table, of a single graph, or of a flat root with known
/// phases, self-suspension, arrival curves or limited preemption. Empty for other roots.
#[derive(Clone, Debug)]
pub(super) struct WholeRoot {
    bounds: BTreeMap<NodeId, (Result<Span, NoBound>, TestKind)>,
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
        let sufficient = |bounds: BTreeMap<NodeId, Result<Span, NoBound>>| {
            bounds.into_iter().map(|(node, bound)| (node, (bound, TestKind::Sufficient))).collect()
        };
        let table = table::bounds(model).map(|bounds| (sufficient(bounds), &table::INFO));
        let graph = || graph::bounds(model).map(|bounds| (sufficient(bounds), &graham::INFO));
        let phases = || phases::bounds(model).map(|bounds| (bounds, &phases::INFO));
        let suspension =
            || suspension::bounds(model).map(|bounds| (bounds, &uni::suspension::INFO));
        let found = table.or_else(graph).or_else(phases).or_else(suspension);
        match found.or_else(|| flat::bounds(model)) {
            Some(_) if !model.lost.is_zero() => {
                let no = NoBound { node: Tree::ROOT, reason: Reason::CpuStalls };
                WholeRoot { uncovered: Some(no), ..none }
            }
            Some((bounds, test)) => WholeRoot { bounds, test, ..none },
            None => none,
        }
    }

    /// Returns the bound of the task at `node` with its kind and test.
    #[allow(clippy::type_complexity, reason = "a bound with its provenance, or none")]
    pub(super) fn bound(
        &self,
        node: NodeId,
    ) -> Option<(Result<Span, NoBound>, TestKind, &'static TestInfo)> {
        self.bounds.get(&node).map(|(bound, kind)| (bound.clone(), *kind, self.test))
    }
}
