//! A governor and the groups that a test fills with programs, as a deployment does.

pub(crate) mod scene;

use scene::{Measured, SYSTEM, Scene, execute_beside, is_possible, levels, median, number, owners};
use std::os::unix::process::ExitStatusExt;
use std::time::Duration;
use talea_core::rng::Rng;
use talea_kernel_tests::{Bench, Runs, eventually, needs, needs_root};
use talea_os::Policy;

/// Length of a trace.
pub(crate) const TRACE: Duration = Duration::from_secs(2);
/// Number of governors that are killed.
const KILLS: u32 = 20;

/// Checks that the programs ran in their slots, and that the server kept its budget.
pub(crate) fn is_kept(measured: &Measured) {
    println!("{measured:?}");
    for (task, outside) in measured.outside_permille.iter().enumerate() {
        assert!(*outside <= 20, "task {task} ran {outside} ‰ of its time outside: {measured:?}");
    }
    // By the tolerance of a run; stalls of the machine may exceed it.
    assert!(measured.slots >= 50 && measured.late_slots * 20 <= measured.slots, "{measured:?}");
    // One millisecond of twenty, and what a wake-up takes beyond it.
    let share = measured.share_permille[0];
    assert!((30..=57).contains(&share), "{share} ‰ of 50 ‰: {measured:?}");
    assert!(measured.share_permille[1..3].iter().all(|&share| share >= 250), "{measured:?}");
}

#[test]
fn l20_governed_programs_run_in_their_slots_and_budgets_as_in_a_run_of_the_same_system() {
    needs_root!();
    needs!("two CPUs, cgroup v2 and its perf events", is_possible());
    let bench = Bench::new("governor_slots");
    let mut runs = Runs::at_least(1);
    let result = runs.repeat(|| {
        let mut scene = Scene::new(&bench);
        scene.start_all();
        let governor = scene.govern();
        let measured = scene.measure(&governor, TRACE);
        let [_, first, second] = owners(&scene.groups);
        assert!(first != second && first * second != 0, "two users: {first}, {second}");
        let stats = governor.stats();
        drop(governor);
        drop(scene);
        let beside =
            execute_beside(&bench, TRACE, |groups, zero| scene::measure(groups, TRACE, zero));
        let is_calm =
            measured.late_slots * 20 <= measured.slots && beside.late_slots * 20 <= beside.slots;
        is_calm.then_some((measured, beside, stats))
    });
    let (measured, beside, stats) = result.expect("one conclusive run");
    is_kept(&measured);
    is_kept(&beside);
    for key in ["jobs", "max_response_ns", "stopped_busy_ns"] {
        assert!(stats.contains(&format!("\"{key}\"")), "{stats}");
    }
    assert!(!stats.contains("instead of"), "no program has changed a policy: {stats}");
    let (own, other) = (median(&measured.starts), median(&beside.starts));
    println!("window starts: {own} ns governed, {other} ns in a run");
    assert!(own <= 2 * other + other / 2, "{own} ns governed, {other} ns in a run");
}

#[test]
fn l20_a_program_that_exits_and_is_started_again_is_governed_again() {
    needs_root!();
    needs!("two CPUs, cgroup v2 and its perf events", is_possible());
    let bench = Bench::new("governor_restart");
    let mut runs = Runs::at_least(1);
    let measured = runs.repeat(|| {
        let mut scene = Scene::new(&bench);
        // Into empty groups that are governed already.
        let governor = scene.govern();
        scene.start_all();
        for _ in 0..5 {
            let before = scene.groups.pids(2);
            scene.restart(2);
            eventually("the new program runs", || {
                let after = scene.groups.pids(2);
                after.len() > 1 && after.iter().all(|pid| !before.contains(pid))
            });
        }
        let measured = scene.measure(&governor, TRACE);
        (measured.late_slots * 20 <= measured.slots).then_some(measured)
    });
    is_kept(&measured.expect("one conclusive run"));
}

#[test]
fn l20_a_governed_program_that_sleeps_has_a_job_each_time_that_it_wakes() {
    needs_root!();
    needs!("two CPUs, cgroup v2 and its perf events", is_possible());
    let bench = Bench::new("governor_sleeper");
    let mut runs = Runs::at_least(1);
    let conclusive = runs.repeat(|| {
        let mut scene = Scene::new(&bench);
        // The second program always wants the CPU, and the first one sleeps 9 ms before each of
        // its milliseconds.
        let governor = scene.govern();
        scene.start(1, &["9"]);
        scene.start(2, &[]);
        scene.groups.run_of(&[1, 2]);
        let before = governor.stats();
        let measured = scene.measure(&governor, TRACE);
        let after = governor.stats();
        let jobs = |text: &str| {
            let (_, first) = text.split_once("\"first\"").expect("the task");
            (number(first, "jobs"), number(first, "max_stopped_busy_ns"))
        };
        let ((begun, _), (ended, stopped)) = (jobs(&before), jobs(&after));
        println!("{} jobs, {stopped} ns stopped, {measured:?}", ended - begun);
        let is_calm = measured.late_slots * 20 <= measured.slots;
        is_calm.then_some((ended - begun, measured))
    });
    let (jobs, measured) = conclusive.expect("one conclusive run");
    // In each frame it wakes once in its slot, or just before it.
    let frames = measured.slots / 2;
    assert!((frames * 8 / 10..=frames * 5 / 2).contains(&jobs), "{jobs} jobs in {frames} frames");
    // What it uses before a wake-up is detected is a small part of its time.
    assert!(measured.outside_permille[1] <= 150, "{measured:?}");
    assert!(measured.outside_permille[2] <= 20, "{measured:?}");
}

