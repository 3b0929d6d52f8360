//! Trials: a system for one CPU, simulated and on real threads.

use super::matrix;
use super::stall_filter::StallIntervals;
use crate::echo::{self, ClientReport, RequestTimes};
use crate::placement::{self, Cpus, KeepCpusAwake, Place};
use anyhow::{Context, bail, ensure};
use std::fmt::Write as _;
use std::io::Write as _;
use std::net::{Ipv4Addr, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use talea_core::engine::{NodeSpec, TaskId, Tree};
use talea_core::workload::Environment;
use talea_core::{Monotonic, Span, Time};
use talea_exec::{Failure, RootReport, ScheduleEvent, ScheduleLog};
use talea_os::{Tid, clock};
use talea_sim::{Simulation, Workload};
use talea_study::compare::job_times::JobLog;
use talea_study::live_run::{self, PriorityUse, RunSetup, WorkMode};
use talea_study::output;
use talea_system::{Root, System};

/// Experiment to run.
pub(super) struct Trial {
    pub(super) tree: Tree,
    /// Workload of the simulation. On real threads requests arrive at [`Trial::requests`].
    pub(super) workload: Workload,
    pub(super) length: Span,
    /// Times of the requests to the echo server.
    pub(super) requests: Vec<Time>,
    /// Cost of a reply, and the limit of the waiting requests. Without a limit the kernel's default
    /// applies.
    pub(super) echo: (Span, Option<u16>),
}

/// Observations of the tasks and of the client.
pub(super) struct Observed {
    pub(super) lives: JobLog,
    pub(super) asked: Vec<RequestTimes>,
    /// Number of products of matrices.
    pub(super) products: u64,
    /// Stalls of the CPU of the run.
    pub(super) stalls: StallIntervals,
    /// Stalls of the CPU of the run and of the client's CPU.
    pub(super) request_stalls: StallIntervals,
}

/// Measurements of a run of the executor.
pub(super) struct TrialMeasurement {
    pub(super) seen: Observed,
    pub(super) length: Span,
    pub(super) real: RootReport,
}

impl Trial {
    /// Returns the names of the tasks.
    pub(super) fn names(&self) -> Vec<String> {
        let task = |body: &NodeSpec| match body {
            NodeSpec::Task(spec) => Some(spec.name.clone()),
            NodeSpec::Scheduler(_) => None,
        };
        self.tree.nodes().filter_map(|(_, node)| task(&node.spec)).collect()
    }

    /// Simulates the experiment.
    pub(super) fn simulate(&self) -> JobLog {
        let engine = self.tree.build().expect("a sound system");
        let mut lives = JobLog::default();
        let mut world = Simulation::new(engine, 1, &self.workload);
        world.run(Time::ZERO + self.length, &mut lives);
        let tasks = (0..self.workload.sources.len() as u32).map(TaskId);
        let engine = world.engine();
        let unfinished: Vec<_> =
            tasks.flat_map(|task| engine.unfinished(task).map(move |job| (task, job))).collect();
        lives.add_unfinished(&unfinished);
        lives
    }

    /// Executes the experiment on real threads.
    ///
    /// # Errors
    /// If it cannot be executed on this computer.
    pub(super) fn run(&self) -> anyhow::Result<TrialMeasurement> {
        // The client counts from a time zero that is fixed in advance. A run that was not ready by
        // then is repeated.
        for lead in LEADS {
            if let Some(seen) = self.run_from(clock::now() + lead)? {
                return Ok(seen);
            }
        }
        bail!("threads and programs are not ready for a run within {}", LEADS[LEADS.len() - 1])
    }

    /// Executes the experiment once. Returns `None` if it began later than `begin`, or not at all.
    fn run_from(&self, begin: Monotonic) -> anyhow::Result<Option<TrialMeasurement>> {
        let cpus = match Cpus::of(Place::CrossCore) {
            Err(_) if self.requests.is_empty() => Cpus::of(Place::SameCore)?,
            cpus => cpus?,
        };
        let _awake = KeepCpusAwake::on(cpus)?;
        let port = free_port()?;
        let names = self.names();
        let own = this_program()?;
        let program = |name: &String| (name == "echo").then(|| self.server(&own, port));
        let root = Root {
            name: "cpu".to_owned(),
            tree: self.tree.clone(),
            sources: self.workload.sources.clone(),
            programs: names.iter().map(program).collect(),
            users: vec![None; names.len()],
            health: vec![talea_core::health::Health::default(); names.len()],
            logical: vec![false; names.len()],
            tasks: names,
            phases_known: false,
            surroundings: Environment::default(),
        };
        let (duration, seed) = (self.length, self.workload.seed);
        let system = System {
            duration,
            seed,
            modes: Vec::new(),
            roots: vec![root],
            chains: Vec::new(),
            expectations: Vec::new(),
            warnings: Vec::new(),
        };
        let estimates = live_run::estimate_load(&system, duration, seed)?;
        let products = AtomicU64::new(0);
        let client = Client::start(port, begin, &self.requests, cpus.client)?;
        let measured = live_run::run(&RunSetup {
            system: &system,
            duration,
            seed,
            places: &vec![vec![cpus.server]],
            accounts: &Vec::new(),
            work_mode: WorkMode::Budget,
            rights: PriorityUse::Required,
            mechanism: talea_exec::RequestedMechanism::Engine,
            switches: true,
            estimates: &estimates,
            begin: Some(begin),
            bodies: &|name| (name == "matrix").then(|| matrix::products(&products)),
        });
        // A program that is not placed in time has the same effect as a run that begins late.
        let measured = match measured {
            Err(error) if matches!(error.downcast_ref(), Some(Failure::Os(_))) => {
                output::note(&format!("once more: {error:#}"));
                return Ok(None);
            }
            measured => measured?,
        };
        ensure!(!measured.interrupted, "interrupted");
        let ClientReport { asked, stalls } = client.finish()?;
        let report = measured.report;
        if report.zero != begin {
            return Ok(None);
        }
        let ours = report.stalls.iter().map(|stall| (stall.from, stall.to)).collect();
        let [real] = <[RootReport; 1]>::try_from(report.roots).ok().context("one root")?;
        let lives = JobLog::from_record(&self.tree, &real)?;
        let products = products.load(Ordering::Relaxed);
        let seen = Observed::new(lives, asked, products, ours, stalls);
        Ok(Some(TrialMeasurement { seen, length: report.length, real }))
    }

    /// Returns the command of the echo server. `program` is the path of this program.
    pub(super) fn server(&self, program: &str, port: u16) -> Vec<String> {
        let (service, queue) = self.echo;
        let mut words = vec![program.to_owned(), "echo".into()];
        words.extend([
            "--port".into(),
            port.to_string(),
            "--service".into(),
            format!("{}ns", service.as_ns()),
        ]);
        if let Some(queue) = queue {
            words.extend(["--queue".into(), queue.to_string()]);
        }
        words
    }
}

impl Observed {
    /// `ours` are the stalls of the CPU of the run, `theirs` those of the client.
    pub(super) fn new(
        lives: JobLog,
        asked: Vec<RequestTimes>,
        products: u64,
        ours: Vec<(Time, Time)>,
        theirs: Vec<(Time, Time)>,
    ) -> Observed {
        let request_stalls = StallIntervals::new([ours.clone(), theirs].concat());
        Observed { lives, asked, products, stalls: StallIntervals::new(ours), request_stalls }
    }
}

/// Returns the path of this program.
pub(super) fn this_program() -> anyhow::Result<String> {
    let program = std::env::current_exe()?.into_os_string().into_string();
    program.ok().context("the name of this program is not UTF-8")
}

impl TrialMeasurement {
    /// Returns the CPU time that was lost since the CPU was last idle: switches, interrupts and
    /// probes of the monitor.
    pub(super) fn lost_before(&self, at: Time) -> Span {
        let log = ScheduleLog::from_record(1, &self.real.record);
        let is_idle = |event: &ScheduleEvent| matches!(event, ScheduleEvent::Idle { .. });
        let idle_times = log.timed_events().iter().filter(|(_, event)| is_idle(event));
        let since = idle_times
            .map(|&(when, _)| when)
            .take_while(|&when| when < at)
            .last()
            .unwrap_or(Time::ZERO);
        let within = self.real.lost_times.iter().filter(|lost| lost.to > since && lost.to <= at);
        Span::from_ns(within.map(|lost| lost.amount.as_ns()).sum())
    }

    /// Returns the time that jobs lost to interrupts and the monitor, in millionths of the time for
    /// which they had the CPU.
    pub(super) fn lost_ppm(&self) -> u64 {
        let done: u64 = self.real.consumed.iter().map(|consumed| consumed.ordered.as_ns()).sum();
        self.real.total_lost_time().as_ns() * 1_000_000 / done.max(1)
    }

    /// Returns the number of dispatches of a task.
    pub(super) fn dispatches_of(&self, task: TaskId) -> usize {
        let log = ScheduleLog::from_record(1, &self.real.record);
        let is_dispatch = |event: &ScheduleEvent| match *event {
            ScheduleEvent::Dispatched { task: of, .. } => of == task,
            ScheduleEvent::Completed { .. } | ScheduleEvent::Idle { .. } => false,
        };
        log.events().filter(is_dispatch).count()
    }
}

/// Delays of the start, within which all threads must become ready: the usual delay, and longer
/// ones for further attempts.
const LEADS: [Span; 3] =
    [Span::from_ns(400_000_000), Span::from_ns(1_200_000_000), Span::from_ns(4_000_000_000)];

/// Returns a port that is unused now.
pub(super) fn free_port() -> anyhow::Result<u16> {
    Ok(UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).context("no free port")?.local_addr()?.port())
}

