//! Locks memory, so that no page fault delays a real-time thread.

use rustix::mm::{MlockAllFlags, mlockall};
use std::io;

/// Faults in every page that the process has mapped, including the stacks of its threads, and locks
/// the pages in memory until the process ends. Later mappings are not locked, because under a limit
/// they would fail.
///
/// `ENOMEM`: the pages exceed `RLIMIT_MEMLOCK`. `EPERM`: `RLIMIT_MEMLOCK` is 0. After an error no
/// page, or only a part, is locked.
pub fn lock() -> io::Result<()> {
    Ok(mlockall(MlockAllFlags::CURRENT)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locked_pages_count_in_vm_lck() {
        if let Err(error) = lock() {
            assert!(!rustix::process::geteuid().is_root(), "root may lock its memory: {error}");
            eprintln!("skipped: an ordinary user's RLIMIT_MEMLOCK is below what this program has");
            return;
        }
        let status = std::fs::read_to_string("/proc/self/status").expect("a status");
        let locked = status.lines().find_map(|line| line.strip_prefix("VmLck:")).expect("a line");
        let kilobytes: u64 = locked.trim().trim_end_matches("kB").trim().parse().expect("a number");
        assert!(kilobytes > 0, "{status}");
    }
}
