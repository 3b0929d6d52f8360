//! UNIX sequenced-packet sockets: one message, one call.
//!
//! Invariants. Receiving and sending are one system call each and allocate nothing. A message never brings more
//! than one descriptor into this process: the kernel drops the rest. Descriptors arrive close-on-exec. Sending
//! never raises SIGPIPE and never waits for a slow reader.
//!
//! An empty message looks like the end of the stream; the protocol above must not send one.

mod activation;
mod listener;

pub use activation::inherited_listeners;
pub use listener::{Access, BindError, Listener};

use crate::sys::{check, errno};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

/// What one [`recv`] has brought.
#[derive(Debug)]
pub struct Received {
    /// Bytes in the buffer; 0 when the peer has closed.
    pub len: usize,
    /// The first descriptor of the message.
    pub fd: Option<OwnedFd>,
    /// The message was longer than the buffer; the rest is lost.
    pub truncated: bool,
    /// The message carried more descriptors than one; they are closed.
    pub surplus_fds: bool,
}

const ONE_FD: usize = size_of::<libc::c_int>();
/// Room for the header, one descriptor, and the padding after it.
const CONTROL: usize = 24;

/// Aligned as `cmsghdr` must be.
#[repr(C, align(8))]
struct Control([MaybeUninit<u8>; CONTROL]);

// SAFETY: CMSG_LEN and CMSG_SPACE only compute.
const _: () = assert!(unsafe { libc::CMSG_SPACE(ONE_FD as u32) } as usize == CONTROL);

/// Receives one message. Waits only if the socket is a waiting one; `EAGAIN` otherwise.
pub fn recv(socket: impl AsFd, buffer: &mut [u8]) -> io::Result<Received> {
    let mut control = Control([MaybeUninit::uninit(); CONTROL]);
    let mut data = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    // SAFETY: all-zero is a valid msghdr (null pointers, zero lengths).
    let mut message: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
    message.msg_iov = &raw mut data;
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast();
    // Exactly one descriptor: without the padding the kernel has no room to install a second.
    // SAFETY: only computes.
    message.msg_controllen = unsafe { libc::CMSG_LEN(ONE_FD as u32) } as _;
    let flags = libc::MSG_CMSG_CLOEXEC;
    let len = loop {
        // SAFETY: `message` describes `buffer` and `control`, both alive and writable for the whole call.
        let len = unsafe { libc::recvmsg(socket.as_fd().as_raw_fd(), &raw mut message, flags) };
        if len >= 0 {
            break len as usize;
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    };
    Ok(Received {
        len,
        fd: first_fd(&message),
        truncated: message.msg_flags & libc::MSG_TRUNC != 0,
        surplus_fds: message.msg_flags & libc::MSG_CTRUNC != 0,
    })
}

/// Takes ownership of the descriptor that the kernel has put into a received message.
fn first_fd(message: &libc::msghdr) -> Option<OwnedFd> {
    // SAFETY: `message` was filled by recvmsg; the macro checks that a whole header fits into msg_controllen.
    let header = unsafe { libc::CMSG_FIRSTHDR(message).as_ref() }?;
    if header.cmsg_level != libc::SOL_SOCKET || header.cmsg_type != libc::SCM_RIGHTS {
        return None;
    }
    // SAFETY: only computes.
    let full = unsafe { libc::CMSG_LEN(ONE_FD as u32) } as usize;
    if (header.cmsg_len as usize) < full {
        return None;
    }
    // SAFETY: the kernel wrote one descriptor here; `control` is large enough for it. It may be unaligned.
    let fd = unsafe { libc::CMSG_DATA(header).cast::<libc::c_int>().read_unaligned() };
    // SAFETY: the kernel has just installed it for us, and each message is read once.
    Some(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Sends one message, with a descriptor or without. Never waits: `EAGAIN` when the peer's queue is full.
/// `EPIPE` when it has closed.
pub fn send(socket: impl AsFd, bytes: &[u8], fd: Option<BorrowedFd>) -> io::Result<()> {
    send_with(socket.as_fd(), bytes, fd, libc::MSG_DONTWAIT)
}

/// As [`send`], but waits as long as the socket's time-out says ([`set_timeout`]).
pub fn send_waiting(socket: impl AsFd, bytes: &[u8], fd: Option<BorrowedFd>) -> io::Result<()> {
    send_with(socket.as_fd(), bytes, fd, 0)
}

fn send_with(socket: BorrowedFd, bytes: &[u8], fd: Option<BorrowedFd>, wait: i32) -> io::Result<()> {
    let flags = libc::MSG_NOSIGNAL | wait;
    let Some(fd) = fd else {
        // Most messages: the kernel need not read a header from us first.
        return until_not_interrupted(|| {
            // SAFETY: the kernel reads `bytes`; the descriptor is open while borrowed.
            unsafe { libc::send(socket.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), flags) }
        });
    };
    let mut control = Control([MaybeUninit::zeroed(); CONTROL]);
    let mut data = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    // SAFETY: all-zero is a valid msghdr.
    let mut message: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
    message.msg_iov = &raw mut data;
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast();
    message.msg_controllen = CONTROL as _;
    // SAFETY: `control` is zeroed, aligned and has room for a header and one descriptor.
    unsafe {
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        (*header).cmsg_level = libc::SOL_SOCKET;
        (*header).cmsg_type = libc::SCM_RIGHTS;
        (*header).cmsg_len = libc::CMSG_LEN(ONE_FD as u32) as _;
        libc::CMSG_DATA(header).cast::<libc::c_int>().write_unaligned(fd.as_raw_fd());
    }
    until_not_interrupted(|| {
        // SAFETY: sendmsg only reads: `bytes`, `control` and, while borrowed, the open descriptors.
        unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const message, flags) }
    })
}

