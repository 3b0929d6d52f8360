//! Files that only root and this user can have changed.
//!
//! Model: a file is trusted if it is a regular file of root or of our effective user, writable by
//! neither group nor others, and so is every directory on its path, symbolic links followed one by
//! one. A sticky directory that others may write (such as `/tmp`) is accepted if root owns it,
//! because other users cannot replace files that are not theirs. A trusted file can only be changed
//! by root or this user, so there is no race between the check and the use.
//!
//! Access control lists need no extra check: a list that lets another user write shows in the group
//! bits.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};
use talea_core::mutate;

/// Reason why a file or a directory above it is not trusted.
#[derive(Debug)]
pub enum Problem {
    /// Owned by a user other than root and this user.
    Owner,
    /// Writable by its group or by all users.
    Writable,
    /// Not a regular file.
    NotAFile,
    /// Symbolic links form a loop.
    LinkLoop,
    /// The kernel refused to return its attributes.
    Os(io::Error),
}

/// Untrusted file, with the reason and a remedy.
#[derive(Debug)]
pub struct Untrusted {
    /// The file, link or directory that fails the check.
    pub path: PathBuf,
    /// Owner of the file, link or directory.
    pub uid: u32,
    /// Permission bits of the file, link or directory.
    pub mode: u32,
    /// Reason why the file, link or directory is not trusted.
    pub problem: Problem,
    /// User that may own it besides root.
    pub euid: u32,
}

/// Maximum number of symbolic links that a check follows: the kernel's own limit.
const LINKS_MAX: usize = 40;

/// Checks the file at `path` and every directory that leads to it.
pub fn check_trusted(path: &Path) -> Result<(), Untrusted> {
    check_trusted_for(path, rustix::process::geteuid().as_raw())
}

/// Checks the directory at `path` and every directory that leads to it.
pub fn check_trusted_directory(path: &Path) -> Result<(), Untrusted> {
    check_path(path, rustix::process::geteuid().as_raw(), FileKind::Directory)
}

/// Whether only root and user `uid` can have changed the directory at `path` and every directory
/// that leads to it.
pub(crate) fn check_trusted_directory_for(path: &Path, uid: u32) -> bool {
    check_path(path, uid, FileKind::Directory).is_ok()
}

/// Checks the file like [`check_trusted`], then opens the file for reading.
pub fn open_trusted(path: &Path) -> Result<File, Untrusted> {
    let euid = rustix::process::geteuid().as_raw();
    check_trusted_for(path, euid)?;
    let os = |error| Untrusted {
        path: path.to_owned(),
        uid: 0,
        mode: 0,
        problem: Problem::Os(error),
        euid,
    };
    // Non-blocking: a pipe put there by mistake must not block the daemon.
    let file = std::fs::OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(path)
        .map_err(os)?;
    let meta = file.metadata().map_err(os)?;
    check_one(path, &meta, euid, FileKind::File)?;
    Ok(file)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum FileKind {
    File,
    Directory,
    Link,
}

fn check_trusted_for(path: &Path, euid: u32) -> Result<(), Untrusted> {
    check_path(path, euid, FileKind::File)
}

fn check_path(path: &Path, euid: u32, last: FileKind) -> Result<(), Untrusted> {
    let fail =
        |path: &Path, problem| Untrusted { path: path.to_owned(), uid: 0, mode: 0, problem, euid };
    let absolute = std::path::absolute(path).map_err(|error| fail(path, Problem::Os(error)))?;
    let mut rest: VecDeque<OsString> = VecDeque::new();
    let push_front = |rest: &mut VecDeque<OsString>, path: &Path| {
        for part in path.components().rev() {
            match part {
                Component::Normal(name) => rest.push_front(name.to_owned()),
                Component::ParentDir => rest.push_front("..".into()),
                _ => {}
            }
        }
    };
    push_front(&mut rest, &absolute);
    let mut at = PathBuf::from("/");
    let mut links = 0;
    let stat = |at: &Path| at.symlink_metadata().map_err(|error| fail(at, Problem::Os(error)));
    check_one(&at, &stat(&at)?, euid, FileKind::Directory)?;
    while let Some(name) = rest.pop_front() {
        if name == ".." {
            // `at` contains no links any more, so its parent is the one that the kernel means.
            at.pop();
            continue;
        }
        at.push(&name);
        let meta = stat(&at)?;
        if meta.is_symlink() {
            check_one(&at, &meta, euid, FileKind::Link)?;
            links += 1;
            if links > LINKS_MAX {
                return Err(fail(&at, Problem::LinkLoop));
            }
            let target = std::fs::read_link(&at).map_err(|error| fail(&at, Problem::Os(error)))?;
            if target.is_absolute() {
                at = PathBuf::from("/");
            } else {
                at.pop();
            }
            push_front(&mut rest, &target);
        } else {
            let kind = if rest.is_empty() { last } else { FileKind::Directory };
            check_one(&at, &meta, euid, kind)?;
        }
    }
    Ok(())
}

/// Checks one step of a path. A sticky directory above it is irrelevant: everything below must
/// belong to root or this user anyway, and no other user can replace their files in a sticky
/// directory.
fn check_one(
    path: &Path,
    meta: &std::fs::Metadata,
    euid: u32,
    kind: FileKind,
) -> Result<(), Untrusted> {
    let problem = if mutate!("trust-owner", meta.uid() != 0 && meta.uid() != euid, false) {
        Problem::Owner
    } else if kind == FileKind::File && !meta.is_file() {
        Problem::NotAFile
    } else if kind == FileKind::Directory && !meta.is_dir() {
        Problem::Os(io::Error::from_raw_os_error(libc::ENOTDIR))
    } else {
        let sticky =
            kind == FileKind::Directory && meta.mode() & libc::S_ISVTX != 0 && meta.uid() == 0;
        // The permission bits of a link have no effect.
        if kind == FileKind::Link
            || sticky
            || mutate!("trust-writable", meta.mode() & 0o022 == 0, true)
        {
            return Ok(());
        }
        Problem::Writable
    };
    Err(Untrusted {
        path: path.to_owned(),
        uid: meta.uid(),
        mode: meta.mode() & 0o7777,
        problem,
        euid,
    })
}

impl fmt::Display for Untrusted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        match &self.problem {
            Problem::Owner => {
                write!(f, "{path} belongs to user {}; it must belong to root", self.uid)?;
                if self.euid != 0 {
                    write!(f, " or to user {}", self.euid)?;
                }
                write!(f, " (chown root {path})")
            }
            Problem::Writable => write!(
                f,
                "{path} has mode {:04o}, so others can change it; it must not be writable by group or others \
                 (chmod go-w {path})",
                self.mode
            ),
            Problem::NotAFile => write!(f, "{path} is not a regular file"),
            Problem::LinkLoop => write!(f, "{path}: symbolic links form a loop"),
            Problem::Os(error) => write!(f, "{path}: {error}"),
        }
    }
}

impl std::error::Error for Untrusted {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.problem {
            Problem::Os(error) => Some(error),
            _ => None,
        }
    }
}
