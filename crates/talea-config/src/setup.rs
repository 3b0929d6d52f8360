//! Settings of the daemon process itself; all other settings are in `talea_core::setup`.

use talea_core::setup::Setup;

/// Settings of the daemon process: its socket, its state, its log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DaemonSetup {
    /// Path of the socket that clients connect to: absolute, at most [`SOCKET_PATH_MAX`] bytes.
    pub socket: String,
    /// Permission bits of the socket, at most 0o777.
    pub socket_mode: u32,
    /// User id of the socket; `None` keeps the daemon's own.
    pub socket_owner: Option<u32>,
    /// Group id of the socket; `None` keeps the daemon's own.
    pub socket_group: Option<u32>,
    /// Directory of the state file, an absolute path.
    pub state_directory: String,
    /// Directory of the audit trail, an absolute path.
    pub audit_directory: String,
    /// Maximum size of the audit trail in MiB; 0 for none.
    pub audit_mib: u32,
    /// Least important level that the daemon logs.
    pub log_level: LogLevel,
}

/// Maximum length of a socket path: the size of `sockaddr_un`'s path less its terminator.
pub const SOCKET_PATH_MAX: usize = 107;

impl Default for DaemonSetup {
    fn default() -> DaemonSetup {
        DaemonSetup {
            socket: "/run/talea/talea.sock".to_owned(),
            socket_mode: 0o666,
            socket_owner: None,
            socket_group: None,
            state_directory: "/run/talea".to_owned(),
            audit_directory: "/var/log/talea".to_owned(),
            audit_mib: 64,
            log_level: LogLevel::Info,
        }
    }
}

/// Importance of a log message. Each level includes the levels before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    /// Failures.
    Error,
    /// Conditions that an administrator should check.
    Warning,
    /// Start, stop and first refusals.
    #[default]
    Info,
    /// All messages.
    Debug,
}

impl LogLevel {
    /// All levels with their words in files.
    pub const WORDS: [(&'static str, LogLevel); 4] = [
        ("error", LogLevel::Error),
        ("warning", LogLevel::Warning),
        ("info", LogLevel::Info),
        ("debug", LogLevel::Debug),
    ];
}

/// Contents of a valid configuration file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loaded {
    /// Settings of the daemon process.
    pub daemon: DaemonSetup,
    /// Settings of the broker.
    pub setup: Setup,
    /// `plugin_origins[n]`: position of `setup.plugins[n]` in the file, such as `talead.toml:12`.
    pub plugin_origins: Vec<String>,
    /// Warnings for the administrator.
    pub warnings: Vec<crate::Diagnostic>,
}
