//! Figure 6: the echo server below other tasks.

use super::args::{Args, finish};
use super::system_parts::{periodic, span, task, work};
use crate::units::{MS, ms};
use talea_core::engine::{SchedulerSpec, Tree};
use talea_core::sched::PolicySpec;
use talea_core::{Span, Time, Work};
use talea_sim::{Arrivals, Completion, Cost, Simulation, Sink, Source, Workload};
use talea_study::exit::Exit;
use talea_study::output::Table;
use talea_study::plot::{Figure, Panel, Series};

/// Two sets of harmonic periods in ms. The paper states only that there are seven periods from 5 to
/// 1,000.
pub(super) const HARMONIC: [[u64; 7]; 2] =
    [[5, 10, 20, 50, 100, 200, 1_000], [5, 10, 20, 40, 200, 1_000, 1_000]];

/// Prints figure 6: the echo server below seven tasks of TP_0. A simultaneous release of all is the
/// worst case.
pub(super) fn run(args: &Args) -> anyhow::Result<Exit> {
    let mut report = Table::new(">U | >ECHO max ms, 5-10-20-50-… | >ECHO max ms, 5-10-20-40-…");
    let mut lines: Vec<Series> = HARMONIC
        .iter()
        .map(|periods| Series { name: format!("{periods:?}"), points: vec![] })
        .collect();
    for tenth in 0..=5u64 {
        let mut row = vec![format!("0.{tenth}")];
        for (periods, line) in HARMONIC.iter().zip(&mut lines) {
            let longest = below(periods, tenth);
            row.push(format!("{longest:.1}"));
            line.points.push((tenth as f64 / 10.0, longest));
        }
        report.row(row);
    }
    let figure = Figure {
        title: "L3C Fig. 6, simulated: latency below other tasks".to_owned(),
        x: "utilisation of the seven tasks above",
        y: "ms",
        panels: vec![Panel { title: "critical instant".to_owned(), series: lines }],
    };
    finish(args, "l3c-fig6", &figure, &report)
}

/// Returns the longest response of a job of 1 ms below seven tasks with a total utilization of
/// `tenth` tenths, in ms.
pub(super) fn below(periods: &[u64; 7], tenth: u64) -> f64 {
    struct Longest(f64);
    impl Sink for Longest {
        fn on_completion(&mut self, job: &Completion) {
            if job.task.0 == 7 {
                self.0 = self.0.max(ms(job.response()));
            }
        }
    }
    let (tree, workload) = figure6_system(periods, tenth, None);
    let mut longest = Longest(0.0);
    let engine = tree.build().expect("the system is sound");
    Simulation::new(engine, 1, &workload).run(FIG6_RUN, &mut longest);
    longest.0
}

pub(super) const FIG6_RUN: Time = Time::from_ns(10_000 * MS);

/// Builds seven tasks with a total utilization of `tenth` tenths, and the echo server below them.
/// Requests arrive at the times of `asked`, or once per second together with all tasks.
pub(super) fn figure6_system(
    periods: &[u64; 7],
    tenth: u64,
    asked: Option<Vec<Time>>,
) -> (Tree, Workload) {
    let mut tree = Tree::new(1, SchedulerSpec::new("cpu", PolicySpec::FixedPriority));
    let mut workload = Workload::default();
    for (number, &period) in periods.iter().enumerate() {
        tree.task(Tree::ROOT, task("above", period * 1_000, period * 1_000, 100 - number as u8));
        workload.sources.push(match tenth {
            0 => Source { arrivals: Arrivals::List(vec![]), cost: Cost::Constant(work(1)) },
            _ => Source {
                arrivals: Arrivals::Periodic {
                    offset: Span::ZERO,
                    period: span(period * 1_000),
                    jitter: Span::ZERO,
                },
                cost: Cost::Constant(Work::from_ns(period * MS * tenth / 70)),
            },
        });
    }
    tree.task(Tree::ROOT, task("echo", 1_000_000, 1_000_000, 1));
    let mut echo = periodic(1_000_000, 0, 1_000);
    if let Some(times) = asked {
        echo.arrivals = Arrivals::List(times);
    }
    workload.sources.push(echo);
    (tree, workload)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenths(value: f64) -> i64 {
        (value * 10.0).round() as i64
    }

    #[test]
    fn l15_figure_6_equals_the_response_time_analysis() {
        let said = |set: usize| [1, 2, 3, 4, 5].map(|tenth| tenths(below(&HARMONIC[set], tenth)));
        assert_eq!(said(0), [216, 440, 711, 981, 1_442]);
        assert_eq!(said(1), [346, 729, 1_159, 1_679, 2_467]);
    }
}
