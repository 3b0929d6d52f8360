//! Relay between the bus and the object server, which bounds what waits for the latter.
//!
//! Model: the bus queues messages for this process in one order. A call that expects no reply costs
//! its sender nothing, so a program can send such calls faster than the object server answers, and
//! the calls of other programs would wait behind them. The relay reads as fast as the bus writes,
//! and drops what exceeds a rate.
//!
//! | message of the bus | passed on |
//! | --- | --- |
//! | call that expects a reply | always: the bus bounds the unanswered calls of a connection |
//! | reply or error | always: the bus delivers only those to calls of this process |
//! | call without a reply, signal | the first [`MAX_SILENT`] in each [`WINDOW`] |
//!
//! A message keeps its descriptors, and a dropped one takes its own with it: the pidfd of a caller
//! is never one that another program has sent.

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use std::io::{self, IoSlice, IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};
use talea_core::mutate;

/// Maximum number of messages in a window that expect no reply.
const MAX_SILENT: u32 = 16;
/// Length of a window.
const WINDOW: Duration = Duration::from_millis(100);
/// Bytes of one read.
const BUFFER: usize = 64 << 10;
/// Maximum number of descriptors of one message, as in the kernel (`SCM_MAX_FD`).
const MAX_FDS: usize = 253;

/// Bytes of the fixed part of a message's header.
const FIXED: usize = 16;
const METHOD_CALL: u8 = 1;
const SIGNAL: u8 = 4;
const NO_REPLY_EXPECTED: u8 = 1;
/// Code of the header field with the number of descriptors.
const UNIX_FDS: u8 = 9;

/// Starts the relay. Returns the stream that stands for the one to the bus.
pub(crate) fn start(bus: UnixStream) -> io::Result<UnixStream> {
    let (own, inner) = UnixStream::pair()?;
    let (to_bus, from_inner) = (bus.try_clone()?, own.try_clone()?);
    let spawn = |name: &str, run: Box<dyn FnOnce() + Send>| {
        std::thread::Builder::new().name(name.to_owned()).spawn(run).map(drop)
    };
    spawn(
        "from-bus",
        Box::new(move || {
            // An error and the end of the bus are the same for the object server.
            let _ = Inbound::new(bus).run(&own);
            let _ = own.shutdown(Shutdown::Both);
        }),
    )?;
    spawn(
        "to-bus",
        Box::new(move || {
            let _ = io::copy(&mut &from_inner, &mut &to_bus);
            let _ = to_bus.shutdown(Shutdown::Both);
        }),
    )?;
    Ok(inner)
}

/// Direction from the bus.
struct Inbound {
    bus: UnixStream,
    /// Bytes that do not form a whole line or message yet.
    unread: Vec<u8>,
    /// Descriptors of the messages in `unread`, in order.
    fds: Vec<OwnedFd>,
    /// Begin of the window.
    begun: Instant,
    /// Number of messages in the window that expect no reply.
    silent: u32,
}

impl Inbound {
    fn new(bus: UnixStream) -> Inbound {
        Inbound { bus, unread: Vec::new(), fds: Vec::new(), begun: Instant::now(), silent: 0 }
    }

    /// Passes messages on until the bus closes the connection.
    fn run(mut self, inner: &UnixStream) -> io::Result<()> {
        let mut buffer = vec![0; BUFFER];
        loop {
            let length = self.receive(&mut buffer)?;
            if length == 0 {
                return Ok(());
            }
            self.unread.extend_from_slice(&buffer[..length]);
            self.pass_on(inner)?;
        }
    }

