//! The daemon `talead`.
//!
//! Exit codes: 0 for an orderly exit, 1 for a failure at start or at run time, 2 for an invalid
//! command line or configuration.
#![forbid(unsafe_code)]

use lexopt::prelude::*;
use sd_notify::NotifyState;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use talea_config::LogLevel;
use talea_config::diagnostic;
use talea_daemon::service_manager::notify;
use talea_daemon::start::{self, Options, StartError, Started};
use talea_daemon::{ExitReason, partitions, stop};

const USAGE: &str = "\
talead: real-time service by declaration

Usage: talead [OPTIONS]            serve until stopped
       talead --check [-c FILE]    check the configuration and exit
       talead stop [--release]     stop the running daemon

Options:
  -c, --config FILE     configuration [/etc/talea/talead.toml]
      --socket PATH     listen there instead
      --state-dir DIR   mirror grants there instead, with the audit trail in DIR/audit
      --log-level WORD  error, warning, info or debug
      --foreground      stay in the foreground (always the case)
      --check           check the configuration, print every problem
      --release         with stop: restore every thread first
      --version         print the version
  -h, --help            print this

SIGHUP reloads the configuration. SIGTERM stops the daemon and keeps the grants; the next start adopts them.\n`talead stop --release` releases every grant.
";

fn usage() -> String {
    USAGE.replace("/etc/talea/talead.toml", start::CONFIG_PATH)
}

/// Command of the command line.
enum Command {
    Serve,
    Check,
    Stop {
        release: bool,
    },
    /// Internal command, see `partitions`.
    Undo(PathBuf),
    Print(String),
}

fn main() -> ExitCode {
    abort_on_panic();
    match parse(lexopt::Parser::from_env()) {
        Err(error) => {
            eprintln!("talead: {error}; `talead --help` lists the options");
            ExitCode::from(2)
        }
        Ok((Command::Print(text), _)) => {
            // The reader may have closed the pipe.
            let _ = std::io::stdout().write_all(text.as_bytes());
            ExitCode::SUCCESS
        }
        Ok((Command::Check, options)) => check(&options),
        Ok((Command::Stop { release }, options)) => match stop::stop(&socket(&options), release) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("talead: {error}");
                ExitCode::FAILURE
            }
        },
        Ok((Command::Undo(journal), _)) => match partitions::run_helper(&journal) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("talead: cpuset partitions: {error}");
                ExitCode::FAILURE
            }
        },
        Ok((Command::Serve, options)) => serve(&options),
    }
}

fn parse(mut parser: lexopt::Parser) -> Result<(Command, Options), lexopt::Error> {
    let mut options = Options::default();
    let mut command = Command::Serve;
    let mut release = None;
    while let Some(argument) = parser.next()? {
        match argument {
            Short('c') | Long("config") => options.config = PathBuf::from(parser.value()?),
            Long("socket") => options.socket = Some(parser.value()?.into()),
            Long("state-dir") => options.state_directory = Some(parser.value()?.into()),
            Long("log-level") => options.log_level = Some(log_level(&parser.value()?.string()?)?),
            Long("foreground") => {}
            Long("check") => command = Command::Check,
            Long("release") => release = Some(true),
            Long("version") => {
                return Ok((
                    Command::Print(format!("talead {}\n", env!("CARGO_PKG_VERSION"))),
                    options,
                ));
            }
            Short('h') | Long("help") => return Ok((Command::Print(usage()), options)),
            Value(word) if word == partitions::HELPER => {
                command = Command::Undo(PathBuf::from(parser.value()?));
            }
            Value(word) if word == "stop" => command = Command::Stop { release: false },
            other => return Err(other.unexpected()),
        }
    }
    match (&mut command, release) {
        (Command::Stop { release }, wanted) => *release = wanted.unwrap_or(false),
        (_, Some(_)) => return Err("--release belongs to `talead stop`".into()),
        _ => {}
    }
    Ok((command, options))
}

fn log_level(word: &str) -> Result<LogLevel, lexopt::Error> {
    let found = LogLevel::WORDS.into_iter().find(|(name, _)| *name == word);
    found.map(|(_, level)| level).ok_or_else(|| {
        let words: Vec<&str> = LogLevel::WORDS.iter().map(|(name, _)| *name).collect();
        format!("`{word}` is not a log level; the levels are {}", words.join(", ")).into()
    })
}

fn check(options: &Options) -> ExitCode {
    match start::check(options) {
        Ok(loaded) => {
            if !loaded.warnings.is_empty() {
                eprintln!("{}", diagnostic::render(&loaded.warnings, false).trim_end());
            }
            ExitCode::SUCCESS
        }
        Err(error) => refuse(&error),
    }
}

fn serve(options: &Options) -> ExitCode {
    talea_daemon::raise_for_start();
    let Started { mut server, adoption, log, address } = match start::start(options) {
        Ok(started) => started,
        Err(error) => return refuse(&error),
    };
    if adoption.other_boot {
        log.info("the state file is from an earlier boot: its grants are void");
    }
    if adoption.unreadable > 0 {
        log.error(format_args!(
            "{} records of the state file were unreadable and have been cleared",
            adoption.unreadable
        ));
    }
    if adoption.found > 0 {
        log.info(format_args!("adopted {} of {} grants", adoption.kept, adoption.found));
    }
    log.info(format_args!("talead {} serves at {address}", env!("CARGO_PKG_VERSION")));
    notify(&[NotifyState::Ready]);
    let ended = server.run();
    notify(&[NotifyState::Stopping]);
    match ended {
        Ok(ExitReason::Signal) => log.info("stopped by a signal; all grants stay in force"),
        Ok(ExitReason::Requested | ExitReason::Idle) => log.info("stopped on request"),
        Err(error) => {
            log.error(format_args!("the event loop failed: {error}"));
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

fn refuse(error: &StartError) -> ExitCode {
    match error {
        StartError::Configuration(text) => {
            eprintln!("{}", text.trim_end());
            ExitCode::from(2)
        }
        StartError::Other(text) => {
            eprintln!("talead: {text}");
            ExitCode::FAILURE
        }
    }
}

/// Returns the socket of the running daemon: from the command line, the environment, the
/// configuration or the default.
fn socket(options: &Options) -> PathBuf {
    let from_file = || {
        let machine = talea_os::sysinfo::SystemInfo::probe().ok()?;
        Some(PathBuf::from(start::load(&options.config, &machine).ok()?.daemon.socket))
    };
    options
        .socket
        .clone()
        .or_else(|| std::env::var_os(talea_proto::SOCKET_ENV).map(PathBuf::from))
        .or_else(from_file)
        .unwrap_or_else(|| talea_proto::SOCKET_PATH.into())
}

/// Aborts on a panic, without unwinding through incomplete work; the next start adopts the grants.
fn abort_on_panic() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        report(info);
        std::process::abort();
    }));
}
