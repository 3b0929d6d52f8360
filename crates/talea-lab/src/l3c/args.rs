//! Options of `talea-lab l3c`, and the output to which they lead.

use crate::folder;
use std::path::PathBuf;
use std::time::Duration;
use talea_study::exit::Exit;
use talea_study::output::{self, Table};
use talea_study::plot::Figure;

/// Options of `talea-lab l3c`.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Figure to draw.
    pub(super) figure: Which,
    /// Directory for the plot.
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(super) out: PathBuf,
    /// Instead: the analysed bound of each task beside the longest simulated response; fails where
    /// that is longer.
    #[arg(long)]
    pub(super) bounds: bool,
    /// Instead: on real threads, beside paper, bound and simulation; needs the right to set
    /// real-time priorities. Ends with 1 if something contradicts what the figure shows, with 6 if
    /// the machine has disturbed too much to say.
    #[arg(long, conflicts_with = "bounds")]
    pub(super) live: bool,
    /// Deploy the tasks of fig7 and fig8 as programs of different users, which talea-deployd and
    /// a governor keep in force; needs root, and talea, talea-deployd and
    /// talea-governor beside this program.
    #[arg(long, requires = "live")]
    pub(super) deployed: bool,
    /// Run live experiments for seconds instead of minutes.
    #[arg(long, requires = "live")]
    pub(super) quick: bool,
}

impl Args {
    /// Returns the time for which a live experiment is repeated while stalls disturb it.
    pub(super) fn patience(&self) -> Duration {
        Duration::from_secs(if self.quick { 10 } else { 300 })
    }
}

/// Figure of the paper.
#[derive(clap::ValueEnum, Clone, Copy, Debug)]
pub(super) enum Which {
    Fig4,
    Fig5,
    Fig6,
    Fig7,
    Fig8,
}

/// Prints the report of a simulated figure and writes its plot.
pub(super) fn finish(
    args: &Args,
    name: &str,
    figure: &Figure,
    report: &Table,
) -> anyhow::Result<Exit> {
    let path = folder::save(&args.out, &format!("{name}.svg"), &figure.svg())?;
    output::print(&report.render())?;
    output::print(&folder::written(&[path]))?;
    Ok(Exit::Ok)
}
