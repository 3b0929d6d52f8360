//! Response-time bounds for roots with several CPUs, by the tests of [`crate::multi`].
//!
//! The analysis runs a response-time test first. If that test does not accept, the analysis runs
//! the other tests of the portfolio.
//!
//! *Any work-conserving policy* (FIFO, or equal keys in an `fp` level) uses the test for all
//! work-conserving policies. EDF uses this test too if the assumption D ≤ T without jitter does not
//! hold. Releases with jitter J are at least T − J apart. A job that completes within min(D, T) − J
//! of its release never delays its successor. Fixed priorities keep their order under this change
//! of the parameters, so their own test applies. EDF orders by the unchanged deadlines, so its own
//! test does not apply.
//!
//! *Reservations under EDF* (`SCHED_DEADLINE`): a hard CBS (Q, T) whose only client costs at most Q
//! and arrives at least T apart is a task with the deadline T.
//!
//! *Tardiness under EDF*: if no test accepts tasks with D = T, each response is at most T and the
//! tardiness bound of Devi and Anderson ([`crate::multi::tardiness`]). Reservations are not
//! covered: a late job leaves the next one a part of the budget.
//!
//! *Each task pinned to one CPU*: the analysis treats every CPU as a root of its own.

use super::bounds::Bounds;
use super::priority_keys::KeyOrder;
use super::task_bound::{NoBound, Reason};
use crate::multi::bertogna_cirinei::{self, GlobalPolicy};
use crate::multi::{self, guan, tardiness};
use crate::test_info::{TestInfo, TestKind};
use crate::verdict::{Inconclusive, Verdict, Witness};
use crate::{Sporadic, uni};
use alloc::vec::Vec;
use talea_core::Span;
use talea_core::engine::{Affinity, Migration, NodeId, NodeSpec, Tree};
use talea_core::mutate;
use talea_core::sched::PolicySpec as Scheduling;
use talea_core::server::ServerKind;

