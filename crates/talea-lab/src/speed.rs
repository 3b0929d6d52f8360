//! `talea-lab sim`: throughput of the simulator in jobs per second, and duration of a decision.
//!
//! The simulated systems have 20 periodic tasks with periods of 5 to 100 ms, with which other tools
//! were measured. Stretches of all cases alternate, beside the loop of
//! [`calibration`](super::calibration). The length of a stretch is the CPU time of its thread,
//! including the kernel, so that other threads are not counted. The trace is that of `talea
//! simulate --trace`, with each slice, arrival and deadline; it is written to a temporary file. The
//! duration of a decision is measured in `decision`.

#![allow(clippy::cast_precision_loss, reason = "printed")]

use super::calibration::{Quartiles, REFERENCE, SmtInterference, Stretch, reference, scaled, wide};
use super::decision::{self, Decisions};
use anyhow::Context as _;
use serde::Serialize;
use std::fs::File;
use std::path::PathBuf;
use talea_core::engine::{SchedulerSpec, TaskSpec, Tree};
use talea_core::sched::PolicySpec;
use talea_core::workload::Environment;
use talea_core::{Span, Work};
use talea_os::clock::thread_cpu_time;
use talea_sim::rng::Rng;
use talea_sim::{Counters, Jobs, Simulation, Sink, Source};
use talea_study::exit::Exit;
use talea_study::output::{self, Table};
use talea_study::report::{Outline, Trace, Tracks};
use talea_system::Root;

/// Options of `talea-lab sim`.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Small numbers: shows that it works, not how fast.
    #[arg(long)]
    quick: bool,
    #[command(flatten)]
    output: talea_study::options::Output,
}

const TASKS: u64 = 20;
/// Approximate number of jobs of the set that arrive in a second.
const RATE: u64 = 490;
/// Number of records that are kept at a time.
const RECORDS: usize = 1 << 16;
/// Number of pieces of the reference loop between two stretches: about a millisecond, like a
/// stretch.
const PIECES: u32 = 70;

#[derive(Serialize)]
struct Case {
    policy: &'static str,
    cpus: u32,
    sink: &'static str,
    jobs: u64,
    million_jobs_per_second: Quartiles,
    reference_seconds: Quartiles,
    scaled: Quartiles,
    /// Quartiles over the stretches on an unshared core, if there are any. The next field is their
    /// number.
    scaled_alone: Option<Quartiles>,
    stretches_alone: usize,
    stretches: usize,
}

#[derive(Serialize)]
struct SimReport {
    /// Minimum duration of the loop that fills a core. A comparison with other runs on the same
    /// computer shows whether this run ever had a core for itself.
    wide_ns: f64,
    cases: Vec<Case>,
    decisions: Decisions,
}

fn described(policy: &PolicySpec, cpus: u32, per_mille: u64) -> Root {
    let mut tree = Tree::new(cpus, SchedulerSpec::new("root", policy.clone()));
    let (mut sources, mut tasks) = (Vec::new(), Vec::new());
    let mut rng = Rng::new(5);
    for number in 0..TASKS {
        let period = rng.between(5_000_000, 100_000_000);
        tasks.push(format!("task{number}"));
        tree.task(Tree::ROOT, TaskSpec::new("task", Span::from_ns(period)));
        let cost = period * per_mille / 1_000 / TASKS;
        sources.push(Source::periodic(Span::from_ns(period), Work::from_ns(cost)));
    }
    Root {
        name: "root".to_owned(),
        tree,
        sources,
        programs: vec![None; tasks.len()],
        users: vec![None; tasks.len()],
        health: vec![talea_core::health::Health::default(); tasks.len()],
        logical: vec![false; tasks.len()],
        tasks,
        phases_known: false,
        surroundings: Environment::default(),
    }
}

/// Temporary file, which is removed when the value is dropped.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> anyhow::Result<(Scratch, File)> {
        let path =
            std::env::temp_dir().join(format!("talea-lab-sim-{}.pftrace", std::process::id()));
        let file =
            File::create_new(&path).with_context(|| format!("cannot create {}", path.display()))?;
        Ok((Scratch(path), file))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Sink that keeps 65,536 records at a time, because a long run does not keep all of its records.
#[derive(Default)]
struct Records {
    jobs: Jobs,
    ended: u64,
}

