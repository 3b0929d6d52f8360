//! Versions and accelerators.

use crate::{MS, run};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use talea_core::Time;
use talea_core::heap::Heap;
use talea_core::sched::{Child, ChildInfo, Policy, ReadyChild, Resched};
use talea_kernel_tests::{Bench, eventually, kernel, needs};
use talea_runtime::{
    Application, Candidates, Condition, Config, Error, Failure, Priorities, Selection, Task,
    Version, WaitMode,
};

#[test]
fn y6_conditions_select_the_version_during_the_run() {
    let _bench = Bench::new("runtime_versions");
    let cases = [
        (
            Selection::Mode,
            Version::new("normal").modes(1),
            Version::new("secure").modes(2),
            Condition::Mode(1),
        ),
        (
            Selection::Mask,
            Version::new("frugal").needs(2),
            Version::new("plain"),
            Condition::Permitted(0),
        ),
        (
            Selection::Energy,
            Version::new("bright").energy(50),
            Version::new("dim").energy(5),
            Condition::Battery(9),
        ),
    ];
    for (selection, first, second, condition) in cases {
        let mut app = Application::new(Config { selection, ..Config::default() });
        let task = app.task(Task::periodic("task", 2 * MS));
        let counts = [Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0))];
        for (version, count) in [first, second].into_iter().zip(&counts) {
            let count = Arc::clone(count);
            app.version(task, version, move |_| _ = count.fetch_add(1, Ordering::Relaxed));
        }
        let of = |version: usize| counts[version].load(Ordering::Relaxed);
        let running = app.start().expect("it can be run");
        // By default everything is permitted, the battery is full, and the mode is 0.
        eventually("jobs in the first version", || of(0) >= 5);
        assert_eq!(of(1), 0, "{selection:?}");
        assert!(running.change(condition));
        eventually("jobs in the second version", || of(1) >= 5);
        let (_, report) = running.stop().expect("it ends");
        assert_eq!(report.tasks[0].versions, [of(0), of(1)]);
    }
}

#[test]
fn y7_a_job_that_finds_the_accelerator_in_use_runs_without_it() {
    let _bench = Bench::new("runtime_accelerators");
    let cpus: Vec<u32> = kernel::cpus().iter().take(2).collect();
    needs!("two CPUs", cpus.len() == 2);
    let mut app = Application::new(Config { cpus, ..Config::default() });
    let gpu = app.accelerator("gpu");
    let held = Arc::new(AtomicU64::new(0));
    let (with, without) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    for name in ["a", "b"] {
        let task = app.task(Task::periodic(name, 10 * MS));
        let on_gpu = app.version(task, "gpu", {
            let (held, with) = (Arc::clone(&held), Arc::clone(&with));
            move |_| {
                with.fetch_add(1, Ordering::Relaxed);
                assert_eq!(held.fetch_add(1, Ordering::AcqRel), 0, "another job has it");
                std::thread::sleep(2 * MS);
                held.fetch_sub(1, Ordering::AcqRel);
            }
        });
        app.uses(on_gpu, gpu);
        app.version(task, "cpu", {
            let without = Arc::clone(&without);
            move |_| {
                without.fetch_add(1, Ordering::Relaxed);
                // While another job has the accelerator.
                std::thread::sleep(2 * MS);
            }
        });
    }
    let (with, without) = (|| with.load(Ordering::Relaxed), || without.load(Ordering::Relaxed));
    let (_, report) =
        run(app, "ten jobs with it and ten without", || with() >= 10 && without() >= 10);
    let panics: u64 = report.tasks.iter().map(|task| task.panics).sum();
    assert_eq!(panics, 0, "no accelerator has two holders: {report:?}");
    let of = |version: usize| report.tasks.iter().map(|task| task.versions[version]).sum::<u64>();
    assert_eq!((of(0), of(1)), (with(), without()), "{report:?}");
}

