//! The engine in the simulator compared with the reference model, on small random systems.
//!
//! The comparison covers completion times, refused jobs, and the running job of every CPU in every
//! tick.

use crate::bridge;
use crate::reference::server::{Kind as ServerKind, Spec};
use crate::reference::{Group, Interference, Kind, Node, Order, System, Task};
use crate::soak;
use talea_sim::rng::Rng;

/// Parameters of a family of random systems.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Family {
    /// Policy of the family.
    pub(crate) order: u64,
    /// Whether the root has the policy of the family. Otherwise a scheduler below the root has it.
    pub(crate) at_root: bool,
    pub(crate) preemptive: bool,
    pub(crate) server: Option<ServerKind>,
    /// Whether servers are nested.
    pub(crate) nested: bool,
    pub(crate) cpus: usize,
    pub(crate) bound: bool,
    /// Whether the system has stalls and overheads.
    pub(crate) interference: bool,
    /// Whether the system has accelerators and self-suspensions.
    pub(crate) blocking: bool,
}

pub(crate) const PLAIN: Family = Family {
    order: EDF,
    at_root: true,
    preemptive: true,
    server: None,
    nested: false,
    cpus: 1,
    bound: false,
    interference: false,
    blocking: false,
};

const EDF: u64 = 0;
const FP: u64 = 1;
const RM: u64 = 2;
const DM: u64 = 3;
const CRITICALITY: u64 = 4;
const FIFO: u64 = 5;
const RR: u64 = 6;
const STRICT: u64 = 7;
const LENDING: u64 = 8;

pub(crate) struct Generator {
    rng: Rng,
    family: Family,
    nodes: Vec<Node>,
    pub(crate) horizon: u64,
}

impl Generator {
    pub(crate) fn new(family: Family, seed: u64) -> Generator {
        Generator { rng: Rng::new(seed), family, nodes: vec![], horizon: 60 }
    }

    fn odds(&mut self, of: u64) -> bool {
        self.rng.below(of) == 0
    }

    fn order(&mut self, which: u64, children: usize) -> Order {
        match which {
            EDF => Order::Edf,
            FP => Order::Fp,
            RM => Order::Rm,
            DM => Order::Dm,
            CRITICALITY => Order::Criticality,
            FIFO => Order::Fifo,
            RR => Order::RoundRobin { quantum: self.rng.between(1, 3) },
            _ => {
                let mut slots = vec![];
                let mut at = self.rng.below(2);
                for _ in 0..self.rng.between(1, 4) {
                    let end = at + self.rng.between(1, 4);
                    slots.push((at, end, self.rng.below(children as u64) as usize));
                    at = end + self.rng.below(3).saturating_sub(1);
                }
                let frame = slots.last().expect("a slot").1 + self.rng.below(2);
                Order::Table { frame, slots, lending: which == LENDING }
            }
        }
    }

    fn server(&mut self, kind: ServerKind) -> Spec {
        let period = self.rng.between(3, 14);
        let deadline = if self.odds(2) { period } else { self.rng.between(1, period) };
        let budget = self.rng.between(1, deadline.min(5));
        let offset = if self.odds(4) { self.rng.below(period) } else { 0 };
        Spec { kind, budget, period, deadline, offset }
    }

    fn group(&mut self, parent: Option<usize>, order: Order, preemptive: bool) -> usize {
        let own_priority = if self.odds(3) { Some(self.rng.below(4)) } else { None };
        self.nodes.push(Node {
            parent,
            kind: Kind::Group(Group { order, preemptive, own_priority, server: None }),
        });
        self.nodes.len() - 1
    }

    fn task(&mut self, parent: usize) {
        let period = self.rng.between(2, 12);
        let mut arrivals = vec![];
        let mut at = self.rng.below(8);
        let style = self.rng.below(3);
        while at <= self.horizon {
            arrivals.push(at);
            at += match style {
                0 => period,
                1 => period + self.rng.below(4),
                _ => self.rng.below(2 * period),
            };
        }
        let cost = self.rng.between(1, 4);
        let costs = (0..self.rng.between(1, 3)).map(|_| self.rng.between(1, cost)).collect();
        let task = Task {
            period,
            deadline: self.rng.between(1, 15),
            priority: self.rng.below(4),
            criticality: self.rng.below(3),
            enforced: self.odds(4),
            capacity: [0, 1, 64, 64][self.rng.below(4) as usize],
            arrivals,
            costs,
            accelerator: None,
            suspends: None,
        };
        let task = if self.family.blocking { self.blocking(task) } else { task };
        self.nodes.push(Node { parent: Some(parent), kind: Kind::Task(task) });
    }

