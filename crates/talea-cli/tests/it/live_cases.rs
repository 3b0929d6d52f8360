//! Cases of practitioners (`tests/cases`): scripts, and programs below the executor.
//!
//! The name of a test begins with the name of its file.

use crate::cases::case;
use crate::harness::{Ended, finish, json};
use crate::live::Talea;
use serde_json::Value;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use talea_kernel_tests::{Bench, Runs, config, kernel, needs, needs_root};

fn has_two_cpus() -> bool {
    kernel::cpus().len() >= 2
}

/// Runs a script in which `talea` has a broker of its own.
fn script(bench: &Bench, name: &str) -> Ended {
    let talea = Talea::alone(bench, config::PLUGINS);
    let inner = talea.command(&[]);
    let words: Vec<_> = inner.get_args().map(|word| word.to_str().expect("UTF-8")).collect();
    let [_, configuration] = words[..] else { panic!("{words:?}") };
    let folder = bench.path("bin");
    std::fs::create_dir(&folder).expect("a folder");
    let wrapper = folder.join("talea");
    // Some scripts name the configuration themselves.
    let text = format!(
        "#!/bin/sh\ncase \" $* \" in *\" --config \"*) exec {0} \"$@\";; esac\n\
         exec {0} --config \"$CONF\" \"$@\"\n",
        inner.get_program().display()
    );
    std::fs::write(&wrapper, text).expect("a script");
    std::fs::set_permissions(&wrapper, PermissionsExt::from_mode(0o755)).expect("its mode");
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").expect("a path"));
    let mut command = Command::new("timeout");
    command.args(["60", "sh", &case(name)]).env("PATH", path).env("CONF", configuration);
    finish(command.env("NO_COLOR", "1").env("LC_ALL", "C").current_dir(bench.path("")))
}

#[test]
fn ended_grant_still_charged_sh_grants_each_of_four_runs() {
    needs_root!();
    let bench = Bench::new("case_ended");
    let ended = script(&bench, "reports/ended-grant-still-charged.sh");
    assert_eq!(ended.out, "0\n0\n0\n0\n", "{}", ended.err);
}

#[test]
fn cpuset_other_cpu_sh_is_served_on_the_cpu_of_its_cpuset() {
    needs_root!();
    needs!("two CPUs", has_two_cpus());
    let root = std::path::Path::new("/sys/fs/cgroup/cpuset");
    needs!("cpusets of version 1", root.join("cpuset.cpus").exists());
    let bench = Bench::new("case_cpuset");
    let ended = script(&bench, "reports/cpuset-other-cpu.sh");
    assert_eq!(ended.out, "0\n", "{}", ended.err);
}

#[test]
fn affinity_overridden_sh_keeps_the_affinity_of_the_user() {
    needs_root!();
    needs!("two CPUs", has_two_cpus());
    let bench = Bench::new("case_affinity");
    let ended = script(&bench, "reports/affinity-overridden.sh");
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    assert!(ended.out.trim().ends_with("mask: 2"), "{}", ended.out);
}

#[test]
fn explain_foreign_deadline_sh_explains_the_answer_of_run() {
    needs_root!();
    needs!("two CPUs", kernel::cpus().len() == 2);
    let bench = Bench::new("case_foreign");
    let ended = script(&bench, "reports/explain-foreign-deadline.sh");
    for said in [&ended.out, &ended.err] {
        assert!(
            said.contains("beside deadline threads without a grant"),
            "{}{}",
            ended.out,
            ended.err
        );
    }
    assert!(ended.out.ends_with("\n125\n"), "{}", ended.out);
}

#[test]
fn rttime_run_sh_is_refused_with_the_limit_that_would_kill() {
    needs_root!();
    let bench = Bench::new("case_rttime");
    let ended = script(&bench, "reports/rttime-run.sh");
    assert_eq!(ended.out, "125\n", "{}", ended.err);
    assert!(ended.err.contains("RLIMIT_RTTIME"), "{}", ended.err);
}

/// Compiles the programs of a system file, and executes the file beside them. `change` leaves
/// ordinary threads a part of the CPU. Repeats the run until stalls took at most a hundredth of it,
/// or, after three runs, a twentieth.
/// Returns the report, and the log of the program `sporadic`.
fn executed(
    bench: &Bench,
    name: &str,
    programs: &[&str],
    change: impl Fn(&str) -> String,
) -> (Value, String) {
    for program in programs {
        let mut cc = Command::new("cc");
        cc.args(["-O2", "-w", "-o"]).arg(bench.path(program));
        let ended = finish(cc.arg(case(&format!("programs/{program}.c"))));
        assert_eq!(ended.code, Some(0), "{}", ended.err);
    }
    // A program that waits for its disk leaves the CPU to a stopped one.
    let logs =
        ["pop.log", "hog.log", "high.log", "control.log"].map(|log| InMemory::of(bench, log));
    let talea = Talea::alone(bench, config::PLUGINS);
    let text = std::fs::read_to_string(case(&format!("programs/{name}"))).expect("the case");
    let file = talea.write(name, &change(&text));
    let mut tries = 0;
    let run = || {
        let ended = talea.run(&["execute", file.to_str().expect("UTF-8"), "--json"]);
        assert_eq!(ended.code, Some(0), "{}{}", ended.out, ended.err);
        let answer = json(&ended.out);
        tries += 1;
        let part = if tries > 3 { 20 } else { 100 };
        println!("stalled for {} ns", stalled(&answer));
        (stalled(&answer) * part <= ns(&answer["duration_ns"])).then_some(answer)
    };
    let answer = Runs::at_least(1).repeat(run).expect("one conclusive run");
    let read = |log: &InMemory| std::fs::read_to_string(&log.0).unwrap_or_default();
    (answer, read(&logs[2]))
}

