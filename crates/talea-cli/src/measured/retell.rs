//! A record of real threads as a simulation would have told it.
//!
//! Model: the recorded events go through a fresh machine again, which knows of each job when it was
//! released and when it is due; what it is told and what it orders goes to the sink in the same
//! words and in the same order as in a simulation.

use talea_core::Time;
use talea_core::machine::{Cpu, Event, Handled, Machine, Note, Order, TaskId};
use talea_exec::Entry;
use talea_exec::replay::{Difference, Listener, replay_to};
use talea_sim::{Completion, Sink};

/// Tells `sink` what `record` says, a machine of the same tree at time zero hearing it again;
/// `settled` is called when everything of an instant has happened.
///
/// # Errors
/// Where the record is not one of this machine.
pub(crate) fn retell<S: Sink>(
    machine: &mut Machine,
    record: &[Entry],
    sink: &mut S,
    settled: impl FnMut(&mut S, &Machine, Time),
) -> Result<usize, Difference> {
    let tasks = machine.tasks();
    let mut teller = Teller { sink, settled, begun: vec![None; tasks], cpu: vec![Cpu(0); tasks] };
    replay_to(machine, record, &mut teller)
}

struct Teller<'a, S, F> {
    sink: &'a mut S,
    settled: F,
    /// By task: the job that has begun last.
    begun: Vec<Option<u64>>,
    /// By task: where it was ordered to run last.
    cpu: Vec<Cpu>,
}

impl<S: Sink, F: FnMut(&mut S, &Machine, Time)> Listener for Teller<'_, S, F> {
    fn telling(&mut self, machine: &Machine, now: Time, event: Event) {
        if let Event::Completed { task } = event
            && let Some(job) = machine.job(task)
        {
            self.sink.completed(&Completion {
                task,
                job: job.number,
                release: job.release,
                deadline: job.deadline,
                end: now,
                cpu: self.cpu[task.0 as usize],
            });
        }
    }

    fn told(&mut self, now: Time, event: Event, handled: Handled) {
        if let Event::Arrived { task, arrival } = event {
            self.sink.arrived(now, task, arrival);
            if handled == Handled::Refused {
                self.sink.refused(now, task);
            }
        }
    }

    fn ordered(&mut self, now: Time, order: Order) {
        match order {
            Order::Run { cpu, task, job, version } => {
                self.cpu[task.0 as usize] = cpu;
                if self.begun[task.0 as usize].replace(job) != Some(job) {
                    self.sink.begins(now, cpu, task, job, version);
                }
                self.sink.runs(now, cpu, task, job);
            }
            Order::Idle { cpu } => self.sink.idles(now, cpu),
        }
    }

    fn polled(&mut self, machine: &mut Machine, now: Time) {
        while let Some(note) = machine.poll_note() {
            let activated = |task: TaskId, sink: &mut S| sink.arrived(now, task, now);
            match note {
                Note::Activated { task, .. } => activated(task, self.sink),
                Note::Refused { task } => {
                    activated(task, self.sink);
                    self.sink.refused(now, task);
                }
                _ => {}
            }
            self.sink.noted(now, &note);
        }
        (self.settled)(self.sink, machine, now);
    }
}
