//! Demand against supply, to be drawn: for each CPU, partition and server what it supplies at
//! least, and what the one inside that is nearest to its deadline asks for together with all that
//! comes before it.
//!
//! The curves are those that the bounds are found with ([`crate::supply`]): a job is done where
//! supply meets demand. For a task or a server by a fixed order, demand is what is above, and the
//! jobs of its own up to the one whose response is the longest. For a level by deadlines it is what
//! is due by then, and the supply is what is left by those above the level.
//!
//! Absent on purpose: roots with several CPUs, whose tests compare no two curves.

use super::answer::NoTest;
use super::edf::Rival;
use super::roots::Roots;
use super::walk::{Place, Walk};
use crate::supply::curve::all_within;
use crate::supply::{Curve, Leftover, Supply};
use crate::uni::HORIZON;
use alloc::vec::Vec;
use talea_core::machine::{Body, NodeId, Tree};
use talea_core::mutate;
use talea_core::{Span, Work};

/// One node with its curves.
#[derive(Clone, Debug)]
pub struct Picture {
    /// The root, a partition or a server: whose supply it is.
    pub node: NodeId,
    /// Whose demand: a task, a server, or a scheduler by deadlines.
    pub subject: NodeId,
    /// How far it is drawn.
    pub window: Span,
    /// Corners of the least supply; straight lines in between.
    pub supply: Vec<(Span, Work)>,
    /// From each instant on, so much is asked for.
    pub demand: Vec<(Span, Work)>,
    /// Where to look: where the subject is done, or the instant of the least to spare.
    pub mark: Span,
    /// What is asked for there.
    pub asked: Work,
    /// What there is.
    pub given: Work,
    /// When the subject must be done; of a level the mark itself.
    pub due: Span,
}

impl Picture {
    /// Whether more is asked for than there is in time.
    pub fn is_exceeded(&self) -> bool {
        self.mark > self.due || self.asked > self.given
    }
}

/// Instants looked at, and corners kept.
const INSTANTS: usize = 3_000;
const CORNERS: usize = 600;

impl Roots<'_> {
    /// A picture for the root and for each partition and server that something competes in, in the
    /// order of the tree. What has no test has no picture.
    pub fn pictures(&self) -> Vec<Picture> {
        let mut walk = Walk::new(self);
        if walk.is_covered().is_err() || self.tree.cpus > 1 {
            return Vec::new();
        }
        let nodes: Vec<NodeId> = self.tree.nodes().map(|(node, _)| node).collect();
        // Of each home the tightest subject; all are measured, and only what is shown is drawn.
        let mut tightest: Vec<(NodeId, u128, Measured)> = Vec::new();
        let mut levels = Vec::new();
        for who in nodes {
            if who == Tree::ROOT || !walk.competes(who) {
                continue;
            }
            let Ok(place) = walk.place(who) else { continue };
            let home = walk.home(who);
            let measured = match place.level {
                Some((level, false)) if levels.contains(&level) => continue,
                Some((level, false)) => {
                    levels.push(level);
                    walk.measure_level(level, place)
                }
                _ => walk.measure(who, place),
            };
            let Ok(Some(measured)) = measured else { continue };
            let tight = measured.tightness();
            match tightest.iter_mut().find(|(other, ..)| *other == home) {
                Some(found) if found.1 < tight => *found = (home, tight, measured),
                Some(_) => {}
                None => tightest.push((home, tight, measured)),
            }
        }
        let mut pictures: Vec<Picture> =
            tightest.into_iter().map(|(home, _, measured)| walk.draw(home, &measured)).collect();
        pictures.sort_by_key(|picture| picture.node);
        pictures
    }
}

/// Where a subject is done, or has the least to spare.
struct Measured {
    subject: NodeId,
    place: Place,
    mark: u64,
    due: u64,
    /// What it asks for besides what is above.
    fixed: u64,
    /// A level, with how far it is drawn.
    level: Option<(Vec<Rival>, u64)>,
    asked: u64,
    given: u64,
}

impl Measured {
    /// The larger, the less there is to spare.
    fn tightness(&self) -> u128 {
        let part = |a: u64, b: u64| (u128::from(a) << 32) / u128::from(b.max(1));
        if self.level.is_some() { part(self.asked, self.given) } else { part(self.mark, self.due) }
    }
}

