//! `talea compare`: compares bound, simulation and real threads.

mod deployed;
mod program_bounds;
mod report;
mod simulate;

use crate::broker_client::Options;
use crate::commands::deploy::DaemonArgs;
use crate::reserve::{CpuReservation, reserve};
use deployed::Measurement;
use program_bounds::drop_program_bounds;
use report::{CompareReport, RootComparison, RunReport};
use simulate::{SimulatedRoot, simulate};
use std::path::PathBuf;
use talea_core::mutate;
use talea_core::{CpuSet, Span, Time};
use talea_exec::StoppedTime;
use talea_exec::native::Guarantee;
use talea_exec::{ProgramExit, RootReport};
use talea_sim::rng::root_seed;
use talea_study::compare::Tolerance;
use talea_study::compare::chains::{ChainFindings, chain_bounds, check_chain};
use talea_study::compare::check::{Findings, RunGuarantee, check_run};
use talea_study::compare::job_times::JobLog;
use talea_study::compare::model::{LostTimeBound, Model, model};
use talea_study::compare::stall_filter::StallFilter;
use talea_study::exit::{Exit, not_executable};
use talea_study::live_run::{
    self, Accounts, CpuAssignment, LiveRun, LoadEstimate, Mechanism, RunSetup, SourceTexts,
    WorkMode, estimate_load, isolation_failure_text, place, print_limits, refused_file,
};
use talea_study::options::{self, Output};
use talea_study::output::{colored, write_file};
use talea_study::report::{DrawnRoot, Outline, RunPage, html};
use talea_study::run_summary;
use talea_system::{Registry, Root, System};

/// Compare bound, simulation and real threads.
///
/// Analyses, simulates and executes a described system, and shows the bound, the simulated and the
/// measured response time of each task. Jobs that a CPU stall has delayed are counted and excluded.
/// A real run agrees if it keeps the order that all perturbed simulations have in common, if each
/// job ends within their range, and if no response exceeds its bound, each up to the tolerance.
/// Ends with 0 if a real run agrees; with 1 if something contradicts; with 6 if CPU stalls
/// filter too many jobs; with 3 if the system cannot be executed here.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Example: talea compare system.toml --duration 2s --repeat 3 --html compared.html"
)]
pub(crate) struct CompareArgs {
    /// The system file.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// How long each run is, instead of what the file says.
    #[arg(long, visible_alias = "for", value_name = "DURATION", value_parser = options::run_length)]
    duration: Option<Span>,
    /// Number of runs. All conclusive runs are checked together.
    #[arg(
        long, value_name = "N", default_value = "1",
        value_parser = clap::value_parser!(u32).range(1..=1_000)
    )]
    repeat: u32,
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
    /// Tolerance of a measured response; two percent of the response are added.
    #[arg(long, value_name = "DURATION", default_value = "2ms", value_parser = options::duration)]
    tolerance: Span,
    /// Run even if the run breaks proved guarantees of grants on its CPUs.
    #[arg(long)]
    beside_grants: bool,
    /// Write a page with the simulated and the last measured schedule to FILE.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Instead of runs: the counters of the deployment in force, for the duration. Compares the
    /// longest response, late jobs and CPU time; needs root.
    #[arg(
        long,
        conflicts_with_all = ["repeat", "cpus", "work", "mechanism", "beside_grants", "html"]
    )]
    deployed: bool,
    #[command(flatten)]
    daemon: DaemonArgs,
    #[command(flatten)]
    output: Output,
}

/// Part of a response that is tolerated, in thousandths.
const TOLERANCE_PERMILLE: u64 = 20;

/// Data that are equal in all runs.
struct Comparison<'a> {
    system: &'a System,
    places: &'a CpuAssignment,
    accounts: Accounts,
    estimates: Vec<LoadEstimate>,
    models: Vec<Model>,
    lost_time_bounds: Vec<LostTimeBound<'a>>,
    outlines: &'a [Outline],
    seed: u64,
    duration: Span,
    tolerance: Tolerance,
}

pub(crate) fn run(options: &Options, args: &CompareArgs) -> anyhow::Result<Exit> {
    if args.deployed {
        return deployed::run(&Measurement {
            file: &args.file,
            duration: args.duration,
            seed: args.seed,
            tolerance: Tolerance { min: args.tolerance, permille: TOLERANCE_PERMILLE },
            daemon: &args.daemon,
            output: &args.output,
        });
    }
    compare(options, args).map_err(|error| refused_file(error, &args.file))
}

