//! The machine in the simulator against the plain twin, on small random systems: when every job
//! ends, what finds no room, and who runs where in every tick.

use crate::bridge;
use crate::naive::server::{Kind as ServerKind, Spec};
use crate::naive::{Group, Kind, Node, Order, Spoiled, System, Task};
use crate::soak;
use talea_sim::dice::Dice;

/// What a family of random systems is about.
#[derive(Clone, Copy, Debug)]
pub(crate) struct About {
    /// The policy that occurs.
    pub(crate) order: u64,
    /// Of the root with that policy, or of some group below it.
    pub(crate) at_root: bool,
    pub(crate) preemptive: bool,
    pub(crate) server: Option<ServerKind>,
    /// How deep servers nest at least.
    pub(crate) nested: bool,
    pub(crate) cpus: usize,
    pub(crate) bound: bool,
    /// With holes, and with costs of scheduling.
    pub(crate) spoiled: bool,
    /// With accelerators, and jobs that suspend themselves.
    pub(crate) gated: bool,
}

pub(crate) const PLAIN: About = About {
    order: EDF,
    at_root: true,
    preemptive: true,
    server: None,
    nested: false,
    cpus: 1,
    bound: false,
    spoiled: false,
    gated: false,
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

pub(crate) struct Maker {
    dice: Dice,
    about: About,
    nodes: Vec<Node>,
    pub(crate) horizon: u64,
}

impl Maker {
    pub(crate) fn new(about: About, seed: u64) -> Maker {
        Maker { dice: Dice::new(seed), about, nodes: vec![], horizon: 60 }
    }

    fn odds(&mut self, of: u64) -> bool {
        self.dice.below(of) == 0
    }

    fn order(&mut self, which: u64, children: usize) -> Order {
        match which {
            EDF => Order::Edf,
            FP => Order::Fp,
            RM => Order::Rm,
            DM => Order::Dm,
            CRITICALITY => Order::Criticality,
            FIFO => Order::Fifo,
            RR => Order::RoundRobin { quantum: self.dice.between(1, 3) },
            _ => {
                let mut slots = vec![];
                let mut at = self.dice.below(2);
                for _ in 0..self.dice.between(1, 4) {
                    let end = at + self.dice.between(1, 4);
                    slots.push((at, end, self.dice.below(children as u64) as usize));
                    at = end + self.dice.below(3).saturating_sub(1);
                }
                let frame = slots.last().expect("a slot").1 + self.dice.below(2);
                Order::Table { frame, slots, lending: which == LENDING }
            }
        }
    }

    fn server(&mut self, kind: ServerKind) -> Spec {
        let period = self.dice.between(3, 14);
        let deadline = if self.odds(2) { period } else { self.dice.between(1, period) };
        let budget = self.dice.between(1, deadline.min(5));
        let offset = if self.odds(4) { self.dice.below(period) } else { 0 };
        Spec { kind, budget, period, deadline, offset }
    }

    fn group(&mut self, parent: Option<usize>, order: Order, preemptive: bool) -> usize {
        let own_priority = if self.odds(3) { Some(self.dice.below(4)) } else { None };
        self.nodes.push(Node {
            parent,
            kind: Kind::Group(Group { order, preemptive, own_priority, server: None }),
        });
        self.nodes.len() - 1
    }

    fn task(&mut self, parent: usize) {
        let period = self.dice.between(2, 12);
        let mut arrivals = vec![];
        let mut at = self.dice.below(8);
        let style = self.dice.below(3);
        while at <= self.horizon {
            arrivals.push(at);
            at += match style {
                0 => period,
                1 => period + self.dice.below(4),
                _ => self.dice.below(2 * period),
            };
        }
        let cost = self.dice.between(1, 4);
        let costs = (0..self.dice.between(1, 3)).map(|_| self.dice.between(1, cost)).collect();
        let task = Task {
            period,
            deadline: self.dice.between(1, 15),
            priority: self.dice.below(4),
            criticality: self.dice.below(3),
            enforced: self.odds(4),
            capacity: [0, 1, 64, 64][self.dice.below(4) as usize],
            arrivals,
            costs,
            accelerator: None,
            suspends: None,
        };
        let task = if self.about.gated { self.gated(task) } else { task };
        self.nodes.push(Node { parent: Some(parent), kind: Kind::Task(task) });
    }

    fn gated(&mut self, mut task: Task) -> Task {
        if self.odds(2) {
            task.accelerator = Some(self.dice.below(2) as usize);
        }
        if self.odds(3) {
            task.suspends = Some((self.dice.between(1, 3), self.dice.between(1, 12)));
        }
        task
    }

    /// Children of a group: tasks, and groups as far as `depth` goes.
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
        let children = self.dice.between(1, 3) as usize;
        let (which, preemptive) = (self.dice.below(7), !self.odds(4));
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

    /// A system of the family.
    pub(crate) fn system(mut self) -> System {
        let about = self.about;
        let is_table = about.order >= STRICT;
        let children = self.dice.between(1, 4) as usize;
        let root = if about.at_root {
            let order = self.order(about.order, children);
            self.group(None, order, about.preemptive)
        } else {
            // A table stands below `fp` or nothing.
            let which = if is_table { FP } else { self.dice.below(7) };
            let order = self.order(which, children);
            let preemptive = !self.odds(4);
            self.group(None, order, preemptive)
        };
        if let Some(kind) = about.server {
            // At least one server, or one in another, among others.
            for _ in 0..self.dice.between(1, 2) {
                let (outer, inner) = (self.server(kind), self.any_server());
                let mut at = root;
                if about.nested {
                    let which = self.dice.below(7);
                    let order = self.order(which, 1);
                    at = self.group(Some(at), order, true);
                    self.serve(at, Some(outer));
                    if self.odds(2) {
                        self.task(at);
                    }
                }
                let at = self.any_group(at, 1);
                self.serve(at, Some(if about.nested { inner } else { outer }));
            }
            let tasks = self.dice.between(0, 2);
            self.fill(root, tasks as usize, 1);
        } else if about.at_root {
            self.fill(root, children, if is_table { 2 } else { 1 });
        } else {
            let preemptive = about.preemptive;
            let order = self.order(about.order, children);
            let group = self.group(Some(root), order, preemptive);
            self.fill(group, children, 1);
            let others = self.dice.below(3);
            self.fill(root, others as usize, 1);
        }
        let spoiled = if about.spoiled { self.spoiled() } else { Spoiled::default() };
        System { cpus: about.cpus, bound: about.bound, nodes: self.nodes, spoiled }
    }

    fn spoiled(&mut self) -> Spoiled {
        let mut spoiled = Spoiled::default();
        if !self.odds(3) {
            (spoiled.release, spoiled.decision) = (self.dice.below(3), self.dice.below(3));
        }
        if !self.odds(3) {
            for _ in 0..self.dice.between(1, 6) {
                let (cpu, from) =
                    (self.dice.below(self.about.cpus as u64), self.dice.below(self.horizon));
                spoiled.holes.push((cpu as usize, from, from + self.dice.between(1, 6)));
            }
        }
        spoiled
    }

    fn any_server(&mut self) -> Spec {
        let kinds = [
            ServerKind::Polling,
            ServerKind::Deferrable,
            ServerKind::Sporadic,
            ServerKind::HardCbs,
            ServerKind::SoftCbs,
        ];
        let kind = kinds[self.dice.below(5) as usize];
        self.server(kind)
    }
}

fn agree(about: About) {
    let cases = soak::many(200, 100_000);
    for case in 0..cases {
        let maker = Maker::new(about, soak::seed(case));
        let until = maker.horizon;
        check(&maker.system(), until, case);
    }
}

fn check(system: &System, until: u64, case: u64) {
    let (twin, machine) = (system.run(until), bridge::simulate(system, until));
    if twin == machine {
        return;
    }
    let (small, until) = shrink(system.clone(), until);
    let (twin, machine) = (small.run(until), bridge::simulate(&small, until));
    let at = (0..until as usize).find(|&at| twin.ticks[at] != machine.ticks[at]);
    let nodes: Vec<String> = small.nodes.iter().map(|node| format!("{node:?}")).collect();
    let nodes = nodes.join("\n");
    panic!(
        "case {case}, {} CPUs, bound: {}, {:?}\n{nodes}\n   twin {twin:?}\nmachine {machine:?}\nfirst different tick {at:?}",
        small.cpus, small.bound, small.spoiled
    );
}

fn differs(system: &System, until: u64) -> bool {
    bridge::tree(system).0.check().is_ok() && system.run(until) != bridge::simulate(system, until)
}

/// A smaller system that still disagrees.
fn shrink(mut system: System, mut until: u64) -> (System, u64) {
    loop {
        let before = format!("{system:?}{until}");
        while until > 1 && differs(&system, until - 1) {
            until -= 1;
        }
        // Without one leaf.
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
        let Spoiled { holes, release, decision } = system.spoiled.clone();
        let mut spoils = vec![
            Spoiled { release: 0, ..system.spoiled.clone() },
            Spoiled { decision: 0, ..system.spoiled.clone() },
        ];
        for hole in 0..holes.len() {
            let mut holes = holes.clone();
            holes.remove(hole);
            spoils.push(Spoiled { holes, release, decision });
        }
        for spoiled in spoils {
            let less = System { spoiled, ..system.clone() };
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

/// A job uses up the budget at the very instant of its end, and leaves an accelerator to one that
/// waits for it: to the server that is one who wakes it at its deadline, before anybody has looked
/// at the budget.
#[test]
fn l5_y7_a_budget_that_begins_anew_at_the_instant_at_which_it_was_used_up_is_there() {
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
    let system = System { cpus: 1, bound: false, nodes, spoiled: Spoiled::default() };
    check(&system, 8, 0);
    assert_eq!(system.run(8).ends, [vec![4], vec![3]]);
}

/// The families above, a few of each, are a thousand: partitioned (a CPU of its own for each part)
/// and global, with migration at any time and between jobs, by deadlines, by priorities and by the
/// two orders that follow from periods and deadlines.
#[test]
fn y2_a_thousand_random_sets_run_as_an_independent_scheduler_has_them() {
    let mut sets = 0;
    for order in [EDF, FP, RM, DM] {
        for (cpus, bound) in [(1, false), (2, false), (2, true), (3, false), (3, true)] {
            let about = About { order, cpus, bound, ..PLAIN };
            for case in 0..50 {
                // Others than those of the family itself.
                let maker = Maker::new(about, soak::seed(case | 1 << 32));
                let until = maker.horizon;
                check(&maker.system(), until, case);
                sets += 1;
            }
        }
    }
    assert_eq!(sets, 1_000);
}

macro_rules! families {
    ($($name:ident: $about:expr;)*) => {
        $(#[test]
        fn $name() {
            agree($about);
        })*
    };
}

families! {
    s1_s15_edf_agrees: About { ..PLAIN };
    s1_s13_edf_that_does_not_preempt_agrees: About { preemptive: false, ..PLAIN };
    s1_edf_below_another_agrees: About { at_root: false, ..PLAIN };
    s13_edf_that_does_not_preempt_below_another_agrees: About { preemptive: false, at_root: false, ..PLAIN };
    s1_l2_fp_agrees: About { order: FP, ..PLAIN };
    s1_s13_fp_that_does_not_preempt_agrees: About { order: FP, preemptive: false, ..PLAIN };
    s1_l2_fp_below_another_agrees: About { order: FP, at_root: false, ..PLAIN };
    s13_fp_that_does_not_preempt_below_another_agrees:
        About { order: FP, preemptive: false, at_root: false, ..PLAIN };
    s1_rm_agrees: About { order: RM, ..PLAIN };
    s13_rm_that_does_not_preempt_agrees: About { order: RM, preemptive: false, ..PLAIN };
    s1_rm_below_another_agrees: About { order: RM, at_root: false, ..PLAIN };
    y2_dm_agrees: About { order: DM, ..PLAIN };
    s13_dm_that_does_not_preempt_agrees: About { order: DM, preemptive: false, ..PLAIN };
    s1_criticality_agrees: About { order: CRITICALITY, ..PLAIN };
    s13_criticality_that_does_not_preempt_agrees: About { order: CRITICALITY, preemptive: false, ..PLAIN };
    s1_fifo_agrees: About { order: FIFO, ..PLAIN };
    s13_fifo_that_does_not_preempt_agrees: About { order: FIFO, preemptive: false, ..PLAIN };
    s1_round_robin_agrees: About { order: RR, ..PLAIN };
    s1_round_robin_below_another_agrees: About { order: RR, at_root: false, ..PLAIN };
    s13_round_robin_that_does_not_preempt_agrees: About { order: RR, preemptive: false, ..PLAIN };
    s1_round_robin_in_holes_and_with_overheads_agrees: About { order: RR, spoiled: true, ..PLAIN };
    s1_round_robin_below_another_in_holes_and_with_overheads_agrees:
        About { order: RR, at_root: false, spoiled: true, ..PLAIN };
    s1_edf_in_holes_and_with_overheads_agrees: About { spoiled: true, ..PLAIN };
    l1_strict_partitions_in_holes_and_with_overheads_agree: About { order: STRICT, spoiled: true, ..PLAIN };
    y2_global_edf_in_holes_and_with_overheads_agrees: About { cpus: 3, spoiled: true, ..PLAIN };
    y2_global_fp_with_bound_jobs_in_holes_and_with_overheads_agrees:
        About { order: FP, cpus: 2, bound: true, spoiled: true, ..PLAIN };
    l5_l24_a_deferrable_server_in_holes_and_with_overheads_agrees:
        About { server: Some(ServerKind::Deferrable), spoiled: true, ..PLAIN };
    l5_l24_a_hard_cbs_in_holes_and_with_overheads_agrees:
        About { server: Some(ServerKind::HardCbs), spoiled: true, ..PLAIN };
    y7_edf_with_gates_and_suspensions_agrees: About { gated: true, ..PLAIN };
    s13_edf_that_does_not_preempt_with_gates_and_suspensions_agrees:
        About { preemptive: false, gated: true, ..PLAIN };
    s13_fp_that_does_not_preempt_below_another_with_gates_and_suspensions_agrees:
        About { order: FP, preemptive: false, at_root: false, gated: true, ..PLAIN };
    y7_round_robin_with_gates_and_suspensions_agrees: About { order: RR, gated: true, ..PLAIN };
    y7_strict_partitions_with_gates_and_suspensions_agree: About { order: STRICT, gated: true, ..PLAIN };
    y7_a_hard_cbs_with_gates_and_suspensions_agrees:
        About { server: Some(ServerKind::HardCbs), gated: true, ..PLAIN };
    y5_global_edf_with_gates_and_suspensions_agrees: About { cpus: 2, gated: true, ..PLAIN };
    y5_global_edf_with_bound_jobs_gates_and_suspensions_agrees:
        About { cpus: 2, bound: true, gated: true, ..PLAIN };
    y5_global_fp_with_bound_jobs_gates_and_suspensions_agrees:
        About { order: FP, cpus: 3, bound: true, gated: true, ..PLAIN };
    y4_global_edf_that_does_not_preempt_with_gates_and_suspensions_agrees:
        About { cpus: 2, preemptive: false, gated: true, ..PLAIN };
    y4_global_edf_that_does_not_preempt_with_bound_jobs_gates_and_suspensions_agrees:
        About { cpus: 2, preemptive: false, bound: true, gated: true, ..PLAIN };
    s1_l1_strict_partitions_agree: About { order: STRICT, ..PLAIN };
    s17_lending_partitions_agree: About { order: LENDING, ..PLAIN };
    l1_l3_strict_partitions_beside_others_agree: About { order: STRICT, at_root: false, ..PLAIN };
    l3_s17_lending_partitions_beside_others_agree: About { order: LENDING, at_root: false, ..PLAIN };
    s13_partitions_that_hold_on_to_a_job_agree: About { order: STRICT, preemptive: false, ..PLAIN };
    y2_global_edf_on_two_cpus_agrees: About { cpus: 2, ..PLAIN };
    y2_global_edf_on_three_cpus_agrees: About { cpus: 3, ..PLAIN };
    y2_global_edf_with_bound_jobs_agrees: About { cpus: 2, bound: true, ..PLAIN };
    y2_global_edf_with_bound_jobs_on_three_cpus_agrees: About { cpus: 3, bound: true, ..PLAIN };
    y4_global_edf_that_does_not_preempt_agrees: About { cpus: 2, preemptive: false, ..PLAIN };
    y4_global_edf_that_does_not_preempt_with_bound_jobs_agrees:
        About { cpus: 3, preemptive: false, bound: true, ..PLAIN };
    y2_global_fp_agrees: About { order: FP, cpus: 2, ..PLAIN };
    y2_global_fp_with_bound_jobs_agrees: About { order: FP, cpus: 3, bound: true, ..PLAIN };
    y4_global_fp_that_does_not_preempt_agrees: About { order: FP, cpus: 2, preemptive: false, ..PLAIN };
    y2_global_rm_agrees: About { order: RM, cpus: 3, ..PLAIN };
    y2_global_rm_with_bound_jobs_agrees: About { order: RM, cpus: 2, bound: true, ..PLAIN };
    y2_global_dm_agrees: About { order: DM, cpus: 2, ..PLAIN };
    y2_global_dm_with_bound_jobs_agrees: About { order: DM, cpus: 3, bound: true, ..PLAIN };
    y2_global_criticality_agrees: About { order: CRITICALITY, cpus: 2, ..PLAIN };
    y2_global_fifo_agrees: About { order: FIFO, cpus: 2, ..PLAIN };
    l5_polling_in_edf_agrees: About { server: Some(ServerKind::Polling), ..PLAIN };
    l5_polling_in_fp_agrees: About { order: FP, server: Some(ServerKind::Polling), ..PLAIN };
    l5_deferrable_in_edf_agrees: About { server: Some(ServerKind::Deferrable), ..PLAIN };
    l5_deferrable_in_fp_agrees: About { order: FP, server: Some(ServerKind::Deferrable), ..PLAIN };
    l5_sporadic_in_edf_agrees: About { server: Some(ServerKind::Sporadic), ..PLAIN };
    l5_sporadic_in_fp_agrees: About { order: FP, server: Some(ServerKind::Sporadic), ..PLAIN };
    l5_hard_cbs_in_edf_agrees: About { server: Some(ServerKind::HardCbs), ..PLAIN };
    l5_hard_cbs_in_fp_agrees: About { order: FP, server: Some(ServerKind::HardCbs), ..PLAIN };
    l5_soft_cbs_in_edf_agrees: About { server: Some(ServerKind::SoftCbs), ..PLAIN };
    l5_soft_cbs_in_fp_agrees: About { order: FP, server: Some(ServerKind::SoftCbs), ..PLAIN };
    l5_polling_around_others_agrees: About { server: Some(ServerKind::Polling), nested: true, ..PLAIN };
    l5_deferrable_around_others_agrees: About { server: Some(ServerKind::Deferrable), nested: true, ..PLAIN };
    l5_sporadic_around_others_agrees: About { server: Some(ServerKind::Sporadic), nested: true, ..PLAIN };
    l5_hard_cbs_around_others_agrees:
        About { order: FP, server: Some(ServerKind::HardCbs), nested: true, ..PLAIN };
    l5_soft_cbs_around_others_agrees: About { server: Some(ServerKind::SoftCbs), nested: true, ..PLAIN };
    l5_deferrable_in_round_robin_that_does_not_preempt_agrees:
        About { order: RR, preemptive: false, server: Some(ServerKind::Deferrable), ..PLAIN };
    l5_hard_cbs_on_two_cpus_agrees: About { cpus: 2, server: Some(ServerKind::HardCbs), ..PLAIN };
    l5_sporadic_on_two_cpus_with_bound_jobs_agrees:
        About { order: FP, cpus: 2, bound: true, server: Some(ServerKind::Sporadic), ..PLAIN };
    l5_polling_on_three_cpus_that_do_not_preempt_agrees:
        About { cpus: 3, preemptive: false, server: Some(ServerKind::Polling), ..PLAIN };
}
