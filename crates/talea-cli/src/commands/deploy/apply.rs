//! `talea deploy apply` and `talea deploy diff`: a system file against the generation in force.

use super::daemon::DaemonArgs;
use super::plan::{Planned, SystemArgs, plan};
use super::report::{self, Outcome};
use crate::broker_client::Options;
use talea_core::{Span, mutate};
use talea_deploy::text::message::Ask;
use talea_study::exit::Exit;
use talea_study::limit::LimitArgs;
use talea_study::options::duration;
use talea_study::output::{colored, print};

/// Put a system in force.
///
/// Plans first, and is refused exactly as talea deploy plan is. Then talea-deployd stores the
/// generation, starts the programs that are new or differ, and keeps them in force. A task that is
/// equal in both generations is not touched.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example: talea deploy apply system.toml --confirm 60s")]
pub(super) struct ApplyArgs {
    #[command(flatten)]
    system: SystemArgs,
    /// Return to the generation before unless talea deploy confirm follows within this time.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    confirm: Option<Span>,
    #[command(flatten)]
    daemon: DaemonArgs,
    #[command(flatten)]
    limit: LimitArgs,
}

/// Show what an apply would change.
///
/// Ends with 0 if nothing differs from the generation in force, and with 1 if something does.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example: talea deploy diff system.toml")]
pub(super) struct DiffArgs {
    #[command(flatten)]
    system: SystemArgs,
    #[command(flatten)]
    daemon: DaemonArgs,
    #[command(flatten)]
    limit: LimitArgs,
}

pub(super) fn apply(options: &Options, args: &ApplyArgs) -> anyhow::Result<Exit> {
    let _watch = args.limit.watch(false)?;
    // Without a daemon no analysis is necessary.
    let in_force = args.daemon.in_force()?;
    let Planned { report, generation } = plan(options, &args.system, in_force.as_ref())?;
    print(&report::text(&report, colored()))?;
    let is_admitted = matches!(report.outcome, Outcome::Fits | Outcome::Unproved);
    if mutate!("deploy-apply-refused", !is_admitted, false) {
        print("nothing was changed\n")?;
        return Ok(report.outcome.exit());
    }
    let ask = Ask::Apply { generation, confirm: args.confirm };
    let number = args.daemon.change(&ask)?.unwrap_or(0);
    match args.confirm {
        None => print(&format!("generation {number} is in force\n"))?,
        Some(within) => print(&format!(
            "generation {number} is in force on trial: run talea deploy confirm within {within}\n"
        ))?,
    }
    Ok(Exit::Ok)
}

pub(super) fn diff(options: &Options, args: &DiffArgs) -> anyhow::Result<Exit> {
    let _watch = args.limit.watch(false)?;
    let in_force = args.daemon.in_force()?;
    let Planned { report, .. } = plan(options, &args.system, in_force.as_ref())?;
    let mut text = String::new();
    report::difference_text(&mut text, report.in_force, &report.difference);
    print(&text)?;
    Ok(if report.difference.is_empty() { Exit::Ok } else { Exit::Failure })
}
