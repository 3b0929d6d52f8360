//! Tests with a real kernel and rights: the real daemon, other users, and a broker in this process.

use crate::harness::{Ended, Scratch, finish, talea};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::Permissions;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};
use talea_kernel_tests::{
    ALICE, BOB, Bench, Daemon, config, eventually, kernel, needs, needs_root,
};
use talea_os::sched::Policy;

/// The binary under test in a folder of all users, with the options of its broker.
pub(crate) struct Talea<'a> {
    bench: &'a Bench,
    scratch: Scratch,
    program: PathBuf,
    arguments: Vec<String>,
}

impl<'a> Talea<'a> {
    pub(crate) fn new(bench: &'a Bench, arguments: &[&str]) -> Talea<'a> {
        let program = bench.path("talea");
        talea_kernel_tests::bench::copy(env!("CARGO_BIN_EXE_talea"), &program);
        let arguments = arguments.iter().map(|&word| word.to_owned()).collect();
        Talea { bench, scratch: Scratch::new(), program, arguments }
    }

    /// Uses this daemon.
    pub(crate) fn of(bench: &'a Bench, daemon: &Daemon) -> Talea<'a> {
        Talea::new(bench, &["--socket", daemon.socket().to_str().expect("UTF-8")])
    }

    /// Uses a broker in its own process, with its own state.
    pub(crate) fn alone(bench: &'a Bench, plugins: &str) -> Talea<'a> {
        let text = format!(
            "[daemon]\nsocket = \"{}\"\nstate_directory = \"{}\"\n{plugins}",
            bench.path("no-socket").display(),
            bench.path("state").display()
        );
        let config = bench.write("alone.toml", &text);
        Talea::new(bench, &["--config", config.to_str().expect("UTF-8")])
    }

    /// Writes a file beside the program.
    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        self.bench.write(name, text)
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        // The usual environment, with the copied program.
        let template = talea(&self.scratch);
        let mut command = Command::new(&self.program);
        for (name, value) in template.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command
            .current_dir(self.bench.path(""))
            .stdin(Stdio::null())
            .args(&self.arguments)
            .args(arguments);
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Ended {
        finish(&mut self.command(arguments))
    }

    pub(crate) fn run_as(&self, uid: u32, arguments: &[&str]) -> Ended {
        finish(self.command(arguments).uid(uid).gid(uid))
    }

    /// Starts a program that prints its number and lives until [`Held::end`].
    fn hold(&self, uid: Option<u32>, arguments: &[&str]) -> Held {
        let mut command = self.command(arguments);
        command
            .args(["sh", "-c", "echo $$; read line; exit 7"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        if let Some(uid) = uid {
            command.uid(uid).gid(uid);
        }
        Held::start(&mut command)
    }
}

/// A program that waits.
struct Held {
    talea: Child,
    input: ChildStdin,
    pid: i32,
}

impl Held {
    fn start(command: &mut Command) -> Held {
        let mut talea = command.spawn().expect("a child");
        let mut line = String::new();
        let output = talea.stdout.take().expect("piped");
        BufReader::new(output).read_line(&mut line).expect("a line");
        let pid = line.trim().parse().expect("the program tells its number");
        let input = talea.stdin.take().expect("piped");
        Held { talea, input, pid }
    }

    /// Starts an ordinary program, without talea.
    fn plain() -> Held {
        let mut command = Command::new("sh");
        command
            .args(["-c", "echo $$; read line; exit 7"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        Held::start(&mut command)
    }

    /// Ends the program and returns the exit code of the started process.
    fn end(mut self) -> Option<i32> {
        // A killed program no longer reads.
        let _ = self.input.write_all(b"go\n");
        self.talea.wait().expect("wait").code()
    }
}

pub(crate) fn specs(talea: &Talea) -> Vec<serde_json::Value> {
    let ended = talea.run(&["list", "--json"]);
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    let answer: serde_json::Value = serde_json::from_str(&ended.out).expect("JSON");
    answer["specs"].as_array().expect("a list").clone()
}

#[test]
fn r29_run_holds_the_program_from_its_first_instruction_to_its_end() {
    needs_root!();
    let bench = Bench::new("cli-run");
    let daemon = Daemon::start(&bench, &config::open());
    let talea = Talea::of(&bench, &daemon);
    let held = talea.hold(Some(ALICE), &["run", "-P", "f:30", "--"]);
    assert!(
        matches!(kernel::policy(held.pid), Policy::Fifo(20..=39)),
        "{:?}",
        kernel::policy(held.pid)
    );
    assert!(kernel::attr(held.pid).reset_on_fork);
    let listed = specs(&talea);
    assert_eq!(listed.len(), 1);
    assert_eq!(
        (listed[0]["tid"].as_i64(), listed[0]["held"].as_bool()),
        (Some(held.pid.into()), Some(true))
    );
    assert_eq!(listed[0]["uid"], ALICE);
    assert_eq!(held.end(), Some(7));
    eventually("the grant ends with the program", || specs(&talea).is_empty());
}

#[test]
fn r30_what_the_program_starts_is_ordinary() {
    needs_root!();
    let bench = Bench::new("cli-fork");
    let daemon = Daemon::start(&bench, &config::open());
    let talea = Talea::of(&bench, &daemon);
    let script = "grep -m1 '^policy' /proc/$$/sched; sh -c 'grep -m1 ^policy /proc/$$/sched'";
    let ended = talea.run(&["run", "-P", "f:30", "--", "sh", "-c", script]);
    let policies: Vec<&str> =
        ended.out.lines().filter_map(|line| line.split(':').nth(1)).map(str::trim).collect();
    assert_eq!(policies, ["1", "0"], "{}{}", ended.out, ended.err);
}

#[test]
fn r29_killing_talea_takes_nothing_from_the_program() {
    needs_root!();
    let bench = Bench::new("cli-kill");
    let daemon = Daemon::start(&bench, &config::open());
    let talea = Talea::of(&bench, &daemon);
    let mut held = talea.hold(None, &["run", "-P", "f:30", "--"]);
    kill_process(Pid::from_child(&held.talea), Signal::KILL).expect("kill");
    held.talea.wait().expect("wait");
    assert_eq!(specs(&talea).len(), 1);
    assert!(matches!(kernel::policy(held.pid), Policy::Fifo(_)));
    let pid = held.pid;
    held.input.write_all(b"go\n").expect("it still reads");
    eventually("the program ends", || !kernel::exists(pid));
    eventually("the grant ends with it", || specs(&talea).is_empty());
}

#[test]
fn r28_attach_and_release_leave_a_thread_as_it_was() {
    needs_root!();
    let bench = Bench::new("cli-attach");
    let daemon = Daemon::start(&bench, &config::open());
    let talea = Talea::of(&bench, &daemon);
    let program = Held::plain();
    let pid = program.pid.to_string();
    let (before, cpus) = (kernel::attr(program.pid), kernel::affinity(program.pid));
    let ended =
        talea.run(&["attach", &pid, "--period", "10ms", "--runtime", "1ms", "--plugin", "rm"]);
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    assert!(matches!(kernel::policy(program.pid), Policy::Fifo(60..=79)));
    let twice = talea.run(&["attach", &pid, "--priority", "5"]);
    assert_eq!(twice.code, Some(1), "a thread has one grant: {}", twice.err);
    assert_eq!(specs(&talea).len(), 1, "what could not be attached was given back");
    assert_eq!(talea.run(&["release", "--pid", &pid]).code, Some(0));
    assert_eq!((kernel::attr(program.pid), kernel::affinity(program.pid)), (before, cpus));
    assert_eq!(program.end(), Some(7));
}

#[test]
fn r25_other_users_threads_are_denied() {
    needs_root!();
    let bench = Bench::new("cli-others");
    let daemon = Daemon::start(&bench, &config::open());
    let talea = Talea::of(&bench, &daemon);
    let held = talea.hold(Some(ALICE), &["run", "-P", "f:30", "--"]);
    let spec = specs(&talea)[0]["spec"].to_string();
    let before = kernel::policy(held.pid);
    assert_eq!(
        talea.run_as(BOB, &["attach", &held.pid.to_string(), "--priority", "9"]).code,
        Some(4)
    );
    assert_ne!(talea.run_as(BOB, &["release", &spec]).code, Some(0));
    assert_eq!(kernel::policy(held.pid), before);
    assert_eq!(held.end(), Some(7));
}

#[test]
fn r20_without_a_rule_the_answer_is_denied_and_the_program_never_starts() {
    needs_root!();
    let bench = Bench::new("cli-rules");
    let daemon = Daemon::start(
        &bench,
        &config::with_rules(&format!("[[rule]]\ndomain = \"#{ALICE}\"\nmax_priority = 10\n")),
    );
    let talea = Talea::of(&bench, &daemon);
    assert_eq!(talea.run_as(BOB, &["explain", "--priority", "5"]).code, Some(4));
    assert_eq!(talea.run_as(BOB, &["run", "--priority", "5", "--", "true"]).code, Some(125));
    let bound = talea.run_as(ALICE, &["explain", "--priority", "50"]);
    assert_eq!(bound.code, Some(4), "{}{}", bound.out, bound.err);
    assert!(bound.out.contains("allows at most 10"), "{}", bound.out);
    let doctor = talea.run_as(BOB, &["doctor", "--json"]);
    let answer: serde_json::Value = serde_json::from_str(&doctor.out).expect("JSON");
    let rules =
        answer["checks"].as_array().expect("a list").iter().find(|check| check["id"] == "rules");
    assert_eq!(rules.expect("a check")["status"], "fail", "{}", doctor.out);
}

#[test]
fn what_does_not_fit_is_refused_with_numbers() {
    needs_root!();
    let bench = Bench::new("cli-refused");
    let daemon = Daemon::start(&bench, &config::open());
    let talea = Talea::of(&bench, &daemon);
    let full: Vec<Held> = kernel::cpus()
        .iter()
        .map(|_| {
            talea.hold(
                None,
                &["run", "--period", "10ms", "--runtime", "9ms", "--plugin", "rm", "--"],
            )
        })
        .collect();
    let more = ["--period", "10ms", "--runtime", "5ms"];
    let ended = talea.run(&[&["explain"][..], &more].concat());
    assert_eq!(ended.code, Some(3), "{}{}", ended.out, ended.err);
    let ended = talea.run(&[&["run"][..], &more, &["--", "true"]].concat());
    assert_eq!(ended.code, Some(125));
    for plugin in ["edf", "rm", "rr", "fp"] {
        assert!(
            ended.err.contains(&format!("\n  {plugin} ")),
            "each plugin says why: {}",
            ended.err
        );
    }
    assert_eq!(talea.run(&["status", "--json"]).code, Some(0));
    for held in full {
        assert_eq!(held.end(), Some(7));
    }
    eventually("what ended no longer takes room", || {
        talea.run(&[&["explain"][..], &more].concat()).code == Some(0)
    });
}

/// Plugins for a broker in its own process.
const FP: &str =
    "[[plugin]]\nname = \"fp\"\nkind = \"fp\"\ncpus = \"all\"\npriorities = \"20-39\"\n";
/// A plugin with little capacity.
const RM: &str = "[[plugin]]\nname = \"rm\"\nkind = \"rm\"\ncpus = \"0\"\npriorities = \"20-39\"\n";

#[test]
fn without_a_daemon_run_uses_its_own_broker() {
    needs_root!();
    let bench = Bench::new("cli-alone");
    let talea = Talea::alone(&bench, FP);
    let held = talea.hold(None, &["run", "--priority", "50", "--cpus", "0", "--"]);
    assert!(
        matches!(kernel::policy(held.pid), Policy::Fifo(20..=39)),
        "{:?}",
        kernel::policy(held.pid)
    );
    assert_eq!(specs(&talea).len(), 1, "the next one sees what the first has granted");
    let second = talea.hold(None, &["run", "--priority", "40", "--cpus", "0", "--"]);
    assert!(kernel::priority(held.pid) > kernel::priority(second.pid), "one order over both");
    assert_eq!((held.end(), second.end()), (Some(7), Some(7)));
    assert!(specs(&talea).is_empty());
}

#[test]
fn two_runs_without_a_daemon_cannot_give_out_the_same_thing_twice() {
    needs_root!();
    let bench = Bench::new("cli-twice");
    let talea = Talea::alone(&bench, RM);
    let most = ["run", "--period", "10ms", "--runtime", "6ms", "--"];
    let held = talea.hold(None, &most);
    let ended = talea.run(&["run", "--period", "10ms", "--runtime", "6ms", "--", "true"]);
    assert_eq!(ended.code, Some(125), "{}", ended.err);
    assert_eq!(held.end(), Some(7));
    assert_eq!(
        talea.run(&["run", "--period", "10ms", "--runtime", "6ms", "--", "true"]).code,
        Some(0)
    );
}

#[test]
fn without_a_daemon_and_without_rights_both_reasons_are_given() {
    needs_root!();
    let bench = Bench::new("cli-no-broker");
    let talea = Talea::alone(&bench, FP);
    let ended = talea.run_as(ALICE, &["run", "--priority", "50", "--", "true"]);
    assert_eq!(ended.code, Some(125));
    assert!(ended.err.contains("no daemon") && ended.err.contains("CAP_SYS_NICE"), "{}", ended.err);
    assert!(ended.err.contains("talea doctor"), "{}", ended.err);
    assert_eq!(talea.run_as(ALICE, &["explain", "--priority", "50"]).code, Some(5));
}

#[test]
fn what_was_attached_without_a_daemon_is_found_and_repaired() {
    needs_root!();
    let bench = Bench::new("cli-repair");
    let talea = Talea::alone(&bench, FP);
    let program = Held::plain();
    let before = kernel::attr(program.pid);
    let ended = talea.run(&["attach", &program.pid.to_string(), "--priority", "9"]);
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    assert!(matches!(kernel::policy(program.pid), Policy::Fifo(_)));
    let leftovers = |arguments: &[&str]| {
        let ended = talea.run(arguments);
        let answer: serde_json::Value = serde_json::from_str(&ended.out).expect("JSON");
        let checks = answer["checks"].as_array().expect("a list").clone();
        checks.into_iter().find(|check| check["id"] == "leftovers").expect("a check")["status"]
            .clone()
    };
    assert_eq!(leftovers(&["doctor", "--json"]), "warn");
    assert!(matches!(kernel::policy(program.pid), Policy::Fifo(_)), "looking changes nothing");
    assert_eq!(leftovers(&["doctor", "--repair", "--json"]), "ok");
    assert_eq!(kernel::attr(program.pid), before);
    assert!(specs(&talea).is_empty());
    assert_eq!(program.end(), Some(7));
}

/// Builds a system of this length with a shell in a server with this budget per 20 ms.
fn boxed(duration: &str, budget: &str, task: &str, shell: &str) -> String {
    format!(
        r#"
        duration = "{duration}"
        [[scheduler]]
        name = "cpu0"
        policy = "fp"
        [[scheduler]]
        name = "box"
        in = "cpu0"
        policy = "fifo"
        server = "deferrable"
        budget = "{budget}"
        period = "20ms"
        priority = 9
        [[task]]
        name = "{task}"
        in = "box"
        period = "20s"
        cost = "1ms"
        program = ["sh", "-c", "{shell}"]
        user = "root"
        "#
    )
}

const OTHER_USER: &str = "nobody";

#[test]
fn root_runs_programs_of_its_own_files_only_and_as_the_user_that_each_names() {
    needs_root!();
    needs!("cgroup v2", talea_os::cgroup::mount_point().is_some());
    let bench = Bench::new("cli-users");
    let talea = Talea::alone(&bench, FP);
    let log = bench.path("who.log");
    // In a file that any user may write; the program has no right to create one here.
    std::fs::write(&log, "").expect("a file");
    std::fs::set_permissions(&log, Permissions::from_mode(0o666)).expect("our file");
    let shell = format!(
        "(id -u; id -g; echo $HOME; echo $SUDO_UID $TALEA_SOCKET; ulimit -Hr; grep -E 'NoNewPrivs|CapEff' /proc/self/status) > {}",
        log.display()
    );
    let text = |user: &str| boxed("300ms", "10ms", "who", &shell).replace("user = \"root\"", user);
    let execute = |text: &str| {
        let file = bench.write("users.toml", text);
        let mut command = talea.command(&["execute", file.to_str().expect("UTF-8")]);
        finish(command.env("SUDO_UID", "1"))
    };
    // No user: refused with the remedy.
    let ended = execute(&text(""));
    assert_eq!(ended.code, Some(3), "{}{}", ended.out, ended.err);
    assert!(ended.err.contains("add `user = \"NAME\"` to the task"), "{}", ended.err);
    let ended = execute(&text("user = \"no-such-account\""));
    assert!(
        ended.code == Some(3) && ended.err.contains("no account no-such-account"),
        "{}",
        ended.err
    );
    assert_eq!(std::fs::read_to_string(&log).expect("a file"), "", "nothing was started");
    // Another user, with nothing of root's.
    let other = talea_os::users::account(OTHER_USER).expect("a lookup").expect("an account");
    let ended = execute(&text(&format!("user = \"{OTHER_USER}\"")));
    assert_eq!(ended.code, Some(0), "{}{}", ended.out, ended.err);
    let said = std::fs::read_to_string(&log).expect("a file");
    let lines: Vec<&str> = said.lines().map(str::trim).collect();
    let (uid, gid) = (other.user.uid.to_string(), other.user.gid.to_string());
    assert_eq!(lines[..5], [&uid, &gid, other.home.to_str().expect("UTF-8"), "", "0"], "{said}");
    assert!(
        said.contains("NoNewPrivs:\t1") && said.contains("CapEff:\t0000000000000000"),
        "{said}"
    );
    // Root, as the file says.
    let ended = execute(&text("user = \"root\""));
    assert_eq!(ended.code, Some(0), "{}{}", ended.out, ended.err);
    let said = std::fs::read_to_string(&log).expect("a file");
    assert!(said.starts_with("0\n"), "{said}");
}

#[test]
fn attack_22_root_runs_no_file_that_another_user_may_change() {
    needs_root!();
    let bench = Bench::new("cli-trusted");
    let talea = Talea::alone(&bench, FP);
    let other = talea_os::users::account(OTHER_USER).expect("a lookup").expect("an account");
    let text = boxed("300ms", "10ms", "who", "true");
    let file = bench.write("users.toml", &text);
    let run = || talea.run(&["execute", file.to_str().expect("UTF-8")]);
    std::fs::set_permissions(&file, Permissions::from_mode(0o666)).expect("our file");
    let ended = run();
    assert!(ended.code == Some(3) && ended.err.contains("chmod go-w"), "{}", ended.err);
    std::fs::set_permissions(&file, Permissions::from_mode(0o644)).expect("our file");
    std::os::unix::fs::chown(&file, Some(other.user.uid), None).expect("root may");
    let ended = run();
    assert!(ended.code == Some(3) && ended.err.contains("must belong to root"), "{}", ended.err);
    let ended = talea.run(&["compare", file.to_str().expect("UTF-8")]);
    assert!(ended.code == Some(3) && ended.err.contains("must belong to root"), "{}", ended.err);
}

#[test]
fn a_run_of_a_month_starts_at_once_and_its_memory_does_not_grow() {
    needs_root!();
    let bench = Bench::new("cli-month");
    let talea = Talea::alone(&bench, FP);
    let file = bench.write(
        "month.toml",
        r#"
        duration = "30d"
        [[scheduler]]
        name = "cpu0"
        policy = "fp"
        [[task]]
        name = "a"
        in = "cpu0"
        period = "100us"
        cost = { min = "5us", max = "10us" }
        "#,
    );
    let file = file.to_str().expect("UTF-8");
    let took = |arguments: &[&str]| {
        let begun = Instant::now();
        let ended = talea.run(arguments);
        (ended, begun.elapsed())
    };
    let (short, length) = took(&["execute", file, "--duration", "1s"]);
    assert_eq!(short.code, Some(0), "{}{}", short.out, short.err);
    let run = talea
        .command(&["execute", file, "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("talea");
    let pid = Pid::from_raw(run.id() as i32).expect("a pid");
    let resident_kb = || {
        let text = std::fs::read_to_string(format!("/proc/{}/status", run.id())).expect("it runs");
        let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a line");
        line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number")
    };
    std::thread::sleep(Duration::from_secs(3));
    let early = resident_kb();
    std::thread::sleep(Duration::from_secs(9));
    let late = resident_kb();
    kill_process(pid, Signal::INT).expect("it lives");
    let ended = run.wait_with_output().expect("it ends");
    let answer: serde_json::Value = serde_json::from_slice(&ended.stdout).expect("JSON");
    let seconds = answer["duration_ns"].as_u64().expect("a number") / 1_000_000_000;
    let jobs = answer["roots"][0]["tasks"][0]["completed"].as_u64().expect("a number");
    println!("{early} kB, {late} kB; {jobs} jobs in {seconds} s; a short run took {length:?}");
    // Twelve seconds less the start: as long as that of a run of one second, and a second more for
    // a busy machine.
    let start = length.saturating_sub(Duration::from_secs(1));
    let wanted = Duration::from_secs(10).saturating_sub(start);
    assert!(Duration::from_secs(seconds) >= wanted, "{seconds} s of twelve, {start:?} for a start");
    assert!(jobs >= seconds * 9_000, "{jobs} jobs in {seconds} s");
    // Less than eight bytes for each job of nine seconds.
    assert!(late < early + 640, "{early} kB, then {late} kB");
    // What needs the whole record says so at once.
    let (refused, _) = took(&["execute", file, "--check"]);
    assert!(refused.code == Some(3) && refused.err.contains("whole record"), "{}", refused.err);
}

#[test]
fn l20_programs_of_a_run_that_was_killed_with_its_reaper_are_found_and_ended() {
    needs_root!();
    needs!("cgroup v2", talea_os::cgroup::mount_point().is_some());
    let bench = Bench::new("cli-programs");
    let talea = Talea::alone(&bench, FP);
    let file =
        bench.write("boxed.toml", &boxed("20s", "2ms", "spins", "while :; do :; done & wait"));
    let empty = bench.write(
        "plain.toml",
        r#"
        duration = "10ms"
        [[scheduler]]
        name = "cpu0"
        policy = "fp"
        [[task]]
        name = "a"
        in = "cpu0"
        period = "5ms"
        cost = "100us"
        "#,
    );
    let (file, empty) = (file.to_str().expect("UTF-8"), empty.to_str().expect("UTF-8"));
    let leftovers = |arguments: &[&str]| {
        let ended = talea.run(arguments);
        let answer: serde_json::Value = serde_json::from_str(&ended.out).expect("JSON");
        let checks = answer["checks"].as_array().expect("a list").clone();
        checks.into_iter().find(|check| check["id"] == "leftovers").expect("a check")["status"]
            .clone()
    };
    for heals in [&["doctor", "--repair"][..], &["execute", empty]] {
        // Any run sweeps, also one that another program starts just then: so a few tries.
        let left = (0..5).find_map(|_| {
            let mut run =
                talea.command(&["execute", file]).stdout(Stdio::null()).spawn().expect("talea");
            let group = killed_with_its_reaper(&mut run);
            let is_there = || {
                std::fs::read_to_string(group.join("0/cgroup.procs"))
                    .is_ok_and(|all| !all.is_empty())
            };
            let was_there = is_there();
            let shown = leftovers(&["doctor", "--json"]);
            assert!(shown == "warn" || !is_there(), "{shown}");
            (was_there && is_there()).then_some(group)
        });
        let group = left.expect("the shell's child is still there, and looking changes nothing");
        let ended = talea.run(heals);
        // Other findings of doctor depend on this computer.
        assert!(ended.code == Some(0) || heals[0] == "doctor", "{}{}", ended.out, ended.err);
        assert!(!group.exists(), "{}{}", ended.out, ended.err);
    }
}

#[test]
fn l20_a_program_that_changes_its_policy_is_reported_and_is_no_success() {
    needs_root!();
    needs!("cgroup v2", talea_os::cgroup::mount_point().is_some());
    needs!("chrt", Command::new("chrt").arg("--version").output().is_ok());
    let bench = Bench::new("cli-policy");
    let talea = Talea::alone(&bench, FP);
    let shell = "chrt --other --pid 0 $$; while :; do :; done";
    let file = bench.write("changes.toml", &boxed("700ms", "5ms", "changer", shell));
    let file = file.to_str().expect("UTF-8");
    let ended = talea.run(&["execute", file]);
    let shown =
        "changer: its program changed its own policy or CPU, so it is not scheduled as ordered";
    assert!(ended.code == Some(1) && ended.out.contains(shown), "{}{}", ended.out, ended.err);
    let ended = talea.run(&["compare", file]);
    assert!(ended.code == Some(3) && ended.err.contains(shown), "{}{}", ended.out, ended.err);
}

/// Kills a run of a program with a child, together with the run's reaper, when all exist. Both are
/// stopped before. Returns the control group of the programs.
fn killed_with_its_reaper(run: &mut Child) -> PathBuf {
    let pid = run.id();
    let all = || {
        let found = std::fs::read_dir("/proc").expect("processes").flatten();
        found.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok())
    };
    let is_reaper = |&child: &i32| {
        talea_os::Tid::new(child).is_some_and(|tid| {
            talea_os::proc::stat(tid).is_ok_and(|stat| stat.parent == pid as i32)
                && talea_os::proc::comm(tid).is_ok_and(|name| name == "talea-reaper")
        })
    };
    let (mut reaper, mut group) = (None, None);
    eventually("the program has a child", || {
        reaper = all().find(is_reaper);
        let threads =
            std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        let names: Vec<String> = threads
            .filter_map(|thread| Some(format!("talea-exec-{}-", thread.file_name().to_str()?)))
            .collect();
        let top = talea_os::cgroup::mount_point().expect("it was there");
        let groups = std::fs::read_dir(top).expect("a folder").flatten();
        group = groups.map(|group| group.path()).find(|path| {
            let path = path.to_string_lossy();
            names.iter().any(|name| path.contains(name.as_str()))
        });
        let procs = group
            .as_ref()
            .and_then(|path| std::fs::read_to_string(path.join("0/cgroup.procs")).ok());
        reaper.is_some() && procs.is_some_and(|procs| procs.lines().count() > 1)
    });
    for signal in [Signal::STOP, Signal::KILL] {
        for pid in [Some(pid as i32), reaper].into_iter().flatten() {
            kill_process(Pid::from_raw(pid).expect("a pid"), signal).expect("it lives");
        }
    }
    run.wait().expect("it was killed");
    group.expect("it was found")
}

#[test]
fn a_running_program_is_nothing_to_repair() {
    needs_root!();
    let bench = Bench::new("cli-watched");
    let talea = Talea::alone(&bench, FP);
    let held = talea.hold(None, &["run", "--priority", "50", "--"]);
    let ended = talea.run(&["doctor", "--repair"]);
    assert!(ended.out.contains("nothing to repair"), "{}{}", ended.out, ended.err);
    assert!(matches!(kernel::policy(held.pid), Policy::Fifo(_)));
    assert_eq!(held.end(), Some(7));
}

#[test]
fn doctor_runs_here_and_changes_nothing() {
    needs!("a /proc to look at", Path::new("/proc/self/status").exists());
    let scratch = Scratch::new();
    let ended = finish(talea(&scratch).args(["doctor", "--json"]));
    assert!(matches!(ended.code, Some(0 | 1)), "{}", ended.err);
    let answer: serde_json::Value = serde_json::from_str(&ended.out).expect("JSON");
    let failures = answer["failures"].as_u64().expect("a number");
    assert_eq!(ended.code == Some(0), failures == 0);
    assert!(answer["checks"].as_array().expect("a list").len() > 20);
}

#[test]
fn metrics_count_what_has_happened_and_replace_a_file_at_once() {
    needs_root!();
    let bench = Bench::new("metrics");
    let daemon = Daemon::start(&bench, &config::open());
    let talea = Talea::of(&bench, &daemon);
    let file = bench.path("talea.prom");
    let file_name = file.to_str().expect("UTF-8");
    let read = || {
        let ended = talea.run(&["metrics", "--output", file_name]);
        assert_eq!((ended.code, &*ended.out), (Some(0), ""), "{}", ended.err);
        let text = std::fs::read_to_string(&file).expect("written");
        move |series: &str| -> f64 {
            let line = text.lines().find_map(|line| line.strip_prefix(series));
            line.and_then(|rest| rest.trim().parse().ok()).unwrap_or_else(|| panic!("{series}"))
        }
    };
    let before = read();
    let refused = "talea_refused_total{reason=\"unknown-plugin\"}";
    let ended = talea.run_as(ALICE, &["run", "--priority", "5", "--plugin", "x", "--", "true"]);
    assert_ne!(ended.code, Some(0), "{}", ended.err);
    let ended = talea.run_as(ALICE, &["run", "--priority", "5", "--plugin", "fp", "--", "true"]);
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    eventually("the grant has ended", || read()("talea_grants") < 0.5);
    let after = read();
    for (series, events) in [
        (refused, 1.0),
        ("talea_granted_total", 1.0),
        ("talea_attached_total", 1.0),
        ("talea_released_total", 1.0),
        ("talea_overruns_total", 0.0),
    ] {
        let difference = after(series) - before(series) - events;
        assert!(difference.abs() < 0.5, "{series}: {difference}");
    }
    // Every request has a time, except the one that asks.
    assert!(after("talea_request_seconds_count") >= after("talea_requests_total") - 2.0);
    assert!(after("talea_request_seconds_sum") > before("talea_request_seconds_sum"));
    let whole = std::fs::read_dir(bench.path("")).expect("a folder").flatten();
    let partial = whole.filter(|entry| entry.file_name().to_string_lossy().contains(".prom."));
    assert_eq!(partial.count(), 0, "a temporary file is left");
}
