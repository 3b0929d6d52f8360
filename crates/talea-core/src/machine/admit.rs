//! Admission: who may be a child of whom, and whether servers are promised more than there is.
//!
//! The first is asked of each policy, and what it refuses is not built. The second is the
//! description's: [`Tree::build`] makes machines of overbooked trees too, because what happens then
//! is defined and worth a simulation; whoever takes a description for a contract, as the reader of
//! system files does, asks [`Tree::admit`] as well (L23).

use super::spec::{Body, SchedulerSpec};
use super::tree::{Node, NodeId, Tree};
use super::wrong::{TreeError, Wrong};
use crate::criteria::Criteria;
use crate::mutate;
use crate::sched::{Built, Newcomer, Policy, Scheduler};
use crate::server::Reservation;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

impl Tree {
    /// The policy of a scheduler, which has taken all of its children. Graphs are sound: a policy
    /// from outside is told what their nodes inherit.
    pub(super) fn policy(
        &self,
        id: NodeId,
        spec: &SchedulerSpec,
        children: &[NodeId],
    ) -> Result<Built, TreeError> {
        let mut built = spec.policy.build(children.len());
        if let Policy::Custom { name, .. } = spec.policy {
            // Lanes of a root with several CPUs are neither charged nor woken.
            if id == Tree::ROOT
                && self.cpus > 1
                && (built.metered() || built.next_wakeup().is_some())
            {
                return Err(TreeError { node: id, why: Wrong::ManyCpus { policy: name } });
            }
            let inherited = self.inherited();
            let nodes = children.iter().filter_map(|&node| Some((node, self.get(node)?)));
            for (child, (node, what)) in (0..).zip(nodes) {
                mutate!(
                    "core-policy-outside",
                    built.admit(&newcomer(child, what, inherited.get(&node))).map_err(|why| {
                        let why = Wrong::NotAdmitted { policy: name, why };
                        TreeError { node, why }
                    }),
                    built.admit(&newcomer(child, what, inherited.get(&node))).or(Ok(())).map_err(
                        |why| {
                            let why = Wrong::NotAdmitted { policy: name, why };
                            TreeError { node, why }
                        }
                    )
                )?;
            }
        }
        Ok(built)
    }

    /// Whether every server can have what it is promised: below each scheduler, the sum of Q/T of
    /// the servers that have no other one between is at most what the scheduler has. That is its
    /// own Q/T if it is a server; a whole CPU if it is not; all of its CPUs if it is a root, and
    /// any set of them for the children that may use no others.
    ///
    /// A partition table is not counted: its slots are what the servers beside it leave over.
    ///
    /// # Errors
    /// The first scheduler that is promised away twice. Sums that are beyond by less than 2^-100
    /// pass.
    pub fn admit(&self) -> Result<(), TreeError> {
        let mut asked: BTreeMap<NodeId, Share> = BTreeMap::new();
        // Of a root with several CPUs, by the set that a server may use.
        let mut sets: BTreeMap<u64, Share> = BTreeMap::new();
        for (id, node) in self.nodes() {
            let Some(reservation) = reservation_of(node) else { continue };
            let share = Share::of(reservation);
            let mut top = node;
            for (above, spec) in self.above(id) {
                asked.entry(above).or_default().add(share);
                if above == Tree::ROOT {
                    let all = u64::MAX >> (64 - self.cpus.clamp(1, 64));
                    sets.entry(top.affinity().0 & all).or_default().add(share);
                } else if let Some(node) = self.get(above) {
                    top = node;
                }
                if spec.reservation.is_some() {
                    break;
                }
            }
        }
        for (&node, &asked) in asked.iter().filter(|&(&node, _)| node != Tree::ROOT) {
            let there = self.get(node).and_then(reservation_of).map_or(
                Share::cpus(1),
                mutate!("core-admit-nested", Share::of, |_| Share::cpus(1)),
            );
            asked.within(there, node)?;
        }
        if let Some(own) = self.get(Tree::ROOT).and_then(reservation_of) {
            return asked
                .get(&Tree::ROOT)
                .map_or(Ok(()), |asked| asked.within(Share::of(own), Tree::ROOT));
        }
        let Some(cpus) = overbooked(&sets) else { return Ok(()) };
        let mut sum = Share::default();
        sets.iter().filter(|&(of, _)| of & !cpus == 0).for_each(|(_, share)| sum.add(*share));
        sum.within(Share::cpus(cpus.count_ones()), Tree::ROOT)
    }
}

