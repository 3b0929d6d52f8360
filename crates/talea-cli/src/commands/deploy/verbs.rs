//! Verbs about the generation in force: `confirm`, `drain`, `rollback`, `remove` and `status`.

use super::daemon::DaemonArgs;
use std::fmt::Write;
use talea_core::Span;
use talea_deploy::text::message::{Ask, StatusText, TaskStatusText};
use talea_study::exit::Exit;
use talea_study::options::{self, Output};
use talea_study::output::{Table, print};
use talea_study::run_summary::short;

/// Confirm the generation on trial.
///
/// Refused until the programs of all tasks run and are ready.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example: talea deploy confirm")]
pub(super) struct ConfirmArgs {
    #[command(flatten)]
    daemon: DaemonArgs,
}

/// End the programs of a task, or of all tasks.
///
/// They start again with the next talea deploy apply.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example: talea deploy drain logger --within 2s")]
pub(super) struct DrainArgs {
    /// The task; without it, all tasks.
    #[arg(value_name = "TASK")]
    task: Option<String>,
    /// Time after which a program that has not exited is killed.
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = options::duration)]
    within: Span,
    #[command(flatten)]
    daemon: DaemonArgs,
}

/// Return to an earlier generation.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example: talea deploy rollback 3")]
pub(super) struct RollbackArgs {
    /// Number of the generation; without it, the one before.
    #[arg(value_name = "GENERATION")]
    generation: Option<u64>,
    #[command(flatten)]
    daemon: DaemonArgs,
}

/// End the deployment: its programs, its control groups and its generations.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example: talea deploy remove")]
pub(super) struct RemoveArgs {
    #[command(flatten)]
    daemon: DaemonArgs,
}

/// Show the generation in force and its tasks.
///
/// Ends with 1 if a task has failed, or if another writer changes a value again and again.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example: talea deploy status")]
pub(super) struct StatusArgs {
    #[command(flatten)]
    daemon: DaemonArgs,
    #[command(flatten)]
    output: Output,
}

pub(super) fn confirm(args: &ConfirmArgs) -> anyhow::Result<Exit> {
    let number = args.daemon.change(&Ask::Confirm)?;
    done("is confirmed", number)
}

pub(super) fn drain(args: &DrainArgs) -> anyhow::Result<Exit> {
    args.daemon.change(&Ask::Drain { task: args.task.clone(), within: args.within })?;
    let what = args.task.as_deref().unwrap_or("every task");
    print(&format!("{what} is drained; a program is killed after {}\n", args.within))?;
    Ok(Exit::Ok)
}

pub(super) fn rollback(args: &RollbackArgs) -> anyhow::Result<Exit> {
    let number = args.daemon.change(&Ask::RollBack(args.generation))?;
    done("is in force", number)
}

pub(super) fn remove(args: &RemoveArgs) -> anyhow::Result<Exit> {
    let number = args.daemon.change(&Ask::Remove)?;
    done("is in force", number)
}

fn done(what: &str, number: Option<u64>) -> anyhow::Result<Exit> {
    match number {
        Some(number) => print(&format!("generation {number} {what}\n"))?,
        None => print("no generation is in force\n")?,
    }
    Ok(Exit::Ok)
}

pub(super) fn status(args: &StatusArgs) -> anyhow::Result<Exit> {
    let status = args.daemon.status()?;
    args.output.print(&status, || status_text(&status))?;
    Ok(if status.has_problem() { Exit::Failure } else { Exit::Ok })
}

fn status_text(status: &StatusText) -> String {
    let Some(in_force) = &status.in_force else { return "no generation is in force\n".to_owned() };
    let mut out = String::new();
    // Writing to a String can't fail.
    let _ = write!(out, "generation {} is in force", in_force.number);
    let _ = writeln!(out, ", SHA-256 {}", &in_force.sha256[..16.min(in_force.sha256.len())]);
    if in_force.unproved {
        let _ = writeln!(out, "not every deadline is proved");
    }
    if let Some(left) = status.trial_left_ns {
        let _ = writeln!(out, "on trial: run talea deploy confirm within {}", short(left));
    }
    if let Some(before) = status.before {
        let _ = writeln!(out, "generation {before} was before");
    }
    let mut table =
        Table::new("task | condition | >pid | >restarts | >failures | >repairs | contended");
    for task in &status.tasks {
        let contended = task.contended.iter().map(|of| format!("{} of {}", of.value(), of.tid));
        table.row(vec![
            task.name.clone(),
            condition(task),
            task.pid.map_or_else(|| "-".to_owned(), |pid| pid.to_string()),
            task.restarts.to_string(),
            task.failures.to_string(),
            task.repairs.to_string(),
            contended.collect::<Vec<_>>().join(", "),
        ]);
    }
    out + &table.render()
}

fn condition(task: &TaskStatusText) -> String {
    match task.back_off_left_ns {
        Some(left) => format!("{}, {} left", task.condition.words(), short(left)),
        None => task.condition.words().to_owned(),
    }
}
