//! Instance of apt with its own lists, cache and package state.
//!
//! Invariant: the module installs nothing, and the lists of the system do not change.

use crate::shell::{self, program};
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const KEYS: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// Instance of apt that knows the packages of one suite.
pub(super) struct Apt {
    dir: PathBuf,
}

impl Apt {
    /// Downloads the lists of `suite` to `dir`. The inner error is the reason why this machine
    /// cannot get packages.
    pub(super) fn open(dir: &Path, suite: &str) -> Result<Result<Apt, String>> {
        if !["apt-get", "apt-cache", "dpkg-deb", "tar"].into_iter().all(shell::has)
            || !Path::new(KEYS).is_file()
        {
            return Ok(Err("this is no Debian with apt and its keys".to_owned()));
        }
        let Some(mirror) = mirror() else { return Ok(Err("apt knows no mirror".to_owned())) };
        for folder in ["lists/partial", "cache/archives/partial"] {
            fs::create_dir_all(dir.join(folder))?;
        }
        let source = format!("deb [signed-by={KEYS}] {mirror} {suite} main\n");
        fs::write(dir.join("sources.list"), source)?;
        // No package counts as installed.
        fs::write(dir.join("status"), "")?;
        let apt = Apt { dir: dir.to_owned() };
        Ok(if shell::stream(apt.call("apt-get", &["update"]), |_| ())? {
            Ok(apt)
        } else {
            Err(format!("the lists of {suite} could not be downloaded"))
        })
    }

    pub(super) fn call(&self, name: &str, args: &[&str]) -> Command {
        let dir = self.dir.display();
        let mut command = program(name, &["-q", "-o", "Dir::Etc::sourceparts=-"]);
        for option in [
            "APT::Sandbox::User=".to_owned(),
            "Debug::NoLocking=1".to_owned(),
            format!("Dir::Etc::sourcelist={dir}/sources.list"),
            format!("Dir::State::Lists={dir}/lists"),
            format!("Dir::State::status={dir}/status"),
            format!("Dir::Cache={dir}/cache"),
        ] {
            command.arg("-o").arg(option);
        }
        command.args(args);
        command
    }

    /// Downloads packages with everything on which they depend. Returns the files; `None` if a
    /// download fails.
    pub(super) fn download(&self, packages: &[&str]) -> Result<Option<Vec<PathBuf>>> {
        let arguments = ["install", "--yes", "--download-only", "--no-install-recommends"];
        if !shell::stream(self.call("apt-get", &[&arguments, packages].concat()), |_| ())? {
            return Ok(None);
        }
        let mut files = Vec::new();
        for entry in fs::read_dir(self.dir.join("cache/archives"))? {
            files.push(entry?.path());
        }
        files.retain(|path| path.extension().is_some_and(|end| end == "deb"));
        files.sort();
        Ok(Some(files))
    }

    /// Removes the lists and the cache, because they take a hundred megabytes.
    pub(super) fn remove(self) -> Result<()> {
        Ok(fs::remove_dir_all(&self.dir)?)
    }
}

/// Returns the mirror from which this machine installs packages; `None` if apt names no mirror.
fn mirror() -> Option<String> {
    let mut ask =
        program("apt-get", &["indextargets", "--format", "$(REPO_URI)", "Created-By: Packages"]);
    ask.stderr(Stdio::null());
    // A mirror of security updates alone has no backports.
    shell::output(ask)?.lines().find(|line| !line.contains("security")).map(str::to_owned)
}

/// Passes the files of a package to a call of `tar`. Returns whether `tar` succeeds.
pub(super) fn unpack(package: &Path, tar: &mut Command) -> Result<bool> {
    let mut contents = Command::new("dpkg-deb");
    let mut contents =
        contents.arg("--fsys-tarfile").arg(package).stdout(Stdio::piped()).spawn()?;
    let status = tar.stdin(contents.stdout.take().context("a pipe")?).status()?;
    contents.wait()?;
    Ok(status.success())
}
