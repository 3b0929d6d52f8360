//! Segments of a job, and the steps between them.
//!
//! Model: a job program ([`JobProgram`]) cuts the work of a job into segments: where it locks,
//! suspends itself, or moves tokens. The worker runs one segment after the other and reports the
//! end of each. This file delivers everything between segments to the engine, in the same order as
//! the simulator does. The engine alone decides whether the job continues.
//!
//! | state of a task | meaning |
//! | --- | --- |
//! | `None` | no job has started, or it has ended |
//! | `Pending(work)` | the next segment waits for a dispatch; the job may be blocked meanwhile |
//! | `Running` | the worker runs a segment, or was preempted in it |
//!
//! | from | to | function | cause |
//! | --- | --- | --- | --- |
//! | `None` | `Pending` | `begin_jobs` | the engine dispatched the job for the first time |
//! | `Pending` | `Running` | `dispatch` | the engine dispatched the job |
//! | `Running` | `Running` | `preempt`, `dispatch` | the engine preempted and resumed it |
//! | `Running` | `Pending`, `None` | `advance_job` | the segment ended; another one follows or none |
//! | `Pending(0)` | `Pending`, `None` | `begin_jobs` | a segment without work ends when it begins |
//!
//! Resources, channels and accelerators are entries in the engine: only its orders keep a worker
//! from continuing.
//!
//! [`JobProgram`]: talea_core::workload::script::JobProgram

use super::{Assignment, Executor};
use crate::mechanism::Mechanism;
use crate::record::Log;
use crate::work::Job;
use std::sync::Arc;
use talea_core::Work;
use talea_core::engine::{Cpu, Event, Handled, TaskId};
use talea_core::mutate;
use talea_core::workload::job_program::ResolvedAction;

/// State of the current segment of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Segment {
    /// No job.
    None,
    /// The next segment, of this length, which waits for a dispatch of the job.
    Pending(Work),
    /// The segment that the worker runs.
    Running,
}

impl<M: Mechanism> Executor<M> {
    /// Advances the job of `task` after a segment: to its next segment or to its end.
    pub(super) fn advance_job(&mut self, task: TaskId, log: &mut Log) {
        let at = task.0 as usize;
        self.segments[at] = Segment::None;
        while let Some(script) = &mut self.scripts[at] {
            let action = script.next_action();
            if let Some(action) = action
                && self.apply_step(task, action, log)
            {
                continue;
            }
            let Some(script) = &mut self.scripts[at] else { break };
            match (script.next_segment(), action) {
                (Some(left), _) => self.segments[at] = Segment::Pending(left),
                // The job stops here, and has nothing left but its end when it continues.
                (None, Some(_)) => self.segments[at] = Segment::Pending(Work::ZERO),
                (None, None) => break,
            }
            return;
        }
        if self.loads[at].has_explicit_tokens() {
            self.commit_tokens(task, log);
        }
        self.begun_jobs[at] = None;
        if let Some(job) = self.engine.unfinished(task).next() {
            self.job_stats[at].record(job, self.now);
        }
        let _ = self.handle(log, Event::Completed { task });
        self.reschedule_after_completion(task);
    }

    /// Commits the tokens that a job of `task` has popped and pushed.
    fn commit_tokens(&mut self, task: TaskId, log: &mut Log) {
        for at in 0..self.channels_of[task.0 as usize].len() {
            let channel = self.channels_of[task.0 as usize][at];
            let flow = Arc::clone(&self.flows[channel.0 as usize]);
            let (popped, pushed) = flow.take_moved(task);
            for _ in 0..popped {
                let _ = self.handle(log, Event::Popped { channel });
            }
            for _ in 0..pushed {
                let _ = self.handle(log, Event::Pushed { channel });
            }
            flow.commit(popped, pushed);
        }
    }

