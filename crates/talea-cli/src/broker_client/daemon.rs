//! Connection to the daemon over its socket.

use super::connection::Broker;
use super::error::Unreachable;
use super::wire::{REPLY_TIMEOUT, Wire};
use std::io;
use std::path::{Path, PathBuf};
use talea_os::{Thread, seqpacket};
use talea_proto::{Reply, Request};

/// Maximum length in bytes of a UNIX socket's path (`sun_path` without the terminating zero).
const PATH_MAX: usize = 107;

/// Connection to the daemon.
pub(super) struct Daemon {
    wire: Wire,
    path: PathBuf,
}

/// Connects to the daemon at socket `path`.
pub(super) fn connect(path: PathBuf) -> anyhow::Result<Daemon> {
    let socket =
        seqpacket::connect(&path, REPLY_TIMEOUT).map_err(|error| no_daemon(&path, &error))?;
    let wire = Wire::open(socket, format!("the daemon at {}", path.display()))?;
    Ok(Daemon { wire, path })
}

/// Describes why there is no connection, with the remedy.
fn no_daemon(path: &Path, error: &io::Error) -> Unreachable {
    let shown = path.display();
    Unreachable(match error.kind() {
        io::ErrorKind::NotFound => format!("no daemon: there is no socket {shown}"),
        io::ErrorKind::ConnectionRefused => format!("no daemon: no process listens at {shown}"),
        io::ErrorKind::PermissionDenied => format!(
            "the daemon's socket {shown} is closed to you; its group and mode are set in the daemon's configuration"
        ),
        // The kernel reports a path that does not fit into an address as EINVAL.
        io::ErrorKind::InvalidInput if path.as_os_str().len() > PATH_MAX => {
            format!("{shown} is too long for a socket; {PATH_MAX} bytes fit")
        }
        io::ErrorKind::TimedOut => {
            format!("the daemon at {shown} does not accept connections; is it stopped?")
        }
        _ => format!("the daemon at {shown} cannot be reached: {error}"),
    })
}

impl Broker for Daemon {
    fn ask(&mut self, request: &Request, thread: Option<&Thread>) -> anyhow::Result<Reply> {
        self.wire.ask(request, thread)
    }

    fn describe(&self) -> String {
        format!("decided by talead at {}", self.path.display())
    }

    fn suspend(&mut self) {
        // An idle connection costs the daemon nothing.
    }
}