/// CPUs that cannot hold the servers that may use no others, if there are such: by a maximum flow
/// of shares to CPUs, so that unions of sets count as well (Hall's theorem). Each set sends what it
/// has along the shortest ways (Edmonds and Karp, 1972), of which others may have to make room;
/// where none is left, the CPUs in reach are full of those that have no others.
fn overbooked(sets: &BTreeMap<u64, Share>) -> Option<u64> {
    let sets: Vec<(u64, Share)> = sets.iter().map(|(&set, &share)| (set, share)).collect();
    let mut room = [Share::cpus(1); 64];
    let mut flow = alloc::vec![[Share::default(); 64]; sets.len()];
    for (source, &(_, mut rest)) in sets.iter().enumerate() {
        while rest > Share::default() {
            // From which set a CPU was reached, and from which CPU a set.
            let (mut reached, mut of_cpu, mut of_set) =
                (0u64, [0; 64], alloc::vec![None; sets.len()]);
            let mut next = Vec::from([source]);
            let mut end = None;
            let mut at = 0;
            while let (None, Some(&set)) = (end, next.get(at)) {
                at += 1;
                for cpu in bits(sets[set].0 & !reached) {
                    reached |= 1 << cpu;
                    of_cpu[cpu] = set;
                    if room[cpu] > Share::default() {
                        end = Some(cpu);
                        break;
                    }
                    for other in 0..sets.len() {
                        let is_new = other != source && of_set[other].is_none();
                        if is_new
                            && flow[other][cpu]
                                > mutate!("core-admit-sets", Share::default(), Share::cpus(1))
                        {
                            of_set[other] = Some(cpu);
                            next.push(other);
                        }
                    }
                }
            }
            let Some(end) = end else { return Some(reached) };
            let way = || {
                core::iter::successors(Some((of_cpu[end], end)), |&(set, _)| {
                    of_set[set].map(|cpu| (of_cpu[cpu], cpu))
                })
            };
            let moved = way()
                .filter_map(|(set, _)| of_set[set].map(|cpu| flow[set][cpu]))
                .fold(rest.min(room[end]), Share::min);
            room[end].take(moved);
            rest.take(moved);
            for (set, cpu) in way() {
                flow[set][cpu].add(moved);
                if let Some(left) = of_set[set] {
                    flow[set][left].take(moved);
                }
            }
        }
    }
    None
}

fn bits(mut set: u64) -> impl Iterator<Item = usize> {
    core::iter::from_fn(move || {
        let bit = set.trailing_zeros() as usize;
        set &= set.wrapping_sub(1);
        (bit < 64).then_some(bit)
    })
}

fn reservation_of(node: &Node) -> Option<&Reservation> {
    match &node.body {
        Body::Scheduler(spec) => spec.reservation.as_ref(),
        Body::Task(_) => None,
    }
}

fn newcomer<'a>(child: u32, node: &'a Node, inherited: Option<&Criteria>) -> Newcomer<'a> {
    match &node.body {
        Body::Task(spec) => {
            let criteria = Criteria {
                period: spec.period,
                relative_deadline: spec.deadline,
                priority: spec.priority,
                criticality: spec.criticality,
                ..Criteria::LEAST
            };
            let criteria = mutate!(
                "core-admit-node",
                inherited.copied(),
                inherited.filter(|_| false).copied()
            )
            .unwrap_or(criteria);
            Newcomer { child, name: &spec.name, criteria, cost: spec.cost }
        }
        Body::Scheduler(spec) => {
            let mut criteria = spec.own.over(&Criteria::LEAST);
            if let Some(of) = &spec.reservation {
                (criteria.period, criteria.relative_deadline) = (of.period, of.relative_deadline());
            }
            let cost = spec.reservation.as_ref().map(|reservation| reservation.budget);
            Newcomer { child, name: &spec.name, criteria, cost }
        }
    }
}

