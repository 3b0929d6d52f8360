//! Figure 6 on real threads: the echo server below seven tasks.

use super::super::args::Args;
use super::super::fig6::{HARMONIC, figure6_system};
use super::super::system_parts::span;
use super::results::{finish, ms_text};
use super::stall_filter::{Point, Responses};
use super::trial::{Trial, TrialMeasurement};
use super::verdict::{Claim, Verdict, settle, undisturbed};
use crate::units::{MS, ms};
use serde::Serialize;
use std::time::Duration;
use talea_analysis::tree::RootModel;
use talea_core::engine::{Order, TaskId};
use talea_core::{Span, Time, Work};
use talea_exec::RecordKind;
use talea_sim::{Cost, Overheads};
use talea_study::exit::Exit;
use talea_study::output::Table;
use talea_study::plot::{Figure, Panel, Series};

/// Periods of the first set of the simulation. The longest waits of the other set need minutes.
const PERIODS: [u64; 7] = HARMONIC[0];
/// Distance in ms at which all tasks are released together.
const HYPERPERIOD: u64 = 1_000;
/// Values of the paper for the first and the last utilization; the others are empty.
const PAPER: [&str; 6] = ["1.2", "", "", "", "", "over 250"];
const ECHO: TaskId = TaskId(7);

#[derive(Serialize)]
struct Fig6Row {
    tenths: u64,
    bound_ns: Option<u64>,
    /// Bound with twice the mean CPU time of the dispatcher per order, and with costs increased by
    /// the share of interrupts and the monitor.
    bound_with_overheads_ns: Option<u64>,
    lost_ppm: u64,
    overhead_ns: u64,
    simulated_max_ns: Option<u64>,
    measured_max_ns: Option<u64>,
    measured_median_ns: Option<u64>,
    left_out: usize,
    requests: Vec<Point>,
}

/// Runs all utilizations.
pub(in super::super) fn run(args: &Args) -> anyhow::Result<Exit> {
    let seconds = if args.quick { 2 } else { 20 };
    let (found, claims) = settle("fig6", Duration::ZERO, || {
        let measure = |tenth| undisturbed(args.patience(), || one(tenth, seconds));
        let found = (0..=5).map(measure).collect::<anyhow::Result<Vec<_>>>()?;
        let claims = claims(&found);
        Ok((found, claims))
    })?;
    let head = ">U | >PAPER | >BOUND | >with overheads | >SIMULATED max | >MEASURED max | >median | \
         >REQUESTS | >LEFT OUT | >2 ORDERS µs | >LOST";
    let mut table = Table::new(head);
    let span_of = |ns: Option<u64>| ms_text(ns.map(Span::from_ns));
    for (row, _) in &found {
        table.row(vec![
            format!("0.{}", row.tenths),
            PAPER[row.tenths as usize].to_owned(),
            span_of(row.bound_ns),
            span_of(row.bound_with_overheads_ns),
            span_of(row.simulated_max_ns),
            span_of(row.measured_max_ns),
            span_of(row.measured_median_ns),
            row.requests.len().to_string(),
            row.left_out.to_string(),
            format!("{:.1}", row.overhead_ns as f64 / 1e3),
            format!("{}.{} %", row.lost_ppm / 10_000, row.lost_ppm / 1_000 % 10),
        ]);
    }
    let line = |name: &str, value: &dyn Fn(&Fig6Row) -> Option<u64>| Series {
        name: name.to_owned(),
        points: found
            .iter()
            .filter_map(|(row, _)| Some((row.tenths as f64 / 10.0, ms(Span::from_ns(value(row)?)))))
            .collect(),
    };
    let series = vec![
        line("bound", &|row| row.bound_ns),
        line("bound with overheads", &|row| row.bound_with_overheads_ns),
        line("simulated, longest", &|row| row.simulated_max_ns),
        line("measured, longest", &|row| row.measured_max_ns),
    ];
    let title = "L3C Fig. 6: latency below other tasks".to_owned();
    let panels = vec![Panel { title: format!("periods of {PERIODS:?} ms"), series }];
    let figure = Figure { title, x: "utilisation of the seven tasks above", y: "ms", panels };
    let raw = found.into_iter().map(|(row, _)| row).collect();
    finish(args, "l3c-fig6", &table, &[("l3c-fig6", figure)], raw, claims)
}

/// Returns the times of the requests: one together with all seven tasks, which is the worst case,
/// and one between two releases of all tasks.
fn asked(seconds: u64) -> Vec<Time> {
    let of = |second: u64| {
        let between = (second * 2_654_435_769 % (1 << 32) * 400 * MS) >> 32;
        [second * HYPERPERIOD * MS, (second * HYPERPERIOD + 500) * MS + between]
    };
    (1..seconds).flat_map(of).map(Time::from_ns).collect()
}

