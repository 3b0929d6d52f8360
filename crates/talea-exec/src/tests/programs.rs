//! Programs without processes: cgroups are numbers, listener and idle detector take no time, and
//! the CPU runs at full speed.

use super::fake::simulate;
use crate::executor::{Executor, StepContext};
use crate::job_stats::JobStats;
use crate::load::{Arrival, Load};
use crate::mailbox::Batch;
use crate::mechanism::Mechanism;
use crate::mechanism::freeze::{Freezable, Freeze, Members};
use crate::record::{Log, RecordEntry, merge};
use crate::replay::replay;
use crate::root_shared::{ProgramLevel, RootShared};
use crate::schedule_log::ScheduleLog;
use crate::successor::{Successor, TreeInForce};
use crate::work::Job;
use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use talea_core::criteria::Overrides;
use talea_core::engine::{
    Cpu, MAX_RUN, SchedulerSpec, SwitchCause, SwitchRule, TaskId, TaskSpec, Tree,
};
use talea_core::sched::{PolicySpec, Slot};
use talea_core::server::{Reservation, ServerKind};
use talea_core::workload::{Source, Workload};
use talea_core::{CpuSet, Span, Time, Work};
use talea_sim::rng::Rng;

const MS: u64 = 1_000_000;
/// Overrun of a budget for want of a shorter timer (`executor::wakeup`).
const OVERRUN: u64 = 320_000;

/// A task: a program or a worker.
#[derive(Clone, Copy, Debug, Default)]
struct FakeTask {
    is_program: bool,
    used: u64,
    /// Remaining work.
    wants: u64,
    frozen: bool,
    /// Level of its threads; nothing before it is first set.
    level: Option<ProgramLevel>,
    /// Whether the wakeup listener of the task is armed.
    armed: bool,
    /// Whether the task is dispatched.
    ordered: bool,
    /// Whether another process fills the group of the program.
    is_filled: bool,
    has_members: bool,
    /// Whether a program has entered the group that was never dispatched.
    is_new: bool,
    /// Whether the group had members when the listener or a step last read that.
    had_members: bool,
}

impl FakeTask {
    fn is_runnable(&self) -> bool {
        self.is_program && self.has_members && self.wants > 0 && !self.frozen
    }

    /// Starts a program in the group, as a starter does: frozen.
    fn enter(&mut self, work: u64) {
        self.frozen = true;
        self.has_members = true;
        self.is_new = true;
        self.level = Some(ProgramLevel::Running);
        self.wants = work;
    }

    fn exit(&mut self) {
        self.has_members = false;
        self.is_new = false;
        self.wants = 0;
    }
}

type World = Rc<RefCell<Vec<FakeTask>>>;

#[derive(Debug)]
struct FakeProgram(World, usize);

impl Freezable for FakeProgram {
    fn members(&mut self) -> io::Result<Members> {
        let task = &mut self.0.borrow_mut()[self.1];
        let FakeTask { is_filled, has_members, frozen, .. } = *task;
        task.had_members &= has_members;
        Ok(match (is_filled, has_members) {
            (false, _) => Members::OfRun,
            (true, false) => Members::None,
            (true, true) => Members::Some { is_freezing: frozen },
        })
    }

    fn adopt(&mut self) -> io::Result<()> {
        self.set_level(ProgramLevel::Stopped)
    }

    fn set_level(&mut self, level: ProgramLevel) -> io::Result<()> {
        self.0.borrow_mut()[self.1].level = Some(level);
        Ok(())
    }

    fn is_frozen(&mut self) -> io::Result<bool> {
        Ok(self.0.borrow()[self.1].frozen)
    }

    fn freeze(&mut self) -> io::Result<()> {
        self.0.borrow_mut()[self.1].frozen = true;
        Ok(())
    }

    fn thaw(&mut self) -> io::Result<()> {
        self.0.borrow_mut()[self.1].frozen = false;
        Ok(())
    }

    fn cpu_time(&mut self) -> io::Result<Work> {
        Ok(Work::from_ns(self.0.borrow()[self.1].used))
    }

    fn arm_wakeup(&mut self) -> io::Result<()> {
        self.0.borrow_mut()[self.1].armed = true;
        Ok(())
    }

