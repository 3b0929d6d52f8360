//! How much a band can disturb what lies below it, and slots that absorb it (L3C, RTNS 2017,
//! sections 3 and 4.1 G).
//!
//! A band, a server or a task above time partitions takes of their slots what its curves say. So a
//! partition with C of work in every slot has it as long as a slot holds C and what the band takes
//! within the slot's length; what it takes beyond is the partition's loss. [`interference`] is that
//! bound for any window; [`absorb`] finds the least slot, and [`stretch`] a table in which every
//! slot holds what it held before the band was there.
//!
//! Assumptions: those of [`super`]; the band's curves are bounds for windows that begin when
//! nothing of the band pends, or, where somebody may have made it wait, for any; and one nanosecond
//! of a slot is as good as another.
//!
//! *Who makes a band wait.* What has the CPU whenever it wants takes of any window no more than of
//! one that begins as it does: a window that begins later holds as much less as was done before.
//! What had to wait for somebody else (a task of TP_0 below one partition and above another), or
//! for its slot, comes with what it could not do before: a task with all jobs of its longest
//! response. A server has its budget and no more, whenever it is served (sporadic ones and CBS if
//! they are served in time), twice in a row.

use super::answer::{NoTest, Reason};
use super::keys::Order;
use super::roots::Roots;
use super::walk::Walk;
use crate::supply::Curve;
use crate::supply::curve::all_within;
use crate::uni::HORIZON;
use alloc::vec::Vec;
use talea_core::machine::{Body, NodeId, Tree};
use talea_core::mutate;
use talea_core::sched::{Policy, Slot};
use talea_core::server::Kind as Server;
use talea_core::{Span, Work};

/// The most that `band` takes within any window of this length, of a CPU that it has whenever it
/// wants.
///
/// A window that begins while the band pends holds no more than the one that begins as it began to,
/// so that the bound is good for any; and never more than the window.
pub fn interference(band: &[Curve], window: Span) -> Work {
    Work::from_ns(all_within(band, window.as_ns()).min(window.as_ns()))
}

/// The least slot in which `work` is done although `band` interferes; `None` where the band leaves
/// too little in the long run.
///
/// It is the response time of `work` below the band: the slot's end may not come before.
pub fn absorb(work: Work, band: &[Curve]) -> Option<Span> {
    let mut slot = work.as_ns();
    // Each round ends more jobs of the band, or is the last; what grows beyond the horizon never
    // fits.
    for _ in 0..1 << 20 {
        let next = work
            .as_ns()
            .saturating_add(all_within(band, mutate!("tree-absorb", slot, work.as_ns())));
        if next <= slot {
            return Some(Span::from_ns(slot));
        }
        if next > HORIZON {
            return None;
        }
        slot = next;
    }
    None
}

/// A table in the same frame whose slots hold, below `band`, what `slots` hold without it: in the
/// same order, each begun no earlier than before, and later only to make room. `Err`: the frame
/// that they would need.
///
/// # Errors
/// A longer frame that is enough, or `None` where no frame is, because the band leaves too little
/// in the long run.
pub fn stretch(frame: Span, slots: &[Slot], band: &[Curve]) -> Result<Vec<Slot>, Option<Span>> {
    stretch_each(frame, slots, |_| band)
}

/// The same, with what is above each slot.
///
/// # Errors
/// As [`stretch`].
pub fn stretch_each<'b>(
    frame: Span,
    slots: &[Slot],
    band: impl Fn(&Slot) -> &'b [Curve],
) -> Result<Vec<Slot>, Option<Span>> {
    let mut free = Span::ZERO;
    let mut stretched = Vec::with_capacity(slots.len());
    for slot in slots {
        let length = slot.end.checked_sub(slot.start).unwrap_or(Span::ZERO);
        let start = slot.start.max(free);
        free = start + absorb(Work::from_ns(length.as_ns()), band(slot)).ok_or(None)?;
        stretched.push(Slot { start, end: free, owner: slot.owner });
    }
    if free <= frame { Ok(stretched) } else { Err(Some(free)) }
}

/// Slots for a whole table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Absorbed {
    /// In each of them is room for what it held and for all that is above.
    Slots(Vec<Slot>),
    /// The frame is too short; one of this length at least would be needed, or none is enough.
    NoRoom(Option<Span>),
}

