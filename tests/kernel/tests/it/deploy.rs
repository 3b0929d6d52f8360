//! Deployments on the real driver: real processes of an unprivileged user, attributes from the
//! kernel.

mod failures;
mod governed;
mod kills;
mod random_kills;
mod reservation;
mod rights;
mod tables;
mod windows;

use std::path::Path;
use std::process::{Child, Command, Stdio};
use talea_core::Span;
use talea_deploy::TaskSpec;
use talea_deploy::text::message::{Ask, ConditionText};
use talea_kernel_tests::deployd::{Deployd, apply, task, test_program};
use talea_kernel_tests::{Bench, eventually, kernel, needs, needs_root};
use talea_os::cgroup::program_group;
use talea_os::sched::{self, Attr, Policy};

const SLEEP: [&str; 2] = ["sleep", "1000"];

fn ms(count: u64) -> Span {
    Span::from_ns(count * 1_000_000)
}

fn kill(pid: i32) {
    let pid = rustix::process::Pid::from_raw(pid).expect("a pid");
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("a right");
}

/// Returns two tasks of different levels.
fn control_and_logger() -> [TaskSpec; 2] {
    [task("control", 93, &SLEEP), task("logger", 92, &SLEEP)]
}

/// Returns a task whose program reports that it is ready after a time, if that is below its limit.
fn ready_task(name: &str, after_ms: u64, limit: Span) -> TaskSpec {
    let words = test_program(&["ready", &after_ms.to_string()]);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let mut task = task(name, 90, &words);
    task.health.ready = Some(limit);
    task.health.restart.backoff = ms(10);
    task
}

/// Whether all threads of a process have this FIFO level, on CPU 0 alone.
fn has_level(pid: i32, level: u8) -> bool {
    let threads = talea_os::proc::threads_of(kernel::tid(pid)).unwrap_or_default();
    let is_right = |tid: &talea_os::Tid| {
        sched::get(*tid).is_ok_and(|attr| attr.policy == Policy::Fifo(level))
            && sched::get_affinity(*tid).is_ok_and(|cpus| cpus == talea_core::CpuSet::single(0))
    };
    !threads.is_empty() && threads.iter().all(is_right)
}

/// Attaches strace to the daemon, and returns it with the file of the calls that change attributes.
fn trace(bench: &Bench, deployd: &Deployd) -> (Child, std::path::PathBuf) {
    let file = bench.path("calls");
    let mut command = Command::new("strace");
    command.args(["-f", "-qq", "-e", "trace=sched_setattr,sched_setscheduler,sched_setaffinity"]);
    command.args(["-p", &deployd.pid().to_string(), "-o"]).arg(&file);
    let strace = command.stdin(Stdio::null()).stderr(Stdio::null()).spawn().expect("strace");
    let status = format!("/proc/{}/status", deployd.pid());
    eventually("strace is attached", || {
        let text = std::fs::read_to_string(&status).expect("a process");
        text.lines().any(|line| line.strip_prefix("TracerPid:\t").is_some_and(|pid| pid != "0"))
    });
    (strace, file)
}

/// Ends strace, and returns its lines about thread `tid`.
fn calls(mut strace: Child, file: &Path, tid: i32) -> Vec<String> {
    let pid = rustix::process::Pid::from_raw(strace.id() as i32).expect("a pid");
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("our child");
    strace.wait().expect("our child");
    let text = std::fs::read_to_string(file).expect("a file");
    text.lines().filter(|line| line.contains(&format!("({tid},"))).map(str::to_owned).collect()
}

fn has_strace() -> bool {
    Command::new("strace").arg("-V").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
}

