//! Control groups of programs that outlive the process that starts them.
//!
//! Model: one directory of cgroup v2 per program. The directory is below a group that the service
//! manager has delegated to this process, else below the top of the hierarchy. No reaper removes
//! it: the owner knows its path after a restart.
//!
//! Reference: systemd, *Control Group APIs and Delegation*: a delegated group has the extended
//! attribute `user.delegate` or `trusted.delegate`.

use super::{mount_point, remove_children, unless_gone};
use crate::sys::is_gone;
use crate::{Tid, proc};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

/// Attributes of a delegated group.
const DELEGATED: [&str; 2] = ["user.delegate", "trusted.delegate"];

/// Returns the group below which this process may create groups.
///
/// # Errors
/// `ENOENT` if no cgroup v2 hierarchy is mounted.
pub fn base() -> io::Result<PathBuf> {
    let top = mount_point().ok_or_else(no_hierarchy)?;
    let own = of_process(Tid::of_process())?;
    let is_delegated = DELEGATED.iter().any(|name| {
        let mut value = [0_u8; 8];
        rustix::fs::getxattr(&own, *name, &mut value[..])
            .is_ok_and(|length| &value[..length] == b"1")
    });
    Ok(if is_delegated { own } else { top })
}

/// Returns the group of a process.
///
/// # Errors
/// `ENOENT` if there is no such process or no cgroup v2 hierarchy.
pub fn of_process(pid: Tid) -> io::Result<PathBuf> {
    let text = proc::read(&format!("/proc/{pid}/cgroup"))?;
    let text = String::from_utf8_lossy(&text);
    let path = text.lines().find_map(|line| line.strip_prefix("0::/")).ok_or_else(no_hierarchy)?;
    Ok(mount_point().ok_or_else(no_hierarchy)?.join(path))
}

fn no_hierarchy() -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, "no cgroup2 file system is mounted")
}

/// Control group of one program.
#[derive(Debug)]
pub struct ProgramGroup {
    path: PathBuf,
}

impl ProgramGroup {
    /// Creates the group at `path`, and the group above it if that is missing.
    ///
    /// # Errors
    /// The kernel's error; `EEXIST` if the group exists.
    pub fn create(path: &Path) -> io::Result<ProgramGroup> {
        if let Some(above) = path.parent()
            && let Err(error) = fs::create_dir(above)
            && error.kind() != io::ErrorKind::AlreadyExists
        {
            return Err(error);
        }
        fs::create_dir(path)?;
        Ok(ProgramGroup::at(path))
    }

    /// Returns the group at `path`. Creates it, and the groups above it, if they are missing.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn at_or_create(path: &Path) -> io::Result<ProgramGroup> {
        fs::create_dir_all(path)?;
        Ok(ProgramGroup::at(path))
    }

    /// Freezes the group: a process that enters it stops there.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn freeze(&self) -> io::Result<()> {
        let file = File::options().write(true).open(self.path.join("cgroup.freeze"));
        file.and_then(|mut file| io::Write::write_all(&mut file, b"1"))
    }

    /// Returns the group at `path`, which may be gone.
    pub fn at(path: &Path) -> ProgramGroup {
        ProgramGroup { path: path.to_owned() }
    }

    /// Returns the path of the group.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens the file through which processes enter the group.
    pub(crate) fn procs_file(&self) -> io::Result<File> {
        File::options().write(true).open(self.path.join("cgroup.procs"))
    }

    /// Returns the processes in the group and in the groups below it, which the program may have
    /// created. A group that is gone has none.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn processes(&self) -> io::Result<Vec<Tid>> {
        let mut all = Vec::new();
        collect(&self.path, &mut all).or_else(unless_gone)?;
        Ok(all)
    }

    /// Kills all processes in the group. A group that is gone has none.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn kill(&self) -> io::Result<()> {
        // The file is never created, so a removed group stays removed.
        let file = File::options().write(true).open(self.path.join("cgroup.kill"));
        file.and_then(|mut file| io::Write::write_all(&mut file, b"1")).or_else(unless_gone)
    }

    /// Removes the group, which must be empty, and the groups below it.
    ///
    /// # Errors
    /// `EBUSY` while the group has members.
    pub fn remove(&self) -> io::Result<()> {
        match fs::remove_dir(&self.path) {
            Ok(()) => Ok(()),
            Err(error) if is_gone(&error) => Ok(()),
            Err(_) => {
                remove_children(&self.path)?;
                fs::remove_dir(&self.path).or_else(unless_gone)
            }
        }
    }
}

fn collect(path: &Path, all: &mut Vec<Tid>) -> io::Result<()> {
    let text = fs::read_to_string(path.join("cgroup.procs"))?;
    all.extend(text.lines().filter_map(|line| line.parse().ok().and_then(Tid::new)));
    for entry in fs::read_dir(path)?.flatten() {
        if entry.file_type().is_ok_and(|of| of.is_dir()) {
            collect(&entry.path(), all).or_else(unless_gone)?;
        }
    }
    Ok(())
}
