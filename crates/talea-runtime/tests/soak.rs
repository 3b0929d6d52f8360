//! Many jobs through a graph of twenty tasks: no job is lost, stuck or leaked, and a run allocates
//! no memory and causes no page fault.
//!
//! The file is a separate program, because the counting allocator belongs to the whole program.
//! `TALEA_SOAK` requests ten times as many jobs, and `TALEA_SOAK_JOBS` requests this number: a
//! million takes a quarter of a minute.

use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use std::alloc::System;
use std::fs;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use talea_core::rng::Rng;
use talea_kernel_tests::{Bench, kernel, needs, needs_root};
use talea_runtime::{
    Application, Candidates, Condition, Config, Input, Mapping, Output, Priorities, Report,
    RunHandle, Running, Selection, Server, Table, Task, TaskId, Version, WaitMode,
};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Lock for one test at a time, because the counts belong to the whole program.
static ONE: Mutex<()> = Mutex::new(());

const MS: Duration = Duration::from_millis(1);
/// Layers between the first task and the last, each task with two sources.
const LAYERS: usize = 3;
const WIDTH: usize = 6;
const TASKS: usize = LAYERS * WIDTH + 2;
/// Concurrent activations of the graph.
const WINDOW: u64 = 8;
const JOBS: u64 = 1_000_000;

/// Mixes the bits of a number.
fn spread(number: u64) -> u64 {
    Rng::new(number).next()
}

/// Selects any available version.
fn any(of: &Candidates<'_>) -> Option<u32> {
    let count = of.iter().count() as u64;
    of.iter().nth((spread(of.job) % count) as usize).map(|(number, _)| number)
}

/// State that the graph and its test share.
#[derive(Default)]
struct Shared {
    /// Handle of the current run; only the last task uses it meanwhile.
    handle: Mutex<Option<RunHandle>>,
    /// Number of activations that have passed the graph.
    through: AtomicU64,
    /// Whether no job activates the graph any more.
    is_ending: AtomicBool,
    /// Whether jobs panic.
    panics: bool,
    panicked: AtomicU64,
    /// Number of jobs that found different numbers at their inputs.
    wrong: AtomicU64,
}

impl Shared {
    /// Panics in one job of a hundred.
    fn perhaps_panic(&self, task: usize, job: u64) {
        if self.panics && spread(job * TASKS as u64 + task as u64).is_multiple_of(100) {
            self.panicked.fetch_add(1, Ordering::Relaxed);
            panic!("as it was meant to");
        }
    }
}

/// Ends of a task's channels.
#[derive(Clone, Default)]
struct Ends {
    inputs: Vec<Input<u64>>,
    outputs: Vec<Output<u64>>,
}

