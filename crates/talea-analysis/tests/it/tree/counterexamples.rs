//! Systems whose bound was too low in an earlier version, or that it refuted although no job is
//! late.

use crate::rng::{Deadlines, random, rng};
use talea_analysis::multi::{self, bertogna_cirinei};
use talea_analysis::test_info::TestKind;
use talea_analysis::tree::{PRECEDENCE, Reason, RootModel, TaskBound};
use talea_core::engine::{
    NodeId, NodeSpec, Protocol, ResourceId, SchedulerSpec, TaskSpec, Tree, Version,
};
use talea_core::sched::{PolicySpec, Slot};
use talea_core::server::{Reservation, ServerKind as Server};
use talea_core::workload::{Arrivals, Cost, Overheads, Source, Stall};
use talea_core::{Span, Time, Work};
use talea_sim::{Jobs, Simulation, Workload};

fn ns(ns: u64) -> Span {
    Span::from_ns(ns)
}

/// Tasks below a root of one CPU.
struct System {
    tree: Tree,
    sources: Vec<Source>,
    overheads: Overheads,
}

impl System {
    fn new(policy: PolicySpec) -> System {
        let tree = Tree::new(1, SchedulerSpec::new("root", policy));
        System { tree, sources: Vec::new(), overheads: Overheads::default() }
    }

    /// Adds a task with a priority and (cost, period, deadline, offset).
    fn task(
        &mut self,
        priority: u8,
        (cost, period, deadline, offset): (u64, u64, u64, u64),
    ) -> NodeId {
        let mut spec = TaskSpec::new("task", ns(period));
        spec.deadline = ns(deadline);
        spec.priority = priority;
        let arrivals =
            Arrivals::Periodic { offset: ns(offset), period: ns(period), jitter: Span::ZERO };
        self.sources.push(Source { arrivals, cost: Cost::Constant(Work::from_ns(cost)) });
        self.tree.task(Tree::ROOT, spec)
    }

    /// Lets `task` hold `resource` between the offsets `from` and `to` of its work.
    fn locks(&mut self, task: NodeId, resource: ResourceId, from: u64, to: u64) {
        if let Some(NodeSpec::Task(spec)) = self.tree.get_mut(task).map(|node| &mut node.spec)
            && !spec.uses.contains(&resource)
        {
            spec.uses.push(resource);
        }
        let last = self.sources.last_mut().expect("it was added");
        last.cost = last.cost.clone().locking(resource, Work::from_ns(from), Work::from_ns(to));
    }

    fn roots(&self) -> RootModel<'_> {
        RootModel { overheads: self.overheads, ..RootModel::new(&self.tree, &self.sources) }
    }

    fn answers(&self) -> Vec<TaskBound> {
        self.roots().bounds()
    }

    /// Returns the longest simulated response of each task within `until`.
    fn simulated(&self, until: u64) -> Vec<Span> {
        let workload = Workload { sources: self.sources.clone(), seed: 1 };
        let world = Simulation::new(self.tree.build().expect("a tree"), 1, &workload);
        let mut jobs = Jobs::default();
        world.with_overheads(self.overheads).run(Time::from_ns(until), &mut jobs);
        let mut longest = vec![Span::ZERO; self.sources.len()];
        for job in &jobs.ended {
            let slot = &mut longest[job.task.0 as usize];
            *slot = job.response().max(*slot);
        }
        longest
    }

    fn reasons(&self) -> Vec<Option<Reason>> {
        self.answers()
            .iter()
            .map(|answer| answer.bound.as_ref().err().map(|no| no.reason))
            .collect()
    }
}

fn bounds(answers: &[TaskBound]) -> Vec<Span> {
    answers.iter().map(|answer| answer.bound.clone().expect("a bound")).collect()
}

const US: u64 = 1_000;

