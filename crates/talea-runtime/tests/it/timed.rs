//! Applications with jobs of known costs, whose execution is compared with a simulation of the
//! application's own file.
//!
//! Model: a job computes until it has consumed its cost, or waits for a device, and notes when it
//! started and ended. Each task has its own notes: jobs that met at a lock would wait for each
//! other. Stall monitors run beside, so that CPU stalls are not attributed to the scheduler.

use std::sync::mpsc::{Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;
use talea_core::{CpuSet, Monotonic, Span, Time, Work};
use talea_exec::stalls::{Monitor, ProbeConfig, Stall};
use talea_os::sched::{self, Attr, Policy};
use talea_os::{Tid, clock};
use talea_runtime::{
    Application, Config, Priorities, Report, Rights, RunHandle, Task, TaskId, Version, VersionId,
};
use talea_sim::{Completion, Jobs, Simulation};
use talea_system::{self as system, Registry};

/// A completed job; times from the start of the run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Done {
    pub(crate) job: u64,
    pub(crate) begin: Duration,
    pub(crate) end: Duration,
    /// CPU time of the job; zero if it waited for a device.
    computed: Duration,
}

type Notes = Arc<Mutex<Vec<Done>>>;

/// An application under measurement.
pub(crate) struct Timed {
    pub(crate) app: Application,
    pub(crate) handle: Arc<OnceLock<RunHandle>>,
    cpus: Vec<u32>,
    /// Custom policies of its file.
    registry: Registry,
    notes: Vec<Notes>,
}

/// Results of a run.
pub(crate) struct Observed {
    /// `done[n]`: completed jobs of task `n`.
    pub(crate) done: Vec<Vec<Done>>,
    /// CPU stalls.
    pub(crate) stalls: Vec<(Duration, Duration)>,
    pub(crate) report: Report,
}

/// Priority of the stall monitors: above dispatchers and watchdog of a run.
const MONITOR_PRIORITY: u8 = 98;
/// Configuration of the monitors, with a lower latency than in runs, because the tests compare
/// tenths of a millisecond.
const PROBES: ProbeConfig =
    ProbeConfig { latency: Span::from_ns(200_000), ..ProbeConfig::FOR_RUNS };
/// Maximum number of jobs of a task: the notes must not be reallocated during the run.
const MAX_JOBS: usize = 4_096;

impl Timed {
    /// Creates an application that requires real-time priorities.
    pub(crate) fn new(config: Config) -> Timed {
        let cpus = config.cpus.clone();
        let registry = match config.priorities {
            Priorities::Custom { name, make } => Registry::new().policy(name, make),
            _ => Registry::new(),
        };
        let app =
            Application::new(Config { rights: Rights::Own, require_real_time: true, ..config });
        Timed { app, cpus, registry, handle: Arc::default(), notes: Vec::new() }
    }

    pub(crate) fn task(&mut self, task: Task) -> TaskId {
        self.notes.push(Arc::new(Mutex::new(Vec::with_capacity(MAX_JOBS))));
        self.app.task(task)
    }

    /// Adds a version that calls `does`.
    pub(crate) fn version(
        &mut self,
        task: TaskId,
        name: &str,
        cost: Duration,
        does: impl FnMut() + Send + 'static,
    ) -> VersionId {
        self.noted(task, (name, cost), Duration::ZERO, does)
    }

    /// Adds a version that computes.
    pub(crate) fn computes(&mut self, task: TaskId, name: &str, cost: Duration) -> VersionId {
        self.noted(task, (name, cost), cost, move || compute(cost))
    }

    fn noted(
        &mut self,
        task: TaskId,
        (name, cost): (&str, Duration),
        computed: Duration,
        mut does: impl FnMut() + Send + 'static,
    ) -> VersionId {
        let (handle, notes) = (Arc::clone(&self.handle), Arc::clone(&self.notes[task.number()]));
        self.app.version(task, Version::new(name).cost(cost), move |job| {
            let now = || handle.get().map_or(Duration::ZERO, RunHandle::now);
            let begin = now();
            does();
            let done = Done { job: job.number, begin, end: now(), computed };
            let mut notes = notes.lock().expect("its own");
            if notes.len() < MAX_JOBS {
                notes.push(done);
            }
        })
    }

    /// Adds a task with one version, which computes.
    pub(crate) fn computing(&mut self, task: Task, cost: Duration) -> TaskId {
        let task = self.task(task);
        self.computes(task, "only", cost);
        task
    }

    /// Simulates the description of the application for this length. Returns its jobs in the order
    /// of completion.
    pub(crate) fn simulated(&self, length: Duration) -> Vec<Completion> {
        let text = self.app.describe().expect("it can be described");
        let mut system = system::read_with(&text, "the application", &(), &self.registry)
            .expect("it is read back");
        let root = system.roots.remove(0);
        let machine = root.tree.build().expect("a valid tree");
        let mut world =
            Simulation::new(machine, self.cpus.len() as u32, &root.workload(system.seed));
        let mut jobs = Jobs::default();
        world.run(Time::from_ns(length.as_nanos() as u64), &mut jobs);
        jobs.ended
    }

