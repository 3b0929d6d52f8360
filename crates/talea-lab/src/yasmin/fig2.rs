//! Figure 2: cost of scheduling per job, by the number of tasks and by their utilization. Random
//! sets by DRS run under global EDF on two workers. One FIFO thread per task, with rate-monotonic
//! priorities on the same CPUs, alternates with them.
//!
//! The paper compares with a library (Mollison and Anderson) that is not public; one thread per
//! task is the alternative without a library. *Overhead* is CPU time of Talea outside of job
//! bodies: of the dispatchers, and of workers between their jobs. Of plain threads it is the CPU
//! time between their jobs. Neither includes the kernel's switches.
//!
//! The *maximum* is that of one job, and has two parts. (The paper shows a maximum, but does not
//! define it.) The first part is the CPU time of the job's thread since the end of its previous job
//! ([`overhead`](super::overhead)). The second part is that of the dispatchers, which cannot be
//! separated by job. A job that arrives during a step waits for the whole step. All jobs that
//! arrive at one instant, at time zero those of the whole set, are served in one step. So the
//! second part is the longest step of a run in wall time, which the dispatcher reads anyway. The
//! two parts are reported separately; their sum is the largest overhead of one job, plus two
//! wake-ups if it is interrupted.
//!
//! A step and a job include the time that the computer took from the running thread (a virtual CPU
//! may be stalled). So the maximum of all sets depends on the computer as much as on Talea, on both
//! sides; the median over the sets is more meaningful.

#![allow(clippy::cast_precision_loss, reason = "shown with a few digits")]

use super::args::Args;
use super::overhead::{Overhead, Thread};
use crate::computer::load_averages;
use crate::exec::cost;
use crate::folder;
use crate::placement::{Cpus, KeepCpusAwake, Place, enter};
use crate::samples::median;
use crate::thresholds::{self, Threshold, range};
use anyhow::{Context, anyhow};
use serde::Serialize;
use std::fmt::Write;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use talea_core::{Span, Work};
use talea_os::{Policy, clock};
use talea_runtime::{Application, Config, Task, first_cpus};
use talea_sim::generate::{Bounds, CPU, Method, Shares};
use talea_sim::rng::Rng;
use talea_study::exit::Exit;
use talea_study::output::{self, Table};
use talea_study::plot::{Figure, Panel, Series};

/// Numbers of tasks of a set.
const SIZES: [usize; 4] = [20, 40, 80, 120];
/// Total utilizations in tenths of a CPU, for two CPUs.
const UTILIZATIONS: [u64; 5] = [2, 6, 10, 14, 18];
/// Periods in ms from which a set is drawn.
const PERIODS: [u64; 6] = [20, 25, 40, 50, 80, 100];

/// Period and cost of each task.
type Set = Vec<(Span, Work)>;

fn set(n: usize, tenths: u64, rng: &mut Rng) -> anyhow::Result<Set> {
    // No task needs more than half a CPU: its placement is by rate and by number, not by size.
    let bounds = vec![Bounds { min: 0, max: CPU / 2 }; n];
    let shares =
        Shares::new(Method::Drs, tenths * CPU / 10, &bounds).map_err(|error| anyhow!("{error}"))?;
    let shares = shares.draw(rng).map_err(|error| anyhow!("{error}"))?;
    let task = |share: u64| {
        let period = PERIODS[rng.below(PERIODS.len() as u64) as usize] * 1_000_000;
        (Span::from_ns(period), Work::from_ns((share / 1_000 * period / (CPU / 1_000)).max(1_000)))
    };
    Ok(shares.into_iter().map(task).collect())
}

fn duration(span: Span) -> Duration {
    Duration::from_nanos(span.as_ns())
}

/// Returns a number of jobs that no run exceeds, even if the run is a little longer than `length`.
fn jobs(period: Span, length: Duration) -> u64 {
    length.as_nanos() as u64 / period.as_ns() + 16
}

