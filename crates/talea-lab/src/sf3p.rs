//! `talea-lab sf3p`: the experiments of SF3P (RSP 2014, section VII), simulated.
//!
//! `fig4`: a scheduler over two others, as a schedule. `fig6`: the share of late jobs by
//! utilization, for 1,500 random task sets under EDF, RM and FIFO. `table2`: the flight management
//! software in three configurations. The paper does not state the periods and costs of that
//! software; those in `examples/systems` are similar. With `--live` the experiments, and figures 7
//! to 9 about overheads, run on real threads beside the simulation of the same jobs ([`live`]).

#![allow(clippy::cast_precision_loss, reason = "plotted")]

mod due_jobs;
mod flight_management;
mod live;
pub(super) mod random_sets;

use super::bounds::Case;
use crate::units::MS;
use due_jobs::RUN;
use live::sets::Shown;
use std::path::PathBuf;
use talea_core::criteria::Overrides;
use talea_core::engine::{SchedulerSpec, TaskSpec, Tree};
use talea_core::sched::PolicySpec;
use talea_core::{Span, Time, Work};
use talea_sim::{Arrivals, Cost, Schedule, Simulation, Source, Workload};
use talea_study::exit::{Exit, usage};
use talea_study::output::{self, Table};

/// Options of `talea-lab sf3p`.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Experiment to run.
    what: Which,
    /// Directory for plots and data.
    #[arg(long, value_name = "DIR", default_value = ".")]
    out: PathBuf,
    /// The seed of everything random.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Instead (fig4, table2): the analysed bound of each task beside the longest simulated
    /// response; fails where that is longer.
    #[arg(long, conflicts_with = "live")]
    bounds: bool,
    /// On real threads, beside the simulation of the same jobs (fig6 to fig9, table2, six); needs
    /// root or CAP_SYS_NICE, and a machine that has nothing else to do.
    #[arg(long)]
    live: bool,
    /// Live: so many random sets [default: 30]; how often the others are repeated [default: of
    /// table2 8, of six 1].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100_000))]
    sets: Option<u64>,
    /// Live: how long each run is [default: 3; of table2, 6].
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u64).range(1..=60))]
    seconds: Option<u64>,
}

#[derive(clap::ValueEnum, Clone, Copy, Debug)]
enum Which {
    Fig4,
    Fig6,
    Fig7,
    Fig8,
    Fig9,
    Table2,
    /// The examples that SF3P ships: do their jobs end when the simulation says?
    Six,
}

/// Runs an experiment.
pub(super) fn run(args: &Args) -> anyhow::Result<Exit> {
    if args.live {
        return on_threads(args);
    }
    match (args.what, args.bounds) {
        (Which::Fig7 | Which::Fig8 | Which::Fig9, _) => {
            Err(usage("overheads are measured: --live"))
        }
        (Which::Six, _) => Err(usage(
            "what threads do is measured: --live; talea import and simulate show the rest",
        )),
        (Which::Fig4, false) => fig4(),
        (Which::Fig4, true) => super::bounds::report("SF3P Fig. 4", &[figure4_case()]),
        (Which::Fig6, false) => random_sets::fig6(args.seed, &args.out),
        (Which::Fig6, true) => Err(usage(
            "fig6 is about random sets that miss deadlines: --bounds is for fig4 and table2",
        )),
        (Which::Table2, false) => flight_management::table2(),
        (Which::Table2, true) => {
            super::bounds::report("SF3P Table II", &flight_management::configurations()?)
        }
    }
}

fn on_threads(args: &Args) -> anyhow::Result<Exit> {
    let (sets, seconds) = match args.what {
        // One repetition does not show the cost of deeper trees against the flat one.
        Which::Table2 => (8, 6),
        Which::Six => (1, 3),
        _ => (30, 3),
    };
    let effort = live::Effort {
        sets: args.sets.unwrap_or(sets),
        seconds: args.seconds.unwrap_or(seconds),
        seed: args.seed,
        out: args.out.clone(),
    };
    match args.what {
        Which::Fig4 => {
            Err(usage("figure 4 on threads is a test (s12): --live is for fig6 to fig9 and table2"))
        }
        Which::Fig6 => live::sets::sets(Shown::Fig6, &effort),
        Which::Fig7 => live::sets::sets(Shown::Fig7, &effort),
        Which::Fig8 => live::sets::sets(Shown::Fig8, &effort),
        Which::Fig9 => live::levels::fig9(&effort),
        Which::Table2 => live::table::table2(&effort),
        Which::Six => live::examples::examples(&effort),
    }
}

/// Builds figure 4 with the sets of the example that SF3P ships: two tasks of 9 ms every 51 ms
/// under EDF above two under FIFO. Set 1 arrives while set 2 runs.
fn figure4_system() -> (Tree, Workload) {
    let mut tree = Tree::new(1, SchedulerSpec::new("fp", PolicySpec::FixedPriority));
    let mut workload = Workload::default();
    let subtrees = [(1, PolicySpec::Edf, 2, 3 * MS), (2, PolicySpec::Fifo, 1, 0)];
    for (set, policy, priority, offset) in subtrees {
        let mut spec = SchedulerSpec::new(policy.name(), policy);
        spec.overrides = Overrides { priority: Some(priority), ..Overrides::default() };
        let group = tree.scheduler(Tree::ROOT, spec);
        for number in 0..2 {
            let period = Span::from_ns(51 * MS);
            tree.task(group, TaskSpec::new(&format!("set {set} task {number}"), period));
            let arrivals =
                Arrivals::Periodic { offset: Span::from_ns(offset), period, jitter: Span::ZERO };
            workload.sources.push(Source { arrivals, cost: Cost::Constant(Work::from_ns(9 * MS)) });
        }
    }
    (tree, workload)
}

fn figure4_case() -> Case {
    let (tree, workload) = figure4_system();
    Case::new("FP over EDF and FIFO".to_owned(), tree, workload, RUN)
}

/// Prints figure 4 as the execution intervals of all jobs.
fn fig4() -> anyhow::Result<Exit> {
    let (tree, workload) = figure4_system();
    let engine = tree.build().map_err(|error| anyhow::anyhow!("{}", error.kind))?;
    let mut schedule = Schedule::new(1, 100);
    Simulation::new(engine, 1, &workload).run(Time::from_ns(51 * MS), &mut schedule);
    schedule.finish(Time::from_ns(51 * MS));
    let mut table = Table::new("TASK | >FROM ms | >TO ms");
    for segment in &schedule.segments {
        let task = segment.task.0;
        let ms = |at: Time| (at.as_ns() as f64 / MS as f64).to_string();
        let name = format!("set {} task {}", task / 2 + 1, task % 2);
        table.row(vec![name, ms(segment.start), ms(segment.end)]);
    }
    output::print(&table.render())?;
    output::print("the paper: a job of set 2 is preempted by set 1 and goes on afterwards\n")?;
    Ok(Exit::Ok)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s11_s12_no_bound_of_the_configurations_and_of_figure_4_is_exceeded() {
        let mut bounded = Vec::new();
        let mut cases = flight_management::configurations().expect("the shipped files");
        cases.push(figure4_case());
        for case in &cases {
            let rows = crate::bounds::rows(case);
            assert!(rows.iter().all(|row| !row.is_exceeded()));
            bounded.push(rows.iter().filter(|row| row.bound().is_some()).count());
        }
        // C1, C2 and C3 at average and at worst cost. At worst cost only tasks that fit into their
        // slots, or come first in them, have a bound; in C3 none has.
        assert_eq!(bounded, [13, 9, 13, 2, 13, 0, 4]);
    }
}
