//! Live columns: the same sets on real threads, beside the simulation of the same jobs.
//!
//! Each run has a monitor, a thread on the same CPU above the dispatcher. It reads the clocks at
//! the edges of the window, and probes for stalls every few milliseconds, which costs almost
//! nothing. The paper's idle thread burns the remaining CPU time at real-time priority, which makes
//! the kernel throttle it once per second. The idle thread here is `SCHED_IDLE`.
//!
//! *Scheduler overhead* is the CPU time of the dispatcher and of Talea's code within workers.
//! *Non-scheduler overhead* is the CPU time that no thread of the run has used: switches,
//! interrupts outside of jobs, other processes. A job that a stall or its backlog affects is
//! excluded on both sides.

#![allow(clippy::cast_precision_loss, reason = "shown with a few digits")]

pub(super) mod examples;
pub(super) mod levels;
pub(super) mod sets;
pub(super) mod table;

use super::super::computer::{kernel_release, load_averages};
use super::super::exec::cost;
use super::super::folder;
use super::super::placement::{Cpus, Place, enter};
use super::super::thresholds::{self, Threshold};
use super::super::units::MS;
use anyhow::{Context, ensure};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use talea_core::engine::{TaskId, Tree};
use talea_core::workload::Workload;
use talea_core::{Monotonic, Span, Time, Work, mutate, quantile};
use talea_exec::{Failure, Load, Options, RootReport, Stall, stalls};
use talea_os::Policy;
use talea_os::clock;
use talea_os::thread_cpu_clock::ThreadCpuClock;
use talea_sim::Simulation;
use talea_study::compare::Tolerance;
use talea_study::compare::job_times::{JobId, JobLog, JobTimes};
use talea_study::compare::stall_filter::StallFilter;
use talea_study::exit::Exit;
use talea_study::live_run;
use talea_study::output;
use talea_study::validity::Exclusions;

/// Extent of an experiment, and the directory of its results.
#[derive(Clone, Debug)]
pub(super) struct Effort {
    /// Number of random sets, or number of repetitions of a table.
    pub(super) sets: u64,
    pub(super) seconds: u64,
    pub(super) seed: u64,
    pub(super) out: PathBuf,
}

impl Effort {
    fn duration(&self) -> Span {
        Span::from_ns(self.seconds * 1_000_000_000)
    }

    fn save(&self, name: &str, text: &str) -> anyhow::Result<PathBuf> {
        folder::save(&self.out, name, text)
    }
}

/// Prints the results, the load averages and the paths of the files.
fn finish(
    before: &str,
    text: &str,
    files: &[PathBuf],
    judged: &[Threshold],
) -> anyhow::Result<Exit> {
    let after = load_averages();
    output::print(&format!(
        "load {before} before, {after} after\n{text}\n{}",
        folder::written(files)
    ))?;
    Ok(thresholds::exit(judged))
}

/// Measurements of a run.
#[derive(Clone, Copy, Debug, Default, Serialize)]
struct RunMeasurement {
    cost: cost::Cost,
    /// Non-scheduler overhead as a share of the run. It is unknown without the thread that burns
    /// the remaining CPU time.
    other: Option<f64>,
    /// Number of jobs that are due within the run. The next field is the number of those that a
    /// stall excludes.
    jobs: u64,
    excluded: u64,
    /// Late jobs in the simulation, in percent of the jobs that are not excluded. The next field
    /// has the late jobs on threads.
    simulated: f64,
    measured: f64,
    stalls: usize,
}

impl RunMeasurement {
    fn exclusions(&self) -> Exclusions {
        Exclusions { total: self.jobs, excluded: self.excluded, perturbed: 0 }
    }

    fn is_inconclusive(&self) -> bool {
        self.exclusions().are_inconclusive()
    }

    /// Returns a share of the jobs, or not a number if the run is inconclusive.
    fn if_conclusive(&self, percent: f64) -> f64 {
        if self.is_inconclusive() { f64::NAN } else { percent }
    }
}

/// Run with its jobs in the simulation and on threads.
struct Run {
    cost: cost::Cost,
    other: Option<f64>,
    stalls: Vec<Stall>,
    disturbed: StallFilter,
    real: JobLog,
    simulated: JobLog,
}

