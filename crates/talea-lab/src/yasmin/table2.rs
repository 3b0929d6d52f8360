//! Table 2: wake-up latency of six threads with a period of 10 ms, as `cyclictest` measures it,
//! without load and under the paper's load. The runtime, plain FIFO threads that sleep until
//! absolute times, `SCHED_DEADLINE` threads (impossible on the paper's board) and, if it is
//! installed, `cyclictest` itself alternate.
//!
//! The runtime has two further thresholds: wake-up against a plain thread, and preemption against a
//! futex hand-over between two threads. It also runs on one CPU, with and without a shield, which
//! shows the benefit of the shield.
//!
//! *Preemption* is from the nominal release to the first action of the preempting job. Its largest
//! part is not Talea's: the timer expires and preempts the running thread. So a plain thread that
//! does the same alternates with it, which shows the possible saving. The hand-over between two
//! threads is measured on one CPU and between two. The latter is the baseline of the threshold,
//! because the paper's scheduler has a core of its own and hands over to its workers
//! (`docs/decisions/0014`). The former includes no timer, and costs a fraction of the timer latency
//! of a plain thread.

#![allow(clippy::cast_precision_loss, reason = "shown with a few digits")]

use super::args::Args;
use super::threads::{self, Kind, PRIORITY, Stress};
use crate::computer::load_averages;
use crate::folder;
use crate::placement::{Cpus, KeepCpusAwake, Place, enter};
use crate::samples::{Samples, Summary};
use crate::thresholds::{self, Threshold};
use crate::units::us;
use anyhow::Context;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;
use talea_core::Span;
use talea_os::event_count::EventCount;
use talea_os::{Policy, clock};
use talea_runtime::{Application, Config, RunHandle, Task, TaskId, first_cpus};
use talea_study::exit::Exit;
use talea_study::output::{self, Table};

/// Number of threads, as in the paper.
const THREADS: usize = 6;
const PERIOD: Span = Span::from_ns(10_000_000);
/// Lateness in ns above which a sample is counted separately, on all sides and for any cause. Six
/// jobs at one instant on two CPUs may take a third of this time.
const STALL: u64 = 1_000_000;

fn duration(span: Span) -> Duration {
    Duration::from_nanos(span.as_ns())
}

/// Application whose jobs record their lateness, and these records.
struct ProbeApplication {
    app: Application,
    handle_cell: Arc<OnceLock<RunHandle>>,
    begun: Arc<Mutex<Vec<u64>>>,
}

/// Samples of the jobs of one task, delivered when the application is dropped.
struct TaskSamples {
    own: Vec<u64>,
    all: Arc<Mutex<Vec<u64>>>,
}

impl Drop for TaskSamples {
    fn drop(&mut self) {
        self.all.lock().unwrap_or_else(PoisonError::into_inner).append(&mut self.own);
    }
}

impl ProbeApplication {
    fn new(cpus: &[u32], shield: bool) -> ProbeApplication {
        let app = Application::new(Config {
            cpus: cpus.to_vec(),
            shield,
            require_real_time: true,
            ..Config::default()
        });
        ProbeApplication { app, handle_cell: Arc::default(), begun: Arc::default() }
    }

    /// Adds a task whose jobs only record their lateness.
    fn probe(&mut self, task: Task, offset: Span, period: Span, times: u64) -> TaskId {
        let task = self.app.task(task);
        let handle_cell = Arc::clone(&self.handle_cell);
        let mut samples =
            TaskSamples { own: Vec::with_capacity(times as usize), all: Arc::clone(&self.begun) };
        self.app.version(task, "only", move |job| {
            let now = handle_cell.get().map_or(Duration::ZERO, RunHandle::now);
            if job.number < times {
                let due = duration(offset) + duration(period) * job.number as u32;
                samples.own.push(now.saturating_sub(due).as_nanos() as u64);
            }
        });
        task
    }

    fn run(self, length: Span) -> anyhow::Result<Vec<u64>> {
        let ProbeApplication { app, handle_cell, begun } = self;
        let store = |handle| _ = handle_cell.set(handle);
        let running = app.start_with(store).map_err(|not_started| not_started.error)?;
        std::thread::sleep(duration(length));
        drop(running.stop()?);
        Ok(std::mem::take(&mut *begun.lock().unwrap_or_else(PoisonError::into_inner)))
    }
}

