//! `talea lab sim`: jobs per second of the simulator, beside a loop that says how fast this machine is right now.
//!
//! The loop is 100 million dependent steps of xorshift64; figures are scaled to the pace at which it takes 0.153 s, so that
//! two machines, or two minutes of a shared one, can be compared. It runs before and after each case. 20 periodic tasks
//! with periods of 5 to 100 ms, as peers were measured. The trace is that of `talea simulate --trace`, every slice, arrival
//! and deadline, written to a file in the temporary folder and removed again; the compact one has everything that a sink is
//! told ([`talea_sim::trace`]). What one decision takes is measured in [`decision`].

#![allow(clippy::cast_precision_loss, reason = "printed")]

use super::decision;
use crate::exit::Exit;
use crate::output::{self, Table};
use crate::report::{Outline, Trace};
use anyhow::Context as _;
use serde::Serialize;
use std::fs::File;
use std::time::{Duration, Instant};
use talea_core::machine::{SchedulerSpec, TaskSpec, Tree};
use talea_core::sched::Policy;
use talea_core::workload::Surroundings;
use talea_core::{Span, Time, Work};
use talea_sim::dice::Dice;
use talea_sim::{Counters, Jobs, Sink, Source, World};
use talea_system::system::Root;

/// Options of `talea lab sim`.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Small numbers: shows that it works, not how fast.
    #[arg(long)]
    quick: bool,
    #[command(flatten)]
    output: crate::args::Output,
}

/// What the reference loop takes at the pace that figures are scaled to.
pub(super) const REFERENCE: f64 = 0.153;
/// How long that loop is.
pub(super) const REFERENCE_STEPS: u32 = 100_000_000;
const TASKS: u64 = 20;
/// Records that are kept at a time.
const RECORDS: usize = 1 << 16;

#[derive(Serialize)]
struct Case {
    policy: &'static str,
    cpus: u32,
    sink: &'static str,
    jobs: u64,
    seconds: f64,
    reference_seconds: f64,
    million_jobs_per_second: f64,
    scaled: f64,
}

#[derive(Serialize)]
struct Answer {
    cases: Vec<Case>,
    decisions: Vec<decision::Case>,
}

/// The reference loop.
fn reference() -> f64 {
    xorshift(REFERENCE_STEPS)
}

/// So many dependent steps: the seconds that they take.
pub(super) fn xorshift(steps: u32) -> f64 {
    let begun = Instant::now();
    let mut x = 88_172_645_463_325_252u64;
    for _ in 0..steps {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
    }
    std::hint::black_box(x);
    begun.elapsed().as_secs_f64()
}

fn described(policy: &Policy, cpus: u32, per_mille: u64) -> Root {
    let mut tree = Tree::new(cpus, SchedulerSpec::new("root", policy.clone()));
    let (mut sources, mut tasks) = (Vec::new(), Vec::new());
    let mut dice = Dice::new(5);
    for number in 0..TASKS {
        let period = dice.between(5_000_000, 100_000_000);
        tasks.push(format!("task{number}"));
        tree.task(Tree::ROOT, TaskSpec::new("task", Span::from_ns(period)));
        let cost = period * per_mille / 1_000 / TASKS;
        sources.push(Source::periodic(Span::from_ns(period), Work::from_ns(cost)));
    }
    Root { name: "root".to_owned(), tree, sources, tasks, surroundings: Surroundings::default() }
}

