//! `talea compare`: do bound, simulation and real threads agree?

mod told;

use crate::args::{Output, task};
use crate::compare::Tolerance;
use crate::compare::disturbed::Disturbed;
use crate::compare::judge::{Findings, Promised, judge};
use crate::compare::lives::Lives;
use crate::compare::model::{Bound, Despite, Model, model};
use crate::exit::Exit;
use crate::measured::{
    self, Measured, Mechanism, Places, Refused, Setup, Sketch, Spending, place, remark, sketch,
    with_changes,
};
use crate::output::{colored, print, print_json};
use crate::report::{Drawn, Outline, Picture, html};
use crate::{commands, outcome};
use anyhow::Context;
use std::path::PathBuf;
use talea_core::machine::Body;
use talea_core::mutate;
use talea_core::{CpuSet, Span, Time};
use talea_exec::native::Promise;
use talea_exec::{Fate, RootReport};
use talea_sim::World;
use talea_sim::dice::of_root;
use talea_system::system::{Root, System};
use told::{Answer, RootAnswer, RunAnswer};

/// Hold bound, simulation and real threads against each other.
///
/// Analyzes, simulates and executes a described system, and says of each task what it may take at
/// most, what it takes in a simulation, and what it has taken on real threads. Jobs that a hole of
/// the machine has touched are counted and left out. Ends with 0 if a real run agrees: it is in the
/// order that all simulations within reason have in common, each job ends when one of them says,
/// and none takes longer than its bound, each up to the tolerance; with 1 if something contradicts;
/// with 6 if the machine has disturbed too much to say anything; with 3 if the system can't be
/// executed here.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Example: talea compare system.toml --duration 2s --repeat 3 --html compared.html"
)]
pub(crate) struct CompareArgs {
    /// The system file.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// How long each run is, instead of what the file says.
    #[arg(long, visible_alias = "for", value_name = "DURATION", value_parser = task::run_length)]
    duration: Option<Span>,
    /// Execute it so many times, and judge all that is conclusive together.
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u32).range(1..=1_000))]
    repeat: u32,
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
    /// By how much a real response may differ; two hundredths of the response come on top.
    #[arg(long, value_name = "DURATION", default_value = "2ms", value_parser = task::duration)]
    tolerance: Span,
    /// Write a page with the schedules, the simulated and the last measured one under each other,
    /// to FILE.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    #[command(flatten)]
    output: Output,
}

/// Of a response.
const SHARE: u64 = 20;

/// What stays the same in all runs.
struct Stage<'a> {
    system: &'a System,
    places: &'a Places,
    sketches: Vec<Sketch>,
    models: Vec<Model>,
    despite: Vec<Despite<'a>>,
    outlines: &'a [Outline],
    seed: u64,
    duration: Span,
    tolerance: Tolerance,
}