impl Sink for Records {
    #[inline]
    fn on_completion(&mut self, job: &talea_sim::Completion) {
        self.jobs.on_completion(job);
        if self.jobs.ended.len() == RECORDS {
            self.ended += RECORDS as u64;
            std::hint::black_box(&self.jobs.ended);
            self.jobs.ended.clear();
        }
    }
}

/// Sink of the events of a simulation.
enum BenchSink<'a> {
    Counters(Counters),
    Records(Records),
    Trace(Box<(Counters, Tracks<'a, File>)>),
}

struct Bench<'a> {
    policy: &'static str,
    sink: &'static str,
    root: &'a Root,
    world: Simulation,
    output: BenchSink<'a>,
    /// Length of a stretch in simulated time.
    stretch: Span,
    stretches: Vec<Stretch>,
    interference: SmtInterference,
}

/// Durations of the reference loops between two stretches.
#[derive(Clone, Copy)]
struct ReferenceTimes {
    reference: f64,
    wide: f64,
}

impl ReferenceTimes {
    fn measure() -> ReferenceTimes {
        ReferenceTimes { reference: reference(PIECES), wide: wide(PIECES / 2) }
    }
}

impl<'a> Bench<'a> {
    fn new(
        policy: &'static str,
        sink: &'static str,
        root: &'a Root,
        output: BenchSink<'a>,
        jobs: u64,
    ) -> Bench<'a> {
        let engine = root.tree.build().expect("a flat tree");
        let world = Simulation::new(engine, root.tree.cpus, &root.workload(0));
        let stretch = Span::from_ns(jobs.saturating_mul(1_000_000_000) / RATE);
        Bench {
            policy,
            sink,
            root,
            world,
            output,
            stretch,
            stretches: Vec::new(),
            interference: SmtInterference::default(),
        }
    }

    /// Returns the number of completed jobs.
    fn ended(&self) -> u64 {
        match &self.output {
            BenchSink::Counters(counters) => counters.total().completed,
            BenchSink::Records(records) => records.ended + records.jobs.ended.len() as u64,
            BenchSink::Trace(both) => both.0.total().completed,
        }
    }

    fn run_stretch(&mut self, before: ReferenceTimes) -> ReferenceTimes {
        let until = self.world.now() + self.stretch;
        let ended = self.ended();
        let begun = thread_cpu_time();
        match &mut self.output {
            BenchSink::Counters(counters) => self.world.run(until, counters),
            BenchSink::Records(records) => self.world.run(until, records),
            BenchSink::Trace(both) => self.world.run(until, &mut **both),
        };
        let taken = thread_cpu_time().checked_sub(begun).unwrap_or(Work::ZERO);
        let seconds = taken.as_ns().max(1) as f64 / 1e9;
        let after = ReferenceTimes::measure();
        let value = (self.ended() - ended) as f64 / seconds / 1e6;
        let reference = f64::midpoint(before.reference, after.reference);
        self.stretches.push(Stretch { value, reference });
        self.interference.add(before.wide, after.wide);
        after
    }

    /// Returns the row of the case. `minimum` is the minimum duration of the loop that fills a
    /// core.
    fn case(&self, minimum: f64) -> Case {
        let alone = self.interference.unshared(&self.stretches, minimum);
        let [million_jobs_per_second, reference_seconds, all] = scaled(&self.stretches, false);
        Case {
            policy: self.policy,
            cpus: self.root.tree.cpus,
            sink: self.sink,
            jobs: self.ended(),
            million_jobs_per_second,
            reference_seconds,
            scaled: all,
            scaled_alone: (!alone.is_empty()).then(|| scaled(&alone, false)[2]),
            stretches_alone: alone.len(),
            stretches: self.stretches.len(),
        }
    }
}

