//! Figure 4 on real threads, ten times slower: completion times of jobs.

use super::super::args::Args;
use super::super::fig4::figure4_system;
use super::results::finish;
use super::stall_filter::Point;
use super::trial::{Trial, TrialMeasurement};
use super::verdict::{Claim, Verdict, settle};
use crate::bounds::{Case, rows};
use crate::units::ms;
use serde::Serialize;
use std::collections::BTreeMap;
use talea_core::{Span, Time, Work};
use talea_sim::Cost;
use talea_study::compare::job_times::{JobId, JobLog, JobTimes};
use talea_study::exit::Exit;
use talea_study::output::Table;
use talea_study::plot::{Figure, Panel, Series};

/// Milliseconds per unit of the paper.
const UNIT: u64 = 10;
/// Length of the run, in which all jobs complete.
const LENGTH: Span = Span::from_ns(560_000_000);
/// Cost of C on real threads, shorter by a fiftieth. A budget that is equal to the cost of its job
/// leaves no time for a switch.
const COST_OF_C: Work = Work::from_ns(9_800_000);
/// Tolerated difference to the simulation (requirement L7, `docs/requirements.md`).
const TOLERANCE: Span = Span::from_ns(1_000_000);

const SYSTEMS: [(bool, &str); 2] = [(false, "(a) priorities"), (true, "(b) reservations")];

/// Returns the completion that the paper states, in units of the paper. It states 6 for A in (a),
/// which contradicts the paper's own priorities.
fn paper(reserved: bool, (task, job): JobId) -> &'static str {
    match (reserved, task.0, job) {
        (false, 0, 0) => "late",
        (false, 1, 1) => "late (16)",
        (true, 0, 0) => "1.5",
        (true, 1, 0 | 1) => "in time",
        (true, 2, 0) => "4",
        (true, 2, 1) => "14",
        _ => "",
    }
}

#[derive(Serialize)]
struct Fig4Row {
    system: &'static str,
    job: String,
    bound_ns: Option<u64>,
    simulated_end_ns: Option<u64>,
    measured_end_ns: Option<u64>,
    #[serde(flatten)]
    point: Point,
}

/// Runs both systems.
pub(in super::super) fn run(args: &Args) -> anyhow::Result<Exit> {
    let head = "SYSTEM | JOB | >DEADLINE | >PAPER ×10 | >BOUND | >SIMULATED | >MEASURED | >LOST µs | \
         >OFF µs";
    let mut table = Table::new(head);
    let (mut raw, mut claims, mut panels) = (Vec::new(), Vec::new(), Vec::new());
    for (reserved, system) in SYSTEMS {
        let trial = trial(reserved);
        let simulated = trial.simulate();
        let mut ends = BTreeMap::new();
        let ((), found) = settle(system, args.patience(), || {
            keep_conclusive(&trial.run()?, &simulated, &mut ends);
            Ok(((), vec![claim(system, &simulated, &ends)]))
        })?;
        claims.extend(found);
        let case = Case::new(
            String::new(),
            trial.tree.clone(),
            trial.workload.clone(),
            Time::ZERO + LENGTH,
        );
        let bounds: Vec<_> = rows(&case).iter().map(crate::bounds::BoundRow::bound).collect();
        let [mut lines, mut measured] = [Vec::new(), Vec::new()];
        for (&name, expected) in &simulated.jobs {
            let End { life, lost, left_out } = ends.get(&name).copied().unwrap_or_default();
            let job = format!("{}{}", ["A", "B", "C"][name.0.0 as usize], name.1 + 1);
            let at = |time: Option<Time>| {
                time.map_or_else(|| "-".to_owned(), |time| format!("{:.2}", end(time)))
            };
            let bound = bounds[name.0.0 as usize];
            table.row(vec![
                system.to_owned(),
                job.clone(),
                at(expected.deadline),
                paper(reserved, name).to_owned(),
                bound.map_or_else(|| "-".to_owned(), |bound| format!("+{:.2}", ms(bound))),
                at(expected.end),
                format!("{}{}", at(life.end), if is_late(&life) { " late" } else { "" }),
                format!("{}{}", lost.as_ns() / 1_000, if left_out { " left out" } else { "" }),
                off(expected, &life, lost)
                    .map_or_else(|| "-".to_owned(), |off| (off.as_ns() / 1_000).to_string()),
            ]);
            let number = lines.len() as f64 + 1.0;
            lines.extend(expected.end.map(|at| (number, end(at))));
            measured.extend(life.end.map(|at| (number, end(at))));
            raw.push(Fig4Row {
                system,
                job,
                bound_ns: bound.map(Span::as_ns),
                simulated_end_ns: expected.end.map(Time::as_ns),
                measured_end_ns: life.end.map(Time::as_ns),
                point: Point {
                    release_ns: life.release.unwrap_or(Time::ZERO).as_ns(),
                    response_ns: life
                        .release
                        .zip(life.end)
                        .map(|(from, to)| to.since(from.min(to)).as_ns()),
                    left_out,
                },
            });
        }
        let series = [("simulated", lines), ("measured", measured)];
        let series = series.map(|(name, points)| Series { name: name.to_owned(), points }).into();
        panels.push(Panel { title: system.to_owned(), series });
    }
    let title = "L3C Fig. 4, ten times slower: when jobs end".to_owned();
    let figure = Figure { title, x: "jobs of A, of B, of C", y: "ms", panels };
    finish(args, "l3c-fig4", &table, &[("l3c-fig4", figure)], raw, claims)
}