/// A sequenced packet goes whole or not at all.
fn until_not_interrupted(mut send: impl FnMut() -> isize) -> io::Result<()> {
    loop {
        if send() >= 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// Connects to the socket at `path` and gives every later wait on it the same time-out.
///
/// `TimedOut` when the listener does not accept in time; `ECONNREFUSED` when nobody listens; `ENOENT`.
pub fn connect(path: &Path, timeout: Duration) -> io::Result<OwnedFd> {
    let socket = socket(0)?;
    set_timeout(&socket, timeout)?;
    let (address, length) = address(path)?;
    loop {
        // SAFETY: `address` is a sockaddr_un of which `length` bytes are meant.
        let done = check(unsafe { libc::connect(socket.as_raw_fd(), (&raw const address).cast(), length) });
        match done {
            Ok(_) => return Ok(socket),
            // UNIX connects that a signal interrupts have done nothing yet.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(timed_out()),
            Err(error) => return Err(error),
        }
    }
}

/// As [`recv`] on a waiting socket with a time-out: `TimedOut` instead of `EAGAIN`.
pub fn recv_waiting(socket: impl AsFd, buffer: &mut [u8]) -> io::Result<Received> {
    recv(socket, buffer).map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => timed_out(),
        _ => error,
    })
}

fn timed_out() -> io::Error {
    errno(libc::ETIMEDOUT)
}

/// Bounds every later wait on `socket`. Zero is taken as the shortest wait, not as for ever.
pub fn set_timeout(socket: impl AsFd, timeout: Duration) -> io::Result<()> {
    let timeout = timeout.max(Duration::from_micros(1));
    let value = libc::timeval {
        tv_sec: timeout.as_secs().min(i32::MAX as u64) as libc::time_t,
        tv_usec: timeout.subsec_micros() as libc::suseconds_t,
    };
    for option in [libc::SO_SNDTIMEO, libc::SO_RCVTIMEO] {
        // SAFETY: the kernel reads one timeval.
        check(unsafe {
            libc::setsockopt(
                socket.as_fd().as_raw_fd(),
                libc::SOL_SOCKET,
                option,
                (&raw const value).cast(),
                size_of::<libc::timeval>() as libc::socklen_t,
            )
        })?;
    }
    Ok(())
}

/// Two connected ends, both close-on-exec; with `nonblocking` neither ever waits.
pub fn pair(nonblocking: bool) -> io::Result<(OwnedFd, OwnedFd)> {
    let mut ends = [-1; 2];
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC | if nonblocking { libc::SOCK_NONBLOCK } else { 0 };
    // SAFETY: the kernel writes two descriptors.
    check(unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, ends.as_mut_ptr()) })?;
    // SAFETY: both are fresh and ours.
    Ok(unsafe { (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])) })
}

fn socket(flags: libc::c_int) -> io::Result<OwnedFd> {
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC | flags;
    // SAFETY: takes integers; the returned descriptor is fresh and ours.
    unsafe { Ok(OwnedFd::from_raw_fd(check(libc::socket(libc::AF_UNIX, kind, 0))?)) }
}

/// The address of a path, with its true length. `EINVAL` for a path that is empty, holds a NUL or does not fit
/// into the 107 bytes that the kernel has.
fn address(path: &Path) -> io::Result<(libc::sockaddr_un, libc::socklen_t)> {
    use std::os::unix::ffi::OsStrExt;
    let bytes = path.as_os_str().as_bytes();
    // SAFETY: all-zero is a valid sockaddr_un.
    let mut address: libc::sockaddr_un = unsafe { MaybeUninit::zeroed().assume_init() };
    if bytes.is_empty() || bytes.contains(&0) || bytes.len() >= address.sun_path.len() {
        return Err(errno(libc::EINVAL));
    }
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    for (to, from) in address.sun_path.iter_mut().zip(bytes) {
        *to = *from as libc::c_char;
    }
    let length = std::mem::offset_of!(libc::sockaddr_un, sun_path) + bytes.len() + 1;
    Ok((address, length as libc::socklen_t))
}
