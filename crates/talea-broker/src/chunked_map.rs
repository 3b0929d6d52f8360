//! Ordered map from numbers to small values, for many entries of which a request accesses few.
//!
//! Model: the entries are in leaves, sorted arrays of at most [`MAX_ENTRIES`], and a tree finds a
//! leaf by a lower bound of its keys. The cost of a rare request is dominated by cache and page
//! misses, not by steps. A tree of all entries is deeper, with each node at another address. Here
//! the tree is small enough to stay in the cache, a leaf is contiguous, and all leaves are
//! adjacent.
//!
//! Invariants (`check`, in tests): leaves are not empty, their keys are between their own bound and
//! the next one, and the first bound is zero. Every operation is O(log n) plus one leaf; growth
//! moves half a leaf.

use std::collections::BTreeMap;
use std::ops::Range;

/// Maximum number of entries of a leaf: enough for a shallow tree, few enough for a cheap
/// insertion.
const MAX_ENTRIES: usize = 32;
/// Maximum number of leaves allocated together. Below it, the number of leaves doubles: most maps
/// stay small, and there is one per CPU.
const MAX_CHUNK: usize = 64;
/// Key behind the last entry; every valid key is smaller.
const END_KEY: u64 = u64::MAX;
/// Number of entries below which a leaf is merged with a neighbour, if there is room.
const MIN_ENTRIES: usize = MAX_ENTRIES / 4;
/// Maximum number of entries of a merged leaf, which leaves room for insertions.
const MAX_MERGED: usize = MAX_ENTRIES * 3 / 4;

/// Ordered map in chunks of sorted leaves.
#[derive(Clone, Debug)]
pub(crate) struct ChunkedMap<V> {
    /// Index of each leaf, by a lower bound of its keys.
    tree: BTreeMap<u64, u32>,
    chunks: Vec<Box<[Leaf<V>]>>,
    free: Vec<u32>,
    len: usize,
}

#[derive(Clone, Copy, Debug)]
struct Leaf<V> {
    len: usize,
    entries: [(u64, V); MAX_ENTRIES],
}

impl<V: Copy + Default> Leaf<V> {
    fn new() -> Leaf<V> {
        Leaf { len: 0, entries: [(END_KEY, V::default()); MAX_ENTRIES] }
    }

    fn entries(&self) -> &[(u64, V)] {
        &self.entries[..self.len]
    }

    /// Returns the number of keys that are smaller than `key`. The function compares all keys: the
    /// CPU then fetches uncached lines in parallel, while a binary search would wait for one line
    /// after the other.
    fn place(&self, key: u64) -> usize {
        self.entries.iter().map(|&(other, _)| usize::from(other < key)).sum()
    }

    fn find(&self, key: u64) -> Result<usize, usize> {
        let at = self.place(key);
        if self.entries().get(at).is_some_and(|&(other, _)| other == key) {
            Ok(at)
        } else {
            Err(at)
        }
    }

    fn insert(&mut self, at: usize, key: u64) {
        self.entries.copy_within(at..self.len, at + 1);
        self.entries[at] = (key, V::default());
        self.len += 1;
    }

    fn remove(&mut self, at: usize) -> V {
        let (_, value) = self.entries[at];
        self.entries.copy_within(at + 1..self.len, at);
        self.len -= 1;
        self.entries[self.len].0 = END_KEY;
        value
    }

    /// Appends all entries of `other`, whose keys are greater.
    fn append(&mut self, other: &Leaf<V>) {
        let end = self.len + other.len;
        self.entries[self.len..end].copy_from_slice(other.entries());
        self.len = end;
    }

    /// Splits off the second half.
    fn split(&mut self) -> Leaf<V> {
        let (mut other, from) = (Leaf::new(), self.len / 2);
        other.len = self.len - from;
        other.entries[..other.len].copy_from_slice(&self.entries[from..self.len]);
        for entry in &mut self.entries[from..] {
            entry.0 = END_KEY;
        }
        self.len = from;
        other
    }
}

/// Returns the chunk of a leaf and its index there: chunks have 1, 1, 2, 4 and so on up to
/// [`MAX_CHUNK`] leaves, then always that many.
fn place_of(index: usize) -> (usize, usize) {
    const DOUBLING: usize = MAX_CHUNK.ilog2() as usize + 1;
    match index {
        0 => (0, 0),
        1..MAX_CHUNK => (index.ilog2() as usize + 1, index - (1 << index.ilog2())),
        _ => (DOUBLING + (index - MAX_CHUNK) / MAX_CHUNK, index % MAX_CHUNK),
    }
}

