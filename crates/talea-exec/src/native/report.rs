//! Report of a root that Linux scheduled.

use super::plan::Guarantee;
use super::queue::PendingJob;
use crate::job_stats::JobStats;
use crate::kernel_check::{self, ExecInterval, IdleInterval, OrderViolation};
use crate::load::Arrival;
use crate::lost_time::{LostTime, LostTimes};
use std::collections::BTreeMap;
use talea_core::engine::{Cpu, Job, TaskId};
use talea_core::mutate;
use talea_core::sink::Segment;
use talea_core::{Span, Time, Work};

/// Job as its worker recorded it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JobRecord {
    /// Number of the job within its task; refused jobs are not counted.
    pub number: u64,
    /// Time at which the arrival was observed.
    pub observed: Time,
    /// Nominal arrival.
    pub nominal: Time,
    /// Release.
    pub release: Time,
    /// Absolute deadline.
    pub deadline: Time,
    /// Time at which the worker first had the CPU for the job.
    pub begin: Option<Time>,
    /// Completion.
    pub end: Option<Time>,
    /// CPU time that the job consumed.
    pub cpu_time: Work,
}

impl JobRecord {
    pub(crate) fn of(job: &PendingJob) -> JobRecord {
        JobRecord {
            number: job.number,
            observed: job.arrival.observed,
            nominal: job.arrival.nominal,
            release: job.release,
            deadline: job.deadline,
            ..JobRecord::default()
        }
    }

    /// Returns the time from which the job could run.
    pub fn ready(&self) -> Time {
        self.observed.max(self.release)
    }

    fn until(&self) -> Time {
        self.end.unwrap_or(Time::NEVER)
    }
}

/// Report of one root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NativeReport {
    /// Guarantee of the root's policies.
    pub guarantee: Guarantee,
    /// `jobs[n]`: jobs of task `n` in the order of their arrivals.
    pub jobs: Vec<Vec<JobRecord>>,
    /// `refused[n]`: refused arrivals of task `n`.
    pub refused: Vec<Vec<Arrival>>,
}

/// Creates an interval of a job on the only CPU of a root.
fn segment(task: TaskId, job: u64, start: Time, end: Time) -> Segment {
    Segment { cpu: Cpu(0), task, job, start, end }
}

/// Sums the intervals of each job, in nanoseconds.
fn total_by_job(intervals: Vec<Segment>) -> BTreeMap<(TaskId, u64), u64> {
    let mut had = BTreeMap::new();
    for interval in intervals {
        *had.entry((interval.task, interval.job)).or_insert(0) +=
            interval.end.since(interval.start).as_ns();
    }
    had
}

impl NativeReport {
    /// Whether the order of execution equals the engine's order, except for instants that lie near
    /// each other.
    ///
    /// With time slices or reservations the orders differ. On a shared level the orders are equal
    /// only if no job waited behind its predecessor, because the kernel enqueues such a job late at
    /// the tail of its level.
    pub fn is_order_comparable(&self) -> bool {
        let Guarantee::Levels(levels) = &self.guarantee else { return false };
        let is_shared = |level| levels.iter().filter(|&other| *other == level).nth(1).is_some();
        let has_waited = |jobs: &Vec<JobRecord>| {
            jobs.windows(2).any(|two| two[0].until() > two[1].ready() && two[1].begin.is_some())
        };
        !levels.iter().zip(&self.jobs).any(|(level, jobs)| is_shared(*level) && has_waited(jobs))
    }

    /// Returns the total time in which completed jobs had the CPU without progress of their
    /// workers' clocks. Returns zero if the time is unknown (time slices, and reservations without
    /// the switch trace).
    pub(crate) fn total_lost_time(&self, executed: Option<&[ExecInterval]>) -> Span {
        let ended: Vec<(TaskId, &JobRecord)> =
            self.all_jobs().filter(|(_, record)| record.end.is_some()).collect();
        let Some(had) = self.cpu_time_by_job(executed) else { return Span::ZERO };
        let had = ended.iter().filter_map(|(task, record)| had.get(&(*task, record.number)));
        let used = ended.iter().map(|(_, record)| record.cpu_time.as_ns());
        Span::from_ns(had.sum::<u64>().saturating_sub(used.sum()))
    }

