//! Applications whose jobs cost what they are said to, and what became of these jobs, beside a
//! simulation of the application's own file.
//!
//! Model: a job computes until it has used its cost of CPU time, or waits for a device for so long,
//! and notes when it began and ended. Notes of a task are the task's alone: jobs that met at a lock
//! would wait for each other. What a watch above everything saw stand still is said with them, so
//! that nobody judges the machine.

use std::sync::mpsc::{Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;
use talea_core::{CpuSet, Span, Time, Work};
use talea_exec::holes::{Hole, Looks, Monitor};
use talea_os::sched::{self, Attr, Policy};
use talea_os::{Tid, clock};
use talea_runtime::{
    Application, Config, Hand, Priorities, Report, Rights, Task, TaskId, Version, VersionId,
};
use talea_sim::{Completion, Jobs, World};
use talea_system::system::{self, Registry};

/// A job that has been done; times from the start of the run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Done {
    pub(crate) job: u64,
    pub(crate) begin: Duration,
    pub(crate) end: Duration,
    /// CPU time that it has used up; nothing, if it waited for a device.
    computed: Duration,
}

type Notes = Arc<Mutex<Vec<Done>>>;

/// An application that is watched.
pub(crate) struct Timed {
    pub(crate) app: Application,
    pub(crate) hand: Arc<OnceLock<Hand>>,
    cpus: Vec<u32>,
    /// What its own file names.
    registry: Registry,
    notes: Vec<Notes>,
}

/// What became of it.
pub(crate) struct Seen {
    /// By task, in their order.
    pub(crate) done: Vec<Vec<Done>>,
    /// When a CPU stood still.
    pub(crate) holes: Vec<(Duration, Duration)>,
    pub(crate) report: Report,
}

/// Above dispatchers and watchdogs of a run.
const WATCHER: u8 = 98;
/// More closely than a run looks: of tenths of a millisecond it is that is judged.
const LOOKS: Looks = Looks { late: Span::from_ns(200_000), ..Looks::OF_RUNS };
/// More jobs than any of these runs has of a task: notes must not be moved while it runs.
const MOST: usize = 4_096;

impl Timed {
    /// With real-time priorities or not at all.
    pub(crate) fn new(config: Config) -> Timed {
        let cpus = config.cpus.clone();
        let registry = match config.priorities {
            Priorities::Custom { name, make } => Registry::new().policy(name, make),
            _ => Registry::new(),
        };
        let app = Application::new(Config { rights: Rights::Own, insist: true, ..config });
        Timed { app, cpus, registry, hand: Arc::default(), notes: Vec::new() }
    }

    pub(crate) fn task(&mut self, task: Task) -> TaskId {
        self.notes.push(Arc::new(Mutex::new(Vec::with_capacity(MOST))));
        self.app.task(task)
    }

    /// A version that does this.
    pub(crate) fn version(
        &mut self,
        task: TaskId,
        name: &str,
        cost: Duration,
        does: impl FnMut() + Send + 'static,
    ) -> VersionId {
        self.noted(task, (name, cost), Duration::ZERO, does)
    }

    /// One that computes.
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
        let (hand, notes) = (Arc::clone(&self.hand), Arc::clone(&self.notes[task.number()]));
        self.app.version(task, Version::new(name).cost(cost), move |job| {
            let now = || hand.get().map_or(Duration::ZERO, Hand::now);
            let begin = now();
            does();
            let done = Done { job: job.number, begin, end: now(), computed };
            let mut notes = notes.lock().expect("its own");
            if notes.len() < MOST {
                notes.push(done);
            }
        })
    }

    /// A task in one version, which computes.
    pub(crate) fn computing(&mut self, task: Task, cost: Duration) -> TaskId {
        let task = self.task(task);
        self.computes(task, "only", cost);
        task
    }

    /// What the application says of itself, simulated for so long: its jobs in the order in which
    /// they end.
    pub(crate) fn simulated(&self, length: Duration) -> Vec<Completion> {
        let text = self.app.describe().expect("it can be said");
        let mut system = system::read_with(&text, "the application", &(), &self.registry)
            .expect("it is read back");
        let root = system.roots.remove(0);
        let machine = root.tree.build().expect("a sound tree");
        let mut world = World::new(machine, self.cpus.len() as u32, &root.workload(system.seed));
        let mut jobs = Jobs::default();
        world.run(Time::from_ns(length.as_nanos() as u64), &mut jobs);
        jobs.ended
    }

    /// Runs it for so long.
    pub(crate) fn run(self, length: Duration) -> Seen {
        let Timed { app, hand, cpus, notes, .. } = self;
        let monitors: Vec<Monitor> =
            cpus.iter().map(|&cpu| Monitor::start(cpu, WATCHER, LOOKS)).collect();
        let tell = |told: Hand| hand.set(told).expect("once");
        let running = app.start_telling(tell).expect("it can be run");
        std::thread::sleep(length);
        let (_, report) = running.stop().expect("it ends by itself");
        let (now, ran) = (clock::now().as_ns(), hand.get().expect("it was told").now());
        let zero = now - ran.as_nanos() as u64;
        let of_run = |at: Time| Duration::from_nanos(at.as_ns().saturating_sub(zero));
        let holes =
            monitors.into_iter().flat_map(|monitor| monitor.stop().expect("root may watch"));
        // It may have begun a look earlier than it was seen.
        let whole = |hole: Hole| {
            (
                of_run(hole.from).saturating_sub(Duration::from_nanos(LOOKS.distance.as_ns())),
                of_run(hole.to),
            )
        };
        let holes = holes.filter(|hole| hole.to.as_ns() > zero).map(whole).collect();
        let done = notes.iter().map(|notes| notes.lock().expect("it is over").clone()).collect();
        Seen { done, holes, report }
    }
}

