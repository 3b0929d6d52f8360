//! Scheduling overheads, as additions to job costs and as release interference.

use super::context::Context;
use super::model::Model;
use super::task_bound::{NoBound, Reason};
use super::task_model::find_scheduler;
use crate::supply::InterferenceCurve;
use talea_core::Work;
use talea_core::engine::{NodeId, NodeSpec, SchedulerSpec, Tree};
use talea_core::mutate;
use talea_core::sched::PolicySpec;
use talea_core::workload::{Arrivals, Overheads, Source};

impl Model<'_> {
    /// Whether dispatch orders have a cost.
    pub(super) fn has_dispatch_cost(&self) -> bool {
        self.dispatch_cost > 0
    }

    /// Returns the cost of dispatch orders for non-interfering tasks that may be queued when a
    /// window begins. The decision for a superseded order costs time nevertheless. No job completes
    /// while orders are queued. Between two completions the engine orders each task at most once,
    /// at the first of them or at its arrival. A non-preemptive root issues no order until a
    /// completion. Orders within one of its child schedulers count in the costs of the running
    /// jobs.
    pub(super) fn pending_dispatch_blocking(&self, context: &Context) -> u64 {
        if matches!(self.node_spec(Tree::ROOT), NodeSpec::Scheduler(root) if !root.preemptive) {
            return 0;
        }
        // Each interfering task has one curve, because servers and tables are excluded with
        // overheads. One order less: the order that follows the last completion comes after it.
        let above = context.above.len() - self.release_interference.len();
        mutate!(
            "tree-orders",
            self.dispatch_cost
                .saturating_mul(self.task_models.len().saturating_sub(2 + above) as u64),
            self.dispatch_cost.min(self.task_models.len().saturating_sub(2 + above) as u64)
        )
    }

    /// Adds the overheads to job costs and to the release interference.
    pub(super) fn inflate_costs(&mut self, overheads: &Overheads) {
        if *overheads == Overheads::default() {
            return;
        }
        let is_simple = |spec: &SchedulerSpec| {
            spec.reservation.is_none()
                && !matches!(
                    spec.policy,
                    PolicySpec::Partitions { .. }
                        | PolicySpec::RoundRobin { .. }
                        | PolicySpec::Custom { .. }
                )
        };
        let other = find_scheduler(self.tree, |spec| !is_simple(spec));
        // Arrivals that enforcement defers have occurred, and each pays its release overhead.
        let crowds = |(&node, source): (&NodeId, &Source)| {
            let is_held = matches!(self.node_spec(node), NodeSpec::Task(spec) if spec.enforced);
            (is_held && matches!(source.arrivals, Arrivals::List(_) | Arrivals::Observed(_)))
                .then_some(node)
        };
        let other = other.or_else(|| self.task_models.keys().zip(self.sources).find_map(crowds));
        if let Some(node) = other.or((self.tree.cpus > 1).then_some(Tree::ROOT)) {
            self.uncovered =
                self.uncovered.take().or(Some(NoBound { node, reason: Reason::Overheads }));
            return;
        }
        let depth = self
            .tree
            .nodes()
            .map(|(id, _)| self.tree.ancestors(id).count() as u64)
            .max()
            .unwrap_or(0);
        let levels = overheads.level.as_ns().saturating_mul(depth);
        self.dispatch_cost = overheads
            .decision
            .as_ns()
            .saturating_add(levels)
            .saturating_add(overheads.switch.as_ns());
        for leaf in self.task_models.values_mut().flatten() {
            let cost = leaf.task.cost.as_ns().saturating_add(2 * self.dispatch_cost);
            leaf.task.cost = Work::from_ns(cost);
            if !overheads.release.is_zero() {
                self.release_interference.push(InterferenceCurve {
                    cost: Work::from_ns(overheads.release.as_ns()),
                    period: leaf.task.period,
                    jitter: leaf.task.jitter,
                });
            }
        }
    }
}
