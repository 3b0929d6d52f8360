//! What may be changed while an application is stopped, and what its jobs may do from the first on.

use crate::{MS, run};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use talea_kernel_tests::{Bench, eventually};
use talea_runtime::{Application, Config, Error, Hand, Task, first_cpus};

#[test]
fn y1_y14_a_task_that_is_declared_anew_comes_by_its_new_rule_and_one_that_rests_does_not_come() {
    let _bench = Bench::new("runtime_edits");
    let counts: [Arc<AtomicU64>; 2] = Default::default();
    let mut app = Application::new(Config::default());
    let tasks =
        [Task::periodic("first", 2 * MS), Task::activated("second", 50 * MS)].map(|task| app.task(task));
    for (task, count) in tasks.into_iter().zip(&counts) {
        let count = Arc::clone(count);
        app.version(task, "only", move |_| _ = count.fetch_add(1, Ordering::Relaxed));
    }
    let (mut app, report) = run(app, "the first", || counts[0].load(Ordering::Relaxed) >= 5);
    assert_eq!(report.tasks[1].jobs, 0);
    app.redeclare(tasks[0], Task::activated("first", 50 * MS));
    app.redeclare(tasks[1], Task::periodic("second", 2 * MS));
    let (_, report) = run(app, "the second", || counts[1].load(Ordering::Relaxed) >= 5);
    assert_eq!((report.tasks[0].jobs, report.tasks[1].jobs), (0, counts[1].load(Ordering::Relaxed)));
}

#[test]
fn y13_the_first_job_of_all_may_activate_another_task() {
    let _bench = Bench::new("runtime_first_job");
    let (hand, done) = (Arc::new(OnceLock::<Hand>::new()), Arc::new(AtomicBool::new(false)));
    let mut app = Application::new(Config::default());
    let (root, other) =
        (app.task(Task::periodic("root", 600_000 * MS)), app.task(Task::activated("other", 50 * MS)));
    app.version(root, "only", {
        let hand = Arc::clone(&hand);
        move |_| assert!(hand.get().expect("it was told before the first job").activate(other))
    });
    app.version(other, "only", {
        let done = Arc::clone(&done);
        move |_| done.store(true, Ordering::Relaxed)
    });
    let running = app.start_telling(|told| hand.set(told).expect("once")).expect("it can be run");
    eventually("the other's job", || done.load(Ordering::Relaxed));
    let (_, report) = running.stop_keeping();
    let report = report.expect("a run");
    assert_eq!((report.tasks[0].panics, report.tasks[0].jobs, report.tasks[1].jobs), (0, 1, 1));
}

#[test]
fn y1_what_is_not_started_comes_back_and_can_be_mended() {
    let _bench = Bench::new("runtime_mended");
    let count = Arc::new(AtomicU64::new(0));
    let mut app = Application::new(Config::default());
    let task = app.task(Task::periodic("task", 2 * MS));
    let back = app.start_telling(drop).expect_err("a task without a version");
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
