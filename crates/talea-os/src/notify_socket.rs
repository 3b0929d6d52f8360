//! Socket to which programs report their state (`sd_notify(3)`).
//!
//! A datagram has lines of the form `NAME=VALUE`. The kernel reports its sender; the text proves
//! nothing about it. Every user may send.

use crate::seqpacket::{Sender, recv_sender, report_senders};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::fs::Permissions;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Maximum length of a datagram in bytes. The rest of a longer one is lost.
const MAX_LENGTH: usize = 4096;

/// Socket for reports of programs. Dropping it removes its file.
#[derive(Debug)]
pub struct NotifySocket {
    fd: OwnedFd,
    path: PathBuf,
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
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let fd = rustix::net::socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None)?;
        report_senders(&fd, true)?;
        rustix::net::bind(&fd, &SocketAddrUnix::new(path)?)?;
        let socket = NotifySocket { fd, path: path.to_owned() };
        std::fs::set_permissions(path, Permissions::from_mode(0o666))?;
        Ok(socket)
    }

    /// Receives one report with its sender. Returns `None` if there is none.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn receive(&self) -> io::Result<Option<(String, Option<Sender>)>> {
        let mut buffer = [0; MAX_LENGTH];
        match recv_sender(&self.fd, &mut buffer) {
            Ok((length, sender)) => {
                Ok(Some((String::from_utf8_lossy(&buffer[..length]).into_owned(), sender)))
            }
            Err(error) if error.kind() == io::ErrorKind::TimedOut => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl Drop for NotifySocket {
    fn drop(&mut self) {
        // A file that is already gone is fine.
        drop(std::fs::remove_file(&self.path));
    }
}

impl AsFd for NotifySocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Tid;

    #[test]
    fn a_report_has_its_sender() {
        let path = std::env::temp_dir().join(format!("talea-notify-{}", std::process::id()));
        let socket = NotifySocket::bind(&path).expect("a socket");
        assert!(socket.receive().expect("an answer").is_none());
        let client = std::os::unix::net::UnixDatagram::unbound().expect("a socket");
        client.send_to(b"READY=1\nSTATUS=up", &path).expect("a report");
        let (text, sender) = socket.receive().expect("an answer").expect("a report");
        assert_eq!(text, "READY=1\nSTATUS=up");
        assert_eq!(sender.expect("a sender").pid, Some(Tid::of_process()));
        drop(socket);
        assert!(!path.exists());
    }
}
