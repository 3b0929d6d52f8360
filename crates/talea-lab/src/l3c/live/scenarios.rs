//! Figures 7 and 8 on real threads, or deployed: effect of the echo server on A and B in four
//! scenarios. Each run serves both figures.

use super::super::args::Args;
use super::super::base::{Load, Phases, Plan, Service, base_system};
use super::super::scenarios::{PAPER_A, PAPER_B, SCENARIOS};
use super::super::system_parts::span;
use super::deployed;
use super::results::{finish, ms_text};
use super::stall_filter::{Point, Responses};
use super::trial::Trial;
use super::verdict::{Claim, Verdict, settle};
use crate::bounds::{Case, rows};
use crate::units::{MS, ms};
use serde::Serialize;
use talea_core::engine::TaskId;
use talea_core::mutate;
use talea_core::{Span, Time};
use talea_exec::stalls::DETECTION_LIMIT;
use talea_study::compare::job_times::{JobLog, JobTimes};
use talea_study::exit::Exit;
use talea_study::output::Table;
use talea_study::plot::{Figure, Panel, Series};

const A: TaskId = TaskId(0);
const B: TaskId = TaskId(1);
const ECHO: TaskId = TaskId(2);

/// Limit of the waiting requests (requirement L18, `docs/requirements.md`).
const QUEUE: u16 = 16;
/// Cost of a reply of the echo server.
const SERVICE: Span = Span::from_ns(650_000);
/// Time of the first request and start of the evaluation, in ms. A program that starts with 2 % of
/// a CPU, or above all other tasks, needs a while until it can reply.
const FROM: u64 = 800;
/// Length of the last part of the run, without requests, in ms.
const LAST: u64 = 150;
/// Time after a burst in which responses become normal again (requirement L18).
const RECOVERY: Span = Span::from_ns(1_000 * MS);
const BURST: Span = Span::from_ns(1_000 * MS);

/// Times of a scenario, in ms.
struct Times {
    length: u64,
    bursts: Vec<u64>,
}

fn times(load: Load, quick: bool) -> Times {
    let is_bursty = load == Load::Bursts;
    let (length, bursts) = match (quick, is_bursty) {
        (true, false) => (3_000, vec![]),
        (true, true) => (4_600, vec![1_300]),
        (false, _) => (20_000, vec![3_000, 8_500, 14_000]),
    };
    Times { length, bursts: if is_bursty { bursts } else { vec![] } }
}

/// Results of a task or of the echo server.
#[derive(Serialize)]
struct TaskResult {
    name: &'static str,
    paper: &'static str,
    bound_ns: Option<u64>,
    simulated_max_ns: Option<u64>,
    simulated_late: usize,
    measured_max_ns: Option<u64>,
    measured_median_ns: Option<u64>,
    measured_late: usize,
    left_out: usize,
    lost: usize,
    jobs: Vec<Point>,
}

#[derive(Serialize)]
struct ScenarioRow {
    scenario: &'static str,
    tasks: Vec<TaskResult>,
    /// Number of products of the matrix program.
    products: u64,
    stalls: usize,
}

/// Measurements of a scenario.
struct ScenarioMeasurement {
    row: ScenarioRow,
    /// Responses of A, of B, of all requests, and of the requests away from bursts, in this order.
    waits: [Responses; 4],
    /// Time from the end of a burst to the last slow reply.
    recovery: Option<Span>,
}

/// Limit of a response without bursts (requirement L17).
const NORMAL: Span = Span::from_ns(1_500_000);

