//! Plots of demand against supply.
//!
//! The plot of a CPU, partition or server has two curves: its least supply, and the demand of one
//! competitor with all interference on that competitor. The plotted competitor is the closest to
//! its deadline.
//!
//! The curves are those of the bounds ([`crate::supply`]): a job completes where supply meets
//! demand. The demand of a task or server with a fixed key is the interference plus its own jobs up
//! to the job with the longest response. The demand of an EDF level is the work due within the
//! window. The supply of the level is the part that interference from above the level leaves.
//!
//! Roots with several CPUs have no plot, because their tests do not compare two curves. Roots with
//! jobs that suspend themselves have none, because a suspension is no demand.

use super::bounds::Bounds;
use super::context::Context;
use super::edf::Competitor;
use super::node_supply::{can_delay_clients, is_overload};
use super::passes::Passes;
use super::root_model::RootModel;
use super::task_bound::NoBound;
use crate::supply::curve::all_within;
use crate::supply::{InterferenceCurve, Leftover, Supply};
use crate::uni::HORIZON_NS;
use alloc::vec::Vec;
use talea_core::engine::{NodeId, NodeSpec, Tree};
use talea_core::mutate;
use talea_core::{Span, Work};

/// Supply and demand of one node.
#[derive(Clone, Debug)]
pub struct DemandPlot {
    /// Owner of the supply: the root, a partition or a server.
    pub node: NodeId,
    /// Owner of the demand: a task, a server, or an EDF scheduler.
    pub subject: NodeId,
    /// Length of the plot.
    pub window: Span,
    /// Corners of the least supply, to be joined by straight lines.
    pub supply: Vec<(Span, Work)>,
    /// Steps of the demand: at each time, the total demand from that time on.
    pub demand: Vec<(Span, Work)>,
    /// Completion of the subject, or the time with the least slack.
    pub mark: Span,
    /// Demand at the mark.
    pub demand_at_mark: Work,
    /// Supply at the mark.
    pub supply_at_mark: Work,
    /// Deadline of the subject; for an EDF level the mark itself.
    pub due: Span,
}

impl DemandPlot {
    /// Whether the demand exceeds the supply by the deadline.
    pub fn is_exceeded(&self) -> bool {
        self.mark > self.due || self.demand_at_mark > self.supply_at_mark
    }
}

/// Maximum number of times at which a demand is evaluated.
const MAX_INSTANTS: usize = 3_000;
/// Maximum number of corners of a supply.
const MAX_CORNERS: usize = 600;

impl RootModel<'_> {
    /// Returns a plot for the root and for each partition and server with competitors, in the order
    /// of the tree. A node without a known test has no plot.
    pub fn demand_plots(&self) -> Vec<DemandPlot> {
        let passes = Passes::of(self);
        let mut bounds = passes.bounds();
        let is_plain = self.tree.cpus == 1 && !passes.model.suspends;
        if bounds.check_covered().is_err() || !is_plain {
            return Vec::new();
        }
        let nodes: Vec<NodeId> = self.tree.nodes().map(|(node, _)| node).collect();
        // The tightest subject of each supply owner. All subjects are evaluated; only the tightest
        // is plotted.
        let mut tightest: Vec<(NodeId, u128, TightestPoint)> = Vec::new();
        let mut levels = Vec::new();
        for subject in nodes {
            if subject == Tree::ROOT || !bounds.is_plotted(subject) {
                continue;
            }
            let Ok(context) = bounds.context(subject) else { continue };
            let home = bounds.supply_owner(subject);
            let measured = match context.level {
                Some((level, false)) if levels.contains(&level) => continue,
                Some((level, false)) => {
                    levels.push(level);
                    bounds.tightest_point_of_level(level, context)
                }
                _ => bounds.tightest_point(subject, context),
            };
            let Ok(Some(measured)) = measured else { continue };
            let tight = measured.tightness();
            match tightest.iter_mut().find(|(other, ..)| *other == home) {
                Some(found) if found.1 < tight => *found = (home, tight, measured),
                Some(_) => {}
                None => tightest.push((home, tight, measured)),
            }
        }
        let mut pictures: Vec<DemandPlot> =
            tightest.into_iter().map(|(home, _, measured)| bounds.plot(home, &measured)).collect();
        pictures.sort_by_key(|picture| picture.node);
        pictures
    }
}

