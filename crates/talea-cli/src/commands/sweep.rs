//! `talea sweep`: simulates or executes one system over a grid of values.

use super::generate::{self, GenerationArgs};
use crate::broker_client::Options;
use crate::reserve::reserve;
use anyhow::Context;
use clap::Args as ClapArgs;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use talea_config::diagnostic::Diagnostic;
use talea_core::Span;
use talea_core::mutate;
use talea_study::batch;
use talea_study::exit::{Exit, invalid_file, not_executable, usage};
use talea_study::live_run;
use talea_study::options::parts;
use talea_study::sweep::axis::{Axis, AxisTarget};
use talea_study::sweep::measure::{self, RunMeasurement};
use talea_study::sweep::{edit, show};
use talea_study::system_file::{file_includes, print_warnings, read_text};
use talea_system::{self as system, Beside, Include, System, folded};
use toml_edit::DocumentMut;

/// Maximum number of runs of a grid.
const MAX_RUNS: u64 = 10_000_000;

/// Simulate or execute a system over a grid of values.
///
/// Every axis is a list of values, and every combination of them is a point of the grid: --set for
/// any key of the file, --policy for the policy of its roots, --tasks and --utilization for drawn
/// tasks that are added to it. Each point is run with every seed and every drawn set, the same ones
/// at every point. Values are lists such as 1ms,2ms or ranges such as 0.1..1/0.1. The same grid
/// gives the same bytes, with any number of threads.
#[derive(ClapArgs, Debug)]
#[command(
    after_help = "Example: talea sweep cpu.toml --policy edf,rm --utilization 0.5..1/0.05 --sets 100 --svg u.svg"
)]
pub(crate) struct Args {
    /// The system file.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// An axis: the path of a key, and its values, such as task.video.cost=1ms,2ms.
    ///
    /// One of several tables is selected by its name (a slot by its owner), by a prefix of several
    /// names with *, or by its number from 0. A value is read as TOML, or else as text:
    /// scheduler.net.budget=1ms..5ms/1ms.
    #[arg(long = "set", value_name = "KEY=VALUES", value_parser = Axis::key)]
    set: Vec<Axis>,
    /// An axis: the policy of all roots.
    #[arg(long, value_name = "LIST")]
    policy: Option<String>,
    /// Number of drawn tasks, as a number or an axis.
    #[arg(long, value_name = "VALUES", requires = "utilization")]
    tasks: Option<String>,
    /// Sum of the utilisations of the drawn tasks, as a number or an axis.
    #[arg(long, value_name = "VALUES", requires = "tasks")]
    utilization: Option<String>,
    /// Sets drawn from each seed.
    #[arg(
        long, value_name = "N", default_value_t = 1, requires = "utilization",
        value_parser = clap::value_parser!(u32).range(1..=1_000_000)
    )]
    sets: u32,
    /// Scheduler of the drawn tasks; by default the only root.
    #[arg(long, value_name = "NAME", requires = "utilization")]
    into: Option<String>,
    /// Seeds of the runs, such as 1..20; by default the file's.
    #[arg(long, value_name = "LIST", value_parser = seeds)]
    seeds: Option<Seeds>,
    /// How long to run, instead of what the file says.
    #[arg(
        long,
        visible_alias = "for",
        value_name = "DURATION",
        value_parser = talea_study::options::run_length
    )]
    duration: Option<Span>,
    #[command(flatten)]
    means: Means,
    /// Write every run to FILE.
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Write a plot to FILE: a numeric axis to the right, a line for each combination of the
    /// others.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Plotted value.
    #[arg(long, value_enum, default_value = "late", requires = "svg")]
    show: show::PlottedValue,
    #[command(flatten)]
    output: talea_study::options::Output,
    #[command(flatten)]
    draw: GenerationArgs,
}

/// Means of the runs.
#[derive(ClapArgs, Debug)]
struct Means {
    /// Execute each run on real threads, one after the other, and report both overheads.
    #[arg(long, conflicts_with = "threads")]
    execute: bool,
    /// Number of threads; by default one per CPU.
    #[arg(long, value_name = "N")]
    threads: Option<std::num::NonZeroUsize>,
}

/// List of seeds.
#[derive(Clone, Debug)]
struct Seeds(Vec<u64>);

fn seeds(text: &str) -> Result<Seeds, String> {
    let seed = |text: &String| match text.parse::<u32>() {
        Ok(seed) => Ok(u64::from(seed)),
        Err(_) => Err(format!("`{text}` is no seed: seeds are whole numbers up to 4294967295")),
    };
    talea_study::sweep::axis::values(text)?.iter().map(seed).collect::<Result<_, _>>().map(Seeds)
}

