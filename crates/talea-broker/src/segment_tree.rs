//! Sums over ranges of a list of classes, in O(log n).
//!
//! For every request `rm` needs the product over all kernel levels of a CPU except one or two. No
//! factor can be divided out of a product without an error, so a segment tree keeps the products of
//! aligned parts. Inserting or removing a level shifts the indices behind it and recomputes the
//! whole tree: O(n) for at most 99 levels.
//!
//! Invariant: every inner node is the sum of its two children; leaves beyond the list are empty.

use crate::rm_bounds::RmSum;
use std::ops::Range;
use talea_core::mutate;

/// Power of two that is not less than the number of kernel priorities.
const PLACES: usize = 128;

/// Sums over all aligned parts of a list.
#[derive(Clone, Debug)]
pub(crate) struct SegmentTree {
    /// `nodes[1]` is the root, `nodes[2 n]` and `nodes[2 n + 1]` are the children of `nodes[n]`;
    /// the list begins at [`PLACES`].
    nodes: [RmSum; 2 * PLACES],
    len: usize,
}

impl Default for SegmentTree {
    fn default() -> SegmentTree {
        SegmentTree { nodes: [RmSum::EMPTY; 2 * PLACES], len: 0 }
    }
}

impl SegmentTree {
    /// Replaces the whole list.
    ///
    /// # Panics
    /// If it is longer than the number of kernel priorities.
    pub(crate) fn set_all(&mut self, row: impl ExactSizeIterator<Item = RmSum>) {
        let (before, len) = (self.len, row.len());
        self.len = len;
        for (node, sum) in self.nodes[PLACES..].iter_mut().zip(row) {
            *node = sum;
        }
        self.nodes[PLACES..][len..before.max(len)].fill(RmSum::EMPTY);
        let (mut first, mut end) = (PLACES, PLACES + before.max(len));
        while first > 1 {
            (first, end) = (first / 2, end.div_ceil(2));
            for at in first..end {
                self.add_up(at);
            }
        }
    }

    /// Replaces one element of the list.
    pub(crate) fn set(&mut self, place: usize, sum: RmSum) {
        assert!(place < self.len, "the index is beyond the list");
        let mut at = PLACES + place;
        self.nodes[at] = mutate!("rm-sums-kept", sum, self.nodes[at]);
        while at > 1 {
            at /= 2;
            self.add_up(at);
        }
    }

    /// Returns the sum over a range; the empty sum for an empty range.
    pub(crate) fn over(&self, places: Range<usize>) -> RmSum {
        let (mut from, mut to) = (PLACES + places.start, PLACES + places.end);
        let mut sum = RmSum::EMPTY;
        while from < to {
            if from % 2 == 1 {
                sum = sum.combined(self.nodes[from]);
                from += 1;
            }
            if to % 2 == 1 {
                to -= 1;
                sum = sum.combined(self.nodes[to]);
            }
            (from, to) = (from / 2, to / 2);
        }
        sum
    }

    fn add_up(&mut self, at: usize) {
        self.nodes[at] = self.nodes[2 * at].combined(self.nodes[2 * at + 1]);
    }

    /// Checks the invariant for this list.
    #[cfg(test)]
    pub(crate) fn check(&self, row: &[RmSum]) {
        assert_eq!((self.len, &self.nodes[PLACES..][..row.len()]), (row.len(), row));
        assert!(self.nodes[PLACES..][row.len()..].iter().all(|node| *node == RmSum::EMPTY));
        for at in 1..PLACES {
            assert_eq!(
                self.nodes[at],
                self.nodes[2 * at].combined(self.nodes[2 * at + 1]),
                "node {at}"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use talea_core::rng::Rng;

    #[test]
    fn sums_over_ranges_equal_a_walk_through_them() {
        let mut rng = Rng::new(71);
        let mut sums = SegmentTree::default();
        let mut row: Vec<RmSum> = Vec::new();
        for _ in 0..3_000 {
            let class = RmSum::class(u128::from(rng.below(3)), 1 + rng.below(5_000));
            if !row.is_empty() && rng.chance(60) {
                let place = rng.below(row.len() as u64) as usize;
                row[place] = class;
                sums.set(place, class);
            } else {
                match row.len() {
                    len if len < 99 && rng.chance(55) => {
                        row.insert(rng.below(len as u64 + 1) as usize, class);
                    }
                    0 => {}
                    len => drop(row.remove(rng.below(len as u64) as usize)),
                }
                sums.set_all(row.iter().copied());
            }
            sums.check(&row);
            let (a, b) = (rng.below(100) as usize, rng.below(100) as usize);
            let (from, to) = (a.min(row.len()), b.min(row.len()));
            let walk = row
                .get(from..to)
                .unwrap_or(&[])
                .iter()
                .fold(RmSum::EMPTY, |sum, class| sum.combined(*class));
            let sum = sums.over(from..to);
            assert_eq!(sum.classes, walk.classes);
            assert!(sum.is_within(&walk, 3 * walk.classes.max(1)), "{sum:?} for {walk:?}");
        }
    }
}
