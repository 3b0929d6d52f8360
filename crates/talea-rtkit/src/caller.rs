//! The process at the other end of a connection to the bus.
//!
//! The bus reads user and process of a connection from the kernel when the connection begins. Newer
//! buses pass a pidfd of the process (`ProcessFD`), which cannot denote a later process. Otherwise
//! this module opens a pidfd by number and asks the bus again: the connection still exists, so its
//! process did when the pidfd was opened.
//!
//! A process may leave its connection to a child and exit, and its number may be reused between the
//! two. The daemon therefore checks that all user ids of the process are those of the connection.

use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::os::fd::OwnedFd;
use zbus::fdo::{ConnectionCredentials, Error};
use zbus::names::UniqueName;
use zbus::{Connection, fdo};

/// Process of a connection to the bus.
#[derive(Debug)]
pub(crate) struct Caller {
    /// Number of the process.
    pub(crate) pid: u32,
    /// User of the connection.
    pub(crate) uid: u32,
    /// Pidfd of the process.
    pub(crate) pidfd: OwnedFd,
}

/// Returns the process that owns the connection `sender`.
pub(crate) async fn caller_of(
    connection: &Connection,
    sender: &UniqueName<'_>,
) -> fdo::Result<Caller> {
    let first = credentials(connection, sender).await?;
    let (uid, pid) = ids(&first)?;
    if let Some(pidfd) = first.into_process_fd() {
        return Ok(Caller { pid, uid, pidfd: pidfd.into() });
    }
    let gone = |error: rustix::io::Errno| {
        Error::Failed(format!("process {pid} of the caller cannot be opened: {error}"))
    };
    let number = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let number = number.ok_or_else(|| gone(rustix::io::Errno::SRCH))?;
    let pidfd = pidfd_open(number, PidfdFlags::empty()).map_err(gone)?;
    let again = credentials(connection, sender).await?;
    if ids(&again)? != (uid, pid) {
        return Err(Error::Failed("the process of the caller has changed".to_owned()));
    }
    Ok(Caller { pid, uid, pidfd })
}

fn ids(found: &ConnectionCredentials) -> fdo::Result<(u32, u32)> {
    found.unix_user_id().zip(found.process_id()).ok_or_else(|| {
        Error::AccessDenied("the bus does not know the process of the caller".to_owned())
    })
}

async fn credentials(
    connection: &Connection,
    sender: &UniqueName<'_>,
) -> fdo::Result<ConnectionCredentials> {
    const BUS: &str = "org.freedesktop.DBus";
    let reply = connection
        .call_method(
            Some(BUS),
            "/org/freedesktop/DBus",
            Some(BUS),
            "GetConnectionCredentials",
            &sender.as_str(),
        )
        .await?;
    Ok(reply.body().deserialize()?)
}
