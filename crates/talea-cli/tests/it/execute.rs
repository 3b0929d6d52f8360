//! `talea execute` and `talea replay`: real threads and their output.

use crate::harness::{Scratch, json, run, talea, under_way};
use std::fmt::Write;
use std::os::unix::process::CommandExt;
use std::process::Stdio;
use std::time::{Duration, Instant};
use talea_kernel_tests::{ALICE, Bench, needs, needs_root};

/// A tight set with a server between its tasks.
pub(crate) const SYSTEM: &str = "\
duration = \"300ms\"
[[scheduler]]
name = \"cpu0\"
policy = \"fp\"
[[scheduler]]
name = \"net\"
in = \"cpu0\"
server = \"deferrable\"
budget = \"4ms\"
period = \"20ms\"
priority = 20
[[task]]
name = \"control\"
in = \"cpu0\"
priority = 30
period = \"10ms\"
cost = \"1ms\"
[[task]]
name = \"requests\"
in = \"net\"
period = \"60ms\"
cost = \"9ms\"
[[task]]
name = \"log\"
in = \"cpu0\"
priority = 10
period = \"30ms\"
cost = \"3ms\"
";

#[test]
fn s18_s20_l22_one_file_is_simulated_and_executed_and_both_have_the_same_report() {
    needs_root!();
    let _bench = Bench::new("cli_execute");
    let scratch = Scratch::new();
    scratch.file("system.toml", SYSTEM);
    let simulated = json(&run(&scratch, &["simulate", "system.toml", "--json"]).out);
    let files =
        ["--csv", "jobs.csv", "--html", "run.html", "--svg", "run.svg", "--trace", "run.trace"];
    let ended = run(&scratch, &[&["execute", "system.toml", "--json"][..], &files].concat());
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    let real = json(&ended.out);
    assert_eq!(real["real_time"], true);
    let tasks =
        |answer: &serde_json::Value| answer["roots"][0]["tasks"].as_array().expect("tasks").clone();
    let (model, done) = (tasks(&simulated), tasks(&real));
    let names = |tasks: &[serde_json::Value]| {
        tasks.iter().map(|task| task["name"].to_string()).collect::<Vec<_>>()
    };
    assert_eq!(names(&model), names(&done));
    let sum = |tasks: &[serde_json::Value], of: &str| {
        tasks.iter().filter_map(|task| task[of].as_u64()).sum::<u64>()
    };
    // The same number of arrivals as in a simulation; jobs that stalls left undone appear in no
    // other column.
    assert_eq!(sum(&model, "arrived"), sum(&done, "arrived"));
    let completed = sum(&done, "completed");
    assert!(completed > 0 && completed <= sum(&model, "completed"));
    for (model, done) in model.iter().zip(&done) {
        // Not all jobs are faster than without scheduling costs. One may be, if its server was
        // stopped too late in the period before.
        assert!(
            done["response_max_ns"].as_u64() >= model["response_min_ns"].as_u64(),
            "{model} {done}"
        );
    }
    let read = |name: &str| std::fs::read(scratch.path().join(name)).expect(name);
    let text = |name: &str| String::from_utf8(read(name)).expect("text");
    assert_eq!(text("jobs.csv").lines().count() as u64, completed + 1);
    assert!(text("run.html").contains("system.toml, executed"));
    assert!(text("run.svg").contains(">control<"));
    assert!(!read("run.trace").is_empty());
}

#[test]
fn s17_l1_no_worker_runs_outside_of_orders_and_slots() {
    needs_root!();
    let _bench = Bench::new("cli_check");
    let scratch = Scratch::new();
    // Both partitions want more than their slots, and the CPU is idle between them.
    let slots = "\
duration = \"400ms\"
[[scheduler]]
name = \"cpu0\"
policy = \"partitions\"
frame = \"20ms\"
[[scheduler.slot]]
owner = \"one\"
length = \"7ms\"
[[scheduler.slot]]
owner = \"two\"
start = \"9ms\"
length = \"8ms\"
[[scheduler]]
name = \"one\"
in = \"cpu0\"
policy = \"edf\"
[[scheduler]]
name = \"two\"
in = \"cpu0\"
policy = \"fifo\"
[[task]]
name = \"a\"
in = \"one\"
period = \"100ms\"
cost = \"40ms\"
[[task]]
name = \"b\"
in = \"two\"
period = \"100ms\"
cost = \"45ms\"
";
    scratch.file("slots.toml", slots);
    scratch.file("system.toml", SYSTEM);
    for file in ["slots.toml", "system.toml"] {
        let ended = run(&scratch, &["execute", file, "--check", "--json"]);
        assert_eq!(ended.code, Some(0), "{}{}", ended.out, ended.err);
        let kernel = &json(&ended.out)["executions"][0]["kernel"];
        assert!(kernel["stays"].as_u64().is_some_and(|stays| stays > 20), "{kernel}");
        // In total less than a hundredth of the run.
        assert!(kernel["out_of_order_ns"].as_u64().is_some_and(|ns| ns < 4_000_000), "{kernel}");
    }
}

