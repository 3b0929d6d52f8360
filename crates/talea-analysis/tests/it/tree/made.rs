//! Random trees of every kind of node, with their workloads.

use crate::dice::Dice;
use talea_core::criteria::Own;
use talea_core::machine::{NodeId, Protocol, ResourceId, SchedulerSpec, TaskSpec, Tree};
use talea_core::sched::{Policy, Slot};
use talea_core::server::{Kind, Reservation};
use talea_core::workload::{Arrivals, Cost, Overheads, Source};
use talea_core::{Span, Work};
use talea_sim::Workload;

/// What a tree may be made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    /// Groups of every policy, servers of every kind, below each other.
    Mixed,
    /// A table at the root or beside TP_0.
    Partitions,
    /// Schedulers that do not preempt.
    NonPreemptive,
    /// Overheads, without servers and tables.
    Overheads,
    /// Shared resources below the root.
    Resources,
    /// Tasks below the root, released together.
    Flat,
    /// Servers in an EDF band within fixed priorities.
    Band,
    /// Tasks on two or three CPUs.
    Global,
}

pub(crate) const FAMILIES: [Family; 8] = [
    Family::Mixed,
    Family::Partitions,
    Family::NonPreemptive,
    Family::Overheads,
    Family::Resources,
    Family::Flat,
    Family::Band,
    Family::Global,
];

pub(crate) struct Made {
    pub(crate) tree: Tree,
    pub(crate) workload: Workload,
    pub(crate) overheads: Overheads,
}

struct Maker<'a> {
    dice: &'a mut Dice,
    tree: Tree,
    workload: Workload,
    family: Family,
    /// Thousandths of the CPU that are left for tasks.
    left: u64,
    ties: bool,
}

const STATIC: [Policy; 4] =
    [Policy::FixedPriority, Policy::RateMonotonic, Policy::DeadlineMonotonic, Policy::CriticalityMonotonic];

