//! Starts, stops, activations, and refused declarations.

use crate::{MS, run, stopped, user};
use std::os::unix::process::ExitStatusExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use talea_kernel_tests::{Bench, eventually, kernel, needs_root};
use talea_runtime::{
    Application, Condition, Config, Error, Mapping, Policy, Rights, RunHandle, Server, Table, Task,
    TaskId, Version,
};

/// Signal of `abort`.
const SIGABRT: i32 = 6;

fn counting(app: &mut Application, task: Task) -> Arc<AtomicU64> {
    let count = Arc::new(AtomicU64::new(0));
    let task = app.task(task);
    app.version(task, "only", {
        let count = Arc::clone(&count);
        move |_| _ = count.fetch_add(1, Ordering::Relaxed)
    });
    count
}

/// Counts threads by their names, because the test harness has threads of its own.
fn threads_of_applications() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").expect("threads");
    let names =
        tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.filter(|name| name.starts_with("exec-") || name.starts_with("talea-runtime")).count()
}

#[test]
fn y14_it_starts_and_stops_again_and_again_and_leaves_no_thread() {
    let _bench = Bench::new("runtime_cycles");
    let mut app = Application::new(Config::default());
    let count = counting(&mut app, Task::periodic("task", MS));
    let files = || std::fs::read_dir("/proc/self/fd").expect("files").count();
    let mut open = 0;
    for cycle in 0..100 {
        if cycle == 1 {
            open = files();
        }
        let seen = count.load(Ordering::Relaxed);
        let running = app.start().expect("it can be run");
        eventually("some jobs", || count.load(Ordering::Relaxed) >= seen + 3);
        let report;
        (app, report) = stopped(running);
        assert_eq!(report.tasks[0].jobs, count.load(Ordering::Relaxed) - seen, "cycle {cycle}");
    }
    // Threads of a test that runs beside it come and go.
    eventually("none of its threads", || threads_of_applications() == 0);
    eventually("no more open files than after the first", || files() <= open);
    // A stopped application can be changed.
    let other = counting(&mut app, Task::periodic("other", 2 * MS).offset(3 * MS));
    let running = app.start().expect("it can be run");
    eventually("jobs of both", || other.load(Ordering::Relaxed) >= 3);
    drop(running);
    let seen = (count.load(Ordering::Relaxed), other.load(Ordering::Relaxed));
    std::thread::sleep(10 * MS);
    assert_eq!(
        seen,
        (count.load(Ordering::Relaxed), other.load(Ordering::Relaxed)),
        "nothing runs any more"
    );
}

#[test]
fn y20_times_count_from_each_start() {
    let _bench = Bench::new("runtime_zero");
    let mut app = Application::new(Config::default());
    let (handle, seen) =
        (Arc::new(Mutex::new(None::<RunHandle>)), Arc::new(Mutex::new(Vec::new())));
    let task = app.task(Task::periodic("task", 2 * MS).offset(MS));
    app.version(task, "only", {
        let (handle, seen) = (Arc::clone(&handle), Arc::clone(&seen));
        move |job| {
            let now =
                handle.lock().expect("whole").as_ref().expect("stored before the first job").now();
            seen.lock().expect("whole").push((job.number, now));
        }
    });
    for _ in 0..3 {
        let before = Instant::now();
        let running = app
            .start_with(|reported| *handle.lock().expect("whole") = Some(reported))
            .expect("it can be run");
        eventually("ten jobs", || seen.lock().expect("whole").len() >= 10);
        let now = running.handle().now();
        // From this start on, not from the previous one.
        assert!(now <= before.elapsed(), "{now:?}");
        (app, _) = stopped(running);
        let times = std::mem::take(&mut *seen.lock().expect("whole"));
        assert!(
            times.iter().zip(0..).all(|((number, _), expected)| *number == expected),
            "{times:?}"
        );
        for (number, at) in times {
            assert!(at >= MS + 2 * MS * number as u32, "job {number} came at {at:?}");
        }
    }
}

