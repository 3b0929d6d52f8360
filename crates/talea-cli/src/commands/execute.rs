//! `talea execute`: runs a described system on real threads.

use crate::args::{Output, task};
use crate::broker_client::Options;
use crate::exit::Exit;
use crate::live_run::{
    self, CpuAssignment, CpuReservation, KernelCheck, LiveRun, Mechanism, NotExecutable,
    PriorityUse, Recording, RunSetup, SourceTexts, WorkMode, estimate_load, place, print_limits,
};
use crate::output::{Tone, colored, count, paint, print, print_json};
use crate::report::Outline;
use crate::run_summary::{self, ExpectationResult, FileArgs, Files, RootSummary, short};
use anyhow::Context;
use serde::Serialize;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};
use talea_core::{CpuSet, Span};
use talea_exec::mechanism::audit::Consumed;
use talea_exec::stalls::DETECTION_LIMIT;
use talea_exec::{ProgramExit, ProgramReport, RootReport, Stall};
use talea_os::spawn::describe_exit;
use talea_system::system::{Root, System};

/// Run a described system on real threads.
///
/// The scheduling engine of the simulator drives real threads: one pinned thread per task, below a
/// dispatcher on each CPU. Jobs arrive as in a simulation with the same seed and execute for their
/// cost. Needs root or CAP_SYS_NICE. During the run, its CPUs belong to it. No system setting is
/// changed, and nothing remains after the run, also if it is killed. Ends with 1 if an expectation
/// of the file does not hold, with 3 if the system cannot be executed here.
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
    /// CPUs of this computer for those of the file, in the order of the roots. By default the first
    /// ones that this process may use.
    #[arg(long, value_name = "LIST", value_parser = CpuSet::parse)]
    cpus: Option<CpuSet>,
    /// How a job spends its cost.
    #[arg(long, value_enum, default_value = "budget", value_name = "MODE")]
    work: WorkMode,
    /// How the schedule is produced.
    #[arg(long, value_enum, default_value = "auto", value_name = "NAME")]
    mechanism: Mechanism,
    /// Run without real-time priorities if there is no right to them; the report says so.
    #[arg(long)]
    best_effort: bool,
    /// Check the orders of the scheduling engine against the kernel's sched_switch events; needs
    /// root or CAP_PERFMON.
    #[arg(long)]
    check: bool,
    /// Record the inputs and orders of the scheduling engine in FILE, for talea replay.
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// Run although it would break grants on its CPUs.
    #[arg(long)]
    beside_grants: bool,
    #[command(flatten)]
    files: FileArgs,
    #[command(flatten)]
    output: Output,
}

#[derive(Serialize)]
struct ExecuteReport {
    file: String,
    duration_ns: u64,
    seed: u64,
    /// Whether threads had real-time priorities. Otherwise the kernel's fair class determined every
    /// number.
    real_time: bool,
    /// Whether a signal ended the run early.
    interrupted: bool,
    /// Whether `sched_switch` events were requested.
    checked: bool,
    roots: Vec<RootSummary>,
    executions: Vec<RootExecution>,
    /// Intervals in which a CPU executed no thread.
    stalls: Vec<StallJson>,
    expectations: Vec<ExpectationResult>,
    ok: bool,
}

/// Execution of one root.
#[derive(Serialize)]
struct RootExecution {
    name: String,
    /// CPUs of this computer, in the order of the root's CPUs.
    cpus: Vec<u32>,
    mechanism: String,
    /// Reason for the mechanism.
    mechanism_why: String,
    /// CPU time of the dispatchers, and of workers outside of their jobs, in millionths of the
    /// root's CPUs.
    scheduler_ppm: u64,
    /// Part of it that workers used outside of ordered jobs: between two jobs.
    stray_ppm: u64,
    /// Entries that did not fit into the record. Then the report covers the run up to the first
    /// lost entry.
    lost: u64,
    /// Tasks that are programs.
    programs: Vec<ProgramJson>,
    /// Result of --check, if the kernel reports `sched_switch` events.
    kernel: Option<KernelCheck>,
}

#[derive(Serialize)]
struct ProgramJson {
    task: String,
    /// CPU time of the program and all its descendants.
    used_ns: u64,
    /// Part of it before the program was ordered to run: until the executor noticed its wake-up.
    stray_ns: u64,
    /// How the program ended; `None` if it ended with the run.
    ended: Option<String>,
    /// Policy, priority and CPU of one of its threads, if they differ from the initial ones.
    policy_changed: Option<String>,
    /// Whether wake-ups were detected by polling each millisecond, because the kernel did not
    /// report them.
    polled: bool,
}

/// Returns the programs of a root.
fn programs(root: &Root, real: &RootReport) -> Vec<ProgramJson> {
    let both = root.tasks.iter().zip(real.consumed.iter().zip(&real.programs));
    let of = |(task, (consumed, report)): (&String, (&Consumed, &Option<ProgramReport>))| {
        let report = report.as_ref()?;
        let ended = match &report.exit {
            ProgramExit::Killed => None,
            ProgramExit::Exited(status) => Some(describe_exit(*status)),
            ProgramExit::Failed(why) => Some(format!("could not be executed: {why}")),
        };
        let (used, stray) = (consumed.total.as_ns(), consumed.stray().as_ns());
        Some(ProgramJson {
            task: task.clone(),
            used_ns: used,
            stray_ns: stray,
            ended,
            policy_changed: report.policy_changed.clone(),
            polled: report.polled,
        })
    };
    both.filter_map(of).collect()
}

