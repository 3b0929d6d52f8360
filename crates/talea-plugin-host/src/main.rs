//! A process of its own for one scheduling plugin from outside.
//!
//! Model: descriptor 3 is a sequenced-packet socket to `talead`. The first message says what to
//! load; each later one is a question that is answered before the next is read. The end of the
//! stream is the end of the process. What the plugin writes to standard error goes where the
//! daemon's own messages go.
//!
//! Invariant: the object is loaded only after every right is gone (see `sandbox`), because loading
//! runs its code.
//!
//! ReTiF, J. Systems Architecture 2021, section 3.4 loads plugins into the daemon; why Talea does
//! not is in design section 11.
#![allow(
    unsafe_code,
    reason = "this crate exists to call foreign C; each block carries its argument"
)]
#![warn(clippy::undocumented_unsafe_blocks, unsafe_op_in_unsafe_fn)]

mod abi;
mod plugin;
mod sandbox;
mod seccomp;

use plugin::Plugin;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use std::os::fd::BorrowedFd;
use std::process::ExitCode;
use talea_proto::host::{Answer, HOST_MESSAGE_MAX, HOST_VERSION, Question, Setup, failure};
use zerocopy::{FromBytes, IntoBytes};

/// The descriptor that `talead` leaves us.
const SOCKET: i32 = 3;

fn main() -> ExitCode {
    // SAFETY: nothing in this program opens or closes descriptor 3; if it is not open, using it
    // says so.
    let daemon = unsafe { BorrowedFd::borrow_raw(SOCKET) };
    let mut buffer = vec![0; HOST_MESSAGE_MAX];
    serve(daemon, &mut buffer).unwrap_or_else(|why| {
        complain(&why);
        ExitCode::FAILURE
    })
}

fn complain(why: &str) {
    eprintln!("talea-plugin-host: {why}");
}

fn serve(daemon: BorrowedFd, buffer: &mut [u8]) -> Result<ExitCode, String> {
    let first = receive(daemon, buffer).map_err(|error| {
        format!(
            "descriptor 3 is not talead's socket ({error}); it is talead that starts this program"
        )
    })?;
    let (setup, texts) =
        Setup::read_from_prefix(first).map_err(|_| "talead's first message is too short")?;
    if setup.version != HOST_VERSION {
        return Err(format!(
            "talead speaks version {}, this program {HOST_VERSION}",
            setup.version
        ));
    }
    let (module, argument) = texts
        .split_at_checked(usize::from(setup.module_len))
        .filter(|(_, argument)| argument.len() == usize::from(setup.argument_len))
        .ok_or("talead's first message has the wrong length")?;
    // The reason comes before the verdict: talead looks for it as soon as it has that.
    if let Err(why) = sandbox::enter() {
        complain(&why);
        answer(daemon, &Answer { verdict: failure::SANDBOX, ..NOTHING })?;
        return Ok(ExitCode::FAILURE);
    }
    let mut plugin = match Plugin::load(&setup, module, argument) {
        Ok(plugin) => plugin,
        Err(why) => {
            let verdict = match why {
                plugin::LoadError::Init(code) => code,
                _ => failure::LOAD,
            };
            complain(&format!("{}: {why}", String::from_utf8_lossy(module)));
            answer(daemon, &Answer { verdict, ..NOTHING })?;
            return Ok(ExitCode::FAILURE);
        }
    };
    answer(daemon, &NOTHING)?;
    loop {
        let message = receive(daemon, buffer).map_err(|error| error.to_string())?;
        if message.is_empty() {
            plugin.finish();
            return Ok(ExitCode::SUCCESS);
        }
        let question =
            Question::read_from_bytes(message).map_err(|_| "a question of the wrong length")?;
        let said = plugin.ask(&question).ok_or("a question that this program does not know")?;
        answer(daemon, &said)?;
    }
}

const NOTHING: Answer = Answer { ticket: 0, verdict: 0, cpu: -1, priority: 0, reserved: 0 };

/// The next message; empty at the end of the stream.
fn receive<'a>(daemon: BorrowedFd, buffer: &'a mut [u8]) -> Result<&'a [u8], Errno> {
    let length = loop {
        match rustix::net::recv(daemon, &mut *buffer, RecvFlags::empty()) {
            Ok((length, _)) => break length,
            Err(Errno::INTR) => {}
            Err(Errno::CONNRESET) => break 0,
            Err(error) => return Err(error),
        }
    };
    Ok(&buffer[..length])
}

/// Answers; a daemon that is gone is the end of the process, not an error worth a line.
fn answer(daemon: BorrowedFd, said: &Answer) -> Result<(), String> {
    loop {
        match rustix::net::send(daemon, said.as_bytes(), SendFlags::NOSIGNAL) {
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(Errno::PIPE | Errno::CONNRESET) => std::process::exit(0),
            Err(error) => return Err(error.to_string()),
        }
    }
}
