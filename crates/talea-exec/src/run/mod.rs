//! A run from its threads' first breath to their last.
//!
//! Everything that is changed belongs to threads that the run made itself, and ends with them:
//! nothing of the machine is touched but for the groups of [`programs`](crate::programs), which are
//! the run's own and go with it. Only the handler of SIGURG is the process's; it is put back.
//!
//! Order: programs, standing still; workers, each at its desk; the machine and its mechanism;
//! dispatchers, watchdog and monitors; the zero of the time line, a moment later. And back:
//! dispatchers leave at the end, the last things are done to the workers, all are waited for. A
//! panic in any of them calls the run off and is passed on when all have ended; one in a step of
//! the machine, which asks policies and choosers that need not be ours, is its [`Failure`].

mod cast;
mod crew;
mod plan;
mod report;

use crate::dispatcher::{Effort, Timeline};
use crate::mechanism::Mixed;
use crate::mechanism::audit::Audited;
use crate::native::Plan;
use crate::office::{Counter, Office};
use crate::programs::{Actor, Programs};
use crate::remote::Remote;
use crate::rights::{self, Crew, Grantor, Standing};
pub use crate::stage::Band;
use crate::stage::{Hold, Ranks, Stage};
use crate::truth;
use crate::watchdog::Watchdog;
use cast::{Above, Cast};
pub use plan::{MOST_ROOM, MOST_SPIN, Options, RootPlan, TaskPlan};
use plan::{check, natives};
pub use report::{Failure, Report, RootReport};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{Scope, ScopedJoinHandle};
use talea_core::machine::Machine;
use talea_core::mutate;
use talea_core::{Span, Time};
use talea_os::gate::Handler;
use talea_os::switches::Switches;
use talea_os::{Tid, clock, sched};

/// Between the last thread's readiness and the zero of the time line.
const LEAD: Span = Span::from_ns(3_000_000);

/// Runs the system and says what happened.
///
/// A job that is still under way at the end of the run is waited for. After two seconds of that the
/// run is ended: all its threads become ordinary ones, and [`Failure::Hung`] is returned once the
/// body has come back. A body that has not come back four seconds after the end, because it ignores
/// its flag, can't be stopped otherwise: **the program is aborted**.
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