    fn time_since_wakeup(&mut self) -> Span {
        Span::ZERO
    }
}

/// Mechanism like `Mixed`, with simulated workers.
#[derive(Debug)]
struct MixedModel {
    world: World,
    freeze: Freeze<FakeProgram>,
}

impl MixedModel {
    fn order(&mut self, task: TaskId, ordered: bool) {
        let task = &mut self.world.borrow_mut()[task.0 as usize];
        assert_ne!(task.ordered, ordered, "{task:?}");
        task.ordered = ordered;
        task.is_new &= !ordered;
    }
}

impl Mechanism for MixedModel {
    type Error = io::Error;

    fn begin_decision(&mut self, now: Time, _by: Option<TaskId>) {
        self.freeze.begin_decision(now);
    }

    fn cpu_time(&mut self, task: TaskId) -> io::Result<Work> {
        Ok(Work::from_ns(self.world.borrow()[task.0 as usize].used))
    }

    fn begin(&mut self, cpu: Cpu, task: TaskId, job: Job) -> io::Result<()> {
        self.order(task, true);
        if self.freeze.contains(task) {
            return self.freeze.run(cpu, task);
        }
        self.world.borrow_mut()[task.0 as usize].wants = job.cost.as_ns();
        Ok(())
    }

    fn resume(&mut self, cpu: Cpu, task: TaskId) -> io::Result<()> {
        self.order(task, true);
        if self.freeze.contains(task) { self.freeze.run(cpu, task) } else { Ok(()) }
    }

    fn stop(&mut self, cpu: Cpu, task: TaskId, _successor: bool) -> io::Result<()> {
        self.order(task, false);
        if self.freeze.contains(task) { self.freeze.stop(cpu, task) } else { Ok(()) }
    }

    fn complete(&mut self, task: TaskId) -> io::Result<()> {
        self.order(task, false);
        if self.freeze.contains(task) { self.freeze.complete(task) } else { Ok(()) }
    }

    fn idle(&mut self, _cpu: Cpu) -> io::Result<()> {
        Ok(())
    }

    fn take_idle(&mut self, cpu: Cpu) -> Option<TaskId> {
        self.freeze.take_idle(cpu)
    }

    fn take_woken(&mut self) -> io::Result<Option<(TaskId, Span)>> {
        self.freeze.take_woken()
    }

    fn commit(&mut self) -> io::Result<()> {
        self.freeze.commit()
    }
}

/// Times at which a program wants to do work, and how much.
type Wakes = Vec<(u64, u64)>;

/// Change of the membership of a filled group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    /// A program enters the empty group, and wants to do so much work.
    Enter(u64),
    /// The members exit.
    Exit,
    /// The members exit and a program enters at the same instant.
    Replace(u64),
}

/// Group that another process fills: its state when the run begins, and its changes.
#[derive(Clone, Debug)]
struct Filled {
    at_start: FakeTask,
    changes: Vec<(u64, Change)>,
    /// Time from a change until the kernel reports it, with all changes meanwhile.
    delay: u64,
}

struct RunResult {
    record: Vec<RecordEntry>,
    /// `had[n]`: intervals in which task `n` had the CPU.
    had: Vec<Vec<(u64, u64)>>,
    left: Vec<u64>,
    stats: Vec<JobStats>,
    /// Trees in force after the first one.
    switched: Vec<TreeInForce>,
}

/// Runs `tree`; tasks with `wakes` are programs.
fn run(tree: &Tree, loads: Vec<Load>, wakes: &[Option<Vec<(u64, u64)>>], until: u64) -> RunResult {
    run_filled(tree, loads, wakes, &[], until)
}

/// Runs `tree`; tasks with `wakes` are programs. Another process fills the groups of the first
/// tasks, as `filled` says.
fn run_filled(
    tree: &Tree,
    loads: Vec<Load>,
    wakes: &[Option<Vec<(u64, u64)>>],
    filled: &[Filled],
    until: u64,
) -> RunResult {
    run_switched(tree, loads, (wakes, filled), &[], until)
}

