//! Tasks by span, with the sum over any range of spans at hand.
//!
//! What outranks an `rm` plugin on a CPU has to be counted anew for every shortest deadline below
//! it (argument 3 in `talea_analysis::rm`): the tasks of shorter span as classes of their own, all
//! others as one. So this is an ordered map from spans to work whose inner nodes hold the [`Sum`]
//! of their subtree.
//!
//! Model: a binary trie over the bits of the span (a "crit-bit" tree). Every inner node names the
//! highest bit in which its leaves differ; it has no empty leaves and its shape depends on the
//! spans alone, so equal contents are equal trees with equal roundings whatever happened before. At
//! most 64 steps deep, no rebalancing, no clever cases: every operation is O(log n) for ordinary
//! spans and O(64) for the worst.
//!
//! Reference: D. J. Bernstein, "Crit-bit trees", 2004; D. R. Morrison, "PATRICIA", J. ACM 15(4),
//! 1968.

use crate::bound::Sum;
use std::ops::Range;

/// An ordered map from span (nanoseconds) to the work of all tasks of that span.
#[derive(Clone, Debug, Default)]
pub(crate) struct Classes {
    nodes: Vec<Node>,
    free: Vec<u32>,
    root: Option<u32>,
}

/// The sum over some classes, with their plain work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Total {
    /// For the tests of `rm`.
    pub(crate) sum: Sum,
    /// Nanoseconds.
    pub(crate) work: u128,
}

impl Total {
    /// No class at all.
    pub(crate) const EMPTY: Total = Total { sum: Sum::EMPTY, work: 0 };

    /// One class.
    pub(crate) fn class(work: u128, span: u64) -> Total {
        Total { sum: Sum::class(work, span), work }
    }

    /// Both.
    #[must_use]
    pub(crate) fn and(self, other: Total) -> Total {
        Total { sum: self.sum.and(other.sum), work: self.work + other.work }
    }
}

#[derive(Clone, Copy, Debug)]
struct Node {
    total: Total,
    /// A leaf's span; an inner node's leaves agree with this above `bit`.
    span: u64,
    kind: Kind,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    /// How many tasks have this span.
    Leaf(u32),
    /// The highest bit in which the leaves differ; those with a 0 there, those with a 1.
    Fork(u32, [u32; 2]),
}

impl Node {
    /// The spans that may lie below this node: both ends included.
    fn reach(&self) -> (u64, u64) {
        match self.kind {
            Kind::Leaf(_) => (self.span, self.span),
            Kind::Fork(bit, _) => {
                let below = u64::MAX >> (63 - bit);
                (self.span & !below, self.span | below)
            }
        }
    }
}

impl Classes {
    /// No task at all.
    pub(crate) const fn new() -> Classes {
        Classes { nodes: Vec::new(), free: Vec::new(), root: None }
    }

