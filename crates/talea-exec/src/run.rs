//! A run from its threads' first breath to their last.
//!
//! Everything that is changed belongs to threads that the run made itself, and ends with them: nothing of the machine is
//! touched but for the groups of [`programs`](crate::programs), which are the run's own and go with it. Only the handler of SIGURG is the
//! process's; it is put back.
//!
//! Order: programs, standing still; workers, each at its desk; the machine and its mechanism; dispatchers, watchdog and monitors; the zero of the
//! time line, a moment later. And back: dispatchers leave at the end, the last things are done to the workers, all are
//! waited for. A panic in any of them calls the run off and is passed on when all have ended.

use crate::dispatcher::{self, Effort, Timeline};
use crate::flow::Flow;
use crate::holes::{self, Hole};
use crate::load::{Arrivals, Load};
use crate::mechanism::audit::{Audited, Consumed};
use crate::mechanism::freeze::Freeze;
use crate::mechanism::{Flip, Identity, Mixed};
use crate::office::{Counter, Office};
use crate::programs::{Actor, ProgramReport, Programs};
use crate::record::{self, Entry};
use crate::remote::Remote;
use crate::rights::{self, Crew, Grantor, Standing};
use crate::root::{LEAST, Root};
pub use crate::stage::Band;
use crate::stage::{Hold, Ranks, Stage};
use crate::stretch::{self, Stretch};
use crate::tally::Tally;
use crate::truth::{self, Ran};
use crate::watchdog::Watchdog;
use crate::work::Body;
use crate::worker;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, OnceLock};
use std::thread::{Builder, Scope, ScopedJoinHandle};
use talea_core::cpus::MAX_CPUS;
use talea_core::machine::{Body as Node, Condition, LONGEST, Machine, TaskId, Tree, TreeError};
use talea_core::sched::Policy;
use talea_core::{Span, Time, Work};
use talea_os::gate::Handler;
use talea_os::pilock::PiLock;
use talea_os::switches::Switches;
use talea_os::{Tid, clock};

/// A task of a root: what comes, and what its jobs do.
pub struct TaskPlan<'a> {
    /// Jobs.
    pub load: Load,
    /// [`crate::work::spender`], or anybody's own.
    pub body: Body<'a>,
}

impl fmt::Debug for TaskPlan<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskPlan").field("load", &self.load).finish_non_exhaustive()
    }
}

/// A root of the system.
#[derive(Debug)]
pub struct RootPlan<'a> {
    /// Its tree.
    pub tree: &'a Tree,
    /// By task of its machine.
    pub tasks: Vec<TaskPlan<'a>>,
    /// What becomes of battery, mode and mask, in order of time.
    pub changes: Vec<(Time, Condition)>,
    /// By channel of the tree, if there are tasks whose jobs move tokens themselves ([`Load::tells`]).
    pub flows: Vec<Arc<Flow>>,
    /// The CPUs that it gets, as the kernel counts them; as many as the tree has, and nobody else's.
    pub cpus: Vec<u32>,
}

/// How a run is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// How long it is; at most [`LONGEST`].
    pub duration: Span,
    /// When it begins, on the machine's monotonic clock, for somebody who wants to be there; without it, and if its threads are not
    /// ready by then, a moment after they are.
    pub begin: Option<Time>,
    /// Priorities.
    pub band: Band,
    /// Entries of a dispatcher's record, made before the run begins; at most [`MOST_ROOM`].
    pub room: usize,
    /// Whether each worker's clock is read whenever it is let run and stopped ([`Consumed`]).
    pub audit: bool,
    /// Whether a monitor looks for holes on each CPU.
    pub monitor: bool,
    /// Whether threads get the priorities at all. Without them, and without any right, the machine's orders are obeyed by
    /// stopping threads; who else the kernel runs meanwhile is its own affair.
    pub priorities: bool,
    /// Whether the kernel is asked to tell when programs wake; otherwise, and where it refuses, their clocks are looked at each
    /// millisecond.
    pub listen: bool,
    /// Up to how many switches of threads the kernel is asked to write down on each CPU; 0: none.
    pub switches: usize,
}

/// The largest record of a dispatcher: nearly a gigabyte.
pub const MOST_ROOM: usize = 1 << 24;

