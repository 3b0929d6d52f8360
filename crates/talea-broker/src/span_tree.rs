//! Ordered map from span to work with sums over any range of spans.
//!
//! The interference on an `rm` plugin's CPU is computed for every shortest deadline below it
//! (argument 3 in `talea_analysis::rm`): the tasks with a shorter span as classes of their own, all
//! others as one class. Therefore the inner nodes of this map have the [`RmSum`] of their subtree.
//!
//! Model: a binary trie over the bits of the span (a "crit-bit" tree). Every inner node stores the
//! highest bit in which its leaves differ. The tree has no empty leaves and its shape depends only
//! on the spans, so equal contents are equal trees with equal roundings, after any history. The
//! depth is at most 64, without rebalancing: every operation is O(log n) for ordinary spans and
//! O(64) in the worst case.
//!
//! Reference: D. J. Bernstein, "Crit-bit trees", 2004; D. R. Morrison, "PATRICIA", J. ACM 15(4),
//! 1968.

use crate::rm_bounds::RmSum;
use std::ops::Range;

/// Ordered map from span (nanoseconds) to the work of all tasks of that span.
#[derive(Clone, Debug, Default)]
pub(crate) struct SpanTree {
    nodes: Vec<Node>,
    free: Vec<u32>,
    root: Option<u32>,
}

/// Sum over some classes, with their plain work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Total {
    /// Sum for the tests of `rm`.
    pub(crate) sum: RmSum,
    /// Work in nanoseconds.
    pub(crate) work: u128,
}

impl Total {
    /// Sum over no class.
    pub(crate) const EMPTY: Total = Total { sum: RmSum::EMPTY, work: 0 };

    /// Returns the sum over one class.
    pub(crate) fn class(work: u128, span: u64) -> Total {
        Total { sum: RmSum::class(work, span), work }
    }

    /// Returns the sum over the classes of both.
    #[must_use]
    pub(crate) fn combined(self, other: Total) -> Total {
        Total { sum: self.sum.combined(other.sum), work: self.work + other.work }
    }
}

#[derive(Clone, Copy, Debug)]
struct Node {
    total: Total,
    /// Span of a leaf; the leaves of an inner node agree with it above `bit`.
    span: u64,
    kind: NodeKind,
}

#[derive(Clone, Copy, Debug)]
enum NodeKind {
    /// Number of tasks with this span.
    Leaf(u32),
    /// Highest bit in which the leaves differ; children with a 0 and with a 1 there.
    Fork(u32, [u32; 2]),
}

impl Node {
    /// Returns the range of spans possible below this node, inclusive.
    fn reach(&self) -> (u64, u64) {
        match self.kind {
            NodeKind::Leaf(_) => (self.span, self.span),
            NodeKind::Fork(bit, _) => {
                let below = u64::MAX >> (63 - bit);
                (self.span & !below, self.span | below)
            }
        }
    }
}

impl SpanTree {
    /// Creates an empty map.
    pub(crate) const fn new() -> SpanTree {
        SpanTree { nodes: Vec::new(), free: Vec::new(), root: None }
    }

    /// Whether there is no task.
    pub(crate) fn is_empty(&self) -> bool {
        self.root.is_none()
    }

    /// Adds a task of `span` with `work` nanoseconds.
    pub(crate) fn add(&mut self, span: u64, work: u128) {
        let Some(root) = self.root else {
            self.root = Some(self.leaf(span, work));
            return;
        };
        let mut path = Path::default();
        let mut at = root;
        loop {
            let node = self.nodes[at as usize];
            let (low, high) = node.reach();
            if span < low || high < span {
                break;
            }
            match node.kind {
                NodeKind::Leaf(tasks) => {
                    self.set_leaf(at, tasks + 1, node.total.work + work);
                    self.refresh(&path);
                    return;
                }
                NodeKind::Fork(bit, children) => {
                    path.push(at);
                    at = children[side(span, bit)];
                }
            }
        }
        // The new leaf and the reached node differ; a fork is inserted between that node and its
        // parent. Above the bit of a fork its leaves agree, and the new leaf differs there.
        let (low, _) = self.nodes[at as usize].reach();
        let bit = (span ^ low).ilog2();
        let leaf = self.leaf(span, work);
        let children = if side(span, bit) == 1 { [at, leaf] } else { [leaf, at] };
        let fork =
            self.node(Node { total: Total::EMPTY, span, kind: NodeKind::Fork(bit, children) });
        self.relink(&path, at, fork);
        path.push(fork);
        self.refresh(&path);
    }

