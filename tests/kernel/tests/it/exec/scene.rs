//! A system file, its simulation, its execution, and the comparison of both.

use std::time::{Duration, Instant};
use talea_core::engine::{Cpu, Event, Order, TaskId};
use talea_core::workload::{Cost, Overheads, Workload};
use talea_core::{Span, Time, Work};
use talea_exec::{
    Load, Options, RecordEntry, RecordKind, Report, RootPlan, RootReport, ScheduleEvent,
    ScheduleLog, TaskPlan, execute, work,
};
use talea_kernel_tests::{Bench, Runs, kernel};
use talea_sim::Simulation;
use talea_system::{Registry, Root, System};

/// Duration after which a disturbed run with the simulated sequence is conclusive.
const PATIENCE: Duration = Duration::from_millis(4_300);
/// Maximum total duration of all tries of one test.
const TIME_LIMIT: Duration = Duration::from_secs(30);
/// Maximum CPU time of a worker outside of its jobs, per job and stop, in nanoseconds.
const STRAY: u64 = 60_000;

/// A system; each of its roots has the next CPUs.
pub(super) struct Scene {
    system: System,
}

/// A root in a run that agreed with the simulator.
pub(super) struct Agreed {
    course: ScheduleLog,
    tasks: Vec<String>,
    record: Vec<RecordEntry>,
    /// Number of steps by workers at completions.
    by_workers: u64,
    /// Deviation that stalls of the run may explain; zero unless every run was disturbed.
    slack: Work,
}

impl Scene {
    pub(super) fn read(text: &str) -> Scene {
        Scene::read_with(text, &Registry::new())
    }

    /// Reads a system with custom policies and servers.
    pub(super) fn read_with(text: &str, registry: &Registry) -> Scene {
        let read = talea_system::read_with(text, "the test's own", &(), registry);
        Scene { system: read.expect("a sound system") }
    }

    fn until(&self) -> Time {
        Time::ZERO + self.system.duration
    }

    /// Simulates the system with every cost increased by `longer` thousandths, and with scheduling
    /// overheads.
    fn simulate(&self, root: &Root, longer: u64, overheads: Overheads) -> ScheduleLog {
        let mut workload: Workload = root.workload(self.system.seed);
        for source in &mut workload.sources {
            lengthen(&mut source.cost, longer);
        }
        let machine = root.tree.build().expect("a sound tree");
        let mut world = Simulation::new(machine, root.tree.cpus, &workload)
            .with_overheads(overheads)
            .with_condition_changes(root.surroundings.changes.clone());
        let mut log = ScheduleLog::new(root.tree.cpus);
        world.run(self.until(), &mut log);
        log.end_instant();
        log
    }

    /// Returns the simulator's schedule. Checks that increased costs and overheads of a reasonable
    /// size do not change the sequence, because otherwise a real run is not comparable.
    fn simulated(&self, root: &Root) -> ScheduleLog {
        let exact = self.simulate(root, 0, Overheads::default());
        let us = |us: u64| Span::from_ns(us * 1_000);
        for (longer, each) in [(0, 1_000), (50, 0), (100, 0), (50, 1_000), (100, 1_500)] {
            let overheads = Overheads { decision: us(each), ..Overheads::default() };
            let other = self.simulate(root, longer, overheads);
            assert_eq!(
                exact.first_difference(&other),
                None,
                "hangs by a thread: {longer} ‰, {each} µs"
            );
        }
        let last = exact.timed_events().last().map_or(Time::ZERO, |&(at, _)| at);
        assert!(
            self.until().since(last) > us(4_000),
            "something ends at {last:?}, too near to the end"
        );
        exact
    }

    fn execute(&self, number: u32) -> Report {
        let roots = &self.system.roots;
        let wanted: u32 = roots.iter().map(|root| root.tree.cpus).sum();
        // One after the other: a neighbour that takes one of them away need not take both.
        let two = two_cpus();
        let mut free = two.into_iter().skip(if wanted == 1 { number as usize % 2 } else { 0 });
        let mut plans = Vec::new();
        for root in roots {
            let drawn =
                talea_sim::generate_jobs(&root.workload(self.system.seed), self.until(), |_| 256);
            let tasks = drawn.into_iter().zip(&root.sources).map(|(drawn, source)| {
                let load = Load::generated(&drawn.arrivals, drawn.costs, source.cost.clone());
                TaskPlan { load, body: work::spender() }
            });
            let cpus: Vec<u32> = free.by_ref().take(root.tree.cpus as usize).collect();
            let changes = root.surroundings.changes.clone();
            plans.push(RootPlan {
                tree: &root.tree,
                tasks: tasks.collect(),
                changes,
                flows: Vec::new(),
                cpus,
            });
        }
        execute(plans, &Options::new(self.system.duration)).expect("a run")
    }

