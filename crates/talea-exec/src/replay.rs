//! The recorded events into a fresh machine, and the same orders out of it.

use crate::record::{Entry, What};
use std::fmt;
use talea_core::machine::{Machine, Order, Watch};

/// Where a replay and its record part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The entry's place in the record.
    pub at: usize,
    /// The entry.
    pub recorded: Option<Entry>,
    /// What the machine ordered there.
    pub replayed: Option<Order>,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "entry {}: recorded {:?}, the machine says {:?}", self.at, self.recorded, self.replayed)
    }
}

/// Feeds `record` to `machine`, which stands at time zero, and compares what it orders; how many orders were the same.
///
/// # Errors
/// The first difference: another order, one too many, one too few.
pub fn replay<W: Watch>(machine: &mut Machine<W>, record: &[Entry]) -> Result<usize, Difference> {
    let mut orders = 0;
    for (at, entry) in record.iter().enumerate() {
        let differs = |replayed| Difference { at, recorded: Some(*entry), replayed };
        match entry.what {
            What::Step => {}
            What::Told(event) => _ = machine.handle(entry.now, event),
            What::Ordered(order) => {
                let replayed = machine.poll(entry.now);
                if replayed != Some(order) {
                    return Err(differs(replayed));
                }
                orders += 1;
            }
            What::Polled => {
                if let Some(more) = machine.poll(entry.now) {
                    return Err(differs(Some(more)));
                }
            }
        }
    }
    Ok(orders)
}
