//! Admission: children by policies, and bandwidth of servers.
//!
//! Each policy admits its children, and a tree with a refused child is not built. Bandwidth is a
//! property of the description. [`Tree::build`] accepts overbooked trees, because their behaviour
//! is defined and can be simulated. A caller for which the description is a contract also calls
//! [`Tree::admit`], as the reader of system files does (L23).

use super::error::{TreeError, TreeErrorKind};
use super::ids::NodeId;
use super::spec::{NodeSpec, SchedulerSpec};
use super::tree::{Node, Tree};
use crate::criteria::Criteria;
use crate::mutate;
use crate::sched::{ChildInfo, Policy, PolicyImpl, PolicySpec};
use crate::server::Reservation;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

impl Tree {
    /// Builds the policy of a scheduler. An external policy then admits each child.
    ///
    /// The graphs must be valid: an external policy receives the criteria that their nodes inherit.
    ///
    /// # Errors
    /// The first child that the policy refuses. The root, if an external policy with timers or
    /// accounting has several CPUs.
    pub(super) fn policy(
        &self,
        id: NodeId,
        spec: &SchedulerSpec,
        children: &[NodeId],
    ) -> Result<PolicyImpl, TreeError> {
        let mut built = spec.policy.build(children.len());
        if let PolicySpec::Custom { name, .. } = spec.policy {
            // The run queues of a root with several CPUs are neither charged nor woken.
            if id == Tree::ROOT
                && self.cpus > 1
                && (built.needs_accounting() || built.next_wakeup().is_some())
            {
                return Err(TreeError { node: id, kind: TreeErrorKind::ManyCpus { policy: name } });
            }
            let inherited = self.inherited_criteria();
            let nodes = children.iter().filter_map(|&node| Some((node, self.get(node)?)));
            for (child, (node, what)) in (0..).zip(nodes) {
                let admitted = built.admit(&child_info(child, what, inherited.get(&node)));
                mutate!("core-policy-outside", admitted, admitted.or(Ok(()))).map_err(|why| {
                    let why = TreeErrorKind::NotAdmitted { policy: name, why };
                    TreeError { node, kind: why }
                })?;
            }
        }
        Ok(built)
    }

