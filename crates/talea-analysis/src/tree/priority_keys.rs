//! Schedulers with fixed keys: the keys that a node can present, and the parts of a sibling that
//! interfere.
//!
//! The rules and terms are those of *Effective keys* in [`super`]. The smallest key is the most
//! urgent.

use super::analysis::{TreeAnalysis, can_delay_clients};
use super::task_bound::{NoBound, Reason};
use crate::supply::InterferenceCurve;
use crate::supply::fp::curve;
use alloc::vec::Vec;
use talea_core::engine::{NodeId, NodeSpec, SchedulerSpec};
use talea_core::mutate;
use talea_core::sched::PolicySpec;
use talea_core::server::ServerKind;
use talea_core::{Span, Work};

/// Fixed key by which a policy orders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyOrder {
    Priority,
    Period,
    Deadline,
    Criticality,
}

impl KeyOrder {
    /// Returns the key of a policy; `None` if its order is not fixed.
    pub(super) fn of(policy: &PolicySpec) -> Option<KeyOrder> {
        match policy {
            PolicySpec::FixedPriority => Some(KeyOrder::Priority),
            PolicySpec::RateMonotonic => Some(KeyOrder::Period),
            PolicySpec::DeadlineMonotonic => Some(KeyOrder::Deadline),
            PolicySpec::CriticalityMonotonic => Some(KeyOrder::Criticality),
            _ => None,
        }
    }

    /// Whether children with equal keys are served in FIFO order instead of by number.
    pub(super) fn is_fifo(self) -> bool {
        self == KeyOrder::Priority
    }

    /// Returns the own key of a scheduler; `None` if it has none.
    fn own_key(self, spec: &SchedulerSpec) -> Option<u64> {
        let own = &spec.overrides;
        match self {
            KeyOrder::Priority => own.priority.map(priority_key),
            KeyOrder::Period => own.period.map(Span::as_ns),
            KeyOrder::Deadline => own.relative_deadline.map(Span::as_ns),
            KeyOrder::Criticality => {
                own.criticality.map(|criticality| u64::from(u8::MAX - criticality))
            }
        }
    }
}

/// Returns the key of a priority level. Each level has two queues: the normal queue and, with the
/// next key, the last queue.
fn priority_key(priority: u8) -> u64 {
    2 * u64::from(u8::MAX - priority)
}

/// Whether the scheduler of `spec` propagates the keys of its children (rule 1 of [`super`]).
fn is_transparent(order: KeyOrder, spec: &SchedulerSpec) -> bool {
    KeyOrder::of(&spec.policy) == Some(order)
        && spec.preemptive
        && order.own_key(spec).is_none()
        && spec.reservation.is_none()
        && !is_last_in_level(order, spec)
}

/// Whether the scheduler of `spec` is served after all other nodes of its level.
fn is_last_in_level(order: KeyOrder, spec: &SchedulerSpec) -> bool {
    order == KeyOrder::Priority
        && (spec.overrides.yields || matches!(spec.policy, PolicySpec::Partitions { .. }))
}

/// Returns the key under which the scheduler of `spec` is queued: `key`, or the last of its level.
fn last_in_level(key: u64, order: KeyOrder, spec: &SchedulerSpec) -> u64 {
    if is_last_in_level(order, spec) { key | 1 } else { key }
}

