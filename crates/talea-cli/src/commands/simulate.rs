//! `talea simulate`: runs a described system under a simulated clock.

use crate::args::SimulateArgs;
use crate::exit::Exit;
use crate::output::{Tone, colored, count, note, paint, print, print_json};
use crate::report::{DrawnRoot, Outline};
pub(crate) use crate::run_summary::short;
use crate::run_summary::{self, ExpectationResult, Files, RootSummary};
use crate::witness::{LateJob, Witness};
use anyhow::Context;
use serde::Serialize;
use std::fmt::Write as _;
use std::path::Path;
use talea_config::Diagnostic;
use talea_config::FILE_MAX;
use talea_core::mutate;
use talea_core::workload::CostMode;
use talea_core::{Span, Time};
use talea_os::bounded_read::read_bounded;
use talea_sim::Simulation;
use talea_sim::rng::root_seed;
use talea_system::{self as system, Beside, Include, Root, System};

#[derive(Serialize)]
struct SimulateReport {
    file: String,
    duration_ns: u64,
    seed: u64,
    roots: Vec<RootSummary>,
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

/// Returns the resolver of included files, relative to the including file.
pub(crate) fn file_includes() -> impl Include {
    Beside(read_include)
}

/// Reads an included file. The system file itself may be a pipe. An included file must be regular,
/// because reading a pipe or terminal would block and is not repeatable.
pub(crate) fn read_include(path: &Path) -> Result<String, String> {
    // Follows symbolic links, as opening does. A file that is replaced in between may block only
    // its own user.
    match std::fs::metadata(path) {
        Ok(found)
            if mutate!(
                "cli-include-pipe",
                !found.is_file(),
                found.is_dir() && !found.is_file()
            ) =>
        {
            Err(format!("{} is no regular file", path.display()))
        }
        _ => read_text(path).map_err(|error| format!("{error:#}")),
    }
}

pub(crate) fn read_text(path: &Path) -> anyhow::Result<String> {
    let origin = path.display();
    let bytes = read_bounded(path, FILE_MAX).with_context(|| format!("cannot read {origin}"))?;
    String::from_utf8(bytes).map_err(|_| anyhow::anyhow!("{origin} is not UTF-8 text"))
}

/// Reads a system file with its included files and prints the warnings.
pub(crate) fn load(path: &Path) -> anyhow::Result<Result<System, Vec<Diagnostic>>> {
    Ok(system::read(&read_text(path)?, &path.display().to_string(), &file_includes())
        .inspect(print_warnings))
}

/// Prints the warnings of a system file to standard error, separate from data.
pub(crate) fn print_warnings(system: &System) {
    eprint!("{}", talea_config::diagnostic::render(&system.warnings, false));
}

/// Variant of [`load`] that prints the errors and then returns `None`.
pub(crate) fn load_or_report(path: &Path) -> anyhow::Result<Option<System>> {
    Ok(load(path)?
        .map_err(|diagnostics| eprint!("{}", talea_config::diagnostic::render(&diagnostics, false)))
        .ok())
}

pub(crate) fn run(args: &SimulateArgs) -> anyhow::Result<Exit> {
    let _watch = args.limit.watch(args.output.json)?;
    let Some(mut system) = load_or_report(&args.file)? else { return Ok(Exit::Usage) };
    let witness = match args.witness.as_deref().map(Witness::read).transpose()? {
        None => None,
        Some(read) => match read.and_then(|witness| witness.apply(&mut system).map(|()| witness)) {
            Ok(witness) => Some(witness),
            Err(why) => {
                note(&why);
                return Ok(Exit::Usage);
            }
        },
    };
    let usual = witness.as_ref().map_or(system.duration, Witness::duration);
    let duration = args.duration.unwrap_or(usual);
    let seed = args.seed.unwrap_or(system.seed);
    let mut files = Files::create(&args.files)?;
    let outlines =
        system.roots.iter().map(run_summary::outline).collect::<anyhow::Result<Vec<_>>>()?;
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
    files.finish(title, seed, duration, drawn)?;
    let expectations = run_summary::check_expectations(&system.expectations, &roots);
    let witness = witness.map(|witness| {
        let (recurs, end_ns) = witness.recurs(&system.roots[0])?;
        anyhow::Ok(WitnessReplay { recurs, late: witness.late, end_ns })
    });
    let witness = witness.transpose()?;
    let recurs = witness.as_ref().is_none_or(|witness| witness.recurs);
    let ok = recurs && expectations.iter().all(|expectation| expectation.holds);
    let file = args.file.display().to_string();
    let answer = SimulateReport {
        file,
        duration_ns: duration.as_ns(),
        seed,
        roots,
        expectations,
        witness,
        ok,
    };
    if args.output.json {
        print_json(&answer)?;
    } else {
        print(&text(&answer, duration, colored()))?;
    }
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