    /// Repeats the run until it is conclusive, and compares it with the simulator. Returns one
    /// result per root.
    pub(super) fn agrees(&self, _bench: &Bench) -> Vec<Agreed> {
        let roots = &self.system.roots;
        let simulated: Vec<ScheduleLog> = roots.iter().map(|root| self.simulated(root)).collect();
        let begun = Instant::now();
        let mut runs = Runs::at_least(1);
        let mut second_best = None;
        for number in 0.. {
            let report = self.execute(number);
            let mut agreed = Vec::new();
            let mut parts = None;
            for ((root, real), simulated) in roots.iter().zip(&report.roots).zip(&simulated) {
                assert_eq!((real.lost, real.refused), (0, 0));
                // With or without stalls: the same events give the same orders.
                let mut fresh = root.tree.build().expect("a sound tree");
                let orders = talea_exec::replay::replay(&mut fresh, &real.record)
                    .unwrap_or_else(|differs| panic!("run {number} is not replayed: {differs}"));
                assert!(orders > 0);
                let course = ScheduleLog::from_record(root.tree.cpus, &real.record);
                parts = parts.or_else(|| course.first_difference(simulated));
                let (tasks, record) = (root.tasks.clone(), real.record.clone());
                let by_workers =
                    real.dispatchers.iter().map(|effort| effort.worker_completions).sum();
                agreed.push(Agreed { course, tasks, record, by_workers, slack: Work::ZERO });
            }
            let is_disturbed = is_disturbed(&report);
            if parts.is_none() && !is_disturbed {
                runs.add(true);
                return self.strictly(number, &report, &simulated, agreed);
            }
            assert!(
                is_disturbed,
                "run {number} parts from the simulation at {parts:?} although nothing disturbed it\n{:?}\n{:?}",
                agreed.iter().map(|agreed| agreed.course.timed_events()).collect::<Vec<_>>(),
                report.roots.iter().map(|root| &root.dispatchers).collect::<Vec<_>>(),
            );
            println!("run {number} is disturbed: {parts:?}, {:?}", report.stalls);
            runs.add(parts.is_none());
            if parts.is_none() {
                second_best = Some((number, report, agreed));
            }
            let is_known = second_best.is_some() && begun.elapsed() > PATIENCE;
            if is_known || begun.elapsed() > TIME_LIMIT {
                break;
            }
        }
        // Each run was disturbed: the tolerance includes what a disturbance explains.
        let (number, report, mut agreed) =
            second_best.expect("inconclusive: no run with the simulated sequence");
        let slack = Work::from_ns(disturbance(&report));
        for root in &mut agreed {
            root.slack = slack;
        }
        self.strictly(number, &report, &simulated, agreed)
    }

    /// Runs the system once, with or without stalls, and checks that a fresh engine repeats the
    /// record. For systems whose sequence is sensitive to small deviations.
    pub(super) fn runs(&self, _bench: &Bench) -> Vec<Agreed> {
        let report = self.execute(0);
        let of = |(root, real): (&Root, &RootReport)| {
            assert_eq!((real.lost, real.refused), (0, 0));
            let mut fresh = root.tree.build().expect("a sound tree");
            let orders = talea_exec::replay::replay(&mut fresh, &real.record);
            assert!(orders.unwrap_or_else(|differs| panic!("not replayed: {differs}")) > 0);
            let course = ScheduleLog::from_record(root.tree.cpus, &real.record);
            let (tasks, record) = (root.tasks.clone(), real.record.clone());
            let by_workers = real.dispatchers.iter().map(|effort| effort.worker_completions).sum();
            Agreed { course, tasks, record, by_workers, slack: Work::ZERO }
        };
        self.system.roots.iter().zip(&report.roots).map(of).collect()
    }

