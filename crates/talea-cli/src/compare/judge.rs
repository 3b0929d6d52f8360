//! A real run of one root against its model.

use super::Tolerance;
use super::disturbed::Disturbed;
use super::lives::{Life, Lives, Name};
use super::model::{Expected, Model, Range};
use crate::measured::Checked;
use talea_core::machine::TaskId;
use talea_core::mutate;
use talea_core::{Span, Time};

/// What was found.
#[derive(Clone, Debug, Default)]
pub(crate) struct Findings {
    /// Jobs that were looked at.
    pub(crate) jobs: u64,
    /// And those that a hole has touched.
    pub(crate) excluded: u64,
    /// Those that holes within the tolerance have brushed: held against bounds, not against orders
    /// and ends.
    pub(crate) brushed: u64,
    /// By task, of the jobs that count.
    pub(crate) responses: Vec<Vec<Span>>,
    /// By task: late, of the jobs that count.
    pub(crate) late: Vec<u64>,
    /// Begins and ends that were held against the order.
    pub(crate) instants: u64,
    /// Two instants that came the other way round, at first.
    pub(crate) turned: Option<Turned>,
    /// How many instants came before one that every simulation has earlier.
    pub(crate) turns: u64,
    /// Jobs that ended earlier or later than in every simulation, the first of them, and by how
    /// much.
    pub(crate) strays: u64,
    pub(crate) stray: Option<(Name, Span)>,
    /// Jobs beyond their task's bound, the first of them, and by how much.
    pub(crate) beyond: u64,
    pub(crate) exceeds: Option<(Name, Span)>,
    /// What the kernel says to the orders, if it says anything.
    pub(crate) kernel: Option<Checked>,
}

/// What a run is held to, beside bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Promised {
    /// Begins and ends where simulations have them.
    Order,
    /// Whoever is in time in every simulation is so.
    Deadlines,
    /// Nothing.
    Bounds,
}

/// Of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Instant {
    Begin(Name),
    End(Name),
}

/// `earlier` comes first in every simulation, and came second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Turned {
    pub(crate) earlier: Instant,
    pub(crate) later: Instant,
    /// How far apart they are in the simulations at least.
    pub(crate) apart: Span,
    /// By how much they were turned.
    pub(crate) by: Span,
}

impl Findings {
    /// Whether nothing contradicts.
    pub(crate) fn agree(&self) -> bool {
        let is_obeyed = self.kernel.as_ref().is_none_or(Checked::is_obeyed);
        self.turns == 0 && self.strays == 0 && self.beyond == 0 && is_obeyed
    }

    /// Whether too little is left to say anything: more than a twentieth is touched, or more than
    /// half is touched or brushed.
    pub(crate) fn are_inconclusive(&self) -> bool {
        self.excluded * 20 > self.jobs || (self.excluded + self.brushed) * 2 > self.jobs
    }
}

/// Holds what was measured until `end` against the model. `despite` is the bound of a task whose
/// job has lost what the tolerance is for, which may have let others come in between.
pub(crate) fn judge(
    model: &Model,
    despite: impl Fn(TaskId) -> Option<Span>,
    lives: &Lives,
    disturbed: &Disturbed,
    (tolerance, promised): (Tolerance, Promised),
    end: Time,
) -> Findings {
    let tasks = model.bounds.len();
    let mut found = Findings {
        responses: vec![Vec::new(); tasks],
        late: vec![0; tasks],
        ..Findings::default()
    };
    let mut instants: Vec<(Instant, Range, Time, Span)> = Vec::new();
    for (&name, life) in &lives.jobs {
        found.jobs += 1;
        if disturbed.touches(life) {
            found.excluded += 1;
            continue;
        }
        let task = name.0.0 as usize;
        let is_brushed = disturbed.brushes(life);
        let response = life.release.zip(life.end).map(|(release, end)| end.since(release.min(end)));
        let slack = tolerance.of(response.unwrap_or(Span::ZERO));
        let over =
            |bound: Span| response?.checked_sub(bound + slack).filter(|over| !over.is_zero());
        let mut beyond = model.bounds[task].within_reason.and_then(over);
        if beyond.is_some() && is_brushed {
            let Some(bound) = despite(name.0) else {
                // No test knows a bound for it with what it lost: it says nothing.
                mutate!("compare-judge-boundless", found.excluded += 1, found.brushed += 1);
                continue;
            };
            mutate!(
                "compare-judge-despite",
                {
                    beyond = mutate!(
                        "compare-judge-brushed",
                        over(bound),
                        model.bounds[task]
                            .within_reason
                            .and_then(over)
                            .filter(|_| bound > Span::ZERO)
                    );
                },
                {
                    beyond = over(bound).filter(|_| false);
                }
            );
        }
        if let Some(over) = beyond {
            found.beyond += 1;
            found.exceeds.get_or_insert((name, over));
        }
        let due = life.deadline.is_some_and(|deadline| life.end.unwrap_or(end) > deadline);
        found.late[task] += u64::from(due);
        found.responses[task].extend(response);
        if is_brushed {
            found.brushed += 1;
            continue;
        }
        let Some(expected) = model.jobs.get(&name) else { continue };
        if promised != Promised::Order {
            if promised == Promised::Deadlines
                && let Some(off) = misses(expected, life, slack, end)
            {
                found.strays += 1;
                found.stray.get_or_insert((name, off));
            }
            continue;
        }
        if let Some(off) = strays(expected, life, slack, end) {
            found.strays += 1;
            found.stray.get_or_insert((name, off));
        }
        let both = [
            (Instant::Begin(name), expected.begin.zip(life.begin)),
            (Instant::End(name), expected.end.zip(life.end)),
        ];
        instants.extend(both.into_iter().filter_map(|(instant, both)| {
            let (range, measured) = both?;
            Some((instant, range, measured, slack))
        }));
    }
    found.instants = instants.len() as u64;
    order(&instants, &mut found);
    found
}