#[test]
fn d1_d7_an_applied_system_runs_and_a_removed_one_leaves_nothing() {
    needs_root!();
    let bench = Bench::new("deploy-apply");
    let deployd = Deployd::start(&bench);
    assert_eq!(deployd.apply(&control_and_logger(), None), 1);
    let pids = ["control", "logger"].map(|name| deployd.running(name));
    eventually("both have their attributes", || has_level(pids[0], 93) && has_level(pids[1], 92));
    let groups = pids.map(|pid| program_group::of_process(kernel::tid(pid)).expect("a group"));
    assert_ne!(groups[0], groups[1], "each program has a group of its own");
    let status = deployd.status();
    assert!(!status.has_problem(), "{status:?}");
    assert_eq!(status.in_force.expect("a generation").number, 1);
    assert_eq!(deployd.change(&Ask::Remove), None);
    eventually("no process, group and file is left", || {
        pids.iter().all(|&pid| !kernel::exists(pid))
            && groups.iter().all(|group| !group.exists())
            && deployd.instances().is_empty()
    });
    let left = std::fs::read_dir(deployd.state().join("generations")).expect("a folder").count();
    assert_eq!(left, 0, "no generation is left");
    assert!(deployd.refusal(&Ask::Remove).contains("no generation is in force"));
    // Numbers are not used again.
    assert_eq!(deployd.apply(&control_and_logger()[..1], None), 2);
    deployd.running("control");
}

#[test]
fn d3_an_apply_does_not_touch_an_equal_task() {
    needs_root!();
    needs!("strace", has_strace());
    let bench = Bench::new("deploy-equal");
    let deployd = Deployd::start(&bench);
    let [control, logger] = control_and_logger();
    deployd.apply(&[control.clone(), logger.clone()], None);
    let [kept, old] = ["control", "logger"].map(|name| deployd.running(name));
    eventually("it has its attributes", || has_level(kept, 93));
    let (strace, file) = trace(&bench, &deployd);
    let other = task("logger", 91, &["sleep", "1001"]);
    deployd.apply(&[control, other, task("new", 90, &SLEEP)], None);
    eventually("the others are changed", || {
        let pid = deployd.task("logger").pid.map_or(0, |pid| pid as i32);
        pid != old && has_level(deployd.running("logger"), 91)
    });
    let new = deployd.running("new");
    eventually("the new one has its attributes", || has_level(new, 90));
    assert_eq!(deployd.running("control"), kept);
    let task = deployd.task("control");
    assert_eq!((task.restarts, task.repairs, task.failures), (0, 0, 0));
    let text = std::fs::read_to_string(&file).expect("a file");
    assert!(text.contains(&format!("({new},")), "the trace has the calls for others: {text}");
    assert_eq!(calls(strace, &file, kept), [""; 0]);
}

#[test]
fn d4_a_generation_that_is_never_ready_goes_back_by_itself() {
    needs_root!();
    let bench = Bench::new("deploy-confirm");
    let deployd = Deployd::start(&bench);
    let [control, logger] = control_and_logger();
    deployd.apply(&[control.clone(), logger.clone()], None);
    let [kept, old] = ["control", "logger"].map(|name| deployd.running(name));
    // Its program never reports that it is ready, and needs no restart to be late.
    let mut late = logger.clone();
    late.command.words[1] = "1002".to_owned();
    late.health.ready = Some(ms(600_000));
    assert_eq!(deployd.apply(&[control, late], Some(ms(1_500))), 2);
    deployd.wait_for("logger", ConditionText::NotReady);
    let why = deployd.refusal(&Ask::Confirm);
    assert!(why.contains("logger is not ready"), "{why}");
    assert!(deployd.refusal(&apply(&[], None)).contains("generation 2 is on trial"));
    eventually("generation 1 is in force again", || {
        deployd.status().in_force.is_some_and(|of| of.number == 1)
    });
    eventually("the earlier program runs again", || {
        let task = deployd.task("logger");
        task.condition == ConditionText::Running && task.pid != Some(old as u32)
    });
    assert_eq!(deployd.running("control"), kept);
    assert!(deployd.log().contains("rolled back (it was not confirmed)"), "{}", deployd.log());
}