    /// Returns the CPU time of each job in nanoseconds, or `None` if it is unknown.
    ///
    /// If higher levels preempt, the job that started last has the CPU. An exhausted reservation
    /// waits while the CPU is idle or runs another reservation; only the switch trace shows that.
    fn cpu_time_by_job(
        &self,
        executed: Option<&[ExecInterval]>,
    ) -> Option<BTreeMap<(TaskId, u64), u64>> {
        let end = self.all_jobs().filter_map(|(_, record)| record.end).max().unwrap_or(Time::ZERO);
        Some(total_by_job(match &self.guarantee {
            Guarantee::Levels(_) => self.inferred_intervals(end),
            Guarantee::Deadlines(_) => {
                mutate!(
                    "exec-native-excuse",
                    self.observed_intervals(executed?, end),
                    self.inferred_intervals(end)
                )
            }
            Guarantee::RoundRobin => return None,
        }))
    }

    /// Whether a job consumed more than the budget of its reservation. Then other code consumed CPU
    /// time at the expense of the job.
    fn exceeds_budget(&self, task: TaskId, record: &JobRecord) -> bool {
        match &self.guarantee {
            Guarantee::Deadlines(budgets) => record.cpu_time > budgets[task.0 as usize],
            Guarantee::Levels(_) | Guarantee::RoundRobin => false,
        }
    }

    fn all_jobs(&self) -> impl Iterator<Item = (TaskId, &JobRecord)> {
        (0..)
            .map(TaskId)
            .zip(&self.jobs)
            .flat_map(|(task, jobs)| jobs.iter().map(move |record| (task, record)))
    }

    /// Returns the intervals in which jobs had the CPU, from the switch trace if there is one.
    /// Otherwise they are inferred: the job that started last and has not completed has the CPU.
    /// That is right if higher levels preempt.
    pub fn intervals(&self, executed: Option<&[ExecInterval]>, end: Time) -> Vec<Segment> {
        let mut intervals = executed.map_or_else(
            || self.inferred_intervals(end),
            |executed| self.observed_intervals(executed, end),
        );
        intervals.sort_unstable_by_key(|interval| (interval.start, interval.end));
        intervals
    }

    fn observed_intervals(&self, executed: &[ExecInterval], end: Time) -> Vec<Segment> {
        let mut intervals = Vec::new();
        for (task, jobs) in (0..).map(TaskId).zip(&self.jobs) {
            let stays: Vec<&ExecInterval> =
                executed.iter().filter(|interval| interval.task == task).collect();
            for record in jobs {
                let Some(begin) = record.begin else { continue };
                let until = record.until().min(end);
                // A job that did not complete may have started after the end, on a CPU that its
                // worker kept.
                if mutate!("exec-native-behind", begin >= until, begin > Time::NEVER) {
                    continue;
                }
                let first = stays.partition_point(|interval| interval.to <= begin);
                for interval in stays[first..].iter().take_while(|interval| interval.from < until) {
                    let (from, to) = (interval.from.max(begin), interval.to.min(until));
                    intervals.push(segment(task, record.number, from, to));
                }
            }
        }
        intervals
    }

    fn inferred_intervals(&self, end: Time) -> Vec<Segment> {
        // At one instant completions come before starts.
        let mut instants: Vec<(Time, bool, TaskId, u64)> = Vec::new();
        for (task, record) in self.all_jobs() {
            let Some(begin) = record.begin else { continue };
            instants.push((begin, true, task, record.number));
            instants.extend(record.end.map(|end| (end, false, task, record.number)));
        }
        instants.sort_unstable();
        let (mut intervals, mut under_way) = (Vec::new(), Vec::<(TaskId, u64)>::new());
        let mut since = Time::ZERO;
        for (now, begins, task, job) in
            instants.into_iter().chain([(end, false, TaskId(u32::MAX), 0)])
        {
            if let Some(&(task, job)) = under_way.last().filter(|_| since < now) {
                intervals.push(segment(task, job, since, now));
            }
            since = now;
            if begins {
                under_way.push((task, job));
            } else {
                under_way.retain(|&who| who != (task, job));
            }
        }
        intervals
    }