fn trial(reserved: bool) -> Trial {
    let (tree, mut workload) = figure4_system(reserved, UNIT);
    workload.sources[2].cost = Cost::Constant(COST_OF_C);
    Trial { tree, workload, length: LENGTH, requests: Vec::new(), echo: (Span::ZERO, None) }
}

fn end(time: Time) -> f64 {
    time.as_ns() as f64 / 1e6
}

fn is_late(life: &JobTimes) -> bool {
    life.end.zip(life.deadline).is_some_and(|(end, deadline)| end > deadline)
}

/// Observed end of a job.
#[derive(Clone, Copy, Debug)]
struct End {
    life: JobTimes,
    /// CPU time lost between the last idle instant of the CPU and the completion of the job. The
    /// job may complete later than in the simulation by at most this length.
    lost: Span,
    /// Whether a stall overlaps the job. The backlog of an earlier stall is part of `lost`.
    left_out: bool,
}

impl Default for End {
    fn default() -> End {
        End { life: JobTimes::default(), lost: Span::ZERO, left_out: true }
    }
}

/// Keeps for each job the last run in which no stall overlaps it.
fn keep_conclusive(seen: &TrialMeasurement, simulated: &JobLog, ends: &mut BTreeMap<JobId, End>) {
    for &name in simulated.jobs.keys() {
        let life = seen.seen.lives.jobs.get(&name).copied().unwrap_or_default();
        let to = life.end.unwrap_or(Time::ZERO + seen.length);
        let left_out = seen.seen.stalls.overlaps(life.begin.unwrap_or(Time::ZERO), to);
        let known = ends.entry(name).or_default();
        if !left_out || known.left_out {
            *known = End { life, lost: seen.lost_before(to), left_out };
        }
    }
}

/// Returns by how much a job ended earlier than in the simulation, or later than `lost` explains.
fn off(expected: &JobTimes, life: &JobTimes, lost: Span) -> Option<Span> {
    let (expected, end) = expected.end.zip(life.end)?;
    let latest = expected + lost;
    Some(if end < expected { expected.since(end) } else { end.max(latest).since(latest) })
}

fn claim(system: &str, simulated: &JobLog, ends: &BTreeMap<JobId, End>) -> Claim {
    let counted = ends.iter().filter(|(_, end)| !end.left_out);
    let most = counted.clone().map(|(name, end)| off(&simulated.jobs[name], &end.life, end.lost));
    // An incomplete job has the largest difference.
    let most = most.map(|off| off.unwrap_or(LENGTH)).max().unwrap_or(Span::ZERO);
    let left_out = ends.len() - counted.count();
    Claim {
        row: "L7",
        says: format!(
            "{system}: jobs end when the simulation says, up to {TOLERANCE} beside what was lost on the way"
        ),
        seen: format!("up to {most} off, {left_out} of {} jobs left out", ends.len()),
        verdict: Verdict::of(most <= TOLERANCE, left_out > 0 && most <= TOLERANCE),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn l7_what_was_lost_may_make_a_job_later_and_nothing_earlier() {
        let at =
            |ms: u64| JobTimes { end: Some(Time::from_ns(ms * 1_000_000)), ..JobTimes::default() };
        let span = |ms: u64| Span::from_ns(ms * 1_000_000);
        for (end, by) in [(9, 1), (10, 0), (12, 0), (13, 0), (15, 2)] {
            assert_eq!(off(&at(10), &at(end), span(3)), Some(span(by)), "{end}");
        }
        assert_eq!(off(&at(10), &JobTimes::default(), span(3)), None);
    }
}