    fn blocking(&mut self, mut task: Task) -> Task {
        if self.odds(2) {
            task.accelerator = Some(self.rng.below(2) as usize);
        }
        if self.odds(3) {
            task.suspends = Some((self.rng.between(1, 3), self.rng.between(1, 12)));
        }
        task
    }

    /// Adds children to a scheduler: tasks, and schedulers up to `depth`.
    fn fill(&mut self, group: usize, children: usize, depth: u64) {
        for _ in 0..children {
            if depth > 0 && self.odds(3) {
                self.any_group(group, depth - 1);
            } else {
                self.task(group);
            }
        }
    }

    fn any_group(&mut self, parent: usize, depth: u64) -> usize {
        let children = self.rng.between(1, 3) as usize;
        let (which, preemptive) = (self.rng.below(7), !self.odds(4));
        let order = self.order(which, children);
        let group = self.group(Some(parent), order, preemptive);
        self.fill(group, children, depth);
        group
    }

    fn serve(&mut self, group: usize, server: Option<Spec>) {
        if let Kind::Group(group) = &mut self.nodes[group].kind {
            group.server = server;
        }
    }

    /// Generates a system of the family.
    pub(crate) fn system(mut self) -> System {
        let family = self.family;
        let is_table = family.order >= STRICT;
        let children = self.rng.between(1, 4) as usize;
        let root = if family.at_root {
            let order = self.order(family.order, children);
            self.group(None, order, family.preemptive)
        } else {
            // A table may be below `fp` or at the root.
            let which = if is_table { FP } else { self.rng.below(7) };
            let order = self.order(which, children);
            let preemptive = !self.odds(4);
            self.group(None, order, preemptive)
        };
        if let Some(kind) = family.server {
            // At least one server, or one nested in another, among other groups.
            for _ in 0..self.rng.between(1, 2) {
                let (outer, inner) = (self.server(kind), self.any_server());
                let mut at = root;
                if family.nested {
                    let which = self.rng.below(7);
                    let order = self.order(which, 1);
                    at = self.group(Some(at), order, true);
                    self.serve(at, Some(outer));
                    if self.odds(2) {
                        self.task(at);
                    }
                }
                let at = self.any_group(at, 1);
                self.serve(at, Some(if family.nested { inner } else { outer }));
            }
            let tasks = self.rng.between(0, 2);
            self.fill(root, tasks as usize, 1);
        } else if family.at_root {
            self.fill(root, children, if is_table { 2 } else { 1 });
        } else {
            let preemptive = family.preemptive;
            let order = self.order(family.order, children);
            let group = self.group(Some(root), order, preemptive);
            self.fill(group, children, 1);
            let others = self.rng.below(3);
            self.fill(root, others as usize, 1);
        }
        let interference =
            if family.interference { self.interference() } else { Interference::default() };
        System { cpus: family.cpus, bound: family.bound, nodes: self.nodes, interference }
    }

    fn interference(&mut self) -> Interference {
        let mut interference = Interference::default();
        if !self.odds(3) {
            (interference.release, interference.decision) = (self.rng.below(3), self.rng.below(3));
        }
        if !self.odds(3) {
            for _ in 0..self.rng.between(1, 6) {
                let (cpu, from) =
                    (self.rng.below(self.family.cpus as u64), self.rng.below(self.horizon));
                interference.stalls.push((cpu as usize, from, from + self.rng.between(1, 6)));
            }
        }
        interference
    }

    fn any_server(&mut self) -> Spec {
        let kinds = [
            ServerKind::Polling,
            ServerKind::Deferrable,
            ServerKind::Sporadic,
            ServerKind::HardCbs,
            ServerKind::SoftCbs,
        ];
        let kind = kinds[self.rng.below(5) as usize];
        self.server(kind)
    }
}