/// By how much a job ended outside of what the simulations say.
fn strays(expected: &Expected, life: &Life, slack: Span, until: Time) -> Option<Span> {
    let Range { first, last } = expected.end?;
    let latest = last.saturating_add(slack);
    match life.end {
        Some(end) if end > latest => Some(end.since(latest)),
        Some(end) if end < first => {
            first.since(end).checked_sub(slack).filter(|off| !off.is_zero())
        }
        None if until > latest => Some(until.since(latest)),
        _ => None,
    }
}

/// By how much a job missed its deadline that no simulation has late.
fn misses(expected: &Expected, life: &Life, slack: Span, until: Time) -> Option<Span> {
    let deadline =
        life.deadline.filter(|&deadline| expected.end.is_some_and(|end| end.last <= deadline))?;
    let latest = deadline.saturating_add(slack);
    let end = life.end.unwrap_or(until);
    (end > latest).then(|| end.since(latest))
}

/// Looks for instants that came before one that every simulation has before them, by more than the
/// tolerance.
fn order(instants: &[(Instant, Range, Time, Span)], found: &mut Findings) {
    let mut by_last: Vec<_> = instants.iter().collect();
    by_last.sort_by_key(|(_, range, _, slack)| range.last.saturating_add(*slack));
    let mut by_first: Vec<_> = instants.iter().collect();
    by_first.sort_by_key(|(_, range, ..)| range.first);
    let mut certain = by_last.into_iter().peekable();
    let mut latest: Option<&(Instant, Range, Time, Span)> = None;
    for later in by_first {
        // All that is over for certain when this one comes at the earliest.
        while let Some(earlier) = certain
            .next_if(|(_, range, _, slack)| range.last.saturating_add(*slack) < later.1.first)
        {
            if latest.is_none_or(|latest| latest.2 < earlier.2) {
                latest = Some(earlier);
            }
        }
        if let Some(earlier) = latest.filter(|earlier| {
            mutate!("cli-compare-order", earlier.2 > later.2, earlier.2 < later.1.first)
        }) {
            found.turns += 1;
            found.turned.get_or_insert(Turned {
                earlier: earlier.0,
                later: later.0,
                apart: later.1.first.since(earlier.1.last),
                by: earlier.2.since(later.2),
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::model::Bound;
    use super::*;
    use std::collections::BTreeMap;

    const TOLERANCE: Tolerance = Tolerance { least: Span::from_ns(1_000_000), share: 0 };

    fn at(ms: u64) -> Time {
        Time::from_ns(ms * 1_000_000)
    }

    /// In milliseconds: when it ends in simulations, its bound, and when it really ended.
    type Told = ((u64, u64), Option<u64>, Option<u64>);

    /// A job of each task, released at zero.
    fn run(jobs: &[Told], disturbed: &Disturbed) -> Findings {
        run_despite(jobs, disturbed, None)
    }

    /// The same with this bound for who is brushed.
    fn run_despite(jobs: &[Told], disturbed: &Disturbed, despite: Option<Span>) -> Findings {
        let mut model = Model { jobs: BTreeMap::new(), bounds: Vec::new() };
        let mut lives = Lives::default();
        for (task, &((first, last), bound, end)) in (0..).map(TaskId).zip(jobs) {
            model.jobs.insert(
                (task, 0),
                Expected { begin: None, end: Some(Range { first: at(first), last: at(last) }) },
            );
            let bound = bound.map(|ms| Span::from_ns(ms * 1_000_000));
            model.bounds.push(Bound { exactly: bound, within_reason: bound });
            let life = Life {
                release: Some(at(0)),
                deadline: Some(at(50)),
                end: end.map(at),
                begin: None,
            };
            lives.jobs.insert((task, 0), life);
        }
        judge(&model, |_| despite, &lives, disturbed, (TOLERANCE, Promised::Order), at(100))
    }

    #[test]
    fn what_is_certainly_apart_must_come_in_that_order() {
        let calm = Disturbed::default();
        let agrees = run(&[((10, 11), None, Some(11)), ((13, 14), None, Some(13))], &calm);
        assert!(agrees.agree() && agrees.instants == 2, "{agrees:?}");
        // Turned, but nearer than the tolerance.
        assert!(run(&[((10, 11), None, Some(12)), ((12, 13), None, Some(11))], &calm).agree());
        let turned = run(&[((10, 11), None, Some(12)), ((13, 14), None, Some(11))], &calm);
        assert_eq!((turned.turns, turned.strays), (1, 1));
        assert_eq!(turned.turned.map(|turned| turned.by), Some(Span::from_ns(1_000_000)));
    }

    #[test]
    fn an_end_that_no_simulation_has_is_found_and_one_that_never_comes() {
        let calm = Disturbed::default();
        for (end, off) in [(Some(9), 0), (Some(13), 0), (Some(8), 1), (Some(16), 3), (None, 87)] {
            let found = run(&[((10, 12), None, end)], &calm);
            let by = found.stray.map_or(0, |(_, by)| by.as_ns() / 1_000_000);
            assert_eq!(by, off, "{end:?}");
        }
    }

    #[test]
    fn where_no_order_is_promised_only_deadlines_that_every_simulation_keeps_count() {
        let held = |promised, end: Option<u64>, last: u64, bound: Option<u64>| {
            let ms = |ms: u64| Span::from_ns(ms * 1_000_000);
            let bound = Bound { exactly: bound.map(ms), within_reason: bound.map(ms) };
            let mut model = Model { jobs: BTreeMap::new(), bounds: vec![bound] };
            let name = (TaskId(0), 0);
            let range = Some(Range { first: at(10), last: at(last) });
            model.jobs.insert(name, Expected { begin: None, end: range });
            let mut lives = Lives::default();
            let life = Life {
                release: Some(at(0)),
                deadline: Some(at(50)),
                end: end.map(at),
                begin: None,
            };
            lives.jobs.insert(name, life);
            judge(&model, |_| None, &lives, &Disturbed::default(), (TOLERANCE, promised), at(100))
        };
        let run = |end, last, bound| held(Promised::Deadlines, end, last, bound);
        // Far from where any simulation has it, and in time; a millisecond of tolerance late; and
        // more.
        assert!(run(Some(40), 12, None).agree());
        assert!(run(Some(51), 12, None).agree());
        assert_eq!(run(Some(53), 12, None).stray, Some(((TaskId(0), 0), Span::from_ns(2_000_000))));
        assert!(!run(None, 12, None).agree(), "it never ends");
        assert!(run(Some(53), 51, None).agree(), "a simulation has it late, too");
        assert!(!run(Some(40), 12, Some(30)).agree(), "a bound is a bound");
        assert!(held(Promised::Bounds, Some(90), 12, None).agree());
        assert!(!held(Promised::Bounds, Some(90), 12, Some(30)).agree());
    }

    #[test]
    fn a_response_beyond_the_bound_and_its_tolerance_is_found() {
        let calm = Disturbed::default();
        assert!(run(&[((10, 20), Some(19), Some(20))], &calm).agree());
        let beyond = run(&[((10, 20), Some(18), Some(20))], &calm);
        assert_eq!((beyond.beyond, beyond.strays), (1, 0));
        assert_eq!(beyond.exceeds.map(|(_, over)| over), Some(Span::from_ns(1_000_000)));
    }

    #[test]
    fn what_a_hole_has_touched_is_counted_and_not_judged() {
        let hole = talea_exec::Hole { cpu: 0, from: at(30), to: at(33) };
        let tree = talea_core::machine::Tree::new(
            1,
            talea_core::machine::SchedulerSpec::new("cpu", talea_core::sched::Policy::Edf),
        );
        let disturbed = Disturbed::of(&tree, &[0], (&[hole], &[]), &Lives::default(), TOLERANCE);
        let found = run(&[((10, 11), None, Some(11)), ((13, 14), None, Some(60))], &disturbed);
        assert_eq!((found.jobs, found.excluded), (2, 1));
        assert!(found.agree() && found.are_inconclusive());
        assert_eq!(found.late, [0, 0], "the late one is not counted");
    }

    #[test]
    fn what_is_brushed_is_held_against_a_bound_that_has_what_was_lost() {
        // Half of the tolerance is lost at 5 ms.
        let hole = talea_exec::Hole { cpu: 0, from: at(5), to: Time::from_ns(5_300_000) };
        let tree = talea_core::machine::Tree::new(
            1,
            talea_core::machine::SchedulerSpec::new("cpu", talea_core::sched::Policy::Edf),
        );
        let wide = Tolerance { least: Span::from_ns(3_000_000), share: 0 };
        let disturbed = Disturbed::of(&tree, &[0], (&[hole], &[]), &Lives::default(), wide);
        // Where there is none it is left out, and counts against a run that says nothing.
        for (bound, wanted) in [(Some(19), (0, 1, 0)), (Some(18), (0, 1, 1)), (None, (1, 0, 0))] {
            let bound = bound.map(|ms| Span::from_ns(ms * 1_000_000));
            let found = run_despite(&[((10, 11), Some(12), Some(20))], &disturbed, bound);
            assert_eq!((found.excluded, found.brushed, found.beyond), wanted, "{bound:?}");
        }
    }
}