#[test]
fn superseded_dispatch_orders_still_cost_time() {
    for policy in [PolicySpec::FixedPriority, PolicySpec::DeadlineMonotonic, PolicySpec::Edf] {
        let mut system = System::new(policy);
        system.overheads.decision = ns(10 * US);
        for at in 0..4u64 {
            let deadline = if at == 3 { 35 * US } else { (100 - 20 * at) * US };
            system.task(1 + at as u8, (US, 1_000_000 * US, deadline, at * US));
        }
        assert_eq!(system.simulated(1_000 * US)[3], ns(38 * US));
        let urgent = &system.answers()[3];
        // Its own orders and two before it; orders after its completion do not count:
        // 3 · 10 + 2 · 10 + 1, less 10.
        assert_eq!(urgent.bound, Ok(ns(41 * US)));
        assert!(!urgent.is_proved() && !urgent.is_refuted());
    }
}

#[test]
fn a_non_preemptive_root_has_one_pending_dispatch_order() {
    let mut system = System::new(PolicySpec::FixedPriority);
    system.overheads.decision = ns(10);
    if let Some(NodeSpec::Scheduler(root)) =
        system.tree.get_mut(Tree::ROOT).map(|node| &mut node.spec)
    {
        root.preemptive = false;
    }
    for at in 0..6u64 {
        system.task(1 + at as u8, (5, 1_000, 1_000, at));
    }
    let (found, bounds) = (system.simulated(1_000), bounds(&system.answers()));
    // The job below with its orders, less the nanosecond that it came before, and its own.
    assert_eq!((found[5], bounds[5]), (ns(25), ns(24 + 25)));
    assert!(found.iter().zip(&bounds).all(|(found, bound)| found <= bound));
}

/// Returns a system in which L holds a for 10 and b for the next 10. H, more urgent, uses both.
fn touching(policy: PolicySpec, protocol: Protocol, between: u64) -> System {
    let mut system = System::new(policy);
    let (a, b) = (system.tree.resource("a", protocol), system.tree.resource("b", protocol));
    let high = system.task(9, (4, 200, 15, 1));
    system.locks(high, a, 1, 2);
    system.locks(high, b, 2 + between, 3 + between);
    let low = system.task(1, (20, 200, 200, 0));
    system.locks(low, a, 0, 10);
    system.locks(low, b, 10, 20);
    system
}

#[test]
fn contiguous_sections_block_as_one() {
    for protocol in [Protocol::Ceiling, Protocol::Inheritance] {
        let system = touching(PolicySpec::FixedPriority, protocol, 1);
        let found = system.simulated(190)[0];
        assert_eq!(found, ns(23), "{protocol:?}");
        assert_eq!(system.answers()[0].bound, Ok(ns(24)), "{protocol:?}");
    }
}

#[test]
fn a_contiguous_section_that_would_not_block_lets_others_start() {
    let mut system = System::new(PolicySpec::FixedPriority);
    let a = system.tree.resource("a", Protocol::Ceiling);
    let own = system.tree.resource("own", Protocol::Ceiling);
    let high = system.task(9, (4, 200, 200, 1));
    system.locks(high, a, 0, 1);
    let low = system.task(1, (30, 200, 200, 0));
    system.locks(low, a, 0, 6);
    system.locks(low, own, 6, 20);
    system.locks(low, a, 20, 29);
    assert_eq!(system.simulated(190)[0], ns(5 + 4));
    // The longer of the two runs of a.
    assert_eq!(system.answers()[0].bound, Ok(ns(9 + 4)));
}

#[test]
fn a_ceiling_that_changes_between_contiguous_sections_is_not_bounded() {
    // H comes in between a and b, since the floor is moved, and waits for b. It lends its key: M,
    // less urgent, but due before the floor, does not go first. No test here counts with that.
    let mut system = System::new(PolicySpec::Edf);
    let (a, b) = (
        system.tree.resource("a", Protocol::Ceiling),
        system.tree.resource("b", Protocol::Ceiling),
    );
    system.task(0, (40, 900, 100, 9));
    let high = system.task(0, (6, 900, 100, 5));
    system.locks(high, b, 0, 2);
    system.locks(high, a, 3, 4);
    let low = system.task(0, (20, 900, 900, 0));
    system.locks(low, a, 0, 10);
    system.locks(low, b, 10, 20);
    let found = system.simulated(890)[1];
    assert_eq!(found, ns(5 + 10 + 6), "what is left of both sections, and itself");
    assert_eq!(system.reasons(), [Some(Reason::Resources); 3]);
}