/// File in memory to which a link in the folder of the test points.
struct InMemory(std::path::PathBuf);

impl InMemory {
    fn of(bench: &Bench, name: &str) -> InMemory {
        let file = std::path::Path::new("/dev/shm").join(format!("{}-{name}", std::process::id()));
        std::os::unix::fs::symlink(&file, bench.path(name)).expect("a link");
        InMemory(file)
    }
}

impl Drop for InMemory {
    fn drop(&mut self) {
        // A program that was not started has written no file.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Returns the time in stalls.
fn stalled(answer: &Value) -> u64 {
    let length = |stall: &Value| ns(&stall["to_ns"]) - ns(&stall["from_ns"]);
    answer["stalls"].as_array().expect("stalls").iter().map(length).sum()
}

fn ns(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no time"))
}

fn programs(answer: &Value) -> &Vec<Value> {
    answer["executions"][0]["programs"].as_array().expect("programs")
}

fn is_possible() -> bool {
    has_two_cpus() && talea_os::cgroup::mount_point().is_some()
}

#[test]
fn popres_toml_keeps_a_program_in_a_long_system_call_to_its_budget() {
    needs_root!();
    needs!("two CPUs and cgroup v2", is_possible());
    let bench = Bench::new("case_popres");
    let (answer, _) = executed(&bench, "popres.toml", &["populate"], str::to_owned);
    let program = &programs(&answer)[0];
    println!("{program}");
    assert!(program["isolation_failed"].is_null(), "{program}");
    // Without real-time control groups, it keeps an idle CPU until the end of its system call.
    let is_limited =
        program["isolation"].as_str().is_some_and(|of| of.contains("real-time control group"));
    let idle = if is_limited { 0 } else { ns(&program["stopped_idle_ns"]) };
    let charged = ns(&program["used_ns"]) - idle;
    let permille = charged * 1_000 / ns(&answer["duration_ns"]);
    assert!(permille <= 26, "{permille} ‰: {program}");
    let tasks = answer["roots"][0]["tasks"].as_array().expect("tasks");
    let a = tasks.iter().find(|task| task["name"] == "A").expect("a task");
    assert!(a["late"] == 0 && a["completed"].as_u64() > Some(140), "{a}");
}

#[test]
fn pop_toml_gives_each_of_two_partitions_its_slots() {
    needs_root!();
    needs!("two CPUs and cgroup v2", is_possible());
    let bench = Bench::new("case_pop");
    // A tenth of the frame has no owner.
    let pause = |text: &str| text.replace("frame = \"40ms\"", "frame = \"44ms\"");
    let (answer, _) = executed(&bench, "pop.toml", &["populate", "hog"], pause);
    let [kernelish, control] = &programs(&answer)[..] else { panic!("{answer}") };
    println!("{kernelish} {control}");
    assert!(kernelish["isolation_failed"].is_null(), "{kernelish}");
    let own = ns(&control["used_ns"]) + stalled(&answer);
    let share = own * 1_000 / ns(&answer["duration_ns"]);
    assert!((410..=500).contains(&share), "{share} of 454 ‰: {control}");
    let ordered = ns(&kernelish["used_ns"]) - ns(&kernelish["stopped_idle_ns"]);
    let share = ordered * 1_000 / ns(&answer["duration_ns"]);
    assert!(share <= 500, "{share} of 454 ‰: {kernelish}");
}

#[test]
fn a_toml_lets_the_urgent_program_preempt_the_busy_one() {
    needs_root!();
    needs!("two CPUs and cgroup v2", is_possible());
    let bench = Bench::new("case_a");
    // The busy program has nine tenths of the CPU.
    let server = "\n[[scheduler]]\nname = \"rest\"\nin = \"cpu0\"\nserver = \"deferrable\"\n\
                  priority = 10\nbudget = \"18ms\"\nperiod = \"20ms\"\n";
    let change = |text: &str| {
        let text = text.replace("in = \"cpu0\"\npriority = 10\n", "in = \"rest\"\n");
        text.replacen("\n[[task]]", &format!("{server}[[task]]"), 1)
    };
    let (answer, log) = executed(&bench, "a.toml", &["sporadic", "hog"], change);
    // By the clock of the program itself: its response to each of its wake-ups.
    let response = |line: &str| line.split_once(' ').expect("two numbers").1.parse().expect("one");
    let mut found: Vec<u64> = log.lines().map(response).collect();
    found.sort_unstable();
    let (jobs, median) = (found.len(), found[found.len() / 2]);
    let worst = found[jobs * 9 / 10];
    println!("{jobs} jobs, median {median} ns, nine tenths up to {worst} ns");
    // It computes for 500 µs in each 53 ms. Behind the busy program it would respond after 18 ms.
    assert!(jobs >= 80, "{jobs} jobs");
    assert!(median < 3 * 500_000 && worst < 53_000_000 / 10, "median {median}, {worst}");
    assert!(programs(&answer).iter().all(|program| program["isolation_failed"].is_null()));
}