fn graph(config: Config, shared: &Arc<Shared>) -> (Application, [TaskId; TASKS]) {
    let mut app = Application::new(Config { selection: Selection::User(any), ..config });
    let accelerators = ["gpu", "dsp"].map(|name| app.accelerator(name));
    let first = Task::activated("first", 10_000 * MS).backlog(WINDOW as u32);
    let mut tasks = vec![app.task(first)];
    for at in 1..TASKS {
        let priority = spread(at as u64) as u8;
        tasks.push(
            app.task(Task::node(&format!("node{at}")).core(at as u32 % 2).priority(priority)),
        );
    }
    let tasks: [TaskId; TASKS] = tasks.try_into().expect("twenty");
    let mut ends: Vec<Ends> = vec![Ends::default(); TASKS];
    let mut join = |app: &mut Application, from: usize, to: usize| {
        let (put, take) = app.channel(tasks[from], tasks[to], 2 * WINDOW as u32);
        ends[from].outputs.push(put);
        ends[to].inputs.push(take);
    };
    for at in 0..WIDTH {
        join(&mut app, 0, 1 + at);
        for layer in 1..LAYERS {
            let from = |at: usize| 1 + (layer - 1) * WIDTH + at % WIDTH;
            join(&mut app, from(at), 1 + layer * WIDTH + at);
            join(&mut app, from(at + 1), 1 + layer * WIDTH + at);
        }
        join(&mut app, 1 + (LAYERS - 1) * WIDTH + at, TASKS - 1);
    }
    for (at, ends) in ends.into_iter().enumerate() {
        // The last version needs no accelerator, so that no job has to wait.
        let needs = [Some(accelerators[0]), Some(accelerators[1]), None];
        for (version, need) in needs.into_iter().enumerate() {
            let (ends, shared, first) = (ends.clone(), Arc::clone(shared), tasks[0]);
            let id = app.version(tasks[at], Version::new(&format!("v{version}")), move |job| {
                let mut numbers =
                    ends.inputs.iter().map(|input| input.pop().expect("it came for one"));
                let number = numbers.next().unwrap_or(job.number);
                if numbers.any(|other| other != number) {
                    shared.wrong.fetch_add(1, Ordering::Relaxed);
                }
                for output in &ends.outputs {
                    output.push(number).expect("room for all that are under way");
                }
                if ends.outputs.is_empty() {
                    shared.through.fetch_add(1, Ordering::Release);
                    if !shared.is_ending.load(Ordering::Relaxed)
                        && let Some(handle) = &*shared.handle.lock().expect("whole")
                    {
                        handle.activate(first);
                    }
                }
                shared.perhaps_panic(at, job.number);
            });
            if let Some(accelerator) = need.filter(|_| at % 3 > 0) {
                app.uses(id, accelerator);
            }
        }
    }
    (app, tasks)
}

/// Runs until `wanted` activations have passed, and calls `during` in the middle. Also returns the
/// result of `during`.
fn run<T>(
    app: Application,
    first: TaskId,
    shared: &Shared,
    wanted: u64,
    during: impl FnOnce() -> T,
) -> (Application, Report, T) {
    let running = start(app, shared);
    activate(&running, first);
    wait_for(shared, wanted.min(2 * WINDOW));
    let found = during();
    wait_for(shared, wanted);
    shared.is_ending.store(true, Ordering::Relaxed);
    let (app, report) = running.stop().expect("it ends by itself");
    (app, report, found)
}

fn start(app: Application, shared: &Shared) -> Running {
    shared.is_ending.store(false, Ordering::Relaxed);
    shared.through.store(0, Ordering::Release);
    let tell = |handle: RunHandle| *shared.handle.lock().expect("whole") = Some(handle);
    app.start_with(tell).expect("it can be run")
}

fn activate(running: &Running, first: TaskId) {
    for _ in 0..WINDOW {
        assert!(running.activate(first));
    }
}

/// Waits until this number has passed.
fn wait_for(shared: &Shared, count: u64) {
    let end = Instant::now() + Duration::from_mins(1);
    while shared.through.load(Ordering::Acquire) < count {
        assert!(Instant::now() < end, "it is stuck at {}", shared.through.load(Ordering::Acquire));
        std::thread::sleep(MS);
    }
}

/// Checks that all released jobs completed, equally often in each task, in order.
fn must_be_whole(report: &Report, shared: &Shared) {
    let through = shared.through.load(Ordering::Acquire);
    assert!(
        report.tasks.iter().all(|task| task.jobs == through),
        "{through} went through: {report:?}"
    );
    assert_eq!(
        (report.rejected_pushes, report.failed_pops, shared.wrong.load(Ordering::Relaxed)),
        (0, 0, 0),
        "{report:?}"
    );
    let panics: u64 = report.tasks.iter().map(|task| task.panics).sum();
    assert_eq!(panics, shared.panicked.load(Ordering::Relaxed), "{report:?}");
    for task in &report.tasks {
        assert_eq!(task.versions.iter().sum::<u64>(), task.jobs, "each in one version");
    }
}

fn threads() -> usize {
    fs::read_dir("/proc/self/task").expect("threads").count()
}

/// Returns the number of allocated bytes.
fn held() -> i64 {
    let now = ALLOCATOR.stats();
    now.bytes_allocated as i64 - now.bytes_deallocated as i64
}

