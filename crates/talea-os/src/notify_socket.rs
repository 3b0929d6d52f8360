//! Socket to which programs report their state (`sd_notify(3)`).
//!
//! A datagram has lines of the form `NAME=VALUE`. The kernel reports its sender; the text proves
//! nothing about it. Every user may send.
//!
//! A datagram may contain descriptors, which the kernel closes in the thread that receives. That
//! may take as long as the sender wants (`SO_LINGER`). So a thread of its own receives, and the
//! owner waits for nothing. A kernel from 6.16 on refuses such datagrams at their sender
//! (`SO_PASSRIGHTS`).

use crate::seqpacket::{Sender, recv_sender, report_senders};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::fs::Permissions;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::Builder;

/// Maximum length of a datagram in bytes. The rest of a longer one is lost.
const MAX_LENGTH: usize = 4096;

/// Maximum number of reports that wait for the owner. More wait in the kernel.
const MAX_WAITING: usize = 64;
/// Socket option of Linux 6.16: whether datagrams with descriptors are accepted.
const SO_PASSRIGHTS: libc::c_int = 83;

/// Report with its sender, if the kernel knows it.
pub type Report = (String, Option<Sender>);

/// Socket for reports of programs. Dropping it removes its file.
#[derive(Debug)]
pub struct NotifySocket {
    fd: Arc<OwnedFd>,
    path: PathBuf,
    reports: Receiver<Report>,
    /// Readable while reports wait.
    wakeups: PipeReader,
}

impl NotifySocket {
    /// Receives reports at `path`. The caller owns the directory: an earlier file is replaced.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn bind(path: &Path) -> io::Result<NotifySocket> {
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let flags = SocketFlags::CLOEXEC;
        let fd = rustix::net::socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None)?;
        report_senders(&fd, true)?;
        refuse_descriptors(&fd);
        rustix::net::bind(&fd, &SocketAddrUnix::new(path)?)?;
        let fd = Arc::new(fd);
        let (send, reports) = sync_channel(MAX_WAITING);
        let (wakeups, wake) = io::pipe()?;
        rustix::io::ioctl_fionbio(&wakeups, true)?;
        let socket = NotifySocket { fd: Arc::clone(&fd), path: path.to_owned(), reports, wakeups };
        std::fs::set_permissions(path, Permissions::from_mode(0o666))?;
        Builder::new().name("talea-notify".into()).spawn(move || receive_all(&fd, &send, wake))?;
        Ok(socket)
    }

    /// Returns a report. Returns `None` if there is none.
    pub fn receive(&mut self) -> Option<Report> {
        // One byte for each report.
        let mut byte = [0];
        let _ = self.wakeups.read(&mut byte);
        self.reports.try_recv().ok()
    }
}

/// Passes reports on until the socket is shut down.
fn receive_all(fd: &OwnedFd, reports: &SyncSender<Report>, mut wake: PipeWriter) {
    let mut buffer = [0; MAX_LENGTH];
    loop {
        let received = recv_sender(fd, &mut buffer);
        // After a shutdown datagrams are empty and have no sender.
        let Ok((length, sender)) = received else { return };
        if length == 0 && sender.is_none() {
            return;
        }
        let text = String::from_utf8_lossy(&buffer[..length]).into_owned();
        if reports.send((text, sender)).is_err() || wake.write_all(&[0]).is_err() {
            return;
        }
    }
}

/// Refuses datagrams with descriptors, where the kernel can.
fn refuse_descriptors(socket: &OwnedFd) {
    let zero: libc::c_int = 0;
    // SAFETY: an integer that lives as long as the call, with its size. An older kernel refuses.
    let _ = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_PASSRIGHTS,
            (&raw const zero).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
}

impl Drop for NotifySocket {
    fn drop(&mut self) {
        // A file that is already gone is fine, and a shutdown ends the thread.
        drop(std::fs::remove_file(&self.path));
        let _ = rustix::net::shutdown(&self.fd, rustix::net::Shutdown::Both);
    }
}

impl AsFd for NotifySocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wakeups.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Tid;

    /// Returns the next report.
    fn next(socket: &mut NotifySocket) -> Report {
        loop {
            let mut polled = [rustix::event::PollFd::new(socket, rustix::event::PollFlags::IN)];
            rustix::event::poll(&mut polled, None).expect("a report");
            if let Some(report) = socket.receive() {
                return report;
            }
        }
    }

    #[test]
    fn a_report_has_its_sender() {
        let path = std::env::temp_dir().join(format!("talea-notify-{}", std::process::id()));
        let mut socket = NotifySocket::bind(&path).expect("a socket");
        assert!(socket.receive().is_none());
        let client = std::os::unix::net::UnixDatagram::unbound().expect("a socket");
        for text in ["READY=1\nSTATUS=up", "", "STOPPING=1"] {
            client.send_to(text.as_bytes(), &path).expect("a report");
            let (received, sender) = next(&mut socket);
            assert_eq!(received, text);
            assert_eq!(sender.expect("a sender").pid, Some(Tid::of_process()));
        }
        drop(socket);
        assert!(!path.exists());
    }
}
