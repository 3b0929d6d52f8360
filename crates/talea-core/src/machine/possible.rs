//! What may be told now, and what would break an assumption: for drivers of events that are not
//! their own, such as a record that somebody may have changed.

use super::{BLOCKED, Event, Machine, TaskId, Watch};

impl<W: Watch> Machine<W> {
    /// Whether a driver that keeps its promises could tell this now. What is possible never panics.
    pub fn is_possible(&self, event: Event) -> bool {
        let is_task = |task: TaskId| (task.0 as usize) < self.tasks.len();
        let is_running = |task: TaskId| is_task(task) && self.is_under_way(task);
        let is_blocked = |task: TaskId| self.tasks[task.0 as usize].held & BLOCKED != 0;
        match event {
            Event::Arrived { task, .. } => is_task(task),
            Event::Completed { task } => is_running(task),
            Event::Blocked { task } => is_running(task) && !is_blocked(task),
            Event::Woke { task } => is_task(task) && is_blocked(task),
            Event::Locked { task, resource } => {
                is_running(task)
                    && self.share.as_ref().is_some_and(|share| share.may_lock(task.0, resource.0))
            }
            Event::Unlocked { task, resource } => {
                is_running(task)
                    && self.share.as_ref().is_some_and(|share| share.holds(task.0, resource.0))
            }
            Event::Pushed { channel } => self.graph.as_ref().is_some_and(|graph| {
                graph
                    .source(channel)
                    .is_some_and(|task| self.tasks[task as usize].ring.first().is_some())
            }),
            Event::Popped { channel } => {
                self.graph.as_ref().is_some_and(|graph| graph.source(channel).is_some())
            }
            Event::Ran { cpu, .. } => (cpu.0 as usize) < self.cpus.len(),
            Event::Changed(_) | Event::Stopped | Event::Timer => true,
        }
    }
}