/// Runs a set through the runtime.
fn ours(cpus: &[u32], set: &Set, length: Duration) -> anyhow::Result<Overhead> {
    let mut threads = Vec::new();
    let mut app = Application::new(Config {
        cpus: cpus.to_vec(),
        require_real_time: true,
        ..Config::default()
    });
    for (number, &(period, cost)) in set.iter().enumerate() {
        let task = app.task(Task::periodic(&format!("task{number}"), duration(period)).backlog(8));
        // Only the worker of the task locks it during the run.
        let thread = Arc::new(Mutex::new(Thread::for_jobs(jobs(period, length))));
        threads.push(Arc::clone(&thread));
        app.version(task, "only", move |_| {
            thread.lock().unwrap_or_else(PoisonError::into_inner).work(cost);
        });
    }
    let running = app.start()?;
    std::thread::sleep(length);
    let (_, report) = running.stop()?;
    let threads: Vec<_> = threads
        .iter()
        .map(|thread| thread.lock().unwrap_or_else(PoisonError::into_inner))
        .collect();
    let late = report.tasks.iter().map(|task| task.deadline_misses).sum();
    let overhead = Overhead::of(report.worker_time, threads.iter().map(|thread| &**thread));
    Ok(Overhead { late, ..overhead.with_dispatchers(report.scheduling_time, report.max_step) })
}

/// Runs a set with one thread per task. A shorter period has a higher priority, and each thread is
/// on the CPU with the lowest utilization so far.
fn plain(cpus: &[u32], set: &Set, length: Duration) -> anyhow::Result<Overhead> {
    let zero = clock::now() + Span::from_ns(20_000_000);
    let end = zero + Span::from_ns(length.as_nanos() as u64);
    let mut given = vec![0.0_f64; cpus.len()];
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for &(period, cost) in set {
            let cpu = (0..cpus.len()).min_by(|&a, &b| given[a].total_cmp(&given[b])).unwrap_or(0);
            given[cpu] += cost.as_ns() as f64 / period.as_ns() as f64;
            let at = PERIODS.iter().position(|&ms| ms * 1_000_000 == period.as_ns()).unwrap_or(0);
            let cpu = cpus[cpu];
            threads.push(scope.spawn(move || -> std::io::Result<(Thread, u64, u64)> {
                let mut thread = Thread::for_jobs(jobs(period, length));
                enter(cpu, Policy::Fifo(88 - at as u8))?;
                let before = clock::thread_cpu_time();
                let (mut due, mut late) = (zero, 0);
                while due < end {
                    clock::sleep_until(due);
                    thread.work(cost);
                    due += period;
                    late += u64::from(clock::now() > due);
                }
                let used = clock::thread_cpu_time().checked_sub(before).map_or(0, Work::as_ns);
                Ok((thread, used, late))
            }));
        }
        let (mut ended, mut used, mut late) = (Vec::new(), 0, 0);
        for thread in threads {
            let one = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            ended.push(one.0);
            (used, late) = (used + one.1, late + one.2);
        }
        Ok(Overhead { late, ..Overhead::of(Duration::from_nanos(used), ended.iter()) })
    })
}

/// Result of one set in both variants.
#[derive(Clone, Copy, Debug, Serialize)]
struct Fig2Row {
    tasks: usize,
    utilization: f64,
    ours: Overhead,
    plain: Overhead,
}

#[derive(Serialize)]
struct Data<'a> {
    load: [String; 2],
    empty_wake_us: &'a [f64],
    rows: &'a [Fig2Row],
    thresholds: &'a [Threshold],
}

/// Returns the least, mean and largest value of the rows that satisfy `is`.
fn spread(rows: &[Fig2Row], is: impl Fn(&Fig2Row) -> bool, says: fn(&Fig2Row) -> f64) -> [f64; 3] {
    let all = || rows.iter().filter(|row| is(row)).map(says);
    let (low, high) = range(all().collect::<Vec<_>>().into_iter());
    [low, all().sum::<f64>() / all().count().max(1) as f64, high]
}

fn ours_us(row: &Fig2Row) -> f64 {
    row.ours.us()
}

fn plain_us(row: &Fig2Row) -> f64 {
    row.plain.us()
}

