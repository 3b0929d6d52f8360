//! Steps between the segments of a job.
//!
//! A worker reports the end of each segment. This file delivers everything between segments to the
//! engine, in the same order as the simulator does. The engine alone decides whether the job
//! continues. The states of a segment and their transitions are in
//! [`task_state`](super::task_state).
//!
//! Resources, channels and accelerators are entries in the engine: only its orders keep a worker
//! from continuing.

use super::Executor;
use super::cpu_state::Assignment;
use crate::device_holds::DeviceHold;
use crate::mechanism::Mechanism;
use crate::record::Log;
use crate::suspension_state::WorkerReport;
use crate::work::DeviceWait;
use std::sync::Arc;
use talea_core::engine::{Cpu, Event, Handled, TaskId};
use talea_core::mutate;
use talea_core::workload::job_program::ResolvedAction;

impl<M: Mechanism> Executor<M> {
    /// Handles a report of the worker of `task`.
    pub(super) fn receive_report(&mut self, task: TaskId, log: &mut Log) -> Result<(), M::Error> {
        let state = &mut self.tasks[task.0 as usize];
        match self.mechanism.read_report(task, state.is_suspended()) {
            WorkerReport::Ended => {
                self.mechanism.complete(task)?;
                self.advance_job(task, log);
            }
            WorkerReport::Suspended => {
                state.suspend();
                self.mechanism.suspend(task)?;
                let _ = self.handle(log, Event::Blocked { task });
            }
            WorkerReport::Resumed => {
                let _ = self.handle(log, Event::Woke { task });
            }
            // The engine never learns of this suspension, and the worker waits for a dispatch.
            WorkerReport::Continued => {
                state.suspend();
                self.mechanism.complete(task)?;
            }
        }
        Ok(())
    }

    /// Advances the job of `task` after a segment: to its next segment or to its end.
    pub(super) fn advance_job(&mut self, task: TaskId, log: &mut Log) {
        let at = task.0 as usize;
        if let Some((from, to)) = self.tasks[at].end_segment(self.now) {
            self.holds.push(DeviceHold { task, from, to });
        }
        let mut stops = false;
        while !stops && let Some(action) = self.tasks[at].take_action() {
            if let ResolvedAction::Occupy { length, is_spinning } = action {
                let wait = DeviceWait { until: self.now + length, is_spinning };
                return self.tasks[at].occupy(wait, self.now);
            }
            stops = !self.apply_step(task, action, log);
        }
        if self.tasks[at].continue_job(stops) {
            return;
        }
        self.commit_tokens(task, log);
        let job = self.engine.unfinished(task).next();
        let job = job.map(|job| self.switch.job_in_run_time(job));
        self.tasks[at].end_job(job, self.now);
        let _ = self.handle(log, Event::Completed { task });
        self.reschedule_after_completion(task);
    }

    /// Commits the tokens that a job of `task` has popped and pushed.
    fn commit_tokens(&mut self, task: TaskId, log: &mut Log) {
        for at in 0..self.tasks[task.0 as usize].explicit_channels().len() {
            let channel = self.tasks[task.0 as usize].explicit_channels()[at];
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
                mutate!("exec-segment-unlock", {
                    let _ = self.handle(log, event);
                });
                true
            }
            ResolvedAction::Suspend(span) => {
                self.timed_events.suspend(task, self.now + span);
                if mutate!("exec-segment-suspend", false, true) {
                    return true;
                }
                let _ = self.handle(log, Event::Blocked { task });
                false
            }
            ResolvedAction::Occupy { .. } => unreachable!("a segment of its own"),
            ResolvedAction::PreemptionPoint { nonpreemptive } => {
                let event = Event::PreemptionPoint { task, nonpreemptive };
                mutate!(
                    "exec-segment-point",
                    {
                        let _ = self.handle(log, event);
                    },
                    {}
                );
                true
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
        while let Some(task) = self.timed_events.take_resumed(self.now) {
            let _ = self.handle(log, Event::Woke { task });
        }
        while let Some(condition) = self.timed_events.take_change(self.now) {
            let event = Event::Changed(condition);
            mutate!("exec-segment-change", {
                let _ = self.handle(log, event);
            });
        }
    }

    /// Starts jobs that were dispatched for the first time. Returns whether a dispatched job has
    /// made a step without working. If so, the caller polls the engine again.
    pub(super) fn begin_jobs(&mut self, log: &mut Log) -> bool {
        let mut any = false;
        for cpu in 0..self.cpus.len() {
            let Some(Assignment { task, job, version }) = self.cpus[cpu].ordered() else {
                continue;
            };
            let state = &mut self.tasks[task.0 as usize];
            state.begin_job(job, version);
            if state.is_segment_empty() {
                self.advance_job(task, log);
                any = true;
            }
        }
        any
    }

    /// Whether the job ordered on `cpu` has a segment that its worker has not received yet.
    pub(super) fn has_pending_segment(&self, cpu: usize) -> bool {
        let ordered = self.cpus[cpu].ordered();
        ordered.is_some_and(|ordered| self.tasks[ordered.task.0 as usize].is_segment_pending())
    }

    /// Starts or resumes the job that is dispatched on `cpu`.
    pub(super) fn dispatch(&mut self, cpu: usize) -> Result<(), M::Error> {
        let Some(Assignment { task, job, version }) = self.cpus[cpu].ordered() else {
            return Ok(());
        };
        let at = Cpu(cpu as u32);
        match self.tasks[task.0 as usize].start_segment(job, version) {
            Some(job) => {
                self.releases.on_job_assigned(task);
                self.mechanism.begin(at, task, job)
            }
            None => self.mechanism.resume(at, task),
        }
    }

    /// Stops the job that had `cpu` before, unless the job has ended or runs on another CPU.
    pub(super) fn preempt(&mut self, cpu: usize) -> Result<(), M::Error> {
        let Some(from) = self.cpus[cpu].running() else { return Ok(()) };
        let has_more = self.tasks[from.task.0 as usize].runs_job(from.job)
            && !self.cpus.iter().any(|other| other.ordered() == Some(from));
        if has_more {
            let has_successor = self.cpus[cpu].ordered().is_some();
            self.mechanism.stop(Cpu(cpu as u32), from.task, has_successor)?;
        }
        Ok(())
    }
}
