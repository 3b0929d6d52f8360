//! The three runs, one after another, and the check that they leave nothing behind.

use super::build::Programs;
use super::daemon::{Daemon, SHARE_PERCENT};
use super::evaluate::Verdict;
use super::job::{self, Block, Job, Size};
use super::load::Load;
use super::tempdir::{DEMO_USER, TempDir};
use crate::{grant_text, kernel};
use anyhow::{Context, bail};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use talea_core::{CpuSet, Monotonic, Policy, Span};
use talea_exec::Stall;
use talea_exec::stalls::{Monitor, ProbeConfig};
use talea_os::{Tid, sched};
use talea_study::output;

/// Priority of the monitor on the job's CPU: above the band of each plugin, below the kernel's own
/// watchdogs. `SCHED_DEADLINE` threads preempt the monitor, so the job must not have that policy.
const MONITOR_PRIORITY: u8 = 98;
/// Configuration of the monitor's probes.
///
/// A hypervisor may take a virtual CPU away repeatedly, each time for less than the probe period.
/// The monitor detects only a part of that, and the CPU time of the job shows the rest. An ordinary
/// wake-up was measured to be 15 to 60 µs late. The probes cost 2 to 3 % of the CPU, equally in all
/// runs.
const PROBES: ProbeConfig =
    ProbeConfig { period: Span::from_ns(250_000), latency: Span::from_ns(100_000) };

/// Options of the demonstration.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub(super) seconds: u32,
    pub(super) cpu: Option<u32>,
    pub(super) load: u32,
}

/// Way in which the job declares its demand to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Variant {
    Today,
    Library,
    Command,
}

impl Variant {
    const ALL: [Variant; 3] = [Variant::Today, Variant::Library, Variant::Command];

    /// Returns the title of the variant for the report.
    pub(super) fn title(self) -> &'static str {
        match self {
            Variant::Today => "as it is today",
            Variant::Library => "with libtalea",
            Variant::Command => "unmodified, by talea run",
        }
    }

    /// Returns the name of the variant for JSON and files.
    pub(super) fn name(self) -> &'static str {
        match self {
            Variant::Today => "today",
            Variant::Library => "libtalea",
            Variant::Command => "talea-run",
        }
    }
}

/// One run of the job.
pub(super) struct Run {
    pub(super) variant: Variant,
    /// Measurements of the run, or the reason why there are none.
    pub(super) measurement: Result<RunMeasurement, String>,
}

/// Measurements of one run.
pub(super) struct RunMeasurement {
    pub(super) blocks: Vec<Block>,
    pub(super) verdict: Verdict,
    /// Policy of the job's thread half-way through the run, from the kernel.
    pub(super) policy: String,
    /// Grant of the job's thread half-way through the run, from the daemon.
    pub(super) grant: Option<String>,
    /// Stalls that the monitor detected. `None` without the right to monitor.
    pub(super) stalls: Option<Vec<Stall<Monotonic>>>,
    checksum: String,
}

/// Results of all runs.
pub(super) struct Outcome {
    pub(super) cpu: u32,
    pub(super) load: u32,
    pub(super) size: Size,
    /// User id of the job, if it differs from the caller's.
    pub(super) user: Option<u32>,
    pub(super) runs: Vec<Run>,
    /// Rights that the caller lacks.
    pub(super) missing: Option<String>,
    /// Changes that the demonstration left behind.
    pub(super) left: Vec<String>,
}

impl Outcome {
    /// Whether all possible variants ran and computed the same sound, and the demonstration left
    /// nothing behind.
    pub(super) fn is_complete(&self) -> bool {
        let shown = self.runs.iter().all(|run| run.measurement.is_ok() || self.missing.is_some());
        shown && self.left.is_empty() && self.same_sound()
    }

    /// Whether all runs computed the same sound.
    pub(super) fn same_sound(&self) -> bool {
        let mut sums = self
            .runs
            .iter()
            .filter_map(|run| run.measurement.as_ref().ok())
            .map(|measurement| &measurement.checksum);
        let first = sums.next();
        sums.all(|sum| Some(sum) == first)
    }

    /// Explains in one line why the job was admitted.
    pub(super) fn why(&self) -> Option<String> {
        let user = self.user?;
        Some(format!(
            "rm serves what declares a period; 4ms every 10ms passes its test on an empty CPU, and the rule for \
             user {user} allows {SHARE_PERCENT}% of a CPU"
        ))
    }
}

