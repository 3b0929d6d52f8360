//! Changes of a stopped application, and handles that jobs use from the first one on.

use crate::{MS, one_of_some, run};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use talea_kernel_tests::{Bench, eventually};
use talea_runtime::{Application, Config, Error, Rights, RunHandle, Task, WaitMode, first_cpus};

#[test]
fn y1_y14_a_replaced_task_is_released_by_its_new_rule_and_a_disabled_one_is_not() {
    let _bench = Bench::new("runtime_edits");
    let counts: [Arc<AtomicU64>; 2] = Default::default();
    let mut app = Application::new(Config::default());
    let tasks = [Task::periodic("first", 2 * MS), Task::activated("second", 50 * MS)]
        .map(|task| app.task(task));
    for (task, count) in tasks.into_iter().zip(&counts) {
        let count = Arc::clone(count);
        app.version(task, "only", move |_| _ = count.fetch_add(1, Ordering::Relaxed));
    }
    let (mut app, report) = run(app, "the first", || counts[0].load(Ordering::Relaxed) >= 5);
    assert_eq!(report.tasks[1].jobs, 0);
    app.replace_task(tasks[0], Task::activated("first", 50 * MS));
    app.replace_task(tasks[1], Task::periodic("second", 2 * MS));
    let (_, report) = run(app, "the second", || counts[1].load(Ordering::Relaxed) >= 5);
    assert_eq!(
        (report.tasks[0].jobs, report.tasks[1].jobs),
        (0, counts[1].load(Ordering::Relaxed))
    );
}

#[test]
fn y13_the_first_job_of_all_may_activate_another_task() {
    let _bench = Bench::new("runtime_first_job");
    let (handle, done) = (Arc::new(OnceLock::<RunHandle>::new()), Arc::new(AtomicBool::new(false)));
    let mut app = Application::new(Config::default());
    let (root, other) = (
        app.task(Task::periodic("root", 600_000 * MS)),
        app.task(Task::activated("other", 50 * MS)),
    );
    app.version(root, "only", {
        let handle = Arc::clone(&handle);
        move |_| assert!(handle.get().expect("stored before the first job").activate(other))
    });
    app.version(other, "only", {
        let done = Arc::clone(&done);
        move |_| done.store(true, Ordering::Relaxed)
    });
    let running =
        app.start_with(|reported| handle.set(reported).expect("once")).expect("it can be run");
    eventually("the other's job", || done.load(Ordering::Relaxed));
    let (_, report) = running.stop_keeping();
    let report = report.expect("a run");
    assert_eq!((report.tasks[0].panics, report.tasks[0].jobs, report.tasks[1].jobs), (0, 1, 1));
}

#[test]
fn y1_an_application_that_does_not_start_is_returned_and_can_be_corrected() {
    let _bench = Bench::new("runtime_mended");
    let count = Arc::new(AtomicU64::new(0));
    let mut app = Application::new(Config::default());
    let task = app.task(Task::periodic("task", 2 * MS));
    let back = app.start_with(drop).expect_err("a task without a version");
    assert!(matches!(back.error, Error::Declared(_)));
    let mut app = back.app;
    app.version(task, "only", {
        let count = Arc::clone(&count);
        move |_| _ = count.fetch_add(1, Ordering::Relaxed)
    });
    run(app, "jobs", || count.load(Ordering::Relaxed) >= 3);
    assert!(matches!(first_cpus(5_000), Err(Error::Machine(_))));
    assert_eq!(first_cpus(1).expect("there is one").len(), 1);
}

/// Returns the application after a start that fails, because there is no daemon.
fn not_started(mut app: Application) -> Application {
    let before = app.config().clone();
    let config = app.config();
    (config.rights, config.require_real_time) = (Rights::Daemon, true);
    config.daemon.socket = Some("/nonexistent/socket".into());
    let mut app = app.start_with(|_| ()).expect_err("there is no daemon").app;
    *app.config() = before;
    app
}