    /// Reverts [`SpanTree::add`].
    ///
    /// # Panics
    /// If the task was not added.
    pub(crate) fn remove(&mut self, span: u64, work: u128) {
        let mut path = Path::default();
        let mut at = self.root.expect("the class was never added");
        while let NodeKind::Fork(bit, children) = self.nodes[at as usize].kind {
            path.push(at);
            at = children[side(span, bit)];
        }
        let node = self.nodes[at as usize];
        let NodeKind::Leaf(tasks) = node.kind else { unreachable!("the loop ends at a leaf") };
        assert!(node.span == span, "the class was never added");
        let left = node.total.work.checked_sub(work).expect("more work removed than was added");
        if tasks > 1 {
            self.set_leaf(at, tasks - 1, left);
        } else {
            assert!(left == 0, "work without a task");
            self.free.push(at);
            match path.pop() {
                None => self.root = None,
                Some(parent) => {
                    let NodeKind::Fork(bit, children) = self.nodes[parent as usize].kind else {
                        unreachable!("a parent is a fork")
                    };
                    self.relink(&path, parent, children[1 - side(span, bit)]);
                    self.free.push(parent);
                }
            }
        }
        self.refresh(&path);
    }

    /// Returns the work of all tasks of exactly this span.
    pub(crate) fn work_of(&self, span: u64) -> u128 {
        let Some(mut at) = self.root else { return 0 };
        while let NodeKind::Fork(bit, children) = self.nodes[at as usize].kind {
            at = children[side(span, bit)];
        }
        let node = &self.nodes[at as usize];
        if node.span == span { node.total.work } else { 0 }
    }

    /// Returns the sum over all classes.
    pub(crate) fn total(&self) -> Total {
        self.root.map_or(Total::EMPTY, |root| self.nodes[root as usize].total)
    }

    /// Returns the sum over the classes with a span in `spans`.
    pub(crate) fn within(&self, spans: Range<u64>) -> Total {
        match self.root {
            Some(root) if !spans.is_empty() => self.part(root, &spans),
            _ => Total::EMPTY,
        }
    }

    fn part(&self, at: u32, spans: &Range<u64>) -> Total {
        let node = &self.nodes[at as usize];
        let (low, high) = node.reach();
        if spans.start <= low && high < spans.end {
            return node.total;
        }
        match node.kind {
            NodeKind::Fork(_, [zero, one]) if low < spans.end && spans.start <= high => {
                self.part(zero, spans).combined(self.part(one, spans))
            }
            _ => Total::EMPTY,
        }
    }

    /// Visits every class, shortest span first: span and work.
    pub(crate) fn each(&self, visit: &mut impl FnMut(u64, u128)) {
        if let Some(root) = self.root {
            self.each_below(root, visit);
        }
    }

    fn each_below(&self, at: u32, visit: &mut impl FnMut(u64, u128)) {
        let node = &self.nodes[at as usize];
        match node.kind {
            NodeKind::Leaf(_) => visit(node.span, node.total.work),
            NodeKind::Fork(_, [zero, one]) => {
                self.each_below(zero, visit);
                self.each_below(one, visit);
            }
        }
    }

    fn leaf(&mut self, span: u64, work: u128) -> u32 {
        self.node(Node { total: Total::class(work, span), span, kind: NodeKind::Leaf(1) })
    }

    fn set_leaf(&mut self, at: u32, tasks: u32, work: u128) {
        let node = &mut self.nodes[at as usize];
        node.kind = NodeKind::Leaf(tasks);
        node.total = Total::class(work, node.span);
    }

