//! `talea-lab admission`: cost of exact admission beside 16,384 specs on 64 declared CPUs.
//!
//! The measured part of a request is that of the plugins, without the socket: ask, admit, release.
//! Three measurements have a threshold each:
//!
//! - Sums decide: a create with the exact test against one with the test `necessary`, alternately
//!   on equal plugin sets; at most twice as long.
//! - Sums do not decide: an exact test of one CPU that holds 256 specs, by response times (`rm`)
//!   and by demand (`edf`); at most 150 µs.
//! - The longest single request of any kind, because other clients wait for it; at most 1 ms.
//!
//! Times are CPU time of the thread, so that other threads on the CPU are not counted. Each figure
//! is also scaled to the reference speed of [`calibration`](super::calibration). The specs of `rm`
//! on one CPU have 90 different periods from 10 ms to 1 s; those of `edf` have deadlines of half
//! their periods.

#![allow(clippy::cast_precision_loss, reason = "printed")]

use super::calibration::{Quartiles, REFERENCE, Stretch, reference, scaled};
use super::samples::Samples;
use super::thresholds;
use anyhow::ensure;
use serde::Serialize;
use std::hint::black_box;
use talea_broker::input::Platform;
use talea_broker::plugin::{Offer, PluginRequest, RuntimeCap, ThreadScope, Verdict};
use talea_broker::{PluginSet, SpecSlot};
use talea_core::rng::Rng;
use talea_core::setup::{
    Band, EdfOptions, OnOverrun, PluginKind, PluginSetup, RmOptions, RmTest, Setup,
};
use talea_core::{Charge, CpuSet, Params, Priority, Span, Work};
use talea_os::clock::thread_cpu_time;
use talea_study::exit::Exit;
use talea_study::output::{self, Table};

/// Options of `talea-lab admission`.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Small numbers: shows that it works, not how fast.
    #[arg(long)]
    quick: bool,
    #[command(flatten)]
    output: talea_study::options::Output,
}

const CPUS: u32 = 64;
const SPECS_PER_CPU: u32 = 256;
/// Number of different periods on a CPU, which is less than the number of levels.
const PERIODS: u64 = 90;
/// Number of creates in a stretch in which sums decide.
const BATCH: usize = 200;
/// Number of pieces of the reference loop between two stretches: a quarter of a millisecond.
const PIECES: u32 = 17;

#[derive(Serialize)]
struct AdmissionRow {
    what: &'static str,
    plugin: &'static str,
    requests: usize,
    median_ns: u64,
    p99_ns: u64,
    max_ns: u64,
    /// Median at the reference speed.
    scaled_ns: f64,
    /// Median of the ratios to the previous row, each within one round.
    ratio: Option<f64>,
    threshold: Option<String>,
    passed: Option<bool>,
}

fn ns_since(begun: Work) -> u64 {
    thread_cpu_time().checked_sub(begun).unwrap_or(Work::ZERO).as_ns()
}

fn on(cpus: CpuSet, params: &Params) -> PluginRequest<'_> {
    let preferred = CpuSet::EMPTY;
    PluginRequest {
        params,
        allowed: cpus,
        preferred,
        ignore_admission: false,
        cap: RuntimeCap::default(),
        exact_tests: None,
        thread: ThreadScope::default(),
    }
}

fn offer(plugins: &PluginSet, ask: &PluginRequest<'_>) -> Option<Offer> {
    match plugins.ask(0, ask, None) {
        Verdict::Ok(offer) | Verdict::Partial(offer) => Some(offer),
        Verdict::No(_) => None,
    }
}

/// Builds a plugin set with one plugin on all CPUs.
fn plugin_set(kind: PluginKind) -> anyhow::Result<PluginSet> {
    let cpus = CpuSet::first(CPUS);
    let band = match kind {
        PluginKind::Edf(_) => None,
        _ => Some(Band { low: Priority(1), high: Priority(99) }),
    };
    let plugins = vec![PluginSetup {
        name: kind.name().to_owned(),
        cpus,
        band,
        kind,
        on_overrun: OnOverrun::default(),
    }];
    let platform =
        Platform { partitionable: cpus, deadline_share: Charge::ONE, ..Platform::declared(CPUS) };
    PluginSet::new(&Setup { plugins, ..Setup::default() }, &platform).map_err(anyhow::Error::msg)
}

