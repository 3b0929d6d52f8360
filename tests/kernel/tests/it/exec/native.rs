//! Roots that Linux runs alone: FIFO levels without a dispatcher, reservations of SCHED_DEADLINE in
//! a partition.
//!
//! A stall of the machine excludes the deviations that it explains; an inconclusive run is
//! repeated.

use super::scene::{left_behind, two_cpus};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use talea_core::engine::{Condition, SchedulerSpec, TaskId, TaskSpec, Tree};
use talea_core::sched::PolicySpec;
use talea_core::workload::{Arrivals as Comes, Source, Workload};
use talea_core::{CpuSet, Monotonic, Span, Time, Work};
use talea_exec::native::Guarantee;
use talea_exec::{
    Arrivals, Failure, Load, MechanismKind, Options, Report, RequestedMechanism, RootPlan,
    TaskPlan, execute, work,
};
use talea_kernel_tests::{Bench, Runs, eventually, kernel, needs, needs_root};
use talea_os::partition::{self, CgroupV1};
use talea_os::sysinfo::{Hierarchy, SystemInfo};
use talea_os::{Tid, sched};
use talea_sim::rng::Rng;
use talea_sim::{Jobs, Simulation};

const MS: u64 = 1_000_000;
/// Maximum deviation without a stall, in nanoseconds.
const TOLERANCE: u64 = 1_000_000;
/// Maximum total duration of all tries.
const PATIENCE: Duration = Duration::from_secs(6);

fn ms(ms: u64) -> Span {
    Span::from_ns(ms * MS)
}

/// Returns tasks of (priority, period, cost), with times in milliseconds.
fn system(policy: PolicySpec, set: &[(u8, u64, u64)]) -> (Tree, Workload) {
    let mut tree = Tree::new(1, SchedulerSpec::new("cpu", policy));
    let mut workload = Workload::default();
    for &(priority, period, cost) in set {
        let (period, cost) = (ms(period), Work::from_ns(cost * MS));
        let spec = TaskSpec { priority, cost: Some(cost), ..TaskSpec::new("task", period) };
        tree.task(Tree::ROOT, spec);
        workload.sources.push(Source::periodic(period, cost));
    }
    (tree, workload)
}

fn options(duration: Span) -> Options {
    Options {
        mechanism: RequestedMechanism::Linux,
        max_switches: 1 << 16,
        ..Options::new(duration)
    }
}

fn run(tree: &Tree, workload: &Workload, cpu: u32, duration: Span) -> Result<Report, Failure> {
    let drawn = talea_sim::generate_jobs(workload, Time::ZERO + duration, |_| 1 << 10);
    let tasks = drawn.into_iter().zip(&workload.sources).map(|(drawn, source)| TaskPlan {
        load: Load::generated(&drawn.arrivals, drawn.costs, source.cost.clone()),
        body: work::spender(),
    });
    let plan = RootPlan {
        tree,
        tasks: tasks.collect(),
        changes: Vec::new(),
        flows: Vec::new(),
        cpus: vec![cpu],
    };
    execute(vec![plan], &options(duration))
}

/// Returns the time until which stalls and lost times add up to at most [`TOLERANCE`], at most
/// `end`.
fn calm_until(report: &Report, end: Time) -> Time {
    let stalls = report.stalls.iter().map(|stall| (stall.earliest_start(), stall.length().as_ns()));
    // The monitor and the tick take two hundredths of a running worker's time.
    let stretches = report.roots[0].lost_times.iter().map(|stretch| {
        let ordinary = stretch.to.since(stretch.from).as_ns() / 50;
        (stretch.from, stretch.amount.as_ns().saturating_sub(ordinary))
    });
    let mut losses: Vec<(Time, u64)> = stalls.chain(stretches).collect();
    losses.sort_unstable();
    let mut away = 0;
    let is_too_much = |&&(_, by): &&(Time, u64)| {
        away += by;
        away > TOLERANCE
    };
    losses.iter().find(is_too_much).map_or(end, |&(from, _)| from)
}

