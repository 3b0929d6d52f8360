//! Runs whose process is stopped from outside for a while.

use crate::harness::{Scratch, talea, under_way};
use serde_json::Value;
use std::process::Stdio;
use std::time::Duration;
use talea_kernel_tests::{Bench, needs_root};

/// Starts a run, stops its process for `pause` in the middle, and waits for its end.
fn stopped(scratch: &Scratch, arguments: &[&str], pause: Duration) -> Value {
    let child = talea(scratch)
        .args([&["execute", "--json"], arguments].concat())
        .stdout(Stdio::piped())
        .spawn()
        .expect("talea");
    let pid = rustix::process::Pid::from_child(&child);
    under_way(child.id(), Duration::from_millis(10));
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).expect("it is there");
    // Length of the stop.
    std::thread::sleep(pause);
    rustix::process::kill_process(pid, rustix::process::Signal::CONT).expect("it is there");
    let ended = child.wait_with_output().expect("it ends");
    serde_json::from_slice(&ended.stdout).expect("JSON")
}

#[test]
fn s16_a_stop_of_60_ms_shows_as_misses_of_a_10_ms_task() {
    needs_root!();
    let _bench = Bench::new("stops_s16");
    let scratch = Scratch::new();
    let text = "duration = \"800ms\"\n[[scheduler]]\nname = \"cpu\"\npolicy = \"fp\"\n[[task]]\nname = \"t\"\nin = \"cpu\"\n\
                period = \"10ms\"\ncost = \"1ms\"\n";
    scratch.file("stop.toml", text);
    // 60 ms and the delivery of the signals.
    let answer = stopped(&scratch, &["stop.toml"], Duration::from_millis(65));
    let task = &answer["roots"][0]["tasks"][0];
    assert!(task["late"].as_u64().is_some_and(|late| late >= 5), "{task}");
    assert!(task["arrived"].as_u64().is_some_and(|arrived| arrived >= 79), "none is lost: {task}");
    let longest =
        answer["stalls"].as_array().expect("stalls").iter().map(|stall| {
            stall["to_ns"].as_u64().unwrap_or(0) - stall["from_ns"].as_u64().unwrap_or(0)
        });
    assert!(
        longest.max().is_some_and(|ns| ns > 40_000_000),
        "and the stall is detected: {}",
        answer["stalls"]
    );
}

/// Budget of the servers of L24, in nanoseconds.
const BUDGET: u64 = 4_000_000;
const PERIOD: u64 = 20_000_000;

/// Recorded work of the only client: executed between `since` (its dispatch or the previous record)
/// and `at`.
struct WorkReport {
    since: u64,
    at: u64,
    work: u64,
}

fn work_reports(recording: &str) -> Vec<WorkReport> {
    let mut reports = Vec::new();
    let mut since = 0;
    for line in recording.lines() {
        let mut words = line.split(' ');
        let Some(at) = words.next().and_then(|at| at.parse().ok()) else { continue };
        match (words.next(), words.next()) {
            (Some("ran"), Some("0")) => {
                let work = words.next().and_then(|work| work.parse().ok()).expect("a work");
                reports.push(WorkReport { since, at, work });
                since = at;
            }
            (Some("run"), _) => since = at,
            _ => {}
        }
    }
    reports
}

/// Returns the intervals in which the client had the CPU. Its work was executed just before the
/// record, and not during stalls. The recording thread may resume before the stall monitor does. If
/// a hypervisor took the CPU, the client's clock may have advanced: work without time for it is
/// dropped.
fn execution_intervals(reports: &[WorkReport], stalls: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let mut had = Vec::new();
    for &WorkReport { since, at, work } in reports {
        let (mut to, mut left) = (at, work);
        let before = stalls.iter().rev().filter(|stall| stall.0 < at);
        for &(from, until) in before.chain([&(since, since)]) {
            let begin = to.saturating_sub(left).max(until.min(to)).max(since.min(to));
            had.push((begin, to));
            left -= to - begin;
            if left == 0 || from <= since {
                break;
            }
            to = from;
        }
    }
    had
}

/// Returns the number of stalls in an interval.
fn touching(stalls: &[(u64, u64)], from: u64, to: u64) -> u64 {
    stalls.iter().filter(|stall| stall.0 < to && stall.1 > from).count() as u64
}

/// Returns the execution time in `length` from `from`.
fn within(had: &[(u64, u64)], from: u64, length: u64) -> u64 {
    let part = |&(a, b): &(u64, u64)| b.min(from + length).saturating_sub(a.max(from));
    had.iter().map(part).sum()
}

/// A run that was stopped for 50 ms: `pause`, one of the `stalls`, of which `near` are close enough
/// to affect what follows it.
struct Stop {
    near: u64,
    answer: Value,
    stalls: Vec<(u64, u64)>,
    pause: (u64, u64),
    recording: String,
}

