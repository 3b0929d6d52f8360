//! `talea generate`: random task sets as system files.
//!
//! Model: [`talea_sim::generate`] draws the sets, and this module writes them. The first lines of a
//! file state its parameters, so that a user can generate the file again. `talea sweep` has the
//! same options ([`GenerationArgs`]).

#![allow(clippy::cast_precision_loss, reason = "shown")]

use anyhow::Context;
use clap::{Args as ClapArgs, ValueEnum};
use std::fmt::Write as _;
use std::path::PathBuf;
use talea_config::duration::parse_span;
use talea_core::Span;
use talea_sim::generate::dag::{Shape, longest_path};
use talea_sim::generate::{
    self, Bounds, CPU, Deadlines, Graphs, Method, Periods, Spec, Task, decimal,
};
use talea_study::exit::{Exit, usage};
use talea_study::options::{duration, parts, run_length};
use talea_study::output::print;

/// Write random task sets as system files.
///
/// Utilisations of a given sum, periods and deadlines are drawn by algorithms of the literature;
/// the chapter on generated sets names each with its guarantees. The same options and seed give the
/// same files, byte by byte. One set goes to standard output, several go to files.
#[derive(ClapArgs, Debug)]
#[command(
    after_help = "Example: talea generate --tasks 20 --utilization 1.5 --cpus 2 | talea simulate /dev/stdin"
)]
pub(crate) struct Args {
    /// Tasks per set; with --graph, graphs per set.
    #[arg(long, value_name = "N", default_value_t = 10)]
    tasks: usize,
    /// Sum of the utilisations over all CPUs, such as 1.5.
    #[arg(long, value_name = "U", value_parser = parts)]
    utilization: u64,
    /// CPUs that the tasks share.
    #[arg(
        long, value_name = "M", default_value_t = 1,
        value_parser = clap::value_parser!(u32).range(1..=64)
    )]
    cpus: u32,
    /// Scheduling policy.
    #[arg(long, value_enum, default_value = "edf")]
    policy: Policy,
    /// One scheduler per CPU instead of one for all. Tasks are assigned by decreasing utilisation
    /// to the least loaded CPU (worst fit).
    #[arg(long)]
    partitioned: bool,
    /// Length of a run of the file.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = run_length)]
    duration: Span,
    /// Number of sets.
    #[arg(
        long, value_name = "N", default_value_t = 1,
        value_parser = clap::value_parser!(u32).range(1..=100_000)
    )]
    sets: u32,
    /// Destination folder for set-0.toml and so on; required for more than one set.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Seed of all random numbers.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32))]
    seed: u32,
    #[command(flatten)]
    draw: GenerationArgs,
}

/// Policies that need no parameters beside the tasks.
#[derive(ValueEnum, Clone, Copy, Debug)]
enum Policy {
    Edf,
    Rm,
    Dm,
    Fifo,
}

/// Options of the generation.
#[derive(ClapArgs, Debug, Clone)]
#[command(next_help_heading = "How sets are drawn")]
pub(crate) struct GenerationArgs {
    /// Algorithm for utilisations: uunifast-discard, randfixedsum or drs.
    #[arg(long, value_name = "NAME", default_value = "randfixedsum", value_parser = method)]
    method: Method,
    /// Smallest utilisation of a task; for drs and uunifast-discard also one for each task, such as
    /// 0.1,0,0.2.
    #[arg(long, value_name = "U", default_value = "0", value_delimiter = ',', value_parser = parts)]
    min_utilization: Vec<u64>,
    /// Largest utilisation of a task, in the same form. Above 1 for graphs only: a task runs on one
    /// CPU at a time.
    #[arg(long, value_name = "U", default_value = "1", value_delimiter = ',', value_parser = parts)]
    max_utilization: Vec<u64>,
    /// Periods: a range (log-uniform) or a list (each equally likely).
    #[arg(long, value_name = "MIN..MAX|LIST", default_value = "10ms..1s", value_parser = periods)]
    periods: PeriodsArg,
    /// Granularity of periods from a range.
    #[arg(long, value_name = "DURATION", default_value = "1ms", value_parser = duration)]
    granularity: Span,
    /// Deadlines: implicit, or constrained (uniform from the cost to the period). With
    /// constrained:0.7 they begin at seven tenths of the way from the cost to the period.
    #[arg(long, value_name = "implicit|constrained[:FROM]", default_value = "implicit", value_parser = deadlines)]
    deadlines: Deadlines,
    /// Tasks are graphs: erdos-renyi, or layers:N.
    #[arg(long, value_name = "erdos-renyi|layers:N", value_parser = graph)]
    graph: Option<GraphArg>,
    /// Nodes of a graph.
    #[arg(long, value_name = "MIN..MAX", default_value = "5..10", value_parser = range, requires = "graph")]
    nodes: (usize, usize),
    /// The probability of an edge between two nodes that may have one, to a thousandth.
    #[arg(long, value_name = "P", default_value = "0.3", value_parser = thousandths, requires = "graph")]
    edges: u32,
}