impl Roots<'_> {
    /// The slots of `table` that absorb what is above them, the frame as it is. Longer slots make
    /// those above wait longer, which then takes more of other slots: stretched until nothing
    /// changes.
    ///
    /// # Errors
    /// As [`Roots::above_partition`]; [`Reason::Limit`] if it takes too many rounds.
    pub fn absorbed(&self, table: NodeId) -> Result<Absorbed, NoTest> {
        let no = |reason| NoTest { node: table, reason };
        let spec = |tree: &Tree| match tree.get(table).map(|node| &node.body) {
            Some(Body::Scheduler(spec)) => Some(spec.policy.clone()),
            _ => None,
        };
        let Some(Policy::Partitions { frame, slots, lending }) = spec(self.tree) else {
            return Ok(Absorbed::Slots(Vec::new()));
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
            let roots = Roots { tree: &tree, ..*self };
            let above = partitions.iter().map(|&partition| roots.above_partition(partition));
            let above: Vec<Vec<Curve>> = above.collect::<Result<_, _>>()?;
            let of = |slot: &Slot| above.get(slot.owner as usize).map_or(&[][..], Vec::as_slice);
            let next = mutate!(
                "analysis-band-once",
                match stretch_each(frame, &slots, of) {
                    Ok(next) if next == now => return Ok(Absorbed::Slots(next)),
                    Ok(next) => next,
                    Err(needed) => return Ok(Absorbed::NoRoom(needed)),
                },
                match stretch_each(frame, &slots, of) {
                    Ok(next) if next == now || !next.is_empty() =>
                        return Ok(Absorbed::Slots(next)),
                    Ok(next) => next,
                    Err(needed) => return Ok(Absorbed::NoRoom(needed)),
                }
            );
            now.clone_from(&next);
            if let Some(Body::Scheduler(spec)) = tree.get_mut(table).map(|node| &mut node.body) {
                spec.policy = Policy::Partitions { frame, slots: next, lending };
            }
        }
        Err(no(Reason::Limit))
    }

    /// What `node` (a band, a server, a group, a task) takes of any window of the CPU, whoever
    /// makes it wait.
    ///
    /// # Errors
    /// [`NoTest`] for what has no known bound.
    pub fn taken_anywhere(&self, node: NodeId) -> Result<Vec<Curve>, NoTest> {
        let mut walk = Walk::new(self);
        walk.is_covered()?;
        let mut out = Vec::new();
        if walk.is_first(node)? {
            walk.collect_all(node, &mut out)?;
        } else {
            walk.collect_late(node, &mut out)?;
        }
        Ok(out)
    }

    /// What those outside of the table may take, before anything of `partition` (a child of a
    /// partition table), of a window that begins with its slot.
    ///
    /// # Errors
    /// [`NoTest`] for what has no known bound, or where the table lives on a server.
    pub fn above_partition(&self, partition: NodeId) -> Result<Vec<Curve>, NoTest> {
        let mut walk = Walk::new(self);
        walk.is_covered()?;
        let mut out = Vec::new();
        for (who, is_late) in walk.others_above(partition)? {
            if is_late {
                walk.collect_late(who, &mut out)?;
            } else {
                walk.collect_all(who, &mut out)?;
            }
        }
        Ok(out)
    }

    /// Whether `who`, or something of it, may be served before anything of `partition`.
    ///
    /// # Errors
    /// As [`Roots::above_partition`].
    pub fn disturbs(&self, who: NodeId, partition: NodeId) -> Result<bool, NoTest> {
        let walk = Walk::new(self);
        walk.is_covered()?;
        let above = walk.others_above(partition)?;
        let mut at = Some(who);
        while let Some(node) = at {
            if above.iter().any(|&(other, _)| other == node) {
                return Ok(true);
            }
            at = walk.parent(node);
        }
        Ok(false)
    }
}

