//! `talea deploy`: verdicts, actions, what a computer cannot give; that a plan changes nothing; and
//! the other verbs against a real daemon.

use crate::harness::{Ended, Scratch, finish, json, run, talea};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use talea_core::CpuSet;
use talea_kernel_tests::deployd::Deployd;
use talea_kernel_tests::{Bench, Daemon, Runs, config, kernel, needs, needs_root};
use talea_os::sched::{self, Attr};
use talea_os::{Tid, proc};

/// Two programs that fit on one CPU, which Linux alone can schedule.
const SYSTEM: &str = "\
duration = \"1s\"

[[scheduler]]
name = \"cpu0\"
policy = \"fp\"

[[task]]
name = \"control\"
program = [\"sleep\", \"1000\"]
user = \"daemon\"
period = \"10ms\"
cost = \"2ms\"
priority = 20
ready = \"1s\"

[[task]]
name = \"logger\"
program = [\"sleep\", \"1000\"]
user = \"daemon\"
period = \"100ms\"
cost = \"10ms\"
priority = 10
on_failure = \"idle\"
";

/// Plans a text. Root plans only files that no other user can change.
fn plan(scratch: &Scratch, text: &str, options: &[&str]) -> Ended {
    scratch.file("system.toml", text);
    finish(talea(scratch).args(["deploy", "plan", "system.toml"]).args(options))
}

fn texts<'v>(value: &'v Value, list: &str, key: &str) -> Vec<&'v str> {
    let list = value[list].as_array().unwrap_or_else(|| panic!("{value}"));
    list.iter().map(|item| item[key].as_str().unwrap_or_default()).collect()
}

#[test]
fn d13_a_system_that_fits_has_bounds_and_a_list_of_actions() {
    let scratch = Scratch::new();
    let ended = plan(&scratch, SYSTEM, &["--json"]);
    assert_eq!(ended.code, Some(0), "{}{}", ended.out, ended.err);
    let report = json(&ended.out);
    assert_eq!(report["outcome"], "fits");
    assert_eq!(report["in_force"], Value::Null);
    assert_eq!(report["difference"]["new"], serde_json::json!(["control", "logger"]));
    assert_eq!(report["missing"], serde_json::json!([]));
    let root = &report["analysis"]["roots"][0];
    assert_eq!(texts(root, "tasks", "verdict"), ["proved", "proved"]);
    assert_eq!(root["tasks"][1]["bound_ns"], 14_000_000);
    assert_eq!(
        texts(&report, "actions", "action"),
        [
            "create-group",
            "start-program",
            "set-attributes",
            "create-group",
            "start-program",
            "set-attributes"
        ]
    );
    let actions = &report["actions"];
    assert_eq!(actions[1]["program"], serde_json::json!(["sleep", "1000"]));
    assert_eq!(
        (&actions[1]["user"], &actions[1]["ready_ns"]),
        (&"daemon".into(), &1_000_000_000_u64.into())
    );
    assert_eq!(
        (&actions[2]["policy"], &actions[5]["policy"]),
        (&"SCHED_FIFO 93".into(), &"SCHED_FIFO 92".into())
    );
    assert_eq!(actions[4]["on_failure"], "leaves it idle");
    // The text has the same, and the analysis is that of `talea analyze`.
    let text = plan(&scratch, SYSTEM, &[]);
    let analyzed = run(&scratch, &["analyze", "system.toml"]);
    assert_eq!((text.code, analyzed.code), (Some(0), Some(0)));
    assert!(text.out.contains(&analyzed.out), "{}\n{}", text.out, analyzed.out);
    for part in
        ["no generation is in force", "fits: every deadline is proved", "nothing was changed"]
    {
        assert!(text.out.contains(part), "{part}: {}", text.out);
    }
}

