//! The live columns: the figures' systems on real threads.
//!
//! Model: a [`Trial`] is a system for one CPU. The scheduler machine that simulates it drives it on
//! the first CPU that can be had: A, B and whatever else computes are threads of this process, the
//! echo server is a program of its own, started and placed into the tree as any other would be.
//! Its client runs on the last CPU, outside of the system, at the times that the simulation has
//! too: both count from the same zero. [`verdict`] judges what [`calm`] does not exclude: a CPU
//! that the hypervisor takes away is not the scheduler's fault.

mod calm;
mod fig4;
mod fig5;
mod fig6;
mod matrix;
mod scenarios;
mod verdict;

use super::{Args, Which};
use crate::compare::job_times::JobLog;
use crate::exit::Exit;
use crate::lab::echo::{self, Asked, Heard};
use crate::lab::folder;
use crate::lab::plot::Figure;
use crate::lab::rig::{self, Awake, Cpus, Place};
use crate::live_run::{self, NotExecutable, PriorityUse, RunSetup, WorkMode};
use crate::output::{self, Table};
use anyhow::{Context, bail};
use calm::Calm;
use serde::Serialize;
use std::fmt::{self, Write as _};
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
use talea_system::system::{Root, System};
use verdict::{Claim, Verdict};

/// Why nothing was run.
#[derive(Debug)]
struct NotHere(String);

impl fmt::Display for NotHere {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "it can't be executed here: {}", self.0)
    }
}

impl std::error::Error for NotHere {}

/// Runs an experiment.
pub(super) fn run(figure: Which, args: &Args) -> anyhow::Result<Exit> {
    let ran = match figure {
        Which::Fig4 => fig4::run(args),
        Which::Fig5 => fig5::run(args),
        Which::Fig6 => fig6::run(args),
        Which::Fig7 | Which::Fig8 => scenarios::run(args),
    };
    match ran {
        Err(error) if error.is::<NotHere>() => {
            output::note(&format!("{error}"));
            Ok(Exit::Refused)
        }
        ran => ran,
    }
}

/// Experiment to run.
struct Trial {
    tree: Tree,
    /// Workload of the simulation; on real threads the requests come as in [`Trial::asks`].
    workload: Workload,
    length: Span,
    /// When the echo server is asked.
    asks: Vec<Time>,
    /// Cost of an answer, and how many requests may wait; without a number as many as the kernel
    /// queues by default.
    echo: (Span, Option<u16>),
}

/// Observations of a run.
struct Seen {
    lives: JobLog,
    asked: Vec<Asked>,
    /// Number of products of matrices.
    products: u64,
    /// Stalls of the CPU of the run.
    calm: Calm,
    /// Stalls of the CPU of the run and of the client's CPU.
    calm_for_requests: Calm,
    length: Span,
    real: RootReport,
}

impl Trial {
    fn names(&self) -> Vec<String> {
        let task = |body: &NodeSpec| match body {
            NodeSpec::Task(spec) => Some(spec.name.clone()),
            NodeSpec::Scheduler(_) => None,
        };
        self.tree.nodes().filter_map(|(_, node)| task(&node.spec)).collect()
    }

    /// Runs the experiment under a simulated clock.
    fn simulate(&self) -> JobLog {
        let machine = self.tree.build().expect("a sound system");
        let mut lives = JobLog::default();
        let mut world = Simulation::new(machine, 1, &self.workload);
        world.run(Time::ZERO + self.length, &mut lives);
        let tasks = (0..self.workload.sources.len() as u32).map(TaskId);
        let machine = world.engine();
        let unfinished: Vec<_> =
            tasks.flat_map(|task| machine.unfinished(task).map(move |job| (task, job))).collect();
        lives.add_unfinished(&unfinished);
        lives
    }

    /// On real threads.
    ///
    /// # Errors
    /// If it can't be run here.
    fn run(&self) -> anyhow::Result<Seen> {
        // The client counts from a zero that was fixed in advance: a run that was not ready by then
        // is another experiment.
        for lead in LEADS {
            if let Some(seen) = self.run_from(clock::now() + lead)? {
                return Ok(seen);
            }
        }
        bail!("threads and programs are not ready for a run within {}", LEADS[LEADS.len() - 1])
    }