#[test]
fn fixed_priorities_are_kept_by_linux_alone_without_interference() {
    needs_root!();
    needs!("two CPUs", kernel::cpus().len() >= 2);
    let _bench = Bench::new("native_levels");
    // No two ends of it are near each other.
    let (tree, workload) =
        system(PolicySpec::FixedPriority, &[(10, 73, 20), (30, 25, 4), (20, 32, 6)]);
    let duration = ms(209);
    let mut simulated = Jobs::default();
    let mut world = Simulation::new(tree.build().expect("a tree"), 1, &workload);
    world.run(Time::ZERO + duration, &mut simulated);
    let order: Vec<(TaskId, u64)> = simulated.ended.iter().map(|job| (job.task, job.job)).collect();
    assert!(order.len() > 15);
    // Half of the completions, which include each task and preempted jobs, are enough if no run is
    // undisturbed from end to end.
    let least = order.len() / 2;
    let (begun, mut runs) = (Instant::now(), Runs::at_least(1));
    let mut is_known = false;
    loop {
        let report = run(&tree, &workload, two_cpus()[1], duration).expect("a run");
        let root = &report.roots[0];
        assert_eq!(root.mechanism.kind, MechanismKind::Linux);
        assert_eq!(root.mechanism.reason, "SCHED_FIFO levels 91 to 93");
        let course = root.native.as_ref().expect("what workers have seen");
        assert_eq!(course.guarantee, Guarantee::Levels(vec![91, 93, 92]));
        assert!(root.record.is_empty() && root.dispatchers.iter().all(|effort| effort.steps == 0));
        let mut ended: Vec<(Time, TaskId, u64)> = Vec::new();
        for (task, lives) in (0..).map(TaskId).zip(&course.jobs) {
            ended.extend(lives.iter().filter_map(|life| Some((life.end?, task, life.number))));
            // However late it was, no release and no deadline has moved by that (S14, S16).
            for life in lives {
                let nominal = Time::from_ns(life.number * tree_period(&tree, task).as_ns());
                assert_eq!(
                    (life.release, life.deadline),
                    (nominal, nominal + tree_period(&tree, task))
                );
            }
        }
        ended.sort_unstable();
        // Each run must keep it up to the first stall.
        let calm = calm_until(&report, Time::ZERO + duration);
        let sequence: Vec<_> = ended
            .iter()
            .take_while(|&&(at, ..)| at < calm)
            .map(|&(_, task, job)| (task, job))
            .collect();
        assert_eq!(
            sequence,
            order[..sequence.len()],
            "nothing disturbed it until {calm:?}: {:?}",
            report.stalls
        );
        if let Some(ran) = &root.executed {
            let wrong = course.unordered_execution(ran, calm);
            let longest =
                wrong.iter().map(talea_exec::ExecInterval::length).max().unwrap_or(Span::ZERO);
            assert!(longest.as_ns() <= TOLERANCE, "{wrong:?}");
        }
        let is_calm = calm == Time::ZERO + duration;
        assert!(!is_calm || sequence == order, "{sequence:?}, not {order:?}");
        let is_conclusive = sequence.len() >= least;
        runs.add(is_conclusive);
        is_known |= is_conclusive;
        let patience = if is_known { PATIENCE } else { 5 * PATIENCE };
        if is_calm || begun.elapsed() > patience {
            break;
        }
    }
    assert_eq!(left_behind(), Vec::<String>::new());
}

fn tree_period(tree: &Tree, task: TaskId) -> Span {
    let tasks = tree.nodes().filter_map(|(_, node)| match &node.spec {
        talea_core::engine::NodeSpec::Task(spec) => Some(spec.period),
        talea_core::engine::NodeSpec::Scheduler(_) => None,
    });
    tasks.into_iter().nth(task.0 as usize).expect("a task")
}