fn rm(test: RmTest) -> PluginKind {
    PluginKind::Rm(RmOptions { test, refuse_sharing: false })
}

/// Draws a task that needs `millionths` of a CPU.
fn task(random: &mut Rng, millionths: u64, is_edf: bool) -> Params {
    // Approximately log-uniform: each period is a nineteenth longer than the previous one.
    let number = random.between(0, PERIODS - 1);
    let mut period = 10_000_000u64;
    for _ in 0..number {
        period += period / 19;
    }
    Params {
        period: Some(Span::from_ns(period)),
        runtime: Some(Work::from_ns((period / 1_000 * millionths / 1_000).max(1_024))),
        deadline: is_edf.then(|| Span::from_ns(period / 2)),
        ..Params::default()
    }
}

/// Admits 256 specs on each CPU, each with `millionths` of the CPU. Returns the number of specs.
fn fill(
    plugins: &mut PluginSet,
    random: &mut Rng,
    millionths: u64,
    is_edf: bool,
) -> anyhow::Result<u32> {
    let mut slot = 0;
    for cpu in 0..CPUS {
        for number in 0..SPECS_PER_CPU {
            let params = task(random, millionths, is_edf);
            let ask = on(CpuSet::single(cpu), &params);
            let found = offer(plugins, &ask);
            ensure!(found.is_some(), "spec {number} of CPU {cpu} was refused");
            if let Some(offer) = found {
                plugins.admit(0, SpecSlot(slot), &ask, &offer);
                slot += 1;
            }
        }
    }
    Ok(slot)
}

/// Requests a spec, admits it and releases it. Returns whether the plugins accepted the request.
fn create(plugins: &mut PluginSet, slot: u32, ask: &PluginRequest<'_>) -> bool {
    let Some(offer) = offer(plugins, ask) else { return false };
    plugins.admit(0, SpecSlot(slot), ask, &offer);
    plugins.release(SpecSlot(slot), None);
    true
}

/// Timed requests of one kind.
#[derive(Default)]
struct Timed {
    samples: Samples,
    stretches: Vec<Stretch>,
}

impl Timed {
    fn push(&mut self, ns: u64, reference: f64) {
        self.samples.push(ns);
        self.stretches.push(Stretch { value: ns as f64, reference });
    }

    fn row(&self, what: &'static str, plugin: &'static str) -> AdmissionRow {
        let summary = self.samples.summary();
        AdmissionRow {
            what,
            plugin,
            requests: summary.count,
            median_ns: summary.median_ns,
            p99_ns: summary.p99_ns,
            max_ns: summary.max_ns,
            scaled_ns: scaled(&self.stretches, true)[2].median,
            ratio: None,
            threshold: None,
            passed: None,
        }
    }
}

/// Measures admission by sums: the exact test and the test `necessary`, alternately.
fn by_sums(rounds: usize, rows: &mut Vec<AdmissionRow>) -> anyhow::Result<()> {
    let mut random = Rng::new(64);
    let mut sets = [plugin_set(rm(RmTest::Necessary))?, plugin_set(rm(RmTest::Exact))?];
    let mut slot = 0;
    for plugins in &mut sets {
        slot = fill(plugins, &mut Rng::new(5), 200, false)?;
    }
    let mut times = [Timed::default(), Timed::default()];
    let mut ratios = Vec::new();
    for _ in 0..rounds {
        let tasks: Vec<Params> = (0..BATCH).map(|_| task(&mut random, 200, false)).collect();
        let loop_seconds = reference(PIECES);
        let mut both = [0; 2];
        for (at, plugins) in sets.iter_mut().enumerate() {
            let begun = thread_cpu_time();
            let all =
                tasks.iter().filter(|task| create(plugins, slot, &on(CpuSet::EMPTY, task))).count();
            let ns = ns_since(begun);
            ensure!(all == BATCH, "the sums did not decide");
            both[at] = ns / BATCH as u64;
            times[at].push(both[at], loop_seconds);
            black_box(&plugins);
        }
        ratios.push(both[1] as f64 / both[0].max(1) as f64);
    }
    rows.push(times[0].row("create, necessary", "rm"));
    let ratio = Quartiles::of(ratios).median;
    rows.push(AdmissionRow {
        ratio: Some(ratio),
        threshold: Some("2.0 x".to_owned()),
        passed: Some(ratio <= 2.0),
        ..times[1].row("create, exact: sums decide", "rm")
    });
    Ok(())
}