/// Returns the configurations of the rounds.
fn configs() -> Vec<Config> {
    let cpus: Vec<u32> = kernel::cpus().iter().take(2).collect();
    let one = Config { cpus: cpus[..1].to_vec(), ..Config::default() };
    let two = Config { cpus, ..Config::default() };
    vec![
        one.clone(),
        two.clone(),
        Config { mapping: Mapping::Partitioned, priorities: Priorities::User, ..two.clone() },
        Config { preemptive: false, retain_channels: true, ..one.clone() },
        Config { priorities: Priorities::User, retain_channels: true, ..one },
        Config { mapping: Mapping::Clustered, inheritance: false, ..two },
    ]
}

/// Silences the panics of jobs while the value lives: each would print some twenty lines. The test
/// itself is not silenced.
fn quiet() -> impl Drop {
    struct Loud;
    impl Drop for Loud {
        fn drop(&mut self) {
            // A panicking thread must not call it.
            if !std::thread::panicking() {
                let _ = std::panic::take_hook();
            }
        }
    }
    let loud = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |what| {
        if !std::thread::current().name().is_some_and(|name| name.starts_with("exec-")) {
            loud(what);
        }
    }));
    Loud
}

#[test]
fn y9_y14_a_million_jobs_leave_no_token_no_thread_and_no_memory_behind() {
    let _one = ONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    needs!("two CPUs", kernel::cpus().iter().count() >= 2);
    let is_soak = std::env::var_os("TALEA_SOAK").is_some();
    let jobs = if is_soak { 10 * JOBS } else { JOBS };
    let jobs =
        std::env::var("TALEA_SOAK_JOBS").ok().and_then(|jobs| jobs.parse().ok()).unwrap_or(jobs);
    let _quiet = quiet();
    let configs = configs();
    let (mut done, mut panicked, mut before, mut turn) = (0, 0, None, None::<(Bench, Instant)>);
    for round in 0_u64.. {
        let of = |round: u64| configs[round as usize % configs.len()].clone();
        // No test locks the system for as long as ten million jobs take.
        if turn.as_ref().is_none_or(|(_, since)| since.elapsed() > Duration::from_secs(30)) {
            drop(turn.take());
            turn = Some((Bench::new("runtime_soak"), Instant::now()));
        }
        let shared = Arc::new(Shared { panics: true, ..Shared::default() });
        let (mut app, tasks) = graph(of(round), &shared);
        // Stopped at any time, changed, and started again.
        for start in 0..3 {
            *app.config() = Config { selection: Selection::User(any), ..of(round + start) };
            let wanted = 20 + spread(3 * round + start) % 200;
            let report;
            (app, report, ()) = run(app, tasks[0], &shared, wanted, || ());
            must_be_whole(&report, &shared);
            done += report.tasks.iter().map(|task| task.jobs).sum::<u64>();
            panicked += shared.panicked.swap(0, Ordering::Relaxed);
        }
        drop((app, shared));
        let held = held();
        if round >= 12 && done >= jobs {
            let (threads_before, held_before) = before.expect("it was looked at");
            assert!(
                threads() <= threads_before,
                "threads were left: {} of {threads_before}",
                threads()
            );
            assert!(held < held_before + 200_000, "{held_before} bytes were held, and now {held}");
            break;
        }
        if round == 6 {
            before = Some((threads() + 1, held));
        }
    }
    assert!(panicked > done / 200, "{panicked} of {done} fell");
}

#[test]
fn y14_a_hundred_starts_and_stops_of_one_application_leave_no_memory_and_no_thread_behind() {
    let _one = ONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let _bench = Bench::new("runtime_cycles_held");
    needs!("two CPUs", kernel::cpus().iter().count() >= 2);
    let shared = Arc::new(Shared::default());
    let (mut app, tasks) = graph(configs().swap_remove(1), &shared);
    let mut before = None;
    for cycle in 0..100 {
        let report;
        (app, report, ()) = run(app, tasks[0], &shared, 1, || ());
        must_be_whole(&report, &shared);
        drop(report);
        if cycle == 9 {
            before = Some((threads(), held()));
        }
    }
    let (threads_before, held_before) = before.expect("it was looked at");
    // The harness may have another thread, and keep a printed line; ninety cycles of the runtime
    // are not in this allowance.
    assert!(
        threads() <= threads_before + 1,
        "threads were left: {} of {threads_before}",
        threads()
    );
    assert!(held() < held_before + 4_096, "{held_before} bytes were held, and now {}", held());
}