#[test]
fn inheritance_with_dispatch_cost_is_not_bounded() {
    let mut system = touching(PolicySpec::FixedPriority, Protocol::Inheritance, 1);
    system.overheads.release = ns(1);
    assert_eq!(system.reasons(), [None, None], "orders cost nothing");
    system.overheads.decision = ns(1);
    assert_eq!(system.reasons(), [Some(Reason::Overheads); 2]);
}

#[test]
fn a_task_with_the_key_of_the_ceiling_may_block_late_and_pays_two_more_orders() {
    let mut system = System::new(PolicySpec::RateMonotonic);
    system.overheads.decision = ns(10);
    let a = system.tree.resource("a", Protocol::Ceiling);
    let high = system.task(0, (4, 500, 500, 30));
    system.locks(high, a, 1, 2);
    let low = system.task(0, (60, 900, 900, 0));
    system.locks(low, a, 0, 60);
    // Its order, one; the holder's order, the rest of its 60 but 20; an order back, three.
    let found = system.simulated(490)[0];
    assert_eq!(found, ns(10 + 1 + 10 + 40 + 10 + 3));
    assert!(bounds(&system.answers())[0] >= found);
}

#[test]
fn cpu_stalls_are_never_ignored() {
    let mut system = System::new(PolicySpec::Edf);
    system.task(0, (1, 10, 10, 0));
    let stalls =
        [Stall { cpu: talea_core::engine::Cpu(0), from: Time::from_ns(5), to: Time::from_ns(25) }];
    let mut roots = system.roots();
    assert!(roots.bounds()[0].is_proved());
    roots.stalls = &stalls;
    let no = roots.bounds()[0].bound.clone().expect_err("no test");
    assert_eq!((no.node, no.reason), (Tree::ROOT, Reason::CpuStalls));
    assert_eq!(
        roots.interference_of(&[Tree::ROOT]).expect_err("no test").reason,
        Reason::CpuStalls
    );
}

#[test]
fn server_supply_is_unknown_with_overheads() {
    let mut system = System::new(PolicySpec::FixedPriority);
    let mut spec = SchedulerSpec::new("server", PolicySpec::FixedPriority);
    spec.reservation = Some(Reservation::new(Server::Deferrable, Work::from_ns(3), ns(10)));
    let server = system.tree.scheduler(Tree::ROOT, spec);
    let task = system.task(9, (1, 10, 10, 0));
    assert!(
        system.roots().supplied(server, ns(50)).is_ok()
            && system.roots().interference_of(&[task]).is_ok()
    );
    system.overheads.switch = ns(1);
    let reason = |no: talea_analysis::tree::NoBound| no.reason;
    assert_eq!(system.roots().supplied(server, ns(50)).map_err(reason), Err(Reason::Overheads));
    assert_eq!(system.roots().interference_of(&[task]).map_err(reason), Err(Reason::Overheads));
}

#[test]
fn deferred_arrivals_pay_their_overhead() {
    let mut system = System::new(PolicySpec::FixedPriority);
    let held = system.task(9, (1, 50, 50, 0));
    system.task(1, (5, 100, 100, 0));
    system.sources[0].arrivals = Arrivals::List((0..30).map(Time::from_ns).collect());
    if let Some(NodeSpec::Task(spec)) = system.tree.get_mut(held).map(|node| &mut node.spec) {
        spec.enforced = true;
    }
    assert_eq!(system.reasons(), [None, None]);
    system.overheads.release = ns(1);
    assert!(system.simulated(100)[1] > ns(30), "all thirty of them");
    assert_eq!(system.reasons(), [Some(Reason::Overheads); 2]);
}

