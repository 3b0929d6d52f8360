//! Private daemon for the demonstration: one plugin on one CPU, one rule for one user.

use super::tempdir::{DEMO_USER, TempDir};
use crate::grant_text;
use anyhow::{Context, bail};
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use talea_client::{Client, SpecInfo};

/// Time limit for the start and for the stop of the daemon.
const TIME_LIMIT: Duration = Duration::from_secs(10);
/// Share of the CPU that one user may reserve, in percent.
pub(super) const SHARE_PERCENT: u32 = 50;

/// Running daemon. When it is dropped, the daemon restores all threads and stops.
pub(super) struct Daemon {
    child: Child,
    program: PathBuf,
    socket: PathBuf,
}

impl Daemon {
    /// Starts a daemon that serves `cpu`, and waits until it accepts connections.
    pub(super) fn start(tempdir: &TempDir, cpu: u32) -> anyhow::Result<Daemon> {
        let config = tempdir.path("talead.toml");
        let socket = tempdir.path("run/talea.sock");
        fs::write(&config, configuration(tempdir, cpu))?;
        let log = tempdir.path("talead.log");
        let child = Command::new(tempdir.path("talead"))
            .arg("--config")
            .arg(&config)
            .env_remove("NOTIFY_SOCKET")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&log)?)
            .spawn()
            .context("talead cannot be started")?;
        let mut daemon = Daemon { child, program: tempdir.path("talead"), socket };
        let start = Instant::now();
        loop {
            if daemon.client().is_ok() {
                return Ok(daemon);
            }
            if daemon.child.try_wait()?.is_some() || start.elapsed() > TIME_LIMIT {
                bail!(
                    "talead did not come up:\n{}",
                    fs::read_to_string(&log).unwrap_or_default().trim_end()
                );
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Returns the path of the daemon's socket.
    pub(super) fn socket(&self) -> &std::path::Path {
        &self.socket
    }

    /// Returns the grant of a thread.
    pub(super) fn grant_of(&self, tid: u32) -> anyhow::Result<Option<SpecInfo>> {
        let specs = self
            .client()?
            .list()?
            .map_err(|refusal| anyhow::anyhow!("{}", grant_text::refusal(&refusal)))?;
        Ok(specs.into_iter().find(|spec| spec.tid == Some(tid)))
    }

    fn client(&self) -> Result<Client, talea_client::Failure> {
        Client::builder().path(&self.socket).connect()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let mut stop = Command::new(&self.program);
        stop.args(["stop", "--release", "--socket"]).arg(&self.socket).stdin(Stdio::null());
        let asked = stop.status().is_ok_and(|status| status.success());
        let start = Instant::now();
        while asked && start.elapsed() < TIME_LIMIT {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        talea_study::output::note("the private talead did not stop when asked; killing it");
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn configuration(tempdir: &TempDir, cpu: u32) -> String {
    let run = tempdir.path("run");
    format!(
        "[daemon]\nsocket = \"{0}/talea.sock\"\nstate_directory = \"{0}\"\naudit_mib = 0\n\n\
         [[plugin]]\nname = \"rm\"\nkind = \"rm\"\ncpus = \"{cpu}\"\npriorities = \"50-79\"\n\n\
         [[rule]]\ndomain = \"#{DEMO_USER}\"\nplugin = \"rm\"\nmax_utilization = 0.{SHARE_PERCENT}\n\
         max_runtime = \"5ms\"\nmin_period = \"10ms\"\n",
        run.display()
    )
}
