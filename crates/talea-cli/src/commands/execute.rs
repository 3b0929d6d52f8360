//! `talea execute`: runs a described system on real threads.

use crate::broker_client::Options;
use crate::reserve::{CpuReservation, reserve};
use anyhow::Context;
use serde::Serialize;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};
use talea_core::{CpuSet, Span};
use talea_exec::mechanism::audit::Consumed;
use talea_exec::stalls::DETECTION_LIMIT;
use talea_exec::{ProgramExit, ProgramReport, RootReport, Stall, StoppedTime};
use talea_os::spawn::describe_exit;
use talea_study::exit::{Exit, not_executable};
use talea_study::live_run::{
    self, CpuAssignment, KernelCheck, LiveRun, Mechanism, PriorityUse, Recording, RunSetup,
    SourceTexts, StreamedSummary, WorkMode, estimate_rate, longest_whole_record, place,
    print_limits, refused_file,
};
use talea_study::options::{self, Output};
use talea_study::output::{Tone, colored, count, paint};
use talea_study::report::Outline;
use talea_study::run_summary::{
    self, ChainSummary, ExpectationResult, FileArgs, Files, RootSummary, short,
};
use talea_system::{Root, System};

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
    #[arg(long, visible_alias = "for", value_name = "DURATION", value_parser = options::run_length)]
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
    /// Run even if the run breaks proved guarantees of grants on its CPUs.
    #[arg(long)]
    beside_grants: bool,
    #[command(flatten)]
    objects: crate::objects::ObjectArgs,
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
    /// Whether threads had real-time priorities. If not, the kernel's fair class determined every
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
    chains: Vec<ChainSummary>,
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
    /// Part of `scheduler_ppm` that workers used outside of ordered jobs: between two jobs.
    stray_ppm: u64,
    /// Number of entries that did not fit into the record. If there are any, the report covers the
    /// run up to the first lost entry.
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
    /// Part of `used_ns` before the program was ordered to run, until the executor noticed the
    /// wake-up.
    stray_ns: u64,
    /// Mechanisms that keep the program from the CPU while it is stopped.
    isolation: String,
    /// Part of `used_ns` while the program was stopped and no task had the CPU. This is no fault.
    stopped_idle_ns: u64,
    /// Part of `used_ns` while the program was stopped and another task had the CPU.
    stopped_busy_ns: u64,
    /// Longest part of `stopped_busy_ns` between two orders.
    stopped_busy_max_ns: u64,
    /// Description of the fault of the isolation, if `stopped_busy_max_ns` exceeds the tolerance.
    isolation_failed: Option<String>,
    /// Description of the program's end. `None` if the program ended with the run.
    ended: Option<String>,
    /// Policy, priority and CPU of one of the program's threads, if they differ from the initial
    /// ones.
    policy_changed: Option<String>,
    /// Whether wake-ups were detected by polling each millisecond, because the kernel did not
    /// report them.
    polled: bool,
}