impl Bounds<'_> {
    /// Returns the bound of a task below a root with several CPUs.
    pub(super) fn bound_on_several_cpus(&mut self, node: NodeId) -> Result<Span, NoBound> {
        let no = |reason| NoBound { node: Tree::ROOT, reason };
        let NodeSpec::Scheduler(root) = self.model.node_spec(Tree::ROOT) else {
            return Err(no(Reason::SeveralCpus));
        };
        let mut tasks = Vec::new();
        let mut pinned = Vec::new();
        for &child in self.model.children(Tree::ROOT) {
            let NodeSpec::Task(spec) = self.model.node_spec(child) else {
                let is_edf = matches!(root.policy, Scheduling::Edf);
                let reserved = self.reserved_task(child)?.filter(|_| is_edf);
                tasks.push(reserved.ok_or(NoBound { node: child, reason: Reason::SeveralCpus })?);
                continue;
            };
            let all = u64::MAX >> (64 - self.model.tree.cpus.clamp(1, 64));
            if spec.affinity != Affinity::ANY && spec.affinity.0 & all != all {
                pinned.push((child, spec.affinity.0 & all));
            }
            tasks.push((child, self.model.task_model(child)?.task));
        }
        let order = KeyOrder::of(&root.policy);
        let mut policy = match &root.policy {
            Scheduling::Edf => GlobalPolicy::Edf,
            Scheduling::Fifo => GlobalPolicy::WorkConserving,
            _ if order.is_some() => GlobalPolicy::FixedPriority,
            _ => return Err(no(Reason::SeveralCpus)),
        };
        if !root.preemptive || self.model.tree.migration != Migration::Anytime {
            return Err(no(Reason::SeveralCpus));
        }
        if let Some(&(first, _)) = pinned.first() {
            let is_apart =
                pinned.len() == tasks.len() && pinned.iter().all(|(_, on)| on.is_power_of_two());
            if !is_apart || policy == GlobalPolicy::WorkConserving {
                return Err(NoBound { node: first, reason: Reason::SeveralCpus });
            }
            return self.bound_on_own_cpu(node, order, &pinned);
        }
        if let Some(order) = order {
            let mut keyed = Vec::new();
            for &(child, task) in &tasks {
                keyed.push((
                    self.model.key_range(order, child)?.map_or(u64::MAX, |range| range.0),
                    child,
                    task,
                ));
            }
            keyed.sort_by_key(|&(key, child, _)| (key, child));
            if order.is_fifo() && keyed.windows(2).any(|two| two[0].0 == two[1].0) {
                policy = GlobalPolicy::WorkConserving;
            }
            tasks = keyed.into_iter().map(|(_, child, task)| (child, task)).collect();
        }
        let specs: Vec<crate::Sporadic> = tasks.iter().map(|&(_, task)| task).collect();
        let is_reserved =
            |&child: &NodeId| matches!(self.model.node_spec(child), NodeSpec::Scheduler(_));
        let has_reservations = self.model.children(Tree::ROOT).iter().any(is_reserved);
        let found = self.bounds_of_any_tasks(policy, &specs);
        let found = found.or_else(|reason| match reason {
            Reason::Insufficient | Reason::JitterOrLateDeadlines
                if policy == GlobalPolicy::Edf && !has_reservations =>
            {
                self.late_bounds(&specs).ok_or(reason)
            }
            _ => Err(reason),
        });
        let (bounds, test) = found.map_err(no)?;
        let mut own = Err(no(Reason::SeveralCpus));
        for (&(child, _), bound) in tasks.iter().zip(bounds) {
            let found = (TestKind::Sufficient, test);
            if child == node {
                own = Ok(bound);
                self.set_provenance(child, found);
            } else {
                self.set_bound(child, Ok(bound), found);
            }
        }
        own
    }

    /// Returns a bound for each of `tasks` under EDF, which they may miss, if D − T is the same for
    /// all: then EDF orders the jobs as with D = T.
    fn late_bounds(&self, tasks: &[Sporadic]) -> Option<(Vec<Span>, &'static TestInfo)> {
        let late =
            |task: &Sporadic| i128::from(task.deadline.as_ns()) - i128::from(task.period.as_ns());
        let shift = tasks.first().map(late);
        let is_covered = |task: &Sporadic| {
            let is_shifted = mutate!("tree-global-shift", Some(late(task)) == shift, true);
            is_shifted && task.jitter.is_zero() && task.blocking.is_zero()
        };
        if !tasks.iter().all(is_covered) {
            return None;
        }
        let tasks: Vec<Sporadic> =
            tasks.iter().map(|task| Sporadic { deadline: task.period, ..*task }).collect();
        let mut scratch = multi::Scratch::new();
        let late = tardiness::devi_anderson(&tasks, self.model.tree.cpus, &mut scratch).ok()?;
        let bound = |(task, late): (&Sporadic, Span)| {
            task.period.checked_add(mutate!("tree-global-tardiness", late, Span::ZERO))
        };
        let bounds = tasks.iter().zip(late).map(bound).collect::<Option<Vec<_>>>()?;
        Some((bounds, &tardiness::DEVI_ANDERSON))
    }

    /// Returns the only client of a hard CBS as a task with the deadline of the server; `None` if
    /// the CBS may throttle or postpone the client.
    fn reserved_task(&self, server: NodeId) -> Result<Option<(NodeId, Sporadic)>, NoBound> {
        let NodeSpec::Scheduler(spec) = self.model.node_spec(server) else { return Ok(None) };
        let (Some(of), [client]) = (&spec.reservation, self.model.children(server)) else {
            return Ok(None);
        };
        let all = u64::MAX >> (64 - self.model.tree.cpus.clamp(1, 64));
        let is_plain = of.kind == ServerKind::HardCbs
            && of.relative_deadline() == of.period
            && of.offset.is_zero()
            && spec.affinity.0 & all == all;
        if !is_plain || !matches!(self.model.node_spec(*client), NodeSpec::Task(_)) {
            return Ok(None);
        }
        let task = self.model.task_model(*client)?.task;
        // Each job arrives when the deadline of the job before it has passed, so that it gets the
        // whole budget, and a deadline one period later.
        let fits = mutate!("tree-global-reserved", task.cost <= of.budget, true)
            && task.period >= of.period
            && task.jitter.is_zero();
        Ok(fits.then_some((*client, Sporadic { deadline: of.period, ..task })))
    }

    /// Returns the bound of a task on its own CPU. Every task of the root may use one CPU only.
    fn bound_on_own_cpu(
        &mut self,
        node: NodeId,
        order: Option<KeyOrder>,
        pinned: &[(NodeId, u64)],
    ) -> Result<Span, NoBound> {
        let no = |reason| NoBound { node, reason };
        let mine = pinned.iter().find(|&&(task, _)| task == node).map(|&(_, on)| on);
        let here = pinned.iter().filter(|&&(task, on)| Some(on) == mine && task != node);
        let mut others: Vec<NodeId> = here.map(|&(task, _)| task).collect();
        if let Some(order) = order {
            // Equal keys may be served first.
            let own = self.model.key_range(order, node)?;
            let mut above = Vec::new();
            for other in others {
                if self.model.key_range(order, other)? <= own {
                    above.push(other);
                }
            }
            others = above;
        }
        others.push(node);
        let tasks = others
            .iter()
            .map(|&task| Ok(self.model.task_model(task)?.task))
            .collect::<Result<Vec<_>, NoBound>>()?;
        let mut scratch = uni::Scratch::with_limit(
            self.model.iteration_limit(0).saturating_mul(tasks.len() as u64),
        );
        let found = if order.is_some() {
            self.set_provenance(node, (TestKind::Sufficient, &uni::fp_response::INFO));
            uni::fp_response::lowest_priority_response(&tasks, &mut scratch)
        } else {
            self.set_provenance(node, (TestKind::Sufficient, &uni::edf_response::INFO));
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

    /// Returns a bound for each of `tasks` with any D and J, and the test that found it.
    fn bounds_of_any_tasks(
        &self,
        policy: GlobalPolicy,
        tasks: &[Sporadic],
    ) -> Result<(Vec<Span>, &'static TestInfo), Reason> {
        if tasks.iter().all(|task| task.jitter.is_zero() && task.deadline <= task.period) {
            return self.bounds_of_constrained_tasks(policy, tasks);
        }
        let policy =
            if policy == GlobalPolicy::Edf { GlobalPolicy::WorkConserving } else { policy };
        let ease = |task: &Sporadic| {
            let period = task.period.checked_sub(task.jitter).filter(|period| !period.is_zero())?;
            let deadline = task.deadline.checked_sub(task.jitter)?.min(period);
            Some(Sporadic::new(task.cost, period, deadline))
        };
        let eased: Option<Vec<Sporadic>> = tasks.iter().map(ease).collect();
        let eased = eased.ok_or(Reason::JitterOrLateDeadlines)?;
        let (mut bounds, test) =
            self.bounds_of_constrained_tasks(policy, &eased).map_err(|reason| match reason {
                // The original tasks may need less than the shortened ones.
                Reason::Overload | Reason::Insufficient => Reason::JitterOrLateDeadlines,
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

    /// Returns a bound for each of `tasks` with D ≤ T and no jitter, and the test that found it.
    fn bounds_of_constrained_tasks(
        &self,
        policy: GlobalPolicy,
        tasks: &[Sporadic],
    ) -> Result<(Vec<Span>, &'static TestInfo), Reason> {
        let (cpus, mut scratch) = (self.model.tree.cpus, multi::Scratch::new());
        let (verdict, test) = match policy {
            GlobalPolicy::FixedPriority => (
                mutate!(
                    "tree-global",
                    guan::test(tasks, cpus, &mut scratch),
                    guan::test(tasks, cpus + 1, &mut scratch)
                ),
                &guan::INFO,
            ),
            GlobalPolicy::Edf => {
                (bertogna_cirinei::test(policy, tasks, cpus, &mut scratch), &bertogna_cirinei::EDF)
            }
            GlobalPolicy::WorkConserving => {
                (bertogna_cirinei::test(policy, tasks, cpus, &mut scratch), &bertogna_cirinei::ANY)
            }
        };
        if let Verdict::Proved { bounds } = verdict
            && bounds.len() == tasks.len()
        {
            return Ok((bounds, test));
        }
        let limit = self.model.iteration_limit(tasks.len());
        match multi::portfolio::first_accepting(policy, tasks, cpus, limit, &mut scratch) {
            Ok(accepted) if accepted.bounds.len() == tasks.len() => {
                Ok((accepted.bounds, accepted.by))
            }
            // A set that is accepted without bounds completes by its deadlines.
            Ok(accepted) => mutate!(
                "tree-global-any",
                Ok((tasks.iter().map(|task| task.deadline).collect(), accepted.by)),
                Err(Reason::Insufficient)
            ),
            Err(Verdict::Refuted { witness: Witness::Overload { .. } }) => Err(Reason::Overload),
            Err(Verdict::Unknown { why: Inconclusive::Limit }) => Err(Reason::Limit),
            Err(_) => Err(Reason::Insufficient),
        }
    }
}