/// Completion of a subject, or the time with its least slack.
struct TightestPoint {
    subject: NodeId,
    context: Context,
    mark: u64,
    due: u64,
    /// Demand besides the interference.
    fixed: u64,
    /// Competitors of an EDF level, with the length of its plot.
    level: Option<(Vec<Competitor>, u64)>,
    demand: u64,
    supply: u64,
}

impl TightestPoint {
    /// Returns a ratio that grows as the slack shrinks.
    fn tightness(&self) -> u128 {
        let part = |a: u64, b: u64| (u128::from(a) << 32) / u128::from(b.max(1));
        if self.level.is_some() {
            part(self.demand, self.supply)
        } else {
            part(self.mark, self.due)
        }
    }
}

impl Bounds<'_> {
    /// Whether `node` is a task, or a server that can delay its clients.
    fn is_plotted(&self, node: NodeId) -> bool {
        match self.model.node_spec(node) {
            NodeSpec::Task(_) => true,
            NodeSpec::Scheduler(spec) => spec.reservation.as_ref().is_some_and(can_delay_clients),
        }
    }

    /// Returns the owner of the supply of `subject`.
    fn supply_owner(&self, subject: NodeId) -> NodeId {
        let mut at = subject;
        while let Some(above) = self.model.parent(at) {
            let (is_boundary, is_table) = match self.model.node_spec(above) {
                NodeSpec::Scheduler(spec) => (
                    spec.reservation.as_ref().is_some_and(can_delay_clients),
                    matches!(spec.policy, talea_core::sched::PolicySpec::Partitions { .. }),
                ),
                NodeSpec::Task(_) => (false, false),
            };
            if is_table {
                return at;
            }
            at = above;
            if is_boundary {
                break;
            }
        }
        at
    }

    /// Returns the demand of one job or budget, its period, and its deadline. The deadline counts
    /// from the start of a window that begins with the job.
    fn demand_of_one_job(&self, subject: NodeId) -> Result<(u64, u64, u64), NoBound> {
        Ok(match self.model.node_spec(subject) {
            NodeSpec::Task(_) => {
                let task = self.model.task_model(subject)?.task;
                (
                    task.cost.as_ns(),
                    task.period.as_ns(),
                    task.deadline.as_ns().saturating_sub(task.jitter.as_ns()),
                )
            }
            NodeSpec::Scheduler(spec) => {
                let of = spec.reservation.as_ref();
                of.map_or((0, 1, 1), |of| (of.budget.as_ns(), of.period.as_ns(), of.period.as_ns()))
            }
        })
    }

    fn tightest_point(
        &mut self,
        subject: NodeId,
        mut context: Context,
    ) -> Result<Option<TightestPoint>, NoBound> {
        let (cost, period, due) = self.demand_of_one_job(subject)?;
        // In a FIFO queue all others may have arrived before.
        let mut others = Vec::new();
        self.collect_competitors(subject, &context, &mut others)?;
        context.above.extend(others);
        let own = InterferenceCurve {
            cost: Work::from_ns(cost),
            period: Span::from_ns(period),
            jitter: Span::ZERO,
        };
        let is_too_much =
            is_overload(&[context.above.as_slice(), &[own]].concat(), &context.supply);
        let level = Leftover::new(
            &context.supply,
            &context.above,
            self.model.iteration_limit(context.above.len()),
        );
        // A non-preemptive job demands only its first nanosecond, early enough to complete the
        // rest.
        let rest =
            if context.non_preemptive.is_some() && context.level.is_none() { cost - 1 } else { 0 };
        // Job with the longest response of the busy window.
        let (mut jobs, mut worst) = (1, (0u64, 1u64, None));
        while !is_too_much && jobs <= 1_000 {
            let demand = (jobs * cost).saturating_add(context.blocking).min(HORIZON_NS + 1);
            let time_for = |demand| level.time_for(Work::from_ns(demand)).map(Span::as_ns);
            let Some(done) = time_for(demand - rest) else { break };
            let response = done.saturating_sub((jobs - 1) * period);
            if response > worst.0 {
                worst = (response, jobs, Some(done));
            }
            // The window continues while the rest of the job delays others.
            let end = if rest > 0 { time_for(demand).unwrap_or(0) } else { done };
            mutate!(
                "analysis-picture-first",
                if end <= jobs * period {
                    break;
                },
                if end <= jobs * period || jobs == 1 {
                    break;
                }
            );
            jobs += 1;
        }
        let (_, jobs, done) = worst;
        let due = ((jobs - 1) * period + due).saturating_sub(rest);
        let fixed = (jobs * cost - rest).saturating_add(context.blocking);
        let mark = done.unwrap_or(due).max(1);
        let demand = fixed.saturating_add(all_within(&context.above, mark));
        let supply = context.supply.sbf(Span::from_ns(mark)).as_ns();
        Ok(Some(TightestPoint { subject, context, mark, due, fixed, level: None, demand, supply }))
    }

    fn tightest_point_of_level(
        &mut self,
        level: NodeId,
        context: Context,
    ) -> Result<Option<TightestPoint>, NoBound> {
        let competitors = self.competitors(level, false)?;
        let first = |competitor: &Competitor| {
            u64::try_from(competitor.first_due().max(0)).unwrap_or(u64::MAX)
        };
        let Some(last) = competitors.iter().map(first).max() else { return Ok(None) };
        // A few of the longest periods: the tightest time occurs that early, or a miss follows
        // soon.
        let longest = competitors.iter().map(|competitor| competitor.period).max().unwrap_or(1);
        let far = window(last.saturating_add(longest.saturating_mul(3)));
        let mut at = Vec::new();
        for competitor in &competitors {
            collect_jumps(&mut at, competitor.first_due(), competitor.period, far);
        }
        at.extend(competitors.iter().map(Competitor::first_deadline));
        at.sort_unstable();
        at.dedup();
        at.truncate(MAX_INSTANTS);
        let left = Leftover::new(
            &context.supply,
            &context.above,
            self.model.iteration_limit(context.above.len()),
        );
        // No work is due before the first deadline.
        let from = competitors.iter().map(Competitor::first_deadline).min().unwrap_or(0).max(1);
        let mut tightest: Option<(i128, u64, u64, u64)> = None;
        for at in at {
            let demand = due(&competitors, context.blocking, at);
            if at < from || demand == 0 {
                continue;
            }
            let supply = left.sbf(Span::from_ns(at)).as_ns();
            let spare = i128::from(supply) - i128::from(demand);
            if tightest.is_none_or(|(least, ..)| spare < least) {
                tightest = Some((spare, at, demand, supply));
            }
        }
        let Some((_, mark, demand, supply)) = tightest else { return Ok(None) };
        let window = window((mark.saturating_mul(3) / 2).max(last.saturating_mul(5) / 4).min(far));
        let level_of = Some((competitors, window));
        Ok(Some(TightestPoint {
            subject: level,
            context,
            mark,
            due: mark,
            fixed: 0,
            level: level_of,
            demand,
            supply,
        }))
    }

    fn plot(&self, home: NodeId, of: &TightestPoint) -> DemandPlot {
        let TightestPoint { subject, context, mark, due, .. } = of;
        let mut at = Vec::from([0, *mark]);
        let (window, demand, supply) = if let Some((competitors, window)) = &of.level {
            for competitor in competitors {
                collect_jumps(&mut at, competitor.first_due(), competitor.period, *window);
            }
            let left = Leftover::new(
                &context.supply,
                &context.above,
                self.model.iteration_limit(context.above.len()),
            );
            let ask = |at: u64| self::due(competitors, context.blocking, at);
            (*window, steps(at, *mark, ask), corners(&left, *window))
        } else {
            // Late completion is plotted with the next few pieces of supply.
            let is_late = mark > due || of.demand > of.supply;
            let piece =
                context.supply.rate().filter(|_| is_late).map_or(0, |rate| rate.every.as_ns());
            let window =
                window(((*mark).max(*due).saturating_mul(5) / 4).max(piece.saturating_mul(3)));
            for curve in &context.above {
                collect_jumps(
                    &mut at,
                    -i128::from(curve.jitter.as_ns()),
                    curve.period.as_ns(),
                    window,
                );
            }
            // These curves step one nanosecond after the time.
            let ask = |at: u64| {
                let after = if at == *mark { at } else { at + 1 };
                of.fixed.saturating_add(all_within(&context.above, after))
            };
            (window, steps(at, *mark, ask), corners(&context.supply, window))
        };
        DemandPlot {
            node: home,
            subject: *subject,
            window: Span::from_ns(window),
            supply,
            demand,
            mark: Span::from_ns(*mark),
            demand_at_mark: Work::from_ns(of.demand),
            supply_at_mark: Work::from_ns(of.supply),
            due: Span::from_ns(*due),
        }
    }
}

