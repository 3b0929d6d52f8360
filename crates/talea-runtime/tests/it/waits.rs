//! Waits of jobs for devices: the CPU is free meanwhile, or the job keeps it.
//!
//! The devices are other jobs or threads, so that a wait ends exactly when the test says so.

use crate::timed::compute;
use crate::{MS, stopped, user};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use talea_kernel_tests::{Bench, Daemon, config, eventually, kernel, needs, needs_root};
use talea_runtime::{
    Application, Config, DeviceWait, Priorities, Rights, Task, TaskId, Version, wait_for_device,
};

/// Maximum time that a test waits for what a correct runtime does at once.
const LIMIT: Duration = Duration::from_secs(10);

/// Waits asleep until a condition holds. Returns whether it holds within [`LIMIT`].
fn sleep_until(is_so: impl Fn() -> bool) -> bool {
    let end = Instant::now() + LIMIT;
    while !is_so() && Instant::now() < end {
        std::thread::sleep(Duration::from_micros(200));
    }
    is_so()
}

/// Polls until a condition holds. Returns whether it holds within half of [`LIMIT`].
fn poll_until(is_so: impl Fn() -> bool) -> bool {
    let end = Instant::now() + LIMIT / 2;
    while !is_so() && Instant::now() < end {
        std::hint::spin_loop();
    }
    is_so()
}

#[derive(Debug, Default)]
struct Flag(AtomicBool);

impl Flag {
    fn set(&self) {
        self.0.store(true, Ordering::Release);
    }

    fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

fn real_time(priorities: Priorities) -> Config {
    let (rights, require_real_time) = (Rights::Own, true);
    Config { rights, require_real_time, priorities, ..Config::default() }
}

#[test]
fn issue_24_a_less_urgent_job_runs_during_a_free_wait_and_is_preempted_at_its_end() {
    let _bench = Bench::new("runtime_waits_free");
    let mut configs = vec![Config { rights: Rights::Unused, ..Config::default() }];
    if kernel::is_root() && kernel::has_fifo() {
        configs.push(real_time(Priorities::User));
    }
    for config in configs {
        let is_real_time = config.require_real_time;
        let config = Config { priorities: Priorities::User, ..config };
        let mut app = Application::new(config);
        let (ready, continued, was_preempted) =
            (Arc::new(Flag::default()), Arc::new(Flag::default()), Arc::new(Flag::default()));
        let rounds = Arc::new(AtomicU64::new(0));
        let urgent = app.task(Task::periodic("urgent", 20 * MS).priority(9));
        app.version(urgent, "only", {
            let (ready, continued, rounds) =
                (Arc::clone(&ready), Arc::clone(&continued), Arc::clone(&rounds));
            move |_| {
                if rounds.load(Ordering::Acquire) > 0 {
                    return;
                }
                let ready = || ready.is_set();
                assert!(wait_for_device(|| sleep_until(ready)), "no other job has the CPU");
                continued.set();
                rounds.fetch_add(1, Ordering::AcqRel);
            }
        });
        let other = app.task(Task::periodic("other", 5 * MS).priority(1));
        app.version(other, "only", {
            let (ready, continued, was_preempted) =
                (Arc::clone(&ready), Arc::clone(&continued), Arc::clone(&was_preempted));
            move |_| {
                // Ends the wait in its own job, and keeps the CPU until the urgent job continues.
                if !ready.is_set() {
                    ready.set();
                    if poll_until(|| continued.is_set()) {
                        was_preempted.set();
                    }
                }
            }
        });
        let running = app.start().expect("it can be run");
        eventually("a job after its wait", || rounds.load(Ordering::Acquire) > 0);
        let (_, report) = stopped(running);
        assert_eq!(report.is_real_time, is_real_time, "{report:?}");
        assert_eq!(report.tasks[0].first_panic, None);
        assert!(was_preempted.is_set(), "the end of the wait preempts: {report:?}");
    }
}

#[test]
fn issue_24_the_end_of_a_wait_preempts_a_job_of_a_higher_preemption_level() {
    let _bench = Bench::new("runtime_waits_levels");
    needs_root!();
    let mut app = Application::new(real_time(Priorities::Edf));
    let (waits, ready, continued) =
        (Arc::new(Flag::default()), Arc::new(Flag::default()), Arc::new(Flag::default()));
    // Earlier absolute deadline and longer relative deadline: its worker has a lower level.
    let early = app.task(Task::activated("early", 4_000 * MS));
    app.version(early, "only", {
        let (waits, ready, continued) =
            (Arc::clone(&waits), Arc::clone(&ready), Arc::clone(&continued));
        move |_| {
            wait_for_device(|| {
                waits.set();
                sleep_until(|| ready.is_set())
            });
            continued.set();
        }
    });
    let late = app.task(Task::activated("late", 3_900 * MS));
    let was_preempted = Arc::new(Flag::default());
    let done = Arc::new(Flag::default());
    app.version(late, "only", {
        let (ready, continued, was_preempted, done) = (
            Arc::clone(&ready),
            Arc::clone(&continued),
            Arc::clone(&was_preempted),
            Arc::clone(&done),
        );
        move |_| {
            ready.set();
            if poll_until(|| continued.is_set()) {
                was_preempted.set();
            }
            done.set();
        }
    });
    let running = app.start().expect("it can be run");
    assert!(running.activate(early));
    eventually("a wait", || waits.is_set());
    // The difference of the relative deadlines is 100 ms.
    std::thread::sleep(150 * MS);
    assert!(running.activate(late));
    eventually("the end of the other job", || done.is_set());
    stopped(running);
    assert!(was_preempted.is_set(), "the earlier deadline has the CPU");
}

#[test]
fn issue_24_a_more_urgent_job_keeps_its_cpu_at_the_end_of_a_wait_and_preempts_later() {
    let _bench = Bench::new("runtime_waits_order");
    needs_root!();
    let mut app = Application::new(real_time(Priorities::User));
    let (waits, ready, continued) =
        (Arc::new(Flag::default()), Arc::new(Flag::default()), Arc::new(Flag::default()));
    let [preempting, was_preempted, ended] = [0; 3].map(|_| Arc::new(Flag::default()));
    let other = app.task(Task::activated("other", 1_000 * MS).priority(1));
    app.version(other, "only", {
        let (waits, ready, continued) =
            (Arc::clone(&waits), Arc::clone(&ready), Arc::clone(&continued));
        let (preempted, was_preempted, ended) =
            (Arc::clone(&preempting), Arc::clone(&was_preempted), Arc::clone(&ended));
        move |_| {
            let wait = || {
                waits.set();
                sleep_until(|| ready.is_set())
            };
            wait_for_device(wait);
            continued.set();
            // The next job of the urgent task.
            if poll_until(|| preempted.is_set()) {
                was_preempted.set();
            }
            ended.set();
        }
    });
    let urgent = app.task(Task::activated("urgent", 1_000 * MS).priority(9));
    let (too_early, done) = (Arc::new(Flag::default()), Arc::new(Flag::default()));
    app.version(urgent, "only", {
        let (ready, continued, too_early, done) =
            (Arc::clone(&ready), Arc::clone(&continued), Arc::clone(&too_early), Arc::clone(&done));
        let preempting = Arc::clone(&preempting);
        move |job| {
            if job.number > 0 {
                return preempting.set();
            }
            ready.set();
            compute(20 * MS);
            if continued.is_set() {
                too_early.set();
            }
            done.set();
        }
    });
    let running = app.start().expect("it can be run");
    assert!(running.activate(other));
    eventually("a wait", || waits.is_set());
    assert!(running.activate(urgent));
    eventually("the first urgent job", || done.is_set() && continued.is_set());
    assert!(running.activate(urgent));
    eventually("the other job", || ended.is_set());
    stopped(running);
    assert!(!too_early.is_set(), "the urgent job keeps the CPU");
    assert!(was_preempted.is_set(), "the other worker has its own level again");
}

/// Declares a task whose jobs wait on the CPU that `progress` shows to be in use by another task.
/// Returns the numbers of waits with and without progress.
fn waiting_beside_work(app: &mut Application, cpu: DeviceWait) -> (TaskId, [Arc<AtomicU64>; 2]) {
    let (progress, beside) =
        (Arc::new(AtomicU64::new(0)), [0, 1].map(|_| Arc::new(AtomicU64::new(0))));
    let urgent = app.task(Task::periodic("urgent", 20 * MS).priority(9));
    app.version(urgent, Version::new("only").waits(5 * MS, cpu), {
        let (progress, beside) = (Arc::clone(&progress), beside.clone());
        move |_| {
            let before = progress.load(Ordering::Acquire);
            let has_progress = || progress.load(Ordering::Acquire) != before;
            let has_progress = wait_for_device(|| match cpu {
                DeviceWait::Free => sleep_until(has_progress),
                DeviceWait::Hold => {
                    std::thread::sleep(5 * MS);
                    has_progress()
                }
                DeviceWait::Spin => {
                    compute(5 * MS);
                    has_progress()
                }
            });
            beside[usize::from(has_progress)].fetch_add(1, Ordering::AcqRel);
        }
    });
    let other = app.task(Task::periodic("other", 6 * MS).priority(1));
    app.version(other, "only", move |_| {
        for _ in 0..200 {
            compute(MS / 100);
            progress.fetch_add(1, Ordering::AcqRel);
        }
    });
    (urgent, beside)
}

#[test]
fn issue_24_a_less_urgent_job_runs_in_each_free_wait_and_in_no_other() {
    let _bench = Bench::new("runtime_waits_modes");
    needs_root!();
    for cpu in [DeviceWait::Free, DeviceWait::Hold, DeviceWait::Spin] {
        let mut app = Application::new(real_time(Priorities::User));
        let (urgent, beside) = waiting_beside_work(&mut app, cpu);
        let count = |progress: usize| beside[progress].load(Ordering::Acquire);
        let running = app.start().expect("it can be run");
        eventually("waits", || count(0) + count(1) >= 40);
        let (_, report) = stopped(running);
        let jobs = report.tasks[urgent.number()].jobs;
        let expected = if cpu == DeviceWait::Free { (0, jobs) } else { (jobs, 0) };
        assert_eq!((count(0), count(1)), expected, "{cpu:?}: {report:?}");
    }
}

#[test]
fn issue_24_jobs_with_many_waits_complete_on_one_cpu_and_on_two() {
    let _bench = Bench::new("runtime_waits_many");
    let cpus: Vec<u32> = kernel::cpus().iter().take(2).collect();
    needs!("two CPUs", cpus.len() == 2);
    let mut rights = vec![Rights::Unused];
    if kernel::is_root() && kernel::has_fifo() {
        rights.push(Rights::Own);
    }
    for (rights, count) in rights.into_iter().flat_map(|rights| [(rights, 1), (rights, 2)]) {
        let cpus = cpus[..count].to_vec();
        let mut app = Application::new(Config { rights, cpus, ..Config::default() });
        let waits = Arc::new(AtomicU64::new(0));
        for at in 0..4_u32 {
            let task = app.task(Task::periodic(&format!("task-{at}"), (3 + at) * MS).backlog(1));
            let waits = Arc::clone(&waits);
            app.version(task, "only", move |job| {
                for round in 0..3 {
                    // Most lengths are about that of a step of the engine.
                    let length = (job.number as u32 * 7 + round * 13 + at) % 40;
                    wait_for_device(|| {
                        if length > 0 {
                            std::thread::sleep(Duration::from_micros(u64::from(length) * 5));
                        }
                    });
                    waits.fetch_add(1, Ordering::Relaxed);
                    compute(MS / 50);
                }
            });
        }
        let running = app.start().expect("it can be run");
        eventually("thousand waits", || waits.load(Ordering::Relaxed) >= 1_000);
        let (_, report) = stopped(running);
        let jobs: u64 = report.tasks.iter().map(|task| task.jobs).sum();
        assert_eq!(3 * jobs, waits.load(Ordering::Relaxed), "{report:?}");
    }
}

#[test]
fn issue_24_a_less_urgent_job_runs_during_a_free_wait_with_the_rights_of_the_daemon() {
    const NAME: &str =
        "waits::issue_24_a_less_urgent_job_runs_during_a_free_wait_with_the_rights_of_the_daemon";
    if !user::is_it() {
        needs_root!();
        let bench = Bench::new("runtime_waits_granted");
        let daemon = Daemon::start(&bench, &config::open());
        user::must_pass(&bench, NAME, Some(daemon.socket()));
        return;
    }
    let mut config =
        Config { rights: Rights::Daemon, require_real_time: true, ..Config::default() };
    config.priorities = Priorities::User;
    config.daemon.plugin = Some("fp".to_owned());
    let mut app = Application::new(config);
    let (waits, others) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let urgent = app.task(Task::periodic("urgent", 20 * MS).priority(9));
    app.version(urgent, "only", {
        let (waits, others) = (Arc::clone(&waits), Arc::clone(&others));
        move |_| {
            let before = others.load(Ordering::Acquire);
            let is_other = || others.load(Ordering::Acquire) > before;
            assert!(wait_for_device(|| sleep_until(is_other)), "no other job has the CPU");
            waits.fetch_add(1, Ordering::AcqRel);
        }
    });
    let other = app.task(Task::periodic("other", 5 * MS).priority(1));
    app.version(other, "only", move |_| _ = others.fetch_add(1, Ordering::AcqRel));
    let running = app.start().expect("it can be run");
    eventually("waits", || waits.load(Ordering::Acquire) >= 20);
    let (_, report) = stopped(running);
    assert!(report.is_real_time, "{report:?}");
    assert_eq!((report.rights, report.tasks[0].panics), (Rights::Daemon, 0), "{report:?}");
}

#[test]
fn issue_24_a_run_that_is_stopped_or_dropped_waits_for_a_job_in_a_wait() {
    let _bench = Bench::new("runtime_waits_end");
    for is_dropped in [false, true] {
        let mut app = Application::new(Config::default());
        let (waits, ready, continued) =
            (Arc::new(Flag::default()), Arc::new(Flag::default()), Arc::new(Flag::default()));
        let task = app.task(Task::activated("task", 100 * MS));
        app.version(task, "only", {
            let (waits, ready, continued) =
                (Arc::clone(&waits), Arc::clone(&ready), Arc::clone(&continued));
            move |_| {
                let wait = || {
                    waits.set();
                    sleep_until(|| ready.is_set())
                };
                wait_for_device(wait);
                // After the end of the run the function only waits.
                wait_for_device(|| ());
                continued.set();
            }
        });
        let running = app.start().expect("it can be run");
        assert!(running.activate(task));
        eventually("a wait", || waits.is_set());
        let ended =
            std::thread::spawn(
                move || {
                    if is_dropped { drop(running) } else { drop(stopped(running)) }
                },
            );
        std::thread::sleep(50 * MS);
        assert!(!ended.is_finished(), "a run waits for its jobs");
        ready.set();
        ended.join().expect("it ends");
        assert!(continued.is_set());
    }
}

#[test]
fn issue_24_a_wait_is_part_of_the_description_and_outside_of_jobs_only_a_call() {
    let mut app = Application::new(Config::default());
    let cases = [DeviceWait::Free, DeviceWait::Spin, DeviceWait::Hold];
    for (name, cpu) in ["free", "spin", "hold"].into_iter().zip(cases) {
        let task = app.task(Task::periodic(name, 40 * MS));
        app.version(task, Version::new("only").cost(2 * MS).waits(3 * MS, cpu), |_| {});
        app.version(task, Version::new("without").cost(MS).waits(Duration::ZERO, cpu), |_| {});
    }
    let text = app.describe().expect("it can be described");
    assert_eq!(text.matches("[[task.suspension]]").count(), 3, "{text}");
    assert_eq!(text.matches("length = \"3ms\"").count(), 3, "{text}");
    for word in ["while = \"spin\"", "while = \"hold\""] {
        assert_eq!(text.matches(word).count(), 1, "{text}");
    }
    assert_eq!(wait_for_device(|| 5), 5);
}