#[test]
fn y13_user_activations_have_no_known_separation() {
    let mut system = System::new(PolicySpec::FixedPriority);
    system.task(5, (1, 10, 10, 0));
    system.sources[0] = Source::activated(Cost::Constant(Work::from_ns(1)));
    system.task(1, (1, 10, 10, 0));
    system.task(9, (1, 10, 10, 0));
    // Tasks above it are unaffected.
    assert_eq!(system.reasons(), [Some(Reason::Arrivals), Some(Reason::Arrivals), None]);
    if let Some(NodeSpec::Task(spec)) = system.tree.get_mut(NodeId(1)).map(|node| &mut node.spec) {
        spec.enforced = true;
    }
    assert_eq!(system.reasons(), [None; 3]);
}

#[test]
fn tasks_above_a_task_without_a_test_have_bounds() {
    let mut system = System::new(PolicySpec::FixedPriority);
    system.task(5, (2, 10, 10, 0));
    system.sources[0].cost = system.sources[0].cost.clone().suspending(Work::from_ns(1), ns(3));
    system.task(9, (1, 10, 10, 0));
    let below = system.task(1, (1, 20, 20, 0));
    // A table isolates its partitions, and a server isolates others from its clients.
    let mut spec = SchedulerSpec::new("server", PolicySpec::FixedPriority);
    spec.overrides.priority = Some(7);
    spec.reservation = Some(Reservation::new(Server::Polling, Work::from_ns(1), ns(10)));
    let server = system.tree.scheduler(Tree::ROOT, spec);
    let client = system.tree.task(server, TaskSpec::new("client", ns(40)));
    system.sources.push(Source::activated(Cost::Constant(Work::from_ns(1))));
    let (suspends, arrives) = (Some(Reason::Suspension), Some(Reason::Arrivals));
    assert_eq!(system.reasons(), [suspends, None, suspends, arrives]);
    system.sources[0].cost = Cost::Constant(Work::from_ns(2));
    let answers = system.answers();
    let bounded: Vec<NodeId> =
        answers.iter().filter(|answer| answer.bound.is_ok()).map(|answer| answer.node).collect();
    assert_eq!(answers[3].node, client);
    assert_eq!(bounded, [NodeId(1), NodeId(2), below], "all but the client");
    // Below a non-preemptive root no task has a bound.
    if let Some(NodeSpec::Scheduler(spec)) =
        system.tree.get_mut(Tree::ROOT).map(|node| &mut node.spec)
    {
        spec.preemptive = false;
    }
    system.sources[0].cost = system.sources[0].cost.clone().suspending(Work::from_ns(1), ns(3));
    assert_eq!(system.reasons(), [Some(Reason::Suspension); 4]);
}

#[test]
fn y15_polling_a_device_costs_its_time_and_no_server_limits_an_idle_cpu() {
    let system = |is_spinning: bool, has_server: bool| {
        let mut system = System::new(PolicySpec::FixedPriority);
        system.task(5, (2, 20, 20, 0));
        let cost = &mut system.sources[0].cost;
        *cost = cost.clone().occupying(Work::from_ns(1), ns(3), is_spinning);
        system.task(9, (1, 20, 20, 0));
        system.task(1, (1, 20, 20, 0));
        if has_server {
            let mut spec = SchedulerSpec::new("server", PolicySpec::FixedPriority);
            spec.overrides.priority = Some(7);
            spec.reservation = Some(Reservation::new(Server::Deferrable, Work::from_ns(1), ns(20)));
            system.tree.scheduler(Tree::ROOT, spec);
        }
        system
    };
    let spin = system(true, false);
    assert_eq!(bounds(&spin.answers()), [ns(6), ns(1), ns(7)]);
    assert_eq!(spin.simulated(1_000), [ns(6), ns(1), ns(7)]);
    let held = [Some(Reason::Suspension), None, Some(Reason::Suspension)];
    assert_eq!(system(false, false).reasons(), held);
    assert_eq!(system(false, true).reasons(), [Some(Reason::Suspension); 3]);
    // The device also works while the job is preempted: the bound is not exact.
    assert!(!spin.answers()[0].is_refuted());
}

