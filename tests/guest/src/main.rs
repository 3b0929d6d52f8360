//! Program of the guests beside the tests: process 1, and the program that runs the tests.
//!
//! | started as | file system | effect |
//! | --- | --- | --- |
//! | process 1 | without systemd | mounts what programs expect, runs the tests |
//! | process 1 | with systemd | makes a root that can be pivoted, becomes systemd |
//! | a service of systemd | with systemd | runs the tests |
//! | `init sleep` | any | sleeps: a thread for the tests |
//! | `init connect PATH` | any | connects to a sequenced-packet socket |
//!
//! The program prints the result of the tests and powers the machine off. There is no shell. The
//! arguments of the tests are the words of the kernel's command line behind `--`. Every error
//! powers the machine off, because the end of process 1 is a kernel panic.
#![forbid(unsafe_code)]

use rustix::mount::{MountFlags, mount, mount_bind, mount_move};
use rustix::system::{RebootCommand, reboot};
use std::fs::OpenOptions;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// Path of the tests.
const TESTS: &str = "/tests";
/// Path of systemd.
const SYSTEMD: &str = "/usr/lib/systemd/systemd";
/// Mount point of the root that systemd gets.
const ROOT: &str = "/sysroot";

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
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match &arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["sleep"] => loop {
            std::thread::park();
        },
        ["connect", path] => {
            if let Err(error) = connect(path) {
                eprintln!("{}", io::Error::from(error));
            }
            return;
        }
        _ => {}
    }
    let result = if std::process::id() != 1 {
        run()
    } else if Path::new(SYSTEMD).exists() {
        become_systemd()
    } else {
        mount_all().and_then(|()| run())
    };
    let text = match result {
        Ok(code) => format!("guest: ended with {code}"),
        Err(error) => format!("guest: {error}"),
    };
    println!("{text}");
    rustix::fs::sync();
    // No process can report a failure of this call; then the kernel panics, which the host counts
    // as a failure.
    let _ = reboot(RebootCommand::PowerOff);
}

/// Replaces this program by systemd. The function returns only an error.
///
/// `pivot_root` refuses the kernel's initial file system, and systemd pivots for each sandboxed
/// service. For this reason systemd gets a bind mount of the initial file system as its root.
fn become_systemd() -> io::Result<i32> {
    std::fs::create_dir_all(ROOT)?;
    mount_bind("/", ROOT)?;
    std::env::set_current_dir(ROOT)?;
    mount_move(".", "/")?;
    rustix::process::chroot(".")?;
    Err(Command::new(SYSTEMD).current_dir("/").exec())
}

fn connect(path: &str) -> rustix::io::Result<()> {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, connect, socket};
    let socket = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None)?;
    connect(&socket, &SocketAddrUnix::new(path)?)
}

fn mount_all() -> io::Result<()> {
    for (kind, at) in MOUNTS {
        // A file system that the kernel lacks fails the test that needs it.
        let made = std::fs::create_dir_all(at).is_ok();
        let mounted = made && mount(kind, at, kind, MountFlags::empty(), None).is_ok();
        if !mounted && matches!(kind, "devtmpfs" | "proc") {
            return Err(io::Error::other(format!("{kind} cannot be mounted")));
        }
    }
    Ok(())
}

/// Runs the tests on the console. Returns their exit code.
fn run() -> io::Result<i32> {
    let console = OpenOptions::new().read(true).write(true).open("/dev/console")?;
    rustix::stdio::dup2_stdin(&console)?;
    rustix::stdio::dup2_stdout(&console)?;
    rustix::stdio::dup2_stderr(&console)?;
    let version = std::fs::read_to_string("/proc/version")?;
    println!("guest: {}", version.trim());
    let line = std::fs::read_to_string("/proc/cmdline")?;
    let arguments = line.split_whitespace().skip_while(|&word| word != "--").skip(1);
    let status = Command::new(TESTS)
        .args(arguments)
        .env("TALEA_IN_GUEST", "1")
        .env("TALEA_BIN_DIR", "/bin")
        .env("RUST_BACKTRACE", "1")
        .status()?;
    Ok(status.code().unwrap_or(-1))
}
