//! Download of Debian's kernels.

use super::apt::{self, Apt};
use crate::shell;
use anyhow::{Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;

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

/// Kernel with the cpusets of cgroup v1 and of v2. Debian's 6.12 refuses those of v1 (EINVAL).
pub(super) const WITH_BOTH_CPUSETS: Kernel = KNOWN[2];

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
        let apt = match Apt::open(&dir.join("apt"), self.suite)? {
            Ok(apt) => apt,
            Err(why) => return missing(&why),
        };
        let Some(package) = depends(&apt, self.package) else {
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

/// Returns the name of the image package on which a meta-package depends; `None` if there is none.
fn depends(apt: &Apt, package: &str) -> Option<String> {
    let answer = shell::output(apt.call("apt-cache", &["depends", package]))?;
    let words = answer.lines().filter_map(|line| line.trim().strip_prefix("Depends: "));
    words.into_iter().find(|name| name.starts_with("linux-image-")).map(str::to_owned)
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
    let unpacked = dir.join("vmlinuz.part");
    let mut tar = Command::new("tar");
    tar.args(["-xO", "--wildcards", "./boot/vmlinuz-*"]).stdout(std::fs::File::create(&unpacked)?);
    if !apt::unpack(package, &mut tar)? {
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
