//! Interference of higher-priority work on time partitions, and slots that absorb it (L3C, RTNS
//! 2017, sections 3 and 4.1 G).
//!
//! An *interfering group* is a set of nodes that is served before the partitions: the tasks of an
//! EDF scheduler, a server, a task. The group consumes time of the slots up to its interference
//! curves. A partition with work C in every slot completes it if the slot covers C and the
//! interference within the slot's length. Otherwise the partition loses the excess.
//! [`interference`] is the bound of the interference in any window. [`min_slot`] is the shortest
//! sufficient slot. [`stretch_slots`] returns a table whose slots hold the same work as before.
//!
//! Assumptions: those of [`super`]. The curves bound windows that begin when no work of the
//! interfering group is pending. If other nodes can delay the interfering group, the curves bound
//! all windows. Any nanosecond of a slot is as useful as another.
//!
//! *Delayed interfering groups.* Let a window begin with a release of an interfering group that is
//! never delayed. The interfering group consumes no more of any other window: a window that begins
//! later holds less by the work done before. A task of TP_0 below one partition and above another
//! is an example of a delayed interfering group. An interfering group that was delayed, or that
//! waited for its slot, arrives with a backlog. The backlog of a task is all jobs within its
//! longest response. A server is limited to its budget whenever it is served, twice in a row. For
//! sporadic servers and CBS this holds only if they are served in time.

use super::bounds::Bounds;
use super::passes::Passes;
use super::priority_keys::KeyOrder;
use super::root_model::RootModel;
use super::task_bound::{NoBound, Reason};
use crate::supply::InterferenceCurve;
use crate::supply::curve::all_within;
use crate::uni::HORIZON_NS;
use alloc::vec::Vec;
use talea_core::engine::{NodeId, NodeSpec, Tree};
use talea_core::mutate;
use talea_core::sched::{PolicySpec, Slot};
use talea_core::server::ServerKind;
use talea_core::{Span, Work};

/// Returns the upper limit of the CPU time that the interfering group consumes of any window of
/// length `window`. The CPU is never denied to the interfering group.
///
/// A window that begins while the interfering group is pending holds no more than the window that
/// begins with the pending work. So the bound holds for any window. The bound never exceeds the
/// window.
pub fn interference(group: &[InterferenceCurve], window: Span) -> Work {
    Work::from_ns(all_within(group, window.as_ns()).min(window.as_ns()))
}

/// Returns the shortest slot in which `work` completes despite the interference of `group`; `None`
/// if the interfering group leaves too little time in the long run.
///
/// This slot is the response time of `work` below the interfering group.
pub fn min_slot(work: Work, group: &[InterferenceCurve]) -> Option<Span> {
    let mut slot = work.as_ns();
    // Each round covers at least one more job of the group, or is the last. A value beyond the
    // horizon never fits.
    for _ in 0..1 << 20 {
        let next = work
            .as_ns()
            .saturating_add(all_within(group, mutate!("tree-absorb", slot, work.as_ns())));
        if next <= slot {
            return Some(Span::from_ns(slot));
        }
        if next > HORIZON_NS {
            return None;
        }
        slot = next;
    }
    None
}

/// Returns a table with the same frame and stretched slots, in the same order. Below the
/// interfering group `group`, a slot of the table holds the work that its original in `slots` holds
/// without interference. A slot starts no earlier than before, and later only if the slot before it
/// ends later.
///
/// # Errors
/// The frame length that would suffice, or `None` if no frame suffices because the interfering
/// group leaves too little time in the long run.
pub fn stretch_slots(
    frame: Span,
    slots: &[Slot],
    group: &[InterferenceCurve],
) -> Result<Vec<Slot>, Option<Span>> {
    stretch_slots_each(frame, slots, |_| group)
}

/// Returns the table of [`stretch_slots`] with a separate interfering group for each slot.
///
/// # Errors
/// As [`stretch_slots`].
pub fn stretch_slots_each<'b>(
    frame: Span,
    slots: &[Slot],
    group: impl Fn(&Slot) -> &'b [InterferenceCurve],
) -> Result<Vec<Slot>, Option<Span>> {
    let mut free = Span::ZERO;
    let mut stretched = Vec::with_capacity(slots.len());
    for slot in slots {
        let length = slot.end.checked_sub(slot.start).unwrap_or(Span::ZERO);
        let start = slot.start.max(mutate!("tree-stretch", free, slot.start));
        free = start + min_slot(Work::from_ns(length.as_ns()), group(slot)).ok_or(None)?;
        stretched.push(Slot { start, end: free, owner: slot.owner });
    }
    if free <= frame { Ok(stretched) } else { Err(Some(free)) }
}

/// Table whose slots absorb interference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AbsorbedTable {
    /// Slots that hold their previous work and all interference.
    Slots(Vec<Slot>),
    /// The frame is too short. The value is the least sufficient length; `None` if no frame
    /// suffices.
    FrameTooShort(Option<Span>),
}

