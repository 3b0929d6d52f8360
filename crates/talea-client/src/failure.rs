//! Results of requests: failures between a client and its daemon, and refusals, which are no
//! failures.

use std::io;
use std::path::PathBuf;
use std::time::Duration;
use talea_proto::{Code, Field, Refusal};

/// Result of a request. The outer result says whether communication failed, and the inner result is
/// the daemon's answer.
pub type Outcome<T> = Result<Result<T, Refusal>, Failure>;

/// Failed communication with the daemon.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The environment switches Talea off.
    #[error("Talea is switched off by TALEA_DISABLE in the environment")]
    Disabled,
    /// The daemon cannot be reached, or the connection broke during the call.
    #[error("no connection to talead at {}: {doing}: {source}; start the daemon, or name another socket in TALEA_SOCKET", path.display())]
    Connection {
        /// Path of the daemon's socket.
        path: PathBuf,
        /// Step that failed.
        doing: &'static str,
        /// Error of the kernel.
        source: io::Error,
    },
    /// The daemon did not answer in time. The request may still take effect.
    #[error("talead at {} did not answer within {after:?}", path.display())]
    TimedOut {
        /// Path of the daemon's socket.
        path: PathBuf,
        /// Time limit of the call.
        after: Duration,
    },
    /// The daemon rejected this connection, because of its version, a quota, or the daemon's end.
    #[error("talead refused the connection: {0}")]
    Rejected(Box<Refusal>),
    /// The daemon's answer is invalid.
    #[error("talead's answer can't be understood: {0}")]
    Protocol(String),
    /// The kernel refused a call in this process.
    #[error("{doing}: {source}")]
    Os {
        /// Step that failed.
        doing: &'static str,
        /// Error of the kernel.
        source: io::Error,
    },
}

impl Failure {
    /// Returns the closest POSIX error number, for callers without a better one.
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

/// Creates a refusal that needs no daemon.
pub(crate) fn refused_locally(code: Code, field: Field) -> Refusal {
    Refusal { code, field, asked: 0, limit: 0, errno: 0, index: 0, rule: None, answers: Vec::new() }
}