/// Runs all scenarios.
pub(in super::super) fn run(args: &Args) -> anyhow::Result<Exit> {
    let mut found: Vec<ScenarioMeasurement> = Vec::new();
    let mut claims = Vec::new();
    for (number, (what, service, load)) in SCENARIOS.into_iter().enumerate() {
        let (seen, said) = settle(what, args.patience(), || {
            let seen = one(number, what, service, load, args)?;
            let mut claims = claims_of(number, &seen, found.first());
            if args.deployed {
                for claim in &mut claims {
                    claim.row = "D33";
                }
            }
            Ok((seen, claims))
        })?;
        found.push(seen);
        claims.extend(said);
    }
    let head = "SCENARIO | WHO | PAPER | >BOUND | >SIMULATED max | >MEASURED max | >median | \
         >LATE sim. | >LATE meas. | >JOBS | >LEFT OUT | >LOST";
    let mut table = Table::new(head);
    for row in found.iter().map(|found| &found.row) {
        for task in &row.tasks {
            let of = |ns: Option<u64>| ms_text(ns.map(Span::from_ns));
            table.row(vec![
                row.scenario.to_owned(),
                task.name.to_owned(),
                task.paper.to_owned(),
                of(task.bound_ns),
                of(task.simulated_max_ns),
                of(task.measured_max_ns),
                of(task.measured_median_ns),
                task.simulated_late.to_string(),
                task.measured_late.to_string(),
                task.jobs.len().to_string(),
                task.left_out.to_string(),
                task.lost.to_string(),
            ]);
        }
    }
    let (how, suffix) =
        if args.deployed { ("deployed", "-deployed") } else { ("on real threads", "") };
    let figure = |number: u8, at: usize, name: &str| Figure {
        title: format!("L3C Fig. {number}, {how}: response time of task {name}"),
        x: "seconds",
        y: "ms",
        panels: vec![Panel {
            title: "without jobs that a stall has touched".to_owned(),
            series: found
                .iter()
                .map(|found| Series {
                    name: found.row.scenario.to_owned(),
                    points: found.waits[at].curve(),
                })
                .collect(),
        }],
    };
    let names = [7, 8].map(|number| format!("l3c-fig{number}{suffix}"));
    let figures = [(&*names[0], figure(7, 0, "A")), (&*names[1], figure(8, 1, "B"))];
    let raw = found.iter().map(|found| &found.row).collect();
    finish(args, &format!("l3c-fig7-8{suffix}"), &table, &figures, raw, claims)
}

fn one(
    number: usize,
    what: &'static str,
    service: Service,
    load: Load,
    args: &Args,
) -> anyhow::Result<ScenarioMeasurement> {
    let Times { length, bursts } = times(load, args.quick);
    let at = |ms: u64| Time::from_ns(ms * MS);
    let plan = Plan {
        service,
        load,
        capacity: u32::from(QUEUE),
        phases: Phases::default(),
        length: at(length),
        asked: (at(FROM), at(length - LAST)),
        bursts: bursts.clone(),
    };
    let (tree, workload) = base_system(&plan);
    let length = Span::from_ns(length * MS);
    let trial =
        Trial { tree, workload, length, requests: plan.requests(), echo: (SERVICE, Some(QUEUE)) };
    let simulated = trial.simulate();
    let seen = if args.deployed { deployed::run(&trial)? } else { trial.run()?.seen };
    let end = plan.length;
    let of_task = |task| Responses::of_jobs(&seen.lives, task, &seen.stalls, (at(FROM), end));
    let requests =
        |from, to| Responses::of_requests(&seen.asked, &seen.request_stalls, (from, to), end);
    // From the end of the recovery after a burst to the next burst.
    let recovered = |&ms: &u64| at(ms) + BURST + RECOVERY;
    let starts = std::iter::once(at(FROM)).chain(bursts.iter().map(recovered));
    let ends = bursts.iter().map(|&ms| at(ms)).chain([end]);
    let mut normal = Responses::default();
    for (from, to) in starts.zip(ends) {
        normal.extend(requests(from, to));
    }
    let slow_after = bursts.iter().zip(bursts.iter().skip(1).map(|&ms| at(ms)).chain([end])).map(
        |(&ms, next)| {
            let over = at(ms) + BURST;
            let last = requests(at(ms), next).last_beyond(NORMAL);
            last.map_or(Span::ZERO, |last| last.since(over.min(last)))
        },
    );
    let recovery = slow_after.max();
    let waits = [of_task(A), of_task(B), requests(at(FROM), end), normal];
    let case = Case::new(String::new(), trial.tree, trial.workload, end);
    let bounds: Vec<_> = rows(&case).iter().map(crate::bounds::BoundRow::bound).collect();
    let papers = [PAPER_A[number], PAPER_B[number], ""];
    let results = [A, B, ECHO].into_iter().zip(["A", "B", "echo"]).zip(&waits).zip(papers);
    let tasks = results.map(|(((task, name), waits), paper)| TaskResult {
        name,
        paper,
        bound_ns: bounds[task.0 as usize].map(Span::as_ns),
        simulated_max_ns: responses(&simulated, task).max().map(Span::as_ns),
        simulated_late: if task == ECHO { 0 } else { late(&simulated, task) },
        measured_max_ns: waits.longest().map(Span::as_ns),
        measured_median_ns: waits.quantile(50).map(Span::as_ns),
        measured_late: waits.late(),
        left_out: waits.left_out(),
        lost: waits.lost_total(),
        jobs: waits.points(),
    });
    let row = ScenarioRow {
        scenario: what,
        tasks: tasks.collect(),
        products: seen.products,
        stalls: seen.stalls.count(),
    };
    Ok(ScenarioMeasurement { row, waits, recovery })
}

