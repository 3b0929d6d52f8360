//! Connection to `talea-deployd`.

use crate::broker_client::Unreachable;
use anyhow::{Context, bail};
use std::io::{self, ErrorKind};
use std::path::PathBuf;
use std::time::Duration;
use talea_deploy::Generation;
use talea_deploy::text::frames::{Assembly, MAX_PACKET, packets};
use talea_deploy::text::message::{Answer, Ask, StatusText};
use talea_os::seqpacket;
use talea_study::exit::not_executable;
use talea_study::output::note;

/// Time within which the daemon answers. It answers an apply after the generation is stored.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Daemon that keeps the deployment.
#[derive(clap::Args, Debug)]
pub(crate) struct DaemonArgs {
    /// Runtime directory of the daemon talea-deployd.
    #[arg(long, value_name = "DIR", default_value = "/run/talea-deploy")]
    runtime: PathBuf,
}

impl DaemonArgs {
    /// Requests something and waits for the answer.
    ///
    /// # Errors
    /// If no daemon answers, or if it refuses the request.
    pub(super) fn ask(&self, ask: &Ask) -> anyhow::Result<Answer> {
        match self.try_ask(ask) {
            Ok(Answer::Refused(why)) => Err(not_executable(why)),
            Ok(answer) => Ok(answer),
            Err(error) => match error.downcast_ref::<io::Error>() {
                Some(error) => Err(self.unreachable(error).into()),
                None => Err(error),
            },
        }
    }

    /// Requests a change. Returns the number of the generation in force afterwards.
    pub(super) fn change(&self, ask: &Ask) -> anyhow::Result<Option<u64>> {
        match self.ask(ask)? {
            Answer::Done(in_force) => Ok(in_force),
            other => bail!("talea-deployd answers {other:?}"),
        }
    }

    /// Returns the status.
    pub(crate) fn status(&self) -> anyhow::Result<StatusText> {
        match self.ask(&Ask::Status)? {
            Answer::Status(status) => Ok(status),
            other => bail!("talea-deployd answers {other:?}"),
        }
    }

    /// Returns the generation in force.
    pub(crate) fn in_force(&self) -> anyhow::Result<Option<Generation>> {
        match self.ask(&Ask::InForce)? {
            Answer::InForce(generation) => Ok(generation),
            other => bail!("talea-deployd answers {other:?}"),
        }
    }

    /// Variant of [`DaemonArgs::in_force`] without an error if no daemon runs: then no generation
    /// is kept in force. Another user than root does not learn the generation.
    pub(super) fn in_force_if_known(&self) -> anyhow::Result<Option<Generation>> {
        match self.try_ask(&Ask::InForce) {
            Ok(Answer::InForce(generation)) => Ok(generation),
            Ok(other) => bail!("talea-deployd answers {other:?}"),
            Err(error) => match error.downcast_ref::<io::Error>().map(io::Error::kind) {
                Some(ErrorKind::NotFound | ErrorKind::ConnectionRefused) => Ok(None),
                Some(ErrorKind::PermissionDenied) => {
                    note("only root learns the generation in force: compared with none");
                    Ok(None)
                }
                _ => Err(error),
            },
        }
    }

    /// Returns the directory of the statistics of governors.
    pub(crate) fn statistics(&self) -> PathBuf {
        self.runtime.join("systems")
    }

    fn socket(&self) -> PathBuf {
        self.runtime.join("socket")
    }

    /// Requests something and waits for the answer, also for a refusal. An error of the connection
    /// is an [`io::Error`].
    fn try_ask(&self, ask: &Ask) -> anyhow::Result<Answer> {
        let socket = seqpacket::connect(&self.socket(), TIMEOUT)?;
        for packet in packets(&ask.to_text()) {
            seqpacket::send_waiting(&socket, &packet, None)?;
        }
        let (mut assembly, mut packet) = (Assembly::default(), vec![0; MAX_PACKET]);
        loop {
            let received = seqpacket::recv_waiting(&socket, &mut packet)?;
            if received.len == 0 {
                bail!(io::Error::from(ErrorKind::ConnectionReset));
            }
            let pushed = assembly.push(&packet[..received.len]);
            let Ok(message) = pushed else { bail!("the answer of talea-deployd is malformed") };
            if let Some(message) = message {
                return Answer::from_text(&message)
                    .context("the answer of talea-deployd is not understood");
            }
        }
    }

    fn unreachable(&self, error: &io::Error) -> Unreachable {
        let socket = self.socket();
        let socket = socket.display();
        Unreachable(match error.kind() {
            ErrorKind::NotFound | ErrorKind::ConnectionRefused => format!(
                "no talea-deployd serves at {socket}; start it as root: systemctl start \
                 talea-deploy, or talea-deployd"
            ),
            ErrorKind::PermissionDenied => {
                format!("{socket}: {error}; only root changes or reads a deployment")
            }
            ErrorKind::TimedOut => {
                format!("talea-deployd at {socket} does not answer; look at its journal")
            }
            _ => format!("{socket}: {error}; look at the journal of talea-deploy"),
        })
    }
}
