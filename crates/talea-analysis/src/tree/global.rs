//! Roots with several CPUs, by the tests of [`crate::multi`]: one that bounds responses, and, where
//! that does not accept, any.
//!
//! *Any policy that leaves no CPU idle* (fifo, equals in an `fp` level) has the test for all of
//! them. The same holds for EDF where the tests' D ≤ T without jitter is not so: jobs that are at
//! most J late come at least T − J apart, and who ends within min(D, T) − J of each release is
//! never in his own way. Fixed priorities keep their order then, and their test. EDF does not: it
//! orders by the deadlines as they are.
//!
//! *Each task on one CPU of its own choice*: as many roots of one CPU.

use super::answer::{NoTest, Reason};
use super::keys::Order;
use super::walk::Walk;
use crate::card::{Card, Kind};
use crate::multi::bertogna_cirinei::{self, Policy};
use crate::multi::{self, guan};
use crate::verdict::{Verdict, Why, Witness};
use crate::{Sporadic, uni};
use alloc::vec::Vec;
use talea_core::Span;
use talea_core::machine::{Affinity, Body, Migration, NodeId, Tree};
use talea_core::mutate;
use talea_core::sched::Policy as Scheduling;

/// The test for such a root.
pub(super) fn card(tree: &Tree) -> &'static Card {
    match tree.get(Tree::ROOT).map(|node| &node.body) {
        Some(Body::Scheduler(spec)) if matches!(spec.policy, Scheduling::Edf) => {
            &bertogna_cirinei::EDF
        }
        Some(Body::Scheduler(spec)) if Order::of(&spec.policy).is_some() => &guan::CARD,
        _ => &bertogna_cirinei::ANY,
    }
}

