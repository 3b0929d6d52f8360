//! One EDF level of a tree: tasks and servers by deadline, on any supply, below whatever is above
//! the level.
//!
//! *Tasks.* M. González Harbour and J. C. Palencia, RTSS 2003 (M. Spuri, INRIA RR-2772, 1996), on a
//! supply: a job that arrives α after the begin of its deadline busy window has ended by the least
//! x with
//!
//! > x = time_for(own(α) + B + above(x) + Σ_e min(takes_e(x), due_e(α + D))),
//!
//! where α runs over the arrivals at which the deadline meets one of the level's, up to the longest
//! busy window of the level.
//!
//! *Servers* have deadlines of their own, and what is due of them within d is
//!
//! | server | due(d) |
//! | --- | --- |
//! | polling | (⌊(d − D)/T⌋ + 1)⁺·Q |
//! | sporadic | (⌊(d − D + Q − 1)/T⌋ + 1)⁺·Q: pieces that touch are one, with the deadline of the first |
//! | deferrable | min(Q, d) before D, then (n + 1)·Q + min(Q, ρ) with n, ρ of (d − D)/T: what is left of a period may come at its very end |
//! | CBS | ⌊d/T⌋·Q + min(Q, ⌊(d mod T)·Q/D⌋): what it keeps fits at the density Q/D |
//!
//! The demand test over all of them proves every deadline of the level at once, from the least
//! relative deadline on (a deferrable server's leftovers have none that must be kept). It is walked
//! as in [`crate::supply::edf`].

use super::answer::{NoTest, Reason};
use super::read::Reach;
use super::walk::{Place, Walk};
use crate::Sporadic;
use crate::card::{Card, Kind};
use crate::supply::curve::all_within;
use crate::supply::fp::curve;
use crate::supply::{Curve, Leftover, Supply};
use crate::uni::{HORIZON, Scratch, edf_response, np_edf, qpa};
use alloc::vec::Vec;
use talea_core::machine::{Body, NodeId};
use talea_core::mutate;
use talea_core::server::Kind as Server;
use talea_core::{Span, Work};

/// A demand test may take so many times the steps of a bound: it is asked once for a whole level.
const PATIENT: u64 = 64;

