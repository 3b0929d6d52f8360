//! Host process of one foreign plugin.
//!
//! Model: descriptor 3 is a sequenced-packet socket to `talead`. `talead` or the service manager
//! starts this program (`talea-daemon/src/host_process.rs`). The first message contains the
//! protocol version, the plugin's shared object and its argument. The host answers whether the
//! plugin is loaded. Each later message is a request, which the host answers before it reads the
//! next one.
//! The end of the stream ends the process. The plugin's standard error goes to the daemon's log.
//!
//! Invariant: the host loads the shared object only after it has dropped its rights (see
//! `sandbox`), because loading executes code of the shared object.
//!
//! ReTiF, J. Systems Architecture 2021, section 3.4 loads plugins into the daemon. Talea does not,
//! because a plugin that crashes, hangs or is malicious must not affect the daemon.
#![allow(
    unsafe_code,
    reason = "this crate exists to call foreign C; each block carries its argument"
)]
#![warn(clippy::undocumented_unsafe_blocks, unsafe_op_in_unsafe_fn)]

mod abi;
mod landlock;
mod plugin;
mod sandbox;
mod seccomp;
mod supervisor;

use plugin::Plugin;
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags};
use std::ffi::OsStr;
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::ExitCode;
use supervisor::Origin;
use talea_proto::host::{
    HOST_MESSAGE_MAX, HOST_VERSION, HostRequest, HostResponse, HostSetup, failure,
};
use zerocopy::{FromBytes, IntoBytes};

/// Descriptor of the socket to `talead`.
const SOCKET: i32 = 3;

fn main() -> ExitCode {
    // SAFETY: nothing in this program opens or closes descriptor 3; if it is not open, using it
    // gives an error.
    let daemon = unsafe { BorrowedFd::borrow_raw(SOCKET) };
    let origin = Origin::of_this_process();
    if origin == Origin::Service {
        match supervisor::supervise(daemon) {
            Ok(None) => {}
            Ok(Some(code)) => return code,
            Err(error) => {
                log_error(&format!("no supervisor: {error}"));
                return ExitCode::FAILURE;
            }
        }
    }
    let mut buffer = vec![0; HOST_MESSAGE_MAX];
    serve(daemon, origin, &mut buffer).unwrap_or_else(|why| {
        log_error(&why);
        ExitCode::FAILURE
    })
}

fn log_error(why: &str) {
    eprintln!("talea-plugin-host: {why}");
}

fn serve(daemon: BorrowedFd, origin: Origin, buffer: &mut [u8]) -> Result<ExitCode, String> {
    let first = receive_setup(daemon, buffer).map_err(|error| {
        format!(
            "descriptor 3 is not talead's socket ({error}); it is talead that starts this program"
        )
    })?;
    let (setup, texts) =
        HostSetup::read_from_prefix(first).map_err(|_| "talead's first message is too short")?;
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
    // The reason is logged before the verdict is sent: talead reads the log as soon as it has the
    // verdict.
    let module_path = Path::new(OsStr::from_bytes(module));
    match sandbox::enter(module_path, origin, daemon) {
        Ok(None) => {}
        Ok(Some(missing)) => log_error(missing),
        Err(why) => {
            log_error(&why);
            answer(daemon, &HostResponse { verdict: failure::SANDBOX, ..READY })?;
            return Ok(ExitCode::FAILURE);
        }
    }
    let mut plugin = match Plugin::load(&setup, module, argument) {
        Ok(plugin) => plugin,
        Err(why) => {
            let verdict = match why {
                plugin::LoadError::Init(code) => code,
                _ => failure::LOAD,
            };
            log_error(&format!("{}: {why}", String::from_utf8_lossy(module)));
            answer(daemon, &HostResponse { verdict, ..READY })?;
            return Ok(ExitCode::FAILURE);
        }
    };
    answer(daemon, &READY)?;
    let (mut ranks, mut response) = (Vec::new(), Vec::new());
    loop {
        let message = receive(daemon, buffer).map_err(|error| error.to_string())?;
        if message.is_empty() {
            plugin.finish();
            return Ok(ExitCode::SUCCESS);
        }
        let question = HostRequest::read_from_bytes(message)
            .map_err(|_| "talead sent a question of the wrong length")?;
        let reply = plugin.ask(&question, &mut ranks).ok_or("talead sent an unknown question")?;
        response.clear();
        response.extend_from_slice(reply.as_bytes());
        response.extend_from_slice(ranks.as_bytes());
        send(daemon, &response)?;
    }
}

const READY: HostResponse = HostResponse::NOTHING;

/// Receives the first message. A descriptor in it becomes the standard error.
fn receive_setup<'a>(daemon: BorrowedFd, buffer: &'a mut [u8]) -> Result<&'a [u8], Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let message = loop {
        let mut data = [IoSliceMut::new(buffer)];
        match rustix::net::recvmsg(daemon, &mut data, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Ok(message) => break message,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    };
    for part in control.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = part {
            for descriptor in descriptors {
                rustix::stdio::dup2_stderr(descriptor)?;
            }
        }
    }
    Ok(&buffer[..message.bytes])
}

/// Receives the next message; empty at the end of the stream.
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

/// Sends the answer to the setup.
fn answer(daemon: BorrowedFd, reply: &HostResponse) -> Result<(), String> {
    send(daemon, reply.as_bytes())
}

/// Sends a message. If the daemon is gone, the process ends without a message.
fn send(daemon: BorrowedFd, message: &[u8]) -> Result<(), String> {
    loop {
        match rustix::net::send(daemon, message, SendFlags::NOSIGNAL) {
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(Errno::PIPE | Errno::CONNRESET) => std::process::exit(0),
            Err(error) => return Err(error.to_string()),
        }
    }
}