#[test]
fn y13_activations_become_jobs_and_sporadic_ones_keep_their_separation() {
    const SEPARATION_MS: u32 = 4;
    let _bench = Bench::new("runtime_sporadic");
    let mut app = Application::new(Config::default());
    let times = Arc::new(Mutex::new(Vec::new()));
    let burst = app.task(Task::sporadic("burst", SEPARATION_MS * MS).backlog(9));
    app.version(burst, "only", {
        let times = Arc::clone(&times);
        move |_| times.lock().expect("whole").push(Instant::now())
    });
    let chain = app.task(Task::activated("chain", 50 * MS));
    let done = Arc::new(AtomicU64::new(0));
    let handle = Arc::new(Mutex::new(None::<talea_runtime::RunHandle>));
    app.version(chain, "only", {
        let (done, handle) = (Arc::clone(&done), Arc::clone(&handle));
        // Each job activates the next.
        move |job| {
            done.fetch_add(1, Ordering::Relaxed);
            if job.number < 19
                && let Some(handle) = &*handle.lock().expect("whole")
            {
                assert!(handle.activate(chain));
            }
        }
    });
    let running = app.start().expect("it can be run");
    *handle.lock().expect("whole") = Some(running.handle());
    let asked = Instant::now();
    for _ in 0..100 {
        assert!(running.activate(burst));
    }
    assert!(running.activate(chain));
    eventually("20 links", || done.load(Ordering::Relaxed) == 20);
    eventually("a whole backlog", || times.lock().expect("whole").len() >= 9);
    let (_, report) = stopped(running);
    let times = times.lock().expect("whole");
    // Each activation is a job or was refused; the first job does not wait in the backlog.
    assert_eq!(times.len() as u64 + report.refused, 100);
    assert!(times.len() >= 9, "{report:?}");
    // Releases are this far apart, and the first is not before its activation; a job that started
    // late may be followed sooner.
    let whole = times[times.len() - 1] - asked;
    let least = MS * SEPARATION_MS * (times.len() as u32 - 1);
    assert!(whole >= least, "{} jobs within {whole:?}", times.len());
    assert!(
        !handle.lock().expect("whole").as_ref().expect("it was given").activate(burst),
        "it is over"
    );
}

#[test]
fn y13_a_burst_of_a_hundred_is_a_hundred_jobs_and_none_is_released_early() {
    const SEPARATION_MS: u32 = 2;
    let _bench = Bench::new("runtime_burst");
    let mut app = Application::new(Config::default());
    let times = Arc::new(Mutex::new(Vec::with_capacity(100)));
    let burst = app.task(Task::sporadic("burst", SEPARATION_MS * MS).backlog(99));
    app.version(burst, "only", {
        let times = Arc::clone(&times);
        move |_| times.lock().expect("whole").push(Instant::now())
    });
    let running = app.start().expect("it can be run");
    let asked = Instant::now();
    (0..100).for_each(|_| assert!(running.activate(burst)));
    eventually("all of them", || times.lock().expect("whole").len() == 100);
    let (_, report) = stopped(running);
    assert_eq!((report.refused, report.tasks[0].jobs), (0, 100), "{report:?}");
    // At most one per separation: a job may start late, and never before all earlier ones had
    // theirs.
    for (turn, &began) in (0..).zip(times.lock().expect("whole").iter()) {
        let soonest = asked + MS * SEPARATION_MS * turn;
        assert!(began >= soonest, "job {turn} came {:?} too soon", soonest - began);
    }
}

