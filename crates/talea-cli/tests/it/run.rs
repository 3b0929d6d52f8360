//! `talea run`: exit codes, forwarded signals, and programs that must not start.

use crate::fake::{Fake, granted, refused};
use crate::harness::{Scratch, finish, run, snapshot, talea};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Child, Stdio};
use talea_proto::{Code, Owner, Reply, Request, SpecId};

/// Starts a daemon that grants everything.
fn generous(scratch: &Scratch) -> Fake {
    let mut next = 0;
    Fake::start(scratch, move |request| match request {
        Request::Create(task) => {
            assert_eq!(
                task.owner,
                Owner::Thread,
                "killing talea must take nothing from the program"
            );
            next += 1;
            Reply::Granted(granted(next))
        }
        Request::Attach { .. } | Request::Release(_) => Reply::Done,
        other => panic!("{other:?}"),
    })
}

fn shell(fake: &Fake, scratch: &Scratch, script: &str) -> crate::harness::Ended {
    let socket = fake.socket.to_str().unwrap();
    run(
        scratch,
        &[
            "--socket",
            socket,
            "run",
            "--period",
            "10ms",
            "--runtime",
            "2ms",
            "--",
            "sh",
            "-c",
            script,
        ],
    )
}

#[test]
fn talea_ends_as_the_program_ended() {
    let scratch = Scratch::new();
    let fake = generous(&scratch);
    for code in [0, 1, 2, 5, 42, 125, 255] {
        assert_eq!(shell(&fake, &scratch, &format!("exit {code}")).code, Some(code));
    }
    for (signal, code) in [("TERM", 143), ("KILL", 137), ("SEGV", 139)] {
        assert_eq!(
            shell(&fake, &scratch, &format!("kill -{signal} $$")).code,
            Some(code),
            "{signal}"
        );
    }
}

#[test]
fn what_was_attached_is_the_programs_own_main_thread() {
    let scratch = Scratch::new();
    let fake = generous(&scratch);
    let ended = shell(&fake, &scratch, "echo $$");
    let asked: Vec<_> = fake.asked.try_iter().collect();
    assert!(matches!(asked[0].request, Request::Create(_)));
    let thread = asked[1].thread.as_ref().expect("a descriptor came along");
    assert_eq!(thread.tid().to_string(), ended.out.trim());
}

#[test]
fn a_program_that_is_not_there_is_127_and_one_that_is_none_is_126() {
    let scratch = Scratch::new();
    let fake = generous(&scratch);
    let socket = fake.socket.to_str().unwrap();
    scratch.file("plain.txt", "no program");
    let mut transcript = String::new();
    for (program, code) in [("no-such-program", 127), ("./plain.txt", 126), (".", 126)] {
        // With a grant, and on the two paths without one.
        let ended = run(&scratch, &["--socket", socket, "run", "--", program]);
        assert_eq!(ended.code, Some(code), "{program}: {}", ended.err);
        assert_eq!(
            run(&scratch, &["run", "-P", "o:1", "--", program]).code,
            Some(code),
            "{program}"
        );
        let disabled =
            finish(talea(&scratch).env("TALEA_DISABLE", "1").args(["run", "--", program]));
        assert_eq!(disabled.code, Some(code), "{program}");
        transcript.push_str(&ended.transcript());
    }
    snapshot("run-not-started", &transcript);
}

#[test]
fn everything_that_fails_before_the_program_starts_is_125() {
    let scratch = Scratch::new();
    scratch.file("started", "");
    let touch = ["--", "rm", "started"];
    let fail = |arguments: &[&str]| {
        let ended = run(&scratch, &[arguments, &touch].concat());
        assert_eq!(ended.code, Some(125), "{arguments:?}: {}", ended.err);
        assert!(scratch.path().join("started").exists(), "the program ran although {}", ended.err);
        ended.err
    };
    fail(&["--socket", "nowhere.sock", "run"]);
    fail(&["run", "--period", "10"]);
    fail(&["run", "--no-such-option"]);
    for code in [Code::NoPlugin, Code::NotAllowed, Code::Stopping, Code::Malformed] {
        let scratch = Scratch::new();
        let fake = Fake::start(&scratch, move |_| refused(code));
        fail(&["--socket", fake.socket.to_str().unwrap(), "run"]);
    }
    assert_eq!(run(&scratch, &["run"]).code, Some(125));
    assert_eq!(run(&scratch, &["run", "--help"]).code, Some(0));
}

