//! Start of the daemon: from a configuration file to a running daemon, or to the reason for a
//! failure.
//!
//! Invariant: a daemon runs with its complete configuration or not at all, and never with a file
//! that another user could have written (R26).

use crate::event_loop::{Adoption, Daemon, Parts, Reload};
use crate::log::Log;
use crate::partitions;
use crate::rights;
use crate::service_manager::notify;
use crate::trail::TrailOptions;
use sd_notify::NotifyState;
use std::fmt;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use talea_config::diagnostic;
use talea_config::{self as config, DaemonSetup, Loaded, LogLevel, Names, Target};
use talea_core::CpuSet;
use talea_core::mutate;
use talea_core::setup::{Confine, PluginKind, Setup, SubordinateUsers};
use talea_os::seqpacket::{self, Access, Listener};
use talea_os::signals::{Signal, Signals};
use talea_os::sysinfo::{Hierarchy, SystemInfo};
use talea_os::{files, subuid, users};

/// Default path of the configuration. An installation elsewhere sets another path at build time.
pub const CONFIG_PATH: &str = match option_env!("TALEA_CONFIG") {
    Some(path) => path,
    None => "/etc/talea/talead.toml",
};
/// Name of the state file in the state directory.
pub const STATE_FILE: &str = "state";
/// Directory of the audit trail in a state directory of the command line.
pub const AUDIT_DIRECTORY: &str = "audit";
/// Maximum number of connections that wait to be accepted. The kernel serves them in order, so a
/// longer backlog delays the clients behind a user that connects endlessly.
const BACKLOG: u32 = 64;

/// Options of the command line; they override the file.
#[derive(Clone, Debug)]
pub struct Options {
    /// The configuration file.
    pub config: PathBuf,
    /// Socket, instead of the configured one.
    pub socket: Option<PathBuf>,
    /// State directory, instead of the configured one.
    pub state_directory: Option<PathBuf>,
    /// Log level, instead of the configured one.
    pub log_level: Option<LogLevel>,
}

impl Default for Options {
    fn default() -> Options {
        Options { config: CONFIG_PATH.into(), socket: None, state_directory: None, log_level: None }
    }
}