/// Texts of the files of a system, read once.
struct SystemTexts {
    origin: String,
    /// `texts[name]`: text of the file with this name.
    texts: BTreeMap<String, String>,
}

/// Resolver that keeps the texts that it reads.
struct KeepingReader(RefCell<BTreeMap<String, String>>);

impl Include for KeepingReader {
    fn text(&self, from: &str, path: &str) -> Result<(String, String), String> {
        let (origin, text) = file_includes().text(from, path)?;
        self.0.borrow_mut().insert(origin.clone(), text.clone());
        Ok((origin, text))
    }
}

/// Texts in memory, edited for one point of the grid.
struct EditedTexts<'a> {
    texts: &'a SystemTexts,
    /// Edited locations and their values.
    changes: &'a [(&'a [EditLocation], &'a str)],
}

impl EditedTexts<'_> {
    fn changed(&self, origin: &str) -> Option<String> {
        let text = self.texts.texts.get(origin)?;
        // The reader of the file reports invalid TOML.
        let Ok(mut document) = text.parse::<DocumentMut>() else { return Some(text.clone()) };
        for (spots, value) in self.changes {
            for spot in spots.iter().filter(|spot| spot.origin == origin) {
                edit::set(&mut document, &spot.place, value);
            }
        }
        Some(document.to_string())
    }
}

impl Include for EditedTexts<'_> {
    fn text(&self, from: &str, path: &str) -> Result<(String, String), String> {
        let changed = |path: &Path| self.changed(&path.display().to_string());
        Beside(|path: &Path| changed(path).ok_or_else(|| "it was not there before".into()))
            .text(from, path)
    }
}

/// Location in one of the texts.
struct EditLocation {
    origin: String,
    place: edit::Place,
}

/// Grid of values.
struct Grid<'a> {
    args: &'a Args,
    texts: SystemTexts,
    axes: Vec<Axis>,
    /// `spots[axis]`: locations that the axis changes. No two axes change the same location.
    spots: Vec<Vec<EditLocation>>,
}

/// Reason why a point cannot be run.
enum PointError {
    /// The file with the values of the point is invalid.
    File(Vec<Diagnostic>),
    /// The tasks could not be drawn.
    Drawn(String),
}

pub(crate) fn run(options: &Options, args: &Args) -> anyhow::Result<Exit> {
    let reader = KeepingReader(RefCell::default());
    let text = read_text(&args.file)?;
    // Named as an include would name it, so that its text exists once.
    let origin = folded(&args.file).display().to_string();
    // Errors of the file itself are reported before those of the grid. Without drawn tasks it may
    // have none.
    let read = system::read(&text, &origin, &reader);
    let mut texts = reader.0.into_inner();
    texts.insert(origin.clone(), text);
    print_warnings(&read.map_err(invalid_file)?);
    let grid = grid(args, SystemTexts { origin, texts }).map_err(usage)?;
    sweep(options, &grid).map_err(|error| live_run::refused_file(error, &args.file))
}

fn grid(args: &Args, texts: SystemTexts) -> Result<Grid<'_>, String> {
    let mut axes = args.set.clone();
    for (what, list) in [
        (AxisTarget::Policy, &args.policy),
        (AxisTarget::Tasks, &args.tasks),
        (AxisTarget::Utilization, &args.utilization),
    ] {
        if let Some(list) = list {
            let axis =
                Axis::of(what.clone(), list).map_err(|why| format!("--{}: {why}", what.word()))?;
            axes.push(axis);
        }
    }
    let mut spots: Vec<Vec<EditLocation>> = Vec::new();
    for (at, axis) in axes.iter().enumerate() {
        if axes[..at].iter().any(|other| other.name() == axis.name()) {
            return Err(format!("{} is an axis twice", axis.name()));
        }
        let own = spots_of(&axis.target, &texts)?;
        let is_own = |old: &&EditLocation| {
            own.iter().any(|new| new.origin == old.origin && new.place.is_same(&old.place))
        };
        let shared =
            axes.iter().zip(&spots).find_map(|(axis, old)| Some((axis, old.iter().find(is_own)?)));
        if let Some((other, spot)) = shared {
            return Err(format!(
                "{} and {} are axes of the same place in {}; leave one of them out",
                other.name(),
                axis.name(),
                spot.origin
            ));
        }
        spots.push(own);
    }
    Ok(Grid { args, texts, axes, spots })
}