#[test]
fn a_program_whose_thread_cannot_be_attached_is_never_started() {
    let scratch = Scratch::new();
    scratch.file("started", "");
    let fake = Fake::start(&scratch, |request| match request {
        Request::Create(_) => Reply::Granted(granted(7)),
        Request::Attach { .. } => refused(Code::ForeignThread),
        Request::Release(SpecId(7)) => Reply::Done,
        other => panic!("{other:?}"),
    });
    let ended =
        run(&scratch, &["--socket", fake.socket.to_str().unwrap(), "run", "--", "rm", "started"]);
    assert_eq!(ended.code, Some(125), "{}", ended.err);
    assert!(scratch.path().join("started").exists());
    assert_eq!(fake.requests().last(), Some(&Request::Release(SpecId(7))), "the grant went back");
}

#[test]
fn talea_disable_starts_an_ordinary_program_and_says_so() {
    let scratch = Scratch::new();
    let ended = finish(talea(&scratch).env("TALEA_DISABLE", "1").args([
        "--socket",
        "nowhere.sock",
        "run",
        "--period",
        "1ms",
        "--",
        "sh",
        "-c",
        "exit 3",
    ]));
    snapshot("run-disabled", &ended.transcript());
    assert_eq!(ended.code, Some(3));
    let zero = finish(talea(&scratch).env("TALEA_DISABLE", "0").args([
        "--socket",
        "nowhere.sock",
        "run",
        "true",
    ]));
    assert_eq!(zero.code, Some(125), "0 does not disable");
}

#[test]
fn an_ordinary_policy_needs_no_broker_and_sets_the_nice_value() {
    let scratch = Scratch::new();
    let before = rustix::process::getpriority_process(None).expect("a nice value");
    let wanted = (before + 3).min(19);
    let policy = format!("o:{wanted}");
    let ended = run(&scratch, &["--socket", "nowhere.sock", "run", "-P", &policy, "--", "nice"]);
    assert_eq!(
        (ended.code, ended.out.trim()),
        (Some(0), wanted.to_string().as_str()),
        "{}",
        ended.err
    );
}

/// Returns a command that resets ignored signals; empty if `env` is not GNU's (coreutils 8.31 or
/// later). Then these tests need a foreground process.
fn default_signals() -> &'static str {
    const GNU: &str = "env --default-signal";
    let probe = std::process::Command::new("env").args(["--default-signal", "true"]).output();
    if probe.is_ok_and(|output| output.status.success()) { GNU } else { "" }
}

/// Starts `script` under talea in its own process group, and waits for its first line.
///
/// A shell cannot trap signals that were ignored at its start, as under `nohup` and in a script's
/// background.
fn start(fake: &Fake, scratch: &Scratch, script: &str) -> (Child, impl BufRead) {
    let socket = fake.socket.to_str().unwrap();
    // Such a group is never a terminal's foreground: signals are meant for talea alone.
    let mut child = talea(scratch)
        .args(["--socket", socket, "run", "--"])
        .args(default_signals().split_whitespace())
        .args(["sh", "-c", script])
        .stdout(Stdio::piped())
        .process_group(0)
        .spawn()
        .expect("talea can be started");
    let mut out = BufReader::new(child.stdout.take().expect("a pipe"));
    let mut line = String::new();
    out.read_line(&mut line).expect("the program prints a line");
    assert_eq!(line, "ready\n");
    (child, out)
}