#[test]
fn phasings_that_cannot_occur_refute_nothing() {
    let two = |change: &dyn Fn(&mut System)| {
        let mut system = System::new(PolicySpec::FixedPriority);
        system.task(9, (10, 25, 10, 0));
        system.task(1, (10, 25, 10, 0));
        assert!(system.answers()[1].is_refuted(), "together they can't");
        change(&mut system);
        (system.answers()[1].clone(), system.simulated(1_000)[1])
    };
    let at = |offset, jitter| Arrivals::Periodic {
        offset: ns(offset),
        period: ns(25),
        jitter: ns(jitter),
    };
    let (offsets, found) = two(&|system| system.sources[1].arrivals = at(10, 0));
    assert_eq!(found, ns(10));
    assert_eq!(
        (offsets.kind, offsets.bound.clone(), offsets.is_refuted()),
        (TestKind::Sufficient, Ok(ns(20)), false)
    );
    let times = |times: &[u64]| Arrivals::List(times.iter().copied().map(Time::from_ns).collect());
    let cheap = |share| Cost::Pair { low: Work::from_ns(1), high: Work::from_ns(10), share };
    for (change, refuted) in [
        (
            &(|system: &mut System| system.sources[0].arrivals = times(&[0, 25, 900]))
                as &dyn Fn(&mut System),
            false,
        ),
        (&|system| system.sources[0].cost = cheap(0), false),
        (&|system| system.sources[0].cost = cheap(1), true),
        (
            &|system| {
                system.sources[0].cost = Cost::List(vec![Work::from_ns(10), Work::from_ns(1)]);
            },
            false,
        ),
        // Seen as late as can be, they come together; the others early.
        (&|system| system.sources.iter_mut().for_each(|source| source.arrivals = at(3, 2)), true),
        (&|system| system.sources[0].arrivals = at(0, 2), false),
        // They drift through all distances, or through none.
        (
            &|system| {
                system.sources[0].arrivals = Arrivals::Sporadic {
                    offset: ns(7),
                    separation: ns(25),
                    extra_separation: ns(1),
                }
            },
            true,
        ),
        (
            &|system| {
                system.sources[0].arrivals = Arrivals::Sporadic {
                    offset: ns(7),
                    separation: ns(25),
                    extra_separation: ns(0),
                }
            },
            false,
        ),
    ] {
        let (answer, _) = two(change);
        assert_eq!(answer.is_refuted(), refuted, "{answer:?}");
        assert!(!answer.is_proved(), "{answer:?}");
    }
}

#[test]
fn equals_by_arrival_or_deadline_are_served_in_the_order_of_their_numbers() {
    for policy in [PolicySpec::Fifo, PolicySpec::Edf] {
        let mut system = System::new(policy.clone());
        system.task(0, (5, 20, 9, 0));
        system.task(0, (5, 20, if matches!(policy, PolicySpec::Fifo) { 10 } else { 9 }, 0));
        for source in &mut system.sources {
            source.arrivals = Arrivals::Sporadic {
                offset: Span::ZERO,
                separation: ns(20),
                extra_separation: ns(4),
            };
        }
        let answers = system.answers();
        // The first of two that come together is served first, so that nothing is known of its
        // bound of 10.
        assert_eq!(
            (answers[0].kind, answers[0].bound.clone()),
            (TestKind::Sufficient, Ok(ns(10))),
            "{policy:?}"
        );
        assert!(!answers[0].is_refuted());
        assert_eq!(
            (answers[1].kind, answers[1].bound.clone()),
            (TestKind::Exact, Ok(ns(10))),
            "{policy:?}"
        );
    }
}

