//! Measured daemon: `talead` itself, or this program with the code of `talead` and with CPUs that
//! are only declared.

use super::placement;
use super::tasks::Kind;
use anyhow::{Context, bail};
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use talea_client::Client;
use talea_config::LogLevel;
use talea_core::CpuSet;
use talea_daemon::log::Log;
use talea_daemon::{Daemon, Parts, start};
use talea_os::Tid;
use talea_os::seqpacket::{Access, Listener};
use talea_os::signals::{Signal, Signals};
use talea_os::sysinfo::{Domain, SystemInfo};
use talea_study::exit::Exit;

/// Time limit for the start and for the stop of the daemon.
const PATIENCE: Duration = Duration::from_secs(10);

/// Kernel priorities that each plugin may use.
const BAND: (u64, u64) = (10, 80);
/// Number of kernel priorities that each plugin may use.
pub(super) const LEVELS: u64 = BAND.1 - BAND.0 + 1;

/// Configuration of a measured daemon.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    /// Plugin that serves the requests.
    pub(super) kind: Kind,
    /// Total number of plugin instances. The last instance serves the requests.
    pub(super) instances: u32,
    /// Number of declared CPUs. `None` stands for the CPUs of this computer.
    pub(super) declared: Option<u32>,
}

/// Running daemon with its own directory.
pub(super) struct LabServer {
    child: Child,
    dir: PathBuf,
}

impl LabServer {
    /// Starts a daemon on `cpu`, at the client's priority.
    pub(super) fn start(shape: Shape, cpu: u32) -> anyhow::Result<LabServer> {
        let dir = scratch()?;
        let config = dir.join("talead.toml");
        fs::write(&config, configuration(&dir, shape))?;
        let mut command = match shape.declared {
            None => Command::new(beside("talead")?),
            Some(cpus) => {
                let mut command = Command::new(std::env::current_exe()?);
                command.args(["serve", "--cpus", &cpus.to_string()]);
                command
            }
        };
        command
            .arg("--config")
            .arg(&config)
            .env_remove("NOTIFY_SOCKET")
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        command.stderr(fs::File::create(dir.join("log"))?);
        let child = command.spawn().context("the daemon cannot be started")?;
        let mut server = LabServer { child, dir };
        server.wait()?;
        placement::pin_with_priority(server.tid()?, cpu)?;
        Ok(server)
    }

    fn wait(&mut self) -> anyhow::Result<()> {
        let start = Instant::now();
        loop {
            if self.client().is_ok() {
                return Ok(());
            }
            if self.child.try_wait()?.is_some() || start.elapsed() > PATIENCE {
                let log = fs::read_to_string(self.dir.join("log")).unwrap_or_default();
                bail!("the daemon did not come up:\n{}", log.trim_end());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Opens a connection.
    pub(super) fn client(&self) -> Result<Client, talea_client::Failure> {
        Client::builder().path(self.dir.join("talea.sock")).connect()
    }

    /// Returns the memory that belongs to the daemon alone, in bytes.
    pub(super) fn memory(&self) -> anyhow::Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line =
            status.lines().find_map(|line| line.strip_prefix("RssAnon:")).context("no RssAnon")?;
        let kib: u64 =
            line.trim().trim_end_matches(" kB").parse().context("RssAnon is no number")?;
        Ok(kib * 1024)
    }

    /// Returns the size of the state file, in bytes.
    pub(super) fn mirrored(&self) -> anyhow::Result<u64> {
        Ok(fs::metadata(self.dir.join(start::STATE_FILE))?.len())
    }

    fn tid(&self) -> anyhow::Result<Tid> {
        Tid::new(self.child.id() as i32).context("a process without a number")
    }
}

impl Drop for LabServer {
    fn drop(&mut self) {
        // A stop with release restores attached threads. A daemon that has ended needs no stop.
        if let Ok(client) = self.client() {
            drop(client.stop(true));
        }
        let start = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) && start.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(2));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// Returns the path of another program of the workspace, which is beside this one.
pub(super) fn beside(name: &str) -> anyhow::Result<PathBuf> {
    let exe = std::env::current_exe()?;
    let bin = exe.parent().context("this program lies nowhere")?;
    let places = [bin.join(name), bin.join("../sbin").join(name)];
    let found = places.iter().find(|place| place.is_file()).cloned();
    found.with_context(|| {
        format!("{name} is not beside this program; build it: cargo build --release")
    })
}

/// Creates a directory in memory, like the runtime directory. On a disk, the daemon's writes would
/// be measured, too.
fn scratch() -> anyhow::Result<PathBuf> {
    use std::os::unix::fs::DirBuilderExt;
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let name = format!("talea-lab-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let shm = Path::new("/dev/shm");
    let dir = if shm.is_dir() { shm.join(name) } else { std::env::temp_dir().join(name) };
    fs::DirBuilder::new()
        .mode(0o700)
        .create(&dir)
        .with_context(|| format!("cannot create {}", dir.display()))?;
    Ok(dir)
}

fn configuration(dir: &Path, shape: Shape) -> String {
    let mut text = format!(
        "[daemon]\nsocket = \"{0}/talea.sock\"\nstate_directory = \"{0}\"\nlog_level = \"error\"\n\n[daemon.quota]\n\
         sessions_per_user = 4096\nsessions = 4096\nspecs_per_user = 65536\nspecs = 65536\n\
         requests_per_second = 1000000\nburst = 1000000\n",
        dir.display()
    );
    for instance in 1..=shape.instances {
        let kind = if instance == shape.instances { shape.kind } else { shape.kind.other() };
        let _ = write!(
            text,
            "\n[[plugin]]\nname = \"p{instance}\"\nkind = \"{}\"\ncpus = \"all\"\n",
            kind.name()
        );
        if kind != Kind::Edf {
            let _ = writeln!(text, "priorities = \"{}-{}\"", BAND.0, BAND.1);
        }
    }
    text
}

/// Options of the hidden server.
#[derive(clap::Args, Debug)]
pub(crate) struct ServeArgs {
    #[arg(long)]
    config: PathBuf,
    /// How many CPUs the machine shall have.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1024))]
    cpus: u32,
}

/// Runs the daemon with declared CPUs, each of which is a domain of its own. No thread can be
/// attached.
pub(super) fn serve(args: &ServeArgs) -> anyhow::Result<Exit> {
    let signals = Signals::new(&[Signal::Term, Signal::Int])?;
    let mut machine = SystemInfo::probe()?;
    machine.online = CpuSet::first(args.cpus);
    machine.present = machine.online;
    machine.domains =
        (0..args.cpus).map(|cpu| Domain { cpus: CpuSet::single(cpu), balanced: true }).collect();
    let loaded = start::load(&args.config, &machine)?;
    let dir = PathBuf::from(&loaded.daemon.state_directory);
    let access = Access { mode: 0o600, uid: None, gid: None };
    let listener = Listener::bind(Path::new(&loaded.daemon.socket), access, 128)?;
    let state = dir.join(start::STATE_FILE);
    let parts = Parts {
        partitions: None,
        setup: loaded.setup,
        machine,
        state: Daemon::open_state(&state)?,
        overruns: Daemon::open_overruns(&state)?,
        listeners: vec![listener],
        signals: Some(signals),
        reload: None,
        is_service: false,
        trail: None,
        host_program: None,
        log: Log::new(LogLevel::Error),
    };
    let (mut server, _) = Daemon::new(parts).map_err(anyhow::Error::msg)?;
    server.run()?;
    Ok(Exit::Ok)
}
