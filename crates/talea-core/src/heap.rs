//! A priority queue of small numbers in one block of memory.
//!
//! Model: a 4-ary heap of (key, number), least first, ties to the lower number, and for each number its place. All
//! memory is taken when the heap is made; every operation is O(log n). Four children share a cache line, which is
//! what makes it quick.
//!
//! Plain twin: a sorted list, in the tests below.

use alloc::vec::Vec;

/// Not in the heap.
const OUT: u32 = u32::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    key: u64,
    who: u32,
}

impl Entry {
    #[inline]
    fn before(self, other: Entry) -> bool {
        (self.key, self.who) < (other.key, other.who)
    }
}

/// A heap over the numbers `0..n`.
#[derive(Clone, Debug)]
pub struct Heap {
    entries: Vec<Entry>,
    place: Vec<u32>,
}

impl Heap {
    /// An empty heap for the numbers `0..n`.
    pub fn new(n: usize) -> Heap {
        let mut place = Vec::with_capacity(n);
        place.resize(n, OUT);
        Heap { entries: Vec::with_capacity(n), place }
    }

    /// How many are in.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether nobody is in.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether `who` is in.
    pub fn contains(&self, who: u32) -> bool {
        self.place[who as usize] != OUT
    }

    /// The least, with its key.
    #[inline]
    pub fn first(&self) -> Option<(u64, u32)> {
        self.entries.first().map(|entry| (entry.key, entry.who))
    }

    /// Puts `who` in, or gives it another key.
    #[inline]
    pub fn set(&mut self, who: u32, key: u64) {
        let entry = Entry { key, who };
        let place = self.place[who as usize];
        if place == OUT {
            self.entries.push(entry);
            self.up(self.entries.len() - 1, entry);
        } else {
            let place = place as usize;
            if entry.before(self.entries[place]) {
                self.up(place, entry);
            } else {
                self.down(place, entry);
            }
        }
    }

    /// Takes `who` out, if it is in; says whether it was.
    #[inline]
    pub fn remove(&mut self, who: u32) -> bool {
        let place = core::mem::replace(&mut self.place[who as usize], OUT);
        if place == OUT {
            return false;
        }
        let last = self.entries.pop().expect("somebody is in");
        let place = place as usize;
        if place < self.entries.len() {
            if last.before(self.entries[place]) {
                self.up(place, last);
            } else {
                self.down(place, last);
            }
        }
        true
    }

    #[inline]
    fn up(&mut self, mut place: usize, entry: Entry) {
        while place > 0 {
            let parent = (place - 1) / 4;
            let above = self.entries[parent];
            if !entry.before(above) {
                break;
            }
            self.entries[place] = above;
            self.place[above.who as usize] = place as u32;
            place = parent;
        }
        self.entries[place] = entry;
        self.place[entry.who as usize] = place as u32;
    }

    #[inline]
    fn down(&mut self, mut place: usize, entry: Entry) {
        loop {
            let first = place * 4 + 1;
            let children = self.entries.get(first..self.entries.len().min(first + 4)).unwrap_or(&[]);
            let Some((mut least, rest)) = children.split_first() else { break };
            let mut at = first;
            for (i, child) in rest.iter().enumerate() {
                if child.before(*least) {
                    least = child;
                    at = first + 1 + i;
                }
            }
            let least = *least;
            if !least.before(entry) {
                break;
            }
            self.entries[place] = least;
            self.place[least.who as usize] = place as u32;
            place = at;
        }
        self.entries[place] = entry;
        self.place[entry.who as usize] = place as u32;
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