fn one(tenth: u64, seconds: u64) -> anyhow::Result<(Fig6Row, Responses)> {
    let requests = asked(seconds);
    let length = Span::from_ns(seconds * HYPERPERIOD * MS);
    let end = Time::ZERO + length;
    let (tree, workload) = figure6_system(&PERIODS, tenth, Some(requests.clone()));
    let trial = Trial { tree, workload, length, requests, echo: (span(1_000), None) };
    let simulated = trial.simulate();
    let longest = |(_, life): (_, &talea_study::compare::job_times::JobTimes)| {
        let (release, end) = life.release.zip(life.end)?;
        Some(end.since(release).as_ns())
    };
    let simulated_max_ns = simulated.jobs.range((ECHO, 0)..).filter_map(longest).max();
    let seen = trial.run()?;
    let waits =
        Responses::of_requests(&seen.seen.asked, &seen.seen.request_stalls, (Time::ZERO, end), end);
    let overhead = overhead(&seen);
    let (_, unasked) = figure6_system(&PERIODS, tenth, None);
    let lost_ppm = seen.lost_ppm();
    let bound = |overheads: Overheads, longer_ppm: u64| {
        if tenth == 0 {
            return Some(unasked.sources[ECHO.0 as usize].cost.max().as_ns());
        }
        let mut sources = unasked.sources.clone();
        for source in &mut sources {
            let most = source.cost.max().as_ns();
            source.cost = Cost::Constant(Work::from_ns(most + most / 1_000 * longer_ppm / 1_000));
        }
        let mut roots = RootModel::new(&trial.tree, &sources);
        roots.overheads = overheads;
        roots.bounds().get(ECHO.0 as usize)?.bound.as_ref().ok().map(|bound| bound.as_ns())
    };
    let row = Fig6Row {
        tenths: tenth,
        bound_ns: bound(Overheads::default(), 0),
        bound_with_overheads_ns: bound(
            Overheads { decision: overhead, ..Overheads::default() },
            lost_ppm,
        ),
        lost_ppm,
        overhead_ns: overhead.as_ns(),
        simulated_max_ns,
        measured_max_ns: waits.longest().map(Span::as_ns),
        measured_median_ns: waits.quantile(50).map(Span::as_ns),
        left_out: waits.left_out(),
        requests: waits.points(),
    };
    Ok((row, waits))
}

/// Returns twice the mean CPU time of the dispatcher per order to run, because a bound needs the
/// maximum.
fn overhead(seen: &TrialMeasurement) -> Span {
    let orders = seen
        .real
        .record
        .iter()
        .filter(|entry| matches!(entry.kind, RecordKind::Order(Order::Run { .. })));
    let used: u64 = seen.real.dispatchers.iter().map(|effort| effort.cpu_time.as_ns()).sum();
    Span::from_ns(2 * used / (orders.count() as u64).max(1))
}

fn claims(found: &[(Fig6Row, Responses)]) -> Vec<Claim> {
    const BEYOND: u64 = MS;
    let is_inconclusive = found.iter().any(|(_, waits)| waits.are_inconclusive());
    let lost: usize = found.iter().map(|(_, waits)| waits.lost()).sum();
    let longest: Vec<u64> = found.iter().filter_map(|(row, _)| row.measured_max_ns).collect();
    let rises = longest.len() == found.len() && longest.windows(2).all(|pair| pair[0] < pair[1]);
    let texts: Vec<String> = longest.iter().map(|&ns| ms_text(Some(Span::from_ns(ns)))).collect();
    let rise = Claim {
        row: "L15",
        says: "the longest latency rises with the utilisation above, and no request is lost"
            .to_owned(),
        seen: format!("{} ms, {lost} lost", texts.join(", ")),
        verdict: Verdict::of(rises && lost == 0, is_inconclusive),
    };
    let beyond = |row: &Fig6Row, allowed: u64| {
        Some(row.measured_max_ns?.saturating_sub(row.bound_with_overheads_ns? + allowed))
    };
    // The first row has nothing above the requests: what an idle computer adds to each of them.
    let most = found.split_first().and_then(|((idle, _), loaded)| {
        let allowed = beyond(idle, 0)?.max(BEYOND);
        let all = loaded.iter().map(|(row, _)| beyond(row, allowed)).collect::<Option<Vec<_>>>();
        all?.into_iter().max()
    });
    let bounded = Claim {
        row: "L15",
        says: "no latency is longer than its bound, with what orders cost, and what a request \
               without load exceeds it by (1 ms at least)"
            .to_owned(),
        seen: most.map_or_else(
            || "no bound".to_owned(),
            |most| format!("{} beyond", Span::from_ns(most)),
        ),
        verdict: Verdict::of(most == Some(0), is_inconclusive),
    };
    vec![rise, bounded]
}