impl Walk<'_> {
    /// A task, or a server that has to be served.
    fn competes(&self, node: NodeId) -> bool {
        match self.body(node) {
            Body::Task(_) => true,
            Body::Scheduler(spec) => spec.reservation.as_ref().is_some_and(super::walk::waits),
        }
    }

    /// Whose supply `who` lives on.
    fn home(&self, who: NodeId) -> NodeId {
        let mut at = who;
        while let Some(above) = self.parent(at) {
            let (gates, is_table) = match self.body(above) {
                Body::Scheduler(spec) => (
                    spec.reservation.as_ref().is_some_and(super::walk::waits),
                    matches!(spec.policy, talea_core::sched::Policy::Partitions { .. }),
                ),
                Body::Task(_) => (false, false),
            };
            if is_table {
                return at;
            }
            at = above;
            if gates {
                break;
            }
        }
        at
    }

    /// What one job of a task, or one budget, asks for; its period; when it is due from the begin
    /// of a window that it begins.
    fn asks(&self, who: NodeId) -> Result<(u64, u64, u64), NoTest> {
        Ok(match self.body(who) {
            Body::Task(_) => {
                let task = self.leaf(who)?.task;
                (
                    task.cost.as_ns(),
                    task.period.as_ns(),
                    task.deadline.as_ns().saturating_sub(task.jitter.as_ns()),
                )
            }
            Body::Scheduler(spec) => {
                let of = spec.reservation.as_ref();
                of.map_or((0, 1, 1), |of| (of.budget.as_ns(), of.period.as_ns(), of.period.as_ns()))
            }
        })
    }

    fn measure(&mut self, who: NodeId, mut place: Place) -> Result<Option<Measured>, NoTest> {
        let (cost, period, due) = self.asks(who)?;
        // In a queue all others may have come before.
        let mut others = Vec::new();
        self.collect_others(who, &place, &mut others)?;
        place.above.extend(others);
        let own =
            Curve { cost: Work::from_ns(cost), period: Span::from_ns(period), jitter: Span::ZERO };
        let is_too_much =
            super::walk::is_overload(&[place.above.as_slice(), &[own]].concat(), &place.supply);
        let level = Leftover::new(&place.supply, &place.above, self.rounds(place.above.len()));
        // Who is not interrupted asks for no more than his first nanosecond, and that early enough
        // for the rest.
        let rest = if place.held.is_some() && place.level.is_none() { cost - 1 } else { 0 };
        // The job with the longest response of the busy window.
        let (mut jobs, mut worst) = (1, (0u64, 1u64, None));
        while !is_too_much && jobs <= 1_000 {
            let asked = (jobs * cost).saturating_add(place.blocking).min(HORIZON + 1);
            let time_for = |asked| level.time_for(Work::from_ns(asked)).map(Span::as_ns);
            let Some(done) = time_for(asked - rest) else { break };
            let response = done.saturating_sub((jobs - 1) * period);
            if response > worst.0 {
                worst = (response, jobs, Some(done));
            }
            // Where his rest holds up others the window goes on.
            let end = if rest > 0 { time_for(asked).unwrap_or(0) } else { done };
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
        let fixed = (jobs * cost - rest).saturating_add(place.blocking);
        let mark = done.unwrap_or(due).max(1);
        let asked = fixed.saturating_add(all_within(&place.above, mark));
        let given = place.supply.least(Span::from_ns(mark)).as_ns();
        Ok(Some(Measured { subject: who, place, mark, due, fixed, level: None, asked, given }))
    }

    fn measure_level(&mut self, level: NodeId, place: Place) -> Result<Option<Measured>, NoTest> {
        let rivals = self.rivals(level, false)?;
        let first = |rival: &Rival| u64::try_from(rival.first().max(0)).unwrap_or(u64::MAX);
        let Some(last) = rivals.iter().map(first).max() else { return Ok(None) };
        // A few of the longest distances: what is tight is so early, or the witness comes soon.
        let longest = rivals.iter().map(|rival| rival.period).max().unwrap_or(1);
        let far = window(last.saturating_add(longest.saturating_mul(3)));
        let mut at = Vec::new();
        for rival in &rivals {
            jumps(&mut at, rival.first(), rival.period, far);
        }
        at.extend(rivals.iter().map(Rival::shortest));
        at.sort_unstable();
        at.dedup();
        at.truncate(INSTANTS);
        let left = Leftover::new(&place.supply, &place.above, self.rounds(place.above.len()));
        // Nothing has to be done before the first deadline.
        let from = rivals.iter().map(Rival::shortest).min().unwrap_or(0).max(1);
        let mut tightest: Option<(i128, u64, u64, u64)> = None;
        for at in at {
            let asked = due(&rivals, place.blocking, at);
            if at < from || asked == 0 {
                continue;
            }
            let given = left.least(Span::from_ns(at)).as_ns();
            let spare = i128::from(given) - i128::from(asked);
            if tightest.is_none_or(|(least, ..)| spare < least) {
                tightest = Some((spare, at, asked, given));
            }
        }
        let Some((_, mark, asked, given)) = tightest else { return Ok(None) };
        let window = window((mark.saturating_mul(3) / 2).max(last.saturating_mul(5) / 4).min(far));
        let level_of = Some((rivals, window));
        Ok(Some(Measured {
            subject: level,
            place,
            mark,
            due: mark,
            fixed: 0,
            level: level_of,
            asked,
            given,
        }))
    }

    fn draw(&self, home: NodeId, of: &Measured) -> Picture {
        let Measured { subject, place, mark, due, .. } = of;
        let mut at = Vec::from([0, *mark]);
        let (window, demand, supply) = if let Some((rivals, window)) = &of.level {
            for rival in rivals {
                jumps(&mut at, rival.first(), rival.period, *window);
            }
            let left = Leftover::new(&place.supply, &place.above, self.rounds(place.above.len()));
            let ask = |at: u64| self::due(rivals, place.blocking, at);
            (*window, steps(at, *mark, ask), corners(&left, *window))
        } else {
            // What is not done in time is seen with the next few pieces of supply.
            let is_late = mark > due || of.asked > of.given;
            let piece =
                place.supply.rate().filter(|_| is_late).map_or(0, |rate| rate.every.as_ns());
            let window =
                window(((*mark).max(*due).saturating_mul(5) / 4).max(piece.saturating_mul(3)));
            for curve in &place.above {
                jumps(&mut at, -i128::from(curve.jitter.as_ns()), curve.period.as_ns(), window);
            }
            // These curves have jumped a nanosecond after the instant.
            let ask = |at: u64| {
                let after = if at == *mark { at } else { at + 1 };
                of.fixed.saturating_add(all_within(&place.above, after))
            };
            (window, steps(at, *mark, ask), corners(&place.supply, window))
        };
        Picture {
            node: home,
            subject: *subject,
            window: Span::from_ns(window),
            supply,
            demand,
            mark: Span::from_ns(*mark),
            asked: Work::from_ns(of.asked),
            given: Work::from_ns(of.given),
            due: Span::from_ns(*due),
        }
    }
}