fn agree(family: Family) {
    let cases = soak::many(200, 100_000);
    for case in 0..cases {
        let generator = Generator::new(family, soak::seed(case));
        let until = generator.horizon;
        check(&generator.system(), until, case);
    }
}

fn check(system: &System, until: u64, case: u64) {
    let (model, engine) = (system.run(until), bridge::simulate(system, until));
    if model == engine {
        return;
    }
    let (small, until) = shrink(system.clone(), until);
    let (model, engine) = (small.run(until), bridge::simulate(&small, until));
    let at = (0..until as usize).find(|&at| model.ticks[at] != engine.ticks[at]);
    let nodes: Vec<String> = small.nodes.iter().map(|node| format!("{node:?}")).collect();
    let nodes = nodes.join("\n");
    panic!(
        "case {case}, {} CPUs, bound: {}, {:?}\n{nodes}\n model {model:?}\nengine {engine:?}\nfirst different tick {at:?}",
        small.cpus, small.bound, small.interference
    );
}

fn differs(system: &System, until: u64) -> bool {
    bridge::tree(system).0.check().is_ok() && system.run(until) != bridge::simulate(system, until)
}

/// Returns a smaller system, and a shorter run, on which engine and reference model still disagree.
fn shrink(mut system: System, mut until: u64) -> (System, u64) {
    loop {
        let before = format!("{system:?}{until}");
        while until > 1 && differs(&system, until - 1) {
            until -= 1;
        }
        // Remove one leaf.
        for at in (1..system.nodes.len()).rev() {
            let mut less = system.clone();
            if less.children(at).is_empty()
                && less.children(less.nodes[at].parent.expect("below the root")).len() > 1
            {
                less.nodes.remove(at);
                for node in &mut less.nodes {
                    node.parent = node.parent.map(|parent| parent - usize::from(parent > at));
                }
                if differs(&less, until) {
                    system = less;
                }
            }
        }
        let Interference { stalls, release, decision } = system.interference.clone();
        let mut interference = vec![
            Interference { release: 0, ..system.interference.clone() },
            Interference { decision: 0, ..system.interference.clone() },
        ];
        for stall in 0..stalls.len() {
            let mut stalls = stalls.clone();
            stalls.remove(stall);
            interference.push(Interference { stalls, release, decision });
        }
        for interference in interference {
            let less = System { interference, ..system.clone() };
            if format!("{less:?}") != format!("{system:?}") && differs(&less, until) {
                system = less;
                break;
            }
        }
        for at in 0..system.nodes.len() {
            let mut tries: Vec<Kind> = vec![];
            match &system.nodes[at].kind {
                Kind::Task(task) => {
                    for i in 0..task.arrivals.len() {
                        let mut less = task.clone();
                        less.arrivals.remove(i);
                        tries.push(Kind::Task(less));
                    }
                    tries.push(Kind::Task(Task { enforced: false, ..task.clone() }));
                    tries.push(Kind::Task(Task { capacity: 64, ..task.clone() }));
                    tries.push(Kind::Task(Task { costs: vec![task.costs[0]], ..task.clone() }));
                    tries.push(Kind::Task(Task { costs: vec![1], ..task.clone() }));
                    tries.push(Kind::Task(Task { accelerator: None, ..task.clone() }));
                    tries.push(Kind::Task(Task { suspends: None, ..task.clone() }));
                    tries.push(Kind::Task(Task { priority: 0, criticality: 0, ..task.clone() }));
                }
                Kind::Group(group) => {
                    tries.push(Kind::Group(Group { preemptive: true, ..group.clone() }));
                    tries.push(Kind::Group(Group { own_priority: None, ..group.clone() }));
                    tries.push(Kind::Group(Group { server: None, ..group.clone() }));
                    tries.push(Kind::Group(Group { order: Order::Fifo, ..group.clone() }));
                }
            }
            for kind in tries {
                let mut less = system.clone();
                less.nodes[at].kind = kind;
                if format!("{:?}", less.nodes[at]) != format!("{:?}", system.nodes[at])
                    && differs(&less, until)
                {
                    system = less;
                    break;
                }
            }
        }
        if before == format!("{system:?}{until}") {
            return (system, until);
        }
    }
}