/// Runs `tree`, and requests a switch to each of the trees of `switches` at its time.
fn run_switched(
    tree: &Tree,
    loads: Vec<Load>,
    (wakes, filled): (&[Option<Wakes>], &[Filled]),
    mut switches: &[(u64, Tree)],
    until: u64,
) -> RunResult {
    let tasks = wakes.len();
    let shared = Arc::new(RootShared::new(&[0], tasks, false, &CpuSet::single(0)));
    let fake_tasks = wakes.iter().enumerate().map(|(at, wakes)| match filled.get(at) {
        Some(filled) => FakeTask { is_program: true, is_filled: true, ..filled.at_start },
        None => FakeTask {
            is_program: wakes.is_some(),
            frozen: wakes.is_some(),
            has_members: true,
            ..FakeTask::default()
        },
    });
    let world: World = Rc::new(RefCell::new(fake_tasks.collect()));
    let cages = (0..tasks)
        .map(|at| wakes[at].as_ref().map(|_| FakeProgram(Rc::clone(&world), at)))
        .collect();
    let freeze = Freeze::new(Arc::clone(&shared), cages).expect("no kernel");
    let model = MixedModel { world: Rc::clone(&world), freeze };
    let engine = tree.build().expect("a valid tree");
    let loads = loads.into_iter().zip(wakes);
    let loads = loads.enumerate().map(|(at, (load, wakes))| {
        let is_started = wakes.is_some() && at >= filled.len();
        if is_started { Load::for_program(Vec::new()) } else { load }
    });
    let loads = loads.collect();
    let mut root =
        Executor::new(engine, 1, model, loads, Vec::new(), Vec::new()).expect("no kernel");
    root.allow_switches(SwitchRule::of(tree));
    let (mut requests, mut switched) = (0, Vec::new());
    let mut log = Log::new(1 << 16);
    let mut pending: Vec<Wakes> =
        wakes.iter().map(|wakes| wakes.clone().unwrap_or_default()).collect();
    let mut changes: Vec<_> = filled.iter().map(|filled| filled.changes.clone()).collect();
    // The listeners read the members first.
    let mut notifications = vec![Some(0); filled.len()];
    let mut had = vec![Vec::new(); tasks];
    let (mut now, mut due, mut steps) = (0, 0, 0);
    while now < until {
        for (at, pending) in pending.iter_mut().enumerate() {
            while pending.first().is_some_and(|&(at, _)| at <= now) {
                world.borrow_mut()[at].wants += pending.remove(0).1;
            }
        }
        let mut is_heard = false;
        while let Some(((_, tree), later)) =
            switches.split_first().filter(|(next, _)| next.0 <= now)
        {
            (switches, requests) = (later, requests + 1);
            let (number, engine, rule) = (requests, tree.build(), SwitchRule::of(tree));
            let engine = engine.expect("a valid tree");
            let successor = Successor { number, engine, rule, changes: Vec::new() };
            root.request_switch(Box::new(successor)).expect("a root that switches");
            is_heard = true;
        }
        for (at, changes) in changes.iter_mut().enumerate() {
            while changes.first().is_some_and(|&(at, _)| at <= now) {
                let (_, change) = changes.remove(0);
                let task = &mut world.borrow_mut()[at];
                match change {
                    Change::Exit => task.exit(),
                    Change::Enter(work) | Change::Replace(work) => task.enter(work),
                }
                // A program that enters has the CPU until it is frozen.
                if task.armed && change != Change::Exit {
                    task.armed = false;
                    shared.slots[at].has_woken.store(true, Ordering::Relaxed);
                    is_heard = true;
                }
                notifications[at].get_or_insert(now + filled[at].delay);
            }
            if notifications[at].take_if(|&mut due| due <= now).is_some() {
                let task = &mut world.borrow_mut()[at];
                if std::mem::replace(&mut task.had_members, task.has_members) != task.has_members {
                    shared.slots[at].has_woken.store(true, Ordering::Relaxed);
                    is_heard = true;
                }
            }
        }
        // Programs stand above workers; one that is thawed by mistake would have the CPU.
        let runs = |world: &World| {
            let world = world.borrow();
            (0..tasks)
                .find(|&at| world[at].is_runnable())
                .or_else(|| (0..tasks).find(|&at| !world[at].is_program && world[at].ordered))
        };
        let running = runs(&world);
        let mut batch = Batch::new(tasks);
        if let Some(at) = running.filter(|&at| world.borrow()[at].armed) {
            world.borrow_mut()[at].armed = false;
            shared.slots[at].has_woken.store(true, Ordering::Relaxed);
            is_heard = true;
        }
        let detector = &shared.cpus[0].idle_detector;
        let is_unwanted = running.is_none_or(|at| !world.borrow()[at].is_program);
        if is_unwanted
            && detector.idle_epoch.swap(detector.epoch.key(), Ordering::Relaxed)
                != detector.epoch.key()
        {
            is_heard = true;
        }
        if let Some(at) =
            running.filter(|&at| !world.borrow()[at].is_program && world.borrow()[at].wants == 0)
        {
            batch.completed.push(TaskId(at as u32));
            is_heard = true;
        }
        if is_heard || due <= now {
            root.step(StepContext { cpu: 0, worker: None }, Time::from_ns(now), &batch, &mut log)
                .expect("no kernel");
            due = root.next_wakeup(0, Time::from_ns(now), |_| ()).as_ns();
            let in_force = root.tree_in_force();
            if in_force != switched.last().copied().unwrap_or_default() {
                switched.push(in_force);
            }
            steps += 1;
            assert!(steps < 100_000, "no progress at {now}");
            let world = world.borrow();
            for (at, task) in
                world.iter().enumerate().filter(|(_, task)| task.is_program && !task.ordered)
            {
                // A program without work may stay thawed; one with work is frozen, or about to be
                // detected.
                assert!(
                    task.frozen || task.wants == 0 || task.armed,
                    "{at} runs without an order at {now}"
                );
                assert!(task.frozen || task.armed, "{at} could wake undetected at {now}");
                assert!(task.frozen || !task.is_new, "{at} runs before its first order at {now}");
                let is_known = !task.has_members && !task.had_members;
                assert!(task.frozen || !is_known, "{at} is empty and thawed at {now}");
                let level = if task.frozen { ProgramLevel::Stopped } else { ProgramLevel::Idle };
                let is_its_level = task.level.is_none_or(|found| found == level);
                // A program has the level of its start until it is reported.
                assert!(is_its_level || task.is_new || !task.has_members, "{task:?} at {now}");
            }
            for task in world.iter().filter(|task| task.ordered && task.is_filled) {
                assert!(!task.frozen || !task.has_members, "frozen with an order at {now}");
            }
            continue;
        }
        // Until the next event.
        let next_wake = pending.iter().filter_map(|pending| pending.first()).map(|&(at, _)| at);
        let next_change = changes.iter().filter_map(|changes| changes.first()).map(|&(at, _)| at);
        let next_notification = notifications.iter().flatten().copied();
        let next_wake = next_wake.chain(next_change).chain(next_notification).min();
        let next_wake = next_wake.into_iter().chain(switches.first().map(|&(at, _)| at)).min();
        let end = running.map_or(u64::MAX, |at| now + world.borrow()[at].wants);
        let next = due.min(next_wake.unwrap_or(u64::MAX)).min(end).min(until);
        if let Some(at) = running {
            let task = &mut world.borrow_mut()[at];
            task.used += next - now;
            task.wants -= next - now;
            had[at].push((now, next));
        }
        now = next;
    }
    let (record, lost) = merge(vec![log]);
    assert_eq!(lost, 0);
    let left = world.borrow().iter().map(|task| task.wants).collect();
    RunResult { record, had, left, stats: root.job_stats(), switched }
}

