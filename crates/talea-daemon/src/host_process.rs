//! Process of a plugin host: a child of the daemon, or a service of the service manager.
//!
//! | daemon | socket [`SERVICE_SOCKET`] | process | user of the process |
//! | --- | --- | --- | --- |
//! | root | any | child | one of [`HOST_UIDS`], which no other process has |
//! | not root | belongs to the daemon's user | service, one per connection | one of `DynamicUser=` |
//! | not root | other, or none | child | that of the daemon; the host then requires Landlock |
//!
//! Invariants:
//!
//! 1. Two processes with users of their own have different users. [`HOST_UIDS`] and the range of
//!    `DynamicUser=` are disjoint, so that neither side must know what the other one has assigned.
//! 2. The standard error of the process is a pipe to the daemon. A service gets the pipe with the
//!    first message.
//! 3. The event loop waits neither for the start nor for the end of a child: on a starved machine
//!    an ordinary process does neither. The thread that orders the start of a child also collects
//!    it ([`Collector`]). The thread that forks the child has a table of descriptors of its own
//!    (`talea_os::spawn`), so a child has no file of a client. It lives as long as the child, which
//!    the kernel kills with it (`PDEATHSIG`).
//! 4. A service ends when the daemon closes the connection, even if its plugin hangs
//!    (`supervisor` of `talea-plugin-host`). The daemon has no right to kill it.

use crate::log::Log;
use std::fs::{File, Metadata};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;
use talea_core::mutate;
use talea_os::seqpacket::{self, Sender};
use talea_os::spawn::{Child, Sandbox, describe_exit, spawn_apart};
use talea_os::{Tid, files, launch, peer, users};
use talea_proto::host::HOST_UIDS;

/// Program that hosts a plugin.
const HOST_PROGRAM: &str = "talea-plugin-host";
/// Socket of the service manager, which starts a host for each connection: `talead-plugin.socket`.
const SERVICE_SOCKET: &str = "/run/talead-plugin/socket";
/// Maximum duration of a connect. Only a full backlog of the service manager delays it.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(100);

/// Time that a failed start waits for the exit status of its process.
const EXIT_TIMEOUT: Duration = Duration::from_millis(200);

/// Process of a host. Dropping it ends the process.
#[derive(Debug)]
pub(crate) enum HostProcess {
    /// Child of the daemon.
    Child(ChildProcess),
    /// Service of the service manager, with its process as the kernel has reported it.
    Service(Option<Sender>),
}

/// Child that a [`Collector`] collects.
#[derive(Debug)]
pub(crate) struct ChildProcess {
    pid: Tid,
    pidfd: OwnedFd,
    /// User of the child, if it has one of its own.
    uid: Option<u32>,
    /// Whether the log does not need the exit status.
    is_expected: Arc<AtomicBool>,
    /// Exit status, in words.
    exit: Receiver<String>,
}

/// Child for the thread that waits for its end.
pub(crate) struct Collector {
    child: Child,
    is_expected: Arc<AtomicBool>,
    exit: std::sync::mpsc::Sender<String>,
}

/// Started process with its descriptors.
pub(crate) struct Started {
    pub(crate) process: HostProcess,
    pub(crate) socket: OwnedFd,
    /// End of the pipe from which the daemon reads.
    pub(crate) stderr: File,
    /// End of the pipe that the first message must pass to a service.
    pub(crate) pass: Option<OwnedFd>,
    /// Child to collect.
    pub(crate) collector: Option<Collector>,
}

impl ChildProcess {
    fn new(child: Child, uid: Option<u32>) -> io::Result<(ChildProcess, Collector)> {
        let pidfd = child.as_fd().try_clone_to_owned()?;
        let is_expected = Arc::new(AtomicBool::new(false));
        let (sender, exit) = channel();
        let process =
            ChildProcess { pid: child.pid(), pidfd, uid, is_expected: is_expected.clone(), exit };
        Ok((process, Collector { child, is_expected, exit: sender }))
    }

    fn kill(&self) {
        // An error means that the child has ended.
        let _ = rustix::process::pidfd_send_signal(&self.pidfd, rustix::process::Signal::KILL);
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        self.is_expected.store(true, Ordering::Relaxed);
        self.kill();
    }
}