#[test]
fn l8_s19_an_object_adds_a_policy_to_a_simulation_a_run_and_its_replay() {
    needs_root!();
    let _bench = Bench::new("cli_object");
    let scratch = Scratch::new();
    let text = SYSTEM.replace("policy = \"fp\"", "policy = \"llf\"");
    scratch.file("system.toml", &text);
    let unknown = run(&scratch, &["simulate", "system.toml"]);
    assert_eq!(unknown.code, Some(2), "{}", unknown.out);
    assert!(unknown.err.contains("`llf`"), "{}", unknown.err);
    let repository = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let compiled = std::process::Command::new("cc")
        .args(["-O2", "-fPIC", "-shared", "-o", "llf.so"])
        .arg(format!("-I{repository}/crates/talea-object/include"))
        .arg(format!("{repository}/examples/c/objects/llf.c"))
        .current_dir(scratch.path())
        .status()
        .expect("a C compiler");
    assert!(compiled.success());
    let object = ["--object", "llf.so"];
    let run_with = |arguments: &[&str]| {
        let ended = run(&scratch, &[arguments, &object].concat());
        assert_eq!(ended.code, Some(0), "{}{}", ended.out, ended.err);
        ended
    };
    let completed = |out: &str| {
        let tasks = &json(out)["roots"][0]["tasks"];
        let tasks = tasks.as_array().expect("tasks").iter();
        tasks.map(|task| task["completed"].as_u64()).collect::<Vec<_>>()
    };
    let model = run_with(&["simulate", "system.toml", "--json"]);
    let real = run_with(&["execute", "system.toml", "--json", "--check", "--record", "run.txt"]);
    assert_eq!(completed(&real.out), completed(&model.out));
    let same = run_with(&["replay", "run.txt"]);
    assert!(same.out.contains("same: cpu0"), "{}", same.out);
    assert_eq!(run(&scratch, &["replay", "run.txt"]).code, Some(2), "without the object");
    // Root loads no object that another user can change.
    let all_users = std::os::unix::fs::PermissionsExt::from_mode(0o666);
    std::fs::set_permissions(scratch.path().join("llf.so"), all_users).expect("our file");
    let refused = run(&scratch, &[&["execute", "system.toml"][..], &object].concat());
    assert_eq!(refused.code, Some(2), "{}", refused.out);
    assert!(refused.err.contains("no other user can change"), "{}", refused.err);
}

#[test]
fn s3_a_recorded_run_is_replayed_and_a_swapped_order_is_caught() {
    needs_root!();
    let _bench = Bench::new("cli_replay");
    let scratch = Scratch::new();
    // Two files: the recording contains both.
    let (above, below) = SYSTEM.split_once("[[task]]").expect("tasks");
    scratch.file("tasks.toml", &format!("[[task]]{below}"));
    scratch.file("system.toml", &format!("include = [\"tasks.toml\"]\n{above}"));
    let ended = run(&scratch, &["execute", "system.toml", "--record", "run.txt"]);
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    std::fs::remove_file(scratch.path().join("tasks.toml")).expect("it was there");
    let same = run(&scratch, &["replay", "run.txt"]);
    assert_eq!(same.code, Some(0), "{}{}", same.out, same.err);
    assert!(same.out.contains("same: cpu0"), "{}", same.out);
    let text = std::fs::read_to_string(scratch.path().join("run.txt")).expect("the recording");
    // SF3P's four invariants, at each instant at which the engine had no more orders.
    let root = &json(&run(&scratch, &["replay", "run.txt", "--json"]).out)["roots"][0];
    let settled = text.lines().filter(|line| line.ends_with(" polled")).count();
    assert!(settled > 100, "{settled} times");
    assert_eq!((&root["audits"], &root["violation"]), (&settled.into(), &serde_json::Value::Null));
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    // Two orders for different tasks are swapped and keep their times.
    let orders: Vec<usize> = (0..lines.len()).filter(|&at| lines[at].contains(" run 0 ")).collect();
    let pair = orders.windows(2).find(|pair| {
        let task = |at: usize| lines[at].split(' ').nth(3).map(str::to_owned);
        task(pair[0]) != task(pair[1])
    });
    let (a, b) = pair.map(|pair| (pair[0], pair[1])).expect("two tasks take turns");
    let order = |line: &str| line.split_once(' ').expect("a time").1.to_owned();
    let (first, second) = (order(&lines[a]), order(&lines[b]));
    for (at, order) in [(a, second), (b, first)] {
        let time = lines[at].split(' ').next().expect("a time").to_owned();
        lines[at] = format!("{time} {order}");
    }
    scratch.file("swapped.txt", &(lines.join("\n") + "\n"));
    let caught = run(&scratch, &["replay", "swapped.txt"]);
    assert_eq!(caught.code, Some(1), "{}", caught.out);
    assert!(
        caught.out.contains("differs: cpu0") && caught.out.contains("replayed: CPU 0 runs"),
        "{}",
        caught.out
    );
    assert_eq!(json(&run(&scratch, &["replay", "swapped.txt", "--json"]).out)["same"], false);
    scratch.file("cut.txt", "talea-recording 1\nseed x\n");
    let malformed = run(&scratch, &["replay", "cut.txt"]);
    assert_eq!(malformed.code, Some(2));
    assert!(malformed.err.contains("line 2"), "{}", malformed.err);
}

