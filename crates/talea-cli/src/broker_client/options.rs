//! Options of the command line that say which broker decides, and the daemon's configuration.

use anyhow::bail;
use std::path::{Path, PathBuf};
use talea_config::{DaemonSetup, Loaded};
use talea_daemon::start::{CONFIG_PATH, StartError, load};
use talea_os::sysinfo::SystemInfo;
use talea_proto::SOCKET_ENV;
use talea_study::exit::usage;

/// Options for finding a broker.
#[derive(Debug)]
pub(crate) struct Options {
    /// Path of the daemon's socket, if the user named one.
    pub(crate) socket: Option<PathBuf>,
    /// Path of the daemon's configuration, if the user named one.
    pub(crate) config: Option<PathBuf>,
    /// Whether to print details.
    pub(crate) verbose: bool,
}

impl Options {
    /// Returns the socket that an option or the environment names.
    pub(crate) fn named_socket(&self) -> Option<PathBuf> {
        let from_environment =
            || std::env::var_os(SOCKET_ENV).filter(|value| !value.is_empty()).map(PathBuf::from);
        self.socket.clone().or_else(from_environment)
    }

    /// Returns the path of the configuration.
    pub(crate) fn config_path(&self) -> &Path {
        self.config.as_deref().unwrap_or(Path::new(CONFIG_PATH))
    }

    /// Loads the configuration. Returns `None` if there is no file and the user named none.
    pub(crate) fn load(&self, machine: &SystemInfo) -> anyhow::Result<Option<Loaded>> {
        let path = self.config_path();
        if self.config.is_none() && !path.exists() {
            return Ok(None);
        }
        match load(path, machine) {
            Ok(loaded) => Ok(Some(loaded)),
            Err(StartError::Configuration(text) | StartError::Other(text)) => {
                let why = format!(
                    "the configuration cannot be used; talea check {} shows why:\n{}",
                    path.display(),
                    text.trim_end()
                );
                // A named file is required.
                if self.config.is_some() { Err(usage(why)) } else { bail!("{why}") }
            }
        }
    }

    /// Returns the daemon's part of the configuration, or the defaults. Fails only if the user
    /// named a file.
    pub(crate) fn daemon_setup(&self) -> anyhow::Result<DaemonSetup> {
        let loaded = match (SystemInfo::probe(), &self.config) {
            (Ok(machine), Some(_)) => self.load(&machine)?,
            (Ok(machine), None) => self.load(&machine).ok().flatten(),
            (Err(_), _) => None,
        };
        Ok(loaded.map_or_else(DaemonSetup::default, |loaded| loaded.daemon))
    }
}
