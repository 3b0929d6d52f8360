//! Packages of the installed files: `cargo xtask deb` and `cargo xtask dist`.
//!
//! Both begin with an installation below `target/package`, without debug information.

mod deb;
mod dist;
mod stage;

use anyhow::Result;
use lexopt::{Arg, Parser, ValueExt};
use std::process::ExitCode;

/// Builds Debian packages.
pub(crate) fn deb(args: &mut Parser) -> Result<ExitCode> {
    deb::build(&stage::Stage::install("deb", &profile(args)?)?)
}

/// Builds a tarball with an installer.
pub(crate) fn dist(args: &mut Parser) -> Result<ExitCode> {
    dist::build(&stage::Stage::install("dist", &profile(args)?)?)
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
