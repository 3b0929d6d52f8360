//! Trials as a deployment.
//!
//! Model: `talea deploy apply` puts the tree of the trial in force on one CPU. Each task is a
//! program of another user, unmodified: it releases its own jobs at nominal times, and writes what
//! it measured to a file ([`programs`](super::programs)). A governor freezes and thaws the
//! programs. Time zero of the trial is the start of a frame of the governor, when all programs run.
//! A monitor of this process detects stalls of the CPU.

use super::trial::{Client, Observed, Trial, free_port, this_program};
use crate::echo::ClientReport;
use crate::placement::{Cpus, KeepCpusAwake, Place};
use crate::server::beside;
use anyhow::{Context, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use talea_core::engine::{NodeSpec, TaskId};
use talea_core::workload::{Arrivals, Cost, Environment, Source};
use talea_core::{Monotonic, Span, Time};
use talea_exec::stalls::{Monitor, ProbeConfig};
use talea_os::clock;
use talea_study::compare::job_times::{JobLog, JobTimes};
use talea_study::exit::not_executable;
use talea_study::output::note;
use talea_system::{Root, System};

/// Users of the programs: accounts of every Debian without a right.
const USERS: [&str; 4] = ["daemon", "bin", "games", "sys"];
const ROOT: &str = "cpu";
/// Time after which the arrivals of all tasks, the frame and the server repeat.
const ROUND: u64 = 200_000_000;
/// Time from the start of the programs to time zero, at least. The echo server may have 2 % of the
/// CPU only.
const LEAD: Span = Span::from_ns(2_000_000_000);
/// Time within which the daemon, a program or the governor reacts.
const PATIENCE: Duration = Duration::from_secs(20);
const POLL_PERIOD: Duration = Duration::from_millis(10);
/// Priority of the monitor: above the governor.
const MONITOR_PRIORITY: u8 = 99;

/// Deploys the trial, and measures it.
///
/// # Errors
/// If it cannot be deployed on this computer.
pub(super) fn run(trial: &Trial) -> anyhow::Result<Observed> {
    if !rustix::process::geteuid().is_root() {
        return Err(not_executable("a deployment needs root"));
    }
    let cpus = Cpus::of(Place::CrossCore)?;
    let _awake = KeepCpusAwake::on(cpus)?;
    let folder = Folder::create()?;
    let port = free_port()?;
    let file = folder.0.join("system.toml");
    std::fs::write(&file, system_text(trial, &folder.0, port)?)?;
    let deployment = Deployment::apply(&folder.0, &file, cpus.server)?;
    let frames = deployment.first_frame()?;
    let rounds = (clock::now() + LEAD).since(frames).as_ns() / ROUND + 1;
    let zero = frames + Span::from_ns(rounds * ROUND);
    let monitor = Monitor::start(cpus.server, MONITOR_PRIORITY, ProbeConfig::FOR_RUNS);
    publish(&folder.0.join("start"), &zero.as_ns().to_string())?;
    let client = Client::start(port, zero, &trial.requests, cpus.client)?;
    clock::sleep_until(zero + trial.length);
    let ClientReport { asked, stalls } = client.finish()?;
    let result = |name: &str| -> anyhow::Result<String> {
        let file = folder.result(name);
        wait(&format!("the result of {name}"), || Ok(file.exists()))
            .with_context(|| deployment.log())?;
        Ok(std::fs::read_to_string(file)?)
    };
    let mut lives = JobLog::default();
    for (task, (name, deadline)) in (0..).map(TaskId).zip(tasks(trial)) {
        if matches!(name.as_str(), "A" | "B") {
            add_jobs(&mut lives, task, &result(&name)?, deadline)?;
        }
    }
    let products = result("matrix")?.trim().parse().context("the number of products")?;
    let ours = monitor.stop().context("the monitor has no priority")?;
    drop(deployment);
    let run_time = |at: Monotonic| at.max(zero).run_time(zero);
    let ours = ours.iter().filter(|stall| stall.to > zero);
    let ours = ours.map(|stall| (run_time(stall.from), run_time(stall.to))).collect();
    Ok(Observed::new(lives, asked, products, ours, stalls))
}

/// Returns the name and the relative deadline of each task.
fn tasks(trial: &Trial) -> Vec<(String, Span)> {
    let task = |spec: &NodeSpec| match spec {
        NodeSpec::Task(spec) => Some((spec.name.clone(), spec.deadline)),
        NodeSpec::Scheduler(_) => None,
    };
    trial.tree.nodes().filter_map(|(_, node)| task(&node.spec)).collect()
}

/// Adds the jobs of a program: a line for each, with its release and its end.
fn add_jobs(lives: &mut JobLog, task: TaskId, text: &str, deadline: Span) -> anyhow::Result<()> {
    for (number, line) in (0..).zip(text.lines()) {
        let times = line.split_once(' ').and_then(|(release, end)| {
            Some((Time::from_ns(release.parse().ok()?), Time::from_ns(end.parse().ok()?)))
        });
        let (release, end) = times.with_context(|| format!("{line}: a release and an end"))?;
        let times = JobTimes {
            begin: None,
            end: Some(end),
            release: Some(release),
            deadline: Some(release + deadline),
        };
        lives.jobs.insert((task, number), times);
    }
    Ok(())
}

/// Returns the system file. The echo server has its normal load there: bursts break what it says.
fn system_text(trial: &Trial, folder: &Path, port: u16) -> anyhow::Result<String> {
    let own = folder.join("program").display().to_string();
    let files = |name: &str| {
        ["--start".to_owned(), folder.join("start").display().to_string(), "--length".to_owned()]
            .into_iter()
            .chain([format!("{}ns", trial.length.as_ns()), "--out".to_owned()])
            .chain([folder.join("results").join(name).display().to_string()])
            .collect::<Vec<String>>()
    };
    let (mut programs, mut sources) = (Vec::new(), Vec::new());
    let names: Vec<String> = tasks(trial).into_iter().map(|(name, _)| name).collect();
    for (name, source) in names.iter().zip(&trial.workload.sources) {
        let (words, source) = match (name.as_str(), &source.arrivals, &source.cost) {
            ("echo", _, cost) => {
                let [offset, period, jitter] = [0, 100_000_000, 0].map(Span::from_ns);
                let arrivals = Arrivals::Periodic { offset, period, jitter };
                (trial.server(&own, port), Source { arrivals, cost: cost.clone() })
            }
            ("matrix", ..) => {
                let words = [vec![own.clone(), "products".to_owned()], files(name)].concat();
                (words, Source::endless())
            }
            (_, Arrivals::Periodic { offset, period, .. }, Cost::Constant(cost)) => {
                let mut words = vec![own.clone(), "jobs".to_owned()];
                for (key, ns) in [("--period", period.as_ns()), ("--cost", cost.as_ns())] {
                    words.extend([key.to_owned(), format!("{ns}ns")]);
                }
                words.extend(["--offset".to_owned(), offset.as_ns().to_string()]);
                words.extend(files(name));
                (words, source.clone())
            }
            _ => bail!("{name} is no periodic task with a constant cost"),
        };
        programs.push(Some(words));
        sources.push(source);
    }
    let count = names.len();
    let root = Root {
        name: ROOT.to_owned(),
        tree: trial.tree.clone(),
        sources,
        programs,
        users: USERS.iter().cycle().take(count).map(|&user| Some(user.to_owned())).collect(),
        health: vec![talea_core::health::Health::default(); count],
        logical: vec![false; count],
        tasks: names,
        phases_known: false,
        surroundings: Environment::default(),
    };
    Ok(talea_system::write(&System {
        duration: trial.length,
        seed: trial.workload.seed,
        modes: Vec::new(),
        roots: vec![root],
        chains: Vec::new(),
        expectations: Vec::new(),
        warnings: Vec::new(),
    })?)
}

/// Folder of a trial, with a copy of this program that every user can execute. Dropping it removes
/// it.
struct Folder(PathBuf);

impl Folder {
    fn create() -> anyhow::Result<Folder> {
        use std::sync::atomic::{AtomicU32, Ordering};
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("talea-lab-deployed-{}-{number}", std::process::id());
        let folder = Folder(std::env::temp_dir().join(name));
        let results = folder.0.join("results");
        // No other user may have prepared the folder.
        std::fs::DirBuilder::new().mode(0o700).create(&folder.0)?;
        std::fs::create_dir(&results)?;
        std::fs::copy(this_program()?, folder.0.join("program"))?;
        for (path, mode) in
            [(&folder.0, 0o755), (&folder.0.join("program"), 0o755), (&results, 0o1777)]
        {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))?;
        }
        Ok(folder)
    }

    fn result(&self, name: &str) -> PathBuf {
        self.0.join("results").join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A remaining folder is no reason to fail an experiment.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Deployment with its daemon. Dropping it ends both.
struct Deployment {
    daemon: Child,
    folder: PathBuf,
}

impl Deployment {
    /// Starts a daemon, puts the system file in force on `cpu`, and waits until all programs run.
    fn apply(folder: &Path, file: &Path, cpu: u32) -> anyhow::Result<Deployment> {
        let log = std::fs::File::create(folder.join("log"))?;
        let daemon = Command::new(beside("talea-deployd")?)
            .arg("--state")
            .arg(folder.join("state"))
            .arg("--runtime")
            .arg(folder.join("run"))
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .env_remove("NOTIFY_SOCKET")
            .spawn()
            .context("talea-deployd cannot be started")?;
        let deployment = Deployment { daemon, folder: folder.to_owned() };
        let socket = deployment.runtime().join("socket");
        wait("a daemon that serves", || Ok(socket.exists())).with_context(|| deployment.log())?;
        let cpu = cpu.to_string();
        let file = file.display().to_string();
        deployment.talea(&["apply", &file, "--cpus", &cpu])?;
        wait("programs that run", || {
            let status = deployment.status()?;
            let tasks = status["tasks"].as_array().context("a list of tasks")?;
            Ok(tasks.iter().all(|task| task["condition"] == "running"))
        })
        .with_context(|| deployment.log())?;
        Ok(deployment)
    }

    fn runtime(&self) -> PathBuf {
        self.folder.join("run")
    }

    /// Runs a verb of `talea deploy`, and returns its output.
    fn talea(&self, words: &[&str]) -> anyhow::Result<String> {
        let mut command = Command::new(beside("talea")?);
        command.arg("deploy").args(words).arg("--runtime").arg(self.runtime());
        let output = command.stdin(Stdio::null()).output().context("talea cannot be started")?;
        let out = String::from_utf8_lossy(&output.stdout).into_owned();
        let said = String::from_utf8_lossy(&output.stderr);
        match output.status.code() {
            Some(0) => Ok(out),
            Some(3) => Err(not_executable(format!("it cannot be deployed here: {out}{said}"))),
            _ => bail!("talea deploy {}: {out}{said}", words.join(" ")),
        }
    }

    fn status(&self) -> anyhow::Result<Value> {
        Ok(serde_json::from_str(&self.talea(&["status", "--json"])?)?)
    }

    /// Returns the start of the first frame, by the statistics of the governor.
    fn first_frame(&self) -> anyhow::Result<Monotonic> {
        let status = self.status()?;
        let tasks = status["tasks"].as_array().context("a list of tasks")?;
        let governor = tasks.iter().find(|task| task["name"] == format!("{ROOT} (governor)"));
        let pid = governor.and_then(|task| task["pid"].as_i64()).context("a governor")?;
        let pid = Pid::from_raw(i32::try_from(pid)?).context("a process")?;
        kill_process(pid, Signal::USR1)?;
        let file = self.runtime().join(format!("systems/n-{ROOT}.json"));
        wait("the statistics of the governor", || Ok(file.exists()))?;
        let statistics: Value = serde_json::from_str(&std::fs::read_to_string(file)?)?;
        Ok(Monotonic::from_ns(statistics["zero_ns"].as_u64().context("the start of the run")?))
    }

    /// Returns what the daemon and the programs said.
    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }

    /// Ends the programs.
    fn remove(&self) -> anyhow::Result<()> {
        self.talea(&["remove"])?;
        let programs = self.runtime().join("programs");
        wait("the end of all programs", || Ok(std::fs::read_dir(&programs)?.next().is_none()))
    }
}

impl Drop for Deployment {
    fn drop(&mut self) {
        if let Err(error) = self.remove() {
            note(&format!("the deployment could not be removed: {error:#}"));
        }
        let _ = kill_process(Pid::from_child(&self.daemon), Signal::TERM);
        let _ = self.daemon.wait();
    }
}

/// Waits until a condition holds.
fn wait(what: &str, holds: impl Fn() -> anyhow::Result<bool>) -> anyhow::Result<()> {
    let end = Instant::now() + PATIENCE;
    while !holds()? {
        ensure!(Instant::now() < end, "there is no {what} within {} s", PATIENCE.as_secs());
        std::thread::sleep(POLL_PERIOD);
    }
    Ok(())
}

/// Writes a file that appears with its whole text.
fn publish(file: &Path, text: &str) -> anyhow::Result<()> {
    let temporary = file.with_extension("new");
    std::fs::write(&temporary, text)?;
    Ok(std::fs::rename(&temporary, file)?)
}
