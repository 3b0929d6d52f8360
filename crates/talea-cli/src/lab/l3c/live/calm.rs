//! Exclusion of jobs and requests that stalls have perturbed, and statistics of the others.
//!
//! A stall is seen by a thread that was late, so it may have begun up to a look earlier; what piled
//! up behind it takes a while. The urgent tasks of these systems leave two thirds of the CPU to
//! that: it is felt three times as long as it was. A job that has missed its slot by that comes a
//! frame later: ten times, if it was long enough. A claim that something stays short excludes what
//! a stall has perturbed; a claim that something gets long subtracts all that stalls can have
//! added.

use super::Point;
use crate::compare::job_times::{JobLog, JobTimes};
use crate::lab::echo::Asked;
use talea_core::engine::TaskId;
use talea_core::mutate;
use talea_core::{Span, Time};

/// A stall may have begun so much earlier than it was seen.
const DISTANCE: Span = talea_exec::stalls::PROBE_PERIOD;
/// How many times as long as itself a stall is felt, and a long one.
const FELT: [u64; 2] = [3, 10];
/// Half of what a job has to spare in its slot.
const LONG: Span = Span::from_ns(5_000_000);
/// Backlog of stalls before a job may have made it longer too.
const BEFORE: u64 = 1_000_000_000;

/// When a CPU stood still.
#[derive(Clone, Debug, Default)]
pub(super) struct Calm(Vec<(Time, Time)>);

impl Calm {
    pub(super) fn new(stalls: Vec<(Time, Time)>) -> Calm {
        Calm(stalls)
    }

    /// How many.
    pub(super) fn stalls(&self) -> usize {
        self.0.len()
    }

    /// Whether a stall may have been felt between these.
    pub(super) fn is_broken(&self, from: Time, to: Time) -> bool {
        self.0.iter().any(|&(begin, end)| {
            let began = Time::from_ns(begin.as_ns().saturating_sub(DISTANCE.as_ns()));
            let most = end.since(began);
            let felt = Span::from_ns(most.as_ns() * FELT[usize::from(most > LONG)]);
            began <= to
                && from
                    <= mutate!(
                        "lab-l3c-calm",
                        end.saturating_add(felt),
                        end.min(end.saturating_add(felt))
                    )
        })
    }

    /// Whether there was a stall between these.
    pub(super) fn is_struck(&self, from: Time, to: Time) -> bool {
        self.0.iter().any(|&(begin, end)| begin <= to.saturating_add(DISTANCE) && from <= end)
    }

    /// All that stalls can have added to something between these.
    fn added(&self, from: Time, to: Time) -> Span {
        let from = Time::from_ns(from.as_ns().saturating_sub(BEFORE));
        let within = self.0.iter().filter(|&&(begin, end)| begin <= to && from <= end);
        let sum = within.map(|&(begin, end)| (end.since(begin) + DISTANCE).as_ns()).sum();
        Span::from_ns(sum)
    }
}

/// A job or a request.
#[derive(Clone, Copy, Debug)]
struct Wait {
    from: Time,
    /// When it ended, or the end of the run.
    to: Time,
    has_ended: bool,
    due: Option<Time>,
    is_broken: bool,
    added: Span,
}

impl Wait {
    fn length(&self) -> Span {
        self.to.since(self.from.min(self.to))
    }
}

/// How long jobs of a task, or requests, took.
#[derive(Clone, Debug, Default)]
pub(super) struct Waits(Vec<Wait>);

impl Waits {
    /// Collects the jobs of a task that were released at `first` or later, in a run until `end`.
    pub(super) fn of_jobs(
        lives: &JobLog,
        task: TaskId,
        calm: &Calm,
        (first, end): (Time, Time),
    ) -> Waits {
        let one = |life: &JobTimes| {
            let from = life.release.filter(|&release| release >= first)?;
            let to = life.end.unwrap_or(end);
            let (has_ended, due) = (life.end.is_some(), life.deadline);
            // One that has time left says nothing.
            if !has_ended && due.is_none_or(|due| due >= end) {
                return None;
            }
            let (is_broken, added) = (calm.is_broken(from, to), calm.added(from, to));
            Some(Wait { from, to, has_ended, due, is_broken, added })
        };
        let range = (task, 0)..=(task, u64::MAX);
        Waits(lives.jobs.range(range).filter_map(|(_, life)| one(life)).collect())
    }

    /// Collects the requests that were sent within `sent`.
    pub(super) fn of_requests(
        asked: &[Asked],
        calm: &Calm,
        sent: (Time, Time),
        end: Time,
    ) -> Waits {
        let within = asked.iter().filter(|asked| sent.0 <= asked.sent && asked.sent < sent.1);
        let one = |asked: &Asked| {
            let (from, to) = (asked.sent, asked.answered.unwrap_or(end).max(asked.sent));
            let (is_broken, added) = (calm.is_broken(from, to), calm.added(from, to));
            Wait { from, to, has_ended: asked.answered.is_some(), due: None, is_broken, added }
        };
        Waits(within.map(one).collect())
    }

    /// Appends other waits.
    pub(super) fn extend(&mut self, others: Waits) {
        self.0.extend(others.0);
    }

    pub(super) fn count(&self) -> usize {
        self.0.len()
    }

    pub(super) fn left_out(&self) -> usize {
        self.0.iter().filter(|wait| wait.is_broken).count()
    }