    /// Returns the statistics of the jobs of each task: element `n` for task `n`.
    pub(crate) fn job_stats(&self) -> Vec<JobStats> {
        let of = |jobs: &Vec<JobRecord>| {
            let mut stats = JobStats::default();
            for record in jobs {
                let JobRecord { number, release, deadline, .. } = *record;
                if let Some(end) = record.end {
                    stats.record(Job { number, release, deadline }, end);
                }
            }
            stats
        };
        self.jobs.iter().map(of).collect()
    }

    /// Returns the intervals in which a job had the CPU for longer than its worker's clock
    /// advanced. Under levels they include the times in which jobs were pending and none had
    /// started.
    ///
    /// Under reservations a late start or a clock that stands still is no excuse by itself, because
    /// a wrong or too small reservation has the same effect. There a job lost the CPU time that the
    /// switch trace shows beyond its clock. A job that consumed more than its budget lost all the
    /// time that passed.
    pub(crate) fn lost_times(&self, executed: Option<&[ExecInterval]>, end: Time) -> Vec<LostTime> {
        let mut recorded = LostTimes::new();
        if self.guarantee == Guarantee::RoundRobin {
            return Vec::new();
        }
        let intervals = self.inferred_intervals(end);
        let (had, passed) =
            (self.cpu_time_by_job(executed).unwrap_or_default(), total_by_job(intervals.clone()));
        let mut all: Vec<LostTime> = Vec::new();
        for (task, record) in self.all_jobs() {
            let Some((from, to)) = record.begin.zip(record.end) else { continue };
            let had = if self.exceeds_budget(task, record) { &passed } else { &had };
            let had = had.get(&(task, record.number)).copied().unwrap_or(0);
            let by = Span::from_ns(had.saturating_sub(record.cpu_time.as_ns()));
            all.push(LostTime { cpu: 0, from, to, amount: by });
        }
        // Late wake-ups of workers while no other worker ran.
        let mut ready: Vec<Time> = mutate!(
            "exec-native-late",
            match &self.guarantee {
                Guarantee::Levels(_) => self.all_jobs().map(|(_, record)| record.ready()).collect(),
                Guarantee::RoundRobin | Guarantee::Deadlines(_) => Vec::new(),
            },
            match &self.guarantee {
                Guarantee::Levels(_) | Guarantee::Deadlines(_) =>
                    self.all_jobs().map(|(_, record)| record.ready()).collect(),
                Guarantee::RoundRobin => Vec::new(),
            }
        );
        ready.sort_unstable();
        let gaps = intervals.windows(2).map(|two| (two[0].end, two[1].start));
        let first = intervals.first().map(|first| (Time::ZERO, first.start));
        for (idle, busy) in first.into_iter().chain(gaps).filter(|(idle, busy)| idle < busy) {
            let at = ready.partition_point(|&at| at < idle);
            if let Some(&from) = ready.get(at).filter(|&&from| from < busy) {
                all.push(LostTime { cpu: 0, from, to: busy, amount: busy.since(from) });
            }
        }
        all.sort_by_key(|loss| loss.to);
        for lost in all {
            recorded.push(lost);
        }
        recorded.all().to_vec()
    }

