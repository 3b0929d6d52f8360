//! Options of an analysis, as a command takes them.

use crate::options::{Output, duration};
use clap::ValueEnum;
use std::path::PathBuf;
use talea_core::Span;
use talea_system::what_if::Change;

/// Analyse whether deadlines can be missed.
///
/// Bounds the response time of every task of a described system and names the test with its paper.
/// If a task is not proved, searches for a late job. An answer is proved, refuted or unknown: a
/// test that is only sufficient refutes nothing. A system with modes is analysed in each mode and
/// across each transition. Ends with 0 if every task is proved, in every mode and across every
/// transition, else with 1; with 2 if a change makes an invalid system.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example: talea analyze system.toml --what-if 'cost(video)*1.2'")]
pub struct AnalyzeArgs {
    /// The system file.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Change a value first, such as 'cost(video)*1.2', 'period(audio)=5ms' or 'budget(net)+1ms'.
    /// May be repeated.
    #[arg(long, value_name = "CHANGE", value_parser = change)]
    pub what_if: Vec<Change>,
    /// Analyse this mode alone, instead of all modes and the transitions between them.
    #[arg(long, value_name = "NAME")]
    pub mode: Option<String>,
    /// Instead, show how much of any window a band takes (or a server, a group, a task), and of
    /// each slot of the partitions below it. May be repeated.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["synthesize", "sensitivity"])]
    pub interference: Vec<String>,
    /// Windows of this length, with --interference.
    #[arg(long, value_name = "DURATION", value_parser = duration, requires = "interference")]
    pub within: Vec<Span>,
    /// Instead, show how far each cost, all costs and each period can change while every deadline
    /// remains proved.
    #[arg(long, conflicts_with = "synthesize")]
    pub sensitivity: bool,
    /// Instead, search for a parameter that the file lacks or that could be better.
    #[arg(long, value_enum, ignore_case = true, value_name = "WHAT")]
    pub synthesize: Option<SynthesisTarget>,
    /// Only this server, or a group that is to get one, with --synthesize server. By default all
    /// servers, one by one.
    #[arg(long, value_name = "NAME", requires = "synthesize")]
    pub server: Vec<String>,
    /// Candidate periods, with --synthesize server. The one with the smallest utilisation is
    /// proposed.
    #[arg(long, value_name = "DURATION", value_parser = duration, requires = "synthesize")]
    pub period: Vec<Span>,
    /// Write a page with the bounds, and with demand against supply of each CPU, partition and
    /// server, to FILE. The page is self-contained.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["synthesize", "sensitivity", "interference"])]
    pub html: Option<PathBuf>,
    /// Write the arrivals of the first known late job to FILE, for talea simulate --witness.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["synthesize", "sensitivity", "interference"])]
    pub witness: Option<PathBuf>,
    /// Limits of time and memory.
    #[command(flatten)]
    pub limit: crate::limit::LimitArgs,
    /// Form of the output.
    #[command(flatten)]
    pub output: Output,
}

/// Parameter to synthesize.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum SynthesisTarget {
    /// The smallest budget with which the clients of a server meet their deadlines, for its period
    /// and others.
    Server,
    /// Slots of partition tables that absorb the interference of higher-priority bands.
    Partitions,
    /// Affinities with which every deadline is proved (federated scheduling: large graphs get CPUs
    /// of their own, the others one CPU each): the system file with them.
    Affinities,
    /// Priorities for the children of `fp` schedulers with which every deadline is proved: the
    /// system file with them.
    Priorities,
    /// An off-line table for all CPUs of a root: task, version, start and length of each entry.
    Table,
}

fn change(text: &str) -> Result<Change, String> {
    Change::parse(text).map_err(|error| error.to_string())
}