/// Length of the part of `[from, to)` in these intervals.
fn within(had: &[(u64, u64)], from: u64, to: u64) -> u64 {
    had.iter().map(|&(a, b)| b.min(to).saturating_sub(a.max(from))).sum()
}

struct System {
    tree: Tree,
    loads: Vec<Load>,
    /// `wakes[n]`: wake-ups of task `n`, if it is a program.
    wakes: Vec<Option<Vec<(u64, u64)>>>,
    /// Budgets and periods of the programs' servers.
    servers: Vec<(u64, u64)>,
}

/// Returns up to three programs, each in a server, and workers, all under fixed priorities, with
/// their workload.
fn system(rng: &mut Rng, kind: ServerKind) -> System {
    let mut tree = Tree::new(1, SchedulerSpec::new("cpu", PolicySpec::FixedPriority));
    let (mut loads, mut wakes, mut servers) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..=rng.below(3) {
        let period = 10 + rng.below(20);
        let budget = 1 + rng.below(period / 4);
        let mut server = SchedulerSpec::new("server", PolicySpec::Fifo);
        server.overrides =
            Overrides { priority: Some(5 + rng.below(9) as u8), ..Overrides::default() };
        server.reservation =
            Some(Reservation::new(kind, Work::from_ns(budget * MS), Span::from_ns(period * MS)));
        let server = tree.scheduler(Tree::ROOT, server);
        let _ = tree.task(server, TaskSpec::new("program", Span::from_ns(period * MS)));
        servers.push((budget * MS, period * MS));
        loads.push(Load::default());
        // Half of what its server has in the long run, in bursts.
        let mut times: Vec<u64> = (0..20).map(|_| rng.below(1_000) * MS).collect();
        times.sort_unstable();
        let each = 1_000 / period * budget * MS / 20 / 2;
        wakes.push(Some(times.into_iter().map(|at| (at, 1 + rng.below(2 * each))).collect()));
    }
    for _ in 0..rng.below(3) {
        let period = 10 + rng.below(30);
        let mut spec = TaskSpec::new("worker", Span::from_ns(period * MS));
        spec.priority = rng.below(14) as u8;
        let _ = tree.task(Tree::ROOT, spec);
        let at = |k: u64| Time::from_ns(k * period * MS);
        let arrivals =
            (0..1_000 / period).map(|k| Arrival { observed: at(k), nominal: at(k) }).collect();
        loads.push(Load::new(arrivals, vec![Work::from_ns((1 + rng.below(period / 8 + 1)) * MS)]));
        wakes.push(None);
    }
    System { tree, loads, wakes, servers }
}