/// Returns the demand of a level that is due within a window of length `at`, plus the blocking.
fn due(competitors: &[Competitor], blocking: u64, at: u64) -> u64 {
    match competitors.iter().fold(0u64, |sum, competitor| sum.saturating_add(competitor.due(at))) {
        0 => 0,
        asked => asked.saturating_add(blocking),
    }
}

fn window(ns: u64) -> u64 {
    ns.clamp(1, HORIZON_NS / 2)
}

/// Appends the times `first + k·period` from zero to `to`. If there are too many, only each n-th is
/// appended.
fn collect_jumps(out: &mut Vec<u64>, first: i128, period: u64, to: u64) {
    let period = i128::from(period.max(1));
    let skip = if first < 0 { (-first + period - 1) / period } else { 0 };
    let from = first + skip * period;
    let many = (i128::from(to) - from).max(0) / period + 1;
    let stride = (many / MAX_INSTANTS as i128).max(1);
    let mut at = from;
    while at <= i128::from(to) && out.len() < 4 * MAX_INSTANTS {
        out.push(u64::try_from(at).unwrap_or(0));
        at += stride * period;
    }
}

/// Returns the steps of a demand at the times `at`. If there are too many, only each n-th is kept,
/// and the step at `mark`.
fn steps(mut at: Vec<u64>, mark: u64, ask: impl Fn(u64) -> u64) -> Vec<(Span, Work)> {
    at.sort_unstable();
    at.dedup();
    let stride = at.len().div_ceil(MAX_INSTANTS);
    let mut demand: Vec<(Span, Work)> = Vec::new();
    for (number, &instant) in at.iter().enumerate() {
        if number % stride != 0 && instant != mark {
            continue;
        }
        let asked = Work::from_ns(ask(instant));
        if demand.last().is_none_or(|&(_, last)| last != asked) {
            demand.push((Span::from_ns(instant), asked));
        }
    }
    demand
}

