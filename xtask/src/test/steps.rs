//! Steps of the test command.

use super::{Verdict, system};
use crate::shell::{self, cargo};
use anyhow::Result;
use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

/// Function that receives the output of a step, line by line.
type Sink<'a> = &'a mut dyn FnMut(&str);

/// Step of the test command.
pub(super) struct Step {
    pub(super) name: &'static str,
    /// Steps that must have ended before this step starts. Cargo locks a target folder, and a step
    /// that waited for the lock would block a worker.
    pub(super) after: &'static [&'static str],
    pub(super) run: Run,
    /// Whether the output of the step has the results of tests.
    pub(super) has_tests: bool,
}

/// Action of a step.
pub(super) enum Run {
    Plain(fn(Sink) -> Result<Verdict>),
    /// Builds all programs. Each test program becomes a separate job.
    Build,
}

const fn plain(
    name: &'static str,
    after: &'static [&'static str],
    run: fn(Sink) -> Result<Verdict>,
) -> Step {
    Step { name, after, run: Run::Plain(run), has_tests: false }
}

/// All steps, in the order of preference for a start.
pub(super) const ALL: &[Step] = &[
    plain("fmt", &[], |line| run(cargo(&["fmt", "--all", "--", "--check"]), line)),
    Step { name: "tests", after: &["fmt"], run: Run::Build, has_tests: false },
    plain("system", &[], system::packages),
    // Built in folders of their own. The step `tests` is the longest path, so that cargo-deny comes
    // later.
    Step { name: "guest", after: &["system"], run: Run::Plain(guest), has_tests: true },
    plain("deny", &["tests", "system"], deny),
    Step {
        name: "systemd",
        after: &["guest", "tests"],
        run: Run::Plain(|line| crate::guest::test_services(line)),
        has_tests: true,
    },
    Step {
        name: "eight",
        after: &["systemd"],
        run: Run::Plain(|line| crate::guest::test_eight(line)),
        has_tests: true,
    },
    plain("clippy", &["tests"], clippy),
    plain("docs", &["clippy"], docs),
    plain("bare", &["docs"], |line| check_for("x86_64-unknown-none", &["talea-core"], line)),
    plain("freebsd", &["bare"], |line| check_for("x86_64-unknown-freebsd", &PORTABLE, line)),
    plain("fuzz", &["freebsd"], fuzz),
    Step { name: "doctests", after: &["fuzz"], run: Run::Plain(doctests), has_tests: true },
];

/// Crates that must build without Linux (R37).
const PORTABLE: [&str; 9] = [
    "talea-core",
    "talea-analysis",
    "talea-sim",
    "talea-config",
    "talea-system",
    "talea-import",
    "talea-proto",
    "talea-broker",
    "talea-deploy",
];

fn run(command: Command, line: Sink) -> Result<Verdict> {
    // `cargo clippy`, for instance.
    let program = Path::new(command.get_program()).file_name().unwrap_or_default();
    let words = [program].into_iter().chain(command.get_args().take(1));
    let name = words.map(OsStr::to_string_lossy).collect::<Vec<_>>().join(" ");
    Ok(if shell::stream(command, line)? {
        Verdict::Passed
    } else {
        Verdict::Failed(format!("{name} failed"))
    })
}

fn clippy(line: Sink) -> Result<Verdict> {
    let all = ["--workspace", "--all-targets"];
    // Its manifest excludes these targets from `--all-targets`.
    let guest =
        ["-p", "talea-guest-tests", "--test", "domains", "--test", "guest", "--test", "services"];
    for targets in [&all[..], &guest] {
        let mut clippy = cargo(&["clippy", "--locked", "--quiet"]);
        clippy.args(targets).args(["--", "-D", "warnings"]);
        let verdict = run(clippy, line)?;
        if !matches!(verdict, Verdict::Passed) {
            return Ok(verdict);
        }
    }
    Ok(Verdict::Passed)
}

fn guest(line: Sink) -> Result<Verdict> {
    crate::guest::test(line)
}

fn docs(line: Sink) -> Result<Verdict> {
    let mut command = cargo(&["doc", "--workspace", "--no-deps", "--locked", "--quiet"]);
    command.env("RUSTDOCFLAGS", "-D warnings");
    run(command, line)
}

fn doctests(line: Sink) -> Result<Verdict> {
    let mut command = cargo(&["test", "--doc", "--workspace", "--locked", "--no-fail-fast"]);
    command.args(["--", "--show-output"]).env("CARGO_TERM_COLOR", "never");
    run(command, line)
}

