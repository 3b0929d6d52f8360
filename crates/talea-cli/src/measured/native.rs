//! What workers without a machine have seen, as a simulation would have told it.

use talea_core::machine::{Cpu, Job, TaskId};
use talea_core::{Span, Time};
use talea_exec::native::{Course, Life};
use talea_exec::{Ran, RootReport};
use talea_sim::{Completion, Sink};

/// One thing to tell; what comes first at an instant stands first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Tale {
    Ended { task: TaskId, job: u64 },
    Arrived { task: TaskId, nominal: Time },
    Refused { task: TaskId, nominal: Time },
    Idles,
    Begins { task: TaskId, job: u64 },
    Runs { task: TaskId, job: u64 },
}

const CPU: Cpu = Cpu(0);

/// Tells `sink` what became of a root until `end`, and says what had not ended then.
pub(super) fn retell(
    course: &Course,
    ran: Option<&[Ran]>,
    end: Time,
    sink: &mut impl Sink,
) -> Vec<(TaskId, Job)> {
    let mut tales: Vec<(Time, Tale)> = Vec::new();
    let mut unfinished = Vec::new();
    let all = (0..).map(TaskId).zip(&course.lives);
    for (task, lives) in all {
        for life in lives.iter().filter(|life| life.seen < end) {
            let Life { number: job, nominal, release, deadline, .. } = *life;
            tales.push((life.seen, Tale::Arrived { task, nominal }));
            tales.extend(life.begin.map(|at| (at, Tale::Begins { task, job })));
            match life.end {
                Some(at) => tales.push((at, Tale::Ended { task, job })),
                None => unfinished.push((task, Job { number: job, release, deadline })),
            }
        }
    }
    for (task, refused) in (0..).map(TaskId).zip(&course.refused) {
        tales.extend(
            refused.iter().map(|one| (one.seen, Tale::Refused { task, nominal: one.nominal })),
        );
    }
    let pieces = course.pieces(ran, end);
    for (at, piece) in pieces.iter().enumerate() {
        tales.push((piece.from, Tale::Runs { task: piece.task, job: piece.job }));
        if pieces.get(at + 1).is_none_or(|next| next.from > piece.to) && piece.to < end {
            tales.push((piece.to, Tale::Idles));
        }
    }
    tales.sort_unstable();
    let find = |task: TaskId, job: u64| -> Option<&Life> {
        let lives = &course.lives[task.0 as usize];
        lives.get(usize::try_from(job).ok()?).filter(|life| life.number == job)
    };
    for (now, tale) in tales {
        match tale {
            Tale::Ended { task, job } => {
                if let Some(&Life { release, deadline, .. }) = find(task, job) {
                    sink.completed(&Completion {
                        task,
                        job,
                        release,
                        deadline,
                        end: now,
                        cpu: CPU,
                    });
                }
            }
            Tale::Arrived { task, nominal } => sink.arrived(now, task, nominal),
            Tale::Refused { task, nominal } => {
                sink.arrived(now, task, nominal);
                sink.refused(now, task);
            }
            Tale::Idles => sink.idles(now, CPU),
            Tale::Begins { task, job } => sink.begins(now, CPU, task, job, 0),
            Tale::Runs { task, job } => sink.runs(now, CPU, task, job),
        }
    }
    unfinished
}

/// The same of a root, if it is one.
pub(crate) fn of(
    real: &RootReport,
    length: Span,
    sink: &mut impl Sink,
) -> Option<Vec<(TaskId, Job)>> {
    let course = real.native.as_ref()?;
    Some(retell(course, real.ran.as_deref(), Time::ZERO + length, sink))
}

#[cfg(test)]
mod tests {
    use super::*;
    use talea_core::Work;
    use talea_exec::Arrival;
    use talea_exec::native::Promise;

    fn at(us: u64) -> Time {
        Time::from_ns(us * 1_000)
    }

    #[derive(Default)]
    struct Heard(Vec<String>);

    impl Sink for Heard {
        fn arrived(&mut self, now: Time, task: TaskId, _nominal: Time) {
            self.0.push(format!("{} {} comes", now.as_ns() / 1_000, task.0));
        }
        fn refused(&mut self, now: Time, task: TaskId) {
            self.0.push(format!("{} {} refused", now.as_ns() / 1_000, task.0));
        }
        fn runs(&mut self, now: Time, _cpu: Cpu, task: TaskId, job: u64) {
            self.0.push(format!("{} {}.{job} runs", now.as_ns() / 1_000, task.0));
        }
        fn begins(&mut self, now: Time, _cpu: Cpu, task: TaskId, job: u64, _version: u32) {
            self.0.push(format!("{} {}.{job} begins", now.as_ns() / 1_000, task.0));
        }
        fn idles(&mut self, now: Time, _cpu: Cpu) {
            self.0.push(format!("{} idle", now.as_ns() / 1_000));
        }
        fn completed(&mut self, job: &Completion) {
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
    fn a_native_run_is_told_as_a_simulation_tells() {
        let life = |number, ready, begin: Option<u64>, end: Option<u64>| Life {
            number,
            seen: at(ready),
            nominal: at(ready),
            release: at(ready),
            deadline: at(ready + 20),
            begin: begin.map(at),
            end: end.map(at),
            used: Work::ZERO,
        };
        let course = Course {
            promise: Promise::Levels(vec![93, 92]),
            lives: vec![
                vec![life(0, 10, Some(10), Some(15))],
                vec![
                    life(0, 0, Some(0), Some(25)),
                    life(1, 30, Some(30), None),
                    life(2, 40, None, None),
                ],
            ],
            refused: vec![vec![Arrival { seen: at(12), nominal: at(12) }], Vec::new()],
        };
        let mut heard = Heard::default();
        let unfinished = retell(&course, None, at(50), &mut heard);
        let told = [
            "0 1 comes",
            "0 1.0 begins",
            "0 1.0 runs",
            "10 0 comes",
            "10 0.0 begins",
            "10 0.0 runs",
            "12 0 comes",
            "12 0 refused",
            "15 0.0 ends",
            "15 1.0 runs",
            "25 1.0 ends late",
            "25 idle",
            "30 1 comes",
            "30 1.1 begins",
            "30 1.1 runs",
            "40 1 comes",
        ];
        assert_eq!(heard.0, told);
        assert_eq!(
            unfinished.iter().map(|(task, job)| (task.0, job.number)).collect::<Vec<_>>(),
            [(1, 1), (1, 2)]
        );
    }
}