impl Options {
    /// A run of this length with everything that can be looked at.
    pub fn new(duration: Span) -> Options {
        let band = Band::default();
        Options {
            duration,
            begin: None,
            band,
            room: 1 << 16,
            audit: true,
            monitor: true,
            priorities: true,
            listen: true,
            switches: 0,
        }
    }
}

/// What became of a root.
#[derive(Clone, Debug)]
pub struct RootReport {
    /// What went into its machine and what came out.
    pub record: Vec<Entry>,
    /// Entries that found no room; then the record ends where the first of them should be.
    pub lost: u64,
    /// By task.
    pub consumed: Vec<Consumed>,
    /// By CPU.
    pub effort: Vec<Effort>,
    /// Jobs for which there was no room.
    pub refused: u64,
    /// By task: what became of its jobs, recorded or not.
    pub tallies: Vec<Tally>,
    /// By task: of those that are programs.
    pub programs: Vec<Option<ProgramReport>>,
    /// When its CPUs did less than they were told to, as far as its workers were audited: in the order of their ends.
    pub stretches: Vec<Stretch>,
    /// Who really ran where and when, by the kernel's word, if it was asked and has lost nothing.
    pub ran: Option<Vec<Ran>>,
}

impl RootReport {
    /// What dispatchers have used, and workers beside their jobs: a worker that has finished steps the machine itself. SF3P's scheduler
    /// overhead. Of a run that was not audited only what dispatchers have used.
    pub fn scheduling(&self) -> Work {
        let dispatchers: u64 = self.effort.iter().map(|effort| effort.used.as_ns()).sum();
        let workers: u64 = self.consumed.iter().map(|consumed| consumed.stray().as_ns()).sum();
        Work::from_ns(dispatchers + workers)
    }

    /// For how long CPUs belonged to workers that got nothing done.
    pub fn stretched(&self) -> Span {
        stretch::of(self)
    }
}

/// What became of a run.
#[derive(Clone, Debug)]
pub struct Report {
    /// When it began, on the machine's monotonic clock: time zero of everything else here.
    pub zero: Time,
    /// By root.
    pub roots: Vec<RootReport>,
    /// On all CPUs, where a monitor looked.
    pub holes: Vec<Hole>,
    /// How long it was: shorter than planned if it was called off.
    pub length: Span,
    /// How the kernel scheduled its threads when it began.
    pub standing: Standing,
}

/// Why there was no run, or no end to it.
#[derive(Debug)]
pub enum Failure {
    /// The plan can't be executed.
    Plan(String),
    /// A tree can't be built.
    Tree(TreeError),
    /// The kernel refused something that needs a right: CAP_SYS_NICE, or RLIMIT_RTPRIO up to the watchdog's priority.
    NoRight(io::Error),
    /// The kernel refused something else.
    Os(io::Error),
    /// It did not end by itself and was ended.
    Hung,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Plan(why) => f.write_str(why),
            Failure::Tree(wrong) => write!(f, "node {} of the tree: {}", wrong.node.0, wrong.why),
            Failure::NoRight(error) => write!(
                f,
                "no right to real-time priorities ({error}): run it as root or with CAP_SYS_NICE, outside control \
                 groups without real-time runtime; `talea simulate` needs no right"
            ),
            Failure::Os(error) => write!(f, "the kernel refused: {error}"),
            Failure::Hung => f.write_str("the run did not end by itself and was ended by its watchdog"),
        }
    }
}

impl std::error::Error for Failure {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Failure::NoRight(error) | Failure::Os(error) => Some(error),
            _ => None,
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        if error.kind() == io::ErrorKind::PermissionDenied {
            Failure::NoRight(error)
        } else {
            Failure::Os(error)
        }
    }
}

/// Between the last thread's readiness and the zero of the time line.
const LEAD: Span = Span::from_ns(3_000_000);