impl Collector {
    /// Waits for the end of the child of plugin `name`, and logs its exit status unless the end was
    /// expected.
    pub(crate) fn collect(mut self, name: &str, log: &Log) {
        let text = match self.child.wait() {
            Ok(status) => describe_exit(status),
            Err(error) => error.to_string(),
        };
        if !self.is_expected.load(Ordering::Relaxed) {
            log.error(format_args!("plugin `{name}`: {text}"));
        }
        // Only a start receives it.
        let _ = self.exit.send(text);
    }
}

impl HostProcess {
    /// Starts the process of a host. `program` names the host program of a child, and `taken` has
    /// the users of other hosts.
    pub(crate) fn start(program: Option<&Path>, taken: &[u32]) -> Result<Started, String> {
        let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)
            .map_err(|error| format!("pipe: {error}"))?;
        rustix::io::ioctl_fionbio(&read, true).map_err(|error| format!("pipe: {error}"))?;
        let stderr = File::from(read);
        let euid = rustix::process::geteuid().as_raw();
        if program.is_none() && is_served(Path::new(SERVICE_SOCKET), euid) {
            let (process, socket) = (HostProcess::Service(None), connect()?);
            return Ok(Started { process, socket, stderr, pass: Some(write), collector: None });
        }
        let program = match program {
            Some(program) => program.to_owned(),
            None => launch::internal_program(HOST_PROGRAM).map_err(|error| error.to_string())?,
        };
        // The child executes this file, so the file must be as trustworthy as the daemon itself.
        files::check_trusted(&program).map_err(|untrusted| untrusted.to_string())?;
        let (socket, theirs) =
            seqpacket::pair(false).map_err(|error| format!("socketpair: {error}"))?;
        let uid = own_uid(taken)?;
        let sandbox = Sandbox { user: uid.map(|uid| (uid, uid)), ..Sandbox::default() };
        let child = spawn_apart(&program, theirs, write, &sandbox)
            .map_err(|error| format!("{}: {error}", program.display()))?;
        let (process, collector) =
            ChildProcess::new(child, uid).map_err(|error| format!("its pidfd: {error}"))?;
        let (process, collector) = (HostProcess::Child(process), Some(collector));
        Ok(Started { process, socket, stderr, pass: None, collector })
    }

    /// Returns the user of the process, if it has one of its own.
    pub(crate) fn uid(&self) -> Option<u32> {
        match self {
            HostProcess::Child(child) => child.uid,
            HostProcess::Service(sender) => sender.as_ref().map(|sender| sender.uid),
        }
    }

    /// Returns the number of the process, if it is known.
    pub(crate) fn pid(&self) -> Option<Tid> {
        match self {
            HostProcess::Child(child) => Some(child.pid),
            HostProcess::Service(sender) => sender.as_ref().and_then(|sender| sender.pid),
        }
    }

    /// Records the sender of the first answer.
    ///
    /// The error states that the process could change the daemon.
    pub(crate) fn set_sender(&mut self, sender: Option<Sender>) -> Result<(), String> {
        let HostProcess::Service(known) = self else { return Ok(()) };
        let sender = sender.ok_or("the kernel did not report the sender of its first answer")?;
        let own = rustix::process::geteuid().as_raw();
        if mutate!("plugin-foreign-service-user", [0, own].contains(&sender.uid), false) {
            return Err(format!(
                "its host runs as user {}, which can change the daemon: talead-plugin@.service \
                 needs DynamicUser=yes",
                sender.uid
            ));
        }
        *known = Some(sender);
        Ok(())
    }

    /// Returns the isolation of the process, in words.
    pub(crate) fn isolation(&self) -> String {
        match (self, self.uid()) {
            (HostProcess::Service(_), Some(uid)) => {
                format!("its host is a service of its own, as user {uid}")
            }
            (_, Some(uid)) => format!("its host runs as user {uid}, which no other process has"),
            (_, None) => format!(
                "its host runs as the daemon's user, because {SERVICE_SOCKET} is not a socket of \
                 that user"
            ),
        }
    }

    /// Ends the process. With `is_expected`, the log does not need its exit status.
    pub(crate) fn end(&self, socket: &OwnedFd, is_expected: bool) {
        match self {
            HostProcess::Child(child) => {
                child.is_expected.store(is_expected, Ordering::Relaxed);
                child.kill();
            }
            HostProcess::Service(_) => {
                // An error means that the service has ended already.
                let _ = rustix::net::shutdown(socket, rustix::net::Shutdown::Both);
            }
        }
    }

    /// Does not log the exit status of the process.
    pub(crate) fn expect_end(&self) {
        if let HostProcess::Child(child) = self {
            child.is_expected.store(true, Ordering::Relaxed);
        }
    }

    /// Ends the process, and returns its end in words. Waits for at most [`EXIT_TIMEOUT`].
    pub(crate) fn end_and_wait(&self, socket: &OwnedFd) -> String {
        self.end(socket, true);
        match self {
            HostProcess::Child(child) => (child.exit.recv_timeout(EXIT_TIMEOUT))
                .unwrap_or_else(|_| "did not exit after SIGKILL".to_owned()),
            HostProcess::Service(_) => SERVICE_ENDED.to_owned(),
        }
    }

    /// Returns the end of a service in words; the log gets that of a child from its collector.
    pub(crate) fn service_end(&self) -> Option<&'static str> {
        matches!(self, HostProcess::Service(_)).then_some(SERVICE_ENDED)
    }
}

