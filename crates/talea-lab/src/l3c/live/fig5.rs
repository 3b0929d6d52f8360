//! Figure 5 on real threads: the echo server in a time partition, and the cost of short slots for
//! the other partition.

use super::super::args::Args;
use super::super::fig5::{figure5_system, unasked};
use super::super::system_parts::span;
use super::results::{finish, ms_text};
use super::stall_filter::{Point, Responses};
use super::trial::Trial;
use super::verdict::{Claim, Verdict, settle, undisturbed};
use crate::bounds::{Case, rows};
use crate::units::{MS, ms};
use serde::Serialize;
use std::time::Duration;
use talea_core::engine::TaskId;
use talea_core::{Span, Time};
use talea_sim::Counters;
use talea_study::exit::Exit;
use talea_study::output::Table;
use talea_study::plot::{Figure, Panel, Series};

/// Lengths of the slots in ms (requirement L14, `docs/requirements.md`).
const SLOTS: [u64; 6] = [1, 2, 5, 10, 20, 50];
/// Time of the first request. The start of the echo server takes some milliseconds of CPU time, and
/// the server has half of the CPU.
const FROM: Time = Time::from_ns(500 * MS);

#[derive(Serialize)]
struct Fig5Row {
    slot_ms: u64,
    bound_ns: Option<u64>,
    simulated_max_ns: u64,
    measured_max_ns: Option<u64>,
    measured_median_ns: Option<u64>,
    left_out: usize,
    /// Number of products of the matrix program per second.
    products: u64,
    /// CPU time of the matrix program, in millionths.
    share_ppm: u64,
    /// CPU time of the dispatcher, in millionths.
    scheduler_ppm: u64,
    /// Number of dispatches of the matrix program per second.
    turns: u64,
    requests: Vec<Point>,
}

/// Runs all lengths of slots.
pub(in super::super) fn run(args: &Args) -> anyhow::Result<Exit> {
    let length = Span::from_ns(if args.quick { 1_800 } else { 12_000 } * MS);
    let (found, claims) = settle("fig5", Duration::ZERO, || {
        let measure = |&slot: &u64| undisturbed(args.patience(), || one(slot, length));
        let found = SLOTS.iter().map(measure).collect::<anyhow::Result<Vec<_>>>()?;
        let claims = claims(&found);
        Ok((found, claims))
    })?;
    let head = ">SLOT ms | >PAPER about | >BOUND | >SIMULATED max | >MEASURED max | >median | \
         >REQUESTS | >LEFT OUT | >PRODUCTS/s | >of 50 ms | >CPU | >SCHEDULER | >TURNS/s";
    let mut table = Table::new(head);
    let longest = found.last().map_or(1, |(row, _)| row.products.max(1));
    for (row, _) in &found {
        let percent = row.products * 1_000 / longest;
        table.row(vec![
            row.slot_ms.to_string(),
            row.slot_ms.to_string(),
            ms_text(row.bound_ns.map(Span::from_ns)),
            ms_text(Some(Span::from_ns(row.simulated_max_ns))),
            ms_text(row.measured_max_ns.map(Span::from_ns)),
            ms_text(row.measured_median_ns.map(Span::from_ns)),
            row.requests.len().to_string(),
            row.left_out.to_string(),
            row.products.to_string(),
            format!("{}.{} %", percent / 10, percent % 10),
            format!("{:.2} %", row.share_ppm as f64 / 1e4),
            format!("{:.2} %", row.scheduler_ppm as f64 / 1e4),
            row.turns.to_string(),
        ]);
    }
    let line = |name: &str, value: &dyn Fn(&Fig5Row) -> Option<u64>| Series {
        name: name.to_owned(),
        points: found
            .iter()
            .filter_map(|(row, _)| Some((row.slot_ms as f64, ms(Span::from_ns(value(row)?)))))
            .collect(),
    };
    let series = vec![
        line("bound", &|row| row.bound_ns),
        line("simulated, longest", &|row| Some(row.simulated_max_ns)),
        line("measured, longest", &|row| row.measured_max_ns),
    ];
    let title = "L3C Fig. 5: latency in a time partition".to_owned();
    let panels = vec![Panel { title: "two partitions of 50 %".to_owned(), series }];
    let latency = Figure { title, x: "slot length, ms", y: "ms", panels };
    let points = found
        .iter()
        .map(|(row, _)| (row.slot_ms as f64, 100.0 * row.products as f64 / longest as f64))
        .collect();
    let series = vec![Series { name: "products of the other partition".to_owned(), points }];
    let title = "L3C Fig. 5: what short slots cost".to_owned();
    let panels = vec![Panel { title: "cache misses can't be counted here".to_owned(), series }];
    let cost = Figure { title, x: "slot length, ms", y: "% of those with slots of 50 ms", panels };
    let raw = found.into_iter().map(|(row, _)| row).collect();
    finish(
        args,
        "l3c-fig5",
        &table,
        &[("l3c-fig5", latency), ("l3c-fig5-products", cost)],
        raw,
        claims,
    )
}