#[test]
fn each_worker_has_its_policy_and_affinity_and_a_cancelled_run_ends() {
    needs_root!();
    let _bench = Bench::new("native_attributes");
    let cpu = two_cpus().last().copied().expect("a CPU");
    let quantum = Work::from_ns(sched::quantum().expect("the kernel's").as_ns());
    let fifo = [sched::Policy::Fifo(92), sched::Policy::Fifo(93)];
    let all = [
        (PolicySpec::FixedPriority, fifo),
        (PolicySpec::Fifo, [fifo[1]; 2]),
        (PolicySpec::RoundRobin { quantum }, [sched::Policy::Rr(93); 2]),
    ];
    for (policy, expected) in all {
        let (tree, _) = system(policy, &[(1, 5, 0), (2, 5, 0)]);
        let seen = Mutex::new(Vec::new());
        let remote = talea_exec::RunControl::default();
        let tasks = [0, 1].map(|task| {
            let (seen, remote) = (&seen, &remote);
            let every = Arrivals::Periodic { first: Time::ZERO, period: ms(5) };
            let body: talea_exec::JobBody<'_> = Box::new(move |job, _| {
                let me = Tid::current();
                let has = (sched::get(me).expect("ours"), sched::get_affinity(me).expect("ours"));
                seen.lock().expect("no panic").push((task, job.number, has));
                if job.number == 2 {
                    remote.cancel();
                }
            });
            TaskPlan { load: Load { arrivals: every, ..Load::default() }, body }
        });
        let plan = RootPlan {
            tree: &tree,
            tasks: tasks.into(),
            changes: Vec::new(),
            flows: Vec::new(),
            cpus: vec![cpu],
        };
        let report =
            talea_exec::execute_until(vec![plan], &options(ms(30_000)), &remote).expect("a run");
        assert!(report.length < ms(20_000), "it was called off: {}", report.length);
        let seen = seen.into_inner().expect("no panic");
        assert!(seen.iter().any(|&(_, number, _)| number == 2));
        for (task, _, (attr, affinity)) in seen {
            assert_eq!((attr.policy, attr.reset_on_fork), (expected[task], true));
            assert_eq!(affinity, CpuSet::single(cpu));
        }
    }
}

#[test]
fn a_run_that_linux_schedules_alone_stops_after_the_released_jobs() {
    needs_root!();
    let _bench = Bench::new("native_stop");
    let cpu = two_cpus().last().copied().expect("a CPU");
    let (tree, _) = system(
        PolicySpec::FixedPriority,
        &[(3, 10, 0), (2, 20, 0), (1, 30_000, 0), (4, 30_000, 0)],
    );
    let remote = talea_exec::RunControl::default();
    // The low one's only job has come long before the stop, waits while the others work, and is not
    // half done when it is over. The worker of the rare task sleeps until its second job, which is
    // due long after the stop, so only a notification ends the run before.
    let done = [(); 4].map(|()| AtomicU64::new(0));
    let stopped = AtomicU64::new(u64::MAX);
    let answers = Mutex::new(None);
    let tasks = [10, 20, 30_000, 30_000].into_iter().enumerate().map(|(task, period)| {
        let (remote, done, stopped, answers) = (&remote, &done, &stopped, &answers);
        let body: talea_exec::JobBody<'_> = Box::new(move |job, _| {
            if task == 2 {
                let end = talea_os::clock::thread_cpu_time().as_ns() + 150 * MS;
                while talea_os::clock::thread_cpu_time().as_ns() < end {}
            }
            done[task].fetch_add(1, Ordering::Relaxed);
            if task == 0 && job.number == 4 {
                *answers.lock().expect("no panic") = Some((
                    remote.activate(0, TaskId(1)),
                    remote.change(0, Condition::Mode(1)),
                    remote.stop(),
                ));
                stopped.store(talea_os::clock::now().as_ns(), Ordering::Relaxed);
            }
        });
        let every = Arrivals::Periodic { first: Time::ZERO, period: ms(period) };
        TaskPlan { load: Load { arrivals: every, ..Load::default() }, body }
    });
    let plan = RootPlan {
        tree: &tree,
        tasks: tasks.collect(),
        changes: Vec::new(),
        flows: Vec::new(),
        cpus: vec![cpu],
    };
    let report =
        talea_exec::execute_until(vec![plan], &options(ms(60_000)), &remote).expect("a run");
    assert_eq!(answers.into_inner().expect("no panic"), Some((false, false, true)));
    assert!(report.length < ms(20_000), "it was stopped: {}", report.length);
    let stopped = Monotonic::from_ns(stopped.into_inner());
    let stopped = stopped.since(report.zero);
    let [high, middle, low, rare] = done.map(AtomicU64::into_inner);
    let course = report.roots[0].native.as_ref().expect("what workers have seen");
    // All released jobs are done, and no other: workers notice a stop a moment later.
    for (task, (lives, done)) in course.jobs.iter().zip([high, middle, low, rare]).enumerate() {
        assert_eq!(lives.len() as u64, done, "task {task}");
        assert!(lives.iter().all(|life| life.end.is_some()), "task {task}: {lives:?}");
    }
    assert_eq!((low, rare), (1, 1));
    let come = |period: u64| stopped.as_ns() / (period * MS) + 1;
    assert!(high >= 5 && high >= come(10) && middle >= come(20), "{high}, {middle} by {stopped}");
    // However late the stop takes effect: not before the end of the low task's job, during which
    // the others would have continued.
    assert!(report.length >= ms(150), "{}", report.length);
    assert_eq!(left_behind(), Vec::<String>::new());
}