    /// Whether there is no task at all.
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
                Kind::Leaf(tasks) => {
                    self.set_leaf(at, tasks + 1, node.total.work + work);
                    self.refresh(&path);
                    return;
                }
                Kind::Fork(bit, children) => {
                    path.push(at);
                    at = children[side(span, bit)];
                }
            }
        }
        // The new leaf and the node reached differ; a fork goes between that node and its parent.
        // Above the bit of a fork its leaves agree, and it is there that the new one differs.
        let (low, _) = self.nodes[at as usize].reach();
        let bit = (span ^ low).ilog2();
        let leaf = self.leaf(span, work);
        let children = if side(span, bit) == 1 { [at, leaf] } else { [leaf, at] };
        let fork = self.node(Node { total: Total::EMPTY, span, kind: Kind::Fork(bit, children) });
        self.relink(&path, at, fork);
        path.push(fork);
        self.refresh(&path);
    }

    /// Takes back what [`Classes::add`] added.
    ///
    /// # Panics
    /// If it was never added.
    pub(crate) fn remove(&mut self, span: u64, work: u128) {
        let mut path = Path::default();
        let mut at = self.root.expect("a class that was never added");
        while let Kind::Fork(bit, children) = self.nodes[at as usize].kind {
            path.push(at);
            at = children[side(span, bit)];
        }
        let node = self.nodes[at as usize];
        let Kind::Leaf(tasks) = node.kind else { unreachable!("the loop ends at a leaf") };
        assert!(node.span == span, "a class that was never added");
        let left = node.total.work.checked_sub(work).expect("more work removed than was added");
        if tasks > 1 {
            self.set_leaf(at, tasks - 1, left);
        } else {
            assert!(left == 0, "work without a task");
            self.free.push(at);
            match path.pop() {
                None => self.root = None,
                Some(parent) => {
                    let Kind::Fork(bit, children) = self.nodes[parent as usize].kind else {
                        unreachable!("a parent is a fork")
                    };
                    self.relink(&path, parent, children[1 - side(span, bit)]);
                    self.free.push(parent);
                }
            }
        }
        self.refresh(&path);
    }

    /// The work of all tasks of exactly this span.
    pub(crate) fn work_of(&self, span: u64) -> u128 {
        let Some(mut at) = self.root else { return 0 };
        while let Kind::Fork(bit, children) = self.nodes[at as usize].kind {
            at = children[side(span, bit)];
        }
        let node = &self.nodes[at as usize];
        if node.span == span { node.total.work } else { 0 }
    }

    /// The sum over all classes.
    pub(crate) fn total(&self) -> Total {
        self.root.map_or(Total::EMPTY, |root| self.nodes[root as usize].total)
    }

    /// The sum over the classes whose span lies in `spans`.
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
            Kind::Fork(_, [zero, one]) if low < spans.end && spans.start <= high => {
                self.part(zero, spans).and(self.part(one, spans))
            }
            _ => Total::EMPTY,
        }
    }

    /// Every class, shortest span first: span and work.
    pub(crate) fn each(&self, visit: &mut impl FnMut(u64, u128)) {
        if let Some(root) = self.root {
            self.each_below(root, visit);
        }
    }

    fn each_below(&self, at: u32, visit: &mut impl FnMut(u64, u128)) {
        let node = &self.nodes[at as usize];
        match node.kind {
            Kind::Leaf(_) => visit(node.span, node.total.work),
            Kind::Fork(_, [zero, one]) => {
                self.each_below(zero, visit);
                self.each_below(one, visit);
            }
        }
    }

    fn leaf(&mut self, span: u64, work: u128) -> u32 {
        self.node(Node { total: Total::class(work, span), span, kind: Kind::Leaf(1) })
    }

    fn set_leaf(&mut self, at: u32, tasks: u32, work: u128) {
        let node = &mut self.nodes[at as usize];
        node.kind = Kind::Leaf(tasks);
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

    /// Makes the last node of `path` (or the root) point to `new` where it pointed to `old`.
    fn relink(&mut self, path: &Path, old: u32, new: u32) {
        match path.last() {
            None => self.root = Some(new),
            Some(parent) => {
                let Kind::Fork(_, children) = &mut self.nodes[parent as usize].kind else {
                    unreachable!("a parent is a fork")
                };
                children[usize::from(children[1] == old)] = new;
            }
        }
    }

    /// Sums up anew from the end of `path` to the root.
    fn refresh(&mut self, path: &Path) {
        for &at in path.nodes().iter().rev() {
            let Kind::Fork(_, [zero, one]) = self.nodes[at as usize].kind else {
                unreachable!("a path is of forks")
            };
            self.nodes[at as usize].total =
                self.nodes[zero as usize].total.and(self.nodes[one as usize].total);
        }
    }
}

fn side(span: u64, bit: u32) -> usize {
    (span >> bit & 1) as usize
}

/// The forks from the root downwards: at most one a bit.
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
    use crate::dice::Dice;
    use std::collections::BTreeMap;

    #[test]
    fn ranges_equal_a_plain_map_through_random_comings_and_goings() {
        let mut dice = Dice::new(5);
        for round in 0..60 {
            let scale = *dice.pick(&[4, 40, 1 << 20, u64::MAX - 1]);
            let mut classes = Classes::default();
            let mut plain: BTreeMap<u64, Vec<u128>> = BTreeMap::new();
            for _ in 0..400 {
                let span = 1 + dice.roll(scale);
                if dice.chance(55) {
                    let work = u128::from(dice.roll(span));
                    classes.add(span, work);
                    plain.entry(span).or_default().push(work);
                } else if let Some((&span, works)) = plain.range_mut(span..).next() {
                    classes.remove(span, works.pop().unwrap());
                    if works.is_empty() {
                        plain.remove(&span);
                    }
                }
                let range = dice.roll(scale)..dice.roll(scale).saturating_add(2);
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
            // Equal contents are equal trees: built anew in order, every sum is the same to the
            // last bit.
            let mut anew = Classes::default();
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
