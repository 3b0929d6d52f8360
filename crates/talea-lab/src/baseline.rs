//! Baseline of `talea-lab ipc`: an exchange of the same bytes between two processes without
//! processing.
//!
//! There are two baselines. [`Calls::Library`] makes its system calls through the C library, as
//! ordinary programs do (here through the sockets of the standard library). This is the raw
//! exchange of the thresholds, because a program without a daemon would be written like that.
//! [`Calls::Inlined`] makes the same system calls in its own code, as Talea's daemon and client do.
//! No exchange of messages costs less, so it shows the cost of a request beyond the kernel.
//!
//! The difference is mostly the cost of returns. If the kernel overwrites the processor's return
//! stack, a return from a function that has waited in the kernel is expensive.

use super::placement;
use anyhow::{Context, bail};
use rustix::net::{RecvFlags, SendFlags, recv, send};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixDatagram;
use std::process::{Child, Command, Stdio};
use talea_os::{Tid, seqpacket};
use talea_proto::MESSAGE_MAX;
use talea_study::exit::Exit;

/// Code by which both processes make their system calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Calls {
    /// Functions of the C library.
    Library,
    /// Instructions in the caller's own code.
    Inlined,
}

/// Raw exchange with a process that replies. The process waits in `recv` for this one client,
/// without a time-out, and sends.
pub(super) struct RawExchange {
    /// Socket of sequenced packets. The standard library has no type for such a socket, but calls
    /// `send` and `recv` for datagrams.
    socket: UnixDatagram,
    calls: Calls,
    child: Child,
    buffer: Vec<u8>,
}

impl RawExchange {
    /// Starts the replying process on `cpu`, at the priority of the daemon that it replaces.
    pub(super) fn start(cpu: u32) -> anyhow::Result<RawExchange> {
        RawExchange::start_with(cpu, Calls::Library)
    }

    /// Starts the replying process with [`Calls::Inlined`].
    pub(super) fn start_inlined(cpu: u32) -> anyhow::Result<RawExchange> {
        RawExchange::start_with(cpu, Calls::Inlined)
    }

    fn start_with(cpu: u32, calls: Calls) -> anyhow::Result<RawExchange> {
        let (socket, other) = seqpacket::pair(false)?;
        let child = Command::new(std::env::current_exe()?)
            .arg("pong")
            .stdin(Stdio::from(other))
            .spawn()
            .context("the raw exchange cannot be started")?;
        let mut raw =
            RawExchange { socket: socket.into(), calls, child, buffer: vec![0; MESSAGE_MAX] };
        placement::pin_with_priority(
            Tid::new(raw.child.id() as i32).context("a process without a number")?,
            cpu,
        )?;
        // The first message selects how the other process makes its calls.
        raw.buffer[4] = u8::from(calls == Calls::Inlined);
        raw.exchange((64, 64))?;
        Ok(raw)
    }

    /// Exchanges one request of `ask` bytes and one reply of `answer` bytes. Both have at least 5
    /// bytes.
    //
    // Not inlined, as a function of a library is not: the compiler's choice must not change the
    // ratios.
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

impl Drop for RawExchange {
    fn drop(&mut self) {
        // An error means that the process has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs the replying process.
pub(super) fn pong() -> anyhow::Result<Exit> {
    let socket = UnixDatagram::from(rustix::stdio::stdin().try_clone_to_owned()?);
    let mut buffer = vec![0; MESSAGE_MAX];
    let got = socket.recv(&mut buffer)?;
    let inlined = buffer[4] != 0;
    let Some(size) = reply_size(&buffer[..got]) else { return Ok(Exit::Ok) };
    socket.send(&buffer[..size])?;
    if inlined {
        reply_inlined(socket.as_fd(), &mut buffer)?;
    } else {
        answer(&socket, &mut buffer)?;
    }
    Ok(Exit::Ok)
}

/// Returns the size of the reply to a request. Returns `None` at the end of the exchange.
fn reply_size(request: &[u8]) -> Option<usize> {
    request.first_chunk().map(|size| u32::from_le_bytes(*size) as usize)
}

#[inline(never)]
fn answer(socket: &UnixDatagram, buffer: &mut [u8]) -> io::Result<()> {
    loop {
        let got = socket.recv(buffer)?;
        let Some(size) = reply_size(&buffer[..got]) else { return Ok(()) };
        socket.send(&buffer[..size])?;
    }
}

#[inline(never)]
fn reply_inlined(socket: BorrowedFd, buffer: &mut [u8]) -> io::Result<()> {
    loop {
        let (_, got) = recv(socket, &mut *buffer, RecvFlags::empty())?;
        let Some(size) = reply_size(&buffer[..got]) else { return Ok(()) };
        send(socket, &buffer[..size], SendFlags::NOSIGNAL)?;
    }
}