pub(crate) fn run(args: &CompareArgs) -> anyhow::Result<Exit> {
    let Some(system) = commands::simulate::load_or_say(&args.file)? else { return Ok(Exit::Usage) };
    let duration = args.duration.unwrap_or(system.duration);
    let seed = args.seed.unwrap_or(system.seed);
    let places = match place(&system, args.cpus.as_ref()) {
        Ok(places) => places,
        Err(why) => return Ok(measured::refuse(&args.file, &why)),
    };
    let sketches = sketch(&system, duration, seed)?;
    remark(&system, &places, &sketches, duration);
    let outlines = system.roots.iter().map(outcome::outline).collect::<anyhow::Result<Vec<_>>>()?;
    let end = Time::ZERO + duration;
    let of = |(number, root): (usize, &Root)| model(root, of_root(seed, number), end);
    let mut models = system.roots.iter().enumerate().map(of).collect::<anyhow::Result<Vec<_>>>()?;
    for (model, root) in models.iter_mut().zip(&system.roots) {
        leave_to_programs(model, root);
    }
    let tolerance = Tolerance { least: args.tolerance, share: SHARE };
    let outlines = &outlines;
    let places = &places;
    let despite = system.roots.iter().map(|root| Despite::new(root, tolerance.least)).collect();
    let stage = Stage {
        system: &system,
        places,
        sketches,
        models,
        despite,
        outlines,
        seed,
        duration,
        tolerance,
    };
    let mut runs: Vec<RunAnswer> = Vec::new();
    let mut findings: Vec<Vec<Findings>> = vec![Vec::new(); system.roots.len()];
    let mut last = None;
    for _ in 0..args.repeat {
        let measured = match execute(args, &stage)? {
            Ok(measured) => measured,
            Err(Refused(why)) => return Ok(measured::refuse(&args.file, &why)),
        };
        if let Some(why) = never_as_ordered(&system, &measured) {
            return Ok(measured::refuse(&args.file, &why));
        }
        let found = stage.judge(&measured)?;
        runs.push(RunAnswer::of(&measured, &found, stage.sketches.as_slice()));
        for (all, found) in findings.iter_mut().zip(found) {
            all.push(found);
        }
        let interrupted = measured.interrupted;
        last = Some(measured);
        if interrupted {
            break;
        }
    }
    let simulated = stage.simulate()?;
    let mut roots = Vec::new();
    for (number, root) in system.roots.iter().enumerate() {
        roots.push(RootAnswer::of(
            root,
            &stage.models[number],
            &simulated[number].0,
            &findings[number],
        ));
    }
    let answer = Answer::new(&args.file, duration, seed, tolerance, roots, runs);
    if let (Some(path), Some(measured)) = (&args.html, &last) {
        let page = stage.page(args, simulated, measured, &answer)?;
        std::fs::write(path, page).with_context(|| format!("cannot write {}", path.display()))?;
    }
    if args.output.json {
        print_json(&answer)?;
    } else {
        print(&told::text(&answer, colored()))?;
    }
    Ok(answer.exit())
}

fn has_programs(root: &Root) -> bool {
    root.programs.iter().any(Option::is_some)
}

/// Takes out of a model what hangs on how programs behave: what is said of themselves, and, if one
/// stands below no server, which would hold it to a budget whatever it does, of everybody.
fn leave_to_programs(model: &mut Model, root: &Root) {
    let nothing = Bound { exactly: None, within_reason: None };
    let are_held = programs_are_held(root);
    for (bound, program) in model.bounds.iter_mut().zip(&root.programs) {
        if program.is_some() || !are_held {
            *bound = nothing;
        }
    }
}

/// Whether a server stands above each program of a root.
pub(super) fn programs_are_held(root: &Root) -> bool {
    let tasks = root.tree.nodes().filter(|(_, node)| matches!(node.body, Body::Task(_)));
    let mut programs = tasks.zip(&root.programs).filter(|(_, program)| program.is_some());
    programs.all(|((id, _), _)| root.tree.above(id).any(|(_, spec)| spec.reservation.is_some()))
}

/// A program that could not be executed at all, or was not what the machine ordered.
fn never_as_ordered(system: &System, measured: &Measured) -> Option<String> {
    let both = system.roots.iter().zip(&measured.report.roots);
    let all = both.flat_map(|(root, real)| root.tasks.iter().zip(&real.programs));
    all.into_iter().find_map(|(task, program)| {
        let program = program.as_ref()?;
        let strayed = program.strayed.as_ref();
        match &program.fate {
            Fate::Failed(why) => {
                Some(format!("the program of {task} could not be executed: {why}"))
            }
            Fate::Killed | Fate::Ended(_) => {
                strayed.map(|what| format!("{task}: {}", measured::says_strayed(what)))
            }
        }
    })
}

fn execute(args: &CompareArgs, stage: &Stage<'_>) -> anyhow::Result<Result<Measured, Refused>> {
    measured::run(&Setup {
        system: stage.system,
        duration: stage.duration,
        seed: stage.seed,
        places: stage.places,
        spending: args.work,
        rights: args.mechanism.rights(measured::Rights::Needed),
        wish: args.mechanism.wish(),
        switches: true,
        sketches: &stage.sketches,
        begin: None,
        bodies: &|_| None,
    })
}

