//! Random trees of every kind of node, with their workloads.

use crate::rng::Rng;
use talea_core::criteria::Overrides;
use talea_core::engine::{
    Affinity, NodeId, Protocol, ResourceId, SchedulerSpec, TaskSpec, Tree, Version,
};
use talea_core::sched::{PolicySpec, Slot};
use talea_core::server::{Reservation, ServerKind};
use talea_core::workload::{Arrivals, Cost, Overheads, Source};
use talea_core::{Span, Work};
use talea_sim::Workload;

/// Kinds of nodes in a generated tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    /// Schedulers of every policy and servers of every kind, below each other.
    Mixed,
    /// A table at the root or beside TP_0.
    Partitions,
    /// Non-preemptive schedulers.
    NonPreemptive,
    /// Non-preemptive schedulers above servers and tables, so that a slot can open while another
    /// job runs.
    NonPreemptiveAbove,
    /// Overheads, without servers and tables.
    Overheads,
    /// Shared resources below the root.
    Resources,
    /// Shared resources with overheads.
    ResourcesOverheads,
    /// Tasks below the root, released together or with free phasing.
    Flat,
    /// Servers in an EDF scheduler within fixed priorities.
    Band,
    /// Tasks on two or three CPUs.
    Global,
}

#[derive(Debug)]
pub(crate) struct RandomTree {
    pub(crate) tree: Tree,
    pub(crate) workload: Workload,
    pub(crate) overheads: Overheads,
    /// Approximate granularity of the numbers, in nanoseconds.
    pub(crate) scale: u64,
}

struct TreeGenerator<'a> {
    rng: &'a mut Rng,
    tree: Tree,
    workload: Workload,
    family: Family,
    /// Thousandths of the CPU left for tasks.
    left: u64,
    ties: bool,
    /// Nanoseconds in one unit; larger if overheads are to be small beside periods.
    scale: u64,
    /// Maximum distance of the first arrivals of all jobs; 0: within a period.
    close: u64,
    /// Arrivals of the tasks of a flat tree.
    style: Style,
    /// Whether tasks on several CPUs have D > T and jitter, or are pinned to one CPU each.
    loose: bool,
    bound: bool,
}

/// Arrivals of tasks below the root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Style {
    /// Synchronous, then periodic.
    Together,
    /// Sporadic with free phasing.
    Free,
    /// Chosen at random for each task.
    Any,
}

const STATIC: [PolicySpec; 4] = [
    PolicySpec::FixedPriority,
    PolicySpec::RateMonotonic,
    PolicySpec::DeadlineMonotonic,
    PolicySpec::CriticalityMonotonic,
];

