//! Broker in this process, for use without a daemon if rights allow.
//!
//! Model: the daemon's event loop runs in a thread, with the daemon's configuration and state file.
//! This process sends its requests over a socket pair, by the daemon's protocol. The broker holds
//! the state file exclusively, so it runs only while there are requests ([`Broker::suspend`] stops
//! it). The grants remain in the state file, and the next broker in any process reads them.

use super::connection::Broker;
use super::options::Options;
use super::wire::Wire;
use anyhow::{Context, anyhow, bail};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread::JoinHandle;
use talea_config::{DaemonSetup, LogLevel};
use talea_core::setup::{
    Access, Band, EdfOptions, FpOptions, OnOverrun, PluginKind, PluginSetup, RmOptions, Setup,
};
use talea_core::{CpuSet, Priority};
use talea_daemon::Daemon;
use talea_daemon::log::Log;
use talea_daemon::start::STATE_FILE;
use talea_os::Thread;
use talea_os::capabilities::{Capability, effective};
use talea_os::sysinfo::SystemInfo;
use talea_proto::{Reply, Request};

/// Broker in this process.
pub(super) struct EmbeddedBroker {
    setup: Setup,
    machine: SystemInfo,
    state: PathBuf,
    /// Description of the origin of the setup.
    origin: String,
    start: Start,
    running: Option<Running>,
}

/// Function that starts the event loop and returns the client's end of its connection.
type Start = fn(Setup, SystemInfo, &Path, Log) -> Result<(Daemon, OwnedFd), String>;

struct Running {
    wire: Wire,
    server: JoinHandle<()>,
}

/// Starts a broker. The error is the missing condition.
pub(super) fn open(options: &Options) -> anyhow::Result<EmbeddedBroker> {
    let mut broker = stopped(options)?;
    // A broker that cannot start must fail before a program is started.
    broker.wire()?;
    Ok(broker)
}

/// Variant of [`open`] for a repair: it accepts an invalid configuration, and may release every
/// grant of the state file.
pub(super) fn open_for_repair(options: &Options) -> anyhow::Result<EmbeddedBroker> {
    let started = |mut broker: EmbeddedBroker| -> anyhow::Result<EmbeddedBroker> {
        broker.start = Daemon::embedded_for_repair;
        broker.wire()?;
        Ok(broker)
    };
    stopped(options).and_then(started).or_else(|_| {
        let machine = SystemInfo::probe().context("the system information is not readable")?;
        started(with_default_setup(machine, state_file(&options.daemon_setup()?)?))
    })
}

/// Returns a broker that starts with its first request.
fn stopped(options: &Options) -> anyhow::Result<EmbeddedBroker> {
    if !effective()?.has(Capability::SysNice) {
        bail!("it has no CAP_SYS_NICE");
    }
    let machine = SystemInfo::probe().context("the system information is not readable")?;
    let Some(loaded) = options.load(&machine)? else {
        return Ok(with_default_setup(machine, state_file(&DaemonSetup::default())?));
    };
    let state = state_file(&loaded.daemon)?;
    let origin = options.config_path().display().to_string();
    let (setup, start) = (loaded.setup, Daemon::embedded as Start);
    Ok(EmbeddedBroker { setup, machine, state, origin, start, running: None })
}

fn with_default_setup(machine: SystemInfo, state: PathBuf) -> EmbeddedBroker {
    let origin = "the usual plugins (there is no configuration)".to_owned();
    EmbeddedBroker {
        setup: default_setup(machine.online),
        machine,
        state,
        origin,
        start: Daemon::embedded,
        running: None,
    }
}

/// Returns the state file in the configured directory, and creates the directory.
pub(crate) fn state_file(daemon: &DaemonSetup) -> anyhow::Result<PathBuf> {
    use std::os::unix::fs::DirBuilderExt;
    let directory = PathBuf::from(&daemon.state_directory);
    if !directory.exists() {
        let made = std::fs::DirBuilder::new().mode(0o755).create(&directory);
        made.with_context(|| {
            format!("it cannot create {}, which holds the state file", directory.display())
        })?;
    }
    Ok(directory.join(STATE_FILE))
}

/// Returns the setup without a configuration: every plugin on every CPU, below the priority of
/// interrupt threads (50). The setup has no rules, because a user with CAP_SYS_NICE could set all
/// attributes directly.
fn default_setup(cpus: CpuSet) -> Setup {
    let plugin = |kind: PluginKind, band: Option<(u8, u8)>| PluginSetup {
        name: kind.name().to_owned(),
        cpus,
        band: band.map(|(low, high)| Band { low: Priority(low), high: Priority(high) }),
        kind,
        on_overrun: OnOverrun::default(),
    };
    Setup {
        plugins: vec![
            plugin(PluginKind::Edf(EdfOptions::default()), None),
            plugin(PluginKind::Rm(RmOptions::default()), Some((31, 49))),
            plugin(PluginKind::Fp(FpOptions::default()), Some((11, 30))),
            plugin(PluginKind::Rr(FpOptions::default()), Some((1, 10))),
        ],
        access: Access::Off,
        ..Setup::default()
    }
}

impl EmbeddedBroker {
    fn wire(&mut self) -> anyhow::Result<&mut Wire> {
        if self.running.is_none() {
            self.running = Some(self.start()?);
        }
        Ok(&mut self.running.as_mut().expect("it was just started").wire)
    }

    /// Starts the event loop in a thread. The thread creates the loop, because the loop must not
    /// leave its thread.
    fn start(&self) -> anyhow::Result<Running> {
        let (setup, machine, state) =
            (self.setup.clone(), self.machine.clone(), self.state.clone());
        let start = self.start;
        let (sender, receiver) = mpsc::channel::<Result<OwnedFd, String>>();
        let server = std::thread::Builder::new()
            .name("talea-broker".to_owned())
            .spawn(move || {
                match start(setup, machine, &state, Log::new(LogLevel::Warning)) {
                    Ok((mut server, socket)) => {
                        // The receiver has ended; then the loop ends immediately.
                        let _ = sender.send(Ok(socket));
                        if let Err(error) = server.run() {
                            talea_study::output::note(&format!(
                                "the broker's loop failed: {error}"
                            ));
                        }
                    }
                    Err(why) => {
                        let _ = sender.send(Err(why));
                    }
                }
            })
            .context("no thread for the broker")?;
        let socket = match receiver.recv() {
            Ok(Ok(socket)) => socket,
            Ok(Err(why)) => bail!("{why}"),
            Err(_) => return Err(anyhow!("the broker ended during its start")),
        };
        let wire = Wire::open(socket, "the broker in this process".to_owned())?;
        Ok(Running { wire, server })
    }
}

impl Broker for EmbeddedBroker {
    fn ask(&mut self, request: &Request, thread: Option<&Thread>) -> anyhow::Result<Reply> {
        self.wire()?.ask(request, thread)
    }

    fn describe(&self) -> String {
        format!("decided in this process, without a daemon, by {}", self.origin)
    }

    fn suspend(&mut self) {
        if let Some(Running { wire, server }) = self.running.take() {
            // The end of the connection ends the loop, which releases the state file.
            drop(wire);
            if server.join().is_err() {
                talea_study::output::note("the broker in this process failed; the grants remain");
            }
        }
    }
}

impl Drop for EmbeddedBroker {
    fn drop(&mut self) {
        self.suspend();
    }
}
