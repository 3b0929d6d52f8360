//! Interference of a node on its siblings: which parts of it count, and their curves.
//!
//! The rules and terms are those of *Effective keys* in [`super`].

use super::bounds::Bounds;
use super::node_supply::can_delay_clients;
use super::priority_keys::{KeyOrder, is_transparent, last_in_level};
use super::task_bound::{NoBound, Reason};
use crate::supply::InterferenceCurve;
use crate::supply::fp::curve;
use alloc::vec::Vec;
use talea_core::engine::{NodeId, NodeSpec};
use talea_core::mutate;
use talea_core::sched::PolicySpec;
use talea_core::server::ServerKind;
use talea_core::{Span, Work};

impl Bounds<'_> {
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
        let Some((most, _)) = self.model.key_range(order, node)? else { return Ok(()) };
        if !counts(most) {
            return Ok(());
        }
        let NodeSpec::Scheduler(spec) = self.model.node_spec(node) else {
            return self.collect_all_interference(node, out);
        };
        if is_transparent(order, spec) {
            for child in self.model.children(node).to_vec() {
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
        let spec = match self.model.node_spec(node) {
            NodeSpec::Task(_) => {
                out.push(curve(&self.model.task_model(node)?.task));
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
        for child in self.model.children(node).to_vec() {
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
        let NodeSpec::Scheduler(spec) = self.model.node_spec(node) else { return Ok(()) };
        let PolicySpec::Partitions { frame, slots, lending } = &spec.policy else { return Ok(()) };
        self.model.check_slot_boundaries(node)?;
        for (owner, child) in (0..).zip(self.model.children(node).to_vec()) {
            if let Some((order, key, strictly)) = before {
                let Some((most, _)) = self.model.key_range(order, child)? else { continue };
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
            if let NodeSpec::Task(_) = self.model.node_spec(node) {
                let response = self.bound(node).ok()?;
                let task = self.model.task_model(node).ok()?.task;
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
            next.extend_from_slice(self.model.children(node));
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
