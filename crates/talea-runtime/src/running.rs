//! An application that runs.

use crate::application::{Application, Declared, Function, TaskId};
use crate::channel::Kept;
use crate::config::{Daemon, Rights, Waiting};
use crate::doing::Doing;
use crate::report::{Report, ShieldReport, TaskReport};
use crate::rights::{Booking, ByDaemon};
use crate::shield;
use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use talea_core::Span;
use talea_core::machine::{Condition, LONGEST, Tree};
use talea_core::mutate;
use talea_exec::{
    Body, Failure, Grantor, Load, Options, Remote, RootPlan, TaskPlan, execute_granted, panics,
};
use talea_os::{Tid, clock, sched};

/// Why there is no run, or was none.
#[derive(Debug)]
pub enum Error {
    /// What is declared makes no sense.
    Declared(String),
    /// The machine has not what is configured.
    Machine(String),
    /// It can't be executed here, or had to be ended.
    Run(Failure),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Declared(why) | Error::Machine(why) => f.write_str(why),
            Error::Run(failure) => failure.fmt(f),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Run(failure) => Some(failure),
            _ => None,
        }
    }
}

/// An application that could not be started.
#[derive(Debug)]
pub struct NotStarted {
    /// As it was.
    pub app: Application,
    /// Why not.
    pub error: Error,
}

/// What the jobs of a task have met with.
#[derive(Debug, Default)]
struct Met {
    versions: Vec<AtomicU64>,
    panics: AtomicU64,
    first_panic: OnceLock<String>,
}

/// What became of a run, and by whose rights.
struct Ran {
    report: talea_exec::Report,
    rights: Rights,
    why_not: Option<String>,
    shield: Option<ShieldReport>,
    why_not_shielded: Option<String>,
}

type Outcome = Result<Ran, Failure>;

/// An application between its start and its stop. Dropping it stops it, too.
#[derive(Debug)]
pub struct Running {
    remote: Arc<Remote>,
    met: Vec<Arc<Met>>,
    /// Both until it is stopped.
    app: Option<Application>,
    thread: Option<JoinHandle<Outcome>>,
}

/// Between two looks whether a run has begun.
const LOOK: Duration = Duration::from_millis(1);

impl Running {
    pub(crate) fn start(
        app: Application,
        tell: impl FnOnce(Hand),
    ) -> Result<Running, Box<NotStarted>> {
        let (tree, cpus) = match sound(&app) {
            Ok(sound) => sound,
            Err(error) => return Err(Box::new(NotStarted { app, error })),
        };
        for channel in &app.channels {
            channel.counts.forget();
            if app.config.keeps_channels {
                channel.trim();
            } else {
                channel.clear();
            }
        }
        let met: Vec<Arc<Met>> =
            app.tasks.iter().map(|declared| Arc::new(Met::of(declared))).collect();
        let plan = Plan {
            tasks: (0..)
                .zip(app.tasks.iter().zip(&met))
                .map(|(at, (_, met))| Planned::of(&app, at, met))
                .collect(),
            spin: match app.config.waiting {
                Waiting::Sleep => Span::ZERO,
                Waiting::Spin(most) => {
                    Span::from_ns(u64::try_from(most.as_nanos()).unwrap_or(u64::MAX))
                }
            },
            flows: app.channels.iter().map(|kept| Arc::clone(&kept.flow)).collect(),
            locks_memory: app.config.locks_memory,
            rights: app.config.rights,
            daemon: app.config.daemon.clone(),
            booked: app.bookings(&cpus),
            insist: app.config.insist,
            shield: app.config.shield,
            tree,
            cpus,
        };
        let remote = Arc::new(Remote::default());
        tell(Hand(Arc::clone(&remote)));
        let thread = std::thread::Builder::new().name("talea-runtime".into()).spawn({
            let remote = Arc::clone(&remote);
            move || plan.execute(&remote)
        });
        let thread = match thread {
            Ok(thread) => thread,
            Err(error) => {
                return Err(Box::new(NotStarted { app, error: Error::Run(Failure::Os(error)) }));
            }
        };
        while remote.zero().is_none() && !thread.is_finished() {
            std::thread::sleep(LOOK);
        }
        let mut running = Running { remote, met, app: Some(app), thread: Some(thread) };
        if running.remote.zero().is_none() {
            return match running.end() {
                (app, Err(error)) => Err(Box::new(NotStarted { app, error })),
                (_, Ok(_)) => unreachable!("a run that has not begun has not ended well"),
            };
        }
        Ok(running)
    }

