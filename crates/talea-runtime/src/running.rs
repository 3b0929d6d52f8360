//! A running application.

use crate::application::{Application, Declared, Function};
use crate::channel::ChannelState;
use crate::config::{Daemon, Rights, WaitMode};
use crate::current_task::CurrentTask;
use crate::device_wait::{self, DeviceWait};
use crate::error::Error;
use crate::report::{Report, ShieldReport, TaskReport};
use crate::rights::{DaemonRights, TaskDemand};
use crate::shield;
use crate::task::{TaskId, Version};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use talea_core::Span;
use talea_core::engine::{Condition, MAX_RUN, Tree};
use talea_core::mutate;
use talea_exec::{
    Failure, JobBody, Load, Options, RightsProvider, RootPlan, RunControl, TaskPlan,
    execute_granted, panics,
};
use talea_os::{Tid, clock, sched};

/// Application that could not be started.
#[derive(Debug)]
pub struct NotStarted {
    /// The application, unchanged.
    pub app: Application,
    /// Reason why the application could not be started.
    pub error: Error,
}

/// Counters of the jobs of a task.
#[derive(Debug, Default)]
struct TaskCounters {
    versions: Vec<AtomicU64>,
    panics: AtomicU64,
    first_panic: OnceLock<String>,
}

/// Outcome of a run, with the rights that the run had.
struct RunOutcome {
    report: talea_exec::Report,
    rights: Rights,
    why_not: Option<String>,
    shield: Option<ShieldReport>,
    why_not_shielded: Option<String>,
}

type Outcome = Result<RunOutcome, Failure>;

/// Application between its start and its stop. Dropping the value stops the application.
#[derive(Debug)]
pub struct Running {
    control: Arc<RunControl>,
    counters: Vec<Arc<TaskCounters>>,
    /// Application and thread, until the application is stopped.
    app: Option<Application>,
    thread: Option<JoinHandle<Outcome>>,
}

/// Period at which the start polls whether a run has begun.
const BEGIN_POLL_PERIOD: Duration = Duration::from_millis(1);

impl Application {
    /// Starts the application. Time zero of the run is a moment later.
    ///
    /// # Errors
    /// If the declaration is invalid (a task without a version, a cyclic graph), if the CPUs do not
    /// exist, or if rights are missing that the configuration requires.
    pub fn start(self) -> Result<Running, Error> {
        Running::start(self, drop).map_err(|not_started| not_started.error)
    }

    /// Variant of [`start`](Application::start) that returns the application if it does not start.
    /// Calls `tell` with the [`RunHandle`] before the first job is released, so that all jobs may
    /// use the handle.
    ///
    /// # Errors
    /// Those of [`start`](Application::start), with the application.
    pub fn start_with(self, tell: impl FnOnce(RunHandle)) -> Result<Running, Box<NotStarted>> {
        Running::start(self, tell)
    }
}

impl Running {
    fn start(app: Application, tell: impl FnOnce(RunHandle)) -> Result<Running, Box<NotStarted>> {
        let (tree, cpus) = match validate(&app) {
            Ok(sound) => sound,
            Err(error) => return Err(Box::new(NotStarted { app, error })),
        };
        for channel in &app.channels {
            channel.counts.reset();
            if app.config.retain_channels {
                mutate!("runtime-resume-data", channel.drop_claimed());
            } else {
                channel.clear();
            }
        }
        let counters: Vec<Arc<TaskCounters>> =
            app.tasks.iter().map(|declared| Arc::new(TaskCounters::for_task(declared))).collect();
        let plan = Plan {
            tasks: (0..)
                .zip(app.tasks.iter().zip(&counters))
                .map(|(at, (_, counters))| Planned::of(&app, at, counters))
                .collect(),
            spin: match app.config.wait_mode {
                WaitMode::Sleep => Span::ZERO,
                WaitMode::Spin(most) => {
                    Span::from_ns(u64::try_from(most.as_nanos()).unwrap_or(u64::MAX))
                }
            },
            flows: app.channels.iter().map(|channel| Arc::clone(&channel.flow)).collect(),
            lock_memory: app.config.lock_memory,
            rights: app.config.rights,
            daemon: app.config.daemon.clone(),
            demands: app.demands(&cpus),
            require_real_time: app.config.require_real_time,
            shield: app.config.shield,
            tree,
            cpus,
        };
        let control = Arc::new(RunControl::default());
        tell(RunHandle(Arc::clone(&control)));
        let thread = std::thread::Builder::new().name("talea-runtime".into()).spawn({
            let control = Arc::clone(&control);
            move || plan.execute(&control)
        });
        let thread = match thread {
            Ok(thread) => thread,
            Err(error) => {
                return Err(Box::new(NotStarted { app, error: Error::Run(Failure::Os(error)) }));
            }
        };
        while control.zero().is_none() && !thread.is_finished() {
            std::thread::sleep(BEGIN_POLL_PERIOD);
        }
        let mut running = Running { control, counters, app: Some(app), thread: Some(thread) };
        if running.control.zero().is_none() {
            return match running.end() {
                (app, Err(error)) => Err(Box::new(NotStarted { app, error })),
                (_, Ok(_)) => unreachable!("a run that has not begun cannot succeed"),
            };
        }
        Ok(running)
    }