/// Distance of the monitor's probes, which cost a tenth of a percent.
const MONITOR_PERIOD: Span = Span::from_ns(10_000_000);
/// Lateness of a probe from which on a stall is assumed.
const STALL_LATENESS: Span = Span::from_ns(300_000);
/// Tolerated difference without a stall, as in `talea compare`.
const TOLERANCE: Tolerance = Tolerance { min: Span::from_ns(2_000_000), permille: 20 };

/// Measurements of the monitor.
struct MonitorReport {
    /// CPU time of the monitor within the window. `idle` is that of the idle thread, which is
    /// unknown if the window has no exact edges.
    own: Work,
    idle: Option<Work>,
    stalls: Vec<Stall>,
}

/// Monitors the CPU from `zero` for `duration`.
fn monitor_cpu(
    cpu: u32,
    zero: Monotonic,
    duration: Span,
    idle: Option<ThreadCpuClock>,
) -> std::io::Result<MonitorReport> {
    enter(cpu, Policy::Fifo(talea_exec::Band::default().top + 2))?;
    let end = zero + duration;
    let mut found = Vec::with_capacity(1 << 12);
    let of_run = |at: Monotonic| at.run_time(zero);
    let read = || idle.map(ThreadCpuClock::read).transpose();
    clock::sleep_until(zero);
    let (own, before) = (clock::thread_cpu_time(), read()?);
    let mut is_cut = clock::now().since(zero) <= STALL_LATENESS;
    let mut due = zero + MONITOR_PERIOD;
    while due < end {
        clock::sleep_until(due);
        let now = clock::now();
        if now.since(due) > STALL_LATENESS && found.len() < found.capacity() {
            // The filter assumes a shorter distance of probes.
            let since = MONITOR_PERIOD.checked_sub(stalls::PROBE_PERIOD).unwrap_or(Span::ZERO);
            let from = of_run(due.saturating_sub(since));
            found.push(Stall { cpu, from, to: of_run(now) });
        }
        due = now + MONITOR_PERIOD;
    }
    clock::sleep_until(end);
    let (own, after) = (clock::thread_cpu_time().checked_sub(own).unwrap_or(Work::ZERO), read()?);
    // A late reading belongs to another window, in which threads may have used more than the length
    // of this one.
    is_cut &= clock::now().since(end) <= STALL_LATENESS;
    let idle =
        after.zip(before).filter(|_| is_cut).and_then(|(after, before)| after.checked_sub(before));
    Ok(MonitorReport { own, idle, stalls: found })
}

/// Instrumentation of a run, in addition to the start and the end of its jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Instrumentation {
    /// No instrumentation with a cost. CPU time that the computer takes between two probes of the
    /// monitor is not detected.
    Sparse,
    /// An idle thread in addition to `Sparse`. It burns the remaining CPU time, so that all CPU
    /// time is accounted for.
    IdleThread,
    /// Readings of each worker's clock whenever the worker is resumed or stopped, and the kernel's
    /// switches, for the times of single jobs. The clocks show the time that is lost, and the
    /// switches show which part of it Talea caused. No thread burns the remaining CPU time, so that
    /// a CPU which is left idle by mistake is detected. Probes each millisecond, as in `talea
    /// compare`, would cost a job of 20 ms half a millisecond.
    PerJob,
}

impl Instrumentation {
    fn options(self, zero: Monotonic, duration: Span) -> Options {
        let is_close = self == Instrumentation::PerJob;
        Options {
            begin: Some(zero),
            audit: is_close,
            monitor: false,
            record_capacity: 1 << 18,
            max_switches: mutate!(
                "lab-sf3p-switches",
                if is_close { MAX_SWITCHES } else { 0 },
                if is_close && duration.is_zero() { MAX_SWITCHES } else { 0 }
            ),
            ..Options::new(duration)
        }
    }
}

/// Capacity for switches: several times the number in the longest run.
const MAX_SWITCHES: usize = 1 << 18;

/// Executes and simulates the same jobs.
fn run(
    cpu: u32,
    tree: &Tree,
    workload: &Workload,
    duration: Span,
    instrumentation: Instrumentation,
) -> anyhow::Result<Run> {
    // Time in which all threads become ready; on a busy computer they need more.
    for lead in [150, 600, 2_400] {
        if let Some(run) =
            run_after(Span::from_ns(lead * MS), cpu, tree, workload, duration, instrumentation)?
        {
            return Ok(run);
        }
    }
    anyhow::bail!(
        "threads were not ready in time, or did not end in time: the machine is too busy"
    );
}

