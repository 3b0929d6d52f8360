//! `talea simulate`: runs a described system under a simulated clock.

mod switches;

use crate::args::SimulateArgs;
use anyhow::Context;
use serde::Serialize;
use std::fmt::Write as _;
use switches::{Part, Request};
use talea_core::workload::CostMode;
use talea_core::{Span, Time};
use talea_sim::Simulation;
use talea_sim::rng::root_seed;
use talea_study::event_count::estimated_events;
use talea_study::exit::{Exit, usage};
use talea_study::output::{Tone, colored, count, paint};
use talea_study::report::{DrawnRoot, Outline};
use talea_study::run_summary::{
    self, ChainSummary, ExpectationResult, Files, RootSummary, RunPart,
};
use talea_study::system_file::load;
use talea_study::witness::{LateJob, Witness};
use talea_system::{Expectation, Root, System};

#[derive(Serialize)]
struct SimulateReport {
    file: String,
    duration_ns: u64,
    seed: u64,
    roots: Vec<RootSummary>,
    chains: Vec<ChainSummary>,
    expectations: Vec<ExpectationResult>,
    #[serde(skip_serializing_if = "Option::is_none")]
    witness: Option<WitnessReplay>,
    ok: bool,
}

/// Report of a run with switches between modes.
#[derive(Serialize)]
struct SwitchedReport {
    file: String,
    duration_ns: u64,
    seed: u64,
    /// Each part of each root.
    roots: Vec<RootSummary>,
    expectations: Vec<ExpectationResult>,
    ok: bool,
}

/// Result of the repetition of a witness.
#[derive(Serialize)]
struct WitnessReplay {
    recurs: bool,
    late: LateJob,
    /// Completion of the job; `None` if the job did not end during the witness.
    end_ns: Option<u64>,
}

pub(crate) fn run(args: &SimulateArgs) -> anyhow::Result<Exit> {
    let _watch = args.limit.watch(args.output.json)?;
    let mut system = load(&args.file, &args.objects.registry()?)?;
    if !args.switch.is_empty() {
        return run_with_switches(args, &system);
    }
    if let Some(mode) = &args.mode {
        system = system.in_mode(mode).map_err(usage)?;
    }
    let witness = args.witness.as_deref().map(Witness::read).transpose()?;
    if let Some(witness) = &witness {
        witness.apply(&mut system).map_err(usage)?;
    }
    let usual = witness.as_ref().map_or(system.duration, Witness::duration);
    let duration = args.duration.unwrap_or(usual);
    let events = system.roots.iter().map(|root| estimated_events(root, duration.as_ns()));
    let events = events.fold(0, u64::saturating_add);
    if let Some(refused) = args.limit.announce(events, duration, args.output.json)? {
        return Ok(refused);
    }
    let seed = args.seed.unwrap_or(system.seed);
    let mut files = Files::create(&args.files)?;
    let outlines = run_summary::outlines(&system)?;
    let (mut roots, mut drawn) = (Vec::new(), Vec::new());
    for (number, (root, outline)) in system.roots.iter().zip(&outlines).enumerate() {
        let seed = witness.as_ref().map_or(root_seed(seed, number), Witness::seed);
        let case = if witness.is_some() { CostMode::Worst } else { CostMode::Sampled };
        let (answer, picture) = simulate(root, outline, duration, (seed, case), &mut files)?;
        roots.push(answer);
        drawn.extend(picture);
    }
    let title =
        format!("{}, simulated", args.file.file_name().unwrap_or_default().to_string_lossy());
    let expectations = run_summary::check_expectations(&system.expectations, &roots);
    let chains = run_summary::check_chains(&system, &roots);
    files.finish(title, seed, duration, drawn, &chains)?;
    let witness = witness.map(|witness| {
        let (recurs, end_ns) = witness.recurs(&system.roots[0])?;
        anyhow::Ok(WitnessReplay { recurs, late: witness.late, end_ns })
    });
    let witness = witness.transpose()?;
    let recurs = witness.as_ref().is_none_or(|witness| witness.recurs);
    let hold = expectations.iter().all(|expectation| expectation.holds)
        && chains.iter().all(|chain| chain.holds);
    let ok = recurs && hold;
    let file = args.file.display().to_string();
    let answer = SimulateReport {
        file,
        duration_ns: duration.as_ns(),
        seed,
        roots,
        chains,
        expectations,
        witness,
        ok,
    };
    args.output.print(&answer, || text(&answer, duration, colored()))?;
    Ok(if ok { Exit::Ok } else { Exit::Failure })
}

