//! The broker in this process, where there is no daemon and rights allow it.
//!
//! Model: the daemon's own server, in a thread, with the daemon's own configuration and state file;
//! it is asked over a socket pair in the daemon's own language. It holds the state file alone and
//! therefore lives only while there is something to ask: between questions ([`Broker::rest`]) it is
//! gone, what was granted stays written down, and the next broker, here or elsewhere, finds it.

use super::wire::Wire;
use super::{Broker, Options};
use anyhow::{Context, anyhow, bail};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::mpsc;
use std::thread::JoinHandle;
use talea_core::setup::{
    Access, Band, EdfOptions, FpOptions, PluginKind, PluginSetup, RmOptions, Setup,
};
use talea_core::{CpuSet, Priority};
use talea_daemon::Server;
use talea_daemon::log::Log;
use talea_daemon::start::STATE_FILE;
use talea_os::Thread;
use talea_os::dropcaps::{Capability, effective};
use talea_os::machine::Machine;
use talea_proto::{Reply, Request};
use talea_system::config::{DaemonSetup, LogLevel};

/// A broker in this process.
pub(super) struct Here {
    setup: Setup,
    machine: Machine,
    state: PathBuf,
    /// Where the setup comes from, for people.
    origin: String,
    running: Option<Running>,
}

struct Running {
    wire: Wire,
    server: JoinHandle<()>,
}

/// The broker, or what is missing for it.
pub(super) fn open(options: &Options) -> anyhow::Result<Here> {
    if !effective()?.has(Capability::SysNice) {
        bail!("it has no CAP_SYS_NICE");
    }
    let machine = Machine::probe().context("this machine cannot be looked at")?;
    let mut here = match options.load(&machine)? {
        Some(loaded) => {
            let state = state_file(&loaded.daemon)?;
            let origin = options.config_path().display().to_string();
            Here { setup: loaded.setup, machine, state, origin, running: None }
        }
        None => usual_here(machine, state_file(&DaemonSetup::default())?),
    };
    // Whoever cannot start must say so before a program is.
    here.wire()?;
    Ok(here)
}

/// As [`open`], whatever the configuration says: for putting back what an earlier broker left.
pub(super) fn open_for_repair(options: &Options) -> anyhow::Result<Here> {
    open(options).or_else(|_| {
        let machine = Machine::probe().context("this machine cannot be looked at")?;
        Ok(usual_here(machine, state_file(&options.daemon_setup()?)?))
    })
}

fn usual_here(machine: Machine, state: PathBuf) -> Here {
    let origin = "the usual plugins (there is no configuration)".to_owned();
    Here { setup: usual(machine.online), machine, state, origin, running: None }
}

/// Where grants are written down, below the directory that the configuration names.
pub(crate) fn state_file(daemon: &DaemonSetup) -> anyhow::Result<PathBuf> {
    use std::os::unix::fs::DirBuilderExt;
    let directory = PathBuf::from(&daemon.state_directory);
    if !directory.exists() {
        let made = std::fs::DirBuilder::new().mode(0o755).create(&directory);
        made.with_context(|| {
            format!("it cannot make {}, where grants are written down", directory.display())
        })?;
    }
    Ok(directory.join(STATE_FILE))
}

/// What is served where nobody has written a configuration: every plugin on every CPU, below the
/// priority of interrupt threads (50). Whoever may use it has CAP_SYS_NICE and could do all of it
/// by hand; so no rules.
fn usual(cpus: CpuSet) -> Setup {
    let plugin = |kind: PluginKind, band: Option<(u8, u8)>| PluginSetup {
        name: kind.word().to_owned(),
        cpus,
        band: band.map(|(low, high)| Band { low: Priority(low), high: Priority(high) }),
        kind,
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

impl Here {
    fn wire(&mut self) -> anyhow::Result<&mut Wire> {
        if self.running.is_none() {
            self.running = Some(self.start()?);
        }
        Ok(&mut self.running.as_mut().expect("it was just started").wire)
    }

    /// The server is made in its thread: it never leaves it.
    fn start(&self) -> anyhow::Result<Running> {
        let (setup, machine, state) =
            (self.setup.clone(), self.machine.clone(), self.state.clone());
        let (tell, told) = mpsc::channel::<Result<OwnedFd, String>>();
        let server = std::thread::Builder::new()
            .name("talea-broker".to_owned())
            .spawn(move || {
                match Server::embedded(setup, machine, &state, Log::new(LogLevel::Warning)) {
                    Ok((mut server, socket)) => {
                        // Nobody to tell means that nobody waits any more; then the loop ends at
                        // once.
                        let _ = tell.send(Ok(socket));
                        if let Err(error) = server.run() {
                            crate::output::note(&format!("the broker's loop failed: {error}"));
                        }
                    }
                    Err(why) => {
                        let _ = tell.send(Err(why));
                    }
                }
            })
            .context("no thread for the broker")?;
        let socket = match told.recv() {
            Ok(Ok(socket)) => socket,
            Ok(Err(why)) => bail!("{why}"),
            Err(_) => return Err(anyhow!("the broker ended before it began")),
        };
        let wire = Wire::open(socket, "the broker in this process".to_owned())?;
        Ok(Running { wire, server })
    }
}

impl Broker for Here {
    fn ask(&mut self, request: &Request, thread: Option<&Thread>) -> anyhow::Result<Reply> {
        self.wire()?.ask(request, thread)
    }

    fn who(&self) -> String {
        format!("decided in this process, without a daemon, by {}", self.origin)
    }

    fn rest(&mut self) {
        if let Some(Running { wire, server }) = self.running.take() {
            // The end of the connection ends the loop, and with it the hold on the state file.
            drop(wire);
            if server.join().is_err() {
                crate::output::note(
                    "the broker in this process failed; what is granted stays granted",
                );
            }
        }
    }
}

impl Drop for Here {
    fn drop(&mut self) {
        self.rest();
    }
}
