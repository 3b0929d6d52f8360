//! Questions and changes while a machine runs that no decision depends on at once.

use super::versions::Condition;
use super::{AcceleratorId, Cpu, Job, Machine, NodeId, Note, ResourceId, TaskId, Watch};
use crate::server::Server;
use crate::{Time, Work};

impl<W: Watch> Machine<W> {
    /// The number of tasks.
    pub fn tasks(&self) -> usize {
        self.tasks.len()
    }

    /// The number of CPUs.
    pub fn cpus(&self) -> usize {
        self.cpus.len()
    }

    /// The node that a task is in the tree.
    pub fn node_of(&self, task: TaskId) -> NodeId {
        self.ids[self.tasks[task.0 as usize].node as usize]
    }

    /// The job of `task` that is under way or next.
    pub fn job(&self, task: TaskId) -> Option<Job> {
        self.tasks[task.0 as usize].ring.first()
    }

    /// Whether a job of `task` is under way: only then can one end.
    pub fn is_under_way(&self, task: TaskId) -> bool {
        self.tasks[task.0 as usize].released
    }

    /// How many jobs of `task` have arrived and not ended.
    pub fn backlog(&self, task: TaskId) -> u32 {
        self.tasks[task.0 as usize].ring.len()
    }

    /// How many of them have a deadline at or before `now`: late, although they never ended.
    /// O(backlog).
    pub fn overdue(&self, task: TaskId, now: Time) -> u32 {
        self.tasks[task.0 as usize].ring.overdue(now)
    }

    /// Whether [`super::Event::Ran`] may ever be wanted.
    pub fn meters(&self) -> bool {
        self.any_metered
    }

    /// Whether [`super::Event::Ran`] is wanted for `cpu` now.
    #[inline]
    pub fn is_metered(&self, cpu: Cpu) -> bool {
        self.cpus[cpu.0 as usize].metered
    }

    /// Whoever looks.
    pub fn watch(&mut self) -> &mut W {
        &mut self.watch
    }

    /// What has happened that nobody asked for, oldest first; to be asked after each instant.
    #[inline]
    pub fn poll_note(&mut self) -> Option<Note> {
        self.notes.pop()
    }

    /// Notes that were dropped because nobody asked for them.
    pub fn lost_notes(&self) -> u64 {
        self.notes.lost()
    }

    /// Whether every job that came has ended; after [`Event::Stopped`](super::Event::Stopped),
    /// whether the next start may come.
    pub fn is_drained(&self) -> bool {
        self.tasks.iter().all(|task| task.ring.len() == 0)
    }

    /// Whether there may be notes to ask for.
    pub fn has_notes(&self) -> bool {
        self.notes.has_room()
    }

    /// The schedulers above a task.
    pub fn depth(&self, task: TaskId) -> u32 {
        let node = self.tasks[task.0 as usize].node;
        core::iter::successors(self.above(node), |&at| self.above(at)).count() as u32
    }

    /// The first CPU on which `task` may run.
    pub fn first_cpu(&self, task: TaskId) -> Cpu {
        let top = self.top_of(self.tasks[task.0 as usize].node);
        let child = self.nodes[top as usize].entry.child;
        Cpu(match (&self.global, &self.table) {
            (Some(global), _) => global.first_cpu(child),
            (_, Some(table)) => table.first_cpu(child).unwrap_or(0),
            _ => 0,
        })
    }

    /// When the machine wants to be asked again whatever the CPUs do: the part of
    /// [`next_wakeup`](Machine::next_wakeup) that is not about budgets.
    pub fn next_timer(&self) -> Time {
        self.timers.first().map_or(Time::NEVER, |(key, _)| Time::from_ns(key >> 2))
    }

    /// When what runs on `cpu` will have used up a budget or a quantum if it runs at full speed
    /// from the last [`poll`](Machine::poll) on; [`Time::NEVER`] if it has none.
    pub fn budget_end(&self, cpu: Cpu) -> Time {
        self.cpus[cpu.0 as usize].expiry
    }

    /// What each server has left at `now`, as far as consumption was told: for drivers that report
    /// it at every instant, the truth.
    pub fn budgets(&self, now: Time) -> impl Iterator<Item = (NodeId, Work)> {
        self.groups.iter().filter_map(move |group| {
            let server = group.server.as_ref()?;
            Some((self.ids[group.node as usize], server.budget(now)))
        })
    }

    /// The jobs of `task` that have come and not ended, in their order: the first is under way or
    /// next.
    pub fn unfinished(&self, task: TaskId) -> impl Iterator<Item = Job> {
        self.tasks[task.0 as usize].ring.jobs()
    }

    /// Who holds an accelerator.
    pub fn accelerator_of(&self, accelerator: AcceleratorId) -> Option<TaskId> {
        self.share.as_ref()?.accelerator(accelerator.0).map(TaskId)
    }

    /// Who holds a resource.
    pub fn resource_of(&self, resource: ResourceId) -> Option<TaskId> {
        self.share.as_ref()?.resource(resource.0).map(TaskId)
    }

    /// Whether `task` is activated by a graph and not by arrivals.
    pub fn is_node(&self, task: TaskId) -> bool {
        self.graph.as_ref().is_some_and(|graph| graph.is_node(task.0))
    }

    pub(super) fn change(&mut self, condition: Condition) {
        if let Some(share) = &mut self.share {
            share.conditions.set(condition);
        }
    }
}
