//! Exclusive locks of files, also those that a killed process still holds.
//!
//! A lock of `flock` ends with the last descriptor of the open file. A killed process keeps its
//! descriptors while one of its threads is in a system call that no signal interrupts: for example,
//! it closes a file that a client has sent, whose FUSE file system does not answer. No code of such
//! a process is executed any more, so its lock protects nothing, and a locked copy replaces the
//! file.
//!
//! | state of the lock | [`lock`] |
//! | --- | --- |
//! | free | [`Lock::Taken`] |
//! | held by a process that has not ended, or is not visible in `/proc` | [`Lock::Held`] |
//! | held by a process whose main thread has ended | [`Lock::Replaced`] |
//!
//! Replacements exclude each other by the lock of the copy, whose name is that of the file with
//! `.new` appended, and a process replaces only the file that it has found locked.
//!
//! A lock file must not be readable for other users: who can open a file can lock it.

use crate::bounded_read::read_text_bounded;
use crate::{Tid, proc};
use rustix::fs::{FlockOperation, flock, major, minor};
use rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::io::{self, Seek};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};
use talea_core::mutate;

/// Bound on the size of `/proc/locks`.
const MAX_LIST: usize = 16 << 20;

/// Result of [`lock`].
#[derive(Debug)]
pub enum Lock {
    /// The file, locked.
    Taken(File),
    /// A locked copy, which has replaced the file of a killed process.
    Replaced(File),
    /// The file, which another process has locked.
    Held(File),
}

impl Lock {
    /// Returns the locked file, if this process has the lock.
    pub fn taken(self) -> Option<File> {
        match self {
            Lock::Taken(file) | Lock::Replaced(file) => Some(file),
            Lock::Held(_) => None,
        }
    }
}

/// Opens the file at `path`, which other users cannot open, or creates it. Follows no symbolic link
/// and waits for no other end of a FIFO, so the caller can check what it has opened.
///
/// # Errors
/// The kernel's error.
pub fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(path)
}

/// Locks `file`, which the caller has opened at `path`. A copy is read and written from its start.
///
/// # Errors
/// The kernel's error.
pub fn lock(path: &Path, file: File) -> io::Result<Lock> {
    if try_lock(&file)? {
        return Ok(Lock::Taken(file));
    }
    let is_orphaned = mutate!("os-orphaned-lock", holder_has_ended(&file)?, false);
    let copy = if is_orphaned { replace(path, &file)? } else { None };
    Ok(copy.map_or(Lock::Held(file), Lock::Replaced))
}

/// Locks `file` if it is free. Returns whether it was.
///
/// # Errors
/// The kernel's error.
pub fn try_lock(file: &File) -> io::Result<bool> {
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Whether the process that holds the lock has ended. Its number is not reused before the last of
/// its threads has ended, and the lock with it.
fn holder_has_ended(file: &File) -> io::Result<bool> {
    Ok(holder(file)?.is_some_and(|pid| proc::stat(pid).is_ok_and(|stat| stat.has_ended())))
}

/// Returns the process that holds the lock of `file`, if it is visible in `/proc`.
///
/// # Errors
/// If `/proc/locks` cannot be read.
pub fn holder(file: &File) -> io::Result<Option<Tid>> {
    let meta = file.metadata()?;
    let (major, minor) = (major(meta.dev()), minor(meta.dev()));
    let place = format!("{major:02x}:{minor:02x}:{}", meta.ino());
    let list = read_text_bounded(Path::new("/proc/locks"), MAX_LIST)?;
    Ok(holder_in(&list, &place))
}

/// Returns the process that holds the lock of the file with this device and number, in the list of
/// the kernel.
fn holder_in(list: &str, place: &str) -> Option<Tid> {
    list.lines().find_map(|line| {
        let mut words = line.split_ascii_whitespace().skip(1);
        let is_lock = words.next() == Some("FLOCK");
        let [_, _, pid, of] = [(); 4].map(|()| words.next());
        (is_lock && of == Some(place)).then(|| Tid::new(pid?.parse().ok()?))?
    })
}

/// Replaces the file at `path`, if it is still `old`, by a locked copy. Returns the copy.
fn replace(path: &Path, old: &File) -> io::Result<Option<File>> {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    let name = PathBuf::from(name);
    let mut copy = open(&name)?;
    if !try_lock(&copy)? || !is_at(&copy, &name)? || !is_at(old, path)? {
        return Ok(None);
    }
    let meta = old.metadata()?;
    copy.set_len(0)?;
    fchown(&copy, Some(meta.uid()), Some(meta.gid()))?;
    copy.set_permissions(meta.permissions())?;
    io::copy(&mut &*old, &mut copy)?;
    copy.rewind()?;
    std::fs::rename(&name, path)?;
    Ok(Some(copy))
}

/// Whether the open file is the one at `path`.
fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let (own, found) = (file.metadata()?, path.symlink_metadata()?);
    Ok((own.dev(), own.ino()) == (found.dev(), found.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_of_a_lock_is_in_the_kernels_list() {
        let list = "1: POSIX  ADVISORY  WRITE 71 00:1a:400 0 EOF\n\
                    2: FLOCK  ADVISORY  WRITE 72 00:1a:400 0 EOF\n\
                    2: -> FLOCK  ADVISORY  WRITE 73 00:1a:400 0 EOF\n\
                    3: FLOCK  ADVISORY  WRITE 0 00:1a:401 0 EOF\n";
        assert_eq!(holder_in(list, "00:1a:400"), Tid::new(72));
        assert_eq!(holder_in(list, "00:1a:401"), None, "it is in another namespace");
        assert_eq!(holder_in(list, "00:1a:40"), None);
    }

    #[test]
    fn a_lock_of_a_living_process_stays() {
        let directory = std::env::temp_dir();
        let path = directory.join(format!("talea-file-lock-{}", std::process::id()));
        let held = lock(&path, open(&path).expect("a file")).expect("a lock").taken();
        let again = lock(&path, open(&path).expect("a file")).expect("an answer");
        assert!(matches!(again, Lock::Held(_)), "{again:?}");
        let held = held.expect("it was free");
        assert!(is_at(&held, &path).expect("a file"), "it was not replaced");
        drop(held);
        let again = lock(&path, open(&path).expect("a file")).expect("an answer");
        assert!(matches!(again, Lock::Taken(_)), "{again:?}");
        std::fs::remove_file(&path).expect("our file");
    }
}
