//! Programs outside Rust's tools that the tests call. The step checks the programs, and installs
//! missing programs if permitted.
//!
//! As root, the step installs Debian packages if `TALEA_INSTALL` is 1. Without `TALEA_INSTALL`, the
//! step does so if `CI` is set. Otherwise the step fails, and prints the command that installs the
//! packages.

use super::Verdict;
use crate::shell;
use anyhow::Result;

/// Program with the Debian packages that provide it.
type Needed = (&'static str, &'static str);

/// Programs without which cargo can build or test nothing.
const REQUIRED: [Needed; 3] =
    [("cc", "gcc libc6-dev"), ("c++", "g++"), ("pkg-config", "pkg-config")];

/// Programs without which some tests skip themselves and the step `guest` is skipped.
const OPTIONAL: [Needed; 18] = [
    ("chromium", "chromium"),
    ("node", "nodejs"),
    ("protoc", "protobuf-compiler"),
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("cpio", "cpio"),
    ("dpkg-shlibdeps", "dpkg-dev"),
    ("lintian", "lintian"),
    ("systemd-sysusers", "systemd-standalone-sysusers"),
    ("cyclictest", "rt-tests"),
    ("stress-ng", "stress-ng"),
    ("jackd", "jackd2"),
    ("dbus-daemon", "dbus"),
    ("pipewire", "pipewire"),
    ("pw-profiler", "pipewire-bin"),
    ("wireplumber", "wireplumber"),
    ("/usr/libexec/xdg-desktop-portal", "xdg-desktop-portal"),
    ("promtool", "prometheus"),
    ("/usr/lib/python3/dist-packages/prometheus_client/__init__.py", "python3-prometheus-client"),
];

/// Whether the command may install tools and packages.
pub(super) fn may_install() -> bool {
    let is_ci = || std::env::var_os("CI").is_some();
    std::env::var_os("TALEA_INSTALL").map_or_else(is_ci, |value| value == "1")
}

/// Checks the required programs. If permitted, the step also checks the optional programs, and
/// installs missing programs.
pub(super) fn packages(line: &mut dyn FnMut(&str)) -> Result<Verdict> {
    let optional = if may_install() { &OPTIONAL[..] } else { &[] };
    Ok(match ensure_packages(&[&REQUIRED, optional].concat(), line)? {
        None => Verdict::Passed,
        Some(command) => Verdict::Failed(format!(
            "programs are missing on this machine; install with: {command}"
        )),
    })
}

/// Installs the packages of missing programs if permitted. Returns the command that installs the
/// packages if any program is still missing.
pub(crate) fn ensure_packages(
    needed: &[Needed],
    line: &mut dyn FnMut(&str),
) -> Result<Option<String>> {
    let missing = || needed.iter().filter(|(program, _)| !shell::has(program));
    let packages: Vec<_> = missing().flat_map(|(_, packages)| packages.split(' ')).collect();
    if packages.is_empty() {
        return Ok(None);
    }
    let command = format!("apt-get install -y --no-install-recommends {}", packages.join(" "));
    if may_install() && rustix::process::geteuid().is_root() && shell::has("apt-get") {
        line(&command);
        // Lists that are old name packages that the mirror no longer has.
        shell::stream(shell::program("apt-get", &["update"]), |_| ())?;
        let mut install = shell::program("apt-get", &["install", "-y", "--no-install-recommends"]);
        // In run level 1 a package starts no service.
        install.args(&packages).env("DEBIAN_FRONTEND", "noninteractive").env("RUNLEVEL", "1");
        shell::stream(install, line)?;
        if missing().next().is_none() {
            return Ok(None);
        }
    }
    Ok(Some(command))
}
