//! A priority queue of small numbers in one block of memory.
//!
//! Model: a tournament. Each number `0..n` has a key while it is in, and stands with it in a row of
//! four. The least of a row stands above it with its key, and above each pair of places the less of
//! the two; ties go to the lower number, which is the left one, and the winner stands at the top.
//! Giving a number another key is to play its matches anew, three in its row and ⌈log2 n⌉ - 2 above
//! it. All memory is taken when the queue is made.
//!
//! Why not a heap: which way an entry goes in a heap depends on every comparison, and with random
//! keys the processor guesses each of these branches wrong half of the time. Here the opponents are
//! known beforehand and only who goes on depends on the outcome, which is a conditional move. Why
//! rows: among ten thousand tasks a decision mostly waits for memory, and without them the queue is
//! two and a half times as large.
//!
//! Plain twin: a sorted list, in the tests below.

use crate::mutate;
use alloc::vec;
use alloc::vec::Vec;
use core::hint::select_unpredictable;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    key: u64,
    who: u32,
}

/// The key of whoever is out: comes after everybody who is in, and one more still fits.
const OUT: u64 = u64::MAX - 1;

/// The keys of four numbers: half of a cache line.
#[derive(Clone, Copy, Debug)]
#[repr(align(32))]
struct Row([u64; 4]);

/// As large.
#[derive(Clone, Copy, Debug)]
#[repr(align(32))]
struct Pair([Entry; 2]);

/// After so many matches above its row it pays to see whether the next ones would change anything.
/// The winner of so many pairs of rows seldom is the one that has another key, unless that was the
/// first of all: a branch that is guessed right.
const SURE: u32 = 3;

/// A tournament of the numbers `0..n`.
#[derive(Clone, Debug)]
pub struct Heap {
    rows: Vec<Row>,
    /// Place i is `pairs[i / 2].0[i % 2]`, and the places 2i and 2i + 1 play for it; the winners of
    /// the rows come last. Place 1, the top, stands apart in `first`, and 0 is not used.
    pairs: Vec<Pair>,
    first: Entry,
    len: usize,
    /// Matches that were played, for the tests that count what a decision costs.
    #[cfg(test)]
    pub(crate) compared: u64,
}

/// Who goes on of two, of whom `other` stands on the right, or on the left.
#[inline]
fn better(mine: Entry, other: Entry, is_right: bool) -> Entry {
    // One on the right has to be less, one on the left not more. No key is so great that this would
    // wrap.
    let loses = mine.key
        >= other.key.wrapping_add(u64::from(mutate!("core-policy-ties", is_right, !is_right)));
    Entry {
        key: select_unpredictable(loses, other.key, mine.key),
        who: select_unpredictable(loses, other.who, mine.who),
    }
}

impl Heap {
    /// The greatest key; those beyond count as this one.
    pub const LAST: u64 = OUT - 1;

    /// An empty queue for the numbers `0..n`.
    pub fn new(n: usize) -> Heap {
        let rows = n.div_ceil(4).max(1);
        let nobody = Entry { key: OUT, who: u32::MAX };
        Heap {
            rows: vec![Row([OUT; 4]); rows],
            pairs: vec![Pair([nobody; 2]); rows.next_power_of_two()],
            first: nobody,
            len: 0,
            #[cfg(test)]
            compared: 0,
        }
    }

    /// How many are in.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether nobody is in.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The key of `who`, if it is in.
    #[inline]
    pub fn key(&self, who: u32) -> Option<u64> {
        let key = self.rows[who as usize / 4].0[who as usize % 4];
        (key != OUT).then_some(key)
    }

    /// Whether `who` is in.
    #[inline]
    pub fn contains(&self, who: u32) -> bool {
        self.key(who).is_some()
    }

    /// The least, with its key.
    #[inline]
    pub fn first(&self) -> Option<(u64, u32)> {
        (self.first.key != OUT).then_some((self.first.key, self.first.who))
    }

