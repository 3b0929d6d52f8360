//! Settings and events of the optional features of a simulation: the cost of an order (overheads),
//! stalls, changes of conditions; and the notifications of its engine.

use super::optional::{Occupation, Optional};
use super::{Simulation, span_of};
use crate::interference::{Interference, Overheads};
use talea_core::engine::{Condition, Cpu, Event, Handled, Notification, Observer, TaskId};
use talea_core::mutate;
use talea_core::sink::Sink;
use talea_core::workload::job_program::{JobProgram, ResolvedAction};
use talea_core::workload::{CostMode, Environment};
use talea_core::{Time, Work};

impl<W: Observer> Simulation<W> {
    pub(super) fn optional(&mut self) -> &mut Optional {
        let tasks = self.tasks.len();
        self.optional.get_or_insert_with(|| Box::new(Optional::new(tasks)))
    }

    fn interference(&mut self) -> &mut Interference {
        let levels =
            (0..self.tasks.len()).map(|task| self.engine.depth(TaskId(task as u32))).collect();
        let first = (0..self.tasks.len()).map(|task| {
            mutate!("sim-overhead-first", self.engine.first_cpu(TaskId(task as u32)).0 as usize, 0)
        });
        let (cpus, first) = (self.cpus.len(), first.collect());
        self.optional().interference.get_or_insert_with(|| Interference::new(cpus, levels, first))
    }

    /// Sets the cost mode of all jobs. Callers set the mode before the first event.
    #[must_use]
    pub fn with_cost_mode(mut self, cost_mode: CostMode) -> Simulation<W> {
        self.cost_mode = cost_mode;
        self
    }

    /// Sets the stalls of `cpu`: no job progresses there in these intervals `[from, to)`. Stalls do
    /// not delay decisions.
    #[must_use]
    pub fn with_stalls(mut self, cpu: Cpu, stalls: Vec<(Time, Time)>) -> Simulation<W> {
        self.interference().set_stalls(cpu.0 as usize, stalls);
        self
    }

    /// Sets the scheduling overheads.
    #[must_use]
    pub fn with_overheads(mut self, overheads: Overheads) -> Simulation<W> {
        self.interference().overheads = overheads;
        self
    }

    /// Sets the changes of battery, mode and mask, with their times.
    #[must_use]
    pub fn with_condition_changes(mut self, mut changes: Vec<(Time, Condition)>) -> Simulation<W> {
        changes.sort_by_key(|&(at, _)| at);
        self.optional().changes = changes;
        self
    }

    /// Applies the overheads, stalls and changes of a described environment.
    #[must_use]
    pub fn with_environment(mut self, environment: &Environment) -> Simulation<W> {
        let Environment { overheads, stalls, changes } = environment;
        if *overheads != Overheads::default() {
            self = self.with_overheads(*overheads);
        }
        if !stalls.is_empty() {
            for cpu in (0..self.cpus.len()).map(|cpu| Cpu(cpu as u32)) {
                let here = stalls.iter().filter(|stall| stall.cpu == cpu);
                self = self.with_stalls(cpu, here.map(|stall| (stall.from, stall.to)).collect());
            }
        }
        if changes.is_empty() { self } else { self.with_condition_changes(changes.clone()) }
    }

    pub(super) fn next_optional_event(&self, optional: &Optional) -> Time {
        let wake = optional.suspended.first().map_or(Time::NEVER, |(at, _)| Time::from_ns(at));
        let next = wake.min(optional.next_change());
        let Some(interference) = &optional.interference else {
            return next.min(self.engine.next_wakeup().unwrap_or(Time::NEVER));
        };
        // Budgets are not consumed in a stall, so wake-ups during the stall would be useless.
        (0..self.cpus.len()).fold(next.min(self.engine.next_timer()), |next, cpu| {
            let expiry = self.engine.budget_end(Cpu(cpu as u32));
            if expiry == Time::NEVER {
                return next;
            }
            next.min(interference.finish_time(
                cpu,
                optional.now,
                expiry.max(optional.now).since(optional.now),
            ))
        })
    }

    /// Sets the end of the current segment on a CPU.
    pub(super) fn set_end(&mut self, now: Time, at: usize) {
        let Some(task) = self.cpus[at].running else { return };
        let wait = self.optional.as_ref().and_then(|it| it.occupying[task.0 as usize]);
        if let Some(Occupation { until, .. }) = wait {
            self.ends[at] = until.max(now);
            return;
        }
        let left = span_of(self.tasks[task.0 as usize].left);
        let interference =
            self.optional.as_ref().and_then(|optional| optional.interference.as_ref());
        let end = interference
            .map_or_else(|| now + left, |interference| interference.finish_time(at, now, left));
        self.ends[at] = end;
    }

