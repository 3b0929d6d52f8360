//! The daemon `talea-deployd`: drives the machine of `talea-deploy` on Linux.
//!
//! It starts programs as other users, so it runs as root. Only root reaches its socket. It reads no
//! system file: `talea deploy apply` does, and sends a generation. Every change of the computer is
//! an effect of the machine, of which there is a closed list.
//!
//! Its end changes nothing: the programs run on, and the next start adopts them.
//!
//! Exit codes: 0 for an orderly exit, 1 for a failure, 2 for an invalid command line.
#![forbid(unsafe_code)]

mod attributes;
mod clients;
mod driver;
mod failure;
mod log;
mod programs;
mod reservation;
mod store;

use clients::{Clients, MAX_CLIENTS};
use driver::Driver;
use failure::Failure;
use lexopt::prelude::*;
use log::log;
use programs::Programs;
use reservation::Reservation;
use sd_notify::NotifyState;
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use store::Store;
use talea_os::files::check_trusted_directory;
use talea_os::notify_socket::NotifySocket;
use talea_os::seqpacket::{Access, BindError, Listener};
use talea_os::signals::{Signal, Signals};

const USAGE: &str = "\
talea-deployd: keeps a deployment of Talea in force

Usage: talea-deployd [OPTIONS]

Options:
      --state DIR    generations and the record [/var/lib/talea-deploy]
      --runtime DIR  socket, and the programs that run [/run/talea-deploy]
      --talead PATH  socket of talead, in whose ledger the CPUs are reserved [/run/talea/talea.sock]
      --version      print the version
  -h, --help         print this

talea deploy applies, shows and removes the deployment. SIGTERM ends the daemon; the programs run on, and the next
start adopts them.
";

/// Options of the command line.
struct Options {
    state: PathBuf,
    runtime: PathBuf,
    talead: PathBuf,
}

/// Command of the command line.
enum Command {
    Serve(Options),
    Print(String),
}

fn main() -> ExitCode {
    match parse(lexopt::Parser::from_env()) {
        Err(error) => {
            log(&format!("{error}; `talea-deployd --help` lists the options"));
            ExitCode::from(2)
        }
        Ok(Command::Print(text)) => {
            // The reader may have closed the pipe.
            let _ = io::stdout().write_all(text.as_bytes());
            ExitCode::SUCCESS
        }
        Ok(Command::Serve(options)) => match serve(&options) {
            Ok(()) => ExitCode::SUCCESS,
            Err(failure) => {
                log(&failure.to_string());
                ExitCode::FAILURE
            }
        },
    }
}

fn parse(mut parser: lexopt::Parser) -> Result<Command, lexopt::Error> {
    let mut options = Options {
        state: "/var/lib/talea-deploy".into(),
        runtime: "/run/talea-deploy".into(),
        talead: talea_proto::SOCKET_PATH.into(),
    };
    while let Some(argument) = parser.next()? {
        match argument {
            Long("state") => options.state = parser.value()?.into(),
            Long("runtime") => options.runtime = parser.value()?.into(),
            Long("talead") => options.talead = parser.value()?.into(),
            Long("version") => {
                return Ok(Command::Print(format!(
                    "talea-deployd {}\n",
                    env!("CARGO_PKG_VERSION")
                )));
            }
            Short('h') | Long("help") => return Ok(Command::Print(USAGE.to_owned())),
            other => return Err(other.unexpected()),
        }
    }
    Ok(Command::Serve(options))
}

fn serve(options: &Options) -> Result<(), Failure> {
    let os =
        |what: &str, error: io::Error| Failure::new(format!("{what}: {error}"), "start it again");
    let signals =
        Signals::new(&[Signal::Term, Signal::Int]).map_err(|error| os("signals", error))?;
    let boot = talea_os::clock::boot_id().map_err(|error| os("boot id", error))?;
    let boot = boot.iter().fold(String::new(), |mut text, byte| {
        // Writing to a String can't fail.
        let _ = write!(text, "{byte:02x}");
        text
    });
    let state = absolute(&options.state)?;
    let runtime = absolute(&options.runtime)?;
    let store = Store::open(&state, &boot)?;
    // Programs of all users find the socket for their readiness.
    create_directory(&runtime, 0o755)?;
    for name in ["programs", "systems"] {
        create_directory(&runtime.join(name), 0o700)?;
    }
    let access = Access { mode: 0o600, uid: None, gid: None };
    let listener = Listener::bind(&runtime.join("socket"), access, MAX_CLIENTS as u32)
        .map_err(|error| bind_failure(&error))?;
    let notify = runtime.join("notify");
    let programs = Programs::adopt(&runtime, &notify, &boot)?;
    let socket =
        NotifySocket::bind(&notify).map_err(|error| os(&notify.display().to_string(), error))?;
    for (task, process) in programs.adopted() {
        log(&format!("{task}: process {} is adopted", process.pid));
    }
    let reservation = Reservation::start(&options.talead).map_err(|error| os("a thread", error))?;
    let clients = Clients::new(listener);
    let mut driver = Driver::new(store, programs, clients, reservation, (socket, signals))?;
    let in_force = match driver.in_force() {
        Some(number) => format!("generation {number} is in force"),
        None => "no generation is in force".to_owned(),
    };
    log(&format!("serves at {}; {in_force}", runtime.join("socket").display()));
    // A failed notification does not affect the service.
    let _ = sd_notify::notify(&[NotifyState::Ready]);
    driver.run(|| {
        let _ = sd_notify::notify(&[NotifyState::Watchdog]);
    })
}

fn absolute(path: &Path) -> Result<PathBuf, Failure> {
    std::path::absolute(path)
        .map_err(|error| Failure::new(format!("{}: {error}", path.display()), "name a directory"))
}

/// Creates a directory with this mode, if it is missing.
fn create_directory(path: &Path, mode: u32) -> Result<(), Failure> {
    let refused = |error: io::Error| {
        let remedy = "create the directory above it, or name another one with --runtime";
        Failure::new(format!("{}: {error}", path.display()), remedy)
    };
    match std::fs::create_dir(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(refused(error)),
        _ => {}
    }
    check_trusted_directory(path)
        .map_err(|untrusted| Failure::new(untrusted.to_string(), "only root may write there"))?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).map_err(refused)
}

fn bind_failure(error: &BindError) -> Failure {
    let remedy = match error {
        BindError::InUse { .. } => {
            "only one talea-deployd uses a directory; stop that process first"
        }
        _ => "mend the directory, or name another one with --runtime",
    };
    Failure::new(error.to_string(), remedy)
}
