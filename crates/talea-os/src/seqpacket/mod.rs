//! UNIX sequenced-packet sockets with one system call per message.
//!
//! Invariants. Receiving and sending are one system call each and allocate nothing, unless
//! [`recv_all`] finds more than one descriptor. Descriptors arrive close-on-exec. Sending never
//! raises SIGPIPE and never waits for a slow reader.
//!
//! Dropping the last copy of a descriptor may block: for a TCP socket that lingers, for the program
//! behind a file system. That also holds for descriptors that the kernel drops for us: those beyond
//! the first that [`recv`] receives, and those in unread messages of a socket that is closed. A
//! caller that must not block uses [`recv_all`] and [`shutdown_and_drain`].
//!
//! An empty message looks like the end of the stream; the protocol above must not send one.

mod activation;
mod listener;

pub use activation::inherited_listeners;
pub use listener::{Access, BindError, Listener};

use crate::Tid;
use crate::sys::{check, errno, is};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::path::Path;
use std::time::Duration;

/// Result of one [`recv`].
#[derive(Debug)]
pub struct Received {
    /// Number of bytes in the buffer; 0 if the peer has closed its end.
    pub len: usize,
    /// The first descriptor of the message.
    pub fd: Option<OwnedFd>,
    /// Whether the message was longer than the buffer. The rest of the message is lost.
    pub truncated: bool,
    /// Whether the message carried more than one descriptor, or more than the process could
    /// receive.
    pub surplus_fds: bool,
    /// Further descriptors that [`recv_all`] received. [`recv`] lets the kernel close them.
    pub surplus: Vec<OwnedFd>,
}

const ONE_FD: usize = size_of::<RawFd>();
/// Maximum number of descriptors in one message: the kernel's `SCM_MAX_FD`.
const MAX_FDS: usize = 253;
/// Size of a control message's header.
const HEADER: usize = size_of::<libc::cmsghdr>();

/// Buffer for control messages, aligned as `cmsghdr` must be.
#[repr(C, align(8))]
struct Control<const ROOM: usize>([MaybeUninit<u8>; ROOM]);

/// Receives one message and at most one descriptor; the kernel drops the others. Blocks only on a
/// blocking socket, and otherwise returns `EAGAIN`.
#[inline]
pub fn recv(socket: impl AsFd, buffer: &mut [u8]) -> io::Result<Received> {
    receive::<{ HEADER + ONE_FD }>(socket.as_fd(), buffer)
}

/// Variant of [`recv`] that returns every descriptor of the message, so that the caller closes
/// them. The kernel still drops descriptors for which this process's table has no space.
#[inline(always)]
#[expect(clippy::inline_always, reason = "see `receive`")]
pub fn recv_all(socket: impl AsFd, buffer: &mut [u8]) -> io::Result<Received> {
    receive::<{ HEADER + MAX_FDS * ONE_FD }>(socket.as_fd(), buffer)
}

/// Receives one message. `ROOM` is the exact size for the requested number of descriptors. Without
/// padding the kernel has no space to install another descriptor.
// Inlined, like `send`: a return out of the function that made a system call finds the processor's
// return stack refilled by the kernel, is mispredicted, and may cost more than all our work on a
// message. See the daemon's loop.
#[inline(always)]
#[expect(clippy::inline_always, reason = "as argued above")]
fn receive<const ROOM: usize>(socket: BorrowedFd, buffer: &mut [u8]) -> io::Result<Received> {
    let mut control = Control([MaybeUninit::uninit(); ROOM]);
    let mut control = RecvAncillaryBuffer::new(&mut control.0);
    let mut data = [IoSliceMut::new(buffer)];
    let message = loop {
        match rustix::net::recvmsg(socket, &mut data, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Ok(message) => break message,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    };
    let (mut fd, mut surplus) = (None, Vec::new());
    for part in control.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = part {
            for descriptor in descriptors {
                if fd.is_none() {
                    fd = Some(descriptor);
                } else {
                    surplus.push(descriptor);
                }
            }
        }
    }
    Ok(Received {
        len: message.bytes,
        fd,
        truncated: message.flags.contains(ReturnFlags::TRUNC),
        surplus_fds: message.flags.contains(ReturnFlags::CTRUNC) || !surplus.is_empty(),
        surplus,
    })
}

/// Whether the peer has closed the connection and no message is unread. A message without content
/// counts as the end, as for [`recv`].
pub fn has_ended(socket: impl AsFd) -> bool {
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    matches!(rustix::net::recv(socket, &mut [0u8; 1], flags), Ok((_, 0)))
}

/// Whether an unread message is queued. A message without content does not count.
pub fn has_unread(socket: impl AsFd) -> bool {
    rustix::io::ioctl_fionread(socket).is_ok_and(|bytes| bytes > 0)
}

