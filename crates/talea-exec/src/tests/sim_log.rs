//! Schedule log of a simulation. The kernel tests, another crate, include this file.

use super::{ScheduleEvent, ScheduleLog};
use talea_core::Time;
use talea_core::engine::{Cpu, TaskId};
use talea_sim::{Completion, Simulation, Sink};

struct ScheduleLogSink(ScheduleLog);

impl Sink for ScheduleLogSink {
    fn on_dispatch(&mut self, now: Time, cpu: Cpu, task: TaskId, job: u64) {
        self.0.push(now, ScheduleEvent::Dispatched { cpu, task, job });
    }

    fn on_idle(&mut self, now: Time, cpu: Cpu) {
        self.0.push(now, ScheduleEvent::Idle { cpu });
    }

    fn on_completion(&mut self, job: &Completion) {
        self.0.push(job.end, ScheduleEvent::Completed { task: job.task, job: job.job });
    }
}

/// Returns the schedule log of a simulation on these CPUs until `until`.
pub(super) fn simulated_log(mut world: Simulation, cpus: u32, until: Time) -> ScheduleLog {
    let mut sink = ScheduleLogSink(ScheduleLog::new(cpus));
    world.run(until, &mut sink);
    sink.0.end_instant();
    sink.0
}
