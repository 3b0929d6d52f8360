//! From the root to each task.

use super::answer::{Answer, CARD, NoTest, Reason};
use super::keys::Order;
use super::read::{Leaf, Reach, any_scheduler, leaf};
use super::roots::Roots;
use super::servers::Supplied;
use crate::card::{Card, Kind};
use crate::supply::{Curve, Supply, Table, fp};
use crate::verdict::Why;
use crate::{Sporadic, multi, uni};
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use talea_core::machine::{Body, NodeId, Tree};
use talea_core::mutate;
use talea_core::sched::Policy;
use talea_core::server::{Kind as ServerKind, Reservation};
use talea_core::workload::Overheads;
use talea_core::{Span, Work};

/// Where a task or a server competes.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) supply: Supplied,
    pub(super) above: Vec<Curve>,
    pub(super) blocking: u64,
    /// The scheduler whose deadlines order the rest; with `true` by arrival only.
    pub(super) level: Option<(NodeId, bool)>,
    /// Nothing but tasks that compete as such on a CPU of their own, so that only what their
    /// sources can do decides whether a bound is exact: those that are above.
    pub(super) alone: Option<Vec<NodeId>>,
    /// The same below a root that does not preempt.
    pub(super) held: Option<Held>,
}

impl Place {
    /// Alone with this.
    pub(super) fn below_nobody(supply: Supplied) -> Place {
        Place { supply, above: Vec::new(), blocking: 0, level: None, alone: None, held: None }
    }
}

/// Tasks alone on a CPU that nobody takes from who has begun.
#[derive(Clone, Debug)]
pub(super) struct Held {
    /// Those that are above; none under EDF.
    above: Vec<NodeId>,
    /// The others, one of which may have begun.
    below: Vec<NodeId>,
}

/// The walk with what it has found so far.
pub(super) struct Walk<'a> {
    pub(super) tree: &'a Tree,
    pub(super) leaves: BTreeMap<NodeId, Result<Leaf, NoTest>>,
    kids: Vec<Vec<NodeId>>,
    steps: u64,
    /// Something that no test covers, wherever it is.
    pub(super) all: Option<NoTest>,
    blocked: BTreeMap<NodeId, Work>,
    /// What each order to run costs.
    pub(super) order: u64,
    /// What the CPU loses while there is something to do.
    pub(super) lost: Span,
    /// At the highest priority of all.
    pub(super) arrivals: Vec<Curve>,
    pub(super) supplies: BTreeMap<NodeId, Result<Supplied, NoTest>>,
    pub(super) levels: BTreeMap<NodeId, Result<bool, NoTest>>,
    bounds: BTreeMap<NodeId, Option<Result<Span, NoTest>>>,
    /// What a bound is, and whose.
    kinds: BTreeMap<NodeId, (Kind, &'static Card)>,
    /// Of tasks that a graph activates.
    deadlines: BTreeMap<NodeId, Span>,
    /// What is known of an off-line table, or of a graph alone, where nothing else knows anything.
    special: BTreeMap<NodeId, Result<Span, NoTest>>,
    special_card: &'static Card,
}

