//! Sums over neighbours in a row of classes, in O(log n).
//!
//! `rm` asks with every request about all kernel levels of a CPU but one or two. What it wants is a
//! product, out of which no factor can be taken again without an error, so sums of parts are kept:
//! a segment tree over the places in the row. Whoever comes between two others, or goes, shifts the
//! places of all behind and has the whole row summed up anew: O(n) for a row of at most 99.
//!
//! Invariant: every inner node is the sum of its two children; places beyond the row are empty.

use crate::bound::Sum;
use std::ops::Range;

/// A power of two that is no less than the number of kernel priorities.
const PLACES: usize = 128;

/// The sums over all aligned parts of a row.
#[derive(Clone, Debug)]
pub(crate) struct Segments {
    /// The root is at 1, the children of `n` at `2 n` and `2 n + 1`, the row begins at [`PLACES`].
    nodes: [Sum; 2 * PLACES],
    len: usize,
}

impl Default for Segments {
    fn default() -> Segments {
        Segments { nodes: [Sum::EMPTY; 2 * PLACES], len: 0 }
    }
}

impl Segments {
    /// Replaces the whole row.
    ///
    /// # Panics
    /// If it is longer than there are kernel priorities.
    pub(crate) fn set_all(&mut self, row: impl ExactSizeIterator<Item = Sum>) {
        let (before, len) = (self.len, row.len());
        self.len = len;
        for (node, sum) in self.nodes[PLACES..].iter_mut().zip(row) {
            *node = sum;
        }
        self.nodes[PLACES..][len..before.max(len)].fill(Sum::EMPTY);
        let (mut first, mut end) = (PLACES, PLACES + before.max(len));
        while first > 1 {
            (first, end) = (first / 2, end.div_ceil(2));
            for at in first..end {
                self.add_up(at);
            }
        }
    }

    /// Replaces one place of the row.
    pub(crate) fn set(&mut self, place: usize, sum: Sum) {
        assert!(place < self.len, "a place beyond the row");
        let mut at = PLACES + place;
        self.nodes[at] = sum;
        while at > 1 {
            at /= 2;
            self.add_up(at);
        }
    }

    /// The sum over neighbours; nothing for an empty range.
    pub(crate) fn over(&self, places: Range<usize>) -> Sum {
        let (mut from, mut to) = (PLACES + places.start, PLACES + places.end);
        let mut sum = Sum::EMPTY;
        while from < to {
            if from % 2 == 1 {
                sum = sum.and(self.nodes[from]);
                from += 1;
            }
            if to % 2 == 1 {
                to -= 1;
                sum = sum.and(self.nodes[to]);
            }
            (from, to) = (from / 2, to / 2);
        }
        sum
    }

    fn add_up(&mut self, at: usize) {
        self.nodes[at] = self.nodes[2 * at].and(self.nodes[2 * at + 1]);
    }

    /// The invariant, for this row.
    #[cfg(test)]
    pub(crate) fn check(&self, row: &[Sum]) {
        assert_eq!((self.len, &self.nodes[PLACES..][..row.len()]), (row.len(), row));
        assert!(self.nodes[PLACES..][row.len()..].iter().all(|node| *node == Sum::EMPTY));
        for at in 1..PLACES {
            assert_eq!(self.nodes[at], self.nodes[2 * at].and(self.nodes[2 * at + 1]), "node {at}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dice::Dice;

    #[test]
    fn sums_over_ranges_equal_a_walk_through_them() {
        let mut dice = Dice::new(71);
        let mut sums = Segments::default();
        let mut row: Vec<Sum> = Vec::new();
        for _ in 0..3_000 {
            let class = Sum::class(u128::from(dice.roll(3)), 1 + dice.roll(5_000));
            if !row.is_empty() && dice.chance(60) {
                let place = dice.roll(row.len() as u64) as usize;
                row[place] = class;
                sums.set(place, class);
            } else {
                match row.len() {
                    len if len < 99 && dice.chance(55) => {
                        row.insert(dice.roll(len as u64 + 1) as usize, class);
                    }
                    0 => {}
                    len => drop(row.remove(dice.roll(len as u64) as usize)),
                }
                sums.set_all(row.iter().copied());
            }
            sums.check(&row);
            let (a, b) = (dice.roll(100) as usize, dice.roll(100) as usize);
            let (from, to) = (a.min(row.len()), b.min(row.len()));
            let walk = row
                .get(from..to)
                .unwrap_or(&[])
                .iter()
                .fold(Sum::EMPTY, |sum, class| sum.and(*class));
            let sum = sums.over(from..to);
            assert_eq!(sum.classes, walk.classes);
            assert!(sum.is_within(&walk, 3 * walk.classes.max(1)), "{sum:?} for {walk:?}");
        }
    }
}
