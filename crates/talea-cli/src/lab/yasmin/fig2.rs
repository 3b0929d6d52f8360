//! Figure 2: what scheduling costs per job, by the number of tasks and by their utilisation. Random sets by DRS, global EDF on two
//! workers; beside it one FIFO thread for each task, by rate, on the same CPUs, in turns.
//!
//! The paper compares with a library (Mollison and Anderson) that is not public; a thread for each task is what somebody has
//! without any. *Overhead* (checklist Y2.5-21) is CPU time of ours outside of what jobs do: of the dispatchers, and of workers between
//! their jobs; of plain threads, between theirs. What the kernel needs to switch is in neither.

#![allow(clippy::cast_precision_loss, reason = "shown with a few digits")]

use super::Args;
use super::threads::enter;
use crate::exit::Exit;
use crate::lab::bars::{self, Bar, range};
use crate::lab::exec::{cost, load};
use crate::lab::folder;
use crate::lab::plot::{Figure, Panel, Series};
use crate::lab::rig::{Awake, Cpus, Place};
use crate::lab::samples::median;
use crate::output::{self, Table};
use anyhow::{Context, anyhow};
use serde::Serialize;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use talea_core::{Span, Work};
use talea_os::clock;
use talea_runtime::{Application, Config, Task, first_cpus};
use talea_sim::dice::Dice;
use talea_sim::generate::{Bounds, CPU, Method, Shares};

/// Tasks of a set.
const SIZES: [usize; 4] = [20, 40, 80, 120];
/// In tenths of a CPU, of two.
const UTILIZATIONS: [u64; 5] = [2, 6, 10, 14, 18];
/// To choose from, in ms.
const PERIODS: [u64; 6] = [20, 25, 40, 50, 80, 100];

/// Period and cost of each task.
type Set = Vec<(Span, Work)>;

fn set(n: usize, tenths: u64, dice: &mut Dice) -> anyhow::Result<Set> {
    // None needs more than half a CPU: it is placed by rate and by number, not by size.
    let bounds = vec![Bounds { min: 0, max: CPU / 2 }; n];
    let shares = Shares::new(Method::Drs, tenths * CPU / 10, &bounds).map_err(|error| anyhow!("{error}"))?;
    let shares = shares.draw(dice).map_err(|error| anyhow!("{error}"))?;
    let task = |share: u64| {
        let period = PERIODS[dice.below(PERIODS.len() as u64) as usize] * 1_000_000;
        (Span::from_ns(period), Work::from_ns((share / 1_000 * period / (CPU / 1_000)).max(1_000)))
    };
    Ok(shares.into_iter().map(task).collect())
}

/// What jobs have used, and how many there were.
#[derive(Debug, Default)]
struct Done {
    used: AtomicU64,
    jobs: AtomicU64,
}

impl Done {
    /// A job that uses up what it costs.
    fn work(&self, cost: Work) {
        let begin = clock::thread_cpu_time();
        let end = begin.checked_add(cost).unwrap_or(begin);
        let mut now = begin;
        while now < end {
            now = clock::thread_cpu_time();
        }
        self.used.fetch_add(now.checked_sub(begin).map_or(0, Work::as_ns), Ordering::Relaxed);
        self.jobs.fetch_add(1, Ordering::Relaxed);
    }
}

/// µs per job.
#[derive(Clone, Copy, Debug, Default, Serialize)]
struct Overhead {
    /// Of threads that only schedule.
    dispatchers: f64,
    /// Of threads that work, between their jobs.
    workers: f64,
    jobs: u64,
    late: u64,
}

impl Overhead {
    fn us(&self) -> f64 {
        self.dispatchers + self.workers
    }

    fn of(dispatchers: Duration, workers: Duration, done: &Done, late: u64) -> Overhead {
        let jobs = done.jobs.load(Ordering::Relaxed);
        // Each job reads the clock twice, and half of each of these lies outside of what is measured with them.
        let inside = done.used.load(Ordering::Relaxed) + jobs * cost::read_cost();
        let per_job = |ns: u64| ns as f64 / 1e3 / jobs.max(1) as f64;
        Overhead {
            dispatchers: per_job(dispatchers.as_nanos() as u64),
            workers: per_job((workers.as_nanos() as u64).saturating_sub(inside)),
            jobs,
            late,
        }
    }
}

fn duration(span: Span) -> Duration {
    Duration::from_nanos(span.as_ns())
}

/// Through the runtime.
fn ours(cpus: &[u32], set: &Set, length: Duration) -> anyhow::Result<Overhead> {
    let done = Arc::new(Done::default());
    let mut app = Application::new(Config { cpus: cpus.to_vec(), insist: true, ..Config::default() });
    for (number, &(period, cost)) in set.iter().enumerate() {
        let task = app.task(Task::periodic(&format!("task{number}"), duration(period)).backlog(8));
        let done = Arc::clone(&done);
        app.version(task, "only", move |_| done.work(cost));
    }
    let running = app.start()?;
    std::thread::sleep(length);
    let (_, report) = running.stop()?;
    let late = report.tasks.iter().map(|task| task.late).sum();
    Ok(Overhead::of(report.scheduling, report.worked, &done, late))
}