/// Returns the locations that an axis changes.
fn spots_of(what: &AxisTarget, texts: &SystemTexts) -> Result<Vec<EditLocation>, String> {
    let mut spots = Vec::new();
    for (origin, text) in &texts.texts {
        let Ok(document) = text.parse::<DocumentMut>() else { continue };
        let places = match what {
            AxisTarget::Key(path) => edit::places(&document, path),
            AxisTarget::Policy => edit::policies(&document),
            AxisTarget::Tasks | AxisTarget::Utilization => Vec::new(),
        };
        spots
            .extend(places.into_iter().map(|place| EditLocation { origin: origin.clone(), place }));
    }
    let AxisTarget::Key(path) = what else { return Ok(spots) };
    if spots.is_empty() {
        return Err(format!(
            "--set {path}: there is no such place in {}; a path is like task.NAME.cost, scheduler.NAME.policy or duration",
            texts.origin
        ));
    }
    if spots.iter().any(|spot| !spot.place.is_numbered) {
        spots.retain(|spot| !spot.place.is_numbered);
    } else if let Some(other) = spots.iter().find(|spot| spot.origin != spots[0].origin) {
        return Err(format!(
            "--set {path}: {} and {} both have a table of this number; use its name",
            spots[0].origin, other.origin
        ));
    }
    Ok(spots)
}

impl Grid<'_> {
    /// Returns the number of points.
    fn points(&self) -> u64 {
        self.axes.iter().map(|axis| axis.values.len() as u64).fold(1, u64::saturating_mul)
    }

    /// Returns the value indices of a point. The last axis changes fastest.
    fn values(&self, point: usize) -> Vec<usize> {
        let mut rest = point;
        let mut values: Vec<usize> = self
            .axes
            .iter()
            .rev()
            .map(|axis| {
                let value = rest % axis.values.len();
                rest /= axis.values.len();
                value
            })
            .collect();
        values.reverse();
        values
    }

    /// Returns the system at these values. `None` for an axis keeps the file's value.
    fn system(&self, values: &[Option<usize>], seed: u64, set: u32) -> Result<System, PointError> {
        let mut changes = Vec::new();
        let (mut tasks, mut total) = (None, None);
        for ((axis, spots), value) in self.axes.iter().zip(&self.spots).zip(values) {
            // Drawing tasks needs a number and a sum: the first values are the defaults.
            let drawn = matches!(axis.target, AxisTarget::Tasks | AxisTarget::Utilization);
            let Some(value) = value.or(drawn.then_some(0)) else { continue };
            let value = &axis.values[value];
            changes.push((spots.as_slice(), value.as_str()));
            match &axis.target {
                AxisTarget::Tasks => tasks = Some(value),
                AxisTarget::Utilization => total = Some(value),
                AxisTarget::Key(_) | AxisTarget::Policy => {}
            }
        }
        let changed = EditedTexts { texts: &self.texts, changes: &changes };
        let mut text = changed.changed(&self.texts.origin).unwrap_or_default();
        if let (Some(tasks), Some(total)) = (tasks, total) {
            let wrong = |why: &str| PointError::Drawn(why.to_owned());
            let count = tasks.parse().map_err(|_| wrong("a number of tasks is a whole number"))?;
            let total = parts(total).map_err(|why| wrong(&why))?;
            let spec = self.args.draw.spec(count, total).map_err(|why| wrong(&why.to_string()))?;
            let drawn = talea_sim::generate::generate(&spec, seed, u64::from(set));
            for (number, task) in drawn.map_err(|why| wrong(&why.to_string()))?.iter().enumerate() {
                text.push_str(&generate::text(number, task, self.args.into.as_deref()));
            }
        }
        system::read(&text, &self.texts.origin, &changed).map_err(PointError::File)
    }

    /// Describes the error of a point, with the single axis that causes it, if there is one.
    fn describe_error(&self, values: &[usize], wrong: &PointError, seed: u64) -> String {
        let option = |at: usize| self.axes[at].option(&self.axes[at].values[values[at]]);
        let alone = (0..self.axes.len()).find(|&at| {
            let mut one = vec![None; self.axes.len()];
            one[at] = Some(values[at]);
            self.system(&one, seed, 0).is_err()
        });
        let options = match alone {
            Some(at) => option(at),
            None => (0..self.axes.len()).map(option).collect::<Vec<_>>().join(" "),
        };
        match wrong {
            PointError::Drawn(why) => format!("{options}: {why}"),
            PointError::File(found) => {
                let first = found.iter().find(|found| found.is_error()).map(ToString::to_string);
                format!("{options}: {}", first.unwrap_or_default())
            }
        }
    }
}