#[test]
fn y14_data_in_channels_are_there_after_a_resume_if_they_are_retained() {
    let _bench = Bench::new("runtime_resume");
    for keeps_channels in [true, false] {
        let mut app =
            Application::new(Config { retain_channels: keeps_channels, ..Config::default() });
        let source = app.task(Task::activated("source", 50 * MS));
        let (sink, join) = (app.task(Task::node("sink")), app.task(Task::node("join")));
        // Three data per activation; and a join whose other input never comes in the first run.
        let (put, take) = app.channel_of::<u64>(source, sink, 6, 3);
        let other = app.task(Task::activated("other", 50 * MS));
        app.edge(source, join);
        app.edge(other, join);
        let (taken, pushed) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicU64::new(0)));
        app.version(source, "only", {
            let pushed = Arc::clone(&pushed);
            move |_| put.push(pushed.fetch_add(1, Ordering::Relaxed)).expect("room")
        });
        app.version(sink, "only", {
            let taken = Arc::clone(&taken);
            move |_| taken.lock().expect("whole").extend((0..3).map_while(|_| take.pop()))
        });
        app.version(other, "only", |_| {});
        app.version(join, "only", |_| {});
        // Two of three, and then the third.
        let mut joins = Vec::new();
        for (jobs, others) in [(2, 0), (1, 3)] {
            let running = app.start().expect("it can be run");
            (0..jobs).for_each(|_| assert!(running.activate(source)));
            (0..others).for_each(|_| assert!(running.activate(other)));
            let report;
            (app, report) = running.stop().expect("it ends");
            assert_eq!(
                (report.tasks[source.number()].jobs, report.rejected_pushes, report.failed_pops),
                (jobs, 0, 0)
            );
            joins.push(report.tasks[join.number()].jobs);
            app = not_started(app);
        }
        let expected: (&[u64], [u64; 2]) =
            if keeps_channels { (&[0, 1, 2], [0, 3]) } else { (&[], [0, 1]) };
        assert_eq!((&taken.lock().expect("whole")[..], &joins[..]), (expected.0, &expected.1[..]));
    }
}

#[test]
fn y14_data_that_activated_a_job_and_were_not_popped_are_gone_after_a_resume() {
    let _bench = Bench::new("runtime_resume_left");
    let mut app = Application::new(Config { retain_channels: true, ..Config::default() });
    let (source, sink) =
        (app.task(Task::activated("source", 50 * MS)), app.task(Task::node("sink")));
    let (put, take) = app.channel::<u64>(source, sink, 3);
    let (next, takes, taken) = (
        Arc::new(AtomicU64::new(0)),
        Arc::new(AtomicBool::new(false)),
        Arc::new(Mutex::new(Vec::new())),
    );
    app.version(source, "only", {
        let next = Arc::clone(&next);
        move |_| put.push(next.fetch_add(1, Ordering::Relaxed)).expect("room")
    });
    app.version(sink, "only", {
        let (takes, taken) = (Arc::clone(&takes), Arc::clone(&taken));
        move |_| {
            if takes.load(Ordering::Relaxed) {
                taken.lock().expect("whole").extend(take.pop());
            }
        }
    });
    for round in 0..2 {
        takes.store(round > 0, Ordering::Relaxed);
        let running = app.start().expect("it can be run");
        (0..3).for_each(|_| assert!(running.activate(source)));
        (app, _) = running.stop().expect("it ends");
    }
    assert_eq!(
        taken.lock().expect("whole")[..],
        [3, 4, 5],
        "what came in the second run, and room for it"
    );
}

#[test]
fn y15_sleeping_and_spinning_give_the_same_schedule_at_different_costs() {
    let _bench = Bench::new("runtime_waiting");
    let share = |waiting: WaitMode| {
        let mut app = Application::new(Config { wait_mode: waiting, ..Config::default() });
        let order = Arc::new(Mutex::new(Vec::new()));
        for (name, offset) in [("a", 0), ("b", 1), ("c", 2)] {
            let task = app.task(Task::periodic(name, 6 * MS).offset(MS * offset));
            let order = Arc::clone(&order);
            app.version(task, "only", move |job| {
                order.lock().expect("whole").push((job.number, name));
            });
        }
        let (_, report) = run(app, "50 rounds", || order.lock().expect("whole").len() >= 150);
        let order = order.lock().expect("whole");
        assert!(order.is_sorted(), "one after the other, as they are due: {order:?}");
        report.scheduling_time.as_nanos() * 1_000 / report.length.as_nanos()
    };
    let mut shares = (0, 0);
    // Three waits of a millisecond, or of half of what there is in six: 2 ms of them or a little
    // less, if there is no CPU stall.
    let costs_more = one_of_some(|| {
        shares = (share(WaitMode::Sleep), share(WaitMode::Spin(MS)));
        shares.1 >= 3 * shares.0.max(20)
    });
    assert!(costs_more, "thousandths of a CPU asleep and awake: {shares:?}");
}
