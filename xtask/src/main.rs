//! `cargo xtask`: the project's only automation. Dull on purpose: it calls cargo, the tests and the
//! tools.
//!
//! `cargo xtask test` is the gate, the same on a laptop and on the server. Everything that can be a
//! test is a test; what is left here is what no test can do: call other programs and add up what
//! they say.
#![forbid(unsafe_code)]

mod audio;
mod coverage;
mod gate;
mod guest;
mod install;
mod long;
mod mutate;
mod shell;

use anyhow::{Result, bail};
use lexopt::{Arg, Parser, ValueExt};
use std::process::ExitCode;

const USAGE: &str = "\
cargo xtask COMMAND

  test [--only STEP]...   the gate: formatting, lints, build, tests, documentation, dependencies, other targets
  install --prefix DIR [--destdir DIR] [--sysconfdir DIR] [--profile NAME]
                          build and install everything
  guest [--kernel NAME] [--free] [WORD]...
                          the timing tests on an emulated machine whose clock counts instructions
  mutate [WORD]...        break every mechanism in turn, and see its tests fail
  bench ipc|sim|analysis|admission [--json] [--quick]
                          what asking, simulating or analysing costs, beside its baselines
  soak [--minutes N]      the tests again and again, with larger numbers
  audio                   write the demo's voice, examples/convolver/talea.wav
  coverage [--check]      write docs/coverage.md: which test shows which claim
";

fn main() -> ExitCode {
    match run() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn run() -> Result<ExitCode> {
    let mut args = Parser::from_env();
    let command = match args.next()? {
        Some(Arg::Value(word)) => word.string()?,
        Some(Arg::Long("help") | Arg::Short('h')) | None => {
            print!("{USAGE}");
            return Ok(ExitCode::SUCCESS);
        }
        Some(other) => return Err(other.unexpected().into()),
    };
    match command.as_str() {
        "test" => gate::run(&mut args),
        "audio" => audio::run(),
        "guest" => guest::run(&mut args),
        "install" => install::run(&mut args),
        "mutate" => mutate::run(&mut args),
        "bench" => long::bench(&mut args),
        "soak" => long::soak(&mut args),
        "coverage" => coverage::run(&mut args),
        other => bail!("no command {other:?}\n\n{USAGE}"),
    }
}