    /// Returns everything that workers executed until `end` without a job, or while a higher level
    /// had a job.
    pub fn unordered_execution(&self, executed: &[ExecInterval], end: Time) -> Vec<ExecInterval> {
        let level = |task: TaskId| match &self.guarantee {
            Guarantee::Levels(levels) => levels[task.0 as usize],
            Guarantee::RoundRobin | Guarantee::Deadlines(_) => 0,
        };
        // Highest level with a job, from each change on.
        let mut changes: Vec<(Time, u8, i64)> = Vec::new();
        for (task, record) in self.all_jobs() {
            changes.push((record.ready(), level(task), 1));
            changes.extend(record.end.map(|end| (end, level(task), -1)));
        }
        changes.sort_unstable_by_key(|&(at, ..)| at);
        let (mut pending, mut tops) = (vec![0_i64; 256], Vec::<(Time, u8)>::new());
        for (at, level, by) in changes {
            pending[usize::from(level)] += by;
            let top = pending.iter().rposition(|&count| count > 0).unwrap_or(0) as u8;
            match tops.last_mut() {
                Some(last) if last.0 == at => last.1 = top,
                Some(last) if last.1 == top => {}
                _ => tops.push((at, top)),
            }
        }
        let mut all = Vec::new();
        for interval in executed {
            let to = interval.to.min(end);
            let mut from = interval.from;
            let jobs = &self.jobs[interval.task.0 as usize];
            let mut at = jobs.partition_point(|record| record.until() <= from);
            // Removes, for each job, the times that no higher level forbids.
            while let Some(record) = jobs.get(at).filter(|record| record.ready() < to) {
                at += 1;
                let (begin, until) = (record.ready().max(from), record.until().min(to));
                let mut now = begin;
                let mut top = tops.partition_point(|&(at, _)| at <= now).saturating_sub(1);
                while now < until {
                    let next = tops.get(top + 1).map_or(until, |&(at, _)| at.min(until));
                    if tops.get(top).is_none_or(|&(_, top)| top <= level(interval.task)) {
                        if from < now {
                            all.push(ExecInterval { from, to: now, ..*interval });
                        }
                        from = next;
                    }
                    (now, top) = (next, top + 1);
                }
            }
            if from < to {
                all.push(ExecInterval { from, to, ..*interval });
            }
        }
        all
    }

    /// Returns the intervals with pending jobs, until `end`. In these intervals the CPU belongs to
    /// workers.
    fn busy_intervals(&self, end: Time) -> Vec<(Time, Time)> {
        let mut jobs: Vec<(Time, Time)> = self
            .all_jobs()
            .map(|(_, record)| (record.ready().min(end), record.until().min(end)))
            .collect();
        jobs.sort_unstable();
        let mut all: Vec<(Time, Time)> = Vec::new();
        for (from, to) in jobs {
            match all.last_mut() {
                Some(last) if from <= last.1 => last.1 = last.1.max(to),
                _ => all.push((from, to)),
            }
        }
        all
    }