fn jobs(lives: &JobLog, task: TaskId) -> impl Iterator<Item = &JobTimes> {
    lives.jobs.range((task, 0)..=(task, u64::MAX)).map(|(_, life)| life)
}

fn responses(lives: &JobLog, task: TaskId) -> impl Iterator<Item = Span> {
    jobs(lives, task).filter_map(|life| Some(life.end?.since(life.release?)))
}

fn late(lives: &JobLog, task: TaskId) -> usize {
    jobs(lives, task)
        .filter(|life| life.end.zip(life.deadline).is_some_and(|(end, due)| end > due))
        .count()
}

/// Returns the claim on the effect of bursts on A and B without a reservation.
fn bursts(a: &Responses, b: &Responses) -> Claim {
    let (least_a, least_b) = (a.at_least(), b.at_least());
    let (late_a, late_b) = (a.late_at_least(), b.late_at_least());
    let is_so =
        least_a > Some(span(100_000)) && least_b > Some(span(5_000)) && late_a > 0 && late_b > 0;
    // The subtraction of all time that stalls can have added may hide the effect. Then its absence
    // is no contradiction.
    let is_inconclusive = mutate!(
        "cli-l3c-bursts-hidden",
        !is_so && Responses::together_are_inconclusive(&[a, b]),
        a.count() == 0 || b.count() == 0
    );
    Claim {
        row: "L17",
        says: "bursts make A wait for more than 100 ms, B for more than 5 ms, and both miss deadlines, whatever stalls have added"
            .to_owned(),
        seen: format!("{}, late {late_a} and {late_b}", both(least_a, least_b)),
        verdict: Verdict::of(is_so, is_inconclusive),
    }
}

fn both(a: Option<Span>, b: Option<Span>) -> String {
    format!("A {}, B {} ms", ms_text(a), ms_text(b))
}

