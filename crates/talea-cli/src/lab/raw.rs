//! The baseline: an exchange of the same bytes between two processes without processing.
//!
//! There are two of them. [`Calls::Library`] makes its calls through the C library, as every
//! ordinary program does (here by way of the standard library's sockets): this is the raw exchange
//! of the thresholds, because a program without a daemon would be written so. [`Calls::Inlined`]
//! has the same system calls in its own code, as the daemon and the client of Talea have, where no
//! function returns between the kernel and the next call. No exchange of messages costs less, so it
//! shows what a request costs beyond the kernel. A return from a function that has waited in the
//! kernel is expensive where the kernel overwrites the processor's return stack, which is most of
//! the difference between the two.

use super::rig;
use crate::exit::Exit;
use anyhow::{Context, bail};
use rustix::net::{RecvFlags, SendFlags, recv, send};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixDatagram;
use std::process::{Child, Command, Stdio};
use talea_os::{Tid, seqpacket};
use talea_proto::MESSAGE_MAX;

/// How both ends make their calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Calls {
    /// Functions of the C library.
    Library,
    /// In the caller's own code.
    Inlined,
}

/// A process that answers: it waits in `recv`, without a time-out and for this one client, and
/// sends.
pub(super) struct Raw {
    /// Socket of sequenced packets, for which the standard library has no type; for its datagrams
    /// that library calls `send` and `recv`.
    socket: UnixDatagram,
    calls: Calls,
    child: Child,
    buffer: Vec<u8>,
}

impl Raw {
    /// On this CPU, at the priority of the server that it stands for.
    pub(super) fn start(cpu: u32) -> anyhow::Result<Raw> {
        Raw::start_with(cpu, Calls::Library)
    }

    /// Starts the process with [`Calls::Inlined`].
    pub(super) fn start_inlined(cpu: u32) -> anyhow::Result<Raw> {
        Raw::start_with(cpu, Calls::Inlined)
    }

    fn start_with(cpu: u32, calls: Calls) -> anyhow::Result<Raw> {
        let (socket, other) = seqpacket::pair(false)?;
        let child = Command::new(std::env::current_exe()?)
            .args(["lab", "pong"])
            .stdin(Stdio::from(other))
            .spawn()
            .context("the raw exchange cannot be started")?;
        let mut raw = Raw { socket: socket.into(), calls, child, buffer: vec![0; MESSAGE_MAX] };
        rig::privileged(
            Tid::new(raw.child.id() as i32).context("a process without a number")?,
            cpu,
        )?;
        // The first message says how the other end shall make its calls.
        raw.buffer[4] = u8::from(calls == Calls::Inlined);
        raw.exchange((64, 64))?;
        Ok(raw)
    }

    /// One request of `ask` bytes, one reply of `answer` bytes; both at least 5.
    //
    // A call, as that of a library is: whether the compiler inlines it must not decide the ratios.
    #[inline(never)]
    pub(super) fn exchange(&mut self, (ask, answer): (usize, usize)) -> anyhow::Result<()> {
        self.buffer[..4].copy_from_slice(&(answer as u32).to_le_bytes());
        let got = match self.calls {
            Calls::Library => {
                self.socket.send(&self.buffer[..ask])?;
                self.socket.recv(&mut self.buffer)?
            }
            Calls::Inlined => {
                send(&self.socket, &self.buffer[..ask], SendFlags::NOSIGNAL)?;
                recv(&self.socket, &mut self.buffer[..], RecvFlags::empty())?.1
            }
        };
        if got != answer {
            bail!("the raw exchange gave {got} bytes instead of {answer}");
        }
        Ok(())
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        // An error means that it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The other end.
pub(super) fn pong() -> anyhow::Result<Exit> {
    let socket = UnixDatagram::from(rustix::stdio::stdin().try_clone_to_owned()?);
    let mut buffer = vec![0; MESSAGE_MAX];
    let got = socket.recv(&mut buffer)?;
    let inlined = buffer[4] != 0;
    let Some(size) = size_of_answer(&buffer[..got]) else { return Ok(Exit::Ok) };
    socket.send(&buffer[..size])?;
    if inlined {
        answer_inlined(socket.as_fd(), &mut buffer)?;
    } else {
        answer(&socket, &mut buffer)?;
    }
    Ok(Exit::Ok)
}

/// How long the answer to this request is to be; `None` at the end.
fn size_of_answer(request: &[u8]) -> Option<usize> {
    request.first_chunk().map(|size| u32::from_le_bytes(*size) as usize)
}

#[inline(never)]
fn answer(socket: &UnixDatagram, buffer: &mut [u8]) -> io::Result<()> {
    loop {
        let got = socket.recv(buffer)?;
        let Some(size) = size_of_answer(&buffer[..got]) else { return Ok(()) };
        socket.send(&buffer[..size])?;
    }
}

#[inline(never)]
fn answer_inlined(socket: BorrowedFd, buffer: &mut [u8]) -> io::Result<()> {
    loop {
        let (_, got) = recv(socket, &mut *buffer, RecvFlags::empty())?;
        let Some(size) = size_of_answer(&buffer[..got]) else { return Ok(()) };
        send(socket, &buffer[..size], SendFlags::NOSIGNAL)?;
    }
}