impl TreeGenerator<'_> {
    fn locks(&self) -> bool {
        matches!(self.family, Family::Resources | Family::ResourcesOverheads)
    }

    fn has_overheads(&self) -> bool {
        matches!(self.family, Family::Overheads | Family::ResourcesOverheads)
    }

    fn policy(&mut self) -> PolicySpec {
        match self.rng.below(9) {
            0..3 => PolicySpec::FixedPriority,
            3 => STATIC[self.rng.below(4) as usize].clone(),
            4..7 => PolicySpec::Edf,
            7 => PolicySpec::Fifo,
            _ if self.has_overheads() => PolicySpec::Edf,
            _ => PolicySpec::RoundRobin { quantum: Work::from_ns(self.rng.between(1, 3)) },
        }
    }

    fn group(&mut self, policy: PolicySpec) -> SchedulerSpec {
        let mut spec = SchedulerSpec::new("group", policy);
        if self.rng.below(3) > 0 {
            spec.overrides = Overrides {
                priority: Some(self.rng.between(1, if self.ties { 2 } else { 5 }) as u8),
                ..Overrides::default()
            };
        }
        spec.preemptive = self.is_preemptive();
        spec
    }

    fn is_preemptive(&mut self) -> bool {
        match self.family {
            Family::NonPreemptive | Family::NonPreemptiveAbove => self.rng.below(2) > 0,
            Family::Overheads => self.rng.below(6) > 0,
            _ => true,
        }
    }

    fn task(&mut self, parent: NodeId) {
        // Every other tree has few values, and so many equals.
        let period =
            if self.ties { 6 << self.rng.below(3) } else { self.rng.between(5, 40) } * self.scale;
        let most = (period * self.left / 1_000).clamp(1, 1 + period / 4);
        let cost = self.rng.between(1, most);
        self.left = self.left.saturating_sub(cost * 1_000 / period);
        let mut spec = TaskSpec::new("task", Span::from_ns(period));
        let is_global = self.family == Family::Global;
        let latest = if is_global && !self.loose { period } else { 2 * period };
        if self.bound {
            spec.affinity = Affinity::only(self.rng.below(self.tree.cpus.into()) as u32);
        }
        spec.deadline = Span::from_ns(self.rng.between(cost, latest));
        // Blocking terms want distinct keys.
        let levels = if self.locks() { 90 } else { 6 };
        spec.priority = self.rng.between(1, if self.ties { 2 } else { levels }) as u8;
        spec.criticality = self.rng.below(if self.ties { 2 } else { 4 }) as u8;
        spec.backlog.capacity = 1 << 10;
        let together = self.style != Style::Any || self.rng.below(2) == 0;
        let offset = match self.close {
            0 if together => 0,
            0 => self.rng.below(period),
            close => self.rng.below(close),
        };
        let (offset, period) = (Span::from_ns(offset), Span::from_ns(period));
        let way = match self.style {
            Style::Together => 0,
            Style::Free => 3 + self.rng.below(2),
            Style::Any => self.rng.below(4),
        };
        let arrivals = match way {
            2 if (!is_global || self.loose) && !self.locks() => {
                let beyond = if self.rng.below(4) == 0 { 3 * period.as_ns() } else { 8 };
                let jitter = Span::from_ns(self.rng.below(beyond));
                Arrivals::Periodic { offset, period, jitter }
            }
            0..=2 => Arrivals::Periodic { offset, period, jitter: Span::ZERO },
            3 => Arrivals::Sporadic {
                offset,
                separation: period,
                extra_separation: Span::from_ns(self.rng.below(9)),
            },
            _ => Arrivals::Sporadic {
                offset,
                separation: period,
                extra_separation: Span::from_ns(1),
            },
        };
        let work = Work::from_ns(cost);
        let mut cost = match self.rng.below(if self.family == Family::Flat { 5 } else { 3 }) {
            0 | 1 => Cost::Constant(work),
            2 => Cost::Uniform { min: Work::from_ns(1), max: work },
            3 => Cost::List(vec![work, Work::from_ns(self.rng.between(1, work.as_ns()))]),
            _ => Cost::Pair {
                low: Work::from_ns(1),
                high: work,
                share: self.rng.below(3) as u32 * 400,
            },
        };
        if self.locks() && self.rng.below(4) > 0 {
            cost = Cost::Constant(work);
            // One after the other, and often at once.
            let mut from = self.rng.below(2) * self.rng.below(work.as_ns());
            let touches = self.rng.below(2) == 0;
            while from < work.as_ns() && self.rng.below(4) > 0 {
                let which = ResourceId(self.rng.below(self.tree.resources.len() as u64) as u32);
                let to = self.rng.between(from + 1, work.as_ns());
                cost = cost.locking(which, Work::from_ns(from), Work::from_ns(to));
                if !spec.uses.contains(&which) {
                    spec.uses.push(which);
                }
                from = to + if touches { 0 } else { self.rng.between(1, 4) };
            }
        }
        // Whatever is chosen, the first that is there is: the one with the sections.
        if self.locks() && self.rng.below(4) == 0 {
            spec.versions = vec![Version::new("a"), Version::new("b")];
            cost = Cost::Versions(vec![
                cost,
                Cost::Constant(Work::from_ns(self.rng.between(1, work.as_ns()))),
            ]);
        }
        self.tree.task(parent, spec);
        self.workload.sources.push(Source { arrivals, cost });
    }

    /// Returns small overheads, or overheads of which several in a row count. Jobs then arrive so
    /// close that decisions overtake each other.
    fn overheads(&mut self) -> Overheads {
        let most = if self.rng.below(3) == 0 { 1 } else { self.rng.between(2, 10) };
        self.scale = most * self.rng.between(1, 12);
        self.close = self.rng.below(3) * self.rng.between(1, 8);
        let mut small = || Span::from_ns(self.rng.below(most + 1));
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
        let kinds = [
            ServerKind::Polling,
            ServerKind::Deferrable,
            ServerKind::Sporadic,
            ServerKind::HardCbs,
            ServerKind::SoftCbs,
        ];
        let kind = kinds[self.rng.below(5) as usize];
        let period = self.rng.between(4, 20);
        let most = (period * self.left / 1_000).clamp(1, 1 + period / 3);
        let budget = self.rng.between(1, most);
        self.left = self.left.saturating_sub(budget * 1_000 / period);
        let mut of = Reservation::new(kind, Work::from_ns(budget), Span::from_ns(period));
        if self.rng.below(3) == 0 {
            of.deadline = Some(Span::from_ns(self.rng.between(budget, period)));
        }
        if self.rng.below(3) == 0 {
            of.offset = Span::from_ns(self.rng.below(period));
        }
        of
    }

    /// Calls `fill` below a server. The added tasks share the server's budget.
    fn within(&mut self, of: &Reservation, fill: impl FnOnce(&mut Self)) {
        let left = self.left;
        self.left = of.budget.as_ns() * 900 / of.period.as_ns();
        fill(self);
        self.left = left;
    }

    fn fill(&mut self, parent: NodeId, depth: u64, servers: bool) {
        for _ in 0..self.rng.between(1, 3) {
            let is_leaf =
                depth == 0 || self.family == Family::Flat || self.locks() || self.rng.below(2) == 0;
            if is_leaf {
                self.task(parent);
                continue;
            }
            let policy = self.policy();
            let mut spec = self.group(policy);
            if servers && self.rng.below(2) == 0 {
                let of = self.reservation();
                spec.reservation = Some(of);
                let node = self.tree.scheduler(parent, spec);
                self.within(&of, |generator| generator.fill(node, depth - 1, servers));
            } else {
                let node = self.tree.scheduler(parent, spec);
                self.fill(node, depth - 1, servers);
            }
        }
    }

    fn table(&mut self, parent: Option<NodeId>) {
        let owners = self.rng.between(1, 3);
        let (mut slots, mut at) = (Vec::new(), 0);
        for _ in 0..self.rng.between(owners, 4) {
            let start = at + self.rng.below(3);
            let end = start + self.rng.between(1, 6);
            let owner = self.rng.below(owners) as u32;
            slots.push(Slot { start: Span::from_ns(start), end: Span::from_ns(end), owner });
            at = end;
        }
        let frame = Span::from_ns(at + self.rng.below(4));
        let lending = self.rng.below(3) == 0;
        let policy = PolicySpec::Partitions { frame, slots: slots.clone(), lending };
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
            let policy =
                if self.rng.below(3) > 0 { PolicySpec::FixedPriority } else { self.policy() };
            let mut spec = SchedulerSpec::new("partition", policy);
            if self.rng.below(4) == 0 {
                spec.overrides.priority =
                    Some(self.rng.between(1, if self.ties { 2 } else { 5 }) as u8);
            }
            let node = self.tree.scheduler(table, spec);
            let left = core::mem::replace(&mut self.left, total * 700 / frame.as_ns());
            self.fill(node, 1, false);
            self.left = left;
        }
    }
}