fn cases(quick: bool) -> anyhow::Result<(f64, Vec<Case>)> {
    let (rounds, jobs) = if quick { (2, 2_500) } else { (800, 10_000) };
    let edf = described(&PolicySpec::Edf, 2, 1_500);
    let rm = described(&PolicySpec::RateMonotonic, 2, 1_300);
    let (one_edf, one_rm) =
        (described(&PolicySpec::Edf, 1, 900), described(&PolicySpec::RateMonotonic, 1, 700));
    let (_trace, trace_file) = Scratch::new()?;
    let outline = Outline::of(&edf, &edf.tree.build().expect("a flat tree"));
    let counters = || Counters::new(TASKS as usize);
    // A quarter of the jobs, because a job has 180 bytes in the trace.
    let few = jobs / 4;
    let mut trace = Trace::new(trace_file);
    let tracks = trace.root(&outline, Span::from_ns(u64::MAX));
    let (global, global_rm) = ("G-EDF, U = 1.5", "G-RM, U = 1.3");
    let mut all = [
        Bench::new(global, "counters", &edf, BenchSink::Counters(counters()), jobs),
        Bench::new(global, "records", &edf, BenchSink::Records(Records::default()), jobs),
        Bench::new(global, "trace", &edf, BenchSink::Trace(Box::new((counters(), tracks))), few),
        Bench::new(global_rm, "counters", &rm, BenchSink::Counters(counters()), jobs),
        Bench::new("EDF, U = 0.9", "counters", &one_edf, BenchSink::Counters(counters()), jobs),
        Bench::new("RM, U = 0.7", "counters", &one_rm, BenchSink::Counters(counters()), jobs),
    ];
    let mut times = ReferenceTimes::measure();
    for _ in 0..rounds {
        for bench in &mut all {
            times = bench.run_stretch(times);
        }
    }
    let minimum = SmtInterference::minimum(all.iter().map(|bench| &bench.interference));
    let cases = all.iter().map(|bench| bench.case(minimum)).collect();
    drop(all);
    trace.finish().context("cannot write the trace")?;
    Ok((minimum, cases))
}

/// Measures all cases and prints them.
pub(super) fn run(args: &Args) -> anyhow::Result<Exit> {
    let (wide_ns, cases) = cases(args.quick)?;
    let decisions = decision::measure(args.quick);
    if args.output.json {
        output::print_json(&SimReport { wide_ns, cases, decisions })?;
        return Ok(Exit::Ok);
    }
    let half = |quartiles: &Quartiles, digits: usize| {
        format!("{:.digits$} to {:.digits$}", quartiles.from, quartiles.to)
    };
    let or_dash = |figure: Option<f64>, digits: usize| {
        figure.map_or_else(|| "-".to_owned(), |figure| format!("{figure:.digits$}"))
    };
    let alone = |quartiles: &Option<Quartiles>, digits| {
        or_dash(quartiles.map(|quartiles| quartiles.median), digits)
    };
    let mut table = Table::new(
        "POLICY | >CPUS | SINK | >JOBS | >M JOBS/S | >REFERENCE s | >SCALED M JOBS/S | \
         >HALF OF THEM | >ALONE | >STRETCHES",
    );
    for case in &cases {
        table.row(vec![
            case.policy.to_owned(),
            case.cpus.to_string(),
            case.sink.to_owned(),
            case.jobs.to_string(),
            format!("{:.2}", case.million_jobs_per_second.median),
            format!("{:.3}", case.reference_seconds.median),
            format!("{:.2}", case.scaled.median),
            half(&case.scaled, 2),
            alone(&case.scaled_alone, 2),
            format!("{} of {}", case.stretches_alone, case.stretches),
        ]);
    }
    output::print(&table.render())?;
    let mut table = Table::new(
        ">READY TASKS | >LEVELS | >DECISION ns | >REFERENCE s | >SCALED ns | >HALF OF THEM | \
         >ALONE | >STRETCHES",
    );
    for case in &decisions.cases {
        table.row(vec![
            case.tasks.to_string(),
            case.levels.to_string(),
            format!("{:.1}", case.nanoseconds.median),
            format!("{:.3}", case.reference_seconds.median),
            format!("{:.1}", case.scaled.median),
            half(&case.scaled, 1),
            alone(&case.scaled_alone, 1),
            format!("{} of {}", case.stretches_alone, case.stretches),
        ]);
    }
    output::print(&table.render())?;
    let level = &decisions.level;
    output::print(&format!(
        "a level adds {:.1} ns ({}), alone {}\n\
         alone: where a loop that fills the core took at most a tenth longer than at its least (beside jobs {:.2} µs, beside \
         decisions {:.2}), so that no other hardware thread of it computed\n\
         medians of stretches, scaled to the pace at which the reference loop takes {REFERENCE} s\n",
        level.median,
        half(level, 1),
        or_dash(decisions.level_alone, 1),
        wide_ns / 1e3,
        decisions.wide_ns / 1e3,
    ))?;
    Ok(Exit::Ok)
}