    /// Activates a job of a task, [activated](crate::Task::activated),
    /// [sporadic](crate::Task::sporadic) or any other. Takes no lock, so jobs may call it. Returns
    /// whether the application runs.
    pub fn activate(&self, task: TaskId) -> bool {
        self.control.activate(0, task.to_engine())
    }

    /// Returns a handle for jobs and other threads, which activates tasks and changes conditions.
    pub fn handle(&self) -> RunHandle {
        RunHandle(Arc::clone(&self.control))
    }

    /// Sets battery, mode or permissions. Returns whether the application runs.
    pub fn change(&self, condition: Condition) -> bool {
        self.control.change(0, condition)
    }

    /// Stops releases: released jobs complete, and then the run ends (YASMIN Table 1). The
    /// application may then be changed and started again.
    ///
    /// Waits for a job however long it takes. To stop the wait, drop this value instead. A job that
    /// does not return within four seconds of the drop can be stopped only with the whole process,
    /// which is aborted.
    ///
    /// # Errors
    /// If the run had to be ended.
    pub fn stop(self) -> Result<(Application, Report), Error> {
        let (app, report) = self.stop_keeping();
        Ok((app, report?))
    }

    /// Variant of [`stop`](Running::stop) that returns the application even if the run had to be
    /// ended.
    pub fn stop_keeping(mut self) -> (Application, Result<Report, Error>) {
        self.control.stop();
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
            // A bug in Talea; the caller still gets the application.
            Err(panic) => {
                self.abandon(&app);
                Err(Error::Run(Failure::Os(io::Error::other(format!(
                    "the run's thread panicked: {}",
                    panics::message(panic)
                )))))
            }
        };
        (app, report)
    }

    /// Empties the channels if jobs were running, because their data belong to no job.
    fn abandon(&self, app: &Application) {
        if self.control.zero().is_some() {
            app.channels.iter().for_each(ChannelState::clear);
        }
    }

    fn report(&self, app: &Application, ran: &RunOutcome) -> Report {
        let report = &ran.report;
        let policies = &report.policies;
        let root = &report.roots[0];
        let long = |span: Span| Duration::from_nanos(span.as_ns());
        let worked = root.consumed.iter().map(|consumed| consumed.total.as_ns());
        let tasks = app.tasks.iter().zip(&root.job_stats).zip(&self.counters).enumerate().map(
            |(at, ((declared, stats), counters))| TaskReport {
                name: declared.task.spec.name.clone(),
                policy: policies.workers.get(at).copied(),
                jobs: stats.jobs,
                deadline_misses: stats.late,
                max_response: long(stats.max_response),
                mean_response: Duration::from_nanos(
                    stats.total_response.as_ns().checked_div(stats.jobs).unwrap_or(0),
                ),
                versions: counters
                    .versions
                    .iter()
                    .map(|count| count.load(Ordering::Relaxed))
                    .collect(),
                panics: counters.panics.load(Ordering::Relaxed),
                first_panic: counters.first_panic.get().cloned(),
            },
        );
        let counted = |of: fn(&crate::channel::Counts) -> &AtomicU64| {
            app.channels.iter().map(|channel| of(&channel.counts).swap(0, Ordering::Relaxed)).sum()
        };
        Report {
            length: long(report.length),
            is_real_time: policies.is_real_time(),
            rights: ran.rights,
            rights_error: ran.why_not.clone(),
            is_locked: policies.is_locked,
            shield: ran.shield.clone(),
            shield_error: ran.why_not_shielded.clone(),
            dispatchers: policies.dispatchers.clone(),
            scheduling_time: Duration::from_nanos(root.scheduling().as_ns()),
            max_step: long(
                root.dispatchers.iter().map(|effort| effort.max_step).max().unwrap_or(Span::ZERO),
            ),
            worker_time: Duration::from_nanos(worked.sum()),
            refused: root.refused,
            rejected_pushes: counted(|counts| &counts.full),
            failed_pops: counted(|counts| &counts.empty),
            tasks: tasks.collect(),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            self.control.cancel();
            // The caller is not interested in the outcome.
            let _ = thread.join();
        }
    }
}

