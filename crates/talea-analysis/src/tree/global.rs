//! Roots with several CPUs, by the tests of [`crate::multi`]: one that bounds responses, and, where that does not accept, any.

use super::answer::{NoTest, Reason};
use super::keys::Order;
use super::walk::Walk;
use crate::card::{Card, Kind};
use crate::multi::bertogna_cirinei::{self, Policy};
use crate::multi::{self, guan};
use crate::verdict::{Verdict, Why, Witness};
use alloc::vec::Vec;
use talea_core::Span;
use talea_core::machine::{Affinity, Body, Migration, NodeId, Tree};
use talea_core::sched::Policy as Scheduling;

/// The test for such a root.
pub(super) fn card(tree: &Tree) -> &'static Card {
    match tree.get(Tree::ROOT).map(|node| &node.body) {
        Some(Body::Scheduler(spec)) if matches!(spec.policy, Scheduling::Edf) => &bertogna_cirinei::EDF,
        _ => &guan::CARD,
    }
}

impl Walk<'_> {
    /// The bound of a task below a root with several CPUs.
    pub(super) fn bound_of_many(&mut self, node: NodeId) -> Result<Span, NoTest> {
        let no = |reason| NoTest { node: Tree::ROOT, reason };
        let Body::Scheduler(root) = self.body(Tree::ROOT) else { return Err(no(Reason::ManyCpus)) };
        let mut tasks = Vec::new();
        for &kid in self.kids(Tree::ROOT) {
            let Body::Task(spec) = self.body(kid) else {
                return Err(NoTest { node: kid, reason: Reason::ManyCpus });
            };
            let all = u64::MAX >> (64 - self.tree.cpus.clamp(1, 64));
            if spec.affinity != Affinity::ANY && spec.affinity.0 & all != all {
                return Err(NoTest { node: kid, reason: Reason::ManyCpus });
            }
            tasks.push((kid, self.leaf(kid)?.task));
        }
        let order = Order::of(&root.policy);
        let is_edf = matches!(root.policy, Scheduling::Edf);
        if (order.is_none() && !is_edf) || !root.preemptive || self.tree.migration != Migration::Anytime {
            return Err(no(Reason::ManyCpus));
        }
        if let Some(order) = order {
            let mut keyed = Vec::new();
            for &(kid, task) in &tasks {
                keyed.push((self.range(order, kid)?.map_or(u64::MAX, |range| range.0), kid, task));
            }
            keyed.sort_by_key(|&(key, kid, _)| (key, kid));
            if order.is_fifo() && keyed.windows(2).any(|two| two[0].0 == two[1].0) {
                return Err(no(Reason::ManyCpus));
            }
            tasks = keyed.into_iter().map(|(_, kid, task)| (kid, task)).collect();
        }
        let specs: Vec<crate::Sporadic> = tasks.iter().map(|&(_, task)| task).collect();
        let (bounds, test) = self.bounds_of_many(is_edf, &specs).map_err(no)?;
        let mut own = Err(no(Reason::ManyCpus));
        for (&(kid, _), bound) in tasks.iter().zip(bounds) {
            let found = (Kind::Sufficient, test);
            if kid == node {
                own = Ok(bound);
                self.names(kid, found);
            } else {
                self.found(kid, Ok(bound), found);
            }
        }
        own
    }

    /// A bound for each of `tasks`, and whose it is.
    fn bounds_of_many(
        &self,
        is_edf: bool,
        tasks: &[crate::Sporadic],
    ) -> Result<(Vec<Span>, &'static Card), Reason> {
        let (cpus, mut scratch) = (self.tree.cpus, multi::Scratch::new());
        let policy = if is_edf { Policy::Edf } else { Policy::FixedPriority };
        let (verdict, test) = if is_edf {
            (bertogna_cirinei::test(policy, tasks, cpus, &mut scratch), &bertogna_cirinei::EDF)
        } else {
            (guan::test(tasks, cpus, &mut scratch), &guan::CARD)
        };
        if let Verdict::Proved { bounds } = verdict
            && bounds.len() == tasks.len()
        {
            return Ok((bounds, test));
        }
        match multi::any::of(policy, tasks, cpus, self.rounds(tasks.len()), &mut scratch) {
            // What is accepted without bounds ends by its deadline.
            Ok(accepted) if accepted.bounds.len() == tasks.len() => Ok((accepted.bounds, accepted.by)),
            Ok(accepted) => Ok((tasks.iter().map(|task| task.deadline).collect(), accepted.by)),
            Err(Verdict::Refuted { witness: Witness::Overload { .. } }) => Err(Reason::Overload),
            Err(Verdict::Unknown { why: Why::Limit }) => Err(Reason::Limit),
            Err(_) => Err(Reason::Insufficient),
        }
    }
}