/// What is due of a level within `at`.
fn due(rivals: &[Rival], blocking: u64, at: u64) -> u64 {
    match rivals.iter().fold(0u64, |sum, rival| sum.saturating_add(rival.due(at))) {
        0 => 0,
        asked => asked.saturating_add(blocking),
    }
}

fn window(ns: u64) -> u64 {
    ns.clamp(1, HORIZON / 2)
}

/// Instants `first + k·period` from zero to `to`; not all of them if there are too many.
fn jumps(out: &mut Vec<u64>, first: i128, period: u64, to: u64) {
    let period = i128::from(period.max(1));
    let skip = if first < 0 { (-first + period - 1) / period } else { 0 };
    let from = first + skip * period;
    let many = (i128::from(to) - from).max(0) / period + 1;
    let stride = (many / INSTANTS as i128).max(1);
    let mut at = from;
    while at <= i128::from(to) && out.len() < 4 * INSTANTS {
        out.push(u64::try_from(at).unwrap_or(0));
        at += stride * period;
    }
}

/// The steps of a demand; not all of them if there are too many, but always that at `mark`.
fn steps(mut at: Vec<u64>, mark: u64, ask: impl Fn(u64) -> u64) -> Vec<(Span, Work)> {
    at.sort_unstable();
    at.dedup();
    let stride = at.len().div_ceil(INSTANTS);
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

/// Where a supply bends, found by halving: what grows by nothing, or by all of the time, is
/// straight.
fn corners(supply: &impl Supply, window: u64) -> Vec<(Span, Work)> {
    let value = |at: u64| supply.least(Span::from_ns(at)).as_ns();
    let mut out = Vec::from([(0, value(0))]);
    let grain = (window / CORNERS as u64).max(1);
    halve(&value, (0, value(0)), (window, value(window)), grain, &mut out);
    let mut kept: Vec<(u64, u64)> = Vec::new();
    for point in out {
        // Three in a line are two.
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

fn halve(
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
    halve(value, from, at, grain, out);
    halve(value, at, to, grain, out);
}
