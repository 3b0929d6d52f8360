//! What the process may do, and giving up the rest.
//!
//! Kept, each for its reason:
//!
//! - `CAP_SYS_NICE`: policies, priorities and affinities of threads of other users. The daemon's
//!   work.
//! - `CAP_KILL`, only with foreign plugins: their hosts are of another user, and one that hangs
//!   must be ended.
//!
//! Not kept: everything else. Identity comes from pidfds and from files of `/proc` that everybody
//! may read; the configuration, the socket and the state file belong to the daemon's own user. On a
//! machine whose `/proc` hides processes (`hidepid`), give the daemon the group that may see them,
//! or it will not find its clients' threads.

use crate::log::Log;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io;
use talea_os::dropcaps::{CapSet, Capability, effective, keep_only};

/// Gives up every capability that serving does not need.
pub(crate) fn drop_rights(has_hosts: bool) -> io::Result<()> {
    let mut wanted = vec![Capability::SysNice];
    if has_hosts {
        wanted.push(Capability::Kill);
    }
    keep_only(CapSet::of(&wanted)).map(drop)
}

/// Says what will not work because of who we are.
pub(crate) fn complain(log: &Log) {
    let is_root = rustix::process::geteuid().is_root();
    let nice = effective().is_ok_and(|has| has.has(Capability::SysNice));
    if !nice {
        log.warning(
            "without CAP_SYS_NICE no thread can be given a real-time policy: every attach will be refused; start \
             as root or with that capability",
        );
    }
    if !is_root {
        log.info(
            "not root: no cpuset partitions (deadline threads are not confined to one CPU), and plugin hosts run as \
             the daemon's own user",
        );
    }
}

/// Raises the number of descriptors to what is allowed, and says how many that are.
pub(crate) fn raise_descriptors() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let hard = limit.maximum.unwrap_or(u64::MAX);
    if limit.current.is_some_and(|current| current < hard) {
        // The hard limit is always allowed.
        let _ =
            setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    }
    hard
}