/// Returns the length of a run of `times` periods, with a margin.
fn length(period: Span, times: u64) -> Span {
    Span::from_ns(period.as_ns() * (times + 2))
}

fn ours(
    cpus: &[u32],
    shield: bool,
    threads: usize,
    period: Span,
    times: u64,
) -> anyhow::Result<Vec<u64>> {
    let mut ours = ProbeApplication::new(cpus, shield);
    for number in 0..threads {
        ours.probe(
            Task::periodic(&format!("thread{number}"), duration(period)),
            Span::ZERO,
            period,
            times,
        );
    }
    ours.run(length(period, times))
}

/// Time for which a task computes in each 20 ms of the measurement of preemption. A more urgent
/// task preempts it four times in that time.
const BUSY: Span = Span::from_ns(14_000_000);
const FRAME: Span = Span::from_ns(20_000_000);
const INTO: [Span; 4] = [
    Span::from_ns(3_000_000),
    Span::from_ns(6_000_000),
    Span::from_ns(9_000_000),
    Span::from_ns(12_000_000),
];

/// Measures the lateness of the first instruction of a preempting job.
fn preempting(cpu: u32, times: u64) -> anyhow::Result<Vec<u64>> {
    let mut ours = ProbeApplication::new(&[cpu], false);
    let busy = ours.app.task(Task::periodic("busy", duration(FRAME)));
    ours.app.version(busy, "only", |_| {
        let end = clock::thread_cpu_time().checked_add(talea_core::Work::from_ns(BUSY.as_ns()));
        while end.is_some_and(|end| clock::thread_cpu_time() < end) {}
    });
    for (number, into) in INTO.into_iter().enumerate() {
        let task = Task::periodic(&format!("first{number}"), duration(FRAME));
        let task = task.offset(duration(into)).deadline(Duration::from_millis(1));
        ours.probe(task, into, FRAME, times);
    }
    ours.run(length(FRAME, times))
}

/// Measures preemption with two plain threads.
fn preempting_by_hand(cpu: u32, times: u64) -> anyhow::Result<Vec<u64>> {
    let over = AtomicBool::new(false);
    let zero = clock::now() + PERIOD;
    let due = |frame: u64, into: Span| zero + Span::from_ns(FRAME.as_ns() * frame) + into;
    let busy = || -> std::io::Result<()> {
        enter(cpu, Policy::Fifo(PRIORITY - 2))?;
        for frame in 0..times {
            clock::sleep_until(due(frame, Span::ZERO));
            let end = due(frame, BUSY);
            while clock::now() < end && !over.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        }
        Ok(())
    };
    let first = || -> std::io::Result<Vec<u64>> {
        enter(cpu, Policy::Fifo(PRIORITY))?;
        let mut late = Vec::new();
        for frame in 0..times {
            for into in INTO {
                clock::sleep_until(due(frame, into));
                late.push(clock::now().since(due(frame, into)).as_ns());
            }
        }
        Ok(late)
    };
    std::thread::scope(|scope| {
        let (busy, first) = (scope.spawn(busy), scope.spawn(first));
        let late = first.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        over.store(true, Ordering::Relaxed);
        busy.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        Ok(late?)
    })
}

/// Measures the time from a notification on `from` to the first action of a more urgent sleeper on
/// `to`.
fn handed_over(from: u32, to: u32, times: u64) -> anyhow::Result<Vec<u64>> {
    let (event_count, notified_at) = (EventCount::new(), AtomicU64::new(0));
    let forever = clock::now() + Span::from_ns(60_000_000_000);
    let sleeper = || -> std::io::Result<Vec<u64>> {
        enter(to, Policy::Fifo(PRIORITY))?;
        let mut late = Vec::new();
        for round in 0..times {
            event_count.wait(round as u32, forever);
            late.push(clock::now().as_ns().saturating_sub(notified_at.load(Ordering::Acquire)));
        }
        Ok(late)
    };
    let notifier = || -> std::io::Result<()> {
        enter(from, Policy::Fifo(PRIORITY - 2))?;
        let mut due = clock::now() + PERIOD;
        for _ in 0..times {
            clock::sleep_until(due);
            // The thread computes, as the preempted one does.
            let until = clock::now() + Span::from_ns(100_000);
            while clock::now() < until {}
            notified_at.store(clock::now().as_ns(), Ordering::Release);
            event_count.notify();
            due += Span::from_ns(1_000_000);
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let (sleeper, notifier) = (scope.spawn(sleeper), scope.spawn(notifier));
        let late = sleeper.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        notifier.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        Ok(late?)
    })
}

