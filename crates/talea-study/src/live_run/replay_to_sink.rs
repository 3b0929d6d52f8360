//! Replay of a record to a simulation sink.
//!
//! Model: the replay feeds the recorded events to a new engine, which knows the release and
//! deadline of each job. It reports the inputs and orders of the engine to the sink in the order of
//! a simulation.

use talea_core::Time;
use talea_core::engine::{Cpu, Engine, Event, Handled, Notification, Order, TaskId};
use talea_exec::RecordEntry;
use talea_exec::replay::{Divergence, Replay, ReplayListener};
use talea_sim::{Completion, Sink};

/// Feeds `record` to a new engine of the same tree at time zero, and reports the events to `sink`.
/// Calls `settled` after each instant.
///
/// # Errors
/// The record does not belong to this engine.
pub fn replay_to_sink<S: Sink>(
    machine: &mut Engine,
    record: &[RecordEntry],
    sink: &mut S,
    settled: impl FnMut(&mut S, &Engine, Time),
) -> Result<(), Divergence> {
    SinkReplay::new(machine.tasks()).feed(machine, record, sink, settled)
}

/// Replay to a sink of a record that is delivered in parts.
pub(super) struct SinkReplay {
    replay: Replay,
    /// `begun[task]`: job of the task that has started last.
    begun: Vec<Option<u64>>,
    /// `cpu[task]`: CPU of the last order for the task.
    cpu: Vec<Cpu>,
}

impl SinkReplay {
    pub(super) fn new(tasks: usize) -> SinkReplay {
        let (begun, cpu) = (vec![None; tasks], vec![Cpu(0); tasks]);
        SinkReplay { replay: Replay::default(), begun, cpu }
    }

    /// Replays the next part.
    ///
    /// # Errors
    /// Those of [`replay_to_sink`]. After an error the record cannot be continued.
    pub(super) fn feed<S: Sink>(
        &mut self,
        machine: &mut Engine,
        record: &[RecordEntry],
        sink: &mut S,
        settled: impl FnMut(&mut S, &Engine, Time),
    ) -> Result<(), Divergence> {
        let SinkReplay { replay, begun, cpu } = self;
        replay.feed(machine, record, &mut SinkAdapter { sink, settled, begun, cpu })
    }

    /// Returns the time of the last entry.
    pub(super) fn last(&self) -> Time {
        self.replay.last()
    }
}

struct SinkAdapter<'a, S, F> {
    sink: &'a mut S,
    settled: F,
    begun: &'a mut [Option<u64>],
    cpu: &'a mut [Cpu],
}

impl<S: Sink, F: FnMut(&mut S, &Engine, Time)> ReplayListener for SinkAdapter<'_, S, F> {
    fn before_event(&mut self, machine: &Engine, now: Time, event: Event) {
        if let Event::Completed { task } = event
            && let Some(job) = machine.job(task)
        {
            self.sink.on_completion(&Completion {
                task,
                job: job.number,
                release: job.release,
                deadline: job.deadline,
                end: now,
                cpu: self.cpu[task.0 as usize],
            });
        }
    }

    fn after_event(&mut self, now: Time, event: Event, handled: Handled) {
        if let Event::Arrived { task, arrival } = event {
            self.sink.on_arrival(now, task, arrival);
            if handled == Handled::Refused {
                self.sink.on_refusal(now, task);
            }
        }
    }

    fn on_order(&mut self, now: Time, order: Order) {
        match order {
            Order::Run { cpu, task, job, version } => {
                self.cpu[task.0 as usize] = cpu;
                if self.begun[task.0 as usize].replace(job) != Some(job) {
                    self.sink.on_start(now, cpu, task, job, version);
                }
                self.sink.on_dispatch(now, cpu, task, job);
            }
            Order::Idle { cpu } => self.sink.on_idle(now, cpu),
        }
    }

    fn on_orders_drained(&mut self, machine: &mut Engine, now: Time) {
        while let Some(note) = machine.poll_notification() {
            let activated = |task: TaskId, sink: &mut S| sink.on_arrival(now, task, now);
            match note {
                Notification::Activated { task, .. } => activated(task, self.sink),
                Notification::Refused { task } => {
                    activated(task, self.sink);
                    self.sink.on_refusal(now, task);
                }
                _ => {}
            }
            self.sink.on_notification(now, &note);
        }
        (self.settled)(self.sink, machine, now);
    }
}
