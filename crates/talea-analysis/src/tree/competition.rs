//! Context of a node: supply, interference and blocking along the path from its server or root.

use super::bounds::Bounds;
use super::context::{Context, NonPreemptive};
use super::node_supply::NodeSupply;
use super::priority_keys::{KeyLevel, KeyOrder};
use super::task_bound::{NoBound, Reason};
use crate::supply::Table;
use alloc::vec::Vec;
use talea_core::engine::{NodeId, NodeSpec};
use talea_core::mutate;
use talea_core::sched::PolicySpec;

impl Bounds<'_> {
    /// Returns the context of `subject`, a task or a server, below the nearest server or the root.
    pub(super) fn context(&mut self, subject: NodeId) -> Result<Context, NoBound> {
        let mut context = self.build_context(subject)?;
        context.blocking =
            context.blocking.saturating_add(self.model.pending_dispatch_blocking(&context));
        let lost = self.model.lost;
        if mutate!(
            "tree-lost-server",
            !lost.is_zero(),
            !lost.is_zero() && matches!(self.model.node_spec(subject), NodeSpec::Task(_))
        ) {
            let loss = mutate!("tree-lost-supply", lost, talea_core::Span::ZERO);
            context.supply = context.supply.with_loss(loss);
            context.flat = None;
            // Under EDF the blocking term already counts every started job.
            mutate!(
                "tree-lost-level",
                context.non_preemptive = context.non_preemptive.filter(|_| context.level.is_none())
            );
        }
        Ok(context)
    }

    /// Builds the context of `subject` by the rules of [`super`] (*Effective keys*), from the top
    /// of its path downwards.
    fn build_context(&mut self, subject: NodeId) -> Result<Context, NoBound> {
        let mut path = Vec::from([subject]);
        let mut top = subject;
        while let Some(above) = self.model.parent(top) {
            path.push(above);
            top = above;
            if self.model.is_supply_boundary(above) {
                break;
            }
        }
        path.reverse();
        let supply = if self.model.is_supply_boundary(top) && top != subject {
            self.server_supply(top)?
        } else {
            NodeSupply::Dedicated
        };
        let is_flat = matches!(supply, NodeSupply::Dedicated)
            && self.model.dispatch_cost == 0
            && self.model.release_interference.is_empty()
            && !self.blocking.has_terms();
        let mut context = Context {
            supply,
            above: self.model.release_interference.clone(),
            blocking: self.blocking.term(subject),
            level: None,
            flat: is_flat.then(Vec::new),
            non_preemptive: None,
        };
        // Every sibling interferes, whatever its key (rule 5): no subset of the siblings is served
        // before all other nodes.
        let mut all_interfere = false;
        let mut inherited: Option<KeyLevel> = None;
        for step in path.windows(2) {
            let (at, next) = (step[0], step[1]);
            let NodeSpec::Scheduler(spec) = self.model.node_spec(at) else { continue };
            let others: Vec<NodeId> =
                self.model.children(at).iter().copied().filter(|&child| child != next).collect();
            if let Some(order) = KeyOrder::of(&spec.policy).filter(|_| !all_interfere) {
                let above = inherited.filter(|level| level.order == order);
                let level = self.model.key_level((order, above), (next, subject), &others)?;
                self.collect_key_level(&level, next, &others, &mut context)?;
                if next != subject {
                    context.flat = None;
                }
                // Rule 5, inherited level.
                inherited = self.model.propagates_keys(order, next).then_some(level);
                if inherited.is_none() && self.model.can_be_overtaken(&level, next)? {
                    all_interfere = next != subject;
                }
                if !spec.preemptive {
                    self.add_non_preemptive_blocking((at, next, subject), &others, &mut context)?;
                }
                continue;
            }
            match &spec.policy {
                PolicySpec::Partitions { frame, slots, lending } => {
                    context.flat = None;
                    self.model.check_slot_boundaries(at)?;
                    if !matches!(context.supply, NodeSupply::Dedicated) {
                        return Err(NoBound { node: at, reason: Reason::NestedTable });
                    }
                    let owner = self
                        .model
                        .children(at)
                        .iter()
                        .position(|&child| child == next)
                        .unwrap_or(0);
                    context.supply = NodeSupply::Table(Table::new(*frame, slots, owner as u32));
                    // Rule 5 again: the table passed the level on, the partition may not.
                    if let Some(level) = inherited
                        && !self.model.propagates_keys(level.order, next)
                    {
                        inherited = None;
                        all_interfere |=
                            next != subject && self.model.can_be_overtaken(&level, next)?;
                    }
                    if *lending && !context.above.is_empty() {
                        // Time that an interfering node lets the table lend to other partitions is
                        // missing later.
                        for other in others {
                            let curves = self.curves_from_responses(other);
                            let curves =
                                curves.ok_or(NoBound { node: at, reason: Reason::Lending })?;
                            context.above.extend(curves);
                        }
                    }
                }
                PolicySpec::Edf
                    if !all_interfere && self.model.is_in_edf_level(at, next, subject) =>
                {
                    if !spec.preemptive {
                        let is_flat = context.flat.take().is_some()
                            && self.model.is_flat_queue(at, next, subject);
                        context.non_preemptive =
                            is_flat.then(|| NonPreemptive { above: Vec::new(), below: others });
                        self.model.forbid_servers(at)?;
                        // One term for the whole level.
                        let children = self.model.children(at).to_vec();
                        context.blocking += self.model.longest_non_preemptive(&children)?;
                    }
                    context.level = Some((at, false));
                    return Ok(context);
                }
                PolicySpec::Fifo
                    if !all_interfere && self.model.is_flat_queue(at, next, subject) =>
                {
                    if !spec.preemptive {
                        // A job may be released after a job that arrived later and has started.
                        context.flat = None;
                        let children = self.model.children(at).to_vec();
                        context.blocking += self.model.longest_non_preemptive(&children)?;
                    }
                    context.level = Some((at, true));
                    return Ok(context);
                }
                _ => {
                    context.flat = None;
                    if !spec.preemptive {
                        self.model.forbid_servers(at)?;
                    }
                    for &other in &others {
                        self.collect_all_interference(other, &mut context.above)?;
                    }
                    mutate!("tree-closure", all_interfere = true);
                }
            }
        }
        Ok(context)
    }

    /// Adds the interference of `others`, the siblings of `next`, at a level with fixed keys.
    fn collect_key_level(
        &mut self,
        level: &KeyLevel,
        next: NodeId,
        others: &[NodeId],
        context: &mut Context,
    ) -> Result<(), NoBound> {
        let (order, key) = (level.order, level.key);
        for &other in others {
            let strictly = level.wins_ties && other > next;
            // In a FIFO level the order of equals depends on their arrivals.
            let is_tie = order.is_fifo()
                && self
                    .model
                    .key_range(order, other)?
                    .is_some_and(|(most, least)| most <= key && key <= least);
            let before = context.above.len();
            self.collect_interference(order, other, (key, strictly), &mut context.above)?;
            if !matches!(self.model.node_spec(other), NodeSpec::Task(_)) || is_tie {
                context.flat = None;
            } else if let Some(flat) = &mut context.flat
                && context.above.len() > before
            {
                flat.push(other);
            }
        }
        Ok(())
    }

    /// Adds the blocking of a non-preemptive scheduler with fixed keys (rule 6 of [`super`]).
    fn add_non_preemptive_blocking(
        &self,
        (at, next, subject): (NodeId, NodeId, NodeId),
        others: &[NodeId],
        context: &mut Context,
    ) -> Result<(), NoBound> {
        context.non_preemptive = context.flat.take().map(|above| {
            let below = others.iter().copied().filter(|other| !above.contains(other)).collect();
            NonPreemptive { above, below }
        });
        self.model.forbid_servers(at)?;
        // Jobs of other children of `next` can start while an interfering node waits.
        let started = match &context.non_preemptive {
            Some(non_preemptive) => &non_preemptive.below,
            None if next == subject => others,
            None => self.model.children(at),
        };
        context.blocking += self.model.longest_non_preemptive(started)?;
        Ok(())
    }
}