fn check(roots: &[RootPlan<'_>], options: &Options) -> Result<(), Failure> {
    let wrong = |why: String| Err(Failure::Plan(why));
    if !options.band.is_sound() {
        return wrong(format!("{:?} is no band: 1 ≤ bottom, bottom + 2 ≤ top ≤ 98", options.band));
    }
    if options.duration > LONGEST {
        return wrong(format!("a run of {} is longer than any clock goes", options.duration));
    }
    if options.room > MOST_ROOM {
        return wrong(format!("a record with {} entries; at most {MOST_ROOM}", options.room));
    }
    let mut seen = Vec::new();
    for root in roots {
        can_be_driven(root.tree).map_err(Failure::Plan)?;
        if root.cpus.len() != root.tree.cpus as usize {
            return wrong(format!("a root with {} CPUs was given {}", root.tree.cpus, root.cpus.len()));
        }
        for (task, plan) in root.tasks.iter().enumerate() {
            if matches!(plan.load.arrivals, Arrivals::Every { period, .. } if period.is_zero()) {
                return wrong(format!("task {task} has a job every 0 ns"));
            }
        }
        if root.tasks.iter().any(|task| task.load.program.is_some()) {
            programs_can_run(root, options).map_err(Failure::Plan)?;
        }
        for &cpu in &root.cpus {
            if cpu as usize >= MAX_CPUS {
                return wrong(format!("CPU {cpu} is beyond the last one, {}", MAX_CPUS - 1));
            }
            if seen.contains(&cpu) {
                return wrong(format!("CPU {cpu} was given twice"));
            }
            seen.push(cpu);
        }
    }
    Ok(())
}

/// Whether programs can be tasks of this root in this run.
fn programs_can_run(root: &RootPlan<'_>, options: &Options) -> Result<(), String> {
    let Band { bottom, top } = options.band;
    if root.tree.cpus > 1 {
        Err("a program stays on one CPU: let it stand below a root that owns one".to_owned())
    } else if !options.priorities {
        Err("programs need real-time priorities and groups of their own, which are root's".to_owned())
    } else if bottom + 3 > top {
        Err(format!("{:?} leaves no place for programs: bottom + 3 ≤ top", options.band))
    } else {
        Ok(())
    }
}

/// Whether threads can do what the tree says.
fn can_be_driven(tree: &Tree) -> Result<(), String> {
    for (_, node) in tree.nodes() {
        match &node.body {
            Node::Task(_) => {}
            Node::Scheduler(spec) => {
                let quantum = match spec.policy {
                    Policy::RoundRobin { quantum } => Some(quantum),
                    _ => None,
                };
                let budget = spec.reservation.map(|reservation| reservation.budget);
                for (what, work) in [("quantum", quantum), ("budget", budget)] {
                    if let Some(work) = work.filter(|work| work.as_ns() < LEAST.as_ns()) {
                        let name = &spec.name;
                        return Err(format!("{name}: a {what} of {work} can't be kept; at least {LEAST}"));
                    }
                }
            }
        }
    }
    Ok(())
}

/// Runs the system and says what happened.
///
/// A job that is still under way at the end of the run is waited for. After a second of that the run is ended: all its
/// threads become ordinary ones, and [`Failure::Hung`] is returned once the body has come back. A body that has not come
/// back three seconds after the end, because it ignores its flag, can't be stopped otherwise: **the program is aborted**.
///
/// # Errors
/// If it can't be run here, or had to be ended.
///
/// # Panics
/// Passes on the panic of a job.
pub fn execute(roots: Vec<RootPlan<'_>>, options: &Options) -> Result<Report, Failure> {
    execute_until(roots, options, &Remote::default())
}

/// As [`execute`], with somebody who may call it off, or ask for more.
///
/// # Errors
/// As [`execute`].
///
/// # Panics
/// As [`execute`].
pub fn execute_until(
    roots: Vec<RootPlan<'_>>,
    options: &Options,
    remote: &Remote,
) -> Result<Report, Failure> {
    execute_granted(roots, options, remote, None)
}

/// As [`execute_until`]; where the run does not take priorities itself (`options.priorities`), `grantor` gives them.
///
/// # Errors
/// As [`execute`].
///
/// # Panics
/// As [`execute`].
pub fn execute_granted(
    roots: Vec<RootPlan<'_>>,
    options: &Options,
    remote: &Remote,
    grantor: Option<&dyn Grantor>,
) -> Result<Report, Failure> {
    check(&roots, options)?;
    let mut machines = Vec::new();
    for root in &roots {
        let machine = root.tree.build().map_err(Failure::Tree)?;
        if machine.tasks() != root.tasks.len() {
            let why = format!("a root with {} tasks was given {}", machine.tasks(), root.tasks.len());
            return Err(Failure::Plan(why));
        }
        machines.push(machine);
    }
    let stages: Vec<Arc<Stage>> =
        roots.iter().map(|root| Arc::new(Stage::new(&root.cpus, root.tasks.len()))).collect();
    for stage in &stages {
        stage.crew.set(stages.iter().map(Arc::downgrade).collect()).expect("set once");
    }
    // Outlives every thread that may be stopped.
    let _handler = Handler::install()?;
    let watchdog = Watchdog::new();
    let stop = AtomicBool::new(false);
    // Who is killed by it is waited for by threads of the scope.
    let programs = Programs::new();
    let (watchdog, stop, programs, stages) = (&watchdog, &stop, &programs, &stages[..]);
    let grantor = grantor.filter(|_| !options.priorities);
    let shared = Shared { stages, watchdog, remote, stop, options, programs, grantor };
    let result = std::thread::scope(|scope| {
        // Also when something fails half way: the scope waits for all threads.
        let _ending = Ending(&shared);
        shared.run(scope, roots, machines)
    });
    if watchdog.has_bitten() { Err(Failure::Hung) } else { result }
}

/// Of everything that the threads of a run borrow.
struct Shared<'s> {
    stages: &'s [Arc<Stage>],
    watchdog: &'s Watchdog,
    remote: &'s Remote,
    /// Monitors leave.
    stop: &'s AtomicBool,
    options: &'s Options,
    programs: &'s Programs,
    grantor: Option<&'s dyn Grantor>,
}

