//! Recorder of a run: counters and distributions per task, and each job if a file needs it.

use super::chain_jobs::ChainJobs;
use super::csv::{self, Csv};
use super::events::EventCounts;
use super::exec_intervals::ExecIntervals;
use crate::report::{BudgetCurve, Budgets, Corner, Outline, Tracks};
use std::fs::File;
use talea_core::engine::{Cpu, Engine, Job, Notification, TaskId};
use talea_core::{Span, Time};
use talea_sim::{Completion, Counters, Histogram, Schedule, Simulation, Sink};

/// Maximum number of drawn segments. A page of 100,000 jobs opens immediately, and a page of
/// millions does not.
const MAX_DRAWN: usize = 250_000;

/// Writer of the trace.
pub(super) type Trace = crate::report::Trace<File>;

/// Recorder of the run of one root.
pub struct RunRecorder<'a> {
    outline: &'a Outline,
    /// Time zero of the engine in the run.
    start: Span,
    pub(crate) counters: Counters,
    pub(crate) responses: Vec<Histogram>,
    /// Schedule for a plot.
    pub schedule: Option<Schedule>,
    pub(crate) curves: Vec<BudgetCurve>,
    pub(super) events: EventCounts,
    pub(super) chain_jobs: ChainJobs,
    csv: Option<(&'a mut Csv, ExecIntervals)>,
    /// First error of a file that the recorder writes.
    pub failed: Option<std::io::Error>,
    trace: Option<Tracks<'a, File>>,
    budgets: Budgets,
}

impl<'a> RunRecorder<'a> {
    /// Creates the recorder of a root; the options say what it records.
    pub fn new(
        outline: &'a Outline,
        machine: &Engine,
        duration: Span,
        is_drawn: bool,
        csv: Option<&'a mut Csv>,
        trace: Option<&'a mut Trace>,
    ) -> RunRecorder<'a> {
        let tasks = outline.tasks.len();
        RunRecorder {
            outline,
            start: Span::ZERO,
            counters: Counters::new(tasks),
            responses: vec![Histogram::default(); tasks],
            schedule: is_drawn.then(|| Schedule::new(outline.cpus, MAX_DRAWN)),
            curves: vec![BudgetCurve::default(); outline.servers.len()],
            events: EventCounts::default(),
            chain_jobs: ChainJobs::new(&outline.in_chain, &outline.logical),
            csv: csv.map(|csv| (csv, ExecIntervals::new(outline.cpus, tasks))),
            failed: None,
            trace: trace.map(|trace| trace.root(outline, duration)),
            budgets: Budgets::new(outline, machine),
        }
    }

    /// Records times as those of a run in which the engine has its time zero at `start`.
    #[must_use]
    pub fn starting_at(self, start: Span) -> RunRecorder<'a> {
        RunRecorder { start, ..self }
    }

    /// Runs `world` until `end` and returns the unfinished jobs.
    pub fn run(&mut self, world: &mut Simulation, end: Time) -> Vec<(TaskId, Job)> {
        if self.tracks_budgets() {
            // The initial budgets, unless the first instant reports them.
            if world.next_event() > Time::ZERO {
                self.observe(world.engine(), Time::ZERO);
            }
            while world.next_event() < end {
                world.advance(self);
                let now = world.now();
                self.observe(world.engine(), now);
            }
        }
        world.run(end, self);
        // Jobs that complete exactly at the end count as completed, although a run processes no
        // event at its last instant.
        let ended: Vec<Completion> = world.completions_at(end).collect();
        for job in &ended {
            self.on_completion(job);
        }
        self.finish(world.engine(), end, &ended)
    }

    /// Whether the recorder records budgets. If so, the caller must call [`RunRecorder::observe`]
    /// after every instant.
    pub fn tracks_budgets(&self) -> bool {
        !self.budgets.is_empty() && (self.schedule.is_some() || self.trace.is_some())
    }

    /// Ends the recording and returns the unfinished jobs. `ended` lists completions that the
    /// engine has not received.
    pub fn finish(
        &mut self,
        machine: &Engine,
        end: Time,
        ended: &[Completion],
    ) -> Vec<(TaskId, Job)> {
        let tasks = (0..machine.tasks() as u32).map(TaskId);
        let known = tasks.flat_map(|task| machine.unfinished(task).map(move |job| (task, job)));
        let has_ended = |task: TaskId, job: &Job| {
            ended.iter().any(|one| (one.task, one.job) == (task, job.number))
        };
        let start = self.start;
        let shifted = |time: Time| time.saturating_add(start);
        let in_run = |(task, job): (TaskId, Job)| {
            let (release, deadline) = (shifted(job.release), shifted(job.deadline));
            (task, Job { release, deadline, ..job })
        };
        let unfinished: Vec<_> =
            known.filter(|(task, job)| !has_ended(*task, job)).map(in_run).collect();
        self.close(machine, end, &unfinished);
        unfinished
    }

    /// Ends the recording with known unfinished jobs.
    pub fn close(&mut self, machine: &Engine, end: Time, unfinished: &[(TaskId, Job)]) {
        let end = end + self.start;
        if let Some(schedule) = &mut self.schedule {
            schedule.finish(end);
        }
        if let Some(trace) = &mut self.trace {
            trace.finish(end, unfinished);
        }
        self.events.add_channels(machine, self.outline.sinks.len());
    }

    /// Records the budgets after all events of an instant.
    pub fn observe(&mut self, machine: &Engine, now: Time) {
        let RunRecorder { outline, start, schedule, curves, trace, budgets, .. } = self;
        budgets.observe(machine, outline, now, |corner: Corner| {
            let corner = Corner { at: corner.at + *start, ..corner };
            if let Some(trace) = trace {
                trace.budget(corner);
            }
            let [times, left] = &mut curves[corner.server];
            if schedule.as_ref().is_some_and(|schedule| schedule.cut.is_none())
                && times.len() < MAX_DRAWN
            {
                times.push(corner.at.as_ns());
                left.push(corner.left_ns);
            }
        });
    }
}