/// Reason why the daemon did not start.
#[derive(Debug)]
pub enum StartError {
    /// The configuration is unusable: every problem found, ready to be printed.
    Configuration(String),
    /// Any other reason; one line.
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

/// User and group database of this machine.
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
pub fn load(path: &Path, machine: &SystemInfo) -> Result<Loaded, StartError> {
    if matches!(path.try_exists(), Ok(false)) {
        let text = format!(
            "the configuration {} does not exist; Talea includes a sample, and `man talead.toml` describes every key",
            path.display()
        );
        return Err(StartError::Configuration(text));
    }
    let untrusted = |error: files::Untrusted| StartError::Configuration(error.to_string());
    let file = files::open_trusted(path).map_err(untrusted)?;
    let mut bytes = Vec::new();
    // One byte more than the maximum detects a file that is too long.
    file.take(config::FILE_MAX as u64 + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| StartError::Configuration(format!("{}: {error}", path.display())))?;
    let origin = path
        .file_name()
        .map_or_else(|| path.display().to_string(), |name| name.to_string_lossy().into());
    let target = Target::new(machine.online).with_present(machine.present);
    config::read_bytes(&bytes, &origin, &MachineNames, &target)
        .map_err(|found| StartError::Configuration(diagnostic::render(&found, false)))
}

/// Checks the configuration and the plugins' modules as [`start`] does, without side effects.
pub fn check(options: &Options) -> Result<Loaded, StartError> {
    let machine =
        SystemInfo::probe().map_err(|error| StartError::Other(format!("this machine: {error}")))?;
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

/// Daemon that is ready to run, with its address.
pub struct Started {
    /// Daemon; call [`Daemon::run`].
    pub server: Daemon,
    /// Grants adopted from an earlier daemon.
    pub adoption: Adoption,
    /// Log, at the configured level.
    pub log: Log,
    /// Address for the log.
    pub address: String,
}

/// Starts the daemon: signals, configuration, socket, state file, partitions, plugins, dropping of
/// capabilities, and adoption.
pub fn start(options: &Options) -> Result<Started, StartError> {
    let other =
        |what: &'static str| move |error: io::Error| StartError::Other(format!("{what}: {error}"));
    // Signals are blocked before the first thread can start.
    let signals =
        Signals::new(&[Signal::Term, Signal::Int, Signal::Hup]).map_err(other("signals"))?;
    let mut machine = SystemInfo::probe().map_err(other("this machine"))?;
    let mut loaded = load(&options.config, &machine)?;
    let daemon = &loaded.daemon;
    let log = Log::new(options.log_level.unwrap_or(daemon.log_level));
    for warning in &loaded.warnings {
        log.warning(format_args!("{}:{}: {}", warning.origin, warning.line, warning.what));
    }
    loaded.setup.subordinate_users = subordinate_users(&log);
    let descriptors = rights::raise_descriptors();
    let has_hosts =
        loaded.setup.plugins.iter().any(|plugin| matches!(plugin.kind, PluginKind::Foreign(_)));
    if has_hosts {
        talea_os::spawn::reserve_descriptors().map_err(other("descriptors"))?;
    }
    rights::raise_locked_memory();
    // Per connection: a socket and a pidfd of its process; per spec: a pidfd, a task clock and the
    // statistics of its thread. In addition: the daemon's own descriptors and those of threads in
    // the deadline class.
    let quota = &loaded.setup.quota;
    let wanted = u64::from(quota.sessions) * 2 + u64::from(quota.specs) * 3 + 64;
    let wanted = wanted + talea_os::thread::max_open_readers(wanted);
    if descriptors < wanted {
        log.info(format_args!(
            "the limit of {descriptors} descriptors is too low: fully used quotas need {wanted}"
        ));
    }
    let socket = options.socket.clone().unwrap_or_else(|| daemon.socket.clone().into());
    let directory =
        options.state_directory.clone().unwrap_or_else(|| daemon.state_directory.clone().into());
    make_directory(&directory)?;
    let trail = trail_options(options, daemon);
    let (listeners, address) = listen(&socket, daemon)?;
    let state_path = directory.join(STATE_FILE);
    let state =
        Daemon::open_state(&state_path).map_err(|error| StartError::Other(error.to_string()))?;
    files::check_trusted(&state_path).map_err(|error| StartError::Other(error.to_string()))?;
    let overruns =
        Daemon::open_overruns(&state_path).map_err(|error| StartError::Other(error.to_string()))?;
    // Partitions are made before the capabilities are dropped and before the broker reads the
    // platform.
    let partitions = partitions::prepare(
        &loaded.setup,
        &mut machine,
        &state,
        &partitions::journal_path(&state_path),
        &log,
    );
    let made = partitions.as_ref().map_or(CpuSet::EMPTY, |partitions| *partitions.cpus());
    warn_unservable_plugins(&loaded.setup, &machine, &made, &log);
    warn_offline_cpus(&loaded.setup, &machine, &log);
    let parts = Parts {
        setup: loaded.setup,
        reload: Some(reload(options.config.clone(), machine.clone(), log)),
        machine,
        state,
        overruns,
        partitions,
        listeners,
        signals: Some(signals),
        host_program: None,
        is_service: true,
        trail,
        log,
    };
    let (server, adoption) = Daemon::new(parts).map_err(StartError::Other)?;
    rights::warn_missing(&log);
    Ok(Started { server, adoption, log, address })
}

/// Returns the place of the audit trail; `None` if the configuration has none.
fn trail_options(options: &Options, daemon: &DaemonSetup) -> Option<TrailOptions> {
    let max_bytes = u64::from(daemon.audit_mib) << 20;
    let directory = match &options.state_directory {
        Some(state) => state.join(AUDIT_DIRECTORY),
        None => daemon.audit_directory.clone().into(),
    };
    (max_bytes > 0).then_some(TrailOptions { directory, max_bytes })
}

/// Reads the subordinate users of this machine. Without them each of these users is a subject of
/// its own, so an error does not prevent the start.
fn subordinate_users(log: &Log) -> Vec<SubordinateUsers> {
    subuid::read(Path::new(subuid::PATH)).unwrap_or_else(|error| {
        log.warning(format_args!("subordinate users are not known: {error}"));
        Vec::new()
    })
}

/// Logs the plugins of the deadline class that cannot serve on this machine. A client receives only
/// the rejection, without the cause.
fn warn_unservable_plugins(setup: &Setup, machine: &SystemInfo, made: &CpuSet, log: &Log) {
    let v1 = matches!(machine.cgroups.cpuset, Hierarchy::V1(_));
    let machine = crate::convert::platform(machine, made);
    for plugin in &setup.plugins {
        let Some(confine) = plugin.kind.confine() else { continue };
        let alone =
            machine.partitionable.union(&machine.partitionable_opt_in).intersection(&plugin.cpus);
        let pinned = confine != Confine::Global && !alone.is_empty();
        let whole = confine != Confine::Partition && machine.root_domains.contains(&plugin.cpus);
        if !pinned && !whole {
            let domains: Vec<String> =
                machine.root_domains.iter().map(|cpus| format!("\"{cpus}\"")).collect();
            let or = if v1 {
                ", or `confine` = \"partition\""
            } else {
                ", or make each of them a partition root"
            };
            log.warning(format_args!(
                "plugin `{}` rejects every task: the kernel admits deadline threads only to whole root domains, and its \
                 CPUs {} are not a root domain; set `cpus` = {}{or}",
                plugin.name,
                plugin.cpus,
                domains.join(" or ")
            ));
        }
    }
}

/// Logs the plugins that name CPUs that are off-line.
fn warn_offline_cpus(setup: &Setup, machine: &SystemInfo, log: &Log) {
    for plugin in &setup.plugins {
        let offline = plugin.cpus.difference(&machine.online);
        if !offline.is_empty() {
            log.warning(format_args!(
                "plugin `{}`: CPUs {offline} are off-line; it places nothing there until they are back",
                plugin.name
            ));
        }
    }
}

/// Returns the sockets of the service manager, or else the daemon's own.
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

/// Creates a directory that all users may enter and only its owner may write, if it does not exist.
/// A directory in which other users could replace the socket, lock or state file is refused.
fn make_directory(path: &Path) -> Result<(), StartError> {
    use std::os::unix::fs::DirBuilderExt;
    match std::fs::DirBuilder::new().mode(0o755).create(path) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(StartError::Other(format!("{}: {error}", path.display()))),
    }
    files::check_trusted_directory(path).map_err(|error| StartError::Other(error.to_string()))
}

/// Returns the function that reads the configuration again on SIGHUP. Errors are logged, and the
/// old configuration stays in force. The event loop reports the end of a successful reload.
fn reload(path: PathBuf, machine: SystemInfo, log: Log) -> Reload {
    Box::new(move || -> Option<Setup> {
        notify(&[NotifyState::Reloading, NotifyState::monotonic_usec_now().ok()?]);
        match load(&path, &machine) {
            Ok(mut loaded) => {
                for warning in &loaded.warnings {
                    log.warning(format_args!(
                        "{}:{}: {}",
                        warning.origin, warning.line, warning.what
                    ));
                }
                loaded.setup.subordinate_users = subordinate_users(&log);
                Some(loaded.setup)
            }
            Err(error) => {
                log.error("the new configuration is invalid, the old one stays in force:");
                error.to_string().lines().for_each(|line| log.error(line));
                notify(&[NotifyState::Ready]);
                mutate!("recovery-reload-refused", None, std::process::exit(2))
            }
        }
    })
}
