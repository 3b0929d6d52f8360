//! Programs without processes: groups that are numbers, an ear and a sentinel that take no time, a
//! CPU that works at full speed.

use super::fake::simulate;
use crate::course::Course;
use crate::load::{Arrival, Load};
use crate::mailbox::Mail;
use crate::mechanism::Mechanism;
use crate::mechanism::freeze::{Cage, Freeze};
use crate::record::{Entry, Log, merge};
use crate::replay::replay;
use crate::root::{Root, Stepper};
use crate::stage::Stage;
use crate::work::Job;
use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use talea_core::criteria::Own;
use talea_core::machine::{Cpu, SchedulerSpec, TaskId, TaskSpec, Tree};
use talea_core::sched::Policy;
use talea_core::server::{Kind, Reservation};
use talea_core::workload::{Source, Workload};
use talea_core::{CpuSet, Span, Time, Work};
use talea_sim::dice::Dice;

const MS: u64 = 1_000_000;
/// By so much a budget may be overrun for want of a timer that is shorter (`root::alarm`).
const OVERRUN: u64 = 320_000;

/// A task, by a program or by a worker.
#[derive(Clone, Copy, Debug, Default)]
struct Actor {
    is_program: bool,
    used: u64,
    /// What it still wants to do.
    wants: u64,
    frozen: bool,
    /// Its ear listens.
    armed: bool,
    /// It is ordered to run.
    ordered: bool,
}

type World = Rc<RefCell<Vec<Actor>>>;

#[derive(Debug)]
struct FakeCage(World, usize);

impl Cage for FakeCage {
    fn freeze(&mut self) -> io::Result<()> {
        self.0.borrow_mut()[self.1].frozen = true;
        Ok(())
    }

    fn thaw(&mut self) -> io::Result<()> {
        self.0.borrow_mut()[self.1].frozen = false;
        Ok(())
    }

    fn used(&mut self) -> io::Result<Work> {
        Ok(Work::from_ns(self.0.borrow()[self.1].used))
    }

    fn arm(&mut self) -> io::Result<()> {
        self.0.borrow_mut()[self.1].armed = true;
        Ok(())
    }
}

/// As `Mixed`, with workers that are numbers.
#[derive(Debug)]
struct Twin {
    world: World,
    freeze: Freeze<FakeCage>,
}

impl Twin {
    fn order(&mut self, task: TaskId, ordered: bool) {
        let actor = &mut self.world.borrow_mut()[task.0 as usize];
        assert_ne!(actor.ordered, ordered, "{task:?}");
        actor.ordered = ordered;
    }
}

impl Mechanism for Twin {
    type Error = io::Error;

    fn used(&mut self, task: TaskId) -> io::Result<Work> {
        Ok(Work::from_ns(self.world.borrow()[task.0 as usize].used))
    }

    fn begin(&mut self, cpu: Cpu, task: TaskId, job: Job) -> io::Result<()> {
        self.order(task, true);
        if self.freeze.has(task) {
            return self.freeze.run(cpu, task);
        }
        self.world.borrow_mut()[task.0 as usize].wants = job.cost.as_ns();
        Ok(())
    }

    fn resume(&mut self, cpu: Cpu, task: TaskId) -> io::Result<()> {
        self.order(task, true);
        if self.freeze.has(task) { self.freeze.run(cpu, task) } else { Ok(()) }
    }

    fn stop(&mut self, cpu: Cpu, task: TaskId, _successor: bool) -> io::Result<()> {
        self.order(task, false);
        if self.freeze.has(task) { self.freeze.stop(cpu, task) } else { Ok(()) }
    }

    fn ended(&mut self, task: TaskId) -> io::Result<()> {
        self.order(task, false);
        if self.freeze.has(task) { self.freeze.ended(task) } else { Ok(()) }
    }

    fn rest(&mut self, _cpu: Cpu) -> io::Result<()> {
        Ok(())
    }

    fn quiet(&mut self, cpu: Cpu) -> Option<TaskId> {
        self.freeze.quiet(cpu)
    }

    fn woke(&mut self) -> Option<TaskId> {
        self.freeze.woke()
    }

    fn settle(&mut self) -> io::Result<()> {
        self.freeze.settle()
    }
}

/// When a program wants to do how much more.
type Wakes = Vec<Vec<(u64, u64)>>;

struct Ran {
    record: Vec<Entry>,
    /// By task: when it had the CPU, from and to.
    had: Vec<Vec<(u64, u64)>>,
    left: Vec<u64>,
}