    /// The least but for the first: the best of those who lost to it. O(log n).
    pub fn second(&self) -> Option<(u64, u32)> {
        let (_, who) = self.first()?;
        let number = who as usize / 4;
        let row = self.rows[number].0.iter().zip(number as u32 * 4..);
        let others = row.filter(|&(_, other)| other != who).map(|(&key, other)| (key, other));
        let mut best =
            mutate!("core-heap-second", others.min()?, (OUT, u32::MAX).min(others.max()?));
        let mut place = self.pairs.len() + number;
        while place > 1 {
            let other = self.pairs[place / 2].0[1 - place % 2];
            best = best.min((other.key, other.who));
            place /= 2;
        }
        (best.0 != OUT).then_some(best)
    }

    /// Puts `who` in, or gives it another key.
    #[inline]
    pub fn set(&mut self, who: u32, key: u64) {
        let was = self.play(who, key.min(Heap::LAST));
        self.len += usize::from(!was);
    }

    /// Takes `who` out, if it is in; says whether it was.
    #[inline]
    pub fn remove(&mut self, who: u32) -> bool {
        let was = self.play(who, OUT);
        self.len -= usize::from(was);
        was
    }

    /// Gives `who` a key and plays the matches that this may change; whether it was in.
    #[allow(clippy::inline_always, reason = "measured: a job is a twentieth cheaper to simulate")]
    #[inline(always)]
    fn play(&mut self, who: u32, key: u64) -> bool {
        #[cfg(test)]
        {
            self.compared += 3;
        }
        let (number, at) = (who as usize / 4, who as usize % 4);
        let row = &mut self.rows[number].0;
        let was = core::mem::replace(&mut row[at], key) != OUT;
        let entry = |at: usize| Entry { key: row[at], who: (number * 4 + at) as u32 };
        let across = (at & 2) ^ 2;
        let across =
            better(entry(across), entry(mutate!("core-heap-row", across | 1, across)), true);
        let mut best = better(Entry { key, who }, entry(at ^ 1), at & 1 == 0);
        best = better(best, across, at & 2 == 0);
        let (mut place, mut played) = (self.pairs.len() + number, 0);
        while place > 1 {
            #[cfg(test)]
            {
                self.compared += 1;
            }
            let pair = &mut self.pairs[place / 2].0;
            if played == SURE
                && mutate!(
                    "core-heap-stop",
                    pair[place % 2] == best,
                    pair[place % 2].who == best.who
                )
            {
                return was;
            }
            pair[place % 2] = best;
            best = better(best, pair[1 - place % 2], place % 2 == 0);
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

    #[test]
    fn twenty_thousand_random_steps_equal_a_sorted_list() {
        // A part of a row, rows that are full and not, one more than a power of two, enough levels
        // to stop on the way.
        for n in [1, 2, 4, 5, 9, 16, 33, 70, 300] {
            random_steps_equal_a_sorted_list(n);
        }
    }

    fn random_steps_equal_a_sorted_list(n: u64) {
        let mut seed = n;
        let mut random = |below: u64| {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % below
        };
        let mut heap = Heap::new(n as usize);
        let mut twin: Vec<(u64, u32)> = Vec::new();
        for _ in 0..20_000 {
            let who = random(n) as u32;
            if random(3) == 0 {
                let was = twin.iter().any(|&(_, other)| other == who);
                assert_eq!(heap.remove(who), was);
                twin.retain(|&(_, other)| other != who);
            } else {
                let key = random(20);
                heap.set(who, key);
                twin.retain(|&(_, other)| other != who);
                twin.push((key, who));
            }
            twin.sort_unstable();
            assert_eq!(heap.first(), twin.first().copied());
            assert_eq!(heap.second(), twin.get(1).copied());
            assert_eq!(heap.len(), twin.len());
            assert_eq!(heap.contains(who), twin.iter().any(|&(_, other)| other == who));
        }
    }
}
