//! Queries of a running engine, and inputs that no decision depends on immediately.

use super::versions::Condition;
use super::{AcceleratorId, Cpu, Engine, Job, NodeId, Notification, Observer, ResourceId, TaskId};
use crate::mutate;
use crate::server::Server;
use crate::{Time, Work};

impl<W: Observer> Engine<W> {
    /// Returns the number of tasks.
    pub fn tasks(&self) -> usize {
        self.tasks.len()
    }

    /// Returns the number of CPUs.
    pub fn cpus(&self) -> usize {
        self.cpus.len()
    }

    /// Returns the tree node of a task.
    pub fn node_of(&self, task: TaskId) -> NodeId {
        self.shape.ids[self.tasks[task.0 as usize].node as usize]
    }

    /// Returns the first pending job of `task`: the current job, or the next job if none is
    /// released.
    pub fn job(&self, task: TaskId) -> Option<Job> {
        self.tasks[task.0 as usize].jobs.first()
    }

    /// Whether a job of `task` is released. Only a released job can complete.
    pub fn has_released_job(&self, task: TaskId) -> bool {
        self.tasks[task.0 as usize].released
    }

    /// Returns the number of pending jobs of `task`.
    pub fn backlog(&self, task: TaskId) -> u32 {
        self.tasks[task.0 as usize].jobs.len()
    }

    /// Returns the number of pending jobs with a deadline at or before `now`. O(backlog).
    pub fn overdue(&self, task: TaskId, now: Time) -> u32 {
        self.tasks[task.0 as usize].jobs.overdue(now)
    }

    /// Whether the engine may ever need [`super::Event::Ran`].
    pub fn needs_accounting(&self) -> bool {
        self.shape.any_accounting
    }

    /// Whether the engine needs [`super::Event::Ran`] for `cpu` now.
    #[inline]
    pub fn is_accounted(&self, cpu: Cpu) -> bool {
        self.cpus[cpu.0 as usize].accounted
    }

    /// Returns the attached observer.
    pub fn observer(&mut self) -> &mut W {
        &mut self.observer
    }

    /// Removes the oldest notification and returns it. The driver polls after each instant.
    #[inline]
    pub fn poll_notification(&mut self) -> Option<Notification> {
        self.notifications.pop()
    }

    /// Returns the number of notifications that were dropped because the queue was full.
    pub fn lost_notifications(&self) -> u64 {
        self.notifications.lost()
    }

    /// Whether every pending job has completed. After [`Event::Stopped`](super::Event::Stopped),
    /// the next start is then possible.
    pub fn is_drained(&self) -> bool {
        self.tasks.iter().all(|task| task.jobs.len() == 0)
    }

    /// Whether the engine can produce notifications.
    pub fn has_notifications(&self) -> bool {
        self.notifications.has_room()
    }

    /// Returns the number of schedulers above a task.
    pub fn depth(&self, task: TaskId) -> u32 {
        let node = self.tasks[task.0 as usize].node;
        core::iter::successors(self.parent_of(node), |&at| self.parent_of(at)).count() as u32
    }

    /// Returns the first CPU on which `task` may run. The result is CPU 0 if a table has no entry
    /// of the task.
    pub fn first_cpu(&self, task: TaskId) -> Cpu {
        let top = self.root_child_of(self.tasks[task.0 as usize].node);
        let child = self.nodes[top as usize].entry.child;
        Cpu(match (&self.global, &self.optional.table) {
            (Some(global), _) => global.first_cpu(child),
            (_, Some(table)) => table.first_cpu(child).unwrap_or(0),
            _ => 0,
        })
    }

    /// Returns the time of the next timer: [`next_wakeup`](Engine::next_wakeup) without the ends of
    /// budgets. [`Time::NEVER`] if no timer is set.
    pub fn next_timer(&self) -> Time {
        self.timers.first().map_or(Time::NEVER, |(key, _)| Time::from_ns(key >> 2))
    }

    /// Returns when the task on `cpu` exhausts a budget or a quantum, at full speed since the last
    /// [`poll`](Engine::poll).
    ///
    /// The result is [`Time::NEVER`] if the task has neither.
    pub fn budget_end(&self, cpu: Cpu) -> Time {
        self.cpus[cpu.0 as usize].budget_end
    }

    /// Iterates over the remaining budgets of all servers at `now`.
    ///
    /// The budgets are exact for drivers that report consumption at every instant.
    pub fn budgets(&self, now: Time) -> impl Iterator<Item = (NodeId, Work)> {
        self.schedulers.iter().filter_map(move |scheduler| {
            let server = scheduler.server.as_ref()?;
            Some((self.shape.ids[scheduler.node as usize], server.budget(now)))
        })
    }

    /// Iterates over the pending jobs of `task`, in order. The first is the current job, or the
    /// next job if none is released.
    pub fn unfinished(&self, task: TaskId) -> impl Iterator<Item = Job> {
        self.tasks[task.0 as usize].jobs.jobs()
    }

    /// Returns the holder of an accelerator.
    pub fn accelerator_holder(&self, accelerator: AcceleratorId) -> Option<TaskId> {
        self.optional.sharing.as_ref()?.accelerator(accelerator.0).map(TaskId)
    }

    /// Returns the holder of a resource.
    pub fn resource_holder(&self, resource: ResourceId) -> Option<TaskId> {
        self.optional.sharing.as_ref()?.resource(resource.0).map(TaskId)
    }

    pub(super) fn change(&mut self, condition: Condition) {
        if let Some(sharing) = &mut self.optional.sharing {
            mutate!("core-version-condition", sharing.conditions.set(condition));
        }
    }
}
