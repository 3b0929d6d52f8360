//! Kills of the daemon and of programs: the observed state becomes the desired one again.

use super::{SLEEP, calls, control_and_logger, has_level, has_strace, kill, ms, ready_task, trace};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use talea_core::rng::Rng;
use talea_deploy::Generation;
use talea_deploy::text::message::{Answer, Ask, ConditionText};
use talea_deploy::text::{Instance, StoredGeneration, StoredRecord};
use talea_kernel_tests::bench::copy;
use talea_kernel_tests::deployd::{Deployd, apply, task};
use talea_kernel_tests::{Bench, eventually, kernel, needs, needs_root, program};

#[test]
fn d17_a_later_daemon_adopts_the_programs_and_touches_nothing() {
    needs_root!();
    needs!("strace", has_strace());
    let bench = Bench::new("deploy-adopt");
    let mut deployd = Deployd::start(&bench);
    let tasks = [task("control", 93, &SLEEP), ready_task("ready", 0, ms(1_000))];
    deployd.apply(&tasks, None);
    let pids = ["control", "ready"].map(|name| deployd.running(name));
    eventually("both have their attributes", || has_level(pids[0], 93) && has_level(pids[1], 90));
    for is_killed in [true, false] {
        if is_killed {
            deployd.kill();
        } else {
            deployd.terminate();
        }
        assert!(pids.iter().all(|&pid| kernel::exists(pid)), "programs outlive the daemon");
        assert!(has_level(pids[0], 93) && has_level(pids[1], 90));
        upgrade();
        deployd.restart();
        assert_eq!(deployd.status().in_force.expect("a generation").number, 1);
        let (strace, file) = trace(&bench, &deployd);
        assert_eq!(["control", "ready"].map(|name| deployd.running(name)), pids);
        // Some inspections, also past the limit for the readiness.
        std::thread::sleep(Duration::from_millis(1_300));
        for task in deployd.status().tasks {
            assert_eq!((task.restarts, task.failures, task.repairs), (0, 0, 0), "{task:?}");
        }
        assert_eq!(calls(strace, &file, pids[0]), [""; 0]);
        let text = std::fs::read_to_string(&file).expect("a file");
        assert_eq!(text.lines().count(), 0, "{text}");
    }
    // The exit of an adopted program is unknown, and a failure.
    kill(pids[0]);
    eventually("it starts again", || {
        let task = deployd.task("control");
        task.failures == 1 && task.pid.is_some_and(|pid| pid as i32 != pids[0])
    });
    assert!(deployd.log().contains("control: ended with an unknown status"), "{}", deployd.log());
}

/// Replaces the file of the daemon, as an upgrade does.
fn upgrade() {
    let daemon = program("talea-deployd");
    let new = daemon.with_extension("new");
    copy(&daemon, &new);
    std::fs::rename(&new, &daemon).expect("one folder");
}

#[test]
fn d17_an_interrupted_start_is_found_or_undone() {
    needs_root!();
    let bench = Bench::new("deploy-interrupted");
    let mut deployd = Deployd::start(&bench);
    deployd.apply(&[task("control", 93, &SLEEP)], None);
    let pid = deployd.running("control");
    deployd.kill();
    // The files as a daemon leaves them that is killed after the fork, or before it.
    let folder = deployd.runtime().join("programs");
    let entry = std::fs::read_dir(&folder).expect("a folder").next().expect("a file");
    let path = entry.expect("a file").path();
    let started = Instance { process: None, ..deployd.instances().remove(0) };
    std::fs::write(&path, started.to_text()).expect("write");
    let mut empty = started.clone();
    empty.group = format!("{}-empty", started.group);
    std::fs::create_dir(&empty.group).expect("a group");
    std::fs::write(folder.join("empty"), empty.to_text()).expect("write");
    let mut none = started;
    none.group.push_str("-none");
    std::fs::write(folder.join("none"), none.to_text()).expect("write");
    std::fs::write(folder.join("torn.new"), "talea").expect("write");
    deployd.restart();
    assert_eq!(deployd.running("control"), pid);
    let task = deployd.task("control");
    assert_eq!((task.restarts, task.failures, task.repairs), (0, 0, 0));
    assert!(!Path::new(&empty.group).exists(), "the empty group is removed");
    let found = deployd.instances();
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].process.map(|id| id.pid), Some(pid as u32));
    assert!(!folder.join("torn.new").exists());
}

#[test]
fn d2_thirty_kills_change_nothing_but_the_killed() {
    needs_root!();
    let bench = Bench::new("deploy-kills");
    let mut deployd = Deployd::start(&bench);
    let mut tasks = control_and_logger().to_vec();
    tasks.push(task("third", 91, &["sleep", "1003"]));
    for task in &mut tasks {
        task.health.restart.attempts = 1_000;
        task.health.restart.backoff = ms(1);
        task.health.restart.within = ms(2);
    }
    deployd.apply(&tasks, None);
    let names = ["control", "logger", "third"];
    let levels = [93, 92, 91];
    let mut pids = names.map(|name| deployd.running(name));
    let mut rng = Rng::new(20_261_129);
    for round in 0..30 {
        let victim = rng.below(4) as usize;
        let wait = Duration::from_micros(rng.below(150_000));
        if victim < 3 {
            kill(pids[victim]);
        }
        // At a random instant of the restart of the program, too.
        std::thread::sleep(wait);
        deployd.kill();
        let present: Vec<_> = deployd.instances();
        deployd.restart();
        for (at, name) in names.into_iter().enumerate() {
            let pid = deployd.running(name);
            assert!(at == victim || pid == pids[at], "round {round}: {name} kept its process");
            pids[at] = pid;
        }
        eventually("all have their attributes", || {
            pids.iter().zip(levels).all(|(&pid, level)| has_level(pid, level))
        });
        assert!(present.len() <= 4, "round {round}: {present:?}");
        eventually("one program plays each task", || deployd.instances().len() == 3);
    }
    assert!(!deployd.status().has_problem());
}

