//! `talea execute`: what does this system really do?

use crate::args::{Output, task};
use crate::exit::Exit;
use crate::measured::{
    self, Checked, Measured, Mechanism, Places, Recording, Refused, Rights, Setup, Spending, Texts,
    place, remark, sketch,
};
use crate::outcome::{self, ExpectationAnswer, FileArgs, Files, RootAnswer, short};
use crate::output::{Tone, colored, count, paint, print, print_json};
use crate::report::Outline;
use anyhow::Context;
use serde::Serialize;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};
use talea_core::{CpuSet, Span};
use talea_exec::holes::UNSEEN;
use talea_exec::mechanism::audit::Consumed;
use talea_exec::{Fate, Hole, ProgramReport, RootReport};
use talea_os::spawn::describe;
use talea_system::system::{Root, System};

/// Run a described system on real threads.
///
/// The scheduler machine that simulates drives threads here: one for each task, pinned, below a
/// dispatcher on each CPU. Jobs arrive as in a simulation of the same seed and spend what they
/// cost. Needs root or CAP_SYS_NICE. While it runs, its CPUs belong to it; nothing of the machine's
/// settings is changed, and nothing is left when it ends, however it ends. Ends with 1 if an
/// expectation of the file does not hold, with 3 if the system can't be executed here.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example: talea execute system.toml --duration 2s --html run.html")]
pub(crate) struct ExecuteArgs {
    /// The system file.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// How long to run, instead of what the file says.
    #[arg(long, visible_alias = "for", value_name = "DURATION", value_parser = task::run_length)]
    duration: Option<Span>,
    /// The seed, instead of the file's.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// The machine's CPUs for those of the file, in this order of roots; without it, the first that
    /// this process may use.
    #[arg(long, value_name = "LIST", value_parser = CpuSet::parse)]
    cpus: Option<CpuSet>,
    /// How a job spends its cost.
    #[arg(long, value_enum, default_value = "budget", value_name = "MODE")]
    work: Spending,
    /// How the schedule is produced.
    #[arg(long, value_enum, default_value = "auto", value_name = "NAME")]
    mechanism: Mechanism,
    /// Run without real-time priorities where there is no right to them; every figure says so.
    #[arg(long)]
    best_effort: bool,
    /// Have the kernel write down who really ran, and check it against the machine's orders; needs
    /// root or CAP_PERFMON.
    #[arg(long)]
    check: bool,
    /// Write what went into the scheduler machine and what came out to FILE, for talea replay.
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    #[command(flatten)]
    files: FileArgs,
    #[command(flatten)]
    output: Output,
}

#[derive(Serialize)]
struct Answer {
    file: String,
    duration_ns: u64,
    seed: u64,
    /// Threads had real-time priorities; else every number is what the kernel happened to do.
    real_time: bool,
    /// Somebody ended it before its time.
    interrupted: bool,
    /// Whether the kernel was asked who ran.
    checked: bool,
    roots: Vec<RootAnswer>,
    executions: Vec<Execution>,
    /// When a CPU stood still for everybody.
    holes: Vec<HoleAnswer>,
    expectations: Vec<ExpectationAnswer>,
    ok: bool,
}

/// What running it took, by root.
#[derive(Serialize)]
struct Execution {
    name: String,
    /// The machine's, in the order of the root's.
    cpus: Vec<u32>,
    mechanism: String,
    /// Why by that.
    mechanism_why: String,
    /// CPU time of the dispatchers, and of workers beside their jobs, in millionths of the root's
    /// CPUs.
    scheduler_ppm: u64,
    /// Of that, what workers did beside jobs that were ordered to run: the ways from one job to the
    /// next.
    stray_ppm: u64,
    /// Entries of the record that found no room; then everything is about the run until then.
    lost: u64,
    /// What became of the tasks that are programs.
    programs: Vec<ProgramAnswer>,
    /// With --check, where the kernel answers.
    kernel: Option<Checked>,
}

