//! `talea analyze`: can this system miss a deadline?

#[cfg(test)]
mod agrees;
mod interference;
mod names;
mod page;
mod partitions;
mod progress;
mod sensitivity;
mod server;
mod synthesize;
mod witness;

use crate::args::Output;
use crate::args::task::duration;
use crate::commands::simulate::{load, short};
use crate::exit::Exit;
use crate::output::{Table, Tone, colored, count, note, paint, print, print_json};
use clap::ValueEnum;
use names::name_of;
use progress::Progress;
use serde::Serialize;
use std::fmt::Write;
use std::path::PathBuf;
use std::rc::Rc;
use talea_analysis::card::Kind;
use talea_analysis::tree::{self, Reason, Roots};
use talea_core::Span;
use talea_core::machine::{Body, LONGEST, Tree};
use talea_core::mutate;
use talea_system::system::what_if::Change;
use talea_system::system::{Root, System};
use witness::Miss;

/// Say whether deadlines can be missed.
///
/// Bounds the response time of every task of a described system, names the test that did and its
/// paper, and where a task is not proved looks for a job that comes too late. An answer is proved,
/// refuted or unknown: a test that is only sufficient proves nothing by refusing. Ends with 0 if
/// every task is proved, else with 1; with 2 if a change makes a system that can't be.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example: talea analyze system.toml --what-if 'cost(video)*1.2'")]
pub(crate) struct AnalyzeArgs {
    /// The system file.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Change a value first, such as 'cost(video)*1.2', 'period(audio)=5ms' or 'budget(net)+1ms';
    /// as often as you like.
    #[arg(long, value_name = "CHANGE", value_parser = change)]
    what_if: Vec<Change>,
    /// Say how much of any window a band takes (or a server, a group, a task), and of each slot of
    /// the partitions below it, instead; as often as you like.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["synthesize", "sensitivity"])]
    interference: Vec<String>,
    /// With --interference: of windows of this length.
    #[arg(long, value_name = "DURATION", value_parser = duration, requires = "interference")]
    within: Vec<Span>,
    /// Say how far each cost, all costs and each period can go until a deadline is not proved any
    /// more, instead.
    #[arg(long, conflicts_with = "synthesize")]
    sensitivity: bool,
    /// Look for something that is not in the file, or that could be better, instead.
    #[arg(long, value_enum, ignore_case = true, value_name = "WHAT")]
    synthesize: Option<Synthesize>,
    /// With --synthesize server: this server only, or a group that is to get one; otherwise all
    /// servers, one by one.
    #[arg(long, value_name = "NAME", requires = "synthesize")]
    server: Vec<String>,
    /// With --synthesize server: for these periods, of which the one that takes least is proposed.
    #[arg(long, value_name = "DURATION", value_parser = duration, requires = "synthesize")]
    period: Vec<Span>,
    /// Write a page with the bounds, and with demand against supply of each CPU, partition and
    /// server, to FILE. It needs nothing from anywhere.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["synthesize", "sensitivity", "interference"])]
    html: Option<PathBuf>,
    /// Write the arrivals of the first job that is known to be late to FILE: talea simulate
    /// --witness runs them.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["synthesize", "sensitivity", "interference"])]
    witness: Option<PathBuf>,
    #[command(flatten)]
    output: Output,
}

/// What can be made.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum Synthesize {
    /// The least budget of a server with which its clients meet their deadlines, for its period and
    /// others.
    Server,
    /// Slots of partition tables that hold, below what is above them, what they hold without it.
    Partitions,
    /// An off-line table for all CPUs of a root: who runs where from when to when, in which
    /// version.
    Table,
}

fn change(text: &str) -> Result<Change, String> {
    Change::parse(text).map_err(|error| error.to_string())
}

#[derive(Serialize)]
struct Answer {
    file: String,
    what_if: Vec<String>,
    proved: bool,
    roots: Vec<RootAnswer>,
}

#[derive(Serialize)]
struct RootAnswer {
    name: String,
    cpus: u32,
    proved: bool,
    tasks: Vec<TaskAnswer>,
}

#[derive(Serialize)]
struct TaskAnswer {
    name: String,
    /// Nothing where a job goes on without end.
    deadline_ns: Option<u64>,
    bound_ns: Option<u64>,
    /// What is left until the deadline.
    slack_ns: Option<u64>,
    verdict: Verdict,
    /// What the bound is from; nothing where no test is known.
    test: Option<&'static str>,
    kind: Option<&'static str>,
    paper: Option<&'static str>,
    /// Of what is not proved.
    why: Option<String>,
    witness: Option<Miss>,
}

