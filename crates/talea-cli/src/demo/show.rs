//! The three runs, one after another, and the proof that nothing is left of them.

use super::daemon::{Daemon, SHARE_PERCENT};
use super::job::{self, Block, Job, Size};
use super::judge::Verdict;
use super::load::Load;
use super::stage::{DEMO_USER, Stage};
use super::workshop::Programs;
use crate::{grant_text, kernel, output};
use anyhow::{Context, bail};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use talea_core::{CpuSet, Monotonic, Policy, Span};
use talea_exec::Stall;
use talea_exec::stalls::{Monitor, ProbeConfig};
use talea_os::{Tid, sched};

/// Priority of the monitor on the job's CPU: above every plugin's range, below the kernel's own
/// watchdogs. Threads of SCHED_DEADLINE outrank it; the job must not be one.
const WATCHER: u8 = 98;
/// A virtual CPU that is taken away for less than the distance of looks, again and again, is slow
/// rather than gone; of that only a part is seen, and the job's own CPU time tells the rest. An
/// ordinary wake-up is late by 15 to 60 us where it was measured. Costs 2 to 3 % of the CPU, in
/// every run alike.
const LOOKS: ProbeConfig =
    ProbeConfig { period: Span::from_ns(250_000), latency: Span::from_ns(100_000) };

/// Options of the demonstration.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub(super) seconds: u32,
    pub(super) cpu: Option<u32>,
    pub(super) load: u32,
}

/// Way in which the job's demand is declared to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Today,
    Library,
    Command,
}

impl Way {
    const ALL: [Way; 3] = [Way::Today, Way::Library, Way::Command];

    /// Returns the title for the report.
    pub(super) fn title(self) -> &'static str {
        match self {
            Way::Today => "as it is today",
            Way::Library => "with libtalea",
            Way::Command => "unmodified, by talea run",
        }
    }

    /// Returns the name for JSON and files.
    pub(super) fn name(self) -> &'static str {
        match self {
            Way::Today => "today",
            Way::Library => "libtalea",
            Way::Command => "talea-run",
        }
    }
}

/// One run.
pub(super) struct Run {
    pub(super) way: Way,
    /// Observations, or the reason why there are none.
    pub(super) seen: Result<Seen, String>,
}

/// Observations of one run.
pub(super) struct Seen {
    pub(super) blocks: Vec<Block>,
    pub(super) verdict: Verdict,
    /// Policy that the kernel reported half-way.
    pub(super) policy: String,
    /// Grant that the daemon reported half-way.
    pub(super) grant: Option<String>,
    /// Stalls that the monitor detected; `None` without the right to monitor.
    pub(super) stalls: Option<Vec<Stall<Monotonic>>>,
    checksum: String,
}

/// Everything.
pub(super) struct Outcome {
    pub(super) cpu: u32,
    pub(super) load: u32,
    pub(super) size: Size,
    /// User id of the job, if not the caller's.
    pub(super) user: Option<u32>,
    pub(super) runs: Vec<Run>,
    /// Rights that the caller has not.
    pub(super) missing: Option<String>,
    /// Changes that the demonstration left behind.
    pub(super) left: Vec<String>,
}

impl Outcome {
    /// Whether everything that could be shown here was shown, with the same sound each time, and
    /// nothing is left.
    pub(super) fn is_complete(&self) -> bool {
        let shown = self.runs.iter().all(|run| run.seen.is_ok() || self.missing.is_some());
        shown && self.left.is_empty() && self.same_sound()
    }

    /// Whether all runs computed the same.
    pub(super) fn same_sound(&self) -> bool {
        let mut sums =
            self.runs.iter().filter_map(|run| run.seen.as_ref().ok()).map(|seen| &seen.checksum);
        let first = sums.next();
        sums.all(|sum| Some(sum) == first)
    }

