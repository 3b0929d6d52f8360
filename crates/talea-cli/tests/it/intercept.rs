//! `talea run --intercept`: programs of an unprivileged user, the real daemon and the kernel.

use crate::fake::{Fake, granted};
use crate::harness::{Ended, Scratch, run};
use crate::live::{Talea, specs};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, Lines, Write};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use talea_core::{Charge, Priority};
use talea_kernel_tests::{ALICE, Bench, Daemon, config, eventually, kernel, needs, needs_root};
use talea_os::{Policy, Tid, proc};
use talea_proto::message::{Name, Notes};
use talea_proto::refusal::{PluginText, PluginVerdict};
use talea_proto::{Owner, PluginAnswer, Reply, Request};

/// Rules under which the user may have what a test asks for.
const GENEROUS: &str = "[[rule]]\ndomain = \"#60001\"\nallow_unbounded = true\nmin_nice = -10\n";

/// Compiles `tests/c/SOURCE` for every user.
fn compiled(bench: &Bench, source: &str, arguments: &[&str]) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c").join(source);
    let is_cpp = path.extension().is_some_and(|extension| extension == "cpp");
    let program = bench.path(source.split('.').next().expect("a stem"));
    let output = Command::new(if is_cpp { "c++" } else { "cc" })
        .args(["-Wall", "-Wextra", "-Werror", "-O1", "-pthread", "-o"])
        .arg(&program)
        .arg(path)
        .args(arguments)
        .output()
        .expect("a compiler");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    program.to_str().expect("UTF-8").to_owned()
}

fn direct_calls(bench: &Bench) -> String {
    compiled(bench, "direct_calls.c", &["-static"])
}

/// Runs a program to its end, as the user.
fn intercepted(talea: &Talea, options: &[&str], program: &[&str]) -> Ended {
    talea.run_as(ALICE, &[&["run", "--intercept"], options, &["--"], program].concat())
}

/// The lines of a program that were printed for these calls.
fn lines(talea: &Talea, options: &[&str], program: &[&str]) -> Vec<String> {
    let ended = intercepted(talea, options, program);
    assert_eq!(ended.code, Some(0), "{}{}", ended.out, ended.err);
    ended.out.lines().map(str::to_owned).collect()
}