#[test]
fn y19_nothing_is_allocated_between_start_and_stop() {
    let _one = ONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let _bench = Bench::new("runtime_allocation");
    needs!("two CPUs", kernel::cpus().iter().count() >= 2);
    for at in 0..configs().len() {
        // The harness may report the previous test at any time; an allocation by the runtime would
        // be repeated.
        let changes = (0..3).map(|_| {
            let shared = Arc::new(Shared::default());
            let (app, tasks) = graph(configs().swap_remove(at), &shared);
            let running = start(app, &shared);
            // From before the first job on.
            let region = Region::new(ALLOCATOR);
            activate(&running, tasks[0]);
            wait_for(&shared, 200);
            let change = region.change();
            shared.is_ending.store(true, Ordering::Relaxed);
            let (_, report) = running.stop().expect("it ends by itself");
            must_be_whole(&report, &shared);
            (change.allocations, change.reallocations, change.deallocations)
        });
        let changes: Vec<_> = changes.take_while(|&change| change != (0, 0, 0)).collect();
        assert!(changes.len() < 3, "{changes:?}");
    }
}

/// Builds an application of two periodic tasks, a sporadic task and an activated task, with a table
/// or a server. Also returns the sporadic task.
fn kinds(config: Config, counts: &Arc<[AtomicU64; 4]>) -> (Application, TaskId) {
    let by_table = config.priorities == Priorities::User;
    let mut app = Application::new(config);
    let server =
        (!by_table).then(|| app.server(Server::deferrable("server", MS, 4 * MS).priority(3)));
    let asked = Task::sporadic("asked", 2 * MS).backlog(8);
    let served = Task::activated("served", 50 * MS).backlog(8).priority(9);
    let tasks = [
        Task::periodic("often", 2 * MS).priority(7),
        Task::periodic("seldom", 7 * MS).offset(MS).deadline(3 * MS).backlog(4),
        asked.priority(5),
        server.map_or(served.clone(), |server| served.served_by(server)),
    ]
    .map(|task| app.task(task));
    for (at, task) in tasks.into_iter().enumerate() {
        for (version, share) in ["long", "short"].into_iter().zip([400, 50]) {
            let counts = Arc::clone(counts);
            let cost = Duration::from_micros(share);
            let version = Version::new(version).cost(cost).energy(share);
            app.version(task, version, move |_| {
                let begun = Instant::now();
                while begun.elapsed() < cost {
                    std::hint::spin_loop();
                }
                counts[at].fetch_add(1, Ordering::Release);
            });
        }
    }
    if by_table {
        let table =
            Table::new(10 * MS).entry(0, MS, 2 * MS, tasks[0]).entry(0, 4 * MS, MS, tasks[2]);
        app.set_table(Some(
            table.entry(0, 6 * MS, MS, tasks[1]).entry(0, 8 * MS, MS, tasks[3]).activating(),
        ));
    }
    (app, tasks[2])
}

