//! `talea-lab yasmin`: the experiments of YASMIN (Middleware 2021): the exploration of section 5,
//! simulated in [`fig5`] and flown in [`live`]; the latencies of Table 2 in [`table2`]; the
//! overheads of Figure 2 in [`fig2`].

#![allow(clippy::cast_precision_loss, reason = "plotted")]

mod args;
mod chart;
mod fig2;
mod fig5;
mod live;
mod overhead;
mod table2;
mod threads;

pub(crate) use args::Args;

use args::Which;
use talea_study::exit::{Exit, usage};

/// Runs an experiment.
pub(super) fn run(args: &Args) -> anyhow::Result<Exit> {
    let is_simulated = matches!(args.figure, Which::Fig5) && !args.live;
    if is_simulated && args.quick {
        return Err(usage(
            "--quick is for real threads: fig5 without --live is simulated, which takes no time",
        ));
    }
    match args.figure {
        Which::Fig5 if args.live => live::fig5(args),
        Which::Fig5 => fig5::fig5(args),
        Which::Table2 => table2::table2(args),
        Which::Fig2 => fig2::fig2(args),
    }
}