#[test]
fn d13_a_system_that_does_not_fit_ends_with_1_and_its_witness_runs() {
    let scratch = Scratch::new();
    let late = SYSTEM.replace("cost = \"10ms\"", "cost = \"81ms\"");
    for options in [&["--json"][..], &["--json", "--unproved"]] {
        let options = [options, &["--witness", "late.txt"]].concat();
        let ended = plan(&scratch, &late, &options);
        assert_eq!(ended.code, Some(1), "{}{}", ended.out, ended.err);
        let report = json(&ended.out);
        assert_eq!(report["outcome"], "does-not-fit");
        assert!(!report["analysis"]["roots"][0]["tasks"][1]["witness"].is_null());
        let replayed = run(&scratch, &["simulate", "system.toml", "--witness", "late.txt"]);
        assert_eq!(replayed.code, Some(0), "{}{}", replayed.out, replayed.err);
        std::fs::remove_file(scratch.path().join("late.txt")).expect("it was written");
    }
    // Without a late job there is no witness.
    let fits = plan(&scratch, SYSTEM, &["--witness", "late.txt"]);
    assert_eq!(fits.code, Some(0));
    assert!(fits.err.contains("is not written"), "{}", fits.err);
}

/// Returns a system whose test is only sufficient: no late job is known, and none is excluded.
fn doubtful() -> String {
    SYSTEM
        .replace("priority = 10\n", "in = \"net\"\ndeadline = \"25ms\"\n")
        .replace("cost = \"10ms\"", "cost = \"1.5ms\"")
        .replace("priority = 20\n", "in = \"cpu0\"\npriority = 20\n")
        .replace("period = \"100ms\"", "period = \"50ms\"")
        + "
[[scheduler]]
name = \"net\"
in = \"cpu0\"
server = \"deferrable\"
priority = 10
budget = \"2ms\"
period = \"20ms\"

[[task]]
name = \"video\"
in = \"cpu0\"
program = [\"sleep\", \"1000\"]
user = \"daemon\"
period = \"20ms\"
cost = { min = \"1ms\", max = \"6ms\" }
priority = 15
"
}

#[test]
fn d13_what_is_not_proved_is_refused_unless_it_is_admitted() {
    let scratch = Scratch::new();
    for (options, code, outcome) in
        [(&["--json"][..], 3, "not-proved"), (&["--json", "--unproved"], 0, "unproved")]
    {
        let ended = plan(&scratch, &doubtful(), options);
        assert_eq!(ended.code, Some(code), "{}{}", ended.out, ended.err);
        let report = json(&ended.out);
        assert_eq!(report["outcome"], outcome);
        assert_eq!(report["analysis"]["proved"], false);
        // A server needs a governor, which freezes and thaws.
        assert_eq!(report["roots"][0]["mechanism"], "freeze");
        let actions = texts(&report, "actions", "action");
        assert!(actions.contains(&"start-governor"));
    }
}

#[test]
fn d14_what_the_computer_cannot_give_is_refused_with_a_remedy() {
    let scratch = Scratch::new();
    let relative = SYSTEM.replacen("[\"sleep\"", "[\"bin/sleep\"", 1);
    let absent = SYSTEM.replacen("[\"sleep\"", "[\"/no/such/file\"", 1);
    let unnamed = SYSTEM.replacen("user = \"daemon\"\n", "", 1);
    let unknown = SYSTEM.replacen("\"daemon\"", "\"no-such-user\"", 1);
    let unplayed = SYSTEM
        .replacen("program = [\"sleep\", \"1000\"]\nuser = \"daemon\"\n", "", 1)
        .replacen("ready = \"1s\"\n", "", 1);
    let greedy = SYSTEM
        .replacen("cost = \"2ms\"", "cost = \"9ms\"", 1)
        .replace("cost = \"10ms\"", "cost = \"9ms\"");
    let logical =
        SYSTEM.replacen("cost = \"2ms\"", "cost = \"2ms\"\nlogical_execution_time = true", 1);
    let short = doubtful()
        .replace("budget = \"2ms\"", "budget = \"3us\"")
        .replace("cost = \"1.5ms\"", "cost = \"2us\"");
    let wide = SYSTEM.replacen("policy = \"fp\"", "policy = \"fp\"\ncpus = 64", 1);
    for (text, of, why) in [
        (&relative, "control", "relative to a folder"),
        (&absent, "control", "/no/such/file"),
        (&unnamed, "control", "no user is named"),
        (&unknown, "control", "there is no account no-such-user"),
        (&unplayed, "control", "no program plays the task"),
        (&greedy, "cpu0", "real-time threads"),
        (&wide, "cpu0", "one CPU"),
        (&short, "cpu0", "too short to be enforced"),
        (&logical, "control", "logical_execution_time"),
    ] {
        let ended = plan(&scratch, text, &["--json", "--unproved"]);
        assert_eq!(ended.code, Some(3), "{why}: {}{}", ended.out, ended.err);
        let report = json(&ended.out);
        assert_eq!(report["outcome"], "cannot-be-given", "{why}");
        let missing = report["missing"].as_array().expect("a list");
        let found = missing.iter().find(|one| {
            one["of"] == of && one["why"].as_str().is_some_and(|text| text.contains(why))
        });
        let found = found.unwrap_or_else(|| panic!("{why}: {missing:?}"));
        assert_ne!(found["remedy"], "");
    }
    let ended = plan(&scratch, SYSTEM, &["--cpus", "1023"]);
    assert_eq!(ended.code, Some(3), "{}", ended.out);
    assert!(ended.out.contains("CPU 1023 is not available"), "{}", ended.out);
}

#[test]
fn d14_an_invalid_file_is_exit_code_2_with_its_place() {
    let scratch = Scratch::new();
    let ended = plan(&scratch, &SYSTEM.replace("\"idle\"", "\"idel\""), &[]);
    assert_eq!((ended.code, ended.out.as_str()), (Some(2), ""));
    assert!(ended.err.contains("did you mean \"idle\"?"), "{}", ended.err);
}

/// Attributes of the threads, and the control groups with their states, of the whole computer.
#[derive(Debug, PartialEq)]
struct Machine {
    /// `threads[tid, start]`: process, and attributes with CPUs and control groups.
    threads: BTreeMap<(i32, u64), (i32, Attr, CpuSet, String)>,
    /// Settings of each control group, with the names of their files.
    groups: BTreeMap<PathBuf, String>,
}

impl Machine {
    fn read() -> Machine {
        let mut machine = Machine { threads: BTreeMap::new(), groups: BTreeMap::new() };
        for entry in std::fs::read_dir("/proc").expect("/proc").flatten() {
            let name = entry.file_name();
            let Some(pid) = name.to_str().and_then(|name| name.parse().ok()).and_then(Tid::new)
            else {
                continue;
            };
            for tid in proc::threads_of(pid).unwrap_or_default() {
                let groups = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/cgroup"));
                if let (Ok(stat), Ok(attr), Ok(cpus), Ok(groups)) =
                    (proc::stat_of(pid, tid), sched::get(tid), sched::get_affinity(tid), groups)
                {
                    let key = (tid.as_raw(), stat.start_ticks);
                    machine.threads.insert(key, (pid.as_raw(), attr, cpus, groups));
                }
            }
        }
        groups(Path::new("/sys/fs/cgroup"), &mut machine.groups);
        machine
    }

    /// Returns the process of a thread that differs in `other`, and the paths of other groups.
    fn differences(&self, other: &Machine) -> (Vec<i32>, Vec<PathBuf>) {
        let threads = self.threads.iter().filter_map(|(key, before)| {
            let now = other.threads.get(key)?;
            (now != before).then_some(before.0)
        });
        let all: std::collections::BTreeSet<_> =
            self.groups.keys().chain(other.groups.keys()).collect();
        let groups =
            all.into_iter().filter(|path| self.groups.get(*path) != other.groups.get(*path));
        (threads.collect(), groups.cloned().collect())
    }
}

/// Parts of the names of files that change by themselves: members, statistics and pressure.
const CHANGING: [&str; 5] = [".procs", ".threads", ".stat", ".events", ".pressure"];

/// Adds the control groups below a folder, with all settings of their CPUs, byte for byte.
fn groups(folder: &Path, found: &mut BTreeMap<PathBuf, String>) {
    let mut settings = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let Ok(name) = entry.file_name().into_string() else { continue };
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            groups(&entry.path(), found);
        } else if ["cgroup.", "cpu.", "cpuset."].iter().any(|begin| name.starts_with(begin))
            && !CHANGING.iter().any(|part| name.contains(part))
        {
            let text = std::fs::read_to_string(entry.path()).unwrap_or_default();
            settings.push(format!("{name}: {text}"));
        }
    }
    settings.sort();
    found.insert(folder.to_owned(), settings.concat());
}