/// CPUs, as a binary number with 128 digits after the point, cut off: a sum that is exactly what
/// there is stays within it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Share {
    whole: u64,
    part: u128,
}

impl Share {
    fn cpus(count: u32) -> Share {
        Share { whole: u64::from(count), part: 0 }
    }

    fn of(reservation: &Reservation) -> Share {
        // Long division, 64 digits at a time: a remainder is below 2^64.
        let period = u128::from(reservation.period.as_ns().max(1));
        let budget = u128::from(reservation.budget.as_ns());
        let mut rest = budget % period;
        let mut part = 0;
        for _ in 0..2 {
            part = (part << 64) | ((rest << 64) / period);
            rest = (rest << 64) % period;
        }
        Share { whole: (budget / period) as u64, part }
    }

    fn add(&mut self, other: Share) {
        let (part, carry) = self.part.overflowing_add(other.part);
        self.part = part;
        self.whole = self.whole.saturating_add(other.whole).saturating_add(u64::from(carry));
    }

    /// No more than there is.
    fn take(&mut self, other: Share) {
        let (part, borrow) = self.part.overflowing_sub(other.part);
        self.part = part;
        self.whole -= other.whole + u64::from(borrow);
    }

    /// Rounded to the nearest.
    fn millionths(self) -> u64 {
        let part = ((self.part >> 64) * 1_000_000 + (1 << 63)) >> 64;
        self.whole.saturating_mul(1_000_000).saturating_add(part as u64)
    }

