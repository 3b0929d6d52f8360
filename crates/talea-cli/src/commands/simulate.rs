//! `talea simulate`: what would this system do?

mod seen;

use crate::args::SimulateArgs;
use crate::exit::Exit;
use crate::output::{Table, Tone, colored, count, paint, print, print_json};
use crate::report::{self, Drawn, Outline, Picture, Sum};
use anyhow::Context;
use seen::{Csv, Seen, Trace};
use serde::Serialize;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::Path;
use talea_core::{Span, Time};
use talea_sim::World;
use talea_sim::dice::of_root;
use talea_system::Diagnostic;
use talea_system::config::FILE_MAX;
use talea_system::system::{self, Beside, Expectation, Include, Root, System};

#[derive(Serialize)]
struct Answer {
    file: String,
    duration_ns: u64,
    seed: u64,
    roots: Vec<RootAnswer>,
    expectations: Vec<ExpectationAnswer>,
    ok: bool,
}

#[derive(Serialize)]
struct RootAnswer {
    name: String,
    cpus: u32,
    tasks: Vec<TaskAnswer>,
}

#[derive(Serialize)]
struct TaskAnswer {
    name: String,
    period_ns: u64,
    deadline_ns: u64,
    arrived: u64,
    refused: u64,
    completed: u64,
    /// After their deadline, the unfinished whose deadline has passed among them.
    late: u64,
    response_min_ns: Option<u64>,
    response_mean_ns: Option<u64>,
    response_p99_ns: Option<u64>,
    response_max_ns: Option<u64>,
}

#[derive(Serialize)]
struct ExpectationAnswer {
    line: u32,
    task: Option<String>,
    holds: bool,
    what: String,
}

/// Files beside the file that names them.
pub(crate) fn beside() -> impl Include {
    Beside(|path: &Path| text(path).map_err(|error| format!("{error:#}")))
}

pub(crate) fn text(path: &Path) -> anyhow::Result<String> {
    use std::io::Read as _;
    let origin = path.display();
    let mut bytes = Vec::new();
    let file = File::open(path).with_context(|| format!("cannot open {origin}"))?;
    file.take(FILE_MAX as u64 + 1)
        .read_to_end(&mut bytes)
        .with_context(|| format!("cannot read {origin}"))?;
    String::from_utf8(bytes).map_err(|_| anyhow::anyhow!("{origin} is not UTF-8 text"))
}

/// Reads a system file, with what it includes.
pub(crate) fn load(path: &Path) -> anyhow::Result<Result<System, Vec<Diagnostic>>> {
    Ok(system::read(&text(path)?, &path.display().to_string(), &beside()))
}

pub(crate) fn run(args: &SimulateArgs) -> anyhow::Result<Exit> {
    let system = match load(&args.file)? {
        Ok(system) => system,
        Err(diagnostics) => {
            eprint!("{}", talea_system::diagnostic::render(&diagnostics, false));
            return Ok(Exit::Usage);
        }
    };
    let duration = args.duration.unwrap_or(system.duration);
    let seed = args.seed.unwrap_or(system.seed);
    let mut files = Files {
        is_drawn: args.html.is_some() || args.svg.is_some(),
        csv: args.csv.as_deref().map(create_csv).transpose()?,
        trace: args.trace.as_deref().map(create).transpose()?.map(Trace::new),
    };
    let outlines = system.roots.iter().map(outline).collect::<anyhow::Result<Vec<_>>>()?;
    let (mut roots, mut drawn) = (Vec::new(), Vec::new());
    for (number, (root, outline)) in system.roots.iter().zip(&outlines).enumerate() {
        let (answer, picture) = simulate(root, outline, duration, of_root(seed, number), &mut files)?;
        roots.push(answer);
        drawn.extend(picture);
    }
    draw(args, seed, duration, drawn)?;
    if let (Some(file), Some(path)) = (&mut files.csv, &args.csv) {
        file.flush().with_context(|| cannot_write(path))?;
    }
    if let (Some(trace), Some(path)) = (files.trace, &args.trace) {
        trace.finish().with_context(|| cannot_write(path))?;
    }
    let expectations: Vec<ExpectationAnswer> =
        system.expectations.iter().map(|expectation| judge(expectation, &roots)).collect();
    let ok = expectations.iter().all(|expectation| expectation.holds);
    let file = args.file.display().to_string();
    let answer = Answer { file, duration_ns: duration.as_ns(), seed, roots, expectations, ok };
    if args.output.json {
        print_json(&answer)?;
    } else {
        print(&report(&answer, duration, colored()))?;
    }
    Ok(if ok { Exit::Ok } else { Exit::Failure })
}

/// What is written while it runs.
struct Files {
    /// Whether there will be a picture.
    is_drawn: bool,
    csv: Option<Csv>,
    trace: Option<Trace>,
}

fn cannot_write(path: &Path) -> String {
    format!("cannot write {}", path.display())
}

fn create(path: &Path) -> anyhow::Result<File> {
    File::create(path).with_context(|| cannot_write(path))
}

fn create_csv(path: &Path) -> anyhow::Result<Csv> {
    let mut file = BufWriter::new(create(path)?);
    writeln!(file, "task,job,release_ns,deadline_ns,end_ns,cpu,late").with_context(|| cannot_write(path))?;
    Ok(file)
}

fn outline(root: &Root) -> anyhow::Result<Outline> {
    let machine = root.tree.build().map_err(|error| anyhow::anyhow!("{}", error.why))?;
    Ok(Outline::of(root, &machine))
}

