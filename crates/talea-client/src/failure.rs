//! What can break between a client and its daemon. Being refused is not among it.

use std::io;
use std::path::PathBuf;
use std::time::Duration;
use talea_proto::Refusal;

/// Outer: the machinery broke. Inner: the daemon's answer.
pub type Outcome<T> = Result<Result<T, Refusal>, Failure>;

/// The machinery broke.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The environment switches Talea off.
    #[error("Talea is switched off by TALEA_DISABLE in the environment")]
    Disabled,
    /// The daemon can't be reached, or the connection broke during the call.
    #[error("no connection to talead at {}: {doing}: {source}; is the daemon running? (TALEA_SOCKET names another socket)", path.display())]
    Connection {
        /// The daemon's socket.
        path: PathBuf,
        /// What was tried.
        doing: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
    /// The daemon did not answer in time. What was asked may still come to pass.
    #[error("talead at {} did not answer within {after:?}", path.display())]
    TimedOut {
        /// The daemon's socket.
        path: PathBuf,
        /// How long it was waited for.
        after: Duration,
    },
    /// The daemon does not want this connection: its version, a quota, its end.
    #[error("talead refused the connection: {0}")]
    Rejected(Box<Refusal>),
    /// The daemon's answer makes no sense.
    #[error("talead's answer can't be understood: {0}")]
    Protocol(String),
    /// The kernel refused something on this side.
    #[error("{doing}: {source}")]
    Os {
        /// What was tried.
        doing: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
}

impl Failure {
    /// A POSIX error number that comes closest, for callers that have nothing better.
    pub fn errno(&self) -> i32 {
        use rustix::io::Errno;
        let errno = match self {
            Failure::Disabled => Errno::OPNOTSUPP,
            Failure::Connection { source, .. } | Failure::Os { source, .. } => {
                Errno::from_io_error(source).unwrap_or(Errno::IO)
            }
            Failure::TimedOut { .. } => Errno::TIMEDOUT,
            Failure::Rejected(_) => Errno::CONNREFUSED,
            Failure::Protocol(_) => Errno::PROTO,
        };
        errno.raw_os_error()
    }
}