#[derive(Serialize)]
struct ProgramAnswer {
    task: String,
    /// CPU time of it and of all that it has created.
    used_ns: u64,
    /// Of that, before it was ordered to run: until somebody had heard that it woke.
    stray_ns: u64,
    /// How it ended; nothing: with the run.
    ended: Option<String>,
    /// What one of its threads was seen to have instead of the policy, priority and CPU that it
    /// began with.
    strayed: Option<String>,
    /// Its wake-ups were not told by the kernel, but seen a millisecond later.
    polled: bool,
}

/// The programs of a root.
fn programs(root: &Root, real: &RootReport) -> Vec<ProgramAnswer> {
    let both = root.tasks.iter().zip(real.consumed.iter().zip(&real.programs));
    let of = |(task, (consumed, report)): (&String, (&Consumed, &Option<ProgramReport>))| {
        let report = report.as_ref()?;
        let ended = match &report.fate {
            Fate::Killed => None,
            Fate::Ended(status) => Some(describe(*status)),
            Fate::Failed(why) => Some(format!("could not be executed: {why}")),
        };
        let (used, stray) = (consumed.total.as_ns(), consumed.stray().as_ns());
        Some(ProgramAnswer {
            task: task.clone(),
            used_ns: used,
            stray_ns: stray,
            ended,
            strayed: report.strayed.clone(),
            polled: report.polled,
        })
    };
    both.filter_map(of).collect()
}

#[derive(Serialize)]
struct HoleAnswer {
    cpu: u32,
    from_ns: u64,
    to_ns: u64,
}

pub(crate) fn run(args: &ExecuteArgs) -> anyhow::Result<Exit> {
    let (system, texts) = match Texts::load(&args.file)? {
        Ok(read) => read,
        Err(diagnostics) => {
            eprint!("{}", talea_system::diagnostic::render(&diagnostics, false));
            return Ok(Exit::Usage);
        }
    };
    let duration = args.duration.unwrap_or(system.duration);
    let seed = args.seed.unwrap_or(system.seed);
    let places = match place(&system, args.cpus.as_ref()) {
        Ok(places) => places,
        Err(why) => return Ok(measured::refuse(&args.file, &why)),
    };
    if args.record.is_some() && args.mechanism == Mechanism::Native {
        let why = "--record writes orders for talea replay, and Linux alone gives none";
        return Ok(measured::refuse(&args.file, why));
    }
    let sketches = sketch(&system, duration, seed)?;
    remark(&system, &places, &sketches, duration);
    let files = Files::create(&args.files)?;
    let to = args.record.as_deref().map(create).transpose()?;
    let setup = Setup {
        system: &system,
        duration,
        seed,
        places: &places,
        spending: args.work,
        rights: args.mechanism.rights(if args.best_effort {
            Rights::Wanted
        } else {
            Rights::Needed
        }),
        wish: args.mechanism.wish(),
        switches: args.asks(),
        sketches: &sketches,
        begin: None,
        bodies: &|_| None,
    };
    let measured = match measured::run(&setup)? {
        Ok(measured) => measured,
        Err(Refused(why)) => return Ok(measured::refuse(&args.file, &why)),
    };
    if let (Some(to), Some(path)) = (to, &args.record) {
        let records = measured.report.roots.iter().map(|root| root.record.clone());
        let roots = places.iter().cloned().zip(records).collect();
        let mut to = BufWriter::new(to);
        let written = Recording { seed, texts, roots }.write(&mut to).and_then(|()| to.flush());
        written.with_context(|| format!("cannot write {}", path.display()))?;
    }
    let answer = tell(args, &system, &places, seed, &measured, files)?;
    if args.output.json {
        print_json(&answer)?;
    } else {
        print(&report(&answer, colored()))?;
    }
    Ok(if answer.ok { Exit::Ok } else { Exit::Failure })
}

impl ExecuteArgs {
    /// Whether the kernel is asked who ran: it alone can say so where nobody orders it.
    fn asks(&self) -> bool {
        self.check || self.mechanism == Mechanism::Native
    }
}

