//! Execution of the jobs: several at a time, then the jobs that need the machine for themselves.
//!
//! Invariants: a job starts after the selected steps that it names in `after` have ended. At most
//! one job of [`Needs::State`] runs at any time. A job of [`Needs::Machine`] starts after all other
//! jobs have ended.

use super::libtest;
use super::machine::Reading;
use super::programs::{self, Needs, TestProgram};
use super::report::Report;
use super::steps::{Run, Step};
use super::{Verdict, excerpt};
use crate::shell::lock;
use std::collections::{BTreeSet, VecDeque};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Instant;

/// Number of jobs of the shared phase that run at the same time: one job per core of the smallest
/// machine, and one job that mostly waits ([`Needs::State`]). A build uses all cores alone.
const WORKERS: usize = 3;

/// Unit of execution: a step or a test program.
pub(super) struct Job {
    name: String,
    after: &'static [&'static str],
    needs: Needs,
    work: Work,
}

enum Work {
    Step(&'static Step),
    Program(TestProgram),
}

impl Job {
    pub(super) fn step(step: &'static Step) -> Job {
        Job {
            name: step.name.to_owned(),
            after: step.after,
            needs: Needs::Nothing,
            work: Work::Step(step),
        }
    }

    fn program(program: TestProgram) -> Job {
        Job {
            name: program.title().to_owned(),
            after: &["system"],
            needs: program.needs(),
            work: Work::Program(program),
        }
    }

    /// Runs the job, and returns the jobs that it adds.
    fn run(self, report: &Mutex<Report>) -> Vec<Job> {
        println!("== {}: started", self.name);
        let start = Instant::now();
        let mut output = Vec::new();
        let (word, added) = match self.work {
            Work::Step(step) => run_step(step, &mut output, report),
            Work::Program(program) => (run_program(&program, &mut output, report), Vec::new()),
        };
        // One write, so that the outputs of two jobs do not mix.
        let text: String = output.iter().flat_map(|line| [line, "\n"]).collect();
        println!("{text}== {}: {word} ({:.0} s)\n", self.name, start.elapsed().as_secs_f64());
        added.into_iter().map(Job::program).collect()
    }
}

fn run_step(
    step: &'static Step,
    output: &mut Vec<String>,
    report: &Mutex<Report>,
) -> (String, Vec<TestProgram>) {
    let mut line = |line: &str| output.push(line.to_owned());
    let mut added = Vec::new();
    let start = Reading::now();
    let verdict = match step.run {
        Run::Plain(run) => run(&mut line),
        Run::Build => programs::build(&mut line).map(|(verdict, programs)| {
            added = programs;
            verdict
        }),
    };
    let verdict = verdict.unwrap_or_else(|error| Verdict::Failed(format!("{error:#}")));
    let verdict = match verdict {
        Verdict::Failed(why) => Verdict::Failed(
            [why].into_iter().chain(excerpt::of(output)).collect::<Vec<_>>().join("\n"),
        ),
        other => other,
    };
    let mut report = lock(report);
    if step.has_tests {
        report.tests(step.name, None, libtest::parse(output), start);
    }
    (report.step(step.name, verdict), added)
}

fn run_program(program: &TestProgram, output: &mut Vec<String>, report: &Mutex<Report>) -> String {
    let start = Reading::now();
    let end = program.run(&mut |line| output.push(line.to_owned()));
    let results = libtest::results(program.title(), end, output);
    let word = if results.summaries.is_empty() {
        "no tests, or no result".to_owned()
    } else {
        results.summaries.join("; ")
    };
    lock(report).tests(program.title(), Some(&program.rerun()), results, start);
    word
}

struct Queue {
    waiting: VecDeque<Job>,
    /// Names of the initial jobs that run or wait.
    unfinished: BTreeSet<String>,
    running: usize,
    /// Whether a job of [`Needs::State`] runs.
    is_state_used: bool,
}

impl Queue {
    fn new(jobs: Vec<Job>) -> Queue {
        let unfinished = jobs.iter().map(|job| job.name.clone()).collect();
        Queue { waiting: jobs.into(), unfinished, running: 0, is_state_used: false }
    }

