//! Exclusion of jobs and requests that stalls have perturbed, and statistics of the others.
//!
//! A stall is detected by a late probe, so it may have begun up to one probe period earlier. Its
//! backlog takes a while to drain. The urgent tasks of these systems leave two thirds of the CPU to
//! the backlog, so the effect of a stall lasts three times its length. A job that misses its slot
//! because of a long stall ends a frame later. So the effect of a long stall lasts ten times its
//! length.
//!
//! A claim that a response stays short excludes perturbed jobs. A claim that a response becomes
//! long subtracts all time that stalls can have added.

use crate::echo::RequestTimes;
use crate::units::ms;
use serde::Serialize;
use talea_core::engine::TaskId;
use talea_core::{Span, Time, mutate, quantile};
use talea_study::compare::job_times::{JobLog, JobTimes};
use talea_study::validity::Exclusions;

/// Job or request in the file of raw data.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Point {
    pub(super) release_ns: u64,
    /// Response time. `None` if the job had not ended with the run, or the request was never
    /// answered.
    pub(super) response_ns: Option<u64>,
    /// Whether a stall excludes the job or request.
    pub(super) left_out: bool,
}

/// Maximum delay of the detection of a stall.
const MAX_DETECTION_DELAY: Span = talea_exec::stalls::PROBE_PERIOD;
/// Duration of the effect of a stall in multiples of the stall's length: for a short stall, and for
/// a long one.
const EFFECT_FACTORS: [u64; 2] = [3, 10];
/// Length above which a stall is long: half of the spare time of a job in its slot.
const LONG_STALL: Span = Span::from_ns(5_000_000);
/// Time before a job in which the backlog of a stall may delay it, in ns.
const BACKLOG_NS: u64 = 1_000_000_000;

/// Stalls of one CPU or of several CPUs.
#[derive(Clone, Debug, Default)]
pub(super) struct StallIntervals(Vec<(Time, Time)>);

impl StallIntervals {
    pub(super) fn new(stalls: Vec<(Time, Time)>) -> StallIntervals {
        StallIntervals(stalls)
    }

    /// Returns the number of stalls.
    pub(super) fn count(&self) -> usize {
        self.0.len()
    }

    /// Whether the effect of a stall may overlap an interval.
    pub(super) fn perturbs(&self, from: Time, to: Time) -> bool {
        self.0.iter().any(|&(begin, end)| {
            let began = Time::from_ns(begin.as_ns().saturating_sub(MAX_DETECTION_DELAY.as_ns()));
            let most = end.since(began);
            let effect =
                Span::from_ns(most.as_ns() * EFFECT_FACTORS[usize::from(most > LONG_STALL)]);
            began <= to
                && from
                    <= mutate!(
                        "lab-l3c-calm",
                        end.saturating_add(effect),
                        end.min(end.saturating_add(effect))
                    )
        })
    }

    /// Whether a stall itself may overlap an interval.
    pub(super) fn overlaps(&self, from: Time, to: Time) -> bool {
        self.0
            .iter()
            .any(|&(begin, end)| begin <= to.saturating_add(MAX_DETECTION_DELAY) && from <= end)
    }

    /// Returns the maximum time that stalls can have added to a response.
    fn max_added(&self, from: Time, to: Time) -> Span {
        let from = Time::from_ns(from.as_ns().saturating_sub(BACKLOG_NS));
        let within = self.0.iter().filter(|&&(begin, end)| begin <= to && from <= end);
        let sum =
            within.map(|&(begin, end)| (end.since(begin) + MAX_DETECTION_DELAY).as_ns()).sum();
        Span::from_ns(sum)
    }
}

/// Response of a job or a request.
#[derive(Clone, Copy, Debug)]
struct Response {
    from: Time,
    /// End of the response, or of the run.
    to: Time,
    has_ended: bool,
    due: Option<Time>,
    is_perturbed: bool,
    added: Span,
}

impl Response {
    fn length(&self) -> Span {
        self.to.since(self.from.min(self.to))
    }
}

/// Responses of the jobs of a task, or of requests.
#[derive(Clone, Debug, Default)]
pub(super) struct Responses(Vec<Response>);