/// A thread for each task, the shorter its period the higher; on the CPU that has less to do so far.
fn plain(cpus: &[u32], set: &Set, length: Duration) -> anyhow::Result<Overhead> {
    let done = Done::default();
    let zero = clock::now() + Span::from_ns(20_000_000);
    let end = zero + Span::from_ns(length.as_nanos() as u64);
    let mut given = vec![0.0_f64; cpus.len()];
    let (used, late) = std::thread::scope(|scope| -> anyhow::Result<(u64, u64)> {
        let mut threads = Vec::new();
        for &(period, cost) in set {
            let cpu = (0..cpus.len()).min_by(|&a, &b| given[a].total_cmp(&given[b])).unwrap_or(0);
            given[cpu] += cost.as_ns() as f64 / period.as_ns() as f64;
            let at = PERIODS.iter().position(|&ms| ms * 1_000_000 == period.as_ns()).unwrap_or(0);
            let (done, cpu) = (&done, cpus[cpu]);
            threads.push(scope.spawn(move || -> std::io::Result<(u64, u64)> {
                enter(cpu, 88 - at as u8)?;
                let before = clock::thread_cpu_time();
                let (mut due, mut late) = (zero, 0);
                while due < end {
                    clock::sleep_until(due);
                    done.work(cost);
                    due += period;
                    late += u64::from(clock::now() > due);
                }
                let used = clock::thread_cpu_time().checked_sub(before).map_or(0, Work::as_ns);
                Ok((used, late))
            }));
        }
        let mut sums = (0, 0);
        for thread in threads {
            let (used, late) = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            sums = (sums.0 + used, sums.1 + late);
        }
        Ok(sums)
    })?;
    Ok(Overhead::of(Duration::ZERO, Duration::from_nanos(used), &done, late))
}

/// One set, both ways.
#[derive(Clone, Copy, Debug, Serialize)]
struct Row {
    tasks: usize,
    utilization: f64,
    ours: Overhead,
    plain: Overhead,
}

#[derive(Serialize)]
struct Data<'a> {
    load: [String; 2],
    empty_wake_us: &'a [f64],
    rows: &'a [Row],
    bars: &'a [Bar],
}

/// Of all rows with this, least, mean and largest of what it says.
fn spread(rows: &[Row], is: impl Fn(&Row) -> bool, says: fn(&Row) -> f64) -> [f64; 3] {
    let all = || rows.iter().filter(|row| is(row)).map(says);
    let (low, high) = range(all().collect::<Vec<_>>().into_iter());
    [low, all().sum::<f64>() / all().count().max(1) as f64, high]
}

fn ours_us(row: &Row) -> f64 {
    row.ours.us()
}

fn plain_us(row: &Row) -> f64 {
    row.plain.us()
}

/// Runs the sets and says what they have cost.
pub(super) fn fig2(args: &Args) -> anyhow::Result<Exit> {
    let before = load();
    let cpus = first_cpus(2).context("two CPUs")?;
    let (sets, length) =
        if args.quick { (1, Duration::from_millis(500)) } else { (5, Duration::from_secs(2)) };
    let sizes: &[usize] = if args.quick { &[20, 120] } else { &SIZES };
    let utilizations: &[u64] = if args.quick { &[10] } else { &UTILIZATIONS };
    let count = sets * sizes.len() as u64 * utilizations.len() as u64;
    output::note(&format!("{count} sets, twice {length:?} each"));
    let _awake = Awake::on(Cpus::of(Place::CrossCore)?)?;
    let (mut rows, mut empty) = (Vec::new(), Vec::new());
    // Sizes take turns, so that nothing that changes slowly looks as if it grew with them.
    for number in 0..sets {
        for &tenths in utilizations {
            empty.push(cost::empty(cpus[1], Span::from_ns(1_000_000), 200)?);
            for &n in sizes {
                let set = set(n, tenths, &mut Dice::of(11, number << 32 | (n as u64) << 8 | tenths))?;
                let (a, b) = if number % 2 == 0 {
                    let ours = ours(&cpus, &set, length)?;
                    (ours, plain(&cpus, &set, length)?)
                } else {
                    let plain = plain(&cpus, &set, length)?;
                    (ours(&cpus, &set, length)?, plain)
                };
                rows.push(Row { tasks: n, utilization: tenths as f64 / 10.0, ours: a, plain: b });
            }
        }
    }
    let bars = bars(&rows, &empty);
    let data = Data { load: [before, load()], empty_wake_us: &empty, rows: &rows, bars: &bars };
    let plot = args.save("yasmin-fig2.svg", &figure(&rows).svg())?;
    let raw = args.save("yasmin-fig2.json", &output::to_json(&data)?)?;
    output::print(&format!(
        "load {} before, {} after\n{}\n{}",
        data.load[0],
        data.load[1],
        told(&rows, &empty, &bars),
        folder::written(&[plot, raw])
    ))?;
    Ok(Exit::Ok)
}

