//! Tests of this program as an ordinary user's.

use crate::MS;
use std::fs::Permissions;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use talea_kernel_tests::{ALICE, Bench};

/// What tells a test that it is the user's.
const IS_USER: &str = "TALEA_RUNTIME_USER";

/// Whether this is the user's process.
pub(crate) fn is_it() -> bool {
    std::env::var_os(IS_USER).is_some()
}

/// Runs one of these tests in a process of an ordinary user, with the daemon that listens there; what became of it, and what it said.
pub(crate) fn runs(bench: &Bench, test: &str, socket: Option<&Path>) -> (ExitStatus, String) {
    let program = bench.path("tests");
    talea_kernel_tests::bench::copy(std::env::current_exe().expect("this program"), &program);
    std::fs::set_permissions(&program, Permissions::from_mode(0o755)).expect("its permissions");
    let mut command = Command::new(&program);
    command.args(["--exact", test, "--nocapture"]).env(IS_USER, "1").stdout(Stdio::null());
    // Else it would be the machine's, if there is one.
    command.env("TALEA_SOCKET", socket.unwrap_or(Path::new("/nonexistent")));
    command.stderr(Stdio::piped()).current_dir("/").uid(ALICE).gid(ALICE);
    let mut child = command.spawn().expect("it is started");
    let mut stderr = child.stderr.take().expect("piped");
    let said = std::thread::spawn(move || {
        let mut said = String::new();
        let _ = stderr.read_to_string(&mut said);
        said
    });
    let end = Instant::now() + Duration::from_secs(20);
    let status = loop {
        if let Some(status) = child.try_wait().expect("a child of ours") {
            break status;
        }
        if Instant::now() > end {
            child.kill().expect("a child of ours");
        }
        std::thread::sleep(10 * MS);
    };
    (status, said.join().expect("it reads"))
}

/// The same, for a test that must be green there.
#[track_caller]
pub(crate) fn must_pass(bench: &Bench, test: &str, socket: Option<&Path>) -> String {
    let (status, said) = runs(bench, test, socket);
    assert!(status.success(), "{said}");
    said
}
