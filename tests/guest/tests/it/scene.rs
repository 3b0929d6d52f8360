//! A system, its simulation and its execution on this machine's only CPU.

use talea_core::engine::TaskId;
use talea_core::quantile;
use talea_core::workload::Cost;
use talea_core::{Span, Time, Work};
use talea_exec::{
    Load, Options, RootPlan, RootReport, ScheduleEvent, ScheduleLog, TaskPlan, execute, replay,
    work,
};
use talea_sim::Simulation;
use talea_system::{Root, System};

/// The simulated and the real schedule of a system.
pub(crate) struct Run {
    pub(crate) simulated: ScheduleLog,
    pub(crate) real: ScheduleLog,
    pub(crate) report: RootReport,
    tasks: Vec<String>,
}

/// Microseconds.
pub(crate) fn us(us: u64) -> Span {
    Span::from_ns(us * 1_000)
}

/// Milliseconds.
pub(crate) fn ms(ms: u64) -> Span {
    us(ms * 1_000)
}

/// The jobs of a task of the root until then, as its simulation draws them.
pub(crate) fn load(system: &System, root: &Root, task: usize) -> Load {
    let until = Time::ZERO + system.duration;
    let drawn =
        talea_sim::generate_jobs(&root.workload(system.seed), until, |_| 0).swap_remove(task);
    Load::generated(&drawn.arrivals, drawn.costs, root.sources[task].cost.clone())
}

/// Runs a system with one CPU, every job spending what it costs.
pub(crate) fn run(text: &str) -> Run {
    run_beside(text, Span::ZERO)
}

/// Runs a system like [`run`], and simulates it with jobs that are longer by `longer`. Where a
/// job's end and the end of a slot coincide in the description, a job that is a microsecond longer,
/// as every real one is, has to wait for the next slot.
pub(crate) fn run_beside(text: &str, longer: Span) -> Run {
    let system = talea_system::read(text, "the test's own", &()).expect("a sound system");
    let [root] = &system.roots[..] else { panic!("one CPU, so one root") };
    let machine = root.tree.build().expect("a sound tree");
    let until = Time::ZERO + system.duration;
    let mut workload = root.workload(system.seed);
    for source in &mut workload.sources {
        if let Cost::Constant(cost) = &mut source.cost {
            *cost += Work::from_ns(longer.as_ns());
        }
    }
    let mut simulated = ScheduleLog::new(1);
    Simulation::new(machine, 1, &workload).run(until, &mut simulated);
    simulated.end_instant();
    let plan = |task: usize| TaskPlan { load: load(&system, root, task), body: work::spender() };
    let tasks = (0..root.tasks.len()).map(plan).collect();
    let plan =
        RootPlan { tree: &root.tree, tasks, changes: Vec::new(), flows: Vec::new(), cpus: vec![0] };
    // The stall monitor is a thread, and this machine has none to spare.
    let options =
        Options { monitor: false, record_capacity: 1 << 18, ..Options::new(system.duration) };
    let mut report = execute(vec![plan], &options).expect("a run");
    let report = report.roots.swap_remove(0);
    assert_eq!((report.lost, report.refused), (0, 0));
    let mut fresh = root.tree.build().expect("a sound tree");
    replay::replay(&mut fresh, &report.record).expect("the same orders from a fresh machine");
    let real = ScheduleLog::from_record(1, &report.record);
    Run { simulated, real, report, tasks: root.tasks.clone() }
}

impl Run {
    /// The task of this name.
    pub(crate) fn task(&self, name: &str) -> TaskId {
        TaskId(self.tasks.iter().position(|task| task == name).expect("a task of that name") as u32)
    }

    /// The two parted nowhere, and each start and end was at most `late` behind the simulation's
    /// and at most `early` before it: a job's CPU clock also counts what interrupts take meanwhile,
    /// now and then some hundred microseconds.
    pub(crate) fn keeps_time(&self, early: Span, late: Span) {
        if let Some((at, ours, theirs)) = self.real.first_difference(&self.simulated) {
            let around = |course: &ScheduleLog| {
                let turns = course.timed_events().iter().skip(at.saturating_sub(4)).take(8);
                turns.map(|turn| format!("  {turn:?}")).collect::<Vec<_>>().join("\n")
            };
            let (here, there) = (around(&self.real), around(&self.simulated));
            panic!("turn {at} is {ours:?}, simulated {theirs:?}\nhere\n{here}\nsimulated\n{there}");
        }
        let mut worst = Span::ZERO;
        for (&(real, turn), &(simulated, _)) in
            self.real.timed_events().iter().zip(self.simulated.timed_events())
        {
            assert!(real + early >= simulated, "{turn:?}: {real:?} is before {simulated:?}");
            worst = worst.max(real.since(simulated.min(real)));
        }
        println!("{} turns, the latest {worst} behind", self.real.timed_events().len());
        assert!(worst <= late, "{worst} behind the simulation; at most {late}");
    }

    /// When the jobs of a task ended, in the simulation and here.
    pub(crate) fn ends(&self, name: &str) -> Vec<(Time, Time)> {
        let task = self.task(name);
        let of = |course: &ScheduleLog| {
            let ended = |&(at, turn): &(Time, ScheduleEvent)| {
                matches!(turn, ScheduleEvent::Completed { task: it, .. } if it == task)
                    .then_some(at)
            };
            course.timed_events().iter().filter_map(ended).collect::<Vec<_>>()
        };
        of(&self.simulated).into_iter().zip(of(&self.real)).collect()
    }
}

/// Prints the distribution and returns median and 99th percentile.
pub(crate) fn spread(what: &str, mut values: Vec<u64>) -> (u64, u64) {
    assert!(!values.is_empty(), "{what}");
    values.sort_unstable();
    let [median, p99] = [50, 99].map(|percent| quantile(&values, percent).expect("a value"));
    println!(
        "{what}: median {median} ns, p99 {p99} ns, max {} ns of {}",
        values[values.len() - 1],
        values.len()
    );
    (median, p99)
}

/// Consumption of a thread beyond its budget, in nanoseconds.
pub(crate) fn over(used: Work, budget: Work) -> u64 {
    used.as_ns().saturating_sub(budget.as_ns())
}