    /// Handles the end of a segment: a step or the completion of the job.
    pub(super) fn end_segment(&mut self, now: Time, at: usize, sink: &mut impl Sink) {
        self.update_progress::<true>(now, at);
        if let (Some(task), Some(optional)) = (self.cpus[at].running, &mut self.optional) {
            optional.occupying[task.0 as usize] = None;
        }
        loop {
            let Some(task) = self.cpus[at].running else { return };
            let optional = self.optional.as_mut().expect("optional features");
            let Some(program) = &mut optional.programs[task.0 as usize] else {
                return self.complete::<true>(now, at, sink);
            };
            let Some(action) = program.next_action() else {
                match program.next_segment() {
                    None => return self.complete::<true>(now, at, sink),
                    Some(left) => {
                        self.tasks[task.0 as usize].left = left;
                        return self.set_end(now, at);
                    }
                }
            };
            if let ResolvedAction::Occupy { length, is_spinning } = action {
                let occupation = Occupation { until: now + length, is_spinning };
                optional.occupying[task.0 as usize] =
                    mutate!("sim-occupation", Some(occupation), None);
                self.tasks[task.0 as usize].left = Work::ZERO;
                return self.set_end(now, at);
            }
            if self.apply(now, task, action) {
                continue;
            }
            // The job waits here, unless its request is satisfied at this instant.
            let program = self
                .optional
                .as_mut()
                .and_then(|optional| optional.programs[task.0 as usize].as_mut());
            self.tasks[task.0 as usize].left =
                program.and_then(JobProgram::next_segment).unwrap_or(Work::ZERO);
            return self.set_end(now, at);
        }
    }

    /// Whether the current segment of a job is its last.
    pub(super) fn is_last_segment(&self, task: TaskId) -> bool {
        let program =
            self.optional.as_ref().and_then(|optional| optional.programs[task.0 as usize].clone());
        program.is_none_or(|mut program| {
            let stops = |action: ResolvedAction| {
                use ResolvedAction::{Lock, Occupy, Suspend};
                matches!(action, Lock(_) | Suspend(_) | Occupy { .. })
            };
            while let Some(action) = program.next_action() {
                if stops(action) {
                    return false;
                }
            }
            program.next_segment().is_none()
        })
    }

    /// Applies an action of a job. Returns whether the job continues.
    fn apply(&mut self, now: Time, task: TaskId, action: ResolvedAction) -> bool {
        match action {
            ResolvedAction::Lock(resource) => {
                self.engine.handle(now, Event::Locked { task, resource }) != Handled::Waits
            }
            ResolvedAction::Unlock(resource) => {
                let _ = self.engine.handle(now, Event::Unlocked { task, resource });
                true
            }
            ResolvedAction::Suspend(span) => {
                let optional = self.optional.as_mut().expect("optional features");
                optional.suspended.set(task.0, (now + span).as_ns());
                if mutate!("sim-suspension", false, true) {
                    return true;
                }
                let _ = self.engine.handle(now, Event::Blocked { task });
                false
            }
            ResolvedAction::Occupy { .. } => unreachable!("a segment of its own"),
            ResolvedAction::PreemptionPoint { nonpreemptive } => {
                let event = Event::PreemptionPoint { task, nonpreemptive };
                let _ = self.engine.handle(now, event);
                true
            }
            ResolvedAction::Push(channel, count) => {
                for _ in 0..count {
                    let _ = self.engine.handle(now, Event::Pushed { channel });
                }
                true
            }
            ResolvedAction::Pop(channel, count) => {
                for _ in 0..count {
                    let _ = self.engine.handle(now, Event::Popped { channel });
                }
                true
            }
        }
    }

    /// Applies the wake-ups and changes of conditions that are due.
    pub(super) fn apply_changes(&mut self, now: Time) {
        let optional = self.optional.as_mut().expect("optional features");
        while let Some((_, task)) = optional.suspended.first().filter(|&(at, _)| at <= now.as_ns())
        {
            optional.suspended.remove(task);
            let _ = self.engine.handle(now, Event::Woke { task: TaskId(task) });
        }
        while let Some(&(_, condition)) =
            optional.changes.get(optional.changed).filter(|&&(at, _)| at <= now)
        {
            optional.changed += 1;
            let event = Event::Changed(condition);
            mutate!("sim-change", {
                let _ = self.engine.handle(now, event);
            });
        }
    }

    pub(super) fn add_release_overhead(&mut self, now: Time, task: u32) {
        let Some(interference) =
            self.optional.as_mut().and_then(|optional| optional.interference.as_mut())
        else {
            return;
        };
        let (cost, at) = (interference.overheads.release, interference.last[task as usize]);
        if cost.is_zero() {
            return;
        }
        // Account the progress of the running job, which continues after the overhead.
        self.update_progress::<true>(now, at);
        let interference = self
            .optional
            .as_mut()
            .and_then(|optional| optional.interference.as_mut())
            .expect("checked before");
        mutate!("sim-overhead-release", interference.add_overhead(at, now, cost));
        self.set_end(now, at);
    }

    pub(super) fn drain_notifications(&mut self, now: Time, sink: &mut impl Sink) {
        while let Some(notification) = self.engine.poll_notification() {
            match notification {
                Notification::Activated { task, .. } => {
                    sink.on_arrival(now, task, now);
                    self.add_release_overhead(now, task.0);
                }
                Notification::Refused { task } => {
                    sink.on_arrival(now, task, now);
                    sink.on_refusal(now, task);
                }
                _ => {}
            }
            sink.on_notification(now, &notification);
        }
    }
}