/// Returns the times of the requests. Each request has another phase of the table, spread evenly.
/// Every fourth request arrives at the end of the server's slot.
fn asked(slot: u64, from: Time, to: Time) -> Vec<Time> {
    const EVERY: u64 = 4;
    let frame = 2 * slot * MS;
    let distance = (20 * MS).next_multiple_of(frame);
    let from = from.as_ns().next_multiple_of(frame);
    let phase = |number: u64| match number % EVERY {
        0 => 0,
        // The golden ratio in 32 bits. A phase is limited, so that the next request does not wait
        // for this one.
        _ => (frame / 10 * 9 * (number * 2_654_435_769 % (1 << 32))) >> 32,
    };
    let times = (0..).map(|number| from + number * distance + phase(number));
    times.take_while(|&at| at < to.as_ns()).map(Time::from_ns).collect()
}

fn one(slot: u64, length: Span) -> anyhow::Result<(Fig5Row, Responses)> {
    let end = Time::ZERO + length;
    let requests = asked(slot, FROM, Time::from_ns(end.as_ns() - 150 * MS));
    let (tree, workload) = figure5_system(slot, Some(requests.clone()));
    let trial = Trial { tree, workload, length, requests, echo: (span(650), None) };
    let seen = trial.run()?;
    let waits =
        Responses::of_requests(&seen.seen.asked, &seen.seen.request_stalls, (Time::ZERO, end), end);
    let mut counters = Counters::new(2);
    let engine = trial.tree.build().map_err(|error| anyhow::anyhow!("{}", error.kind))?;
    talea_sim::Simulation::new(engine, 1, &trial.workload).run(end, &mut counters);
    let case = Case::new(String::new(), trial.tree, unasked(), end);
    let a_second = |count: u64| count * 1_000 * MS / length.as_ns();
    let effort: u64 = seen.real.dispatchers.iter().map(|effort| effort.cpu_time.as_ns()).sum();
    let row = Fig5Row {
        slot_ms: slot,
        bound_ns: rows(&case)[1].bound().map(Span::as_ns),
        simulated_max_ns: counters.tasks[1].worst.as_ns(),
        measured_max_ns: waits.longest().map(Span::as_ns),
        measured_median_ns: waits.quantile(50).map(Span::as_ns),
        left_out: waits.left_out(),
        products: a_second(seen.seen.products),
        share_ppm: seen.real.consumed[0].ordered.as_ns() / (length.as_ns() / 1_000_000),
        scheduler_ppm: effort / (length.as_ns() / 1_000_000),
        turns: a_second(seen.dispatches_of(TaskId(0)) as u64),
        requests: waits.points(),
    };
    Ok((row, waits))
}

fn claims(found: &[(Fig5Row, Responses)]) -> Vec<Claim> {
    let points: Vec<(f64, f64)> = found
        .iter()
        .filter_map(|(row, _)| Some((row.slot_ms as f64, ms(Span::from_ns(row.measured_max_ns?)))))
        .collect();
    let lost: usize = found.iter().map(|(_, waits)| waits.lost()).sum();
    let all: Vec<&Responses> = found.iter().map(|(_, waits)| waits).collect();
    let is_inconclusive = Responses::together_are_inconclusive(&all);
    let fit = determination(&points);
    let linear = Claim {
        row: "L14",
        says: "the longest latency is linear in the slot (R² > 0.99), and no request is lost"
            .to_owned(),
        seen: format!("R² = {fit:.4}, {lost} lost"),
        verdict: Verdict::of(
            fit > 0.99 && lost == 0 && points.len() == found.len(),
            is_inconclusive,
        ),
    };
    let products: Vec<u64> = found.iter().map(|(row, _)| row.products).collect();
    let turns: Vec<u64> = found.iter().map(|(row, _)| row.turns).collect();
    // The CPU time of the other partition is its throughput at one speed of the CPU. This speed
    // varies by 15 % between runs, and so does the number of products, which is only shown. Stalls
    // vary by more than the difference of two neighbours, so slots of 1 ms are compared with the
    // three longest.
    let shares: Vec<u64> = found.iter().map(|(row, _)| row.share_ppm).collect();
    let scheduler: Vec<u64> = found.iter().map(|(row, _)| row.scheduler_ppm).collect();
    let falls = |of: &[u64]| of.windows(2).all(|pair| pair[0] > pair[1]);
    let is_dear = scheduler.iter().skip(3).max() < scheduler.first()
        && shares.iter().skip(3).max() > shares.first();
    let cost = Claim {
        row: "L14",
        says: "short slots cost the other partition CPU time, and switches become more".to_owned(),
        seen: format!(
            "{shares:?} ppm of the CPU beside {scheduler:?} of the scheduler, {products:?} products and {turns:?} turns a second"
        ),
        verdict: Verdict::of(is_dear && falls(&turns), is_inconclusive),
    };
    vec![linear, cost]
}

/// Returns the share of the variance that a line explains.
fn determination(points: &[(f64, f64)]) -> f64 {
    let count = points.len() as f64;
    let mean = |of: &dyn Fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
    let (x, y) = (mean(&|point| point.0), mean(&|point| point.1));
    let both = mean(&|point| (point.0 - x) * (point.1 - y));
    let (across, up) = (mean(&|point| (point.0 - x).powi(2)), mean(&|point| (point.1 - y).powi(2)));
    both * both / (across * up)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_explains_a_line_and_little_of_a_parabola() {
        assert!((determination(&[(1.0, 3.0), (2.0, 5.0), (5.0, 11.0)]) - 1.0).abs() < 1e-9);
        assert!(determination(&[(-1.0, 1.0), (0.0, 0.0), (1.0, 1.0)]) < 1e-9);
        assert!(determination(&[]).is_nan(), "which is above nothing");
    }
}