    /// Runs the application for this length.
    pub(crate) fn run(self, length: Duration) -> Observed {
        let Timed { app, handle, cpus, notes, .. } = self;
        let monitors: Vec<Monitor> =
            cpus.iter().map(|&cpu| Monitor::start(cpu, MONITOR_PRIORITY, PROBES)).collect();
        let tell = |reported: RunHandle| handle.set(reported).expect("once");
        let running = app.start_with(tell).expect("it can be run");
        std::thread::sleep(length);
        let (_, report) = running.stop().expect("it ends by itself");
        let (now, ran) = (clock::now(), handle.get().expect("stored").now());
        let zero = now.saturating_sub(Span::from_ns(ran.as_nanos() as u64));
        let of_run = |at: Monotonic| Duration::from_nanos(at.run_time(zero).as_ns());
        let stalls =
            monitors.into_iter().flat_map(|monitor| monitor.stop().expect("root may watch"));
        // The stall may have started a period before it was detected.
        let whole = |stall: Stall<Monotonic>| {
            (
                of_run(stall.from).saturating_sub(Duration::from_nanos(PROBES.period.as_ns())),
                of_run(stall.to),
            )
        };
        let stalls = stalls.filter(|stall| stall.to > zero).map(whole).collect();
        let done = notes.iter().map(|notes| notes.lock().expect("it is over").clone()).collect();
        Observed { done, stalls, report }
    }
}

/// Consumes this CPU time.
pub(crate) fn compute(cost: Duration) {
    let end = clock::thread_cpu_time()
        .checked_add(Work::from_ns(cost.as_nanos() as u64))
        .expect("a time");
    while clock::thread_cpu_time() < end {
        std::hint::spin_loop();
    }
}

impl Observed {
    /// Whether there was no CPU stall.
    pub(crate) fn is_calm(&self) -> bool {
        self.stalls.is_empty()
    }

    /// Whether a CPU stalled in the interval, or so shortly before that delayed jobs may still
    /// interfere.
    pub(crate) fn is_affected(&self, from: Duration, to: Duration, after: Duration) -> bool {
        self.stalls.iter().any(|&(begin, end)| begin < to && from < end + after)
    }

    /// Variant of [`Observed::is_affected`] with an aftermath of `after` and ten times the stall:
    /// the delayed work is done in the time that a load of nine tenths leaves.
    pub(crate) fn is_affected_under_load(
        &self,
        from: Duration,
        to: Duration,
        after: Duration,
    ) -> bool {
        self.stalls
            .iter()
            .any(|&(begin, end)| begin < to && from < end + after + end.saturating_sub(begin) * 10)
    }

    /// Returns the thousandths by which computing jobs without a CPU stall took longer than their
    /// CPU time, at most 50.
    ///
    /// The result is the median of the task with the smallest median, because one task is never
    /// preempted. The result estimates the time that is taken in slices too short for a monitor.
    pub(crate) fn taken(&self) -> u32 {
        let of_task = |done: &Vec<Done>| {
            let clear = done.iter().filter(|done| {
                !done.computed.is_zero() && !self.is_affected(done.begin, done.end, Duration::ZERO)
            });
            let longer = |done: &Done| {
                done.end.saturating_sub(done.begin + done.computed).as_nanos() * 1_000
                    / done.computed.as_nanos()
            };
            let mut all: Vec<u128> = clear.map(longer).collect();
            all.sort_unstable();
            all.get(all.len() / 2).copied()
        };
        self.done.iter().filter_map(of_task).min().unwrap_or(0).min(50) as u32
    }

    /// Returns the total length of the CPU stalls.
    pub(crate) fn total_stalled(&self) -> Duration {
        self.stalls.iter().map(|&(begin, end)| end.saturating_sub(begin)).sum()
    }

    /// Returns the sorted response times of a task whose job k is released at `offset` and k
    /// periods.
    ///
    /// The result excludes rounds with a CPU stall before the expected end of the job, `expected`
    /// after its release. A job that has not ended has the maximum.
    pub(crate) fn responses(
        &self,
        task: TaskId,
        (offset, period): (Duration, Duration),
        rounds: u32,
        expected: Duration,
    ) -> Vec<Duration> {
        let response = |round: u32| {
            let begin = period * round;
            let released = begin + offset;
            if self.is_affected(begin, released + expected, Duration::ZERO) {
                return None;
            }
            let done = self.done[task.number()].iter().find(|done| done.job == u64::from(round));
            Some(done.map_or(Duration::MAX, |done| done.end.saturating_sub(released)))
        };
        let mut all: Vec<Duration> = (0..rounds).filter_map(response).collect();
        all.sort_unstable();
        all
    }
}

/// A device: a call waits for a time and uses no CPU.
#[derive(Clone)]
pub(crate) struct Device(Sender<(Monotonic, SyncSender<()>)>);

impl Device {
    /// Creates a device whose thread runs on `cpu` and ends with the last handle.
    pub(crate) fn new(cpu: u32) -> Device {
        let (sender, requests) = channel::<(Monotonic, SyncSender<()>)>();
        std::thread::spawn(move || {
            sched::set_affinity(Tid::current(), &CpuSet::single(cpu)).expect("a CPU");
            sched::set(Tid::current(), &Attr::grant(Policy::Fifo(97))).expect("root");
            for (until, done) in requests {
                clock::sleep_until(until);
                let _ = done.send(());
            }
        });
        Device(sender)
    }

    pub(crate) fn use_for(&self, time: Duration) {
        let until = clock::now() + Span::from_ns(time.as_nanos() as u64);
        let (tell, reported) = sync_channel(1);
        self.0.send((until, tell)).expect("it is there");
        reported.recv().expect("it ends with its last user");
    }
}
