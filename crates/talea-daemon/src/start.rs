//! From a configuration file to a running server, or to a clear reason why not.
//!
//! Invariant: a daemon runs with all of its configuration or not at all, and never with a file that
//! somebody else could have written (checklist R26).

use crate::log::Log;
use crate::partitions;
use crate::rights;
use crate::server::{Adoption, Parts, Reload, Server};
use std::fmt;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use talea_core::CpuSet;
use talea_core::mutate;
use talea_core::setup::{Confine, PluginKind, Setup};
use talea_os::machine::{Hierarchy, Machine};
use talea_os::seqpacket::{self, Access, Listener};
use talea_os::signals::{Signal, Signals};
use talea_os::{files, users};
use talea_system::config::{self, DaemonSetup, Loaded, LogLevel, Names, Target};
use talea_system::diagnostic;

/// Where the configuration lies unless told otherwise. An installation elsewhere has its own, which
/// is built in.
pub const CONFIG_PATH: &str = match option_env!("TALEA_CONFIG") {
    Some(path) => path,
    None => "/etc/talea/talead.toml",
};
/// Name of the state file in the state directory.
pub const STATE_FILE: &str = "state";
/// Connections that may wait to be accepted.
const BACKLOG: u32 = 1024;

/// What the command line says; it wins over the file.
#[derive(Clone, Debug)]
pub struct Options {
    /// The configuration file.
    pub config: PathBuf,
    /// Another socket.
    pub socket: Option<PathBuf>,
    /// Another state directory.
    pub state_directory: Option<PathBuf>,
    /// Another log level.
    pub log_level: Option<LogLevel>,
}

impl Default for Options {
    fn default() -> Options {
        Options { config: CONFIG_PATH.into(), socket: None, state_directory: None, log_level: None }
    }
}

/// Why there is no daemon.
#[derive(Debug)]
pub enum StartError {
    /// The file can't be used: every problem that was found, ready to be printed.
    Configuration(String),
    /// Something else; one line.
    Other(String),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StartError::Configuration(text) | StartError::Other(text) => {
                f.write_str(text.trim_end())
            }
        }
    }
}

impl std::error::Error for StartError {}

/// Users and groups of this machine.
pub struct MachineNames;

impl Names for MachineNames {
    fn user(&self, name: &str) -> Option<u32> {
        users::user_by_name(name).ok().flatten().map(|user| user.uid)
    }

    fn group(&self, name: &str) -> Option<u32> {
        users::group_by_name(name).ok().flatten().map(|group| group.gid)
    }
}

/// Reads the configuration file, for this machine.
pub fn load(path: &Path, machine: &Machine) -> Result<Loaded, StartError> {
    if matches!(path.try_exists(), Ok(false)) {
        let text = format!(
            "there is no configuration {}; a sample comes with Talea, and `man talead.toml` has every key",
            path.display()
        );
        return Err(StartError::Configuration(text));
    }
    let untrusted = |error: files::Untrusted| StartError::Configuration(error.to_string());
    let file = files::open_trusted(path).map_err(untrusted)?;
    let mut bytes = Vec::new();
    // One byte more than is allowed, so that too much is seen as such.
    file.take(config::FILE_MAX as u64 + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| StartError::Configuration(format!("{}: {error}", path.display())))?;
    let origin = path
        .file_name()
        .map_or_else(|| path.display().to_string(), |name| name.to_string_lossy().into());
    config::read_bytes(&bytes, &origin, &MachineNames, &Target::new(machine.online))
        .map_err(|found| StartError::Configuration(diagnostic::render(&found, false)))
}

