//! `talea deploy plan`: what a deployment would do, without doing it.

use super::actions;
use super::daemon::DaemonArgs;
use super::missing::{self, Missing};
use super::report::{self, Outcome, PlanReport, RootJson};
use anyhow::Context;
use std::path::PathBuf;
use talea_core::CpuSet;
use talea_deploy::mechanism::{self, RootPlan};
use talea_deploy::text::{SourceFile, StoredGeneration};
use talea_deploy::{Command, Difference, FileHash, Generation, RootSpec, TaskSpec};
use talea_os::sched;
use talea_os::sysinfo::SystemInfo;
use talea_study::analysis::Analysis;
use talea_study::exit::Exit;
use talea_study::live_run::{SourceTexts, logical_task, place};
use talea_study::options::Output;
use talea_study::output::{colored, note};
use talea_system::{Registry, System};

/// Plan a deployment. Nothing is changed.
///
/// Shows what differs from the generation in force, a bound and a verdict for each task (as talea
/// analyze), what apply would do to this computer, and what this computer cannot give, with a
/// remedy. Ends with 0 if the deployment would be admitted, with 1 if a job is known to be late,
/// and with 3 if the deployment is refused: a deadline is not proved, or this computer cannot give
/// what the system needs.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example: talea deploy plan system.toml --cpus 1")]
pub(super) struct PlanArgs {
    #[command(flatten)]
    system: SystemArgs,
    #[command(flatten)]
    daemon: DaemonArgs,
    #[command(flatten)]
    limit: talea_study::limit::LimitArgs,
    #[command(flatten)]
    output: Output,
}

/// System to deploy.
#[derive(clap::Args, Debug)]
pub(super) struct SystemArgs {
    /// The system file.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// CPUs of this computer for those of the file, in the order of the roots. By default the first
    /// ones that this process may use.
    #[arg(long, value_name = "LIST", value_parser = CpuSet::parse)]
    cpus: Option<CpuSet>,
    /// Admit a system although not every deadline is proved. A known late job is still refused.
    #[arg(long)]
    unproved: bool,
    /// Write the arrivals of the first known late job to FILE, for talea simulate --witness.
    #[arg(long, value_name = "FILE")]
    witness: Option<PathBuf>,
}

/// Planned deployment.
pub(super) struct Planned {
    pub(super) report: PlanReport,
    pub(super) generation: StoredGeneration,
}

/// Purpose of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// The plan is shown.
    Show,
    /// The plan is put in force, which no version does for *freeze* yet.
    Apply,
}

pub(super) fn run(args: &PlanArgs) -> anyhow::Result<Exit> {
    let _watch = args.limit.watch(args.output.json)?;
    let in_force = args.daemon.in_force_if_known()?;
    let Planned { report, .. } = plan(&args.system, in_force.as_ref(), Purpose::Show)?;
    args.output.print(&report, || report::text(&report, colored()) + "nothing was changed\n")?;
    Ok(report.outcome.exit())
}

/// Plans a deployment that follows the generation `in_force`.
pub(super) fn plan(
    args: &SystemArgs,
    in_force: Option<&Generation>,
    purpose: Purpose,
) -> anyhow::Result<Planned> {
    let (system, texts) = SourceTexts::load(&args.file, &Registry::default())?;
    let analysis = Analysis::of(&args.file, Vec::new(), &system)?;
    if let Some(path) = &args.witness
        && !analysis.write_witness(path)?
    {
        note(&format!("no job is known to be late: {} is not written", path.display()));
    }
    let machine = SystemInfo::probe()?;
    let mut missing = missing::of_files(&texts);
    let places = match logical_task(&system) {
        Some(task) => Err(missing::of_logical(task)),
        None => place(&system, args.cpus.as_ref())
            .map_err(|why| missing::of_cpus(&args.file, &why.to_string())),
    };
    let cpus = match places {
        Ok(places) => places.iter().map(|cpus| cpus.iter().copied().collect()).collect(),
        Err(finding) => {
            missing.push(finding);
            missing::placeholders(&system)
        }
    };
    let quantum = sched::quantum().ok();
    let plans: Vec<RootPlan> = system
        .roots
        .iter()
        .zip(&cpus)
        .map(|(root, cpus)| mechanism::plan(&root.tree, *cpus, quantum))
        .collect();
    for (root, plan) in system.roots.iter().zip(&plans) {
        missing.extend(missing::of_root(root, plan, &machine));
        if purpose == Purpose::Apply {
            missing.extend(missing::of_mechanism(root, plan));
        }
    }
    let outcome = outcome(&analysis, &missing, args.unproved);
    let hash = FileHash::of(texts.0.iter().map(|(_, text)| text.as_str()));
    let (report, is_unproved) = (analysis.report.text(false), outcome == Outcome::Unproved);
    let tasks = tasks(&system, &plans);
    // The driver assigns the number.
    let number = in_force.map_or(0, Generation::number) + 1;
    let generation =
        Generation::new(number, hash, roots(&system, &cpus), tasks, report, is_unproved)
            .context("a system file makes a valid generation")?;
    let mut actions = Vec::new();
    for (number, (root, plan)) in generation.roots().iter().zip(&plans).enumerate() {
        let tasks = generation.tasks().iter().filter(|task| task.root == number).cloned();
        actions.extend(actions::of_root(root, plan, &tasks.collect::<Vec<_>>()));
    }
    let roots = generation.roots().iter().zip(&plans).map(|(root, plan)| RootJson {
        name: root.name.clone(),
        cpus: root.cpus.to_string(),
        mechanism: plan.mechanism.to_string(),
        mechanism_why: plan.reason.clone(),
    });
    let report = PlanReport {
        file: args.file.display().to_string(),
        sha256: hash.to_string(),
        in_force: in_force.map(Generation::number),
        difference: Difference::between(in_force, &generation).into(),
        outcome,
        roots: roots.collect(),
        analysis: analysis.report,
        actions,
        missing,
    };
    let files = texts.0.into_iter().map(|(path, text)| SourceFile { path, text }).collect();
    Ok(Planned { report, generation: StoredGeneration { generation: generation.into(), files } })
}

fn outcome(analysis: &Analysis, missing: &[Missing], unproved: bool) -> Outcome {
    if analysis.report.is_refuted() {
        Outcome::DoesNotFit
    } else if !missing.is_empty() {
        Outcome::CannotBeGiven
    } else if analysis.report.is_proved() {
        Outcome::Fits
    } else if unproved {
        Outcome::Unproved
    } else {
        Outcome::NotProved
    }
}

fn roots(system: &System, cpus: &[CpuSet]) -> Vec<RootSpec> {
    let roots = system.roots.iter().zip(cpus);
    roots.map(|(root, cpus)| RootSpec { name: root.name.clone(), cpus: *cpus }).collect()
}

/// Returns the tasks that a program plays.
fn tasks(system: &System, plans: &[RootPlan]) -> Vec<TaskSpec> {
    let mut tasks = Vec::new();
    for (number, (root, plan)) in system.roots.iter().zip(plans).enumerate() {
        for (task, name) in root.tasks.iter().enumerate() {
            let Some(words) = &root.programs[task] else { continue };
            tasks.push(TaskSpec {
                name: name.clone(),
                root: number,
                command: Command { words: words.clone(), user: root.users[task].clone() },
                attr: plan.attrs[task],
                health: root.health[task],
            });
        }
    }
    tasks
}
