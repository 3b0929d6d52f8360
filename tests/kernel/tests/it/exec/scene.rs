//! A system file, its simulation, its execution, and what they must have in common.

use std::time::{Duration, Instant};
use talea_core::machine::{Cpu, TaskId};
use talea_core::workload::{Cost, Overheads, Workload};
use talea_core::{Span, Time, Work};
use talea_exec::{
    Arrival, Course, Load, Options, Report, RootPlan, RootReport, TaskPlan, Turn, execute, work,
};
use talea_kernel_tests::Bench;
use talea_sim::{Completion, Sink, World};
use talea_system::system::{Root, System};

/// All tries of one test together; a machine that does not let a short run through in this time says nothing.
const PATIENCE: Duration = Duration::from_millis(4_300);
/// What a worker may consume beside its jobs, per job and stop, mostly the way from one job to the next.
const STRAY: u64 = 60_000;

/// A system; each of its roots gets the next CPUs.
pub(super) struct Scene {
    system: System,
}

/// A root in a run that agreed with the simulator.
pub(super) struct Agreed {
    course: Course,
    tasks: Vec<String>,
}

struct Told(Course);

impl Sink for Told {
    fn runs(&mut self, now: Time, cpu: Cpu, task: TaskId, job: u64) {
        self.0.tell(now, Turn::Runs { cpu, task, job });
    }

    fn idles(&mut self, now: Time, cpu: Cpu) {
        self.0.tell(now, Turn::Rests { cpu });
    }

    fn completed(&mut self, job: &Completion) {
        self.0.tell(job.end, Turn::Ended { task: job.task, job: job.job });
    }
}

impl Scene {
    pub(super) fn read(text: &str) -> Scene {
        let system = talea_system::system::read(text, "the test's own", &()).expect("a sound system");
        Scene { system }
    }

    fn until(&self) -> Time {
        Time::ZERO + self.system.duration
    }

    /// With every cost longer by so many thousandths, and with what scheduling may cost.
    fn simulate(&self, root: &Root, longer: u64, overheads: Overheads) -> Course {
        let mut workload: Workload = root.workload(self.system.seed);
        for source in &mut workload.sources {
            if let Cost::Constant(cost) = &mut source.cost {
                *cost = Work::from_ns(cost.as_ns() / 1_000 * (1_000 + longer));
            }
        }
        let machine = root.tree.build().expect("a sound tree");
        let mut world = World::new(machine, root.tree.cpus, &workload).with_overheads(overheads);
        let mut told = Told(Course::new(root.tree.cpus));
        world.run(self.until(), &mut told);
        told.0.settle();
        told.0
    }

    /// What the simulator says, whatever a real machine adds within reason; a system of which that is not one sequence is
    /// none to compare with.
    fn simulated(&self, root: &Root) -> Course {
        let exact = self.simulate(root, 0, Overheads::default());
        let us = |us: u64| Span::from_ns(us * 1_000);
        for (longer, each) in [(0, 1_000), (50, 0), (100, 0), (50, 1_000), (100, 1_500)] {
            let overheads = Overheads { decision: us(each), ..Overheads::default() };
            let other = self.simulate(root, longer, overheads);
            assert_eq!(exact.parts_from(&other), None, "hangs by a thread: {longer} ‰, {each} µs");
        }
        let last = exact.timed().last().map_or(Time::ZERO, |&(at, _)| at);
        assert!(self.until().since(last) > us(4_000), "something ends at {last:?}, too near to the end");
        exact
    }

    fn execute(&self, number: u32) -> Report {
        let roots = &self.system.roots;
        let wanted: u32 = roots.iter().map(|root| root.tree.cpus).sum();
        // One after the other: a neighbour that takes one of them away need not take both.
        let mut free = if wanted == 1 { number % 2.. } else { 0.. };
        let mut plans = Vec::new();
        for root in roots {
            let drawn = talea_sim::draw(&root.workload(self.system.seed), self.until());
            let tasks = drawn.into_iter().map(|drawn| {
                let arrivals =
                    drawn.arrivals.iter().map(|&(seen, nominal)| Arrival { seen, nominal }).collect();
                TaskPlan { load: Load { arrivals, costs: drawn.costs }, body: work::spender() }
            });
            let cpus = free.by_ref().take(root.tree.cpus as usize).collect();
            plans.push(RootPlan { tree: &root.tree, tasks: tasks.collect(), cpus });
        }
        execute(plans, &Options::new(self.system.duration)).expect("a run")
    }