    /// Checks the CPU time of the workers of a run whose sequence is right.
    fn strictly(
        &self,
        number: u32,
        report: &Report,
        simulated: &[ScheduleLog],
        agreed: Vec<Agreed>,
    ) -> Vec<Agreed> {
        say(number, report);
        let roots = self.system.roots.iter().zip(&report.roots);
        for (((root, real), simulated), agreed) in roots.zip(simulated).zip(&agreed) {
            // While the CPU is away its dispatcher can't stop any worker, also where that is too
            // short to disturb the sequence.
            is_strict(root, real, simulated, agreed.slack.as_ns().max(away(report)));
        }
        agreed
    }
}

/// Returns the first two CPUs that are online.
pub(super) fn two_cpus() -> [u32; 2] {
    let online = kernel::cpus();
    let mut online = online.iter();
    [(); 2].map(|()| online.next().expect("two CPUs"))
}

/// Checks that no worker ran without an order, and that each got its CPU time, within `slack`
/// nanoseconds.
fn is_strict(root: &Root, real: &RootReport, simulated: &ScheduleLog, slack: u64) {
    for (at, consumed) in real.consumed.iter().enumerate() {
        let name = &root.tasks[at];
        let is_its = |turn: &ScheduleEvent| match turn {
            ScheduleEvent::Completed { task, .. } | ScheduleEvent::Dispatched { task, .. } => {
                task.0 as usize == at
            }
            ScheduleEvent::Idle { .. } => false,
        };
        let turns: Vec<ScheduleEvent> = simulated.events().filter(is_its).collect();
        let most = STRAY * turns.len() as u64;
        let stray = consumed.stray().as_ns();
        assert!(
            stray <= most + slack,
            "{name} ran {stray} ns without having been chosen: {consumed:?}"
        );
        let (least, most) = bounds(&root.sources[at].cost);
        let ended =
            turns.iter().filter(|turn| matches!(turn, ScheduleEvent::Completed { .. })).count()
                as u64;
        // In total, what its jobs cost and little more; what they were charged for being stopped is
        // their own.
        let total = consumed.total.as_ns();
        assert!(total >= least * ended, "{name}: {total} of {}", least * ended);
        assert!(
            total <= most * (ended + 1) * 11 / 10 + slack,
            "{name}: {total} of {}",
            most * (ended + 1)
        );
    }
}

/// Makes a job longer by `by` thousandths; its steps stay where they are.
fn lengthen(cost: &mut Cost, by: u64) {
    match cost {
        Cost::Constant(cost) => *cost = Work::from_ns(cost.as_ns() / 1_000 * (1_000 + by)),
        Cost::WithSteps { base: of, .. } => lengthen(of, by),
        Cost::Versions(costs) => costs.iter_mut().for_each(|cost| lengthen(cost, by)),
        other => panic!("no constant cost: {other:?}"),
    }
}

/// Returns the minimum and the maximum cost of a job, in nanoseconds.
fn bounds(cost: &Cost) -> (u64, u64) {
    match cost {
        Cost::Constant(cost) => (cost.as_ns(), cost.as_ns()),
        Cost::WithSteps { base: of, .. } => bounds(of),
        Cost::Versions(costs) => {
            let all: Vec<_> = costs.iter().map(bounds).collect();
            let least = all.iter().map(|&(least, _)| least).min().expect("a version");
            (least, all.iter().map(|&(_, most)| most).max().expect("a version"))
        }
        other => panic!("no constant cost: {other:?}"),
    }
}

/// Whether stalls, lateness or lost time were so long that the sequence may differ from the
/// simulated one.
fn is_disturbed(report: &Report) -> bool {
    const MOST: u64 = 1_000_000;
    away(report) > MOST
        || late(report) > MOST
        || report.roots.iter().any(|root| root.total_lost_time().as_ns() > 2 * MOST)
}

/// Returns the sum of all disturbances of a run, in nanoseconds.
fn disturbance(report: &Report) -> u64 {
    away(report)
        + late(report)
        + report.roots.iter().map(|root| root.total_lost_time().as_ns()).sum::<u64>()
}

/// Returns the total length of the detected stalls, in nanoseconds.
fn away(report: &Report) -> u64 {
    report.stalls.iter().map(|stall| stall.length().as_ns()).sum()
}

/// Returns the maximum lateness of a dispatcher, in nanoseconds.
fn late(report: &Report) -> u64 {
    let efforts = report.roots.iter().flat_map(|root| &root.dispatchers);
    efforts.map(|effort| effort.max_lateness.as_ns()).max().unwrap_or(0)
}