fn create(path: &Path) -> anyhow::Result<File> {
    File::create(path).with_context(|| format!("cannot write {}", path.display()))
}

/// What was measured, as a simulation is told.
fn tell(
    args: &ExecuteArgs,
    system: &System,
    places: &Places,
    seed: u64,
    measured: &Measured,
    mut files: Files<'_>,
) -> anyhow::Result<Answer> {
    let Measured { report, is_real, interrupted } = measured;
    let mut outlines =
        system.roots.iter().map(outcome::outline).collect::<anyhow::Result<Vec<_>>>()?;
    if !is_real {
        for outline in &mut outlines {
            outline.name.push_str(" (best effort)");
        }
    }
    let (mut roots, mut executions, mut drawn) = (Vec::new(), Vec::new(), Vec::new());
    for (number, (root, outline)) in system.roots.iter().zip(&outlines).enumerate() {
        let real = &report.roots[number];
        let mut machine = root.tree.build().map_err(|error| anyhow::anyhow!("{}", error.why))?;
        let seen = files.seen(outline, &machine, report.length);
        let (answer, picture) = measured::tell(&mut machine, outline, real, report.length, seen)?;
        roots.push(answer);
        let kernel = measured::check(real, &places[number], (&report.holes, report.length), UNSEEN);
        executions.push(Execution {
            kernel,
            programs: programs(root, real),
            ..execution(outline, &places[number], real, report.length)
        });
        drawn.extend(picture);
    }
    let name = args.file.file_name().unwrap_or_default().to_string_lossy();
    let effort = if *is_real { "" } else { ", best effort: without real-time priorities" };
    files.finish(format!("{name}, executed{effort}"), seed, report.length, drawn)?;
    let expectations = outcome::judge(&system.expectations, &roots);
    let is_obeyed = |execution: &Execution| match &execution.kernel {
        Some(checked) => checked.is_obeyed(),
        // --check insists on an answer.
        None => !args.check,
    };
    let strays =
        |execution: &Execution| execution.programs.iter().any(|program| program.strayed.is_some());
    let is_sound = |one: &Execution| one.lost == 0 && is_obeyed(one) && !strays(one);
    let is_whole = !interrupted && executions.iter().all(is_sound);
    let ok = is_whole && expectations.iter().all(|expectation| expectation.holds);
    Ok(Answer {
        file: args.file.display().to_string(),
        duration_ns: report.length.as_ns(),
        seed,
        real_time: *is_real,
        interrupted: *interrupted,
        checked: args.asks(),
        roots,
        executions,
        holes: report.holes.iter().map(hole).collect(),
        expectations,
        ok,
    })
}

fn hole(hole: &Hole) -> HoleAnswer {
    HoleAnswer { cpu: hole.cpu, from_ns: hole.from.as_ns(), to_ns: hole.to.as_ns() }
}

fn execution(outline: &Outline, cpus: &[u32], real: &RootReport, length: Span) -> Execution {
    let whole = u128::from(length.as_ns().max(1)) * cpus.len().max(1) as u128;
    let ppm = |ns: u64| (u128::from(ns) * 1_000_000 / whole) as u64;
    Execution {
        name: outline.name.clone(),
        cpus: cpus.to_vec(),
        mechanism: real.chosen.means.to_string(),
        mechanism_why: real.chosen.why.clone(),
        scheduler_ppm: ppm(real.scheduling().as_ns()),
        stray_ppm: ppm(real.consumed.iter().map(|consumed| consumed.stray().as_ns()).sum()),
        lost: real.lost,
        programs: Vec::new(),
        kernel: None,
    }
}

