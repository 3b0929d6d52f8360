//! Events of workers without an engine, in the form of a simulation's.

use talea_core::engine::{Cpu, Job, TaskId};
use talea_core::{Span, Time};
use talea_exec::native::{JobRecord, NativeReport};
use talea_exec::{ExecInterval, RootReport};
use talea_sim::{Completion, Sink};

/// Event of a worker. Events of one instant are in the order of the variants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum NativeEvent {
    Ended { task: TaskId, job: u64 },
    Arrived { task: TaskId, nominal: Time },
    Refused { task: TaskId, nominal: Time },
    Idles,
    Begins { task: TaskId, job: u64 },
    Runs { task: TaskId, job: u64 },
}

const CPU: Cpu = Cpu(0);

/// Reports the events of a root until `end` to `sink`. Returns the unfinished jobs.
pub(super) fn replay_native(
    course: &NativeReport,
    ran: Option<&[ExecInterval]>,
    end: Time,
    sink: &mut impl Sink,
) -> Vec<(TaskId, Job)> {
    let mut events: Vec<(Time, NativeEvent)> = Vec::new();
    let mut unfinished = Vec::new();
    let all = (0..).map(TaskId).zip(&course.jobs);
    for (task, lives) in all {
        for life in lives.iter().filter(|life| life.observed < end) {
            let JobRecord { number: job, nominal, release, deadline, .. } = *life;
            events.push((life.observed, NativeEvent::Arrived { task, nominal }));
            events.extend(life.begin.map(|at| (at, NativeEvent::Begins { task, job })));
            match life.end {
                Some(at) => events.push((at, NativeEvent::Ended { task, job })),
                None => unfinished.push((task, Job { number: job, release, deadline })),
            }
        }
    }
    for (task, refused) in (0..).map(TaskId).zip(&course.refused) {
        events.extend(
            refused
                .iter()
                .map(|one| (one.observed, NativeEvent::Refused { task, nominal: one.nominal })),
        );
    }
    let pieces = course.intervals(ran, end);
    for (at, piece) in pieces.iter().enumerate() {
        events.push((piece.from, NativeEvent::Runs { task: piece.task, job: piece.job }));
        if pieces.get(at + 1).is_none_or(|next| next.from > piece.to) && piece.to < end {
            events.push((piece.to, NativeEvent::Idles));
        }
    }
    events.sort_unstable();
    let find = |task: TaskId, job: u64| -> Option<&JobRecord> {
        let lives = &course.jobs[task.0 as usize];
        lives.get(usize::try_from(job).ok()?).filter(|life| life.number == job)
    };
    for (now, event) in events {
        match event {
            NativeEvent::Ended { task, job } => {
                if let Some(&JobRecord { release, deadline, .. }) = find(task, job) {
                    sink.on_completion(&Completion {
                        task,
                        job,
                        release,
                        deadline,
                        end: now,
                        cpu: CPU,
                    });
                }
            }
            NativeEvent::Arrived { task, nominal } => sink.on_arrival(now, task, nominal),
            NativeEvent::Refused { task, nominal } => {
                sink.on_arrival(now, task, nominal);
                sink.on_refusal(now, task);
            }
            NativeEvent::Idles => sink.on_idle(now, CPU),
            NativeEvent::Begins { task, job } => sink.on_start(now, CPU, task, job, 0),
            NativeEvent::Runs { task, job } => sink.on_dispatch(now, CPU, task, job),
        }
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