/// Latencies of one row: least, largest and mean over all samples, and statistics of the samples
/// outside of stalls.
#[derive(Clone, Debug, Serialize)]
struct Latency {
    load: &'static str,
    who: &'static str,
    /// Least sample in µs, including those within stalls.
    least: f64,
    largest: f64,
    mean: f64,
    /// Statistics of the samples outside of stalls.
    #[serde(skip_serializing_if = "Option::is_none")]
    clear: Option<Clear>,
}

#[derive(Clone, Debug, Serialize)]
struct Clear {
    mean: f64,
    summary: Summary,
    stalls: usize,
}

fn mean(all: &[u64]) -> f64 {
    us(all.iter().sum::<u64>()) / all.len().max(1) as f64
}

impl Clear {
    fn of(all: &[u64]) -> Clear {
        let kept: Vec<u64> = all.iter().copied().filter(|&ns| ns <= STALL).collect();
        let stalls = all.len() - kept.len();
        Clear { mean: mean(&kept), summary: Samples::from(kept).summary(), stalls }
    }
}

impl Latency {
    fn of(load: &'static str, who: &'static str, all: &[u64]) -> Latency {
        let [least, largest] =
            [all.iter().min(), all.iter().max()].map(|ns| us(ns.copied().unwrap_or(0)));
        Latency { load, who, least, largest, mean: mean(all), clear: Some(Clear::of(all)) }
    }
}

const OURS: &str = "talea-runtime";
const ALONE: &str = "talea-runtime, one CPU";
const SHIELDED: &str = "the same, shielded";
const FIFO: &str = "FIFO, absolute sleep";
const DEADLINE: &str = "SCHED_DEADLINE";
const CYCLICTEST: &str = "cyclictest";

/// Measures all rows of Table 2 under one load.
fn latencies(
    under: &'static str,
    cpus: &[u32],
    rounds: u64,
    times: u64,
) -> anyhow::Result<Vec<Latency>> {
    let mut samples: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    let mut cyclictest: Option<[f64; 3]> = None;
    for round in 0..rounds {
        let mut who = [OURS, FIFO, DEADLINE, CYCLICTEST, ALONE, SHIELDED];
        // The order rotates, so that no case always follows the same other case.
        who.rotate_left(round as usize % 6);
        for who in who {
            let found = match who {
                OURS => Ok(ours(cpus, false, THREADS, PERIOD, times)?),
                ALONE => Ok(ours(&cpus[1..2], false, THREADS, PERIOD, times)?),
                // Another program may have a shield.
                SHIELDED => {
                    ours(&cpus[1..2], true, THREADS, PERIOD, times).map_err(std::io::Error::other)
                }
                FIFO => threads::sleepers(Kind::Fifo, cpus, THREADS, PERIOD, times),
                DEADLINE => threads::sleepers(Kind::Deadline, cpus, THREADS, PERIOD, times),
                _ => {
                    let one = threads::cyclictest(THREADS, PERIOD, times);
                    cyclictest = match (cyclictest, one) {
                        (Some(a), Some(b)) => Some([
                            a[0].min(b[0]),
                            a[1].max(b[1]),
                            (a[2] * round as f64 + b[2]) / (round + 1) as f64,
                        ]),
                        (_, one) => one,
                    };
                    continue;
                }
            };
            match found {
                Ok(late) => samples.entry(who).or_default().extend(late),
                Err(error) if [DEADLINE, SHIELDED].contains(&who) => {
                    output::note(&format!("{who}: {error}"));
                }
                Err(error) => return Err(error).context(who),
            }
        }
    }
    let mut rows: Vec<Latency> = [OURS, FIFO, DEADLINE, ALONE, SHIELDED]
        .into_iter()
        .filter_map(|who| Some(Latency::of(under, who, samples.get(who)?)))
        .collect();
    rows.extend(cyclictest.map(|[least, largest, mean]| Latency {
        load: under,
        who: CYCLICTEST,
        least,
        largest,
        mean,
        clear: None,
    }));
    Ok(rows)
}

