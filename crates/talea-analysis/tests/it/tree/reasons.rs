//! Reasons why there is no bound: each names a change, and the change gives a bound.

use talea_analysis::tree::{ChainReason, Reason, RootModel};
use talea_core::engine::{SchedulerSpec, TaskSpec, Tree, Version};
use talea_core::sched::{PolicySpec, TableEntry};
use talea_core::server::{Reservation, ServerKind};
use talea_core::workload::{Arrivals, Cost, Source};
use talea_core::{Span, Work};

fn ns(ns: u64) -> Span {
    Span::from_ns(ns)
}

/// Returns the reason after `reason`. A new reason does not compile without an entry.
fn next(reason: Reason) -> Option<Reason> {
    Some(match reason {
        Reason::Overload => Reason::Starved,
        Reason::Starved => Reason::Graph,
        Reason::Graph => Reason::Suspension,
        Reason::Suspension => Reason::Accelerators,
        Reason::Accelerators => Reason::Resources,
        Reason::Resources => Reason::Sections,
        Reason::Sections => Reason::ArrivalCurve,
        Reason::ArrivalCurve => Reason::Arrivals,
        Reason::Arrivals => Reason::Endless,
        Reason::Endless => Reason::OfflineTable,
        Reason::OfflineTable => Reason::CustomServer,
        Reason::CustomServer => Reason::SoftCbs,
        Reason::SoftCbs => Reason::NonPreemptiveTable,
        Reason::NonPreemptiveTable => Reason::NestedTable,
        Reason::NestedTable => Reason::Lending,
        Reason::Lending => Reason::ServerNotPreemptive,
        Reason::ServerNotPreemptive => Reason::CpuStalls,
        Reason::CpuStalls => Reason::Overheads,
        Reason::Overheads => Reason::SeveralCpus,
        Reason::SeveralCpus => Reason::JitterOrLateDeadlines,
        Reason::JitterOrLateDeadlines => Reason::Insufficient,
        Reason::Insufficient => Reason::Circular,
        Reason::Circular => Reason::Limit,
        Reason::Limit => return None,
    })
}

fn next_of_chain(reason: ChainReason) -> Option<ChainReason> {
    Some(match reason {
        ChainReason::Response => ChainReason::Arrivals,
        ChainReason::Arrivals => ChainReason::Refusals,
        ChainReason::Refusals => ChainReason::Deadline,
        ChainReason::Deadline => ChainReason::Limit,
        ChainReason::Limit => return None,
    })
}

#[test]
fn each_reason_names_one_change_that_would_settle_it() {
    let of_tasks = std::iter::successors(Some(Reason::Overload), |&reason| next(reason));
    let of_tasks: Vec<_> = of_tasks.map(|reason| (reason.text(), reason.settled_by())).collect();
    let of_chains =
        std::iter::successors(Some(ChainReason::Response), |&reason| next_of_chain(reason));
    let of_chains: Vec<_> = of_chains.map(|reason| (reason.text(), reason.settled_by())).collect();
    assert_eq!((of_tasks.len(), of_chains.len()), (24, 5));
    for (text, settled_by) in [of_tasks, of_chains].concat() {
        let is_sentence = settled_by.len() > 10 && !settled_by.contains(['.', '\n']);
        assert!(is_sentence && settled_by != text, "{text}: {settled_by}");
    }
}

struct Case {
    tree: Tree,
    sources: Vec<Source>,
}

impl Case {
    fn new(policy: PolicySpec) -> Case {
        Case { tree: Tree::new(1, SchedulerSpec::new("root", policy)), sources: Vec::new() }
    }

    /// Returns whether the first task has no bound for `reason`.
    fn fails(&self, reason: Reason) -> bool {
        let found = RootModel::new(&self.tree, &self.sources).bounds().swap_remove(0);
        assert!(found.bound.as_ref().err().is_none_or(|no| no.reason == reason), "{found:?}");
        found.bound.is_err()
    }
}

fn periodic(cost: Cost) -> Source {
    let arrivals = Arrivals::Periodic { offset: Span::ZERO, period: ns(20), jitter: Span::ZERO };
    Source { arrivals, cost }
}

#[test]
fn a_budget_above_endless_jobs_settles_the_tasks_below_them() {
    for has_budget in [false, true] {
        let mut case = Case::new(PolicySpec::FixedPriority);
        let cost = Cost::Constant(Work::from_ns(2));
        case.tree.task(Tree::ROOT, TaskSpec::new("task", ns(20)));
        case.sources.push(periodic(cost));
        let mut urgent = TaskSpec::new("endless", ns(20));
        urgent.priority = 9;
        let mut server = SchedulerSpec::new("server", PolicySpec::Fifo);
        server.overrides.priority = Some(9);
        server.reservation =
            Some(Reservation::new(ServerKind::Deferrable, Work::from_ns(2), ns(10)));
        let parent = if has_budget { case.tree.scheduler(Tree::ROOT, server) } else { Tree::ROOT };
        case.tree.task(parent, urgent);
        case.sources.push(Source::endless());
        assert_eq!(case.fails(Reason::Endless), !has_budget);
    }
}

#[test]
fn a_root_with_inheritance_directly_above_settles_tasks_with_accelerators() {
    for (is_direct, inherits) in [(false, true), (true, false), (true, true)] {
        let mut case = Case::new(PolicySpec::FixedPriority);
        case.tree.inheritance = inherits;
        let gpu = case.tree.accelerator("gpu");
        let group =
            SchedulerSpec::new("group", PolicySpec::RoundRobin { quantum: Work::from_ns(1) });
        let parent = if is_direct { Tree::ROOT } else { case.tree.scheduler(Tree::ROOT, group) };
        for _ in 0..2 {
            let mut spec = TaskSpec::new("task", ns(20));
            let mut version = Version::new("on it");
            version.accelerators.push(gpu);
            spec.versions.push(version);
            case.tree.task(parent, spec);
            let cost = Cost::Versions(vec![Cost::Constant(Work::from_ns(2))]);
            case.sources.push(periodic(cost));
        }
        assert_eq!(case.fails(Reason::Accelerators), !(is_direct && inherits));
    }
}

#[test]
fn entries_of_tasks_settle_an_offline_table() {
    for has_scheduler in [false, true] {
        let entry = TableEntry::new(0, ns(5), ns(8), 0);
        let mut case = Case::new(PolicySpec::Table { hyperperiod: ns(20), entries: vec![entry] });
        let group = SchedulerSpec::new("group", PolicySpec::FixedPriority);
        let parent =
            if has_scheduler { case.tree.scheduler(Tree::ROOT, group) } else { Tree::ROOT };
        case.tree.task(parent, TaskSpec::new("task", ns(20)));
        case.sources.push(periodic(Cost::Constant(Work::from_ns(2))));
        assert_eq!(case.fails(Reason::OfflineTable), has_scheduler);
    }
}