    /// Why the job was let in, in one line.
    pub(super) fn why(&self) -> Option<String> {
        let user = self.user?;
        Some(format!(
            "rm serves what declares a period; 4ms every 10ms passes its test on an empty CPU, and the rule for \
             user {user} allows {SHARE_PERCENT}% of a CPU"
        ))
    }
}

/// Runs the job in all ways.
pub(super) fn run(programs: &Programs, plan: Plan) -> anyhow::Result<Outcome> {
    let cpu = choose_cpu(plan.cpu)?;
    let user = rustix::process::geteuid().is_root().then_some(DEMO_USER);
    let before = Knobs::read();
    if let Some(user) = user
        && !processes_of(user).is_empty()
    {
        bail!("a process has user id {user}, which the demonstration needs for itself");
    }
    let stage = Stage::build(programs, user)?;
    let size = job::calibrate(&stage)?;
    let server = Server::open(&stage, cpu, user);
    let mut runs = Vec::new();
    for (number, way) in Way::ALL.into_iter().enumerate() {
        output::note(&format!("[{}/3] {}: {} s of sound", number + 1, way.title(), plan.seconds));
        let seen = one(&stage, way, &server, size, cpu, plan).map_err(|error| format!("{error:#}"));
        runs.push(Run { way, seen });
    }
    let missing = server.missing();
    drop(server);
    let dir = stage.dir().to_owned();
    drop(stage);
    let left = left_behind(user, &before, &dir);
    Ok(Outcome { cpu, load: plan.load, size, user, runs, missing, left })
}

/// Daemon that decides about the job.
enum Server {
    Private(Daemon),
    System(PathBuf),
    None(String),
}

impl Server {
    fn open(stage: &Stage, cpu: u32, user: Option<u32>) -> Server {
        if user.is_some() {
            return match Daemon::start(stage, cpu) {
                Ok(daemon) => Server::Private(daemon),
                Err(error) => Server::None(format!("{error:#}")),
            };
        }
        let named = std::env::var_os(talea_proto::SOCKET_ENV).filter(|path| !path.is_empty());
        let socket = named.unwrap_or_else(|| talea_proto::SOCKET_PATH.into()).into();
        match talea_client::Client::connect() {
            Ok(_) => Server::System(socket),
            Err(error) => Server::None(error.to_string()),
        }
    }

    fn socket(&self) -> anyhow::Result<&Path> {
        match self {
            Server::Private(daemon) => Ok(daemon.socket()),
            Server::System(socket) => Ok(socket),
            Server::None(why) => bail!("{why}"),
        }
    }

    fn missing(&self) -> Option<String> {
        match self {
            Server::Private(_) => None,
            Server::System(_) => {
                Some("not root: no private daemon, no other user; the system's daemon decided".to_owned())
            }
            Server::None(_) if rustix::process::geteuid().is_root() => None,
            Server::None(_) => Some(
                "not root, and no daemon to ask: only today's run can be shown; try sudo, or talea doctor"
                    .to_owned(),
            ),
        }
    }
}

fn one(
    stage: &Stage,
    way: Way,
    server: &Server,
    size: Size,
    cpu: u32,
    plan: Plan,
) -> anyhow::Result<Seen> {
    let csv = stage.path("out").join(format!("{}.csv", way.name()));
    let command = command(stage, way, server, size, plan.seconds, &csv)?;
    let monitor = Monitor::start(cpu, WATCHER, LOOKS);
    let at_work = at_work(stage, command, cpu, plan);
    let looked = at_work.and_then(|(load, job)| {
        let tid = job.tid;
        std::thread::sleep(Duration::from_millis(u64::from(plan.seconds) * 500));
        let policy = kernel::policy_of(tid).context("the job ended early")?;
        let is_watched = is_watched(&policy, tid, cpu);
        let grant = match (way, server) {
            (Way::Library | Way::Command, Server::Private(daemon)) => daemon.grant_of(tid)?,
            _ => None,
        };
        // A job that gets too little falls behind for as long as it runs; it still ends.
        let (blocks, checksum) =
            job.finish(&csv, Duration::from_secs(u64::from(plan.seconds) * 4 + 10))?;
        drop(load);
        Ok((policy, is_watched, grant, blocks, checksum))
    });
    let stalls = monitor.stop();
    let (policy, is_watched, grant, blocks, checksum) = looked?;
    let stalls = stalls.ok().filter(|_| is_watched);
    let verdict = Verdict::of(&blocks, stalls.as_deref().unwrap_or_default());
    let grant =
        grant.map(|spec| grant_text::granted(&spec.granted, spec.plugin_name.as_str(), &spec.task));
    Ok(Seen { blocks, verdict, policy: grant_text::policy(&policy), grant, stalls, checksum })
}