#[test]
fn plans_that_linux_alone_cannot_schedule_are_refused_before_the_run() {
    needs_root!();
    let bench = Bench::new("native_refused");
    let cpu = two_cpus()[0];
    let refused = |tree: &Tree, workload: &Workload| match run(tree, workload, cpu, ms(20)) {
        Err(Failure::Plan(why)) => why,
        other => panic!("{other:?}"),
    };
    let (mut tree, workload) = system(PolicySpec::FixedPriority, &[(1, 10, 1)]);
    tree.cpus = 2;
    let plan = RootPlan {
        tree: &tree,
        tasks: vec![TaskPlan { load: Load::default(), body: work::spender() }],
        changes: Vec::new(),
        flows: Vec::new(),
        cpus: two_cpus().into(),
    };
    match execute(vec![plan], &options(ms(20))) {
        Err(Failure::Plan(why)) => assert!(why.contains("cpu: its root has 2 CPUs"), "{why}"),
        other => panic!("{other:?}"),
    }
    let quantum = Work::from_ns(sched::quantum().expect("the kernel's").as_ns() + 1);
    let (rr, _) = system(PolicySpec::RoundRobin { quantum }, &[(1, 10, 1)]);
    assert!(refused(&rr, &workload).contains("SCHED_RR has a quantum of"));
    let machine = SystemInfo::probe().expect("this machine");
    let shares = machine.domain_of(cpu).is_some_and(|domain| domain.cpus.len() > 1);
    if shares {
        let (edf, workload) = system(PolicySpec::Edf, &[(1, 10, 1)]);
        let why = refused(&edf, &workload);
        assert!(why.contains("cannot be pinned") && why.contains("partition"), "{why}");
    }
    drop(bench);
    assert_eq!(left_behind(), Vec::<String>::new());
}

/// Root domain of its own for the last CPU, as long as this lives.
///
/// If a domain is created or removed within a period of a reservation's end, its bandwidth sum is
/// wrong forever, because the kernel then returns the bandwidth to no domain. So the test waits
/// before either.
struct Apart {
    journal: PathBuf,
    cpu: u32,
    /// Bandwidth that the kernel counts while no thread has a reservation here.
    empty: Option<i64>,
}

impl Apart {
    fn make(journal: &Path) -> Option<Apart> {
        let machine = SystemInfo::probe().expect("this machine");
        let is_v1 = matches!(machine.cgroups.cpuset, Hierarchy::V1(_));
        if !is_v1 || machine.online.len() < 2 || !machine.is_one_domain() {
            return None;
        }
        let cpu = machine.online.iter().last().expect("a CPU");
        settled(cpu);
        let cpus = CpuSet::single(cpu);
        partition::create(
            &machine.cgroups.cpuset,
            &machine.online,
            &cpus,
            CgroupV1::Allow,
            journal,
        )
        .expect("a partition");
        Some(Apart { journal: journal.to_owned(), cpu, empty: kernel::deadline_bandwidth_of(cpu) })
    }

    fn is_empty(&self) -> bool {
        kernel::deadline_bandwidth_of(self.cpu) == self.empty
    }

    /// Removes the domain once the kernel counts no reservation any more.
    #[track_caller]
    fn close(self) {
        eventually("the kernel has its bandwidth back", || self.is_empty());
    }
}

impl Drop for Apart {
    fn drop(&mut self) {
        // Runs after a failed test, too.
        let end = Instant::now() + Duration::from_secs(10);
        while !self.is_empty() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(1));
        }
        drop(partition::undo(&self.journal));
    }
}