/// End of a service.
const SERVICE_ENDED: &str = "ended; the journal of talead-plugin@ has its exit status";

/// Whether the service manager starts hosts for a daemon of user `euid`.
fn is_served(socket: &Path, euid: u32) -> bool {
    let belongs = |found: Metadata| found.file_type().is_socket() && found.uid() == euid;
    mutate!("plugin-foreign-served", euid != 0, true)
        && socket.symlink_metadata().is_ok_and(belongs)
}

/// Connects to the service manager.
fn connect() -> Result<OwnedFd, String> {
    let failed = |error: io::Error| format!("{SERVICE_SOCKET}: {error}");
    let socket = seqpacket::connect(Path::new(SERVICE_SOCKET), CONNECT_TIMEOUT).map_err(failed)?;
    // Any other listener could impersonate the service manager.
    if peer::user(socket.as_fd()).map_err(failed)? != 0 {
        return Err(format!("{SERVICE_SOCKET}: its listener is not root"));
    }
    seqpacket::report_senders(&socket, true).map_err(failed)?;
    Ok(socket)
}

/// Returns a user for a host that no other process has. A daemon that is not root cannot change the
/// user (`None`).
fn own_uid(taken: &[u32]) -> Result<Option<u32>, String> {
    if !rustix::process::geteuid().is_root() {
        return Ok(None);
    }
    let unused =
        users::unused_uid(HOST_UIDS, taken).map_err(|error| format!("an unused uid: {error}"))?;
    unused.map(Some).ok_or_else(|| format!("every uid of {HOST_UIDS:?} is in use"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attack_23_only_a_socket_of_the_daemons_own_user_starts_services() {
        let dir = std::env::temp_dir().join(format!("talea-served-{}", std::process::id()));
        std::fs::create_dir(&dir).expect("a folder");
        let (socket, file) = (dir.join("socket"), dir.join("file"));
        let listener = std::os::unix::net::UnixListener::bind(&socket).expect("a socket");
        std::fs::write(&file, "").expect("a file");
        let own = rustix::process::geteuid().as_raw();
        let answers = [&socket, &file, &dir.join("none")].map(|path| is_served(path, own));
        let other = is_served(&socket, own + 1);
        drop(listener);
        std::fs::remove_dir_all(&dir).expect("removable");
        assert_eq!(answers, [own != 0, false, false], "root starts its hosts by itself");
        assert!(!other);
    }

    #[test]
    fn attack_23_a_service_that_could_change_the_daemon_is_refused() {
        let own = rustix::process::geteuid().as_raw();
        let accepts = |uid| {
            let mut process = HostProcess::Service(None);
            process.set_sender(Some(Sender { pid: None, uid })).is_ok()
        };
        assert!(!accepts(own) && !accepts(0));
        assert!(accepts(own + 61_184));
        assert!(HostProcess::Service(None).set_sender(None).is_err(), "an unknown sender");
    }

    #[test]
    fn attack_23_hosts_and_dynamic_users_never_share_a_uid() {
        let dynamic = 61_184..=65_519;
        assert!(HOST_UIDS.into_iter().all(|uid| !dynamic.contains(&uid)));
    }
}
