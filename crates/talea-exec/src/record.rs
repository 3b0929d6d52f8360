//! Record of a run: the events delivered to an engine and the orders returned, in order.
//!
//! Model: each dispatcher appends to its own list, which was allocated before the run. A number
//! taken under the root lock orders the entries of all lists. Entries without room are counted; a
//! record with losses contains the beginning of the run. A run with a [`RecordSink`] hands the
//! entries over while it runs: a thread exchanges the lists by empty ones under the root lock. The
//! memory of such a run is independent of its length.
//!
//! One *step* is its time, then events, then orders until the engine has no more, and possibly more
//! events (remainders of budgets too short to sleep for) and orders. [`RecordKind::Polled`] stands
//! where the engine had no more orders.

pub mod text;

use talea_core::Time;
use talea_core::engine::{Event, Order};
use talea_core::mutate;

/// Content of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordKind {
    /// A step starts.
    Step,
    /// An event was delivered to the engine.
    Event(Event),
    /// The engine returned an order.
    Order(Order),
    /// The engine had no more orders.
    Polled,
}

/// An entry with its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordEntry {
    /// Number of the entry for this engine.
    pub number: u64,
    /// Time of the step.
    pub now: Time,
    /// Content.
    pub kind: RecordKind,
}

/// Receiver of the entries of a run while it runs.
pub trait RecordSink: Send {
    /// Takes the next entries of a root, in order.
    fn take(&mut self, root: usize, entries: &[RecordEntry]);
}

/// List of one dispatcher.
#[derive(Debug)]
pub(crate) struct Log {
    entries: Vec<RecordEntry>,
    lost: u64,
}

impl Log {
    /// Creates a list with room for this number of entries.
    pub(crate) fn new(room: usize) -> Log {
        let filler = RecordEntry { number: 0, now: Time::ZERO, kind: RecordKind::Step };
        // Written once, so that no page fault occurs in the run.
        let mut entries = vec![filler; room];
        entries.clear();
        Log { entries, lost: 0 }
    }

    /// Returns the entries and continues with the empty list `spare`.
    pub(crate) fn exchange(&mut self, spare: Vec<RecordEntry>) -> Vec<RecordEntry> {
        std::mem::replace(&mut self.entries, spare)
    }

    #[inline]
    pub(crate) fn push(&mut self, entry: RecordEntry) {
        if self.entries.len() == self.entries.capacity() {
            self.lost += 1;
        } else {
            self.entries.push(entry);
        }
    }
}

/// Merges the lists of all dispatchers of a root, and counts the missing entries.
pub(crate) fn merge(logs: Vec<Log>) -> (Vec<RecordEntry>, u64) {
    let lost = logs.iter().map(|log| log.lost).sum();
    let mut all: Vec<RecordEntry> = logs.into_iter().flat_map(|log| log.entries).collect();
    mutate!("exec-record-order", all.sort_by_key(|entry| entry.number));

    if lost > 0 {
        // Behind the first missing entry nothing can be replayed.
        let whole = (0..).zip(&all).take_while(|(number, entry)| entry.number == *number).count();
        all.truncate(whole);
    }
    (all, lost)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(number: u64) -> RecordEntry {
        RecordEntry { number, now: Time::from_ns(number / 2), kind: RecordKind::Step }
    }

    #[test]
    fn two_lists_are_merged_in_the_order_of_the_engine() {
        let (mut a, mut b) = (Log::new(8), Log::new(8));
        for number in [0, 1, 4] {
            a.push(entry(number));
        }
        for number in [2, 3, 5] {
            b.push(entry(number));
        }
        let (all, lost) = merge(vec![a, b]);
        assert_eq!(all, (0..6).map(entry).collect::<Vec<_>>());
        assert_eq!(lost, 0);
    }

    #[test]
    fn lost_entries_are_counted_and_nothing_after_them_is_kept() {
        let (mut a, mut b) = (Log::new(2), Log::new(8));
        for number in [0, 1, 2, 5] {
            a.push(entry(number));
        }
        for number in [3, 4] {
            b.push(entry(number));
        }
        let (all, lost) = merge(vec![a, b]);
        assert_eq!((all, lost), (vec![entry(0), entry(1)], 2));
    }
}