/// Executes a system on the CPUs that it gets by default.
fn execute(
    options: &Options,
    system: &System,
    duration: Span,
    seed: u64,
) -> anyhow::Result<RunMeasurement> {
    if system.roots.iter().any(|root| root.programs.iter().any(Option::is_some)) {
        let why = "a grid executes generated work, and a task of the file is a program";
        return Err(not_executable(why));
    }
    let places = live_run::place(system, None)?;
    let estimates = live_run::estimate_rate(system, duration, seed)?;
    let _reserved = reserve(options, &places, false)?;
    measure::execute(system, duration, seed, &places, &estimates)
}

fn sweep(options: &Options, grid: &Grid<'_>) -> anyhow::Result<Exit> {
    let args = grid.args;
    let fixed: Vec<Option<usize>> = vec![None; grid.axes.len()];
    let first = match grid.system(&fixed, 1, 0) {
        Ok(system) => system.seed,
        // The error occurs with every seed and is reported below.
        Err(_) => 1,
    };
    let seeds = args.seeds.as_ref().map_or_else(|| vec![first], |seeds| seeds.0.clone());
    let per_point = seeds.len() as u64 * u64::from(args.sets);
    let runs = grid.points().saturating_mul(per_point);
    if runs > MAX_RUNS {
        return Err(usage(format!(
            "{} points of {per_point} runs each are more than {MAX_RUNS} runs",
            grid.points()
        )));
    }
    if args.svg.is_some() && show::x_axis(&grid.axes).is_none() {
        return Err(usage(
            "--svg needs an axis with several numbers, such as --utilization 0.1..1/0.1",
        ));
    }
    let points = grid.points() as usize;
    // Checks every value once, with the first values of the other axes, before any run. Errors of
    // other combinations appear during the runs.
    let mut probes = vec![vec![0; grid.axes.len()]];
    for (at, axis) in grid.axes.iter().enumerate() {
        for value in 1..axis.values.len() {
            let mut values = vec![0; grid.axes.len()];
            values[at] = value;
            probes.push(values);
        }
    }
    for values in probes {
        let some: Vec<Option<usize>> = values.iter().copied().map(Some).collect();
        if let Err(wrong) = grid.system(&some, seeds[0], 0) {
            return Err(usage(grid.describe_error(&values, &wrong, seeds[0])));
        }
    }
    let threads = match args.means.threads {
        // Real runs need the CPUs for themselves.
        _ if args.means.execute => 1,
        Some(threads) => threads.get(),
        None => batch::threads(),
    };
    let one = |number: usize| -> anyhow::Result<(u64, u32, RunMeasurement)> {
        let (point, run) = (number as u64 / per_point, number as u64 % per_point);
        let (seed, set) =
            (seeds[(run / u64::from(args.sets)) as usize], (run % u64::from(args.sets)) as u32);
        let values = grid.values(point as usize);
        let some: Vec<Option<usize>> = values.iter().copied().map(Some).collect();
        let system = grid
            .system(&some, seed, mutate!("sweep-sets", set, 0))
            .map_err(|wrong| usage(grid.describe_error(&values, &wrong, seed)))?;
        let duration = args.duration.unwrap_or(system.duration);
        let seen = if args.means.execute {
            execute(options, &system, duration, seed)?
        } else {
            measure::run(&system, duration, seed)?
        };
        Ok((seed, set, seen))
    };
    let what = format!("{points} points, {runs} runs");
    let results: anyhow::Result<Vec<_>> =
        batch::run_on(threads, &what, runs as usize, one).into_iter().collect();
    let mut results = results?.into_iter();
    let points: Vec<show::Point> = (0..points)
        .map(|point| show::Point {
            values: grid
                .values(point)
                .iter()
                .zip(&grid.axes)
                .map(|(&at, axis)| axis.values[at].clone())
                .collect(),
            runs: results.by_ref().take(per_point as usize).collect(),
        })
        .collect();
    let write = |path: &PathBuf, text: String| {
        std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
    };
    if let Some(path) = &args.csv {
        write(path, show::csv(&grid.axes, &points))?;
    }
    if let Some(path) = &args.svg {
        let how = if args.means.execute { "executed" } else { "simulated" };
        let title =
            format!("{}, {how}", args.file.file_name().unwrap_or_default().to_string_lossy());
        let svg =
            show::svg(&grid.axes, &points, args.show, &title).context("an axis of numbers")?;
        write(path, svg)?;
    }
    let duration = args.duration.map(Span::as_ns);
    let answer = show::answer(grid.texts.origin.clone(), duration, &grid.axes, &points);
    args.output.print(&answer, || show::table(&grid.axes, &points))?;
    Ok(Exit::Ok)
}
