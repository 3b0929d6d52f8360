//! `talea deploy plan`: what a deployment would do, without doing it.

use super::actions;
use super::daemon::DaemonArgs;
use super::missing::{self, Missing};
use super::report::{self, Outcome, PlanReport, RootJson};
use crate::broker_client::Options;
use anyhow::Context;
use std::path::PathBuf;
use talea_core::{CpuSet, Span};
use talea_deploy::mechanism::{self, Mechanism, RootPlan};
use talea_deploy::text::{SourceFile, StoredGeneration};
use talea_deploy::{
    Command, Difference, FileHash, Generation, Governed, Health, Role, RootSpec, TaskSpec,
};
use talea_os::sched;
use talea_os::sysinfo::SystemInfo;
use talea_study::analysis::Analysis;
use talea_study::exit::Exit;
use talea_study::live_run::{SourceTexts, logical_task, place};
use talea_study::options::Output;
use talea_study::output::{colored, note};
use talea_system::{Registry, Root, System, Unwritable};

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
    /// CPUs of this computer for those of the file, in the order of the roots. By default those of
    /// the generation in force if it has the same roots, else the first ones that this process may
    /// use.
    #[arg(long, value_name = "LIST", value_parser = CpuSet::parse)]
    cpus: Option<CpuSet>,
    /// Admit a system although not every deadline is proved. A known late job is still refused.
    #[arg(long)]
    unproved: bool,
    /// Write the arrivals of the first known late job to FILE, for talea simulate --witness.
    #[arg(long, value_name = "FILE")]
    witness: Option<PathBuf>,
}

/// Length in the file of a governor, which runs without end.
const SECOND: Span = Span::from_ns(1_000_000_000);

/// Planned deployment.
pub(super) struct Planned {
    pub(super) report: PlanReport,
    pub(super) generation: StoredGeneration,
}

pub(super) fn run(options: &Options, args: &PlanArgs) -> anyhow::Result<Exit> {
    let _watch = args.limit.watch(args.output.json)?;
    let in_force = args.daemon.in_force_if_known()?;
    let Planned { report, .. } = plan(options, &args.system, in_force.as_ref())?;
    args.output.print(&report, || report::text(&report, colored()) + "nothing was changed\n")?;
    Ok(report.outcome.exit())
}

/// Plans a deployment that follows the generation `in_force`.
pub(super) fn plan(
    options: &Options,
    args: &SystemArgs,
    in_force: Option<&Generation>,
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
        None => place(&system, args.cpus.or_else(|| cpus_in_force(&system, in_force?)).as_ref())
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
    }
    missing.extend(missing::of_grants(options, &args.file, &cpus)?);
    let hash = FileHash::of(texts.0.iter().map(|(_, text)| text.as_str()));
    let tasks = tasks(&system, &plans, &cpus, &mut missing);
    let outcome = outcome(&analysis, &missing, args.unproved);
    let (report, is_unproved) = (analysis.report.text(false), outcome == Outcome::Unproved);
    // The driver assigns the number.
    let number = in_force.map_or(0, Generation::number) + 1;
    let generation =
        Generation::new(number, hash, roots(&system, &cpus), tasks, report, is_unproved)
            .context("a system file makes a valid generation")?;
    let difference = Difference::between(in_force, &generation);
    let mut actions = Vec::new();
    for (number, (root, plan)) in generation.roots().iter().zip(&plans).enumerate() {
        let tasks = generation.tasks().iter().filter(|task| task.root == number);
        actions.extend(tasks.flat_map(|task| actions::of_task(root, plan, task, &difference)));
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
        difference: difference.into(),
        outcome,
        roots: roots.collect(),
        analysis: analysis.report,
        actions,
        missing,
    };
    let files = texts.0.into_iter().map(|(path, text)| SourceFile { path, text }).collect();
    Ok(Planned { report, generation: StoredGeneration { generation: generation.into(), files } })
}

/// Returns the CPUs of a generation with the same roots: the CPUs are no part of the file, and a
/// task that keeps its CPUs is not touched.
fn cpus_in_force(system: &System, in_force: &Generation) -> Option<CpuSet> {
    let roots = in_force.roots();
    let is_same =
        |(old, new): (&RootSpec, &Root)| old.name == new.name && old.cpus.len() == new.tree.cpus;
    let are_same =
        roots.len() == system.roots.len() && roots.iter().zip(&system.roots).all(is_same);
    are_same.then(|| roots.iter().fold(CpuSet::EMPTY, |all, root| all.union(&root.cpus)))
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

/// Returns the tasks that a program plays, and the governors of roots that need one.
fn tasks(
    system: &System,
    plans: &[RootPlan],
    cpus: &[CpuSet],
    missing: &mut Vec<Missing>,
) -> Vec<TaskSpec> {
    let mut tasks = Vec::new();
    for (number, ((root, plan), cpus)) in system.roots.iter().zip(plans).zip(cpus).enumerate() {
        let role = match plan.mechanism {
            Mechanism::Linux => Role::Linux,
            Mechanism::Freeze => Role::Governed(*cpus),
        };
        let first = tasks.len();
        for (task, name) in root.tasks.iter().enumerate() {
            let Some(words) = &root.programs[task] else { continue };
            let (words, user) = (words.clone(), root.users[task].clone());
            tasks.push(TaskSpec {
                name: name.clone(),
                root: number,
                command: Command { words, user, role },
                attr: plan.attrs[task],
                health: root.health[task],
                governed: None,
            });
        }
        if plan.mechanism == Mechanism::Freeze {
            let names = tasks[first..].iter().map(|task| task.name.clone()).collect();
            match governed_text(root) {
                Ok(text) => {
                    let (root, cpus) = (root.name.clone(), *cpus);
                    let governed = Governed { root, cpus, system: text, tasks: names };
                    tasks.insert(first, TaskSpec::governor(number, governed));
                }
                Err(why) => {
                    missing.push(missing::of_text(&root.name, &why));
                    tasks.truncate(first);
                }
            }
        }
    }
    tasks
}

/// Returns the text of a system with this root alone. The text has neither the commands of the
/// programs nor the length of a run, so a change of these does not replace the governor.
fn governed_text(root: &Root) -> Result<String, Unwritable> {
    let count = root.tasks.len();
    let root = Root {
        programs: vec![Some(vec!["true".to_owned()]); count],
        users: vec![None; count],
        health: vec![Health::default(); count],
        ..root.clone()
    };
    talea_system::write(&System {
        duration: SECOND,
        seed: 0,
        roots: vec![root],
        chains: Vec::new(),
        expectations: Vec::new(),
        warnings: Vec::new(),
        modes: Vec::new(),
    })
}
