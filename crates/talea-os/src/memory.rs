//! Pages that are there when they are needed.

use rustix::mm::{MlockAllFlags, mlockall};
use std::io;

/// Fetches every page that the process has mapped, stacks of its threads included, and keeps them
/// in memory until it ends. What it maps later is not meant: where there is a limit, mapping itself
/// would fail then.
///
/// `ENOMEM`: beyond `RLIMIT_MEMLOCK`; `EPERM`: that is 0. Then nothing is kept that was not before,
/// or only a part.
pub fn lock() -> io::Result<()> {
    Ok(mlockall(MlockAllFlags::CURRENT)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_locked_counts_as_locked() {
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
