//! Orders by fixed keys: who can show which key to whom, and what of a sibling is above.

use super::answer::{NoTest, Reason};
use super::walk::{Walk, waits};
use crate::supply::Curve;
use crate::supply::fp::curve;
use alloc::vec::Vec;
use talea_core::machine::{Body, NodeId, SchedulerSpec};
use talea_core::mutate;
use talea_core::sched::Policy;
use talea_core::server::Kind as ServerKind;
use talea_core::{Span, Work};

/// A policy that orders by something that never changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    Priority,
    Period,
    Deadline,
    Criticality,
}

impl Order {
    pub(super) fn of(policy: &Policy) -> Option<Order> {
        match policy {
            Policy::FixedPriority => Some(Order::Priority),
            Policy::RateMonotonic => Some(Order::Period),
            Policy::DeadlineMonotonic => Some(Order::Deadline),
            Policy::CriticalityMonotonic => Some(Order::Criticality),
            _ => None,
        }
    }

    /// Whether equals are FIFO, and not by number.
    pub(super) fn is_fifo(self) -> bool {
        self == Order::Priority
    }

    /// The key that the group itself has, if any; the least is the most urgent.
    fn own(self, spec: &SchedulerSpec) -> Option<u64> {
        let own = &spec.own;
        match self {
            Order::Priority => own.priority.map(level),
            Order::Period => own.period.map(Span::as_ns),
            Order::Deadline => own.relative_deadline.map(Span::as_ns),
            Order::Criticality => {
                own.criticality.map(|criticality| u64::from(u8::MAX - criticality))
            }
        }
    }
}

/// Two queues for each level.
fn level(priority: u8) -> u64 {
    2 * u64::from(u8::MAX - priority)
}

/// Whether what is below `spec` shows its own keys, one by one.
fn is_open(order: Order, spec: &SchedulerSpec) -> bool {
    Order::of(&spec.policy) == Some(order)
        && spec.preemptive
        && order.own(spec).is_none()
        && spec.reservation.is_none()
        && !yields(order, spec)
}

/// The group stands behind others of its level.
fn yields(order: Order, spec: &SchedulerSpec) -> bool {
    order == Order::Priority
        && (spec.own.yields || matches!(spec.policy, Policy::Partitions { .. }))
}

fn behind(key: u64, order: Order, spec: &SchedulerSpec) -> u64 {
    if yields(order, spec) { key | 1 } else { key }
}

