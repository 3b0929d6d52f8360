//! `talea analyze`: schedulability analysis of a described system.

#[cfg(test)]
mod agrees;
mod chains;
mod interference;
mod names;
mod page;
mod partitions;
mod progress;
mod sensitivity;
mod server;
mod synthesize;
mod verdict;
mod witness;

use clap::ValueEnum;
use names::name_of;
use progress::Progress;
use serde::Serialize;
use std::fmt::Write;
use std::path::PathBuf;
use std::rc::Rc;
use talea_analysis::tree::{self, Reason, RootModel};
use talea_core::Span;
use talea_core::engine::{MAX_RUN, NodeSpec, Tree};
use talea_core::mutate;
use talea_study::exit::Exit;
use talea_study::options::Output;
use talea_study::options::duration;
use talea_study::output::{Table, Tone, colored, count, note, paint, print, print_json};
use talea_study::run_summary::{short, short_bound};
use talea_study::system_file::load;
use talea_system::what_if::Change;
use talea_system::{Registry, Root, System};
use verdict::{Verdict, kind_name};
use witness::Miss;

/// Analyse whether deadlines can be missed.
///
/// Bounds the response time of every task of a described system and names the test with its paper.
/// If a task is not proved, searches for a late job. An answer is proved, refuted or unknown: a
/// test that is only sufficient refutes nothing. Ends with 0 if every task is proved, else with 1;
/// with 2 if a change makes an invalid system.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example: talea analyze system.toml --what-if 'cost(video)*1.2'")]
pub(crate) struct AnalyzeArgs {
    /// The system file.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Change a value first, such as 'cost(video)*1.2', 'period(audio)=5ms' or 'budget(net)+1ms'.
    /// May be repeated.
    #[arg(long, value_name = "CHANGE", value_parser = change)]
    what_if: Vec<Change>,
    /// Instead, show how much of any window a band takes (or a server, a group, a task), and of
    /// each slot of the partitions below it. May be repeated.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["synthesize", "sensitivity"])]
    interference: Vec<String>,
    /// Windows of this length, with --interference.
    #[arg(long, value_name = "DURATION", value_parser = duration, requires = "interference")]
    within: Vec<Span>,
    /// Instead, show how far each cost, all costs and each period can change while every deadline
    /// remains proved.
    #[arg(long, conflicts_with = "synthesize")]
    sensitivity: bool,
    /// Instead, search for a parameter that the file lacks or that could be better.
    #[arg(long, value_enum, ignore_case = true, value_name = "WHAT")]
    synthesize: Option<SynthesisTarget>,
    /// Only this server, or a group that is to get one, with --synthesize server. By default all
    /// servers, one by one.
    #[arg(long, value_name = "NAME", requires = "synthesize")]
    server: Vec<String>,
    /// Candidate periods, with --synthesize server. The one with the smallest utilisation is
    /// proposed.
    #[arg(long, value_name = "DURATION", value_parser = duration, requires = "synthesize")]
    period: Vec<Span>,
    /// Write a page with the bounds, and with demand against supply of each CPU, partition and
    /// server, to FILE. The page is self-contained.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["synthesize", "sensitivity", "interference"])]
    html: Option<PathBuf>,
    /// Write the arrivals of the first known late job to FILE, for talea simulate --witness.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["synthesize", "sensitivity", "interference"])]
    witness: Option<PathBuf>,
    #[command(flatten)]
    limit: talea_study::limit::LimitArgs,
    #[command(flatten)]
    output: Output,
}

/// Parameter to synthesize.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum SynthesisTarget {
    /// The smallest budget with which the clients of a server meet their deadlines, for its period
    /// and others.
    Server,
    /// Slots of partition tables that absorb the interference of higher-priority bands.
    Partitions,
    /// An off-line table for all CPUs of a root: task, version, start and length of each entry.
    Table,
}

fn change(text: &str) -> Result<Change, String> {
    Change::parse(text).map_err(|error| error.to_string())
}

#[derive(Serialize)]
struct AnalysisReport {
    file: String,
    what_if: Vec<String>,
    proved: bool,
    roots: Vec<RootAnalysis>,
    chains: Vec<chains::ChainAnalysis>,
}

#[derive(Serialize)]
struct RootAnalysis {
    name: String,
    cpus: u32,
    proved: bool,
    tasks: Vec<TaskAnalysis>,
}

#[derive(Serialize)]
struct TaskAnalysis {
    name: String,
    /// Relative deadline; `None` for a job without an end.
    deadline_ns: Option<u64>,
    bound_ns: Option<u64>,
    /// Deadline minus bound.
    slack_ns: Option<u64>,
    verdict: Verdict,
    /// Name of the test that gives the bound; `None` if no test is known.
    test: Option<&'static str>,
    kind: Option<&'static str>,
    paper: Option<&'static str>,
    /// Reason why the task is not proved; `None` if it is proved.
    why: Option<String>,
    /// Change that would settle an unknown verdict; `None` if none is known.
    settled_by: Option<&'static str>,
    witness: Option<Miss>,
}