    /// Checks that every server can have its reservation.
    ///
    /// Below each scheduler, the sum of Q/T of its topmost servers must not exceed the scheduler's
    /// own capacity. The capacity of a server is its Q/T. The capacity of a root is all of its
    /// CPUs, and that of another scheduler is one CPU. For children of a root with affinities, the
    /// check covers any set of CPUs. Partition tables are not counted: their slots use the time
    /// that the servers leave.
    ///
    /// # Errors
    /// The first overbooked scheduler. The check ignores an excess below 2^-100.
    pub fn admit(&self) -> Result<(), TreeError> {
        let mut requested: BTreeMap<NodeId, Share> = BTreeMap::new();
        // Demand on a root with several CPUs, by affinity.
        let mut sets: BTreeMap<u64, Share> = BTreeMap::new();
        for (id, node) in self.nodes() {
            let Some(reservation) = reservation_of(node) else { continue };
            let share = Share::for_reservation(reservation);
            let mut top = node;
            for (above, spec) in self.ancestors(id) {
                requested.entry(above).or_default().add(share);
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
        for (&node, &requested) in requested.iter().filter(|&(&node, _)| node != Tree::ROOT) {
            let available = self.get(node).and_then(reservation_of).map_or(
                Share::cpus(1),
                mutate!("core-admit-nested", Share::for_reservation, |_| Share::cpus(1)),
            );
            requested.check_within(available, node)?;
        }
        if let Some(own) = self.get(Tree::ROOT).and_then(reservation_of) {
            return requested.get(&Tree::ROOT).map_or(Ok(()), |requested| {
                requested.check_within(Share::for_reservation(own), Tree::ROOT)
            });
        }
        let Some(cpus) = overbooked(&sets) else { return Ok(()) };
        let mut sum = Share::default();
        sets.iter().filter(|&(of, _)| of & !cpus == 0).for_each(|(_, share)| sum.add(*share));
        sum.check_within(Share::cpus(cpus.count_ones()), Tree::ROOT)
    }
}

/// Returns a set of CPUs that the servers restricted to this set overbook. `None` if there is no
/// such set.
///
/// The function computes a maximum flow of shares to CPUs, so unions of affinities count as well
/// (Hall's theorem). Each affinity sends its share along shortest augmenting paths (Edmonds and
/// Karp, 1972). If no path is left, the reached CPUs are full.
fn overbooked(sets: &BTreeMap<u64, Share>) -> Option<u64> {
    let sets: Vec<(u64, Share)> = sets.iter().map(|(&set, &share)| (set, share)).collect();
    let mut room = [Share::cpus(1); 64];
    let mut flow = alloc::vec![[Share::default(); 64]; sets.len()];
    for (source, &(_, mut rest)) in sets.iter().enumerate() {
        while rest > Share::default() {
            // Predecessors in the search: the set of each CPU, and the CPU of each set.
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
            let path = || {
                core::iter::successors(Some((of_cpu[end], end)), |&(set, _)| {
                    of_set[set].map(|cpu| (of_cpu[cpu], cpu))
                })
            };
            let moved = path()
                .filter_map(|(set, _)| of_set[set].map(|cpu| flow[set][cpu]))
                .fold(rest.min(room[end]), Share::min);
            room[end].subtract(moved);
            rest.subtract(moved);
            for (set, cpu) in path() {
                flow[set][cpu].add(moved);
                if let Some(left) = of_set[set] {
                    flow[set][left].subtract(moved);
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
    match &node.spec {
        NodeSpec::Scheduler(spec) => spec.reservation.as_ref(),
        NodeSpec::Task(_) => None,
    }
}

fn child_info<'a>(child: u32, node: &'a Node, inherited: Option<&Criteria>) -> ChildInfo<'a> {
    match &node.spec {
        NodeSpec::Task(spec) => {
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
            ChildInfo { child, name: &spec.name, criteria, cost: spec.cost }
        }
        NodeSpec::Scheduler(spec) => {
            let mut criteria = spec.overrides.apply_to(&Criteria::LEAST);
            if let Some(of) = &spec.reservation {
                (criteria.period, criteria.relative_deadline) = (of.period, of.relative_deadline());
            }
            let cost = spec.reservation.as_ref().map(|reservation| reservation.budget);
            ChildInfo { child, name: &spec.name, criteria, cost }
        }
    }
}

/// Number of CPUs with 128 binary digits after the point, truncated. A sum that equals the capacity
/// does not exceed it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Share {
    whole: u64,
    part: u128,
}

impl Share {
    fn cpus(count: u32) -> Share {
        Share { whole: u64::from(count), part: 0 }
    }

    fn for_reservation(reservation: &Reservation) -> Share {
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

    /// Subtracts `other`, which is not larger.
    fn subtract(&mut self, other: Share) {
        let (part, borrow) = self.part.overflowing_sub(other.part);
        self.part = part;
        self.whole -= other.whole + u64::from(borrow);
    }

    /// Returns the share in millionths of a CPU, rounded to the nearest.
    fn millionths(self) -> u64 {
        let part = ((self.part >> 64) * 1_000_000 + (1 << 63)) >> 64;
        self.whole.saturating_mul(1_000_000).saturating_add(part as u64)
    }

    fn check_within(self, available: Share, node: NodeId) -> Result<(), TreeError> {
        if mutate!("core-admit-sum", self <= available, self.whole <= available.whole) {
            return Ok(());
        }
        let available = available.millionths();
        let requested = self.millionths().max(available + 1);
        Err(TreeError { node, kind: TreeErrorKind::Overbooked { requested, available } })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Affinity, TaskSpec};
    use crate::rng::Rng;
    use crate::sched::{Child, ReadyChild, Resched};
    use crate::server::ServerKind;
    use crate::{Span, Time, Work};
    use alloc::boxed::Box;
    use alloc::string::{String, ToString};

    fn server(budget: u64, period: u64) -> SchedulerSpec {
        let mut spec = SchedulerSpec::new("server", PolicySpec::Fifo);
        spec.reservation = Some(Reservation::new(
            ServerKind::HardCbs,
            Work::from_ns(budget),
            Span::from_ns(period),
        ));
        spec
    }

    fn tree(cpus: u32, servers: &[(u64, u64)]) -> Tree {
        let mut tree = Tree::new(cpus, SchedulerSpec::new("root", PolicySpec::Edf));
        for &(budget, period) in servers {
            tree.scheduler(Tree::ROOT, server(budget, period));
        }
        tree
    }

    #[test]
    fn l23_a_sum_of_exactly_one_is_admitted_and_the_smallest_excess_is_not() {
        assert_eq!(tree(1, &[(1, 3), (1, 3), (1, 3)]).admit(), Ok(()));
        assert_eq!(tree(1, &[(1, 7), (2, 11), (52, 77)]).admit(), Ok(()));
        // 2^61 and the prime below: an excess below 2^-119.
        let (large, prime) = (1 << 61, (1 << 61) - 1);
        assert_eq!(tree(1, &[(large / 2, large), (prime / 2, prime)]).admit(), Ok(()));
        let refused =
            tree(1, &[(large / 2, large), (prime / 2 + 1, prime)]).admit().expect_err("refused");
        assert_eq!(
            refused.kind,
            TreeErrorKind::Overbooked { requested: 1_000_001, available: 1_000_000 }
        );
        assert_eq!(refused.node, Tree::ROOT);
        let refused = tree(1, &[(5, 10), (6, 10)]).admit().expect_err("refused").kind.to_string();
        assert_eq!(
            refused,
            "its servers have reservations of 110 per cent of a CPU in total, and it has 100"
        );
        assert!(
            tree(1, &[(5, 10), (6, 10)]).build().is_ok(),
            "it can still be built and simulated"
        );
        assert_eq!(tree(2, &[(5, 10), (6, 10)]).admit(), Ok(()));
        assert!(tree(2, &[(10, 10), (10, 10), (1, 10)]).admit().is_err());
    }

    #[test]
    fn l23_a_server_shares_at_most_its_own_bandwidth_and_a_group_at_most_a_cpu() {
        let mut nested = tree(1, &[(5, 10)]);
        let outer = NodeId(1);
        nested.scheduler(outer, server(1, 4));
        nested.scheduler(outer, server(1, 4));
        assert_eq!(nested.admit(), Ok(()), "half of half, twice");
        nested.scheduler(outer, server(1, 1_000));
        let why = TreeErrorKind::Overbooked { requested: 501_000, available: 500_000 };
        assert_eq!(nested.admit(), Err(TreeError { node: outer, kind: why }));
        let mut clustered = tree(4, &[]);
        let scheduler =
            clustered.scheduler(Tree::ROOT, SchedulerSpec::new("band", PolicySpec::Edf));
        clustered.scheduler(scheduler, server(6, 10));
        assert_eq!(clustered.admit(), Ok(()));
        clustered.scheduler(scheduler, server(6, 10));
        assert_eq!(clustered.admit().expect_err("one CPU at a time").node, scheduler);
    }

    #[test]
    fn l23_servers_with_affinities_share_the_cpus_that_they_may_use() {
        let mut tree = tree(2, &[]);
        for _ in 0..2 {
            let mut pinned = server(6, 10);
            pinned.affinity = Affinity::only(1);
            tree.scheduler(Tree::ROOT, pinned);
        }
        let why = TreeErrorKind::Overbooked { requested: 1_200_000, available: 1_000_000 };
        assert_eq!(tree.admit(), Err(TreeError { node: Tree::ROOT, kind: why }));
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
        let why = TreeErrorKind::Overbooked { requested: 3_200_000, available: 3_000_000 };
        assert_eq!(four.admit(), Err(TreeError { node: Tree::ROOT, kind: why }));
        // Thirds that fill three CPUs completely if earlier shares are moved; then the smallest
        // excess.
        let mut full = tree(4, &[]);
        for cpus in [0b111, 0b111, 0b111, 0b111, 0b011, 0b011, 0b011, 0b110, 0b110] {
            on(&mut full, 1, 3, cpus);
        }
        assert_eq!(full.admit(), Ok(()));
        on(&mut full, 1, 1_000_000, 0b101);
        let why = TreeErrorKind::Overbooked { requested: 3_000_001, available: 3_000_000 };
        assert_eq!(full.admit(), Err(TreeError { node: Tree::ROOT, kind: why }));
    }

    #[test]
    fn l23_admitted_servers_fit_into_every_set_of_cpus() {
        let mut rng = Rng::new(1);
        let mut random = |below: u64| rng.below(below);
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

    /// Policy that admits at most two children, each with a known cost.
    #[derive(Debug)]
    struct AtMostTwo(u32);

    impl Policy for AtMostTwo {
        fn admit(&mut self, info: &ChildInfo<'_>) -> Result<(), String> {
            self.0 += 1;
            match info.cost {
                None => Err("declare its cost".into()),
                Some(_) if self.0 > 2 => Err("at most two".into()),
                Some(_) => Ok(()),
            }
        }
        fn ready(&mut self, _: Time, _: &ReadyChild) -> Resched {
            Resched::Keep
        }
        fn finished(&mut self, _: Time, _: Child) -> Resched {
            Resched::Keep
        }
        fn update(&mut self, _: Time, _: &ReadyChild) -> Resched {
            Resched::Keep
        }
        fn head(&self, _: Time) -> Option<Child> {
            None
        }
        fn before(&self, _: Time, a: &ReadyChild, b: &ReadyChild) -> bool {
            a.child < b.child
        }
        fn needs_accounting(&self) -> bool {
            true
        }
    }

    /// Policy that admits only children with a period, and none with the name `refused`.
    #[derive(Debug)]
    struct NeedsPeriod(AtMostTwo);

    impl Policy for NeedsPeriod {
        fn admit(&mut self, info: &ChildInfo<'_>) -> Result<(), String> {
            let Criteria { period, relative_deadline: deadline, priority, .. } = info.criteria;
            let what = || alloc::format!("{} {} {priority}", period.as_ns(), deadline.as_ns());
            if period.is_zero() || info.name == "refused" { Err(what()) } else { Ok(()) }
        }
        fn ready(&mut self, now: Time, entry: &ReadyChild) -> Resched {
            self.0.ready(now, entry)
        }
        fn finished(&mut self, now: Time, child: Child) -> Resched {
            self.0.finished(now, child)
        }
        fn update(&mut self, now: Time, entry: &ReadyChild) -> Resched {
            self.0.update(now, entry)
        }
        fn head(&self, now: Time) -> Option<Child> {
            self.0.head(now)
        }
        fn before(&self, now: Time, a: &ReadyChild, b: &ReadyChild) -> bool {
            self.0.before(now, a, b)
        }
    }

    #[test]
    fn y9_y21_an_external_policy_receives_inherited_criteria() {
        let regular =
            PolicySpec::Custom { name: "regular", make: |_| Box::new(NeedsPeriod(AtMostTwo(0))) };
        let mut tree = Tree::new(1, SchedulerSpec::new("root", regular));
        let root = TaskSpec { priority: 4, ..TaskSpec::new("camera", Span::from_ns(9)) };
        let root = tree.task(Tree::ROOT, TaskSpec { deadline: Span::from_ns(7), ..root });
        let node = tree.task(Tree::ROOT, TaskSpec::node("detect"));
        tree.channel(root, node, 1);
        assert!(tree.build().is_ok());
        let last = tree.task(Tree::ROOT, TaskSpec::node("refused"));
        tree.channel(node, last, 1);
        let why = TreeErrorKind::NotAdmitted { policy: "regular", why: "9 7 4".into() };
        assert_eq!(tree.check(), Err(TreeError { node: last, kind: why }));
        // A cycle inherits nothing, and is refused as a cycle.
        tree.channel(last, node, 1);
        assert!(!matches!(
            tree.check().expect_err("a cycle").kind,
            TreeErrorKind::NotAdmitted { .. }
        ));
    }

    #[test]
    fn l8_an_external_policy_admits_children_before_the_build() {
        let choosy = PolicySpec::Custom { name: "choosy", make: |_| Box::new(AtMostTwo(0)) };
        let mut tree = Tree::new(1, SchedulerSpec::new("root", choosy));
        let costly = |name: &str| TaskSpec {
            cost: Some(Work::from_ns(1)),
            ..TaskSpec::new(name, Span::from_ns(9))
        };
        tree.task(Tree::ROOT, costly("a"));
        tree.scheduler(Tree::ROOT, server(1, 10));
        assert!(tree.build().is_ok());
        let third = tree.task(Tree::ROOT, costly("b"));
        let wrong = |why: &str| TreeErrorKind::NotAdmitted { policy: "choosy", why: why.into() };
        assert_eq!(
            tree.build().expect_err("refused"),
            TreeError { node: third, kind: wrong("at most two") }
        );
        tree.remove(third);
        tree.remove(NodeId(1));
        let fourth = tree.task(Tree::ROOT, TaskSpec::new("c", Span::from_ns(9)));
        assert_eq!(tree.check(), Err(TreeError { node: fourth, kind: wrong("declare its cost") }));
        tree.remove(fourth);
        tree.cpus = 2;
        assert_eq!(
            tree.check().expect_err("children on several CPUs are not charged").kind,
            TreeErrorKind::ManyCpus { policy: "choosy" }
        );
    }
}
