//! The course of a simulation. Tests of threads, which are another crate, include this file.

use super::{Course, Turn};
use talea_core::Time;
use talea_core::machine::{Cpu, TaskId};
use talea_sim::{Completion, Sink, World};

struct Told(Course);

impl Sink for Told {
    fn runs(&mut self, now: Time, cpu: Cpu, task: TaskId, job: u64) {
        self.0.tell(now, Turn::Runs { cpu, task, job });
    }

    fn idles(&mut self, now: Time, cpu: Cpu) {
        self.0.tell(now, Turn::Rests { cpu });
    }

    fn completed(&mut self, job: &Completion) {
        self.0.tell(job.end, Turn::Ended { task: job.task, job: job.job });
    }
}

/// What a world of so many CPUs does until then.
pub(super) fn course(mut world: World, cpus: u32, until: Time) -> Course {
    let mut told = Told(Course::new(cpus));
    world.run(until, &mut told);
    told.0.settle();
    told.0
}