impl<'a> Walk<'a> {
    pub(super) fn new(of: &Roots<'a>) -> Walk<'a> {
        let tree = of.tree;
        let last = tree.nodes().map(|(id, _)| id.0 as usize).max().unwrap_or(0);
        let mut kids = vec![Vec::new(); last + 1];
        let mut leaves = BTreeMap::new();
        let mut sources = of.sources.iter();
        let mut all = None;
        for (id, node) in tree.nodes() {
            if let Some(parent) = node.parent {
                kids[parent.0 as usize].push(id);
            }
            if let Body::Task(spec) = &node.body {
                let none = NoTest { node: id, reason: Reason::Arrivals };
                let leaf = sources.next().map_or(Err(none), |source| leaf(tree, id, spec, source));
                leaves.insert(id, leaf);
            }
        }
        // Who is above a task of which nothing is known need not care, unless that one holds a CPU
        // or an accelerator against him, or is a matter of overheads. (Resources: where they are
        // read.)
        let pays = of.overheads != Overheads::default();
        let waits = any_scheduler(tree, |spec| !spec.preemptive).is_some();
        let unknown = |leaf: &Result<Leaf, NoTest>| {
            let no = leaf.as_ref().err()?;
            let is_held = no.reason == Reason::Arrivals && is_held(tree, no.node);
            let is_everywhere = pays
                || (waits && mutate!("tree-everywhere", !is_held, is_held))
                || no.reason == Reason::Accelerators;
            is_everywhere.then(|| no.clone())
        };
        if let Some(no) = leaves.values().find_map(unknown) {
            all = Some(no);
        }
        if let Some(node) = any_scheduler(tree, |spec| matches!(spec.policy, Policy::Table { .. }))
        {
            all = Some(NoTest { node, reason: Reason::OfflineTable });
        }
        // What one CPU loses is missing from its supply; of several nobody has looked at it.
        let loses = !of.lost.is_zero();
        mutate!(
            "tree-lost-cpus",
            if mutate!("tree-holes", !of.holes.is_empty(), of.holes.len() > 1)
                || (loses && tree.cpus > 1)
            {
                all = Some(NoTest { node: Tree::ROOT, reason: Reason::Holes });
            },
            if !of.holes.is_empty() {
                all = Some(NoTest { node: Tree::ROOT, reason: Reason::Holes });
            }
        );
        let mut walk = Walk {
            tree,
            leaves,
            kids,
            steps: of.steps,
            all,
            blocked: BTreeMap::new(),
            order: 0,
            lost: of.lost,
            arrivals: Vec::new(),
            supplies: BTreeMap::new(),
            levels: BTreeMap::new(),
            bounds: BTreeMap::new(),
            kinds: BTreeMap::new(),
            deadlines: tree
                .of_roots()
                .into_iter()
                .map(|(node, of)| (node, of.relative_deadline))
                .collect(),
            special: BTreeMap::new(),
            special_card: &super::table::CARD,
        };
        if of.holes.is_empty() && !pays {
            let table =
                super::table::bounds(&walk, of.sources).map(|bounds| (bounds, &super::table::CARD));
            let graph = || {
                super::graph::bounds(&walk, of.sources).map(|bounds| (bounds, &multi::graham::CARD))
            };
            match table.or_else(graph) {
                Some(_) if loses => {
                    walk.all = Some(NoTest { node: Tree::ROOT, reason: Reason::Holes })
                }
                Some(found) => (walk.special, walk.special_card) = found,
                None => {}
            }
        }
        walk.pay(&of.overheads, of.sources);
        match super::resources::blocking(&walk, of.sources) {
            Ok(blocking) => {
                walk.blocked = blocking.terms;
                // Two orders more: to the holder, and back.
                for node in blocking.late {
                    if let Some(Ok(leaf)) = walk.leaves.get_mut(&node) {
                        leaf.task.cost =
                            Work::from_ns(leaf.task.cost.as_ns().saturating_add(2 * walk.order));
                    }
                }
            }
            Err(no) => walk.all = walk.all.take().or(Some(no)),
        }
        walk
    }

    /// How many approximations may be made that look at so much each.
    pub(super) fn rounds(&self, each: usize) -> u64 {
        mutate!("tree-limit", (self.steps / (each as u64 + 1)).max(64), 1)
    }

    /// Whether resources block anybody: by how much differs from task to task.
    pub(super) fn blocks(&self) -> bool {
        !self.blocked.is_empty()
    }

    pub(super) fn answer(&mut self, node: NodeId) -> Answer {
        let own = match self.body(node) {
            Body::Task(spec) => spec.deadline,
            Body::Scheduler(_) => Span::ZERO,
        };
        let deadline = self.deadlines.get(&node).copied().unwrap_or(own);
        if let Some(bound) = self.special.remove(&node) {
            return Answer {
                node,
                deadline,
                bound,
                kind: Kind::Sufficient,
                test: self.special_card,
            };
        }
        let bound = self.bound(node);
        let (kind, test) = self.kind(node);
        Answer { node, deadline, bound, kind, test }
    }

    /// Something that no test covers, wherever it is.
    pub(super) fn is_covered(&self) -> Result<(), NoTest> {
        self.all.clone().map_or(Ok(()), Err)
    }

    pub(super) fn tasks(&self) -> Vec<NodeId> {
        self.leaves.keys().copied().collect()
    }

    pub(super) fn leaf(&self, node: NodeId) -> Result<Leaf, NoTest> {
        self.leaves[&node].clone()
    }

    pub(super) fn kids(&self, node: NodeId) -> &[NodeId] {
        self.kids.get(node.0 as usize).map_or(&[], Vec::as_slice)
    }

    pub(super) fn body(&self, node: NodeId) -> &'a Body {
        &self.tree.get(node).expect("a node of this tree").body
    }

