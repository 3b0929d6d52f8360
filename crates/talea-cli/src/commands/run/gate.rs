//! The gate: a program that is not started before its thread has what it needs.
//!
//! Model: `talea run` starts itself as `talea gate NAME -- CMD`. The gate connects to the abstract
//! socket NAME, waits for permission, and becomes CMD; its process and main thread stay the same
//! through `exec`, so what was attached is the program's main thread. The socket closes on `exec`:
//! the end of the stream says that the program has started, an error number on it says why it has
//! not.
//!
//! Absent on purpose: code between fork and exec. That would be unsafe, and a thread that forks
//! under a deadline policy could not do it at all. Whoever connects to the socket must be the
//! child, as the kernel says.

use super::Start;
use crate::args::GateArgs;
use crate::exit::{Exit, RUN_FAILED, RUN_NOT_EXECUTABLE, RUN_NOT_FOUND};
use anyhow::{Context, bail};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

const GO: u8 = b'g';
/// Only wakes the gate, so that its thread comes to where it is to run.
const STIR: u8 = b's';

/// A program that waits at its gate.
pub(super) struct Waiting {
    /// The process; already the one that the program will be.
    pub(super) child: Child,
    /// Readable when it ends.
    pub(super) pidfd: OwnedFd,
    stream: UnixStream,
}

/// Starts the gate for `command` and waits until it has arrived there.
pub(super) fn start(command: &[OsString]) -> anyhow::Result<Waiting> {
    let mut random = [0u8; 16];
    rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())
        .context("no random numbers")?;
    let name = format!("talea-gate-{:032x}", u128::from_ne_bytes(random));
    let address = SocketAddr::from_abstract_name(&name)?;
    let listener =
        UnixListener::bind_addr(&address).context("cannot make a socket for the gate")?;
    let child = Command::new("/proc/self/exe")
        .arg("gate")
        .arg(&name)
        .arg("--")
        .args(command)
        .spawn()
        .context("cannot start this program a second time as the gate (/proc/self/exe)")?;
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
            bail!("the gate ended before the program could be started");
        }
        let (stream, _) = listener.accept()?;
        // Anybody who guesses the name may connect; only the child's word counts.
        let peer = talea_os::peer::of(&stream)?;
        if peer.pid.is_some_and(|tid| tid.as_raw() == pid.as_raw_nonzero().get()) {
            return Ok(Waiting { child, pidfd, stream });
        }
    }
}

impl Waiting {
    /// Wakes the gate, which goes on waiting.
    pub(super) fn stir(&self) -> io::Result<()> {
        (&self.stream).write_all(&[STIR])
    }

    /// Opens the gate, and tells how the program started.
    pub(super) fn open(mut self) -> io::Result<(Child, OwnedFd, Start)> {
        self.stream.write_all(&[GO])?;
        let mut answer = Vec::new();
        self.stream.read_to_end(&mut answer)?;
        let start = match <[u8; 4]>::try_from(answer.as_slice()) {
            Ok(bytes) => Start::Failed(i32::from_ne_bytes(bytes)),
            Err(_) => Start::Started,
        };
        Ok((self.child, self.pidfd, start))
    }

    /// Sends the gate home: the program is never started.
    pub(super) fn abandon(mut self) {
        // The end of the stream without permission ends the gate; its exit code interests nobody.
        drop(self.stream);
        let _ = self.child.wait();
    }
}

/// The other side: `talea gate NAME -- CMD`.
pub(crate) fn enter(args: &GateArgs) -> anyhow::Result<Exit> {
    let address = SocketAddr::from_abstract_name(&args.name)?;
    let mut stream =
        UnixStream::connect_addr(&address).context("no talea run waits at this gate")?;
    let mut word = [STIR];
    while word[0] == STIR {
        if stream.read(&mut word)? != 1 {
            return Ok(Exit::Program(RUN_FAILED));
        }
    }
    if word[0] != GO {
        return Ok(Exit::Program(RUN_FAILED));
    }
    let error = become_program(&args.command);
    let _ = stream.write_all(&error.raw_os_error().unwrap_or(libc::ENOEXEC).to_ne_bytes());
    Ok(Exit::Program(not_started(&error)))
}

/// Replaces this process; returns only when that fails.
pub(super) fn become_program(command: &[OsString]) -> io::Error {
    let (program, arguments) = command.split_first().expect("the command line requires a program");
    Command::new(program).args(arguments).exec()
}

/// The exit code for a program that could not be started.
pub(super) fn not_started(error: &io::Error) -> u8 {
    match error.kind() {
        io::ErrorKind::NotFound => RUN_NOT_FOUND,
        _ => RUN_NOT_EXECUTABLE,
    }
}
