//! Descriptors to send with a message: pidfds, and all other kinds of descriptors.

use crate::{borrowed, number};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, Mode, OFlags, memfd_create, open};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg, sockopt};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::io::{self, IoSlice, Write};
use std::mem::MaybeUninit;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::channel;
use std::time::Duration;
use talea_os::Tid;

/// Maximum number of descriptors in one message: the kernel's `SCM_MAX_FD`.
const MAX_FDS: usize = 253;

/// Descriptors to send, and the descriptors that the client must keep open for the sent ones to
/// have their effect.
#[derive(Default)]
pub(crate) struct Parcel {
    pub(crate) fds: Vec<OwnedFd>,
    pub(crate) kept: Vec<OwnedFd>,
}

/// Opens the descriptors that the words name.
pub(crate) fn pack(words: &[&str], connection: BorrowedFd) -> io::Result<Parcel> {
    let mut parcel = Parcel::default();
    let mut put = |fd: OwnedFd| parcel.fds.push(fd);
    match *words {
        ["file", path] => put(std::fs::File::open(path)?.into()),
        ["path", path] => put(open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?),
        ["pipe"] => {
            let (read, write) = rustix::pipe::pipe()?;
            put(read);
            parcel.kept.push(write);
        }
        ["socket"] => {
            let (ours, theirs) = UnixStream::pair()?;
            put(theirs.into());
            parcel.kept.push(ours.into());
        }
        ["listener"] => put(TcpListener::bind("127.0.0.1:0")?.into()),
        ["connection"] => put(connection.try_clone_to_owned()?),
        ["eventfd"] => put(eventfd(0, EventfdFlags::CLOEXEC)?),
        ["epoll"] => put(rustix::event::epoll::create(rustix::event::epoll::CreateFlags::CLOEXEC)?),
        ["memfd"] => put(memfd_create("parcel", MemfdFlags::CLOEXEC)?),
        // The last close frees all of that memory.
        ["heavy", mib] => {
            let mut file = std::fs::File::from(memfd_create("parcel", MemfdFlags::CLOEXEC)?);
            let page = vec![1u8; 1 << 20];
            for _ in 0..number(mib)? {
                file.write_all(&page)?;
            }
            put(file.into());
        }
        // The last close waits so long for a peer that does not read.
        ["lingering", seconds] => {
            let (ours, theirs) = lingering(Duration::from_secs(number(seconds)? as u64))?;
            put(ours);
            parcel.kept.push(theirs);
        }
        ["null-and-lingering", seconds] => {
            let (ours, theirs) = lingering(Duration::from_secs(number(seconds)? as u64))?;
            put(std::fs::File::open("/dev/null")?.into());
            put(ours);
            parcel.kept.push(theirs);
        }
        ["hung", path] => {
            put(crate::unresponsive_fs::open(path)?);
        }
        ["process", pid] => put(pidfd_open(raw_pid(pid)?, PidfdFlags::empty())?),
        ["thread", tid] => put(thread_pidfd(number(tid)? as i32)?),
        ["ended-thread"] => put(ended_thread()?),
        ["ended-process"] => {
            let mut child = std::process::Command::new("/bin/true").spawn()?;
            let fd = pidfd_open(raw_pid(&child.id().to_string())?, PidfdFlags::empty())?;
            child.wait()?;
            put(fd);
        }
        // A thread's descriptor, and `count` others behind it.
        ["thread-and-nulls", tid, count] => {
            put(thread_pidfd(number(tid)? as i32)?);
            for _ in 0..number(count)? {
                put(std::fs::File::open("/dev/null")?.into());
            }
        }
        ["nulls", count] => {
            for _ in 0..number(count)?.min(MAX_FDS) {
                put(std::fs::File::open("/dev/null")?.into());
            }
        }
        _ => return Err(io::Error::other(format!("unknown parcel {words:?}"))),
    }
    Ok(parcel)
}

/// Sends one message with all of these descriptors.
pub(crate) fn send(socket: &OwnedFd, message: &[u8], fds: &[OwnedFd]) -> io::Result<()> {
    let fds = borrowed(fds);
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
    let mut control = SendAncillaryBuffer::new(&mut room);
    if !control.push(SendAncillaryMessage::ScmRights(&fds)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    sendmsg(socket, &[IoSlice::new(message)], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Opens a pidfd of any thread, including another user's: `PIDFD_THREAD` is `O_EXCL`.
pub(crate) fn thread_pidfd(tid: i32) -> io::Result<OwnedFd> {
    let pid = Pid::from_raw(tid).ok_or(io::ErrorKind::InvalidInput)?;
    Ok(pidfd_open(pid, PidfdFlags::from_bits_retain(OFlags::EXCL.bits()))?)
}

fn raw_pid(word: &str) -> io::Result<Pid> {
    Ok(Pid::from_raw(number(word)? as i32).ok_or(io::ErrorKind::InvalidInput)?)
}

fn ended_thread() -> io::Result<OwnedFd> {
    let (say, heard) = channel();
    let (end, wait) = channel::<()>();
    let thread = std::thread::spawn(move || {
        let _ = say.send(Tid::current().as_raw());
        let _ = wait.recv();
    });
    let fd = thread_pidfd(heard.recv().map_err(io::Error::other)?)?;
    drop(end);
    thread.join().map_err(|_| io::Error::other("a thread panicked"))?;
    Ok(fd)
}

/// Returns a full TCP connection whose last close waits up to `wait` for its peer, and the peer,
/// which reads nothing.
fn lingering(wait: Duration) -> io::Result<(OwnedFd, OwnedFd)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let mut ours = TcpStream::connect(listener.local_addr()?)?;
    let (theirs, _) = listener.accept()?;
    ours.set_nonblocking(true)?;
    let block = vec![0u8; 64 * 1024];
    while ours.write(&block).is_ok() {}
    sockopt::set_socket_linger(ours.as_fd(), Some(wait))?;
    Ok((ours.into(), theirs.into()))
}
