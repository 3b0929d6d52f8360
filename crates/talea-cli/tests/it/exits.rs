//! Exit codes: who has to act.

use crate::fake::{Fake, refused};
use crate::harness::{Scratch, run, snapshot};
use std::fmt::Write;
use talea_proto::Code;

/// Asks for a release, which every refusal may answer, and returns the exit code.
fn release_refused_with(code: Code) -> Option<i32> {
    let scratch = Scratch::new();
    let fake = Fake::start(&scratch, move |_| refused(code));
    run(&scratch, &["--socket", fake.socket.to_str().unwrap(), "release", "1"]).code
}

#[test]
fn each_refusal_ends_with_the_code_of_whoever_must_act() {
    let table = [
        (Code::NotAllowed, 4),
        (Code::RuleBound, 4),
        (Code::RuleOmission, 4),
        (Code::NoPlugin, 3),
        (Code::UnknownPlugin, 2),
        (Code::NoSuchSpec, 1),
        (Code::NotYours, 4),
        (Code::NoSuchThread, 1),
        (Code::OthersThread, 4),
        (Code::ThreadTaken, 1),
        (Code::SpecTaken, 1),
        (Code::NotAttached, 1),
        (Code::Kernel, 3),
        (Code::Quota, 4),
        (Code::Malformed, 2),
        (Code::Version, 1),
        (Code::BadToken, 4),
        (Code::NotRoot, 4),
        (Code::BareTid, 1),
        (Code::Stopping, 1),
        (Code::Busy, 1),
    ];
    for (code, exit) in table {
        assert_eq!(release_refused_with(code), Some(exit), "{code:?}");
    }
}

#[test]
fn a_missing_daemon_is_exit_code_5_where_a_daemon_was_named() {
    let scratch = Scratch::new();
    for command in
        [&["list"][..], &["status"], &["show", "1"], &["release", "1"], &["explain"], &["attach", "1"]]
    {
        let mut arguments = vec!["--socket", "nowhere.sock"];
        arguments.extend(command);
        let ended = run(&scratch, &arguments);
        assert_eq!((ended.code, ended.out.as_str()), (Some(5), ""), "{command:?}: {}", ended.err);
        assert!(ended.err.contains("nowhere.sock"), "{}", ended.err);
    }
}

#[test]
fn a_closed_socket_says_whose_door_it_is() {
    let scratch = Scratch::new();
    drop(Fake::start(&scratch, |_| unreachable!("nobody asks")));
    scratch.file("plain", "");
    let ended = run(&scratch, &["--socket", "plain", "status"]);
    snapshot("nobody-listens", &ended.transcript());
}

#[test]
fn wrong_arguments_are_exit_code_2_and_say_what_would_be_right() {
    let scratch = Scratch::new();
    let mut transcript = String::new();
    for arguments in [
        &["explain", "--period", "10"][..],
        &["explain", "--period", "10 ms"],
        &["explain", "--runtime", "-2ms"],
        &["explain", "--priority", "100"],
        &["explain", "--cpus", "3-1"],
        &["explain", "-P", "d:10ms:2ms"],
        &["explain", "-P", "x"],
        &["explain", "-P", "f:1", "--priority", "2"],
        &["explain", "-P", "o:5"],
        &["show", "twelve"],
        &["attach", "0"],
        &["release"],
        &["lst"],
        &[],
    ] {
        let ended = run(&scratch, arguments);
        assert_eq!(ended.code, Some(2), "{arguments:?}");
        let _ = write!(transcript, "$ talea {}\n{}\n", arguments.join(" "), ended.transcript());
    }
    snapshot("wrong-arguments", &transcript);
}

#[test]
fn help_and_version_are_no_failures() {
    let scratch = Scratch::new();
    for arguments in [&["--help"][..], &["-h"], &["--version"], &["run", "--help"], &["run", "-h"]] {
        let ended = run(&scratch, arguments);
        assert_eq!((ended.code, ended.err.as_str()), (Some(0), ""), "{arguments:?}");
    }
}