    /// Nothing, if it began later, or not at all.
    fn run_from(&self, begin: Monotonic) -> anyhow::Result<Option<Seen>> {
        let cpus = match Cpus::of(Place::CrossCore) {
            Err(_) if self.asks.is_empty() => Cpus::of(Place::SameCore)?,
            cpus => cpus?,
        };
        let _awake = Awake::on(cpus)?;
        let port = free_port()?;
        let names = self.names();
        let program = |name: &String| (name == "echo").then(|| self.server(port)).transpose();
        let root = Root {
            name: "cpu".to_owned(),
            tree: self.tree.clone(),
            sources: self.workload.sources.clone(),
            programs: names.iter().map(program).collect::<anyhow::Result<_>>()?,
            tasks: names,
            surroundings: Environment::default(),
        };
        let duration = self.length;
        let seed = self.workload.seed;
        let (expectations, warnings) = (Vec::new(), Vec::new());
        let system = System { duration, seed, roots: vec![root], expectations, warnings };
        let estimates = live_run::estimate_load(&system, duration, seed)?;
        let products = AtomicU64::new(0);
        let client = Client::start(port, begin, &self.asks, cpus.client)?;
        let measured = live_run::run(&RunSetup {
            system: &system,
            duration,
            seed,
            places: &vec![vec![cpus.server]],
            work_mode: WorkMode::Budget,
            rights: PriorityUse::Required,
            mechanism: talea_exec::RequestedMechanism::Engine,
            switches: true,
            estimates: &estimates,
            begin: Some(begin),
            bodies: &|name| (name == "matrix").then(|| matrix::products(&products)),
        });
        // A program that does not come to its place in time is as late as one whose run begins
        // late.
        let measured = match measured {
            Err(error) if matches!(error.downcast_ref(), Some(Failure::Os(_))) => {
                output::note(&format!("once more: {error:#}"));
                return Ok(None);
            }
            measured => measured?,
        };
        let measured = match measured {
            Ok(measured) if measured.interrupted => bail!("interrupted"),
            Ok(measured) => measured,
            Err(NotExecutable(why)) => return Err(NotHere(why).into()),
        };
        let Heard { asked, stalls } = client.finish()?;
        let report = measured.report;
        if report.zero != begin {
            return Ok(None);
        }
        let ours = report.stalls.iter().map(|stall| (stall.from, stall.to));
        let theirs = stalls.into_iter();
        let calm = Calm::new(ours.clone().collect());
        let calm_for_requests = Calm::new(ours.chain(theirs).collect());
        let [real] = <[RootReport; 1]>::try_from(report.roots).ok().context("one root")?;
        let lives = JobLog::from_record(&self.tree, &real)?;
        let products = products.load(Ordering::Relaxed);
        Ok(Some(Seen {
            lives,
            asked,
            products,
            calm,
            calm_for_requests,
            length: report.length,
            real,
        }))
    }

    /// How the echo server is started.
    fn server(&self, port: u16) -> anyhow::Result<Vec<String>> {
        let (service, queue) = self.echo;
        let program = std::env::current_exe()?.into_os_string().into_string();
        let program = program.ok().context("the name of this program is not UTF-8")?;
        let mut words = vec![program, "lab".into(), "echo".into()];
        words.extend([
            "--port".into(),
            port.to_string(),
            "--service".into(),
            format!("{}ns", service.as_ns()),
        ]);
        if let Some(queue) = queue {
            words.extend(["--queue".into(), queue.to_string()]);
        }
        Ok(words)
    }
}

impl Seen {
    /// Returns the CPU time that was lost since the CPU was last idle: switches, interrupts, probes
    /// of the monitor.
    fn lost_before(&self, at: Time) -> Span {
        let course = ScheduleLog::from_record(1, &self.real.record);
        let is_idle = |turn: &ScheduleEvent| matches!(turn, ScheduleEvent::Idle { .. });
        let rests = course.timed_events().iter().filter(|(_, turn)| is_idle(turn));
        let since =
            rests.map(|&(when, _)| when).take_while(|&when| when < at).last().unwrap_or(Time::ZERO);
        let within =
            self.real.lost_times.iter().filter(|stretch| stretch.to > since && stretch.to <= at);
        Span::from_ns(within.map(|stretch| stretch.amount.as_ns()).sum())
    }

