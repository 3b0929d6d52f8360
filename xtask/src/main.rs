//! `cargo xtask`: the project's automation.
//!
//! `cargo xtask test` is the test command, the same on a laptop and on the server. A check that can
//! be a test is a test. The commands here do what no test can do: they call other programs and add
//! up the results.
#![forbid(unsafe_code)]

mod audio;
mod coverage;
mod files;
mod guest;
mod install;
mod long;
mod mutate;
mod package;
mod shell;
mod site;
mod test;

use anyhow::{Result, bail};
use lexopt::{Arg, Parser, ValueExt};
use std::process::ExitCode;

const USAGE: &str = "\
cargo xtask COMMAND

  test [--only STEP]...   formatting, lints, build, tests, documentation, dependencies, other targets
  install --prefix DIR [--destdir DIR] [--sysconfdir DIR] [--libdir DIR] [--profile NAME]
                          build and install everything
  deb [--profile NAME]    build Debian packages in target/package
  dist [--profile NAME]   build a tarball with an installer in target/package
  guest [--kernel NAME] [--free | --systemd] [WORD]...
                          the timing tests on an emulated machine whose clock counts instructions;
                          or the tests of the installed units beside systemd
  mutate [WORD]...        break every mechanism in turn, and check that its tests fail
  bench ipc|sim|analysis|admission [--json] [--quick]
                          measure requests, simulation or analysis, beside their baselines
  soak [--minutes N]      repeat the tests with larger numbers
  audio                   write the demo's voice, examples/convolver/talea.wav
  docs                    build the documents as a site (mdbook), with rustdoc beside it
  files [WORD]...         print what each source file contains; with words, those about them
  coverage                print the tests of each claim; fail if a claim has none
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
        "test" => test::run(&mut args),
        "audio" => audio::run(),
        "guest" => guest::run(&mut args),
        "install" => install::run(&mut args),
        "deb" => package::deb(&mut args),
        "dist" => package::dist(&mut args),
        "mutate" => mutate::run(&mut args),
        "bench" => long::bench(&mut args),
        "soak" => long::soak(&mut args),
        "coverage" => coverage::run(&mut args),
        "files" => files::run(&mut args),
        "docs" => site::run(&mut args),
        other => bail!("no command {other:?}\n\n{USAGE}"),
    }
}
