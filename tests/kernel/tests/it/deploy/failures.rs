//! Failures of programs: exits, readiness, restarts.

use super::{SLEEP, ms, ready_task};
use talea_deploy::text::message::ConditionText;
use talea_deploy::{OnFailure, TaskSpec};
use talea_kernel_tests::deployd::{Deployd, task, test_program};
use talea_kernel_tests::{Bench, eventually, kernel, needs_root};

/// Returns a task whose program fails at once.
fn failing(name: &str, action: OnFailure) -> TaskSpec {
    let mut task = task(name, 90, &["sh", "-c", "exit 7"]);
    task.health.on_failure = action;
    task.health.restart.attempts = 3;
    task.health.restart.backoff = ms(20);
    task
}

#[test]
fn d10_a_failing_program_restarts_until_its_attempts_are_used() {
    needs_root!();
    let bench = Bench::new("deploy-restarts");
    let deployd = Deployd::start(&bench);
    let mut missing = failing("missing", OnFailure::Restart);
    missing.command.words = vec!["/no/such/program".to_owned()];
    deployd.apply(&[failing("fails", OnFailure::Restart), missing, task("ok", 80, &SLEEP)], None);
    for name in ["fails", "missing"] {
        deployd.wait_for(name, ConditionText::Failed);
        let task = deployd.task(name);
        assert_eq!((task.restarts, task.failures), (3, 4), "{name}");
    }
    let status = deployd.status();
    assert!(status.has_problem());
    deployd.running("ok");
    for line in ["fails: exited with status 7", "missing: /no/such/program was not started"] {
        eventually(line, || deployd.log().matches(line).count() >= 4);
        assert_eq!(deployd.log().matches(line).count(), 4, "{}", deployd.log());
    }
    eventually("exited programs leave no file", || deployd.instances().len() == 1);
}

#[test]
fn d11_a_program_that_is_not_ready_in_time_has_failed() {
    needs_root!();
    let bench = Bench::new("deploy-ready");
    let deployd = Deployd::start(&bench);
    let mut idle = ready_task("idle", 600_000, ms(300));
    idle.health.on_failure = OnFailure::Idle;
    let mut ignored = ready_task("ignored", 600_000, ms(300));
    ignored.health.on_failure = OnFailure::Ignore;
    let mut restarts = ready_task("restarts", 600_000, ms(300));
    restarts.health.restart.attempts = 1;
    deployd.apply(&[idle, ignored, restarts, ready_task("ready", 0, ms(60_000))], None);
    deployd.running("ready");
    deployd.wait_for("idle", ConditionText::Idle);
    deployd.wait_for("restarts", ConditionText::Failed);
    eventually("the failure is counted", || deployd.task("ignored").failures == 1);
    let task = deployd.task("ignored");
    assert_eq!(task.condition, ConditionText::NotReady);
    assert!(kernel::exists(task.pid.expect("it runs on") as i32));
    assert_eq!(deployd.task("restarts").restarts, 1);
    assert_eq!(deployd.task("ready").failures, 0);
}

#[test]
fn d19_only_a_process_of_the_program_makes_it_ready() {
    needs_root!();
    let bench = Bench::new("deploy-sender");
    let deployd = Deployd::start(&bench);
    deployd.apply(&[ready_task("waits", 600_000, ms(600_000)), task("ok", 80, &SLEEP)], None);
    deployd.running("ok");
    deployd.wait_for("waits", ConditionText::NotReady);
    let socket = deployd.runtime().join("notify").display().to_string();
    let words = test_program(&["report", &socket]);
    let sent = std::process::Command::new(&words[0]).args(&words[1..]).status();
    assert!(sent.expect("the program").success());
    eventually("the report is ignored", || deployd.log().contains("is no program of the"));
    assert_eq!(deployd.task("waits").condition, ConditionText::NotReady);
}

#[test]
fn d18_the_rest_of_a_program_ends_with_its_first_process() {
    needs_root!();
    let bench = Bench::new("deploy-rest");
    let deployd = Deployd::start(&bench);
    let child = "trap '' TERM; sleep 1000 & setsid sleep 1001 & sleep 1002 & wait";
    deployd.apply(&[task("control", 90, &["sh", "-c", child])], None);
    let pid = deployd.running("control");
    let group = talea_os::cgroup::program_group::of_process(kernel::tid(pid)).expect("a group");
    let members =
        || talea_os::cgroup::program_group::ProgramGroup::at(&group).processes().expect("a list");
    eventually("it has children", || members().len() == 4);
    let all = members();
    let first = rustix::process::Pid::from_raw(pid).expect("a pid");
    rustix::process::kill_process(first, rustix::process::Signal::KILL).expect("a right");
    eventually("all end", || all.iter().all(|tid| !kernel::exists(tid.as_raw())));
    eventually("it starts again", || {
        deployd.task("control").pid.is_some_and(|new| new as i32 != pid)
    });
    assert!(!group.exists(), "the group is gone before the restart");
}