fn simulate<'a>(
    root: &Root,
    outline: &'a Outline,
    duration: Span,
    (seed, case): (u64, CostMode),
    files: &mut Files<'_>,
) -> anyhow::Result<(RootSummary, Option<DrawnRoot<'a>>)> {
    let machine = root.tree.build().map_err(|error| anyhow::anyhow!("{}", error.kind))?;
    let mut seen = files.recorder(outline, &machine, duration);
    let world = Simulation::new(machine, root.tree.cpus, &root.workload(seed));
    let mut world = world.with_cost_mode(case).with_environment(&root.surroundings);
    let end = Time::ZERO + duration;
    let unfinished = seen.run(&mut world, end);
    if let Some(error) = seen.failed.take() {
        return Err(error).context("cannot write the jobs");
    }
    Ok(run_summary::summarize(outline, seen, unfinished, end))
}

/// Simulates a system whose modes change at the requests of `--switch`.
fn run_with_switches(args: &SimulateArgs, system: &System) -> anyhow::Result<Exit> {
    let find = |name: &str| {
        let unknown = || system.clone().in_mode(name).err().unwrap_or_default();
        let mode = system.modes.iter().find(|mode| mode.name == name);
        mode.map(|mode| (mode.name.as_str(), &mode.system)).ok_or_else(|| usage(unknown()))
    };
    let initial = match (&args.mode, system.modes.iter().find(|mode| mode.initial)) {
        (None, Some(mode)) => (mode.name.as_str(), &mode.system),
        (name, _) => find(name.as_deref().unwrap_or(&args.switch[0].1))?,
    };
    if !args.switch.is_sorted_by_key(|request| request.0) {
        return Err(usage("--switch: write the requests in the order of time"));
    }
    let mut requests: Vec<Request<'_>> = Vec::new();
    for (time, name) in &args.switch {
        let (name, system) = find(name)?;
        requests.push((Time::ZERO + *time, name, system));
    }
    let duration = args.duration.unwrap_or(system.duration);
    let all = system.modes.iter().map(|mode| {
        let roots = mode.system.roots.iter();
        roots.map(|root| estimated_events(root, duration.as_ns())).fold(0, u64::saturating_add)
    });
    // Each part is simulated twice.
    let events = all.max().unwrap_or(0).saturating_mul(2);
    if let Some(refused) = args.limit.announce(events, duration, args.output.json)? {
        return Ok(refused);
    }
    let (seed, end) = (args.seed.unwrap_or(system.seed), Time::ZERO + duration);
    let mut parts: Vec<Part> = Vec::new();
    for number in 0..system.roots.len() {
        let seed = root_seed(seed, number);
        parts.extend(switches::parts(initial, number, &requests, seed, end)?);
    }
    let mut outlines = Vec::new();
    for Part { root, about, from, to, .. } in &parts {
        let machine = root.tree.build().map_err(|error| anyhow::anyhow!("{}", error.kind))?;
        let RunPart { mode, requested_ns, .. } = about;
        let request = requested_ns
            .map_or_else(String::new, |ns| format!(", requested at {}", run_summary::short(ns)));
        let (from, to) = (run_summary::short(from.as_ns()), run_summary::short(to.as_ns()));
        let name = format!("{} in {mode} from {from} to {to}{request}", root.name);
        // The frames of a part begin at its start, and not at the start of the run.
        outlines.push(Outline { name, tables: Vec::new(), ..Outline::of(root, &machine) });
    }
    let mut files = Files::create(&args.files)?;
    let (mut roots, mut drawn, mut expectations) = (Vec::new(), Vec::new(), Vec::new());
    for (part, outline) in parts.iter().zip(&outlines) {
        let (mut answer, picture) = simulate_part(part, outline, duration, &mut files)?;
        let (_, of_mode) = find(&part.about.mode)?;
        let is_here = |of: &&Expectation| part.root.tasks.iter().any(|task| of.is_about(task));
        let here: Vec<Expectation> = of_mode.expectations.iter().filter(is_here).cloned().collect();
        let answers = std::slice::from_ref(&answer);
        expectations.extend(run_summary::check_expectations(&here, answers));
        answer.name.clone_from(&part.root.name);
        drawn.extend(picture);
        roots.push(answer);
    }
    let name = args.file.file_name().unwrap_or_default().to_string_lossy();
    files.finish(format!("{name}, simulated"), seed, duration, drawn, &[])?;
    let ok = expectations.iter().all(|expectation| expectation.holds);
    let file = args.file.display().to_string();
    let answer =
        SwitchedReport { file, duration_ns: duration.as_ns(), seed, roots, expectations, ok };
    args.output.print(&answer, || switched_text(&answer, colored()))?;
    Ok(if ok { Exit::Ok } else { Exit::Failure })
}