#[test]
fn y19_nothing_is_allocated_with_any_arrivals_servers_and_tables() {
    let _one = ONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let _bench = Bench::new("runtime_allocation_kinds");
    let one = Config { cpus: kernel::cpus().iter().take(1).collect(), ..Config::default() };
    let configs = [
        Config { selection: Selection::Energy, ..one.clone() },
        Config {
            priorities: Priorities::DeadlineMonotonic,
            wait_mode: WaitMode::Spin(MS),
            ..one.clone()
        },
        Config { selection: Selection::Mode, preemptive: false, ..one.clone() },
        // This one follows a table.
        Config { priorities: Priorities::User, ..one },
    ];
    for config in configs {
        let changes = (0..3).map(|_| {
            let counts: Arc<[AtomicU64; 4]> = Arc::default();
            let (app, asked) = kinds(config.clone(), &counts);
            let running = app.start().expect("it can be run");
            let region = Region::new(ALLOCATOR);
            let end = Instant::now() + Duration::from_secs(30);
            for round in 0.. {
                // An overload, and a decreasing battery.
                assert!(running.activate(asked) && running.activate(TaskId::from_number(3)));
                assert!(running.change(Condition::Battery(400 / (1 + round))));
                assert!(running.change(Condition::Mode((round % 2) as u8)));
                if counts.iter().all(|count| count.load(Ordering::Acquire) >= 10) {
                    break;
                }
                assert!(Instant::now() < end, "it is stuck at {counts:?}");
                std::thread::sleep(MS);
            }
            let change = region.change();
            running.stop().expect("it ends by itself");
            (change.allocations, change.reallocations, change.deallocations)
        });
        let changes: Vec<_> = changes.take_while(|&change| change != (0, 0, 0)).collect();
        assert!(changes.len() < 3, "{config:?}: {changes:?}");
    }
}

/// Returns the numbers of minor and major page faults of the threads of the run.
fn missed() -> (u64, u64) {
    let (mut minor, mut major) = (0, 0);
    for task in fs::read_dir("/proc/self/task").expect("threads").flatten() {
        let Ok(stat) = fs::read_to_string(task.path().join("stat")) else { continue };
        let Some((name, rest)) = stat.split_once('(').and_then(|(_, rest)| rest.rsplit_once(')'))
        else {
            continue;
        };
        // After the name: state, five ids, flags, then these (proc(5)).
        let fields: Vec<&str> = rest.split_whitespace().collect();
        if name.starts_with("exec-") {
            minor += fields[7].parse::<u64>().expect("a number");
            major += fields[9].parse::<u64>().expect("a number");
        }
    }
    (minor, major)
}

#[test]
fn y20_memory_is_locked_and_the_loop_causes_no_page_fault() {
    let _one = ONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    needs_root!();
    let _bench = Bench::new("runtime_pages");
    needs!("two CPUs", kernel::cpus().iter().count() >= 2);
    for config in configs().into_iter().take(2) {
        let shared = Arc::new(Shared::default());
        let (app, tasks) = graph(config, &shared);
        let (_, report, windows) = run(app, tasks[0], &shared, 600, || {
            let windows = (1..=5).map(|window| {
                let before = missed();
                wait_for(&shared, 100 * window);
                (before, missed())
            });
            windows.collect::<Vec<_>>()
        });
        assert!(report.is_locked, "root may lock its memory");
        assert!(
            windows.iter().all(|(before, after)| before.1 == after.1),
            "fetched from a disk: {windows:?}"
        );
        // The kernel may move a page now and then; a page that the loop lacks faults each time.
        assert!(
            windows.iter().any(|(before, after)| before == after),
            "missed in every window: {windows:?}"
        );
    }
}

/// A number that is counted while it exists.
struct Counted(u64, Arc<AtomicU64>);

impl Counted {
    fn new(number: u64, alive: &Arc<AtomicU64>) -> Counted {
        alive.fetch_add(1, Ordering::Relaxed);
        Counted(number, Arc::clone(alive))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.1.fetch_sub(1, Ordering::Relaxed);
    }
}

