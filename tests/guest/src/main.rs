//! Process 1 of the guest: mounts what programs expect, runs the tests, prints their result, and
//! powers off.
//!
//! There is no shell and nothing else in this machine. Its arguments come from the kernel's command
//! line, one word each, behind `--`. Whatever happens, the machine goes off: a first process that
//! returns is a kernel panic.
#![forbid(unsafe_code)]

use rustix::mount::{MountFlags, mount};
use rustix::system::{RebootCommand, reboot};
use std::fs::OpenOptions;
use std::io;
use std::process::Command;

/// Folder of the tests.
const TESTS: &str = "/tests";

/// Type and mount point of each file system.
const MOUNTS: [(&str, &str); 7] = [
    ("devtmpfs", "/dev"),
    ("proc", "/proc"),
    ("sysfs", "/sys"),
    ("debugfs", "/sys/kernel/debug"),
    ("tracefs", "/sys/kernel/tracing"),
    ("cgroup2", "/sys/fs/cgroup"),
    ("tmpfs", "/tmp"),
];

fn main() {
    let said = match run() {
        Ok(code) => format!("guest: ended with {code}"),
        Err(error) => format!("guest: {error}"),
    };
    println!("{said}");
    rustix::fs::sync();
    // No process can report a failure of this call; then the kernel panics, which the host counts
    // as a failure.
    let _ = reboot(RebootCommand::PowerOff);
}

/// The exit code of the tests.
fn run() -> io::Result<i32> {
    for (kind, at) in MOUNTS {
        // A file system that the kernel lacks fails the test that needs it.
        let made = std::fs::create_dir_all(at).is_ok();
        let mounted = made && mount(kind, at, kind, MountFlags::empty(), None).is_ok();
        if !mounted && matches!(kind, "devtmpfs" | "proc") {
            return Err(io::Error::other(format!("{kind} cannot be mounted")));
        }
    }
    let console = OpenOptions::new().read(true).write(true).open("/dev/console")?;
    rustix::stdio::dup2_stdin(&console)?;
    rustix::stdio::dup2_stdout(&console)?;
    rustix::stdio::dup2_stderr(&console)?;
    let version = std::fs::read_to_string("/proc/version")?;
    println!("guest: {}", version.trim());
    let status = Command::new(TESTS)
        .args(std::env::args().skip(1))
        .env("TALEA_IN_GUEST", "1")
        .env("RUST_BACKTRACE", "1")
        .status()?;
    Ok(status.code().unwrap_or(-1))
}