/// Latencies of wake-up and preemption, measured in alternating rounds.
#[derive(Clone, Debug, Serialize)]
struct Reactions {
    /// Latencies of one task with a period of 1 ms. The next field has those of one thread.
    wake: Clear,
    wake_by_hand: Clear,
    preemption: Clear,
    preemption_by_hand: Clear,
    hand_over: Clear,
    /// Hand-over from another CPU.
    hand_across: Clear,
}

fn reactions([other, cpu]: [u32; 2], rounds: u64, times: u64) -> anyhow::Result<Reactions> {
    const MS: Span = Span::from_ns(1_000_000);
    let mut all: [Vec<u64>; 6] = Default::default();
    for round in 0..rounds {
        let mut order = [0, 1, 2, 3, 4, 5];
        order.rotate_left(round as usize % 6);
        for which in order {
            all[which].extend(match which {
                0 => ours(&[cpu], false, 1, MS, times * 4)?,
                1 => threads::sleepers(Kind::Fifo, &[cpu], 1, MS, times * 4)?,
                2 => preempting(cpu, times)?,
                3 => preempting_by_hand(cpu, times)?,
                4 => handed_over(cpu, cpu, times * 4)?,
                _ => handed_over(other, cpu, times * 4)?,
            });
        }
    }
    let [wake, wake_by_hand, preemption, preemption_by_hand, hand_over, hand_across] =
        all.map(|all| Clear::of(&all));
    Ok(Reactions { wake, wake_by_hand, preemption, preemption_by_hand, hand_over, hand_across })
}

impl Reactions {
    fn thresholds(&self) -> Vec<Threshold> {
        let threshold =
            |what: &str, ours, theirs, most| Threshold::ratio(what.to_owned(), ours, theirs, most);
        let of = |clear: &Clear| (clear.summary.median_ns, clear.summary.p99_ns);
        let (wake, plain) = (of(&self.wake), of(&self.wake_by_hand));
        let (ours, across) = (of(&self.preemption), of(&self.hand_across));
        vec![
            threshold(
                "wake-up through the runtime against a plain thread, median",
                wake.0,
                plain.0,
                1.4,
            ),
            threshold("the same, p99", wake.1, plain.1, 1.6),
            threshold(
                "preemption against a futex hand-over from another CPU, median",
                ours.0,
                across.0,
                2.5,
            ),
        ]
    }
}

/// Maximum difference of the runtime's mean from that of plain threads, in µs (requirement Y17,
/// `docs/requirements.md`).
const MAX_MORE_US: f64 = 100.0;

fn thresholds(rows: &[Latency], reactions: &Reactions) -> Vec<Threshold> {
    let mut thresholds = Vec::new();
    for load in [IDLE, LOADED] {
        let of = |who: &str| {
            let row = rows.iter().find(|row| row.load == load && row.who == who)?;
            Some(row.clear.as_ref()?.mean)
        };
        if let (Some(ours), Some(plain)) = (of(OURS), of(FIFO)) {
            let found = format!("{ours:.1} and {plain:.1} µs, at most {MAX_MORE_US:.0} more");
            thresholds.push(Threshold {
                what: format!("Table 2, {load}: mean"),
                found,
                passed: ours <= plain + MAX_MORE_US,
            });
        }
    }
    thresholds.extend(reactions.thresholds());
    thresholds
}

const IDLE: &str = "no load";
const LOADED: &str = "stress-ng";

#[derive(Serialize)]
struct Data<'a> {
    load: [String; 2],
    rows: &'a [Latency],
    reactions: &'a Reactions,
    thresholds: &'a [Threshold],
}

