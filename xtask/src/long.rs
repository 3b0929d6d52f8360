//! `cargo xtask bench ipc|sim|analysis|admission [--json] [--quick]` and `cargo xtask soak
//! [--minutes N]`: what takes too long for the gate.

use crate::gate::Tally;
use crate::shell::{self, cargo};
use anyhow::{Context, Result, bail};
use lexopt::{Arg, Parser, ValueExt};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

/// What there is to measure.
const WHAT: [&str; 4] = ["ipc", "sim", "analysis", "admission"];

/// Builds what is measured, then lets `talea lab` measure it.
pub(crate) fn bench(args: &mut Parser) -> Result<ExitCode> {
    let rest: Vec<_> = args.raw_args()?.collect();
    if rest.first().is_none_or(|what| !WHAT.iter().any(|known| what == known)) {
        bail!("cargo xtask bench {} [--json] [--quick]", WHAT.join("|"));
    }
    if !shell::stream(
        cargo(&["build", "--release", "--locked", "-p", "talea-cli", "-p", "talea-daemon"]),
        |line| {
            eprintln!("{line}");
        },
    )? {
        bail!("the build failed");
    }
    let status = Command::new(shell::target_dir().join("release/talea"))
        .arg("lab")
        .args(rest)
        .status()
        .context("talea cannot be started")?;
    Ok(ExitCode::from(status.code().map_or(1, |code| u8::try_from(code).unwrap_or(1))))
}

/// The tests again and again, optimised and with larger numbers, until the time is over or one
/// fails.
pub(crate) fn soak(args: &mut Parser) -> Result<ExitCode> {
    let mut minutes: u64 = 60;
    while let Some(arg) = args.next()? {
        match arg {
            Arg::Long("minutes") => minutes = args.value()?.parse()?,
            other => return Err(other.unexpected().into()),
        }
    }
    let end = Instant::now() + Duration::from_secs(minutes * 60);
    let mut round: u32 = 0;
    let mut tally = Tally::new();
    while round == 0 || Instant::now() < end {
        round += 1;
        println!("== soak, round {round}");
        let mut tests =
            cargo(&["test", "--release", "--locked", "--workspace", "--exclude", "xtask"]);
        tests.args(["--no-fail-fast", "--", "--show-output"]);
        tests.env("TALEA_SOAK", round.to_string());
        tests.env("TALEA_FUZZ_ROUNDS", "200000").env("PROPTEST_CASES", "4096");
        tests.env("CARGO_TERM_COLOR", "never");
        let passed = shell::stream(tests, |line| {
            tally.line(line);
            println!("{line}");
        })?;
        tally.end_of_tests();
        if !passed {
            print!("{}", tally.summary());
            println!("round {round} failed");
            return Ok(ExitCode::FAILURE);
        }
    }
    print!("{}", tally.summary());
    println!("{round} rounds passed");
    Ok(ExitCode::SUCCESS)
}