impl TaskAnalysis {
    /// Whether the task has a deadline that is not proved.
    fn is_open(&self) -> bool {
        !matches!(self.verdict, Verdict::Proved | Verdict::None)
    }
}

pub(crate) fn run(args: &AnalyzeArgs) -> anyhow::Result<Exit> {
    let _watch = args.limit.watch(args.output.json)?;
    let mut system = match load(&args.file, &Registry::default())? {
        Ok(system) => system,
        Err(diagnostics) => {
            eprint!("{}", talea_config::diagnostic::render(&diagnostics, false));
            return Ok(Exit::Usage);
        }
    };
    for change in &args.what_if {
        if let Err(error) = change.make(&mut system) {
            eprintln!("talea: {error}");
            return Ok(Exit::Usage);
        }
    }
    for root in &system.roots {
        if let Err(error) = root.tree.check() {
            let changes: Vec<String> =
                args.what_if.iter().map(|change| format!("{:?}", change.to_string())).collect();
            eprintln!(
                "talea: what-if {}: {}: {}",
                changes.join(", "),
                name_of(&root.tree, error.node),
                error.kind
            );
            return Ok(Exit::Usage);
        }
    }
    if let Some(what) = args.synthesize {
        if what != SynthesisTarget::Server && !(args.server.is_empty() && args.period.is_empty()) {
            eprintln!("talea: --server and --period are for --synthesize server");
            return Ok(Exit::Usage);
        }
        return match what {
            SynthesisTarget::Server => server::server(args, &system),
            SynthesisTarget::Partitions => partitions::partitions(args, &system),
            SynthesisTarget::Table => synthesize::table(args, &system),
        };
    }
    if !args.interference.is_empty() {
        return interference::show(args, &system);
    }
    if args.sensitivity {
        return sensitivity::show(args, &system);
    }
    let (answer, found) = analyze(args, &system)?;
    if let Some(path) = &args.witness {
        match &found {
            Some((found, task)) => {
                found.witness(&answer.file, &args.what_if, *task)?.write(path)?;
            }
            None => note(&format!("no job is known to be late: {} is not written", path.display())),
        }
    }
    if let Some(path) = &args.html {
        page::write(path, &system, &answer)?;
    }
    if args.output.json {
        print_json(&answer)?;
    } else {
        print(&text(&answer, colored()))?;
    }
    Ok(if answer.proved { Exit::Ok } else { Exit::Failure })
}

fn analyze(
    args: &AnalyzeArgs,
    system: &System,
) -> anyhow::Result<(AnalysisReport, Option<(witness::FoundMiss, usize)>)> {
    let mut progress = Progress::new();
    let mut found = None;
    let (mut roots, mut responses) = (Vec::new(), Vec::new());
    for (number, root) in system.roots.iter().enumerate() {
        let (answer, bounds) = analyze_root(system, number, root, &mut progress, &mut found)?;
        roots.push(answer);
        responses.push(bounds.into_iter().map(|of| of.bound.ok()).collect());
    }
    let chains = chains::analyze(system, &responses)?;
    let answer = AnalysisReport {
        file: args.file.display().to_string(),
        what_if: args.what_if.iter().map(ToString::to_string).collect(),
        proved: roots.iter().all(|root| root.proved)
            && !chains.iter().any(chains::ChainAnalysis::is_open),
        roots,
        chains,
    };
    Ok((answer, found))
}