/// Executes the jobs after `lead`. Returns `None` if the threads were not ready by then, or did not
/// end in time.
fn run_after(
    lead: Span,
    cpu: u32,
    tree: &Tree,
    workload: &Workload,
    duration: Span,
    instrumentation: Instrumentation,
) -> anyhow::Result<Option<Run>> {
    let until = Time::ZERO + duration;
    let drawn = talea_sim::generate_jobs(workload, until, |_| 1 << 12);
    let load = |(drawn, source): (talea_sim::JobList, &talea_sim::Source)| {
        Load::generated(&drawn.arrivals, drawn.costs, source.cost.clone())
    };
    let loads: Vec<Load> = drawn.into_iter().zip(&workload.sources).map(load).collect();
    let zero = clock::now() + lead;
    let stop = AtomicBool::new(false);
    let (ran, kept) = std::thread::scope(|scope| {
        let (say, said) = channel();
        let stop = &stop;
        let idle = || -> anyhow::Result<ThreadCpuClock> {
            scope.spawn(move || {
                let entered = enter(cpu, Policy::Idle).and_then(|()| ThreadCpuClock::current());
                let is_in = entered.is_ok();
                let _ = say.send(entered);
                while is_in && !stop.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
            Ok(said.recv().context("the idle thread fell")??)
        };
        let idle =
            if instrumentation == Instrumentation::IdleThread { Some(idle()?) } else { None };
        let monitor = scope.spawn(move || monitor_cpu(cpu, zero, duration, idle));
        let ran = cost::run(cpu, tree, loads, &instrumentation.options(zero, duration));
        let kept = monitor.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        stop.store(true, Ordering::Relaxed);
        anyhow::Ok((ran, kept?))
    })?;
    let ran = match ran {
        Err(error) if matches!(error.downcast_ref(), Some(Failure::Hung)) => return Ok(None),
        ran => ran?,
    };
    if ran.report.zero != zero {
        return Ok(None);
    }
    let root = &ran.report.roots[0];
    ensure!(root.lost == 0, "the record of the run is too long");
    let real = JobLog::from_record(tree, root)?;
    let mut simulated = JobLog::default();
    let engine = tree.build().map_err(|error| anyhow::anyhow!("{}", error.kind))?;
    Simulation::new(engine, 1, workload).run(until, &mut simulated);
    // Without the kernel's switches, a CPU that Talea left idle would excuse as much as time that
    // the computer takes.
    ensure!(
        instrumentation != Instrumentation::PerJob
            || (root.executed.is_some() && root.idle.is_some()),
        "the kernel does not tell who ran when (perf events: root, or CAP_PERFMON)"
    );
    let disturbed = disturbed(tree, cpu, root, &kept.stalls, (&real, duration));
    let used = |idle: Work| ran.dispatcher + ran.workers + kept.own + idle;
    let whole = duration.as_ns() as f64;
    let other = kept.idle.map(|idle| (whole - used(idle).as_ns() as f64) / whole);
    Ok(Some(Run { cost: ran.cost, other, stalls: kept.stalls, disturbed, real, simulated }))
}

/// Returns the filter of what the computer has perturbed, as in `talea compare`. CPU time that
/// Talea itself lost excuses nothing.
fn disturbed(
    tree: &Tree,
    cpu: u32,
    root: &RootReport,
    stalls: &[Stall],
    (real, duration): (&JobLog, Span),
) -> StallFilter {
    let excused = live_run::machine_lost_time(root, &[cpu], (stalls, duration));
    let stretches = mutate!("lab-sf3p-excuses", excused, root.lost_times.clone());
    StallFilter::of(tree, &[cpu], (stalls, &stretches), real, TOLERANCE)
}

impl Run {
    /// Returns the jobs that are due by `until`: task, times, whether a stall excludes the job, and
    /// whether the job was late in the simulation and on threads.
    fn jobs(&self, until: Time) -> impl Iterator<Item = (u32, &JobTimes, bool, [bool; 2])> {
        self.real.jobs.iter().filter_map(move |(name, life)| {
            let deadline = life.deadline.filter(|&deadline| deadline <= until)?;
            let is_late = |life: Option<&JobTimes>| {
                life.and_then(|life| life.end).is_none_or(|end| end > deadline)
            };
            let late = [is_late(self.simulated.jobs.get(name)), is_late(Some(life))];
            Some((name.0.0, life, self.disturbed.excludes(life), late))
        })
    }

    /// Returns the ends of the jobs that no stall excludes, on threads and in the simulation.
    fn ends(&self) -> BTreeMap<JobId, (Time, Time)> {
        let clear = self.real.jobs.iter().filter(|(_, life)| !self.disturbed.excludes(life));
        let both = |(name, life): (&JobId, &JobTimes)| {
            let simulated = self.simulated.jobs.get(name)?.end?;
            Some((*name, (life.end?, simulated)))
        };
        clear.filter_map(both).collect()
    }

    /// Returns the responses of the jobs that no stall excludes, and whether a stall has perturbed
    /// them.
    fn responses(&self) -> impl Iterator<Item = (TaskId, Span, bool)> {
        let clear = self.real.jobs.iter().filter(|(_, life)| !self.disturbed.excludes(life));
        clear.filter_map(|(name, life)| {
            Some((name.0, life.end?.since(life.release?), self.disturbed.perturbs(life)))
        })
    }

    /// Returns the number of due jobs that a stall perturbs and does not exclude.
    fn perturbed(&self, duration: Span) -> u64 {
        let due = self.jobs(Time::ZERO + duration);
        due.filter(|&(_, life, is_excluded, _)| !is_excluded && self.disturbed.perturbs(life))
            .count() as u64
    }

    fn measure(&self, duration: Span) -> RunMeasurement {
        let stalls = self.stalls.len();
        let mut measurement = RunMeasurement {
            cost: self.cost,
            other: self.other,
            stalls,
            ..RunMeasurement::default()
        };
        let mut late = [0u64; 2];
        for (_, _, is_excluded, is_late) in self.jobs(Time::ZERO + duration) {
            measurement.jobs += 1;
            measurement.excluded += u64::from(is_excluded);
            for (late, is) in late.iter_mut().zip(is_late) {
                *late += u64::from(is && !is_excluded);
            }
        }
        let of = |late: u64| {
            100.0 * late as f64 / (measurement.jobs - measurement.excluded).max(1) as f64
        };
        (measurement.simulated, measurement.measured) = (of(late[0]), of(late[1]));
        measurement
    }
}

/// Differences between two times of the same jobs.
#[derive(Clone, Copy, Debug, Default, Serialize)]
struct TimeDifferences {
    jobs: usize,
    median_us: f64,
    /// Difference that nine of ten jobs do not exceed.
    p90_us: f64,
    most_us: f64,
}

impl TimeDifferences {
    fn of(pairs: impl Iterator<Item = (Time, Time)>) -> TimeDifferences {
        let mut apart: Vec<u64> = pairs.map(|(a, b)| a.as_ns().abs_diff(b.as_ns())).collect();
        apart.sort_unstable();
        let at = |percent| quantile(&apart, percent).map_or(f64::NAN, |ns| ns as f64 / 1e3);
        TimeDifferences { jobs: apart.len(), median_us: at(50), p90_us: at(90), most_us: at(100) }
    }
}

/// Returns the CPU of the measurement.
fn cpu() -> anyhow::Result<u32> {
    Ok(Cpus::of(Place::SameCore)?.client)
}

/// Fits a line by least squares. Returns its slope and the share of the variance that the line
/// explains.
fn fit(points: &[(f64, f64)]) -> (f64, f64) {
    let n = points.len().max(1) as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / n;
    let (x, y) = (mean(|point| point.0), mean(|point| point.1));
    let sum =
        |of: &dyn Fn(f64, f64) -> f64| points.iter().map(|&(a, b)| of(a - x, b - y)).sum::<f64>();
    let (xx, xy, yy) = (sum(&|a, _| a * a), sum(&|a, b| a * b), sum(&|_, b| b * b));
    let slope = if xx > 0.0 { xy / xx } else { f64::NAN };
    (slope, if xx * yy > 0.0 { xy * xy / (xx * yy) } else { f64::NAN })
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0u32), |(sum, count), value| (sum + value, count + 1));
    if count == 0 { f64::NAN } else { sum / f64::from(count) }
}