/// Simulates until `jobs` jobs have ended, more or less.
fn measure(case: (&'static str, Policy, u32, u64), jobs: u64, sink: &'static str) -> anyhow::Result<Case> {
    let (policy, built, cpus, per_mille) = case;
    let root = described(&built, cpus, per_mille);
    let machine = root.tree.build().expect("a flat tree");
    let outline = Outline::of(&root, &machine);
    let mut world = World::new(machine, cpus, &root.workload(0));
    // About 490 jobs arrive in a second of this set.
    let until = Time::from_ns(jobs.saturating_mul(1_000_000_000) / 490);
    let before = reference();
    let begun = Instant::now();
    let mut counters = Counters::new(TASKS as usize);
    let ended = match sink {
        "counters" => {
            world.run(until, &mut counters);
            counters.total().completed
        }
        "trace" => {
            let path = std::env::temp_dir().join(format!("talea-lab-sim-{}.pftrace", std::process::id()));
            let file = File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
            let mut trace = Trace::new(file);
            let mut both = (counters, trace.root(&outline, until.since(Time::ZERO)));
            world.run(until, &mut both);
            both.1.finish(until, &[]);
            let ended = both.0.total().completed;
            let written = trace.finish();
            std::fs::remove_file(&path).and(written).context("cannot write the trace")?;
            ended
        }
        "compact trace" => {
            let path = std::env::temp_dir().join(format!("talea-lab-sim-{}.trace", std::process::id()));
            let file = File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
            let mut both = (counters, talea_sim::trace::Trace::new(file, TASKS as usize));
            world.run(until, &mut both);
            let written = both.1.finish().map(drop);
            std::fs::remove_file(&path).and(written).context("cannot write the trace")?;
            both.0.total().completed
        }
        _ => {
            // 65,536 records at a time: a long run's records go somewhere, they are not all kept.
            let mut records = Records::default();
            world.run(until, &mut records);
            records.ended + records.jobs.ended.len() as u64
        }
    };
    let seconds = begun.elapsed().max(Duration::from_nanos(1)).as_secs_f64();
    let reference_seconds = f64::midpoint(before, reference());
    let rate = ended as f64 / seconds / 1e6;
    Ok(Case {
        policy,
        cpus,
        sink,
        jobs: ended,
        seconds,
        reference_seconds,
        million_jobs_per_second: rate,
        scaled: rate * reference_seconds / REFERENCE,
    })
}

#[derive(Default)]
struct Records {
    jobs: Jobs,
    ended: u64,
}

impl Sink for Records {
    fn completed(&mut self, job: &talea_sim::Completion) {
        self.jobs.completed(job);
        if self.jobs.ended.len() == RECORDS {
            self.ended += RECORDS as u64;
            std::hint::black_box(&self.jobs.ended);
            self.jobs.ended.clear();
        }
    }
}

/// Measures and prints.
pub(super) fn run(args: &Args) -> anyhow::Result<Exit> {
    let jobs = if args.quick { 20_000 } else { 10_000_000 };
    let cases = vec![
        measure(("G-EDF, U = 1.5", Policy::Edf, 2, 1_500), jobs, "counters")?,
        measure(("G-EDF, U = 1.5", Policy::Edf, 2, 1_500), jobs, "records")?,
        measure(("G-EDF, U = 1.5", Policy::Edf, 2, 1_500), jobs, "compact trace")?,
        // A tenth of them: 180 bytes each.
        measure(("G-EDF, U = 1.5", Policy::Edf, 2, 1_500), jobs / 10, "trace")?,
        measure(("G-RM, U = 1.3", Policy::RateMonotonic, 2, 1_300), jobs, "counters")?,
        measure(("EDF, U = 0.9", Policy::Edf, 1, 900), jobs, "counters")?,
        measure(("RM, U = 0.7", Policy::RateMonotonic, 1, 700), jobs, "counters")?,
    ];
    let decisions = decision::cases(args.quick);
    if args.output.json {
        output::print_json(&Answer { cases, decisions })?;
        return Ok(Exit::Ok);
    }
    let mut table =
        Table::new(&["POLICY", ">CPUS", "SINK", ">JOBS", ">M JOBS/S", ">REFERENCE s", ">SCALED M JOBS/S"]);
    for case in &cases {
        table.row(vec![
            case.policy.to_owned(),
            case.cpus.to_string(),
            case.sink.to_owned(),
            case.jobs.to_string(),
            format!("{:.2}", case.million_jobs_per_second),
            format!("{:.3}", case.reference_seconds),
            format!("{:.2}", case.scaled),
        ]);
    }
    output::print(&table.render())?;
    let mut table = Table::new(&[">READY TASKS", ">LEVELS", ">DECISION ns", ">REFERENCE s", ">SCALED ns"]);
    for case in &decisions {
        table.row(vec![
            case.tasks.to_string(),
            case.levels.to_string(),
            format!("{:.1}", case.nanoseconds),
            format!("{:.3}", case.reference_seconds),
            format!("{:.1}", case.scaled),
        ]);
    }
    output::print(&table.render())?;
    output::print(&format!("scaled to the pace at which the reference loop takes {REFERENCE} s\n"))?;
    Ok(Exit::Ok)
}