/// Waits until the kernel has returned the bandwidth of earlier tests.
fn settled(cpu: u32) {
    let (mut last, mut since) = (kernel::deadline_bandwidth_of(cpu), Instant::now());
    while last.is_some() && since.elapsed() < Duration::from_secs(1) {
        std::thread::sleep(Duration::from_millis(10));
        let now = kernel::deadline_bandwidth_of(cpu);
        if now != last {
            (last, since) = (now, Instant::now());
        }
    }
}

/// Returns one of SF3P's random sets (section VI) with this utilization, in thousandths: (period,
/// cost) in nanoseconds.
fn set(rng: &mut Rng, most: u64, permille: u64) -> Vec<(u64, u64)> {
    let n = rng.between(5, most);
    let cost = |rng: &mut Rng| {
        if rng.between(0, 1) == 0 { rng.between(5, 10) } else { rng.between(40, 50) }
    };
    let costs: Vec<u64> = (0..n).map(|_| cost(rng) * MS).collect();
    costs.into_iter().map(|cost| (cost * n * 1_000 / permille, cost)).collect()
}

/// Counts of the jobs whose deadlines are within the run.
#[derive(Debug)]
struct Judged {
    jobs: u64,
    /// Number of jobs that are late because of a stall or a lost time.
    excluded: u64,
    /// Number of jobs that are late for no such reason.
    late: u64,
}

fn judged(report: &Report, costs: &[u64], end: Time) -> Judged {
    let course = report.roots[0].native.as_ref().expect("what workers have seen");
    assert!(matches!(course.guarantee, Guarantee::Deadlines(_)), "{:?}", course.guarantee);
    // When nothing was left to do.
    let mut clear: Vec<Time> = Vec::new();
    let mut all: Vec<(Time, i32)> = Vec::new();
    for life in course.jobs.iter().flatten() {
        all.push((life.ready(), 1));
        all.extend(life.end.map(|end| (end, -1)));
    }
    all.sort_unstable();
    let mut pending = 0;
    for (at, by) in all {
        pending += by;
        if pending == 0 {
            clear.push(at);
        }
    }
    let losses = report.stalls.iter().map(|stall| (stall.from, stall.to));
    // And from a job on whose clock went on while it did nothing: it looks at that clock all the
    // time, and would have ended. Interrupts and the hypervisor did that, at its budget's expense.
    // Any other lateness is not excused.
    let paid = course.jobs.iter().zip(costs).flat_map(|(lives, cost)| {
        let most = cost + cost / 1_000 * 3 + 10_000;
        let over = lives.iter().filter(move |life| life.cpu_time.as_ns() > most);
        over.map(|life| (life.ready(), life.deadline))
    });
    let spans: Vec<(Time, Time)> = losses
        .chain(paid)
        .map(|(from, to)| (from, clear.iter().copied().find(|&at| at >= to).unwrap_or(Time::NEVER)))
        .collect();
    let mut seen = Judged { jobs: 0, excluded: 0, late: 0 };
    for life in course.jobs.iter().flatten().filter(|life| life.deadline <= end) {
        seen.jobs += 1;
        if life.end.is_none_or(|at| at > life.deadline) {
            let until = life.end.unwrap_or(end);
            let is_excluded = spans.iter().any(|&(from, to)| from <= until && life.ready() <= to);
            *(if is_excluded { &mut seen.excluded } else { &mut seen.late }) += 1;
        }
    }
    seen
}

/// Maximum number of runs of one set, if stalls exclude too many jobs.
const TRIES: usize = 6;

/// Returns the first conclusive run, or the best one if there is none. The function stops after
/// three runs if even the best of them has late jobs that no stall explains.
fn calmest(tries: impl Iterator<Item = Judged>, tell: impl Fn(&Judged)) -> Judged {
    let mut best: Option<Judged> = None;
    for (number, seen) in (1..).zip(tries) {
        let is_calm = seen.late == 0 && seen.excluded * 20 <= seen.jobs;
        if !is_calm {
            tell(&seen);
        }
        if best.as_ref().is_none_or(|best| (seen.late, seen.excluded) < (best.late, best.excluded))
        {
            best = Some(seen);
        }
        if is_calm || (number == 3 && best.as_ref().is_some_and(|best| best.late > 0)) {
            break;
        }
    }
    best.expect("a first")
}

