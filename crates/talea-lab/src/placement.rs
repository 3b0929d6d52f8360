//! CPUs and priorities of the threads of a measurement.

use anyhow::{Context, bail};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use talea_core::CpuSet;
use talea_os::{Attr, Policy, Tid, sched};
use talea_study::exit::Exit;

/// Priority of client and servers: above the band of each measured plugin.
pub(super) const PRIORITY: u8 = 95;

/// Placement of client and servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    SameCore,
    CrossCore,
}

impl Place {
    pub(super) fn name(self) -> &'static str {
        match self {
            Place::SameCore => "same core",
            Place::CrossCore => "cross core",
        }
    }
}

/// CPUs of an experiment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cpus {
    pub(super) client: u32,
    pub(super) server: u32,
}

impl Cpus {
    /// Selects the last CPU of this process for the client. The server gets the same CPU or the
    /// first one.
    pub(super) fn of(place: Place) -> anyhow::Result<Cpus> {
        let allowed = sched::get_affinity(Tid::of_process())?;
        let (first, last) = (allowed.iter().next(), allowed.iter().last());
        let (first, last) = first.zip(last).context("no CPU")?;
        match place {
            Place::SameCore => Ok(Cpus { client: last, server: last }),
            Place::CrossCore if first == last => {
                bail!("two CPUs are needed to measure across them")
            }
            Place::CrossCore => Ok(Cpus { client: last, server: first }),
        }
    }
}

/// Guard that keeps the CPUs of an experiment awake.
pub(super) struct KeepCpusAwake {
    _spinners: Vec<Spinner>,
}

impl KeepCpusAwake {
    pub(super) fn on(cpus: Cpus) -> anyhow::Result<KeepCpusAwake> {
        let mut spinners = vec![Spinner::start(cpus.client)?];
        if cpus.server != cpus.client {
            spinners.push(Spinner::start(cpus.server)?);
        }
        Ok(KeepCpusAwake { _spinners: spinners })
    }
}

/// Guard of a measurement on the calling thread. The thread is pinned and has real-time priority,
/// and its CPUs are kept awake.
pub(super) struct MeasuringThread {
    before: (Attr, CpuSet),
    _awake: KeepCpusAwake,
}

impl MeasuringThread {
    /// Pins the calling thread, which needs the right to set real-time priorities.
    pub(super) fn set_up(cpus: Cpus) -> anyhow::Result<MeasuringThread> {
        let me = Tid::current();
        let before = (sched::get(me)?, sched::get_affinity(me)?);
        let thread = MeasuringThread { before, _awake: KeepCpusAwake::on(cpus)? };
        pin_with_priority(me, cpus.client)?;
        Ok(thread)
    }
}

impl Drop for MeasuringThread {
    fn drop(&mut self) {
        let me = Tid::current();
        let back =
            sched::set(me, &self.before.0).and_then(|()| sched::set_affinity(me, &self.before.1));
        if let Err(error) = back {
            talea_study::output::note(&format!("this thread could not be put back: {error}"));
        }
    }
}

/// Pins the calling thread to `cpu` and sets its policy.
pub(super) fn enter(cpu: u32, policy: Policy) -> std::io::Result<()> {
    sched::set_affinity(Tid::current(), &CpuSet::single(cpu))?;
    sched::set(Tid::current(), &Attr::grant(policy))
}

/// Pins a thread of the experiment to `cpu` and sets its priority to [`PRIORITY`].
pub(super) fn pin_with_priority(tid: Tid, cpu: u32) -> anyhow::Result<()> {
    sched::set_affinity(tid, &CpuSet::single(cpu)).with_context(|| format!("CPU {cpu}"))?;
    sched::set(tid, &Attr::grant(Policy::Fifo(PRIORITY)))
        .context("measuring needs the right to set real-time priorities (root, or CAP_SYS_NICE)")
}

/// Ends with this process, or by itself.
#[derive(clap::Args, Debug)]
pub(crate) struct SpinArgs {
    /// Duration.
    #[arg(long)]
    seconds: u64,
}

/// Process at the lowest priority that prevents a virtual CPU from being halted.
struct Spinner(Child);

/// Maximum run time of a spinner in seconds. No measurement takes longer.
const MAX_SECONDS: u64 = 3600;

impl Spinner {
    fn start(cpu: u32) -> anyhow::Result<Spinner> {
        let child = Command::new(std::env::current_exe()?)
            .args(["spin", "--seconds", &MAX_SECONDS.to_string()])
            .stdin(Stdio::null())
            .spawn()
            .context("the spinner cannot be started")?;
        let spinner = Spinner(child);
        let tid = Tid::new(spinner.0.id() as i32).context("a process without a number")?;
        sched::set_affinity(tid, &CpuSet::single(cpu))?;
        sched::set(tid, &Attr::plain(Policy::Idle))?;
        Ok(spinner)
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        // An error means that the process has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs the spinner until its parent or its time ends.
pub(super) fn spin(args: &SpinArgs) -> Exit {
    let parent = rustix::process::getppid();
    let start = Instant::now();
    while rustix::process::getppid() == parent
        && start.elapsed() < Duration::from_secs(args.seconds)
    {
        for _ in 0..1_000_000 {
            std::hint::spin_loop();
        }
    }
    Exit::Ok
}