    /// Runs it until a run says something, and holds it against the simulator; by root.
    pub(super) fn agrees(&self, _bench: &Bench) -> Vec<Agreed> {
        let roots = &self.system.roots;
        let simulated: Vec<Course> = roots.iter().map(|root| self.simulated(root)).collect();
        let begun = Instant::now();
        let mut disturbed = Vec::new();
        for number in 0.. {
            let report = self.execute(number);
            let mut agreed = Vec::new();
            let mut parts = None;
            for ((root, real), simulated) in roots.iter().zip(&report.roots).zip(&simulated) {
                assert_eq!((real.lost, real.refused), (0, 0));
                // Whatever the machine did to the run: the same events give the same orders.
                let mut fresh = root.tree.build().expect("a sound tree");
                let orders = talea_exec::replay::replay(&mut fresh, &real.record)
                    .unwrap_or_else(|differs| panic!("run {number} is not replayed: {differs}"));
                assert!(orders > 0);
                let course = Course::of(root.tree.cpus, &real.record);
                parts = parts.or_else(|| course.parts_from(simulated));
                agreed.push(Agreed { course, tasks: root.tasks.clone() });
            }
            if parts.is_none() {
                for ((root, real), simulated) in roots.iter().zip(&report.roots).zip(&simulated) {
                    is_strict(root, real, simulated);
                }
                say(number, &report);
                return agreed;
            }
            assert!(
                is_disturbed(&report),
                "run {number} parts from the simulation at {parts:?} although nothing disturbed it\n{:?}\n{:?}",
                agreed.iter().map(|agreed| agreed.course.timed()).collect::<Vec<_>>(),
                report.roots.iter().map(|root| &root.effort).collect::<Vec<_>>(),
            );
            disturbed.push((parts, report.holes));
            if begun.elapsed() > PATIENCE {
                break;
            }
        }
        panic!("inconclusive: {} runs, each with holes: {disturbed:?}", disturbed.len());
    }
}

/// No worker ran that the machine had not chosen, and each got what it should.
fn is_strict(root: &Root, real: &RootReport, simulated: &Course) {
    for (at, consumed) in real.consumed.iter().enumerate() {
        let name = &root.tasks[at];
        let is_its = |turn: &Turn| matches!(turn, Turn::Ended { task, .. } | Turn::Runs { task, .. } if task.0 as usize == at);
        let turns: Vec<Turn> = simulated.turns().filter(is_its).collect();
        let most = STRAY * turns.len() as u64;
        let stray = consumed.stray().as_ns();
        assert!(stray <= most, "{name} ran {stray} ns without having been chosen: {consumed:?}");
        let cost = match root.sources[at].cost {
            Cost::Constant(cost) => cost.as_ns(),
            ref other => panic!("no constant cost: {other:?}"),
        };
        let ended = turns.iter().filter(|turn| matches!(turn, Turn::Ended { .. })).count() as u64;
        // In all, what its jobs cost and little more; what they were charged for being stopped is their own.
        let total = consumed.total.as_ns();
        assert!(total >= cost * ended, "{name}: {total} of {}", cost * ended);
        assert!(total <= cost * (ended + 1) * 11 / 10, "{name}: {total} of {}", cost * (ended + 1));
    }
}

/// Whether CPUs were away for so long that the sequence may differ by it: for longer than was allowed for above.
fn is_disturbed(report: &Report) -> bool {
    const MOST: u64 = 1_000_000;
    let away: u64 = report.holes.iter().map(|hole| hole.length().as_ns()).sum();
    let late = report.roots.iter().flat_map(|root| &root.effort).map(|effort| effort.latest.as_ns()).max();
    away > MOST || late > Some(MOST) || report.roots.iter().any(|root| stretched(root) > 2 * MOST)
}