#[test]
fn signals_are_passed_on_to_the_program() {
    let scratch = Scratch::new();
    let fake = generous(&scratch);
    for (signal, name, code) in [
        (Signal::TERM, "TERM", 1),
        (Signal::INT, "INT", 2),
        (Signal::HUP, "HUP", 3),
        (Signal::USR1, "USR1", 4),
        (Signal::QUIT, "QUIT", 5),
        (Signal::USR2, "USR2", 6),
        (Signal::WINCH, "WINCH", 7),
        (Signal::CONT, "CONT", 8),
    ] {
        // A shell runs a trap when the current command has ended; `wait` would miss a signal that
        // arrives just before it.
        let script = format!(
            "trap 'echo got {name}; exit {code}' {name}; echo ready; while :; do sleep 0.05; done"
        );
        let (mut child, mut out) = start(&fake, &scratch, &script);
        kill_process(Pid::from_child(&child), signal).expect("talea can be signalled");
        let mut line = String::new();
        out.read_line(&mut line).expect("the trap prints");
        assert_eq!(line, format!("got {name}\n"));
        assert_eq!(child.wait().expect("talea ends").code(), Some(code), "{name}");
    }
}

/// Returns the process that `talea run` has started.
fn program_of(talea: &Child) -> i32 {
    let (pid, path) = (talea.id(), format!("/proc/{0}/task/{0}/children", talea.id()));
    let children = std::fs::read_to_string(path).expect("a living talea");
    children.split_ascii_whitespace().next().and_then(|pid| pid.parse().ok()).unwrap_or_else(|| {
        panic!("talea {pid} has no program");
    })
}

fn is_stopped(pid: i32) -> bool {
    let tid = talea_os::Tid::new(pid).expect("a process");
    talea_os::proc::stat(tid).expect("a living process").state == b'T'
}

#[track_caller]
fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let end = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while !condition() {
        assert!(std::time::Instant::now() < end, "never happened: {what}");
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
}

#[test]
fn talea_stops_when_its_program_does_and_takes_it_along() {
    let scratch = Scratch::new();
    let fake = generous(&scratch);
    for stop in ["talea, as a shell would", "the program, behind our back"] {
        let (mut child, _out) = start(&fake, &scratch, "echo ready; exec sleep 60");
        let (talea, program) = (child.id() as i32, program_of(&child));
        let send = |pid: i32, signal: Signal| {
            kill_process(Pid::from_raw(pid).expect("a pid"), signal).expect("it can be signalled");
        };
        for round in 0..3 {
            match stop {
                "talea, as a shell would" => send(talea, Signal::TSTP),
                _ => send(program, Signal::STOP),
            }
            // Both: a shell that watches talea must see a stopped job.
            eventually(&format!("{stop}, round {round}: stopped"), || {
                is_stopped(talea) && is_stopped(program)
            });
            send(talea, Signal::CONT);
            eventually(&format!("{stop}, round {round}: continued"), || {
                !is_stopped(talea) && !is_stopped(program)
            });
        }
        send(talea, Signal::TERM);
        assert_eq!(child.wait().expect("talea ends").code(), Some(143));
    }
}

#[test]
fn a_terminals_keys_reach_the_program_once() {
    use std::io::{Read, Write};
    let scratch = Scratch::new();
    let fake = generous(&scratch);
    let talea = env!("CARGO_BIN_EXE_talea");
    let program = "n=0; trap 'n=$((n + 1)); echo got $n' INT; echo ready; i=0; \
                   while [ $i -lt 20 ]; do sleep 0.05; i=$((i + 1)); done; echo $n in total";
    let line = format!(
        "'{talea}' --socket '{}' run -- {} sh -c \"$PROGRAM\"",
        fake.socket.display(),
        default_signals()
    );
    // A new terminal, from util-linux.
    let mut command = std::process::Command::new("script");
    command.args(["-qec", &line, "/dev/null"]).env("PROGRAM", program).env("SHELL", "/bin/sh");
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let Ok(mut child) = command.spawn() else {
        eprintln!("skipped: needs script(1)");
        return;
    };
    let mut keys = child.stdin.take().expect("a pipe");
    let mut out = BufReader::new(child.stdout.take().expect("a pipe"));
    let mut said = String::new();
    while !said.contains("ready") {
        assert_ne!(out.read_line(&mut said).expect("output"), 0, "{said}");
    }
    keys.write_all(b"\x03").expect("a key");
    while !said.contains("got 1") {
        assert_ne!(out.read_line(&mut said).expect("output"), 0, "{said}");
    }
    drop(keys);
    out.read_to_string(&mut said).expect("the rest");
    child.wait().expect("script ends");
    assert!(said.contains("1 in total"), "{said}");
}