/// Prints the figures of a run.
fn say(number: u32, report: &Report) {
    let longest = report.stalls.iter().map(talea_exec::Stall::length).max().unwrap_or(Span::ZERO);
    println!("run {number} agrees; {} stalls, the longest {longest}", report.stalls.len());
    for root in &report.roots {
        println!("  stretched by {}", root.total_lost_time());
        for effort in &root.dispatchers {
            println!("  {effort:?}");
        }
        for consumed in &root.consumed {
            println!("  ordered {} stray {}", consumed.ordered, consumed.stray());
        }
    }
}

impl Agreed {
    /// Returns the number of steps by workers at completions.
    pub(super) fn by_workers(&self) -> u64 {
        self.by_workers
    }

    /// Returns the events and orders of the engine.
    pub(super) fn record(&self) -> &[RecordEntry] {
        &self.record
    }

    /// Returns the completions and dispatches, in order.
    pub(super) fn turns(&self) -> Vec<ScheduleEvent> {
        self.course.events().collect()
    }

    /// Returns the number of times that a job lost a CPU to another job before its completion.
    pub(super) fn preemptions(&self) -> usize {
        self.losses(|to| to.is_some())
    }

    /// Returns the number of times that a job lost a CPU that was idle afterwards.
    pub(super) fn rests_within_jobs(&self) -> usize {
        self.losses(|to| to.is_none())
    }

    fn losses(&self, wanted: impl Fn(Option<(TaskId, u64)>) -> bool) -> usize {
        let mut has: Vec<(Cpu, (TaskId, u64))> = Vec::new();
        let mut count = 0;
        for turn in self.course.events() {
            let (cpu, to) = match turn {
                ScheduleEvent::Completed { task, job } => {
                    has.retain(|&(_, who)| who != (task, job));
                    continue;
                }
                ScheduleEvent::Dispatched { cpu, task, job } => (cpu, Some((task, job))),
                ScheduleEvent::Idle { cpu } => (cpu, None),
            };
            count += usize::from(has.iter().any(|&(at, _)| at == cpu) && wanted(to));
            has.retain(|&(at, _)| at != cpu);
            has.extend(to.map(|to| (cpu, to)));
        }
        count
    }

    /// Returns the number of times that a job continued on another CPU.
    pub(super) fn migrations(&self) -> usize {
        let mut last: Vec<((TaskId, u64), Cpu)> = Vec::new();
        let mut count = 0;
        for turn in self.course.events() {
            if let ScheduleEvent::Dispatched { cpu, task, job } = turn {
                let who = (task, job);
                count += usize::from(last.iter().any(|&(other, at)| other == who && at != cpu));
                last.retain(|&(other, _)| other != who);
                last.push((who, cpu));
            }
        }
        count
    }

    /// Returns the maximum CPU time that a job of the task has consumed without a pause, and the
    /// part that stalls may explain. The root must have one CPU, and all consumption must be
    /// accounted.
    pub(super) fn worst_grant(&self, name: &str) -> (Work, Work) {
        let at = self.tasks.iter().position(|task| task == name).expect("a task of that name");
        let (mut has, mut wanted) = (None, None);
        let (mut used, mut worst) = (Work::ZERO, Work::ZERO);
        for entry in &self.record {
            match entry.kind {
                RecordKind::Event(Event::Ran { work, .. })
                    if has.is_some_and(|(task, _)| task as usize == at) =>
                {
                    used += work;
                    worst = worst.max(used);
                }
                RecordKind::Order(Order::Run { task, job, .. }) => wanted = Some((task.0, job)),
                RecordKind::Order(Order::Idle { .. }) => wanted = None,
                RecordKind::Polled if has != wanted => {
                    has = wanted;
                    used = Work::ZERO;
                }
                _ => {}
            }
        }
        (worst, self.slack)
    }
}

/// Returns the names of the threads of a run that still exist after ten seconds. A joined thread
/// may still be listed for a moment.
pub(super) fn left_behind() -> Vec<String> {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        let tasks = std::fs::read_dir("/proc/self/task").expect("our threads");
        // One that has just ended has no name any more.
        let names =
            tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
        let prefixes = ["exec-", "talea-end", "talea-idle", "talea-progmon", "talea-wake"];
        let is_ours = |name: &String| prefixes.iter().any(|prefix| name.starts_with(prefix));
        let left: Vec<String> = names.filter(is_ours).collect();
        if left.is_empty() || Instant::now() > deadline {
            return left;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}