impl Maker<'_> {
    fn policy(&mut self) -> Policy {
        match self.dice.below(9) {
            0..3 => Policy::FixedPriority,
            3 => STATIC[self.dice.below(4) as usize].clone(),
            4..7 => Policy::Edf,
            7 => Policy::Fifo,
            _ if self.family == Family::Overheads => Policy::Edf,
            _ => Policy::RoundRobin { quantum: Work::from_ns(self.dice.between(1, 3)) },
        }
    }

    fn group(&mut self, policy: Policy) -> SchedulerSpec {
        let mut spec = SchedulerSpec::new("group", policy);
        if self.dice.below(3) > 0 {
            spec.own = Own {
                priority: Some(self.dice.between(1, if self.ties { 2 } else { 5 }) as u8),
                ..Own::default()
            };
        }
        spec.preemptive = self.family != Family::NonPreemptive || self.dice.below(2) > 0;
        spec
    }

    fn task(&mut self, parent: NodeId) {
        // Every other tree has few values, and so many equals.
        let period = if self.ties { 6 << self.dice.below(3) } else { self.dice.between(5, 40) };
        let most = (period * self.left / 1_000).clamp(1, 1 + period / 4);
        let cost = self.dice.between(1, most);
        self.left = self.left.saturating_sub(cost * 1_000 / period);
        let mut spec = TaskSpec::new("task", Span::from_ns(period));
        let latest = if self.family == Family::Global { period } else { 2 * period };
        spec.deadline = Span::from_ns(self.dice.between(cost, latest));
        spec.priority = self.dice.between(1, if self.ties { 2 } else { 6 }) as u8;
        spec.criticality = self.dice.below(if self.ties { 2 } else { 4 }) as u8;
        spec.backlog.capacity = 1 << 10;
        let together = self.family == Family::Flat || self.dice.below(2) == 0;
        let offset = Span::from_ns(if together { 0 } else { self.dice.below(period) });
        let period = Span::from_ns(period);
        let arrivals = match self.dice.below(if self.family == Family::Flat { 1 } else { 4 }) {
            2 if self.family == Family::Global => Arrivals::Periodic { offset, period, jitter: Span::ZERO },
            0 | 1 => Arrivals::Periodic { offset, period, jitter: Span::ZERO },
            2 => {
                let jitter = Span::from_ns(self.dice.below(period.as_ns().min(8)));
                Arrivals::Periodic { offset, period, jitter }
            }
            _ => Arrivals::Sporadic { offset, separation: period, slack: Span::from_ns(self.dice.below(9)) },
        };
        let work = Work::from_ns(cost);
        let mut cost = match self.dice.below(if self.family == Family::Flat { 1 } else { 3 }) {
            0 | 1 => Cost::Constant(work),
            _ => Cost::Uniform { min: Work::from_ns(1), max: work },
        };
        if self.family == Family::Resources && !self.tree.resources.is_empty() && self.dice.below(3) > 0 {
            let which = ResourceId(self.dice.below(self.tree.resources.len() as u64) as u32);
            let from = self.dice.below(work.as_ns());
            let to = self.dice.between(from + 1, work.as_ns());
            cost = Cost::Constant(work).locking(which, Work::from_ns(from), Work::from_ns(to));
            spec.uses.push(which);
        }
        self.tree.task(parent, spec);
        self.workload.sources.push(Source { arrivals, cost });
    }

    fn reservation(&mut self) -> Reservation {
        let kinds = [Kind::Polling, Kind::Deferrable, Kind::Sporadic, Kind::HardCbs, Kind::SoftCbs];
        let kind = kinds[self.dice.below(5) as usize];
        let period = self.dice.between(4, 20);
        let most = (period * self.left / 1_000).clamp(1, 1 + period / 3);
        let budget = self.dice.between(1, most);
        self.left = self.left.saturating_sub(budget * 1_000 / period);
        let mut of = Reservation::new(kind, Work::from_ns(budget), Span::from_ns(period));
        if self.dice.below(3) == 0 {
            of.deadline = Some(Span::from_ns(self.dice.between(budget, period)));
        }
        if self.dice.below(3) == 0 {
            of.offset = Span::from_ns(self.dice.below(period));
        }
        of
    }

    /// What is below a server has to live on that.
    fn within(&mut self, of: &Reservation, fill: impl FnOnce(&mut Self)) {
        let left = self.left;
        self.left = of.budget.as_ns() * 900 / of.period.as_ns();
        fill(self);
        self.left = left;
    }

    fn fill(&mut self, parent: NodeId, depth: u64, servers: bool) {
        for _ in 0..self.dice.between(1, 3) {
            let is_leaf = depth == 0
                || matches!(self.family, Family::Flat | Family::Resources)
                || self.dice.below(2) == 0;
            if is_leaf {
                self.task(parent);
                continue;
            }
            let policy = self.policy();
            let mut spec = self.group(policy);
            if servers && self.dice.below(2) == 0 {
                let of = self.reservation();
                spec.reservation = Some(of);
                let node = self.tree.scheduler(parent, spec);
                self.within(&of, |maker| maker.fill(node, depth - 1, servers));
            } else {
                let node = self.tree.scheduler(parent, spec);
                self.fill(node, depth - 1, servers);
            }
        }
    }

    fn table(&mut self, parent: Option<NodeId>) {
        let owners = self.dice.between(1, 3);
        let (mut slots, mut at) = (Vec::new(), 0);
        for _ in 0..self.dice.between(owners, 4) {
            let start = at + self.dice.below(3);
            let end = start + self.dice.between(1, 6);
            let owner = self.dice.below(owners) as u32;
            slots.push(Slot { start: Span::from_ns(start), end: Span::from_ns(end), owner });
            at = end;
        }
        let frame = Span::from_ns(at + self.dice.below(4));
        let lending = self.dice.below(3) == 0;
        let policy = Policy::Partitions { frame, slots: slots.clone(), lending };
        let spec = SchedulerSpec::new("table", policy);
        let table = if let Some(parent) = parent {
            self.tree.scheduler(parent, spec)
        } else {
            self.tree = Tree::new(1, spec);
            Tree::ROOT
        };
        for owner in 0..owners {
            let own = slots.iter().filter(|slot| u64::from(slot.owner) == owner);
            let total: u64 = own.map(|slot| slot.end.as_ns() - slot.start.as_ns()).sum();
            let policy = if self.dice.below(3) > 0 { Policy::FixedPriority } else { self.policy() };
            let mut spec = SchedulerSpec::new("partition", policy);
            if self.dice.below(4) == 0 {
                spec.own.priority = Some(self.dice.between(1, if self.ties { 2 } else { 5 }) as u8);
            }
            let node = self.tree.scheduler(table, spec);
            let left = core::mem::replace(&mut self.left, total * 700 / frame.as_ns());
            self.fill(node, 1, false);
            self.left = left;
        }
    }
}