/// Runs `server.toml` and stops it. The stop may come too late, and another stall may be near it:
/// of a few runs this returns the first with a single stall, or the one with the fewest.
fn stopped_once(scratch: &Scratch) -> Stop {
    let arguments = ["server.toml", "--record", "run.txt", "--check"];
    let ns = |value: &Value| value.as_u64().expect("a time");
    let mut best: Option<Stop> = None;
    for _ in 0..5 {
        let answer = stopped(scratch, &arguments, Duration::from_millis(50));
        let stalls = answer["stalls"].as_array().expect("stalls").iter();
        let stalls: Vec<_> =
            stalls.map(|stall| (ns(&stall["from_ns"]), ns(&stall["to_ns"]))).collect();
        let Some(&pause) = stalls.iter().find(|(from, to)| to - from > 40_000_000) else {
            continue;
        };
        let near = touching(&stalls, pause.0.saturating_sub(2 * PERIOD), pause.1 + PERIOD);
        if best.as_ref().is_none_or(|best| near < best.near) {
            let recording =
                std::fs::read_to_string(scratch.path().join("run.txt")).expect("a recording");
            best = Some(Stop { near, answer, stalls, pause, recording });
        }
        if near == 1 {
            break;
        }
    }
    best.expect("the stop is seen")
}

#[test]
fn l24_after_a_stop_of_50_ms_a_server_gives_its_budget_in_each_period_and_makes_up_for_nothing() {
    needs_root!();
    let _bench = Bench::new("stops_l24");
    let scratch = Scratch::new();
    for kind in ["deferrable", "polling", "sporadic", "cbs"] {
        let text = format!(
            "duration = \"800ms\"\n[[scheduler]]\nname = \"cpu\"\npolicy = \"{}\"\n[[scheduler]]\nname = \"net\"\nin = \"cpu\"\n\
             server = \"{kind}\"\nbudget = \"4ms\"\nperiod = \"20ms\"\n{}[[task]]\nname = \"greedy\"\nin = \"net\"\n\
             period = \"800ms\"\ncost = \"700ms\"\n",
            if kind == "cbs" { "edf" } else { "fp" },
            if kind == "cbs" { "" } else { "priority = 9\n" },
        );
        scratch.file("server.toml", &text);
        let Stop { near, answer, stalls, pause, recording } = stopped_once(&scratch);
        assert_eq!(answer["real_time"], true);
        let had = execution_intervals(&work_reports(&recording), &stalls);
        let of = |from, length| within(&had, from, length);
        let stalls_near = |from: u64, periods: u64| {
            touching(&stalls, from.saturating_sub(periods * PERIOD), from + PERIOD)
        };
        // A probe may be late, and the start of each stall is known to a millisecond.
        let over = |budgets: u64, from: u64| {
            let most = budgets * BUDGET + 200_000 + stalls_near(from, 1).max(1) * 1_000_000;
            (of(from, PERIOD) > most).then_some(from)
        };
        let excess = match kind {
            // Each period has its own budget, and the stopped part of one is lost.
            "deferrable" | "polling" => (0..40).find_map(|number| over(1, number * PERIOD)),
            // The rest of the old budget, and a new one. Shorter stalls, or one more beside the
            // stop, may add the rest of an earlier budget, as in Linux.
            _ => over(if near == 1 { 2 } else { 3 }, pause.1).or_else(|| {
                let budgets = |from| if stalls_near(from, 2) == 0 { 2 } else { 3 };
                had.iter().find_map(|&(from, _)| over(budgets(from), from))
            }),
        };
        if let Some(from) = excess {
            let is_near = |line: &&str| {
                let at = line.split(' ').next().and_then(|at| at.parse::<u64>().ok());
                at.is_some_and(|at| at + PERIOD > from && at < from + 2 * PERIOD)
            };
            let lines: Vec<_> = recording.lines().filter(is_near).collect();
            panic!(
                "{kind}: {} in 20 ms from {from}; {stalls:?}\n{}",
                of(from, PERIOD),
                lines.join("\n")
            );
        }
        let longest = had.iter().map(|&(from, _)| of(from, PERIOD)).max().unwrap_or(0);
        println!(
            "{kind}: at most {longest} ns in any 20 ms, {} after the stop, {near} stalls near it",
            of(pause.1, PERIOD)
        );
        let all = of(0, 40 * PERIOD);
        assert!((10 * BUDGET..=41 * BUDGET).contains(&all), "{all} in forty periods");
        // No thread had the CPU without an order, by `sched_switch` events; an order ends with the
        // budget.
        let kernel = &answer["executions"][0]["kernel"];
        assert!(kernel["longest_ns"].as_u64().is_some_and(|ns| ns < 2_000_000), "{kernel}");
    }
}
