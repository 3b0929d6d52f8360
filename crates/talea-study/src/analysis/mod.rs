//! Schedulability analysis of a described system: bounds, verdicts, witnesses, and searches for
//! parameters.

mod affinities;
#[cfg(test)]
mod agrees;
mod args;
mod chains;
mod interference;
mod model;
mod modes;
mod names;
mod page;
mod partitions;
mod priorities;
mod progress;
mod report;
mod sensitivity;
mod server;
mod synthesize;
mod verdict;
mod witness;

pub use args::{AnalyzeArgs, SynthesisTarget};
pub use interference::show as show_interference;
pub use modes::ModesReport;
pub use names::name_of;
pub use report::AnalysisReport;
pub use sensitivity::show as show_sensitivity;

use crate::exit::Exit;
use model::model_of;
use progress::Progress;
use report::{RootAnalysis, TaskAnalysis};
use std::path::Path;
use std::rc::Rc;
use talea_analysis::tree::{Reason, TaskBound};
use talea_core::engine::{MAX_RUN, NodeSpec, Tree};
use talea_core::{Span, mutate};
use talea_system::what_if::Change;
use talea_system::{Root, System};

/// Searches for the parameters that `args` names. Prints the result.
///
/// # Errors
/// If the arguments do not fit the system, or the search cannot be made.
pub fn synthesize(
    what: SynthesisTarget,
    args: &AnalyzeArgs,
    system: &System,
) -> anyhow::Result<Exit> {
    match what {
        SynthesisTarget::Server => server::server(args, system),
        SynthesisTarget::Partitions => partitions::partitions(args, system),
        SynthesisTarget::Affinities => affinities::affinities(args, system),
        SynthesisTarget::Priorities => {
            let changes = args.what_if.iter().map(ToString::to_string).collect();
            priorities::priorities(&args.file, changes, args.output.json, system)
        }
        SynthesisTarget::Table => synthesize::table(args, system),
    }
}

/// Analysis of a system, with the late job that it found.
pub struct Analysis {
    /// The report.
    pub report: AnalysisReport,
    what_if: Vec<Change>,
    /// `bounds[r]`: bound of each task of root `r`.
    bounds: Vec<Vec<TaskBound>>,
    /// The late job, and the index of its task in its root.
    found: Option<(witness::FoundMiss, usize)>,
}

impl Analysis {
    /// Analyses a system that was read from `file` and then changed by `what_if`.
    ///
    /// # Errors
    /// If a simulation for a witness cannot be made, or contradicts a proof.
    pub fn of(file: &Path, what_if: Vec<Change>, system: &System) -> anyhow::Result<Analysis> {
        analyze_with(file, what_if, system, &mut Progress::new())
    }

    /// Writes a page with the bounds, and with demand against supply.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write_page(&self, path: &Path, system: &System) -> anyhow::Result<()> {
        page::write(path, system, &self.report)
    }

    /// Writes the arrivals of the late job to a file. Returns false if no job is known to be late.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write_witness(&self, path: &Path) -> anyhow::Result<bool> {
        let Some((found, task)) = &self.found else { return Ok(false) };
        found.witness(&self.report.file, &self.what_if, *task)?.write(path)?;
        Ok(true)
    }
}

fn analyze_with(
    file: &Path,
    what_if: Vec<Change>,
    system: &System,
    progress: &mut Progress,
) -> anyhow::Result<Analysis> {
    let mut found = None;
    let (mut roots, mut bounds) = (Vec::new(), Vec::new());
    for (number, root) in system.roots.iter().enumerate() {
        let (answer, of_tasks) = analyze_root(system, number, root, progress, &mut found)?;
        roots.push(answer);
        bounds.push(of_tasks);
    }
    let of_root = |bounds: &Vec<TaskBound>| -> Vec<Option<Span>> {
        bounds.iter().map(|of| of.bound.clone().ok()).collect()
    };
    let responses: Vec<_> = bounds.iter().map(of_root).collect();
    let chains = chains::analyze(system, &responses)?;
    let report = AnalysisReport {
        file: file.display().to_string(),
        what_if: what_if.iter().map(ToString::to_string).collect(),
        proved: roots.iter().all(|root| root.proved)
            && !chains.iter().any(chains::ChainAnalysis::is_open),
        roots,
        chains,
    };
    Ok(Analysis { report, what_if, bounds, found })
}

