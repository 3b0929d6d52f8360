//! A priority queue of small numbers in one block of memory.
//!
//! Model: a tournament. Each number `0..n` has a leaf, with its key while it is in; above each pair of places stands the
//! less of the two, least key first, ties to the lower number, which is the left one; the winner stands at the top.
//! Giving a number another key is to play its matches anew, ⌈log2 n⌉ of them. All memory is taken when the queue is made.
//!
//! Why not a heap: which way an entry goes in a heap depends on every comparison, and with random keys the processor
//! guesses each of these branches wrong half of the time. Here the opponents are known beforehand and only who goes on
//! depends on the outcome, which is a conditional move.
//!
//! Plain twin: a sorted list, in the tests below.

use alloc::vec;
use alloc::vec::Vec;
use core::hint::select_unpredictable;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    key: u64,
    who: u32,
}

/// Comes after everybody who is in, and one more still fits.
const OUT: Entry = Entry { key: u64::MAX - 1, who: u32::MAX };

/// A tournament of the numbers `0..n`.
#[derive(Clone, Debug)]
pub struct Heap {
    /// Place i is `pairs[i / 2][i % 2]`, and the places 2i and 2i + 1 play for it; the leaves come last. Place 1, the top,
    /// stands apart in `first`, and 0 is not used.
    pairs: Vec<[Entry; 2]>,
    first: Entry,
    len: usize,
    /// Matches that were played, for the tests that count what a decision costs.
    #[cfg(test)]
    pub(crate) compared: u64,
}

impl Heap {
    /// The greatest key; those beyond count as this one.
    pub const LAST: u64 = OUT.key - 1;

    /// An empty queue for the numbers `0..n`.
    pub fn new(n: usize) -> Heap {
        // One number would have its leaf at the top.
        Heap {
            pairs: vec![[OUT; 2]; n.next_power_of_two().max(2)],
            first: OUT,
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

    /// The place of a number's leaf.
    #[inline]
    fn leaf(&self, who: u32) -> usize {
        self.pairs.len() + who as usize
    }

    /// The key of `who`, if it is in.
    #[inline]
    pub fn key(&self, who: u32) -> Option<u64> {
        let leaf = self.leaf(who);
        let entry = self.pairs[leaf / 2][leaf % 2];
        (entry.who != OUT.who).then_some(entry.key)
    }

    /// Whether `who` is in.
    #[inline]
    pub fn contains(&self, who: u32) -> bool {
        self.key(who).is_some()
    }

    /// The least, with its key.
    #[inline]
    pub fn first(&self) -> Option<(u64, u32)> {
        (self.first.who != OUT.who).then_some((self.first.key, self.first.who))
    }

    /// Puts `who` in, or gives it another key.
    #[inline]
    pub fn set(&mut self, who: u32, key: u64) {
        self.len += usize::from(!self.contains(who));
        self.play(who, Entry { key: key.min(Heap::LAST), who });
    }

    /// Takes `who` out, if it is in; says whether it was.
    #[inline]
    pub fn remove(&mut self, who: u32) -> bool {
        let was = self.contains(who);
        self.len -= usize::from(was);
        self.play(who, OUT);
        was
    }

    /// Puts `entry` at the leaf of `who` and plays its matches.
    #[inline]
    fn play(&mut self, who: u32, entry: Entry) {
        let mut place = self.leaf(who);
        let mut best = entry;
        while place > 1 {
            #[cfg(test)]
            {
                self.compared += 1;
            }
            let pair = &mut self.pairs[place / 2];
            pair[place % 2] = best;
            let other = pair[1 - place % 2];
            // One on the right has to be less, one on the left not more. No key is so great that this would wrap.
            let is_right = 1 - (place % 2) as u64;
            let loses = best.key >= other.key.wrapping_add(is_right);
            best = Entry {
                key: select_unpredictable(loses, other.key, best.key),
                who: select_unpredictable(loses, other.who, best.who),
            };
            place /= 2;
        }
        self.first = best;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn twenty_thousand_random_steps_equal_a_sorted_list() {
        let mut seed = 1u64;
        let mut random = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % below
        };
        let mut heap = Heap::new(50);
        let mut twin: Vec<(u64, u32)> = Vec::new();
        for _ in 0..20_000 {
            let who = random(50) as u32;
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
            assert_eq!(heap.len(), twin.len());
            assert_eq!(heap.contains(who), twin.iter().any(|&(_, other)| other == who));
        }
    }
}