#[test]
fn a_system_that_cannot_run_here_is_refused_with_the_reason() {
    let scratch = Scratch::new();
    let two = SYSTEM.replace("policy = \"fp\"", "policy = \"fp\"\ncpus = 2");
    scratch.file("two.toml", &two);
    let few = run(&scratch, &["execute", "two.toml", "--cpus", "0"]);
    assert_eq!(few.code, Some(3), "{}", few.err);
    assert!(
        few.err.contains("describes 2 CPUs") && few.err.contains("talea simulate"),
        "{}",
        few.err
    );
    let none = run(&scratch, &["execute", "two.toml", "--cpus", "1000,1001"]);
    assert_eq!(none.code, Some(3));
    assert!(none.err.contains("CPU 1000-1001"), "{}", none.err);
    let wrong = run(&scratch, &["execute", "nowhere.toml"]);
    assert_eq!((wrong.code, wrong.out.as_str()), (Some(2), ""), "{}", wrong.err);
}

#[test]
fn without_rights_it_names_the_remedy_and_runs_only_with_best_effort() {
    needs_root!();
    let limits = std::fs::read_to_string("/proc/self/limits").expect("our limits");
    let rtprio =
        limits.lines().find(|line| line.starts_with("Max realtime priority")).unwrap_or_default();
    needs!("no real-time priorities for users", rtprio.split_whitespace().nth(3) == Some("0"));
    let bench = Bench::new("cli_rights");
    let scratch = Scratch::new();
    // In a folder where all users may execute the program and read the file.
    let program = bench.path("talea");
    talea_kernel_tests::bench::copy(env!("CARGO_BIN_EXE_talea"), &program);
    let file = bench.write("system.toml", SYSTEM);
    let alice = |arguments: &[&str]| {
        let mut command = std::process::Command::new(&program);
        command.env("NO_COLOR", "1").stdin(Stdio::null()).arg("execute").arg(&file).args(arguments);
        crate::harness::finish(command.uid(ALICE).gid(ALICE).current_dir("/"))
    };
    let refused = alice(&[]);
    assert_eq!((refused.code, refused.out.as_str()), (Some(3), ""), "{}", refused.err);
    for word in ["CAP_SYS_NICE", "talea simulate", "--best-effort"] {
        assert!(refused.err.contains(word), "{word}: {}", refused.err);
    }
    let report = alice(&["--best-effort"]);
    assert_eq!(report.code, Some(0), "{}", report.err);
    assert!(
        report.out.contains("cpu0 (best effort)") && report.out.contains("guarantee nothing"),
        "{}",
        report.out
    );
    assert!(report.out.contains("mechanism signal"), "{}", report.out);
    let (folder, page) = (bench.path("alice"), bench.path("alice/run.html"));
    std::fs::create_dir(&folder).expect("a folder");
    std::os::unix::fs::chown(&folder, Some(ALICE), Some(ALICE)).expect("for her");
    let page_name = page.to_str().expect("UTF-8");
    let answer = json(&alice(&["--best-effort", "--json", "--html", page_name]).out);
    assert_eq!(answer["real_time"], false);
    assert!(
        std::fs::read_to_string(&page)
            .expect("a page")
            .contains("best effort: without real-time priorities")
    );
    drop(scratch);
}

