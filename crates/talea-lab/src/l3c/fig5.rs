//! Figure 5: the echo server in a time partition.

use super::args::{Args, finish};
use super::system_parts::{periodic, table, task};
use crate::units::{MS, ms};
use talea_core::Time;
use talea_core::engine::{SchedulerSpec, Tree};
use talea_core::sched::PolicySpec;
use talea_sim::{Arrivals, Counters, Simulation, Workload};
use talea_study::exit::Exit;
use talea_study::output::Table;
use talea_study::plot::{Figure, Panel, Series};

/// Prints figure 5: the latency of the echo server in its own time partition.
pub(super) fn run(args: &Args) -> anyhow::Result<Exit> {
    let mut report = Table::new(">SLOT ms | >ECHO max ms | >SLOT + SERVICE");
    let mut points = Vec::new();
    for slot in FIG5_SLOTS {
        let longest = in_a_partition(slot);
        report.row(vec![
            slot.to_string(),
            format!("{longest:.2}"),
            format!("{:.2}", slot as f64 + 0.65),
        ]);
        points.push((slot as f64, longest));
    }
    let figure = Figure {
        title: "L3C Fig. 5, simulated: latency in a time partition".to_owned(),
        x: "slot length, ms",
        y: "ms",
        panels: vec![Panel {
            title: "two partitions of 50 %".to_owned(),
            series: vec![Series { name: "echo, longest".to_owned(), points }],
        }],
    };
    finish(args, "l3c-fig5", &figure, &report)
}

/// Returns the longest latency of the echo server in one of two time partitions with slots of
/// `slot` ms, in ms.
pub(super) fn in_a_partition(slot: u64) -> f64 {
    let (tree, workload) = figure5_system(slot, None);
    let mut counters = Counters::new(2);
    let engine = tree.build().expect("the system is sound");
    Simulation::new(engine, 1, &workload).run(FIG5_RUN, &mut counters);
    ms(counters.tasks[1].worst)
}

/// Lengths of the slots in ms.
pub(super) const FIG5_SLOTS: [u64; 14] = [1, 2, 5, 10, 15, 20, 30, 40, 50, 60, 70, 80, 90, 100];
/// Length of the simulation. The phase of the requests advances by 0.1 ms per request, so that
/// 2,000 requests cover each table.
pub(super) const FIG5_RUN: Time = Time::from_ns(400_000 * MS);

/// Builds a system with matrix products in one partition and the echo server in the other one.
/// Requests arrive at the times of `asked`, or every 100.1 ms.
pub(super) fn figure5_system(slot: u64, asked: Option<Vec<Time>>) -> (Tree, Workload) {
    let mut tree = Tree::new(1, SchedulerSpec::new("cpu", PolicySpec::FixedPriority));
    let partitions = tree.scheduler(Tree::ROOT, SchedulerSpec::new("TP_X", table(slot * 1_000, 2)));
    let first = tree.scheduler(partitions, SchedulerSpec::new("TP_1", PolicySpec::FixedPriority));
    let second = tree.scheduler(partitions, SchedulerSpec::new("TP_2", PolicySpec::FixedPriority));
    tree.task(first, task("matrix", 3_600_000_000, 3_600_000_000, 50));
    tree.task(second, task("echo", 100_000, 1_000_000, 50));
    let mut workload = unasked();
    if let Some(times) = asked {
        workload.sources[1].arrivals = Arrivals::List(times);
    }
    (tree, workload)
}

/// Returns a workload whose requests arrive in each phase of the table.
pub(super) fn unasked() -> Workload {
    let sources = vec![periodic(3_600_000_000, 0, 3_600_000_000), periodic(100_100, 0, 650)];
    Workload { sources, seed: 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenths(value: f64) -> i64 {
        (value * 10.0).round() as i64
    }

    #[test]
    fn l14_figure_5_in_a_partition_latency_is_the_slot_and_the_service() {
        for slot in [1, 2, 5, 10, 20, 50, 100] {
            assert_eq!(tenths(in_a_partition(slot) * 10.0), slot as i64 * 100 + 65, "{slot} ms");
        }
    }
}
