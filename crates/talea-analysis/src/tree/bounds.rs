//! Last pass: the longest response of each task.
//!
//! Responses, supplies of servers and verdicts of levels depend on each other: the interference of
//! a partition follows from the responses within, a response from the supply of its server, and
//! that from the interference on the server. The dependencies follow from the tree and have no
//! order that a pass could fix beforehand. So this pass evaluates them on demand, each once, and
//! reports a dependency of a response on itself as [`Reason::Circular`].
//!
//! | file | content |
//! | --- | --- |
//! | `competition` | context of a node: supply, interference, blocking |
//! | `interference` | curves of a node on its siblings |
//! | `responses` | response under fixed priorities, from the context |
//! | `servers` | supply of a server |
//! | `edf` | a level by deadline |
//! | `global` | several CPUs |

use super::blocking::Blocking;
use super::model::Model;
use super::node_supply::NodeSupply;
use super::precedence;
use super::priority_keys::KeyOrder;
use super::task_bound::{INFO, NoBound, Reason, TaskBound};
use super::whole_root::WholeRoot;
use crate::multi::bertogna_cirinei;
use crate::multi::guan;
use crate::test_info::{TestInfo, TestKind};
use crate::{Sporadic, uni};
use alloc::collections::BTreeMap;
use talea_core::engine::{NodeId, NodeSpec, Tree};
use talea_core::sched::PolicySpec;
use talea_core::{Span, Work};

/// Results of the last pass so far.
pub(super) struct Bounds<'m> {
    pub(super) model: &'m Model<'m>,
    pub(super) blocking: &'m Blocking,
    whole_root: &'m WholeRoot,
    pub(super) server_supplies: BTreeMap<NodeId, Result<NodeSupply, NoBound>>,
    pub(super) level_verdicts: BTreeMap<NodeId, Result<bool, NoBound>>,
    /// `responses[n]`: longest response of task `n`; `None` while it is evaluated.
    responses: BTreeMap<NodeId, Option<Result<Span, NoBound>>>,
    /// `provenances[n]`: whether the bound of node `n` is exact, and its test.
    provenances: BTreeMap<NodeId, (TestKind, &'static TestInfo)>,
    /// Bounds by [`precedence`], once a task has no other bound.
    by_precedence: Option<BTreeMap<NodeId, Span>>,
}

