//! `talea-lab l3c`: the experiments of L3C in PikeOS (RTNS 2017, section 5), simulated.
//!
//! The base system has two time partitions of 20 ms. Task A (10 ms every 40 ms) is in the second
//! partition. Task B (2 ms every 100 ms, deadline 5 ms) is in the system partition TP_0. The echo
//! server is latency-critical, but of low criticality. Each request needs 0.65 ms, as the paper's
//! curves imply. Requests arrive at 10 per second, and at 1,000 per second in bursts of one second.

#![allow(clippy::cast_precision_loss, reason = "plotted")]

mod args;
mod base;
mod bounded;
mod fig4;
mod fig5;
mod fig6;
mod live;
mod scenarios;
mod system_parts;

pub(crate) use args::Args;
pub(crate) use live::{JobsArgs, ProductsArgs, jobs, products};

use args::Which;
use talea_study::exit::Exit;

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
