//! A listening socket that two daemons never share.
//!
//! Invariants. The process that holds the lock file beside the socket owns the path; a second
//! instance gets the pid of the first. The file at the path is only replaced if it is a socket that
//! no process answers, or whose process has ended and still holds the lock ([`file_lock`]). A new
//! socket is made beside the path and renamed to it when it listens with its final owner and mode.
//! So no client connects while its permissions are too wide, and a client finds either the old
//! socket, which refuses, or the new one, never a missing or a closed one.
//!
//! The lock file stays when the listener is dropped: removing a lock file lets two processes lock
//! two files.
//!
//! A listener can be *restricted* to root and the owner of the socket's file. The kernel checks the
//! mode of the file at each connect, also at one that waits for a place in the backlog. The mode of
//! a restricted socket contains its mode before, so that a later process can restore it:
//!
//! | permission of group, others | unrestricted | restricted |
//! | --- | --- | --- |
//! | sticky bit, which has no meaning for a socket | unset | set |
//! | to write, which means to connect | as chosen | unset |
//! | to execute, which has no meaning for a socket | any | the permission to write before |

use super::{address, connect, socket};
use crate::file_lock::{self, Lock};
use crate::sys::{check, errno, is};
use std::ffi::{CString, OsStr};
use std::fmt;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;
use talea_core::mutate;

/// Permissions of the socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Permission bits of the socket. A client that connects needs the right to write.
    pub mode: u32,
    /// Owner of the socket; `None` stands for this user.
    pub uid: Option<u32>,
    /// Group of the socket; `None` stands for this user's group.
    pub gid: Option<u32>,
}

/// Reason why a socket cannot be created at a path.
#[derive(Debug)]
pub enum BindError {
    /// Another instance owns the socket.
    InUse {
        /// Path of the socket.
        path: PathBuf,
        /// Process of the other instance, if it is known.
        pid: Option<u32>,
    },
    /// The file at the path is not a socket.
    NotASocket {
        /// Path of the file.
        path: PathBuf,
    },
    /// The lock file beside the socket is not a file of root or this user alone. Its creator could
    /// prevent every daemon from starting.
    Untrusted {
        /// Path of the lock file.
        path: PathBuf,
    },
    /// The kernel refused a step.
    Os {
        /// Step that failed, such as `bind`.
        doing: &'static str,
        /// File on which the step failed.
        path: PathBuf,
        /// The kernel's error.
        error: io::Error,
    },
}

/// Mode bit of a restricted socket's file.
const RESTRICTED: u32 = 0o1000;
/// Permission of the group and of others to write.
const WRITE: u32 = 0o022;

/// Listening socket. Accepted connections are non-blocking and close-on-exec.
#[derive(Debug)]
pub struct Listener {
    fd: OwnedFd,
    /// File of the socket; `None` for a socket without one.
    path: Option<PathBuf>,
    /// Lock of [`Listener::bind`].
    lock: Option<File>,
    is_restricted: bool,
}