impl TreeAnalysis<'_> {
    /// Returns the key of a task.
    fn task_key(&self, order: KeyOrder, task: NodeId) -> Result<u64, NoBound> {
        let NodeSpec::Task(spec) = self.node_spec(task) else { return Ok(u64::MAX) };
        // The key of a task is known even if the task has no model, except for an inherited one.
        if spec.inherits {
            self.task_model(task)?;
        }
        Ok(match order {
            KeyOrder::Priority => priority_key(spec.priority),
            KeyOrder::Period => spec.period.as_ns(),
            KeyOrder::Deadline => spec.deadline.as_ns(),
            KeyOrder::Criticality => u64::from(u8::MAX - spec.criticality),
        })
    }

    /// Returns the most and the least urgent key that `node` can present; `None` for a scheduler
    /// without tasks.
    pub(super) fn key_range(
        &self,
        order: KeyOrder,
        node: NodeId,
    ) -> Result<Option<(u64, u64)>, NoBound> {
        let spec = match self.node_spec(node) {
            NodeSpec::Task(_) => return self.task_key(order, node).map(|key| Some((key, key))),
            NodeSpec::Scheduler(spec) => spec,
        };
        if let Some(own) = order.own_key(spec) {
            let own = last_in_level(own, order, spec);
            return Ok(Some((own, own)));
        }
        let mut range: Option<(u64, u64)> = None;
        for &child in self.children(node) {
            let Some((most, least)) = self.key_range(order, child)? else { continue };
            range =
                Some(range.map_or((most, least), |range| (range.0.min(most), range.1.max(least))));
        }
        Ok(range.map(|(most, least)| {
            (last_in_level(most, order, spec), last_in_level(least, order, spec))
        }))
    }

    /// Returns the effective key (rule 1 of [`super`]): the least urgent key that `top` can present
    /// while `subject` is pending and its slot is open. `top` is `subject` or an ancestor.
    pub(super) fn effective_key(
        &self,
        order: KeyOrder,
        top: NodeId,
        subject: NodeId,
    ) -> Result<u64, NoBound> {
        let least = |node| Ok(self.key_range(order, node)?.map_or(u64::MAX, |range| range.1));
        let mut key = least(subject)?;
        let mut at = subject;
        while at != top {
            let Some(above) = self.parent(at) else { break };
            let NodeSpec::Scheduler(spec) = self.node_spec(above) else { break };
            let follows = KeyOrder::of(&spec.policy) == Some(order)
                || matches!(spec.policy, PolicySpec::Partitions { .. });
            key = match order.own_key(spec) {
                Some(own) => last_in_level(own, order, spec),
                None if follows && spec.preemptive => last_in_level(key, order, spec),
                None => least(above)?,
            };
            at = above;
        }
        Ok(key)
    }

    /// Whether `node` propagates the keys of its children, as long as its slot is open (rule 1 of
    /// [`super`]).
    pub(super) fn propagates_keys(&self, order: KeyOrder, node: NodeId) -> bool {
        let NodeSpec::Scheduler(spec) = self.node_spec(node) else { return false };
        let follows = KeyOrder::of(&spec.policy) == Some(order)
            || matches!(spec.policy, PolicySpec::Partitions { .. });
        follows && spec.preemptive && order.own_key(spec).is_none() && spec.reservation.is_none()
    }

    /// Returns the siblings of the nodes on the path from `top` to `subject`, as long as keys
    /// propagate to `top`.
    pub(super) fn siblings_on_path(
        &self,
        order: KeyOrder,
        top: NodeId,
        subject: NodeId,
    ) -> Vec<NodeId> {
        let mut path = Vec::from([subject]);
        let mut at = subject;
        while at != top {
            let Some(above) = self.parent(at) else { break };
            path.push(above);
            at = above;
        }
        path.reverse();
        let mut found = Vec::new();
        for step in path.windows(2) {
            let NodeSpec::Scheduler(spec) = self.node_spec(step[0]) else { break };
            if !self.propagates_keys(order, step[0]) {
                break;
            }
            if !matches!(spec.policy, PolicySpec::Partitions { .. }) {
                found.extend(
                    self.children(step[0]).iter().copied().filter(|&child| child != step[1]),
                );
            }
        }
        found
    }

    /// Returns the least urgent key that any interfering part of `nodes` at level `key` can
    /// present. `None` if no part interferes. The interfering parts are those that
    /// [`TreeAnalysis::collect_interference`] collects.
    pub(super) fn least_urgent_interfering_key(
        &self,
        order: KeyOrder,
        nodes: &[NodeId],
        key: u64,
    ) -> Result<Option<u64>, NoBound> {
        let mut worst = None;
        for &node in nodes {
            let range = self.key_range(order, node)?;
            let Some((_, least)) = range.filter(|&(most, _)| most <= key) else { continue };
            let found = match self.node_spec(node) {
                NodeSpec::Scheduler(spec) if is_transparent(order, spec) => {
                    self.least_urgent_interfering_key(order, self.children(node), key)?
                }
                _ => Some(least),
            };
            worst = worst.max(found);
        }
        Ok(worst)
    }

    /// Adds the interference of `node` on a sibling at level `key`. Equal keys interfere unless
    /// `strictly` is true.
    pub(super) fn collect_interference(
        &mut self,
        order: KeyOrder,
        node: NodeId,
        (key, strictly): (u64, bool),
        out: &mut Vec<InterferenceCurve>,
    ) -> Result<(), NoBound> {
        let counts = |urgent: u64| if strictly { urgent < key } else { urgent <= key };
        let Some((most, _)) = self.key_range(order, node)? else { return Ok(()) };
        if !counts(most) {
            return Ok(());
        }
        let NodeSpec::Scheduler(spec) = self.node_spec(node) else {
            return self.collect_all_interference(node, out);
        };
        if is_transparent(order, spec) {
            for child in self.children(node).to_vec() {
                self.collect_interference(order, child, (key, strictly), out)?;
            }
            return Ok(());
        }
        if matches!(spec.policy, PolicySpec::Partitions { .. }) && order.own_key(spec).is_none() {
            return self.collect_table_interference(node, Some((order, key, strictly)), out);
        }
        self.collect_all_interference(node, out)
    }

    /// Adds the interference of all tasks and servers of `node`.
    pub(super) fn collect_all_interference(
        &mut self,
        node: NodeId,
        out: &mut Vec<InterferenceCurve>,
    ) -> Result<(), NoBound> {
        let spec = match self.node_spec(node) {
            NodeSpec::Task(_) => {
                out.push(curve(&self.task_model(node)?.task));
                return Ok(());
            }
            NodeSpec::Scheduler(spec) => spec,
        };
        if let Some(of) = &spec.reservation {
            if let Some(curve) = InterferenceCurve::of_server(of) {
                out.push(curve);
                return Ok(());
            }
            if of.kind != ServerKind::SoftCbs {
                return Err(NoBound { node, reason: Reason::CustomServer });
            }
        }
        if matches!(spec.policy, PolicySpec::Partitions { .. }) {
            return self.collect_table_interference(node, None, out);
        }
        let from = out.len();
        for child in self.children(node).to_vec() {
            self.collect_all_interference(child, out)?;
        }
        // A soft CBS that waits defers arrivals for at most a period and then releases them at
        // once.
        let deferral =
            spec.reservation.filter(can_delay_clients).map_or(Span::ZERO, |of| of.period);
        for curve in &mut out[from..] {
            curve.jitter += deferral;
        }
        Ok(())
    }

    /// Adds the interference of a partition table on its siblings. Jobs may be pending in a closed
    /// partition when a window begins, so arrivals alone do not bound the interference. Two bounds
    /// exist for each partition, and the smaller one applies:
    /// - each slot of the partition once per frame (the worst window begins with a slot);
    /// - for each task, its arrivals within the window extended by its longest response.
    fn collect_table_interference(
        &mut self,
        node: NodeId,
        before: Option<(KeyOrder, u64, bool)>,
        out: &mut Vec<InterferenceCurve>,
    ) -> Result<(), NoBound> {
        let NodeSpec::Scheduler(spec) = self.node_spec(node) else { return Ok(()) };
        let PolicySpec::Partitions { frame, slots, lending } = &spec.policy else { return Ok(()) };
        self.check_slot_boundaries(node)?;
        for (owner, child) in (0..).zip(self.children(node).to_vec()) {
            if let Some((order, key, strictly)) = before {
                let Some((most, _)) = self.key_range(order, child)? else { continue };
                let most = last_in_level(most, order, spec);
                if if strictly { most >= key } else { most > key } {
                    continue;
                }
            }
            let by_slots = slots.iter().filter(|slot| slot.owner == owner);
            let by_slots =
                by_slots.filter_map(|slot| slot.end.checked_sub(slot.start)).map(|length| {
                    InterferenceCurve {
                        cost: Work::from_ns(length.as_ns()),
                        period: *frame,
                        jitter: Span::ZERO,
                    }
                });
            let by_slots: Vec<InterferenceCurve> = by_slots.collect();
            match self.curves_from_responses(child) {
                Some(tasks) if *lending || utilisation(&tasks) < utilisation(&by_slots) => {
                    out.extend(tasks);
                }
                _ if *lending => return Err(NoBound { node, reason: Reason::Lending }),
                _ => out.extend(by_slots),
            }
        }
        Ok(())
    }

    /// Returns an interference curve for every task below `node`; `None` if a task has no bound.
    /// The jitter of a curve is the response bound less the cost.
    pub(super) fn curves_from_responses(&mut self, node: NodeId) -> Option<Vec<InterferenceCurve>> {
        let mut out = Vec::new();
        let mut next = Vec::from([node]);
        while let Some(node) = next.pop() {
            if let NodeSpec::Task(_) = self.node_spec(node) {
                let response = self.bound(node).ok()?;
                let task = self.task_model(node).ok()?.task;
                let late = mutate!(
                    "tree-slots",
                    response.as_ns().saturating_sub(task.cost.as_ns()),
                    task.jitter.as_ns()
                );
                out.push(InterferenceCurve {
                    cost: task.cost,
                    period: task.period,
                    jitter: Span::from_ns(late),
                });
            }
            next.extend_from_slice(self.children(node));
        }
        Some(out)
    }
}

/// Returns the utilization ΣC/T of `curves` in units of 2^-32, rounded up.
pub(super) fn utilisation(curves: &[InterferenceCurve]) -> u128 {
    let one = |curve: &InterferenceCurve| {
        (u128::from(curve.cost.as_ns()) << 32).div_ceil(u128::from(curve.period.as_ns()))
    };
    curves.iter().map(one).sum()
}