    /// Applies one step of a job. Returns whether the job continues at once.
    fn apply_step(&mut self, task: TaskId, action: ResolvedAction, log: &mut Log) -> bool {
        match action {
            ResolvedAction::Lock(resource) => {
                self.handle(log, Event::Locked { task, resource }) != Handled::Waits
            }
            ResolvedAction::Unlock(resource) => {
                let event = Event::Unlocked { task, resource };
                mutate!(
                    "exec-segment-unlock",
                    {
                        let _ = self.handle(log, event);
                    },
                    {}
                );
                true
            }
            ResolvedAction::Suspend(span) => {
                self.resumptions.set(task.0, (self.now + span).as_ns());
                if mutate!("exec-segment-suspend", false, true) {
                    return true;
                }
                let _ = self.handle(log, Event::Blocked { task });
                false
            }
            ResolvedAction::Push(channel, count) => {
                for _ in 0..count {
                    let _ = self.handle(log, Event::Pushed { channel });
                }
                true
            }
            ResolvedAction::Pop(channel, count) => {
                for _ in 0..count {
                    let _ = self.handle(log, Event::Popped { channel });
                }
                true
            }
        }
    }

    /// Delivers suspensions that are over, and changes of conditions that are due.
    pub(super) fn deliver_timed_events(&mut self, log: &mut Log) {
        while let Some((_, task)) =
            self.resumptions.first().filter(|&(at, _)| at <= self.now.as_ns())
        {
            self.resumptions.remove(task);
            let _ = self.handle(log, Event::Woke { task: TaskId(task) });
        }
        while let Some(&(_, condition)) =
            self.changes.get(self.next_change).filter(|&&(at, _)| at <= self.now)
        {
            self.next_change += 1;
            let event = Event::Changed(condition);
            mutate!(
                "exec-segment-change",
                {
                    let _ = self.handle(log, event);
                },
                {}
            );
        }
    }

    /// Starts jobs that were dispatched for the first time. Returns whether a dispatched job has
    /// made a step without working. If so, the caller polls the engine again.
    pub(super) fn begin_jobs(&mut self, log: &mut Log) -> bool {
        let mut any = false;
        for cpu in 0..self.ordered.len() {
            let Some(Assignment { task, job, version }) = self.ordered[cpu] else { continue };
            let at = task.0 as usize;
            if self.begun_jobs[at] != Some(job) {
                self.begun_jobs[at] = Some(job);
                let cost = self.loads[at].cost(mutate!("exec-segment-version", version, 0));
                let script = self.scripts[at].as_mut();
                self.segments[at] = Segment::Pending(
                    script.map_or(cost, |script| script.begin(job, version, cost)),
                );
            }
            if self.scripts[at].is_some() && self.segments[at] == Segment::Pending(Work::ZERO) {
                self.advance_job(task, log);
                any = true;
            }
        }
        any
    }

    /// Whether the assigned job has a segment that its worker has not received yet.
    pub(super) fn has_pending_segment(&self, assignment: Option<Assignment>) -> bool {
        assignment.is_some_and(|Assignment { task, .. }| {
            matches!(self.segments[task.0 as usize], Segment::Pending(_))
        })
    }

    /// Starts or resumes the job that is dispatched on `cpu`.
    pub(super) fn dispatch(&mut self, cpu: usize) -> Result<(), M::Error> {
        let Some(Assignment { task, job, version }) = self.ordered[cpu] else { return Ok(()) };
        let at = Cpu(cpu as u32);
        let segment = &mut self.segments[task.0 as usize];
        if let Segment::Pending(cost) = *segment {
            *segment = Segment::Running;
            self.on_job_assigned(task);
            self.mechanism.begin(at, task, Job { number: job, version, cost })
        } else {
            self.mechanism.resume(at, task)
        }
    }

    /// Stops the job that had `cpu` before, unless the job has ended or runs on another CPU.
    pub(super) fn preempt(&mut self, cpu: usize) -> Result<(), M::Error> {
        let Some(from) = self.running[cpu] else { return Ok(()) };
        let has_more = self.segments[from.task.0 as usize] == Segment::Running
            && self.begun_jobs[from.task.0 as usize] == Some(from.job)
            && !self.ordered.contains(&Some(from));
        if has_more {
            self.mechanism.stop(Cpu(cpu as u32), from.task, self.ordered[cpu].is_some())?;
        }
        Ok(())
    }
}
