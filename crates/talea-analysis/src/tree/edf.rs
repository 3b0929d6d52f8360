//! One EDF level of a tree: tasks and servers by deadline, on any supply, below the interference
//! from above.
//!
//! *Tasks.* M. González Harbour and J. C. Palencia, RTSS 2003 (M. Spuri, INRIA RR-2772, 1996), on a
//! supply. A job that arrives α after the start of its deadline busy window has completed by the
//! least x with
//!
//! > x = time_for(own(α) + B + above(x) + Σ_e min(interference_e(x), due_e(α + D))),
//!
//! where α ranges over the arrivals whose deadline equals a deadline of the level. The limit of α
//! is the longest busy window of the level.
//!
//! *Servers* have deadlines of their own. The demand of a server that is due within d is:
//!
//! - polling: (⌊(d − D)/T⌋ + 1)⁺·Q;
//! - sporadic: (⌊(d − D + Q − 1)/T⌋ + 1)⁺·Q, because contiguous refills merge and have the deadline
//!   of the first refill;
//! - deferrable: min(Q, d) before D, then (n + 1)·Q + min(Q, ρ) with n, ρ of (d − D)/T, because the
//!   rest of a budget may be used at the very end of its period;
//! - CBS: ⌊d/T⌋·Q + min(Q, ⌊(d mod T)·Q/D⌋), because the budget that the server keeps fits the
//!   density Q/D.
//!
//! The demand test over all members proves every deadline of the level at once. The test starts at
//! the least relative deadline, because the rest of a deferrable budget has no deadline that must
//! be met. Otherwise the test proceeds as in [`crate::supply::edf`].

use super::bounds::Bounds;
use super::context::Context;
use super::node_supply::{NodeSupply, is_overload};
use super::task_bound::{NoBound, Reason};
use super::task_model::Phasing;
use crate::Sporadic;
use crate::supply::curve::all_within;
use crate::supply::fp::curve;
use crate::supply::{InterferenceCurve, Leftover, Supply};
use crate::test_info::{TestInfo, TestKind};
use crate::uni::{HORIZON_NS, Scratch, edf_response, np_edf, qpa};
use alloc::vec::Vec;
use talea_core::engine::{NodeId, NodeSpec};
use talea_core::mutate;
use talea_core::server::ServerKind;
use talea_core::{Span, Work};

/// Step limit of the demand test, as a multiple of the step limit of one bound. The test runs once
/// per level.
const DEMAND_TEST_FACTOR: u64 = 64;

