//! Exit codes: they name the person who must act.

use crate::fake::{Fake, refused};
use crate::harness::{Scratch, run, snapshot, talea};
use std::fmt::Write;
use std::process::Stdio;
use talea_proto::Code;

/// Requests a release, which any refusal may answer, and returns the exit code.
fn release_refused_with(code: Code) -> Option<i32> {
    let scratch = Scratch::new();
    let fake = Fake::start(&scratch, move |_| refused(code));
    run(&scratch, &["--socket", fake.socket.to_str().unwrap(), "release", "1"]).code
}

#[test]
fn each_refusal_ends_with_its_exit_code() {
    let table = [
        (Code::NotAllowed, 4),
        (Code::RuleBound, 4),
        (Code::RuleOmission, 4),
        (Code::NoPlugin, 3),
        (Code::UnknownPlugin, 2),
        (Code::NoSuchSpec, 1),
        (Code::NotOwner, 4),
        (Code::NoSuchThread, 1),
        (Code::ForeignThread, 4),
        (Code::ThreadTaken, 1),
        (Code::SpecTaken, 1),
        (Code::NotAttached, 1),
        (Code::Kernel, 3),
        (Code::Quota, 4),
        (Code::Malformed, 2),
        (Code::Version, 1),
        (Code::BadToken, 4),
        (Code::NotRoot, 4),
        (Code::TidNotAccepted, 1),
        (Code::Stopping, 1),
        (Code::Busy, 1),
        (Code::NotRecorded, 1),
        (Code::Starvation, 1),
        (Code::NotFrontEnd, 4),
    ];
    for (code, exit) in table {
        assert_eq!(release_refused_with(code), Some(exit), "{code:?}");
    }
}

#[test]
fn a_missing_daemon_is_exit_code_5_where_a_daemon_was_named() {
    let scratch = Scratch::new();
    for command in [
        &["list"][..],
        &["status"],
        &["show", "1"],
        &["release", "1"],
        &["explain"],
        &["attach", "1"],
    ] {
        let mut arguments = vec!["--socket", "nowhere.sock"];
        arguments.extend(command);
        let ended = run(&scratch, &arguments);
        assert_eq!((ended.code, ended.out.as_str()), (Some(5), ""), "{command:?}: {}", ended.err);
        assert!(ended.err.contains("nowhere.sock"), "{}", ended.err);
    }
}

#[test]
fn a_closed_socket_is_named() {
    let scratch = Scratch::new();
    drop(Fake::start(&scratch, |_| unreachable!("no request is sent")));
    scratch.file("plain", "");
    let ended = run(&scratch, &["--socket", "plain", "status"]);
    snapshot("no-listener", &ended.transcript());
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
fn a_misspelt_option_of_run_is_not_taken_for_the_program() {
    let scratch = Scratch::new();
    let mut transcript = String::new();
    for arguments in [
        &["run", "--perid", "10ms", "--", "true"][..],
        &["run", "--version"],
        &["run", "-x", "true"],
    ] {
        let ended = run(&scratch, arguments);
        assert_eq!(ended.code, Some(125), "{arguments:?}: {}", ended.err);
        let _ = write!(transcript, "$ talea {}\n{}\n", arguments.join(" "), ended.transcript());
    }
    snapshot("run-wrong-options", &transcript);
    // Options after the program belong to the program.
    let ended = run(&scratch, &["run", "-P", "o:0", "echo", "--period", "-x"]);
    assert_eq!((ended.code, ended.out.as_str()), (Some(0), "--period -x\n"), "{}", ended.err);
}

#[test]
fn a_configuration_that_was_named_and_cannot_be_used_is_exit_code_2() {
    let scratch = Scratch::new();
    scratch.file("broken.toml", "[[plugin]\n");
    for file in ["nowhere.toml", "broken.toml"] {
        for command in
            [&["list"][..], &["status"], &["explain", "--priority", "3"], &["release", "1"]]
        {
            let mut arguments = vec!["--config", file];
            arguments.extend(command);
            let ended = run(&scratch, &arguments);
            assert_eq!(
                (ended.code, ended.out.as_str()),
                (Some(2), ""),
                "{arguments:?}: {}",
                ended.err
            );
            assert!(ended.err.contains(&format!("talea check {file}")), "{}", ended.err);
        }
    }
    let ended = run(&scratch, &["--config", "nowhere.toml", "run", "--priority", "3", "true"]);
    assert_eq!(ended.code, Some(125), "{}", ended.err);
}

#[test]
fn a_socket_path_that_is_too_long_is_reported() {
    let scratch = Scratch::new();
    let ended = run(&scratch, &["--socket", &"x".repeat(200), "list"]);
    assert_eq!(ended.code, Some(5));
    assert!(ended.err.contains("is too long for a socket; 107 bytes fit"), "{}", ended.err);
}

#[test]
fn arguments_that_are_not_text_are_reported_and_reach_the_program() {
    use std::os::unix::ffi::OsStrExt;
    let scratch = Scratch::new();
    let odd = std::ffi::OsStr::from_bytes(b"b\xffd");
    let shown = talea(&scratch).arg("show").arg(odd).output().expect("talea");
    assert_eq!(shown.status.code(), Some(2));
    let echoed =
        talea(&scratch).args(["run", "-P", "o:0", "echo"]).arg(odd).output().expect("talea");
    assert_eq!((echoed.status.code(), echoed.stdout.as_slice()), (Some(0), b"b\xffd\n".as_slice()));
}

#[test]
fn a_pipe_that_is_closed_and_a_disk_that_is_full_end_quietly_and_loudly() {
    let scratch = Scratch::new();
    let mut child = talea(&scratch)
        .args(["completions", "bash"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("talea");
    drop(child.stdout.take());
    assert!(
        child.wait().expect("it ends").code().is_none_or(|code| code == 0),
        "a closed pipe is no failure"
    );
    let Ok(full) = std::fs::File::options().write(true).open("/dev/full") else { return };
    let ended = talea(&scratch).arg("markdown").stdout(full).output().expect("talea");
    assert_eq!(ended.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&ended.stderr).contains("No space left"));
}

#[test]
fn help_and_version_are_no_failures() {
    let scratch = Scratch::new();
    for arguments in [&["--help"][..], &["-h"], &["--version"], &["run", "--help"], &["run", "-h"]]
    {
        let ended = run(&scratch, arguments);
        assert_eq!((ended.code, ended.err.as_str()), (Some(0), ""), "{arguments:?}");
    }
}