#[test]
fn on_several_cpus_the_accepting_test_is_named() {
    let on = |tasks: &[(u64, u64, u64)]| {
        let mut tree = Tree::new(2, SchedulerSpec::new("root", PolicySpec::Edf));
        let mut sources = Vec::new();
        for &(cost, period, deadline) in tasks {
            let mut spec = TaskSpec::new("task", ns(period));
            spec.deadline = ns(deadline);
            tree.task(Tree::ROOT, spec);
            sources.push(Source::periodic(ns(period), Work::from_ns(cost)));
        }
        RootModel::new(&tree, &sources).bounds()
    };
    let (mut by_others, mut names) = (0, std::collections::BTreeSet::new());
    let mut rng = rng(53);
    for _ in 0..2_000 {
        let count = rng.between(3, 5);
        let tasks = random(&mut rng, count, 20, 160 / count, Deadlines::Constrained);
        let plain: Vec<_> = tasks
            .iter()
            .map(|task| (task.cost.as_ns(), task.period.as_ns(), task.deadline.as_ns()))
            .collect();
        let answers = on(&plain);
        let mut scratch = multi::Scratch::new();
        let alone =
            bertogna_cirinei::test(bertogna_cirinei::GlobalPolicy::Edf, &tasks, 2, &mut scratch);
        if answers.iter().all(TaskBound::is_proved) && !alone.is_proved() {
            by_others += 1;
            names.extend(answers.iter().map(|answer| answer.test.name));
            assert!(answers.iter().all(|answer| answer.kind == TestKind::Sufficient));
        }
        assert!(answers.iter().all(TaskBound::is_proved) || !alone.is_proved());
    }
    println!("{by_others} by others: {names:?}");
    assert!(by_others > 5 && !names.contains("bertogna-cirinei-edf"), "{by_others} {names:?}");
    let overload = on(&[(2, 3, 3), (2, 3, 3), (2, 3, 3), (1, 9, 9)]);
    assert!(
        overload
            .iter()
            .all(|answer| answer.bound.as_ref().is_err_and(|no| no.reason == Reason::Overload))
    );
    // No test accepts C > D. Two tasks on two CPUs do not delay each other.
    let long = on(&[(5, 9, 4), (1, 9, 9)]);
    let bounds: Vec<_> = long.iter().map(|answer| answer.bound.clone().map(Span::as_ns)).collect();
    assert_eq!(bounds, [Ok(5), Ok(1)]);
    assert!(long.iter().all(|answer| answer.test.name == PRECEDENCE.name));
    let late = on(&[(5, 9, 4), (9, 9, 9), (9, 9, 9)]);
    assert!(
        late.iter()
            .all(|answer| answer.bound.as_ref().is_err_and(|no| no.reason != Reason::Overload))
    );
}

/// A partition has 2 of every 10 from 1 on, below a root that does not preempt. A job of 3 begins
/// just before each slot, and the task of the partition never runs.
#[test]
fn a_task_that_waits_for_a_slot_can_be_blocked_before_each_one() {
    let mut system = System::new(PolicySpec::FixedPriority);
    system.task(1, (3, 10, 10, 0));
    let slots = vec![Slot { start: ns(1), end: ns(3), owner: 0 }];
    let policy = PolicySpec::Partitions { frame: ns(10), slots, lending: false };
    let table = system.tree.scheduler(Tree::ROOT, SchedulerSpec::new("table", policy));
    let inside =
        system.tree.scheduler(table, SchedulerSpec::new("partition", PolicySpec::FixedPriority));
    let mut spec = TaskSpec::new("victim", ns(40));
    spec.priority = 200;
    let victim = system.tree.task(inside, spec);
    let arrivals = Arrivals::Periodic { offset: ns(0), period: ns(40), jitter: ns(0) };
    system.sources.push(Source { arrivals, cost: Cost::Constant(Work::from_ns(1)) });
    system.task(0, (1, 100, 100, 0));
    let proved = |system: &System| system.answers()[1].is_proved();
    assert!(proved(&system), "a root that preempts");
    if let Some(NodeSpec::Scheduler(root)) =
        system.tree.get_mut(Tree::ROOT).map(|node| &mut node.spec)
    {
        root.preemptive = false;
    }
    assert_eq!(system.simulated(1_000)[1], Span::ZERO, "it never ends");
    assert!(!proved(&system));
    assert_eq!(
        system.roots().interference_in_any_window(victim).err().map(|no| no.reason),
        Some(Reason::NonPreemptiveTable)
    );
    // The interference of its slots on others is unknown, too.
    assert_eq!(system.reasons()[2], Some(Reason::NonPreemptiveTable));
}