/// Returns the programs of a root.
fn programs(root: &Root, real: &RootReport) -> Vec<ProgramJson> {
    type Measured<'r> = (&'r Consumed, &'r Option<StoppedTime>);
    let measured = real.consumed.iter().zip(&real.stopped_times);
    let both = root.tasks.iter().zip(measured.zip(&real.programs));
    let of = |(task, ((consumed, stopped), report)): (
        &String,
        (Measured<'_>, &Option<ProgramReport>),
    )| {
        let (report, stopped) = (report.as_ref()?, stopped.unwrap_or_default());
        let ended = match &report.exit {
            ProgramExit::Killed => None,
            ProgramExit::Exited(status) => Some(describe_exit(*status)),
            ProgramExit::Failed(why) => Some(format!("could not be executed: {why}")),
        };
        let (used, stray) = (consumed.total.as_ns(), consumed.stray().as_ns());
        Some(ProgramJson {
            task: task.clone(),
            used_ns: used,
            stray_ns: stray.saturating_sub(stopped.total().as_ns()),
            isolation: report.isolation.to_string(),
            stopped_idle_ns: stopped.idle.as_ns(),
            stopped_busy_ns: stopped.busy.as_ns(),
            stopped_busy_max_ns: stopped.max_busy.as_ns(),
            isolation_failed: stopped
                .is_fault()
                .then(|| live_run::isolation_failure_text(&stopped, report.isolation)),
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
    execute(options, args).map_err(|error| refused_file(error, &args.file))
}

fn execute(options: &Options, args: &ExecuteArgs) -> anyhow::Result<Exit> {
    let (system, texts) = SourceTexts::load(&args.file, &args.objects.registry()?)?;
    let duration = args.duration.unwrap_or(system.duration);
    let seed = args.seed.unwrap_or(system.seed);
    let places = place(&system, args.cpus.as_ref())?;
    let accounts = live_run::accounts(&system, &texts)?;
    if args.record.is_some() && args.mechanism == Mechanism::Linux {
        let why = "--record writes orders for talea replay, and --mechanism linux gives none";
        return Err(not_executable(why));
    }
    let estimates = estimate_rate(&system, duration, seed)?;
    print_limits(&system, &places, &estimates);
    let most = longest_whole_record(&estimates);
    if !args.is_streamed() && duration > most {
        return Err(not_executable(format!(
            "{} keep the whole record in memory, which has room for about {most} of this file and not for {duration}: shorten the \
             run with --duration, or run without them",
            "--check, --record, --csv, --trace, --html, --svg and --mechanism linux"
        )));
    }
    let outlines = run_summary::outlines(&system)?;
    let files = Files::create(&args.files)?;
    let to = args.record.as_deref().map(create).transpose()?;
    let setup = RunSetup {
        system: &system,
        duration,
        seed,
        places: &places,
        accounts: &accounts,
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
        _ => reserve(options, &places, args.beside_grants)?,
    };
    let mut summary = if args.is_streamed() {
        Some(StreamedSummary::new(&system.roots, &outlines, duration)?)
    } else {
        None
    };
    let measured = match &mut summary {
        Some(summary) => live_run::run_streaming(&setup, summary)?,
        None => live_run::run(&setup)?,
    };
    let summaries = summary
        .map(|summary| {
            let lost: Vec<u64> = measured.report.roots.iter().map(|root| root.lost).collect();
            summary.finish(measured.report.length, &lost)
        })
        .transpose()?;
    if let (Some(to), Some(path)) = (to, &args.record) {
        let records = measured.report.roots.iter().map(|root| root.record.clone());
        let roots = places.iter().cloned().zip(records).collect();
        let mut to = BufWriter::new(to);
        let written = Recording { seed, texts, roots }.write(&mut to).and_then(|()| to.flush());
        written.with_context(|| format!("cannot write {}", path.display()))?;
    }
    let run = Executed { system: &system, outlines: &outlines, places: &places, seed, measured };
    let answer = build_report(args, &run, summaries, files)?;
    args.output.print(&answer, || text(&answer, colored()))?;
    Ok(if answer.ok { Exit::Ok } else { Exit::Failure })
}

impl ExecuteArgs {
    /// Whether the record is summarized while the run goes on, so that the memory is independent of
    /// the run's length. Checks and files need the whole record.
    fn is_streamed(&self) -> bool {
        !self.wants_kernel_check() && self.record.is_none() && !self.files.is_any()
    }

    /// Whether `sched_switch` events are requested. Without a dispatcher only the kernel knows
    /// which thread ran.
    fn wants_kernel_check(&self) -> bool {
        self.check || self.mechanism == Mechanism::Linux
    }
}

fn create(path: &Path) -> anyhow::Result<File> {
    File::create(path).with_context(|| format!("cannot write {}", path.display()))
}

/// Run with its system.
struct Executed<'a> {
    system: &'a System,
    outlines: &'a [Outline],
    places: &'a CpuAssignment,
    seed: u64,
    measured: LiveRun,
}

/// Builds the report, in the same form as that of a simulation. `summaries` were made during the
/// run. If there are none, the function makes them from the record.
fn build_report(
    args: &ExecuteArgs,
    run: &Executed<'_>,
    summaries: Option<Vec<RootSummary>>,
    mut files: Files<'_>,
) -> anyhow::Result<ExecuteReport> {
    let Executed { system, outlines, places, seed, measured } = run;
    let LiveRun { report, is_real, interrupted } = measured;
    let (mut roots, mut executions, mut drawn) = (Vec::new(), Vec::new(), Vec::new());
    let mut summaries = summaries.map(Vec::into_iter);
    let mut named = outlines.to_vec();
    if !is_real {
        for outline in &mut named {
            outline.name.push_str(" (best effort)");
        }
    }
    for (number, (root, outline)) in system.roots.iter().zip(&named).enumerate() {
        let real = &report.roots[number];
        let picture = if let Some(mut summary) = summaries.as_mut().and_then(Iterator::next) {
            summary.name.clone_from(&outline.name);
            roots.push(summary);
            None
        } else {
            let mut machine =
                root.tree.build().map_err(|error| anyhow::anyhow!("{}", error.kind))?;
            let seen = files.recorder(outline, &machine, report.length);
            let (answer, picture) =
                live_run::summarize(&mut machine, outline, real, report.length, seen)?;
            roots.push(answer);
            picture
        };
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
    let expectations = run_summary::check_expectations(&system.expectations, &roots);
    let chains = run_summary::check_chains(system, &roots);
    let title = format!("{name}, executed{effort}");
    files.finish(title, *seed, report.length, drawn, &chains)?;
    let is_obeyed = |execution: &RootExecution| match &execution.kernel {
        Some(checked) => checked.is_obeyed(),
        // --check requires the kernel's events.
        None => !args.check,
    };
    let has_faults = |execution: &RootExecution| {
        let is_faulty = |program: &ProgramJson| {
            program.policy_changed.is_some() || program.isolation_failed.is_some()
        };
        execution.programs.iter().any(is_faulty)
    };
    let is_sound = |one: &RootExecution| one.lost == 0 && is_obeyed(one) && !has_faults(one);
    let is_whole = !interrupted && executions.iter().all(is_sound);
    let hold = expectations.iter().all(|expectation| expectation.holds)
        && chains.iter().all(|chain| chain.holds);
    let ok = is_whole && hold;
    Ok(ExecuteReport {
        file: args.file.display().to_string(),
        duration_ns: report.length.as_ns(),
        seed: *seed,
        real_time: *is_real,
        interrupted: *interrupted,
        checked: args.wants_kernel_check(),
        roots,
        executions,
        stalls: report.stalls.iter().map(stall_json).collect(),
        chains,
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
                "{}: its program used {} in total, {} of a CPU; {} of it before it was ordered to run, {} while it was stopped and no task \
                 had the CPU; isolated by {}",
                program.task,
                short(program.used_ns),
                run_summary::percent(u64::try_from(share).unwrap_or(u64::MAX)),
                short(program.stray_ns),
                short(program.stopped_idle_ns),
                program.isolation
            );
            if let Some(failed) = &program.isolation_failed {
                let what = format!("{}: {failed}", program.task);
                let _ = writeln!(out, "{}", paint(&what, Tone::Bad, color));
            }
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
    out.push_str(&run_summary::chain_lines(&answer.chains, color));
    out.push_str(&run_summary::verdicts(&answer.expectations, color));
    out
}