impl Listener {
    /// Listens at `path`. Up to `backlog` connections may wait to be accepted.
    pub fn bind(path: &Path, access: Access, backlog: u32) -> Result<Listener, BindError> {
        let (lock, is_orphaned) = lock(path)?;
        if !is_orphaned {
            check_stale(path)?;
        }
        let os = |doing: &'static str| {
            move |error: io::Error| BindError::Os { doing, path: path.to_owned(), error }
        };
        let fd = socket(libc::SOCK_NONBLOCK).map_err(os("socket"))?;
        // A path that is too long is an error of its own, not of the name beside it.
        address(path).map_err(os("bind"))?;
        let beside = name_beside(path).ok_or_else(|| os("bind")(errno(libc::EINVAL)))?;
        remove_socket(&beside)?;
        let (name, length) = address(&beside).map_err(os("bind"))?;
        // The new file takes its mode from the socket: closed to others from the start.
        rustix::fs::fchmod(&fd, rustix::fs::Mode::from_raw_mode(0o600))
            .map_err(|error| os("fchmod")(error.into()))?;
        // SAFETY: `name` is a sockaddr_un of which `length` bytes are meant.
        check(unsafe { libc::bind(fd.as_raw_fd(), (&raw const name).cast(), length) })
            .map_err(os("bind"))?;
        // On an error, its drop removes the file.
        let path_beside = Some(beside.clone());
        let mut listener =
            Listener { fd, path: path_beside, lock: Some(lock), is_restricted: false };
        if access.uid.is_some() || access.gid.is_some() {
            std::os::unix::fs::lchown(&beside, access.uid, access.gid).map_err(os("chown"))?;
        }
        change_mode(&beside, |_| access.mode).map_err(os("chmod"))?;
        let backlog = libc::c_int::try_from(backlog).unwrap_or(libc::c_int::MAX);
        // SAFETY: takes integers.
        check(unsafe { libc::listen(listener.fd.as_raw_fd(), backlog) }).map_err(os("listen"))?;
        std::fs::rename(&beside, path).map_err(os("rename"))?;
        listener.path = Some(path.to_owned());
        Ok(listener)
    }

    /// Takes over a listener set up by another process, such as systemd, and ends a restriction
    /// that a killed process has left. Returns `EINVAL` unless `fd` is a listening sequenced-packet
    /// UNIX socket.
    pub fn from_fd(fd: OwnedFd) -> io::Result<Listener> {
        let option = |name: libc::c_int| -> io::Result<libc::c_int> {
            let mut value: libc::c_int = 0;
            let mut length = size_of::<libc::c_int>() as libc::socklen_t;
            // SAFETY: the kernel writes one integer.
            check(unsafe {
                libc::getsockopt(
                    fd.as_raw_fd(),
                    libc::SOL_SOCKET,
                    name,
                    (&raw mut value).cast(),
                    &raw mut length,
                )
            })?;
            Ok(value)
        };
        let right = option(libc::SO_DOMAIN)? == libc::AF_UNIX
            && option(libc::SO_TYPE)? == libc::SOCK_SEQPACKET
            && option(libc::SO_ACCEPTCONN)? == 1;
        if !right {
            return Err(errno(libc::EINVAL));
        }
        rustix::io::ioctl_fionbio(&fd, true)?;
        rustix::io::fcntl_setfd(&fd, rustix::io::FdFlags::CLOEXEC)?;
        let path = path_of(&fd);
        let mut listener = Listener { fd, path, lock: None, is_restricted: true };
        // After an error, no process can have restricted it, or this one cannot.
        let _ = listener.unrestrict();
        listener.is_restricted = false;
        Ok(listener)
    }

    /// Lets only root and the owner of the socket's file connect. Other connects fail with
    /// `EACCES`; connections in the backlog stay.
    ///
    /// # Errors
    /// `EPERM`: this process does not own the file. `ENOENT`: the socket has no file.
    pub fn restrict(&mut self) -> io::Result<()> {
        if !self.is_restricted {
            let path = self.path.as_ref().ok_or_else(|| errno(libc::ENOENT))?;
            change_mode(path, restricted)?;
            self.is_restricted = true;
        }
        Ok(())
    }

    /// Ends a restriction.
    ///
    /// # Errors
    /// As for [`Listener::restrict`].
    pub fn unrestrict(&mut self) -> io::Result<()> {
        if self.is_restricted {
            let path = self.path.as_ref().ok_or_else(|| errno(libc::ENOENT))?;
            change_mode(path, unrestricted)?;
            self.is_restricted = false;
        }
        Ok(())
    }

    /// Accepts the next waiting connection. Returns `None` if there is none.
    ///
    /// `EMFILE` and `ENFILE` leave the connection waiting, so the listener stays readable. A caller
    /// in a loop must stop watching the listener until the caller has closed a descriptor.
    pub fn accept(&self) -> io::Result<Option<OwnedFd>> {
        loop {
            // SAFETY: no address is asked for.
            let fd = check(unsafe {
                libc::accept4(
                    self.fd.as_raw_fd(),
                    std::ptr::null_mut(),
                    std::ptr::null_mut(),
                    libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK,
                )
            });
            match fd {
                // SAFETY: fresh and ours.
                Ok(fd) => return Ok(Some(unsafe { OwnedFd::from_raw_fd(fd) })),
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => return Ok(None),
                    io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted => {}
                    _ => return Err(error),
                },
            }
        }
    }
}