#[test]
fn sections_of_versions_block_like_any_others() {
    for protocol in [Protocol::Ceiling, Protocol::Inheritance] {
        let mut system = System::new(PolicySpec::FixedPriority);
        let a = system.tree.resource("a", protocol);
        let high = system.task(9, (4, 100, 8, 1));
        system.locks(high, a, 1, 2);
        let low = system.task(1, (20, 100, 100, 0));
        system.locks(low, a, 0, 20);
        let plain = (bounds(&system.answers()), system.simulated(1_000));
        for source in &mut system.sources {
            source.cost = Cost::Versions(vec![source.cost.clone(); 2]);
        }
        for task in [high, low] {
            if let Some(NodeSpec::Task(spec)) = system.tree.get_mut(task).map(|node| &mut node.spec)
            {
                spec.versions = vec![Version::new("one"), Version::new("other")];
            }
        }
        let (found, bounds) = (system.simulated(1_000), bounds(&system.answers()));
        assert_eq!((&bounds, &found), (&plain.0, &plain.1));
        assert_eq!((found[0], bounds[0]), (ns(23), ns(24)));
    }
}

/// The task that uses the accelerator arrives in its partition, and another task holds the
/// accelerator in the other partition. The holder inherits and precedes the more urgent task of its
/// partition. Graphs change nothing.
#[test]
fn waiting_for_an_accelerator_prevents_all_bounds_also_in_a_graph() {
    let slots = [(0, 50, 0), (50, 100, 1)].map(|(start, end, owner)| Slot {
        start: ns(start),
        end: ns(end),
        owner,
    });
    let table = PolicySpec::Partitions { frame: ns(100), slots: slots.to_vec(), lending: false };
    let mut system = System::new(table);
    let gpu = system.tree.accelerator("gpu");
    let [one, two] = [0, 1].map(|_| {
        system.tree.scheduler(Tree::ROOT, SchedulerSpec::new("part", PolicySpec::FixedPriority))
    });
    let mut task = |parent, priority, (cost, deadline, offset), uses: bool| {
        let mut spec = TaskSpec::new("task", ns(200));
        (spec.priority, spec.deadline) = (priority, ns(deadline));
        let arrivals =
            Arrivals::Periodic { offset: ns(offset), period: ns(200), jitter: Span::ZERO };
        let mut cost = Cost::Constant(Work::from_ns(cost));
        if uses {
            let mut version = Version::new("on it");
            version.accelerators.push(gpu);
            spec.versions.push(version);
            cost = Cost::Versions(vec![cost]);
        }
        system.sources.push(Source { arrivals, cost });
        system.tree.task(parent, spec)
    };
    let high = task(one, 9, (4, 200, 101), true);
    let middle = task(two, 9, (4, 60, 100), false);
    let low = task(two, 1, (40, 200, 90), true);
    for (from, part) in [(high, one), (low, two)] {
        let node = system.tree.task(part, TaskSpec::node("after"));
        system.sources.push(Source::activated(Cost::Constant(Work::from_ns(1))));
        system.tree.channel(from, node, 0);
    }
    assert_eq!(middle, NodeId(4));
    assert!(system.simulated(1_000)[1] > ns(60), "{:?}", system.simulated(1_000));
    assert!(
        system.reasons().iter().all(|why| *why == Some(Reason::Accelerators)),
        "{:?}",
        system.reasons()
    );
}