impl Sink for RunRecorder<'_> {
    fn on_arrival(&mut self, now: Time, task: TaskId, nominal: Time) {
        let (now, nominal) = (now + self.start, nominal + self.start);
        self.counters.on_arrival(now, task, nominal);
        if let Some(schedule) = &mut self.schedule {
            schedule.on_arrival(now, task, nominal);
        }
        if let Some(trace) = &mut self.trace {
            trace.on_arrival(now, task, nominal);
        }
    }

    fn on_dispatch(&mut self, now: Time, cpu: Cpu, task: TaskId, job: u64) {
        let now = now + self.start;
        self.budgets.runs(cpu, Some(task));
        if let Some((_, pieces)) = &mut self.csv {
            pieces.runs(now, cpu, task, job);
        }
        if let Some(schedule) = &mut self.schedule {
            schedule.on_dispatch(now, cpu, task, job);
        }
        if let Some(trace) = &mut self.trace {
            trace.on_dispatch(now, cpu, task, job);
        }
    }

    fn on_start(&mut self, now: Time, _cpu: Cpu, task: TaskId, job: u64, _version: u32) {
        let now = now + self.start;
        self.chain_jobs.started(now, task, job);
    }

    fn on_idle(&mut self, now: Time, cpu: Cpu) {
        let now = now + self.start;
        self.budgets.runs(cpu, None);
        if let Some((_, pieces)) = &mut self.csv {
            pieces.idles(now, cpu);
        }
        if let Some(schedule) = &mut self.schedule {
            schedule.on_idle(now, cpu);
        }
        if let Some(trace) = &mut self.trace {
            trace.on_idle(now, cpu);
        }
    }

    fn on_notification(&mut self, now: Time, note: &Notification) {
        let now = now + self.start;
        self.events.count_note(note);
        if let (Some((_, pieces)), Notification::Overrun { task, job, .. }) = (&mut self.csv, note)
        {
            pieces.overran(*task, *job);
        }
        if let Some(trace) = &mut self.trace {
            trace.on_notification(now, note);
        }
    }

    fn on_refusal(&mut self, now: Time, task: TaskId) {
        let now = now + self.start;
        self.counters.on_refusal(now, task);
        if let Some(trace) = &mut self.trace {
            trace.on_refusal(now, task);
        }
    }

    fn on_completion(&mut self, job: &Completion) {
        let start = self.start;
        let shifted = |time: Time| time.saturating_add(start);
        let [release, deadline, end] = [job.release, job.deadline, job.end].map(shifted);
        let job = &Completion { release, deadline, end, ..*job };
        self.counters.on_completion(job);
        if let Some(schedule) = &mut self.schedule {
            schedule.on_completion(job);
        }
        if let Some(trace) = &mut self.trace {
            trace.on_completion(job);
        }
        self.responses[job.task.0 as usize].add(job.response());
        self.chain_jobs.completed(job);
        if let Some((file, pieces)) = &mut self.csv {
            let ran = pieces.ended(job.end, job.task);
            let written = csv::line(file, &self.outline.tasks[job.task.0 as usize], job, &ran);
            self.failed = written.err().or(self.failed.take());
        }
    }
}