/// Runs `tree`; of tasks with `wakes` those are programs.
fn run(tree: &Tree, loads: Vec<Load>, wakes: &[Option<Vec<(u64, u64)>>], until: u64) -> Ran {
    let tasks = wakes.len();
    let stage = Arc::new(Stage::new(&[0], tasks, false, &CpuSet::single(0)));
    let actors = wakes.iter().map(|wakes| Actor {
        is_program: wakes.is_some(),
        frozen: wakes.is_some(),
        ..Actor::default()
    });
    let world: World = Rc::new(RefCell::new(actors.collect()));
    let cages =
        (0..tasks).map(|at| wakes[at].as_ref().map(|_| FakeCage(Rc::clone(&world), at))).collect();
    let twin = Twin { world: Rc::clone(&world), freeze: Freeze::new(Arc::clone(&stage), cages) };
    let machine = tree.build().expect("a sound tree");
    let loads = loads.into_iter().zip(wakes);
    let loads = loads
        .map(|(load, wakes)| if wakes.is_some() { Load::of_program(Vec::new()) } else { load })
        .collect();
    let mut root = Root::new(machine, 1, twin, loads, Vec::new(), Vec::new()).expect("no kernel");
    let mut log = Log::new(1 << 16);
    let mut pending: Wakes = wakes.iter().map(|wakes| wakes.clone().unwrap_or_default()).collect();
    let mut had = vec![Vec::new(); tasks];
    let (mut now, mut due, mut steps) = (0, 0, 0);
    while now < until {
        for (at, pending) in pending.iter_mut().enumerate() {
            while pending.first().is_some_and(|&(at, _)| at <= now) {
                world.borrow_mut()[at].wants += pending.remove(0).1;
            }
        }
        // Programs stand above workers; one that is let go by mistake would have the CPU.
        let runs = |world: &World| {
            let world = world.borrow();
            let wants =
                |&at: &usize| world[at].wants > 0 && world[at].is_program && !world[at].frozen;
            (0..tasks)
                .find(wants)
                .or_else(|| (0..tasks).find(|&at| !world[at].is_program && world[at].ordered))
        };
        let running = runs(&world);
        let mut mail = Mail::new(tasks);
        let mut is_heard = false;
        if let Some(at) = running.filter(|&at| world.borrow()[at].armed) {
            world.borrow_mut()[at].armed = false;
            stage.slots[at].woke.store(true, Ordering::Relaxed);
            is_heard = true;
        }
        let sentinel = &stage.cpus[0].sentinel;
        let is_unwanted = running.is_none_or(|at| !world.borrow()[at].is_program);
        if is_unwanted
            && sentinel.quiet.swap(sentinel.bell.heard(), Ordering::Relaxed)
                != sentinel.bell.heard()
        {
            is_heard = true;
        }
        if let Some(at) =
            running.filter(|&at| !world.borrow()[at].is_program && world.borrow()[at].wants == 0)
        {
            mail.ended.push(TaskId(at as u32));
            is_heard = true;
        }
        if is_heard || due <= now {
            root.step(Stepper { cpu: 0, worker: None }, Time::from_ns(now), &mail, &mut log)
                .expect("no kernel");
            due = root.arm(0, Time::from_ns(now), |_| ()).as_ns();
            steps += 1;
            assert!(steps < 100_000, "time stands still at {now}");
            let world = world.borrow();
            for (at, actor) in
                world.iter().enumerate().filter(|(_, actor)| actor.is_program && !actor.ordered)
            {
                // Whoever wants nothing may stand there as if it ran; whoever wants something is
                // stopped, or about to be heard.
                assert!(
                    actor.frozen || actor.wants == 0 || actor.armed,
                    "{at} runs without an order at {now}"
                );
                assert!(
                    actor.frozen || actor.armed,
                    "{at} could wake and nobody would hear it at {now}"
                );
            }
            continue;
        }
        // Until something happens.
        let next_wake =
            pending.iter().filter_map(|pending| pending.first()).map(|&(at, _)| at).min();
        let end = running.map_or(u64::MAX, |at| now + world.borrow()[at].wants);
        let next = due.min(next_wake.unwrap_or(u64::MAX)).min(end).min(until);
        if let Some(at) = running {
            let actor = &mut world.borrow_mut()[at];
            actor.used += next - now;
            actor.wants -= next - now;
            had[at].push((now, next));
        }
        now = next;
    }
    let (record, lost) = merge(vec![log]);
    assert_eq!(lost, 0);
    let left = world.borrow().iter().map(|actor| actor.wants).collect();
    Ran { record, had, left }
}

/// How much of `[from, to)` lies in these.
fn within(had: &[(u64, u64)], from: u64, to: u64) -> u64 {
    had.iter().map(|&(a, b)| b.min(to).saturating_sub(a.max(from))).sum()
}

struct System {
    tree: Tree,
    loads: Vec<Load>,
    /// Of programs.
    wakes: Vec<Option<Vec<(u64, u64)>>>,
    /// Theirs: budget and period.
    servers: Vec<(u64, u64)>,
}

