//! A directory that an unprivileged user can read, with everything in it, and that is gone
//! afterwards.
//!
//! A clone may lie in a directory that only its owner can read; the copies on stage can be run by
//! any user. The user id is unused: outside of the ranges that distributions assign to persons,
//! and to services at run time.

use super::workshop::Programs;
use anyhow::Context;
use std::fs::{self, Permissions};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The unprivileged user and group: systemd leaves this range unused (its `UIDS-GIDS` document).
pub(super) const DEMO_USER: u32 = 60_999;

/// Directory that exists as long as the demonstration.
pub(super) struct Stage {
    dir: PathBuf,
    /// User id of the programs; `None`: the caller's.
    user: Option<u32>,
}

impl Stage {
    /// Copies everything; with `user`, for that user to run.
    pub(super) fn build(programs: &Programs, user: Option<u32>) -> anyhow::Result<Stage> {
        let dir = std::env::temp_dir().join(format!("talea-demo-{}", std::process::id()));
        fs::DirBuilder::new()
            .mode(0o755)
            .create(&dir)
            .with_context(|| format!("cannot create {}", dir.display()))?;
        let stage = Stage { dir, user };
        // The mode above is what the umask left of it.
        fs::set_permissions(&stage.dir, Permissions::from_mode(0o755))?;
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
            let to = stage.dir.join(name);
            fs::copy(from, &to).with_context(|| format!("cannot copy {}", from.display()))?;
            fs::set_permissions(&to, Permissions::from_mode(0o755))?;
        }
        for (name, owner) in [("run", None), ("out", user)] {
            let dir = stage.dir.join(name);
            fs::create_dir(&dir)?;
            fs::set_permissions(&dir, Permissions::from_mode(0o755))?;
            if let Some(owner) = owner {
                chown(&dir, Some(owner), Some(owner))?;
            }
        }
        Ok(stage)
    }

    /// A file or directory on stage.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// A program on stage, as the stage's user, in an environment that says nothing about the
    /// caller.
    pub(super) fn command(&self, name: &str) -> Command {
        let mut command = Command::new(self.path(name));
        command.env_clear().env("PATH", "/usr/bin:/bin").current_dir("/");
        if let Some(user) = self.user {
            command.uid(user).gid(user);
        }
        command
    }

    /// The stage's directory.
    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.dir) {
            crate::output::note(&format!("{} could not be removed: {error}", self.dir.display()));
        }
    }
}
