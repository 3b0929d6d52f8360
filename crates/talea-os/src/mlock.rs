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

/// Locks every page in memory from its first use on, present and future mappings, until the process
/// ends. Unused pages, such as those of stacks, cost no memory.
///
/// `EPERM` or `ENOMEM`: as for [`lock`], but the limit counts unused pages, too. Under a limit,
/// later mappings and a growing stack would fail, so the caller must have none.
pub fn lock_used() -> io::Result<()> {
    Ok(mlockall(MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn locked_kilobytes() -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").expect("a status");
        let locked = status.lines().find_map(|line| line.strip_prefix("VmLck:")).expect("a line");
        locked.trim().trim_end_matches("kB").trim().parse().expect("a number")
    }

    #[test]
    fn used_pages_of_later_mappings_are_locked() {
        const CHILD: &str = "TALEA_TEST_LOCKS_USED_PAGES";
        if std::env::var_os(CHILD).is_none() {
            // In a process of its own: the lock concerns all threads.
            let name = "mlock::tests::used_pages_of_later_mappings_are_locked";
            let mut child = std::process::Command::new(std::env::current_exe().expect("a path"));
            let status = child.args(["--exact", name]).env(CHILD, "1").status().expect("a child");
            assert!(status.success(), "{status}");
            return;
        }
        if let Err(error) = lock_used() {
            assert!(!rustix::process::geteuid().is_root(), "root may lock its memory: {error}");
            eprintln!("skipped: an ordinary user's RLIMIT_MEMLOCK is below what this program has");
            return;
        }
        let before = locked_kilobytes();
        let later = vec![1_u8; 64 << 20];
        assert!(locked_kilobytes() >= before + (64 << 10), "{before}");
        drop(later);
    }

    #[test]
    fn locked_pages_count_in_vm_lck() {
        if let Err(error) = lock() {
            assert!(!rustix::process::geteuid().is_root(), "root may lock its memory: {error}");
            eprintln!("skipped: an ordinary user's RLIMIT_MEMLOCK is below what this program has");
            return;
        }
        assert!(locked_kilobytes() > 0);
    }
}
