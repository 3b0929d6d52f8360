//! Random trees of every kind of node, with their workloads.

use crate::dice::Dice;
use talea_core::criteria::Own;
use talea_core::machine::{
    Affinity, NodeId, Protocol, ResourceId, SchedulerSpec, TaskSpec, Tree, Version,
};
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
    /// The same above servers and tables, which can be closed while somebody else begins.
    NonPreemptiveAbove,
    /// Overheads, without servers and tables.
    Overheads,
    /// Shared resources below the root.
    Resources,
    /// The same with overheads.
    ResourcesOverheads,
    /// Tasks below the root that come together, or when they like.
    Flat,
    /// Servers in an EDF band within fixed priorities.
    Band,
    /// Tasks on two or three CPUs.
    Global,
}

#[derive(Debug)]
pub(crate) struct Made {
    pub(crate) tree: Tree,
    pub(crate) workload: Workload,
    pub(crate) overheads: Overheads,
    /// How many nanoseconds its numbers are apart, about.
    pub(crate) scale: u64,
}

struct Maker<'a> {
    dice: &'a mut Dice,
    tree: Tree,
    workload: Workload,
    family: Family,
    /// Thousandths of the CPU that are left for tasks.
    left: u64,
    ties: bool,
    /// How many nanoseconds stand for one: more where overheads are to be small beside periods.
    scale: u64,
    /// All jobs come within this of each other, at first; 0: within a period.
    close: u64,
    /// Of the tasks of a flat tree.
    style: Style,
    /// On several CPUs: with D > T and jitter, each on one CPU.
    loose: bool,
    bound: bool,
}

/// How tasks come that are below the root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Style {
    /// Together, then periodically.
    Together,
    /// Whenever they like.
    Free,
    /// Each in its way.
    Any,
}

const STATIC: [Policy; 4] = [
    Policy::FixedPriority,
    Policy::RateMonotonic,
    Policy::DeadlineMonotonic,
    Policy::CriticalityMonotonic,
];