fn distinct<T: PartialEq + Copy>(rows: &[Row], of: fn(&Row) -> T) -> Vec<T> {
    let mut all = Vec::new();
    for value in rows.iter().map(of) {
        if !all.contains(&value) {
            all.push(value);
        }
    }
    all
}

fn figure(rows: &[Row]) -> Figure<'static> {
    let lines = |x: &[f64], is: fn(&Row, f64) -> bool| -> Vec<Series> {
        let line = |name: &str, says: fn(&Row) -> f64, which: usize| Series {
            name: name.to_owned(),
            points: x.iter().map(|&x| (x, spread(rows, |row| is(row, x), says)[which])).collect(),
        };
        vec![
            line("talea-runtime, mean", ours_us, 1),
            line("talea-runtime, dearest set", ours_us, 2),
            line("a thread each, mean", plain_us, 1),
            line("a thread each, dearest set", plain_us, 2),
        ]
    };
    let sizes: Vec<f64> = distinct(rows, |row| row.tasks).into_iter().map(|n| n as f64).collect();
    let panel = |title: &str, series| Panel { title: title.to_owned(), series };
    Figure {
        title: "YASMIN Fig. 2: what scheduling costs per job, global EDF on two workers".to_owned(),
        x: "tasks",
        y: "µs per job",
        panels: vec![panel("all utilisations", lines(&sizes, |row, x| (row.tasks as f64 - x).abs() < 0.5))],
    }
}

fn bars(rows: &[Row], empty: &[f64]) -> Vec<Bar> {
    let sizes = distinct(rows, |row| row.tasks);
    let mean = |n: usize| spread(rows, |row| row.tasks == n, ours_us)[1];
    let (first, last) = (mean(sizes[0]), mean(sizes[sizes.len() - 1]));
    let all = spread(rows, |_| true, ours_us)[1];
    let wake = median(empty.iter().copied());
    let most = 1.6 * wake + 3.0;
    vec![
        Bar {
            what: "overhead per job, on the average".to_owned(),
            found: format!("{all:.2} µs, at most 1.6 × an empty wake of {wake:.2} + 3 = {most:.2} µs"),
            met: all <= most,
        },
        Bar {
            what: format!("its growth from {} to {} tasks", sizes[0], sizes[sizes.len() - 1]),
            found: format!("{:.2} × ({first:.2} to {last:.2} µs), at most 1.50 ×", last / first),
            met: last <= 1.5 * first,
        },
    ]
}

fn told(rows: &[Row], empty: &[f64], bars: &[Bar]) -> String {
    let mut table = Table::new(&[
        "SETS",
        ">OURS µs/job",
        ">least",
        ">most",
        ">dispatchers",
        ">A THREAD EACH",
        ">least",
        ">most",
        ">JOBS",
        ">LATE",
        ">late",
    ]);
    let mut add = |name: String, is: &dyn Fn(&Row) -> bool| {
        let ([low, mean, high], theirs) = (spread(rows, is, ours_us), spread(rows, is, plain_us));
        let dispatchers = spread(rows, is, |row| row.ours.dispatchers)[1];
        let sum = |of: fn(&Row) -> u64| rows.iter().filter(|row| is(row)).map(of).sum::<u64>().to_string();
        let mut cells = vec![name];
        cells.extend([mean, low, high, dispatchers].map(|us| format!("{us:.2}")));
        cells.extend([theirs[1], theirs[0], theirs[2]].map(|us| format!("{us:.2}")));
        cells.extend([sum(|row| row.ours.jobs), sum(|row| row.ours.late), sum(|row| row.plain.late)]);
        table.row(cells);
    };
    for n in distinct(rows, |row| row.tasks) {
        add(format!("{n} tasks"), &|row| row.tasks == n);
    }
    for utilization in distinct(rows, |row| row.utilization) {
        add(format!("U {utilization:.1}"), &|row| (row.utilization - utilization).abs() < 1e-9);
    }
    let mut text = table.render();
    let _ = writeln!(
        text,
        "least and most: of a set. An empty wake of a thread like a dispatcher: {:.2} µs. The paper's baseline is not public, and its \
         figure\nhas no numbers in the text: it says that YASMIN's average is lower there and grows less.\n",
        median(empty.iter().copied())
    );
    text + &bars::text(bars)
}