    pub(super) fn parent(&self, node: NodeId) -> Option<NodeId> {
        self.tree.get(node).and_then(|node| node.parent)
    }

    fn kind(&self, node: NodeId) -> (Kind, &'static Card) {
        let other = if self.tree.cpus > 1 { super::global::card(self.tree) } else { &CARD };
        self.kinds.get(&node).copied().unwrap_or((Kind::Sufficient, other))
    }

    /// What a test is here that is exact if its worst case happens: all of `tasks` may start
    /// together at their worst, and `who`, where it is one of those that may come whenever they
    /// like, at any distance from the others.
    pub(super) fn kind_of(&self, tasks: &[NodeId]) -> Kind {
        let mut together = None;
        for task in tasks {
            mutate!(
                "tree-exact-sources",
                match self.leaves[task].as_ref().map(|leaf| leaf.reach) {
                    Ok(Reach::Any) => {}
                    Ok(fixed @ Reach::Fixed { .. })
                        if together.is_none_or(|first| first == fixed) =>
                    {
                        together = Some(fixed);
                    }
                    _ => return Kind::Sufficient,
                },
                match self.leaves[task].as_ref().map(|leaf| leaf.reach) {
                    Ok(Reach::Any) => {}
                    Ok(fixed @ Reach::Fixed { .. })
                        if together.is_none_or(|first| first == fixed) =>
                    {
                        together = Some(fixed);
                    }
                    _ => {}
                }
            )
        }
        Kind::Exact
    }

    /// The longest response of a task, counted from its arrival.
    pub(super) fn bound(&mut self, node: NodeId) -> Result<Span, NoTest> {
        if let Some(no) = &self.all {
            return Err(no.clone());
        }
        match self.bounds.get(&node) {
            Some(Some(found)) => return found.clone(),
            // It is being looked for: responses that need each other.
            Some(None) => return Err(NoTest { node, reason: Reason::Circular }),
            None => {}
        }
        self.bounds.insert(node, None);
        let found = if self.tree.cpus > 1 { self.bound_of_many(node) } else { self.bound_of(node) };
        self.bounds.insert(node, Some(found.clone()));
        found
    }

    fn bound_of(&mut self, node: NodeId) -> Result<Span, NoTest> {
        let place = self.place(node)?;
        if place.level.is_some() {
            let (bound, named) = self.bound_by_deadline(node, &place)?;
            if place.alone.is_some() {
                self.kinds.insert(node, named);
            }
            return Ok(bound);
        }
        if let Some(held) = &place.held
            && let Some((found, kind)) = self.held_response(node, held)?
        {
            self.kinds.insert(node, (kind, &uni::np_fp::CARD));
            return found;
        }
        let task = Sporadic { blocking: Work::from_ns(place.blocking), ..self.leaf(node)?.task };
        if let Some(above) = &place.alone {
            self.kinds.insert(
                node,
                (self.kind_of(&[above.as_slice(), &[node]].concat()), &uni::fp_response::CARD),
            );
        }
        self.response(node, &task, &place)
    }