impl Maker<'_> {
    fn locks(&self) -> bool {
        matches!(self.family, Family::Resources | Family::ResourcesOverheads)
    }

    fn is_spoiled(&self) -> bool {
        matches!(self.family, Family::Overheads | Family::ResourcesOverheads)
    }

    fn policy(&mut self) -> Policy {
        match self.dice.below(9) {
            0..3 => Policy::FixedPriority,
            3 => STATIC[self.dice.below(4) as usize].clone(),
            4..7 => Policy::Edf,
            7 => Policy::Fifo,
            _ if self.is_spoiled() => Policy::Edf,
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
        spec.preemptive = self.is_preemptive();
        spec
    }

    fn is_preemptive(&mut self) -> bool {
        match self.family {
            Family::NonPreemptive | Family::NonPreemptiveAbove => self.dice.below(2) > 0,
            Family::Overheads => self.dice.below(6) > 0,
            _ => true,
        }
    }

    fn task(&mut self, parent: NodeId) {
        // Every other tree has few values, and so many equals.
        let period =
            if self.ties { 6 << self.dice.below(3) } else { self.dice.between(5, 40) } * self.scale;
        let most = (period * self.left / 1_000).clamp(1, 1 + period / 4);
        let cost = self.dice.between(1, most);
        self.left = self.left.saturating_sub(cost * 1_000 / period);
        let mut spec = TaskSpec::new("task", Span::from_ns(period));
        let is_global = self.family == Family::Global;
        let latest = if is_global && !self.loose { period } else { 2 * period };
        if self.bound {
            spec.affinity = Affinity::only(self.dice.below(self.tree.cpus.into()) as u32);
        }
        spec.deadline = Span::from_ns(self.dice.between(cost, latest));
        // Blocking terms want distinct keys.
        let levels = if self.locks() { 90 } else { 6 };
        spec.priority = self.dice.between(1, if self.ties { 2 } else { levels }) as u8;
        spec.criticality = self.dice.below(if self.ties { 2 } else { 4 }) as u8;
        spec.backlog.capacity = 1 << 10;
        let together = self.style != Style::Any || self.dice.below(2) == 0;
        let offset = match self.close {
            0 if together => 0,
            0 => self.dice.below(period),
            close => self.dice.below(close),
        };
        let (offset, period) = (Span::from_ns(offset), Span::from_ns(period));
        let way = match self.style {
            Style::Together => 0,
            Style::Free => 3 + self.dice.below(2),
            Style::Any => self.dice.below(4),
        };
        let arrivals = match way {
            2 if (!is_global || self.loose) && !self.locks() => {
                let jitter = Span::from_ns(self.dice.below(period.as_ns().min(8)));
                Arrivals::Periodic { offset, period, jitter }
            }
            0..=2 => Arrivals::Periodic { offset, period, jitter: Span::ZERO },
            3 => Arrivals::Sporadic {
                offset,
                separation: period,
                slack: Span::from_ns(self.dice.below(9)),
            },
            _ => Arrivals::Sporadic { offset, separation: period, slack: Span::from_ns(1) },
        };
        let work = Work::from_ns(cost);
        let mut cost = match self.dice.below(if self.family == Family::Flat { 5 } else { 3 }) {
            0 | 1 => Cost::Constant(work),
            2 => Cost::Uniform { min: Work::from_ns(1), max: work },
            3 => Cost::List(vec![work, Work::from_ns(self.dice.between(1, work.as_ns()))]),
            _ => Cost::Pair {
                low: Work::from_ns(1),
                high: work,
                share: self.dice.below(3) as u32 * 400,
            },
        };
        if self.locks() && self.dice.below(4) > 0 {
            cost = Cost::Constant(work);
            // One after the other, and often at once.
            let mut from = self.dice.below(2) * self.dice.below(work.as_ns());
            let touches = self.dice.below(2) == 0;
            while from < work.as_ns() && self.dice.below(4) > 0 {
                let which = ResourceId(self.dice.below(self.tree.resources.len() as u64) as u32);
                let to = self.dice.between(from + 1, work.as_ns());
                cost = cost.locking(which, Work::from_ns(from), Work::from_ns(to));
                if !spec.uses.contains(&which) {
                    spec.uses.push(which);
                }
                from = to + if touches { 0 } else { self.dice.between(1, 4) };
            }
        }
        // Whatever is chosen, the first that is there is: the one with the sections.
        if self.locks() && self.dice.below(4) == 0 {
            spec.versions = vec![Version::new("a"), Version::new("b")];
            cost = Cost::Versions(vec![
                cost,
                Cost::Constant(Work::from_ns(self.dice.between(1, work.as_ns()))),
            ]);
        }
        self.tree.task(parent, spec);
        self.workload.sources.push(Source { arrivals, cost });
    }

    /// Small ones, or such that several in a row count; and jobs that come so close that decisions
    /// overtake each other.
    fn overheads(&mut self) -> Overheads {
        let most = if self.dice.below(3) == 0 { 1 } else { self.dice.between(2, 10) };
        self.scale = most * self.dice.between(1, 12);
        self.close = self.dice.below(3) * self.dice.between(1, 8);
        let mut small = || Span::from_ns(self.dice.below(most + 1));
        Overheads {
            release: small(),
            // Never none at all.
            decision: small().max(Span::from_ns(u64::from(most == 1))),
            level: Span::from_ns(small().as_ns() / 4),
            switch: small(),
            migration: small(),
        }
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
                || self.family == Family::Flat
                || self.locks()
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
        left: if matches!(family, Family::Overheads | Family::ResourcesOverheads) {
            450
        } else {
            850
        },
        tree: Tree::new(1, SchedulerSpec::new("root", Policy::Edf)),
        dice,
        workload,
        family,
        ties: seed.is_multiple_of(2),
        scale: 1,
        close: 0,
        style: Style::Any,
        loose: false,
        bound: false,
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
        Family::NonPreemptiveAbove => {
            maker.left = 500;
            let mut root = SchedulerSpec::new("root", Policy::FixedPriority);
            root.preemptive = maker.is_preemptive();
            maker.tree = Tree::new(1, root);
            maker.fill(Tree::ROOT, 2, true);
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
            maker.loose = maker.dice.below(3) == 0;
            maker.bound = maker.dice.below(4) == 0;
            let policy = match maker.dice.below(8) {
                0..3 => Policy::Edf,
                3..6 => Policy::RateMonotonic,
                6 => Policy::Fifo,
                // With equals.
                _ => Policy::FixedPriority,
            };
            let cpus = maker.dice.between(2, 3) as u32;
            maker.tree = Tree::new(cpus, SchedulerSpec::new("root", policy));
            for _ in 0..=cpus {
                maker.left = 500;
                maker.task(Tree::ROOT);
            }
        }
        Family::Resources | Family::ResourcesOverheads => {
            if family == Family::ResourcesOverheads {
                overheads = maker.overheads();
            }
            maker.scale *= 3;
            maker.ties &= maker.dice.below(8) == 0;
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
            maker.task(Tree::ROOT);
        }
        _ => {
            let policy = maker.policy();
            let mut root = SchedulerSpec::new("root", policy);
            root.preemptive = maker.is_preemptive();
            maker.tree = Tree::new(1, root);
            if family == Family::Overheads {
                overheads = maker.overheads();
            }
            if family == Family::Flat {
                maker.style =
                    [Style::Together, Style::Free, Style::Any][maker.dice.below(3) as usize];
            }
            let servers = family == Family::Mixed;
            let depth = if family == Family::Flat { 0 } else { 2 };
            maker.fill(Tree::ROOT, depth, servers);
            if family == Family::Flat {
                maker.task(Tree::ROOT);
            }
        }
    }
    Made { tree: maker.tree, workload: maker.workload, overheads, scale: maker.scale }
}