/// Returns the claims of a scenario. `without` is the scenario without requests.
///
/// Each limit of a response has [`DETECTION_LIMIT`] added, because a stall of that length excludes
/// no response.
fn claims_of(
    number: usize,
    found: &ScenarioMeasurement,
    without: Option<&ScenarioMeasurement>,
) -> Vec<Claim> {
    let [a, b, requests, normal] = &found.waits;
    let whole = |row, says: &str, seen: String, is_so, waits: &[&Responses]| {
        let is_inconclusive = Responses::together_are_inconclusive(waits);
        Claim { row, says: says.to_owned(), seen, verdict: Verdict::of(is_so, is_inconclusive) }
    };
    let up_to = |waits: &Responses, most: u64| {
        waits.longest().is_some_and(|longest| longest <= span(most) + DETECTION_LIMIT)
    };
    let lates = a.late() + b.late();
    match number {
        0 => vec![whole(
            "L17",
            "without requests A and B take what they cost, and A what B costs (14 and 4 ms)",
            format!("{}, {lates} late", both(a.longest(), b.longest())),
            up_to(a, 14_000) && up_to(b, 4_000) && lates == 0,
            &[a, b],
        )],
        1 => vec![
            whole(
                "L16",
                "10 requests a second at the highest priority are answered within the service time and 1 ms",
                format!(
                    "{} ms, {} of {} lost",
                    ms_text(requests.longest()),
                    requests.lost(),
                    requests.count()
                ),
                up_to(requests, 1_650) && requests.lost() == 0,
                &[a, b, requests],
            ),
            whole(
                "L17",
                "10 requests a second cost A and B at most 2 ms each, and no deadline",
                format!("{}, {lates} late", both(a.longest(), b.longest())),
                up_to(a, 14_000) && up_to(b, 4_000) && lates == 0,
                &[a, b],
            ),
        ],
        2 => vec![bursts(a, b)],
        _ => {
            let more = |of: usize| {
                let (now, then) = (found.waits[of].longest()?, without?.waits[of].longest()?);
                Some(now.checked_sub(then).unwrap_or(Span::ZERO))
            };
            let (more_a, more_b) = (more(0), more(1));
            let recovery = found.recovery.unwrap_or(Span::ZERO);
            vec![
                whole(
                    "L17",
                    "with the reservation A ends within 14 ms and B within 4 ms, and no deadline is missed",
                    format!("{}, {lates} late", both(a.longest(), b.longest())),
                    up_to(a, 14_000) && up_to(b, 4_000) && lates == 0,
                    &[a, b],
                ),
                whole(
                    "L17",
                    "with the reservation both are within 2 ms of the curve without requests",
                    format!("longest, {} more", both(more_a, more_b)),
                    [more_a, more_b]
                        .iter()
                        .all(|more| more.is_some_and(|more| more <= span(2_000) + DETECTION_LIMIT)),
                    &[a, b],
                ),
                whole(
                    "L17",
                    "with the reservation requests away from bursts are answered within 1.5 ms",
                    format!(
                        "{} ms, {} of {} lost",
                        ms_text(normal.longest()),
                        normal.lost(),
                        normal.count()
                    ),
                    up_to(normal, 1_500) && normal.lost() == 0,
                    &[a, b, normal],
                ),
                whole(
                    "L18",
                    "with room for 16 requests answers are as before 1 s after a burst",
                    format!(
                        "the last slow one after {:.0} ms, {} requests dropped",
                        ms(recovery),
                        requests.lost_total()
                    ),
                    recovery <= RECOVERY && requests.lost_total() > 0,
                    &[a, b, normal],
                ),
            ]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::stall_filter::StallIntervals;
    use super::*;

    /// Returns the responses of the jobs of one task, given as (release, end) in milliseconds. Each
    /// job is due 20 ms after its release.
    fn waits(stalls: &[(u64, u64)], jobs: &[(u64, u64)]) -> Responses {
        let at = |ms: u64| Time::from_ns(ms * 1_000_000);
        let mut lives = JobLog::default();
        for (number, &(release, end)) in (0..).zip(jobs) {
            let life = JobTimes {
                release: Some(at(release)),
                end: Some(at(end)),
                deadline: Some(at(release + 20)),
                begin: None,
            };
            lives.jobs.insert((TaskId(0), number), life);
        }
        let stalls = stalls.iter().map(|&(from, to)| (at(from), at(to))).collect();
        Responses::of_jobs(
            &lives,
            TaskId(0),
            &StallIntervals::new(stalls),
            (Time::ZERO, at(10_000)),
        )
    }

    #[test]
    fn l17_what_bursts_did_not_do_contradicts_unless_stalls_have_hidden_it() {
        let long = [(0, 130), (1_000, 1_150)];
        let short = [(0, 10), (1_000, 1_010)];
        let verdict = |stalls: &[(u64, u64)], a: &[(u64, u64)], b: &[(u64, u64)]| {
            bursts(&waits(stalls, a), &waits(stalls, b)).verdict
        };
        assert_eq!(verdict(&[], &long, &long), Verdict::Holds);
        // A stall that does not hide the effect.
        assert_eq!(verdict(&[(1_020, 1_030)], &long, &long), Verdict::Holds);
        assert_eq!(verdict(&[], &long, &short), Verdict::Contradicts);
        assert_eq!(verdict(&[], &short, &long), Verdict::Contradicts);
        // Stalls may have caused the whole response of B.
        assert_eq!(verdict(&[(1_000, 1_149), (2, 129)], &long, &long), Verdict::Inconclusive);
        assert_eq!(verdict(&[], &[], &long), Verdict::Inconclusive);
    }
}