fn compare(options: &Options, args: &CompareArgs) -> anyhow::Result<Exit> {
    let (system, texts) = SourceTexts::load(&args.file, &Registry::default())?;
    let accounts = live_run::accounts(&system, &texts)?;
    let duration = args.duration.unwrap_or(system.duration);
    let seed = args.seed.unwrap_or(system.seed);
    let places = place(&system, args.cpus.as_ref())?;
    let estimates = estimate_load(&system, duration, seed)?;
    print_limits(&system, &places, &estimates);
    let outlines = run_summary::outlines(&system)?;
    let end = Time::ZERO + duration;
    let of = |(number, root): (usize, &Root)| model(root, root_seed(seed, number), end);
    let mut models = system.roots.iter().enumerate().map(of).collect::<anyhow::Result<Vec<_>>>()?;
    for (model, root) in models.iter_mut().zip(&system.roots) {
        drop_program_bounds(model, root);
    }
    let tolerance = Tolerance { min: args.tolerance, permille: TOLERANCE_PERMILLE };
    let outlines = &outlines;
    let places = &places;
    let lost_time_bounds =
        system.roots.iter().map(|root| LostTimeBound::new(root, tolerance.min)).collect();
    let stage = Comparison {
        system: &system,
        places,
        accounts,
        estimates,
        models,
        lost_time_bounds,
        outlines,
        seed,
        duration,
        tolerance,
    };
    let rights = args.mechanism.rights(live_run::PriorityUse::Required);
    let _reserved: Option<CpuReservation> = match rights {
        live_run::PriorityUse::Unused => None,
        _ => reserve(options, places, args.beside_grants)?,
    };
    let mut runs: Vec<RunReport> = Vec::new();
    let mut findings: Vec<Vec<Findings>> = vec![Vec::new(); system.roots.len()];
    let mut chains = vec![ChainFindings::default(); system.chains.len()];
    let mut last = None;
    for _ in 0..args.repeat {
        let measured = execute(args, &stage)?;
        if let Some(why) = program_failure(&system, &measured) {
            return Err(not_executable(why));
        }
        let found = stage.check_run(&measured, &mut chains)?;
        runs.push(RunReport::of(&measured, &found, stage.estimates.as_slice()));
        for (all, found) in findings.iter_mut().zip(found) {
            all.push(found);
        }
        let interrupted = measured.interrupted;
        last = Some(measured);
        if interrupted {
            break;
        }
    }
    let simulated = simulate(&system, outlines, seed, duration)?;
    let mut roots = Vec::new();
    for (number, root) in system.roots.iter().enumerate() {
        roots.push(RootComparison::of(
            root,
            &stage.models[number],
            &simulated[number].0,
            &findings[number],
        ));
    }
    let summaries: Vec<_> = simulated.iter().map(|(summary, _)| summary).collect();
    let expected = run_summary::check_chains(&system, &summaries);
    let compared = system.chains.iter().zip(&expected).zip(chains);
    let chains = compared.map(|((chain, simulated), found)| {
        let bounds = chain_bounds(chain, &system.roots, &stage.models);
        report::ChainComparison::of(simulated, bounds, &found)
    });
    let chains = chains.collect();
    let answer = CompareReport::new(&args.file, duration, seed, tolerance, (roots, chains), runs);
    if let (Some(path), Some(measured)) = (&args.html, &last) {
        let page = stage.page(args, simulated, measured, &answer)?;
        write_file(path, &page)?;
    }
    args.output.print(&answer, || report::text(&answer, colored()))?;
    Ok(answer.exit())
}

fn has_programs(root: &Root) -> bool {
    root.programs.iter().any(Option::is_some)
}

/// Returns the failure of a program that could not be executed, that was not scheduled as ordered,
/// or that was not isolated.
fn program_failure(system: &System, measured: &LiveRun) -> Option<String> {
    let both = system.roots.iter().zip(&measured.report.roots);
    let all = both.flat_map(|(root, real)| {
        root.tasks.iter().zip(real.programs.iter().zip(&real.stopped_times))
    });
    all.into_iter().find_map(|(task, (program, stopped))| {
        let program = program.as_ref()?;
        if let Some(stopped) = stopped.filter(StoppedTime::is_fault) {
            return Some(format!(
                "{task}: {}",
                isolation_failure_text(&stopped, program.isolation)
            ));
        }
        let policy_changed = program.policy_changed.as_ref();
        match &program.exit {
            ProgramExit::Failed(why) => {
                Some(format!("the program of {task} could not be executed: {why}"))
            }
            ProgramExit::Killed | ProgramExit::Exited(_) => {
                policy_changed.map(|what| format!("{task}: {}", live_run::policy_change_text(what)))
            }
        }
    })
}