fn analyze_root(
    system: &System,
    number: usize,
    root: &Root,
    progress: &mut Progress,
    found: &mut Option<(witness::FoundMiss, usize)>,
) -> anyhow::Result<(RootAnalysis, Vec<TaskBound>)> {
    let roots = model_of(root);
    let answers =
        roots.bounds_with_progress(|done, all| progress.tasks_analysed(&root.name, done, all));
    progress.finish_line();
    // Only tasks that are not proved are worth a simulation.
    let mut misses = vec![None; answers.len()];
    let mut too_long = Vec::new();
    let seed = talea_sim::rng::root_seed(system.seed, number);
    if !answers.iter().all(|answer| answer.is_proved() || !answer.has_deadline()) {
        misses = witness::misses(root, system.duration, seed, progress)?;
        let proved: Vec<bool> = answers.iter().map(TaskBound::is_proved).collect();
        let is_overload = |answer: &TaskBound| {
            answer.bound.as_ref().is_err_and(|no| no.reason == Reason::Overload)
        };
        let unseen =
            answers.iter().zip(&misses).any(|(answer, miss)| is_overload(answer) && miss.is_none());
        let is_longer = mutate!("analyze-long-run", unseen, !unseen);
        let longer = witness::extended_duration(root, system.duration);
        if let (true, Some(longer)) = (is_longer, longer) {
            let later = witness::misses(root, longer, seed, progress)?;
            for (miss, later) in misses.iter_mut().zip(later) {
                *miss = miss.or(later);
            }
        }
        witness::check_consistency(root, &proved, &misses)?;
        let unproved = || {
            answers
                .iter()
                .enumerate()
                .filter(|(_, answer)| !answer.is_proved() && answer.has_deadline())
        };
        let period = max_period(&root.tree);
        let longest = |answer: &TaskBound| {
            answer
                .bound
                .as_ref()
                .map_or(answer.deadline, |bound| *bound)
                .max(answer.deadline)
                .max(period)
        };
        // With given phases, an exact bound is the response from these phases. No statement is
        // possible about other phases.
        let is_open = |answer: &TaskBound| {
            mutate!("analyze-witness-own-phases", answer.is_refuted(), answer.node == Tree::ROOT)
                || !witness::has_phases(root)
        };
        let quiet = unproved().filter(|&(task, answer)| misses[task].is_none() && is_open(answer));
        let quiet: Vec<_> = quiet.map(|(task, answer)| (task, longest(answer))).collect();
        let described = unproved().find_map(|(task, _)| Some((task, misses[task]?)));
        let searched = witness::search(root, &quiet, &proved, seed, progress)?;
        too_long = searched.too_long;
        let mut seen = searched.found;
        for (task, one) in &seen {
            misses[*task] = Some(one.miss);
        }
        let described = described.map(|(task, miss)| {
            (task, witness::FoundMiss { miss, root: Rc::new(root.clone()), seed })
        });
        seen.extend(described);
        if let Some((task, first)) = seen.into_iter().min_by_key(|&(task, _)| task) {
            found.get_or_insert((first, task));
        }
        progress.finish_line();
    }
    let mut tasks: Vec<TaskAnalysis> = answers
        .iter()
        .zip(misses)
        .zip(&root.tasks)
        .map(|((answer, miss), name)| TaskAnalysis::new(&root.tree, answer, miss, name))
        .collect();
    for task in too_long {
        if let Some(why) = &mut tasks[task].why {
            why.push_str("; other arrivals were not searched, because that would take too long");
        }
    }
    let proved = !tasks.iter().any(TaskAnalysis::is_open);
    let analysis = RootAnalysis { name: root.name.clone(), cpus: root.tree.cpus, proved, tasks };
    Ok((analysis, answers))
}

fn max_period(tree: &Tree) -> Span {
    let periods = tree.nodes().filter_map(|(_, node)| match &node.spec {
        // A task with one endless job has no period.
        NodeSpec::Task(spec) => Some(spec.period).filter(|&period| period < MAX_RUN),
        NodeSpec::Scheduler(spec) => spec.reservation.map(|of| of.period),
    });
    periods.max().unwrap_or(Span::ZERO)
}