/// Measures admission by an exact test: a request that one CPU accepts, and a request that all
/// tried CPUs refuse.
fn by_lists(
    is_edf: bool,
    rounds: usize,
    rows: &mut Vec<AdmissionRow>,
    longest: &mut u64,
) -> anyhow::Result<()> {
    let kind = if is_edf { PluginKind::Edf(EdfOptions::default()) } else { rm(RmTest::Exact) };
    let plugin = kind.name();
    let mut random = Rng::new(256);
    let mut plugins = plugin_set(kind)?;
    // Total utilization: 79 % for `rm`, above the hyperbolic bound; 64 % for `edf`, with a density
    // of 128 %.
    let slot = fill(&mut plugins, &mut random, if is_edf { 2_500 } else { 3_100 }, is_edf)?;
    let (mut accepted, mut refused) = (Timed::default(), Timed::default());
    for round in 0..rounds {
        let loop_seconds = reference(PIECES);
        let cpu = CpuSet::single(round as u32 % CPUS);
        let small = task(&mut random, 1_000, is_edf);
        let begun = thread_cpu_time();
        let yes = create(&mut plugins, slot, &on(cpu, &small));
        accepted.push(ns_since(begun), loop_seconds);
        ensure!(yes, "it was meant to be accepted");
        // A short deadline with the largest cost that the sums accept: the other tasks would be
        // late.
        let large = Params {
            period: Some(Span::from_ns(100_000_000)),
            runtime: Some(Work::from_ns(19_000_000)),
            deadline: Some(Span::from_ns(if is_edf { 19_000_000 } else { 20_000_000 })),
            ..Params::default()
        };
        let begun = thread_cpu_time();
        let yes = create(&mut plugins, slot, &on(CpuSet::EMPTY, &large));
        refused.push(ns_since(begun), loop_seconds);
        ensure!(!yes, "it was meant to be refused");
    }
    let row = accepted.row("create, exact: the list of a CPU decides", plugin);
    let passed = row.median_ns <= 150_000;
    rows.push(AdmissionRow { threshold: Some("150 us".to_owned()), passed: Some(passed), ..row });
    rows.push(refused.row("refused, after all tries", plugin));
    *longest =
        (*longest).max(accepted.samples.summary().max_ns).max(refused.samples.summary().max_ns);
    Ok(())
}

/// Measures all rows and prints them.
pub(super) fn run(args: &Args) -> anyhow::Result<Exit> {
    let rounds = if args.quick { 3 } else { 400 };
    let (mut rows, mut longest) = (Vec::new(), 0);
    by_sums(rounds, &mut rows)?;
    for is_edf in [false, true] {
        by_lists(is_edf, rounds, &mut rows, &mut longest)?;
    }
    let is_short = longest <= 1_000_000;
    let exit = thresholds::exit_of(rows.iter().filter_map(|row| row.passed).chain([is_short]));
    if args.output.json {
        output::print_json(&rows)?;
        return Ok(exit);
    }
    let mut table = Table::new(
        "WHAT | PLUGIN | >REQUESTS | >MEDIAN ns | >P99 ns | >MAX ns | >SCALED ns | >RATIO | \
         >BAR | ",
    );
    for row in &rows {
        table.row(vec![
            row.what.to_owned(),
            row.plugin.to_owned(),
            row.requests.to_string(),
            row.median_ns.to_string(),
            row.p99_ns.to_string(),
            row.max_ns.to_string(),
            format!("{:.0}", row.scaled_ns),
            row.ratio.map_or_else(String::new, |ratio| format!("{ratio:.2}")),
            row.threshold.clone().unwrap_or_default(),
            row.passed.map_or("", thresholds::verdict).to_owned(),
        ]);
    }
    output::print(&table.render())?;
    let stall = thresholds::verdict(is_short);
    output::print(&format!(
        "longest single request {:.0} us (threshold 1000 us: {stall}); scaled to the pace at which the reference loop takes {REFERENCE} s\n",
        longest as f64 / 1_000.0
    ))?;
    Ok(exit)
}
