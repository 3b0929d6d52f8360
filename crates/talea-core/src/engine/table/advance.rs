//! Starts and ends of entries while the engine runs.

use super::super::{Cpu, Engine, NodeKind, Notification, Observer, TaskId};
use crate::Time;
use crate::mutate;
use crate::sched::Phase;

impl<W: Observer> Engine<W> {
    /// Starts and ends the entries at `due`. Activates the tasks of started entries, and reports
    /// the overruns of ended entries.
    pub(in super::super) fn advance_table(&mut self, now: Time, due: (Time, Phase)) {
        while let Some((cpu, entry)) =
            self.optional.table.as_mut().and_then(|table| table.cross_edge(due))
        {
            self.decision.need_resched = true;
            let NodeKind::Task(task) = self.shape.children[entry.owner as usize].kind() else {
                continue;
            };
            if due.1 == Phase::Ends {
                let state = &self.tasks[task as usize];
                let overruns = mutate!("core-table-overrun", state.released, !state.released);
                let ends = mutate!("core-table-goes-on", !entry.continues, true);
                if let (true, Some(job)) = (overruns && ends, state.jobs.first()) {
                    self.notifications.push(Notification::Overrun {
                        cpu: Cpu(cpu as u32),
                        task: TaskId(task),
                        job: job.number,
                    });
                }
            } else if entry.activates
                && mutate!("core-table-activates", !self.stopped, self.stopped)
            {
                let deadline = due.0.saturating_add(self.tasks[task as usize].deadline);
                self.activate(now, task, due.0, deadline);
            }
        }
    }
}