impl Walk<'_> {
    /// The bound of a task below a root with several CPUs.
    pub(super) fn bound_of_many(&mut self, node: NodeId) -> Result<Span, NoTest> {
        let no = |reason| NoTest { node: Tree::ROOT, reason };
        let Body::Scheduler(root) = self.body(Tree::ROOT) else { return Err(no(Reason::ManyCpus)) };
        let mut tasks = Vec::new();
        let mut homes = Vec::new();
        for &kid in self.kids(Tree::ROOT) {
            let Body::Task(spec) = self.body(kid) else {
                return Err(NoTest { node: kid, reason: Reason::ManyCpus });
            };
            let all = u64::MAX >> (64 - self.tree.cpus.clamp(1, 64));
            if spec.affinity != Affinity::ANY && spec.affinity.0 & all != all {
                homes.push((kid, spec.affinity.0 & all));
            }
            tasks.push((kid, self.leaf(kid)?.task));
        }
        let order = Order::of(&root.policy);
        let mut policy = match &root.policy {
            Scheduling::Edf => Policy::Edf,
            Scheduling::Fifo => Policy::WorkConserving,
            _ if order.is_some() => Policy::FixedPriority,
            _ => return Err(no(Reason::ManyCpus)),
        };
        if !root.preemptive || self.tree.migration != Migration::Anytime {
            return Err(no(Reason::ManyCpus));
        }
        if let Some(&(first, _)) = homes.first() {
            let is_apart =
                homes.len() == tasks.len() && homes.iter().all(|(_, on)| on.is_power_of_two());
            if !is_apart || policy == Policy::WorkConserving {
                return Err(NoTest { node: first, reason: Reason::ManyCpus });
            }
            return self.bound_at_home(node, order, &homes);
        }
        if let Some(order) = order {
            let mut keyed = Vec::new();
            for &(kid, task) in &tasks {
                keyed.push((self.range(order, kid)?.map_or(u64::MAX, |range| range.0), kid, task));
            }
            keyed.sort_by_key(|&(key, kid, _)| (key, kid));
            if order.is_fifo() && keyed.windows(2).any(|two| two[0].0 == two[1].0) {
                policy = Policy::WorkConserving;
            }
            tasks = keyed.into_iter().map(|(_, kid, task)| (kid, task)).collect();
        }
        let specs: Vec<crate::Sporadic> = tasks.iter().map(|&(_, task)| task).collect();
        let (bounds, test) = self.bounds_as_they_are(policy, &specs).map_err(no)?;
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

    /// The bound of a task that, like all others, may use one CPU only.
    fn bound_at_home(
        &mut self,
        node: NodeId,
        order: Option<Order>,
        homes: &[(NodeId, u64)],
    ) -> Result<Span, NoTest> {
        let no = |reason| NoTest { node, reason };
        let mine = homes.iter().find(|&&(task, _)| task == node).map(|&(_, on)| on);
        let here = homes.iter().filter(|&&(task, on)| Some(on) == mine && task != node);
        let mut others: Vec<NodeId> = here.map(|&(task, _)| task).collect();
        if let Some(order) = order {
            // Equals may come first.
            let own = self.range(order, node)?;
            let mut above = Vec::new();
            for other in others {
                if self.range(order, other)? <= own {
                    above.push(other);
                }
            }
            others = above;
        }
        others.push(node);
        let tasks = others
            .iter()
            .map(|&task| Ok(self.leaf(task)?.task))
            .collect::<Result<Vec<_>, NoTest>>()?;
        let mut scratch =
            uni::Scratch::with_limit(self.rounds(0).saturating_mul(tasks.len() as u64));
        let found = if order.is_some() {
            self.names(node, (Kind::Sufficient, &uni::fp_response::CARD));
            uni::fp_response::lowest(&tasks, &mut scratch)
        } else {
            self.names(node, (Kind::Sufficient, &uni::edf_response::CARD));
            let mut out = alloc::vec![None; tasks.len()];
            uni::edf_response::bounds(&tasks, &mut scratch, &mut out)
                .map(|_| out.last().copied().flatten())
        };
        match found {
            Ok(Some(bound)) => Ok(bound.arrival),
            Ok(None) => Err(no(Reason::Overload)),
            Err(_) => Err(no(Reason::Limit)),
        }
    }

    /// The same for tasks of any D and J.
    fn bounds_as_they_are(
        &self,
        policy: Policy,
        tasks: &[Sporadic],
    ) -> Result<(Vec<Span>, &'static Card), Reason> {
        if tasks.iter().all(|task| task.jitter.is_zero() && task.deadline <= task.period) {
            return self.bounds_of_many(policy, tasks);
        }
        let policy = if policy == Policy::Edf { Policy::WorkConserving } else { policy };
        let ease = |task: &Sporadic| {
            let period = task.period.checked_sub(task.jitter).filter(|period| !period.is_zero())?;
            let deadline = task.deadline.checked_sub(task.jitter)?.min(period);
            Some(Sporadic::new(task.cost, period, deadline))
        };
        let eased: Option<Vec<Sporadic>> = tasks.iter().map(ease).collect();
        let eased = eased.ok_or(Reason::Loose)?;
        let (mut bounds, test) =
            self.bounds_of_many(policy, &eased).map_err(|reason| match reason {
                // What is asked for may be less than that.
                Reason::Overload | Reason::Insufficient => Reason::Loose,
                other => other,
            })?;
        for (bound, task) in bounds.iter_mut().zip(tasks) {
            *bound += mutate!(
                "tree-global-late",
                task.jitter,
                Span::from_ns(task.jitter.as_ns() / 1_000)
            );
        }
        Ok((bounds, test))
    }

    /// A bound for each of `tasks`, and whose it is.
    fn bounds_of_many(
        &self,
        policy: Policy,
        tasks: &[Sporadic],
    ) -> Result<(Vec<Span>, &'static Card), Reason> {
        let (cpus, mut scratch) = (self.tree.cpus, multi::Scratch::new());
        let (verdict, test) = match policy {
            Policy::FixedPriority => (
                mutate!(
                    "tree-global",
                    guan::test(tasks, cpus, &mut scratch),
                    guan::test(tasks, cpus + 1, &mut scratch)
                ),
                &guan::CARD,
            ),
            Policy::Edf => {
                (bertogna_cirinei::test(policy, tasks, cpus, &mut scratch), &bertogna_cirinei::EDF)
            }
            Policy::WorkConserving => {
                (bertogna_cirinei::test(policy, tasks, cpus, &mut scratch), &bertogna_cirinei::ANY)
            }
        };
        if let Verdict::Proved { bounds } = verdict
            && bounds.len() == tasks.len()
        {
            return Ok((bounds, test));
        }
        mutate!(
            "tree-global-any",
            match multi::any::of(policy, tasks, cpus, self.rounds(tasks.len()), &mut scratch) {
                // What is accepted without bounds ends by its deadline.
                Ok(accepted) if accepted.bounds.len() == tasks.len() =>
                    Ok((accepted.bounds, accepted.by)),
                Ok(accepted) => Ok((tasks.iter().map(|task| task.deadline).collect(), accepted.by)),
                Err(Verdict::Refuted { witness: Witness::Overload { .. } }) =>
                    Err(Reason::Overload),
                Err(Verdict::Unknown { why: Why::Limit }) => Err(Reason::Limit),
                Err(_) => Err(Reason::Insufficient),
            },
            match multi::any::of(policy, tasks, cpus, self.rounds(tasks.len()), &mut scratch) {
                // What is accepted without bounds ends by its deadline.
                Ok(accepted) if accepted.bounds.len() == tasks.len() =>
                    Ok((accepted.bounds, accepted.by)),
                Ok(_) => Err(Reason::Insufficient),
                Err(Verdict::Refuted { witness: Witness::Overload { .. } }) =>
                    Err(Reason::Overload),
                Err(Verdict::Unknown { why: Why::Limit }) => Err(Reason::Limit),
                Err(_) => Err(Reason::Insufficient),
            }
        )
    }
}
