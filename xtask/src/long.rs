//! `cargo xtask bench` and `cargo xtask soak`: measurements and long tests.
//!
//! The test command runs neither.

use crate::shell::{self, cargo};
use crate::test::{self, Report, Verdict};
use anyhow::{Context, Result, bail};
use lexopt::{Arg, Parser, ValueExt};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

/// Names of the benchmarks.
const BENCHMARKS: [&str; 4] = ["ipc", "sim", "analysis", "admission"];

/// Runs the bench command: builds the programs under measurement, and calls `talea-lab`.
pub(crate) fn bench(args: &mut Parser) -> Result<ExitCode> {
    let rest: Vec<_> = args.raw_args()?.collect();
    if rest.first().is_none_or(|what| !BENCHMARKS.iter().any(|known| what == known)) {
        bail!("cargo xtask bench {} [--json] [--quick]", BENCHMARKS.join("|"));
    }
    let build = ["build", "--release", "--locked", "-p", "talea-lab", "-p", "talea-daemon"];
    if !shell::stream(cargo(&build), |line| eprintln!("{line}"))? {
        bail!("the build failed");
    }
    let status = Command::new(shell::target_dir().join("release/talea-lab"))
        .args(rest)
        .status()
        .context("talea-lab cannot be started")?;
    Ok(ExitCode::from(status.code().map_or(1, |code| u8::try_from(code).unwrap_or(1))))
}

/// Runs the soak command: repeats the optimised tests with larger numbers until the time is over or
/// a test fails.
pub(crate) fn soak(args: &mut Parser) -> Result<ExitCode> {
    let mut minutes: u64 = 60;
    while let Some(arg) = args.next()? {
        match arg {
            Arg::Long("minutes") => minutes = args.value()?.parse()?,
            other => return Err(other.unexpected().into()),
        }
    }
    let end = Instant::now() + Duration::from_secs(minutes * 60);
    let (verdict, mut programs) = test::build_release(&mut |line| println!("{line}"))?;
    if let Verdict::Failed(why) = verdict {
        bail!("{why}");
    }
    let mut report = Report::new();
    let mut round: u32 = 0;
    while report.is_green() && (round == 0 || Instant::now() < end) {
        round += 1;
        println!("== soak, round {round}");
        for program in &mut programs {
            program.set("TALEA_SOAK", &round.to_string());
            program.set("TALEA_FUZZ_ROUNDS", "200000");
            program.set("PROPTEST_CASES", "4096");
            program.run_into(&mut report);
        }
    }
    println!("{round} rounds");
    print!("{}", report.summary());
    Ok(if report.is_green() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
