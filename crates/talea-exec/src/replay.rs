//! Replay: delivers recorded events to a fresh engine, compares its orders with the recorded ones,
//! and reports both to a sink. The engine knows the release and the deadline of each job.

use crate::record::{RecordEntry, RecordKind};
use std::fmt;
use talea_core::engine::{Cpu, Engine, Event, Handled, MAX_RUN, Notification, Order};
use talea_core::mutate;
use talea_core::sink::{Completion, Sink};
use talea_core::{Span, Time};

/// First difference between a replay and its record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Divergence {
    /// Position of the entry in the record.
    pub at: usize,
    /// Recorded entry.
    pub recorded: Option<RecordEntry>,
    /// Order that the engine returned at this position. `None` if the engine does not accept the
    /// event of the entry.
    pub replayed: Option<Order>,
}

impl fmt::Display for Divergence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "entry {}: recorded {:?}, the engine returns {:?}",
            self.at, self.recorded, self.replayed
        )
    }
}

/// Replays `record` with `engine`, which must be at time zero. Returns the number of equal orders.
///
/// # Errors
/// The first difference: another order, an additional one, a missing one, or an event that no run
/// of this system delivers.
pub fn replay(engine: &mut Engine, record: &[RecordEntry]) -> Result<usize, Divergence> {
    replay_to_sink(engine, record, &mut (), |(), _, _| {})
}

/// Variant of [`replay`] that reports the events to `sink` in the order of a simulation, and calls
/// `settled` whenever the engine has no more orders.
///
/// # Errors
/// Those of [`replay`].
pub fn replay_to_sink<S: Sink>(
    engine: &mut Engine,
    record: &[RecordEntry],
    sink: &mut S,
    settled: impl FnMut(&mut S, &Engine, Time),
) -> Result<usize, Divergence> {
    let mut replay = Replay::new(engine.tasks());
    replay.feed(engine, record, sink, settled)?;
    Ok(replay.orders)
}

/// Replay that receives its record in parts.
#[derive(Clone, Debug)]
pub struct Replay {
    at: usize,
    orders: usize,
    last: Time,
    /// `started[task]`: job of the task that has started last.
    started: Vec<Option<u64>>,
    /// `cpus[task]`: CPU of the last order for the task.
    cpus: Vec<Cpu>,
}

impl Replay {
    /// Creates the replay of an engine with this number of tasks.
    pub fn new(tasks: usize) -> Replay {
        let (started, cpus) = (vec![None; tasks], vec![Cpu(0); tasks]);
        Replay { at: 0, orders: 0, last: Time::ZERO, started, cpus }
    }

    /// Replays the next part of the record. The engine is the same for all parts.
    ///
    /// # Errors
    /// Those of [`replay`]. After an error the record cannot be continued.
    pub fn feed<S: Sink>(
        &mut self,
        engine: &mut Engine,
        record: &[RecordEntry],
        sink: &mut S,
        mut settled: impl FnMut(&mut S, &Engine, Time),
    ) -> Result<(), Divergence> {
        for entry in record {
            let differs = |replayed| Divergence { at: self.at, recorded: Some(*entry), replayed };
            if !is_valid(engine, self.last, entry) {
                return Err(differs(None));
            }
            match entry.kind {
                RecordKind::Step => {}
                RecordKind::Event(event) => self.deliver(engine, entry.now, event, sink),
                RecordKind::Order(order) => {
                    let replayed = engine.poll(entry.now);
                    if mutate!("exec-replay-order", replayed != Some(order), replayed.is_none()) {
                        return Err(differs(replayed));
                    }
                    self.report_order(entry.now, order, sink);
                    self.orders += 1;
                }
                RecordKind::Polled => {
                    if let Some(more) = engine.poll(entry.now) {
                        return Err(differs(Some(more)));
                    }
                    report_notifications(engine, entry.now, sink);
                    settled(sink, engine, entry.now);
                }
            }
            self.last = entry.now;
            self.at += 1;
        }
        Ok(())
    }

    /// Returns the time of the last entry.
    pub fn last(&self) -> Time {
        self.last
    }

    fn deliver(&self, engine: &mut Engine, now: Time, event: Event, sink: &mut impl Sink) {
        if let Event::Completed { task } = event
            && let Some(job) = engine.job(task)
        {
            sink.on_completion(&Completion {
                task,
                job: job.number,
                release: job.release,
                deadline: job.deadline,
                end: now,
                cpu: self.cpus[task.0 as usize],
            });
        }
        let handled = engine.handle(now, event);
        if let Event::Arrived { task, arrival } = event {
            sink.on_arrival(now, task, arrival);
            if handled == Handled::Refused {
                sink.on_refusal(now, task);
            }
        }
    }

    fn report_order(&mut self, now: Time, order: Order, sink: &mut impl Sink) {
        match order {
            Order::Run { cpu, task, job, version } => {
                self.cpus[task.0 as usize] = cpu;
                if self.started[task.0 as usize].replace(job) != Some(job) {
                    sink.on_start(now, cpu, task, job, version);
                }
                sink.on_dispatch(now, cpu, task, job);
            }
            Order::Idle { cpu } => sink.on_idle(now, cpu),
        }
    }
}

fn report_notifications(engine: &mut Engine, now: Time, sink: &mut impl Sink) {
    while let Some(notification) = engine.poll_notification() {
        match notification {
            Notification::Activated { task, .. } => sink.on_arrival(now, task, now),
            Notification::Refused { task } => {
                sink.on_arrival(now, task, now);
                sink.on_refusal(now, task);
            }
            _ => {}
        }
        sink.on_notification(now, &notification);
    }
}

/// Whether the executor can have written this entry. The engine relies on the checked properties.
fn is_valid(engine: &Engine, last: Time, entry: &RecordEntry) -> bool {
    let end = Time::ZERO + MAX_RUN;
    let RecordKind::Event(event) = entry.kind else { return (last..=end).contains(&entry.now) };
    let is_short = match event {
        Event::Arrived { arrival, .. } => arrival <= end,
        Event::Ran { work, .. } => Span::from_ns(work.as_ns()) <= MAX_RUN,
        _ => true,
    };
    (last..=end).contains(&entry.now) && is_short && engine.accepts(event)
}