impl Walk<'_> {
    /// Siblings of the table, and of whatever the table is in, of which something may be served
    /// before something of `partition`: whole siblings, what of them is less urgent counts as well.
    /// With `true` where another partition may in turn come before it: jobs that waited for that
    /// one's slot come together in the slot of this one.
    fn others_above(&self, partition: NodeId) -> Result<Vec<(NodeId, bool)>, NoTest> {
        let mut found = Vec::new();
        let table = self.parent(partition).unwrap_or(partition);
        let mut next = table;
        while let Some(at) = self.parent(next) {
            let Body::Scheduler(spec) = self.body(at) else { break };
            if spec.reservation.is_some() || matches!(spec.policy, Policy::Partitions { .. }) {
                return Err(NoTest { node: at, reason: Reason::NestedTable });
            }
            if !spec.preemptive {
                return Err(NoTest { node: at, reason: Reason::NonPreemptiveTable });
            }
            let others: Vec<NodeId> =
                self.kids(at).iter().copied().filter(|&kid| kid != next).collect();
            let Some(order) = Order::of(&spec.policy) else {
                found.extend(others.into_iter().map(|other| (other, true)));
                next = at;
                continue;
            };
            // Of the partition the least urgent; whoever is before that, and, since he may wait for
            // them, before him.
            let all = self.range(order, next)?;
            let own = if next == table && self.passes(order, table) {
                self.range(order, partition)?
            } else {
                all
            };
            let (Some((_, mut key)), Some((most, _))) = (own, all) else { break };
            while let Some(least) = self.least_above(order, &others, behind_all(key))? {
                if least <= key {
                    break;
                }
                key = least;
            }
            for other in others {
                if let Some((urgent, least)) = self.range(order, other)?
                    && urgent <= behind_all(key)
                {
                    found.push((
                        other,
                        mutate!(
                            "analysis-band-late",
                            most <= behind_all(least),
                            most > behind_all(least) && most == u64::MAX
                        ),
                    ));
                }
            }
            next = at;
        }
        Ok(found)
    }

    /// Whether nothing makes something of `node` wait that is outside of it: somebody else, or a
    /// slot that is closed.
    fn is_first(&self, node: NodeId) -> Result<bool, NoTest> {
        let mut next = node;
        while let Some(at) = self.parent(next) {
            let Body::Scheduler(spec) = self.body(at) else { break };
            let others = self.kids(at).iter().copied().filter(|&kid| kid != next);
            let order = Order::of(&spec.policy);
            let is_table = matches!(spec.policy, Policy::Partitions { .. });
            if spec.reservation.is_some()
                || !spec.preemptive
                || mutate!("tree-closed-slot", is_table, is_table && spec.own.yields)
            {
                return Ok(false);
            }
            for other in others {
                let Some(order) = order else { return Ok(false) };
                let (own, other) = (self.range(order, next)?, self.range(order, other)?);
                if let (Some((_, least)), Some((most, _))) = (own, other)
                    && most <= behind_all(least)
                {
                    return Ok(false);
                }
            }
            next = at;
        }
        Ok(true)
    }

    /// Adds all of `node`, which may have to wait: of a server what its budget allows in any
    /// window, of a task what comes up to its longest response before the window ends.
    fn collect_late(&mut self, node: NodeId, out: &mut Vec<Curve>) -> Result<(), NoTest> {
        let spec = match self.body(node) {
            Body::Task(_) => {
                let response = self.bound(node)?;
                let task = self.leaf(node)?.task;
                let late = response.as_ns().saturating_sub(task.cost.as_ns());
                out.push(Curve {
                    cost: task.cost,
                    period: task.period,
                    jitter: Span::from_ns(late),
                });
                return Ok(());
            }
            Body::Scheduler(spec) => spec,
        };
        if let Some(of) = &spec.reservation {
            if self.goes_on_above(node) {
                return Err(NoTest { node, reason: Reason::ServerNotPreemptive });
            }
            if let Some(mut curve) = Curve::of_server(of) {
                // Whatever the kind: a budget at the end of its period, and the next at its begin.
                curve.jitter = Span::from_ns(of.period.as_ns().saturating_sub(of.budget.as_ns()));
                // Where these do not have their budgets in time, one may follow the other as soon
                // as it is used.
                if matches!(of.kind, Server::Sporadic | Server::HardCbs) {
                    self.supply_of(node)?;
                }
                out.push(curve);
                return Ok(());
            }
            if of.kind != Server::SoftCbs {
                return Err(NoTest { node, reason: Reason::CustomServer });
            }
        }
        for kid in self.kids(node).to_vec() {
            self.collect_late(kid, out)?;
        }
        Ok(())
    }
}

/// The last of a level: at equal levels nobody is sure to be first.
fn behind_all(key: u64) -> u64 {
    key | 1
}
