//! `talea deploy`: a described system that is kept in force. Each verb is a file.

mod actions;
mod missing;
mod plan;
mod report;

use talea_study::exit::Exit;

/// Keep a described system in force across processes: so far, plan it.
///
/// A deployment starts the programs of a system file, sets their attributes, and keeps both in
/// force. This version plans deployments and does not apply them.
#[derive(clap::Args, Debug)]
#[command(disable_help_subcommand = true, after_help = "Example: talea deploy plan system.toml")]
pub(crate) struct DeployArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(clap::Subcommand, Debug)]
enum Verb {
    Plan(plan::PlanArgs),
}

pub(crate) fn run(args: &DeployArgs) -> anyhow::Result<Exit> {
    match &args.verb {
        Verb::Plan(args) => plan::run(args),
    }
}