impl RootModel<'_> {
    /// Returns the slots of `table` that absorb the interference on them, with the frame unchanged.
    /// Longer slots delay interfering nodes, which can then consume more of other slots. The
    /// function iterates until nothing changes. A node without a partition table has no slots.
    ///
    /// # Errors
    /// As [`RootModel::interference_above_partition`]; [`Reason::Limit`] after too many rounds.
    pub fn absorbing_slots(&self, table: NodeId) -> Result<AbsorbedTable, NoBound> {
        let no = |reason| NoBound { node: table, reason };
        let spec = |tree: &Tree| match tree.get(table).map(|node| &node.spec) {
            Some(NodeSpec::Scheduler(spec)) => Some(spec.policy.clone()),
            _ => None,
        };
        let Some(PolicySpec::Partitions { frame, slots, lending }) = spec(self.tree) else {
            return Ok(AbsorbedTable::Slots(Vec::new()));
        };
        let partitions: Vec<NodeId> = self
            .tree
            .nodes()
            .filter(|(_, node)| node.parent == Some(table))
            .map(|(node, _)| node)
            .collect();
        let mut tree = self.tree.clone();
        let mut now = slots.clone();
        for _ in 0..64 {
            let roots = RootModel { tree: &tree, ..*self };
            let above =
                partitions.iter().map(|&partition| roots.interference_above_partition(partition));
            let above: Vec<Vec<InterferenceCurve>> = above.collect::<Result<_, _>>()?;
            let of = |slot: &Slot| above.get(slot.owner as usize).map_or(&[][..], Vec::as_slice);
            let next = mutate!(
                "analysis-band-once",
                match stretch_slots_each(frame, &slots, of) {
                    Ok(next) if next == now => return Ok(AbsorbedTable::Slots(next)),
                    Ok(next) => next,
                    Err(needed) => return Ok(AbsorbedTable::FrameTooShort(needed)),
                },
                match stretch_slots_each(frame, &slots, of) {
                    Ok(next) if next == now || !next.is_empty() =>
                        return Ok(AbsorbedTable::Slots(next)),
                    Ok(next) => next,
                    Err(needed) => return Ok(AbsorbedTable::FrameTooShort(needed)),
                }
            );
            now.clone_from(&next);
            if let Some(NodeSpec::Scheduler(spec)) = tree.get_mut(table).map(|node| &mut node.spec)
            {
                spec.policy = PolicySpec::Partitions { frame, slots: next, lending };
            }
        }
        Err(no(Reason::Limit))
    }

    /// Returns interference curves of `node`, a task or a scheduler, for any window of the CPU. The
    /// curves are valid even if other nodes delay `node`.
    ///
    /// # Errors
    /// [`NoBound`] for a node without a known bound.
    pub fn interference_in_any_window(
        &self,
        node: NodeId,
    ) -> Result<Vec<InterferenceCurve>, NoBound> {
        let passes = Passes::of(self);
        let mut bounds = passes.bounds();
        bounds.check_covered()?;
        let mut out = Vec::new();
        if bounds.is_never_delayed(node)? {
            bounds.collect_all_interference(node, &mut out)?;
        } else {
            bounds.collect_delayed_interference(node, &mut out)?;
        }
        Ok(out)
    }

    /// Returns interference curves of the nodes outside the table that are served before
    /// `partition` (a child of a partition table), for windows that begin with its slot.
    ///
    /// # Errors
    /// [`NoBound`] for a node without a known bound, or if the table is below a server.
    pub fn interference_above_partition(
        &self,
        partition: NodeId,
    ) -> Result<Vec<InterferenceCurve>, NoBound> {
        let passes = Passes::of(self);
        let mut bounds = passes.bounds();
        bounds.check_covered()?;
        let mut out = Vec::new();
        for (subject, is_late) in bounds.interfering_siblings(partition)? {
            if is_late {
                bounds.collect_delayed_interference(subject, &mut out)?;
            } else {
                bounds.collect_all_interference(subject, &mut out)?;
            }
        }
        Ok(out)
    }

    /// Whether `subject`, or a node below it, can be served before some node of `partition`.
    ///
    /// # Errors
    /// As [`RootModel::interference_above_partition`].
    pub fn can_interfere(&self, subject: NodeId, partition: NodeId) -> Result<bool, NoBound> {
        let passes = Passes::of(self);
        let bounds = passes.bounds();
        bounds.check_covered()?;
        let above = bounds.interfering_siblings(partition)?;
        let mut at = Some(subject);
        while let Some(node) = at {
            if above.iter().any(|&(other, _)| other == node) {
                return Ok(true);
            }
            at = passes.model.parent(node);
        }
        Ok(false)
    }
}

