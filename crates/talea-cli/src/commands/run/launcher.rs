//! The launcher: delays `exec` until the program's main thread has its grant.
//!
//! Model: `talea run` starts itself as `talea launch NAME -- CMD`. This second process, the
//! launcher, connects to the abstract socket NAME, waits for permission and executes CMD. Process
//! and main thread stay the same through `exec`, so the attached thread is the program's main
//! thread. The socket closes on `exec`: the end of the stream reports the start of the program, an
//! error number reports a failure.
//!
//! With `--intercept`, the launcher first installs a filter for scheduling calls in itself, and
//! sends its listener over the socket.
//!
//! Absent on purpose: code between fork and exec. It would be unsafe, and a thread with a deadline
//! policy cannot fork at all. The kernel's peer credentials prove that the connecting process is
//! the child.

use crate::args::{LaunchArgs, RunArgs};
use anyhow::{Context, anyhow, bail};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use talea_os::sched_calls::Listener;
use talea_os::seqpacket;
use talea_study::exit::{Exit, RUN_FAILED, RUN_NOT_EXECUTABLE, RUN_NOT_FOUND};
use talea_study::output::note;

const START: u8 = b'g';
/// Message that only wakes the launcher, so that its thread migrates to its new CPUs.
const WAKE: u8 = b's';
/// Message that has the listener.
const LISTENER: u8 = b'l';

/// Result of starting the program.
pub(super) enum StartResult {
    /// The program is running.
    Started,
    /// `exec` failed with this error number.
    Failed(i32),
}

/// Launcher that waits for permission.
pub(super) struct WaitingProgram {
    /// Process of the launcher. The program will have the same process.
    pub(super) child: Child,
    /// Descriptor that becomes readable when the process ends.
    pub(super) pidfd: OwnedFd,
    stream: UnixStream,
    /// Listener of the program's scheduling calls, if they are intercepted.
    pub(super) listener: Option<Listener>,
}

/// Starts a launcher for `command` and waits for its connection.
pub(super) fn start(command: &[OsString], intercept: bool) -> anyhow::Result<WaitingProgram> {
    let mut random = [0u8; 16];
    rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())
        .context("no random numbers")?;
    let name = format!("talea-launch-{:032x}", u128::from_ne_bytes(random));
    let address = SocketAddr::from_abstract_name(&name)?;
    let listener =
        UnixListener::bind_addr(&address).context("cannot create a socket for the launcher")?;
    let child = Command::new("/proc/self/exe")
        .arg("launch")
        .arg(&name)
        .args(intercept.then_some("--intercept"))
        .arg("--")
        .args(command)
        .spawn()
        .context("cannot start this program a second time as the launcher (/proc/self/exe)")?;
    let pid = Pid::from_child(&child);
    let pidfd = pidfd_open(pid, PidfdFlags::empty()).context("no pidfd of the child")?;
    loop {
        let ends = {
            let mut fds = [
                PollFd::new(&listener, PollFlags::IN),
                PollFd::from_borrowed_fd(pidfd.as_fd(), PollFlags::IN),
            ];
            match poll(&mut fds, None) {
                Err(rustix::io::Errno::INTR) => continue,
                other => other?,
            };
            !fds[1].revents().is_empty()
        };
        if ends {
            bail!("the launcher ended before the program could be started");
        }
        let (stream, _) = listener.accept()?;
        // Other processes may guess the name and connect; only the child is accepted.
        let peer = talea_os::peer::credentials(&stream)?;
        if peer.pid.is_some_and(|tid| tid.as_raw() == pid.as_raw_nonzero().get()) {
            let listener = if intercept { Some(receive_listener(&stream)?) } else { None };
            return Ok(WaitingProgram { child, pidfd, stream, listener });
        }
    }
}

/// Receives the listener from the launcher, which states itself why it has none.
fn receive_listener(stream: &UnixStream) -> anyhow::Result<Listener> {
    let received = seqpacket::recv(stream, &mut [0])?;
    let fd = received.fd.context("the launcher cannot intercept calls of the program")?;
    Ok(Listener::from_fd(fd))
}

impl WaitingProgram {
    /// Wakes the launcher, which continues to wait.
    pub(super) fn wake(&self) -> io::Result<()> {
        (&self.stream).write_all(&[WAKE])
    }

    /// Permits the start and returns its result.
    pub(super) fn release(mut self) -> io::Result<(Child, OwnedFd, StartResult)> {
        self.stream.write_all(&[START])?;
        let mut answer = Vec::new();
        self.stream.read_to_end(&mut answer)?;
        let start = match <[u8; 4]>::try_from(answer.as_slice()) {
            Ok(bytes) => StartResult::Failed(i32::from_ne_bytes(bytes)),
            Err(_) => StartResult::Started,
        };
        Ok((self.child, self.pidfd, start))
    }

    /// Ends the launcher without starting the program.
    pub(super) fn cancel(mut self) {
        // The end of the stream without permission ends the launcher. Its exit code is irrelevant.
        drop(self.stream);
        let _ = self.child.wait();
    }
}

/// Body of the launcher: `talea launch NAME -- CMD`.
pub(crate) fn run_helper(args: &LaunchArgs) -> anyhow::Result<Exit> {
    let address = SocketAddr::from_abstract_name(&args.name)?;
    let mut stream =
        UnixStream::connect_addr(&address).context("no talea run waits at this socket")?;
    if args.intercept {
        let listener = Listener::install().map_err(|error| match error.raw_os_error() {
            Some(libc::EBUSY) => anyhow!(
                "another supervisor already intercepts the calls of this process, such as an outer \
                 talea run --intercept; start this one outside of it"
            ),
            _ => anyhow!(
                "the kernel refuses the filter for scheduling calls (seccomp user notification): {error}"
            ),
        })?;
        seqpacket::send_waiting(&stream, &[LISTENER], Some(listener.as_fd()))?;
    }
    let mut word = [WAKE];
    while word[0] == WAKE {
        if stream.read(&mut word)? != 1 {
            return Ok(Exit::Program(RUN_FAILED));
        }
    }
    if word[0] != START {
        return Ok(Exit::Program(RUN_FAILED));
    }
    let error = exec_program(&args.command);
    let _ = stream.write_all(&error.raw_os_error().unwrap_or(libc::ENOEXEC).to_ne_bytes());
    Ok(Exit::Program(start_error_code(&error)))
}

/// Replaces this process by the program. Returns only on failure.
pub(super) fn exec_program(command: &[OsString]) -> io::Error {
    let (program, arguments) = command.split_first().expect("the command line requires a program");
    Command::new(program).args(arguments).exec()
}

/// Prints why the program could not be started.
pub(super) fn print_start_error(args: &RunArgs, error: &std::io::Error) {
    note(&format!("cannot run {}: {error}", args.command[0].display()));
}

/// Returns the exit code for a program that could not be started.
pub(super) fn start_error_code(error: &io::Error) -> u8 {
    match error.kind() {
        io::ErrorKind::NotFound => RUN_NOT_FOUND,
        _ => RUN_NOT_EXECUTABLE,
    }
}
