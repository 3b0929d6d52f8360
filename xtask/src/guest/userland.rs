//! User space of the guest with systemd: the files of Debian's packages, without their scripts.
//!
//! dpkg is among them, and knows these packages as installed. Every user comes from
//! `systemd-sysusers` in the guest. The archive of the files is kept until this file changes, which
//! is the recipe.

use super::apt::{Apt, unpack};
use super::archive;
use crate::shell::{self, program};
use anyhow::{Context, Result, bail};
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Suite of the packages. Its systemd is the oldest on which the units are tested.
const SUITE: &str = "bookworm";
/// Packages, besides those on which they depend.
const PACKAGES: [&str; 8] = [
    "coreutils",
    "dash",
    "dbus",
    "dpkg",
    "init-system-helpers",
    "perl-base",
    "systemd",
    "usr-is-merged",
];
/// Folders that are links on a system with a merged `/usr`.
const MERGED: [&str; 4] = ["bin", "lib", "lib64", "sbin"];
/// Folders that no package of the guest has.
const FOLDERS: [&str; 8] = ["dev", "proc", "root", "run", "sys", "sysroot", "tmp", "var/tmp"];
/// Folders that no test reads.
const EXCLUDED: [&str; 3] = ["./usr/share/doc", "./usr/share/locale", "./usr/share/man"];

/// Returns the archive of the files, which is a folder below `dir` if an earlier run has made it.
/// The inner error is the reason why this machine cannot make it.
pub(super) fn fetch(dir: &Path) -> Result<Result<PathBuf, String>> {
    let mut recipe = DefaultHasher::new();
    include_str!("userland.rs").hash(&mut recipe);
    let archive = dir.join(format!("userland-{:016x}.cpio", recipe.finish()));
    if archive.is_file() {
        return Ok(Ok(archive));
    }
    let work = dir.join("userland");
    if work.exists() {
        fs::remove_dir_all(&work)?;
    }
    let missing = |why: &str| Ok(Err(format!("no user space for the guest: {why}")));
    let apt = match Apt::open(&work.join("apt"), SUITE)? {
        Ok(apt) => apt,
        Err(why) => return missing(&why),
    };
    let Some(packages) = apt.download(&PACKAGES)? else {
        return missing(&format!("{PACKAGES:?} could not be downloaded"));
    };
    let root = work.join("root");
    for name in MERGED {
        fs::create_dir_all(root.join("usr").join(name))?;
        symlink(format!("usr/{name}"), root.join(name))?;
    }
    for name in FOLDERS {
        fs::create_dir_all(root.join(name))?;
    }
    let mut status = String::new();
    for package in packages {
        let fields = shell::output(program("dpkg-deb", &["-f", &package.to_string_lossy()]));
        status.push_str(fields.context("dpkg-deb")?.trim_end());
        status.push_str("\nStatus: install ok installed\n\n");
        let mut tar = Command::new("tar");
        tar.args(["--extract", "--keep-directory-symlink"]).arg("--directory").arg(&root);
        tar.args(EXCLUDED.iter().map(|folder| format!("--exclude={folder}")));
        if !unpack(&package, &mut tar)? {
            bail!("{} could not be unpacked", package.display());
        }
    }
    fs::write(root.join("var/lib/dpkg/status"), status)?;
    // Without an id this boot is the first one, which enables every unit.
    fs::write(root.join("etc/machine-id"), "0123456789abcdef0123456789abcdef\n")?;
    let part = archive.with_extension("part");
    archive::write(&root, fs::File::create(&part)?)?;
    fs::remove_dir_all(&work)?;
    // Atomic, because a later run uses any archive that is there.
    fs::rename(part, &archive)?;
    Ok(Ok(archive))
}