fn analyze_root(
    system: &System,
    number: usize,
    root: &Root,
    progress: &mut Progress,
    found: &mut Option<(witness::FoundMiss, usize)>,
) -> anyhow::Result<(RootAnalysis, Vec<tree::TaskBound>)> {
    let roots = RootModel::with_environment(&root.tree, &root.sources, &root.surroundings)
        .with_phases_known(root.phases_known);
    let answers =
        roots.bounds_with_progress(|done, all| progress.tasks_analysed(&root.name, done, all));
    progress.finish_line();
    // Only tasks that are not proved are worth a simulation.
    let mut misses = vec![None; answers.len()];
    let mut too_long = Vec::new();
    let seed = talea_sim::rng::root_seed(system.seed, number);
    if !answers.iter().all(|answer| answer.is_proved() || !answer.has_deadline()) {
        misses = witness::misses(root, system.duration, seed, progress)?;
        let proved: Vec<bool> = answers.iter().map(tree::TaskBound::is_proved).collect();
        let is_overload = |answer: &tree::TaskBound| {
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
        let longest = |answer: &tree::TaskBound| {
            answer
                .bound
                .as_ref()
                .map_or(answer.deadline, |bound| *bound)
                .max(answer.deadline)
                .max(period)
        };
        // With given phases, an exact bound is the response from these phases. No statement is
        // possible about other phases.
        let is_open = |answer: &tree::TaskBound| {
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
        .map(|((answer, miss), name)| task(&root.tree, answer, miss, name))
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

/// Builds the result of one task. Only an observed miss refutes the task, because an exact bound
/// says how late a job *can* be, not that a job is late.
fn task(tree: &Tree, answer: &tree::TaskBound, miss: Option<Miss>, name: &str) -> TaskAnalysis {
    let bound = answer.bound.as_ref().ok().copied();
    let verdict = match (&miss, answer.is_proved()) {
        _ if !answer.has_deadline() => Verdict::None,
        // If the task were proved, `check_consistency` would have failed.
        (Some(_), _) => Verdict::Refuted,
        (None, true) => Verdict::Proved,
        (None, false) if mutate!("analyze-exact", false, answer.bound.is_ok()) => Verdict::Refuted,
        (None, false) => mutate!("analyze-refuted", Verdict::Unknown, Verdict::Proved),
    };
    let why = match &answer.bound {
        Ok(_) if answer.is_proved() => None,
        Ok(bound) => {
            let exactly = if answer.is_refuted() { "can be" } else { "may be up to" };
            Some(format!(
                "a response {exactly} {bound}, {} after the deadline",
                saturating_difference(*bound, answer.deadline)
            ))
        }
        Err(no) => {
            let at = if no.node == answer.node {
                String::new()
            } else {
                format!("{}: ", name_of(tree, no.node))
            };
            Some(format!("{at}{}", no.reason.text()))
        }
    };
    // A simulation that is longer refutes at most; it proves nothing about other arrivals.
    let settled_by = match &answer.bound {
        _ if verdict != Verdict::Unknown => None,
        Err(no) => no.reason.settled_by(),
        Ok(_) if answer.is_refuted() => Some("arrivals that attain the bound, by `--witness`"),
        Ok(_) => Some(
            "an `offset` for each task if the phases are known, or smaller costs; a longer simulation can only refute",
        ),
    };
    let has = |span: u64| answer.has_deadline().then_some(span);
    let is_tested = match &answer.bound {
        Ok(_) => true,
        Err(no) => matches!(no.reason, Reason::Overload | Reason::Starved),
    };
    let test = is_tested.then_some(answer.test);
    TaskAnalysis {
        name: name.to_owned(),
        deadline_ns: has(answer.deadline.as_ns()),
        bound_ns: bound.map(Span::as_ns),
        slack_ns: bound.and_then(|bound| answer.deadline.checked_sub(bound)).map(Span::as_ns),
        verdict,
        test: test.map(|test| test.name),
        kind: test.map(|_| kind_name(answer.kind)),
        paper: test.map(|test| test.paper),
        why,
        settled_by,
        witness: miss,
    }
}

fn saturating_difference(a: Span, b: Span) -> Span {
    a.checked_sub(b).unwrap_or(Span::ZERO)
}

fn text(answer: &AnalysisReport, color: bool) -> String {
    let mut out = String::new();
    // Writing to a String can't fail.
    for change in &answer.what_if {
        let _ = writeln!(out, "what if {change}");
    }
    for root in &answer.roots {
        let open = root.tasks.iter().filter(|task| task.is_open()).count();
        let outcome = match open {
            0 => paint("every deadline is met", Tone::Good, color),
            open => paint(&format!("{} not proved", count(open, "task")), Tone::Bad, color),
        };
        let _ = writeln!(out, "{} on {}: {outcome}", root.name, count(root.cpus as usize, "CPU"));
        let mut table = Table::new("task | >deadline | >bound | >slack | verdict | test | kind");
        let span = |ns: Option<u64>| ns.map_or_else(|| "-".to_owned(), short);
        for task in &root.tasks {
            table.row(vec![
                task.name.clone(),
                span(task.deadline_ns),
                task.bound_ns.map_or_else(|| "-".to_owned(), short_bound),
                span(task.slack_ns),
                task.verdict.word().0.to_owned(),
                task.test.unwrap_or("-").to_owned(),
                task.kind.unwrap_or("-").to_owned(),
            ]);
        }
        out.push_str(&table.render());
        for task in &root.tasks {
            let Some(why) = &task.why else { continue };
            let (word, tone) = task.verdict.word();
            let _ = writeln!(out, "{}: {}: {why}", paint(word, tone, color), task.name);
            if let Some(miss) = &task.witness {
                let _ = writeln!(out, "  {miss}");
            }
            if let Some(settled_by) = task.settled_by {
                let _ = writeln!(out, "  to settle it: {settled_by}");
            }
        }
        let mut papers: Vec<(&str, &str)> =
            root.tasks.iter().filter_map(|task| Some((task.test?, task.paper?))).collect();
        papers.sort_unstable();
        papers.dedup();
        for (test, paper) in papers {
            let _ = writeln!(out, "{test}: {paper}");
        }
    }
    out.push_str(&chains::text(&answer.chains, color));
    out
}