    /// Wants a job of a task: of one that is [activated](crate::Task::activated) or
    /// [sporadic](crate::Task::sporadic), or one more of any other. Takes no lock: jobs may call
    /// it. Whether the application runs.
    pub fn activate(&self, task: TaskId) -> bool {
        self.remote.activate(0, task.of_machine())
    }

    /// For jobs and other threads: what activates tasks and tells what has become of the world.
    pub fn hand(&self) -> Hand {
        Hand(Arc::clone(&self.remote))
    }

    /// Battery, mode or permissions have become this. Whether it was heard.
    pub fn change(&self, condition: Condition) -> bool {
        self.remote.change(0, condition)
    }

    /// No job comes any more; those that have come are done, and then it is over (YASMIN Table 1).
    /// The application may be changed and started again then. Waits for a job however long it
    /// takes; to give it up, drop this instead: a job that does not come back within four seconds
    /// of that can't be stopped otherwise than with the whole program, which is aborted.
    ///
    /// # Errors
    /// If it had to be ended.
    pub fn stop(self) -> Result<(Application, Report), Error> {
        let (app, report) = self.stop_keeping();
        Ok((app, report?))
    }

    /// The same for whoever needs the application back also if it had to be ended.
    pub fn stop_keeping(mut self) -> (Application, Result<Report, Error>) {
        self.remote.stop();
        self.end()
    }

    fn end(&mut self) -> (Application, Result<Report, Error>) {
        let (Some(thread), Some(app)) = (self.thread.take(), self.app.take()) else {
            unreachable!("it ends once")
        };
        let report = match thread.join() {
            Ok(Ok(ran)) => Ok(self.report(&app, &ran)),
            Ok(Err(failure)) => {
                self.abandon(&app);
                Err(Error::Run(failure))
            }
            // A bug of ours; whoever has the application keeps it.
            Err(panic) => {
                self.abandon(&app);
                Err(Error::Run(Failure::Os(io::Error::other(format!(
                    "the run's thread panicked: {}",
                    panics::said(panic)
                )))))
            }
        };
        (app, report)
    }

    /// If jobs were under way, what lies in the channels is nobody's.
    fn abandon(&self, app: &Application) {
        if self.remote.zero().is_some() {
            app.channels.iter().for_each(Kept::clear);
        }
    }

    fn report(&self, app: &Application, ran: &Ran) -> Report {
        let report = &ran.report;
        let standing = &report.standing;
        let root = &report.roots[0];
        let long = |span: Span| Duration::from_nanos(span.as_ns());
        let worked = root.consumed.iter().map(|consumed| consumed.total.as_ns());
        let tasks = app.tasks.iter().zip(&root.tallies).zip(&self.met).enumerate().map(
            |(at, ((declared, tally), met))| TaskReport {
                name: declared.task.spec.name.clone(),
                policy: standing.workers.get(at).copied(),
                jobs: tally.jobs,
                late: tally.late,
                longest: long(tally.longest),
                mean: Duration::from_nanos(
                    tally.total.as_ns().checked_div(tally.jobs).unwrap_or(0),
                ),
                versions: met.versions.iter().map(|count| count.load(Ordering::Relaxed)).collect(),
                panics: met.panics.load(Ordering::Relaxed),
                first_panic: met.first_panic.get().cloned(),
            },
        );
        let counted = |of: fn(&crate::channel::Counts) -> &AtomicU64| {
            app.channels.iter().map(|kept| of(&kept.counts).swap(0, Ordering::Relaxed)).sum()
        };
        Report {
            length: long(report.length),
            is_real_time: standing.is_real_time(),
            rights: ran.rights,
            why_not: ran.why_not.clone(),
            is_locked: standing.is_locked,
            shield: ran.shield.clone(),
            why_not_shielded: ran.why_not_shielded.clone(),
            dispatchers: standing.dispatchers.clone(),
            scheduling: Duration::from_nanos(root.scheduling().as_ns()),
            longest_step: long(
                root.effort.iter().map(|effort| effort.longest).max().unwrap_or(Span::ZERO),
            ),
            worked: Duration::from_nanos(worked.sum()),
            refused: root.refused,
            full: counted(|counts| &counts.full),
            empty: counted(|counts| &counts.empty),
            tasks: tasks.collect(),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            self.remote.call_off();
            // Whoever drops it does not want to know.
            let _ = thread.join();
        }
    }
}