impl<'m> Bounds<'m> {
    /// Creates the pass without results.
    pub(super) fn new(
        model: &'m Model<'m>,
        blocking: &'m Blocking,
        whole_root: &'m WholeRoot,
    ) -> Bounds<'m> {
        Bounds {
            model,
            blocking,
            whole_root,
            server_supplies: BTreeMap::new(),
            level_verdicts: BTreeMap::new(),
            responses: BTreeMap::new(),
            provenances: BTreeMap::new(),
            by_precedence: None,
        }
    }

    /// Checks that no property of the tree excludes every bound. An error is the reason why no task
    /// of the tree has a bound.
    pub(super) fn check_covered(&self) -> Result<(), NoBound> {
        let passes = [&self.whole_root.uncovered, &self.model.uncovered, &self.blocking.uncovered];
        passes.into_iter().flatten().next().cloned().map_or(Ok(()), Err)
    }

    /// Returns the bound of the task at `node`, with its deadline and provenance.
    pub(super) fn task_bound(&mut self, node: NodeId) -> TaskBound {
        let deadline = self.model.deadline(node);
        if let Some((bound, kind, test)) = self.whole_root.bound(node) {
            return TaskBound { node, deadline, bound, kind, test };
        }
        let bound = self.bound(node);
        if let Err(no) = &bound
            && !matches!(no.reason, Reason::Overload | Reason::Starved)
            && let Some(bound) = self.precedence_bound(node)
        {
            let (kind, test) = (TestKind::Sufficient, &precedence::INFO);
            return TaskBound { node, deadline, bound: Ok(bound), kind, test };
        }
        let (kind, test) = self.provenance(node);
        TaskBound { node, deadline, bound, kind, test }
    }

    /// Returns the bound by [`precedence`], which is computed for all tasks at the first call.
    fn precedence_bound(&mut self, node: NodeId) -> Option<Span> {
        let model = self.model;
        self.by_precedence.get_or_insert_with(|| precedence::bounds(model)).get(&node).copied()
    }

    /// Returns the longest response of the task at `node`, counted from its arrival.
    pub(super) fn bound(&mut self, node: NodeId) -> Result<Span, NoBound> {
        let passes = [&self.whole_root.uncovered, &self.model.uncovered];
        passes.into_iter().flatten().next().cloned().map_or(Ok(()), Err)?;
        self.blocking.check(node)?;
        match self.responses.get(&node) {
            Some(Some(found)) => return found.clone(),
            // The search for this bound is in progress: the responses depend on each other.
            Some(None) => return Err(NoBound { node, reason: Reason::Circular }),
            None => {}
        }
        self.responses.insert(node, None);
        let found = if self.model.tree.cpus > 1 {
            self.bound_on_several_cpus(node)
        } else {
            self.bound_on_one_cpu(node)
        };
        let found = found.map_err(|no| self.without_overload(no));
        self.responses.insert(node, Some(found.clone()));
        found
    }

    /// Replaces an overload where suspensions count as work: then the demand is not known to exceed
    /// the supply.
    fn without_overload(&self, no: NoBound) -> NoBound {
        match no.reason {
            Reason::Overload if self.model.suspends => {
                NoBound { reason: Reason::Insufficient, ..no }
            }
            _ => no,
        }
    }

    fn bound_on_one_cpu(&mut self, node: NodeId) -> Result<Span, NoBound> {
        let context = self.context(node)?;
        if context.level.is_some() {
            let (bound, provenance) = self.bound_by_deadline(node, &context)?;
            if context.flat.is_some() {
                self.provenances.insert(node, provenance);
            }
            return Ok(bound);
        }
        if let Some(non_preemptive) = &context.non_preemptive
            && let Some((found, kind)) = self.model.non_preemptive_response(node, non_preemptive)?
        {
            self.provenances.insert(node, (kind, &uni::np_fp::INFO));
            return found;
        }
        let task = Sporadic {
            blocking: Work::from_ns(context.blocking),
            ..self.model.task_model(node)?.task
        };
        if let Some(above) = &context.flat {
            self.provenances.insert(
                node,
                (
                    self.model.exactness(&[above.as_slice(), &[node]].concat()),
                    &uni::fp_response::INFO,
                ),
            );
        }
        self.model.response(node, &task, &context)
    }

    /// Records whether the bound of `node` is exact, and its test.
    pub(super) fn set_provenance(&mut self, node: NodeId, of: (TestKind, &'static TestInfo)) {
        self.provenances.insert(node, of);
    }

    /// Records a bound of `node` and its provenance.
    pub(super) fn set_bound(
        &mut self,
        node: NodeId,
        bound: Result<Span, NoBound>,
        of: (TestKind, &'static TestInfo),
    ) {
        let bound = bound.map_err(|no| self.without_overload(no));
        self.responses.insert(node, Some(bound));
        self.provenances.insert(node, of);
    }

    fn provenance(&self, node: NodeId) -> (TestKind, &'static TestInfo) {
        let other = if self.model.tree.cpus > 1 { test_for_root(self.model.tree) } else { &INFO };
        self.provenances.get(&node).copied().unwrap_or((TestKind::Sufficient, other))
    }
}

/// Returns the test that applies to this root.
fn test_for_root(tree: &Tree) -> &'static TestInfo {
    match tree.get(Tree::ROOT).map(|node| &node.spec) {
        Some(NodeSpec::Scheduler(spec)) if matches!(spec.policy, PolicySpec::Edf) => {
            &bertogna_cirinei::EDF
        }
        Some(NodeSpec::Scheduler(spec)) if KeyOrder::of(&spec.policy).is_some() => &guan::INFO,
        _ => &bertogna_cirinei::ANY,
    }
}
