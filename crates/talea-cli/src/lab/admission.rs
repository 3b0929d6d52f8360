//! `talea lab admission`: what exact admission costs beside 16,384 specs on 64 declared CPUs.
//!
//! The plugins' part of a request, without the socket: ask, take up, give back. Three questions,
//! each with its threshold:
//!
//! - where sums decide, a create with the exact test configured against one with `necessary`, on
//!   equal suites, the two taking turns: at most twice as long;
//! - where they don't, an exact test of one CPU that holds 256 specs, by response times (`rm`) and
//!   by demand (`edf`): at most 150 µs;
//! - the longest single request of any kind, for that is how long other clients wait: at most 1 ms.
//!
//! Times are CPU time of the thread: what others do with the CPU meanwhile is not counted, and
//! figures at the pace of [`pace`](super::pace)'s loop stand beside those of this machine. Specs of
//! `rm` on one CPU have 90 different periods of 10 ms to a second, those of `edf` deadlines of half
//! their period.

#![allow(clippy::cast_precision_loss, reason = "printed")]

use super::pace::{Middle, REFERENCE, Stretch, reference, scaled};
use super::samples::Samples;
use super::tasks::Random;
use super::thresholds;
use crate::exit::Exit;
use crate::output::{self, Table};
use anyhow::ensure;
use serde::Serialize;
use std::hint::black_box;
use talea_broker::input::Platform;
use talea_broker::plugin::{Offer, PluginRequest, RuntimeCap, Verdict};
use talea_broker::{PluginSet, SpecSlot};
use talea_core::setup::{Band, EdfOptions, PluginKind, PluginSetup, RmOptions, RmTest, Setup};
use talea_core::{Charge, CpuSet, Params, Priority, Span, Work};
use talea_os::clock::thread_cpu_time;

/// Options of `talea lab admission`.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Small numbers: shows that it works, not how fast.
    #[arg(long)]
    quick: bool,
    #[command(flatten)]
    output: crate::args::Output,
}

const CPUS: u32 = 64;
const A_CPU: u32 = 256;
/// Different periods on a CPU: fewer than levels.
const PERIODS: u64 = 90;
/// Creates in a stretch where sums decide.
const BATCH: usize = 200;
/// Pieces of the loop between two stretches: a quarter of a millisecond.
const PIECES: u32 = 17;

#[derive(Serialize)]
struct Row {
    what: &'static str,
    plugin: &'static str,
    requests: usize,
    median_ns: u64,
    p99_ns: u64,
    max_ns: u64,
    /// The median at the pace of the loop.
    scaled_ns: f64,
    /// Against the row before, within a stretch.
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
    }
}

fn offer(suite: &PluginSet, ask: &PluginRequest<'_>) -> Option<Offer> {
    match suite.ask(0, ask, None) {
        Verdict::Ok(offer) | Verdict::Partial(offer) => Some(offer),
        Verdict::No(_) => None,
    }
}

/// One plugin on all CPUs.
fn suite(kind: PluginKind) -> anyhow::Result<PluginSet> {
    let cpus = CpuSet::first(CPUS);
    let band = match kind {
        PluginKind::Edf(_) => None,
        _ => Some(Band { low: Priority(1), high: Priority(99) }),
    };
    let plugins = vec![PluginSetup { name: kind.name().to_owned(), cpus, band, kind }];
    let machine =
        Platform { partitionable: cpus, deadline_share: Charge::ONE, ..Platform::declared(CPUS) };
    PluginSet::new(&Setup { plugins, ..Setup::default() }, &machine).map_err(anyhow::Error::msg)
}

fn rm(test: RmTest) -> PluginKind {
    PluginKind::Rm(RmOptions { test, refuse_sharing: false })
}

