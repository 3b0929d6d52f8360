//! Functions that call other programs and read their output.

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// Time without output after which the reader checks whether the program has ended. Another process
/// may hold the output open.
const OUTPUT_TIMEOUT: Duration = Duration::from_secs(2);

/// Returns the root folder of the workspace.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is a folder of the workspace")
}

/// Returns the folder into which cargo builds.
pub(crate) fn target_dir() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| root().join("target"), |dir| root().join(dir))
}

/// Locks a mutex, even after a panic of another thread, because that thread has left the data
/// consistent.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns a call of cargo in the root folder of the workspace.
pub(crate) fn cargo(args: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(args).current_dir(root());
    command
}

/// Returns a call of any program in the root folder of the workspace.
pub(crate) fn program(name: &str, args: &[&str]) -> Command {
    let mut command = Command::new(name);
    command.args(args).current_dir(root());
    command
}

/// Whether the search path has a program of this name.
pub(crate) fn has(name: &str) -> bool {
    std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|dir| dir.join(name).is_file()))
}

/// Instant after which this process kills running programs.
static DEADLINE: OnceLock<Instant> = OnceLock::new();

/// Limits all programs that this process runs. After `deadline` the process kills running programs
/// with all their descendants, and starts no other programs. Only the first call has an effect.
pub(crate) fn end_programs_at(deadline: Instant) {
    let _ = DEADLINE.set(deadline);
}

fn is_past_deadline() -> bool {
    DEADLINE.get().is_some_and(|&deadline| Instant::now() > deadline)
}

/// Runs a program to its end, and passes each line of both outputs to `line`. Returns whether the
/// program succeeded.
pub(crate) fn stream(command: Command, line: impl FnMut(&str)) -> Result<bool> {
    Ok(status(command, line)?.is_some_and(|status| status.success()))
}

/// Variant of [`stream`] that returns the status of the program. Returns `None` if the program was
/// killed at the deadline, or not started after the deadline.
pub(crate) fn status(command: Command, mut line: impl FnMut(&str)) -> Result<Option<ExitStatus>> {
    drive(command, |text| {
        line(text);
        ControlFlow::Continue(())
    })
}

/// Variant of [`stream`] that stops when `line` breaks. Then the function kills the process group
/// that the program leads, and returns `false`.
pub(crate) fn stream_while(
    command: Command,
    line: impl FnMut(&str) -> ControlFlow<()>,
) -> Result<bool> {
    Ok(drive(command, line)?.is_some_and(|status| status.success()))
}

/// Runs a program with one pipe for both outputs, so that the name of a test stays next to the
/// output of the test. Returns `None` if the function killed the program or did not start it.
fn drive(
    mut command: Command,
    mut line: impl FnMut(&str) -> ControlFlow<()>,
) -> Result<Option<ExitStatus>> {
    if is_past_deadline() {
        let _ = line("xtask: not started, because the time limit is over");
        return Ok(None);
    }
    let (reader, writer) = std::io::pipe().context("no pipe")?;
    let name = command.get_program().to_string_lossy().into_owned();
    let mut child = command
        .stdin(std::process::Stdio::null())
        .stdout(writer.try_clone()?)
        .stderr(writer)
        .spawn()
        .with_context(|| format!("{name} cannot be started"))?;
    // The command holds the other end of the pipe: the output would never end.
    drop(command);
    let (send, lines) = channel();
    std::thread::spawn(move || read_lines(reader, &send));
    loop {
        if is_past_deadline() {
            for pid in descendants(Pid::from_child(&child)) {
                let _ = kill_process(pid, Signal::KILL);
            }
            child.kill()?;
            child.wait()?;
            let _ = line("xtask: killed, because the time limit is over");
            return Ok(None);
        }
        match lines.recv_timeout(OUTPUT_TIMEOUT) {
            Ok(text) => {
                if line(&text).is_break() {
                    // An error means that the group has ended already.
                    let _ = kill_process_group(Pid::from_child(&child), Signal::KILL);
                    child.wait()?;
                    return Ok(None);
                }
            }
            Err(RecvTimeoutError::Disconnected) => return Ok(Some(child.wait()?)),
            Err(RecvTimeoutError::Timeout) => {
                if let Some(status) = child.try_wait()? {
                    let _ = line("xtask: a process that has not ended still holds the output");
                    return Ok(Some(status));
                }
            }
        }
    }
}