/// Checks everything that [`start`] would check without touching anything: the file, and the
/// plugins' objects.
pub fn check(options: &Options) -> Result<Loaded, StartError> {
    let machine =
        Machine::probe().map_err(|error| StartError::Other(format!("this machine: {error}")))?;
    let loaded = load(&options.config, &machine)?;
    for (plugin, origin) in loaded.setup.plugins.iter().zip(&loaded.plugin_origins) {
        if let PluginKind::Foreign(foreign) = &plugin.kind {
            files::check_trusted(Path::new(&foreign.module)).map_err(|error| {
                StartError::Configuration(format!("{origin}: plugin `{}`: {error}", plugin.name))
            })?;
        }
    }
    Ok(loaded)
}

/// A server that is ready to run, and where it listens.
pub struct Started {
    /// Call [`Server::run`].
    pub server: Server,
    /// What it took over.
    pub adoption: Adoption,
    /// Where lines go, at the level that was asked for.
    pub log: Log,
    /// For people.
    pub address: String,
}

/// Starts the daemon: signals, file, socket, state, plugins, what was left behind, and last giving
/// up rights.
pub fn start(options: &Options) -> Result<Started, StartError> {
    let other =
        |what: &'static str| move |error: io::Error| StartError::Other(format!("{what}: {error}"));
    // Before anything could start a thread.
    let signals =
        Signals::new(&[Signal::Term, Signal::Int, Signal::Hup]).map_err(other("signals"))?;
    let mut machine = Machine::probe().map_err(other("this machine"))?;
    let loaded = load(&options.config, &machine)?;
    let daemon = &loaded.daemon;
    let log = Log::new(options.log_level.unwrap_or(daemon.log_level));
    for warning in &loaded.warnings {
        log.warning(format_args!("{}:{}: {}", warning.origin, warning.line, warning.what));
    }
    let descriptors = rights::raise_descriptors();
    // A socket, a pidfd for its process; a pidfd for each thread; some for ourselves; and for
    // threads in the deadline class.
    let quota = &loaded.setup.quota;
    let wanted = u64::from(quota.sessions) * 2 + u64::from(quota.specs) + 64;
    let wanted = wanted + talea_os::thread::descriptors_kept(wanted);
    if descriptors < wanted {
        log.info(format_args!(
            "{descriptors} descriptors are allowed; quotas that are used to the full would take {wanted}"
        ));
    }
    let socket = options.socket.clone().unwrap_or_else(|| daemon.socket.clone().into());
    let directory =
        options.state_directory.clone().unwrap_or_else(|| daemon.state_directory.clone().into());
    make_directory(&directory)?;
    let (listeners, address) = listen(&socket, daemon)?;
    let state_path = directory.join(STATE_FILE);
    let state =
        Server::open_state(&state_path).map_err(|error| StartError::Other(error.to_string()))?;
    files::check_trusted(&state_path).map_err(|error| StartError::Other(error.to_string()))?;
    let debts =
        Server::keep_debts(&state_path).map_err(|error| StartError::Other(error.to_string()))?;
    // Before rights are given up, and before the broker is told what the machine is.
    let partitions = partitions::prepare(
        &loaded.setup,
        &mut machine,
        &state,
        &partitions::journal_of(&state_path),
        &log,
    );
    let made = partitions.as_ref().map_or(CpuSet::EMPTY, |partitions| *partitions.cpus());
    complain_about_domains(&loaded.setup, &machine, &made, &log);
    let has_hosts =
        loaded.setup.plugins.iter().any(|plugin| matches!(plugin.kind, PluginKind::Foreign(_)));
    let parts = Parts {
        setup: loaded.setup,
        reload: Some(reload(options.config.clone(), machine.clone(), log)),
        machine,
        state,
        debts,
        partitions,
        listeners,
        signals: Some(signals),
        host_program: None,
        log,
    };
    let (server, adoption) = Server::new(parts).map_err(StartError::Other)?;
    rights::drop_rights(has_hosts).map_err(other("giving up capabilities"))?;
    rights::complain(&log);
    Ok(Started { server, adoption, log, address })
}

