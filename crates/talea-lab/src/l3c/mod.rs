//! `talea-lab l3c`: the experiments of L3C in PikeOS (RTNS 2017, section 5), simulated.
//!
//! The base system has two time partitions of 20 ms. Task A (10 ms every 40 ms) is in the second
//! partition. Task B (2 ms every 100 ms, deadline 5 ms) is in the system partition TP_0. The echo
//! server is latency-critical, but of low criticality. Each request needs 0.65 ms, as the paper's
//! curves imply. Requests arrive at 10 per second, and at 1,000 per second in bursts of one second.

#![allow(clippy::cast_precision_loss, reason = "plotted")]

mod base;
mod bounded;
mod fig4;
mod fig5;
mod fig6;
mod live;
mod scenarios;

use crate::folder;
use std::path::PathBuf;
use std::time::Duration;
use talea_core::engine::TaskSpec;
use talea_core::sched::{PolicySpec, Slot};
use talea_core::{Span, Work};
use talea_sim::{Arrivals, Cost, Source};
use talea_study::exit::Exit;
use talea_study::output::{self, Table};
use talea_study::plot::Figure;

/// Options of `talea-lab l3c`.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Figure to draw.
    figure: Which,
    /// Directory for the plot.
    #[arg(long, value_name = "DIR", default_value = ".")]
    out: PathBuf,
    /// Instead: the analysed bound of each task beside the longest simulated response; fails where
    /// that is longer.
    #[arg(long)]
    bounds: bool,
    /// Instead: on real threads, beside paper, bound and simulation; needs the right to set
    /// real-time priorities. Ends with 1 if something contradicts what the figure shows, with 6 if
    /// the machine has disturbed too much to say.
    #[arg(long, conflicts_with = "bounds")]
    live: bool,
    /// Run live experiments for seconds instead of minutes.
    #[arg(long, requires = "live")]
    quick: bool,
}

impl Args {
    /// Returns the time for which a live experiment is repeated while stalls disturb it.
    fn patience(&self) -> Duration {
        Duration::from_secs(if self.quick { 10 } else { 300 })
    }
}

#[derive(clap::ValueEnum, Clone, Copy, Debug)]
enum Which {
    Fig4,
    Fig5,
    Fig6,
    Fig7,
    Fig8,
}

/// Runs an experiment.
pub(super) fn run(args: &Args) -> anyhow::Result<Exit> {
    if args.bounds {
        return super::bounds::report("L3C", &bounded::cases(args.figure));
    }
    if args.live {
        return live::run(args.figure, args);
    }
    match args.figure {
        Which::Fig4 => fig4::run(),
        Which::Fig5 => fig5::run(args),
        Which::Fig6 => fig6::run(args),
        Which::Fig7 => scenarios::run(args, scenarios::Watched::A),
        Which::Fig8 => scenarios::run(args, scenarios::Watched::B),
    }
}

const US: u64 = 1_000;
const MS: u64 = 1_000_000;

fn span(us: u64) -> Span {
    Span::from_ns(us * US)
}

fn work(us: u64) -> Work {
    Work::from_ns(us * US)
}

fn ms(span: Span) -> f64 {
    span.as_ns() as f64 / MS as f64
}

fn task(name: &str, period_us: u64, deadline_us: u64, priority: u8) -> TaskSpec {
    let mut spec = TaskSpec::new(name, span(period_us));
    spec.deadline = span(deadline_us);
    spec.priority = priority;
    // All requests are served eventually; a bounded queue is another experiment.
    spec.backlog.capacity = 10_000;
    spec
}

fn periodic(period_us: u64, offset_us: u64, cost_us: u64) -> Source {
    let arrivals =
        Arrivals::Periodic { offset: span(offset_us), period: span(period_us), jitter: Span::ZERO };
    Source { arrivals, cost: Cost::Constant(work(cost_us)) }
}

/// Returns a table of slots of equal length, one per child.
fn table(slot_us: u64, slots: u32) -> PolicySpec {
    let at = |number: u32| span(slot_us * u64::from(number));
    let slots: Vec<Slot> =
        (0..slots).map(|owner| Slot { start: at(owner), end: at(owner + 1), owner }).collect();
    PolicySpec::Partitions {
        frame: slots.last().map_or(Span::ZERO, |last| last.end),
        slots,
        lending: false,
    }
}

fn finish(args: &Args, name: &str, figure: &Figure, report: &Table) -> anyhow::Result<Exit> {
    let path = folder::save(&args.out, &format!("{name}.svg"), &figure.svg())?;
    output::print(&report.render())?;
    output::print(&folder::written(&[path]))?;
    Ok(Exit::Ok)
}