/// Lets everybody go, whatever has happened.
struct Ending<'a, 's>(&'a Shared<'s>);

impl Drop for Ending<'_, '_> {
    fn drop(&mut self) {
        self.0.stop.store(true, Ordering::Relaxed);
        self.0.programs.end();
        for stage in self.0.stages {
            stage.call_off();
            stage.let_go();
        }
        self.0.watchdog.call_off();
    }
}

type Live = Office<Audited<Mixed<Actor>>>;
/// Where the workers of a root find it once it is there.
type Door = Arc<OnceLock<Counter<Audited<Mixed<Actor>>>>>;

fn join<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

impl<'s> Shared<'s> {
    fn run<'scope, 'a: 'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        roots: Vec<RootPlan<'a>>,
        machines: Vec<Machine>,
    ) -> Result<Report, Failure>
    where
        's: 'scope,
    {
        let wanted: Vec<Vec<Option<Vec<String>>>> = roots
            .iter()
            .map(|root| root.tasks.iter().map(|task| task.load.program.clone()).collect())
            .collect();
        let has_programs = wanted.iter().flatten().any(Option::is_some);
        let hold = match (self.options.priorities, self.grantor) {
            (true, _) => Hold::Own,
            (false, Some(_)) => Hold::Given,
            (false, None) => Hold::Nothing,
        };
        let ranks = Ranks::new(self.options.band, hold, has_programs);
        let mut troupe = self.programs.gather(scope, &wanted, self.stages, ranks, self.options)?;
        let cpus: Vec<Vec<u32>> = roots.iter().map(|root| root.cpus.clone()).collect();
        let mut workers = Vec::new();
        let mut live = Vec::new();
        let mut doors = Vec::new();
        for (number, ((root, stage), machine)) in roots.into_iter().zip(self.stages).zip(machines).enumerate()
        {
            let (bodies, loads): (Vec<_>, Vec<_>) =
                root.tasks.into_iter().map(|task| (task.body, task.load)).unzip();
            let door = Door::default();
            let identities = employ(scope, stage, &door, ranks, bodies, &mut workers)?;
            let actors = troupe.actors(number);
            // Of a root with one CPU: see `office`. A program stands above a worker, and would take the CPU from one that lets it go in
            // the middle of a step.
            let may_step = root.cpus.len() == 1 && ranks.hold != Hold::Nothing && actors.is_none();
            doors.push(may_step.then_some(door));
            let tasks = identities.len();
            let flip = Flip::new(Arc::clone(stage), ranks, &identities);
            let freeze = actors.map(|actors| Freeze::new(Arc::clone(stage), actors));
            let mechanism = Audited::new(Mixed::new(flip, freeze), tasks, self.options.audit)?;
            let cpus = root.cpus.len();
            let root = Root::new(machine, cpus, mechanism, loads, root.changes, root.flows)?;
            live.push(Arc::new(PiLock::new(Live::new(root, cpus, tasks, self.options.room))));
        }
        let mut dispatchers = Vec::new();
        let mut starts = Vec::new();
        let (ready, entered) = channel();
        for (root, numbers) in cpus.iter().enumerate() {
            for (cpu, &number) in numbers.iter().enumerate() {
                let (start, started) = channel::<Timeline>();
                starts.push(start);
                let (ready, live) = (ready.clone(), Arc::clone(&live[root]));
                let stage = &self.stages[root];
                let name = format!("exec-cpu{number}");
                dispatchers.push(Builder::new().name(name).spawn_scoped(scope, move || {
                    // Whoever waits for it has not gone.
                    let _ = ready.send(dispatcher::enter(number, ranks).map(|()| Tid::current()));
                    // If another one falls before it says anything, that is how it is noticed.
                    drop(ready);
                    match started.recv() {
                        Ok(time) => dispatcher::drive(cpu, stage, &live, time),
                        // Another one could not enter.
                        Err(_) => Ok(Effort::default()),
                    }
                })?);
            }
        }
        drop(ready);
        let tids = entered.iter().take(dispatchers.len()).collect::<io::Result<Vec<Tid>>>()?;
        let all_in = tids.len() == dispatchers.len();
        *self.watchdog.dispatchers.lock() = tids;
        if !all_in {
            // One fell; the others leave when there is no start for them, and its panic is passed on.
            starts.clear();
        }
        let (ready, entered) = channel();
        let (dog, stages, programs) = (self.watchdog, self.stages, self.programs);
        let (begin, begun) = channel();
        let dog = Builder::new().name("exec-watchdog".into()).spawn_scoped(scope, {
            let ready = ready.clone();
            move || {
                let is_in = dog.enter(ranks);
                let may_watch = is_in.is_ok();
                let _ = ready.send(is_in);
                drop(ready);
                if may_watch {
                    dog.watch(&begun, stages, programs);
                }
            }
        })?;
        let mut monitors = Vec::new();
        let mut looks = Vec::new();
        for &cpu in cpus.iter().flatten().filter(|_| self.options.monitor) {
            let (look, looked) = channel::<Time>();
            looks.push(look);
            let (ready, stop) = (ready.clone(), self.stop);
            let watch = move || {
                let _ = ready.send(holes::enter(cpu, ranks));
                drop(ready);
                looked.recv().map_or_else(|_| Vec::new(), |zero| holes::watch(cpu, zero, stop))
            };
            let name = format!("exec-monitor{cpu}");
            monitors.push(Builder::new().name(name).spawn_scoped(scope, watch)?);
        }
        drop(ready);
        // Nobody begins whom nobody watches.
        entered.iter().collect::<io::Result<()>>()?;
        let crew = self.crew(&cpus);
        let standing =
            if all_in { rights::settle(&crew, self.stages, self.grantor)? } else { Standing::default() };
        let all: Vec<u32> = cpus.iter().flatten().copied().collect();
        // Without the right to it a run is a run all the same.
        let switches = match self.options.switches {
            0 => None,
            most => Switches::watch(&all, most).ok(),
        };
        let tids: Vec<Vec<Tid>> = self.stages.iter().map(|stage| stage.workers.lock().clone()).collect();
        let soonest = clock::now() + LEAD;
        let zero = self.options.begin.map_or(soonest, |begin| begin.max(soonest));
        let until = Time::ZERO + self.options.duration;
        if all_in {
            let _ = begin.send(zero + self.options.duration);
            self.remote.begins(self.stages, zero);
        }
        for look in looks {
            let _ = look.send(zero);
        }
        let time = Timeline { zero, until };
        for (door, live) in doors.iter().zip(&live) {
            if let Some(door) = door {
                door.set(Counter::new(Arc::clone(live), time)).expect("set once");
            }
        }
        for start in starts {
            // One that fell has called everybody off.
            let _ = start.send(time);
        }
        drop(begin);
        let mut efforts = Vec::new();
        for dispatcher in dispatchers {
            efforts.push(join(dispatcher)?);
        }
        self.watchdog.dispatchers.lock().clear();
        // However they came to leave: the others have as long from now on as after a planned end.
        self.watchdog.is_over(clock::now());
        self.programs.end();
        let mut fates = troupe.leave();
        let left = efforts.iter().map(|effort: &Effort| effort.left).max().unwrap_or(Time::ZERO);
        let mut reports = Vec::new();
        let mut efforts = efforts.into_iter();
        for (live, numbers) in live.iter().zip(&cpus) {
            let effort = efforts.by_ref().take(numbers.len()).collect();
            let mut live = live.lock();
            let (record, lost) = record::merge(live.take_logs());
            let root = &live.root;
            let consumed = root.mechanism().consumed().to_vec();
            let mut stretches = [root.mechanism().stretches().all(), root.late()].concat();
            stretches.sort_by_key(|stretch| stretch.to);
            let (refused, tallies) = (root.refused(), root.tallies().to_vec());
            let programs = fates.remove(0);
            reports.push(RootReport {
                record,
                lost,
                effort,
                consumed,
                refused,
                tallies,
                programs,
                stretches,
                ran: None,
            });
        }
        for worker in workers {
            join(worker);
        }
        for stage in self.stages {
            stage.workers.lock().clear();
        }
        if let Some(stays) =
            switches.and_then(|switches| switches.finish().ok()).filter(|stays| stays.lost == 0)
        {
            for ((report, tids), numbers) in reports.iter_mut().zip(&tids).zip(&cpus) {
                report.ran = Some(truth::of_workers(&stays.stays, tids, numbers, zero));
            }
        }
        self.stop.store(true, Ordering::Relaxed);
        let mut holes = Vec::new();
        for monitor in monitors {
            holes.extend(join(monitor));
        }
        self.watchdog.call_off();
        join(dog);
        Ok(Report { zero, roots: reports, holes, length: left.since(Time::ZERO), standing })
    }

    /// All threads that are in; `cpus`: of each root.
    fn crew(&self, cpus: &[Vec<u32>]) -> Crew {
        let numbers = cpus.iter().flatten().copied();
        let workers = self.stages.iter().zip(cpus).flat_map(|(stage, cpus)| {
            let tids = stage.workers.lock().clone();
            tids.into_iter().map(|tid| (tid, cpus.clone()))
        });
        Crew {
            watchdog: self.watchdog.own.lock().clone(),
            dispatchers: self.watchdog.dispatchers.lock().iter().copied().zip(numbers).collect(),
            workers: workers.collect(),
        }
    }
}