    fn within(self, there: Share, node: NodeId) -> Result<(), TreeError> {
        if mutate!("core-admit-sum", self <= there, self.whole <= there.whole) {
            return Ok(());
        }
        let there = there.millionths();
        let asked = self.millionths().max(there + 1);
        Err(TreeError { node, why: Wrong::Overbooked { asked, there } })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::{Affinity, TaskSpec};
    use crate::sched::{Child, Entry, Resched};
    use crate::server::Kind;
    use crate::{Span, Time, Work};
    use alloc::boxed::Box;
    use alloc::string::{String, ToString};

    fn server(budget: u64, period: u64) -> SchedulerSpec {
        let mut spec = SchedulerSpec::new("server", Policy::Fifo);
        spec.reservation =
            Some(Reservation::new(Kind::HardCbs, Work::from_ns(budget), Span::from_ns(period)));
        spec
    }

    fn tree(cpus: u32, servers: &[(u64, u64)]) -> Tree {
        let mut tree = Tree::new(cpus, SchedulerSpec::new("root", Policy::Edf));
        for &(budget, period) in servers {
            tree.scheduler(Tree::ROOT, server(budget, period));
        }
        tree
    }

    #[test]
    fn l23_a_sum_of_exactly_one_is_admitted_and_the_least_more_is_not() {
        assert_eq!(tree(1, &[(1, 3), (1, 3), (1, 3)]).admit(), Ok(()));
        assert_eq!(tree(1, &[(1, 7), (2, 11), (52, 77)]).admit(), Ok(()));
        // 2^61 and the prime below: beyond one by less than 2^-119.
        let (large, prime) = (1 << 61, (1 << 61) - 1);
        assert_eq!(tree(1, &[(large / 2, large), (prime / 2, prime)]).admit(), Ok(()));
        let refused =
            tree(1, &[(large / 2, large), (prime / 2 + 1, prime)]).admit().expect_err("refused");
        assert_eq!(refused.why, Wrong::Overbooked { asked: 1_000_001, there: 1_000_000 });
        assert_eq!(refused.node, Tree::ROOT);
        let refused = tree(1, &[(5, 10), (6, 10)]).admit().expect_err("refused").why.to_string();
        assert_eq!(
            refused,
            "the servers in it are promised 110 per cent of a CPU together, and it has 100"
        );
        assert!(
            tree(1, &[(5, 10), (6, 10)]).build().is_ok(),
            "and yet it can be built and watched"
        );
        assert_eq!(tree(2, &[(5, 10), (6, 10)]).admit(), Ok(()));
        assert!(tree(2, &[(10, 10), (10, 10), (1, 10)]).admit().is_err());
    }

    #[test]
    fn l23_a_server_gives_away_no_more_than_it_has_and_a_group_no_more_than_a_cpu() {
        let mut nested = tree(1, &[(5, 10)]);
        let outer = NodeId(1);
        nested.scheduler(outer, server(1, 4));
        nested.scheduler(outer, server(1, 4));
        assert_eq!(nested.admit(), Ok(()), "half of half, twice");
        nested.scheduler(outer, server(1, 1_000));
        let why = Wrong::Overbooked { asked: 501_000, there: 500_000 };
        assert_eq!(nested.admit(), Err(TreeError { node: outer, why }));
        let mut clustered = tree(4, &[]);
        let group = clustered.scheduler(Tree::ROOT, SchedulerSpec::new("band", Policy::Edf));
        clustered.scheduler(group, server(6, 10));
        assert_eq!(clustered.admit(), Ok(()));
        clustered.scheduler(group, server(6, 10));
        assert_eq!(clustered.admit().expect_err("one CPU at a time").node, group);
    }

    #[test]
    fn l23_servers_with_affinities_share_the_cpus_that_they_may_use() {
        let mut tree = tree(2, &[]);
        for _ in 0..2 {
            let mut pinned = server(6, 10);
            pinned.affinity = Affinity::only(1);
            tree.scheduler(Tree::ROOT, pinned);
        }
        let why = Wrong::Overbooked { asked: 1_200_000, there: 1_000_000 };
        assert_eq!(tree.admit(), Err(TreeError { node: Tree::ROOT, why }));
    }

    fn on(tree: &mut Tree, budget: u64, period: u64, cpus: u64) {
        let mut spec = server(budget, period);
        spec.affinity = Affinity(cpus);
        tree.scheduler(Tree::ROOT, spec);
    }

    #[test]
    fn l23_sets_of_cpus_that_overlap_are_counted_together() {
        let mut four = tree(4, &[]);
        for cpus in [0b011, 0b011, 0b110, 0b110] {
            on(&mut four, 8, 10, cpus);
        }
        let why = Wrong::Overbooked { asked: 3_200_000, there: 3_000_000 };
        assert_eq!(four.admit(), Err(TreeError { node: Tree::ROOT, why }));
        // Thirds that fill three CPUs to the brim, if who came first makes room; and the least
        // more.
        let mut full = tree(4, &[]);
        for cpus in [0b111, 0b111, 0b111, 0b111, 0b011, 0b011, 0b011, 0b110, 0b110] {
            on(&mut full, 1, 3, cpus);
        }
        assert_eq!(full.admit(), Ok(()));
        on(&mut full, 1, 1_000_000, 0b101);
        let why = Wrong::Overbooked { asked: 3_000_001, there: 3_000_000 };
        assert_eq!(full.admit(), Err(TreeError { node: Tree::ROOT, why }));
    }

    #[test]
    fn l23_what_is_admitted_fits_into_every_set_of_cpus() {
        let mut seed = 1u64;
        let mut random = |below: u64| {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % below
        };
        let mut admitted = 0;
        for case in 0..2_000 {
            let servers: Vec<(u64, u64)> =
                (0..random(9) + 4).map(|_| (random(10) + 1, random(31) + 1)).collect();
            let mut tree = tree(5, &[]);
            for &(tenths, cpus) in &servers {
                on(&mut tree, tenths, 10, cpus);
            }
            let fits = (1..32).all(|set: u64| {
                let inside = servers.iter().filter(|(_, cpus)| cpus & !set == 0);
                inside.map(|(tenths, _)| tenths).sum::<u64>() <= u64::from(set.count_ones()) * 10
            });
            admitted += u32::from(fits);
            assert_eq!(tree.admit().is_ok(), fits, "case {case}: {servers:?}");
        }
        assert!((200..1_800).contains(&admitted), "{admitted} of 2,000");
    }

    /// Takes only what says what it costs, and at most two.
    #[derive(Debug)]
    struct Choosy(u32);

    impl Scheduler for Choosy {
        fn admit(&mut self, who: &Newcomer<'_>) -> Result<(), String> {
            self.0 += 1;
            match who.cost {
                None => Err("say what it costs".into()),
                Some(_) if self.0 > 2 => Err("two are enough".into()),
                Some(_) => Ok(()),
            }
        }
        fn ready(&mut self, _: Time, _: &Entry) -> Resched {
            Resched::Keep
        }
        fn finished(&mut self, _: Time, _: Child) -> Resched {
            Resched::Keep
        }
        fn update(&mut self, _: Time, _: &Entry) -> Resched {
            Resched::Keep
        }
        fn head(&self, _: Time) -> Option<Child> {
            None
        }
        fn before(&self, _: Time, a: &Entry, b: &Entry) -> bool {
            a.child < b.child
        }
        fn metered(&self) -> bool {
            true
        }
    }

    /// Takes only what has a period.
    #[derive(Debug)]
    struct Regular(Choosy);

    impl Scheduler for Regular {
        fn admit(&mut self, who: &Newcomer<'_>) -> Result<(), String> {
            let Criteria { period, relative_deadline: deadline, priority, .. } = who.criteria;
            let what = || alloc::format!("{} {} {priority}", period.as_ns(), deadline.as_ns());
            if period.is_zero() || who.name == "refused" { Err(what()) } else { Ok(()) }
        }
        fn ready(&mut self, now: Time, who: &Entry) -> Resched {
            self.0.ready(now, who)
        }
        fn finished(&mut self, now: Time, who: Child) -> Resched {
            self.0.finished(now, who)
        }
        fn update(&mut self, now: Time, who: &Entry) -> Resched {
            self.0.update(now, who)
        }
        fn head(&self, now: Time) -> Option<Child> {
            self.0.head(now)
        }
        fn before(&self, now: Time, a: &Entry, b: &Entry) -> bool {
            self.0.before(now, a, b)
        }
    }

    #[test]
    fn y9_y21_a_policy_from_outside_is_told_what_a_node_inherits() {
        let regular = Policy::Custom { name: "regular", make: |_| Box::new(Regular(Choosy(0))) };
        let mut tree = Tree::new(1, SchedulerSpec::new("root", regular));
        let root = TaskSpec { priority: 4, ..TaskSpec::new("camera", Span::from_ns(9)) };
        let root = tree.task(Tree::ROOT, TaskSpec { deadline: Span::from_ns(7), ..root });
        let node = tree.task(Tree::ROOT, TaskSpec::node("detect"));
        tree.channel(root, node, 1);
        assert!(tree.build().is_ok());
        let last = tree.task(Tree::ROOT, TaskSpec::node("refused"));
        tree.channel(node, last, 1);
        let why = Wrong::NotAdmitted { policy: "regular", why: "9 7 4".into() };
        assert_eq!(tree.check(), Err(TreeError { node: last, why }));
        // A circle inherits nothing, and is refused for what it is.
        tree.channel(last, node, 1);
        assert!(!matches!(tree.check().expect_err("a circle").why, Wrong::NotAdmitted { .. }));
    }

    #[test]
    fn l8_a_policy_from_outside_says_whom_it_takes_before_anything_is_built() {
        let choosy = Policy::Custom { name: "choosy", make: |_| Box::new(Choosy(0)) };
        let mut tree = Tree::new(1, SchedulerSpec::new("root", choosy));
        let dear = |name: &str| TaskSpec {
            cost: Some(Work::from_ns(1)),
            ..TaskSpec::new(name, Span::from_ns(9))
        };
        tree.task(Tree::ROOT, dear("a"));
        tree.scheduler(Tree::ROOT, server(1, 10));
        assert!(tree.build().is_ok());
        let third = tree.task(Tree::ROOT, dear("b"));
        let wrong = |why: &str| Wrong::NotAdmitted { policy: "choosy", why: why.into() };
        assert_eq!(
            tree.build().expect_err("refused"),
            TreeError { node: third, why: wrong("two are enough") }
        );
        tree.remove(third);
        tree.remove(NodeId(1));
        let fourth = tree.task(Tree::ROOT, TaskSpec::new("c", Span::from_ns(9)));
        assert_eq!(tree.check(), Err(TreeError { node: fourth, why: wrong("say what it costs") }));
        tree.remove(fourth);
        tree.cpus = 2;
        assert_eq!(
            tree.check().expect_err("what runs on several CPUs is not charged").why,
            Wrong::ManyCpus { policy: "choosy" }
        );
    }
}