#[test]
fn the_step_limit_is_not_an_overload() {
    let mut system = System::new(PolicySpec::FixedPriority);
    system.task(9, ((1 << 31) - 1, 1 << 31, 1 << 31, 0));
    let mut band = SchedulerSpec::new("band", PolicySpec::Edf);
    band.overrides.priority = Some(1);
    let band = system.tree.scheduler(Tree::ROOT, band);
    for cost in [1 << 22, 1] {
        system.tree.task(band, TaskSpec::new("task", ns(1 << 55)));
        system.sources.push(Source::periodic(ns(1 << 55), Work::from_ns(cost)));
    }
    assert_eq!(system.reasons(), [None, Some(Reason::Limit), Some(Reason::Limit)]);
}

impl System {
    /// Adds a server.
    fn server(&mut self, parent: NodeId, policy: PolicySpec, of: Reservation) -> NodeId {
        let mut spec = SchedulerSpec::new("server", policy);
        spec.reservation = Some(of);
        self.tree.scheduler(parent, spec)
    }

    /// Adds a task in a server with (cost, period, deadline, offset) and a jitter.
    fn client(&mut self, server: NodeId, times: (u64, u64, u64, u64), jitter: u64) {
        let (cost, period, deadline, offset) = times;
        let spec = TaskSpec { deadline: ns(deadline), ..TaskSpec::new("client", ns(period)) };
        self.tree.task(server, spec);
        let arrivals =
            Arrivals::Periodic { offset: ns(offset), period: ns(period), jitter: ns(jitter) };
        self.sources.push(Source { arrivals, cost: Cost::Constant(Work::from_ns(cost)) });
    }
}

/// The budget of a sporadic server arrives after the server's deadline, because the server above
/// has none before. Its refills keep their times nevertheless.
#[test]
fn a_sporadic_refill_that_misses_its_deadline_keeps_its_time() {
    let mut system = System::new(PolicySpec::FixedPriority);
    let above = Reservation::new(Server::Deferrable, Work::from_ns(4), ns(17));
    let above = system.server(Tree::ROOT, PolicySpec::DeadlineMonotonic, above);
    let mut of = Reservation::new(Server::Sporadic, Work::from_ns(3), ns(20));
    of.deadline = Some(ns(3));
    let server = system.server(above, PolicySpec::FixedPriority, of);
    system.client(server, (1, 7, 7, 6), 0);
    for (cost, period) in [(1, 34), (1, 13)] {
        system.client(above, (cost, period, 2 * period, 0), 0);
    }
    let (longest, bound) = (system.simulated(2_000)[0], system.answers()[0].bound.clone());
    let bound = bound.expect("the server has its budget within its period");
    assert!(longest <= bound, "{longest:?} > {bound:?}");
}

/// A hard CBS is so late that its next period has begun when it exhausts its budget. It stays
/// pending, so the polling server above keeps the rest of its own budget.
#[test]
fn a_cbs_behind_its_periods_leaves_the_budget_of_the_polling_server_above() {
    let mut system = System::new(PolicySpec::FixedPriority);
    let mut of = Reservation::new(Server::Polling, Work::from_ns(2), ns(7));
    of.offset = ns(4);
    let polling = system.server(Tree::ROOT, PolicySpec::Edf, of);
    let of = Reservation::new(Server::HardCbs, Work::from_ns(1), ns(7));
    let cbs = system.server(polling, PolicySpec::DeadlineMonotonic, of);
    system.client(cbs, (3, 24, 44, 0), 0);
    system.client(cbs, (1, 6, 7, 0), 0);
    system.client(polling, (2, 24, 4, 22), 0);
    let (answers, longest) = (system.answers(), system.simulated(700)[2]);
    assert_eq!(answers[2].bound, Ok(ns(11)));
    assert!(longest <= ns(11), "{longest:?}");
}