#[test]
fn l1_five_hundred_frames_neither_overlap_nor_drift() {
    needs_root!();
    let _bench = Bench::new("cli_frames");
    let scratch = Scratch::new();
    let mut text =
        "duration = \"2s\"\n[[scheduler]]\nname = \"cpu0\"\npolicy = \"partitions\"\nframe = \"4ms\"\n"
            .to_owned();
    text.push_str("[[scheduler.slot]]\nowner = \"a\"\nlength = \"1800us\"\n");
    text.push_str("[[scheduler.slot]]\nowner = \"b\"\nstart = \"2ms\"\nlength = \"1800us\"\n");
    for part in ["a", "b"] {
        let _ = write!(
            text,
            "[[scheduler]]\nname = \"{part}\"\nin = \"cpu0\"\npolicy = \"fifo\"\n[[task]]\nname = \"{part}-busy\"\n\
             in = \"{part}\"\nperiod = \"4s\"\ncost = \"3s\"\n"
        );
    }
    scratch.file("frames.toml", &text);
    let ended =
        run(&scratch, &["execute", "frames.toml", "--check", "--json", "--record", "run.txt"]);
    assert_eq!(
        ended.code,
        Some(0),
        "no worker ran in another slot for longer than the detection limit: {}",
        ended.out
    );
    let answer = json(&ended.out);
    let kernel = &answer["executions"][0]["kernel"];
    assert!(kernel["stays"].as_u64().is_some_and(|stays| stays >= 900), "{kernel}");
    // On average 200 µs per switch or less.
    assert!(kernel["out_of_order_ns"].as_u64().is_some_and(|ns| ns < 1_000 * 200_000), "{kernel}");
    // The ordered starts of the slots: each at its nominal time, in the last frames as in the
    // first.
    let recording = std::fs::read_to_string(scratch.path().join("run.txt")).expect("a recording");
    let late: Vec<u64> = recording
        .lines()
        .filter_map(|line| line.split_once(" run 0 0 ")?.0.parse::<u64>().ok())
        .map(|at| at % 4_000_000)
        .collect();
    assert!(late.len() >= 450, "{} frames", late.len());
    let median = |part: &[u64]| {
        let mut part = part.to_vec();
        part.sort_unstable();
        part[part.len() / 2]
    };
    let (first, last) = (median(&late[..100]), median(&late[late.len() - 100..]));
    assert!(first < 1_000_000 && last < 1_000_000, "from {first} to {last} ns late");
}

#[test]
fn s23_a_run_that_is_killed_anywhere_leaves_nothing_behind() {
    needs_root!();
    let _bench = Bench::new("cli_killed");
    let scratch = Scratch::new();
    scratch.file("system.toml", SYSTEM);
    for number in 0..12 {
        let mut child = talea(&scratch)
            .args(["execute", "system.toml", "--duration", "60s", "--check"])
            .stdout(Stdio::null())
            .spawn()
            .expect("talea");
        // From its first instruction into the run.
        std::thread::sleep(Duration::from_millis(number * 4));
        child.kill().expect("it is there");
        assert!(!child.wait().expect("it ends").success());
        assert!(!std::path::Path::new(&format!("/proc/{}", child.id())).exists());
    }
    // The next run works as the first one.
    let ended = run(&scratch, &["execute", "system.toml", "--check"]);
    assert_eq!(ended.code, Some(0), "{}{}", ended.out, ended.err);
}

#[test]
fn an_interrupted_run_ends_at_once_with_a_report() {
    needs_root!();
    let _bench = Bench::new("cli_interrupted");
    let scratch = Scratch::new();
    scratch.file("system.toml", SYSTEM);
    for signal in [rustix::process::Signal::INT, rustix::process::Signal::TERM] {
        let child = talea(&scratch)
            .args(["execute", "system.toml", "--duration", "60s", "--json"])
            .stdout(Stdio::piped())
            .spawn()
            .expect("talea");
        let pid = rustix::process::Pid::from_child(&child);
        under_way(child.id(), Duration::from_millis(1));
        let asked = Instant::now();
        rustix::process::kill_process(pid, signal).expect("it is there");
        let ended = child.wait_with_output().expect("it ends");
        assert!(asked.elapsed() < Duration::from_secs(20), "long before its time");
        assert_eq!(ended.status.code(), Some(1));
        let answer = json(&String::from_utf8(ended.stdout).expect("text"));
        assert_eq!(answer["interrupted"], true);
        assert!(answer["duration_ns"].as_u64().is_some_and(|ns| ns < 30_000_000_000), "{answer}");
    }
}
