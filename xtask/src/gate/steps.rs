//! The steps of the gate, in the order in which a mistake is cheapest to find.

use super::excerpt::Excerpt;
use super::{Tally, Verdict, system};
use crate::shell::{self, cargo};
use anyhow::Result;
use std::process::Command;
use std::sync::{Mutex, PoisonError};

/// One step.
pub(crate) struct Step {
    pub(crate) name: &'static str,
    pub(crate) what: &'static str,
    pub(crate) run: fn(&Mutex<Tally>) -> Result<Verdict>,
}

/// All steps. Tests of the workspace's tidiness are tests of `xtask` and run with the others.
pub(crate) const ALL: &[Step] = &[
    Step { name: "system", what: "programs that the tests call", run: |_| system::packages() },
    Step {
        name: "fmt",
        what: "cargo fmt --check",
        run: |_| plain(cargo(&["fmt", "--all", "--", "--check"])),
    },
    Step { name: "clippy", what: "no warnings anywhere", run: clippy },
    Step { name: "build", what: "programs and libraries that the tests call", run: build },
    Step { name: "tests", what: "every test of every crate", run: tests },
    Step {
        name: "guest",
        what: "timing, on a machine whose clock counts instructions",
        run: guest,
    },
    Step { name: "docs", what: "rustdoc without warnings", run: docs },
    Step { name: "bare", what: "the core for a target without an operating system", run: bare },
    Step {
        name: "freebsd",
        what: "pure crates and file tools for another POSIX system",
        run: freebsd,
    },
    Step {
        name: "fuzz",
        what: "the fuzzer's targets, of which the tests run the harness only",
        run: fuzz,
    },
    Step { name: "deny", what: "licences, bans and sources of dependencies", run: deny },
];

/// Crates that must build without Linux (checklist R37).
const PORTABLE: [&str; 6] =
    ["talea-core", "talea-analysis", "talea-sim", "talea-system", "talea-proto", "talea-broker"];

fn plain(command: Command) -> Result<Verdict> {
    let name = command.get_program().to_string_lossy().into_owned();
    let mut excerpt = Excerpt::default();
    let done = shell::stream(command, |line| {
        println!("{line}");
        excerpt.line(line);
    })?;
    Ok(if done { Verdict::Passed } else { failed(&format!("{name} failed"), excerpt) })
}

fn failed(why: &str, excerpt: Excerpt) -> Verdict {
    Verdict::Failed(
        [why.to_owned()].into_iter().chain(excerpt.lines()).collect::<Vec<_>>().join("\n"),
    )
}

fn clippy(_: &Mutex<Tally>) -> Result<Verdict> {
    let all =
        ["clippy", "--workspace", "--all-targets", "--locked", "--quiet", "--", "-D", "warnings"];
    let done = plain(cargo(&all))?;
    if !matches!(done, Verdict::Passed) {
        return Ok(done);
    }
    // `cargo test` leaves it alone, and so does the line above.
    let guest = [
        "clippy",
        "-p",
        "talea-guest-tests",
        "--test",
        "guest",
        "--locked",
        "--quiet",
        "--",
        "-D",
        "warnings",
    ];
    plain(cargo(&guest))
}

fn build(_: &Mutex<Tally>) -> Result<Verdict> {
    plain(cargo(&["build", "--workspace", "--locked", "--quiet"]))
}

/// `--show-output` prints what passing tests said, and with it why some of them skipped themselves.
fn tests(tally: &Mutex<Tally>) -> Result<Verdict> {
    let mut command =
        cargo(&["test", "--workspace", "--locked", "--no-fail-fast", "--", "--show-output"]);
    // Its lines are read, and colours would be in the way.
    command.env("CARGO_TERM_COLOR", "never");
    let tally = || tally.lock().unwrap_or_else(PoisonError::into_inner);
    let before = tally().failures();
    let mut excerpt = Excerpt::default();
    let done = shell::stream(command, |line| {
        tally().line(line);
        println!("{line}");
        excerpt.line(line);
    })?;
    tally().end_of_tests();
    Ok(match (done, tally().failures() > before) {
        (true, _) => Verdict::Passed,
        (false, true) => Verdict::Failed("some tests failed".to_owned()),
        // Nothing was run, then, or not everything: the compiler's errors are what there is to see.
        (false, false) => failed("cargo test failed", excerpt),
    })
}

fn guest(tally: &Mutex<Tally>) -> Result<Verdict> {
    let tally = || tally.lock().unwrap_or_else(PoisonError::into_inner);
    let verdict = crate::guest::step(|line| {
        tally().line(line);
        println!("{line}");
    });
    tally().end_of_tests();
    verdict
}