/// Says which `edf` plugins can't serve on this machine: a client is only told that it is so.
fn complain_about_domains(setup: &Setup, machine: &Machine, made: &CpuSet, log: &Log) {
    let v1 = matches!(machine.cgroups.cpuset, Hierarchy::V1(_));
    let machine = crate::convert::machine(machine, made);
    for plugin in &setup.plugins {
        let PluginKind::Edf(options) = &plugin.kind else { continue };
        let alone =
            machine.partitionable.union(&machine.partitionable_opt_in).intersection(&plugin.cpus);
        let pinned = options.confine != Confine::Global && !alone.is_empty();
        let whole =
            options.confine != Confine::Partition && machine.root_domains.contains(&plugin.cpus);
        if !pinned && !whole {
            let domains: Vec<String> =
                machine.root_domains.iter().map(|cpus| format!("\"{cpus}\"")).collect();
            let or = if v1 {
                ", or `confine` = \"partition\""
            } else {
                ", or make each of them a partition root"
            };
            log.warning(format_args!(
                "plugin `{}` serves nobody: the kernel admits deadline threads to whole root domains, and its CPUs \
                 {} are none; give it `cpus` = {}{or}",
                plugin.name,
                plugin.cpus,
                domains.join(" or ")
            ));
        }
    }
}

/// Sockets of the service manager, else our own.
fn listen(socket: &Path, daemon: &DaemonSetup) -> Result<(Vec<Listener>, String), StartError> {
    let inherited = seqpacket::inherited_listeners().map_err(|error| {
        StartError::Other(format!("sockets of the service manager (LISTEN_FDS): {error}"))
    })?;
    if !inherited.is_empty() {
        return Ok((inherited, "sockets of the service manager".to_owned()));
    }
    if let Some(parent) = socket.parent() {
        make_directory(parent)?;
    }
    let access =
        Access { mode: daemon.socket_mode, uid: daemon.socket_owner, gid: daemon.socket_group };
    let listener = Listener::bind(socket, access, BACKLOG).map_err(|error| match error {
        seqpacket::BindError::InUse { .. } => StartError::Other(format!(
            "another talead is running: {error}; stop it with `talead stop`"
        )),
        error => StartError::Other(error.to_string()),
    })?;
    Ok((vec![listener], socket.display().to_string()))
}

/// A directory that everybody may enter and nobody else may write, if it is not there yet. One in
/// which others could put another socket, lock or state file in our place will not do.
fn make_directory(path: &Path) -> Result<(), StartError> {
    use std::os::unix::fs::DirBuilderExt;
    match std::fs::DirBuilder::new().mode(0o755).create(path) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(StartError::Other(format!("{}: {error}", path.display()))),
    }
    files::check_trusted_directory(path).map_err(|error| StartError::Other(error.to_string()))
}

/// Reads the file again on SIGHUP; what is wrong with it is logged, and the old one stays.
fn reload(path: PathBuf, machine: Machine, log: Log) -> Reload {
    Box::new(move || -> Option<Setup> {
        notify(&[sd_notify::NotifyState::Reloading, monotonic()?]);
        let loaded = load(&path, &machine);
        notify(&[sd_notify::NotifyState::Ready]);
        match loaded {
            Ok(loaded) => {
                for warning in &loaded.warnings {
                    log.warning(format_args!(
                        "{}:{}: {}",
                        warning.origin, warning.line, warning.what
                    ));
                }
                log.info(format_args!("{} was read again", path.display()));
                Some(loaded.setup)
            }
            Err(error) => {
                log.error("the new configuration was not taken, the old one stays:");
                error.to_string().lines().for_each(|line| log.error(line));
                mutate!("recovery-reload-refused", None, std::process::exit(2))
            }
        }
    })
}

fn monotonic() -> Option<sd_notify::NotifyState<'static>> {
    sd_notify::NotifyState::monotonic_usec_now().ok()
}

/// Tells the service manager, if there is one that wants to know.
pub fn notify(state: &[sd_notify::NotifyState]) {
    // A manager that does not listen is not our trouble.
    let _ = sd_notify::notify(state);
}
