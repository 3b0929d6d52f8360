//! What went into a machine and what came out, in its order.
//!
//! Model: each dispatcher appends to a list of its own that was made before the run; a number taken
//! under the machine's lock orders the lists of all of them. What does not fit any more is counted:
//! a record with losses is a record of the begin.
//!
//! One *step* of the loop is: its time; events; orders, until the machine has no more; perhaps more
//! events (what is left of a budget that is too little to sleep for) and orders. [`What::Polled`]
//! stands where the machine said that there are no more.

pub mod text;

use talea_core::Time;
use talea_core::machine::{Event, Order};
use talea_core::mutate;

/// One thing that happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// A dispatcher looks at the world.
    Step,
    /// The machine was told.
    Told(Event),
    /// The machine ordered.
    Ordered(Order),
    /// The machine had no more orders.
    Polled,
}

/// One thing with its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Counts what happened to this machine.
    pub number: u64,
    /// As the machine was told.
    pub now: Time,
    /// What.
    pub what: What,
}

/// The list of one dispatcher.
#[derive(Debug)]
pub(crate) struct Log {
    entries: Vec<Entry>,
    lost: u64,
}

impl Log {
    /// Room for so many.
    pub(crate) fn new(room: usize) -> Log {
        let filler = Entry { number: 0, now: Time::ZERO, what: What::Step };
        // Written once, so that no page is missing when it matters.
        let mut entries = vec![filler; room];
        entries.clear();
        Log { entries, lost: 0 }
    }

    #[inline]
    pub(crate) fn put(&mut self, entry: Entry) {
        if self.entries.len() == self.entries.capacity() {
            self.lost += 1;
        } else {
            self.entries.push(entry);
        }
    }
}

/// The lists of all dispatchers of a machine as one, and how many entries are missing.
pub(crate) fn merge(logs: Vec<Log>) -> (Vec<Entry>, u64) {
    let lost = logs.iter().map(|log| log.lost).sum();
    let mut all: Vec<Entry> = logs.into_iter().flat_map(|log| log.entries).collect();
    mutate!(
        "exec-record-order",
        {
            all.sort_by_key(|entry| entry.number);
        },
        {}
    );

    if lost > 0 {
        // Behind the first that is missing nothing can be replayed.
        let whole = (0..).zip(&all).take_while(|(number, entry)| entry.number == *number).count();
        all.truncate(whole);
    }
    (all, lost)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(number: u64) -> Entry {
        Entry { number, now: Time::from_ns(number / 2), what: What::Step }
    }

    #[test]
    fn two_lists_become_one_in_the_machines_order() {
        let (mut a, mut b) = (Log::new(8), Log::new(8));
        for number in [0, 1, 4] {
            a.put(entry(number));
        }
        for number in [2, 3, 5] {
            b.put(entry(number));
        }
        let (all, lost) = merge(vec![a, b]);
        assert_eq!(all, (0..6).map(entry).collect::<Vec<_>>());
        assert_eq!(lost, 0);
    }

    #[test]
    fn what_is_lost_is_counted_and_nothing_behind_it_is_kept() {
        let (mut a, mut b) = (Log::new(2), Log::new(8));
        for number in [0, 1, 2, 5] {
            a.put(entry(number));
        }
        for number in [3, 4] {
            b.put(entry(number));
        }
        let (all, lost) = merge(vec![a, b]);
        assert_eq!((all, lost), (vec![entry(0), entry(1)], 2));
    }
}
