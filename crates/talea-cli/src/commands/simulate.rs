//! `talea simulate`: runs a described system under a simulated clock.

use crate::args::SimulateArgs;
use anyhow::Context;
use serde::Serialize;
use std::fmt::Write as _;
use talea_core::workload::CostMode;
use talea_core::{Span, Time};
use talea_sim::Simulation;
use talea_sim::rng::root_seed;
use talea_study::event_count::estimated_events;
use talea_study::exit::{Exit, usage};
use talea_study::output::{Tone, colored, count, paint};
use talea_study::report::{DrawnRoot, Outline};
use talea_study::run_summary::{self, ChainSummary, ExpectationResult, Files, RootSummary};
use talea_study::system_file::load;
use talea_study::witness::{LateJob, Witness};
use talea_system::Root;

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
