//! The recorded events into a fresh machine, and the same orders out of it.

use crate::record::{Entry, What};
use std::fmt;
use talea_core::machine::{Event, Handled, LONGEST, Machine, Order, Watch};
use talea_core::mutate;
use talea_core::{Span, Time};

/// Where a replay and its record part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The entry's place in the record.
    pub at: usize,
    /// The entry.
    pub recorded: Option<Entry>,
    /// What the machine ordered there; nothing, if it could not even be told what the entry says.
    pub replayed: Option<Order>,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "entry {}: recorded {:?}, the machine says {:?}",
            self.at, self.recorded, self.replayed
        )
    }
}

/// Feeds `record` to `machine`, which stands at time zero, and compares what it orders; how many
/// orders were the same.
///
/// # Errors
/// The first difference: another order, one too many, one too few; or an event that no run of this
/// machine tells it.
pub fn replay<W: Watch>(machine: &mut Machine<W>, record: &[Entry]) -> Result<usize, Difference> {
    replay_to(machine, record, &mut ())
}

/// Hears what happens in a replay. What is not overridden is not heard.
#[allow(unused_variables, reason = "an open list")]
pub trait Listener<W: Watch = ()> {
    /// The machine is about to be told.
    fn telling(&mut self, machine: &Machine<W>, now: Time, event: Event) {}
    /// It was told.
    fn told(&mut self, now: Time, event: Event, handled: Handled) {}
    /// It ordered.
    fn ordered(&mut self, now: Time, order: Order) {}
    /// It had no more orders.
    fn polled(&mut self, machine: &mut Machine<W>, now: Time) {}
}

impl<W: Watch> Listener<W> for () {}

/// As [`replay`], with somebody who listens.
///
/// # Errors
/// As [`replay`].
pub fn replay_to<W: Watch>(
    machine: &mut Machine<W>,
    record: &[Entry],
    listener: &mut impl Listener<W>,
) -> Result<usize, Difference> {
    let mut orders = 0;
    let mut last = Time::ZERO;
    for (at, entry) in record.iter().enumerate() {
        let differs = |replayed| Difference { at, recorded: Some(*entry), replayed };
        if !is_possible(machine, last, entry) {
            return Err(differs(None));
        }
        last = entry.now;
        match entry.what {
            What::Step => {}
            What::Told(event) => {
                listener.telling(machine, entry.now, event);
                let handled = machine.handle(entry.now, event);
                listener.told(entry.now, event, handled);
            }
            What::Ordered(order) => {
                let replayed = machine.poll(entry.now);
                if mutate!("exec-replay-order", replayed != Some(order), replayed.is_none()) {
                    return Err(differs(replayed));
                }
                listener.ordered(entry.now, order);
                orders += 1;
            }
            What::Polled => {
                if let Some(more) = machine.poll(entry.now) {
                    return Err(differs(Some(more)));
                }
                listener.polled(machine, entry.now);
            }
        }
    }
    Ok(orders)
}

/// Whether the executor can have written this: its machine takes for granted what this looks at.
fn is_possible<W: Watch>(machine: &Machine<W>, last: Time, entry: &Entry) -> bool {
    let end = Time::ZERO + LONGEST;
    let What::Told(event) = entry.what else { return (last..=end).contains(&entry.now) };
    let is_short = match event {
        Event::Arrived { arrival, .. } => arrival <= end,
        Event::Ran { work, .. } => Span::from_ns(work.as_ns()) <= LONGEST,
        _ => true,
    };
    (last..=end).contains(&entry.now) && is_short && machine.is_possible(event)
}
