//! Files that nobody but root and ourselves can have changed.
//!
//! Model: a file is trusted when it is a regular file of root or of our effective user, writable by
//! neither group nor others, and so is every directory on the way to it, links followed one by one.
//! A sticky directory that others may write (such as `/tmp`) will do if root owns it, because they
//! can't replace what is not theirs. What passes can only be changed by root or us, so there is no
//! race between the check and the use.
//!
//! Access control lists need no extra look: a list that lets somebody write shows in the group
//! bits.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};
use talea_core::mutate;

/// What is wrong with a file or a directory above it.
#[derive(Debug)]
pub enum Problem {
    /// Neither root's nor ours.
    Owner,
    /// Writable by its group or by everybody.
    Writable,
    /// Not a regular file.
    NotAFile,
    /// Links lead in a circle.
    Circle,
    /// The kernel refused to tell.
    Os(io::Error),
}

/// A file that others could have changed, and how to mend that.
#[derive(Debug)]
pub struct Untrusted {
    /// The offending file, link or directory.
    pub path: PathBuf,
    /// Its owner.
    pub uid: u32,
    /// Its permission bits.
    pub mode: u32,
    /// What is wrong with it.
    pub problem: Problem,
    /// Whom it may belong to besides root.
    pub euid: u32,
}

/// How many links are followed; the kernel's own limit.
const LINKS_MAX: usize = 40;

/// Checks the file at `path` and every directory that leads to it.
pub fn check_trusted(path: &Path) -> Result<(), Untrusted> {
    check_trusted_for(path, rustix::process::geteuid().as_raw())
}

/// Checks the directory at `path` and every directory that leads to it.
pub fn check_trusted_directory(path: &Path) -> Result<(), Untrusted> {
    check_path(path, rustix::process::geteuid().as_raw(), Kind::Directory)
}

/// As [`check_trusted`], then opens it for reading.
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
    // Not blocking: a pipe put there by mistake must not hang the daemon.
    let file = std::fs::OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(path)
        .map_err(os)?;
    let meta = file.metadata().map_err(os)?;
    check_one(path, &meta, euid, Kind::File)?;
    Ok(file)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    File,
    Directory,
    Link,
}

fn check_trusted_for(path: &Path, euid: u32) -> Result<(), Untrusted> {
    check_path(path, euid, Kind::File)
}

fn check_path(path: &Path, euid: u32, last: Kind) -> Result<(), Untrusted> {
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
    check_one(&at, &stat(&at)?, euid, Kind::Directory)?;
    while let Some(name) = rest.pop_front() {
        if name == ".." {
            // `at` holds no links any more, so its parent is the one that the kernel means.
            at.pop();
            continue;
        }
        at.push(&name);
        let meta = stat(&at)?;
        if meta.is_symlink() {
            check_one(&at, &meta, euid, Kind::Link)?;
            links += 1;
            if links > LINKS_MAX {
                return Err(fail(&at, Problem::Circle));
            }
            let target = std::fs::read_link(&at).map_err(|error| fail(&at, Problem::Os(error)))?;
            if target.is_absolute() {
                at = PathBuf::from("/");
            } else {
                at.pop();
            }
            push_front(&mut rest, &target);
        } else {
            let kind = if rest.is_empty() { last } else { Kind::Directory };
            check_one(&at, &meta, euid, kind)?;
        }
    }
    Ok(())
}

/// One step. That it was reached through a sticky directory needs no memory: everything below must
/// be root's or ours in any case, and what is ours there nobody else can replace.
fn check_one(
    path: &Path,
    meta: &std::fs::Metadata,
    euid: u32,
    kind: Kind,
) -> Result<(), Untrusted> {
    let problem = if mutate!("trust-owner", meta.uid() != 0 && meta.uid() != euid, false) {
        Problem::Owner
    } else if kind == Kind::File && !meta.is_file() {
        Problem::NotAFile
    } else if kind == Kind::Directory && !meta.is_dir() {
        Problem::Os(io::Error::from_raw_os_error(libc::ENOTDIR))
    } else {
        let sticky = kind == Kind::Directory && meta.mode() & libc::S_ISVTX != 0 && meta.uid() == 0;
        // The bits of a link mean nothing.
        if kind == Kind::Link || sticky || mutate!("trust-writable", meta.mode() & 0o022 == 0, true)
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
            Problem::Circle => write!(f, "{path}: symbolic links lead in a circle"),
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