#[test]
fn a_panic_ends_its_job_releases_its_accelerators_and_is_reported() {
    let _bench = Bench::new("runtime_panics");
    let mut app = Application::new(Config::default());
    let gpu = app.accelerator("gpu");
    let (bad, good) =
        (app.task(Task::periodic("bad", 4 * MS)), app.task(Task::periodic("good", 4 * MS)));
    let version = app.version(bad, "only", |job| panic!("job {} falls", job.number));
    app.uses(version, gpu);
    let done = Arc::new(AtomicU64::new(0));
    let version = app.version(good, "only", {
        let done = Arc::clone(&done);
        move |_| _ = done.fetch_add(1, Ordering::Relaxed)
    });
    app.uses(version, gpu);
    let (_, report) = run(app, "ten good jobs", || done.load(Ordering::Relaxed) >= 10);
    assert_eq!(report.tasks[0].panics, report.tasks[0].jobs);
    assert_eq!(report.tasks[0].first_panic.as_deref(), Some("job 0 falls"));
    assert_eq!((report.tasks[1].panics, report.tasks[1].jobs), (0, done.load(Ordering::Relaxed)));
}

fn falls_at_five(of: &Candidates) -> Option<u32> {
    assert!(of.job < 5, "job {} is one too many", of.job);
    None
}

/// Policy of FIFO order that panics when a sixth job becomes ready.
#[derive(Debug)]
struct Falling {
    ready: Heap,
    come: u64,
}

fn falling(children: usize) -> Box<dyn Policy + Send> {
    Box::new(Falling { ready: Heap::new(children), come: 0 })
}

impl Policy for Falling {
    fn admit(&mut self, _: &ChildInfo) -> Result<(), String> {
        Ok(())
    }
    fn ready(&mut self, _: Time, who: &ReadyChild) -> Resched {
        assert!(self.come < 5, "job {} is one too many", self.come);
        self.come += 1;
        self.ready.set(who.child, self.come);
        Resched::Pick
    }
    fn update(&mut self, _: Time, _: &ReadyChild) -> Resched {
        Resched::Keep
    }
    fn finished(&mut self, _: Time, who: Child) -> Resched {
        self.ready.remove(who);
        Resched::Pick
    }
    fn head(&self, _: Time) -> Option<Child> {
        self.ready.first().map(|(_, who)| who)
    }
    fn before(&self, _: Time, a: &ReadyChild, b: &ReadyChild) -> bool {
        a.child < b.child
    }
}

#[test]
fn a_panic_in_a_decision_ends_the_run_is_reported_and_the_application_starts_again() {
    let _bench = Bench::new("runtime_falls");
    let chooser = Config { selection: Selection::User(falls_at_five), ..Config::default() };
    let policy = Config {
        priorities: Priorities::Custom { name: "falling", make: falling },
        ..Config::default()
    };
    let cpus = |count: usize| kernel::cpus().iter().take(count).collect::<Vec<u32>>();
    // In a step by a worker, in one by the dispatcher, and with two of these.
    let drivers = [
        (1, WaitMode::Sleep),
        (1, WaitMode::Spin(MS)),
        (2, WaitMode::Sleep),
        (2, WaitMode::Spin(MS)),
    ];
    for (config, (count, waiting)) in [&chooser, &policy]
        .into_iter()
        .flat_map(|config| drivers.map(|driver| (config.clone(), driver)))
    {
        let is_policy = matches!(config.selection, Selection::Declared);
        let mut app = Application::new(Config { wait_mode: waiting, cpus: cpus(count), ..config });
        let done = Arc::new(AtomicU64::new(0));
        let task = app.task(Task::periodic("task", 2 * MS));
        app.version(task, "only", {
            let done = Arc::clone(&done);
            move |_| _ = done.fetch_add(1, Ordering::Relaxed)
        });
        let running = app.start().expect("it can be run");
        eventually("its end", || !running.change(Condition::Battery(7)));
        let (mut app, ended) = running.stop_keeping();
        assert!(
            matches!(&ended, Err(Error::Run(Failure::Panicked(said))) if said == "job 5 is one too many"),
            "{ended:?}"
        );
        let before = done.load(Ordering::Relaxed);
        // A selector is called for each job; a policy is not for one that queues behind another,
        // after a CPU stall.
        assert!(before <= 5 || is_policy, "{before} were decided");
        *app.config() = Config::default();
        let (_, report) = run(app, "jobs of another start", || done.load(Ordering::Relaxed) >= 10);
        assert_eq!(report.tasks[0].jobs, done.load(Ordering::Relaxed) - before);
    }
}
