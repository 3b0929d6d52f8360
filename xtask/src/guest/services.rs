//! Guest with systemd as process 1 and cgroup v2, for tests of the installed files.
//!
//! Model: [`userland`] has Debian's files. `cargo xtask install` installs Talea below a folder, and
//! its programs, units and configuration come from there. A unit runs the test program, which
//! prints to the serial port. The guest has two CPUs and the clock of the host, so that its tests
//! judge no measured time.
//!
//! A scenario is a file of `tests/guest/tests/services` and its line in `main.rs`.

use super::{Built, archive, build, userland};
use crate::test::Verdict;
use crate::{package, shell};
use anyhow::Result;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Name of the test program.
const TESTS: &str = "services";
/// Words on the kernel's command line.
pub(super) const KERNEL_WORDS: &str =
    "systemd.unit=talea-guest.service systemd.show_status=false systemd.log_target=journal";
/// Installed files and folders that the guest has.
pub(super) const INSTALLED: [&str; 10] = [
    "etc",
    "usr/bin",
    "usr/sbin",
    "usr/libexec/talea/talea-governor",
    "usr/libexec/talea/talea-plugin-host",
    "usr/libexec/talea/talea-rtkit",
    "usr/lib/systemd",
    "usr/lib/sysusers.d",
    "usr/lib/talea",
    "usr/share/dbus-1",
];
/// Programs among them.
pub(super) const PROGRAMS: [&str; 6] = [
    "usr/bin/talea",
    "usr/sbin/talead",
    "usr/sbin/talea-deployd",
    "usr/libexec/talea/talea-governor",
    "usr/libexec/talea/talea-plugin-host",
    "usr/libexec/talea/talea-rtkit",
];
/// Other files of the guest: their paths and their text.
pub(super) const FILES: [(&str, &str); 2] = [
    (
        "etc/systemd/system/talea-guest.service",
        "[Unit]\nDescription=Tests of Talea\nFailureAction=poweroff-immediate\n\
         [Service]\nType=oneshot\nExecStart=/init\nTimeoutStartSec=8min\n",
    ),
    // The package's script makes this user, and no script runs.
    ("etc/sysusers.d/dbus.conf", "u messagebus - \"System bus\" /run/dbus\n"),
];

/// Plugins from outside that the guest has: their names and their sources.
const PLUGINS: [(&str, &str); 3] = [
    ("hostile", "crates/talea-plugin-host/tests/plugins/hostile.c"),
    ("least_loaded", "examples/plugin-least-loaded/least_loaded.c"),
    ("misbehave", "tests/kernel/plugins/misbehave.c"),
];

/// Result of the preparations: the archive, or a verdict without a guest.
pub(super) enum Prepared {
    Archive(PathBuf),
    Missing(String),
    Failed(Verdict),
}

/// Builds and packs everything that the guest needs.
pub(super) fn prepare(dir: &Path, line: &mut dyn FnMut(&str)) -> Result<Prepared> {
    let userland = match userland::fetch(dir)? {
        Ok(archive) => archive,
        Err(why) => return Ok(Prepared::Missing(why)),
    };
    let Some(built) = build(TESTS, "dev", line)? else {
        let why = "the guest's tests did not build".to_owned();
        return Ok(Prepared::Failed(Verdict::Failed(why)));
    };
    let Some(installed) = install(dir, line)? else {
        let why = "the installation for the guest failed".to_owned();
        return Ok(Prepared::Failed(Verdict::Failed(why)));
    };
    let Built { init, tests } = &built;
    let archive = archive::pack_services(&userland, &installed, init, tests, dir)?;
    Ok(Prepared::Archive(archive))
}

/// Installs the tree below a folder, in the profile that the other tests have built already.
/// Returns the folder; `None` after the output of a command that fails.
fn install(dir: &Path, line: &mut dyn FnMut(&str)) -> Result<Option<PathBuf>> {
    let to = dir.join("installed");
    if to.exists() {
        std::fs::remove_dir_all(&to)?;
    }
    // Not the path of this program: the test command builds it anew meanwhile.
    let mut install = Command::new("/proc/self/exe");
    install.args(["install", "--prefix", "/usr", "--profile", "dev", "--destdir"]).arg(&to);
    if !shell::stream(install, &mut *line)? {
        return Ok(None);
    }
    let plugins = to.join("usr/lib/talea/plugins");
    std::fs::create_dir_all(&plugins)?;
    for (name, source) in PLUGINS {
        let mut cc = shell::program("cc", &["-std=gnu11", "-O1", "-shared", "-fPIC", "-o"]);
        cc.arg(plugins.join(format!("{name}.so"))).arg(source);
        cc.args(["-Icrates/talea-plugin-host/include", "-DPACKED"]);
        if !shell::stream(cc, &mut *line)? {
            return Ok(None);
        }
    }
    if shell::has("dpkg-shlibdeps") {
        let package = package::daemon(&to, &dir.join("packages"))?;
        std::fs::rename(package, to.join("usr/lib/talea/talead.deb"))?;
    }
    Ok(Some(to))
}