#[test]
fn l20_successors_of_killed_governors_keep_the_programs_and_their_slots() {
    needs_root!();
    needs!("two CPUs, cgroup v2 and its perf events", is_possible());
    let bench = Bench::new("governor_kills");
    let mut scene = Scene::new(&bench);
    scene.start_all();
    let mut governor = scene.govern();
    scene.groups.run();
    let pids: Vec<_> = (0..3).map(|task| scene.groups.pids(task)[0]).collect();
    let mut rng = Rng::new(20);
    for _ in 0..KILLS {
        std::thread::sleep(Duration::from_micros(rng.below(120_000)));
        governor.kill();
        governor = scene.govern();
    }
    scene.groups.run();
    let mut runs = Runs::at_least(1);
    let measured = runs.repeat(|| {
        let measured = scene.measure(&governor, TRACE);
        (measured.late_slots * 20 <= measured.slots).then_some(measured)
    });
    is_kept(&measured.expect("one conclusive run"));
    // The reapers of the killed governors have changed nothing after that.
    let stats = governor.stats();
    assert!(!stats.contains("instead of"), "{stats}");
    for (task, first) in pids.iter().enumerate() {
        let now = scene.groups.pids(task);
        assert!(now.contains(first), "task {task}: {first:?}, {now:?}");
        for policy in levels(&scene.groups, task) {
            let is_level = matches!(policy, Policy::Rr(91 | 92) | Policy::Fifo(1));
            assert!(is_level, "task {task}: {policy:?}");
        }
    }
}

#[test]
fn l20_groups_of_an_ended_governor_are_frozen_and_then_released_without_a_successor() {
    needs_root!();
    needs!("two CPUs, cgroup v2 and its perf events", is_possible());
    let bench = Bench::new("governor_end");
    let mut scene = Scene::new(&bench);
    scene.start_all();
    for is_killed in [false, true] {
        let governor = scene.govern();
        scene.groups.run();
        if is_killed {
            governor.kill();
        } else {
            let status = governor.terminate();
            assert!(status.success() && status.signal().is_none(), "{status}");
        }
        // The reaper of a killed governor needs a moment.
        let groups = &scene.groups;
        eventually("frozen", || (0..3).all(|task| groups.is_frozen(task)));
        eventually("demoted", || {
            (0..3).all(|task| levels(groups, task).iter().all(|&one| one == Policy::Fifo(1)))
        });
        eventually("released", || (0..3).all(|task| !groups.is_freezing(task)));
        eventually("ordinary", || {
            (0..3).all(|task| {
                let levels = levels(groups, task);
                !levels.is_empty() && levels.iter().all(|&one| one == Policy::NORMAL)
            })
        });
        groups.run();
    }
    // At once, by the program; the reaper comes later and changes nothing.
    let governor = scene.govern();
    scene.groups.run();
    assert!(governor.terminate().success());
    let output = scene.release();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for task in 0..3 {
        assert!(!scene.groups.is_freezing(task));
        assert!(levels(&scene.groups, task).iter().all(|&one| one == Policy::NORMAL));
    }
    // From the released state.
    let governor = scene.govern();
    let mut runs = Runs::at_least(1);
    let measured = runs.repeat(|| {
        let measured = scene.measure(&governor, TRACE);
        (measured.late_slots * 20 <= measured.slots).then_some(measured)
    });
    is_kept(&measured.expect("one conclusive run"));
}

#[test]
fn l20_a_governor_refuses_what_it_cannot_govern_with_the_reason() {
    needs_root!();
    needs!("two CPUs, cgroup v2 and its perf events", is_possible());
    let bench = Bench::new("governor_refusals");
    let scene = Scene::new(&bench);
    let governor = scene.govern();
    let holder = governor.pid().to_string();
    let groups = scene.arguments();
    let whole: Vec<&str> = groups.iter().map(String::as_str).collect();
    for (arguments, parts) in [
        (whole.clone(), vec!["is governed by another process", holder.as_str()]),
        (whole[..2].to_vec(), vec!["needs one --group"]),
        (vec!["--group", "other=/x"], vec!["other", "no such task"]),
        (vec!["--group", "boxed=/proc"], vec!["/proc", "not a directory of a cgroup v2"]),
    ] {
        let output = scene.refused(SYSTEM, &arguments);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(3), "{said}");
        assert!(parts.iter().all(|part| said.contains(part)), "{said}");
    }
    let output = scene.refused("[[scheduler]]\nname = \"other\"\npolicy = \"fp\"\n", &whole);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("no root cpu"), "{said}");
    let output = scene.release();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(3) && said.contains(&holder), "{said}");
    // The groups are still those of the first governor.
    assert!(governor.stats().contains("zero_ns"));
}
