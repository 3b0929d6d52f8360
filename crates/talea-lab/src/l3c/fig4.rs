//! Figure 4: the example of the paper.

use super::system_parts::{span, table, task, work};
use crate::units::{MS, US};
use talea_core::Time;
use talea_core::criteria::Overrides;
use talea_core::engine::{SchedulerSpec, Tree};
use talea_core::sched::PolicySpec;
use talea_core::server::{Reservation, ServerKind};
use talea_sim::{Arrivals, Completion, Cost, Jobs, Simulation, Source, Workload};
use talea_study::exit::Exit;
use talea_study::output::{self, Table};

/// Prints the completion times of figure 4, with plain priorities and with reservations.
pub(super) fn run() -> anyhow::Result<Exit> {
    let mut report = Table::new("JOB | >DEADLINE | >(a) PRIORITIES | >(b) RESERVATIONS");
    let ends = [false, true].map(figure4);
    for (task, name) in ["A", "B", "C"].iter().enumerate() {
        for (plain, reserved) in
            ends[0].ended.iter().filter(|job| job.task.0 as usize == task).map(|plain| {
                let same = |job: &&Completion| job.task == plain.task && job.job == plain.job;
                (plain, ends[1].ended.iter().find(same))
            })
        {
            let mark = |job: &Completion| {
                let late = if job.is_late() { " late" } else { "" };
                format!("{}{late}", job.end.as_ns() as f64 / MS as f64)
            };
            report.row(vec![
                format!("{name}{}", plain.job + 1),
                format!("{}", plain.deadline.as_ns() as f64 / MS as f64),
                mark(plain),
                reserved.map_or_else(|| "-".to_owned(), mark),
            ]);
        }
    }
    output::print(&report.render())?;
    output::print(
        "the paper: (a) A misses 5.5, the second B misses 16; (b) A 0.5-1.5, C served at 3 and again at 13, B safe\n",
    )?;
    Ok(Exit::Ok)
}

pub(super) fn figure4(reserved: bool) -> Jobs {
    let (tree, workload) = figure4_system(reserved, 1);
    let mut jobs = Jobs::default();
    let engine = tree.build().expect("the example is sound");
    Simulation::new(engine, 1, &workload).run(Time::from_ns(100 * MS), &mut jobs);
    jobs
}

/// Builds the system of figure 4, with `unit` milliseconds per unit of the paper.
pub(super) fn figure4_system(reserved: bool, unit: u64) -> (Tree, Workload) {
    let mut tree = Tree::new(1, SchedulerSpec::new("cpu", PolicySpec::FixedPriority));
    let partitions = tree.scheduler(Tree::ROOT, SchedulerSpec::new("TP_X", table(1_000 * unit, 1)));
    let first = tree.scheduler(partitions, SchedulerSpec::new("TP_1", PolicySpec::FixedPriority));
    let mut parents = [Tree::ROOT; 2];
    if reserved {
        let mut band = SchedulerSpec::new("band", PolicySpec::Edf);
        band.overrides = Overrides { priority: Some(200), ..Overrides::default() };
        let band = tree.scheduler(Tree::ROOT, band);
        parents = [2_000, 1_000].map(|budget| {
            let mut server = SchedulerSpec::new("server", PolicySpec::Fifo);
            server.reservation = Some(Reservation::new(
                ServerKind::Sporadic,
                work(budget * unit),
                span(10_000 * unit),
            ));
            tree.scheduler(band, server)
        });
    }
    let at =
        |us: &[u64]| Arrivals::List(us.iter().map(|us| Time::from_ns(us * US * unit)).collect());
    tree.task(parents[0], task("A", 10_000 * unit, 5_000 * unit, 10));
    tree.task(first, task("B", 8_000 * unit, 8_000 * unit, 20));
    tree.task(parents[1], task("C", 10_000 * unit, 10_000 * unit, 30));
    let cost = |us: u64| Cost::Constant(work(us * unit));
    let workload = Workload {
        sources: vec![
            Source { arrivals: at(&[500, 10_500]), cost: cost(1_000) },
            Source { arrivals: at(&[0, 8_000, 16_000]), cost: cost(5_000) },
            Source {
                arrivals: at(&[3_000, 8_000, 9_000, 10_000, 11_000, 12_000]),
                cost: cost(1_000),
            },
        ],
        seed: 0,
    };
    (tree, workload)
}
