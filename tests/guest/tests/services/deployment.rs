//! A deployment with time partitions under the shipped unit.

use crate::scene::{Scene, done, eventually, journal, property, run, signal, systemctl};
use rustix::process::Signal;
use std::path::Path;
use std::process::Command;

const UNIT: &str = "talea-deploy.service";
const FILE: &str = "/etc/talea/partitions.toml";
const SYSTEM: &str = r#"
[[scheduler]]
name = "cpu"
policy = "partitions"
frame = "100ms"
[[scheduler.slot]]
owner = "one"
length = "40ms"
[[scheduler.slot]]
owner = "two"
length = "40ms"
[[scheduler.slot]]
owner = "rest"
length = "20ms"
[[scheduler]]
name = "one"
in = "cpu"
policy = "fp"
[[scheduler]]
name = "two"
in = "cpu"
policy = "fp"
[[scheduler]]
name = "rest"
in = "cpu"
policy = "fp"
[[task]]
name = "first"
in = "one"
program = ["/init", "sleep"]
user = "talea"
period = "100ms"
cost = "10ms"
[[task]]
name = "second"
in = "two"
program = ["/init", "sleep"]
user = "messagebus"
period = "100ms"
cost = "10ms"
"#;

fn deploy(words: &[&str]) -> String {
    let ended = run(Command::new("talea").arg("deploy").args(words));
    assert_eq!(ended.code, Some(0), "{words:?}: {}{}\n{}", ended.out, ended.err, unit_journal());
    ended.out
}

fn unit_journal() -> String {
    done(Command::new("journalctl").args(["--no-pager", "--output=cat", "--unit", UNIT]))
}

/// Returns the processes of the governor and of both programs, when all run.
fn pids() -> Vec<u64> {
    eventually("all run", || {
        let ended = run(Command::new("talea").args(["deploy", "status", "--json"]));
        // No daemon serves between two.
        let text = (ended.code != Some(5)).then_some(ended.out)?;
        let status: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        let tasks = status["tasks"].as_array().expect("a list");
        let of = |task: &serde_json::Value| {
            (task["condition"] == "running").then(|| task["pid"].as_u64()).flatten()
        };
        let pids: Vec<u64> = tasks.iter().filter_map(of).collect();
        // A program that is frozen before its first instruction has the file of the daemon.
        let has_begun = |pid: &u64| {
            let file = std::fs::read_link(format!("/proc/{pid}/exe"));
            file.is_ok_and(|file| !file.ends_with("talea-deployd"))
        };
        (pids.len() == 3 && pids.iter().all(has_begun)).then_some(pids)
    })
}

#[test]
fn d23_d24_partitions_stay_in_force_over_reload_restart_and_kill_of_the_unit() {
    let _scene = Scene::new("");
    std::fs::write(FILE, SYSTEM).expect("root");
    systemctl(&["start", UNIT]);
    let last = std::thread::available_parallelism().expect("CPUs").get() - 1;
    deploy(&["apply", FILE, "--cpus", &last.to_string()]);
    let before = pids();
    let top = Path::new("/sys/fs/cgroup/system.slice").join(UNIT).join("talea-deploy");
    for pid in &before {
        let text = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).expect("it runs");
        assert!(text.contains(&format!("{UNIT}/talea-deploy/")), "{text}");
    }
    systemctl(&["daemon-reload"]);
    assert_eq!(pids(), before);
    systemctl(&["restart", UNIT]);
    assert_eq!(pids(), before, "{}", unit_journal());
    systemctl(&["set-property", "--runtime", UNIT, "CPUWeight=50"]);
    assert_eq!(pids(), before, "{}", unit_journal());
    let daemon = || property(UNIT, "MainPID").parse::<i32>().expect("a number");
    let killed = daemon();
    signal(killed, Signal::KILL);
    eventually("another daemon", || (![0, killed].contains(&daemon())).then_some(()));
    assert_eq!(pids(), before, "{}", unit_journal());
    deploy(&["remove"]);
    eventually("no program and no group is left", || {
        let is_gone = |pid: &u64| !Path::new(&format!("/proc/{pid}")).exists();
        (before.iter().all(is_gone) && !top.exists()).then_some(())
    });
    systemctl(&["stop", UNIT]);
    assert!(!journal().contains("core-dump"), "{}", journal());
}