/// A program that runs below `talea run --intercept`.
struct Running {
    talea: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Running {
    fn start(talea: &Talea, options: &[&str], program: &[&str]) -> Running {
        let mut command =
            talea.command(&[&["run", "--intercept"], options, &["--"], program].concat());
        command.uid(ALICE).gid(ALICE).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut talea = command.stderr(Stdio::null()).spawn().expect("a child");
        let input = talea.stdin.take().expect("piped");
        let output = BufReader::new(talea.stdout.take().expect("piped")).lines();
        Running { talea, input, output }
    }

    fn line(&mut self) -> String {
        self.output.next().expect("another line").expect("UTF-8")
    }

    /// Waits until the program pauses, and returns its number.
    fn paused(&mut self) -> i32 {
        let line = self.line();
        line.strip_prefix("pause ").expect("a pause").parse().expect("a number")
    }

    fn go_on(&mut self) {
        self.input.write_all(b"\n").expect("the program reads");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.talea.kill();
        let _ = self.talea.wait();
    }
}

/// Returns the policies of all threads of the user that have this name.
fn policies_of(name: &str) -> Vec<Policy> {
    let processes = std::fs::read_dir("/proc").expect("proc").flatten();
    let pids = processes.filter_map(|entry| Tid::new(entry.file_name().to_str()?.parse().ok()?));
    pids.filter(|&pid| proc::status(pid).is_ok_and(|status| status.uids.real == ALICE))
        .flat_map(|pid| proc::threads_of(pid).unwrap_or_default())
        .filter(|&tid| proc::comm(tid).is_ok_and(|found| found == name))
        .filter_map(|tid| talea_os::sched::get(tid).ok())
        .map(|attr| attr.policy)
        .collect()
}

/// Test of a policy.
type Test = fn(&Policy) -> bool;

fn is_fifo(policy: &Policy) -> bool {
    matches!(policy, Policy::Fifo(20..=39))
}

fn is_rr(policy: &Policy) -> bool {
    matches!(policy, Policy::Rr(40..=49))
}

#[test]
fn a_static_program_reads_what_is_in_force_after_each_call() {
    needs_root!();
    let bench = Bench::new("intercept-static");
    let daemon = Daemon::start(&bench, &config::with_rules(GENEROUS));
    let talea = Talea::of(&bench, &daemon);
    let program = direct_calls(&bench);
    // Call, result, policy, and the runtime of a deadline thread.
    let calls = [
        ("fifo:80", 0, 1, 0),
        ("rr:30", 0, 2, 0),
        ("param:40", 0, 2, 0),
        ("param:0", libc::EINVAL, 2, 0),
        ("other", 0, 0, 0),
        ("param:40", libc::EINVAL, 0, 0),
        ("dl:2000000:5000000:10000000", 0, 6, 2_000_000),
        ("dl:1000000:5000000:10000000", 0, 6, 1_000_000),
        ("dl:6000000:5000000:10000000", libc::EINVAL, 6, 1_000_000),
        ("reclaim:2000000:5000000:10000000", libc::EPERM, 6, 1_000_000),
        ("dl:6000000:10000000:10000000", 0, 6, 6_000_000),
        ("dl:7000000:10000000:10000000", 0, 6, 7_000_000),
        ("fifo:5", 0, 1, 0),
        ("fifo:0", libc::EINVAL, 1, 0),
        ("fifo:100", libc::EINVAL, 1, 0),
        ("null", libc::EINVAL, 1, 0),
        ("bad", libc::EFAULT, 1, 0),
        ("of:2000000000", libc::ESRCH, 1, 0),
        ("of:-1", libc::EINVAL, 1, 0),
        ("of:1", libc::EPERM, 1, 0),
    ];
    let words: Vec<&str> = calls.iter().map(|&(word, ..)| word).collect();
    let found = lines(&talea, &[], &[&[program.as_str()], &words[..]].concat());
    assert_eq!(found.len(), calls.len(), "{found:#?}");
    for (line, (word, result, policy, runtime)) in found.iter().zip(calls) {
        let begins = format!("{word} = {result}; policy {policy}, ");
        let ends = if policy == 6 { format!("runtime {runtime}") } else { String::new() };
        assert!(line.starts_with(&begins) && line.ends_with(&ends), "{line}: {begins}");
    }
    assert!(specs(&talea).is_empty(), "the grant has ended with the program");
}

#[test]
fn nice_values_are_requests_too() {
    needs_root!();
    let bench = Bench::new("intercept-nice");
    let daemon = Daemon::start(&bench, &config::with_rules(GENEROUS));
    let talea = Talea::of(&bench, &daemon);
    let program = direct_calls(&bench);
    let found = lines(
        &talea,
        &[],
        &[&program, "nice:5", "nice:-5", "nice:-11", "batch:-6", "fifo:1", "nice:-7", "other"],
    );
    let begins = [
        "nice:5 = 0; policy 0, priority 0, nice 5",
        "nice:-5 = 0; policy 0, priority 0, nice -5",
        "nice:-11 = 13; policy 0, priority 0, nice -5",
        "batch:-6 = 0; policy 3, priority 0, nice -6",
        "fifo:1 = 0; policy 1",
        // The kernel decides for a thread with a grant.
        "nice:-7 = 13; policy 1",
        "other = 0; policy 0, priority 0, nice -6",
    ];
    for (line, begin) in found.iter().zip(begins) {
        assert!(line.starts_with(begin), "{line}: {begin}");
    }
}

#[test]
fn threads_with_explicit_attributes_are_served_one_by_one() {
    needs_root!();
    let bench = Bench::new("intercept-threads");
    let daemon = Daemon::start(&bench, &config::with_rules(GENEROUS));
    let talea = Talea::of(&bench, &daemon);
    let program = compiled(&bench, "executor.cpp", &["-std=c++17"]);
    let found = lines(&talea, &[], &[&program]);
    let has = |name: &str, state: &str| {
        let begin = format!("{name} = 0; policy {state}");
        assert!(found.iter().any(|line| line.starts_with(&begin)), "{begin}: {found:#?}");
    };
    has("control", "1, priority 3");
    has("logger", "2, priority 4");
    for name in ["camera", "lidar", "planner"] {
        has(name, "1, priority 3");
    }
    // The C library returns what the program has set.
    assert!(found.iter().any(|line| line.starts_with("control") && line.ends_with("1, 80")));
    // A grant is for one thread.
    has("inherited", "0, priority 0");
}

#[test]
fn a_rule_refuses_with_eperm_and_one_line() {
    needs_root!();
    let bench = Bench::new("intercept-rules");
    let rules = "[[rule]]\ndomain = \"#60001\"\nplugin = \"fp\"\nmax_priority = 50\nmax_utilization = 0.5\n";
    let daemon = Daemon::start(&bench, &config::with_rules(rules));
    let talea = Talea::of(&bench, &daemon);
    let program = direct_calls(&bench);
    // Without a runtime, the rule cannot be enforced.
    let ended = intercepted(&talea, &[], &[&program, "fifo:10", "fifo:10", "nice:-1"]);
    assert!(ended.out.starts_with("fifo:10 = 1; policy 0"), "{}", ended.out);
    let refused: Vec<&str> =
        ended.err.lines().filter(|line| line.contains("asks for SCHED_FIFO 10, refused")).collect();
    assert_eq!(refused.len(), 1, "once per thread and reason: {}", ended.err);
    assert!(ended.err.contains("declares no utilization"), "{}", ended.err);
    assert!(ended.err.contains("1 call more refused"), "{}", ended.err);
    assert!(ended.err.contains("min_nice"), "{}", ended.err);
    // With a budget, up to the priority of the rule.
    let budget = ["--runtime", "1ms", "--period", "10ms"];
    let ended = intercepted(&talea, &budget, &[&program, "fifo:50", "fifo:51"]);
    let results: Vec<&str> = ended.out.lines().collect();
    assert!(results[0].starts_with("fifo:50 = 0; policy 1"), "{}{}", ended.out, ended.err);
    // A refused change leaves the grant as it was.
    assert!(results[1].starts_with("fifo:51 = 1; policy 1"), "{}", ended.out);
    assert!(
        ended.err.contains("talead.toml:") && ended.err.contains("at most 50"),
        "{}",
        ended.err
    );
    // The program's own message.
    let program = compiled(&bench, "executor.cpp", &["-std=c++17"]);
    let ended = intercepted(&talea, &budget, &[&program]);
    assert!(ended.out.contains("control = 1 (Operation not permitted)"), "{}", ended.out);
}

#[test]
fn a_throttled_thread_reads_the_policy_in_force() {
    needs_root!();
    let bench = Bench::new("intercept-throttled");
    let daemon = Daemon::start(&bench, &config::with_rules(GENEROUS));
    let talea = Talea::of(&bench, &daemon);
    let program = direct_calls(&bench);
    let budget = ["--runtime", "1ms", "--period", "20ms"];
    let found = lines(&talea, &budget, &[&program, "fifo:10", "spin:300"]);
    assert_eq!(found[1], "spin: fifo other", "{found:?}");
}

#[test]
fn cyclictest_measures_with_the_policy_that_it_asks_for() {
    needs_root!();
    needs!("cyclictest (Debian package rt-tests)", has_program("cyclictest"));
    let bench = Bench::new("intercept-cyclictest");
    let daemon = Daemon::start(&bench, &config::with_rules(GENEROUS));
    let talea = Talea::of(&bench, &daemon);
    let rows: [(&str, Test); 2] = [("fifo", is_fifo), ("rr", is_rr)];
    for (policy, expected) in rows {
        let words = [
            "cyclictest",
            "-p",
            "80",
            "--policy",
            policy,
            "-t",
            "2",
            "-i",
            "1000",
            "-D",
            "1h",
            "-q",
        ];
        let mut running = Running::start(&talea, &[], &words);
        // Both measuring threads; the main thread has returned to SCHED_OTHER.
        eventually("the threads measure", || {
            let found = policies_of("cyclictest");
            found.len() == 3 && found.iter().filter(|policy| expected(policy)).count() == 2
        });
        kill_process(Pid::from_child(&running.talea), Signal::INT).expect("a signal");
        assert_eq!(running.talea.wait().expect("it ends").code(), Some(0), "{policy}");
        assert!(running.line().starts_with("T: 0"), "its result");
    }
}

#[test]
fn stress_ng_runs_under_every_policy() {
    needs_root!();
    needs!("stress-ng", has_program("stress-ng"));
    let bench = Bench::new("intercept-stress");
    let daemon = Daemon::start(&bench, &config::with_rules(GENEROUS));
    let talea = Talea::of(&bench, &daemon);
    let folder = bench.path("tmp");
    std::fs::create_dir(&folder).expect("a folder");
    chown(&folder, Some(ALICE), Some(ALICE)).expect("its owner");
    let rows: [(&[&str], Test); 3] = [
        (&["fifo", "--sched-prio", "20"], is_fifo),
        (&["rr", "--sched-prio", "20"], is_rr),
        (
            &[
                "deadline",
                "--sched-runtime",
                "1000000",
                "--sched-deadline",
                "5000000",
                "--sched-period",
                "10000000",
            ],
            |policy| policy.is_deadline(),
        ),
    ];
    for (policy, expected) in rows {
        // A budget for each thread, so that the daemon demotes none.
        let options = ["--runtime", "1ms", "--period", "10ms"];
        let folder = folder.to_str().expect("UTF-8");
        let words =
            [&["stress-ng", "--temp-path", folder, "--cpu", "1", "-t", "60", "--sched"], policy]
                .concat();
        let mut running = Running::start(&talea, &options, &words);
        eventually(policy[0], || policies_of("stress-ng-cpu").iter().any(expected));
        kill_process(Pid::from_child(&running.talea), Signal::INT).expect("a signal");
        assert!(running.talea.wait().expect("it ends").code().is_some(), "{policy:?}");
    }
}

#[test]
fn jackd_gets_its_real_time_thread() {
    needs_root!();
    needs!("jackd (Debian package jackd2)", has_program("jackd"));
    let bench = Bench::new("intercept-jackd");
    let daemon = Daemon::start(&bench, &config::with_rules(GENEROUS));
    let talea = Talea::of(&bench, &daemon);
    let words = ["jackd", "-R", "-P", "60", "--name", "talea-test", "-d", "dummy"];
    let mut running = Running::start(&talea, &[], &words);
    eventually("its driver is real-time", || policies_of("jackd").iter().any(is_fifo));
    kill_process(Pid::from_child(&running.talea), Signal::TERM).expect("a signal");
    let said: Vec<String> = running.output.by_ref().map_while(Result::ok).collect();
    running.talea.wait().expect("it ends");
    assert!(said.iter().any(|line| line.contains("realtime mode with priority 60")), "{said:?}");
    assert!(!said.iter().any(|line| line.contains("Cannot use real-time")), "{said:?}");
}

#[test]
fn a_thousand_calls_and_a_hundred_children() {
    needs_root!();
    let bench = Bench::new("intercept-often");
    let daemon = Daemon::start(&bench, &config::with_rules(GENEROUS));
    let talea = Talea::of(&bench, &daemon);
    let program = direct_calls(&bench);
    let found = lines(&talea, &[], &[&program, "often:500", "fork:100", "fifo:10"]);
    println!("one grant per call, {}", found[0]);
    assert!(found[0].starts_with("often: 0 failed"), "{found:?}");
    assert_eq!(found[1], "fork: 100 of 100 granted");
    eventually("no grant remains", || specs(&talea).is_empty());
}

#[test]
fn killing_talea_leaves_grants_and_ends_the_service() {
    needs_root!();
    let bench = Bench::new("intercept-killed");
    let daemon = Daemon::start(&bench, &config::with_rules(GENEROUS));
    let talea = Talea::of(&bench, &daemon);
    let program = direct_calls(&bench);
    let mut running =
        Running::start(&talea, &[], &[&program, "fifo:10", "pause", "rr:10", "spin:1", "pause"]);
    assert!(running.line().starts_with("fifo:10 = 0"));
    let pid = running.paused();
    running.talea.kill().expect("kill");
    running.talea.wait().expect("wait");
    assert!(is_fifo(&kernel::policy(pid)), "the thread owns the grant");
    assert_eq!(specs(&talea).len(), 1);
    running.go_on();
    assert!(running.line().starts_with(&format!("rr:10 = {}; policy 1", libc::ENOSYS)));
    assert!(running.line().starts_with("spin: fifo"), "reads are answered by the kernel");
    assert_eq!(running.paused(), pid);
    running.go_on();
    eventually("the grant ends with the program", || specs(&talea).is_empty());
}

#[test]
fn a_restarted_daemon_serves_the_next_call_and_a_stopped_one_refuses() {
    needs_root!();
    let bench = Bench::new("intercept-restart");
    let mut daemon = Daemon::start(&bench, &config::with_rules(GENEROUS));
    let talea = Talea::of(&bench, &daemon);
    let program = direct_calls(&bench);
    let calls = ["fifo:10", "pause", "rr:10", "pause", "fifo:20", "other"];
    let mut running = Running::start(&talea, &[], &[&[program.as_str()], &calls[..]].concat());
    assert!(running.line().starts_with("fifo:10 = 0"));
    running.paused();
    daemon.kill();
    daemon.restart();
    running.go_on();
    assert!(running.line().starts_with("rr:10 = 0; policy 2"), "the same grant, changed");
    assert_eq!(specs(&talea).len(), 1);
    running.paused();
    daemon.kill();
    running.go_on();
    assert!(running.line().starts_with("fifo:20 = 1; policy 2"));
    // Back to an ordinary policy needs no daemon.
    assert!(running.line().starts_with("other = 0; policy 0"));
}

#[test]
fn without_a_daemon_a_talea_with_rights_decides_itself() {
    needs_root!();
    let bench = Bench::new("intercept-alone");
    let talea = Talea::alone(&bench, config::PLUGINS);
    let program = direct_calls(&bench);
    // The broker stops during the pause and starts again for the next call.
    let words = ["run", "--intercept", "--", &program, "fifo:10", "spin:300", "rr:10", "other"];
    let ended = talea.run(&words);
    let found: Vec<&str> = ended.out.lines().collect();
    for (line, begin) in found.iter().zip([
        "fifo:10 = 0; policy 1",
        "spin: fifo -",
        "rr:10 = 0; policy 2",
        "other = 0; policy 0",
    ]) {
        assert!(line.starts_with(begin), "{line}: {begin}; {}", ended.err);
    }
    assert_eq!(found.len(), 4, "{}", ended.err);
}

#[test]
fn programs_of_other_users_are_left_to_the_kernel() {
    needs_root!();
    let bench = Bench::new("intercept-users");
    let daemon = Daemon::start(&bench, &config::with_rules(GENEROUS));
    let talea = Talea::of(&bench, &daemon);
    let program = direct_calls(&bench);
    // The superuser's talea may obtain everything, its program only what its own user may.
    let id = ALICE.to_string();
    let words = ["setpriv", "--reuid", &id, "--regid", &id, "--clear-groups", &program, "fifo:10"];
    let ended = talea.run(&[&["run", "--intercept", "--"][..], &words].concat());
    assert!(ended.out.starts_with("fifo:10 = 1; policy 0"), "{}{}", ended.out, ended.err);
}

#[test]
fn numbers_of_a_pid_namespace_are_translated() {
    needs_root!();
    let bench = Bench::new("intercept-namespace");
    let daemon = Daemon::start(&bench, &config::with_rules(GENEROUS));
    let talea = Talea::of(&bench, &daemon);
    let program = direct_calls(&bench);
    let ended = intercepted(
        &talea,
        &[],
        &["unshare", "--user", "--pid", "--fork", &program, "of:1", "fork:1", "of:2"],
    );
    let found: Vec<&str> = ended.out.lines().collect();
    assert!(found[0].starts_with("of:1 = 0; policy 1"), "{}{}", ended.out, ended.err);
    assert_eq!(found[1], "fork: 1 of 1 granted");
}

#[test]
fn set_user_id_programs_gain_nothing() {
    needs_root!();
    let bench = Bench::new("intercept-setuid");
    let daemon = Daemon::start(&bench, &config::with_rules(GENEROUS));
    let talea = Talea::of(&bench, &daemon);
    let program = bench.path("id");
    talea_kernel_tests::bench::copy("/usr/bin/id", &program);
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o4755)).expect("its mode");
    let program = program.to_str().expect("UTF-8");
    let plain = Command::new(program).arg("-u").uid(ALICE).gid(ALICE).output().expect("id");
    needs!("set-user-id programs in the temporary folder", plain.stdout == b"0\n");
    assert_eq!(lines(&talea, &[], &[program, "-u"]), [ALICE.to_string()]);
}