/// A task of `millionths` of a CPU.
fn task(random: &mut Random, millionths: u64, is_edf: bool) -> Params {
    // Log-uniform enough: ten periods in each ninth of two decades.
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

/// 256 specs on each CPU, `millionths` each.
fn fill(
    suite: &mut PluginSet,
    random: &mut Random,
    millionths: u64,
    is_edf: bool,
) -> anyhow::Result<u32> {
    let mut slot = 0;
    for cpu in 0..CPUS {
        for number in 0..A_CPU {
            let params = task(random, millionths, is_edf);
            let ask = on(CpuSet::single(cpu), &params);
            let found = offer(suite, &ask);
            ensure!(found.is_some(), "spec {number} of CPU {cpu} was refused");
            if let Some(offer) = found {
                suite.admit(0, SpecSlot(slot), &ask, &offer);
                slot += 1;
            }
        }
    }
    Ok(slot)
}

/// Asks, takes up and gives back; whether it was accepted.
fn create(suite: &mut PluginSet, slot: u32, ask: &PluginRequest<'_>) -> bool {
    let Some(offer) = offer(suite, ask) else { return false };
    suite.admit(0, SpecSlot(slot), ask, &offer);
    suite.release(SpecSlot(slot), None);
    true
}

/// Requests of one kind, each timed.
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

    fn row(&self, what: &'static str, plugin: &'static str) -> Row {
        let summary = self.samples.summary();
        Row {
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

/// Measures admission by sums: the configured test and `necessary`, in turns.
fn by_sums(rounds: usize, rows: &mut Vec<Row>) -> anyhow::Result<()> {
    let mut random = Random::new(64);
    let mut suites = [suite(rm(RmTest::Necessary))?, suite(rm(RmTest::Exact))?];
    let mut slot = 0;
    for suite in &mut suites {
        slot = fill(suite, &mut Random::new(5), 200, false)?;
    }
    let mut times = [Timed::default(), Timed::default()];
    let mut ratios = Vec::new();
    for _ in 0..rounds {
        let tasks: Vec<Params> = (0..BATCH).map(|_| task(&mut random, 200, false)).collect();
        let pace = reference(PIECES);
        let mut both = [0; 2];
        for (at, suite) in suites.iter_mut().enumerate() {
            let begun = thread_cpu_time();
            let all =
                tasks.iter().filter(|task| create(suite, slot, &on(CpuSet::EMPTY, task))).count();
            let ns = ns_since(begun);
            ensure!(all == BATCH, "the sums did not decide");
            both[at] = ns / BATCH as u64;
            times[at].push(both[at], pace);
            black_box(&suite);
        }
        ratios.push(both[1] as f64 / both[0].max(1) as f64);
    }
    rows.push(times[0].row("create, necessary", "rm"));
    let ratio = Middle::of(ratios).median;
    rows.push(Row {
        ratio: Some(ratio),
        threshold: Some("2.0 x".to_owned()),
        passed: Some(ratio <= 2.0),
        ..times[1].row("create, exact: sums decide", "rm")
    });
    Ok(())
}

/// Measures admission that needs an exact test: accepted on one CPU, and refused on as many CPUs
/// as may be tried.
fn by_lists(
    is_edf: bool,
    rounds: usize,
    rows: &mut Vec<Row>,
    longest: &mut u64,
) -> anyhow::Result<()> {
    let kind = if is_edf { PluginKind::Edf(EdfOptions::default()) } else { rm(RmTest::Exact) };
    let plugin = kind.name();
    let mut random = Random::new(256);
    let mut suite = suite(kind)?;
    // Together 79 % by rm, beyond the hyperbolic bound; 64 % by edf, a density of 128 %.
    let slot = fill(&mut suite, &mut random, if is_edf { 2_500 } else { 3_100 }, is_edf)?;
    let (mut accepted, mut refused) = (Timed::default(), Timed::default());
    for round in 0..rounds {
        let pace = reference(PIECES);
        let cpu = CpuSet::single(round as u32 % CPUS);
        let small = task(&mut random, 1_000, is_edf);
        let begun = thread_cpu_time();
        let yes = create(&mut suite, slot, &on(cpu, &small));
        accepted.push(ns_since(begun), pace);
        ensure!(yes, "it was meant to be accepted");
        // Urgent, and as long as the long run lets it be: too much for all others.
        let large = Params {
            period: Some(Span::from_ns(100_000_000)),
            runtime: Some(Work::from_ns(19_000_000)),
            deadline: Some(Span::from_ns(if is_edf { 19_000_000 } else { 20_000_000 })),
            ..Params::default()
        };
        let begun = thread_cpu_time();
        let yes = create(&mut suite, slot, &on(CpuSet::EMPTY, &large));
        refused.push(ns_since(begun), pace);
        ensure!(!yes, "it was meant to be refused");
    }
    let row = accepted.row("create, exact: the list of a CPU decides", plugin);
    let passed = row.median_ns <= 150_000;
    rows.push(Row { threshold: Some("150 us".to_owned()), passed: Some(passed), ..row });
    rows.push(refused.row("refused, after all tries", plugin));
    *longest =
        (*longest).max(accepted.samples.summary().max_ns).max(refused.samples.summary().max_ns);
    Ok(())
}

/// Measures and prints.
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
    let mut table = Table::new(&[
        "WHAT",
        "PLUGIN",
        ">REQUESTS",
        ">MEDIAN ns",
        ">P99 ns",
        ">MAX ns",
        ">SCALED ns",
        ">RATIO",
        ">BAR",
        "",
    ]);
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
