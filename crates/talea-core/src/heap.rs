//! A priority queue of small numbers in one block of memory: a tournament tree.
//!
//! Model: each number `0..n` has a key while it is queued, and is stored with its key in a row of
//! four. The minimum of a row is its winner. Above the rows is a binary tree, in which each inner
//! position holds the smaller of two winners. Ties go to the lower number, which is always on the
//! left, and the overall winner is at the top. A changed key repeats the comparisons of its number:
//! three in the row and ⌈log2 n⌉ - 2 above. All memory is allocated at construction.
//!
//! Rejected: a binary heap. The path of an entry in a heap depends on every comparison, and with
//! random keys the CPU mispredicts half of these branches. In the tournament tree the opponents are
//! known in advance, and only the winner depends on the outcome, which is a conditional move. The
//! rows save memory accesses, for which a decision among ten thousand tasks mostly waits. Without
//! rows the queue is two and a half times as large.
//!
//! Reference model: a sorted list, in the tests below.

use crate::mutate;
use alloc::vec;
use alloc::vec::Vec;
use core::hint::select_unpredictable;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    key: u64,
    item: u32,
}

/// Key of a number that is not queued: after every queued key, and below `u64::MAX`.
const OUT: u64 = u64::MAX - 1;

/// Keys of four numbers: half of a cache line.
#[derive(Clone, Copy, Debug)]
#[repr(align(32))]
struct Row([u64; 4]);

/// Two positions of the tree: half of a cache line.
#[derive(Clone, Copy, Debug)]
#[repr(align(32))]
struct Pair([Entry; 2]);

/// Number of matches above a row after which an early exit is worth a check.
///
/// The winner of 2^3 rows is rarely the number whose key has changed, unless that number was the
/// overall winner. The CPU therefore predicts the branch well.
const EARLY_EXIT_MATCHES: u32 = 3;

/// A tournament tree over the numbers `0..n`.
#[derive(Clone, Debug)]
pub struct Heap {
    rows: Vec<Row>,
    /// Position i is `pairs[i / 2].0[i % 2]`, and its players are the positions 2i and 2i + 1. The
    /// winners of the rows are the last positions. Position 1, the top, is stored in `first`;
    /// position 0 is unused.
    pairs: Vec<Pair>,
    first: Entry,
    len: usize,
    /// Number of matches played, for the tests that count the cost of a decision.
    #[cfg(test)]
    pub(crate) compared: u64,
}

/// Returns the winner of two entries, where `other` is on the right or on the left.
#[inline]
fn winner(mine: Entry, other: Entry, is_right: bool) -> Entry {
    // An entry on the right must be smaller, an entry on the left not larger. No key is large
    // enough to wrap.
    let loses = mine.key
        >= other.key.wrapping_add(u64::from(mutate!("core-policy-ties", is_right, !is_right)));
    Entry {
        key: select_unpredictable(loses, other.key, mine.key),
        item: select_unpredictable(loses, other.item, mine.item),
    }
}

impl Heap {
    /// Largest key, to which larger keys are clamped.
    pub const LAST: u64 = OUT - 1;

    /// Creates an empty queue for the numbers `0..n`.
    pub fn new(n: usize) -> Heap {
        let rows = n.div_ceil(4).max(1);
        let empty = Entry { key: OUT, item: u32::MAX };
        Heap {
            rows: vec![Row([OUT; 4]); rows],
            pairs: vec![Pair([empty; 2]); rows.next_power_of_two()],
            first: empty,
            len: 0,
            #[cfg(test)]
            compared: 0,
        }
    }

    /// Returns the number of queued entries.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the queue is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the key of `item`, if it is queued.
    #[inline]
    pub fn key(&self, item: u32) -> Option<u64> {
        let key = self.rows[item as usize / 4].0[item as usize % 4];
        (key != OUT).then_some(key)
    }

    /// Whether `item` is queued.
    #[inline]
    pub fn contains(&self, item: u32) -> bool {
        self.key(item).is_some()
    }

    /// Returns the minimum with its key.
    #[inline]
    pub fn first(&self) -> Option<(u64, u32)> {
        (self.first.key != OUT).then_some((self.first.key, self.first.item))
    }

