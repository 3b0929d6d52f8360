//! What the machine must have besides Rust: named, and installed where that is allowed.
//!
//! Installing is allowed to root when `TALEA_INSTALL=1` or `CI` is set; elsewhere the gate only
//! says what to install. Nothing else of the machine is touched.

use super::Verdict;
use crate::shell;
use anyhow::Result;

/// Program and the Debian package that has it.
const PACKAGES: [(&str, &str); 3] =
    [("cc", "gcc libc6-dev"), ("c++", "g++"), ("pkg-config", "pkg-config")];

/// Whether tools and packages may be installed.
pub(crate) fn may_install() -> bool {
    std::env::var_os("TALEA_INSTALL")
        .map_or_else(|| std::env::var_os("CI").is_some(), |value| value == "1")
}

/// Checks, and installs what is missing where it may.
pub(crate) fn packages() -> Result<Verdict> {
    let missing: Vec<_> =
        PACKAGES.into_iter().filter(|(program, _)| !shell::has(program)).collect();
    if missing.is_empty() {
        return Ok(Verdict::Passed);
    }
    let names: Vec<_> = missing.iter().flat_map(|(_, package)| package.split(' ')).collect();
    let advice = format!("apt-get install -y {}", names.join(" "));
    if !(may_install() && rustix::process::geteuid().is_root() && shell::has("apt-get")) {
        return Ok(Verdict::Failed(format!("missing on this machine; install with: {advice}")));
    }
    println!("{advice}");
    let mut args = vec!["install", "-y", "--no-install-recommends"];
    args.extend(&names);
    shell::stream(shell::program("apt-get", &["update"]), |_| ())?;
    let done = shell::stream(shell::program("apt-get", &args), |line| println!("{line}"))?;
    Ok(if done { Verdict::Passed } else { Verdict::Failed(format!("{advice} failed")) })
}
