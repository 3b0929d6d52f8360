//! Tests of this program, run as an ordinary user.

use std::fs::Permissions;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;
use talea_kernel_tests::{ALICE, Bench};

/// Name of the environment variable that marks a process of the user.
const IS_USER: &str = "TALEA_RUNTIME_USER";

/// File for the output of such a process: the number of passed tests.
const COUNTED: &str = "counted";

/// Whether this is the process of the user.
pub(crate) fn is_it() -> bool {
    std::env::var_os(IS_USER).is_some()
}

/// Runs one of these tests in a process of an ordinary user, with this daemon. Returns its status
/// and its standard error.
pub(crate) fn runs(bench: &Bench, test: &str, socket: Option<&Path>) -> (ExitStatus, String) {
    run_all(bench, &[test], socket, Duration::from_secs(20))
}

fn run_all(
    bench: &Bench,
    tests: &[&str],
    socket: Option<&Path>,
    patience: Duration,
) -> (ExitStatus, String) {
    let program = bench.path("tests");
    talea_kernel_tests::bench::copy(std::env::current_exe().expect("this program"), &program);
    std::fs::set_permissions(&program, Permissions::from_mode(0o755)).expect("its permissions");
    let mut command = Command::new(&program);
    let counted = std::fs::File::create(bench.path(COUNTED)).expect("a file");
    command.args(tests).args(["--exact", "--nocapture"]).env(IS_USER, "1").stdout(counted);
    // Its parent has locked the system; its own locks and files are private.
    let own = bench.path("own");
    std::fs::create_dir_all(&own).expect("a folder");
    std::os::unix::fs::chown(&own, Some(ALICE), Some(ALICE)).expect("root may give it away");
    command.env("TMPDIR", own);
    // Otherwise it would use the system's daemon, if there is one.
    command.env("TALEA_SOCKET", socket.unwrap_or(Path::new("/nonexistent")));
    command.stderr(Stdio::piped()).current_dir("/").uid(ALICE).gid(ALICE);
    let mut child = command.spawn().expect("it is started");
    let mut stderr = child.stderr.take().expect("piped");
    let (tell, reported) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut said = String::new();
        let _ = stderr.read_to_string(&mut said);
        let _ = tell.send(said);
    });
    // Its standard error ends with it.
    let said = reported.recv_timeout(patience).or_else(|_| {
        child.kill().expect("a child of ours");
        reported.recv()
    });
    (child.wait().expect("a child of ours"), said.expect("it reads"))
}

/// Runs a test that must pass as the user.
#[track_caller]
pub(crate) fn must_pass(bench: &Bench, test: &str, socket: Option<&Path>) -> String {
    all_passed(bench, &[test], runs(bench, test, socket))
}

/// Runs tests that must pass as the user, without a daemon.
#[track_caller]
pub(crate) fn must_all_pass(bench: &Bench, tests: &[&str]) -> String {
    all_passed(bench, tests, run_all(bench, tests, None, Duration::from_mins(2)))
}

#[track_caller]
fn all_passed(bench: &Bench, tests: &[&str], (status, said): (ExitStatus, String)) -> String {
    let counted = std::fs::read_to_string(bench.path(COUNTED)).expect("what it printed");
    assert!(status.success(), "{counted}\n{said}");
    // If no test had the name, none would fail either.
    assert!(counted.contains(&format!("{} passed", tests.len())), "{tests:?}: {counted}");
    said
}
