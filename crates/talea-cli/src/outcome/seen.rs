//! What is kept of a run: sums and distributions per task, and each job where a file wants it.

use super::noted::Noted;
use super::pieces::Pieces;
use crate::report::{Budgets, Corner, Curve, Outline, Tracks};
use std::fs::File;
use std::io::BufWriter;
use talea_core::machine::{Cpu, Job, Machine, Note, TaskId};
use talea_core::{Span, Time};
use talea_sim::{Completion, Counters, Schedule, Sink, Tally, World};

/// Segments that a picture holds at most: a page of 100,000 jobs opens at once, one of millions
/// never.
const DRAWN: usize = 250_000;

/// A file of jobs.
pub(crate) type Csv = BufWriter<File>;
/// A file of everything.
pub(crate) type Trace = crate::report::Trace<File>;

pub(crate) struct Seen<'a> {
    outline: &'a Outline,
    pub(crate) counters: Counters,
    pub(crate) responses: Vec<Tally>,
    /// For a picture.
    pub(crate) schedule: Option<Schedule>,
    pub(crate) curves: Vec<Curve>,
    pub(super) noted: Noted,
    csv: Option<(&'a mut Csv, Pieces)>,
    pub(crate) failed: Option<std::io::Error>,
    trace: Option<Tracks<'a, File>>,
    budgets: Budgets,
}

impl<'a> Seen<'a> {
    pub(crate) fn new(
        outline: &'a Outline,
        machine: &Machine,
        duration: Span,
        is_drawn: bool,
        csv: Option<&'a mut Csv>,
        trace: Option<&'a mut Trace>,
    ) -> Seen<'a> {
        let tasks = outline.tasks.len();
        Seen {
            outline,
            counters: Counters::new(tasks),
            responses: vec![Tally::default(); tasks],
            schedule: is_drawn.then(|| Schedule::new(outline.cpus, DRAWN)),
            curves: vec![Curve::default(); outline.servers.len()],
            noted: Noted::default(),
            csv: csv.map(|csv| (csv, Pieces::new(outline.cpus, tasks))),
            failed: None,
            trace: trace.map(|trace| trace.root(outline, duration)),
            budgets: Budgets::new(outline, machine),
        }
    }

    /// Lets `world` run and looks; what has not ended then.
    pub(crate) fn watch(&mut self, world: &mut World, end: Time) -> Vec<(TaskId, Job)> {
        if self.has_budgets() {
            // What is there before anything happens, unless something does at once.
            if world.next_event() > Time::ZERO {
                self.look(world.machine(), Time::ZERO);
            }
            while world.next_event() < end {
                world.advance(self);
                let now = world.now();
                self.look(world.machine(), now);
            }
        }
        world.run(end, self);
        // What has done its work by then has ended, although a run looks at nothing at its last
        // instant.
        let ended: Vec<Completion> = world.ending(end).collect();
        for job in &ended {
            self.completed(job);
        }
        self.finish(world.machine(), end, &ended)
    }

    /// Whether anybody wants to know how budgets go: then the machine is to be looked at after
    /// every instant.
    pub(crate) fn has_budgets(&self) -> bool {
        !self.budgets.is_empty() && (self.schedule.is_some() || self.trace.is_some())
    }

    /// The run is over; what has not ended, of which the machine may not know some that have.
    pub(crate) fn finish(
        &mut self,
        machine: &Machine,
        end: Time,
        ended: &[Completion],
    ) -> Vec<(TaskId, Job)> {
        let tasks = (0..machine.tasks() as u32).map(TaskId);
        let known = tasks.flat_map(|task| machine.unfinished(task).map(move |job| (task, job)));
        let has_ended = |task: TaskId, job: &Job| {
            ended.iter().any(|one| (one.task, one.job) == (task, job.number))
        };
        let unfinished: Vec<_> = known.filter(|(task, job)| !has_ended(*task, job)).collect();
        self.close(machine, end, &unfinished);
        unfinished
    }

    /// The same where somebody else knows what has not ended.
    pub(crate) fn close(&mut self, machine: &Machine, end: Time, unfinished: &[(TaskId, Job)]) {
        if let Some(schedule) = &mut self.schedule {
            schedule.finish(end);
        }
        if let Some(trace) = &mut self.trace {
            trace.finish(end, unfinished);
        }
        self.noted.channels(machine, self.outline.sinks.len());
    }

    /// Everything of this instant has happened.
    pub(crate) fn look(&mut self, machine: &Machine, now: Time) {
        let Seen { outline, schedule, curves, trace, budgets, .. } = self;
        budgets.look(machine, outline, now, |corner: Corner| {
            if let Some(trace) = trace {
                trace.budget(corner);
            }
            let [times, left] = &mut curves[corner.server];
            if schedule.as_ref().is_some_and(|schedule| schedule.cut.is_none())
                && times.len() < DRAWN
            {
                times.push(corner.at.as_ns());
                left.push(corner.left_ns);
            }
        });
    }
}

impl Sink for Seen<'_> {
    fn arrived(&mut self, now: Time, task: TaskId, nominal: Time) {
        self.counters.arrived(now, task, nominal);
        if let Some(schedule) = &mut self.schedule {
            schedule.arrived(now, task, nominal);
        }
        if let Some(trace) = &mut self.trace {
            trace.arrived(now, task, nominal);
        }
    }

    fn runs(&mut self, now: Time, cpu: Cpu, task: TaskId, job: u64) {
        self.budgets.runs(cpu, Some(task));
        if let Some((_, pieces)) = &mut self.csv {
            pieces.runs(now, cpu, task, job);
        }
        if let Some(schedule) = &mut self.schedule {
            schedule.runs(now, cpu, task, job);
        }
        if let Some(trace) = &mut self.trace {
            trace.runs(now, cpu, task, job);
        }
    }

    fn idles(&mut self, now: Time, cpu: Cpu) {
        self.budgets.runs(cpu, None);
        if let Some((_, pieces)) = &mut self.csv {
            pieces.idles(now, cpu);
        }
        if let Some(schedule) = &mut self.schedule {
            schedule.idles(now, cpu);
        }
        if let Some(trace) = &mut self.trace {
            trace.idles(now, cpu);
        }
    }

    fn noted(&mut self, now: Time, note: &Note) {
        self.noted.note(note);
        if let (Some((_, pieces)), Note::Overrun { task, job, .. }) = (&mut self.csv, note) {
            pieces.overran(*task, *job);
        }
        if let Some(trace) = &mut self.trace {
            trace.noted(now, note);
        }
    }

    fn refused(&mut self, now: Time, task: TaskId) {
        self.counters.refused(now, task);
        if let Some(trace) = &mut self.trace {
            trace.refused(now, task);
        }
    }

    fn completed(&mut self, job: &Completion) {
        self.counters.completed(job);
        if let Some(schedule) = &mut self.schedule {
            schedule.completed(job);
        }
        if let Some(trace) = &mut self.trace {
            trace.completed(job);
        }
        self.responses[job.task.0 as usize].add(job.response());
        if let Some((file, pieces)) = &mut self.csv {
            let ran = pieces.ended(job.end, job.task);
            let written =
                super::files::line(file, &self.outline.tasks[job.task.0 as usize], job, &ran);
            self.failed = written.err().or(self.failed.take());
        }
    }
}