pub(crate) fn made(dice: &mut Dice, family: Family) -> Made {
    let seed = dice.next();
    let workload = Workload { seed, ..Workload::default() };
    let mut maker = Maker {
        left: if family == Family::Overheads { 450 } else { 850 },
        tree: Tree::new(1, SchedulerSpec::new("root", Policy::Edf)),
        dice,
        workload,
        family,
        ties: seed.is_multiple_of(2),
    };
    let mut overheads = Overheads::default();
    match family {
        Family::Partitions if maker.dice.below(2) == 0 => maker.table(None),
        Family::Partitions => {
            maker.left = 300;
            maker.tree = Tree::new(1, SchedulerSpec::new("root", Policy::FixedPriority));
            maker.fill(Tree::ROOT, 1, true);
            maker.table(Some(Tree::ROOT));
        }
        Family::Band => {
            maker.tree = Tree::new(1, SchedulerSpec::new("root", Policy::FixedPriority));
            maker.task(Tree::ROOT);
            for priority in 1..=maker.dice.between(1, 2) {
                let mut band = SchedulerSpec::new("band", Policy::Edf);
                band.own.priority = Some(2 * priority as u8);
                let band = maker.tree.scheduler(Tree::ROOT, band);
                maker.fill(band, 1, true);
            }
            maker.task(Tree::ROOT);
        }
        Family::Global => {
            let policy = if maker.dice.below(2) == 0 { Policy::Edf } else { Policy::RateMonotonic };
            let cpus = maker.dice.between(2, 3) as u32;
            maker.tree = Tree::new(cpus, SchedulerSpec::new("root", policy));
            for _ in 0..=cpus {
                maker.left = 500;
                maker.task(Tree::ROOT);
            }
        }
        Family::Resources => {
            let policy = match maker.dice.below(3) {
                0 => Policy::Edf,
                1 => Policy::RateMonotonic,
                _ => Policy::FixedPriority,
            };
            let ceiling = matches!(policy, Policy::Edf) || maker.dice.below(2) == 0;
            maker.tree = Tree::new(1, SchedulerSpec::new("root", policy));
            for _ in 0..maker.dice.between(1, 2) {
                let protocol = if ceiling { Protocol::Ceiling } else { Protocol::Inheritance };
                maker.tree.resource("shared", protocol);
            }
            maker.fill(Tree::ROOT, 0, false);
        }
        _ => {
            let policy = maker.policy();
            let mut root = SchedulerSpec::new("root", policy);
            root.preemptive = family != Family::NonPreemptive || maker.dice.below(2) > 0;
            maker.tree = Tree::new(1, root);
            if family == Family::Overheads {
                let mut small = || Span::from_ns(maker.dice.below(2));
                overheads = Overheads {
                    release: small(),
                    decision: small(),
                    level: Span::ZERO,
                    switch: small(),
                    migration: Span::ZERO,
                };
            }
            let servers = family == Family::Mixed;
            let depth = if family == Family::Flat { 0 } else { 2 };
            maker.fill(Tree::ROOT, depth, servers);
            if family == Family::Flat {
                maker.task(Tree::ROOT);
            }
        }
    }
    Made { tree: maker.tree, workload: maker.workload, overheads }
}