/// Handle of a running application. Calls have no effect after the end of the run.
#[derive(Clone, Debug)]
pub struct RunHandle(Arc<RunControl>);

impl RunHandle {
    /// Activates a job, like [`Running::activate`].
    pub fn activate(&self, task: TaskId) -> bool {
        self.0.activate(0, task.to_engine())
    }

    /// Sets a condition, like [`Running::change`].
    pub fn change(&self, condition: Condition) -> bool {
        self.0.change(0, condition)
    }

    /// Returns the time since the start, or zero before the start. Job k of a periodic task is
    /// released at its offset plus k periods.
    pub fn now(&self) -> Duration {
        let now = clock::now();
        Duration::from_nanos(mutate!(
            "runtime-zero",
            self.0.zero().map_or(0, |zero| now.since(zero.min(now)).as_ns()),
            self.0.zero().map_or(0, |_| now.as_ns())
        ))
    }
}

/// Checks the declaration. Returns the tree of the engine and the CPUs.
fn validate(app: &Application) -> Result<(Tree, Vec<u32>), Error> {
    let cpus = select_cpus(app)?;
    if app.config.shield {
        shield::check_cpus(&cpus).map_err(|why| Error::Machine(format!("no shield: {why}")))?;
    }
    let tree = app.checked_tree(cpus.len() as u32)?;
    Ok((tree, cpus))
}

/// Returns the configured CPUs, or the first CPU that this process may use.
fn select_cpus(app: &Application) -> Result<Vec<u32>, Error> {
    let own =
        sched::get_affinity(Tid::current()).map_err(|error| Error::Run(Failure::Os(error)))?;
    let configured = &app.config.cpus;
    if let Some(cpu) = configured.iter().find(|&&cpu| !own.contains(cpu)) {
        return Err(Error::Machine(format!(
            "CPU {cpu} is not available to this process: it may use {own}"
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

/// Returns the first `count` CPUs that this process may use, for
/// [`Config::cpus`](crate::Config::cpus).
///
/// # Errors
/// If this process may use fewer CPUs.
pub fn first_cpus(count: usize) -> Result<Vec<u32>, Error> {
    let own =
        sched::get_affinity(Tid::current()).map_err(|error| Error::Run(Failure::Os(error)))?;
    let first: Vec<u32> = own.iter().take(count).collect();
    if first.len() < count {
        return Err(Error::Machine(format!(
            "{count} CPUs are requested, and this process may use {own}"
        )));
    }
    Ok(first)
}

impl TaskCounters {
    fn for_task(declared: &Declared) -> TaskCounters {
        let versions = declared.versions.iter().map(|_| AtomicU64::new(0)).collect();
        TaskCounters { versions, ..TaskCounters::default() }
    }
}

/// Task as the run executes it.
struct Planned {
    arrivals: talea_exec::Arrivals,
    functions: Arc<Mutex<Vec<Function>>>,
    counters: Arc<TaskCounters>,
    task: CurrentTask,
    /// `waits[v]`: use of the CPU while a job of version `v` waits for a device.
    waits: Vec<DeviceWait>,
}

impl Planned {
    fn of(app: &Application, task: usize, counters: &Arc<TaskCounters>) -> Planned {
        let declared = &app.tasks[task];
        let by_table =
            app.table.as_ref().is_some_and(|table| table.activates(TaskId::from_index(task)));
        let arrivals =
            if by_table { talea_exec::Arrivals::OnDemand } else { declared.task.arrivals() };
        let (functions, task) =
            (Arc::clone(&declared.functions), app.current_task(TaskId::from_index(task)));
        let cpu_use = |version: &Version| version.wait.map_or(DeviceWait::Free, |(_, cpu)| cpu);
        let waits = declared.versions.iter().map(cpu_use).collect();
        Planned { arrivals, functions, counters: Arc::clone(counters), task, waits }
    }

    fn task(&self) -> TaskPlan<'_> {
        let load = Load {
            arrivals: self.arrivals.clone(),
            explicit_tokens: true,
            sleeps_with_cpu: mutate!(
                "runtime-wait-hold",
                self.waits.contains(&DeviceWait::Hold),
                false
            ),
            ..Load::default()
        };
        let body: JobBody<'_> = Box::new(|job, _| {
            let version = mutate!(
                "runtime-allocates",
                job.version as usize,
                *std::hint::black_box(Box::new(job.version as usize))
            );
            if let Some(count) = self.counters.versions.get(version) {
                count.fetch_add(1, Ordering::Relaxed);
            }
            // The panic is caught before the lock could be poisoned; the next job gets the function
            // as it was left.
            let mut functions = self.functions.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(function) = functions.get_mut(version) else { return };
            device_wait::begin_job(self.waits[version]);
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| self.task.enter(|| function(job))))
            {
                self.counters.panics.fetch_add(1, Ordering::Relaxed);
                let _ = self.counters.first_panic.set(panics::message(panic));
            }
        });
        TaskPlan { load, body }
    }
}

