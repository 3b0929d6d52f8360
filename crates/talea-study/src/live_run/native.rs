//! Events of workers without an engine, in the form of a simulation's.

use talea_core::engine::{Cpu, Job, TaskId};
use talea_core::{Span, Time};
use talea_exec::native::{JobRecord, NativeReport};
use talea_exec::{ExecInterval, RootReport};
use talea_sim::trace::TraceEvent;
use talea_sim::{Completion, Sink};

const CPU: Cpu = Cpu(0);

/// Returns the order of an event among those of its instant.
fn order(event: &TraceEvent) -> u8 {
    match event {
        TraceEvent::Completed(_) => 0,
        TraceEvent::Arrived { .. } => 1,
        TraceEvent::Refused(_) => 2,
        TraceEvent::Idle(_) => 3,
        TraceEvent::Started { .. } => 4,
        TraceEvent::Dispatched { .. } => 5,
        TraceEvent::Notified(_) => 6,
    }
}

/// Reports the events of a root until `end` to `sink`. Returns the unfinished jobs.
pub(super) fn replay_native(
    course: &NativeReport,
    ran: Option<&[ExecInterval]>,
    end: Time,
    sink: &mut impl Sink,
) -> Vec<(TaskId, Job)> {
    let mut events: Vec<(Time, TraceEvent)> = Vec::new();
    let mut unfinished = Vec::new();
    for (task, lives) in (0..).map(TaskId).zip(&course.jobs) {
        for life in lives.iter().filter(|life| life.observed < end) {
            let JobRecord { number: job, nominal, release, deadline, .. } = *life;
            events.push((life.observed, TraceEvent::Arrived { task, nominal }));
            let started = TraceEvent::Started { cpu: CPU, task, job, version: 0 };
            events.extend(life.begin.map(|at| (at, started)));
            match life.end {
                Some(end) => {
                    let completion = Completion { task, job, release, deadline, end, cpu: CPU };
                    events.push((end, TraceEvent::Completed(completion)));
                }
                None => unfinished.push((task, Job { number: job, release, deadline })),
            }
        }
    }
    for (task, refused) in (0..).map(TaskId).zip(&course.refused) {
        for one in refused {
            events.push((one.observed, TraceEvent::Arrived { task, nominal: one.nominal }));
            events.push((one.observed, TraceEvent::Refused(task)));
        }
    }
    let segments = course.intervals(ran, end);
    for (at, segment) in segments.iter().enumerate() {
        let (task, job) = (segment.task, segment.job);
        events.push((segment.start, TraceEvent::Dispatched { cpu: CPU, task, job }));
        let is_last = segments.get(at + 1).is_none_or(|next| next.start > segment.end);
        if is_last && segment.end < end {
            events.push((segment.end, TraceEvent::Idle(CPU)));
        }
    }
    events.sort_by_key(|(now, event)| (*now, order(event)));
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