/// Runs the sets and prints their costs.
pub(super) fn fig2(args: &Args) -> anyhow::Result<Exit> {
    let before = load_averages();
    let cpus = first_cpus(2).context("two CPUs")?;
    let (sets, length) =
        if args.quick { (1, Duration::from_millis(500)) } else { (5, Duration::from_secs(2)) };
    let sizes: &[usize] = if args.quick { &[20, 120] } else { &SIZES };
    let utilizations: &[u64] = if args.quick { &[10] } else { &UTILIZATIONS };
    let count = sets * sizes.len() as u64 * utilizations.len() as u64;
    output::note(&format!("{count} sets, twice {length:?} each"));
    let _awake = KeepCpusAwake::on(Cpus::of(Place::CrossCore)?)?;
    let (mut rows, mut empty) = (Vec::new(), Vec::new());
    // Sizes alternate, so that no slow change looks like growth with the size.
    for number in 0..sets {
        for &tenths in utilizations {
            empty.push(cost::empty(cpus[1], Span::from_ns(1_000_000), 200)?);
            for &n in sizes {
                let part = number << 32 | (n as u64) << 8 | tenths;
                let set = set(n, tenths, &mut Rng::for_part(11, part))?;
                let (a, b) = if number % 2 == 0 {
                    let ours = ours(&cpus, &set, length)?;
                    (ours, plain(&cpus, &set, length)?)
                } else {
                    let plain = plain(&cpus, &set, length)?;
                    (ours(&cpus, &set, length)?, plain)
                };
                rows.push(Fig2Row {
                    tasks: n,
                    utilization: tenths as f64 / 10.0,
                    ours: a,
                    plain: b,
                });
            }
        }
    }
    let thresholds = thresholds(&rows, &empty);
    let data = Data {
        load: [before, load_averages()],
        empty_wake_us: &empty,
        rows: &rows,
        thresholds: &thresholds,
    };
    let by_tasks = figure(&rows, "tasks", |row| row.tasks as f64);
    let by_load = figure(&rows, "utilisation, of two CPUs", |row| row.utilization);
    let plots = [
        args.save("yasmin-fig2.svg", &by_tasks.svg())?,
        args.save("yasmin-fig2-utilisation.svg", &by_load.svg())?,
    ];
    let raw = args.save("yasmin-fig2.json", &output::to_json(&data)?)?;
    output::print(&format!(
        "load {} before, {} after\n{}\n{}",
        data.load[0],
        data.load[1],
        report_text(&rows, &empty, &thresholds),
        folder::written(&[&plots[..], &[raw]].concat())
    ))?;
    Ok(thresholds::exit(&thresholds))
}

fn distinct<T: PartialEq + Copy>(rows: &[Fig2Row], of: fn(&Fig2Row) -> T) -> Vec<T> {
    let mut all = Vec::new();
    for value in rows.iter().map(of) {
        if !all.contains(&value) {
            all.push(value);
        }
    }
    all
}

/// Returns the median value of the rows that satisfy `is`.
fn middle(rows: &[Fig2Row], is: impl Fn(&Fig2Row) -> bool, says: fn(&Fig2Row) -> f64) -> f64 {
    median(rows.iter().filter(|row| is(row)).map(says))
}