/// Uses so much of its CPU.
pub(crate) fn compute(cost: Duration) {
    let end = clock::thread_cpu_time()
        .checked_add(Work::from_ns(cost.as_nanos() as u64))
        .expect("a time");
    while clock::thread_cpu_time() < end {
        std::hint::spin_loop();
    }
}

impl Seen {
    /// Whether no CPU stood still.
    pub(crate) fn is_calm(&self) -> bool {
        self.holes.is_empty()
    }

    /// Whether a CPU stood still between these, or so long before that who was held up then may
    /// still be in the way.
    pub(crate) fn is_touched(&self, from: Duration, to: Duration, after: Duration) -> bool {
        self.holes.iter().any(|&(begin, end)| begin < to && from < end + after)
    }

    /// As [`Seen::is_touched`], where a hole is in the way for so long after it and ten times its
    /// own length: what has waited meanwhile is done in what a set of nine tenths of a CPU leaves.
    pub(crate) fn is_touched_when_full(
        &self,
        from: Duration,
        to: Duration,
        after: Duration,
    ) -> bool {
        self.holes
            .iter()
            .any(|&(begin, end)| begin < to && from < end + after + end.saturating_sub(begin) * 10)
    }

    /// By how much longer than their CPU time jobs took that computed and that no hole has touched,
    /// in thousandths: the middle one of the task for which that is least, for somebody is never
    /// interrupted. What a machine takes from them in slices that no monitor sees; a twentieth at
    /// most.
    pub(crate) fn taken(&self) -> u32 {
        let of_task = |done: &Vec<Done>| {
            let clear = done.iter().filter(|done| {
                !done.computed.is_zero() && !self.is_touched(done.begin, done.end, Duration::ZERO)
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

    /// For how long CPUs stood still, all in all.
    pub(crate) fn stood(&self) -> Duration {
        self.holes.iter().map(|&(begin, end)| end.saturating_sub(begin)).sum()
    }

    /// The responses of a task whose job k is released at `offset` and k periods, in order: of
    /// those rounds that nothing has touched before the job should have ended, `expected` after its
    /// release. Of a job that has not ended it is the longest there is.
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
            if self.is_touched(begin, released + expected, Duration::ZERO) {
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

/// A device: whoever asks it waits for so long and uses no CPU meanwhile.
#[derive(Clone)]
pub(crate) struct Device(Sender<(Time, SyncSender<()>)>);

impl Device {
    /// It ends with the last who has it.
    pub(crate) fn new(cpu: u32) -> Device {
        let (ask, asked) = channel::<(Time, SyncSender<()>)>();
        std::thread::spawn(move || {
            sched::set_affinity(Tid::current(), &CpuSet::single(cpu)).expect("a CPU");
            sched::set(Tid::current(), &Attr::grant(Policy::Fifo(97))).expect("root");
            for (until, done) in asked {
                clock::sleep_until(until);
                let _ = done.send(());
            }
        });
        Device(ask)
    }

    pub(crate) fn use_for(&self, time: Duration) {
        let until = clock::now() + Span::from_ns(time.as_nanos() as u64);
        let (tell, told) = sync_channel(1);
        self.0.send((until, tell)).expect("it is there");
        told.recv().expect("it ends with its last user");
    }
}