/// A worker for each body, at its desk.
fn employ<'scope, 'a: 'scope>(
    scope: &'scope Scope<'scope, '_>,
    stage: &Arc<Stage>,
    door: &Door,
    ranks: Ranks,
    bodies: Vec<Body<'a>>,
    workers: &mut Vec<ScopedJoinHandle<'scope, ()>>,
) -> Result<Vec<Identity>, Failure> {
    let (say, said) = channel();
    let count = bodies.len();
    for (task, body) in (0..).map(TaskId).zip(bodies) {
        let (stage, door, say) = (Arc::clone(stage), Arc::clone(door), say.clone());
        let name = format!("exec-task{}", task.0);
        workers.push(Builder::new().name(name).spawn_scoped(scope, move || {
            worker::live(task, &stage, &door, ranks, body, move |identity| {
                // Whoever asked has not gone.
                let _ = say.send((task, identity));
            });
        })?);
    }
    drop(say);
    let mut identities: Vec<Option<Identity>> = vec![None; count];
    for (task, identity) in said.iter().take(count) {
        identities[task.0 as usize] = Some(identity?);
    }
    let identities: Vec<Identity> = identities.into_iter().flatten().collect();
    assert_eq!(identities.len(), count, "each of them says so");
    let tids = identities.iter().map(|identity| identity.tid).collect();
    *stage.workers.lock() = tids;
    Ok(identities)
}