    /// Returns the intervals with pending jobs in which levels require a worker to run, but the CPU
    /// was idle or ran another thread of the run. Returns nothing for reservations, because an
    /// exhausted reservation waits.
    pub fn violations(
        &self,
        (executed, idle): (&[ExecInterval], &[IdleInterval]),
        end: Time,
        subtract_excused: &dyn Fn(Time, Time) -> Vec<(Time, Time)>,
    ) -> Vec<OrderViolation> {
        if matches!(self.guarantee, Guarantee::Deadlines(_)) {
            return Vec::new();
        }
        let busy = self.busy_intervals(end).into_iter().map(|(from, to)| (None, from, to));
        kernel_check::violations_in(0, busy, (executed, idle), subtract_excused)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(us: u64) -> Time {
        Time::from_ns(us * 1_000)
    }

    /// Creates a job record. The times are in microseconds: ready, start, end, consumed.
    fn record(number: u64, ready: u64, begin: u64, end: u64, used: u64) -> JobRecord {
        JobRecord {
            number,
            release: at(ready),
            deadline: at(ready + 1_000),
            begin: Some(at(begin)),
            end: Some(at(end)),
            cpu_time: Work::from_ns(used * 1_000),
            ..JobRecord::default()
        }
    }

    /// Creates the report of a job of a low-level task that a job of a high-level task preempts.
    fn sample_report() -> NativeReport {
        NativeReport {
            guarantee: Guarantee::Levels(vec![93, 92]),
            jobs: vec![
                vec![record(0, 2_000, 2_010, 3_000, 980), record(1, 9_000, 9_500, 10_000, 500)],
                vec![record(0, 1_000, 1_010, 6_000, 3_600)],
            ],
            refused: vec![Vec::new(), Vec::new()],
        }
    }

    #[test]
    fn the_job_that_started_last_has_the_cpu_until_it_ends() {
        let intervals = sample_report().intervals(None, at(20_000));
        let found: Vec<_> = intervals
            .iter()
            .map(|interval| (interval.task.0, interval.job, interval.start, interval.end))
            .collect();
        let expected = [
            (1, 0, 1_010, 2_010),
            (0, 0, 2_010, 3_000),
            (1, 0, 3_000, 6_000),
            (0, 1, 9_500, 10_000),
        ];
        assert_eq!(found, expected.map(|(task, job, from, to)| (task, job, at(from), at(to))));
    }

    #[test]
    fn the_order_is_comparable_where_levels_differ_or_no_job_waits_behind_its_predecessor() {
        let mut report = sample_report();
        assert!(report.is_order_comparable());
        report.guarantee = Guarantee::Levels(vec![93, 93]);
        assert!(report.is_order_comparable());
        report.jobs[0][1].release = at(2_900);
        assert!(!report.is_order_comparable());
        report.guarantee = Guarantee::Levels(vec![93, 92]);
        assert!(report.is_order_comparable());
        report.guarantee = Guarantee::RoundRobin;
        assert!(!report.is_order_comparable());
        assert_eq!(report.total_lost_time(None), Span::ZERO);
        // 990 + 500 + 4,000 µs on the CPU.
        report.guarantee = Guarantee::Levels(vec![93, 92]);
        assert_eq!(report.total_lost_time(None), Span::from_ns(410_000));
    }

    #[test]
    fn s7_an_exhausted_or_late_reservation_is_no_excuse() {
        let us = |us: u64| Work::from_ns(us * 1_000);
        let executed = |task, from, to| ExecInterval {
            cpu: 0,
            task: TaskId(task),
            from: at(from),
            to: at(to),
        };
        // The first job of the high-level task waits from 2,200 to 2,800 for its next budget, and
        // the low-level task has the CPU. The second one starts 500 µs late, with the CPU idle. The
        // low-level task is on the CPU for 200 µs that its clock does not show.
        let word = [
            executed(1, 1_000, 2_010),
            executed(0, 2_010, 2_200),
            executed(1, 2_200, 2_800),
            executed(0, 2_800, 3_005),
            executed(1, 3_005, 6_005),
        ];
        let word = [&word[..], &[executed(0, 9_500, 10_005)]].concat();
        let mut report = NativeReport {
            guarantee: Guarantee::Deadlines(vec![us(1_000), us(5_000)]),
            ..sample_report()
        };
        report.jobs[0][0].cpu_time = us(390);
        report.jobs[1][0].cpu_time = us(4_390);
        let found = |report: &NativeReport, executed: Option<&[ExecInterval]>| -> Vec<_> {
            let all = report.lost_times(executed, at(20_000)).into_iter();
            all.map(|loss| (loss.from, loss.amount.as_ns() / 1_000)).collect()
        };
        assert_eq!(found(&report, Some(&word)), [(at(1_010), 205)]);
        assert_eq!(report.total_lost_time(Some(&word)), Span::from_ns(205_000));
        assert_eq!((found(&report, None), report.total_lost_time(None)), (Vec::new(), Span::ZERO));
        // A job that consumed more than its budget was robbed, and waits for that: all of the time
        // is excused.
        report.guarantee = Guarantee::Deadlines(vec![us(380), us(5_000)]);
        assert_eq!(found(&report, Some(&word)), [(at(2_010), 600), (at(1_010), 205)]);
        // As it would be under levels.
        report.guarantee = Guarantee::Levels(vec![93, 92]);
        assert_eq!(found(&report, None).len(), 2);
    }

    #[test]
    fn the_switch_trace_precedes_inferred_intervals() {
        let executed = |task, from, to| ExecInterval {
            cpu: 0,
            task: TaskId(task),
            from: at(from),
            to: at(to),
        };
        let executed = [
            executed(1, 1_000, 2_005),
            executed(0, 2_005, 3_010),
            executed(1, 3_010, 4_000),
            executed(1, 4_500, 6_020),
        ];
        let found: Vec<_> = sample_report()
            .intervals(Some(&executed), at(20_000))
            .iter()
            .map(|interval| (interval.start, interval.end))
            .collect();
        let expected = [(1_010, 2_005), (2_010, 3_000), (3_010, 4_000), (4_500, 6_000)];
        assert_eq!(found, expected.map(|(from, to)| (at(from), at(to))));
    }

    #[test]
    fn a_job_that_starts_right_after_the_last_end_and_never_ends_has_no_cpu_time() {
        let executed = |task, from, to| ExecInterval {
            cpu: 0,
            task: TaskId(task),
            from: at(from),
            to: at(to),
        };
        let mut report = NativeReport {
            guarantee: Guarantee::Deadlines(vec![Work::from_ns(980_000); 2]),
            ..sample_report()
        };
        let begun = JobRecord { end: None, ..record(2, 10_000, 10_100, 0, 0) };
        report.jobs[0].push(begun);
        let executed =
            [executed(1, 1_000, 2_005), executed(0, 2_005, 3_010), executed(0, 9_500, 10_600)];
        let had = report.cpu_time_by_job(Some(&executed)).expect("the switch trace");
        assert_eq!(had.get(&(TaskId(0), 1)), Some(&500_000));
        assert_eq!(had.get(&(TaskId(0), 2)), None);
        // Until a later end it has what it had by then.
        assert_eq!(
            report.intervals(Some(&executed), at(20_000)).last().map(|interval| interval.end),
            Some(at(10_600))
        );
    }

    #[test]
    fn slow_clocks_and_late_starts_are_lost_time() {
        let found: Vec<_> = sample_report()
            .lost_times(None, at(20_000))
            .iter()
            .map(|loss| (loss.from, loss.to, loss.amount.as_ns() / 1_000))
            .collect();
        // Of the low-level job's four milliseconds on the CPU, 0.4 are missing; the second
        // high-level job started late.
        assert_eq!(found, [(at(1_010), at(6_000), 400), (at(9_000), at(9_500), 500)]);
    }

    #[test]
    fn execution_without_a_job_or_below_a_waiting_one_is_unordered() {
        let check = |task, from, to, expected: &[(u64, u64)]| {
            let executed = ExecInterval { cpu: 0, task: TaskId(task), from: at(from), to: at(to) };
            let found: Vec<_> = sample_report()
                .unordered_execution(&[executed], at(20_000))
                .iter()
                .map(|out| (out.from, out.to))
                .collect();
            let expected: Vec<_> = expected.iter().map(|&(from, to)| (at(from), at(to))).collect();
            assert_eq!(found, expected, "{executed:?}");
        };
        check(1, 1_000, 2_000, &[]);
        check(1, 1_000, 2_500, &[(2_000, 2_500)]);
        check(1, 1_500, 3_500, &[(2_000, 3_000)]);
        check(1, 500, 1_500, &[(500, 1_000)]);
        check(1, 5_000, 6_500, &[(6_000, 6_500)]);
        check(0, 1_900, 3_100, &[(1_900, 2_000), (3_000, 3_100)]);
        check(0, 2_500, 9_500, &[(3_000, 9_000)]);
        check(1, 19_000, 30_000, &[(19_000, 20_000)]);
        // Without levels only workers without a job are out of order.
        let turns = NativeReport { guarantee: Guarantee::RoundRobin, ..sample_report() };
        let low = ExecInterval { cpu: 0, task: TaskId(1), from: at(1_500), to: at(6_100) };
        assert_eq!(turns.unordered_execution(&[low], at(20_000)).len(), 1);
    }

    #[test]
    fn the_cpu_is_busy_from_the_first_ready_job_to_the_last_end() {
        assert_eq!(
            sample_report().busy_intervals(at(20_000)),
            [(at(1_000), at(6_000)), (at(9_000), at(10_000))]
        );
        assert_eq!(
            sample_report().busy_intervals(at(5_000)).first(),
            Some(&(at(1_000), at(5_000)))
        );
    }
}
