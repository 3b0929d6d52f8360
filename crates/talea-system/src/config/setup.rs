//! Settings of the daemon process itself; all other settings are in `talea_core::setup`.

use talea_core::setup::Setup;

/// Settings of the daemon process: its socket, its state, its log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DaemonSetup {
    /// Path of the socket that clients connect to: absolute, at most [`SOCKET_PATH_MAX`] bytes.
    pub socket: String,
    /// Permission bits of the socket, at most 0o777.
    pub socket_mode: u32,
    /// User id of the socket; `None` leaves the daemon's own.
    pub socket_owner: Option<u32>,
    /// Group id of the socket; `None` leaves the daemon's own.
    pub socket_group: Option<u32>,
    /// Directory of the state file, an absolute path.
    pub state_directory: String,
    /// The least important messages that are logged.
    pub log_level: LogLevel,
}

/// Longest socket path: what fits in `sockaddr_un` with its terminator.
pub const SOCKET_PATH_MAX: usize = 107;

impl Default for DaemonSetup {
    fn default() -> DaemonSetup {
        DaemonSetup {
            socket: "/run/talea/talea.sock".to_owned(),
            socket_mode: 0o666,
            socket_owner: None,
            socket_group: None,
            state_directory: "/run/talea".to_owned(),
            log_level: LogLevel::Info,
        }
    }
}

/// How important a message must be to be logged; each includes those before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    /// Something failed.
    Error,
    /// Something is doubtful.
    Warning,
    /// Start, stop, first refusals.
    #[default]
    Info,
    /// Everything.
    Debug,
}

impl LogLevel {
    /// All of them with the words that files use.
    pub const WORDS: [(&'static str, LogLevel); 4] = [
        ("error", LogLevel::Error),
        ("warning", LogLevel::Warning),
        ("info", LogLevel::Info),
        ("debug", LogLevel::Debug),
    ];
}

/// A file that can be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loaded {
    /// Settings of the daemon process.
    pub daemon: DaemonSetup,
    /// Settings of the broker.
    pub setup: Setup,
    /// `plugin_origins[n]`: the place of `setup.plugins[n]` in the file, such as `talead.toml:12`.
    pub plugin_origins: Vec<String>,
    /// Warnings for the administrator.
    pub warnings: Vec<crate::Diagnostic>,
}
