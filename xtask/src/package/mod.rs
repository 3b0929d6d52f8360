//! Packages of the installed files: `cargo xtask deb` and `cargo xtask dist`.
//!
//! Both begin with an installation below `target/package`, without debug information.

mod deb;
mod dist;
mod stage;

use anyhow::Result;
use lexopt::{Arg, Parser, ValueExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Builds Debian packages.
pub(crate) fn deb(args: &mut Parser) -> Result<ExitCode> {
    deb::build(&stage::Stage::install("deb", &profile(args)?)?)
}

/// Builds a tarball with an installer.
pub(crate) fn dist(args: &mut Parser) -> Result<ExitCode> {
    dist::build(&stage::Stage::install("dist", &profile(args)?)?)
}

/// Builds the package of the daemon in the folder `packages`, from files that are installed below
/// `files`. Returns its path.
pub(crate) fn daemon(files: &Path, packages: &Path) -> Result<PathBuf> {
    deb::build_one(&stage::Stage::of(files, packages)?, "talead")
}

fn profile(args: &mut Parser) -> Result<String> {
    let mut profile = "release".to_owned();
    while let Some(arg) = args.next()? {
        match arg {
            Arg::Long("profile") => profile = args.value()?.string()?,
            other => return Err(other.unexpected().into()),
        }
    }
    Ok(profile)
}
