//! Download of Debian's kernels, with apt in folders of its own.
//!
//! Invariant: the module installs nothing, and the lists of the system do not change.

use crate::shell::{self, program};
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Kernel that `--kernel` can name.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kernel {
    name: &'static str,
    suite: &'static str,
    /// Name of the package that depends on the newest image.
    package: &'static str,
}

/// All kernels. The first kernel is the default.
pub(super) const KNOWN: [Kernel; 4] = [
    Kernel { name: "6.12-rt", suite: "bookworm-backports", package: "linux-image-rt-amd64" },
    Kernel { name: "6.12", suite: "bookworm-backports", package: "linux-image-amd64" },
    Kernel { name: "6.1-rt", suite: "bookworm", package: "linux-image-rt-amd64" },
    Kernel { name: "6.1", suite: "bookworm", package: "linux-image-amd64" },
];

const KEYS: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

impl Kernel {
    pub(super) fn named(name: &str) -> Result<Kernel> {
        if let Some(kernel) = KNOWN.into_iter().find(|kernel| kernel.name == name) {
            return Ok(kernel);
        }
        let known: Vec<_> = KNOWN.iter().map(|kernel| kernel.name).collect();
        bail!("no kernel {name:?}; there are: {}", known.join(", "))
    }

    /// Downloads the image to a folder below `dir`, unless the folder has the image, and returns
    /// the image's path. The inner error is the reason why this machine cannot get the image.
    pub(super) fn fetch(self, dir: &Path) -> Result<Result<PathBuf, String>> {
        let dir = dir.join(self.name);
        let image = dir.join("vmlinuz");
        if image.is_file() {
            return Ok(Ok(image));
        }
        let missing =
            |why: &str| Ok(Err(format!("kernel {} is not available here: {why}", self.name)));
        if !["apt-get", "apt-cache", "dpkg-deb", "tar"].into_iter().all(shell::has)
            || !Path::new(KEYS).is_file()
        {
            return missing("this is no Debian with apt and its keys");
        }
        let Some(mirror) = mirror() else { return missing("apt knows no mirror") };
        let apt = Apt::at(&dir, &mirror, self.suite)?;
        if !shell::stream(apt.call("apt-get", &["update"]), |_| ())? {
            return missing(&format!("the lists of {} could not be downloaded", self.suite));
        }
        let Some(package) = apt.depends(self.package) else {
            return missing(&format!("{} has no {}", self.suite, self.package));
        };
        let mut download = apt.call("apt-get", &["download", &package]);
        download.current_dir(&dir);
        if !shell::stream(download, |_| ())? {
            return missing(&format!("{package} could not be downloaded"));
        }
        let unpacked = unpack(&dir, &image);
        apt.remove()?;
        unpacked.map(|()| Ok(image))
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

/// Instance of apt with its own lists, cache and sources.
struct Apt {
    dir: PathBuf,
}

impl Apt {
    fn at(dir: &Path, mirror: &str, suite: &str) -> Result<Apt> {
        let dir = dir.join("apt");
        for folder in ["lists/partial", "cache/archives/partial"] {
            std::fs::create_dir_all(dir.join(folder))?;
        }
        let source = format!("deb [signed-by={KEYS}] {mirror} {suite} main\n");
        std::fs::write(dir.join("sources.list"), source)?;
        Ok(Apt { dir })
    }

    fn call(&self, name: &str, args: &[&str]) -> Command {
        let dir = self.dir.display();
        let mut command =
            program(name, &["-q", "-o", "Dir::Etc::sourceparts=-", "-o", "APT::Sandbox::User="]);
        command.arg("-o").arg(format!("Dir::Etc::sourcelist={dir}/sources.list"));
        command.arg("-o").arg(format!("Dir::State::Lists={dir}/lists"));
        command.arg("-o").arg(format!("Dir::Cache={dir}/cache"));
        command.args(args);
        command
    }

    /// Returns the name of the image package on which a meta-package depends; `None` if there is
    /// none.
    fn depends(&self, package: &str) -> Option<String> {
        let answer = shell::output(self.call("apt-cache", &["depends", package]))?;
        let words = answer.lines().filter_map(|line| line.trim().strip_prefix("Depends: "));
        words.into_iter().find(|name| name.starts_with("linux-image-")).map(str::to_owned)
    }

    /// Removes the lists and the cache, because they take a hundred megabytes.
    fn remove(self) -> Result<()> {
        Ok(std::fs::remove_dir_all(&self.dir)?)
    }
}

/// Extracts the image from the only package in `dir`, and removes the package.
fn unpack(dir: &Path, image: &Path) -> Result<()> {
    let mut packages = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        if path.extension().is_some_and(|end| end == "deb") {
            packages.push(path);
        }
    }
    let [package] = &packages[..] else { bail!("one package was expected in {}", dir.display()) };
    let mut contents = Command::new("dpkg-deb");
    let mut contents =
        contents.arg("--fsys-tarfile").arg(package).stdout(Stdio::piped()).spawn()?;
    let unpacked = dir.join("vmlinuz.part");
    let mut tar = Command::new("tar");
    tar.args(["-xO", "--wildcards", "./boot/vmlinuz-*"]).stdout(std::fs::File::create(&unpacked)?);
    let status = tar.stdin(contents.stdout.take().context("a pipe")?).status()?;
    contents.wait()?;
    if !status.success() {
        bail!("{} has no kernel image", package.display());
    }
    std::fs::remove_file(package)?;
    // Atomic, because a later run uses any image that is there.
    Ok(std::fs::rename(unpacked, image)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_kernel_is_refused_with_the_names_of_the_known_ones() {
        assert_eq!(Kernel::named("6.1-rt").expect("known").suite, "bookworm");
        let error = Kernel::named("2.4").expect_err("unknown").to_string();
        assert!(error.contains("2.4") && error.contains("6.12-rt"), "{error}");
    }
}