impl TaskAnswer {
    /// Whether it has a deadline that is not proved.
    fn is_open(&self) -> bool {
        !matches!(self.verdict, Verdict::Proved | Verdict::None)
    }
}

#[derive(Serialize, Clone, Copy, Debug, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    Proved,
    Refuted,
    Unknown,
    /// It has no deadline: a program that always wants the CPU.
    None,
}

impl Verdict {
    fn word(self) -> (&'static str, Tone) {
        match self {
            Verdict::Proved => ("proved", Tone::Good),
            Verdict::Refuted => ("refuted", Tone::Bad),
            Verdict::Unknown => ("unknown", Tone::Doubtful),
            Verdict::None => ("no deadline", Tone::Doubtful),
        }
    }
}

pub(crate) fn run(args: &AnalyzeArgs) -> anyhow::Result<Exit> {
    let mut system = match load(&args.file)? {
        Ok(system) => system,
        Err(diagnostics) => {
            eprint!("{}", talea_system::diagnostic::render(&diagnostics, false));
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
                error.why
            );
            return Ok(Exit::Usage);
        }
    }
    if let Some(what) = args.synthesize {
        if what != Synthesize::Server && !(args.server.is_empty() && args.period.is_empty()) {
            eprintln!("talea: --server and --period are for --synthesize server");
            return Ok(Exit::Usage);
        }
        return match what {
            Synthesize::Server => server::server(args, &system),
            Synthesize::Partitions => partitions::partitions(args, &system),
            Synthesize::Table => synthesize::table(args, &system),
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
                found.witness(&answer.file, &args.what_if, *task)?.write(path)?
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
) -> anyhow::Result<(Answer, Option<(witness::Found, usize)>)> {
    let mut progress = Progress::new();
    let mut found = None;
    let roots: Vec<RootAnswer> = system
        .roots
        .iter()
        .enumerate()
        .map(|(number, root)| analyze_root(system, number, root, &mut progress, &mut found))
        .collect::<anyhow::Result<_>>()?;
    let answer = Answer {
        file: args.file.display().to_string(),
        what_if: args.what_if.iter().map(ToString::to_string).collect(),
        proved: roots.iter().all(|root| root.proved),
        roots,
    };
    Ok((answer, found))
}

fn analyze_root(
    system: &System,
    number: usize,
    root: &Root,
    progress: &mut Progress,
    found: &mut Option<(witness::Found, usize)>,
) -> anyhow::Result<RootAnswer> {
    let roots = Roots::within(&root.tree, &root.sources, &root.surroundings);
    let answers = roots.bounds_with(|done, all| progress.show(&root.name, done, all));
    progress.end();
    // Only what is not proved is worth a run.
    let mut misses = vec![None; answers.len()];
    let mut too_long = Vec::new();
    let seed = talea_sim::dice::of_root(system.seed, number);
    if !answers.iter().all(|answer| answer.is_proved() || !answer.has_deadline()) {
        misses = witness::misses(root, system.duration, seed, progress)?;
        let proved: Vec<bool> = answers.iter().map(tree::Answer::is_proved).collect();
        let is_overload = |answer: &tree::Answer| matches!(&answer.bound, Err(no) if no.reason == Reason::Overload);
        let unseen =
            answers.iter().zip(&misses).any(|(answer, miss)| is_overload(answer) && miss.is_none());
        mutate!(
            "analyze-long-run",
            if let (true, Some(longer)) = (unseen, witness::long_run(root, system.duration)) {
                let later = witness::misses(root, longer, seed, progress)?;
                for (miss, later) in misses.iter_mut().zip(later) {
                    *miss = miss.or(later);
                }
            },
            if let (false, Some(longer)) = (unseen, witness::long_run(root, system.duration)) {
                let later = witness::misses(root, longer, seed, progress)?;
                for (miss, later) in misses.iter_mut().zip(later) {
                    *miss = miss.or(later);
                }
            }
        );
        witness::hold(root, &proved, &misses)?;
        let unproved = || {
            answers
                .iter()
                .enumerate()
                .filter(|(_, answer)| !answer.is_proved() && answer.has_deadline())
        };
        let period = longest_period(&root.tree);
        let longest = |answer: &tree::Answer| {
            answer
                .bound
                .as_ref()
                .map_or(answer.deadline, |bound| *bound)
                .max(answer.deadline)
                .max(period)
        };
        // Where the file says when jobs come, an exact bound is a response from there on; of others
        // nobody knows.
        let is_open = |answer: &tree::Answer| {
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
        let described = described
            .map(|(task, miss)| (task, witness::Found { miss, root: Rc::new(root.clone()), seed }));
        seen.extend(described);
        if let Some((task, first)) = seen.into_iter().min_by_key(|&(task, _)| task) {
            found.get_or_insert((first, task));
        }
        progress.end();
    }
    let mut tasks: Vec<TaskAnswer> = answers
        .iter()
        .zip(misses)
        .zip(&root.tasks)
        .map(|((answer, miss), name)| task(&root.tree, answer, miss, name))
        .collect();
    for task in too_long {
        if let Some(why) = &mut tasks[task].why {
            why.push_str("; other arrivals were not looked for, which would take too long");
        }
    }
    let proved = !tasks.iter().any(TaskAnswer::is_open);
    Ok(RootAnswer { name: root.name.clone(), cpus: root.tree.cpus, proved, tasks })
}

fn longest_period(tree: &Tree) -> Span {
    let periods = tree.nodes().filter_map(|(_, node)| match &node.body {
        // Who has one job without end has no period.
        Body::Task(spec) => Some(spec.period).filter(|&period| period < LONGEST),
        Body::Scheduler(spec) => spec.reservation.map(|of| of.period),
    });
    periods.max().unwrap_or(Span::ZERO)
}

/// Refuted is what was seen to miss; that a bound is exact says only how much later a job *can* be.
fn task(tree: &Tree, answer: &tree::Answer, miss: Option<Miss>, name: &str) -> TaskAnswer {
    let bound = answer.bound.as_ref().ok().copied();
    let verdict = mutate!(
        "analyze-exact",
        match (&miss, answer.is_proved()) {
            _ if !answer.has_deadline() => Verdict::None,
            // Whatever is proved holds, or there is no answer.
            (Some(_), _) => Verdict::Refuted,
            (None, true) => Verdict::Proved,
            (None, false) => mutate!("analyze-refuted", Verdict::Unknown, Verdict::Proved),
        },
        match (&miss, answer.is_proved()) {
            _ if !answer.has_deadline() => Verdict::None,
            // Whatever is proved holds, or there is no answer.
            (Some(_), _) => Verdict::Refuted,
            (None, true) => Verdict::Proved,
            (None, false) if answer.bound.is_ok() => Verdict::Refuted,
            (None, false) => Verdict::Unknown,
        }
    );
    let why = match &answer.bound {
        Ok(_) if answer.is_proved() => None,
        Ok(bound) => {
            let exactly = if answer.is_refuted() { "can be" } else { "may be up to" };
            Some(format!(
                "a response {exactly} {bound}, {} after the deadline",
                minus(*bound, answer.deadline)
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
    let has = |span: u64| answer.has_deadline().then_some(span);
    let is_tested = match &answer.bound {
        Ok(_) => true,
        Err(no) => matches!(no.reason, Reason::Overload | Reason::Starved),
    };
    let test = is_tested.then_some(answer.test);
    TaskAnswer {
        name: name.to_owned(),
        deadline_ns: has(answer.deadline.as_ns()),
        bound_ns: bound.map(Span::as_ns),
        slack_ns: bound.and_then(|bound| answer.deadline.checked_sub(bound)).map(Span::as_ns),
        verdict,
        test: test.map(|test| test.name),
        kind: test.map(|_| kind(answer.kind)),
        paper: test.map(|test| test.paper),
        why,
        witness: miss,
    }
}

fn minus(a: Span, b: Span) -> Span {
    a.checked_sub(b).unwrap_or(Span::ZERO)
}

fn kind(kind: Kind) -> &'static str {
    match kind {
        Kind::Exact => "exact",
        Kind::Sufficient => "sufficient",
        Kind::Necessary => "necessary",
    }
}

fn text(answer: &Answer, color: bool) -> String {
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
        let mut table =
            Table::new(&["task", ">deadline", ">bound", ">slack", "verdict", "test", "kind"]);
        let span = |ns: Option<u64>| ns.map_or_else(|| "-".to_owned(), short);
        for task in &root.tasks {
            table.row(vec![
                task.name.clone(),
                span(task.deadline_ns),
                span(task.bound_ns),
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
        }
        let mut papers: Vec<(&str, &str)> =
            root.tasks.iter().filter_map(|task| Some((task.test?, task.paper?))).collect();
        papers.sort_unstable();
        papers.dedup();
        for (test, paper) in papers {
            let _ = writeln!(out, "{test}: {paper}");
        }
    }
    out
}