#[test]
fn l20_programs_have_the_budgets_of_their_servers_whenever_they_wake() {
    let mut rng = Rng::new(20);
    let (mut all, mut orders) = (0, 0);
    for case in 0..300 {
        let kind = [
            ServerKind::Polling,
            ServerKind::Deferrable,
            ServerKind::Sporadic,
            ServerKind::HardCbs,
        ][case % 4];
        let System { tree, loads, wakes, servers } = system(&mut rng, kind);
        let result = run(&tree, loads, &wakes, 2_000 * MS);
        for (at, &(budget, period)) in servers.iter().enumerate() {
            // Two budgets may meet, whatever the server; no window of a period has more.
            let ends = result.had[at].iter().map(|&(from, _)| from);
            let most =
                ends.map(|from| within(&result.had[at], from, from + period)).max().unwrap_or(0);
            assert!(
                most <= 2 * budget + OVERRUN,
                "case {case}, {kind:?}: {most} of {budget} each {period}"
            );
            let total = within(&result.had[at], 0, 2_000 * MS);
            assert!(
                total <= (2_000 * MS / period + 2) * budget + OVERRUN,
                "case {case}, {kind:?}: {total}"
            );
            all += total;
        }
        // They wanted half of it, and had as long again.
        assert!(
            result.left.iter().all(|&left| left == 0),
            "case {case}, {kind:?}: {:?} is not done",
            result.left
        );
        orders += replay(&mut tree.build().expect("a valid tree"), &result.record)
            .expect("the same orders");
    }
    assert!(
        all > 10_000 * MS && orders > 20_000,
        "{all} ns in {orders} orders: too little happens"
    );
}

