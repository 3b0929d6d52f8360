//! Programs with a daemon that misbehaves. SIGPIPE has its default action.

use crate::mock::{Mock, Next};
use crate::toolchain::{C11, CPP17, command, expect, here, program};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::Stdio;

const ERROR: &str = "-1";

/// Returns the program that creates a task.
fn create() -> PathBuf {
    program(&here("tests/c/retif_connection_error.c"), C11, "retif")
}

#[test]
fn r6_a_daemon_that_does_not_answer_is_a_connection_error_in_time_despite_signals() {
    let mock = Mock::start();
    mock.script([Next::Mute]);
    expect(command(&create(), &mock.path()).args([ERROR, &libc::ETIMEDOUT.to_string()]), 0);
}

#[test]
fn retif_w15_r6_the_end_of_the_connection_during_a_call_is_a_connection_error() {
    let mock = Mock::start();
    // Each repetition ends in the same way, and their number is bounded.
    mock.script([Next::HangUp; 10]);
    expect(command(&create(), &mock.path()).args([ERROR, &libc::ECONNRESET.to_string()]), 0);
}

#[test]
fn r6_a_child_forked_during_a_call_does_not_wait_for_a_thread_of_its_parent() {
    for language in [C11, CPP17] {
        let program = program(&here("tests/c/fork_during_call.c"), language, "talea");
        let mock = Mock::start();
        // The daemon answers the request of the child, not that of the parent.
        mock.script([Next::Mute]);
        expect(&mut command(&program, &mock.path()), 0);
    }
}

#[test]
fn r6_an_invalid_answer_is_a_connection_error() {
    let mock = Mock::start();
    mock.script([Next::Nonsense]);
    expect(command(&create(), &mock.path()).args([ERROR, &libc::EPROTO.to_string()]), 0);
}

#[test]
fn r6_a_missing_daemon_is_a_connection_error() {
    let path = Path::new("/nonexistent/talea.sock");
    expect(command(&create(), path).args([ERROR, &libc::ENOENT.to_string()]), 0);
}

#[test]
fn retif_w16_failed_connects_leak_no_descriptors() {
    let program = program(&here("tests/c/retif_failed_connects.c"), C11, "retif");
    expect(&mut command(&program, Path::new("/nonexistent/talea.sock")), 0);
}

/// Calls `action` between the connect and the request of a program, and checks the result.
fn act_before_request(mut mock: Mock, result: &str, action: impl FnOnce(&mut Mock)) {
    let mut child = command(&create(), &mock.path())
        .args([result, "0"])
        .env("WAIT_FOR_LINE", "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it can be run");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("a line");
    assert_eq!(line, "connected\n");
    action(&mut mock);
    child.stdin.take().expect("piped").write_all(b"\n").expect("it reads a line");
    assert_eq!(child.wait().expect("it ends").code(), Some(0));
}

#[test]
fn r6_a_daemon_that_has_died_is_a_connection_error_and_no_signal() {
    act_before_request(Mock::start(), ERROR, Mock::down);
}

#[test]
fn r6_a_restarted_daemon_is_reconnected_to() {
    act_before_request(Mock::start(), "1", |mock| {
        mock.down();
        mock.up();
    });
}
