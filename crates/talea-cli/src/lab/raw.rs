//! The baseline: the same bytes to and fro between two processes, with nobody thinking about them.

use super::rig;
use crate::exit::Exit;
use anyhow::{Context, bail};
use rustix::net::{RecvFlags, SendFlags, recv, send};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use talea_os::{Tid, seqpacket};
use talea_proto::MESSAGE_MAX;

/// A process that answers: it waits in `recv`, without a time-out and for this one client, and sends.
pub(super) struct Raw {
    socket: OwnedFd,
    child: Child,
    buffer: Vec<u8>,
}

impl Raw {
    /// On this CPU, at the priority of the server that it stands for.
    pub(super) fn start(cpu: u32) -> anyhow::Result<Raw> {
        let (socket, other) = seqpacket::pair(false)?;
        let child = Command::new(std::env::current_exe()?)
            .args(["lab", "pong"])
            .stdin(Stdio::from(other))
            .spawn()
            .context("the raw exchange cannot be started")?;
        let mut raw = Raw { socket, child, buffer: vec![0; MESSAGE_MAX] };
        rig::privileged(Tid::new(raw.child.id() as i32).context("a process without a number")?, cpu)?;
        raw.exchange((64, 64))?;
        Ok(raw)
    }

    /// One request of `ask` bytes, one reply of `answer` bytes; both at least 4.
    //
    // A call, as that of a library is: returning from a function that has waited in the kernel is dear where the kernel
    // overwrites the processor's return stack, and whether the compiler spares us that must not decide the ratios.
    #[inline(never)]
    pub(super) fn exchange(&mut self, (ask, answer): (usize, usize)) -> anyhow::Result<()> {
        self.buffer[..4].copy_from_slice(&(answer as u32).to_le_bytes());
        send(&self.socket, &self.buffer[..ask], SendFlags::NOSIGNAL)?;
        let (_, got) = recv(&self.socket, &mut self.buffer[..], RecvFlags::empty())?;
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
    let socket = rustix::stdio::stdin();
    let mut buffer = vec![0; MESSAGE_MAX];
    loop {
        let (_, got) = recv(socket, &mut buffer[..], RecvFlags::empty())?;
        let Some(answer) = buffer[..got].first_chunk() else { return Ok(Exit::Ok) };
        send(socket, &buffer[..u32::from_le_bytes(*answer) as usize], SendFlags::NOSIGNAL)?;
    }
}