#[test]
fn l20_a_program_that_always_wants_the_cpu_has_it_exactly_as_simulated() {
    for kind in
        [ServerKind::Polling, ServerKind::Deferrable, ServerKind::Sporadic, ServerKind::HardCbs]
    {
        let mut tree = Tree::new(1, SchedulerSpec::new("cpu", PolicySpec::FixedPriority));
        let mut server = SchedulerSpec::new("server", PolicySpec::Fifo);
        server.overrides = Overrides { priority: Some(9), ..Overrides::default() };
        server.reservation =
            Some(Reservation::new(kind, Work::from_ns(MS), Span::from_ns(20 * MS)));
        let server = tree.scheduler(Tree::ROOT, server);
        let _ = tree.task(server, TaskSpec::new("program", Span::from_ns(1 << 61)));
        let _ = tree.task(Tree::ROOT, TaskSpec::new("worker", Span::from_ns(15 * MS)));
        let sources = vec![
            Source::endless(),
            Source::periodic(Span::from_ns(15 * MS), Work::from_ns(7 * MS)),
        ];
        let workload = Workload { sources, seed: 1 };
        let until = 600 * MS;
        let drawn = talea_sim::generate_jobs(&workload, Time::from_ns(until), |_| 1_000);
        let loads = drawn.into_iter().zip(&workload.sources);
        let loads = loads
            .map(|(drawn, source)| {
                Load::generated(&drawn.arrivals, drawn.costs, source.cost.clone())
            })
            .collect();
        let result = run(&tree, loads, &[Some(vec![(0, u64::MAX / 2)]), None], until);
        let simulated = simulate(&tree, &workload, Time::from_ns(until));
        assert_eq!(
            ScheduleLog::from_record(1, &result.record).first_difference(&simulated),
            None,
            "{kind:?}"
        );
        assert!(simulated.events().count() > 100);
    }
}

/// Two time partitions of 10 ms each, with a task each.
fn partitions() -> Tree {
    let half = |owner: u32| {
        let start = Span::from_ns(u64::from(owner) * 10 * MS);
        Slot { start, end: start + Span::from_ns(10 * MS), owner }
    };
    let frame = Span::from_ns(20 * MS);
    let policy = PolicySpec::Partitions { frame, slots: vec![half(0), half(1)], lending: false };
    let mut tree = Tree::new(1, SchedulerSpec::new("cpu", policy));
    for name in ["one", "two"] {
        let partition = tree.scheduler(Tree::ROOT, SchedulerSpec::new(name, PolicySpec::Fifo));
        let _ = tree.task(partition, TaskSpec::new(name, Span::from_ns(1 << 60)));
    }
    tree
}

#[test]
fn l20_a_filled_group_is_governed_from_each_state_through_each_sequence_of_changes() {
    let levels = [None, Some(ProgramLevel::Idle), Some(ProgramLevel::Running)];
    let mut starts = Vec::new();
    for has_members in [false, true] {
        for frozen in [false, true] {
            for level in levels {
                let wants = if has_members { 3 * MS } else { 0 };
                starts.push(FakeTask { wants, frozen, level, has_members, ..FakeTask::default() });
            }
        }
    }
    let tree = partitions();
    let (mut cases, mut done) = (0_u64, 0);
    for at_start in starts {
        // What happens in each of the four steps: nothing, a change of the members, or work.
        for case in 0..5_u32.pow(4) {
            let (mut changes, mut wakes) = (Vec::new(), Vec::new());
            let (mut has_members, mut wanted) = (at_start.has_members, at_start.wants);
            for step in 0..4_u32 {
                // In and between slots, and while the program has work.
                let at = u64::from(step) * 17 * MS + MS + u64::from(case % 5) * 2 * MS;
                match (case / 5_u32.pow(step) % 5, has_members) {
                    (1, true) => changes.push((at, Change::Exit)),
                    (1, false) => changes.push((at, Change::Enter(2 * MS))),
                    (2, true) => changes.push((at, Change::Replace(2 * MS))),
                    (3, true) => wakes.push((at, 2 * MS)),
                    (4, true) => {
                        changes.push((at, Change::Exit));
                        changes.push((at + 3 * MS, Change::Enter(2 * MS)));
                    }
                    _ => {}
                }
                has_members = match changes.last().filter(|&&(last, _)| last >= at) {
                    Some((_, Change::Exit)) => false,
                    Some(_) => true,
                    None => has_members,
                };
                wanted += if has_members { 2 * MS } else { 0 };
            }
            // The other program always wants the CPU.
            let other = vec![(0, u64::MAX / 2)];
            let there = FakeTask { has_members: true, ..FakeTask::default() };
            let filled = [
                Filled { at_start, changes, delay: u64::from(case % 3) * 5 * MS },
                Filled { at_start: there, changes: Vec::new(), delay: 0 },
            ];
            let loads = vec![Load::default(), Load::default()];
            let until = 260 * MS;
            let result = run_filled(&tree, loads, &[Some(wakes), Some(other)], &filled, until);
            // Nothing waits in the end, and the program has run in its slots only.
            assert_eq!(result.left[0], 0, "{at_start:?}, {:?}", filled[0].changes);
            for &(from, to) in &result.had[0] {
                let slot = from / (20 * MS) * 20 * MS;
                let is_in = to <= slot + 10 * MS + OVERRUN;
                assert!(is_in, "{from} to {to}: {at_start:?}, {:?}", filled[0].changes);
            }
            cases += 1;
            done += within(&result.had[0], 0, until);
            assert!(within(&result.had[0], 0, until) <= wanted);
            let _ = replay(&mut tree.build().expect("a valid tree"), &result.record)
                .expect("the same orders");
        }
    }
    assert!(cases == 12 * 625 && done > cases * MS, "{done} ns in {cases} cases");
}