#[test]
fn invalid_declarations_are_refused_and_named() {
    let none = |app: &mut Application, name: &str| app.task(Task::periodic(name, 10 * MS));
    let refused = |app: Application| match app.start() {
        Err(Error::Declared(why) | Error::Machine(why)) => why,
        other => panic!("{other:?}"),
    };
    let mut app = Application::new(Config::default());
    none(&mut app, "lazy");
    assert!(refused(app).contains("task lazy: it has no version"));
    let mut app = Application::new(Config::default());
    let (a, b) = (app.task(Task::node("a")), app.task(Task::node("b")));
    app.version(a, "only", |_| {});
    app.version(b, "only", |_| {});
    app.edge(a, b);
    app.edge(b, a);
    assert!(refused(app).starts_with("task "), "a circle");
    let beyond = kernel::cpus().iter().max().expect("a CPU") + 1;
    let mut app = Application::new(Config { cpus: vec![beyond], ..Config::default() });
    counting(&mut app, Task::periodic("task", 10 * MS));
    assert!(refused(app).contains(&format!("CPU {beyond} is not available to this process")));
    let config = Config { mapping: Mapping::Partitioned, ..Config::default() };
    let mut app = Application::new(config);
    counting(&mut app, Task::periodic("far", 10 * MS).core(7));
    assert!(refused(app).contains("task far"));
    let mut app = Application::new(Config::default());
    counting(&mut app, Task::periodic("never", Duration::ZERO));
    assert!(refused(app).contains("never"));
}

#[test]
fn y1_an_id_that_does_not_exist_is_refused_and_named() {
    let mut rich = Application::new(Config::default());
    let far = (0..3).map(|_| rich.task(Task::node("far"))).last().expect("three");
    let server = rich.server(Server::polling("server", MS, 10 * MS));
    let gpu = rich.accelerator("gpu");
    let refused = |declare: &dyn Fn(&mut Application, TaskId)| {
        let mut app = Application::new(Config::default());
        let task = app.task(Task::activated("task", 10 * MS));
        app.version(task, Version::new("only").cost(MS), |_| {});
        declare(&mut app, task);
        let Err(Error::Declared(described)) = app.describe() else { panic!("it is described") };
        let Err(Error::Declared(started)) = app.start() else { panic!("it is started") };
        assert_eq!(described, started);
        started
    };
    let edge =
        "the edge from task to a task that does not exist: there is no task 2, 1 are declared";
    assert_eq!(refused(&|app, task| app.edge(task, far)), edge);
    assert_eq!(refused(&|app, task| _ = app.channel::<u64>(task, far, 4)), edge);
    let served = Task::activated("task", 10 * MS).served_by(server);
    assert_eq!(
        refused(&|app, task| app.replace_task(task, served.clone())),
        "task task: there is no server 0, 0 are declared"
    );
    let table = Table::new(10 * MS).entry(0, MS, MS, far);
    assert_eq!(
        refused(&|app, _| app.set_table(Some(table.clone()))),
        "the table: there is no task 2, 1 are declared"
    );
    let needs = |app: &mut Application, task: TaskId| {
        let version = app.version(task, Version::new("gpu").cost(MS), |_| {});
        app.uses(version, gpu);
    };
    assert_eq!(refused(&needs), "task task: there is no accelerator 0, 0 are declared");
}