/// Returns the figure of the overhead per job over `of(row)`: the number of tasks, or their
/// utilization.
fn figure(rows: &[Fig2Row], x: &'static str, of: fn(&Fig2Row) -> f64) -> Figure<'static> {
    let at = distinct(rows, of);
    let line = |name: &str, says: &dyn Fn(f64) -> f64| Series {
        name: name.to_owned(),
        points: at.iter().map(|&x| (x, says(x))).collect(),
    };
    let is = |x: f64| move |row: &Fig2Row| (of(row) - x).abs() < 1e-9;
    let series = vec![
        line("talea-runtime, mean", &|x| spread(rows, is(x), ours_us)[1]),
        line("talea-runtime, most expensive job", &|x| middle(rows, is(x), |row| row.ours.most())),
        line("a thread each, mean", &|x| spread(rows, is(x), plain_us)[1]),
        line("a thread each, most expensive job", &|x| middle(rows, is(x), |row| row.plain.most())),
    ];
    Figure {
        title: "YASMIN Fig. 2: what scheduling costs per job, global EDF on two workers".to_owned(),
        x,
        y: "µs per job",
        panels: vec![Panel { title: "most expensive job: median of the sets".to_owned(), series }],
    }
}

fn thresholds(rows: &[Fig2Row], empty: &[f64]) -> Vec<Threshold> {
    let sizes = distinct(rows, |row| row.tasks);
    let mean = |n: usize| spread(rows, |row| row.tasks == n, ours_us)[1];
    let (first, last) = (mean(sizes[0]), mean(sizes[sizes.len() - 1]));
    let all = spread(rows, |_| true, ours_us)[1];
    let wake = median(empty.iter().copied());
    let most = 1.6 * wake + 3.0;
    vec![
        Threshold {
            what: "overhead per job, on the average".to_owned(),
            found: format!(
                "{all:.2} µs, at most 1.6 × an empty wake of {wake:.2} + 3 = {most:.2} µs"
            ),
            passed: all <= most,
        },
        Threshold {
            what: format!("its growth from {} to {} tasks", sizes[0], sizes[sizes.len() - 1]),
            found: format!("{:.2} × ({first:.2} to {last:.2} µs), at most 1.50 ×", last / first),
            passed: last <= 1.5 * first,
        },
    ]
}

/// Adds a line for each number of tasks and for each utilization.
fn lines(rows: &[Fig2Row], mut add: impl FnMut(String, &dyn Fn(&Fig2Row) -> bool)) {
    for n in distinct(rows, |row| row.tasks) {
        add(format!("{n} tasks"), &|row| row.tasks == n);
    }
    for utilization in distinct(rows, |row| row.utilization) {
        add(format!("U {utilization:.1}"), &|row| (row.utilization - utilization).abs() < 1e-9);
    }
}

fn means(rows: &[Fig2Row]) -> Table {
    let mut table = Table::new(
        "SETS | >OURS µs/job | >least | >most | >dispatchers | >A THREAD EACH | >least | \
         >most | >JOBS | >LATE | >late",
    );
    lines(rows, |name, is| {
        let ([low, mean, high], theirs) = (spread(rows, is, ours_us), spread(rows, is, plain_us));
        let dispatchers = spread(rows, is, |row| row.ours.dispatchers)[1];
        let sum = |of: fn(&Fig2Row) -> u64| {
            rows.iter().filter(|row| is(row)).map(of).sum::<u64>().to_string()
        };
        let mut cells = vec![name];
        cells.extend([mean, low, high, dispatchers].map(|us| format!("{us:.2}")));
        cells.extend([theirs[1], theirs[0], theirs[2]].map(|us| format!("{us:.2}")));
        cells.extend([
            sum(|row| row.ours.jobs),
            sum(|row| row.ours.late),
            sum(|row| row.plain.late),
        ]);
        table.row(cells);
    });
    table
}

/// Returns the table of the most expensive job of each size and utilization.
fn most_expensive(rows: &[Fig2Row]) -> Table {
    let mut table = Table::new(
        "A JOB, µs | >OURS between 99 % | >most | >of all | >a step, most | >of all | \
         >A THREAD EACH 99 % | >most | >of all",
    );
    lines(rows, |name, is| {
        let both = |says: fn(&Fig2Row) -> f64| [middle(rows, is, says), spread(rows, is, says)[2]];
        let mut cells = vec![name];
        let mut add = |all: &[f64]| cells.extend(all.iter().map(|us| format!("{us:.1}")));
        add(&[middle(rows, is, |row| row.ours.between_p99)]);
        add(&both(|row| row.ours.between_most));
        add(&both(|row| row.ours.step_most));
        add(&[middle(rows, is, |row| row.plain.between_p99)]);
        add(&both(|row| row.plain.between_most));
        table.row(cells);
    });
    table
}

fn report_text(rows: &[Fig2Row], empty: &[f64], thresholds: &[Threshold]) -> String {
    let mut text = means(rows).render();
    let _ = writeln!(
        text,
        "least and most: of the means of sets. An empty wake of a thread like a dispatcher: {:.2} µs. The paper's baseline is not public, and its \
         figure\nhas no numbers in the text: it says that YASMIN's average is lower there and grows less.\n",
        median(empty.iter().copied())
    );
    text += &most_expensive(rows).render();
    text.push_str(
        "between: CPU time of a job's thread from the end of the job before it to its begin. A step: of a dispatcher, by the clock, for all whose jobs\n\
         come at an instant, at time zero the whole set; a job that arrives then waits for all of it. most: of a set, median of the sets; of all: of all\n\
         sets, with what the machine took from the running thread.\n\n",
    );
    text + &thresholds::text(thresholds)
}