#[test]
fn s7_a_job_that_is_due_before_its_period_is_over_has_its_budget_when_it_comes() {
    needs_root!();
    let bench = Bench::new("native_constrained");
    let apart = Apart::make(&bench.path("partitions"));
    needs!("cgroup v1 with undivided cpusets, and two CPUs", apart.is_some());
    let apart = apart.expect("it was just looked at");
    let cpu = apart.cpu;
    // (offset, period, deadline, cost) in milliseconds. The offset is within the deadline of a job
    // at zero, if there were one.
    let set = [(0, 100, 20, 3), (10, 100, 30, 5), (0, 130, 60, 7)];
    let mut tree = Tree::new(1, SchedulerSpec::new("cpu", PolicySpec::Edf));
    let mut workload = Workload::default();
    let mut costs = Vec::new();
    for (offset, period, deadline, cost) in set {
        let (period, work) = (ms(period), Work::from_ns(cost * MS));
        costs.push(cost * MS);
        let spec =
            TaskSpec { cost: Some(work), deadline: ms(deadline), ..TaskSpec::new("task", period) };
        tree.task(Tree::ROOT, spec);
        let mut source = Source::periodic(period, work);
        source.arrivals = Comes::Periodic { offset: ms(offset), period, jitter: Span::ZERO };
        workload.sources.push(source);
    }
    let duration = ms(900);
    let tries = (0..TRIES).map(|_| {
        let report = run(&tree, &workload, cpu, duration).expect("a run");
        judged(&report, &costs, Time::ZERO + duration)
    });
    let seen = calmest(tries, |seen| println!("{seen:?}"));
    // Throttled at their first wake all of them were late, each by nearly a period. A stall below
    // the detection limit may throttle a single job, because budgets are equal to costs.
    assert!(seen.late * 8 <= seen.jobs, "{seen:?}");
    Runs::at_least(1).add(seen.jobs > 20 && seen.excluded * 2 < seen.jobs);
    apart.close();
    assert_eq!(left_behind(), Vec::<String>::new());
}

#[test]
fn s7_reservations_of_the_kernel_miss_nothing_at_88_hundredths() {
    needs_root!();
    let bench = Bench::new("native_s7");
    let apart = Apart::make(&bench.path("partitions"));
    needs!("cgroup v1 with undivided cpusets, and two CPUs", apart.is_some());
    let apart = apart.expect("it was just looked at");
    let cpu = apart.cpu;
    let is_soak = std::env::var_os("TALEA_SOAK").is_some();
    // As long, and with as many tasks, as the paper's under soak. What a set had the kernel gives
    // back a period later.
    let (duration, most) = if is_soak { (ms(3_000), 50) } else { (ms(400), 12) };
    let mut rng = Rng::new(7);
    let (mut jobs, mut excluded, mut late) = (0, 0, 0);
    let mut runs = Runs::at_least(20);
    for number in 0..30 {
        let mut tree = Tree::new(1, SchedulerSpec::new("cpu", PolicySpec::Edf));
        let mut workload = Workload::default();
        let mut costs = Vec::new();
        for (period, cost) in set(&mut rng, most, 880) {
            costs.push(cost);
            let (period, cost) = (Span::from_ns(period), Work::from_ns(cost));
            tree.task(Tree::ROOT, TaskSpec { cost: Some(cost), ..TaskSpec::new("task", period) });
            workload.sources.push(Source::periodic(period, cost));
        }
        // Lost time that no monitor sees takes a little of a budget now and then, and one job pays
        // for it; a budget that is too small makes several late each time.
        let tries = (0..TRIES).map(|_| {
            let report = run(&tree, &workload, cpu, duration)
                .unwrap_or_else(|why| panic!("set {number}: {why}"));
            judged(&report, &costs, Time::ZERO + duration)
        });
        let seen = calmest(tries, |seen| println!("set {number}: {seen:?}"));
        runs.add(seen.excluded * 20 <= seen.jobs);
        jobs += seen.jobs;
        excluded += seen.excluded;
        late += seen.late;
    }
    println!("{jobs} jobs, {late} late, {excluded} late by stalls");
    assert!(jobs > 300, "{jobs}");
    assert_eq!(late, 0, "of {jobs} jobs, {excluded} others late by stalls");
    apart.close();
    assert_eq!(left_behind(), Vec::<String>::new());
}
