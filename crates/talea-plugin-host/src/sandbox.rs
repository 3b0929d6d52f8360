//! Drop of all remaining rights, permanently, before the host loads foreign code.
//!
//! `talead` or the unit of the service manager starts this program with another user, resource
//! limits and no way to gain privileges.
//! This module drops the rest: capabilities, files and processes (module `landlock`),
//! and every system call that computing does not need (module `seccomp`). The plugin
//! keeps: memory up to a limit, reading libraries and its own shared object, writing to standard
//! error, and answering.
//!
//! A host that runs as root, or that cannot drop its rights, refuses to load anything.

use crate::landlock::Without;
use crate::supervisor::Origin;
use crate::{landlock, seccomp};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::Path;
use talea_core::mutate;
use talea_proto::host::HOST_UIDS;

/// Drops all rights, except for loading `module`, and closes all descriptors above `daemon`.
/// Returns a right that this kernel cannot drop, in words.
///
/// # Errors
/// The right that could not be dropped, in words. The process must then end without loading
/// anything.
pub(crate) fn enter(
    module: &Path,
    origin: Origin,
    daemon: BorrowedFd,
) -> Result<Option<&'static str>, String> {
    if rustix::process::geteuid().is_root() || rustix::process::getuid().is_root() {
        return Err(
            "this program must not run as root; talead starts it as another user".to_owned()
        );
    }
    drop_capabilities()?;
    reset_oom_score();
    close_leaked_descriptors(daemon);
    // Without it the filter would need a capability, and a set-user-id program could restore
    // rights.
    prctl(libc::PR_SET_NO_NEW_PRIVS, 1).map_err(|error| format!("PR_SET_NO_NEW_PRIVS: {error}"))?;
    prctl(libc::PR_SET_DUMPABLE, 0).map_err(|error| format!("PR_SET_DUMPABLE: {error}"))?;
    let without = match origin {
        Origin::Service => Without::Unit,
        Origin::Daemon if HOST_UIDS.contains(&rustix::process::getuid().as_raw()) => Without::User,
        Origin::Daemon => Without::Nothing,
    };
    let confined = landlock::confine(module, without);
    let missing = mutate!("plugin-foreign-landlock", confined, Ok::<_, String>(None))?;
    mutate!(
        "plugin-foreign-filter",
        seccomp::install().map_err(|error| format!("seccomp: {error}")),
        Ok(())
    )?;
    Ok(missing)
}

/// Gives up the protection from the kernel's out-of-memory killer that the daemon may have: the
/// plugin's memory is not the daemon's.
fn reset_oom_score() {
    // Raising the value needs no right. Without /proc there is nothing to write.
    let _ = std::fs::write("/proc/self/oom_score_adj", "0");
}

/// Closes descriptors above the socket, which leaked into this process: there should be none.
fn close_leaked_descriptors(daemon: BorrowedFd) {
    let first = daemon.as_raw_fd() as u32 + 1;
    // SAFETY: takes integers; nothing in this process owns a descriptor above the socket yet.
    // Kernels without the call (before 5.9) are older than Talea supports.
    unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, 0u32) };
}

/// Drops capabilities: a daemon that does not run as root but has CAP_SYS_NICE may have passed it
/// on.
fn drop_capabilities() -> Result<(), String> {
    use rustix::thread::{CapabilitySet, CapabilitySets};
    let none = CapabilitySets {
        effective: CapabilitySet::empty(),
        permitted: CapabilitySet::empty(),
        inheritable: CapabilitySet::empty(),
    };
    // Ambient capabilities follow the inheritable ones.
    rustix::thread::set_capabilities(None, none)
        .map_err(|error| format!("dropping capabilities: {error}"))
}

fn prctl(option: libc::c_int, value: libc::c_ulong) -> io::Result<()> {
    // SAFETY: the options used here take one integer.
    let answer = unsafe { libc::prctl(option, value, 0, 0, 0) };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
