//! Switch to another tree: its request, and the step that makes it.
//!
//! The states of a switch and their transitions are in [`tree_switch`](super::tree_switch).

use super::Executor;
use super::tree_switch::TreeSwitch;
use crate::mechanism::Mechanism;
use crate::record::Log;
use crate::successor::{Successor, TreeInForce};
use talea_core::Time;
use talea_core::engine::{Cpu, Event, Handled, SwitchInstant, SwitchRule, TaskId};

impl<M: Mechanism> Executor<M> {
    /// Lets the root switch to other trees. `rule` is that of the tree in force.
    pub(crate) fn allow_switches(&mut self, rule: SwitchRule) {
        self.switch.rule = Some(rule);
    }

    /// Requests a switch: the next step finds its instant. Returns an engine to free without the
    /// lock, or the successor if the root does not switch.
    pub(crate) fn request_switch(
        &mut self,
        successor: Box<Successor>,
    ) -> Result<Option<Box<Successor>>, Box<Successor>> {
        if self.switch.rule.is_none() || successor.engine.tasks() != self.tasks.len() {
            return Err(successor);
        }
        let pending = self.switch.requested.as_ref().and_then(|(_, pending)| *pending);
        let replaced = self.switch.requested.replace((successor, pending));
        Ok(replaced.map(|(replaced, _)| replaced).or_else(|| self.switch.retired.take()))
    }

    /// Returns the tree in force.
    pub(crate) fn tree_in_force(&self) -> TreeInForce {
        let TreeSwitch { number, origin, cause, .. } = self.switch;
        TreeInForce { number, began: origin, cause }
    }

    /// Switches to the requested tree if its instant has come.
    pub(super) fn switch_if_due(&mut self, log: &mut Log) -> Result<(), M::Error> {
        let (Some((_, pending)), Some(rule)) = (&mut self.switch.requested, self.switch.rule)
        else {
            return Ok(());
        };
        let now = Time::ZERO + self.now.since(self.switch.origin);
        let pending = *pending.get_or_insert_with(|| rule.request(now));
        let Some(instant) = pending.instant(now, self.engine.is_drained()) else { return Ok(()) };
        let Some((successor, _)) = self.switch.requested.take() else { return Ok(()) };
        self.switch_to(successor, instant, log)
    }

    fn switch_to(
        &mut self,
        mut successor: Box<Successor>,
        instant: SwitchInstant,
        log: &mut Log,
    ) -> Result<(), M::Error> {
        for cpu in 0..self.cpus.len() {
            let Some(from) = self.cpus[cpu].running() else { continue };
            let at = Cpu(cpu as u32);
            if self.tasks[from.task.0 as usize].runs_job(from.job) {
                self.mechanism.stop(at, from.task, false)?;
            }
            self.mechanism.idle(at)?;
            self.cpus[cpu].order(None);
            self.cpus[cpu].order_applied();
        }
        let before = self.switch.origin;
        std::mem::swap(&mut self.engine, &mut successor.engine);
        self.switch.rule = Some(successor.rule);
        self.switch.number = successor.number;
        self.switch.cause = Some(instant.cause);
        for at in 0..self.tasks.len() {
            let task = TaskId(at as u32);
            let used = self.mechanism.cpu_time(task)?;
            let first = successor.engine.unfinished(task).next();
            let first = first.map(|job| self.switch.job_in_run_time(job));
            self.tasks[at].interrupt(first, used);
        }
        self.switch.origin = instant.at.saturating_add(before.since(Time::ZERO));
        let offset = self.switch.offset();
        for (at, _) in &mut successor.changes {
            *at = at.saturating_add(offset);
        }
        self.timed_events.replace_changes(&mut successor.changes);
        for task in (0..self.tasks.len() as u32).map(TaskId) {
            for _ in successor.engine.unfinished(task) {
                let event = Event::Arrived { task, arrival: Time::ZERO };
                if self.handle(log, event) == Handled::Refused {
                    self.refused += 1;
                }
            }
        }
        self.switch.retired = Some(successor);
        Ok(())
    }
}