fn execute(args: &CompareArgs, stage: &Comparison<'_>) -> anyhow::Result<LiveRun> {
    live_run::run(&RunSetup {
        system: stage.system,
        duration: stage.duration,
        seed: stage.seed,
        places: stage.places,
        accounts: &stage.accounts,
        work_mode: args.work,
        rights: args.mechanism.rights(live_run::PriorityUse::Required),
        mechanism: args.mechanism.requested(),
        switches: true,
        estimates: &stage.estimates,
        begin: None,
        bodies: &|_| None,
    })
}

impl Comparison<'_> {
    /// Checks each root of a run, and adds the latencies of the chains to `chains`.
    fn check_run(
        &self,
        measured: &LiveRun,
        chains: &mut [ChainFindings],
    ) -> anyhow::Result<Vec<Findings>> {
        let end = Time::ZERO + measured.report.length;
        let (mut all, mut logs, mut filters) = (Vec::new(), Vec::new(), Vec::new());
        for (number, (root, real)) in
            self.system.roots.iter().zip(&measured.report.roots).enumerate()
        {
            let log = JobLog::from_run(&root.tree, real, measured.report.length)?;
            let (cpus, stalls) = (&self.places[number], &measured.report.stalls);
            let lost_times =
                live_run::machine_lost_time(real, cpus, (stalls, measured.report.length));
            let losses = (stalls.as_slice(), lost_times.as_slice());
            let filter = StallFilter::of(&root.tree, cpus, losses, &log, self.tolerance);
            let guarantee = match &real.native {
                // No simulation predicts when a program wakes, nor what follows from it.
                None if has_programs(root) => {
                    mutate!("cli-compare-programs", RunGuarantee::Bounds, RunGuarantee::Order)
                }
                None => RunGuarantee::Order,
                Some(course) if course.is_order_comparable() => RunGuarantee::Order,
                Some(course) if matches!(course.guarantee, Guarantee::Deadlines(_)) => {
                    RunGuarantee::Deadlines
                }
                Some(_) => RunGuarantee::Bounds,
            };
            let lost_time_bound = |task| self.lost_time_bounds[number].bound_of(task);
            let model = &self.models[number];
            let mut found =
                check_run(model, lost_time_bound, &log, &filter, (self.tolerance, guarantee), end);
            let length = measured.report.length;
            found.kernel = live_run::check(real, cpus, (stalls, length), self.tolerance.min);
            all.push(found);
            logs.push(log);
            filters.push(filter);
        }
        // Orders of a run that went wrong have no latencies to compare.
        if all.iter().all(Findings::agree) {
            for (chain, found) in self.system.chains.iter().zip(chains) {
                let [_, bound] = chain_bounds(chain, &self.system.roots, &self.models);
                check_chain(chain, (&logs, &filters), bound, self.tolerance, found);
            }
        }
        Ok(all)
    }

    /// Returns a page with the simulated and the measured schedule of each root.
    fn page(
        &self,
        args: &CompareArgs,
        simulated: Vec<SimulatedRoot<'_>>,
        measured: &LiveRun,
        answer: &CompareReport,
    ) -> anyhow::Result<String> {
        let named = |suffix: &str| -> Vec<Outline> {
            let name = |outline: &Outline| Outline {
                name: format!("{}, {suffix}", outline.name),
                ..outline.clone()
            };
            self.outlines.iter().map(name).collect()
        };
        let how = if measured.is_real { "measured" } else { "measured (best effort)" };
        let (model, real) = (named("simulated"), named(how));
        let mut roots = Vec::new();
        for (number, ((root, (_, picture)), outline)) in
            self.system.roots.iter().zip(simulated).zip(&model).enumerate()
        {
            roots.extend(picture.map(|picture| DrawnRoot { outline, ..picture }));
            let report = &measured.report;
            let (_, picture) =
                measured_schedule(root, &real[number], &report.roots[number], report.length)?;
            roots.extend(picture);
        }
        let name = args.file.file_name().unwrap_or_default().to_string_lossy();
        let effort =
            if measured.is_real { "" } else { "; best effort: without real-time priorities" };
        let title = format!("{name}, simulated and measured{effort}");
        let (seed, duration_ns, head) = (self.seed, self.duration.as_ns(), report::rows(answer));
        html(&RunPage { title, seed, roots, chains: Vec::new(), duration_ns, head })
    }
}

fn measured_schedule<'a>(
    root: &Root,
    outline: &'a Outline,
    real: &RootReport,
    length: Span,
) -> anyhow::Result<(run_summary::RootSummary, Option<DrawnRoot<'a>>)> {
    let mut machine = root.tree.build().map_err(|error| anyhow::anyhow!("{}", error.kind))?;
    let seen = run_summary::RunRecorder::new(outline, &machine, length, true, None, None);
    live_run::summarize(&mut machine, outline, real, length, seen)
}