/// The pictures that were asked for.
fn draw(args: &SimulateArgs, seed: u64, duration: Span, roots: Vec<Drawn<'_>>) -> anyhow::Result<()> {
    let title = format!("{}, simulated", args.file.file_name().unwrap_or_default().to_string_lossy());
    let picture = Picture { title, seed, roots, duration_ns: duration.as_ns() };
    let write = |path: &Path, text: String| std::fs::write(path, text).with_context(|| cannot_write(path));
    if let Some(path) = &args.html {
        write(path, report::html(&picture)?)?;
    }
    if let Some(path) = &args.svg {
        let tasks = picture.roots.iter().flat_map(|root| &root.outline.tasks);
        let longest = tasks.map(|task| task.period_ns).max().unwrap_or(0);
        write(path, report::svg(&picture, longest.saturating_mul(20).clamp(1, duration.as_ns())))?;
    }
    Ok(())
}

fn simulate<'a>(
    root: &Root,
    outline: &'a Outline,
    duration: Span,
    seed: u64,
    files: &mut Files,
) -> anyhow::Result<(RootAnswer, Option<Drawn<'a>>)> {
    let machine = root.tree.build().map_err(|error| anyhow::anyhow!("{}", error.why))?;
    let mut seen =
        Seen::new(outline, &machine, duration, files.is_drawn, files.csv.as_mut(), files.trace.as_mut());
    let mut world = World::new(machine, root.tree.cpus, &root.workload(seed)).within(&root.surroundings);
    let end = Time::ZERO + duration;
    let unfinished = seen.watch(&mut world, end);
    if let Some(error) = seen.failed {
        return Err(error).context("cannot write the jobs");
    }
    // A job that never ended misses its deadline as surely as one that ended late.
    let mut overdue = vec![0; outline.tasks.len()];
    for (task, _) in unfinished.iter().filter(|(_, job)| job.deadline <= end) {
        overdue[task.0 as usize] += 1;
    }
    let mut answers = Vec::new();
    for (number, task) in outline.tasks.iter().enumerate() {
        let (counted, responses) = (seen.counters.tasks[number], &seen.responses[number]);
        let ns = |span: Option<Span>| span.map(Span::as_ns);
        answers.push(TaskAnswer {
            name: task.name.clone(),
            period_ns: task.period_ns,
            deadline_ns: task.deadline_ns,
            arrived: counted.arrived,
            refused: counted.refused,
            completed: counted.completed,
            late: counted.late + overdue[number],
            response_min_ns: ns(responses.least()),
            response_mean_ns: ns(responses.mean()),
            response_p99_ns: ns(responses.quantile(990)),
            response_max_ns: ns(responses.largest()),
        });
    }
    let sums = answers.iter().map(sum).collect();
    let budgets = seen.curves;
    let drawn = seen.schedule.map(|schedule| Drawn { outline, schedule, budgets, unfinished, sums });
    Ok((RootAnswer { name: root.name.clone(), cpus: root.tree.cpus, tasks: answers }, drawn))
}

fn sum(task: &TaskAnswer) -> Sum {
    Sum {
        completed: task.completed,
        late: task.late,
        refused: task.refused,
        mean_ns: task.response_mean_ns,
        p99_ns: task.response_p99_ns,
        max_ns: task.response_max_ns,
    }
}

fn judge(expectation: &Expectation, roots: &[RootAnswer]) -> ExpectationAnswer {
    let about = roots.iter().flat_map(|root| &root.tasks).filter(|task| expectation.is_about(&task.name));
    let late: u64 = about.clone().map(|task| task.late).sum();
    let worst = Span::from_ns(about.filter_map(|task| task.response_max_ns).max().unwrap_or(0));
    let mut holds = true;
    let mut what = String::new();
    if let Some(misses) = expectation.misses {
        holds &= late <= misses;
        let _ = write!(what, "{} late, at most {misses} expected", count(late as usize, "job"));
    }
    if let Some(response) = expectation.response {
        holds &= worst <= response;
        let separator = if what.is_empty() { "" } else { "; " };
        let _ = write!(what, "{separator}longest response {worst}, at most {response} expected");
    }
    ExpectationAnswer { line: expectation.line, task: expectation.task.clone(), holds, what }
}

fn report(answer: &Answer, duration: Span, color: bool) -> String {
    let mut out = String::new();
    for root in &answer.roots {
        let cpus = count(root.cpus as usize, "CPU");
        let _ = writeln!(out, "{} on {cpus}, {duration} simulated with seed {}", root.name, answer.seed);
        let span = |ns: Option<u64>| ns.map_or_else(|| "-".to_owned(), short);
        let mut table =
            Table::new(&["task", ">jobs", ">late", ">refused", ">deadline", ">mean", ">p99", ">max"]);
        for task in &root.tasks {
            table.row(vec![
                task.name.clone(),
                task.completed.to_string(),
                task.late.to_string(),
                task.refused.to_string(),
                short(task.deadline_ns),
                span(task.response_mean_ns),
                span(task.response_p99_ns),
                span(task.response_max_ns),
            ]);
        }
        out.push_str(&table.render());
    }
    for expectation in &answer.expectations {
        let (word, tone) = if expectation.holds { ("holds", Tone::Good) } else { ("fails", Tone::Bad) };
        let task = expectation.task.as_deref().unwrap_or("all tasks");
        let _ = writeln!(out, "{}: {task}: {}", paint(word, tone, color), expectation.what);
    }
    out
}

/// Three digits after the point at most: a table is for comparing.
pub(crate) fn short(ns: u64) -> String {
    let (unit, name) = match ns {
        0..1_000 => return format!("{ns}ns"),
        1_000..1_000_000 => (1_000, "us"),
        1_000_000..1_000_000_000 => (1_000_000, "ms"),
        _ => (1_000_000_000, "s"),
    };
    let text = format!("{}.{:03}", ns / unit, ns % unit * 1_000 / unit);
    format!("{}{name}", text.trim_end_matches('0').trim_end_matches('.'))
}