/// What a bound is, and whose.
type Named = (Kind, &'static Card);

/// When the work of a rival is due.
#[derive(Clone, Copy, Debug)]
enum Due {
    /// A first piece after so long (perhaps before the window), then one each period.
    Every(i128),
    Deferrable(u64),
    Bandwidth(u64),
}

/// A task or a server of the level.
pub(super) struct Rival {
    node: NodeId,
    cost: u64,
    pub(super) period: u64,
    due: Due,
    /// What it takes in a window, whatever its deadlines.
    takes: Vec<Curve>,
}

impl Rival {
    /// What is due within `at`.
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

    /// Not below `due`, in steps of a whole budget each period: when the first is due.
    pub(super) fn first(&self) -> i128 {
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

    /// The same at `at`.
    fn due_in_steps(&self, at: i128) -> u64 {
        let since = at - self.first();
        let jobs = if since < 0 { 0 } else { since / i128::from(self.period) + 1 };
        u64::try_from(jobs).unwrap_or(u64::MAX).saturating_mul(self.cost)
    }

    /// The shortest window at whose end something must have been done.
    pub(super) fn shortest(&self) -> u64 {
        match self.due {
            Due::Every(first) => u64::try_from(first).unwrap_or(0),
            Due::Deferrable(deadline) => deadline,
            Due::Bandwidth(deadline) => deadline.div_ceil(self.cost),
        }
    }
}

impl Walk<'_> {
    pub(super) fn rivals(&mut self, level: NodeId, by_arrival: bool) -> Result<Vec<Rival>, NoTest> {
        let entities = self.entities(level).unwrap_or_default();
        let mut rivals = Vec::with_capacity(entities.len());
        for node in entities {
            let spec = match self.body(node) {
                Body::Task(_) => {
                    let task = self.leaf(node)?.task;
                    let deadline = if by_arrival { 0 } else { i128::from(task.deadline.as_ns()) };
                    rivals.push(Rival {
                        node,
                        cost: task.cost.as_ns(),
                        period: task.period.as_ns(),
                        due: Due::Every(deadline - i128::from(task.jitter.as_ns())),
                        takes: Vec::from([curve(&task)]),
                    });
                    continue;
                }
                Body::Scheduler(spec) => spec,
            };
            let Some(of) = &spec.reservation else { continue };
            let (cost, deadline) = (of.budget.as_ns(), of.relative_deadline().as_ns());
            let due = match of.kind {
                Server::Polling => Due::Every(i128::from(deadline)),
                Server::Sporadic => Due::Every(i128::from(deadline) - i128::from(cost) + 1),
                Server::Deferrable => Due::Deferrable(deadline),
                Server::HardCbs | Server::SoftCbs => Due::Bandwidth(deadline),
                Server::Custom { .. } => return Err(NoTest { node, reason: Reason::CustomServer }),
            };
            let mut takes = Vec::new();
            self.collect_all(node, &mut takes)?;
            rivals.push(Rival { node, cost, period: of.period.as_ns(), due, takes });
        }
        Ok(rivals)
    }

    /// Adds what all of the level but `node` takes.
    pub(super) fn collect_others(
        &mut self,
        node: NodeId,
        place: &Place,
        out: &mut Vec<Curve>,
    ) -> Result<(), NoTest> {
        let Some((level, by_arrival)) = place.level else { return Ok(()) };
        let rivals = self.rivals(level, by_arrival)?;
        let others = rivals.iter().filter(|rival| rival.node != node);
        out.extend(others.flat_map(|rival| rival.takes.iter().copied()));
        Ok(())
    }

    /// The longest window in which the level, and what is above it, is busy.
    fn longest_window(&self, place: &Place, rivals: &[Rival]) -> Option<u64> {
        let all = all_of(place, rivals);
        if super::walk::is_overload(&all, &place.supply) {
            return None;
        }
        let mut window = 1;
        for _ in 0..self.rounds(all.len()) {
            let asked = all_within(&all, window).saturating_add(place.blocking);
            let next = place.supply.time_for(Work::from_ns(asked.min(HORIZON + 1)))?.as_ns();
            if next <= window {
                return Some(window);
            }
            window = next;
        }
        None
    }

    /// Whether every deadline of the level is met.
    pub(super) fn level_fits(&mut self, place: &Place) -> Result<bool, NoTest> {
        let Some((level, _)) = place.level else { return Ok(false) };
        if let Some(found) = self.levels.get(&level) {
            return found.clone();
        }
        let found = self.rivals(level, false).map(|rivals| {
            (place.held.is_some() && self.is_held(&rivals)) || self.is_within(place, &rivals)
        });
        self.levels.insert(level, found.clone());
        found
    }

    /// Whether every deadline of tasks alone below a root that does not preempt is met: who is in
    /// the way depends on the window.
    fn is_held(&self, rivals: &[Rival]) -> bool {
        let tasks: Result<Vec<Sporadic>, NoTest> =
            rivals.iter().map(|rival| Ok(self.leaf(rival.node)?.task)).collect();
        let mut scratch = Scratch::with_limit(self.rounds(0).saturating_mul(PATIENT));
        tasks.is_ok_and(|tasks| np_edf::verdict_in(&tasks, &mut scratch).is_proved())
    }

    fn is_within(&self, place: &Place, rivals: &[Rival]) -> bool {
        let all: Vec<Curve> = (rivals.iter())
            .map(|rival| Curve {
                cost: Work::from_ns(rival.cost),
                period: Span::from_ns(rival.period),
                jitter: Span::ZERO,
            })
            .collect();
        let is_whole =
            matches!(place.supply, super::servers::Supplied::Dedicated) && place.above.is_empty();
        let is_smooth = |rival: &Rival| match rival.due {
            Due::Every(first) => first >= i128::from(rival.period),
            Due::Bandwidth(deadline) => deadline == rival.period,
            Due::Deferrable(_) => false,
        };
        // ΣQ/T ≤ 1 is all that there is to ask (Liu and Layland 1973; Abeni and Buttazzo 1998):
        // exactly, for at U = 1 the busy window of bandwidths does not end.
        if is_whole && place.blocking == 0 && rivals.iter().all(is_smooth) {
            let demands: Vec<crate::Demand> =
                all.iter().map(|one| crate::Demand::new(one.cost, one.period)).collect();
            return crate::demand::sum_at_most(&demands, talea_core::Charge::ONE);
        }
        let Some(mut at) = self.longest_window(place, rivals) else { return false };
        let shortest = rivals.iter().map(Rival::shortest).min().unwrap_or(0);
        let level = Leftover::new(&place.supply, &place.above, self.rounds(place.above.len()));
        for _ in 0..self.rounds(place.above.len() + rivals.len()) {
            let asked = rivals.iter().fold(0u64, |sum, rival| sum.saturating_add(rival.due(at)));
            if asked == 0 || at < shortest {
                return true;
            }
            let asked = asked.saturating_add(place.blocking).min(HORIZON + 1);
            match level.time_for(Work::from_ns(asked)) {
                Some(time) if time.as_ns() <= at => at = time.as_ns() - 1,
                _ => return false,
            }
        }
        false
    }

    /// What the search among the tasks of a level says of one of them: exact where it may come at
    /// any distance from the others, and where all that ties with it comes first, which is so of
    /// the last one.
    fn kind_among(&self, node: NodeId, rivals: &[Rival]) -> Kind {
        let reach = |node: NodeId| self.leaf(node).map_or(Reach::None, |leaf| leaf.reach);
        let is_last =
            |other: &Rival| other.node <= node && self.parent(other.node) == self.parent(node);
        if (rivals.len() > 1 && reach(node) != Reach::Any)
            || !mutate!("tree-exact-ties", rivals.iter().all(is_last), rivals.iter().any(is_last))
        {
            return Kind::Sufficient;
        }
        // A job that is seen late is due, or queued, as if it were not.
        let is_late = |rival: &Rival| matches!(reach(rival.node), Reach::Fixed { jitter, .. } if !jitter.is_zero());
        if rivals.iter().any(is_late) {
            return Kind::Sufficient;
        }
        let nodes: Vec<NodeId> = rivals.iter().map(|rival| rival.node).collect();
        self.kind_of(&nodes)
    }

    /// The longest response of a task of a level, and what that is.
    pub(super) fn bound_by_deadline(
        &mut self,
        node: NodeId,
        place: &Place,
    ) -> Result<(Span, Named), NoTest> {
        let Some((level, by_arrival)) = place.level else {
            return Err(NoTest { node, reason: Reason::Limit });
        };
        let task = self.leaf(node)?.task;
        let rivals = self.rivals(level, by_arrival)?;
        let only_tasks = rivals.iter().all(|rival| matches!(self.body(rival.node), Body::Task(_)));
        let is_alone = place.alone.is_some() && only_tasks;
        if is_alone && !by_arrival && rivals.len() > 1 {
            return self.all_by_deadline(node, &rivals);
        }
        let found = self.search(node, place, &rivals, by_arrival);
        // What the demand test proves is a bound as well, and often the better one among servers.
        let fits = !by_arrival && !self.blocks() && self.level_fits(place)?;
        if fits && place.held.is_some() && found.is_none_or(|found| found > task.deadline.as_ns()) {
            self.names(node, (Kind::Sufficient, &np_edf::CARD));
        }
        let bound = match (found, fits) {
            (Some(found), true) => found.min(task.deadline.as_ns()),
            (None, true) => task.deadline.as_ns(),
            (Some(found), false) => found,
            (None, false) => {
                let asks_more = super::walk::is_overload(&all_of(place, &rivals), &place.supply);
                let reason = if asks_more { Reason::Overload } else { Reason::Limit };
                return Err(NoTest { node, reason });
            }
        };
        let is_exact = is_alone && found == Some(bound);
        let kind = if is_exact { self.kind_among(node, &rivals) } else { Kind::Sufficient };
        Ok((Span::from_ns(bound), (kind, &edf_response::CARD)))
    }

    /// Tasks alone on a CPU of their own: all of the level at once, by the fast search.
    fn all_by_deadline(&mut self, node: NodeId, rivals: &[Rival]) -> Result<(Span, Named), NoTest> {
        let mut tasks = Vec::with_capacity(rivals.len());
        for rival in rivals {
            tasks.push(self.leaf(rival.node)?.task);
        }
        // Demand decides sooner than responses, and where these take too long it is all that there
        // is.
        let mut scratch = Scratch::with_limit(self.rounds(0).saturating_mul(PATIENT));
        let fits = matches!(qpa::find(&tasks, &mut scratch), Ok(qpa::Finding::Fits));
        let many = if fits { (tasks.len() as u64).min(4 * PATIENT) } else { tasks.len() as u64 };
        let mut scratch = Scratch::with_limit(self.rounds(0).saturating_mul(many));
        let mut out = alloc::vec![None; tasks.len()];
        let searched = edf_response::bounds(&tasks, &mut scratch, &mut out);
        let mut own = Err(NoTest { node, reason: Reason::Limit });
        for ((rival, task), bound) in rivals.iter().zip(&tasks).zip(out) {
            let of = match bound {
                None if fits => (Kind::Sufficient, &qpa::CARD),
                _ => (self.kind_among(rival.node, rivals), &edf_response::CARD),
            };
            let reason = if searched.is_ok() { Reason::Overload } else { Reason::Limit };
            let bound = mutate!(
                "tree-edf-demand",
                match bound {
                    Some(bound) => Ok(bound.arrival),
                    None if fits => Ok(task.deadline),
                    None => Err(NoTest { node: rival.node, reason }),
                },
                match bound {
                    Some(bound) => Ok(bound.arrival),
                    None if fits && rivals.is_empty() => Ok(task.deadline),
                    None => Err(NoTest { node: rival.node, reason }),
                }
            );
            if rival.node == node {
                self.names(node, of);
                own = bound.map(|bound| (bound, of));
            } else {
                self.found(rival.node, bound, of);
            }
        }
        own
    }

    fn search(
        &self,
        node: NodeId,
        place: &Place,
        rivals: &[Rival],
        by_arrival: bool,
    ) -> Option<u64> {
        let task = self.leaf(node).ok()?.task;
        let last = i128::from(self.longest_window(place, rivals)?);
        let (jitter, period) = (i128::from(task.jitter.as_ns()), i128::from(task.period.as_ns()));
        let deadline = if by_arrival { 0 } else { i128::from(task.deadline.as_ns()) };
        let mut longest = task.cost.as_ns();
        let mut left = self.rounds(place.above.len() + rivals.len());
        for rival in rivals {
            // Deadlines of the rival, as arrivals of the task.
            let (first, step) = (rival.first() - deadline, i128::from(rival.period));
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
                        .saturating_add(place.blocking)
                        .saturating_add(all_within(&place.above, window));
                    for other in rivals.iter().filter(|other| other.node != node) {
                        let takes = if other.takes.is_empty() {
                            u64::MAX
                        } else {
                            all_within(&other.takes, window)
                        };
                        asked =
                            asked.saturating_add(takes.min(other.due_in_steps(alpha + deadline)));
                    }
                    let next =
                        place.supply.time_for(Work::from_ns(asked.min(HORIZON + 1)))?.as_ns();
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

/// Whatever is above the level, and the level.
fn all_of(place: &Place, rivals: &[Rival]) -> Vec<Curve> {
    let level = rivals.iter().flat_map(|rival| rival.takes.iter().copied());
    place.above.iter().copied().chain(level).collect()
}
