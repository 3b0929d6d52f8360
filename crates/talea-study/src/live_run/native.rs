//! Events of workers without an engine, in the form of a simulation's.

use talea_core::engine::{Cpu, Job, TaskId};
use talea_core::{Span, Time};
use talea_exec::native::{JobRecord, NativeReport};
use talea_exec::{ExecInterval, RootReport};
use talea_sim::{Completion, Sink};

const CPU: Cpu = Cpu(0);

/// Event of a run. Events of one instant are reported in the order of the variants.
enum RunEvent {
    Completed(Completion),
    Arrived { task: TaskId, nominal: Time },
    Refused(TaskId),
    Idle,
    Started { task: TaskId, job: u64 },
    Dispatched { task: TaskId, job: u64 },
}

impl RunEvent {
    /// Returns the position of the event among those of its instant.
    fn order(&self) -> u8 {
        match self {
            RunEvent::Completed(_) => 0,
            RunEvent::Arrived { .. } => 1,
            RunEvent::Refused(_) => 2,
            RunEvent::Idle => 3,
            RunEvent::Started { .. } => 4,
            RunEvent::Dispatched { .. } => 5,
        }
    }

    /// Reports the event to `sink`.
    fn report(&self, now: Time, sink: &mut impl Sink) {
        match *self {
            RunEvent::Completed(ref job) => sink.on_completion(job),
            RunEvent::Arrived { task, nominal } => sink.on_arrival(now, task, nominal),
            RunEvent::Refused(task) => sink.on_refusal(now, task),
            RunEvent::Idle => sink.on_idle(now, CPU),
            RunEvent::Started { task, job } => sink.on_start(now, CPU, task, job, 0),
            RunEvent::Dispatched { task, job } => sink.on_dispatch(now, CPU, task, job),
        }
    }
}

/// Reports the events of a root until `end` to `sink`. Returns the unfinished jobs.
pub(super) fn replay_native(
    course: &NativeReport,
    ran: Option<&[ExecInterval]>,
    end: Time,
    sink: &mut impl Sink,
) -> Vec<(TaskId, Job)> {
    let mut events: Vec<(Time, RunEvent)> = Vec::new();
    let mut unfinished = Vec::new();
    for (task, lives) in (0..).map(TaskId).zip(&course.jobs) {
        for life in lives.iter().filter(|life| life.observed < end) {
            let JobRecord { number: job, nominal, release, deadline, .. } = *life;
            events.push((life.observed, RunEvent::Arrived { task, nominal }));
            let started = RunEvent::Started { task, job };
            events.extend(life.begin.map(|at| (at, started)));
            match life.end {
                Some(end) => {
                    let completion = Completion { task, job, release, deadline, end, cpu: CPU };
                    events.push((end, RunEvent::Completed(completion)));
                }
                None => unfinished.push((task, Job { number: job, release, deadline })),
            }
        }
    }
    for (task, refused) in (0..).map(TaskId).zip(&course.refused) {
        for one in refused {
            events.push((one.observed, RunEvent::Arrived { task, nominal: one.nominal }));
            events.push((one.observed, RunEvent::Refused(task)));
        }
    }
    let segments = course.intervals(ran, end);
    for (at, segment) in segments.iter().enumerate() {
        let (task, job) = (segment.task, segment.job);
        events.push((segment.start, RunEvent::Dispatched { task, job }));
        let is_last = segments.get(at + 1).is_none_or(|next| next.start > segment.end);
        if is_last && segment.end < end {
            events.push((segment.end, RunEvent::Idle));
        }
    }
    events.sort_by_key(|(now, event)| (*now, event.order()));
    for (now, event) in events {
        event.report(now, sink);
    }
    unfinished
}

/// Replays the record of a root that Linux scheduled alone. Returns `None` if the root ran with an
/// engine.
pub fn replay_if_native(
    real: &RootReport,
    length: Span,
    sink: &mut impl Sink,
) -> Option<Vec<(TaskId, Job)>> {
    let course = real.native.as_ref()?;
    Some(replay_native(course, real.executed.as_deref(), Time::ZERO + length, sink))
}

#[cfg(test)]
mod tests {
    use super::*;
    use talea_core::Work;
    use talea_exec::Arrival;
    use talea_exec::native::Guarantee;

    fn at(us: u64) -> Time {
        Time::from_ns(us * 1_000)
    }

    #[derive(Default)]
    struct RecordingSink(Vec<String>);

    impl Sink for RecordingSink {
        fn on_arrival(&mut self, now: Time, task: TaskId, _nominal: Time) {
            self.0.push(format!("{} {} arrives", now.as_ns() / 1_000, task.0));
        }
        fn on_refusal(&mut self, now: Time, task: TaskId) {
            self.0.push(format!("{} {} refused", now.as_ns() / 1_000, task.0));
        }
        fn on_dispatch(&mut self, now: Time, _cpu: Cpu, task: TaskId, job: u64) {
            self.0.push(format!("{} {}.{job} runs", now.as_ns() / 1_000, task.0));
        }
        fn on_start(&mut self, now: Time, _cpu: Cpu, task: TaskId, job: u64, _version: u32) {
            self.0.push(format!("{} {}.{job} begins", now.as_ns() / 1_000, task.0));
        }
        fn on_idle(&mut self, now: Time, _cpu: Cpu) {
            self.0.push(format!("{} idle", now.as_ns() / 1_000));
        }
        fn on_completion(&mut self, job: &Completion) {
            let late = if job.is_late() { " late" } else { "" };
            self.0.push(format!(
                "{} {}.{} ends{late}",
                job.end.as_ns() / 1_000,
                job.task.0,
                job.job
            ));
        }
    }

    #[test]
    fn a_native_run_has_the_events_of_a_simulation() {
        let life = |number, ready, begin: Option<u64>, end: Option<u64>| JobRecord {
            number,
            observed: at(ready),
            nominal: at(ready),
            release: at(ready),
            deadline: at(ready + 20),
            begin: begin.map(at),
            end: end.map(at),
            cpu_time: Work::ZERO,
        };
        let course = NativeReport {
            guarantee: Guarantee::Levels(vec![93, 92]),
            jobs: vec![
                vec![life(0, 10, Some(10), Some(15))],
                vec![
                    life(0, 0, Some(0), Some(25)),
                    life(1, 30, Some(30), None),
                    life(2, 40, None, None),
                ],
            ],
            refused: vec![vec![Arrival { observed: at(12), nominal: at(12) }], Vec::new()],
        };
        let mut sink = RecordingSink::default();
        let unfinished = replay_native(&course, None, at(50), &mut sink);
        let expected = [
            "0 1 arrives",
            "0 1.0 begins",
            "0 1.0 runs",
            "10 0 arrives",
            "10 0.0 begins",
            "10 0.0 runs",
            "12 0 arrives",
            "12 0 refused",
            "15 0.0 ends",
            "15 1.0 runs",
            "25 1.0 ends late",
            "25 idle",
            "30 1 arrives",
            "30 1.1 begins",
            "30 1.1 runs",
            "40 1 arrives",
        ];
        assert_eq!(sink.0, expected);
        assert_eq!(
            unfinished.iter().map(|(task, job)| (task.0, job.number)).collect::<Vec<_>>(),
            [(1, 1), (1, 2)]
        );
    }
}
