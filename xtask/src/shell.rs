//! Calling other programs: where, with what, and what they printed.

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process_group};
use std::io::{BufRead, BufReader, Read};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// The workspace's root.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace")
}

/// Where cargo puts what it builds.
pub(crate) fn target_dir() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| root().join("target"), |dir| root().join(dir))
}

/// Cargo in the workspace's root.
pub(crate) fn cargo(args: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(args).current_dir(root());
    command
}

/// Any program in the workspace's root.
pub(crate) fn program(name: &str, args: &[&str]) -> Command {
    let mut command = Command::new(name);
    command.args(args).current_dir(root());
    command
}

/// Whether a program can be found.
pub(crate) fn has(name: &str) -> bool {
    std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|dir| dir.join(name).is_file()))
}

/// Runs to the end, handing on every line of both outputs in the order they were written.
///
/// One pipe for both, so that a test's name stays next to what it said.
pub(crate) fn stream(command: Command, mut line: impl FnMut(&str)) -> Result<bool> {
    stream_while(command, |text| {
        line(text);
        ControlFlow::Continue(())
    })
}

/// The same until `line` has heard enough: then the program and all that it has started in its
/// process group are killed, which is no success.
pub(crate) fn stream_while(
    mut command: Command,
    mut line: impl FnMut(&str) -> ControlFlow<()>,
) -> Result<bool> {
    let (reader, writer) = std::io::pipe().context("no pipe")?;
    let name = command.get_program().to_string_lossy().into_owned();
    let mut child = command
        .stdin(std::process::Stdio::null())
        .stdout(writer.try_clone()?)
        .stderr(writer)
        .spawn()
        .with_context(|| format!("{name} cannot be started"))?;
    // The command holds the other end of the pipe; without this the reading would never end.
    drop(command);
    let (send, lines) = channel();
    std::thread::spawn(move || read_lines(reader, &send));
    loop {
        match lines.recv_timeout(PATIENCE) {
            Ok(text) => {
                if line(&text).is_break() {
                    // It may have ended meanwhile.
                    let _ = kill_process_group(Pid::from_child(&child), Signal::KILL);
                    child.wait()?;
                    return Ok(false);
                }
            }
            Err(RecvTimeoutError::Disconnected) => return Ok(child.wait()?.success()),
            Err(RecvTimeoutError::Timeout) => {
                if let Some(status) = child.try_wait()? {
                    let _ = line("xtask: a process that was left behind still holds the output");
                    return Ok(status.success());
                }
            }
        }
    }
}

/// How long the output of a program that has ended may stay open.
const PATIENCE: Duration = Duration::from_secs(2);

fn read_lines(reader: impl Read, lines: &Sender<String>) {
    let mut reader = BufReader::new(reader);
    let mut bytes = Vec::new();
    // An output that cannot be read has ended, and so has one that nobody listens to any more.
    while reader.read_until(b'\n', &mut bytes).is_ok_and(|read| read > 0) {
        let text = String::from_utf8_lossy(&bytes).trim_end_matches(['\n', '\r']).to_owned();
        if lines.send(text).is_err() {
            return;
        }
        bytes.clear();
    }
}

/// Runs quietly; what it printed, or nothing if it failed.
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
    fn whoever_has_heard_enough_waits_no_longer() {
        let start = Instant::now();
        let mut shell = program("sh", &["-c", "echo one; echo two; sleep 60 & sleep 60"]);
        shell.process_group(0);
        let mut heard = Vec::new();
        let done = stream_while(shell, |line| {
            heard.push(line.to_owned());
            if line == "two" { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        assert!(!done.expect("sh"));
        assert_eq!(heard, ["one", "two"]);
        assert!(start.elapsed() < Duration::from_mins(1));
    }

    #[test]
    fn both_outputs_come_in_the_order_they_were_written() {
        let mut heard = Vec::new();
        let shell = program("sh", &["-c", "echo one; echo two >&2; echo three; exit 3"]);
        assert!(!stream(shell, |line| heard.push(line.to_owned())).expect("sh"));
        assert_eq!(heard, ["one", "two", "three"]);
    }
}