/// Measures the table and compares the results with the thresholds.
pub(super) fn table2(args: &Args) -> anyhow::Result<Exit> {
    let before = load_averages();
    let cpus = first_cpus(2).context("two CPUs")?;
    let (rounds, times) = if args.quick { (1, 25) } else { (5, 400) };
    let mut rows = Vec::new();
    let reactions = {
        let _awake = KeepCpusAwake::on(Cpus::of(Place::CrossCore)?)?;
        rows.extend(latencies(IDLE, &cpus, rounds, times)?);
        reactions([cpus[0], cpus[1]], rounds, times / 8)?
    };
    let longest = rounds * times * 6 * PERIOD.as_ns() / 1_000_000_000 + 60;
    match Stress::start(longest) {
        Some(_stress) => rows.extend(latencies(LOADED, &cpus, rounds, times)?),
        None => output::note("stress-ng is not installed: no load"),
    }
    let thresholds = thresholds(&rows, &reactions);
    let data = Data {
        load: [before, load_averages()],
        rows: &rows,
        reactions: &reactions,
        thresholds: &thresholds,
    };
    let raw = args.save("yasmin-table2.json", &output::to_json(&data)?)?;
    output::print(&format!(
        "load {} before, {} after\n{}\n{}",
        data.load[0],
        data.load[1],
        report_text(&rows, &reactions, &thresholds),
        folder::written(&[raw])
    ))?;
    Ok(thresholds::exit(&thresholds))
}

/// Values of the paper: six threads on four fast cores of a board, under PREEMPT_RT and LITMUS^RT.
const PAPER: &str = "the paper, on its board: YASMIN 90 / 1481 / 500 µs, cyclictest 176 / 1550 / 463 (PREEMPT_RT), \
                     YASMIN 67 / 318 / 170, cyclictest 33 / 222 / 74 (LITMUS)";

fn report_text(rows: &[Latency], reactions: &Reactions, thresholds: &[Threshold]) -> String {
    let mut table = Table::new(
        "LOAD | WHO | >MIN µs | >MAX | >AVG | >CLEAR avg | >median | >p99 | >max | >in stalls",
    );
    for row in rows {
        let mut cells = vec![row.load.to_owned(), row.who.to_owned()];
        cells.extend([row.least, row.largest, row.mean].map(|us| format!("{us:.1}")));
        if let Some(clear) = &row.clear {
            let Summary { median_ns, p99_ns, max_ns, .. } = clear.summary;
            cells.push(format!("{:.1}", clear.mean));
            cells.extend([median_ns, p99_ns, max_ns].map(|ns| format!("{:.1}", us(ns))));
            cells.push(clear.stalls.to_string());
        } else {
            cells.extend(["-"; 5].map(str::to_owned));
        }
        table.row(cells);
    }
    let mut text = table.render();
    let _ = writeln!(text, "{PAPER}\nclear: without what was later than 1 ms, on all sides\n");
    for (what, clear) in [
        ("a task every 1 ms", &reactions.wake),
        ("a plain thread", &reactions.wake_by_hand),
        ("a job that preempts", &reactions.preemption),
        ("a plain thread that preempts", &reactions.preemption_by_hand),
        ("a hand-over by a futex", &reactions.hand_over),
        ("one from another CPU", &reactions.hand_across),
    ] {
        let Summary { count, median_ns, p99_ns, max_ns } = clear.summary;
        let _ = writeln!(
            text,
            "{what}: median {:.1}, p99 {:.1}, max {:.1} µs of {count}; {} in stalls",
            us(median_ns),
            us(p99_ns),
            us(max_ns),
            clear.stalls
        );
    }
    let median = |clear: &Clear| us(clear.summary.median_ns);
    let near = median(&reactions.hand_over).max(f64::MIN_POSITIVE);
    let _ = writeln!(
        text,
        "against a hand-over on the same CPU, in which no timer is: a job that preempts {:.2} ×, a plain thread that does {:.2} ×\n",
        median(&reactions.preemption) / near,
        median(&reactions.preemption_by_hand) / near
    );
    text + &thresholds::text(thresholds)
}
