//! `talea simulate`: what would this system do?

use crate::args::SimulateArgs;
use crate::exit::Exit;
use crate::output::{Table, Tone, colored, count, paint, print, print_json};
use crate::report::{self, Drawn, Picture};
use anyhow::Context;
use serde::Serialize;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};
use talea_core::machine::{Body, Cpu, NodeId, TaskId};
use talea_core::{Span, Time};
use talea_sim::sink::Count;
use talea_sim::{Completion, Counters, Schedule, Sink, Tally, World};
use talea_system::Diagnostic;
use talea_system::config::FILE_MAX;
use talea_system::system::{self, Expectation, Include, Root, System};

/// Segments that a picture holds at most: a page of 100,000 jobs opens at once, one of millions never.
const DRAWN: usize = 250_000;

/// What is kept of a run: sums and distributions per task, and each job where a file wants them.
struct Seen<'a> {
    schedule: Option<Schedule>,
    counters: Counters,
    responses: Vec<Tally>,
    jobs: Option<(&'a mut BufWriter<File>, &'a Root)>,
    failed: Option<std::io::Error>,
}

impl Sink for Seen<'_> {
    fn arrived(&mut self, now: Time, task: TaskId, nominal: Time) {
        self.counters.arrived(now, task, nominal);
        if let Some(schedule) = &mut self.schedule {
            schedule.arrived(now, task, nominal);
        }
    }

    fn runs(&mut self, now: Time, cpu: Cpu, task: TaskId, job: u64) {
        if let Some(schedule) = &mut self.schedule {
            schedule.runs(now, cpu, task, job);
        }
    }

    fn idles(&mut self, now: Time, cpu: Cpu) {
        if let Some(schedule) = &mut self.schedule {
            schedule.idles(now, cpu);
        }
    }

    fn refused(&mut self, now: Time, task: TaskId) {
        self.counters.refused(now, task);
    }

    fn completed(&mut self, job: &Completion) {
        self.counters.completed(job);
        if let Some(schedule) = &mut self.schedule {
            schedule.completed(job);
        }
        self.responses[job.task.0 as usize].add(job.response());
        if let Some((file, root)) = &mut self.jobs {
            let task = &root.tasks[job.task.0 as usize];
            let (release, deadline, end) = (job.release.as_ns(), job.deadline.as_ns(), job.end.as_ns());
            let late = u8::from(job.is_late());
            let written =
                writeln!(file, "{task},{},{release},{deadline},{end},{},{late}", job.job, job.cpu.0);
            self.failed = written.err().or(self.failed.take());
        }
    }
}

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
struct Beside;

impl Include for Beside {
    fn text(&self, from: &str, path: &str) -> Result<(String, String), String> {
        let found = Path::new(from).parent().unwrap_or(Path::new("")).join(path);
        let text = text(&found).map_err(|error| format!("{error:#}"))?;
        Ok((found.display().to_string(), text))
    }
}