    /// Removes the first shared job that may start, and counts the job as running. `None` if no job
    /// may start.
    fn start(&mut self) -> Option<Job> {
        let may_start = |job: &Job| {
            let has_needs = match job.needs {
                Needs::Nothing => true,
                Needs::State => !self.is_state_used,
                Needs::Machine => false,
            };
            has_needs && !job.after.iter().any(|&name| self.unfinished.contains(name))
        };
        let job = self.waiting.remove(self.waiting.iter().position(may_start)?)?;
        self.running += 1;
        self.is_state_used |= job.needs == Needs::State;
        Some(job)
    }

    /// Removes the job `name` from the unfinished jobs. Inserts the added jobs before all others,
    /// because the longest test programs must not start last.
    fn finish(&mut self, name: &str, needs: Needs, added: Vec<Job>) {
        self.running -= 1;
        self.is_state_used &= needs != Needs::State;
        self.unfinished.remove(name);
        for job in added.into_iter().rev() {
            self.waiting.push_front(job);
        }
    }
}

/// Runs all jobs, including added jobs.
pub(super) fn run(jobs: Vec<Job>, report: &Mutex<Report>) {
    let queue = Mutex::new(Queue::new(jobs));
    let changed = Condvar::new();
    std::thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| work(&queue, &changed, report));
        }
    });
    let exclusive = std::mem::take(&mut lock(&queue).waiting);
    for job in exclusive {
        job.run(report);
    }
}

/// Runs shared jobs until no job runs and no shared job may start.
fn work(queue: &Mutex<Queue>, changed: &Condvar, report: &Mutex<Report>) {
    let mut locked = lock(queue);
    loop {
        if let Some(job) = locked.start() {
            drop(locked);
            let (name, needs) = (job.name.clone(), job.needs);
            let added = job.run(report);
            locked = lock(queue);
            locked.finish(&name, needs, added);
            changed.notify_all();
        } else if locked.running == 0 {
            return;
        } else {
            locked = changed.wait(locked).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(name: &str, after: &'static [&'static str], needs: Needs) -> Job {
        static STEP: Step = Step {
            name: "none",
            after: &[],
            run: Run::Plain(|_| Ok(Verdict::Passed)),
            has_tests: false,
        };
        Job { name: name.to_owned(), after, needs, work: Work::Step(&STEP) }
    }

    #[test]
    fn a_job_waits_for_the_steps_that_it_names_and_exclusive_jobs_wait_for_all() {
        let late = job("late", &["early"], Needs::Nothing);
        let jobs = vec![late, job("early", &["unselected"], Needs::Nothing)];
        let mut queue = Queue::new(jobs);
        let early = queue.start().expect("a job");
        assert_eq!(early.name, "early");
        assert!(queue.start().is_none());
        let added = vec![job("alone", &[], Needs::Machine), job("long", &[], Needs::Nothing)];
        queue.finish("early", Needs::Nothing, added);
        assert_eq!(queue.start().expect("a job").name, "long");
        assert_eq!(queue.start().expect("a job").name, "late");
        assert!(queue.start().is_none());
        assert_eq!(queue.waiting.len(), 1, "the exclusive one");
    }

    #[test]
    fn jobs_that_change_the_state_of_the_machine_run_one_at_a_time() {
        let state = ["one", "two"].map(|name| job(name, &[], Needs::State));
        let pure = job("pure", &[], Needs::Nothing);
        let mut queue = Queue::new(state.into_iter().chain([pure]).collect());
        assert_eq!(queue.start().expect("a job").name, "one");
        assert_eq!(queue.start().expect("a job").name, "pure");
        assert!(queue.start().is_none());
        queue.finish("pure", Needs::Nothing, Vec::new());
        assert!(queue.start().is_none());
        queue.finish("one", Needs::State, Vec::new());
        assert_eq!(queue.start().expect("a job").name, "two");
    }

    #[test]
    fn every_job_runs_once_and_counts() {
        let report = Mutex::new(Report::new());
        let needs = [Needs::Nothing, Needs::State, Needs::Machine];
        run(needs.map(|needs| job(&format!("{needs:?}"), &[], needs)).into(), &report);
        assert!(lock(&report).summary().ends_with("\n3 passed, 0 failed, 0 skipped\n"));
    }
}
