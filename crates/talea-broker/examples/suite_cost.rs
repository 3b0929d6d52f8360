//! Measures the plugins' part of a request: ask + admit + release, and a change, with existing
//! specs.
//!
//! `cargo run --release -p talea-broker --example suite_cost [rounds]` prints nanoseconds per
//! operation: the minimum and the median over several rounds. There is no threshold, because
//! timings on a shared machine are not reliable.
#![expect(clippy::disallowed_methods, reason = "a measurement reads the clock")]
#![expect(clippy::cast_precision_loss, reason = "it is printed in whole nanoseconds")]

use std::hint::black_box;
use std::time::Instant;
use talea_broker::input::Platform;
use talea_broker::plugin::{Offer, PluginRequest, RuntimeCap, ThreadScope, Verdict};
use talea_broker::{PluginSet, SpecSlot};
use talea_core::rng::Rng;
use talea_core::setup::{
    Band, EdfOptions, FpOptions, OnOverrun, PluginKind, PluginSetup, RmOptions, Setup,
};
use talea_core::{CpuSet, Params, Priority, Span, Work};

/// Returns `instances` plugins of each of the four kinds on `cpus` CPUs. All but the `edf` plugins
/// have disjoint bands.
fn plugin_set(cpus: u32, instances: u8) -> PluginSet {
    let mut plugins = vec![];
    let levels = 99 / (3 * instances);
    for i in 0..instances {
        let kinds = [
            PluginKind::Edf(EdfOptions::default()),
            PluginKind::Rm(RmOptions::default()),
            PluginKind::Fp(FpOptions::default()),
            PluginKind::Rr(FpOptions::default()),
        ];
        for (k, kind) in (0u8..).zip(kinds) {
            let high = 99 - (3 * i + k.max(1) - 1) * levels;
            let band = Band { low: Priority(high - levels + 1), high: Priority(high) };
            let band = (k > 0).then_some(band);
            plugins.push(PluginSetup {
                name: format!("{}{i}", kind.name()),
                cpus: CpuSet::first(cpus),
                band,
                kind,
                on_overrun: OnOverrun::default(),
            });
        }
    }
    let platform = Platform { partitionable: CpuSet::first(cpus), ..Platform::declared(cpus) };
    PluginSet::new(&Setup { plugins, ..Setup::default() }, &platform).expect("a valid setup")
}

/// Returns random parameters as in ReTiF's benchmark: a period of 1024 to 11263 us. The runtime is
/// 1024 ns, so that 16,384 tasks fit on 20 CPUs.
fn params(rng: &mut Rng) -> Params {
    Params {
        period: Some(Span::from_ns((1_024 + rng.below(10_240)) * 1_000)),
        runtime: Some(Work::from_ns(1_024)),
        priority: Some(Priority(10 + rng.below(50) as u8)),
        ..Params::default()
    }
}

fn ask(params: &Params) -> PluginRequest<'_> {
    let (allowed, preferred) = (CpuSet::EMPTY, CpuSet::EMPTY);
    PluginRequest {
        params,
        allowed,
        preferred,
        ignore_admission: false,
        cap: RuntimeCap::default(),
        exact_tests: None,
        thread: ThreadScope::default(),
    }
}

fn offer(
    plugin_set: &PluginSet,
    plugin: u32,
    ask: &PluginRequest<'_>,
    leaving: Option<SpecSlot>,
) -> Option<Offer> {
    match plugin_set.ask(plugin, ask, leaving) {
        Verdict::Ok(offer) | Verdict::Partial(offer) => Some(offer),
        Verdict::No(_) => None,
    }
}

/// Formats the minimum and the median of `times`, which are in nanoseconds.
fn show(mut times: Vec<f64>) -> String {
    times.sort_by(f64::total_cmp);
    match (times.first(), times.get(times.len() / 2)) {
        (Some(least), Some(median)) => format!("{least:.0} / {median:.0} ns"),
        _ => "-".to_owned(),
    }
}

fn main() {
    let rounds: usize = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(21);
    println!(
        "{:>5} {:>9} {:>6} {:>6}  {:>16} {:>16}",
        "cpus", "instances", "plugin", "specs", "create+release", "change"
    );
    for (cpus, instances) in [(1, 1), (2, 1), (20, 1), (64, 1), (2, 8)] {
        for plugin in 0..4 {
            for specs in [0, 1_024, 16_384] {
                let (mut plugin_set, mut rng) = (plugin_set(cpus, instances), Rng::new(7));
                let mut held = 0;
                for _ in 0..specs {
                    let params = params(&mut rng);
                    // On one CPU not all of them fit; then without a runtime, if the plugin accepts
                    // that.
                    let bare = Params { runtime: None, ..params };
                    let found = [params, bare]
                        .into_iter()
                        .find_map(|p| Some((p, offer(&plugin_set, plugin, &ask(&p), None)?)));
                    let Some((params, offer)) = found else { break };
                    plugin_set.admit(plugin, SpecSlot(held), &ask(&params), &offer);
                    held += 1;
                }
                let (mut create, mut change) = (vec![], vec![]);
                let mut moved = vec![];
                for _ in 0..rounds {
                    let tasks: Vec<Params> = (0..500).map(|_| params(&mut rng)).collect();
                    let start = Instant::now();
                    for params in &tasks {
                        if let Some(offer) = offer(&plugin_set, plugin, &ask(params), None) {
                            plugin_set.admit(plugin, SpecSlot(held), &ask(params), &offer);
                            plugin_set.release(SpecSlot(held), None);
                            plugin_set.drain_moved(&mut moved);
                        }
                        black_box(&plugin_set);
                    }
                    create.push(start.elapsed().as_nanos() as f64 / tasks.len() as f64);
                    if held == 0 {
                        continue;
                    }
                    let start = Instant::now();
                    for (i, params) in tasks.iter().enumerate() {
                        let slot = SpecSlot(i as u32 % held);
                        if let Some(offer) = offer(&plugin_set, plugin, &ask(params), Some(slot)) {
                            plugin_set.replace(slot, plugin, &ask(params), &offer, None);
                            plugin_set.drain_moved(&mut moved);
                        }
                    }
                    change.push(start.elapsed().as_nanos() as f64 / tasks.len() as f64);
                }
                let name = ["edf", "rm", "fp", "rr"][plugin as usize];
                println!(
                    "{cpus:>5} {instances:>9} {name:>6} {held:>6}  {:>16} {:>16}",
                    show(create),
                    show(change)
                );
            }
        }
    }
}