fn text(path: &Path) -> anyhow::Result<String> {
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
    Ok(system::read(&text(path)?, &path.display().to_string(), &Beside))
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
    let mut file = args.csv.as_ref().map(create).transpose()?;
    let (mut roots, mut schedules) = (Vec::new(), Vec::new());
    let wanted = args.html.is_some() || args.svg.is_some();
    for (number, root) in system.roots.iter().enumerate() {
        let (answer, schedule) =
            simulate(root, duration, seed.wrapping_add(number as u64), file.as_mut(), wanted)?;
        roots.push(answer);
        schedules.extend(schedule);
    }
    if wanted {
        draw(args, &system, duration, &roots, schedules)?;
    }
    if let (Some(file), Some(path)) = (&mut file, &args.csv) {
        file.flush().with_context(|| format!("cannot write {}", path.display()))?;
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

fn create(path: &PathBuf) -> anyhow::Result<BufWriter<File>> {
    let mut file =
        BufWriter::new(File::create(path).with_context(|| format!("cannot write {}", path.display()))?);
    writeln!(file, "task,job,release_ns,deadline_ns,end_ns,cpu,late")?;
    Ok(file)
}

/// The pictures that were asked for.
fn draw(
    args: &SimulateArgs,
    system: &System,
    duration: Span,
    roots: &[RootAnswer],
    schedules: Vec<Schedule>,
) -> anyhow::Result<()> {
    let mut picture = Picture {
        title: format!("{}, simulated", args.file.file_name().unwrap_or_default().to_string_lossy()),
        roots: Vec::new(),
        duration_ns: duration.as_ns(),
    };
    for ((root, answer), schedule) in system.roots.iter().zip(roots).zip(schedules) {
        let tasks =
            answer.tasks.iter().map(|task| (task.name.as_str(), task.period_ns, task.deadline_ns)).collect();
        picture.roots.push(Drawn { name: &root.name, cpus: answer.cpus, tasks, schedule });
    }
    let write = |path: &PathBuf, text: String| {
        std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
    };
    if let Some(path) = &args.html {
        write(path, report::html(&picture)?)?;
    }
    if let Some(path) = &args.svg {
        let longest = roots.iter().flat_map(|root| &root.tasks).map(|task| task.period_ns).max().unwrap_or(0);
        write(path, report::svg(&picture, longest.saturating_mul(20).clamp(1, duration.as_ns())))?;
    }
    Ok(())
}

fn simulate(
    root: &Root,
    duration: Span,
    seed: u64,
    file: Option<&mut BufWriter<File>>,
    wanted: bool,
) -> anyhow::Result<(RootAnswer, Option<Schedule>)> {
    let machine = root.tree.build().map_err(|error| anyhow::anyhow!("{}", error.why))?;
    let tasks = root.tasks.len();
    let nodes: Vec<NodeId> = (0..tasks).map(|task| machine.node_of(TaskId(task as u32))).collect();
    let mut world = World::new(machine, root.tree.cpus, &root.workload(seed));
    let mut seen = Seen {
        schedule: wanted.then(|| Schedule::new(root.tree.cpus, DRAWN)),
        counters: Counters::new(tasks),
        responses: vec![Tally::default(); tasks],
        jobs: file.map(|file| (file, root)),
        failed: None,
    };
    let end = Time::ZERO + duration;
    world.run(end, &mut seen);
    if let Some(error) = seen.failed {
        return Err(error).context("cannot write the jobs");
    }
    let mut answers = Vec::new();
    for (task, &node) in nodes.iter().enumerate() {
        let Some(Body::Task(spec)) = root.tree.get(node).map(|node| &node.body) else { continue };
        let (counted, responses): (Count, &Tally) = (seen.counters.tasks[task], &seen.responses[task]);
        // A job that never ended misses its deadline as surely as one that ended late.
        let unfinished = world.machine().overdue(TaskId(task as u32), end);
        let ns = |span: Option<Span>| span.map(Span::as_ns);
        answers.push(TaskAnswer {
            name: root.tasks[task].clone(),
            period_ns: spec.period.as_ns(),
            deadline_ns: spec.deadline.as_ns(),
            arrived: counted.arrived,
            refused: counted.refused,
            completed: counted.completed,
            late: counted.late + u64::from(unfinished),
            response_min_ns: ns(responses.least()),
            response_mean_ns: ns(responses.mean()),
            response_p99_ns: ns(responses.quantile(990)),
            response_max_ns: ns(responses.largest()),
        });
    }
    let schedule = seen.schedule.map(|mut schedule| {
        schedule.finish(end);
        schedule
    });
    Ok((RootAnswer { name: root.name.clone(), cpus: root.tree.cpus, tasks: answers }, schedule))
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
fn short(ns: u64) -> String {
    let (unit, name) = match ns {
        0..1_000 => return format!("{ns}ns"),
        1_000..1_000_000 => (1_000, "us"),
        1_000_000..1_000_000_000 => (1_000_000, "ms"),
        _ => (1_000_000_000, "s"),
    };
    let text = format!("{}.{:03}", ns / unit, ns % unit * 1_000 / unit);
    format!("{}{name}", text.trim_end_matches('0').trim_end_matches('.'))
}