/// A job exhausts the budget exactly at its end, and releases an accelerator to a waiting job. For
/// the server, this is a wake-up at its deadline, before the exhausted budget was processed.
#[test]
fn l5_y7_a_budget_exhausted_and_refilled_at_one_instant_is_available() {
    let group = |parent, order, server| Node {
        parent,
        kind: Kind::Group(Group { order, preemptive: true, own_priority: None, server }),
    };
    let task = |period, arrival, cost| {
        let (deadline, priority, criticality, capacity) = (20, 0, 0, 64);
        let (arrivals, costs, accelerator) = (vec![arrival], vec![cost], Some(0));
        let (enforced, suspends) = (false, None);
        let kind = Kind::Task(Task {
            period,
            deadline,
            priority,
            criticality,
            enforced,
            capacity,
            arrivals,
            costs,
            accelerator,
            suspends,
        });
        Node { parent: Some(1), kind }
    };
    let full = Spec { kind: ServerKind::HardCbs, budget: 3, period: 3, deadline: 3, offset: 0 };
    let nodes = vec![
        group(None, Order::Fifo, None),
        group(Some(0), Order::Rm, Some(full)),
        task(2, 1, 1),
        task(11, 0, 3),
    ];
    let system = System { cpus: 1, bound: false, nodes, interference: Interference::default() };
    check(&system, 8, 0);
    assert_eq!(system.run(8).ends, [vec![4], vec![3]]);
}

/// One thousand systems of the families above.
///
/// The systems are partitioned (each part has its own CPU) or global. Migration is at any time or
/// between jobs. The order is by deadlines, by priorities, or by one of the orders derived from
/// periods and deadlines.
#[test]
fn y2_a_thousand_random_sets_agree_with_an_independent_scheduler() {
    let mut sets = 0;
    for order in [EDF, FP, RM, DM] {
        for (cpus, bound) in [(1, false), (2, false), (2, true), (3, false), (3, true)] {
            let family = Family { order, cpus, bound, ..PLAIN };
            for case in 0..50 {
                // Seeds that differ from those of the family itself.
                let generator = Generator::new(family, soak::seed(case | 1 << 32));
                let until = generator.horizon;
                check(&generator.system(), until, case);
                sets += 1;
            }
        }
    }
    assert_eq!(sets, 1_000);
}

macro_rules! families {
    ($($name:ident: $family:expr;)*) => {
        $(#[test]
        fn $name() {
            agree($family);
        })*
    };
}

