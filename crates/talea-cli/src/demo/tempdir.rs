//! Temporary directory with all programs that an unprivileged user can read. Dropping the value
//! removes the directory.
//!
//! A clone may be in a directory that only its owner can read; any user can run the copies. The
//! user ID is unused: it is outside of the ranges that distributions assign to persons, and to
//! services at run time.

use super::build::Programs;
use anyhow::Context;
use std::fs::{self, Permissions};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// User and group of the programs. systemd does not use this range (its document `UIDS-GIDS`).
pub(super) const DEMO_USER: u32 = 60_999;

/// Temporary directory of the demonstration.
pub(super) struct TempDir {
    dir: PathBuf,
    /// User id of the programs; `None` stands for the caller's.
    user: Option<u32>,
}

impl TempDir {
    /// Creates the directory and copies all programs to it. `user` runs the programs.
    pub(super) fn build(programs: &Programs, user: Option<u32>) -> anyhow::Result<TempDir> {
        let dir = std::env::temp_dir().join(format!("talea-demo-{}", std::process::id()));
        fs::DirBuilder::new()
            .mode(0o755)
            .create(&dir)
            .with_context(|| format!("cannot create {}", dir.display()))?;
        let tempdir = TempDir { dir, user };
        // The umask has reduced the mode above.
        fs::set_permissions(&tempdir.dir, Permissions::from_mode(0o755))?;
        for (from, name) in [
            (&programs.talea, "talea"),
            (&programs.talead, "talead"),
            (&programs.plain, "convolver"),
            (&programs.declaring, "convolver-talea"),
            (&programs.load, "load"),
            (&programs.library, "libtalea.so.0"),
            (&programs.library, "libtalea.so"),
            (&programs.voice, "talea.wav"),
        ] {
            let to = tempdir.dir.join(name);
            fs::copy(from, &to).with_context(|| format!("cannot copy {}", from.display()))?;
            fs::set_permissions(&to, Permissions::from_mode(0o755))?;
        }
        for (name, owner) in [("run", None), ("out", user)] {
            let dir = tempdir.dir.join(name);
            fs::create_dir(&dir)?;
            fs::set_permissions(&dir, Permissions::from_mode(0o755))?;
            if let Some(owner) = owner {
                chown(&dir, Some(owner), Some(owner))?;
            }
        }
        Ok(tempdir)
    }

    /// Returns the path of a file or directory below the temporary directory.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Returns the command that runs a program of the directory as the programs' user, with a
    /// minimal environment.
    pub(super) fn command(&self, name: &str) -> Command {
        let mut command = Command::new(self.path(name));
        command.env_clear().env("PATH", "/usr/bin:/bin").current_dir("/");
        if let Some(user) = self.user {
            command.uid(user).gid(user);
        }
        command
    }

    /// Returns the path of the directory.
    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.dir) {
            talea_study::output::note(&format!(
                "{} could not be removed: {error}",
                self.dir.display()
            ));
        }
    }
}