impl Walk<'_> {
    /// The key of a task.
    fn key(&self, order: Order, task: NodeId) -> Result<u64, NoTest> {
        let Body::Task(spec) = self.body(task) else { return Ok(u64::MAX) };
        // Whatever else is unknown of a task, its own key is not.
        if spec.inherits {
            self.leaf(task)?;
        }
        Ok(match order {
            Order::Priority => level(spec.priority),
            Order::Period => spec.period.as_ns(),
            Order::Deadline => spec.deadline.as_ns(),
            Order::Criticality => u64::from(u8::MAX - spec.criticality),
        })
    }

    /// The most and the least urgent key that `node` can show; `None` for a scheduler without
    /// tasks.
    pub(super) fn range(&self, order: Order, node: NodeId) -> Result<Option<(u64, u64)>, NoTest> {
        let spec = match self.body(node) {
            Body::Task(_) => return self.key(order, node).map(|key| Some((key, key))),
            Body::Scheduler(spec) => spec,
        };
        if let Some(own) = order.own(spec) {
            let own = behind(own, order, spec);
            return Ok(Some((own, own)));
        }
        let mut range: Option<(u64, u64)> = None;
        for &kid in self.kids(node) {
            let Some((most, least)) = self.range(order, kid)? else { continue };
            range =
                Some(range.map_or((most, least), |range| (range.0.min(most), range.1.max(least))));
        }
        Ok(range.map(|(most, least)| (behind(most, order, spec), behind(least, order, spec))))
    }

    /// The least urgent key that `top`, on the way to `who` or `who` itself, can show while `who`
    /// pends (and its slot is open).
    pub(super) fn shown(&self, order: Order, top: NodeId, who: NodeId) -> Result<u64, NoTest> {
        let least = |node| Ok(self.range(order, node)?.map_or(u64::MAX, |range| range.1));
        let mut key = least(who)?;
        let mut at = who;
        while at != top {
            let Some(above) = self.parent(at) else { break };
            let Body::Scheduler(spec) = self.body(above) else { break };
            let follows = Order::of(&spec.policy) == Some(order)
                || matches!(spec.policy, Policy::Partitions { .. });
            key = match order.own(spec) {
                Some(own) => behind(own, order, spec),
                None if follows && spec.preemptive => behind(key, order, spec),
                None => least(above)?,
            };
            at = above;
        }
        Ok(key)
    }

    /// Whether `node` shows, one by one, the keys of what is below it, as far as its slot is open.
    pub(super) fn passes(&self, order: Order, node: NodeId) -> bool {
        let Body::Scheduler(spec) = self.body(node) else { return false };
        let follows = Order::of(&spec.policy) == Some(order)
            || matches!(spec.policy, Policy::Partitions { .. });
        follows && spec.preemptive && order.own(spec).is_none() && spec.reservation.is_none()
    }

    /// The siblings of the nodes on the way from `top` to `who`, as long as their keys are seen
    /// above `top`.
    pub(super) fn beside(&self, order: Order, top: NodeId, who: NodeId) -> Vec<NodeId> {
        let mut way = Vec::from([who]);
        let mut at = who;
        while at != top {
            let Some(above) = self.parent(at) else { break };
            way.push(above);
            at = above;
        }
        way.reverse();
        let mut found = Vec::new();
        for step in way.windows(2) {
            let Body::Scheduler(spec) = self.body(step[0]) else { break };
            if !self.passes(order, step[0]) {
                break;
            }
            if !matches!(spec.policy, Policy::Partitions { .. }) {
                found.extend(self.kids(step[0]).iter().copied().filter(|&kid| kid != step[1]));
            }
        }
        found
    }

    /// The least urgent key that any of what [`Walk::collect`] takes of `nodes` can show.
    pub(super) fn least_above(
        &self,
        order: Order,
        nodes: &[NodeId],
        key: u64,
    ) -> Result<Option<u64>, NoTest> {
        let mut worst = None;
        for &node in nodes {
            let range = self.range(order, node)?;
            let Some((_, least)) = range.filter(|&(most, _)| most <= key) else { continue };
            let found = match self.body(node) {
                Body::Scheduler(spec) if is_open(order, spec) => {
                    self.least_above(order, self.kids(node), key)?
                }
                _ => Some(least),
            };
            worst = worst.max(found);
        }
        Ok(worst)
    }

    /// Adds what of `node` can stand before a sibling that shows `key`; equals count unless
    /// `strictly`.
    pub(super) fn collect(
        &mut self,
        order: Order,
        node: NodeId,
        (key, strictly): (u64, bool),
        out: &mut Vec<Curve>,
    ) -> Result<(), NoTest> {
        let counts = |urgent: u64| if strictly { urgent < key } else { urgent <= key };
        let Some((most, _)) = self.range(order, node)? else { return Ok(()) };
        if !counts(most) {
            return Ok(());
        }
        let Body::Scheduler(spec) = self.body(node) else { return self.collect_all(node, out) };
        if is_open(order, spec) {
            for kid in self.kids(node).to_vec() {
                self.collect(order, kid, (key, strictly), out)?;
            }
            return Ok(());
        }
        if matches!(spec.policy, Policy::Partitions { .. }) && order.own(spec).is_none() {
            return self.collect_table(node, Some((order, key, strictly)), out);
        }
        self.collect_all(node, out)
    }

    /// Adds all of `node`.
    pub(super) fn collect_all(&mut self, node: NodeId, out: &mut Vec<Curve>) -> Result<(), NoTest> {
        let spec = match self.body(node) {
            Body::Task(_) => {
                out.push(curve(&self.leaf(node)?.task));
                return Ok(());
            }
            Body::Scheduler(spec) => spec,
        };
        if let Some(of) = &spec.reservation {
            if let Some(curve) = Curve::of_server(of) {
                out.push(curve);
                return Ok(());
            }
            if of.kind != ServerKind::SoftCbs {
                return Err(NoTest { node, reason: Reason::CustomServer });
            }
        }
        if matches!(spec.policy, Policy::Partitions { .. }) {
            return self.collect_table(node, None, out);
        }
        let from = out.len();
        for kid in self.kids(node).to_vec() {
            self.collect_all(kid, out)?;
        }
        // A soft CBS that waits holds what has come for a period at most, and lets it go at once.
        let held = spec.reservation.filter(waits).map_or(Span::ZERO, |of| of.period);
        for curve in &mut out[from..] {
            curve.jitter += held;
        }
        Ok(())
    }

    /// Adds what a partition table takes of the time of those below it. Jobs may pend in a closed
    /// partition when a window begins, so that arrivals alone say nothing: a partition takes its
    /// slots, each of them every frame (a window that begins with a slot holds the most of it), or
    /// each task what comes up to its longest response before the window ends.
    fn collect_table(
        &mut self,
        node: NodeId,
        before: Option<(Order, u64, bool)>,
        out: &mut Vec<Curve>,
    ) -> Result<(), NoTest> {
        let Body::Scheduler(spec) = self.body(node) else { return Ok(()) };
        let Policy::Partitions { frame, slots, lending } = &spec.policy else { return Ok(()) };
        self.is_held_to_slots(node)?;
        for (owner, kid) in (0..).zip(self.kids(node).to_vec()) {
            if let Some((order, key, strictly)) = before {
                let Some((most, _)) = self.range(order, kid)? else { continue };
                let most = behind(most, order, spec);
                if if strictly { most >= key } else { most > key } {
                    continue;
                }
            }
            let by_slots = slots.iter().filter(|slot| slot.owner == owner);
            let by_slots =
                by_slots.filter_map(|slot| slot.end.checked_sub(slot.start)).map(|length| Curve {
                    cost: Work::from_ns(length.as_ns()),
                    period: *frame,
                    jitter: Span::ZERO,
                });
            let by_slots: Vec<Curve> = by_slots.collect();
            match self.by_responses(kid) {
                Some(tasks) if *lending || share(&tasks) < share(&by_slots) => out.extend(tasks),
                _ if *lending => return Err(NoTest { node, reason: Reason::Lending }),
                _ => out.extend(by_slots),
            }
        }
        Ok(())
    }

    /// Of every task below `node`, what it takes in any window; `None` where one has no bound.
    pub(super) fn by_responses(&mut self, node: NodeId) -> Option<Vec<Curve>> {
        let mut out = Vec::new();
        let mut next = Vec::from([node]);
        while let Some(node) = next.pop() {
            if let Body::Task(_) = self.body(node) {
                let response = self.bound(node).ok()?;
                let task = self.leaf(node).ok()?.task;
                let late = mutate!(
                    "tree-slots",
                    response.as_ns().saturating_sub(task.cost.as_ns()),
                    task.jitter.as_ns()
                );
                out.push(Curve {
                    cost: task.cost,
                    period: task.period,
                    jitter: Span::from_ns(late),
                });
            }
            next.extend_from_slice(self.kids(node));
        }
        Some(out)
    }
}

/// ΣC/T in parts of 2^-32, rounded up.
pub(super) fn share(curves: &[Curve]) -> u128 {
    let one = |curve: &Curve| {
        (u128::from(curve.cost.as_ns()) << 32).div_ceil(u128::from(curve.period.as_ns()))
    };
    curves.iter().map(one).sum()
}
