//! Applications on shielded CPUs.

use crate::{MS, stopped, user};
use std::process::{Child, Command};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use talea_core::CpuSet;
use talea_kernel_tests::{Bench, eventually, kernel, needs, needs_root};
use talea_os::{Tid, sched};
use talea_runtime::{Application, Config, Error, Rights, Task};

/// A process that is not part of the application.
struct Other(Child);

impl Other {
    fn start() -> Other {
        Other(Command::new("sleep").arg("60").spawn().expect("it is started"))
    }

    fn may_use(&self) -> CpuSet {
        kernel::affinity(self.0.id() as i32)
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Builds an application with a task on the last CPU. Also returns its number of jobs, and the
/// affinities that the jobs had.
fn shielded(config: Config) -> (Application, Arc<AtomicU64>, Arc<Mutex<Vec<CpuSet>>>) {
    let last = kernel::cpus().iter().last().expect("a CPU");
    let mut app = Application::new(Config { cpus: vec![last], shield: true, ..config });
    let (done, places) = (Arc::new(AtomicU64::new(0)), Arc::new(Mutex::new(Vec::new())));
    let task = app.task(Task::periodic("task", 4 * MS));
    app.version(task, "only", {
        let (done, places) = (Arc::clone(&done), Arc::clone(&places));
        move |_| {
            places
                .lock()
                .expect("whole")
                .push(sched::get_affinity(Tid::current()).expect("it is here"));
            done.fetch_add(1, Ordering::Release);
        }
    });
    (app, done, places)
}

#[test]
fn y17_a_shielded_application_has_its_cpu_alone_and_other_threads_have_it_before_and_after() {
    needs_root!();
    let all = kernel::cpus();
    needs!("two CPUs", all.len() >= 2);
    let _bench = Bench::new("runtime_shield");
    let last = CpuSet::single(all.iter().last().expect("a CPU"));
    let other = Other::start();
    let (mut app, done, places) = shielded(Config { require_real_time: true, ..Config::default() });
    for _ in 0..2 {
        done.store(0, Ordering::Release);
        let running = app.start().expect("it can be run");
        eventually("jobs", || done.load(Ordering::Acquire) >= 5);
        assert_eq!(other.may_use(), all.difference(&last));
        // This thread is moved away, too.
        assert_eq!(sched::get_affinity(Tid::current()).expect("its own"), all.difference(&last));
        let report;
        (app, report) = stopped(running);
        assert_eq!(
            (other.may_use(), sched::get_affinity(Tid::current()).expect("its own")),
            (all, all)
        );
        let shield = report.shield.expect("root may");
        assert_eq!(report.shield_error, None);
        assert!(shield.threads >= 2 && shield.restored >= 2, "{shield:?}");
        // Each CPU has threads of the kernel.
        assert!(
            shield.not_moved.iter().any(|left| left.contains("a per-CPU kernel thread")),
            "{shield:?}"
        );
    }
    assert!(places.lock().expect("whole").iter().all(|&place| place == last));
}

#[test]
fn y17_y22_without_the_right_to_a_shield_it_runs_unshielded_and_says_so() {
    const NAME: &str =
        "shields::y17_y22_without_the_right_to_a_shield_it_runs_unshielded_and_says_so";
    if !user::is_it() {
        needs_root!();
        needs!("two CPUs", kernel::cpus().len() >= 2);
        let bench = Bench::new("runtime_unshielded");
        let said = user::must_pass(&bench, NAME, None);
        assert_eq!(said.matches("not shielded").count(), 1, "once: {said}");
        return;
    }
    let (mut app, done, _) = shielded(Config { rights: Rights::Unused, ..Config::default() });
    for _ in 0..2 {
        done.store(0, Ordering::Release);
        let running = app.start().expect("it can be run");
        eventually("jobs", || done.load(Ordering::Acquire) >= 5);
        let report;
        (app, report) = stopped(running);
        assert_eq!(report.shield, None);
        let why = report.shield_error.expect("a reason");
        assert!(why.contains("CAP_SYS_NICE") && why.contains("daemon"), "{why}");
    }
    app.config().require_real_time = true;
    match app.start() {
        Err(Error::Run(failure)) => assert!(failure.to_string().contains("no shield"), "{failure}"),
        other => panic!("a start that requires real time must fail: {other:?}"),
    }
}

#[test]
fn y17_a_shield_leaves_a_cpu_for_other_threads() {
    let all = kernel::cpus();
    let online = std::fs::read_to_string("/sys/devices/system/cpu/online").expect("a list");
    needs!("all CPUs", CpuSet::parse(online.trim_end()).expect("a list") == all);
    let config = Config { cpus: all.iter().collect(), shield: true, ..Config::default() };
    match Application::new(config).start() {
        Err(error @ Error::Machine(_)) => {
            assert!(error.to_string().contains("leave at least one"), "{error}");
        }
        other => panic!("the start must fail: {other:?}"),
    }
}