/// For how long the CPUs of a root belonged to workers that got nothing done, dispatchers aside: holes too short to be seen one by one.
fn stretched(root: &RootReport) -> u64 {
    let mut since: Vec<Option<Time>> = vec![None; root.effort.len()];
    let mut owned = 0;
    for &(now, turn) in Course::of(root.effort.len() as u32, &root.record).timed() {
        let (cpu, begins) = match turn {
            // What follows on its CPU is told at the same instant.
            Turn::Ended { .. } => continue,
            Turn::Runs { cpu, .. } => (cpu, Some(now)),
            Turn::Rests { cpu } => (cpu, None),
        };
        let before = std::mem::replace(&mut since[cpu.0 as usize], begins);
        owned += before.map_or(0, |before| now.since(before).as_ns());
    }
    let done: u64 = root.consumed.iter().map(|consumed| consumed.ordered.as_ns()).sum();
    let ours: u64 = root.effort.iter().map(|effort| effort.used.as_ns()).sum();
    owned.saturating_sub(done + ours)
}

/// For whoever reads the test's output.
fn say(number: u32, report: &Report) {
    let longest = report.holes.iter().map(talea_exec::Hole::length).max().unwrap_or(Span::ZERO);
    println!("run {number} agrees; {} holes, the longest {longest}", report.holes.len());
    for root in &report.roots {
        println!("  stretched by {} ns", stretched(root));
        for effort in &root.effort {
            println!("  {effort:?}");
        }
        for consumed in &root.consumed {
            println!("  ordered {} stray {}", consumed.ordered, consumed.stray());
        }
    }
}

impl Agreed {
    /// How often a job lost a CPU to another one before its end.
    pub(super) fn preemptions(&self) -> usize {
        self.losses(|to| to.is_some())
    }

    /// How often a job lost a CPU to nobody.
    pub(super) fn rests_within_jobs(&self) -> usize {
        self.losses(|to| to.is_none())
    }

    fn losses(&self, wanted: impl Fn(Option<(TaskId, u64)>) -> bool) -> usize {
        let mut has: Vec<(Cpu, (TaskId, u64))> = Vec::new();
        let mut count = 0;
        for turn in self.course.turns() {
            let (cpu, to) = match turn {
                Turn::Ended { task, job } => {
                    has.retain(|&(_, who)| who != (task, job));
                    continue;
                }
                Turn::Runs { cpu, task, job } => (cpu, Some((task, job))),
                Turn::Rests { cpu } => (cpu, None),
            };
            count += usize::from(has.iter().any(|&(at, _)| at == cpu) && wanted(to));
            has.retain(|&(at, _)| at != cpu);
            has.extend(to.map(|to| (cpu, to)));
        }
        count
    }

    /// How often a job went on on another CPU.
    pub(super) fn migrations(&self) -> usize {
        let mut last: Vec<((TaskId, u64), Cpu)> = Vec::new();
        let mut count = 0;
        for turn in self.course.turns() {
            if let Turn::Runs { cpu, task, job } = turn {
                let who = (task, job);
                count += usize::from(last.iter().any(|&(other, at)| other == who && at != cpu));
                last.retain(|&(other, _)| other != who);
                last.push((who, cpu));
            }
        }
        count
    }

    /// The longest time that a task had a CPU without a pause, on a root with one.
    pub(super) fn worst_grant(&self, name: &str) -> Span {
        let task = self.tasks.iter().position(|task| task == name).expect("a task of that name");
        let mut since = None;
        let mut worst = Span::ZERO;
        for &(now, turn) in self.course.timed() {
            if let Some(since) = since.take() {
                worst = worst.max(now.since(since));
            }
            if matches!(turn, Turn::Runs { task: runs, .. } if runs.0 as usize == task) {
                since = Some(now);
            }
        }
        worst
    }
}

/// Threads of a run that are still there.
pub(super) fn left_behind() -> Vec<String> {
    let tasks = std::fs::read_dir("/proc/self/task").expect("our threads");
    // One that has just ended has no name any more.
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.filter(|name| name.starts_with("exec-")).collect()
}
