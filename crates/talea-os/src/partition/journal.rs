//! Journal of the changes to cpusets, written in order, each before it is made.
//!
//! Format: a line with the boot id, then a line per step: `dir PATH`, `set PATH OLD NEW`, `enable
//! PATH`, words separated by tabs. A step whose line is incomplete was not begun. Undoing goes
//! backwards and undoes each step only as far as it was made.

use super::error::PartitionError;
use crate::clock;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use talea_core::mutate;

pub(super) struct Journal {
    file: File,
    path: PathBuf,
}

impl Journal {
    /// Creates an empty journal. Returns [`PartitionError::Exists`] if a journal exists.
    pub(super) fn create(path: &Path) -> Result<Journal, PartitionError> {
        let os = |error| PartitionError::Os { path: path.to_owned(), error };
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(
            |error| match error.kind() {
                io::ErrorKind::AlreadyExists => PartitionError::Exists { journal: path.to_owned() },
                _ => os(error),
            },
        )?;
        let mut journal = Journal { file, path: path.to_owned() };
        journal.append(&boot().map_err(os)?)?;
        Ok(journal)
    }

    pub(super) fn make_directory(&mut self, path: &Path) -> Result<(), PartitionError> {
        if path.exists() {
            // Created by another process: undoing must not remove it.
            return Err(PartitionError::Foreign { path: path.to_owned() });
        }
        self.append(&format!("dir\t{}", path.display()))?;
        fs::create_dir(path).map_err(|error| PartitionError::Os { path: path.to_owned(), error })
    }

    pub(super) fn write(&mut self, path: &Path, new: &str) -> Result<(), PartitionError> {
        let os = |error| PartitionError::Os { path: path.to_owned(), error };
        let old = fs::read_to_string(path).map_err(os)?;
        self.write_over(path, old.trim_end(), new)
    }

    /// Variant of [`Journal::write`] that records `old` as the value to restore, regardless of the
    /// current content.
    pub(super) fn write_over(
        &mut self,
        path: &Path,
        old: &str,
        new: &str,
    ) -> Result<(), PartitionError> {
        self.append(&format!("set\t{}\t{old}\t{new}", path.display()))?;
        fs::write(path, new).map_err(|error| PartitionError::Os { path: path.to_owned(), error })
    }

    pub(super) fn enable_cpuset(&mut self, path: &Path) -> Result<(), PartitionError> {
        self.append(&format!("enable\t{}", path.display()))?;
        fs::write(path, "+cpuset")
            .map_err(|error| PartitionError::Os { path: path.to_owned(), error })
    }

    /// Appends a line in one write. A killed writer leaves a whole line or an incomplete one, which
    /// a reader ignores.
    fn append(&mut self, line: &str) -> Result<(), PartitionError> {
        self.file
            .write_all(format!("{line}\n").as_bytes())
            .map_err(|error| PartitionError::Os { path: self.path.clone(), error })
    }
}

/// Reads the steps begun in this boot, in order. Returns `None` if there is no journal.
pub(super) fn read(journal: &Path) -> Result<Option<Vec<String>>, PartitionError> {
    let os = |path: &Path| {
        let path = path.to_owned();
        move |error: io::Error| PartitionError::Os { path, error }
    };
    let text = match crate::files::open_trusted(journal) {
        Ok(file) => io::read_to_string(file).map_err(os(journal))?,
        Err(untrusted) => match untrusted.problem {
            crate::files::Problem::Os(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(None);
            }
            // Its lines are paths that root writes to: no other user may have written them.
            _ => {
                return Err(os(journal)(io::Error::new(
                    io::ErrorKind::PermissionDenied,
                    untrusted,
                )));
            }
        },
    };
    let mut lines = text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n'));
    // Cgroups do not outlive a boot.
    let same_boot = lines.next() == Some(&boot().map_err(os(journal))?);
    Ok(Some(if same_boot { lines.map(str::to_owned).collect() } else { Vec::new() }))
}

pub(super) fn undo(journal: &Path) -> Result<bool, PartitionError> {
    let Some(steps) = read(journal)? else { return Ok(false) };
    for step in steps.iter().rev() {
        undo_step(step).map_err(|(path, error)| PartitionError::Os { path, error })?;
    }
    mutate!(
        "recovery-partition",
        fs::remove_file(journal)
            .map_err(|error| PartitionError::Os { path: journal.to_owned(), error })?
    );

    Ok(true)
}

/// Undoes one step. A step whose file or directory is missing counts as undone.
fn undo_step(line: &str) -> Result<(), (PathBuf, io::Error)> {
    let (verb, rest) = line.split_once('\t').unwrap_or((line, ""));
    let at = |path: &str| {
        let path = PathBuf::from(path);
        move |error: io::Error| (path, error)
    };
    match verb {
        "dir" => remove_group(Path::new(rest)).map_err(at(rest)),
        "enable" => match fs::write(rest, "-cpuset") {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(at(rest)(error)),
            _ => Ok(()),
        },
        "set" => {
            let mut words = rest.splitn(3, '\t');
            let (path, old, new) = (
                words.next().unwrap_or(""),
                words.next().unwrap_or(""),
                words.next().unwrap_or(""),
            );
            // The files of a new group are empty; they are removed with it.
            if old.is_empty() {
                return Ok(());
            }
            match fs::read_to_string(path) {
                // Another process has changed it since, or the step was never made: leave it.
                Ok(now) if now.trim_end() != new => Ok(()),
                Ok(_) => fs::write(path, old).map_err(at(path)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
                Err(error) => Err(at(path)(error)),
            }
        }
        _ => {
            Err(at(line)(io::Error::new(io::ErrorKind::InvalidData, "unknown step in the journal")))
        }
    }
}

/// Moves the threads of a group to the parent group, and removes the group.
fn remove_group(group: &Path) -> io::Result<()> {
    // A thread that forks meanwhile needs another round; more than this is a fork storm, which must
    // not block this process forever.
    const ROUNDS: usize = 100;
    let above = group.parent().unwrap_or(Path::new("/"));
    let file = if group.join("tasks").exists() { "tasks" } else { "cgroup.procs" };
    let mut last = Ok(());
    for _ in 0..ROUNDS {
        last = fs::remove_dir(group);
        match &last {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {}
            Err(_) => return last,
        }
        for thread in fs::read_to_string(group.join(file))?.lines() {
            // A thread that has ended meanwhile need not be moved.
            drop(fs::write(above.join(file), thread));
        }
    }
    last
}

fn boot() -> io::Result<String> {
    use std::fmt::Write as _;
    Ok(clock::boot_id()?.iter().fold(String::from("boot "), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    }))
}