#[derive(Serialize)]
struct StallJson {
    cpu: u32,
    from_ns: u64,
    to_ns: u64,
}

pub(crate) fn run(options: &Options, args: &ExecuteArgs) -> anyhow::Result<Exit> {
    let (system, texts) = match SourceTexts::load(&args.file)? {
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
        Err(why) => return Ok(live_run::print_refusal(&args.file, &why)),
    };
    if args.record.is_some() && args.mechanism == Mechanism::Linux {
        let why = "--record writes orders for talea replay, and --mechanism linux gives none";
        return Ok(live_run::print_refusal(&args.file, why));
    }
    let estimates = estimate_load(&system, duration, seed)?;
    print_limits(&system, &places, &estimates, duration);
    let files = Files::create(&args.files)?;
    let to = args.record.as_deref().map(create).transpose()?;
    let setup = RunSetup {
        system: &system,
        duration,
        seed,
        places: &places,
        work_mode: args.work,
        rights: args.mechanism.rights(if args.best_effort {
            PriorityUse::Preferred
        } else {
            PriorityUse::Required
        }),
        mechanism: args.mechanism.requested(),
        switches: args.wants_kernel_check(),
        estimates: &estimates,
        begin: None,
        bodies: &|_| None,
    };
    let _reserved: Option<CpuReservation> = match setup.rights {
        PriorityUse::Unused => None,
        _ => match live_run::reserve(options, &places, args.beside_grants)? {
            Ok(reserved) => reserved,
            Err(why) => return Ok(live_run::print_refusal(&args.file, &why)),
        },
    };
    let measured = match live_run::run(&setup)? {
        Ok(measured) => measured,
        Err(NotExecutable(why)) => return Ok(live_run::print_refusal(&args.file, &why)),
    };
    if let (Some(to), Some(path)) = (to, &args.record) {
        let records = measured.report.roots.iter().map(|root| root.record.clone());
        let roots = places.iter().cloned().zip(records).collect();
        let mut to = BufWriter::new(to);
        let written = Recording { seed, texts, roots }.write(&mut to).and_then(|()| to.flush());
        written.with_context(|| format!("cannot write {}", path.display()))?;
    }
    let answer = build_report(args, &system, &places, seed, &measured, files)?;
    if args.output.json {
        print_json(&answer)?;
    } else {
        print(&text(&answer, colored()))?;
    }
    Ok(if answer.ok { Exit::Ok } else { Exit::Failure })
}

impl ExecuteArgs {
    /// Whether `sched_switch` events are requested. Without a dispatcher only the kernel knows
    /// which thread ran.
    fn wants_kernel_check(&self) -> bool {
        self.check || self.mechanism == Mechanism::Linux
    }
}

fn create(path: &Path) -> anyhow::Result<File> {
    File::create(path).with_context(|| format!("cannot write {}", path.display()))
}

/// Builds the report, in the same form as that of a simulation.
fn build_report(
    args: &ExecuteArgs,
    system: &System,
    places: &CpuAssignment,
    seed: u64,
    measured: &LiveRun,
    mut files: Files<'_>,
) -> anyhow::Result<ExecuteReport> {
    let LiveRun { report, is_real, interrupted } = measured;
    let mut outlines =
        system.roots.iter().map(run_summary::outline).collect::<anyhow::Result<Vec<_>>>()?;
    if !is_real {
        for outline in &mut outlines {
            outline.name.push_str(" (best effort)");
        }
    }
    let (mut roots, mut executions, mut drawn) = (Vec::new(), Vec::new(), Vec::new());
    for (number, (root, outline)) in system.roots.iter().zip(&outlines).enumerate() {
        let real = &report.roots[number];
        let mut machine = root.tree.build().map_err(|error| anyhow::anyhow!("{}", error.kind))?;
        let seen = files.recorder(outline, &machine, report.length);
        let (answer, picture) =
            live_run::summarize(&mut machine, outline, real, report.length, seen)?;
        roots.push(answer);
        let kernel = live_run::check(
            real,
            &places[number],
            (&report.stalls, report.length),
            DETECTION_LIMIT,
        );
        executions.push(RootExecution {
            kernel,
            programs: programs(root, real),
            ..execution(outline, &places[number], real, report.length)
        });
        drawn.extend(picture);
    }
    let name = args.file.file_name().unwrap_or_default().to_string_lossy();
    let effort = if *is_real { "" } else { ", best effort: without real-time priorities" };
    files.finish(format!("{name}, executed{effort}"), seed, report.length, drawn)?;
    let expectations = run_summary::check_expectations(&system.expectations, &roots);
    let is_obeyed = |execution: &RootExecution| match &execution.kernel {
        Some(checked) => checked.is_obeyed(),
        // --check requires the kernel's events.
        None => !args.check,
    };
    let has_policy_change = |execution: &RootExecution| {
        execution.programs.iter().any(|program| program.policy_changed.is_some())
    };
    let is_sound = |one: &RootExecution| one.lost == 0 && is_obeyed(one) && !has_policy_change(one);
    let is_whole = !interrupted && executions.iter().all(is_sound);
    let ok = is_whole && expectations.iter().all(|expectation| expectation.holds);
    Ok(ExecuteReport {
        file: args.file.display().to_string(),
        duration_ns: report.length.as_ns(),
        seed,
        real_time: *is_real,
        interrupted: *interrupted,
        checked: args.wants_kernel_check(),
        roots,
        executions,
        stalls: report.stalls.iter().map(stall_json).collect(),
        expectations,
        ok,
    })
}