#[test]
fn d16_a_torn_edited_or_foreign_file_is_refused_with_a_remedy() {
    needs_root!();
    let bench = Bench::new("deploy-files");
    let mut deployd = Deployd::start(&bench);
    deployd.apply(&[task("control", 93, &SLEEP)], None);
    let pid = deployd.running("control");
    deployd.kill();
    let files = [deployd.state().join("record"), deployd.state().join("generations/1")];
    for path in &files {
        let good = std::fs::read(path).expect("a file");
        let refused = |why: &str| {
            let said = deployd.refused_start();
            let name = path.display().to_string();
            assert!(said.contains(&name) && said.contains(why), "{said}");
            assert!(said.contains("; ") && said.contains("restore it"), "a remedy: {said}");
        };
        std::fs::write(path, &good[..good.len() / 2]).expect("write");
        refused("torn or edited");
        let edited = String::from_utf8(good.clone()).expect("text").replace("\"number\"", "\"n\"");
        std::fs::write(path, edited).expect("write");
        refused("torn or edited");
        std::fs::write(path, &good).expect("write");
        std::os::unix::fs::chown(path, Some(1), None).expect("chown");
        refused("it belongs to user 1");
        std::os::unix::fs::chown(path, Some(0), None).expect("chown");
    }
    assert!(kernel::exists(pid), "a refused start touches no program");
    deployd.restart();
    assert_eq!(deployd.running("control"), pid);
    // Without a record nothing is in force, and programs are stopped.
    deployd.kill();
    std::fs::remove_file(&files[0]).expect("a file");
    deployd.restart();
    eventually("the program is stopped", || !kernel::exists(pid));
}

#[test]
fn d16_another_boot_has_no_program_and_no_trial() {
    needs_root!();
    let bench = Bench::new("deploy-boot");
    let mut deployd = Deployd::start(&bench);
    deployd.apply(&[task("control", 93, &SLEEP)], None);
    let first = deployd.running("control");
    deployd.apply(&[task("control", 93, &["sleep", "1002"])], Some(ms(600_000)));
    eventually("the program of the trial runs", || deployd.running("control") != first);
    let old = deployd.running("control");
    deployd.kill();
    // A record and an instance as an earlier boot has left them.
    let path = deployd.state().join("record");
    let text = std::fs::read_to_string(&path).expect("a file");
    let boot = text.split("\"boot\": \"").nth(1).and_then(|rest| rest.split('"').next());
    let other = reseal(&text, boot.expect("a boot"), &"0".repeat(32));
    StoredRecord::from_text(&other).expect("a record");
    std::fs::write(&path, other).expect("write");
    deployd.restart();
    assert_eq!(deployd.status().in_force.expect("a generation").number, 1);
    assert_eq!(deployd.status().trial_left_ns, None);
    eventually("the program of the trial is replaced", || {
        let task = deployd.task("control");
        task.condition == ConditionText::Running && task.pid != Some(old as u32)
    });
}

/// Returns a text with another word, and the hash in its first line that fits.
fn reseal(text: &str, from: &str, to: &str) -> String {
    let (first, body) = text.split_once('\n').expect("a first line");
    let body = body.replace(from, to);
    let file = std::env::temp_dir().join(format!("talea-reseal-{}", std::process::id()));
    std::fs::write(&file, &body).expect("write");
    let hash = std::process::Command::new("sha256sum").arg(&file).output().expect("coreutils");
    std::fs::remove_file(&file).expect("our file");
    let hash = String::from_utf8(hash.stdout).expect("text");
    let hash = hash.split(' ').next().expect("a hash");
    let words: Vec<&str> = first.split(' ').collect();
    format!("{} {} {} {hash}\n{body}", words[0], words[1], words[2])
}

#[test]
fn d16_a_large_generation_is_stored_and_returned() {
    needs_root!();
    let bench = Bench::new("deploy-large");
    let deployd = Deployd::start(&bench);
    let Ask::Apply { generation, confirm } = apply(&[task("control", 93, &SLEEP)], None) else {
        panic!("an apply");
    };
    // More than the buffers of the socket.
    let report = "a line of the report\n".repeat(200_000);
    let of = &generation.generation;
    let (roots, tasks) = (of.roots().to_vec(), of.tasks().to_vec());
    let large = Generation::new(0, of.hash(), roots, tasks, report.clone(), false);
    let large = Arc::new(large.expect("a valid generation"));
    let generation = StoredGeneration { generation: large, ..generation };
    assert_eq!(deployd.change(&Ask::Apply { generation, confirm }), Some(1));
    let Answer::InForce(Some(found)) = deployd.ask(&Ask::InForce) else { panic!("a generation") };
    assert_eq!((found.number(), found.report() == report), (1, true));
}

#[test]
fn d20_a_second_daemon_is_refused_with_the_holder() {
    needs_root!();
    let bench = Bench::new("deploy-second");
    let deployd = Deployd::start(&bench);
    let said = deployd.refused_start();
    assert!(said.contains(&format!("process {} has the lock", deployd.pid())), "{said}");
    deployd.apply(&control_and_logger(), None);
    deployd.running("control");
    assert!(Path::new(&deployd.runtime().join("socket")).exists());
}