/// Whether the monitor could see what keeps the job from its CPU: on another CPU it saw nothing of
/// it, and a deadline thread outranks the monitor and is what it would see.
fn is_watched(policy: &Policy, tid: u32, cpu: u32) -> bool {
    let stat =
        i32::try_from(tid).ok().and_then(Tid::new).and_then(|tid| talea_os::proc::stat(tid).ok());
    !matches!(policy, Policy::Deadline { .. }) && stat.is_some_and(|stat| stat.cpu == cpu)
}

/// Load and job, both born on the CPU.
fn at_work(stage: &Stage, command: Command, cpu: u32, plan: Plan) -> anyhow::Result<(Load, Job)> {
    let pinned = Pinned::to(cpu)?;
    let load = Load::start(stage, plan.load, plan.seconds * 4 + 20)?;
    drop(pinned);
    // Let the load have shared the CPU for a while before the job comes.
    std::thread::sleep(Duration::from_millis(300));
    let _pinned = Pinned::to(cpu)?;
    Ok((load, Job::start(stage, command)?))
}

fn command(
    stage: &Stage,
    way: Way,
    server: &Server,
    size: Size,
    seconds: u32,
    csv: &Path,
) -> anyhow::Result<Command> {
    let arguments = Job::arguments(stage, size, seconds, csv);
    let mut command = match way {
        Way::Today => stage.command("convolver"),
        Way::Library => {
            let mut command = stage.command("convolver-talea");
            command.env(talea_proto::SOCKET_ENV, server.socket()?);
            command
        }
        Way::Command => {
            let mut command = stage.command("talea");
            command.arg("--socket").arg(server.socket()?);
            command
                .args(["run", "--period", "10ms", "--runtime", "4ms", "--"])
                .arg(stage.path("convolver"));
            command
        }
    };
    command.args(arguments);
    Ok(command)
}

/// While it lives, the calling thread and what it starts stay on one CPU.
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

/// State that the demonstration must not change: the kernel's real-time limits.
#[derive(PartialEq, Eq)]
struct Knobs([Option<String>; 2]);

impl Knobs {
    fn read() -> Knobs {
        let text = |name| std::fs::read_to_string(Path::new("/proc/sys/kernel").join(name)).ok();
        Knobs(["sched_rt_runtime_us", "sched_rt_period_us"].map(text))
    }
}

fn left_behind(user: Option<u32>, before: &Knobs, dir: &Path) -> Vec<String> {
    let mut left: Vec<String> = user
        .map(processes_of)
        .unwrap_or_default()
        .into_iter()
        .map(|pid| format!("process {pid}"))
        .collect();
    if *before != Knobs::read() {
        left.push("the kernel's real-time limits are not what they were".to_owned());
    }
    if dir.exists() {
        left.push(dir.display().to_string());
    }
    left
}

/// Processes with this real user.
fn processes_of(user: u32) -> Vec<i32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|&pid| {
        let status = Tid::new(pid).and_then(|tid| talea_os::proc::status(tid).ok());
        status.is_some_and(|status| status.uids.real == user)
    })
    .collect()
}
