//! Capabilities of the daemon.
//!
//! The daemon keeps these capabilities:
//!
//! - `CAP_SYS_NICE`: policies, priorities and affinities of other users' threads.
//! - `CAP_PERFMON`: the CPU time that limited threads consume.
//! - `CAP_KILL`, only with foreign plugins: their hosts run as other users, and a host that hangs
//!   must be killed.
//! - `CAP_SETUID` and `CAP_SETGID`, only as root with foreign plugins: a host that has failed is
//!   started again as a user of its own.
//!
//! It drops all others. Identities come from pidfds and from world-readable files of `/proc`. The
//! configuration, the socket and the state file belong to the daemon's own user. If `/proc` hides
//! processes (`hidepid`), the daemon must be in the group that may see them; otherwise it does not
//! find its clients' threads.

use crate::log::Log;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io;
use talea_os::capabilities::{CapSet, Capability, effective, keep_only};
use talea_os::mlock;

/// Drops every capability that serving does not need.
pub(crate) fn drop_rights(has_hosts: bool) -> io::Result<()> {
    let mut wanted = vec![Capability::SysNice, Capability::PerfMon];
    if has_hosts {
        wanted.push(Capability::Kill);
        if rustix::process::geteuid().is_root() {
            wanted.extend([Capability::SetUid, Capability::SetGid]);
        }
    }
    keep_only(CapSet::of(&wanted)).map(drop)
}

/// Logs the features that the daemon's rights do not allow.
pub(crate) fn warn_missing(log: &Log) {
    let is_root = rustix::process::geteuid().is_root();
    let nice = effective().is_ok_and(|has| has.has(Capability::SysNice));
    if !nice {
        log.warning(
            "CAP_SYS_NICE is missing: the daemon cannot set real-time policies and refuses every attach; start it \
             as root or with that capability",
        );
    }
    if !is_root {
        log.info("not root: no cpuset partitions (deadline threads are not confined to one CPU)");
    }
}

/// Raises the limit of locked memory, where that is allowed: the kernel locks two pages for the
/// task clock of each limited thread.
pub(crate) fn raise_locked_memory() {
    let unlimited = Rlimit { current: None, maximum: None };
    if setrlimit(Resource::Memlock, unlimited).is_err() {
        let maximum = getrlimit(Resource::Memlock).maximum;
        // Raising to the hard limit is always allowed.
        let _ = setrlimit(Resource::Memlock, Rlimit { current: maximum, maximum });
    }
}

/// Locks the daemon's memory, so that no page fault delays the event loop. Under a limit of locked
/// memory nothing is locked, because later allocations would fail.
pub(crate) fn lock_memory(log: &Log) {
    let result = match getrlimit(Resource::Memlock).current {
        None => mlock::lock_used(),
        Some(_) => Err(io::Error::other("RLIMIT_MEMLOCK is not unlimited")),
    };
    if let Err(error) = result {
        log.warning(format_args!(
            "the daemon's memory is not locked, so that page faults may delay its answers: {error}"
        ));
    }
}

/// Raises the limit of descriptors to the maximum and returns it.
pub(crate) fn raise_descriptors() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let hard = limit.maximum.unwrap_or(u64::MAX);
    if limit.current.is_some_and(|current| current < hard) {
        // Raising to the hard limit is always allowed.
        let _ =
            setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    }
    hard
}