impl Bounds<'_> {
    /// Returns the siblings of the table and of its ancestors of which some part can be served
    /// before some part of `partition`. A sibling counts as a whole, with its less urgent parts.
    /// The flag is `true` if another partition can in turn be served before the sibling. Jobs of
    /// the sibling that waited for the slot of that partition then arrive together in the slot of
    /// `partition`.
    fn interfering_siblings(&self, partition: NodeId) -> Result<Vec<(NodeId, bool)>, NoBound> {
        let mut found = Vec::new();
        let table = self.model.parent(partition).unwrap_or(partition);
        let mut next = table;
        while let Some(at) = self.model.parent(next) {
            let NodeSpec::Scheduler(spec) = self.model.node_spec(at) else { break };
            if spec.reservation.is_some() || matches!(spec.policy, PolicySpec::Partitions { .. }) {
                return Err(NoBound { node: at, reason: Reason::NestedTable });
            }
            if !spec.preemptive {
                return Err(NoBound { node: at, reason: Reason::NonPreemptiveTable });
            }
            let others: Vec<NodeId> =
                self.model.children(at).iter().copied().filter(|&child| child != next).collect();
            let Some(order) = KeyOrder::of(&spec.policy) else {
                found.extend(others.into_iter().map(|other| (other, true)));
                next = at;
                continue;
            };
            // The partition's least urgent key. A node that is served before it interferes, and so
            // does a node that is served before an interfering node.
            let all = self.model.key_range(order, next)?;
            let own = if next == table && self.model.propagates_keys(order, table) {
                self.model.key_range(order, partition)?
            } else {
                all
            };
            let (Some((_, mut key)), Some((most, _))) = (own, all) else { break };
            while let Some(least) =
                self.model.least_urgent_interfering_key(order, &others, level_end(key))?
            {
                if least <= key {
                    break;
                }
                key = least;
            }
            for other in others {
                if let Some((urgent, least)) = self.model.key_range(order, other)?
                    && urgent <= level_end(key)
                {
                    found.push((
                        other,
                        mutate!(
                            "analysis-band-late",
                            most <= level_end(least),
                            most > level_end(least) && most == u64::MAX
                        ),
                    ));
                }
            }
            next = at;
        }
        Ok(found)
    }

    /// Whether no node outside `node`, and no closed slot, can delay any part of it.
    fn is_never_delayed(&self, node: NodeId) -> Result<bool, NoBound> {
        let mut next = node;
        while let Some(at) = self.model.parent(next) {
            let NodeSpec::Scheduler(spec) = self.model.node_spec(at) else { break };
            let others = self.model.children(at).iter().copied().filter(|&child| child != next);
            let order = KeyOrder::of(&spec.policy);
            let is_table = matches!(spec.policy, PolicySpec::Partitions { .. });
            if spec.reservation.is_some()
                || !spec.preemptive
                || mutate!("tree-closed-slot", is_table, is_table && spec.overrides.yields)
            {
                return Ok(false);
            }
            for other in others {
                let Some(order) = order else { return Ok(false) };
                let (own, other) =
                    (self.model.key_range(order, next)?, self.model.key_range(order, other)?);
                if let (Some((_, least)), Some((most, _))) = (own, other)
                    && most <= level_end(least)
                {
                    return Ok(false);
                }
            }
            next = at;
        }
        Ok(true)
    }

    /// Adds the interference of all of `node`, which other nodes may delay. For a server, the
    /// interference is what its budget allows in any window. For a task, it is the arrivals within
    /// the window extended by the longest response of the task.
    fn collect_delayed_interference(
        &mut self,
        node: NodeId,
        out: &mut Vec<InterferenceCurve>,
    ) -> Result<(), NoBound> {
        let spec = match self.model.node_spec(node) {
            NodeSpec::Task(_) => {
                let response = self.bound(node)?;
                let task = self.model.task_model(node)?.task;
                let late = response.as_ns().saturating_sub(task.cost.as_ns());
                out.push(InterferenceCurve {
                    cost: task.cost,
                    period: task.period,
                    jitter: Span::from_ns(late),
                });
                return Ok(());
            }
            NodeSpec::Scheduler(spec) => spec,
        };
        if let Some(of) = &spec.reservation {
            if self.model.has_non_preemptive_ancestor(node) {
                return Err(NoBound { node, reason: Reason::ServerNotPreemptive });
            }
            if let Some(mut curve) = InterferenceCurve::of_server(of) {
                // For any kind of server: a budget at the end of its period, and the next at the
                // beginning of the next.
                curve.jitter = Span::from_ns(of.period.as_ns().saturating_sub(of.budget.as_ns()));
                // If these servers do not receive their budgets in time, the next budget may follow
                // the previous one immediately.
                if matches!(of.kind, ServerKind::Sporadic | ServerKind::HardCbs) {
                    self.server_supply(node)?;
                }
                out.push(curve);
                return Ok(());
            }
            if of.kind != ServerKind::SoftCbs {
                return Err(NoBound { node, reason: Reason::CustomServer });
            }
        }
        for child in self.model.children(node).to_vec() {
            self.collect_delayed_interference(child, out)?;
        }
        Ok(())
    }
}

/// Returns the last key of the level of `key`. No order is guaranteed between nodes of one level.
fn level_end(key: u64) -> u64 {
    key | 1
}