#[test]
fn d4_a_confirmed_generation_stays() {
    needs_root!();
    let bench = Bench::new("deploy-confirmed");
    let deployd = Deployd::start(&bench);
    deployd.apply(&[ready_task("late", 200, ms(60_000))], Some(ms(60_000)));
    deployd.running("late");
    assert_eq!(deployd.change(&Ask::Confirm), Some(1));
    assert_eq!(deployd.status().trial_left_ns, None);
    assert!(deployd.refusal(&Ask::Confirm).contains("no generation is on trial"));
}

#[test]
fn d5_a_rollback_returns_to_any_earlier_generation() {
    needs_root!();
    let bench = Bench::new("deploy-rollback");
    let deployd = Deployd::start(&bench);
    let of = |seconds: &str| [task("control", 93, &["sleep", seconds])];
    let words = |pid: i32| {
        String::from_utf8(std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default())
            .expect("words")
    };
    for (number, seconds) in [(1, "1001"), (2, "1002"), (3, "1003")] {
        assert_eq!(deployd.apply(&of(seconds), None), number);
        eventually("its program runs", || words(deployd.running("control")).contains(seconds));
    }
    assert_eq!(deployd.change(&Ask::RollBack(None)), Some(2));
    eventually("2 runs", || words(deployd.running("control")).contains("1002"));
    assert!(deployd.refusal(&Ask::RollBack(None)).contains("no generation before"));
    assert_eq!(deployd.change(&Ask::RollBack(Some(1))), Some(1));
    eventually("1 runs", || words(deployd.running("control")).contains("1001"));
    let why = deployd.refusal(&Ask::RollBack(Some(7)));
    assert!(why.contains("there is no generation 7"), "{why}");
    assert_eq!(deployd.apply(&of("1004"), None), 4);
}

#[test]
fn d6_a_drained_task_ends_and_starts_again_with_the_next_apply() {
    needs_root!();
    let bench = Bench::new("deploy-drain");
    let deployd = Deployd::start(&bench);
    let slow = "trap '' TERM; sleep 1000; sleep 1000";
    let tasks = [task("control", 93, &SLEEP), task("slow", 92, &["sh", "-c", slow])];
    deployd.apply(&tasks, None);
    let pids = ["control", "slow"].map(|name| deployd.running(name));
    let ignores = || {
        let text = std::fs::read_to_string(format!("/proc/{}/status", pids[1])).expect("status");
        let mask = text.lines().find_map(|line| line.strip_prefix("SigIgn:\t"));
        let mask = mask.and_then(|mask| u64::from_str_radix(mask, 16).ok()).expect("a mask");
        // Without the numbers from 32 on, which the C library reserves.
        mask & 0x7fff_ffff == 1 << (15 - 1)
    };
    eventually("the program ignores SIGTERM", ignores);
    let drain = |task: Option<&str>, within: Span| {
        deployd.change(&Ask::Drain { task: task.map(str::to_owned), within })
    };
    drain(Some("control"), ms(60_000));
    deployd.wait_for("control", ConditionText::Drained);
    assert!(!kernel::exists(pids[0]));
    assert_eq!(deployd.running("slow"), pids[1]);
    drain(None, ms(300));
    deployd.wait_for("slow", ConditionText::Drained);
    assert!(!kernel::exists(pids[1]));
    assert!(!deployd.status().has_problem(), "a drain is no failure");
    let unknown = Ask::Drain { task: Some("other".to_owned()), within: ms(1) };
    assert!(deployd.refusal(&unknown).contains("no task has the name other"));
    deployd.apply(&tasks, None);
    assert_ne!(deployd.running("control"), pids[0]);
    deployd.running("slow");
}

