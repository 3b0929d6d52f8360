//! Schedulers with fixed keys: the keys that a node can present.
//!
//! The rules and terms are those of *Effective keys* in [`super`]. The smallest key is the most
//! urgent.

use super::model::Model;
use super::task_bound::NoBound;
use alloc::vec::Vec;
use talea_core::Span;
use talea_core::engine::{NodeId, NodeSpec, SchedulerSpec};
use talea_core::sched::PolicySpec;

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
    pub(super) fn own_key(self, spec: &SchedulerSpec) -> Option<u64> {
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
pub(super) fn is_transparent(order: KeyOrder, spec: &SchedulerSpec) -> bool {
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
pub(super) fn last_in_level(key: u64, order: KeyOrder, spec: &SchedulerSpec) -> u64 {
    if is_last_in_level(order, spec) { key | 1 } else { key }
}

/// Level of a scheduler with fixed keys, which a child that propagates keys inherits (rule 5 of
/// [`super`]).
#[derive(Clone, Copy, Debug)]
pub(super) struct KeyLevel {
    pub(super) order: KeyOrder,
    /// K: a node interferes if its most urgent key is at most K.
    pub(super) key: u64,
    /// Whether a sibling with a larger number needs a strictly more urgent key (rule 4).
    pub(super) wins_ties: bool,
    /// Least urgent key of the interfering nodes; `None` if no node interferes.
    least_urgent: Option<u64>,
}

impl Model<'_> {
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
    /// [`super::interference`] collects.
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

    /// Returns the level of `next`, a node on the path to `subject`, among its siblings `others`
    /// (rules 1 to 4 of [`super`]). `inherited` is the level of the scheduler above.
    pub(super) fn key_level(
        &self,
        (order, inherited): (KeyOrder, Option<KeyLevel>),
        (next, subject): (NodeId, NodeId),
        others: &[NodeId],
    ) -> Result<KeyLevel, NoBound> {
        // Rules 1 and 2: the effective key, or the inherited level if that is less urgent.
        let effective = self.effective_key(order, next, subject)?;
        let start = inherited.map_or(effective, |level| effective.max(level.key));
        let least_urgent = inherited.and_then(|level| level.least_urgent);
        let wins_ties = self.wins_ties(order, next, others, (effective, least_urgent))?;
        let siblings = [others, &self.siblings_on_path(order, next, subject)].concat();
        let (key, least_urgent) = self.close_level(order, &siblings, (start, least_urgent))?;
        Ok(KeyLevel { order, key, wins_ties: wins_ties && key == effective, least_urgent })
    }

    /// Rule 4, ties: a sibling with a larger number loses against `next`, but perhaps not against
    /// an interfering node that can present the same key.
    fn wins_ties(
        &self,
        order: KeyOrder,
        next: NodeId,
        others: &[NodeId],
        (effective, least_urgent): (u64, Option<u64>),
    ) -> Result<bool, NoBound> {
        let mut wins = !order.is_fifo() && least_urgent < Some(effective);
        for &other in others.iter().filter(|&&other| other > next) {
            let range = self.key_range(order, other)?;
            wins &= range.is_none_or(|(most, least)| most >= effective || least < effective);
        }
        Ok(wins)
    }

    /// Rule 3, closure: raises the key until every interfering node is served before every node
    /// that does not interfere, also before those further down the path. Returns the key and the
    /// least urgent interfering key.
    fn close_level(
        &self,
        order: KeyOrder,
        siblings: &[NodeId],
        (mut key, mut least_urgent): (u64, Option<u64>),
    ) -> Result<(u64, Option<u64>), NoBound> {
        while let Some(least) = self.least_urgent_interfering_key(order, siblings, key)? {
            least_urgent = least_urgent.max(Some(least));
            if least <= key {
                break;
            }
            key = least;
        }
        Ok((key, least_urgent))
    }

    /// Whether other children of `next` can run before an interfering node of `level` (rule 5).
    pub(super) fn can_be_overtaken(&self, level: &KeyLevel, next: NodeId) -> Result<bool, NoBound> {
        Ok(level.least_urgent >= self.key_range(level.order, next)?.map(|(most, _)| most))
    }
}