#[test]
fn a_signal_that_ends_the_program_is_128_and_its_number() {
    let scratch = Scratch::new();
    let fake = generous(&scratch);
    let (mut child, _out) = start(&fake, &scratch, "echo ready; exec sleep 60");
    kill_process(Pid::from_child(&child), Signal::TERM).expect("talea can be signalled");
    assert_eq!(child.wait().expect("talea ends").code(), Some(143));
}

#[test]
fn the_program_keeps_standard_streams_signals_and_environment() {
    let scratch = Scratch::new();
    let fake = generous(&scratch);
    let socket = fake.socket.to_str().unwrap();
    scratch.file("in", "line\n");
    let input = std::fs::File::open(scratch.path().join("in")).expect("the file");
    // No descriptor of talea may leak, no signal may stay blocked, and SIGPIPE must work as usual.
    let script = "read line; echo \"$line $MARK\"; grep -E 'Sig(Blk|Ign)' /proc/self/status; exec ls /proc/self/fd";
    let direct = finish(
        std::process::Command::new("sh")
            .args(["-c", script])
            .current_dir(scratch.path())
            .env("MARK", "mark")
            .stdin(input.try_clone().expect("a copy")),
    );
    let input = std::fs::File::open(scratch.path().join("in")).expect("the file");
    let held = finish(
        talea(&scratch)
            .env("MARK", "mark")
            .stdin(input)
            .args(["--socket", socket, "run", "--", "sh", "-c", script]),
    );
    assert_eq!(held.out, direct.out);
}

#[test]
fn r30_threads_that_are_not_covered_are_listed() {
    let scratch = Scratch::new();
    let fake = generous(&scratch);
    let socket = fake.socket.to_str().unwrap();
    let program = threaded(&scratch);
    let script = format!("exec {program} 1");
    let ended = run(&scratch, &["--socket", socket, "-v", "run", "--", "sh", "-c", &script]);
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    assert!(ended.err.contains("not held: 1 thread:"), "{}", ended.err);
    assert!(
        ended.err.contains("spec 1: edf, SCHED_DEADLINE over its whole root domain"),
        "{}",
        ended.err
    );
}

#[test]
fn r30_all_threads_gives_later_threads_grants_of_their_own() {
    let scratch = Scratch::new();
    let fake = generous(&scratch);
    let socket = fake.socket.to_str().unwrap();
    let program = threaded(&scratch);
    let report = scratch.path().join("report.json");
    let ended = run(
        &scratch,
        &[
            "--socket",
            socket,
            "run",
            "--all-threads",
            "--report",
            report.to_str().unwrap(),
            "--",
            &program,
            "2",
        ],
    );
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    let creates =
        fake.requests().iter().filter(|request| matches!(request, Request::Create(_))).count();
    assert_eq!(creates, 3, "main thread and two others");
    let text = std::fs::read_to_string(report).expect("a report");
    let report: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!((report["schema"].as_u64(), report["exit_code"].as_i64()), (Some(1), Some(0)));
    assert_eq!(report["grant"]["spec"], 1);
    let specs: Vec<_> =
        report["threads"].as_array().expect("a list").iter().map(|t| t["spec"].as_u64()).collect();
    assert_eq!(specs, [Some(2), Some(3)]);
}

/// Creates a program that starts a number of threads, keeps them for five scan intervals of talea,
/// and ends.
fn threaded(scratch: &Scratch) -> String {
    let source = scratch.file(
        "threaded.py",
        "#!/usr/bin/env python3\nimport sys, threading\nstop = threading.Event()\nthreads = \
         [threading.Thread(target=stop.wait) for _ in range(int(sys.argv[1]))]\n[t.start() for t in \
         threads]\nstop.wait(0.5)\nstop.set()\n[t.join() for t in threads]\n",
    );
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(&source, std::fs::Permissions::from_mode(0o755)).expect("executable");
    source.to_str().expect("UTF-8").to_owned()
}