/// Shuts a connection down in both directions and discards up to `max_messages` unread messages
/// without descriptors. Returns whether messages remain. No message arrives afterwards, so after
/// `false` closing the socket drops nothing but the socket.
pub fn shutdown_and_drain(socket: impl AsFd, max_messages: usize) -> io::Result<bool> {
    let socket = socket.as_fd();
    match rustix::net::shutdown(socket, rustix::net::Shutdown::Both) {
        Ok(()) | Err(rustix::io::Errno::NOTCONN) => {}
        Err(error) => return Err(error.into()),
    }
    // Every message carries its sender's credentials to a socket that requests them; the end of the
    // stream has none. This distinguishes an empty message, which may carry descriptors like any
    // other, from the end.
    rustix::net::sockopt::set_socket_passcred(socket, true)?;
    let left = discard_unread(socket, max_messages);
    rustix::net::sockopt::set_socket_passcred(socket, false)?;
    left
}

fn discard_unread(socket: BorrowedFd, max_messages: usize) -> io::Result<bool> {
    let mut discarded = 0;
    loop {
        match peek(socket) {
            // A peer that closed with unread messages of ours: reported once, before the messages
            // that it had sent itself.
            Err(error) if is(&error, libc::ECONNRESET) => {}
            Ok(Unread::Nothing) => return Ok(false),
            Ok(Unread::Message) if discarded < max_messages => {
                discarded += 1;
                let mut byte = 0u8;
                // SAFETY: `byte` has room for one byte.
                let size = unsafe {
                    libc::recv(socket.as_raw_fd(), (&raw mut byte).cast(), 1, libc::MSG_DONTWAIT)
                };
                check_size(size)?;
            }
            Ok(_) => return Ok(true),
            Err(error) => return Err(error),
        }
    }
}

/// Type of the first unread message of a socket that requests credentials.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unread {
    Nothing,
    Message,
    /// A message with descriptors.
    Descriptors,
}

fn peek(socket: BorrowedFd) -> io::Result<Unread> {
    /// Space for credentials and for nothing behind them.
    const ROOM: usize = 32;
    // SAFETY: only computes.
    const _: () =
        assert!(unsafe { libc::CMSG_SPACE(size_of::<libc::ucred>() as u32) } as usize == ROOM);
    let mut control = Control([MaybeUninit::uninit(); ROOM]);
    // SAFETY: all-zero is a valid msghdr: no buffer.
    let mut message: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
    message.msg_control = control.0.as_mut_ptr().cast();
    message.msg_controllen = ROOM as _;
    let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT;
    // SAFETY: `message` describes `control`, which is writable for the whole call; the descriptor
    // is open while borrowed.
    check_size(unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, flags) })?;
    let control_len: usize = message.msg_controllen as _;
    Ok(match (control_len, message.msg_flags & libc::MSG_CTRUNC) {
        (0, 0) => Unread::Nothing,
        (_, 0) => Unread::Message,
        _ => Unread::Descriptors,
    })
}

fn check_size(returned: libc::ssize_t) -> io::Result<()> {
    if returned < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Sends one message, with or without a descriptor. Never waits: returns `EAGAIN` if the peer's
/// queue is full, and `EPIPE` if the peer has closed its end.
#[inline]
pub fn send(socket: impl AsFd, bytes: &[u8], fd: Option<BorrowedFd>) -> io::Result<()> {
    send_with(socket.as_fd(), bytes, fd, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)
}

/// Variant of [`send`] that waits for at most the socket's time-out ([`set_timeout`]).
pub fn send_waiting(socket: impl AsFd, bytes: &[u8], fd: Option<BorrowedFd>) -> io::Result<()> {
    send_with(socket.as_fd(), bytes, fd, SendFlags::NOSIGNAL)
}

#[inline]
fn send_with(
    socket: BorrowedFd,
    bytes: &[u8],
    fd: Option<BorrowedFd>,
    flags: SendFlags,
) -> io::Result<()> {
    loop {
        // Most messages have none: without a header the kernel reads less.
        let sent = match fd {
            None => rustix::net::send(socket, bytes, flags),
            Some(fd) => send_descriptor(socket, bytes, fd, flags),
        };
        // A sequenced packet is sent whole or not at all.
        match sent {
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

fn send_descriptor(
    socket: BorrowedFd,
    bytes: &[u8],
    fd: BorrowedFd,
    flags: SendFlags,
) -> Result<usize, Errno> {
    let mut control = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut control);
    let fds = [fd];
    let fits = control.push(SendAncillaryMessage::ScmRights(&fds));
    assert!(fits, "there is room for one descriptor");
    rustix::net::sendmsg(socket, &[IoSlice::new(bytes)], &mut control, flags)
}

/// Connects to the socket at `path` and sets the time-out of every later wait on the connection.
///
/// `TimedOut`: the listener does not accept in time. `ECONNREFUSED`: no process listens. `ENOENT`:
/// there is no file at `path`.
pub fn connect(path: &Path, timeout: Duration) -> io::Result<OwnedFd> {
    let socket = socket(0)?;
    set_timeout(&socket, timeout)?;
    let (address, length) = address(path)?;
    loop {
        // SAFETY: `address` is a sockaddr_un of which `length` bytes are meant.
        let done = check(unsafe {
            libc::connect(socket.as_raw_fd(), (&raw const address).cast(), length)
        });
        match done {
            Ok(_) => return Ok(socket),
            // A UNIX connect that a signal interrupts has had no effect.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(timed_out()),
            Err(error) => return Err(error),
        }
    }
}

/// Variant of [`recv`] for a blocking socket with a time-out. Returns `TimedOut` in place of
/// `EAGAIN`.
pub fn recv_waiting(socket: impl AsFd, buffer: &mut [u8]) -> io::Result<Received> {
    recv(socket, buffer).map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => timed_out(),
        _ => error,
    })
}

/// Process that has sent a message, as the kernel reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sender {
    /// Process. `None` if the process is not visible in this PID namespace.
    pub pid: Option<Tid>,
    /// Real user id of the process.
    pub uid: u32,
}