/// A hand on a running application; does nothing any more when it is over.
#[derive(Clone, Debug)]
pub struct Hand(Arc<Remote>);

impl Hand {
    /// As [`Running::activate`].
    pub fn activate(&self, task: TaskId) -> bool {
        self.0.activate(0, task.of_machine())
    }

    /// As [`Running::change`].
    pub fn change(&self, condition: Condition) -> bool {
        self.0.change(0, condition)
    }

    /// How long the application has run: job k of a periodic task came at its offset and k periods.
    /// Nothing before it begins.
    pub fn now(&self) -> Duration {
        let now = clock::now();
        Duration::from_nanos(mutate!(
            "runtime-zero",
            self.0.zero().map_or(0, |zero| now.since(zero.min(now)).as_ns()),
            self.0.zero().map_or(0, |_| now.as_ns())
        ))
    }
}

/// The machine's tree and the CPUs for it, if what is declared makes sense here.
fn sound(app: &Application) -> Result<(Tree, Vec<u32>), Error> {
    let cpus = cpus(app)?;
    if app.config.shield {
        shield::can_be(&cpus).map_err(|why| Error::Machine(format!("no shield: {why}")))?;
    }
    let tree = app.sound_tree(cpus.len() as u32)?;
    Ok((tree, cpus))
}

/// Those that are configured, or the first of this process.
fn cpus(app: &Application) -> Result<Vec<u32>, Error> {
    let own =
        sched::get_affinity(Tid::current()).map_err(|error| Error::Run(Failure::Os(error)))?;
    let configured = &app.config.cpus;
    if let Some(cpu) = configured.iter().find(|&&cpu| !own.contains(cpu)) {
        return Err(Error::Machine(format!(
            "CPU {cpu} is none of this process's: it may use {own}"
        )));
    }
    if !configured.is_empty() {
        return Ok(configured.clone());
    }
    own.iter()
        .next()
        .map(|first| vec![first])
        .ok_or_else(|| Error::Machine("there is no CPU".to_owned()))
}

/// The first `count` CPUs that this process may use, for [`Config::cpus`](crate::Config::cpus).
///
/// # Errors
/// If it may not use so many.
pub fn first_cpus(count: usize) -> Result<Vec<u32>, Error> {
    let own =
        sched::get_affinity(Tid::current()).map_err(|error| Error::Run(Failure::Os(error)))?;
    let first: Vec<u32> = own.iter().take(count).collect();
    if first.len() < count {
        return Err(Error::Machine(format!("{count} CPUs are wanted: this process may use {own}")));
    }
    Ok(first)
}

impl Met {
    fn of(declared: &Declared) -> Met {
        let versions = declared.versions.iter().map(|_| AtomicU64::new(0)).collect();
        Met { versions, ..Met::default() }
    }
}

/// A task as it is executed.
struct Planned {
    arrivals: talea_exec::Arrivals,
    functions: Arc<Mutex<Vec<Function>>>,
    met: Arc<Met>,
    doing: Doing,
}

impl Planned {
    fn of(app: &Application, task: usize, met: &Arc<Met>) -> Planned {
        let declared = &app.tasks[task];
        let by_table =
            app.table.as_ref().is_some_and(|table| table.activates(TaskId::of_number(task)));
        let arrivals =
            if by_table { talea_exec::Arrivals::Asked } else { declared.task.arrivals() };
        let (functions, doing) =
            (Arc::clone(&declared.functions), app.doing(TaskId::of_number(task)));
        Planned { arrivals, functions, met: Arc::clone(met), doing }
    }

    fn task(&self) -> TaskPlan<'_> {
        let load = Load { arrivals: self.arrivals.clone(), tells: true, ..Load::default() };
        let body: Body<'_> = Box::new(|job, _| {
            let version = mutate!(
                "runtime-allocates",
                job.version as usize,
                *std::hint::black_box(Box::new(job.version as usize))
            );
            if let Some(count) = self.met.versions.get(version) {
                count.fetch_add(1, Ordering::Relaxed);
            }
            // A panic is caught before it could poison anything; who comes after it gets the
            // function as it was left.
            let mut functions = self.functions.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(function) = functions.get_mut(version) else { return };
            if let Err(panic) =
                catch_unwind(AssertUnwindSafe(|| self.doing.during(|| function(job))))
            {
                self.met.panics.fetch_add(1, Ordering::Relaxed);
                let _ = self.met.first_panic.set(panics::said(panic));
            }
        });
        TaskPlan { load, body }
    }
}