#[test]
fn y22_without_rights_it_runs_is_activated_and_stopped_and_says_so() {
    if !user::is_it() {
        needs_root!();
        let bench = Bench::new("runtime_user");
        let name = "lives::y22_without_rights_it_runs_is_activated_and_stopped_and_says_so";
        let said = user::must_pass(&bench, name, None);
        assert_eq!(said.matches("without real-time priorities").count(), 1, "once: {said}");
        return;
    }
    let mut app = Application::new(Config::default());
    let count = counting(&mut app, Task::periodic("task", 2 * MS));
    let asked = app.task(Task::activated("asked", 50 * MS));
    let seen = Arc::new(AtomicU64::new(0));
    app.version(asked, "only", {
        let seen = Arc::clone(&seen);
        move |_| _ = seen.fetch_add(1, Ordering::Relaxed)
    });
    let running = app.start().expect("it can be run");
    eventually("jobs", || count.load(Ordering::Relaxed) >= 5);
    assert!(running.activate(asked) && running.change(Condition::Mode(1)));
    eventually("the job that was asked for", || seen.load(Ordering::Relaxed) == 1);
    let (app, report) = stopped(running);
    assert!(!report.is_real_time, "an ordinary user has no real time");
    assert_eq!(report.rights, Rights::Unused);
    assert!(report.rights_error.expect("it wanted them").contains("no connection to talead"));
    let policies = report
        .dispatchers
        .iter()
        .copied()
        .chain(report.tasks.iter().filter_map(|task| task.policy));
    assert_eq!(policies.collect::<Vec<_>>(), [Policy::NORMAL; 3], "by the switch trace");
    let (mut app, _) = run(app, "more jobs", || count.load(Ordering::Relaxed) >= 10);
    app.config().require_real_time = true;
    assert!(matches!(app.start(), Err(Error::Run(_))), "a start that requires real time must fail");
}

/// Tests that do not depend on time: they hold for any scheduling of the threads.
const LOGIC: [&str; 16] = [
    "edits::y13_the_first_job_of_all_may_activate_another_task",
    "edits::y14_data_that_activated_a_job_and_were_not_popped_are_gone_after_a_resume",
    "edits::y14_data_in_channels_are_there_after_a_resume_if_they_are_retained",
    "edits::y1_an_application_that_does_not_start_is_returned_and_can_be_corrected",
    "edits::y1_y14_a_replaced_task_is_released_by_its_new_rule_and_a_disabled_one_is_not",
    "graphs::y10_pushes_to_a_full_channel_and_pops_from_an_empty_one_fail_and_are_counted",
    "graphs::y1_y5_y9_fork_and_join_run_end_to_end_under_every_policy_and_mapping",
    "graphs::y9_a_pipeline_keeps_the_order_and_loses_nothing",
    "graphs::y9_y14_activations_before_the_stop_complete_and_those_without_room_are_counted",
    "lives::y13_a_burst_of_a_hundred_is_a_hundred_jobs_and_none_is_released_early",
    "lives::y13_activations_become_jobs_and_sporadic_ones_keep_their_separation",
    "manual::y1_the_rust_code_of_the_manual_compiles_and_its_fork_and_join_runs",
    "stress::y10_a_million_items_of_two_producers_reach_two_consumers_each_once_and_in_order",
    "versions::a_panic_ends_its_job_releases_its_accelerators_and_is_reported",
    "versions::y6_conditions_select_the_version_during_the_run",
    "versions::y7_a_job_that_finds_the_accelerator_in_use_runs_without_it",
];

#[test]
fn y22_timing_independent_tests_pass_for_an_ordinary_user_without_a_daemon() {
    needs_root!();
    let said = user::must_all_pass(&Bench::new("runtime_logic"), &LOGIC);
    assert_eq!(
        said.matches("without real-time priorities").count(),
        1,
        "once in a process: {said}"
    );
}

#[test]
fn a_job_that_never_returns_ends_the_program_and_not_the_system() {
    const NAME: &str = "lives::a_job_that_never_returns_ends_the_program_and_not_the_system";
    if !user::is_it() {
        needs_root!();
        assert_eq!(
            user::runs(&Bench::new("runtime_endless"), NAME, None).0.signal(),
            Some(SIGABRT)
        );
        return;
    }
    let mut app = Application::new(Config::default());
    let begun = Arc::new(AtomicU64::new(0));
    let task = app.task(Task::periodic("endless", 5 * MS));
    app.version(task, "only", {
        let begun = Arc::clone(&begun);
        move |_| {
            begun.fetch_add(1, Ordering::Relaxed);
            loop {
                std::thread::sleep(MS);
            }
        }
    });
    let running = app.start().expect("it can be run");
    eventually("its job", || begun.load(Ordering::Relaxed) > 0);
    drop(running);
    unreachable!("it never ends");
}
