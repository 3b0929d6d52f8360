//! Replay: delivers recorded events to a fresh engine, and compares its orders with the recorded
//! ones.

use crate::record::{RecordEntry, RecordKind};
use std::fmt;
use talea_core::engine::{Engine, Event, Handled, MAX_RUN, Observer, Order};
use talea_core::mutate;
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
pub fn replay<W: Observer>(
    engine: &mut Engine<W>,
    record: &[RecordEntry],
) -> Result<usize, Divergence> {
    replay_with(engine, record, &mut ())
}

/// Callbacks of a replay; each does nothing by default.
#[allow(unused_variables, reason = "an open list")]
pub trait ReplayListener<W: Observer = ()> {
    /// Called before an event is delivered to the engine.
    fn before_event(&mut self, engine: &Engine<W>, now: Time, event: Event) {}
    /// Called after an event was delivered to the engine.
    fn after_event(&mut self, now: Time, event: Event, handled: Handled) {}
    /// Called for each order.
    fn on_order(&mut self, now: Time, order: Order) {}
    /// Called when the engine has no more orders.
    fn on_orders_drained(&mut self, engine: &mut Engine<W>, now: Time) {}
}

impl<W: Observer> ReplayListener<W> for () {}

/// Variant of [`replay`] that calls `listener` during the replay.
///
/// # Errors
/// Those of [`replay`].
pub fn replay_with<W: Observer>(
    engine: &mut Engine<W>,
    record: &[RecordEntry],
    listener: &mut impl ReplayListener<W>,
) -> Result<usize, Divergence> {
    let mut replay = Replay::default();
    replay.feed(engine, record, listener)?;
    Ok(replay.orders)
}

/// Replay that receives its record in parts.
#[derive(Clone, Copy, Debug, Default)]
pub struct Replay {
    at: usize,
    orders: usize,
    last: Time,
}

impl Replay {
    /// Replays the next part of the record. The engine is the same for all parts.
    ///
    /// # Errors
    /// Those of [`replay`]. After an error the record cannot be continued.
    pub fn feed<W: Observer>(
        &mut self,
        engine: &mut Engine<W>,
        record: &[RecordEntry],
        listener: &mut impl ReplayListener<W>,
    ) -> Result<(), Divergence> {
        let Replay { at, orders, last } = self;
        for entry in record {
            feed_entry(engine, entry, (*at, *last), orders, listener)?;
            *last = entry.now;
            *at += 1;
        }
        Ok(())
    }

    /// Returns the time of the last entry.
    pub fn last(&self) -> Time {
        self.last
    }
}

/// Replays the entry at position `at`, after an entry at the time `last`.
fn feed_entry<W: Observer>(
    engine: &mut Engine<W>,
    entry: &RecordEntry,
    (at, last): (usize, Time),
    orders: &mut usize,
    listener: &mut impl ReplayListener<W>,
) -> Result<(), Divergence> {
    let differs = |replayed| Divergence { at, recorded: Some(*entry), replayed };
    if !is_valid(engine, last, entry) {
        return Err(differs(None));
    }
    match entry.kind {
        RecordKind::Step => {}
        RecordKind::Event(event) => {
            listener.before_event(engine, entry.now, event);
            let handled = engine.handle(entry.now, event);
            listener.after_event(entry.now, event, handled);
        }
        RecordKind::Order(order) => {
            let replayed = engine.poll(entry.now);
            if mutate!("exec-replay-order", replayed != Some(order), replayed.is_none()) {
                return Err(differs(replayed));
            }
            listener.on_order(entry.now, order);
            *orders += 1;
        }
        RecordKind::Polled => {
            if let Some(more) = engine.poll(entry.now) {
                return Err(differs(Some(more)));
            }
            listener.on_orders_drained(engine, entry.now);
        }
    }
    Ok(())
}

/// Whether the executor can have written this entry. The engine relies on the checked properties.
fn is_valid<W: Observer>(engine: &Engine<W>, last: Time, entry: &RecordEntry) -> bool {
    let end = Time::ZERO + MAX_RUN;
    let RecordKind::Event(event) = entry.kind else { return (last..=end).contains(&entry.now) };
    let is_short = match event {
        Event::Arrived { arrival, .. } => arrival <= end,
        Event::Ran { work, .. } => Span::from_ns(work.as_ns()) <= MAX_RUN,
        _ => true,
    };
    (last..=end).contains(&entry.now) && is_short && engine.accepts(event)
}
