//! Validation of events for drivers whose events have an external source, such as an edited record.

use super::{Engine, Event, Observer, SELF_SUSPENDED, TaskId};

impl<W: Observer> Engine<W> {
    /// Whether a correct driver could pass this event now. The engine never panics on an accepted
    /// event.
    pub fn accepts(&self, event: Event) -> bool {
        let is_task = |task: TaskId| (task.0 as usize) < self.tasks.len();
        let is_running = |task: TaskId| is_task(task) && self.has_released_job(task);
        let is_blocked =
            |task: TaskId| self.tasks[task.0 as usize].blocked_on & SELF_SUSPENDED != 0;
        match event {
            Event::Arrived { task, .. } => is_task(task),
            Event::Completed { task } => is_running(task),
            Event::Blocked { task } => is_running(task) && !is_blocked(task),
            Event::Woke { task } => is_task(task) && is_blocked(task),
            Event::PreemptionPoint { task, .. } => {
                self.shape.nonpreemptive.has_sections() && is_running(task)
            }
            Event::Locked { task, resource } => {
                is_running(task)
                    && self
                        .optional
                        .sharing
                        .as_ref()
                        .is_some_and(|sharing| sharing.may_lock(task.0, resource.0))
            }
            Event::Unlocked { task, resource } => {
                is_running(task)
                    && self
                        .optional
                        .sharing
                        .as_ref()
                        .is_some_and(|sharing| sharing.holds(task.0, resource.0))
            }
            Event::Pushed { channel } => self.optional.graph.as_ref().is_some_and(|graph| {
                graph
                    .source(channel)
                    .is_some_and(|task| self.tasks[task as usize].jobs.first().is_some())
            }),
            Event::Popped { channel } => {
                self.optional.graph.as_ref().is_some_and(|graph| graph.source(channel).is_some())
            }
            Event::Ran { cpu, .. } => (cpu.0 as usize) < self.cpus.len(),
            Event::Changed(_) | Event::Stopped | Event::Timer => true,
        }
    }
}