type Simulated<'a> = (outcome::RootAnswer, Option<Drawn<'a>>);

impl<'a> Stage<'a> {
    /// What each root does in a simulation.
    fn simulate(&self) -> anyhow::Result<Vec<Simulated<'a>>> {
        let end = Time::ZERO + self.duration;
        let one = |(number, (root, outline)): (usize, (&Root, &'a Outline))| {
            let machine = root.tree.build().map_err(|error| anyhow::anyhow!("{}", error.why))?;
            let mut seen = outcome::Seen::new(outline, &machine, self.duration, true, None, None);
            let workload = root.workload(of_root(self.seed, number));
            let mut world = with_changes(World::new(machine, root.tree.cpus, &workload), root);
            let unfinished = seen.watch(&mut world, end);
            Ok(outcome::answer(outline, seen, unfinished, end))
        };
        self.system.roots.iter().zip(self.outlines).enumerate().map(one).collect()
    }

    /// Each root of a run.
    fn judge(&self, measured: &Measured) -> anyhow::Result<Vec<Findings>> {
        let end = Time::ZERO + measured.report.length;
        let mut all = Vec::new();
        for (number, (root, real)) in
            self.system.roots.iter().zip(&measured.report.roots).enumerate()
        {
            let lives = Lives::of_any(&root.tree, real, measured.report.length)?;
            let (cpus, holes) = (&self.places[number], &measured.report.holes);
            let stretches = measured::excuses(real, cpus, (holes, measured.report.length));
            let losses = (holes.as_slice(), stretches.as_slice());
            let disturbed = Disturbed::of(&root.tree, cpus, losses, &lives, self.tolerance);
            let promise = match &real.native {
                // When a program wakes is no simulation's business, nor what follows from that.
                None if has_programs(root) => {
                    mutate!("cli-compare-programs", Promised::Bounds, Promised::Order)
                }
                None => Promised::Order,
                Some(course) if course.keeps_order() => Promised::Order,
                Some(course) if matches!(course.promise, Promise::Deadlines(_)) => {
                    Promised::Deadlines
                }
                Some(_) => Promised::Bounds,
            };
            let despite = |task| self.despite[number].of(task);
            let model = &self.models[number];
            let mut found =
                judge(model, despite, &lives, &disturbed, (self.tolerance, promise), end);
            let length = measured.report.length;
            found.kernel = measured::check(real, cpus, (holes, length), self.tolerance.least);
            all.push(found);
        }
        Ok(all)
    }

    /// The simulated and the measured schedule of each root under each other.
    fn page(
        &self,
        args: &CompareArgs,
        simulated: Vec<Simulated<'_>>,
        measured: &Measured,
        answer: &Answer,
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
            roots.extend(picture.map(|picture| Drawn { outline, ..picture }));
            let report = &measured.report;
            let (_, picture) = drawn(root, &real[number], &report.roots[number], report.length)?;
            roots.extend(picture);
        }
        let name = args.file.file_name().unwrap_or_default().to_string_lossy();
        let effort =
            if measured.is_real { "" } else { "; best effort: without real-time priorities" };
        let title = format!("{name}, simulated and measured{effort}");
        let (seed, duration_ns, head) = (self.seed, self.duration.as_ns(), told::rows(answer));
        html(&Picture { title, seed, roots, duration_ns, head })
    }
}

fn drawn<'a>(
    root: &Root,
    outline: &'a Outline,
    real: &RootReport,
    length: Span,
) -> anyhow::Result<(outcome::RootAnswer, Option<Drawn<'a>>)> {
    let mut machine = root.tree.build().map_err(|error| anyhow::anyhow!("{}", error.why))?;
    let seen = outcome::Seen::new(outline, &machine, length, true, None, None);
    measured::tell(&mut machine, outline, real, length, seen)
}