/// Removes the socket that [`Listener::bind`] created. A socket from [`Listener::from_fd`] belongs
/// to its creator, and loses its restriction.
impl Drop for Listener {
    fn drop(&mut self) {
        if let (Some(path), Some(_)) = (&self.path, &self.lock) {
            // Still under the lock, so it is ours. A file that is already gone is fine.
            drop(std::fs::remove_file(path));
        } else {
            // The next process tries again.
            let _ = self.unrestrict();
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Locks the file named `path` with `.lock` appended, and writes the number of this process into
/// it. The second result is whether a killed process had the lock, and so the socket.
fn lock(path: &Path) -> Result<(File, bool), BindError> {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    let name = PathBuf::from(name);
    let os = |doing: &'static str| {
        let path = name.clone();
        move |error: io::Error| BindError::Os { doing, path, error }
    };
    let file = file_lock::open(&name).map_err(os("open"))?;
    let meta = file.metadata().map_err(os("stat"))?;
    let ours = meta.uid() == 0 || meta.uid() == rustix::process::geteuid().as_raw();
    if !meta.is_file() || !ours || meta.nlink() != 1 {
        return Err(BindError::Untrusted { path: name });
    }
    // A process that can open the file can hold its lock and keep every later daemon out.
    file.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o600))
        .map_err(os("chmod"))?;
    let locked =
        mutate!("recovery-second-daemon", file_lock::lock(&name, file), Ok(Lock::Taken(file)));
    let (mut file, is_orphaned) = match locked.map_err(os("lock"))? {
        Lock::Taken(file) => (file, false),
        Lock::Replaced(file) => (file, true),
        Lock::Held(mut file) => {
            let mut text = String::new();
            let pid = file.read_to_string(&mut text).ok().and_then(|_| text.trim().parse().ok());
            return Err(BindError::InUse { path: path.to_owned(), pid });
        }
    };
    file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id())).map_err(os("write"))?;
    Ok((file, is_orphaned))
}

/// Checks that the file at `path`, if any, is a socket that no process answers.
fn check_stale(path: &Path) -> Result<(), BindError> {
    if !is_socket(path)? {
        return Ok(());
    }
    // A listener without our lock belongs to another program, or to one with another lock scheme.
    match connect(path, Duration::from_millis(200)) {
        Err(error) if is(&error, libc::ECONNREFUSED) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        _ => Err(BindError::InUse { path: path.to_owned(), pid: None }),
    }
}

/// Whether there is a socket at `path`. Another kind of file is an error.
fn is_socket(path: &Path) -> Result<bool, BindError> {
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(BindError::Os { doing: "stat", path: path.to_owned(), error }),
        Ok(meta) if !meta.file_type().is_socket() => {
            Err(BindError::NotASocket { path: path.to_owned() })
        }
        Ok(_) => Ok(true),
    }
}

/// Returns the name for a new socket beside `path`: as long as `path`, because an address has no
/// room for a longer one.
fn name_beside(path: &Path) -> Option<PathBuf> {
    let mut name = path.file_name()?.as_bytes().to_owned();
    let first = name.first_mut()?;
    *first = if *first == b'~' { b'_' } else { b'~' };
    Some(path.with_file_name(OsStr::from_bytes(&name)))
}