impl<V: Copy + Default> Default for ChunkedMap<V> {
    fn default() -> ChunkedMap<V> {
        ChunkedMap { tree: BTreeMap::new(), chunks: Vec::new(), free: Vec::new(), len: 0 }
    }
}

impl<V: Copy + Default> ChunkedMap<V> {
    /// Returns the number of entries.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    fn leaf(&self, index: u32) -> &Leaf<V> {
        let (chunk, at) = place_of(index as usize);
        &self.chunks[chunk][at]
    }

    fn leaf_mut(&mut self, index: u32) -> &mut Leaf<V> {
        let (chunk, at) = place_of(index as usize);
        &mut self.chunks[chunk][at]
    }

    /// Returns the bound and the index of the leaf for `key`; `None` if the map has no leaves.
    fn leaf_of(&self, key: u64) -> Option<(u64, u32)> {
        self.tree.range(..=key).next_back().map(|(&bound, &index)| (bound, index))
    }

    /// Adds a leaf with `bound` as the lower bound of its keys.
    fn add_leaf(&mut self, bound: u64, leaf: Leaf<V>) {
        if self.free.is_empty() {
            let all: usize = self.chunks.iter().map(|chunk| chunk.len()).sum();
            let more = all.clamp(1, MAX_CHUNK);
            self.chunks.push(vec![Leaf::new(); more].into_boxed_slice());
            self.free.extend((all as u32..(all + more) as u32).rev());
        }
        let index = self.free.pop().expect("free leaves were just added");
        *self.leaf_mut(index) = leaf;
        self.tree.insert(bound, index);
    }

    /// Returns the value of `key`, if the map contains it.
    pub(crate) fn get(&self, key: u64) -> Option<V> {
        let (_, index) = self.leaf_of(key)?;
        let leaf = self.leaf(index);
        Some(leaf.entries[leaf.find(key).ok()?].1)
    }

    /// Calls `change` with the value of `key`; first inserts the default value if `key` is missing.
    pub(crate) fn update<R>(&mut self, key: u64, change: impl FnOnce(&mut V) -> R) -> R {
        let Some((_, index)) = self.leaf_of(key) else {
            self.add_leaf(0, Leaf::new());
            return self.update(key, change);
        };
        let leaf = self.leaf_mut(index);
        match leaf.find(key) {
            Ok(at) => change(&mut leaf.entries[at].1),
            Err(at) if leaf.len < MAX_ENTRIES => {
                assert!(key < END_KEY, "the key is reserved as the end mark");
                leaf.insert(at, key);
                let result = change(&mut leaf.entries[at].1);
                self.len += 1;
                result
            }
            Err(_) => {
                let half = leaf.split();
                self.add_leaf(half.entries[0].0, half);
                self.update(key, change)
            }
        }
    }

    /// Removes `key` and returns its value, if the map contains it.
    pub(crate) fn remove(&mut self, key: u64) -> Option<V> {
        let (bound, index) = self.leaf_of(key)?;
        let leaf = self.leaf_mut(index);
        let value = leaf.remove(leaf.find(key).ok()?);
        let sparse = leaf.len < MIN_ENTRIES;
        self.len -= 1;
        if sparse {
            self.merge(bound, index);
        }
        Some(value)
    }

    /// Merges a sparse leaf with a neighbour if both fit into [`MAX_MERGED`] entries; otherwise
    /// removes the leaf if it is empty.
    fn merge(&mut self, bound: u64, index: u32) {
        let few = self.leaf(index).len;
        let fits = |(&bound, &index): (&u64, &u32)| {
            (few + self.leaf(index).len <= MAX_MERGED).then_some((bound, index))
        };
        let before = self.tree.range(..bound).next_back().and_then(fits);
        let behind = || self.tree.range(bound + 1..).next().and_then(fits);
        let (left, right, gone) = match before {
            Some((_, before)) => (before, index, bound),
            None => match behind() {
                Some((next, behind)) => (index, behind, next),
                None if few == 0 => return self.drop_empty(bound, index),
                None => return,
            },
        };
        let moved = *self.leaf(right);
        self.leaf_mut(left).append(&moved);
        self.tree.remove(&gone);
        self.free.push(right);
    }

    /// Removes an empty leaf; the first bound stays zero.
    fn drop_empty(&mut self, bound: u64, index: u32) {
        self.tree.remove(&bound);
        self.free.push(index);
        if bound == 0
            && let Some((_, next)) = self.tree.pop_first()
        {
            self.tree.insert(0, next);
        }
    }

    /// Iterates over the entries with keys in `keys`, in order.
    pub(crate) fn range(&self, keys: Range<u64>) -> impl DoubleEndedIterator<Item = (u64, V)> {
        let from = self.leaf_of(keys.start).map_or(0, |(bound, _)| bound);
        self.tree.range(from..keys.end.max(from)).flat_map(move |(_, &index)| {
            let leaf = self.leaf(index);
            (leaf.place(keys.start)..leaf.place(keys.end)).map(|at| leaf.entries[at])
        })
    }

    /// Returns the least key greater than `key`, if there is one.
    pub(crate) fn next_after(&self, key: u64) -> Option<u64> {
        self.range(key.checked_add(1)?..END_KEY).next().map(|(key, _)| key)
    }

    /// Checks the invariants; O(n).
    #[cfg(test)]
    pub(crate) fn check(&self) {
        let bounds: Vec<u64> = self.tree.keys().copied().collect();
        assert_eq!(bounds.first().copied(), (self.len > 0).then_some(0));
        for (i, (&bound, &index)) in self.tree.iter().enumerate() {
            let leaf = self.leaf(index);
            assert!((1..=MAX_ENTRIES).contains(&leaf.len), "{} entries", leaf.len);
            assert!(leaf.entries[leaf.len..].iter().all(|&(key, _)| key == END_KEY));
            assert!(leaf.entries().windows(2).all(|pair| pair[0].0 < pair[1].0));
            assert!(bound <= leaf.entries[0].0);
            assert!(bounds.get(i + 1).is_none_or(|&next| leaf.entries()[leaf.len - 1].0 < next));
        }
        let held: usize = self.tree.values().map(|&index| self.leaf(index).len).sum();
        assert_eq!(
            (held, self.tree.len() + self.free.len()),
            (self.len, self.chunks.iter().map(|chunk| chunk.len()).sum::<usize>())
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_double_and_a_small_map_is_small() {
        let places: Vec<_> = (0..300).map(place_of).collect();
        let mut sizes = vec![0; places[299].0 + 1];
        for (index, &(chunk, at)) in places.iter().enumerate() {
            assert_eq!(at, sizes[chunk], "{index}");
            sizes[chunk] += 1;
        }
        assert_eq!(sizes, [1, 1, 2, 4, 8, 16, 32, 64, 64, 64, 44]);
        let mut map = ChunkedMap::default();
        map.update(7, |value: &mut u64| *value = 7);
        assert_eq!(
            map.chunks.iter().map(|chunk| chunk.len()).sum::<usize>(),
            1,
            "one key, one leaf"
        );
    }
    use talea_core::rng::Rng;

    #[test]
    fn it_equals_the_standard_librarys_map_under_random_insertions_and_removals() {
        let mut rng = Rng::new(23);
        for round in 0..40 {
            // From few recurring keys to keys that never recur, growing and shrinking.
            let scale = *rng.pick(&[10, 300, 5_000, u64::MAX >> 1]);
            let (mut leaves, mut plain) = (ChunkedMap::<u32>::default(), BTreeMap::new());
            for step in 0..3_000 {
                let grows = if step % 1_000 < 600 { 65 } else { 35 };
                let key = rng.below(scale);
                if rng.chance(grows) {
                    let before = leaves.update(key, |value| std::mem::replace(value, step + 1));
                    assert_eq!(before, plain.insert(key, step + 1).unwrap_or(0));
                } else {
                    // Usually an existing key.
                    let key = plain.range(key..).next().map_or(key, |(&key, _)| key);
                    assert_eq!(leaves.remove(key), plain.remove(&key), "round {round}");
                }
                assert_eq!(leaves.get(key), plain.get(&key).copied());
                assert_eq!(
                    leaves.next_after(key),
                    plain.range(key + 1..).next().map(|(&key, _)| key)
                );
                if step % 64 == 0 {
                    leaves.check();
                    let keys = rng.below(scale)..rng.below(scale);
                    let inside = |&(&key, _): &(&u64, &u32)| keys.contains(&key);
                    let wanted: Vec<_> =
                        plain.iter().filter(inside).map(|(&k, &v)| (k, v)).collect();
                    assert!(leaves.range(keys.clone()).eq(wanted.iter().copied()));
                    assert!(leaves.range(keys.clone()).rev().eq(wanted.into_iter().rev()));
                }
            }
            assert!(leaves.range(0..END_KEY).eq(plain.iter().map(|(&key, &value)| (key, value))));
            assert_eq!(leaves.len(), plain.len());
            // After any history, no leaf remains for one or two entries.
            assert!(
                leaves.tree.len() <= 1 + leaves.len() / (MIN_ENTRIES / 2),
                "{} leaves",
                leaves.tree.len()
            );
            for key in plain.into_keys() {
                leaves.remove(key).expect("the key exists");
            }
            leaves.check();
            assert!(leaves.tree.is_empty());
        }
    }
}