fn has_program(name: &str) -> bool {
    std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())
        .any(|folder: PathBuf| folder.join(name).is_file())
}

/// Starts a daemon with the plugins `edf` and `fp` that grants everything.
fn generous(scratch: &Scratch) -> Fake {
    let answer = |plugin: u32, name: &str| PluginAnswer {
        plugin,
        name: Name::new(name).expect("a name"),
        verdict: PluginVerdict::Ok { cpu: None, charge: Charge::ZERO, notes: Notes::default() },
        text: PluginText::NONE,
    };
    Fake::start(scratch, move |request| match request {
        Request::Explain(_) => Reply::Explained {
            chosen: Some(0),
            answers: vec![answer(0, "edf"), answer(1, "background")],
            refusal: None,
        },
        Request::Create(_) => Reply::Granted(granted(1)),
        Request::Attach { .. } => Reply::Done,
        other => panic!("{other:?}"),
    })
}

#[test]
fn a_call_becomes_a_request_of_the_plugin_of_its_policy() {
    let scratch = Scratch::new();
    let fake = generous(&scratch);
    let socket = fake.socket.to_str().expect("UTF-8");
    let words = ["--socket", socket, "run", "--intercept", "--", "chrt", "-f", "7", "true"];
    let ended = run(&scratch, &words);
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    let asked = fake.requests();
    let created: Vec<_> = asked
        .iter()
        .filter_map(|request| match request {
            Request::Create(task) => Some(task),
            _ => None,
        })
        .collect();
    assert_eq!(created.len(), 1, "{asked:?}");
    assert_eq!(created[0].params.priority, Some(Priority(7)));
    assert_eq!(created[0].plugin, Name::new("background"));
    assert_eq!(created[0].owner, Owner::Thread);
}

#[test]
fn a_second_supervisor_and_contradicting_options_are_refused() {
    let scratch = Scratch::new();
    let fake = generous(&scratch);
    let socket = fake.socket.to_str().expect("UTF-8");
    let inner = [crate::PROGRAM, "--socket", socket, "run", "--intercept", "--", "true"];
    let ended =
        run(&scratch, &[&["--socket", socket, "run", "--intercept", "--"][..], &inner].concat());
    assert_eq!(ended.code, Some(125), "{}", ended.err);
    assert!(ended.err.contains("another supervisor already intercepts"), "{}", ended.err);
    for option in [&["--priority", "5"][..], &["-P", "f:5"], &["--all-threads"]] {
        let ended = run(&scratch, &[&["run", "--intercept"], option, &["--", "true"]].concat());
        assert_eq!(ended.code, Some(125), "{option:?}");
    }
}