#[test]
fn d8_drift_is_repaired_and_counted() {
    needs_root!();
    let bench = Bench::new("deploy-drift");
    let deployd = Deployd::start(&bench);
    deployd.apply(&[task("control", 93, &SLEEP)], None);
    let pid = deployd.running("control");
    eventually("it has its attributes", || has_level(pid, 93));
    let run = |words: &[&str]| {
        let status = Command::new(words[0]).args(&words[1..]).stdout(Stdio::null()).status();
        assert!(status.expect("util-linux").success(), "{words:?}");
    };
    let pid_word = pid.to_string();
    // Observed as desired before each change: otherwise a change is no drift.
    let steady = || {
        eventually("it is repaired", || has_level(pid, 93));
        std::thread::sleep(std::time::Duration::from_millis(500));
    };
    steady();
    run(&["chrt", "-o", "-p", "0", &pid_word]);
    eventually("the policy is repaired", || deployd.task("control").repairs == 1);
    steady();
    let has_second = talea_os::sysinfo::online_now().is_some_and(|cpus| cpus.contains(1));
    let other = if has_second { "1" } else { "0" };
    run(&["taskset", "-pc", other, &pid_word]);
    let expected = if other == "1" { 2 } else { 1 };
    eventually("the CPUs are repaired", || deployd.task("control").repairs == expected);
    steady();
    // The nice value of a real-time thread has no effect, so it is no drift.
    run(&["renice", "-n", "5", "-p", &pid_word]);
    steady();
    let task = deployd.task("control");
    assert_eq!((task.repairs, task.restarts, task.contended.len()), (expected, 0, 0));
    assert_eq!(task.pid, Some(pid as u32));
    assert!(deployd.log().contains("another writer changed the policy"), "{}", deployd.log());
}

#[test]
fn d9_a_value_that_another_writer_keeps_changing_is_contended() {
    needs_root!();
    let bench = Bench::new("deploy-contended");
    let deployd = Deployd::start(&bench);
    deployd.apply(&[task("control", 93, &SLEEP), task("logger", 92, &SLEEP)], None);
    let pid = deployd.running("control");
    deployd.running("logger");
    let ordinary = Attr::plain(Policy::NORMAL);
    eventually("the value is contended", || {
        sched::set(kernel::tid(pid), &ordinary).expect("a right");
        std::thread::sleep(std::time::Duration::from_millis(250));
        !deployd.task("control").contended.is_empty()
    });
    let status = deployd.status();
    assert!(status.has_problem());
    let contended = &status.tasks[0].contended;
    assert_eq!((contended.len(), contended[0].tid as i32), (1, pid));
    assert_eq!(contended[0].value(), "policy");
    assert!(status.tasks[0].repairs <= 5, "{status:?}");
    // No further repair, also by a later daemon; the other task is in force.
    sched::set(kernel::tid(pid), &ordinary).expect("a right");
    let mut deployd = deployd;
    deployd.kill();
    deployd.restart();
    std::thread::sleep(std::time::Duration::from_millis(500));
    assert!(kernel::is_ordinary(pid));
    assert!(deployd.status().has_problem());
    assert!(has_level(deployd.running("logger"), 92));
    // An apply with another level begins anew.
    deployd.apply(&[task("control", 91, &SLEEP), task("logger", 92, &SLEEP)], None);
    eventually("it is set again", || has_level(pid, 91));
    assert!(!deployd.status().has_problem());
}

#[test]
fn d21_a_thousand_threads_are_bound() {
    needs_root!();
    let bench = Bench::new("deploy-threads");
    let deployd = Deployd::start(&bench);
    let words = test_program(&["threads", "1000"]);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    deployd.apply(&[task("bomb", 80, &words), task("logger", 92, &SLEEP)], None);
    let (pid, logger) = (deployd.running("bomb"), deployd.running("logger"));
    let count = || talea_os::proc::threads_of(kernel::tid(pid)).map_or(0, |tids| tids.len());
    eventually("all threads exist", || count() == 1001);
    eventually("all threads are bound", || has_level(pid, 80));
    assert!(has_level(logger, 92));
    assert_eq!((deployd.running("bomb"), deployd.running("logger")), (pid, logger));
    deployd.change(&Ask::Remove);
    eventually("no thread is left", || !Path::new(&format!("/proc/{pid}")).exists());
}