    /// Returns the second smallest entry: the minimum of the entries that lost to the first. O(log
    /// n).
    pub fn second(&self) -> Option<(u64, u32)> {
        let (_, item) = self.first()?;
        let number = item as usize / 4;
        let row = self.rows[number].0.iter().zip(number as u32 * 4..);
        let others = row.filter(|&(_, other)| other != item).map(|(&key, other)| (key, other));
        let mut best =
            mutate!("core-heap-second", others.min()?, (OUT, u32::MAX).min(others.max()?));
        let mut place = self.pairs.len() + number;
        while place > 1 {
            let other = self.pairs[place / 2].0[1 - place % 2];
            best = best.min((other.key, other.item));
            place /= 2;
        }
        (best.0 != OUT).then_some(best)
    }

    /// Queues `item`, or changes its key.
    #[inline]
    pub fn set(&mut self, item: u32, key: u64) {
        let was = self.play(item, key.min(Heap::LAST));
        self.len += usize::from(!was);
    }

    /// Removes `item`. Returns whether it was queued.
    #[inline]
    pub fn remove(&mut self, item: u32) -> bool {
        let was = self.play(item, OUT);
        self.len -= usize::from(was);
        was
    }

    /// Sets the key of `item` and replays its matches. Returns whether `item` was queued.
    #[allow(clippy::inline_always, reason = "measured: a job is a twentieth cheaper to simulate")]
    #[inline(always)]
    fn play(&mut self, item: u32, key: u64) -> bool {
        #[cfg(test)]
        {
            self.compared += 3;
        }
        let (number, at) = (item as usize / 4, item as usize % 4);
        let row = &mut self.rows[number].0;
        let was = core::mem::replace(&mut row[at], key) != OUT;
        let entry = |at: usize| Entry { key: row[at], item: (number * 4 + at) as u32 };
        let across = (at & 2) ^ 2;
        let across =
            winner(entry(across), entry(mutate!("core-heap-row", across | 1, across)), true);
        let mut best = winner(Entry { key, item }, entry(at ^ 1), at & 1 == 0);
        best = winner(best, across, at & 2 == 0);
        let (mut place, mut played) = (self.pairs.len() + number, 0);
        while place > 1 {
            #[cfg(test)]
            {
                self.compared += 1;
            }
            let pair = &mut self.pairs[place / 2].0;
            if played == EARLY_EXIT_MATCHES
                && mutate!(
                    "core-heap-stop",
                    pair[place % 2] == best,
                    pair[place % 2].item == best.item
                )
            {
                return was;
            }
            pair[place % 2] = best;
            best = winner(best, pair[1 - place % 2], place % 2 == 0);
            played += 1;
            place /= 2;
        }
        self.first = best;
        was
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    #[test]
    fn twenty_thousand_random_steps_equal_a_sorted_list() {
        // One partial row, full and partial rows, one more than a power of two, enough levels for
        // the early exit.
        for n in [1, 2, 4, 5, 9, 16, 33, 70, 300] {
            random_steps_equal_a_sorted_list(n);
        }
    }

    fn random_steps_equal_a_sorted_list(n: u64) {
        let mut rng = Rng::new(n);
        let mut random = |below: u64| rng.below(below);
        let mut heap = Heap::new(n as usize);
        let mut model: Vec<(u64, u32)> = Vec::new();
        for _ in 0..20_000 {
            let item = random(n) as u32;
            if random(3) == 0 {
                let was = model.iter().any(|&(_, other)| other == item);
                assert_eq!(heap.remove(item), was);
                model.retain(|&(_, other)| other != item);
            } else {
                let key = random(20);
                heap.set(item, key);
                model.retain(|&(_, other)| other != item);
                model.push((key, item));
            }
            model.sort_unstable();
            assert_eq!(heap.first(), model.first().copied());
            assert_eq!(heap.second(), model.get(1).copied());
            assert_eq!(heap.len(), model.len());
            assert_eq!(heap.contains(item), model.iter().any(|&(_, other)| other == item));
        }
    }
}