/// Up to three programs, each in a server of its own, and workers, all below fixed priorities; and
/// what they do.
fn system(dice: &mut Dice, kind: Kind) -> System {
    let mut tree = Tree::new(1, SchedulerSpec::new("cpu", Policy::FixedPriority));
    let (mut loads, mut wakes, mut servers) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..=dice.below(3) {
        let period = 10 + dice.below(20);
        let budget = 1 + dice.below(period / 4);
        let mut server = SchedulerSpec::new("server", Policy::Fifo);
        server.own = Own { priority: Some(5 + dice.below(9) as u8), ..Own::default() };
        server.reservation =
            Some(Reservation::new(kind, Work::from_ns(budget * MS), Span::from_ns(period * MS)));
        let server = tree.scheduler(Tree::ROOT, server);
        let _ = tree.task(server, TaskSpec::new("program", Span::from_ns(period * MS)));
        servers.push((budget * MS, period * MS));
        loads.push(Load::default());
        // Half of what its server has in the long run, in lumps.
        let mut times: Vec<u64> = (0..20).map(|_| dice.below(1_000) * MS).collect();
        times.sort_unstable();
        let each = 1_000 / period * budget * MS / 20 / 2;
        wakes.push(Some(times.into_iter().map(|at| (at, 1 + dice.below(2 * each))).collect()));
    }
    for _ in 0..dice.below(3) {
        let period = 10 + dice.below(30);
        let mut spec = TaskSpec::new("worker", Span::from_ns(period * MS));
        spec.priority = dice.below(14) as u8;
        let _ = tree.task(Tree::ROOT, spec);
        let at = |k: u64| Time::from_ns(k * period * MS);
        let arrivals =
            (0..1_000 / period).map(|k| Arrival { seen: at(k), nominal: at(k) }).collect();
        loads.push(Load::new(arrivals, vec![Work::from_ns((1 + dice.below(period / 8 + 1)) * MS)]));
        wakes.push(None);
    }
    System { tree, loads, wakes, servers }
}

#[test]
fn l20_whatever_programs_do_and_whenever_they_wake_they_have_what_their_servers_have() {
    let mut dice = Dice::new(20);
    let (mut all, mut orders) = (0, 0);
    for case in 0..300 {
        let kind = [Kind::Polling, Kind::Deferrable, Kind::Sporadic, Kind::HardCbs][case % 4];
        let System { tree, loads, wakes, servers } = system(&mut dice, kind);
        let ran = run(&tree, loads, &wakes, 2_000 * MS);
        for (at, &(budget, period)) in servers.iter().enumerate() {
            // Two budgets may touch, whatever the kind; no window of a period has more.
            let ends = ran.had[at].iter().map(|&(from, _)| from);
            let most =
                ends.map(|from| within(&ran.had[at], from, from + period)).max().unwrap_or(0);
            assert!(
                most <= 2 * budget + OVERRUN,
                "case {case}, {kind:?}: {most} of {budget} each {period}"
            );
            let total = within(&ran.had[at], 0, 2_000 * MS);
            assert!(
                total <= (2_000 * MS / period + 2) * budget + OVERRUN,
                "case {case}, {kind:?}: {total}"
            );
            all += total;
        }
        // They asked for half of it, and had as long again.
        assert!(
            ran.left.iter().all(|&left| left == 0),
            "case {case}, {kind:?}: {:?} is not done",
            ran.left
        );
        orders +=
            replay(&mut tree.build().expect("a sound tree"), &ran.record).expect("the same orders");
    }
    assert!(
        all > 10_000 * MS && orders > 20_000,
        "{all} ns in {orders} orders: too little happens"
    );
}

#[test]
fn l20_a_program_that_always_wants_the_cpu_has_it_exactly_when_the_simulator_says() {
    for kind in [Kind::Polling, Kind::Deferrable, Kind::Sporadic, Kind::HardCbs] {
        let mut tree = Tree::new(1, SchedulerSpec::new("cpu", Policy::FixedPriority));
        let mut server = SchedulerSpec::new("server", Policy::Fifo);
        server.own = Own { priority: Some(9), ..Own::default() };
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
        let drawn = talea_sim::draw(&workload, Time::from_ns(until), |_| 1_000);
        let loads = drawn.into_iter().zip(&workload.sources);
        let loads = loads
            .map(|(drawn, source)| Load::drawn(&drawn.arrivals, drawn.costs, source.cost.clone()))
            .collect();
        let ran = run(&tree, loads, &[Some(vec![(0, u64::MAX / 2)]), None], until);
        let simulated = simulate(&tree, &workload, Time::from_ns(until));
        assert_eq!(Course::of(1, &ran.record).parts_from(&simulated), None, "{kind:?}");
        assert!(simulated.turns().count() > 100);
    }
}