fn simulate_part<'a>(
    part: &Part,
    outline: &'a Outline,
    duration: Span,
    files: &mut Files<'_>,
) -> anyhow::Result<(RootSummary, Option<DrawnRoot<'a>>)> {
    let root = &part.root;
    let machine = root.tree.build().map_err(|error| anyhow::anyhow!("{}", error.kind))?;
    let start = part.from.since(Time::ZERO);
    let mut seen = files.recorder(outline, &machine, duration).starting_at(start);
    let world = Simulation::new(machine, root.tree.cpus, &root.workload(part.seed));
    let mut world = world.with_environment(&root.surroundings);
    let unfinished = seen.run(&mut world, Time::ZERO + part.to.since(part.from));
    if let Some(error) = seen.failed.take() {
        return Err(error).context("cannot write the jobs");
    }
    let pending = unfinished.len() as u64;
    let (mut answer, picture) = run_summary::summarize(outline, seen, unfinished, part.to);
    answer.part = Some(RunPart { pending, ..part.about.clone() });
    Ok((answer, picture))
}

fn switched_text(answer: &SwitchedReport, color: bool) -> String {
    let mut out = String::new();
    for root in &answer.roots {
        let Some(part) = &root.part else { continue };
        let short = run_summary::short;
        let (from, to) = (short(part.from_ns), short(part.to_ns));
        let request = part.requested_ns.map_or_else(String::new, |requested| {
            let delay = short(part.from_ns.saturating_sub(requested));
            format!(", requested at {} ({delay} before)", short(requested))
        });
        let _ = writeln!(out, "{} in mode {} from {from} to {to}{request}", root.name, part.mode);
        out.push_str(&run_summary::table(root));
        if let Some(cause) = part.until {
            let pending = match part.pending {
                0 => "no job is pending".to_owned(),
                jobs => format!("{} pending, and do not continue", count(jobs as usize, "job")),
            };
            let _ = writeln!(out, "switch at {to}: {cause}; {pending}");
        }
    }
    out.push_str(&run_summary::verdicts(&answer.expectations, color));
    out
}

fn text(answer: &SimulateReport, duration: Span, color: bool) -> String {
    let mut out = String::new();
    for root in &answer.roots {
        let cpus = count(root.cpus as usize, "CPU");
        let _ = writeln!(
            out,
            "{} on {cpus}, {duration} simulated with seed {}",
            root.name, answer.seed
        );
        out.push_str(&run_summary::table(root));
    }
    out.push_str(&run_summary::chain_lines(&answer.chains, color));
    out.push_str(&run_summary::verdicts(&answer.expectations, color));
    if let Some(witness) = &answer.witness {
        let (word, tone) = if witness.recurs {
            ("as the witness says", Tone::Good)
        } else {
            ("not again", Tone::Bad)
        };
        let _ = writeln!(out, "{}: {}", paint(word, tone, color), witness.late);
    }
    out
}