fn stall_json(stall: &Stall) -> StallJson {
    StallJson { cpu: stall.cpu, from_ns: stall.from.as_ns(), to_ns: stall.to.as_ns() }
}

fn execution(outline: &Outline, cpus: &[u32], real: &RootReport, length: Span) -> RootExecution {
    let whole = u128::from(length.as_ns().max(1)) * cpus.len().max(1) as u128;
    let ppm = |ns: u64| (u128::from(ns) * 1_000_000 / whole) as u64;
    RootExecution {
        name: outline.name.clone(),
        cpus: cpus.to_vec(),
        mechanism: real.mechanism.kind.to_string(),
        mechanism_why: real.mechanism.reason.clone(),
        scheduler_ppm: ppm(real.scheduling().as_ns()),
        stray_ppm: ppm(real.consumed.iter().map(|consumed| consumed.stray().as_ns()).sum()),
        lost: real.lost,
        programs: Vec::new(),
        kernel: None,
    }
}

fn text(answer: &ExecuteReport, color: bool) -> String {
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
        out.push_str(&run_summary::table(root));
        let _ = writeln!(
            out,
            "scheduler overhead {}, {} of it by workers; mechanism {}: {}",
            run_summary::percent(execution.scheduler_ppm),
            run_summary::percent(execution.stray_ppm),
            execution.mechanism,
            execution.mechanism_why
        );
        for program in &execution.programs {
            let share =
                u128::from(program.used_ns) * 1_000_000 / u128::from(answer.duration_ns.max(1));
            let _ = writeln!(
                out,
                "{}: its program used {} in total, {} of a CPU; {} of it before it was ordered to run",
                program.task,
                short(program.used_ns),
                run_summary::percent(u64::try_from(share).unwrap_or(u64::MAX)),
                short(program.stray_ns)
            );
            if let Some(ended) = &program.ended {
                let what =
                    format!("{}: its program {ended}, before the end of the run", program.task);
                let _ = writeln!(out, "{}", paint(&what, Tone::Doubtful, color));
            }
            if let Some(policy_changed) = &program.policy_changed {
                let what =
                    format!("{}: {}", program.task, live_run::policy_change_text(policy_changed));
                let _ = writeln!(out, "{}", paint(&what, Tone::Bad, color));
            }
            if program.polled {
                let what = "the kernel does not report its wake-ups: its CPU clock is polled each millisecond";
                let _ = writeln!(out, "{}: {what}", program.task);
            }
        }
        if let Some(checked) = &execution.kernel {
            let _ = writeln!(
                out,
                "sched_switch events, {} of workers: at most {} without an order, orders violated for at most {}",
                count(checked.stays, "run interval"),
                short(checked.longest_ns),
                short(checked.unobeyed_ns)
            );
            for fault in &checked.faults {
                let what = format!(
                    "CPU {} was idle or ran another thread of Talea for {} of an order of {} at {}",
                    execution.cpus.get(fault.cpu as usize).copied().unwrap_or(fault.cpu),
                    short(fault.length().as_ns()),
                    short(fault.to.since(fault.from).as_ns()),
                    short(fault.from.as_ns())
                );
                let _ = writeln!(out, "{}", paint(&what, Tone::Bad, color));
            }
            for out_of_order in &checked.unordered {
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
            let what = "the kernel reported no sched_switch events: they need root or CAP_PERFMON, and space for all events";
            let _ = writeln!(out, "{}", paint(what, Tone::Bad, color));
        }
        if execution.lost > 0 {
            let what = format!("the record was full, {} entries are missing", execution.lost);
            let _ = writeln!(out, "{}: the report ends there", paint(&what, Tone::Bad, color));
        }
    }
    if let Some(longest) = answer.stalls.iter().map(|stall| stall.to_ns - stall.from_ns).max() {
        let stalls = count(answer.stalls.len(), "CPU stall");
        let _ = writeln!(out, "{stalls}; the longest {}", short(longest));
    }
    if !answer.real_time {
        let what =
            "best effort: threads had no real-time priorities, so these figures guarantee nothing";
        let _ = writeln!(out, "{}", paint(what, Tone::Doubtful, color));
    }
    if answer.interrupted {
        let _ = writeln!(out, "{}", paint("interrupted", Tone::Bad, color));
    }
    out.push_str(&run_summary::verdicts(&answer.expectations, color));
    out
}
