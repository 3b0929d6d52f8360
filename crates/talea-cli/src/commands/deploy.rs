//! `talea deploy`: a described system that is kept in force. `talea-deployd` keeps it.

mod actions;
mod apply;
mod daemon;
mod missing;
mod plan;
mod report;
mod verbs;

pub(crate) use daemon::DaemonArgs;

use crate::broker_client::Options;
use talea_study::exit::Exit;

/// Keep a described system in force across processes.
///
/// A deployment starts the programs of a system file, sets their attributes, and keeps both in
/// force. The daemon talea-deployd does this as root, and root alone requests it.
#[derive(clap::Args, Debug)]
#[command(disable_help_subcommand = true, after_help = "Example: talea deploy plan system.toml")]
pub(crate) struct DeployArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(clap::Subcommand, Debug)]
enum Verb {
    Plan(plan::PlanArgs),
    Apply(apply::ApplyArgs),
    Confirm(verbs::ConfirmArgs),
    Status(verbs::StatusArgs),
    Diff(apply::DiffArgs),
    Drain(verbs::DrainArgs),
    Rollback(verbs::RollbackArgs),
    Remove(verbs::RemoveArgs),
}

pub(crate) fn run(options: &Options, args: &DeployArgs) -> anyhow::Result<Exit> {
    match &args.verb {
        Verb::Plan(args) => plan::run(options, args),
        Verb::Apply(args) => apply::apply(options, args),
        Verb::Confirm(args) => verbs::confirm(args),
        Verb::Status(args) => verbs::status(args),
        Verb::Diff(args) => apply::diff(options, args),
        Verb::Drain(args) => verbs::drain(args),
        Verb::Rollback(args) => verbs::rollback(args),
        Verb::Remove(args) => verbs::remove(args),
    }
}
