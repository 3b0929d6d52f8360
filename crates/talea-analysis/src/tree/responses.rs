//! Longest response of one task in a known context, by fixed-priority response-time analysis.

use super::context::{Context, NonPreemptive};
use super::model::Model;
use super::node_supply::is_overload;
use super::task_bound::{NoBound, Reason};
use super::task_model::{Phasing, TaskModel};
use crate::supply::fp;
use crate::test_info::TestKind;
use crate::verdict::Inconclusive;
use crate::{Sporadic, uni};
use alloc::vec::Vec;
use talea_core::engine::NodeId;
use talea_core::mutate;
use talea_core::{Span, Work};

impl Model<'_> {
    /// Returns the longest response of a task below a non-preemptive root; `None` beyond the step
    /// limit. The response is exact if all interfering tasks can arrive just after a job of the
    /// longest other task has started.
    #[allow(clippy::type_complexity, reason = "a bound with its kind, or none")]
    pub(super) fn non_preemptive_response(
        &self,
        node: NodeId,
        non_preemptive: &NonPreemptive,
    ) -> Result<Option<(Result<Span, NoBound>, TestKind)>, NoBound> {
        let nodes = [non_preemptive.above.as_slice(), &[node]].concat();
        let tasks = nodes
            .iter()
            .map(|&node| Ok(self.task_model(node)?.task))
            .collect::<Result<Vec<_>, NoBound>>()?;
        let below = non_preemptive
            .below
            .iter()
            .map(|&node| self.task_model(node))
            .collect::<Result<Vec<_>, NoBound>>()?;
        let longest = mutate!(
            "tree-begun",
            below.iter().map(|model| model.task.cost).max(),
            below.iter().map(|model| model.task.cost).min()
        )
        .unwrap_or(Work::ZERO);
        let kind = if !self.lost.is_zero() {
            TestKind::Sufficient
        } else if longest <= Work::from_ns(1) {
            self.exactness(&nodes)
        } else {
            let is_any = |node: &NodeId| {
                self.task_model(*node).is_ok_and(|model| model.phasing == Phasing::Free)
            };
            let blocks =
                |model: &TaskModel| model.task.cost == longest && model.phasing == Phasing::Free;
            let is_exact = nodes.iter().all(is_any) && below.iter().any(blocks);
            if is_exact { TestKind::Exact } else { TestKind::Sufficient }
        };
        // Time lost before the job starts delays the start like the longest job of the others,
        // once. Time lost after the start adds no more than that.
        let longest = Work::from_ns(mutate!(
            "tree-lost-begins",
            longest.as_ns().max(1).saturating_add(self.lost.as_ns()),
            longest.as_ns().max(1)
        ));
        let found = uni::np_fp::lowest_priority_response(
            &tasks,
            longest,
            &mut uni::Scratch::with_limit(self.step_limit),
        );
        Ok(match found {
            Ok(Some(bound)) => Some((Ok(bound.arrival), kind)),
            Ok(None) => Some((Err(NoBound { node, reason: Reason::Overload }), kind)),
            Err(_) => None,
        })
    }

    /// Returns the longest response of `task` in `context`, by fixed-priority response-time
    /// analysis.
    pub(super) fn response(
        &self,
        node: NodeId,
        task: &Sporadic,
        context: &Context,
    ) -> Result<Span, NoBound> {
        let mut all = context.above.clone();
        all.push(fp::curve(task));
        if is_overload(&all, &context.supply) {
            return Err(NoBound { node, reason: Reason::Overload });
        }
        // On a dedicated CPU this test also recognises an endless busy window that yields nothing
        // new.
        let loss = context.supply.cpu_loss();
        if let Some(lost) =
            mutate!("tree-full", loss, loss.filter(|_| node == talea_core::engine::Tree::ROOT))
        {
            let blocking = Work::from_ns(task.blocking.as_ns().saturating_add(lost.as_ns()));
            let task = &Sporadic { blocking, ..*task };
            let above = context.above.iter().map(|one| Sporadic {
                jitter: one.jitter,
                ..Sporadic::new(one.cost, one.period, Span::ZERO)
            });
            let tasks: Vec<Sporadic> = above.chain([*task]).collect();
            match uni::fp_response::lowest_priority_response(
                &tasks,
                &mut uni::Scratch::with_limit(self.step_limit),
            ) {
                Ok(Some(bound)) => return Ok(bound.arrival),
                Ok(None) => return Err(NoBound { node, reason: Reason::Overload }),
                Err(_) => {}
            }
        }
        let mut longest = Span::ZERO;
        let mut left = self.iteration_limit(context.above.len());
        let walked =
            fp::for_each_job(task, &context.above, &context.supply, &mut left, |_, bound| {
                longest = longest.max(bound.arrival);
                false
            });
        match walked {
            Ok(()) => Ok(longest),
            Err(Inconclusive::Limit) => Err(NoBound { node, reason: Reason::Limit }),
            Err(why @ (Inconclusive::Assumption { .. } | Inconclusive::Insufficient { .. })) => {
                unreachable!("task models satisfy the assumptions of the test: {why:?}")
            }
        }
    }
}