families! {
    s1_s15_edf_agrees: Family { ..PLAIN };
    s1_s13_edf_that_does_not_preempt_agrees: Family { preemptive: false, ..PLAIN };
    s1_edf_below_another_agrees: Family { at_root: false, ..PLAIN };
    s13_edf_that_does_not_preempt_below_another_agrees:
        Family { preemptive: false, at_root: false, ..PLAIN };
    s1_l2_fp_agrees: Family { order: FP, ..PLAIN };
    s1_s13_fp_that_does_not_preempt_agrees: Family { order: FP, preemptive: false, ..PLAIN };
    s1_l2_fp_below_another_agrees: Family { order: FP, at_root: false, ..PLAIN };
    s13_fp_that_does_not_preempt_below_another_agrees:
        Family { order: FP, preemptive: false, at_root: false, ..PLAIN };
    s1_rm_agrees: Family { order: RM, ..PLAIN };
    s13_rm_that_does_not_preempt_agrees: Family { order: RM, preemptive: false, ..PLAIN };
    s1_rm_below_another_agrees: Family { order: RM, at_root: false, ..PLAIN };
    y2_dm_agrees: Family { order: DM, ..PLAIN };
    s13_dm_that_does_not_preempt_agrees: Family { order: DM, preemptive: false, ..PLAIN };
    s1_criticality_agrees: Family { order: CRITICALITY, ..PLAIN };
    s13_criticality_that_does_not_preempt_agrees:
        Family { order: CRITICALITY, preemptive: false, ..PLAIN };
    s1_fifo_agrees: Family { order: FIFO, ..PLAIN };
    s13_fifo_that_does_not_preempt_agrees: Family { order: FIFO, preemptive: false, ..PLAIN };
    s1_round_robin_agrees: Family { order: RR, ..PLAIN };
    s1_round_robin_below_another_agrees: Family { order: RR, at_root: false, ..PLAIN };
    s13_round_robin_that_does_not_preempt_agrees: Family { order: RR, preemptive: false, ..PLAIN };
    s1_round_robin_with_stalls_and_overheads_agrees:
        Family { order: RR, interference: true, ..PLAIN };
    s1_round_robin_below_another_with_stalls_and_overheads_agrees:
        Family { order: RR, at_root: false, interference: true, ..PLAIN };
    s1_edf_with_stalls_and_overheads_agrees: Family { interference: true, ..PLAIN };
    l1_strict_partitions_with_stalls_and_overheads_agree:
        Family { order: STRICT, interference: true, ..PLAIN };
    y2_global_edf_with_stalls_and_overheads_agrees: Family { cpus: 3, interference: true, ..PLAIN };
    y2_global_fp_with_bound_jobs_with_stalls_and_overheads_agrees:
        Family { order: FP, cpus: 2, bound: true, interference: true, ..PLAIN };
    l5_l24_a_deferrable_server_with_stalls_and_overheads_agrees:
        Family { server: Some(ServerKind::Deferrable), interference: true, ..PLAIN };
    l5_l24_a_hard_cbs_with_stalls_and_overheads_agrees:
        Family { server: Some(ServerKind::HardCbs), interference: true, ..PLAIN };
    y7_edf_with_accelerators_and_suspensions_agrees: Family { blocking: true, ..PLAIN };
    s13_edf_that_does_not_preempt_with_accelerators_and_suspensions_agrees:
        Family { preemptive: false, blocking: true, ..PLAIN };
    s13_fp_that_does_not_preempt_below_another_with_accelerators_and_suspensions_agrees:
        Family { order: FP, preemptive: false, at_root: false, blocking: true, ..PLAIN };
    y7_round_robin_with_accelerators_and_suspensions_agrees:
        Family { order: RR, blocking: true, ..PLAIN };
    y7_strict_partitions_with_accelerators_and_suspensions_agree:
        Family { order: STRICT, blocking: true, ..PLAIN };
    y7_a_hard_cbs_with_accelerators_and_suspensions_agrees:
        Family { server: Some(ServerKind::HardCbs), blocking: true, ..PLAIN };
    y5_global_edf_with_accelerators_and_suspensions_agrees:
        Family { cpus: 2, blocking: true, ..PLAIN };
    y5_global_edf_with_bound_jobs_accelerators_and_suspensions_agrees:
        Family { cpus: 2, bound: true, blocking: true, ..PLAIN };
    y5_global_fp_with_bound_jobs_accelerators_and_suspensions_agrees:
        Family { order: FP, cpus: 3, bound: true, blocking: true, ..PLAIN };
    y4_global_edf_that_does_not_preempt_with_accelerators_and_suspensions_agrees:
        Family { cpus: 2, preemptive: false, blocking: true, ..PLAIN };
    y4_global_edf_that_does_not_preempt_with_bound_jobs_accelerators_and_suspensions_agrees:
        Family { cpus: 2, preemptive: false, bound: true, blocking: true, ..PLAIN };
    s1_l1_strict_partitions_agree: Family { order: STRICT, ..PLAIN };
    s17_lending_partitions_agree: Family { order: LENDING, ..PLAIN };
    l1_l3_strict_partitions_beside_others_agree: Family { order: STRICT, at_root: false, ..PLAIN };
    l3_s17_lending_partitions_beside_others_agree:
        Family { order: LENDING, at_root: false, ..PLAIN };
    s13_nonpreemptive_partitions_agree: Family { order: STRICT, preemptive: false, ..PLAIN };
    y2_global_edf_on_two_cpus_agrees: Family { cpus: 2, ..PLAIN };
    y2_global_edf_on_three_cpus_agrees: Family { cpus: 3, ..PLAIN };
    y2_global_edf_with_bound_jobs_agrees: Family { cpus: 2, bound: true, ..PLAIN };
    y2_global_edf_with_bound_jobs_on_three_cpus_agrees: Family { cpus: 3, bound: true, ..PLAIN };
    y4_global_edf_that_does_not_preempt_agrees: Family { cpus: 2, preemptive: false, ..PLAIN };
    y4_global_edf_that_does_not_preempt_with_bound_jobs_agrees:
        Family { cpus: 3, preemptive: false, bound: true, ..PLAIN };
    y2_global_fp_agrees: Family { order: FP, cpus: 2, ..PLAIN };
    y2_global_fp_with_bound_jobs_agrees: Family { order: FP, cpus: 3, bound: true, ..PLAIN };
    y4_global_fp_that_does_not_preempt_agrees:
        Family { order: FP, cpus: 2, preemptive: false, ..PLAIN };
    y2_global_rm_agrees: Family { order: RM, cpus: 3, ..PLAIN };
    y2_global_rm_with_bound_jobs_agrees: Family { order: RM, cpus: 2, bound: true, ..PLAIN };
    y2_global_dm_agrees: Family { order: DM, cpus: 2, ..PLAIN };
    y2_global_dm_with_bound_jobs_agrees: Family { order: DM, cpus: 3, bound: true, ..PLAIN };
    y2_global_criticality_agrees: Family { order: CRITICALITY, cpus: 2, ..PLAIN };
    y2_global_fifo_agrees: Family { order: FIFO, cpus: 2, ..PLAIN };
    l5_polling_in_edf_agrees: Family { server: Some(ServerKind::Polling), ..PLAIN };
    l5_polling_in_fp_agrees: Family { order: FP, server: Some(ServerKind::Polling), ..PLAIN };
    l5_deferrable_in_edf_agrees: Family { server: Some(ServerKind::Deferrable), ..PLAIN };
    l5_deferrable_in_fp_agrees: Family { order: FP, server: Some(ServerKind::Deferrable), ..PLAIN };
    l5_sporadic_in_edf_agrees: Family { server: Some(ServerKind::Sporadic), ..PLAIN };
    l5_sporadic_in_fp_agrees: Family { order: FP, server: Some(ServerKind::Sporadic), ..PLAIN };
    l5_hard_cbs_in_edf_agrees: Family { server: Some(ServerKind::HardCbs), ..PLAIN };
    l5_hard_cbs_in_fp_agrees: Family { order: FP, server: Some(ServerKind::HardCbs), ..PLAIN };
    l5_soft_cbs_in_edf_agrees: Family { server: Some(ServerKind::SoftCbs), ..PLAIN };
    l5_soft_cbs_in_fp_agrees: Family { order: FP, server: Some(ServerKind::SoftCbs), ..PLAIN };
    l5_polling_around_others_agrees:
        Family { server: Some(ServerKind::Polling), nested: true, ..PLAIN };
    l5_deferrable_around_others_agrees:
        Family { server: Some(ServerKind::Deferrable), nested: true, ..PLAIN };
    l5_sporadic_around_others_agrees:
        Family { server: Some(ServerKind::Sporadic), nested: true, ..PLAIN };
    l5_hard_cbs_around_others_agrees:
        Family { order: FP, server: Some(ServerKind::HardCbs), nested: true, ..PLAIN };
    l5_soft_cbs_around_others_agrees:
        Family { server: Some(ServerKind::SoftCbs), nested: true, ..PLAIN };
    l5_deferrable_in_round_robin_that_does_not_preempt_agrees:
        Family { order: RR, preemptive: false, server: Some(ServerKind::Deferrable), ..PLAIN };
    l5_hard_cbs_on_two_cpus_agrees: Family { cpus: 2, server: Some(ServerKind::HardCbs), ..PLAIN };
    l5_sporadic_on_two_cpus_with_bound_jobs_agrees:
        Family { order: FP, cpus: 2, bound: true, server: Some(ServerKind::Sporadic), ..PLAIN };
    l5_polling_on_three_cpus_that_do_not_preempt_agrees:
        Family { cpus: 3, preemptive: false, server: Some(ServerKind::Polling), ..PLAIN };
}