    fn node(&mut self, node: Node) -> u32 {
        if let Some(at) = self.free.pop() {
            self.nodes[at as usize] = node;
            return at;
        }
        self.nodes.push(node);
        (self.nodes.len() - 1) as u32
    }

    /// Replaces the child `old` of the last node of `path` (or the root) by `new`.
    fn relink(&mut self, path: &Path, old: u32, new: u32) {
        match path.last() {
            None => self.root = Some(new),
            Some(parent) => {
                let NodeKind::Fork(_, children) = &mut self.nodes[parent as usize].kind else {
                    unreachable!("a parent is a fork")
                };
                children[usize::from(children[1] == old)] = new;
            }
        }
    }

    /// Updates the sums from the end of `path` to the root.
    fn refresh(&mut self, path: &Path) {
        for &at in path.nodes().iter().rev() {
            let NodeKind::Fork(_, [zero, one]) = self.nodes[at as usize].kind else {
                unreachable!("a path is of forks")
            };
            self.nodes[at as usize].total =
                self.nodes[zero as usize].total.combined(self.nodes[one as usize].total);
        }
    }
}

fn side(span: u64, bit: u32) -> usize {
    (span >> bit & 1) as usize
}

/// Forks from the root downwards: at most one per bit.
struct Path {
    nodes: [u32; 64],
    len: usize,
}

impl Default for Path {
    fn default() -> Path {
        Path { nodes: [0; 64], len: 0 }
    }
}

impl Path {
    fn push(&mut self, node: u32) {
        self.nodes[self.len] = node;
        self.len += 1;
    }

    fn pop(&mut self) -> Option<u32> {
        let last = self.last()?;
        self.len -= 1;
        Some(last)
    }

    fn last(&self) -> Option<u32> {
        self.nodes().last().copied()
    }

    fn nodes(&self) -> &[u32] {
        &self.nodes[..self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use talea_core::rng::Rng;

    #[test]
    fn range_sums_equal_a_plain_map_under_random_insertions_and_removals() {
        let mut rng = Rng::new(5);
        for round in 0..60 {
            let scale = *rng.pick(&[4, 40, 1 << 20, u64::MAX - 1]);
            let mut classes = SpanTree::default();
            let mut plain: BTreeMap<u64, Vec<u128>> = BTreeMap::new();
            for _ in 0..400 {
                let span = 1 + rng.below(scale);
                if rng.chance(55) {
                    let work = u128::from(rng.below(span));
                    classes.add(span, work);
                    plain.entry(span).or_default().push(work);
                } else if let Some((&span, works)) = plain.range_mut(span..).next() {
                    classes.remove(span, works.pop().unwrap());
                    if works.is_empty() {
                        plain.remove(&span);
                    }
                }
                let range = rng.below(scale)..rng.below(scale).saturating_add(2);
                let inside = plain.iter().filter(|(span, _)| range.contains(span));
                let work: u128 = inside.clone().flat_map(|(_, works)| works).sum();
                let count =
                    inside.clone().filter(|(_, works)| works.iter().any(|&work| work > 0)).count();
                let total = classes.within(range);
                assert_eq!((total.work, total.sum.classes), (work, count as u32), "round {round}");
                assert_eq!(
                    classes.work_of(span),
                    plain.get(&span).map_or(0, |works| works.iter().sum())
                );
            }
            // Equal contents are equal trees: a tree built in order has exactly the same sums.
            let mut anew = SpanTree::default();
            for (&span, works) in &plain {
                for &work in works {
                    anew.add(span, work);
                }
            }
            assert_eq!(anew.total(), classes.total());
            let mut seen = vec![];
            classes.each(&mut |span, work| seen.push((span, work)));
            let listed: Vec<_> =
                plain.iter().map(|(&span, works)| (span, works.iter().sum())).collect();
            assert_eq!(seen, listed);
            for (span, works) in plain {
                for work in works {
                    classes.remove(span, work);
                }
            }
            assert_eq!(classes.total(), Total::EMPTY);
            assert!(
                classes.root.is_none() && classes.free.len() == classes.nodes.len(),
                "nodes leaked"
            );
        }
    }
}