/// Data that the thread of a run needs.
struct Plan {
    tree: Tree,
    tasks: Vec<Planned>,
    flows: Vec<Arc<talea_exec::Flow>>,
    cpus: Vec<u32>,
    spin: Span,
    lock_memory: bool,
    rights: Rights,
    daemon: Daemon,
    /// `demands[n]`: demand of task `n`.
    demands: Vec<TaskDemand>,
    require_real_time: bool,
    shield: bool,
}

impl Plan {
    /// Executes the run. If a shield is requested and possible, the CPUs are shielded.
    fn execute(&self, control: &RunControl) -> Outcome {
        if !self.shield {
            return self.execute_by_rights(control);
        }
        match shield::raise(&self.cpus, self.require_real_time)? {
            Ok(shield) => {
                // Ends with the run, however that ends.
                let ran = self.execute_by_rights(control)?;
                Ok(RunOutcome { shield: Some(shield::lower(shield)), ..ran })
            }
            Err(why) => {
                static WARNED: AtomicBool = AtomicBool::new(false);
                warn_once(
                    &WARNED,
                    &format!("this application runs on CPUs that are not shielded: {why}"),
                );
                Ok(RunOutcome { why_not_shielded: Some(why), ..self.execute_by_rights(control)? })
            }
        }
    }

    /// Executes the run with the first rights that are available.
    fn execute_by_rights(&self, control: &RunControl) -> Outcome {
        let ran = |report, rights, why_not| RunOutcome {
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
            match self.run(control, rights) {
                // A right that is lost later ends the run: another attempt would be unknown to the
                // handles.
                Err(Failure::NoRight(why)) if control.zero().is_none() => denied.push(why),
                done => return done.map(|report| ran(report, rights, None)),
            }
        }
        let why: Vec<String> = denied.iter().map(ToString::to_string).collect();
        let why_not = (!why.is_empty()).then(|| why.join("; "));
        if self.require_real_time {
            let why = why_not.unwrap_or_else(|| "the configuration requests none".to_owned());
            return Err(Failure::NoRight(io::Error::new(io::ErrorKind::PermissionDenied, why)));
        }
        if let Some(why) = &why_not {
            static WARNED: AtomicBool = AtomicBool::new(false);
            warn_once(
                &WARNED,
                &format!(
                    "this application runs without real-time priorities, and nothing is guaranteed: {why}"
                ),
            );
        }
        self.run(control, Rights::Unused).map(|report| ran(report, Rights::Unused, why_not))
    }

    fn run(&self, control: &RunControl, rights: Rights) -> Result<talea_exec::Report, Failure> {
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
            record_capacity: 0,
            spin: self.spin,
            locks_memory: self.lock_memory,
            ..Options::new(MAX_RUN)
        };
        // Holds the grants until the threads have ended.
        let daemon = DaemonRights::new(&self.daemon, &self.demands);
        let grantor: Option<&dyn RightsProvider> =
            if rights == Rights::Daemon { Some(&daemon) } else { None };
        if grantor.is_some()
            && let Err(failure) = daemon.connect()
        {
            // Before threads are created in vain.
            let why = io::Error::new(io::ErrorKind::PermissionDenied, failure.to_string());
            return Err(Failure::NoRight(why));
        }
        execute_granted(vec![root], &options, control, grantor)
    }
}

/// Prints a message once per process, because the user may otherwise notice a missing guarantee
/// late.
fn warn_once(warned: &AtomicBool, what: &str) {
    if !warned.swap(true, Ordering::Relaxed) {
        eprintln!("talea: {what}");
    }
}
