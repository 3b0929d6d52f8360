//! Command line.

use anyhow::{Context, bail};
use lexopt::{Arg, Parser, ValueExt};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// Text of `--help`.
const HELP: &str = "\
talea-rtkit: the D-Bus name org.freedesktop.RealtimeKit1, answered by Talea's daemon

Usage: talea-rtkit [OPTIONS]

Options:
  --socket PATH          socket of the daemon (default: /run/talea/talea.sock)
  --runtime-us N         CPU time per period that a thread declares; 0 for none (default: 2000)
  --period-us N          period that a thread declares (default: 10000)
  --max-priority N       property MaxRealtimePriority, 1 to 99 (default: 20)
  --min-nice N           property MinNiceLevel, -20 to 0 (default: -15)
  --rttime-max-us N      property RTTimeUSecMax, at least 1 (default: 200000)
  --published            print the properties that programs read now, and those of the portal
  --help                 print this text
  --version              print the version
";

/// Task that the program is to do.
#[derive(Debug)]
pub(crate) enum Command {
    /// Serve the bus name.
    Serve(Box<Options>),
    /// Print the properties that the name and the portal publish.
    PrintPublished,
    /// Print this text.
    Print(String),
}

/// Options of the front end.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    /// Socket of the daemon; `None` for that of the system.
    pub(crate) socket: Option<PathBuf>,
    /// Runtime in each period that a thread declares; zero if threads declare a priority only.
    pub(crate) runtime: Duration,
    /// Period that a thread declares.
    pub(crate) period: Duration,
    /// Largest priority of a request.
    pub(crate) max_priority: u8,
    /// Lowest nice value of a request.
    pub(crate) min_nice: i8,
    /// Published limit for RLIMIT_RTTIME in microseconds; never 0, because clients set the limit
    /// to this value and the kernel kills a process with a limit of 0.
    pub(crate) rttime_max_us: i64,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            socket: None,
            runtime: Duration::from_millis(2),
            period: Duration::from_millis(10),
            max_priority: 20,
            min_nice: -15,
            rttime_max_us: 200_000,
        }
    }
}

/// Reads the command line.
pub(crate) fn parse(arguments: impl IntoIterator<Item = OsString>) -> anyhow::Result<Command> {
    let mut options = Options::default();
    let mut parser = Parser::from_args(arguments);
    while let Some(argument) = parser.next()? {
        match argument {
            Arg::Long("socket") => options.socket = Some(parser.value()?.into()),
            Arg::Long("runtime-us") => {
                let runtime = number(&mut parser, "--runtime-us", 0, 1_000_000_000)?;
                options.runtime = Duration::from_micros(runtime as u64);
            }
            Arg::Long("period-us") => {
                let period = number(&mut parser, "--period-us", 1, 1_000_000_000)?;
                options.period = Duration::from_micros(period as u64);
            }
            Arg::Long("max-priority") => {
                options.max_priority = number(&mut parser, "--max-priority", 1, 99)? as u8;
            }
            Arg::Long("min-nice") => {
                options.min_nice = number(&mut parser, "--min-nice", -20, 0)? as i8;
            }
            Arg::Long("rttime-max-us") => {
                options.rttime_max_us = number(&mut parser, "--rttime-max-us", 1, i64::MAX)?;
            }
            Arg::Long("published") => return Ok(Command::PrintPublished),
            Arg::Long("help") => return Ok(Command::Print(HELP.to_owned())),
            Arg::Long("version") => {
                return Ok(Command::Print(format!("talea-rtkit {}\n", env!("CARGO_PKG_VERSION"))));
            }
            other => return Err(other.unexpected().into()),
        }
    }
    if options.runtime > options.period {
        bail!("--runtime-us is larger than --period-us");
    }
    Ok(Command::Serve(Box::new(options)))
}

/// Reads the value of an option.
fn number(parser: &mut Parser, option: &str, least: i64, most: i64) -> anyhow::Result<i64> {
    let value: i64 =
        parser.value()?.parse().with_context(|| format!("{option} needs a whole number"))?;
    if !(least..=most).contains(&value) {
        bail!("{option} {value} is outside {least} to {most}");
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn served(arguments: &[&str]) -> anyhow::Result<Options> {
        match parse(arguments.iter().map(OsString::from))? {
            Command::Serve(options) => Ok(*options),
            other => bail!("not served: {other:?}"),
        }
    }

    #[test]
    fn options_replace_the_defaults_and_are_checked() {
        let options = served(&["--max-priority", "88", "--min-nice=-11"]).expect("valid");
        assert_eq!((options.max_priority, options.min_nice), (88, -11));
        assert_eq!(options.rttime_max_us, 200_000);
        for wrong in [
            &["--rttime-max-us", "0"][..],
            &["--max-priority", "0"],
            &["--max-priority", "100"],
            &["--min-nice", "1"],
            &["--runtime-us", "10001"],
            &["--period-us", "0"],
            &["--unknown"],
            &["operand"],
        ] {
            assert!(served(wrong).is_err(), "{wrong:?}");
        }
    }
}