    /// Reads bytes, and the descriptors that come with them.
    fn receive(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
        loop {
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let mut parts = [IoSliceMut::new(buffer)];
            match recvmsg(&self.bus, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC) {
                Ok(received) => {
                    for part in control.drain() {
                        if let RecvAncillaryMessage::ScmRights(fds) = part {
                            self.fds.extend(fds);
                        }
                    }
                    return Ok(received.bytes);
                }
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Passes on the whole lines and messages among the unread bytes.
    fn pass_on(&mut self, mut inner: &UnixStream) -> io::Result<()> {
        let (mut at, mut kept) = (0, Vec::new());
        while let Some(part) = Part::of(&self.unread[at..]) {
            let bytes = &self.unread[at..at + part.length];
            at += part.length;
            // Without a descriptor the number in the header is that of none.
            let count = if self.fds.is_empty() { Some(0) } else { part.fds(bytes) };
            let Some(count) = count.filter(|&count| count <= self.fds.len()) else {
                // The header hides whose descriptors these are, so none is used.
                self.fds.clear();
                continue;
            };
            let fds: Vec<OwnedFd> = self.fds.drain(..count).collect();
            if part.is_silent && Instant::now().duration_since(self.begun) >= WINDOW {
                (self.begun, self.silent) = (Instant::now(), 0);
            }
            self.silent += u32::from(part.is_silent && self.silent <= MAX_SILENT);
            let is_above = part.is_silent && self.silent > MAX_SILENT;
            if mutate!("rtkit-relay-rate", is_above, false) {
                continue;
            }
            if fds.is_empty() {
                kept.extend_from_slice(bytes);
            } else {
                inner.write_all(&std::mem::take(&mut kept))?;
                send(inner, bytes, &fds)?;
            }
        }
        self.unread.drain(..at);
        inner.write_all(&kept)
    }
}

/// Sends a message with its descriptors.
fn send(mut inner: &UnixStream, bytes: &[u8], fds: &[OwnedFd]) -> io::Result<()> {
    let fds: Vec<BorrowedFd<'_>> = fds.iter().map(OwnedFd::as_fd).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(&fds)) {
        return Err(io::Error::other("too many descriptors"));
    }
    let sent = sendmsg(inner, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL)?;
    inner.write_all(&bytes[sent..])
}

/// A line of the authentication, or a message.
#[derive(Debug, PartialEq, Eq)]
struct Part {
    length: usize,
    /// Whether it is a message that expects no reply.
    is_silent: bool,
}

impl Part {
    /// Returns the part with which the bytes begin; `None` if it is incomplete. No line of a server
    /// begins like a message (`l` or `B`).
    fn of(bytes: &[u8]) -> Option<Part> {
        if !matches!(bytes.first()?, b'l' | b'B') {
            let end = bytes.iter().position(|&byte| byte == b'\n')?;
            return Some(Part { length: end + 1, is_silent: false });
        }
        let (body, fields) = (number(bytes, 4)?, number(bytes, 12)?);
        let length = (FIXED + fields).next_multiple_of(8) + body;
        let (kind, flags) = (bytes[1], bytes[2]);
        let is_silent = kind == SIGNAL || kind == METHOD_CALL && flags & NO_REPLY_EXPECTED != 0;
        (bytes.len() >= length).then_some(Part { length, is_silent })
    }

    /// Returns the number of descriptors of the message; `None` if a header field is unknown.
    #[allow(clippy::unused_self, reason = "the bytes are those of this part")]
    fn fds(&self, bytes: &[u8]) -> Option<usize> {
        let end = FIXED + number(bytes, 12)?;
        let mut at = FIXED;
        while at < end {
            at = at.next_multiple_of(8);
            let &[code, 1, kind, 0] = bytes.get(at..at + 4)? else { return None };
            at += 4;
            match kind {
                b'u' if code == UNIX_FDS => return number(bytes, at),
                b'u' => at += 4,
                b's' | b'o' => at += 4 + number(bytes, at)? + 1,
                b'g' => at += 1 + usize::from(*bytes.get(at)?) + 1,
                _ => return None,
            }
        }
        Some(0)
    }
}

/// Returns the number at a place, in the byte order of the message.
fn number(bytes: &[u8], at: usize) -> Option<usize> {
    let four = bytes.get(at..at + 4)?.try_into().ok()?;
    let number = if bytes[0] == b'l' { u32::from_le_bytes(four) } else { u32::from_be_bytes(four) };
    usize::try_from(number).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use zbus::Message;
    use zbus::message::Flags;

    fn call(flags: Flags) -> Vec<u8> {
        let call = Message::method_call("/org/example", "Call").interface("org.example.Of");
        let call = call.destination("org.example").with_flags(flags);
        call.build(&(7_u64, "text")).expect("a message").data().to_vec()
    }

    fn with_fd(flags: Flags, file: &OwnedFd) -> Vec<u8> {
        let call = Message::method_call("/org/example", "Call").with_flags(flags);
        let fd = zbus::Fd::from(file.as_fd());
        call.build(&fd).expect("a message").data().to_vec()
    }

    /// Passes the bytes on in pieces of this size. Returns what arrives.
    fn relayed(bytes: &[u8], size: usize) -> Vec<u8> {
        let (bus, _) = UnixStream::pair().expect("a pair");
        let (inner, mut arrived) = UnixStream::pair().expect("a pair");
        let mut inbound = Inbound::new(bus);
        for piece in bytes.chunks(size) {
            inbound.unread.extend_from_slice(piece);
            inbound.pass_on(&inner).expect("passed on");
        }
        drop(inner);
        let mut all = Vec::new();
        arrived.read_to_end(&mut all).expect("bytes");
        all
    }

    #[test]
    fn lines_and_calls_pass_in_any_pieces_and_silent_calls_up_to_the_rate() {
        let greeting = b"OK 1234deadbeef\r\nAGREE_UNIX_FD\r\n".to_vec();
        let (asked, silent) = (call(Flags::empty()), call(Flags::NO_REPLY_EXPECTED));
        let flood = silent.repeat(1000);
        let all = [&greeting[..], &asked, &flood, &asked, &silent, &asked].concat();
        let kept = silent.repeat(MAX_SILENT as usize);
        let expected = [&greeting[..], &asked, &kept, &asked, &asked].concat();
        for size in [1, 3, 16, 1000, all.len()] {
            let arrived = relayed(&all, size);
            // A slow test runs over the end of a window.
            assert!(arrived.len() >= expected.len(), "pieces of {size}");
            assert!(arrived.len() < all.len() / 4, "pieces of {size}");
            assert!(arrived.starts_with(&[&greeting[..], &asked, &kept].concat()));
            assert!(arrived.ends_with(&asked));
        }
    }

    #[test]
    fn a_dropped_message_takes_its_descriptors_with_it() {
        let file = |text: &str| OwnedFd::from(std::fs::File::open(text).expect("a file"));
        let (foreign, own) = (file("/dev/zero"), file("/dev/null"));
        let (bus, _) = UnixStream::pair().expect("a pair");
        let (inner, arrived) = UnixStream::pair().expect("a pair");
        let mut inbound = Inbound::new(bus);
        inbound.silent = MAX_SILENT + 1;
        inbound.begun = Instant::now() + Duration::from_hours(1);
        inbound.unread = with_fd(Flags::NO_REPLY_EXPECTED, &foreign);
        inbound.unread.extend(with_fd(Flags::empty(), &own));
        inbound.fds = vec![foreign, own];
        inbound.pass_on(&inner).expect("passed on");
        assert!(inbound.fds.is_empty() && inbound.unread.is_empty());
        let mut end = Inbound::new(arrived);
        let mut buffer = [0; 1024];
        end.receive(&mut buffer).expect("a message");
        let links: Vec<_> = end
            .fds
            .iter()
            .map(|fd| {
                let fd = std::os::fd::AsRawFd::as_raw_fd(fd);
                std::fs::read_link(format!("/proc/self/fd/{fd}")).expect("a link")
            })
            .collect();
        assert_eq!(links, [std::path::PathBuf::from("/dev/null")]);
    }

    #[test]
    fn descriptors_of_an_unknown_header_are_not_used() {
        let file = OwnedFd::from(std::fs::File::open("/dev/null").expect("a file"));
        let (bus, _) = UnixStream::pair().expect("a pair");
        let (inner, _arrived) = UnixStream::pair().expect("a pair");
        let mut inbound = Inbound::new(bus);
        let mut message = call(Flags::empty());
        // The signature of the first field.
        message[FIXED + 2] = b'v';
        inbound.unread = message;
        inbound.fds = vec![file];
        inbound.pass_on(&inner).expect("passed on");
        assert!(inbound.fds.is_empty() && inbound.unread.is_empty());
    }
}
