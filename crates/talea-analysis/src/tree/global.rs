//! Roots with several CPUs, by the tests of [`crate::multi`].

use super::answer::{NoTest, Reason};
use super::keys::Order;
use super::walk::Walk;
use crate::card::{Card, Kind};
use crate::multi::{self, bertogna_cirinei, guan};
use crate::verdict::Verdict;
use alloc::vec::Vec;
use talea_core::Span;
use talea_core::machine::{Affinity, Body, Migration, NodeId, Tree};
use talea_core::sched::Policy;

/// The test for such a root.
pub(super) fn card(tree: &Tree) -> &'static Card {
    match tree.get(Tree::ROOT).map(|node| &node.body) {
        Some(Body::Scheduler(spec)) if matches!(spec.policy, Policy::Edf) => &bertogna_cirinei::EDF,
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
        let is_edf = matches!(root.policy, Policy::Edf);
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
        let mut scratch = multi::Scratch::new();
        let verdict = if is_edf {
            bertogna_cirinei::test(bertogna_cirinei::Policy::Edf, &specs, self.tree.cpus, &mut scratch)
        } else {
            guan::test(&specs, self.tree.cpus, &mut scratch)
        };
        let bounds = match verdict {
            Verdict::Proved { bounds } if bounds.len() == tasks.len() => bounds,
            _ => return Err(no(Reason::Insufficient)),
        };
        let mut own = Err(no(Reason::ManyCpus));
        for (&(kid, _), bound) in tasks.iter().zip(bounds) {
            if kid == node {
                own = Ok(bound);
            } else {
                self.found(kid, Ok(bound), (Kind::Sufficient, card(self.tree)));
            }
        }
        own
    }
}