/// Type-checks crates for a target. Installs the library of the target if it is missing.
fn check_for(target: &str, crates: &[&str], line: Sink) -> Result<Verdict> {
    let is_installed = || {
        let ask = shell::program("rustc", &["--print", "target-libdir", "--target", target]);
        shell::output(ask).is_some_and(|dir| Path::new(dir.trim()).is_dir())
    };
    if !is_installed() {
        let add = shell::program("rustup", &["target", "add", target]);
        let has_added = shell::has("rustup") && shell::stream(add, &mut *line)?;
        if !(has_added && is_installed()) {
            return Ok(Verdict::Skipped(format!("rustup target add {target} failed here")));
        }
    }
    let mut command = cargo(&["check", "--locked", "--quiet", "--target", target]);
    for name in crates {
        command.args(["-p", name]);
    }
    run(command, line)
}

/// Lints the fuzz targets, which are a separate workspace with a separate lock file.
fn fuzz(line: Sink) -> Result<Verdict> {
    const MANIFEST: &str = "fuzz/Cargo.toml";
    if let Some(verdict) = fetch(MANIFEST, line)? {
        return Ok(verdict);
    }
    let mut clippy = cargo(&["clippy", "--locked", "--quiet", "--manifest-path", MANIFEST]);
    clippy.args(["--", "-D", "warnings"]);
    // Outside the source tree, and beside the dependencies that are built already.
    clippy.env("CARGO_TARGET_DIR", shell::target_dir());
    // The C++ half of libFuzzer takes a minute to compile, and a check links nothing.
    clippy.env("CUSTOM_LIBFUZZER_PATH", "none/libfuzzer.a");
    run(clippy, line)
}

/// Messages of cargo about a registry that cargo cannot reach. Any other message is a mistake of
/// this workspace.
const UNREACHABLE: [&str; 6] = [
    "failed to download",
    "failed to fetch",
    "download of ",
    "Unable to update",
    "spurious network error",
    "Could not resolve",
];

/// Downloads the packages of a lock file for all platforms. Returns a verdict if the download
/// fails.
fn fetch(manifest: &str, line: Sink) -> Result<Option<Verdict>> {
    let command = cargo(&["fetch", "--locked", "--quiet", "--manifest-path", manifest]);
    let mut is_unreachable = false;
    let is_fetched = shell::stream(command, |text| {
        line(text);
        is_unreachable |= UNREACHABLE.iter().any(|words| text.contains(words));
    })?;
    Ok(match (is_fetched, is_unreachable) {
        (true, _) => None,
        (false, true) => {
            let why = format!("the dependencies of {manifest} could not be downloaded");
            Some(Verdict::Skipped(why))
        }
        (false, false) => Some(Verdict::Failed(format!("cargo fetch of {manifest} failed"))),
    })
}

/// Checks licences, bans and sources. The step omits advisories: their database is on a git host,
/// on which the test command must not depend.
fn deny(line: Sink) -> Result<Verdict> {
    let own = shell::target_dir().join("tools/bin/cargo-deny");
    if !shell::has("cargo-deny") && !own.is_file() {
        if !system::may_install() {
            let why = "cargo-deny is not installed: cargo install --locked cargo-deny";
            return Ok(Verdict::Skipped(why.to_owned()));
        }
        // Unoptimised: it builds in a third of the time, and runs for a second.
        let mut install = cargo(&["install", "--locked", "--quiet", "--debug", "cargo-deny"]);
        install.arg("--root").arg(shell::target_dir().join("tools"));
        install.env("CARGO_TARGET_DIR", shell::target_dir().join("tools/build"));
        install.env("CARGO_PROFILE_DEV_DEBUG", "0");
        if !shell::stream(install, &mut *line)? {
            return Ok(Verdict::Skipped("cargo install cargo-deny failed here".to_owned()));
        }
    }
    // It reads the dependencies of every platform, also those that no build here has downloaded.
    if let Some(verdict) = fetch("Cargo.toml", line)? {
        return Ok(verdict);
    }
    let mut command = if own.is_file() { Command::new(own) } else { Command::new("cargo-deny") };
    command.args(["check", "licenses", "bans", "sources"]).current_dir(shell::root());
    line(
        "advisories are not checked; run `cargo deny check advisories` where their database can be \
         reached",
    );
    run(command, line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_waits_only_for_steps_that_exist() {
        for step in ALL {
            for name in step.after {
                assert!(ALL.iter().any(|other| other.name == *name), "{}: {name}", step.name);
            }
        }
    }
}
