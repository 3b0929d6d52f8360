//! `talea-lab ipc`: cost of requests, beside a raw exchange of the same sizes and the direct system
//! calls.
//!
//! Each operation is measured directly after its baseline, so that both have the same caches and
//! the same disturbances. One plugin serves at a time. The thresholds refer to the exchange through
//! the functions of the C library. The same system calls without the library alternate with it and
//! are reported beside it (module `baseline`). All settings of a plugin are measured in short
//! alternating rounds (module `bench`). Thresholds apply to the median over the rounds; the lowest
//! and the highest round are shown. Between turns all threads sleep for a moment, so that real-time
//! throttling and fair servers do not interfere.

mod evaluate;
pub(super) mod row;

use super::bench::{Bench, RawExchanges};
use super::computer::kernel_release;
use super::placement::{Cpus, Place};
use super::reapply::{self, Reapplication};
use super::request::us;
use super::samples::Summary;
use super::tasks::Kind;
use super::thresholds::{self, Threshold};
use anyhow::Context;
use row::{IpcRow, Ratios, Setting};
use serde::Serialize;
use std::fmt::Write;
use talea_study::exit::Exit;
use talea_study::output::{self, Table};

/// Options of `talea-lab ipc`.
///
/// Needs root, and some minutes; the machine should have nothing else to do.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Small numbers: shows that it works, not what it costs.
    #[arg(long)]
    quick: bool,
    /// Only these plugins.
    #[arg(long, value_name = "KIND", value_delimiter = ',')]
    plugin: Vec<String>,
    /// Only with client and daemon on the same CPU.
    #[arg(long)]
    same_core: bool,
    #[command(flatten)]
    output: talea_study::options::Output,
}

/// Extent of the measurement.
struct Effort {
    rounds: usize,
    /// Number of turns of each setting in a round.
    turns: usize,
    specs: &'static [usize],
    idle: &'static [usize],
    instances: &'static [u32],
    attached: usize,
}

const FULL: Effort = Effort {
    rounds: 5,
    turns: 13,
    specs: &[0, 1024, 16_384],
    idle: &[0, 1000],
    instances: &[1, 16],
    attached: 1000,
};
const QUICK: Effort = Effort {
    rounds: 2,
    turns: 1,
    specs: &[0, 64],
    idle: &[0, 8],
    instances: &[1, 3],
    attached: 20,
};

#[derive(Serialize)]
struct IpcReport {
    quick: bool,
    kernel: String,
    rows: Vec<IpcRow>,
    reapplication: Reapplication,
    thresholds: Vec<Threshold>,
}

/// Measures all settings and compares the results with the thresholds.
pub(super) fn run(args: &Args) -> anyhow::Result<Exit> {
    let effort = if args.quick { &QUICK } else { &FULL };
    let places: &[Place] =
        if args.same_core { &[Place::SameCore] } else { &[Place::SameCore, Place::CrossCore] };
    let mut rows = Vec::new();
    for &place in places {
        let cpus = Cpus::of(place)?;
        for kind in Kind::ALL.into_iter().filter(|kind| wanted(args, *kind)) {
            for &instances in effort.instances {
                output::note(&format!("{}, {}, {instances} plugins", place.name(), kind.name()));
                let settings = effort.specs.iter().flat_map(|&specs| {
                    let same_core = place == Place::SameCore;
                    let setting =
                        move |&idle| Setting { same_core, plugin: kind, specs, idle, instances };
                    effort.idle.iter().map(setting)
                });
                rows.extend(measure(settings.collect(), cpus, effort)?);
            }
        }
    }
    let reapplication = reapply::measure(Cpus::of(Place::SameCore)?, effort.attached)?;
    let thresholds = evaluate::evaluate(&rows);
    let kernel = kernel_release();
    let report = IpcReport { quick: args.quick, kernel, rows, reapplication, thresholds };
    args.output.print(&report, || text(&report))?;
    Ok(thresholds::exit(&report.thresholds))
}