/// Raw data: all measurements, and the computer on which they were made.
#[derive(Serialize)]
struct Data<'a, T> {
    kernel: String,
    load: String,
    seconds: u64,
    seed: u64,
    rows: &'a [T],
    thresholds: &'a [Threshold],
}

fn data<T: Serialize>(
    effort: &Effort,
    load: &str,
    rows: &[T],
    thresholds: &[Threshold],
) -> anyhow::Result<String> {
    let kernel = kernel_release();
    let (seconds, seed, load) = (effort.seconds, effort.seed, load.to_owned());
    output::to_json(&Data { kernel, load, seconds, seed, rows, thresholds })
}

#[cfg(test)]
mod tests {
    use super::*;
    use talea_core::engine::{Cpu, Order, SchedulerSpec};
    use talea_exec::{
        ExecInterval, IdleInterval, LostTime, MechanismChoice, MechanismKind, RecordEntry,
        RecordKind,
    };

    /// A worker is ordered to run for 20 ms, and has its CPU for 17 of them.
    #[test]
    fn s1_a_cpu_that_talea_leaves_idle_excludes_no_job_and_one_that_the_computer_takes_does() {
        let at = |ms: u64| Time::from_ns(ms * MS);
        let run = Order::Run { cpu: Cpu(0), task: TaskId(0), job: 0, version: 0 };
        let ran = |from, to| ExecInterval { cpu: 0, task: TaskId(0), from: at(from), to: at(to) };
        let entries = [
            (0, RecordKind::Order(run)),
            (20, RecordKind::Order(Order::Idle { cpu: Cpu(0) })),
            (30, RecordKind::Step),
        ];
        let report = |idle: Vec<IdleInterval>| RootReport {
            mechanism: MechanismChoice { kind: MechanismKind::Priority, reason: String::new() },
            native: None,
            record: (0..)
                .zip(entries)
                .map(|(number, (ms, what))| RecordEntry { number, now: at(ms), kind: what })
                .collect(),
            lost: 0,
            consumed: Vec::new(),
            dispatchers: std::iter::repeat_with(Default::default).take(1).collect(),
            refused: 0,
            job_stats: Vec::new(),
            programs: vec![None],
            holds: Vec::new(),
            stopped_times: vec![None],
            lost_times: vec![LostTime {
                cpu: 0,
                from: at(0),
                to: at(20),
                amount: Span::from_ns(3 * MS),
            }],
            executed: Some(vec![ran(0, 7), ran(10, 20)]),
            idle: Some(idle),
        };
        let tree = Tree::new(1, SchedulerSpec::new("cpu", talea_core::sched::PolicySpec::Edf));
        let life = JobTimes { release: Some(at(0)), end: Some(at(20)), ..JobTimes::default() };
        let excludes = |idle: Vec<IdleInterval>| {
            let lives = JobLog::default();
            disturbed(&tree, 5, &report(idle), &[], (&lives, Span::from_ns(30 * MS)))
                .excludes(&life)
        };
        assert!(excludes(Vec::new()), "a foreign thread had it, or the computer was stalled");
        assert!(!excludes(vec![IdleInterval { cpu: 0, from: at(7), to: at(10) }]), "it was idle");
    }

    #[test]
    fn s1_only_who_looks_closely_asks_for_clocks_and_switches() {
        let asks = |instrumentation: Instrumentation| {
            let options = instrumentation.options(Monotonic::ZERO, Span::from_ns(MS));
            (options.audit, options.max_switches > 0)
        };
        assert_eq!(asks(Instrumentation::PerJob), (true, true));
        assert_eq!(
            [asks(Instrumentation::Sparse), asks(Instrumentation::IdleThread)],
            [(false, false); 2]
        );
    }

    #[test]
    fn a_line_is_found_and_how_well_it_fits() {
        let (slope, explained) = fit(&[(0.0, 1.0), (1.0, 3.0), (2.0, 5.0)]);
        assert!((slope - 2.0).abs() < 1e-9 && (explained - 1.0).abs() < 1e-9);
        let (slope, explained) = fit(&[(0.0, 1.0), (1.0, 0.0), (2.0, 1.0)]);
        assert!(slope.abs() < 1e-9 && explained < 1e-9);
        assert!(fit(&[(1.0, 1.0)]).0.is_nan() && mean(std::iter::empty()).is_nan());
    }
}