    /// What a bound is, and whose.
    pub(super) fn names(&mut self, node: NodeId, of: (Kind, &'static Card)) {
        self.kinds.insert(node, of);
    }

    /// A bound that was found together with others.
    pub(super) fn found(
        &mut self,
        node: NodeId,
        bound: Result<Span, NoTest>,
        of: (Kind, &'static Card),
    ) {
        self.bounds.insert(node, Some(bound));
        self.kinds.insert(node, of);
    }

    /// The longest response of a task below a root that does not preempt, by the test for that, and
    /// what it is: exact where all that is above may come just after the longest of the others has
    /// begun. `None` beyond the limit.
    #[allow(clippy::type_complexity, reason = "a bound with its kind, or neither")]
    fn held_response(
        &self,
        node: NodeId,
        held: &Held,
    ) -> Result<Option<(Result<Span, NoTest>, Kind)>, NoTest> {
        let nodes = [held.above.as_slice(), &[node]].concat();
        let tasks = nodes
            .iter()
            .map(|&node| Ok(self.leaf(node)?.task))
            .collect::<Result<Vec<_>, NoTest>>()?;
        let below =
            held.below.iter().map(|&node| self.leaf(node)).collect::<Result<Vec<_>, NoTest>>()?;
        let longest = mutate!(
            "tree-begun",
            below.iter().map(|leaf| leaf.task.cost).max(),
            below.iter().map(|leaf| leaf.task.cost).min()
        )
        .unwrap_or(Work::ZERO);
        let kind = if !self.lost.is_zero() {
            Kind::Sufficient
        } else if longest <= Work::from_ns(1) {
            self.kind_of(&nodes)
        } else {
            let is_any =
                |node: &NodeId| self.leaf(*node).is_ok_and(|leaf| leaf.reach == Reach::Any);
            let blocks = |leaf: &Leaf| leaf.task.cost == longest && leaf.reach == Reach::Any;
            let is_exact = nodes.iter().all(is_any) && below.iter().any(blocks);
            if is_exact { Kind::Exact } else { Kind::Sufficient }
        };
        // What is lost before it begins keeps it from beginning, as the longest of the others does,
        // once; what it loses later adds no more than that.
        let longest = Work::from_ns(mutate!(
            "tree-lost-begins",
            longest.as_ns().max(1).saturating_add(self.lost.as_ns()),
            longest.as_ns().max(1)
        ));
        let found = uni::np_fp::lowest(&tasks, longest, &mut uni::Scratch::with_limit(self.steps));
        Ok(match found {
            Ok(Some(bound)) => Some((Ok(bound.arrival), kind)),
            Ok(None) => Some((Err(NoTest { node, reason: Reason::Overload }), kind)),
            Err(_) => None,
        })
    }

    pub(super) fn response(
        &self,
        node: NodeId,
        task: &Sporadic,
        place: &Place,
    ) -> Result<Span, NoTest> {
        let mut all = place.above.clone();
        all.push(fp::curve(task));
        if is_overload(&all, &place.supply) {
            return Err(NoTest { node, reason: Reason::Overload });
        }
        // The same on a CPU, which also knows when a busy window that does not end shows nothing
        // new.
        if let Some(lost) = place.supply.lost_by_cpu() {
            let blocking = Work::from_ns(task.blocking.as_ns().saturating_add(lost.as_ns()));
            let task = &Sporadic { blocking, ..*task };
            let above = place.above.iter().map(|one| Sporadic {
                jitter: one.jitter,
                ..Sporadic::new(one.cost, one.period, Span::ZERO)
            });
            let tasks: Vec<Sporadic> = above.chain([*task]).collect();
            match uni::fp_response::lowest(&tasks, &mut uni::Scratch::with_limit(self.steps)) {
                Ok(Some(bound)) => return Ok(bound.arrival),
                Ok(None) => return Err(NoTest { node, reason: Reason::Overload }),
                Err(_) => {}
            }
        }
        let mut longest = Span::ZERO;
        let mut left = self.rounds(place.above.len());
        let walked = fp::walk(task, &place.above, &place.supply, &mut left, |_, bound| {
            longest = longest.max(bound.arrival);
            false
        });
        match walked {
            Ok(()) => Ok(longest),
            Err(Why::Limit) => Err(NoTest { node, reason: Reason::Limit }),
            Err(why @ (Why::Assumption { .. } | Why::Insufficient { .. })) => {
                unreachable!("a task that was read is one: {why:?}")
            }
        }
    }

    /// Where `who`, a task or a server, competes: from the nearest server above it, or from the
    /// root.
    pub(super) fn place(&mut self, who: NodeId) -> Result<Place, NoTest> {
        let mut place = self.find_place(who)?;
        place.blocking = place.blocking.saturating_add(self.orders_under_way(&place));
        mutate!(
            "tree-lost-server",
            if !self.lost.is_zero() {
                place.supply =
                    place.supply.without(mutate!("tree-lost-supply", self.lost, Span::ZERO));
                place.alone = None;
                // By deadline all that may be under way is in the blocking.
                mutate!(
                    "tree-lost-level",
                    {
                        place.held = place.held.filter(|_| place.level.is_none());
                    },
                    {}
                );
            },
            if !self.lost.is_zero() && matches!(self.body(who), Body::Task(_)) {
                place.supply = place.supply.without(self.lost);
                place.alone = None;
                // By deadline all that may be under way is in the blocking.
                place.held = place.held.filter(|_| place.level.is_none());
            }
        );
        Ok(place)
    }

    fn find_place(&mut self, who: NodeId) -> Result<Place, NoTest> {
        let mut path = Vec::from([who]);
        let mut top = who;
        while let Some(above) = self.parent(top) {
            path.push(above);
            top = above;
            if self.gates(above) {
                break;
            }
        }
        path.reverse();
        let supply =
            if self.gates(top) && top != who { self.supply_of(top)? } else { Supplied::Dedicated };
        let is_alone = matches!(supply, Supplied::Dedicated);
        let mut place = Place {
            supply,
            above: self.arrivals.clone(),
            blocking: self.blocked.get(&who).map_or(0, |blocked| blocked.as_ns()),
            level: None,
            alone: (is_alone && self.order == 0 && self.arrivals.is_empty() && !self.blocks())
                .then(Vec::new),
            held: None,
        };
        // Everything below is above, whatever its order: no set of it is served before the rest.
        let mut whole = false;
        let mut floor: Option<(Order, u64, Option<u64>)> = None;
        for step in path.windows(2) {
            let (at, next) = (step[0], step[1]);
            let Body::Scheduler(spec) = self.body(at) else { continue };
            let others: Vec<NodeId> =
                self.kids(at).iter().copied().filter(|&kid| kid != next).collect();
            if let Some(order) = Order::of(&spec.policy).filter(|_| !whole) {
                let shown = self.shown(order, next, who)?;
                let from_above = floor.filter(|&(of, ..)| of == order);
                let mut key = from_above.map_or(shown, |(_, floor, _)| shown.max(floor));
                let mut worst = from_above.and_then(|(.., worst)| worst);
                // Equals with larger numbers come after `next`, but perhaps before others that are
                // above and can show the same.
                let mut wins_ties = !order.is_fifo() && worst < Some(shown);
                for &other in others.iter().filter(|&&other| other > next) {
                    let range = self.range(order, other)?;
                    wins_ties &= range.is_none_or(|(most, least)| most >= shown || least < shown);
                }
                // Whoever is above must in turn be served before all that is not: also those who
                // are above further down.
                let beside = [others.as_slice(), &self.beside(order, next, who)].concat();
                while let Some(least) = self.least_above(order, &beside, key)? {
                    worst = worst.max(Some(least));
                    if least <= key {
                        break;
                    }
                    key = least;
                }
                for &other in &others {
                    let strictly = wins_ties && other > next && key == shown;
                    // Equals in a queue wait for each other or not.
                    let is_tie = order.is_fifo()
                        && self
                            .range(order, other)?
                            .is_some_and(|(most, least)| most <= key && key <= least);
                    let before = place.above.len();
                    self.collect(order, other, (key, strictly), &mut place.above)?;
                    if !matches!(self.body(other), Body::Task(_)) || is_tie {
                        place.alone = None;
                    } else if let Some(alone) = &mut place.alone
                        && place.above.len() > before
                    {
                        alone.push(other);
                    }
                }
                if next != who {
                    place.alone = None;
                }
                floor = self.passes(order, next).then_some((order, key, worst));
                if floor.is_none() && worst >= self.range(order, next)?.map(|(most, _)| most) {
                    // Others in `next` can run before somebody who is above.
                    whole = next != who;
                }
                if !spec.preemptive {
                    place.held = place.alone.take().map(|above| {
                        let below =
                            others.iter().copied().filter(|other| !above.contains(other)).collect();
                        Held { above, below }
                    });
                    self.forbid_servers(at)?;
                    // Also others in the own group, while somebody above waits.
                    let all = self.kids(at).to_vec();
                    let begun = match &place.held {
                        Some(held) => &held.below,
                        None if next == who => &others,
                        None => &all,
                    };
                    place.blocking += self.longest_below(begun)?;
                }
                continue;
            }
            match &spec.policy {
                Policy::Partitions { frame, slots, lending } => {
                    place.alone = None;
                    self.is_held_to_slots(at)?;
                    if !matches!(place.supply, Supplied::Dedicated) {
                        return Err(NoTest { node: at, reason: Reason::NestedTable });
                    }
                    let owner = self.kids(at).iter().position(|&kid| kid == next).unwrap_or(0);
                    place.supply = Supplied::Table(Table::new(*frame, slots, owner as u32));
                    if let Some((order, _, worst)) = floor
                        && !self.passes(order, next)
                    {
                        floor = None;
                        whole |=
                            next != who && worst >= self.range(order, next)?.map(|(most, _)| most);
                    }
                    if *lending && !place.above.is_empty() {
                        // Where somebody above has time lent to others before him, it is missing
                        // later.
                        for other in others {
                            let takes = self.by_responses(other);
                            place
                                .above
                                .extend(takes.ok_or(NoTest { node: at, reason: Reason::Lending })?);
                        }
                    }
                }
                Policy::Edf if !whole && self.is_level(at, next, who) => {
                    if !spec.preemptive {
                        let is_held = place.alone.take().is_some() && self.is_queue(at, next, who);
                        place.held = is_held.then(|| Held { above: Vec::new(), below: others });
                        self.forbid_servers(at)?;
                        // The same for all of the level.
                        let kids = self.kids(at).to_vec();
                        place.blocking += self.longest_below(&kids)?;
                    }
                    place.level = Some((at, false));
                    return Ok(place);
                }
                Policy::Fifo if !whole && self.is_queue(at, next, who) => {
                    if !spec.preemptive {
                        // Who came first may be released after one that came later and has begun.
                        place.alone = None;
                        let kids = self.kids(at).to_vec();
                        place.blocking += self.longest_below(&kids)?;
                    }
                    place.level = Some((at, true));
                    return Ok(place);
                }
                _ => {
                    place.alone = None;
                    if !spec.preemptive {
                        self.forbid_servers(at)?;
                    }
                    for &other in &others {
                        self.collect_all(other, &mut place.above)?;
                    }
                    mutate!(
                        "tree-closure",
                        {
                            whole = true;
                        },
                        {}
                    );
                }
            }
        }
        Ok(place)
    }

    /// Whether it is a server that decides what its clients are supplied.
    fn gates(&self, node: NodeId) -> bool {
        let Body::Scheduler(spec) = self.body(node) else { return false };
        spec.reservation.as_ref().is_some_and(waits)
    }

    /// Whether the deadlines of all that is between `at` and `who` are those of a single EDF level.
    fn is_level(&self, at: NodeId, next: NodeId, who: NodeId) -> bool {
        let mut node = who;
        while node != next {
            let Some(above) = self.parent(node) else { return false };
            if !self.is_plain_edf(above) {
                return false;
            }
            node = above;
        }
        self.entities(at).is_some()
    }

    /// Only tasks, by arrival.
    fn is_queue(&self, at: NodeId, next: NodeId, who: NodeId) -> bool {
        next == who && self.kids(at).iter().all(|&kid| matches!(self.body(kid), Body::Task(_)))
    }

    /// All that competes by deadline in the level of `at`: tasks and servers; `None` if there is
    /// anything else.
    pub(super) fn entities(&self, at: NodeId) -> Option<Vec<NodeId>> {
        let mut found = Vec::new();
        for &kid in self.kids(at) {
            match self.body(kid) {
                Body::Task(_) => found.push(kid),
                Body::Scheduler(spec) if spec.reservation.is_some() => found.push(kid),
                Body::Scheduler(_) if self.is_plain_edf(kid) => found.extend(self.entities(kid)?),
                Body::Scheduler(_) => return None,
            }
        }
        Some(found)
    }

    fn is_plain_edf(&self, node: NodeId) -> bool {
        matches!(self.body(node), Body::Scheduler(spec)
            if matches!(spec.policy, Policy::Edf) && spec.reservation.is_none() && spec.preemptive)
    }

    fn forbid_servers(&self, at: NodeId) -> Result<(), NoTest> {
        let mut next = Vec::from(self.kids(at));
        while let Some(node) = next.pop() {
            if let Body::Scheduler(spec) = self.body(node)
                && spec.reservation.is_some()
            {
                return Err(NoTest { node, reason: Reason::ServerNotPreemptive });
            }
            next.extend_from_slice(self.kids(node));
        }
        Ok(())
    }

    /// Whether the slots of `table` begin and end when they should. Below a scheduler that does not
    /// preempt somebody else can begin just before any of them, again and again, for whoever waits
    /// for his slot is no reason not to; and who begins in one goes on beyond it.
    pub(super) fn is_held_to_slots(&self, table: NodeId) -> Result<(), NoTest> {
        let does_not = matches!(self.body(table), Body::Scheduler(spec) if !spec.preemptive);
        mutate!(
            "tree-held-slots",
            if does_not || self.goes_on_above(table) {
                return Err(NoTest { node: table, reason: Reason::NonPreemptiveTable });
            },
            if does_not {
                return Err(NoTest { node: table, reason: Reason::NonPreemptiveTable });
            }
        );
        Ok(())
    }

    /// Whether a scheduler above `node` does not preempt.
    pub(super) fn goes_on_above(&self, node: NodeId) -> bool {
        self.tree.above(node).any(|(_, spec)| !spec.preemptive)
    }

    /// What may be under way among `nodes` and not to be interrupted. Of a group, one job of each
    /// of its tasks: one interrupts the other, and only a completion is an occasion to choose anew.
    fn longest_below(&self, nodes: &[NodeId]) -> Result<u64, NoTest> {
        let mut longest = 0u64;
        for &node in nodes {
            let (mut sum, mut next) = (0u64, Vec::from([node]));
            while let Some(node) = next.pop() {
                if let Body::Task(_) = self.body(node) {
                    sum = sum.saturating_add(self.leaf(node)?.task.cost.as_ns());
                }
                next.extend_from_slice(self.kids(node));
            }
            longest = longest.max(sum.saturating_sub(1));
        }
        Ok(longest)
    }
}

/// Whether a server with a hard budget stands above: whatever its clients do, others lose no more
/// than that, and only those inside ask when they come.
fn is_held(tree: &Tree, task: NodeId) -> bool {
    tree.above(task)
        .any(|(_, spec)| spec.reservation.as_ref().is_some_and(|of| Curve::of_server(of).is_some()))
}

/// Whether a server may keep its clients waiting. A soft CBS does for its first period, and after a
/// wake-up between D and T.
pub(super) fn waits(of: &Reservation) -> bool {
    of.kind != ServerKind::SoftCbs || !of.offset.is_zero() || of.relative_deadline() < of.period
}

/// Whether `curves` surely ask for more than `supply` has in the long run.
pub(super) fn is_overload(curves: &[Curve], supply: &impl Supply) -> bool {
    let Some(rate) = supply.rate() else { return false };
    let down =
        |work: Work, every: Span| (u128::from(work.as_ns()) << 63) / u128::from(every.as_ns());
    let asked: u128 = curves.iter().map(|curve| down(curve.cost, curve.period)).sum();
    asked > down(rate.work, rate.every) + 1
}