#[test]
fn y9_y14_jobs_that_panic_anywhere_lose_no_token_and_no_datum() {
    let _one = ONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let _bench = Bench::new("runtime_falling");
    needs!("two CPUs", kernel::cpus().iter().count() >= 2);
    const JOBS: u64 = 2_000;
    let _quiet = quiet();
    for (round, config) in (0..).zip(configs()) {
        let mut app = Application::new(Config { selection: Selection::Declared, ..config });
        let accelerator = app.accelerator("gpu");
        let room = JOBS as u32;
        let source = app.task(Task::activated("source", 10_000 * MS).backlog(2));
        let nodes = ["middle", "sink"].map(|name| app.task(Task::node(name).core(1).backlog(room)));
        let (put, take) = app.channel::<Counted>(source, nodes[0], room);
        let (pass, last) = app.channel::<Counted>(nodes[0], nodes[1], room);
        let alive = Arc::new(AtomicU64::new(0));
        // Pushed and popped data, by channel.
        let moved: Arc<[[AtomicU64; 2]; 2]> = Arc::default();
        let handle = Arc::new(Mutex::new(None::<RunHandle>));
        // One job in eight panics at each of its places.
        let panics_here = move |task: u64, place: u64, job: u64| {
            let is_here =
                spread((round << 40) | (job << 8) | (task << 4) | place).is_multiple_of(8);
            assert!(!is_here, "as it was meant to");
        };
        let count = |channel: usize, what: usize| {
            let moved = Arc::clone(&moved);
            move || _ = moved[channel][what].fetch_add(1, Ordering::Relaxed)
        };
        let (was_put, was_taken, was_passed, was_last) =
            (count(0, 0), count(0, 1), count(1, 0), count(1, 1));
        app.version(source, "only", {
            let (alive, handle) = (Arc::clone(&alive), Arc::clone(&handle));
            move |job| {
                if job.number + 1 < JOBS
                    && let Some(handle) =
                        &*handle.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
                {
                    handle.activate(source);
                }
                panics_here(0, 0, job.number);
                let made = put.push_with(|| {
                    panics_here(0, 1, job.number);
                    Counted::new(job.number, &alive)
                });
                assert!(made, "room for all");
                was_put();
                panics_here(0, 2, job.number);
            }
        });
        let version = app.version(nodes[0], "only", move |job| {
            panics_here(1, 0, job.number);
            let datum = take.pop().expect("it came for one");
            was_taken();
            panics_here(1, 1, job.number);
            assert!(pass.push(datum).is_ok(), "room for all");
            was_passed();
            panics_here(1, 2, job.number);
        });
        app.uses(version, accelerator);
        let mut before = None;
        let version = app.version(nodes[1], "only", move |job| {
            panics_here(2, 0, job.number);
            let Counted(number, _) = *last.pop().as_ref().expect("it came for one");
            was_last();
            assert!(before.replace(number).is_none_or(|before| before < number), "in order");
        });
        app.uses(version, accelerator);
        let tell = |reported: RunHandle| *handle.lock().expect("whole") = Some(reported);
        let running = app.start_with(tell).expect("it can be run");
        assert!(running.activate(source));
        let end = Instant::now() + Duration::from_secs(30);
        while moved[0][0].load(Ordering::Relaxed) < JOBS / 2 && Instant::now() < end {
            std::thread::sleep(MS);
        }
        let (app, report) = running.stop().expect("it ends by itself");
        let of = |channel: usize, what: usize| moved[channel][what].load(Ordering::Relaxed);
        let jobs = [0, 1, 2].map(|task| report.tasks[task].jobs);
        // Each push has activated a job, whatever became of the pushing one.
        assert_eq!((jobs[1], jobs[2]), (of(0, 0), of(1, 0)), "{report:?}");
        assert!(of(0, 0) >= JOBS / 2, "it is stuck: {report:?}");
        let panicked: u64 = report.tasks.iter().map(|task| task.panics).sum();
        assert!(panicked > jobs[0] / 2, "{panicked} have fallen: {report:?}");
        for task in &report.tasks {
            let said = task.first_panic.as_deref();
            assert_eq!(said, Some("as it was meant to"), "no other panic: {report:?}");
        }
        // The last source may have activated another one after the stop.
        assert!(
            (report.rejected_pushes, report.failed_pops) == (0, 0) && report.refused <= 1,
            "{report:?}"
        );
        let left = of(0, 0) - of(0, 1) + of(1, 0) - of(1, 1);
        assert_eq!(
            alive.load(Ordering::Relaxed),
            left,
            "data that were not popped are in their channels"
        );
        drop(app);
        assert_eq!(alive.load(Ordering::Relaxed), 0, "and goes with the application");
    }
}