fn report(answer: &Answer, color: bool) -> String {
    let mut out = String::new();
    let duration = Span::from_ns(answer.duration_ns);
    for (root, execution) in answer.roots.iter().zip(&answer.executions) {
        let cpus: Vec<String> = execution.cpus.iter().map(u32::to_string).collect();
        let word = if cpus.len() == 1 { "CPU" } else { "CPUs" };
        let _ = writeln!(
            out,
            "{} on {word} {}, {duration} executed with seed {}",
            root.name,
            cpus.join(","),
            answer.seed
        );
        out.push_str(&outcome::table(root));
        let _ = writeln!(
            out,
            "scheduler overhead {}, {} of that by workers; mechanism {}: {}",
            outcome::percent(execution.scheduler_ppm),
            outcome::percent(execution.stray_ppm),
            execution.mechanism,
            execution.mechanism_why
        );
        for program in &execution.programs {
            let share =
                u128::from(program.used_ns) * 1_000_000 / u128::from(answer.duration_ns.max(1));
            let _ = writeln!(
                out,
                "{}: its program used {} in all, {} of a CPU; {} of that before it was ordered to run",
                program.task,
                short(program.used_ns),
                outcome::percent(u64::try_from(share).unwrap_or(u64::MAX)),
                short(program.stray_ns)
            );
            if let Some(ended) = &program.ended {
                let what =
                    format!("{}: its program {ended}, before the run was over", program.task);
                let _ = writeln!(out, "{}", paint(&what, Tone::Doubtful, color));
            }
            if let Some(strayed) = &program.strayed {
                let what = format!("{}: {}", program.task, measured::says_strayed(strayed));
                let _ = writeln!(out, "{}", paint(&what, Tone::Bad, color));
            }
            if program.polled {
                let what = "the kernel does not tell when it wakes: its clock is looked at each millisecond";
                let _ = writeln!(out, "{}: {what}", program.task);
            }
        }
        if let Some(checked) = &execution.kernel {
            let _ = writeln!(
                out,
                "by the kernel's switches, {} of workers: at most {} without an order, orders not obeyed for at most {}",
                count(checked.stays, "stay"),
                short(checked.longest_ns),
                short(checked.unobeyed_ns)
            );
            for fault in &checked.faults {
                let what = format!(
                    "CPU {} was idle or did something else of ours for {} of an order of {} at {}",
                    execution.cpus.get(fault.cpu as usize).copied().unwrap_or(fault.cpu),
                    short(fault.by().as_ns()),
                    short(fault.to.since(fault.from).as_ns()),
                    short(fault.from.as_ns())
                );
                let _ = writeln!(out, "{}", paint(&what, Tone::Bad, color));
            }
            for out_of_order in &checked.wrong {
                let name = root
                    .tasks
                    .get(out_of_order.task.0 as usize)
                    .map_or("?", |task| task.name.as_str());
                let (at, length) = (out_of_order.from.as_ns(), out_of_order.length().as_ns());
                let what =
                    format!("{name} ran for {} at {} without an order", short(length), short(at));
                let _ = writeln!(out, "{}", paint(&what, Tone::Bad, color));
            }
        } else if answer.checked {
            let what = "the kernel did not say who ran: that needs root or CAP_PERFMON, and room for all switches";
            let _ = writeln!(out, "{}", paint(what, Tone::Bad, color));
        }
        if execution.lost > 0 {
            let what = format!("the record was full: {} entries are missing", execution.lost);
            let _ = writeln!(
                out,
                "{}: what is shown is the run until then",
                paint(&what, Tone::Bad, color)
            );
        }
    }
    if let Some(longest) = answer.holes.iter().map(|hole| hole.to_ns - hole.from_ns).max() {
        let holes = count(answer.holes.len(), "hole");
        let _ = writeln!(
            out,
            "{holes}, in which a CPU stood still for everybody; the longest {}",
            short(longest)
        );
    }
    if !answer.real_time {
        let what =
            "best effort: threads had no real-time priorities, so these figures promise nothing";
        let _ = writeln!(out, "{}", paint(what, Tone::Doubtful, color));
    }
    if answer.interrupted {
        let _ = writeln!(out, "{}", paint("interrupted", Tone::Bad, color));
    }
    out.push_str(&outcome::verdicts(&answer.expectations, color));
    out
}
