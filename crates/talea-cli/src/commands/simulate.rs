//! `talea simulate`: what would this system do?

use crate::args::SimulateArgs;
use crate::exit::Exit;
pub(crate) use crate::outcome::short;
use crate::outcome::{self, ExpectationAnswer, Files, RootAnswer};
use crate::output::{Tone, colored, count, note, paint, print, print_json};
use crate::report::{Drawn, Outline};
use crate::witness::{Late, Witness};
use anyhow::Context;
use serde::Serialize;
use std::fmt::Write as _;
use std::fs::File;
use std::path::Path;
use talea_core::mutate;
use talea_core::workload::Case;
use talea_core::{Span, Time};
use talea_sim::World;
use talea_sim::dice::of_root;
use talea_system::Diagnostic;
use talea_system::config::FILE_MAX;
use talea_system::system::{self, Beside, Include, Root, System};

#[derive(Serialize)]
struct Answer {
    file: String,
    duration_ns: u64,
    seed: u64,
    roots: Vec<RootAnswer>,
    expectations: Vec<ExpectationAnswer>,
    #[serde(skip_serializing_if = "Option::is_none")]
    witness: Option<WitnessAnswer>,
    ok: bool,
}

/// Whether the job of a witness is late again.
#[derive(Serialize)]
struct WitnessAnswer {
    recurs: bool,
    late: Late,
    /// When it ended; nothing if it did not by then.
    end_ns: Option<u64>,
}

/// Files beside the file that names them.
pub(crate) fn beside() -> impl Include {
    Beside(included)
}

/// The text of a part. Who runs a file may hand it over through a pipe; what it names must be there
/// as it is: a pipe or a terminal would be waited for, and a description that can't be read again
/// is none.
pub(crate) fn included(path: &Path) -> Result<String, String> {
    // Followed, as it is opened. Whoever swaps it in between waits for himself.
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
        _ => text(path).map_err(|error| format!("{error:#}")),
    }
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

/// Reads a system file, with what it includes; what somebody should look at is said.
pub(crate) fn load(path: &Path) -> anyhow::Result<Result<System, Vec<Diagnostic>>> {
    Ok(system::read(&text(path)?, &path.display().to_string(), &beside()).inspect(warn))
}

/// Says what somebody should look at, where it gets into nobody's data.
pub(crate) fn warn(system: &System) {
    eprint!("{}", talea_system::diagnostic::render(&system.warnings, false));
}

/// As [`load`]; `None` when what is wrong with the file has been said.
pub(crate) fn load_or_say(path: &Path) -> anyhow::Result<Option<System>> {
    Ok(load(path)?
        .map_err(|diagnostics| eprint!("{}", talea_system::diagnostic::render(&diagnostics, false)))
        .ok())
}

pub(crate) fn run(args: &SimulateArgs) -> anyhow::Result<Exit> {
    let Some(mut system) = load_or_say(&args.file)? else { return Ok(Exit::Usage) };
    let witness = match args.witness.as_deref().map(Witness::read).transpose()? {
        None => None,
        Some(read) => match read.and_then(|witness| witness.arrange(&mut system).map(|()| witness))
        {
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
    let outlines = system.roots.iter().map(outcome::outline).collect::<anyhow::Result<Vec<_>>>()?;
    let (mut roots, mut drawn) = (Vec::new(), Vec::new());
    for (number, (root, outline)) in system.roots.iter().zip(&outlines).enumerate() {
        let seed = witness.as_ref().map_or(of_root(seed, number), Witness::seed);
        let case = if witness.is_some() { Case::Worst } else { Case::Drawn };
        let (answer, picture) = simulate(root, outline, duration, (seed, case), &mut files)?;
        roots.push(answer);
        drawn.extend(picture);
    }
    let title =
        format!("{}, simulated", args.file.file_name().unwrap_or_default().to_string_lossy());
    files.finish(title, seed, duration, drawn)?;
    let expectations = outcome::judge(&system.expectations, &roots);
    let witness = witness.map(|witness| {
        let (recurs, end_ns) = witness.recurs(&system.roots[0])?;
        anyhow::Ok(WitnessAnswer { recurs, late: witness.late, end_ns })
    });
    let witness = witness.transpose()?;
    let recurs = witness.as_ref().is_none_or(|witness| witness.recurs);
    let ok = recurs && expectations.iter().all(|expectation| expectation.holds);
    let file = args.file.display().to_string();
    let answer =
        Answer { file, duration_ns: duration.as_ns(), seed, roots, expectations, witness, ok };
    if args.output.json {
        print_json(&answer)?;
    } else {
        print(&report(&answer, duration, colored()))?;
    }
    Ok(if ok { Exit::Ok } else { Exit::Failure })
}

fn simulate<'a>(
    root: &Root,
    outline: &'a Outline,
    duration: Span,
    (seed, case): (u64, Case),
    files: &mut Files<'_>,
) -> anyhow::Result<(RootAnswer, Option<Drawn<'a>>)> {
    let machine = root.tree.build().map_err(|error| anyhow::anyhow!("{}", error.why))?;
    let mut seen = files.seen(outline, &machine, duration);
    let world = World::new(machine, root.tree.cpus, &root.workload(seed));
    let mut world = world.with_case(case).within(&root.surroundings);
    let end = Time::ZERO + duration;
    let unfinished = seen.watch(&mut world, end);
    if let Some(error) = seen.failed.take() {
        return Err(error).context("cannot write the jobs");
    }
    Ok(outcome::answer(outline, seen, unfinished, end))
}

fn report(answer: &Answer, duration: Span, color: bool) -> String {
    let mut out = String::new();
    for root in &answer.roots {
        let cpus = count(root.cpus as usize, "CPU");
        let _ = writeln!(
            out,
            "{} on {cpus}, {duration} simulated with seed {}",
            root.name, answer.seed
        );
        out.push_str(&outcome::table(root));
    }
    out.push_str(&outcome::verdicts(&answer.expectations, color));
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
