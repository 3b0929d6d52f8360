//! C programs, with SIGPIPE as it is by default, and a daemon that misbehaves.

use crate::mock::{Mock, Next};
use crate::stage::{C11, CPP17, command, expect, here, program};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::Stdio;

const ERROR: &str = "-1";

fn lost() -> PathBuf {
    program(&here("tests/c/retif_lost.c"), C11, "retif")
}

#[test]
fn r6_a_daemon_that_does_not_answer_is_a_connection_error_in_time_despite_signals() {
    let mock = Mock::start();
    mock.script([Next::Mute]);
    expect(command(&lost(), &mock.path()).args([ERROR, &libc::ETIMEDOUT.to_string()]), 0);
}

#[test]
fn retif_w15_r6_the_end_of_the_connection_in_the_middle_of_a_call_is_a_connection_error() {
    let mock = Mock::start();
    mock.script([Next::HangUp]);
    expect(command(&lost(), &mock.path()).args([ERROR, &libc::ECONNRESET.to_string()]), 0);
}

#[test]
fn r6_a_child_forked_amid_a_call_waits_for_no_thread_that_it_does_not_have() {
    for language in [C11, CPP17] {
        let program = program(&here("tests/c/forked_amid.c"), language, "talea");
        let mock = Mock::start();
        // The parent's question is not answered, the child's is.
        mock.script([Next::Mute]);
        expect(&mut command(&program, &mock.path()), 0);
    }
}

#[test]
fn r6_nonsense_is_a_connection_error() {
    let mock = Mock::start();
    mock.script([Next::Nonsense]);
    expect(command(&lost(), &mock.path()).args([ERROR, &libc::EPROTO.to_string()]), 0);
}

#[test]
fn r6_no_daemon_is_a_connection_error() {
    let nowhere = Path::new("/nonexistent/talea.sock");
    expect(command(&lost(), nowhere).args([ERROR, &libc::ENOENT.to_string()]), 0);
}

#[test]
fn retif_w16_connecting_in_vain_leaks_no_descriptors() {
    let program = program(&here("tests/c/retif_in_vain.c"), C11, "retif");
    expect(&mut command(&program, Path::new("/nonexistent/talea.sock")), 0);
}

/// Lets a connected program go on after `meanwhile`, and waits for its end.
fn between(mut mock: Mock, result: &str, meanwhile: impl FnOnce(&mut Mock)) {
    let mut child = command(&lost(), &mock.path())
        .args([result, "0"])
        .env("WAIT_FOR_LINE", "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it can be run");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("it says when");
    assert_eq!(line, "connected\n");
    meanwhile(&mut mock);
    child.stdin.take().expect("piped").write_all(b"\n").expect("it listens");
    assert_eq!(child.wait().expect("it ends").code(), Some(0));
}

#[test]
fn r6_a_daemon_that_has_died_is_a_connection_error_and_no_signal() {
    between(Mock::start(), ERROR, Mock::down);
}

#[test]
fn r6_a_daemon_that_has_come_back_is_found_again() {
    between(Mock::start(), "1", |mock| {
        mock.down();
        mock.up();
    });
}