/// Client process, which sends requests during the run.
pub(super) struct Client(Option<Child>);

impl Client {
    /// Starts the client of the server at `port`. Requests are sent at `requests` after `zero`.
    pub(super) fn start(
        port: u16,
        zero: Monotonic,
        requests: &[Time],
        cpu: u32,
    ) -> anyhow::Result<Client> {
        if requests.is_empty() {
            return Ok(Client(None));
        }
        let child = Command::new(std::env::current_exe()?)
            .args(["ask", "--port", &port.to_string(), "--zero", &zero.as_ns().to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("the client of the echo server cannot be started")?;
        let mut client = Client(Some(child));
        let child = client.0.as_mut().context("just started")?;
        placement::pin_with_priority(
            Tid::new(child.id() as i32).context("a process without a number")?,
            cpu,
        )?;
        let mut times = String::new();
        for at in requests {
            let _ = writeln!(times, "{}", at.as_ns());
        }
        // The client reads its input to the end before the first request.
        child.stdin.take().context("piped")?.write_all(times.as_bytes())?;
        Ok(client)
    }

    pub(super) fn finish(mut self) -> anyhow::Result<ClientReport> {
        let Some(child) = self.0.take() else { return Ok(ClientReport::default()) };
        let ended = child.wait_with_output()?;
        if !ended.status.success() {
            bail!("the client of the echo server failed");
        }
        echo::read(&String::from_utf8(ended.stdout).context("what was asked is no text")?)
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            // An error means that the process has ended.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