    /// The share of the time that jobs had the CPU in which they did not get on, in millionths:
    /// what interrupts and the monitor take.
    fn lost_ppm(&self) -> u64 {
        let done: u64 = self.real.consumed.iter().map(|consumed| consumed.ordered.as_ns()).sum();
        self.real.total_lost_time().as_ns() * 1_000_000 / done.max(1)
    }

    /// How often the scheduler went over to this task.
    fn turns_to(&self, task: TaskId) -> usize {
        let course = ScheduleLog::from_record(1, &self.real.record);
        course
            .events()
            .filter(
                |turn| matches!(turn, ScheduleEvent::Dispatched { task: who, .. } if *who == task),
            )
            .count()
    }
}

/// Times until the run begins, for the start of all threads: the usual time, and far longer ones.
const LEADS: [Span; 3] =
    [Span::from_ns(400_000_000), Span::from_ns(1_200_000_000), Span::from_ns(4_000_000_000)];

/// Returns a port that is unused now.
fn free_port() -> anyhow::Result<u16> {
    Ok(UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).context("no free port")?.local_addr()?.port())
}

/// Client process, which sends requests during the run.
struct Client(Option<Child>);

impl Client {
    fn start(port: u16, zero: Monotonic, asks: &[Time], cpu: u32) -> anyhow::Result<Client> {
        if asks.is_empty() {
            return Ok(Client(None));
        }
        let child = Command::new(std::env::current_exe()?)
            .args(["lab", "ask", "--port", &port.to_string(), "--zero", &zero.as_ns().to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("the client of the echo server cannot be started")?;
        let mut client = Client(Some(child));
        let child = client.0.as_mut().context("just started")?;
        rig::privileged(Tid::new(child.id() as i32).context("a process without a number")?, cpu)?;
        let mut times = String::new();
        for at in asks {
            let _ = writeln!(times, "{}", at.as_ns());
        }
        // It reads to the end before it begins.
        child.stdin.take().context("piped")?.write_all(times.as_bytes())?;
        Ok(client)
    }

    fn finish(mut self) -> anyhow::Result<Heard> {
        let Some(child) = self.0.take() else { return Ok(Heard::default()) };
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
            // An error means that it has ended.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Point of a job or a request in the file of raw data.
#[derive(Clone, Copy, Debug, Serialize)]
struct Point {
    release_ns: u64,
    /// Nothing if it had not ended when the run did, or was never answered.
    response_ns: Option<u64>,
    /// A stall has touched it.
    left_out: bool,
}

/// Everything of a figure.
#[derive(Serialize)]
struct Raw<T: Serialize> {
    figure: String,
    rows: Vec<T>,
    claims: Vec<Claim>,
    verdict: &'static str,
}

/// Prints the table and what is claimed, and writes plots and raw data.
fn finish<T: Serialize>(
    args: &Args,
    name: &str,
    table: &Table,
    figures: &[(&str, Figure<'_>)],
    rows: Vec<T>,
    claims: Vec<Claim>,
) -> anyhow::Result<Exit> {
    let verdict =
        claims.iter().fold(Verdict::Holds, |worst, claim| worst.and(claim.verdict.clone()));
    let mut text = table.render();
    for claim in &claims {
        let _ = writeln!(text, "{}", claim.line(output::colored()));
    }
    let mut files = Vec::new();
    for (name, figure) in figures {
        files.push(folder::save(&args.out, &format!("{name}-live.svg"), &figure.svg())?);
    }
    let raw = Raw { figure: name.to_owned(), rows, claims, verdict: verdict.word() };
    files.push(folder::save(&args.out, &format!("{name}-live.json"), &output::to_json(&raw)?)?);
    text += &folder::written(&files);
    output::print(&text)?;
    Ok(verdict.exit())
}

fn ms(span: Span) -> f64 {
    super::ms(span)
}

/// Milliseconds to two digits, or that there are none.
fn ms_text(span: Option<Span>) -> String {
    span.map_or_else(|| "-".to_owned(), |span| format!("{:.2}", ms(span)))
}