pub(crate) fn random_tree(rng: &mut Rng, family: Family) -> RandomTree {
    let seed = rng.next();
    let workload = Workload { seed, ..Workload::default() };
    let mut generator = TreeGenerator {
        left: if matches!(family, Family::Overheads | Family::ResourcesOverheads) {
            450
        } else {
            850
        },
        tree: Tree::new(1, SchedulerSpec::new("root", PolicySpec::Edf)),
        rng,
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
        Family::Partitions if generator.rng.below(2) == 0 => generator.table(None),
        Family::Partitions => {
            generator.left = 300;
            generator.tree = Tree::new(1, SchedulerSpec::new("root", PolicySpec::FixedPriority));
            generator.fill(Tree::ROOT, 1, true);
            generator.table(Some(Tree::ROOT));
        }
        Family::NonPreemptiveAbove => {
            generator.left = 500;
            let mut root = SchedulerSpec::new("root", PolicySpec::FixedPriority);
            root.preemptive = generator.is_preemptive();
            generator.tree = Tree::new(1, root);
            generator.fill(Tree::ROOT, 2, true);
            generator.table(Some(Tree::ROOT));
        }
        Family::Band => {
            generator.tree = Tree::new(1, SchedulerSpec::new("root", PolicySpec::FixedPriority));
            generator.task(Tree::ROOT);
            for priority in 1..=generator.rng.between(1, 2) {
                let mut band = SchedulerSpec::new("band", PolicySpec::Edf);
                band.overrides.priority = Some(2 * priority as u8);
                let band = generator.tree.scheduler(Tree::ROOT, band);
                generator.fill(band, 1, true);
            }
            generator.task(Tree::ROOT);
        }
        Family::Global => {
            generator.loose = generator.rng.below(3) == 0;
            generator.bound = generator.rng.below(4) == 0;
            let policy = match generator.rng.below(8) {
                0..3 => PolicySpec::Edf,
                3..6 => PolicySpec::RateMonotonic,
                6 => PolicySpec::Fifo,
                // With equals.
                _ => PolicySpec::FixedPriority,
            };
            let cpus = generator.rng.between(2, 3) as u32;
            generator.tree = Tree::new(cpus, SchedulerSpec::new("root", policy));
            for _ in 0..=cpus {
                generator.left = 500;
                generator.task(Tree::ROOT);
            }
        }
        Family::Resources | Family::ResourcesOverheads => {
            if family == Family::ResourcesOverheads {
                overheads = generator.overheads();
            }
            generator.scale *= 3;
            generator.ties &= generator.rng.below(8) == 0;
            let policy = match generator.rng.below(3) {
                0 => PolicySpec::Edf,
                1 => PolicySpec::RateMonotonic,
                _ => PolicySpec::FixedPriority,
            };
            let ceiling = matches!(policy, PolicySpec::Edf) || generator.rng.below(2) == 0;
            generator.tree = Tree::new(1, SchedulerSpec::new("root", policy));
            for _ in 0..generator.rng.between(1, 2) {
                let protocol = if ceiling { Protocol::Ceiling } else { Protocol::Inheritance };
                generator.tree.resource("shared", protocol);
            }
            generator.fill(Tree::ROOT, 0, false);
            generator.task(Tree::ROOT);
        }
        _ => {
            let policy = generator.policy();
            let mut root = SchedulerSpec::new("root", policy);
            root.preemptive = generator.is_preemptive();
            generator.tree = Tree::new(1, root);
            if family == Family::Overheads {
                overheads = generator.overheads();
            }
            if family == Family::Flat {
                generator.style =
                    [Style::Together, Style::Free, Style::Any][generator.rng.below(3) as usize];
            }
            let servers = family == Family::Mixed;
            let depth = if family == Family::Flat { 0 } else { 2 };
            generator.fill(Tree::ROOT, depth, servers);
            if family == Family::Flat {
                generator.task(Tree::ROOT);
            }
        }
    }
    RandomTree {
        tree: generator.tree,
        workload: generator.workload,
        overheads,
        scale: generator.scale,
    }
}