impl Responses {
    /// Collects the responses of the jobs of `task` that were released at `first` or later.
    /// Excludes incomplete jobs without a deadline before `end`, the end of the run.
    pub(super) fn of_jobs(
        lives: &JobLog,
        task: TaskId,
        stalls: &StallIntervals,
        (first, end): (Time, Time),
    ) -> Responses {
        let one = |life: &JobTimes| {
            let from = life.release.filter(|&release| release >= first)?;
            let to = life.end.unwrap_or(end);
            let (has_ended, due) = (life.end.is_some(), life.deadline);
            // An incomplete job whose deadline is after the run proves nothing.
            if !has_ended && due.is_none_or(|due| due >= end) {
                return None;
            }
            let (is_perturbed, added) = (stalls.perturbs(from, to), stalls.max_added(from, to));
            Some(Response { from, to, has_ended, due, is_perturbed, added })
        };
        let range = (task, 0)..=(task, u64::MAX);
        Responses(lives.jobs.range(range).filter_map(|(_, life)| one(life)).collect())
    }

    /// Collects the requests that were sent within `sent`.
    pub(super) fn of_requests(
        asked: &[RequestTimes],
        stalls: &StallIntervals,
        sent: (Time, Time),
        end: Time,
    ) -> Responses {
        let within = asked.iter().filter(|asked| sent.0 <= asked.sent && asked.sent < sent.1);
        let one = |asked: &RequestTimes| {
            let (from, to) = (asked.sent, asked.answered.unwrap_or(end).max(asked.sent));
            let (is_perturbed, added) = (stalls.perturbs(from, to), stalls.max_added(from, to));
            Response {
                from,
                to,
                has_ended: asked.answered.is_some(),
                due: None,
                is_perturbed,
                added,
            }
        };
        Responses(within.map(one).collect())
    }

    /// Appends other responses.
    pub(super) fn extend(&mut self, others: Responses) {
        self.0.extend(others.0);
    }

    pub(super) fn count(&self) -> usize {
        self.0.len()
    }

    pub(super) fn left_out(&self) -> usize {
        self.0.iter().filter(|response| response.is_perturbed).count()
    }

    /// Whether too few responses count: more than a twentieth is excluded, or there is none.
    pub(super) fn are_inconclusive(&self) -> bool {
        Responses::too_few(&[self]) || self.0.is_empty()
    }

    /// Whether more than a twentieth of all responses is excluded.
    fn too_few(all: &[&Responses]) -> bool {
        let sum = |of: fn(&Responses) -> usize| all.iter().map(|waits| of(waits) as u64).sum();
        let (total, excluded) = (sum(Responses::count), sum(Responses::left_out));
        Exclusions { total, excluded, perturbed: 0 }.are_inconclusive()
    }

    /// Whether a run is inconclusive: more than a twentieth of all responses is excluded, or none
    /// of a group counts.
    pub(super) fn together_are_inconclusive(all: &[&Responses]) -> bool {
        Responses::too_few(all) || all.iter().any(|waits| waits.longest().is_none())
    }

    fn counted(&self) -> impl Iterator<Item = &Response> {
        self.0.iter().filter(|response| !response.is_perturbed)
    }

    /// Returns the smallest length that `percent` % of the counted responses do not exceed.
    pub(super) fn quantile(&self, percent: usize) -> Option<Span> {
        let mut lengths: Vec<Span> = self.counted().map(Response::length).collect();
        lengths.sort_unstable();
        quantile(&lengths, percent)
    }

    /// Returns the longest counted response.
    pub(super) fn longest(&self) -> Option<Span> {
        self.quantile(100)
    }

    /// Returns the longest of all responses, each without the time that stalls can have added.
    pub(super) fn at_least(&self) -> Option<Span> {
        self.0
            .iter()
            .map(|response| response.length().checked_sub(response.added).unwrap_or(Span::ZERO))
            .max()
    }

    /// Returns the number of counted responses beyond their deadline.
    pub(super) fn late(&self) -> usize {
        self.counted().filter(|response| response.due.is_some_and(|due| response.to > due)).count()
    }

