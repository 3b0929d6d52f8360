//! Changes of the membership of a cgroup.
//!
//! The kernel reports a change of `cgroup.events` to `poll(2)` as POLLPRI, at most once every 10 ms
//! for one cgroup. It counts the changes for each open file, and a read of the file takes note of
//! them. So each listener needs an open file of its own, and reads it before it waits.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Descriptor with POLLPRI after a change of the membership, until the next read.
#[derive(Debug)]
pub struct CgroupChanges(File);

impl CgroupChanges {
    pub(super) fn open(path: &Path) -> io::Result<CgroupChanges> {
        File::open(path.join("cgroup.events")).map(CgroupChanges)
    }

    /// Whether the cgroup has members. Later changes are reported.
    pub fn is_populated(&self) -> io::Result<bool> {
        has_line(&self.0, "populated 1")
    }
}

impl AsFd for CgroupChanges {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Whether a short file has this line.
pub(super) fn has_line(file: &File, line: &str) -> io::Result<bool> {
    let mut text = [0; 128];
    let len = file.read_at(&mut text, 0)?;
    Ok(text[..len].split(|&byte| byte == b'\n').any(|found| found == line.as_bytes()))
}