/// A table with a frame of `frame` ms: 4 ms for a control program, then the rest, which two other
/// programs share at `at` ms.
fn three_partitions(frame: u64, at: u64) -> Tree {
    let slot = |from: u64, to: u64, owner: u32| Slot {
        start: Span::from_ns(from * MS),
        end: Span::from_ns(to * MS),
        owner,
    };
    let slots = vec![slot(0, 4, 0), slot(4, at, 1), slot(at, frame, 2)];
    let frame = Span::from_ns(frame * MS);
    let policy = PolicySpec::Partitions { frame, slots, lending: false };
    let mut tree = Tree::new(1, SchedulerSpec::new("cpu", policy));
    for (name, period) in [("control", frame), ("one", MAX_RUN), ("two", MAX_RUN)] {
        let partition = tree.scheduler(Tree::ROOT, SchedulerSpec::new(name, PolicySpec::Fifo));
        let _ = tree.task(partition, TaskSpec::new(name, period));
    }
    tree
}

/// Groups whose programs are there from the start.
fn populated(count: usize) -> Vec<Filled> {
    let at_start = FakeTask { has_members: true, ..FakeTask::default() };
    (0..count).map(|_| Filled { at_start, changes: Vec::new(), delay: 0 }).collect()
}

#[test]
fn d30_another_table_begins_where_the_frame_ends_and_no_program_runs_outside_of_its_slots() {
    const FRAME: u64 = 20 * MS;
    let mut rng = Rng::new(30);
    let mut switches = 0;
    for case in 0..50 {
        let mut at = 0;
        let requests: Vec<(u64, u64)> = (0..20)
            .map(|_| {
                at += 1 + rng.below(5 * FRAME / 2);
                (at, 5 + rng.below(15))
            })
            .collect();
        let trees: Vec<(u64, Tree)> =
            requests.iter().map(|&(at, split)| (at, three_partitions(20, split))).collect();
        // A request at the end of a frame takes effect there; of several in a frame, the last one.
        let mut tables = vec![(0, 10)];
        for &(at, split) in &requests {
            tables.push((at.div_ceil(FRAME) * FRAME, split));
        }
        let until = at / FRAME * FRAME + 3 * FRAME;
        // The control program works 3 ms at the begin of each frame.
        let control = (0..until / FRAME).map(|frame| (frame * FRAME, 3 * MS)).collect();
        let greedy = || Some(vec![(0, u64::MAX / 2)]);
        let wakes = [Some(control), greedy(), greedy()];
        let loads = (0..3).map(|_| Load::default()).collect();
        let filled = populated(3);
        let tree = three_partitions(20, 10);
        let result = run_switched(&tree, loads, (&wakes, &filled), &trees, until);
        for frame in 0..until / FRAME {
            let begin = frame * FRAME;
            let table = tables.iter().rev().find(|&&(from, _)| from <= begin);
            let split = table.expect("the first table begins at zero").1 * MS;
            let slots = [(0, 3 * MS), (4 * MS, split), (split, FRAME)];
            for (task, (from, to)) in slots.into_iter().enumerate() {
                let had = &result.had[task];
                let in_slot = within(had, begin + from, begin + to);
                assert_eq!(in_slot, to - from, "case {case}, task {task}, frame {frame}");
                let in_frame = within(had, begin, begin + FRAME);
                assert_eq!(in_frame, in_slot, "case {case}, task {task}, frame {frame}");
            }
        }
        for switched in &result.switched {
            assert_eq!(switched.cause, Some(SwitchCause::FrameEnd));
            assert_eq!(switched.began.as_ns() % FRAME, 0, "a frame is cut at {switched:?}");
        }
        assert_eq!(result.switched.last().expect("twenty requests").number, 20);
        assert_eq!((result.stats[0].late, result.stats[0].jobs), (0, until / FRAME));
        switches += result.switched.len();
    }
    assert!(switches > 600, "{switches} of 1000 requests have a frame of their own");
}