    /// Returns the number of all responses beyond their deadline, even without the time that stalls
    /// can have added.
    pub(super) fn late_at_least(&self) -> usize {
        let is_late = |response: &&Response| {
            response.due.is_some_and(|due| response.to > due + response.added)
        };
        self.0.iter().filter(is_late).count()
    }

    /// Returns the number of counted responses without an end.
    pub(super) fn lost(&self) -> usize {
        self.counted().filter(|response| !response.has_ended).count()
    }

    /// Returns the number of all responses without an end.
    pub(super) fn lost_total(&self) -> usize {
        self.0.iter().filter(|response| !response.has_ended).count()
    }

    /// Returns the end of the last counted response that is longer than `length`.
    pub(super) fn last_beyond(&self, length: Span) -> Option<Time> {
        self.counted()
            .filter(|response| response.has_ended && response.length() > length)
            .map(|response| response.to)
            .max()
    }

    /// Returns the points for the file of raw data.
    pub(super) fn points(&self) -> Vec<Point> {
        let point = |response: &Response| Point {
            release_ns: response.from.as_ns(),
            response_ns: response.has_ended.then(|| response.length().as_ns()),
            left_out: response.is_perturbed,
        };
        self.0.iter().map(point).collect()
    }

    /// Returns the counted responses for a plot: release in seconds, response in milliseconds.
    pub(super) fn curve(&self) -> Vec<(f64, f64)> {
        self.counted()
            .map(|response| (response.from.as_ns() as f64 / 1e9, ms(response.length())))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Time {
        Time::from_ns(ms * 1_000_000)
    }

    fn span(ms: u64) -> Span {
        Span::from_ns(ms * 1_000_000)
    }

    #[test]
    fn the_effect_of_a_stall_is_longer_than_the_stall() {
        // The stalls may have begun a millisecond earlier: 4 and 6 ms.
        let stalls = StallIntervals::new(vec![(at(100), at(103)), (at(200), at(205))]);
        for (from, to, broken) in [
            (90, 98, false),
            (90, 99, true),
            (115, 120, true),
            (116, 120, false),
            (198, 199, true),
            (265, 270, true),
            (266, 270, false),
        ] {
            assert_eq!(stalls.perturbs(at(from), at(to)), broken, "{from} to {to}");
        }
        assert!(stalls.overlaps(at(90), at(99)) && !stalls.overlaps(at(104), at(110)));
        assert_eq!(stalls.max_added(at(1_103), at(1_104)), span(4 + 6));
        assert_eq!(stalls.max_added(at(1_104), at(1_105)), span(6));
    }

    #[test]
    fn perturbed_jobs_are_excluded_from_the_longest_and_reduced_in_the_least() {
        let stalls = StallIntervals::new(vec![(at(100), at(109))]);
        let mut lives = JobLog::default();
        let life = |release, end: Option<u64>, due| JobTimes {
            release: Some(at(release)),
            end: end.map(at),
            deadline: Some(at(due)),
            begin: None,
        };
        let jobs = [
            life(0, Some(10), 40),
            life(40, Some(140), 80),
            life(900, None, 940),
            life(990, None, 1_030),
        ];
        let jobs = jobs.into_iter().enumerate();
        lives.jobs.extend(jobs.map(|(number, life)| ((TaskId(3), number as u64), life)));
        let waits = Responses::of_jobs(&lives, TaskId(3), &stalls, (at(0), at(1_000)));
        // The deadline of the last job is after the run.
        assert_eq!((waits.count(), waits.left_out(), waits.late(), waits.lost()), (3, 1, 1, 1));
        assert_eq!((waits.longest(), waits.at_least()), (Some(span(100)), Some(span(90))));
        assert_eq!(waits.late_at_least(), 2);
        assert!(waits.are_inconclusive());
        let many = Responses([waits.0.as_slice(), &vec![waits.0[0]; 17]].concat());
        assert!(!Responses::together_are_inconclusive(&[&many]), "one of twenty");
        assert!(Responses::together_are_inconclusive(&[&waits, &many]), "two of 23");
        assert!(
            Responses::together_are_inconclusive(&[&many, &Responses::default()]),
            "nothing of some"
        );
        assert_eq!(waits.last_beyond(span(5)), Some(at(10)));
    }
}