/// Runs the job in all variants.
pub(super) fn run(programs: &Programs, plan: Plan) -> anyhow::Result<Outcome> {
    let cpu = choose_cpu(plan.cpu)?;
    let user = rustix::process::geteuid().is_root().then_some(DEMO_USER);
    let before = RtLimits::read();
    if let Some(user) = user
        && !processes_of(user).is_empty()
    {
        bail!("a process has user id {user}, which the demonstration needs for itself");
    }
    let tempdir = TempDir::build(programs, user)?;
    let size = job::calibrate(&tempdir)?;
    let daemon_access = DaemonAccess::open(&tempdir, cpu, user);
    let mut runs = Vec::new();
    for (number, variant) in Variant::ALL.into_iter().enumerate() {
        output::note(&format!(
            "[{}/3] {}: {} s of sound",
            number + 1,
            variant.title(),
            plan.seconds
        ));
        let measurement = run_variant(&tempdir, variant, &daemon_access, size, cpu, plan)
            .map_err(|error| format!("{error:#}"));
        runs.push(Run { variant, measurement });
    }
    let missing = daemon_access.missing();
    drop(daemon_access);
    let dir = tempdir.dir().to_owned();
    drop(tempdir);
    let left = left_behind(user, &before, &dir);
    Ok(Outcome { cpu, load: plan.load, size, user, runs, missing, left })
}

/// Daemon that decides about the request of the job.
enum DaemonAccess {
    Private(Daemon),
    System(PathBuf),
    None(String),
}

impl DaemonAccess {
    fn open(tempdir: &TempDir, cpu: u32, user: Option<u32>) -> DaemonAccess {
        if user.is_some() {
            return match Daemon::start(tempdir, cpu) {
                Ok(daemon) => DaemonAccess::Private(daemon),
                Err(error) => DaemonAccess::None(format!("{error:#}")),
            };
        }
        let named = std::env::var_os(talea_proto::SOCKET_ENV).filter(|path| !path.is_empty());
        let socket = named.unwrap_or_else(|| talea_proto::SOCKET_PATH.into()).into();
        match talea_client::Client::connect() {
            Ok(_) => DaemonAccess::System(socket),
            Err(error) => DaemonAccess::None(error.to_string()),
        }
    }

    fn socket(&self) -> anyhow::Result<&Path> {
        match self {
            DaemonAccess::Private(daemon) => Ok(daemon.socket()),
            DaemonAccess::System(socket) => Ok(socket),
            DaemonAccess::None(why) => bail!("{why}"),
        }
    }

    fn missing(&self) -> Option<String> {
        match self {
            DaemonAccess::Private(_) => None,
            DaemonAccess::System(_) => {
                Some("not root: no private daemon, no other user; the system's daemon decided".to_owned())
            }
            DaemonAccess::None(_) if rustix::process::geteuid().is_root() => None,
            DaemonAccess::None(_) => Some(
                "not root, and no daemon to ask: only today's run can be shown; try sudo, or talea doctor"
                    .to_owned(),
            ),
        }
    }
}

fn run_variant(
    tempdir: &TempDir,
    variant: Variant,
    daemon_access: &DaemonAccess,
    size: Size,
    cpu: u32,
    plan: Plan,
) -> anyhow::Result<RunMeasurement> {
    let csv = tempdir.path("out").join(format!("{}.csv", variant.name()));
    let command = command(tempdir, variant, daemon_access, size, plan.seconds, &csv)?;
    let monitor = Monitor::start(cpu, MONITOR_PRIORITY, PROBES);
    let at_work = at_work(tempdir, command, cpu, plan);
    let observed = at_work.and_then(|(load, job)| {
        let tid = job.tid;
        std::thread::sleep(Duration::from_millis(u64::from(plan.seconds) * 500));
        let policy = kernel::policy_of(tid).context("the job ended early")?;
        let is_watched = is_watched(&policy, tid, cpu);
        let grant = match (variant, daemon_access) {
            (Variant::Library | Variant::Command, DaemonAccess::Private(daemon)) => {
                daemon.grant_of(tid)?
            }
            _ => None,
        };
        // A job with too little CPU time accumulates a backlog during the whole run, but it still
        // ends.
        let (blocks, checksum) =
            job.finish(&csv, Duration::from_secs(u64::from(plan.seconds) * 4 + 10))?;
        drop(load);
        Ok((policy, is_watched, grant, blocks, checksum))
    });
    let stalls = monitor.stop();
    let (policy, is_watched, grant, blocks, checksum) = observed?;
    let stalls = stalls.ok().filter(|_| is_watched);
    let verdict = Verdict::of(&blocks, stalls.as_deref().unwrap_or_default());
    let grant =
        grant.map(|spec| grant_text::granted(&spec.granted, spec.plugin_name.as_str(), &spec.task));
    Ok(RunMeasurement {
        blocks,
        verdict,
        policy: grant_text::policy(&policy),
        grant,
        stalls,
        checksum,
    })
}