fn wanted(args: &Args, kind: Kind) -> bool {
    args.plugin.is_empty() || args.plugin.iter().any(|name| name == kind.name())
}

/// Measures all settings in alternating rounds.
fn measure(settings: Vec<Setting>, cpus: Cpus, effort: &Effort) -> anyhow::Result<Vec<IpcRow>> {
    let start = |setting| {
        Bench::start(setting, cpus).with_context(|| format!("cannot be set up: {setting:?}"))
    };
    let mut benches = settings.into_iter().map(start).collect::<anyhow::Result<Vec<_>>>()?;
    let mut raws = RawExchanges::start(cpus)?;
    for _ in 0..effort.rounds {
        for bench in &mut benches {
            bench.round(cpus, &mut raws, effort.turns)?;
        }
        // The order alternates, so that no bench always follows the same other bench.
        benches.reverse();
    }
    if !effort.rounds.is_multiple_of(2) {
        benches.reverse();
    }
    Ok(benches.iter().map(Bench::row).collect())
}

fn text(report: &IpcReport) -> String {
    let mut text = String::new();
    for same_core in [true, false] {
        let rows: Vec<_> =
            report.rows.iter().filter(|row| row.setting.same_core == same_core).collect();
        if rows.is_empty() {
            continue;
        }
        let place = if same_core { Place::SameCore } else { Place::CrossCore };
        let _ = write!(
            text,
            "\n{}: median / p99 in µs, × against RAW and against 2 RAW+DIRECT, in brackets the lowest and the highest \
             round; INLINED: the raw exchange without the C library's functions\n\n",
            place.name()
        );
        let mut table = Table::new(
            "PLUGIN | >SPECS | >IDLE | >PLUGINS | >RAW | >INLINED | >CREATE | >× | >CHANGE | \
             >× | >RELEASE | >× | >2 RAW+DIRECT | >ATTACH+DETACH | >× | >BYTES/SPEC",
        );
        for row in rows {
            table.row(cells(row));
        }
        text.push_str(&table.render());
    }
    let again = &report.reapplication;
    let _ = write!(
        text,
        "\nre-application: {} attached threads, a period between theirs: create median {}, worst {}; release median {}, \
         worst {} µs; at most {} threads moved\n",
        again.attached,
        us(again.create.median_ns),
        us(again.create.max_ns),
        us(again.release.median_ns),
        us(again.release.max_ns),
        again.most_moved
    );
    text.push('\n');
    text + &thresholds::text(&report.thresholds)
}

fn cells(row: &IpcRow) -> Vec<String> {
    let (setting, baselines) = (&row.setting, &row.baselines);
    let both = |summary: &Summary| format!("{} / {}", us(summary.median_ns), us(summary.p99_ns));
    vec![
        setting.plugin.name().to_owned(),
        setting.specs.to_string(),
        setting.idle.to_string(),
        setting.instances.to_string(),
        both(&baselines.raw),
        us(baselines.raw_inlined.median_ns),
        both(&row.create),
        spread(row, |ratios| ratios.create_ratio),
        both(&row.change),
        spread(row, |ratios| ratios.change_ratio),
        both(&row.release),
        spread(row, |ratios| ratios.release_ratio),
        us(2 * baselines.raw_small.median_ns + baselines.direct.median_ns),
        both(&row.attach_detach),
        spread(row, |ratios| ratios.attach_detach_ratio),
        row.bytes_per_spec.map_or_else(|| "-".to_owned(), |bytes| bytes.to_string()),
    ]
}

/// Renders a ratio with its lowest and its highest round.
fn spread(row: &IpcRow, of: fn(&Ratios) -> f64) -> String {
    let (low, high) = thresholds::range(row.rounds.iter().map(of));
    format!("{:.2} ({low:.2}-{high:.2})", of(&row.ratios))
}