/// Two programs under fixed priorities, the first one in a server.
fn served(budget: u64, kind: ServerKind) -> Tree {
    let mut tree = Tree::new(1, SchedulerSpec::new("cpu", PolicySpec::FixedPriority));
    let mut server = SchedulerSpec::new("server", PolicySpec::Fifo);
    server.overrides = Overrides { priority: Some(9), ..Overrides::default() };
    let period = Span::from_ns(20 * MS);
    server.reservation = Some(Reservation::new(kind, Work::from_ns(budget * MS), period));
    let server = tree.scheduler(Tree::ROOT, server);
    // A polling server may let a job wait for a period.
    let deadline = period + period;
    let _ = tree.task(server, TaskSpec { deadline, ..TaskSpec::new("served", period) });
    let _ = tree.task(Tree::ROOT, TaskSpec::new("other", period));
    tree
}

#[test]
fn d32_a_root_without_a_table_switches_when_idle_or_after_its_longest_period() {
    let kinds =
        [ServerKind::Polling, ServerKind::Deferrable, ServerKind::Sporadic, ServerKind::HardCbs];
    for (case, kind) in (0..200).zip(kinds.into_iter().cycle()) {
        let mut rng = Rng::new(case);
        let is_greedy = case % 8 >= 4;
        // Three or six milliseconds of each twenty, at the begin, or all the time.
        let begins = |of: u64| (0..25).map(|k| (k * 20 * MS, of * MS)).collect::<Vec<_>>();
        let other = if is_greedy { vec![(0, u64::MAX / 2)] } else { begins(3) };
        let wakes = [Some(begins(2)), Some(other)];
        let asked = 40 * MS + rng.below(100 * MS);
        let (budgets, filled) = ([4, 3], populated(2));
        let switches = [(asked, served(budgets[1], kind))];
        let loads = vec![Load::default(), Load::default()];
        let tree = served(budgets[0], kind);
        let result = run_switched(&tree, loads, (&wakes, &filled), &switches, 500 * MS);
        let [switched] = result.switched[..] else { panic!("{:?}", result.switched) };
        let at = switched.began.as_ns();
        if is_greedy {
            assert_eq!((switched.cause, at), (Some(SwitchCause::Limit), asked + 20 * MS));
        } else {
            let since_frame = asked % (20 * MS);
            let idle = asked.max(asked - since_frame + 5 * MS);
            assert_eq!((switched.cause, at), (Some(SwitchCause::Idle), idle), "asked at {asked}");
        }
        // Two budgets may meet on each side of the switch, whatever the server.
        let had = &result.had[0];
        for (from, to, budget) in [(0, at, budgets[0]), (at, 500 * MS, budgets[1])] {
            let most = (from..to).step_by(MS as usize / 2);
            let most = most.map(|from| within(had, from, (from + 20 * MS).min(to))).max();
            assert!(
                most.unwrap_or(0) <= 2 * budget * MS + OVERRUN,
                "{kind:?}: {most:?} of {budget}"
            );
        }
        assert_eq!(result.stats[0].late, 0, "{kind:?}");
    }
}
