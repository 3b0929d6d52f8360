//! Applications whose jobs cost what they are said to, and what became of these jobs, beside a simulation of the application's own file.
//!
//! Model: a job computes until it has used its cost of CPU time, or waits for a device for so long, and notes when it began and ended. Notes
//! of a task are the task's alone: jobs that met at a lock would wait for each other. What a watch above everything saw stand still is
//! said with them, so that nobody judges the machine.

use std::fmt::Write;
use std::sync::mpsc::{Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;
use talea_core::{CpuSet, Span, Time, Work};
use talea_exec::holes::{Hole, Looks, Monitor};
use talea_os::sched::{self, Attr, Policy};
use talea_os::{Tid, clock};
use talea_runtime::{Application, Config, Hand, Report, Rights, Task, TaskId, Version, VersionId};
use talea_sim::{Completion, Jobs, World};

/// A job that has been done; times from the start of the run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Done {
    pub(crate) job: u64,
    pub(crate) begin: Duration,
    pub(crate) end: Duration,
}

type Notes = Arc<Mutex<Vec<Done>>>;

/// An application that is watched.
pub(crate) struct Timed {
    pub(crate) app: Application,
    pub(crate) hand: Arc<OnceLock<Hand>>,
    cpus: Vec<u32>,
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
        let app = Application::new(Config { rights: Rights::Own, insist: true, ..config });
        Timed { app, cpus, hand: Arc::default(), notes: Vec::new() }
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
        mut does: impl FnMut() + Send + 'static,
    ) -> VersionId {
        let (hand, notes) = (Arc::clone(&self.hand), Arc::clone(&self.notes[task.number()]));
        self.app.version(task, Version::new(name).cost(cost), move |job| {
            let now = || hand.get().map_or(Duration::ZERO, Hand::now);
            let begin = now();
            does();
            let done = Done { job: job.number, begin, end: now() };
            let mut notes = notes.lock().expect("its own");
            if notes.len() < MOST {
                notes.push(done);
            }
        })
    }

    /// A task in one version, which computes.
    pub(crate) fn computing(&mut self, task: Task, cost: Duration) -> TaskId {
        let task = self.task(task);
        self.version(task, "only", cost, move || compute(cost));
        task
    }

    /// What the application says of itself, simulated for so long: its jobs in the order in which they end.
    pub(crate) fn simulated(&self, length: Duration) -> Vec<Completion> {
        let text = self.app.describe().expect("it can be said");
        let mut system = talea_system::system::read(&text, "the application", &()).expect("it is read back");
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
        let monitors: Vec<Monitor> = cpus.iter().map(|&cpu| Monitor::start(cpu, WATCHER, LOOKS)).collect();
        let tell = |told: Hand| hand.set(told).expect("once");
        let running = app.start_telling(tell).expect("it can be run");
        std::thread::sleep(length);
        let (_, report) = running.stop().expect("it ends by itself");
        let (now, ran) = (clock::now().as_ns(), hand.get().expect("it was told").now());
        let zero = now - ran.as_nanos() as u64;
        let of_run = |at: Time| Duration::from_nanos(at.as_ns().saturating_sub(zero));
        let holes = monitors.into_iter().flat_map(|monitor| monitor.stop().expect("root may watch"));
        // It may have begun a look earlier than it was seen.
        let whole = |hole: Hole| {
            (of_run(hole.from).saturating_sub(Duration::from_nanos(LOOKS.distance.as_ns())), of_run(hole.to))
        };
        let holes = holes.filter(|hole| hole.to.as_ns() > zero).map(whole).collect();
        let done = notes.iter().map(|notes| notes.lock().expect("it is over").clone()).collect();
        Seen { done, holes, report }
    }
}

/// Uses so much of its CPU.
pub(crate) fn compute(cost: Duration) {
    let end = clock::thread_cpu_time().checked_add(Work::from_ns(cost.as_nanos() as u64)).expect("a time");
    while clock::thread_cpu_time() < end {
        std::hint::spin_loop();
    }
}

impl Seen {
    /// Whether no CPU stood still.
    pub(crate) fn is_calm(&self) -> bool {
        self.holes.is_empty()
    }

    /// Whether a CPU stood still between these, or so long before that who was held up then may still be in the way.
    pub(crate) fn is_touched(&self, from: Duration, to: Duration, after: Duration) -> bool {
        self.holes.iter().any(|&(begin, end)| begin < to && from < end + after)
    }

    /// The middle one of the responses of a task whose job k is released at `offset` and k periods: of those that nothing has touched since
    /// the round began.
    pub(crate) fn response(&self, task: TaskId, offset: Duration, period: Duration) -> Option<Duration> {
        let released = |done: &Done| offset + period * done.job as u32;
        let all = self.done[task.number()].iter();
        let calm = all.filter(|done| !self.is_touched(period * done.job as u32, done.end, Duration::ZERO));
        let mut all: Vec<Duration> = calm.map(|done| done.end.saturating_sub(released(done))).collect();
        all.sort_unstable();
        all.get(all.len() / 2).copied()
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

/// Whether it is so in one of a few tries. What is not so in a try in which the machine did not stand still is a failure; where it stood
/// still in each, nothing is known, and that is said. `tries` says whether it is so, whether the machine was calm, and what it saw.
pub(crate) fn is_so(what: &str, mut tries: impl FnMut() -> (bool, bool, String)) {
    let mut seen = String::new();
    let mut was_calm = false;
    for _ in 0..5 {
        let (is_so, is_calm, saw) = tries();
        if is_so {
            return;
        }
        was_calm |= is_calm;
        let _ = writeln!(seen, "{saw}{}", if is_calm { "" } else { " (a CPU stood still)" });
    }
    assert!(!was_calm, "{what}:\n{seen}");
    println!("{what}: inconclusive, the machine stood still in every try:\n{seen}");
}