/// Sets whether the kernel reports the sender of each message that [`recv_sender`] receives:
/// `SO_PASSCRED`. While it does, no other function may receive.
pub fn report_senders(socket: impl AsFd, report: bool) -> io::Result<()> {
    Ok(rustix::net::sockopt::set_socket_passcred(socket, report)?)
}

/// Receives one message on a blocking socket with a time-out, with its sender if the kernel reports
/// it. The kernel drops all descriptors. Returns `TimedOut` in place of `EAGAIN`.
pub fn recv_sender(socket: impl AsFd, buffer: &mut [u8]) -> io::Result<(usize, Option<Sender>)> {
    const ROOM: usize = HEADER + size_of::<libc::ucred>().next_multiple_of(size_of::<usize>());
    let mut control = Control([MaybeUninit::<u8>::zeroed(); ROOM]);
    let mut data = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    // SAFETY: zeroes are a valid `msghdr`.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    (message.msg_iov, message.msg_iovlen) = (&raw mut data, 1);
    (message.msg_control, message.msg_controllen) = ((&raw mut control).cast(), ROOM as _);
    let fd = socket.as_fd().as_raw_fd();
    let len = loop {
        // SAFETY: the kernel writes into `buffer` and `control`, within their sizes.
        let len = unsafe { libc::recvmsg(fd, &raw mut message, libc::MSG_CMSG_CLOEXEC) };
        match usize::try_from(len) {
            Ok(len) => break len,
            Err(_) => match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::Interrupted => {}
                error if error.kind() == io::ErrorKind::WouldBlock => return Err(timed_out()),
                error => return Err(error),
            },
        }
    };
    // SAFETY: the kernel has filled `message`, whose buffers are alive.
    let header = unsafe { libc::CMSG_FIRSTHDR(&raw const message).as_ref() };
    let sender = header
        .filter(|header| {
            header.cmsg_level == libc::SOL_SOCKET
                && header.cmsg_type == libc::SCM_CREDENTIALS
                && header.cmsg_len >= (HEADER + size_of::<libc::ucred>()) as _
        })
        .map(|header| {
            // SAFETY: the header says that a `ucred` follows it; its alignment is not assumed.
            let sent = unsafe { libc::CMSG_DATA(header).cast::<libc::ucred>().read_unaligned() };
            Sender { pid: Tid::new(sent.pid), uid: sent.uid }
        });
    Ok((len, sender))
}

fn timed_out() -> io::Error {
    errno(libc::ETIMEDOUT)
}

/// Bounds every later wait on `socket`. Zero means the shortest wait, not forever.
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

/// Creates two connected sockets, both close-on-exec. With `nonblocking` no call on them blocks.
pub fn pair(nonblocking: bool) -> io::Result<(OwnedFd, OwnedFd)> {
    let mut ends = [-1; 2];
    let kind = libc::SOCK_SEQPACKET
        | libc::SOCK_CLOEXEC
        | if nonblocking { libc::SOCK_NONBLOCK } else { 0 };
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

/// Returns the address of a path, with its actual length. Returns `EINVAL` for a path that is
/// empty, contains a NUL or exceeds the kernel's 107 bytes.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_reports_the_sender_of_a_message_on_request() {
        let (ours, theirs) = pair(false).expect("a pair");
        set_timeout(&ours, Duration::from_millis(1)).expect("a time-out");
        let own = Sender { pid: Some(Tid::of_process()), uid: rustix::process::getuid().as_raw() };
        let mut buffer = [0; 8];
        let mut receive = |report: bool, fd: Option<BorrowedFd>| {
            report_senders(&ours, report).expect("an option");
            send(&theirs, b"word", fd).expect("a message");
            let (len, sender) = recv_sender(&ours, &mut buffer).expect("a message");
            assert_eq!(&buffer[..len], b"word");
            sender
        };
        assert_eq!(receive(true, None), Some(own));
        assert_eq!(receive(true, Some(theirs.as_fd())), Some(own), "beside a descriptor");
        assert_eq!(receive(false, None), None);
        let late = recv_sender(&ours, &mut buffer).expect_err("no message");
        assert_eq!(late.kind(), io::ErrorKind::TimedOut);
    }
}