/// Program of the file that runs already, as after an earlier deployment.
struct Running(Child);

impl Running {
    fn start() -> Running {
        let mut command = Command::new("sleep");
        Running(command.arg("1000").stdin(Stdio::null()).spawn().expect("sleep starts"))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // A program that has exited is no reason to fail a test.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn d15_a_plan_changes_no_thread_and_no_control_group() {
    needs_root!();
    // No other test of the machine changes threads meanwhile.
    let _machine = Bench::new("deploy_changes_nothing");
    let scratch = Scratch::new();
    let running = Running::start();
    let own = running.0.id() as i32;
    let late = SYSTEM.replace("cost = \"10ms\"", "cost = \"81ms\"");
    let mut runs = Runs::at_least(3);
    for (text, code) in [(SYSTEM, 0), (late.as_str(), 1), (&doubtful(), 3)] {
        runs.repeat(|| {
            let before = Machine::read();
            let ended = plan(&scratch, text, &[]);
            assert_eq!(ended.code, Some(code), "{}{}", ended.out, ended.err);
            let (threads, groups) = before.differences(&Machine::read());
            assert!(
                before.threads.values().any(|(pid, ..)| *pid == own) && !before.groups.is_empty()
            );
            assert!(!threads.contains(&own), "the plan has changed a thread of a program");
            // Other programs may change meanwhile; a plan would change something every time.
            (threads.is_empty() && groups.is_empty()).then_some(())
        });
    }
}

/// Runs a verb against a daemon.
fn verb(scratch: &Scratch, deployd: &Deployd, words: &[&str]) -> Ended {
    let mut command = talea(scratch);
    finish(command.arg("deploy").args(words).arg("--runtime").arg(deployd.runtime()))
}

/// Returns [`SYSTEM`] without the readiness that `sleep` does not report.
fn steady() -> String {
    SYSTEM.replace("ready = \"1s\"\n", "")
}

#[test]
fn d22_without_a_daemon_an_error_names_the_remedy() {
    let scratch = Scratch::new();
    scratch.file("system.toml", SYSTEM);
    for words in [
        &["apply", "system.toml"][..],
        &["diff", "system.toml"],
        &["confirm"],
        &["status"],
        &["drain"],
        &["rollback"],
        &["remove"],
    ] {
        let mut command = talea(&scratch);
        let ended = finish(command.arg("deploy").args(words).args(["--runtime", "/nonexistent"]));
        assert_eq!(ended.code, Some(5), "{words:?}: {}", ended.err);
        assert!(
            ended.err.contains("no talea-deployd serves at /nonexistent/socket"),
            "{}",
            ended.err
        );
        assert!(ended.err.contains("systemctl start talea-deploy"), "{}", ended.err);
    }
}

#[test]
fn d22_an_apply_is_refused_as_its_plan() {
    needs_root!();
    let bench = Bench::new("cli-deploy-refused");
    let deployd = Deployd::start(&bench);
    let scratch = Scratch::new();
    let late = steady().replace("cost = \"10ms\"", "cost = \"81ms\"");
    let unknown = steady().replace("user = \"daemon\"", "user = \"no-such-user\"");
    for (text, code) in [(late, 1), (doubtful(), 3), (unknown, 3)] {
        let planned = plan(&scratch, &text, &[]);
        let applied = verb(&scratch, &deployd, &["apply", "system.toml"]);
        assert_eq!((planned.code, applied.code), (Some(code), Some(code)), "{}", applied.out);
        assert!(applied.out.ends_with("nothing was changed\n"), "{}", applied.out);
    }
    let status = verb(&scratch, &deployd, &["status"]);
    assert_eq!((status.code, &*status.out), (Some(0), "no generation is in force\n"));
}

#[test]
fn d23_an_apply_of_a_root_with_a_server_starts_its_governor() {
    needs_root!();
    needs!("two CPUs", kernel::cpus().len() >= 2);
    let bench = Bench::new("cli-deploy-governed");
    let deployd = Deployd::start(&bench);
    let scratch = Scratch::new();
    let server = "[[scheduler]]\nname = \"box\"\nin = \"cpu0\"\nserver = \"deferrable\"\n\
                  priority = 10\nbudget = \"20ms\"\nperiod = \"100ms\"\n\n";
    let text = steady()
        .replacen("priority = 10\n", "in = \"box\"\ndeadline = \"200ms\"\n", 1)
        .replacen("priority = 20\n", "in = \"cpu0\"\npriority = 20\n", 1)
        .replacen("[[task]]", &format!("{server}[[task]]"), 1);
    let planned = plan(&scratch, &text, &["--unproved"]);
    for part in ["mechanism freeze: box is a server", "cpu0: start a governor"] {
        assert!(planned.out.contains(part), "{}{}", planned.out, planned.err);
    }
    let applied = verb(&scratch, &deployd, &["apply", "system.toml", "--unproved"]);
    assert_eq!(applied.code, Some(0), "{}{}", applied.out, applied.err);
    let names = ["cpu0 (governor)", "control", "logger"];
    let pids = names.map(|name| deployd.running(name));
    let status = verb(&scratch, &deployd, &["status"]);
    assert_eq!(status.code, Some(0), "{}", status.out);
    assert!(status.out.contains("cpu0 (governor)  running"), "{}", status.out);
    // Another command of one program is no other root.
    let changed = text.replacen("1000", "1001", 1);
    scratch.file("system.toml", &changed);
    let differs = verb(&scratch, &deployd, &["diff", "system.toml", "--unproved"]);
    assert!(differs.out.contains("1 task restarted: control"), "{}", differs.out);
    let removed = verb(&scratch, &deployd, &["remove"]);
    assert_eq!(removed.code, Some(0), "{}", removed.err);
    talea_kernel_tests::eventually("nothing is left", || {
        pids.iter().all(|&pid| !kernel::exists(pid)) && deployd.instances().is_empty()
    });
}

#[test]
fn d26_a_deployment_that_would_break_a_grant_is_refused_with_the_grant() {
    needs_root!();
    let bench = Bench::new("cli-deploy-grants");
    let daemon = Daemon::start(&bench, &config::open());
    let scratch = Scratch::new();
    let socket = daemon.socket().display().to_string();
    let options = ["--socket", socket.as_str(), "--cpus", "0"];
    assert_eq!(plan(&scratch, &steady(), &options).code, Some(0));
    let mut held = talea(&scratch);
    held.args(["run", "--socket", &socket, "--plugin", "rm", "--cpus", "0"]);
    held.args(["--period", "100ms", "--runtime", "5ms", "--", "sleep", "1000"]);
    let mut held = held.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("a child");
    talea_kernel_tests::eventually("the plan names the grant", || {
        let refused = plan(&scratch, &steady(), &options);
        refused.code == Some(3) && refused.out.contains("it would break a grant on its CPUs: spec")
    });
    // `talea run` passes it on to its program.
    let pid = rustix::process::Pid::from_child(&held);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("our child");
    held.wait().expect("our child");
    talea_kernel_tests::eventually("nothing is in the way", || {
        plan(&scratch, &steady(), &options).code == Some(0)
    });
}

#[test]
fn d14_d22_a_session_of_all_verbs() {
    needs_root!();
    let bench = Bench::new("cli-deploy-session");
    let deployd = Deployd::start(&bench);
    let scratch = Scratch::new();
    let expect = |words: &[&str], code: i32, part: &str| {
        let ended = verb(&scratch, &deployd, words);
        assert_eq!(ended.code, Some(code), "{words:?}: {}{}", ended.out, ended.err);
        let all = format!("{}{}", ended.out, ended.err);
        assert!(all.contains(part), "{words:?}: {part}: {all}");
        ended
    };
    scratch.file("system.toml", &steady());
    expect(&["diff", "system.toml"], 1, "2 tasks new: control, logger");
    let last = kernel::cpus().iter().last().expect("a CPU").to_string();
    expect(&["apply", "system.toml", "--cpus", &last], 0, "generation 1 is in force");
    let pids = ["control", "logger"].map(|name| deployd.running(name));
    let status = json(&expect(&["status", "--json"], 0, "in_force").out);
    assert_eq!(status["in_force"]["number"], 1);
    assert_eq!(status["tasks"][0]["condition"], "running");
    assert_eq!(status["tasks"][1]["pid"], pids[1]);
    // The CPUs of the generation in force are the default.
    expect(&["diff", "system.toml"], 0, "2 tasks unchanged: control, logger");

    // A plan compares with the generation in force, and changes nothing.
    scratch.file("system.toml", &steady().replacen("1000", "1001", 1));
    let before = Machine::read();
    let planned = expect(&["plan", "system.toml"], 0, "generation 1 is in force");
    for part in ["1 task restarted: control", "1 task unchanged: logger", "nothing was changed"] {
        assert!(planned.out.contains(part), "{}", planned.out);
    }
    assert!(planned.out.contains("- control: start"), "{}", planned.out);
    assert!(!planned.out.contains("- logger: "), "{}", planned.out);
    let (threads, _) = before.differences(&Machine::read());
    assert!(pids.iter().all(|pid| !threads.contains(pid)), "the plan has changed a program");
    assert_eq!(["control", "logger"].map(|name| deployd.running(name)), pids);

    expect(&["apply", "system.toml", "--confirm", "60s"], 0, "on trial");
    expect(&["status"], 0, "on trial: run talea deploy confirm within");
    expect(&["apply", "system.toml"], 3, "generation 2 is on trial");
    talea_kernel_tests::eventually("the new program runs", || {
        deployd.running("control") != pids[0]
    });
    expect(&["confirm"], 0, "generation 2 is confirmed");
    expect(&["confirm"], 3, "no generation is on trial");
    assert_eq!(deployd.running("logger"), pids[1], "an equal task is not touched");
    expect(&["rollback"], 0, "generation 1 is in force");
    expect(&["drain", "logger", "--within", "2s"], 0, "logger is drained");
    deployd.wait_for("logger", talea_deploy::text::message::ConditionText::Drained);
    expect(&["drain", "radio"], 3, "no task has the name radio");

    // A task that has failed.
    let failing = steady().replacen("[\"sleep\", \"1000\"]", "[\"false\"]", 1);
    let failing = failing.replacen("priority = 20\n", "priority = 20\non_failure = \"idle\"\n", 1);
    scratch.file("system.toml", &failing);
    expect(&["apply", "system.toml"], 0, "generation 3 is in force");
    deployd.wait_for("control", talea_deploy::text::message::ConditionText::Idle);
    let status = expect(&["status"], 1, "idle");
    assert!(status.out.contains("control") && status.out.contains("logger"), "{}", status.out);
    expect(&["remove"], 0, "no generation is in force");
    expect(&["remove"], 3, "no generation is in force");
    expect(&["rollback", "1"], 3, "there is no generation 1");
}

/// A root with a server, and one that Linux schedules; both programs are periodic.
fn two_roots(cost: &str) -> String {
    let program = talea_kernel_tests::program("talea-test-program");
    let task = |name: &str, parent: &str, period: u64, cost: &str| {
        format!(
            "[[task]]\nname = \"{name}\"\nin = \"{parent}\"\nuser = \"daemon\"\n\
             program = [\"{}\", \"periodic\", \"{period}\", \"2\"]\n\
             period = \"{period}ms\"\ncost = \"{cost}\"\n",
            program.display()
        )
    };
    let root = |name: &str| format!("[[scheduler]]\nname = \"{name}\"\npolicy = \"fp\"\n");
    let server = "[[scheduler]]\nname = \"box\"\nin = \"boxed\"\nserver = \"deferrable\"\n\
                  priority = 10\nbudget = \"10ms\"\nperiod = \"20ms\"\n";
    [
        "duration = \"1s\"\n",
        &root("plain"),
        &root("boxed"),
        server,
        &task("logger", "plain", 50, "5ms"),
        "priority = 10\n",
        &task("control", "box", 20, cost),
    ]
    .concat()
}

#[test]
fn d36_the_counters_of_a_deployment_are_held_against_bound_and_simulation() {
    needs_root!();
    needs!("two CPUs", kernel::cpus().len() >= 2);
    let bench = Bench::new("cli-deploy-compare");
    let deployd = Deployd::start(&bench);
    let scratch = Scratch::new();
    let compare = |options: &[&str]| {
        let mut command = talea(&scratch);
        command.args(["compare", "--deployed", "system.toml"]).args(options);
        finish(command.arg("--runtime").arg(deployd.runtime()))
    };
    scratch.file("system.toml", &two_roots("4ms"));
    assert_eq!(compare(&[]).code, Some(3), "nothing is in force");
    let apply = || {
        let ended = verb(&scratch, &deployd, &["apply", "system.toml", "--unproved"]);
        assert_eq!(ended.code, Some(0), "{}{}", ended.out, ended.err);
        for task in ["boxed (governor)", "control", "logger"] {
            deployd.running(task);
        }
    };
    apply();
    let mut runs = Runs::at_least(2);
    let conclusive = |ended: Ended| {
        println!("{}{}", ended.out, ended.err);
        (ended.code != Some(6)).then_some(ended)
    };
    let agrees = runs.repeat(|| conclusive(compare(&["--json"]))).expect("one conclusive run");
    assert_eq!(agrees.code, Some(0), "{}{}", agrees.out, agrees.err);
    let report = json(&agrees.out);
    let [plain, boxed] = [&report["roots"][0], &report["roots"][1]];
    let control = &boxed["tasks"][0];
    let of = |key: &str| control[key].as_u64().unwrap_or_else(|| panic!("{key}: {report}"));
    assert!((45..=55).contains(&of("jobs")) && of("late") == 0, "{report}");
    assert!(of("measured_max_ns") >= 2_000_000 && of("bound_ns") >= 4_000_000, "{report}");
    assert!(of("cpu_time_ns") >= 80_000_000 && of("simulated_max_ns") >= 4_000_000, "{report}");
    assert_eq!(boxed["not_measured"], Value::Null);
    let logger = &plain["tasks"][0];
    assert!(plain["not_measured"].as_str().is_some_and(|why| why.contains("no process observes")));
    assert_eq!((&logger["jobs"], &logger["measured_max_ns"]), (&Value::Null, &Value::Null));
    assert!(logger["cpu_time_ns"].as_u64().is_some_and(|ns| ns >= 30_000_000), "{report}");
    // Another file than that in force.
    scratch.file("system.toml", &two_roots("1ms"));
    let other = compare(&[]);
    assert_eq!(other.code, Some(3), "{}", other.out);
    assert!(other.err.contains("talea deploy diff system.toml"), "{}", other.err);
    // A program that needs more than its cost.
    apply();
    let differs = runs.repeat(|| conclusive(compare(&[]))).expect("one conclusive run");
    assert_eq!(differs.code, Some(1), "{}{}", differs.out, differs.err);
    let why = "its cost and its period allow";
    assert!(differs.out.contains(why) && differs.out.contains("not measured"), "{}", differs.out);
}