/// Periods without their granularity.
#[derive(Debug, Clone, PartialEq, Eq)]
enum PeriodsArg {
    Range(Span, Span),
    List(Vec<Span>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum GraphArg {
    ErdosRenyi,
    Layers(u32),
}

impl GenerationArgs {
    /// Returns the specification of sets with this number of tasks and this total utilisation.
    pub(crate) fn spec(&self, tasks: usize, total: u64) -> anyhow::Result<Spec> {
        let sequential = self.graph.is_none();
        anyhow::ensure!(
            !sequential || self.max_utilization.iter().all(|&most| most <= CPU),
            "--max-utilization is above 1: a task runs on one CPU at a time; with --graph its nodes are several"
        );
        let (least, most) = (&self.min_utilization, &self.max_utilization);
        let count = least.len().max(most.len());
        anyhow::ensure!(
            [least, most].iter().all(|list| list.len() == 1 || list.len() == count),
            "--min-utilization has {} values and --max-utilization {}",
            least.len(),
            most.len()
        );
        let at = |list: &[u64], at: usize| if list.len() == 1 { list[0] } else { list[at] };
        let bounds = (0..count).map(|n| Bounds { min: at(least, n), max: at(most, n) }).collect();
        let periods = match &self.periods {
            &PeriodsArg::Range(min, max) => {
                Periods::LogUniform { min, max, granularity: self.granularity }
            }
            PeriodsArg::List(list) => Periods::List(list.clone()),
        };
        let probability = self.edges;
        let graphs = self.graph.map(|graph| Graphs {
            nodes_min: self.nodes.0,
            nodes_max: self.nodes.1,
            shape: match graph {
                GraphArg::ErdosRenyi => Shape::ErdosRenyi { probability },
                GraphArg::Layers(layers) => Shape::Layered { layers, probability },
            },
        });
        Ok(Spec {
            tasks,
            total,
            bounds,
            method: self.method,
            periods,
            deadlines: self.deadlines,
            graphs,
        })
    }
}

fn method(text: &str) -> Result<Method, String> {
    let words = Method::ALL.map(Method::name);
    let found = Method::ALL.into_iter().find(|method| method.name() == text);
    found.ok_or_else(|| format!("it is one of {}", words.join(", ")))
}

fn periods(text: &str) -> Result<PeriodsArg, String> {
    let span = |text: &str| parse_span(text.trim()).map_err(|error| error.to_string());
    match text.split_once("..") {
        Some((min, max)) => Ok(PeriodsArg::Range(span(min)?, span(max)?)),
        None => text.split(',').map(span).collect::<Result<_, _>>().map(PeriodsArg::List),
    }
}

fn deadlines(text: &str) -> Result<Deadlines, String> {
    match text.split_once(':') {
        None if text == "implicit" => Ok(Deadlines::Implicit),
        None if text == "constrained" => Ok(Deadlines::Constrained { from: 0 }),
        Some(("constrained", from)) => Ok(Deadlines::Constrained { from: thousandths(from)? }),
        _ => Err("write implicit, constrained or, for example, constrained:0.7".to_owned()),
    }
}

fn graph(text: &str) -> Result<GraphArg, String> {
    let layers = |n: &str| n.parse().ok().filter(|&n| n > 0).map(GraphArg::Layers);
    match text.split_once(':') {
        None if text == "erdos-renyi" => Ok(GraphArg::ErdosRenyi),
        Some(("layers", n)) => {
            layers(n).ok_or_else(|| "write the number of layers, such as layers:4".to_owned())
        }
        _ => Err("write erdos-renyi or, for example, layers:4".to_owned()),
    }
}

fn range(text: &str) -> Result<(usize, usize), String> {
    let (min, max) = text.split_once("..").unwrap_or((text, text));
    match (min.parse(), max.parse()) {
        (Ok(min), Ok(max)) => Ok((min, max)),
        _ => Err("write a number, or a range such as 5..10".to_owned()),
    }
}

fn thousandths(text: &str) -> Result<u32, String> {
    let parts = parts(text)?;
    if parts > CPU {
        return Err("it is at most 1".to_owned());
    }
    Ok((parts / (CPU / 1_000)) as u32)
}

/// Writes the sets.
pub(crate) fn run(args: &Args) -> anyhow::Result<Exit> {
    let spec = args
        .draw
        .spec(args.tasks, args.utilization)
        .map_err(|error| usage(format!("{error:#}")))?;
    if args.sets > 1 && args.out.is_none() {
        return Err(usage("several sets need a place: add --out DIR"));
    }
    let digits = (args.sets - 1).to_string().len();
    for number in 0..args.sets {
        // If a set cannot be drawn, the first one cannot be drawn either, except if valid vectors
        // are merely rare.
        let tasks = generate::generate(&spec, u64::from(args.seed), u64::from(number))
            .map_err(|why| usage(why.to_string()))?;
        let text = file(args, &spec, number, &tasks);
        let Some(dir) = &args.out else {
            print(&text)?;
            continue;
        };
        std::fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
        let path = dir.join(format!("set-{number:0digits$}.toml"));
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(Exit::Ok)
}

fn file(args: &Args, spec: &Spec, number: u32, tasks: &[Task]) -> String {
    let mut out = format!(
        "# Set {number} of seed {}, by `talea generate`: {}.\n",
        args.seed,
        describe_spec(spec)
    );
    let sum: f64 =
        tasks.iter().map(|task| task.cost.as_ns() as f64 / task.period.as_ns() as f64).sum();
    let _ = writeln!(out, "# After rounding to nanoseconds the utilisation is {sum:.9}.");
    let _ = writeln!(out, "duration = \"{}\"\nseed = {}", args.duration, args.seed);
    let policy = args
        .policy
        .to_possible_value()
        .map_or_else(String::new, |value| value.get_name().to_owned());
    let roots = if args.partitioned { args.cpus } else { 1 };
    for root in 0..roots {
        let _ = writeln!(out, "\n[[scheduler]]\nname = \"cpu{root}\"\npolicy = \"{policy}\"");
        if !args.partitioned && args.cpus > 1 {
            let _ = writeln!(out, "cpus = {}", args.cpus);
        }
    }
    let homes = worst_fit(tasks, roots as usize);
    for (number, (task, home)) in tasks.iter().zip(homes).enumerate() {
        out.push_str(&text(number, task, (roots > 1).then(|| format!("cpu{home}")).as_deref()));
    }
    out
}

/// Describes the parameters of a set.
fn describe_spec(spec: &Spec) -> String {
    let kind = if spec.graphs.is_some() { "graph" } else { "task" };
    let bounds = |of: fn(&Bounds) -> u64| {
        spec.bounds.iter().map(|bound| decimal(of(bound))).collect::<Vec<_>>().join(",")
    };
    let mut text = format!(
        "{}, utilisation {} by {} within {}..{}",
        talea_study::output::count(spec.tasks, kind),
        decimal(spec.total),
        spec.method.name(),
        bounds(|bound| bound.min),
        bounds(|bound| bound.max)
    );
    let _ = match &spec.periods {
        Periods::LogUniform { min, max, granularity } => {
            write!(text, ", periods log-uniform in {min}..{max}, multiples of {granularity}")
        }
        Periods::List(list) => {
            let list: Vec<String> = list.iter().map(ToString::to_string).collect();
            write!(text, ", periods of {}", list.join(","))
        }
    };
    let _ = match spec.deadlines {
        Deadlines::Implicit => write!(text, ", deadlines implicit"),
        Deadlines::Constrained { from } => {
            write!(
                text,
                ", deadlines constrained from {}",
                decimal(u64::from(from) * (CPU / 1_000))
            )
        }
    };
    if let Some(graphs) = &spec.graphs {
        let probability = |thousandths: u32| decimal(u64::from(thousandths) * (CPU / 1_000));
        let _ = write!(text, ", of {}..{} nodes", graphs.nodes_min, graphs.nodes_max);
        let _ = match graphs.shape {
            Shape::ErdosRenyi { probability: p } => {
                write!(text, ", Erdős–Rényi with edges of {}", probability(p))
            }
            Shape::Layered { layers, probability: p } => {
                write!(text, " in {layers} layers with edges of {}", probability(p))
            }
        };
    }
    text
}

/// Assigns tasks to CPUs by decreasing utilization, each to the least loaded CPU. Ties go to the
/// lower number.
fn worst_fit(tasks: &[Task], cpus: usize) -> Vec<usize> {
    let parts = |task: &Task| {
        u128::from(task.cost.as_ns()) * u128::from(CPU) / u128::from(task.period.as_ns())
    };
    let mut order: Vec<usize> = (0..tasks.len()).collect();
    order.sort_by_key(|&at| (std::cmp::Reverse(parts(&tasks[at])), at));
    let mut full = vec![0; cpus];
    let mut homes = vec![0; tasks.len()];
    for at in order {
        let home = (0..cpus).min_by_key(|&cpu| (full[cpu], cpu)).unwrap_or(0);
        full[home] += parts(&tasks[at]);
        homes[at] = home;
    }
    homes
}

/// Returns a task as text, or a graph: its nodes and channels.
pub(crate) fn text(number: usize, task: &Task, home: Option<&str>) -> String {
    let mut out = String::new();
    let mut table = |name: &str, cost: Span, is_root: bool| {
        let _ = writeln!(out, "\n[[task]]\nname = \"{name}\"");
        if let Some(home) = home {
            let _ = writeln!(out, "in = \"{home}\"");
        }
        if is_root {
            let _ = writeln!(out, "period = \"{}\"", task.period);
            if task.deadline != task.period {
                let _ = writeln!(out, "deadline = \"{}\"", task.deadline);
            }
        }
        let _ = writeln!(out, "cost = \"{cost}\"");
    };
    let span = |work: talea_core::Work| Span::from_ns(work.as_ns());
    if task.nodes.is_empty() {
        table(&format!("t{number}"), span(task.cost), true);
        return out;
    }
    for (at, node) in task.nodes.iter().enumerate() {
        table(&format!("g{number}n{at}"), span(node.cost), node.after.is_empty());
    }
    let costs: Vec<u64> = task.nodes.iter().map(|node| node.cost.as_ns()).collect();
    let edges: Vec<(usize, usize)> = task
        .nodes
        .iter()
        .enumerate()
        .flat_map(|(to, node)| node.after.iter().map(move |&from| (from, to)))
        .collect();
    for &(from, to) in &edges {
        let _ =
            writeln!(out, "\n[[channel]]\nfrom = \"g{number}n{from}\"\nto = \"g{number}n{to}\"");
    }
    let longest = Span::from_ns(longest_path(&costs, &edges));
    format!(
        "\n# GraphArg {number}: {} of work, {longest} on its longest path.\n{}",
        span(task.cost),
        &out[1..]
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_are_parts_exactly() {
        assert_eq!(parts("1.5"), Ok(1_500_000_000_000));
        assert_eq!(parts("0.1"), Ok(100_000_000_000));
        assert_eq!(parts("0.000000000001"), Ok(1));
        assert_eq!(parts("1024"), Ok(1024 * CPU));
        assert!(parts("1e3").is_err() && parts("-1").is_err() && parts("1025").is_err());
        for n in 1..1_000u64 {
            assert_eq!(parts(&decimal(n * 1_234_567)), Ok(n * 1_234_567));
        }
    }

    #[test]
    fn what_people_write_is_read_or_explained() {
        let ms = |n: u64| Span::from_ns(n * 1_000_000);
        assert_eq!(periods("1ms..2ms"), Ok(PeriodsArg::Range(ms(1), ms(2))));
        assert_eq!(periods("1ms, 2ms"), Ok(PeriodsArg::List(vec![ms(1), ms(2)])));
        assert!(periods("1..2").unwrap_err().contains("no unit"));
        assert_eq!(deadlines("constrained:0.7"), Ok(Deadlines::Constrained { from: 700 }));
        assert!(deadlines("constraint").is_err() && deadlines("constrained:2").is_err());
        assert_eq!(graph("layers:3"), Ok(GraphArg::Layers(3)));
        assert!(graph("layers:0").is_err() && graph("layers").is_err());
        assert_eq!((range("4"), range("2..7")), (Ok((4, 4)), Ok((2, 7))));
    }

    #[test]
    fn worst_fit_spreads_the_largest_first() {
        let task = |cost| Task {
            period: Span::from_ns(100),
            deadline: Span::from_ns(100),
            cost: talea_core::Work::from_ns(cost),
            nodes: vec![],
        };
        assert_eq!(worst_fit(&[task(10), task(60), task(50), task(30)], 2), [0, 0, 1, 1]);
    }
}