fn docs(_: &Mutex<Tally>) -> Result<Verdict> {
    let mut command = cargo(&["doc", "--workspace", "--no-deps", "--locked", "--quiet"]);
    command.env("RUSTDOCFLAGS", "-D warnings");
    plain(command)
}

fn bare(_: &Mutex<Tally>) -> Result<Verdict> {
    check_for("x86_64-unknown-none", &["talea-core"])
}

fn freebsd(_: &Mutex<Tally>) -> Result<Verdict> {
    check_for("x86_64-unknown-freebsd", &PORTABLE)
}

/// Type-checks crates for a target, fetching the target's library if it is not there yet.
fn check_for(target: &str, crates: &[&str]) -> Result<Verdict> {
    let show = |line: &str| println!("{line}");
    let installed = || {
        shell::output(shell::program("rustc", &["--print", "target-libdir", "--target", target]))
            .is_some_and(|dir| std::path::Path::new(dir.trim()).is_dir())
    };
    if !installed() {
        let add = shell::program("rustup", &["target", "add", target]);
        let fetched = shell::has("rustup") && shell::stream(add, show)?;
        if !(fetched && installed()) {
            return Ok(Verdict::Skipped(format!("rustup target add {target} did not work here")));
        }
    }
    let mut command = cargo(&["check", "--locked", "--quiet", "--target", target]);
    for name in crates {
        command.args(["-p", name]);
    }
    plain(command)
}

/// The fuzzer has a workspace of its own, with a lock file of its own, and nothing else here builds
/// it.
fn fuzz(_: &Mutex<Tally>) -> Result<Verdict> {
    const MANIFEST: &str = "fuzz/Cargo.toml";
    if let Some(missing) = fetch(MANIFEST)? {
        return Ok(missing);
    }
    let mut clippy = cargo(&["clippy", "--locked", "--quiet", "--manifest-path", MANIFEST]);
    clippy.args(["--", "-D", "warnings"]);
    // Out of the source tree, and beside what is built already.
    clippy.env("CARGO_TARGET_DIR", shell::target_dir());
    // Its C++ half would take a minute to compile, and a check links nothing.
    clippy.env("CUSTOM_LIBFUZZER_PATH", "none/libfuzzer.a");
    plain(clippy)
}

/// What cargo says when it can't reach a registry. Anything else that it says is a mistake of ours.
const UNREACHABLE: [&str; 6] = [
    "failed to download",
    "failed to fetch",
    "download of ",
    "Unable to update",
    "spurious network error",
    "Could not resolve",
];

/// Fetches what a lock file names, for all platforms; what to say where that can't be done.
fn fetch(manifest: &str) -> Result<Option<Verdict>> {
    let mut excerpt = Excerpt::default();
    let mut unreachable = false;
    let fetched = shell::stream(
        cargo(&["fetch", "--locked", "--quiet", "--manifest-path", manifest]),
        |line| {
            println!("{line}");
            excerpt.line(line);
            unreachable |= UNREACHABLE.iter().any(|words| line.contains(words));
        },
    )?;
    Ok(match (fetched, unreachable) {
        (true, _) => None,
        (false, true) => {
            Some(Verdict::Skipped(format!("what {manifest} needs could not be fetched from here")))
        }
        (false, false) => Some(failed(&format!("cargo fetch of {manifest} failed"), excerpt)),
    })
}

/// Advisories are left out: their database lies on a git host, and the gate must not depend on
/// reaching one.
fn deny(_: &Mutex<Tally>) -> Result<Verdict> {
    let own = shell::target_dir().join("tools/bin/cargo-deny");
    if !shell::has("cargo-deny") && !own.is_file() {
        if !system::may_install() {
            return Ok(Verdict::Skipped(
                "cargo-deny is not installed: cargo install --locked cargo-deny".to_owned(),
            ));
        }
        // Unoptimised: a third of the time to build, and it runs for a second.
        let mut install = cargo(&["install", "--locked", "--quiet", "--debug", "cargo-deny"]);
        install.arg("--root").arg(shell::target_dir().join("tools"));
        install.env("CARGO_TARGET_DIR", shell::target_dir().join("tools/build"));
        install.env("CARGO_PROFILE_DEV_DEBUG", "0");
        if !shell::stream(install, |line| println!("{line}"))? {
            return Ok(Verdict::Skipped("cargo install cargo-deny did not work here".to_owned()));
        }
    }
    // It looks at every platform's dependencies, also at those that no build here has needed.
    if let Some(missing) = fetch("Cargo.toml")? {
        return Ok(missing);
    }
    let mut command = if own.is_file() { Command::new(own) } else { Command::new("cargo-deny") };
    command.args(["check", "licenses", "bans", "sources"]).current_dir(shell::root());
    println!(
        "advisories are not checked here: run `cargo deny check advisories` where their database can be reached"
    );
    plain(command)
}