/// Returns the corners of a supply, found by bisection. A segment in which the supply is constant,
/// or grows by the full time, is straight.
fn corners(supply: &impl Supply, window: u64) -> Vec<(Span, Work)> {
    let value = |at: u64| supply.sbf(Span::from_ns(at)).as_ns();
    let mut out = Vec::from([(0, value(0))]);
    let grain = (window / MAX_CORNERS as u64).max(1);
    bisect(&value, (0, value(0)), (window, value(window)), grain, &mut out);
    let mut kept: Vec<(u64, u64)> = Vec::new();
    for point in out {
        // Of three points on a line the middle one is dropped.
        if let [.., a, b] = kept[..] {
            let (dx, dy) = ((b.0 - a.0), (b.1 - a.1));
            let (ex, ey) = ((point.0 - b.0), (point.1 - b.1));
            if u128::from(dx) * u128::from(ey) == u128::from(ex) * u128::from(dy) {
                kept.pop();
            }
        }
        kept.push(point);
    }
    kept.into_iter().map(|(at, work)| (Span::from_ns(at), Work::from_ns(work))).collect()
}

fn bisect(
    value: &impl Fn(u64) -> u64,
    from: (u64, u64),
    to: (u64, u64),
    grain: u64,
    out: &mut Vec<(u64, u64)>,
) {
    let (time, work) = (to.0 - from.0, to.1 - from.1);
    if work == 0 || work == time || time <= grain {
        out.push(to);
        return;
    }
    let middle = from.0 + time / 2;
    let at = (middle, value(middle));
    bisect(value, from, at, grain, out);
    bisect(value, at, to, grain, out);
}