    /// Whether too few are left to say anything: more than a twentieth is left out, or there is
    /// nothing.
    pub(super) fn are_inconclusive(&self) -> bool {
        self.left_out() * 20 > self.count() || self.0.is_empty()
    }

    /// Whether a run is inconclusive: more than a twentieth of all jobs and requests is excluded,
    /// or of some of them none counts.
    pub(super) fn together_are_inconclusive(all: &[&Waits]) -> bool {
        let sum = |of: fn(&Waits) -> usize| all.iter().map(|waits| of(waits)).sum::<usize>();
        sum(Waits::left_out) * 20 > sum(Waits::count)
            || all.iter().any(|waits| waits.longest().is_none())
    }

    fn counted(&self) -> impl Iterator<Item = &Wait> {
        self.0.iter().filter(|wait| !wait.is_broken)
    }

    /// Returns the smallest length that `percent` of the counted waits do not exceed.
    pub(super) fn quantile(&self, percent: usize) -> Option<Span> {
        let mut lengths: Vec<Span> = self.counted().map(Wait::length).collect();
        lengths.sort_unstable();
        lengths.get((lengths.len() * percent).div_ceil(100).max(1) - 1).copied()
    }

    /// The longest of those that count.
    pub(super) fn longest(&self) -> Option<Span> {
        self.quantile(100)
    }

    /// The longest of all, without anything that stalls can have added.
    pub(super) fn at_least(&self) -> Option<Span> {
        self.0.iter().map(|wait| wait.length().checked_sub(wait.added).unwrap_or(Span::ZERO)).max()
    }

    /// Returns the number of counted waits beyond their deadline.
    pub(super) fn late(&self) -> usize {
        self.counted().filter(|wait| wait.due.is_some_and(|due| wait.to > due)).count()
    }

    /// Returns the number of all waits beyond their deadline, even without the time that stalls can
    /// have added.
    pub(super) fn late_at_least(&self) -> usize {
        let is_late = |wait: &&Wait| wait.due.is_some_and(|due| wait.to > due + wait.added);
        self.0.iter().filter(is_late).count()
    }

    /// Returns the number of counted waits without an end.
    pub(super) fn lost(&self) -> usize {
        self.counted().filter(|wait| !wait.has_ended).count()
    }

    /// Returns the number of all waits without an end.
    pub(super) fn lost_in_all(&self) -> usize {
        self.0.iter().filter(|wait| !wait.has_ended).count()
    }

    /// When the last one ended that took longer than this and counts.
    pub(super) fn last_beyond(&self, length: Span) -> Option<Time> {
        self.counted()
            .filter(|wait| wait.has_ended && wait.length() > length)
            .map(|wait| wait.to)
            .max()
    }

    /// Returns the points for the file of raw data.
    pub(super) fn points(&self) -> Vec<Point> {
        let point = |wait: &Wait| Point {
            release_ns: wait.from.as_ns(),
            response_ns: wait.has_ended.then(|| wait.length().as_ns()),
            left_out: wait.is_broken,
        };
        self.0.iter().map(point).collect()
    }

    /// Seconds and milliseconds, for a picture: of those that count.
    pub(super) fn curve(&self) -> Vec<(f64, f64)> {
        self.counted()
            .map(|wait| (wait.from.as_ns() as f64 / 1e9, super::ms(wait.length())))
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
    fn a_stall_is_felt_longer_than_it_is() {
        // They may have begun a millisecond earlier: 4 and 6 ms.
        let calm = Calm::new(vec![(at(100), at(103)), (at(200), at(205))]);
        for (from, to, broken) in [
            (90, 98, false),
            (90, 99, true),
            (115, 120, true),
            (116, 120, false),
            (198, 199, true),
            (265, 270, true),
            (266, 270, false),
        ] {
            assert_eq!(calm.is_broken(at(from), at(to)), broken, "{from} to {to}");
        }
        assert!(calm.is_struck(at(90), at(99)) && !calm.is_struck(at(104), at(110)));
        assert_eq!(calm.added(at(1_103), at(1_104)), span(4 + 6));
        assert_eq!(calm.added(at(1_104), at(1_105)), span(6));
    }

    #[test]
    fn what_a_stall_has_touched_is_left_out_of_the_longest_and_taken_away_from_the_least() {
        let calm = Calm::new(vec![(at(100), at(109))]);
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
        let waits = Waits::of_jobs(&lives, TaskId(3), &calm, (at(0), at(1_000)));
        // The last one has time left.
        assert_eq!((waits.count(), waits.left_out(), waits.late(), waits.lost()), (3, 1, 1, 1));
        assert_eq!((waits.longest(), waits.at_least()), (Some(span(100)), Some(span(90))));
        assert_eq!(waits.late_at_least(), 2);
        assert!(waits.are_inconclusive());
        let many = Waits([waits.0.as_slice(), &vec![waits.0[0]; 17]].concat());
        assert!(!Waits::together_are_inconclusive(&[&many]), "one of twenty");
        assert!(Waits::together_are_inconclusive(&[&waits, &many]), "two of 23");
        assert!(Waits::together_are_inconclusive(&[&many, &Waits::default()]), "nothing of some");
        assert_eq!(waits.last_beyond(span(5)), Some(at(10)));
    }
}