/// Removes the socket at `path`, which a process left that was killed before it renamed the socket.
fn remove_socket(path: &Path) -> Result<(), BindError> {
    if is_socket(path)? {
        std::fs::remove_file(path).map_err(|error| BindError::Os {
            doing: "unlink",
            path: path.to_owned(),
            error,
        })?;
    }
    Ok(())
}

/// Returns the file of a socket, if it has one.
fn path_of(socket: &OwnedFd) -> Option<PathBuf> {
    let address = rustix::net::getsockname(socket).ok()?;
    let address = rustix::net::SocketAddrUnix::try_from(address).ok()?;
    Some(PathBuf::from(OsStr::from_bytes(address.path()?.to_bytes())))
}

/// Returns the mode of a restricted socket.
fn restricted(mode: u32) -> u32 {
    mode & !(WRITE | WRITE >> 1) | (mode & WRITE) >> 1 | RESTRICTED
}

/// Returns the mode of a socket before its restriction, if it has one.
fn unrestricted(mode: u32) -> u32 {
    if mode & RESTRICTED == 0 {
        return mode;
    }
    mode & !(RESTRICTED | WRITE >> 1) | (mode << 1) & WRITE
}

/// Changes the mode of the socket itself. If another process has replaced the socket by a symbolic
/// link, the call does not follow the link. The result is then `ENXIO` or `EOPNOTSUPP`, depending
/// on the kernel.
fn change_mode(path: &Path, change: impl FnOnce(u32) -> u32) -> io::Result<()> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: `path` is a C string; O_PATH opens without accessing the file.
    let fd = check(unsafe {
        libc::open(path.as_ptr(), libc::O_PATH | libc::O_NOFOLLOW | libc::O_CLOEXEC)
    })?;
    // SAFETY: fresh and ours.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    let meta = rustix::fs::fstat(&fd)?;
    if meta.st_mode & libc::S_IFMT != libc::S_IFSOCK {
        return Err(errno(libc::ENXIO));
    }
    let (mode, new) = (meta.st_mode & 0o7777, change(meta.st_mode & 0o7777));
    if new == mode {
        return Ok(());
    }
    // fchmod does not accept O_PATH descriptors; their /proc name leads to the same inode.
    std::fs::set_permissions(
        format!("/proc/self/fd/{}", fd.as_raw_fd()),
        std::os::unix::fs::PermissionsExt::from_mode(new),
    )
}

impl fmt::Display for BindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BindError::InUse { path, pid: Some(pid) } => {
                write!(f, "{} is in use by process {pid}", path.display())
            }
            BindError::InUse { path, pid: None } => write!(f, "{} is in use", path.display()),
            BindError::NotASocket { path } => {
                write!(f, "{} exists and is not a socket; it was left alone", path.display())
            }
            BindError::Untrusted { path } => {
                write!(
                    f,
                    "{} belongs to another user; remove it, and check the permissions of its directory",
                    path.display()
                )
            }
            BindError::Os { doing, path, error } => {
                write!(f, "{doing} {}: {error}", path.display())
            }
        }
    }
}

impl std::error::Error for BindError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            BindError::Os { error, .. } => Some(error),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{restricted, unrestricted};

    #[test]
    fn a_restricted_mode_contains_the_mode_before() {
        for mode in [0o666, 0o660, 0o600, 0o622, 0o644, 0o400] {
            assert_eq!(restricted(mode) & 0o022, 0, "{mode:o}");
            assert_eq!(restricted(mode) & 0o700, mode & 0o700, "{mode:o}");
            assert_eq!(unrestricted(restricted(mode)), mode, "{mode:o}");
            assert_eq!(unrestricted(mode), mode, "{mode:o}");
        }
        // A permission to execute is lost, and never becomes one to connect.
        assert_eq!(unrestricted(restricted(0o755)), 0o744);
        assert_eq!(unrestricted(0o755), 0o755);
    }
}
