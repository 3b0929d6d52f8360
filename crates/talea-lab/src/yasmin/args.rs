//! Options of `talea-lab yasmin`.

use crate::folder;
use std::path::PathBuf;

/// Options of `talea-lab yasmin`.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Figure or table to make.
    pub(super) figure: Which,
    /// Directory for plots and data.
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(super) out: PathBuf,
    /// In fig5, fly the drone of examples/search-and-rescue on this machine's first two CPUs,
    /// beside the simulation of what it says of itself. The others are always on real threads.
    #[arg(long)]
    pub(super) live: bool,
    /// Small numbers: shows that it works, not what it costs.
    #[arg(long)]
    pub(super) quick: bool,
}

impl Args {
    /// Writes one of the files of a figure. Returns the path of the file.
    pub(super) fn save(&self, name: &str, text: &str) -> anyhow::Result<PathBuf> {
        folder::save(&self.out, name, text)
    }
}

/// Figure or table.
#[derive(clap::ValueEnum, Clone, Copy, Debug)]
pub(super) enum Which {
    /// The drone in 24 configurations.
    Fig5,
    /// How late six threads are awake that all want to be every 10 ms: ours beside plain ones,
    /// without load and under it. Needs root or CAP_SYS_NICE.
    Table2,
    /// Cost of scheduling per job of 20 to 120 tasks, beside a thread for each task. Needs root
    /// or CAP_SYS_NICE.
    Fig2,
}
