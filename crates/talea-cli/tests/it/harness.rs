//! Scratch folders, execution of the binary under test ([`crate::PROGRAM`]), and snapshots.
#![allow(dead_code, reason = "the tests of talea-lab use a part")]

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// A folder that is removed with the test.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new() -> Scratch {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("talea-cli-{}-{number}", std::process::id()));
        std::fs::create_dir(&path).expect("a folder for the test");
        Scratch(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Writes a file in it.
    pub(crate) fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, text).expect("a file for the test");
        path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A remaining folder is no reason to fail a test.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Returns the binary under test, with a fixed environment.
pub(crate) fn talea(scratch: &Scratch) -> Command {
    program(scratch, Path::new(crate::PROGRAM))
}

/// Returns a binary with a fixed environment.
fn program(scratch: &Scratch, path: &Path) -> Command {
    let mut command = Command::new(path);
    command.current_dir(scratch.path()).stdin(Stdio::null());
    for name in ["TALEA_SOCKET", "TALEA_DISABLE", "CLICOLOR_FORCE", "COLUMNS"] {
        command.env_remove(name);
    }
    command.env("NO_COLOR", "1").env("LC_ALL", "C");
    command
}

/// Returns the CPU time of each thread of a process in nanoseconds, with its name.
pub(crate) fn used(pid: u32) -> Vec<(String, u64)> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).expect("its threads").flatten();
    let read = |path: &Path, what: &str| std::fs::read_to_string(path.join(what)).ok();
    let of = |path: &Path| {
        let schedstat = read(path, "schedstat")?;
        Some((read(path, "comm")?.trim().to_owned(), schedstat.split(' ').next()?.parse().ok()?))
    };
    threads.filter_map(|thread| of(&thread.path())).collect()
}

/// Waits until a task of the process's run has executed for this time: then the start of the run is
/// complete.
pub(crate) fn under_way(pid: u32, worked: Duration) {
    let is_at_work = |(name, ns): &(String, u64)| {
        name.starts_with("exec-task") && u128::from(*ns) >= worked.as_nanos()
    };
    talea_kernel_tests::eventually("the run is under way", || used(pid).iter().any(is_at_work));
}

/// Output and exit code of a command.
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// Parses the output of `--json`.
pub(crate) fn json(out: &str) -> serde_json::Value {
    serde_json::from_str(out).unwrap_or_else(|error| panic!("{error}: {out}"))
}

/// Runs a command to its end.
pub(crate) fn finish(command: &mut Command) -> Ended {
    let Output { status, stdout, stderr } = command.output().expect("talea can be started");
    let text = |bytes| String::from_utf8(bytes).expect("talea prints UTF-8");
    Ended { code: status.code(), out: text(stdout), err: text(stderr) }
}

/// Runs talea with these arguments.
///
/// Another test may execute a system at the same time: then its CPUs are reserved, and the command
/// is repeated until they are free.
pub(crate) fn run(scratch: &Scratch, arguments: &[&str]) -> Ended {
    run_program(scratch, Path::new(crate::PROGRAM), arguments)
}

/// Variant of [`run`] for another binary.
pub(crate) fn run_program(scratch: &Scratch, path: &Path, arguments: &[&str]) -> Ended {
    const TRIES: usize = 300;
    let is_reserved = |ended: &Ended| ended.code == Some(3) && ended.err.contains("has reserved");
    for _ in 1..TRIES {
        let ended = finish(program(scratch, path).args(arguments));
        if !is_reserved(&ended) {
            return ended;
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    finish(program(scratch, path).args(arguments))
}

impl Ended {
    /// Returns everything as one text, for a snapshot.
    pub(crate) fn transcript(&self) -> String {
        let code = self.code.map_or_else(|| "a signal".to_owned(), |code| code.to_string());
        let mut text = format!("exit {code}\n");
        for (name, stream) in [("stdout", &self.out), ("stderr", &self.err)] {
            if !stream.is_empty() {
                let _ = write!(text, "--- {name}\n{stream}");
            }
        }
        text
    }
}

/// Compares with `snapshots/NAME.txt`; writes it where `TALEA_BLESS` is set.
pub(crate) fn snapshot(name: &str, text: &str) {
    compare(
        &Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/it/snapshots/{name}.txt")),
        text,
    );
}

/// Compares with a committed file; writes it where `TALEA_BLESS` is set.
pub(crate) fn compare(path: &Path, text: &str) {
    if std::env::var_os("TALEA_BLESS").is_some_and(|value| !value.is_empty()) {
        std::fs::create_dir_all(path.parent().expect("a file has a folder")).expect("the folder");
        std::fs::write(path, text).expect("the snapshot can be written");
        return;
    }
    let kept = std::fs::read_to_string(path).unwrap_or_default();
    let shown = path.display();
    if kept == text {
        return;
    }
    let at = kept.lines().zip(text.lines()).position(|(kept, now)| kept != now);
    let line = at.unwrap_or_else(|| kept.lines().count().min(text.lines().count()));
    panic!(
        "{shown} differs from line {}:\n  kept: {:?}\n  now:  {:?}\nTALEA_BLESS=1 writes it anew. All of it now:\n{text}",
        line + 1,
        kept.lines().nth(line),
        text.lines().nth(line)
    );
}
