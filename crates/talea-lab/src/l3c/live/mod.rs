//! Live columns: the systems of the figures on real threads.
//!
//! Model: a [trial](trial::Trial) is a system for one CPU. The engine that simulates it also drives
//! it on the first available CPU. A, B and all other tasks that compute are threads of this
//! process. The echo server is a separate program, started and placed into the tree like any
//! program. Its client runs on the last CPU, outside of the system, at the times of the simulation:
//! both have the same time zero. [`verdict`] evaluates what [`stall_filter`] does not exclude,
//! because the scheduler does not cause a stall of the CPU.
//!
//! With `--deployed` A, B and the matrix program are programs, too, each of another user, and
//! `talea-deployd` keeps them in force ([`deployed`]).

mod deployed;
mod fig4;
mod fig5;
mod fig6;
mod matrix;
mod programs;
mod results;
mod scenarios;
mod stall_filter;
mod trial;
mod verdict;

pub(crate) use programs::{JobsArgs, ProductsArgs, jobs, products};

use super::args::{Args, Which};
use talea_study::exit::{Exit, usage};

/// Runs an experiment.
pub(super) fn run(figure: Which, args: &Args) -> anyhow::Result<Exit> {
    if args.deployed && !matches!(figure, Which::Fig7 | Which::Fig8) {
        return Err(usage("only fig7 and fig8 are measured with --deployed"));
    }
    match figure {
        Which::Fig4 => fig4::run(args),
        Which::Fig5 => fig5::run(args),
        Which::Fig6 => fig6::run(args),
        Which::Fig7 | Which::Fig8 => scenarios::run(args),
    }
}