/// Whether a bound is exact, and its test.
type Provenance = (TestKind, &'static TestInfo);

/// Deadlines of the work of a competitor, from the start of a window.
#[derive(Clone, Copy, Debug)]
enum Due {
    /// The first job is due at this time, which may precede the window. One more job is due per
    /// period.
    Every(i128),
    /// Deferrable server with this relative deadline.
    Deferrable(u64),
    /// CBS with this relative deadline.
    Bandwidth(u64),
}

/// Task or server of the level.
pub(super) struct Competitor {
    node: NodeId,
    cost: u64,
    pub(super) period: u64,
    due: Due,
    /// Interference curves of the competitor for any window, regardless of deadlines.
    interference: Vec<InterferenceCurve>,
}

impl Competitor {
    /// Returns the demand that is due within a window of length `at`.
    pub(super) fn due(&self, at: u64) -> u64 {
        let (cost, period) = (self.cost, self.period);
        match self.due {
            Due::Every(first) => {
                let since = i128::from(at) - first;
                let jobs = if since < 0 { 0 } else { since / i128::from(period) + 1 };
                u64::try_from(jobs).unwrap_or(u64::MAX).saturating_mul(cost)
            }
            Due::Deferrable(deadline) => match at.checked_sub(deadline) {
                None => cost.min(at),
                Some(since) => (since / period + 1)
                    .saturating_mul(cost)
                    .saturating_add(cost.min(since % period)),
            },
            Due::Bandwidth(deadline) => {
                let part = u128::from(at % period) * u128::from(cost) / u128::from(deadline);
                (at / period)
                    .saturating_mul(cost)
                    .saturating_add(cost.min(part.min(u128::from(u64::MAX)) as u64))
            }
        }
    }

    /// Returns the first time of the stepwise upper bound of [`Competitor::due`]. Each step of the
    /// bound is a whole budget per period.
    pub(super) fn first_due(&self) -> i128 {
        match self.due {
            Due::Every(first) => first,
            Due::Deferrable(deadline) => {
                mutate!(
                    "tree-due",
                    i128::from(deadline) - i128::from(self.period) + 1,
                    i128::from(deadline)
                )
            }
            Due::Bandwidth(deadline) => i128::from(deadline.div_ceil(self.cost)),
        }
    }

    /// Returns the stepwise upper bound of [`Competitor::due`] for a window of length `at`.
    fn due_in_steps(&self, at: i128) -> u64 {
        let since = at - self.first_due();
        let jobs = if since < 0 { 0 } else { since / i128::from(self.period) + 1 };
        u64::try_from(jobs).unwrap_or(u64::MAX).saturating_mul(self.cost)
    }

    /// Returns the length of the shortest window in which some work of the competitor is due.
    pub(super) fn first_deadline(&self) -> u64 {
        match self.due {
            Due::Every(first) => u64::try_from(first).unwrap_or(0),
            Due::Deferrable(deadline) => deadline,
            Due::Bandwidth(deadline) => deadline.div_ceil(self.cost),
        }
    }
}

impl Bounds<'_> {
    /// Returns the competitors of a level.
    pub(super) fn competitors(
        &mut self,
        level: NodeId,
        by_arrival: bool,
    ) -> Result<Vec<Competitor>, NoBound> {
        let level_members = self.model.level_members(level).unwrap_or_default();
        let mut competitors = Vec::with_capacity(level_members.len());
        for node in level_members {
            let spec = match self.model.node_spec(node) {
                NodeSpec::Task(_) => {
                    let task = self.model.task_model(node)?.task;
                    let deadline = if by_arrival { 0 } else { i128::from(task.deadline.as_ns()) };
                    competitors.push(Competitor {
                        node,
                        cost: task.cost.as_ns(),
                        period: task.period.as_ns(),
                        due: Due::Every(deadline - i128::from(task.jitter.as_ns())),
                        interference: Vec::from([curve(&task)]),
                    });
                    continue;
                }
                NodeSpec::Scheduler(spec) => spec,
            };
            let Some(of) = &spec.reservation else { continue };
            let (cost, deadline) = (of.budget.as_ns(), of.relative_deadline().as_ns());
            let due = match of.kind {
                ServerKind::Polling => Due::Every(i128::from(deadline)),
                ServerKind::Sporadic => Due::Every(i128::from(deadline) - i128::from(cost) + 1),
                ServerKind::Deferrable => Due::Deferrable(deadline),
                ServerKind::HardCbs | ServerKind::SoftCbs => Due::Bandwidth(deadline),
                ServerKind::Custom { .. } => {
                    return Err(NoBound { node, reason: Reason::CustomServer });
                }
            };
            let mut interference = Vec::new();
            self.collect_all_interference(node, &mut interference)?;
            competitors.push(Competitor {
                node,
                cost,
                period: of.period.as_ns(),
                due,
                interference,
            });
        }
        Ok(competitors)
    }

    /// Adds the interference of all competitors of the level except `node`.
    pub(super) fn collect_competitors(
        &mut self,
        node: NodeId,
        context: &Context,
        out: &mut Vec<InterferenceCurve>,
    ) -> Result<(), NoBound> {
        let Some((level, by_arrival)) = context.level else { return Ok(()) };
        let competitors = self.competitors(level, by_arrival)?;
        let others = competitors.iter().filter(|competitor| competitor.node != node);
        out.extend(others.flat_map(|competitor| competitor.interference.iter().copied()));
        Ok(())
    }

    /// Returns the longest busy window of the level and of the interference from above. `None` in
    /// an overload or beyond the iteration limit.
    fn longest_window(&self, context: &Context, competitors: &[Competitor]) -> Option<u64> {
        let all = all_interference(context, competitors);
        if is_overload(&all, &context.supply) {
            return None;
        }
        let mut window = 1;
        for _ in 0..self.model.iteration_limit(all.len()) {
            let asked = all_within(&all, window).saturating_add(context.blocking);
            let next = context.supply.time_for(Work::from_ns(asked.min(HORIZON_NS + 1)))?.as_ns();
            if next <= window {
                return Some(window);
            }
            window = next;
        }
        None
    }

    /// Whether every deadline of the level is met.
    pub(super) fn level_meets_deadlines(&mut self, context: &Context) -> Result<bool, NoBound> {
        let Some((level, _)) = context.level else { return Ok(false) };
        if let Some(found) = self.level_verdicts.get(&level) {
            return found.clone();
        }
        let found = self.competitors(level, false).map(|competitors| {
            (context.non_preemptive.is_some()
                && self.non_preemptive_level_meets_deadlines(&competitors))
                || self.demand_fits(context, &competitors)
        });
        self.level_verdicts.insert(level, found.clone());
        found
    }

    /// Whether every deadline of a flat task set below a non-preemptive root is met. The blocking
    /// term depends on the window.
    fn non_preemptive_level_meets_deadlines(&self, competitors: &[Competitor]) -> bool {
        let tasks: Result<Vec<Sporadic>, NoBound> = competitors
            .iter()
            .map(|competitor| Ok(self.model.task_model(competitor.node)?.task))
            .collect();
        let mut scratch =
            Scratch::with_limit(self.model.iteration_limit(0).saturating_mul(DEMAND_TEST_FACTOR));
        tasks.is_ok_and(|tasks| np_edf::verdict_in(&tasks, &mut scratch).is_proved())
    }

    /// Whether the demand of the level fits its supply in every window.
    fn demand_fits(&self, context: &Context, competitors: &[Competitor]) -> bool {
        let all: Vec<InterferenceCurve> = (competitors.iter())
            .map(|competitor| InterferenceCurve {
                cost: Work::from_ns(competitor.cost),
                period: Span::from_ns(competitor.period),
                jitter: Span::ZERO,
            })
            .collect();
        let is_whole = matches!(context.supply, NodeSupply::Dedicated) && context.above.is_empty();
        let is_smooth = |competitor: &Competitor| match competitor.due {
            Due::Every(first) => first >= i128::from(competitor.period),
            Due::Bandwidth(deadline) => deadline == competitor.period,
            Due::Deferrable(_) => false,
        };
        // ΣQ/T ≤ 1 is necessary and sufficient (Liu and Layland 1973; Abeni and Buttazzo 1998).
        // Checked exactly, because at U = 1 the busy window of bandwidths is endless.
        if is_whole && context.blocking == 0 && competitors.iter().all(is_smooth) {
            let demands: Vec<crate::Demand> =
                all.iter().map(|one| crate::Demand::new(one.cost, one.period)).collect();
            return crate::demand::sum_at_most(&demands, talea_core::Charge::ONE);
        }
        let Some(mut at) = self.longest_window(context, competitors) else { return false };
        let shortest = competitors.iter().map(Competitor::first_deadline).min().unwrap_or(0);
        let level = Leftover::new(
            &context.supply,
            &context.above,
            self.model.iteration_limit(context.above.len()),
        );
        for _ in 0..self.model.iteration_limit(context.above.len() + competitors.len()) {
            let asked = competitors
                .iter()
                .fold(0u64, |sum, competitor| sum.saturating_add(competitor.due(at)));
            if asked == 0 || at < shortest {
                return true;
            }
            let asked = asked.saturating_add(context.blocking).min(HORIZON_NS + 1);
            match level.time_for(Work::from_ns(asked)) {
                Some(time) if time.as_ns() <= at => at = time.as_ns() - 1,
                _ => return false,
            }
        }
        false
    }

    /// Returns whether the search is exact for a task of a level. The search is exact if the task
    /// can arrive at any distance from the others and is served after all tasks with equal
    /// deadlines. Only the last task in order of declaration is served after all equal ones.
    fn exactness_among(&self, node: NodeId, competitors: &[Competitor]) -> TestKind {
        let phasing = |node: NodeId| {
            self.model.task_model(node).map_or(Phasing::Unknown, |leaf| leaf.phasing)
        };
        let is_last = |other: &Competitor| {
            other.node <= node && self.model.parent(other.node) == self.model.parent(node)
        };
        if (competitors.len() > 1 && phasing(node) != Phasing::Free)
            || !mutate!(
                "tree-exact-ties",
                competitors.iter().all(is_last),
                competitors.iter().any(is_last)
            )
        {
            return TestKind::Sufficient;
        }
        // A job that is released late is due, or queued, as if it were not.
        let is_late = |competitor: &Competitor| match phasing(competitor.node) {
            Phasing::Fixed { jitter, .. } => !jitter.is_zero(),
            _ => false,
        };
        if competitors.iter().any(is_late) {
            return TestKind::Sufficient;
        }
        let nodes: Vec<NodeId> = competitors.iter().map(|competitor| competitor.node).collect();
        self.model.exactness(&nodes)
    }

    /// Returns the longest response of a task of a level, and its provenance.
    pub(super) fn bound_by_deadline(
        &mut self,
        node: NodeId,
        context: &Context,
    ) -> Result<(Span, Provenance), NoBound> {
        let Some((level, by_arrival)) = context.level else {
            return Err(NoBound { node, reason: Reason::Limit });
        };
        let task = self.model.task_model(node)?.task;
        let competitors = self.competitors(level, by_arrival)?;
        let only_tasks = competitors
            .iter()
            .all(|competitor| matches!(self.model.node_spec(competitor.node), NodeSpec::Task(_)));
        let is_flat = context.flat.is_some() && only_tasks;
        let is_flat_non_preemptive = mutate!(
            "tree-np-edf-responses",
            context.non_preemptive.is_some() && only_tasks && context.above.is_empty(),
            false
        );
        if (is_flat || is_flat_non_preemptive) && !by_arrival && competitors.len() > 1 {
            return self.bounds_of_flat_level(node, &competitors, is_flat_non_preemptive);
        }
        let found = self.search_response(node, context, &competitors, by_arrival);
        // The demand test also yields a bound, often the better one among servers.
        let fits =
            !by_arrival && !self.blocking.has_terms() && self.level_meets_deadlines(context)?;
        if fits
            && context.non_preemptive.is_some()
            && found.is_none_or(|found| found > task.deadline.as_ns())
        {
            self.set_provenance(node, (TestKind::Sufficient, &np_edf::INFO));
        }
        let bound = match (found, fits) {
            (Some(found), true) => found.min(task.deadline.as_ns()),
            (None, true) => task.deadline.as_ns(),
            (Some(found), false) => found,
            (None, false) => {
                let asks_more =
                    is_overload(&all_interference(context, &competitors), &context.supply);
                let reason = if asks_more { Reason::Overload } else { Reason::Limit };
                return Err(NoBound { node, reason });
            }
        };
        let is_exact = is_flat && found == Some(bound);
        let kind =
            if is_exact { self.exactness_among(node, &competitors) } else { TestKind::Sufficient };
        Ok((Span::from_ns(bound), (kind, &edf_response::INFO)))
    }

    /// Returns the bound of `node`, and records the bounds of all tasks of its flat set. The fast
    /// search finds all of them at once.
    fn bounds_of_flat_level(
        &mut self,
        node: NodeId,
        competitors: &[Competitor],
        is_non_preemptive: bool,
    ) -> Result<(Span, Provenance), NoBound> {
        let (responses, demand) = if is_non_preemptive {
            (&np_edf::RESPONSE_TIMES, &np_edf::INFO)
        } else {
            (&edf_response::INFO, &qpa::INFO)
        };
        let mut tasks = Vec::with_capacity(competitors.len());
        for competitor in competitors {
            tasks.push(self.model.task_model(competitor.node)?.task);
        }
        // The demand test is faster than the responses. If these reach the step limit, its result
        // is the only one.
        let mut scratch =
            Scratch::with_limit(self.model.iteration_limit(0).saturating_mul(DEMAND_TEST_FACTOR));
        let fits = if is_non_preemptive {
            np_edf::verdict_in(&tasks, &mut scratch).is_proved()
        } else {
            matches!(qpa::find(&tasks, &mut scratch), Ok(qpa::Finding::Fits))
        };
        let many = if fits {
            (tasks.len() as u64).min(4 * DEMAND_TEST_FACTOR)
        } else {
            tasks.len() as u64
        };
        let mut scratch = Scratch::with_limit(self.model.iteration_limit(0).saturating_mul(many));
        let mut out = alloc::vec![None; tasks.len()];
        let searched = if is_non_preemptive {
            np_edf::bounds(&tasks, &mut scratch, &mut out)
        } else {
            edf_response::bounds(&tasks, &mut scratch, &mut out)
        };
        let mut own = Err(NoBound { node, reason: Reason::Limit });
        for ((competitor, task), bound) in competitors.iter().zip(&tasks).zip(out) {
            let of = match bound {
                None if fits => (TestKind::Sufficient, demand),
                // Which job may block depends on the phases as well.
                _ if is_non_preemptive => (TestKind::Sufficient, responses),
                _ => (self.exactness_among(competitor.node, competitors), responses),
            };
            let reason = if searched.is_ok() { Reason::Overload } else { Reason::Limit };
            let bound = mutate!(
                "tree-edf-demand",
                match bound {
                    Some(bound) => Ok(bound.arrival),
                    None if fits => Ok(task.deadline),
                    None => Err(NoBound { node: competitor.node, reason }),
                },
                match bound {
                    Some(bound) => Ok(bound.arrival),
                    None if fits && competitors.is_empty() => Ok(task.deadline),
                    None => Err(NoBound { node: competitor.node, reason }),
                }
            );
            if competitor.node == node {
                self.set_provenance(node, of);
                own = bound.map(|bound| (bound, of));
            } else {
                self.set_bound(competitor.node, bound, of);
            }
        }
        own
    }

    /// Returns the longest response of a task of the level by Spuri's search; `None` in an overload
    /// or beyond the step limit.
    fn search_response(
        &self,
        node: NodeId,
        context: &Context,
        competitors: &[Competitor],
        by_arrival: bool,
    ) -> Option<u64> {
        let task = self.model.task_model(node).ok()?.task;
        let last = i128::from(self.longest_window(context, competitors)?);
        let (jitter, period) = (i128::from(task.jitter.as_ns()), i128::from(task.period.as_ns()));
        let deadline = if by_arrival { 0 } else { i128::from(task.deadline.as_ns()) };
        let mut longest = task.cost.as_ns();
        let mut left = self.model.iteration_limit(context.above.len() + competitors.len());
        for competitor in competitors {
            // Deadlines of the competitor, as arrivals of the task.
            let (first, step) = (competitor.first_due() - deadline, i128::from(competitor.period));
            let skip = (-jitter - first).max(0);
            let mut alpha = first + (skip + step - 1) / step * step;
            while alpha < last {
                let own = u64::try_from((alpha + jitter) / period + 1)
                    .ok()?
                    .checked_mul(task.cost.as_ns())?;
                let mut window = 1;
                loop {
                    left = left.checked_sub(1)?;
                    let mut asked = own
                        .saturating_add(context.blocking)
                        .saturating_add(all_within(&context.above, window));
                    for other in competitors.iter().filter(|other| other.node != node) {
                        let interference = if other.interference.is_empty() {
                            u64::MAX
                        } else {
                            all_within(&other.interference, window)
                        };
                        asked = asked
                            .saturating_add(interference.min(other.due_in_steps(alpha + deadline)));
                    }
                    let next =
                        context.supply.time_for(Work::from_ns(asked.min(HORIZON_NS + 1)))?.as_ns();
                    if next <= window {
                        break;
                    }
                    window = next;
                }
                longest = longest.max(u64::try_from(i128::from(window) - alpha).unwrap_or(0));
                alpha += step;
            }
        }
        Some(longest)
    }
}

/// Returns the interference from above the level and the interference of its competitors.
fn all_interference(context: &Context, competitors: &[Competitor]) -> Vec<InterferenceCurve> {
    let level = competitors.iter().flat_map(|competitor| competitor.interference.iter().copied());
    context.above.iter().copied().chain(level).collect()
}