/// As [`execute_until`]; where the run does not take priorities itself (`options.priorities`),
/// `grantor` gives them.
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
            let why =
                format!("a root with {} tasks was given {}", machine.tasks(), root.tasks.len());
            return Err(Failure::Plan(why));
        }
        machines.push(machine);
    }
    let natives = natives(&roots, options).map_err(Failure::Plan)?;
    let everywhere = sched::get_affinity(Tid::current())?;
    let away =
        everywhere.difference(&roots.iter().flat_map(|root| root.cpus.iter().copied()).collect());
    let home = if away.is_empty() { everywhere } else { away };
    let stage = |(root, native): (&RootPlan<'_>, &Option<Plan>)| {
        Arc::new(Stage::new(&root.cpus, root.tasks.len(), native.is_some(), &home))
    };
    let stages: Vec<Arc<Stage>> = roots.iter().zip(&natives).map(stage).collect();
    for stage in &stages {
        stage.crew.set(stages.iter().map(Arc::downgrade).collect()).expect("set once");
    }
    // Outlives every thread that may be stopped.
    let _handler = Handler::install()?;
    mutate!("exec-remote-known", {}, {
        remote.begins(&stages, Time::ZERO);
    });
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
        let roots = roots.into_iter().zip(machines).zip(natives);
        shared.run(scope, roots.map(|((root, machine), native)| (root, machine, native)).collect())
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
        roots: Vec<(RootPlan<'a>, Machine, Option<Plan>)>,
    ) -> Result<Report, Failure>
    where
        's: 'scope,
    {
        let wanted: Vec<Vec<Option<Vec<String>>>> = roots
            .iter()
            .map(|(root, ..)| root.tasks.iter().map(|task| task.load.program.clone()).collect())
            .collect();
        let hold = match (self.options.priorities, self.grantor) {
            (true, _) => Hold::Own,
            (false, Some(_)) => Hold::Given,
            (false, None) => Hold::Nothing,
        };
        let ranks = Ranks::new(self.options.band, hold);
        let mut troupe = self.programs.gather(scope, &wanted, self.stages, ranks, self.options)?;
        let mut workers = Vec::new();
        let mut casts = Vec::new();
        for (number, ((root, machine, native), stage)) in
            roots.into_iter().zip(self.stages).enumerate()
        {
            let actors = troupe.actors(number);
            casts.push(match native {
                Some(plan) => Cast::native(scope, (root, plan, stage), self.options, &mut workers)?,
                None => Cast::new(
                    scope,
                    (root, machine, stage),
                    actors,
                    ranks,
                    self.options,
                    &mut workers,
                )?,
            });
        }
        let all: Vec<(u32, Above)> = casts
            .iter()
            .flat_map(|cast| cast.cpus.iter().map(|&cpu| (cpu, cast.above())))
            .collect();
        let mut dispatchers = self.dispatchers(scope, &casts, ranks)?;
        let mut watchers = self.watchers(scope, &all, ranks)?;
        let crew = self.crew(&casts);
        let standing = if dispatchers.are_all_in {
            rights::settle(&crew, self.stages, self.grantor, self.options.locks_memory)?
        } else {
            Standing::default()
        };
        // Without the right to it a run is a run all the same.
        let switches = match self.options.switches {
            0 => None,
            most => {
                Switches::watch(&all.iter().map(|&(cpu, _)| cpu).collect::<Vec<_>>(), most).ok()
            }
        };
        let tids: Vec<Vec<Tid>> =
            self.stages.iter().map(|stage| stage.workers.lock().clone()).collect();
        let ours = self.watchdog.dispatchers.lock().clone();
        let zero = self.begin(&casts, &mut dispatchers, &mut watchers);
        let mut efforts = Vec::new();
        for dispatcher in dispatchers.threads {
            efforts.push(join(dispatcher)?);
        }
        self.watchdog.dispatchers.lock().clear();
        // However they came to leave: the others have as long from now on as after a planned end.
        self.watchdog.is_over(clock::now());
        self.programs.end();
        let mut fates = troupe.leave().into_iter();
        let left = efforts.iter().map(|effort: &Effort| effort.left).max().unwrap_or(Time::ZERO);
        for worker in workers {
            join(worker);
        }
        // Whoever has been waited for is nobody's thread any more, however this goes on.
        for stage in self.stages {
            stage.workers.lock().clear();
        }
        mutate!(
            "exec-office-goes-on",
            {
                if let Some(said) = casts.iter().find_map(Cast::fell) {
                    return Err(Failure::Fell(said));
                }
            },
            {}
        );

        let mut reports = Vec::new();
        let mut efforts = efforts.into_iter();
        for cast in &casts {
            let effort = efforts.by_ref().take(cast.cpus.len()).collect();
            reports.push(cast.report(effort, left, fates.next().unwrap_or_default()));
        }
        if let Some(stays) =
            switches.and_then(|switches| switches.finish().ok()).filter(|stays| stays.lost == 0)
        {
            for ((report, tids), cast) in reports.iter_mut().zip(&tids).zip(&casts) {
                report.stood = Some(truth::of_others(&stays.stays, &ours, &cast.cpus, zero));
                report.ran = Some(truth::of_workers(&stays.stays, tids, &cast.cpus, zero));
                if let Some(course) = &report.native {
                    report.stretches = course.stretches(report.ran.as_deref(), left);
                }
            }
        }
        self.stop.store(true, Ordering::Relaxed);
        let mut holes = Vec::new();
        for monitor in watchers.monitors {
            holes.extend(join(monitor));
        }
        self.watchdog.call_off();
        join(watchers.dog);
        Ok(Report { zero, roots: reports, holes, length: left.since(Time::ZERO), standing })
    }

    /// All threads that are in.
    fn crew(&self, casts: &[Cast]) -> Crew {
        let numbers = casts.iter().flat_map(|cast| &cast.cpus).copied();
        let workers = self.stages.iter().zip(casts).flat_map(|(stage, cast)| {
            let tids = stage.workers.lock().clone();
            tids.into_iter().map(|tid| (tid, cast.cpus.clone()))
        });
        Crew {
            watchdog: self.watchdog.own.lock().clone(),
            dispatchers: self.watchdog.dispatchers.lock().iter().copied().zip(numbers).collect(),
            workers: workers.collect(),
        }
    }

    /// Everybody is in: the zero of the time line, a moment from now, for all of them.
    fn begin(
        &self,
        casts: &[Cast],
        dispatchers: &mut crew::Dispatchers<'_>,
        watchers: &mut crew::Watchers<'_>,
    ) -> Time {
        let settled = casts.iter().map(Cast::settles).max().unwrap_or(Span::ZERO);
        let soonest = clock::now() + settled + LEAD;
        let zero = self.options.begin.map_or(soonest, |begin| begin.max(soonest));
        let until = Time::ZERO + self.options.duration;
        let begin = watchers.begin.take();
        if dispatchers.are_all_in {
            let _ = begin.map(|begin| begin.send(zero + self.options.duration));
            self.remote.begins(self.stages, zero);
        }
        for look in &watchers.looks {
            let _ = look.send(zero);
        }
        let time = Timeline { zero, until };
        for cast in casts {
            cast.begin(time);
        }
        for start in dispatchers.starts.drain(..) {
            // One that fell has called everybody off.
            let _ = start.send(time);
        }
        zero
    }
}