/// Whether the monitor could detect the cause of a delay. The monitor observes only its own CPU,
/// and a deadline thread preempts it.
fn is_watched(policy: &Policy, tid: u32, cpu: u32) -> bool {
    let stat =
        i32::try_from(tid).ok().and_then(Tid::new).and_then(|tid| talea_os::proc::stat(tid).ok());
    !matches!(policy, Policy::Deadline { .. }) && stat.is_some_and(|stat| stat.cpu == cpu)
}

/// Starts the load and the job on `cpu`.
fn at_work(
    tempdir: &TempDir,
    command: Command,
    cpu: u32,
    plan: Plan,
) -> anyhow::Result<(Load, Job)> {
    let pinned = Pinned::to(cpu)?;
    let load = Load::start(tempdir, plan.load, plan.seconds * 4 + 20)?;
    drop(pinned);
    // The load shares the CPU for a while before the job starts.
    std::thread::sleep(Duration::from_millis(300));
    let _pinned = Pinned::to(cpu)?;
    Ok((load, Job::start(tempdir, command)?))
}

fn command(
    tempdir: &TempDir,
    variant: Variant,
    daemon_access: &DaemonAccess,
    size: Size,
    seconds: u32,
    csv: &Path,
) -> anyhow::Result<Command> {
    let arguments = Job::arguments(tempdir, size, seconds, csv);
    let mut command = match variant {
        Variant::Today => tempdir.command("convolver"),
        Variant::Library => {
            let mut command = tempdir.command("convolver-talea");
            command.env(talea_proto::SOCKET_ENV, daemon_access.socket()?);
            command
        }
        Variant::Command => {
            let mut command = tempdir.command("talea");
            command.arg("--socket").arg(daemon_access.socket()?);
            command
                .args(["run", "--period", "10ms", "--runtime", "4ms", "--"])
                .arg(tempdir.path("convolver"));
            command
        }
    };
    command.args(arguments);
    Ok(command)
}

/// Guard that pins the calling thread, and all threads and processes that it starts, to one CPU.
struct Pinned(CpuSet);

impl Pinned {
    fn to(cpu: u32) -> anyhow::Result<Pinned> {
        let before = sched::get_affinity(Tid::current())?;
        sched::set_affinity(Tid::current(), &CpuSet::single(cpu))
            .with_context(|| format!("this process may not run on CPU {cpu}"))?;
        Ok(Pinned(before))
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        if let Err(error) = sched::set_affinity(Tid::current(), &self.0) {
            output::note(&format!("the affinity of this process could not be put back: {error}"));
        }
    }
}

fn choose_cpu(wanted: Option<u32>) -> anyhow::Result<u32> {
    let allowed = sched::get_affinity(Tid::current())?;
    let cpu = wanted.or_else(|| allowed.iter().last()).context("no CPU")?;
    if !allowed.contains(cpu) {
        bail!("this process may not run on CPU {cpu}; it may on {allowed}");
    }
    Ok(cpu)
}

/// Real-time limits of the kernel, which the demonstration must not change.
#[derive(PartialEq, Eq)]
struct RtLimits([Option<String>; 2]);

impl RtLimits {
    fn read() -> RtLimits {
        let text = |name| std::fs::read_to_string(Path::new("/proc/sys/kernel").join(name)).ok();
        RtLimits(["sched_rt_runtime_us", "sched_rt_period_us"].map(text))
    }
}

fn left_behind(user: Option<u32>, before: &RtLimits, dir: &Path) -> Vec<String> {
    let mut left: Vec<String> = user
        .map(processes_of)
        .unwrap_or_default()
        .into_iter()
        .map(|pid| format!("process {pid}"))
        .collect();
    if *before != RtLimits::read() {
        left.push("the kernel's real-time limits are not what they were".to_owned());
    }
    if dir.exists() {
        left.push(dir.display().to_string());
    }
    left
}

/// Returns the processes with this real user ID.
fn processes_of(user: u32) -> Vec<i32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|&pid| {
        let status = Tid::new(pid).and_then(|tid| talea_os::proc::status(tid).ok());
        status.is_some_and(|status| status.uids.real == user)
    })
    .collect()
}