/// Returns all processes below `top`, children before their parents.
fn descendants(top: Pid) -> Vec<Pid> {
    let mut children: HashMap<i32, Vec<i32>> = HashMap::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        if let Some(parent) = parent_of(&entry.path()) {
            children.entry(parent).or_default().push(pid);
        }
    }
    let mut found = vec![top.as_raw_nonzero().get()];
    let mut next = 0;
    while let Some(&pid) = found.get(next) {
        found.extend(children.get(&pid).into_iter().flatten());
        next += 1;
    }
    found.drain(1..).rev().filter_map(Pid::from_raw).collect()
}

/// Returns the parent of a process: the fourth field of `stat`. The second field, in brackets, may
/// contain any character.
fn parent_of(process: &Path) -> Option<i32> {
    let stat = std::fs::read_to_string(process.join("stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

fn read_lines(reader: impl Read, lines: &Sender<String>) {
    let mut reader = BufReader::new(reader);
    let mut bytes = Vec::new();
    // An output that cannot be read has ended.
    while reader.read_until(b'\n', &mut bytes).is_ok_and(|read| read > 0) {
        let text = String::from_utf8_lossy(&bytes).trim_end_matches(['\n', '\r']).to_owned();
        if lines.send(text).is_err() {
            return;
        }
        bytes.clear();
    }
}

/// Runs a program. Returns the standard output if the program succeeded.
pub(crate) fn output(mut command: Command) -> Option<String> {
    let output = command.stdin(std::process::Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::CommandExt;
    use std::time::Instant;

    #[test]
    fn a_break_kills_the_program_and_its_process_group() {
        let start = Instant::now();
        let mut shell = program("sh", &["-c", "echo one; echo two; sleep 60 & sleep 60"]);
        shell.process_group(0);
        let mut lines = Vec::new();
        let done = stream_while(shell, |line| {
            lines.push(line.to_owned());
            if line == "two" { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        assert!(!done.expect("sh"));
        assert_eq!(lines, ["one", "two"]);
        assert!(start.elapsed() < Duration::from_mins(1));
    }

    #[test]
    fn both_outputs_come_in_the_order_they_were_written() {
        let mut lines = Vec::new();
        let shell = program("sh", &["-c", "echo one; echo two >&2; echo three; exit 3"]);
        let end = status(shell, |line| lines.push(line.to_owned())).expect("sh");
        assert_eq!(end.and_then(|status| status.code()), Some(3));
        assert_eq!(lines, ["one", "two", "three"]);
    }

    #[test]
    fn a_child_of_a_child_is_found_and_comes_first() {
        let mut shell = Command::new("sh")
            .args(["-c", "sleep 60 & echo ready; wait"])
            .stdout(std::process::Stdio::piped())
            .spawn()
            .expect("sh");
        let mut word = [0; 5];
        Read::read_exact(shell.stdout.as_mut().expect("a pipe"), &mut word).expect("ready");
        let found = descendants(Pid::from_child(&shell));
        assert_eq!(found.len(), 1, "the sleep");
        let all = descendants(rustix::process::getpid());
        let place = |pid| all.iter().position(|&other| other == pid);
        assert!(place(found[0]) < place(Pid::from_child(&shell)));
        for pid in [found[0], Pid::from_child(&shell)] {
            kill_process(pid, Signal::KILL).expect("a process of this test");
        }
        shell.wait().expect("killed");
    }
}