/// All of a run, for the thread that makes it.
struct Plan {
    tree: Tree,
    tasks: Vec<Planned>,
    flows: Vec<Arc<talea_exec::Flow>>,
    cpus: Vec<u32>,
    spin: Span,
    locks_memory: bool,
    rights: Rights,
    daemon: Daemon,
    /// By task.
    booked: Vec<Booking>,
    insist: bool,
    shield: bool,
}

impl Plan {
    /// On CPUs that are clear of others, if that is wanted and can be had.
    fn execute(&self, remote: &Remote) -> Outcome {
        if !self.shield {
            return self.execute_by_rights(remote);
        }
        match shield::raise(&self.cpus, self.insist)? {
            Ok(shield) => {
                // However it ends, the shield does.
                let ran = self.execute_by_rights(remote)?;
                Ok(Ran { shield: Some(shield::lower(shield)), ..ran })
            }
            Err(why) => {
                static SAID: AtomicBool = AtomicBool::new(false);
                say_once(
                    &SAID,
                    &format!("this application runs on CPUs that are not shielded: {why}"),
                );
                Ok(Ran { why_not_shielded: Some(why), ..self.execute_by_rights(remote)? })
            }
        }
    }

    /// By the first rights that can be had.
    fn execute_by_rights(&self, remote: &Remote) -> Outcome {
        let ran = |report, rights, why_not| Ran {
            report,
            rights,
            why_not,
            shield: None,
            why_not_shielded: None,
        };
        let tries: &[Rights] = match self.rights {
            Rights::Any => &[Rights::Own, Rights::Daemon],
            Rights::Own => &[Rights::Own],
            Rights::Daemon => &[Rights::Daemon],
            Rights::Unused => &[],
        };
        let mut denied = Vec::new();
        for &rights in tries {
            match self.run(remote, rights) {
                // A right that is lost on the way ends the run: nobody could tell another one
                // anything.
                Err(Failure::NoRight(why)) if remote.zero().is_none() => denied.push(why),
                done => return done.map(|report| ran(report, rights, None)),
            }
        }
        let why: Vec<String> = denied.iter().map(ToString::to_string).collect();
        let why_not = (!why.is_empty()).then(|| why.join("; "));
        if self.insist {
            let why = why_not.unwrap_or_else(|| "the configuration wants none".to_owned());
            return Err(Failure::NoRight(io::Error::new(io::ErrorKind::PermissionDenied, why)));
        }
        if let Some(why) = &why_not {
            static SAID: AtomicBool = AtomicBool::new(false);
            say_once(
                &SAID,
                &format!(
                    "this application runs without real-time priorities, and nothing is promised: {why}"
                ),
            );
        }
        self.run(remote, Rights::Unused).map(|report| ran(report, Rights::Unused, why_not))
    }

    fn run(&self, remote: &Remote, rights: Rights) -> Result<talea_exec::Report, Failure> {
        let root = RootPlan {
            tree: &self.tree,
            tasks: self.tasks.iter().map(Planned::task).collect(),
            changes: Vec::new(),
            flows: self.flows.clone(),
            cpus: self.cpus.clone(),
        };
        let priorities = rights == Rights::Own;
        let options = Options {
            priorities,
            audit: false,
            monitor: false,
            room: 0,
            spin: self.spin,
            locks_memory: self.locks_memory,
            ..Options::new(LONGEST)
        };
        // What it is given is held as long as this is, which is until its threads have ended.
        let daemon = ByDaemon::new(&self.daemon, &self.booked);
        let grantor: Option<&dyn Grantor> =
            if rights == Rights::Daemon { Some(&daemon) } else { None };
        if grantor.is_some()
            && let Err(failure) = daemon.connect()
        {
            // Before threads are made in vain.
            let why = io::Error::new(io::ErrorKind::PermissionDenied, failure.to_string());
            return Err(Failure::NoRight(why));
        }
        execute_granted(vec![root], &options, remote, grantor)
    }
}

/// Once in the life of a process: what is not promised may be noticed late otherwise.
fn say_once(said: &AtomicBool, what: &str) {
    if !said.swap(true, Ordering::Relaxed) {
        eprintln!("talea: {what}");
    }
}
