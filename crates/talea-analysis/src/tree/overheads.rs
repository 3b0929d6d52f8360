//! What scheduling costs, as costs of jobs and of arrivals.

use super::answer::{NoTest, Reason};
use super::read::any_scheduler;
use super::walk::{Place, Walk};
use crate::supply::Curve;
use talea_core::Work;
use talea_core::machine::{Body, NodeId, SchedulerSpec, Tree};
use talea_core::mutate;
use talea_core::sched::Policy;
use talea_core::workload::{Arrivals, Overheads, Source};

impl Walk<'_> {
    /// Whether orders to run cost anything.
    pub(super) fn pays_orders(&self) -> bool {
        self.order > 0
    }

    /// What orders to run of those who are not above may still cost when a window begins. They
    /// queue: one that is superseded has been decided on all the same. Nobody completes while there
    /// is a queue; and from one completion to the next each task is ordered at most once, then or
    /// as it arrives. A root that does not preempt orders nothing until then; what goes on within
    /// one group of it is among the jobs under way.
    pub(super) fn orders_under_way(&self, place: &Place) -> u64 {
        if matches!(self.body(Tree::ROOT), Body::Scheduler(root) if !root.preemptive) {
            return 0;
        }
        // Each task that is above has one curve, for where there are servers and tables nothing is
        // known with overheads. And one order less: whom the last completion of all is for comes
        // after it.
        let above = place.above.len() - self.arrivals.len();
        mutate!(
            "tree-orders",
            self.order.saturating_mul(self.leaves.len().saturating_sub(2 + above) as u64),
            self.order.min(self.leaves.len().saturating_sub(2 + above) as u64)
        )
    }

    /// Overheads as costs.
    pub(super) fn pay(&mut self, overheads: &Overheads, sources: &[Source]) {
        if *overheads == Overheads::default() {
            return;
        }
        let is_simple = |spec: &SchedulerSpec| {
            spec.reservation.is_none()
                && !matches!(
                    spec.policy,
                    Policy::Partitions { .. } | Policy::RoundRobin { .. } | Policy::Custom { .. }
                )
        };
        let other = any_scheduler(self.tree, |spec| !is_simple(spec));
        // What enforcement holds back has arrived, and that is paid, however often.
        let crowds = |(&node, source): (&NodeId, &Source)| {
            let is_held = matches!(self.body(node), Body::Task(spec) if spec.enforced);
            (is_held && matches!(source.arrivals, Arrivals::List(_) | Arrivals::Seen(_)))
                .then_some(node)
        };
        let other = other.or_else(|| self.leaves.keys().zip(sources).find_map(crowds));
        if let Some(node) = other.or((self.tree.cpus > 1).then_some(Tree::ROOT)) {
            self.all = self.all.take().or(Some(NoTest { node, reason: Reason::Overheads }));
            return;
        }
        let depth =
            self.tree.nodes().map(|(id, _)| self.tree.above(id).count() as u64).max().unwrap_or(0);
        let levels = overheads.level.as_ns().saturating_mul(depth);
        self.order = overheads
            .decision
            .as_ns()
            .saturating_add(levels)
            .saturating_add(overheads.switch.as_ns());
        for leaf in self.leaves.values_mut().flatten() {
            let cost = leaf.task.cost.as_ns().saturating_add(2 * self.order);
            leaf.task.cost = Work::from_ns(cost);
            if !overheads.release.is_zero() {
                self.arrivals.push(Curve {
                    cost: Work::from_ns(overheads.release.as_ns()),
                    period: leaf.task.period,
                    jitter: leaf.task.jitter,
                });
            }
        }
    }
}
