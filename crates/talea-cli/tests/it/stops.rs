//! What a run does when its whole process is stopped for a while, from outside.

use crate::harness::{Scratch, talea, under_way};
use serde_json::Value;
use std::process::Stdio;
use std::time::Duration;
use talea_kernel_tests::{Bench, needs_root};

/// Starts a run, stops its whole process for so long in the middle, and lets it end.
fn stopped(scratch: &Scratch, arguments: &[&str], pause: Duration) -> Value {
    let child = talea(scratch)
        .args([&["execute", "--json"], arguments].concat())
        .stdout(Stdio::piped())
        .spawn()
        .expect("talea");
    let pid = rustix::process::Pid::from_child(&child);
    under_way(child.id(), Duration::from_millis(10));
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).expect("it is there");
    // The length of the stop.
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
    // 60 ms and what the signals may take.
    let answer = stopped(&scratch, &["stop.toml"], Duration::from_millis(65));
    let task = &answer["roots"][0]["tasks"][0];
    assert!(task["late"].as_u64().is_some_and(|late| late >= 5), "{task}");
    assert!(task["arrived"].as_u64().is_some_and(|arrived| arrived >= 79), "none is lost: {task}");
    let longest =
        answer["holes"].as_array().expect("holes").iter().map(|hole| {
            hole["to_ns"].as_u64().unwrap_or(0) - hole["from_ns"].as_u64().unwrap_or(0)
        });
    assert!(
        longest.max().is_some_and(|ns| ns > 40_000_000),
        "and the hole is seen: {}",
        answer["holes"]
    );
}

/// Of the servers of L24.
const BUDGET: u64 = 4_000_000;
const PERIOD: u64 = 20_000_000;

/// What a record tells of the only client's work: it was done between `since`, when the client was
/// told to run or its work was told last, and `at`.
struct Told {
    since: u64,
    at: u64,
    work: u64,
}

fn told(recording: &str) -> Vec<Told> {
    let mut told = Vec::new();
    let mut since = 0;
    for line in recording.lines() {
        let mut words = line.split(' ');
        let Some(at) = words.next().and_then(|at| at.parse().ok()) else { continue };
        match (words.next(), words.next()) {
            (Some("ran"), Some("0")) => {
                let work = words.next().and_then(|work| work.parse().ok()).expect("a work");
                told.push(Told { since, at, work });
                since = at;
            }
            (Some("run"), _) => since = at,
            _ => {}
        }
    }
    told
}

/// When a client had the CPU, in pieces: its work was done just before it was told, and not while
/// the CPU stood still; who tells may be awake before the one who sees that it goes on. Where a
/// hypervisor took the CPU away the client's clock may have gone on: what there was no time for was
/// not done.
fn had(told: &[Told], holes: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let mut had = Vec::new();
    for &Told { since, at, work } in told {
        let (mut to, mut left) = (at, work);
        let before = holes.iter().rev().filter(|hole| hole.0 < at);
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

/// How many of these there are from here to there.
fn touching(holes: &[(u64, u64)], from: u64, to: u64) -> u64 {
    holes.iter().filter(|hole| hole.0 < to && hole.1 > from).count() as u64
}

/// How much of it lies in so much from there on.
fn within(had: &[(u64, u64)], from: u64, length: u64) -> u64 {
    let part = |&(a, b): &(u64, u64)| b.min(from + length).saturating_sub(a.max(from));
    had.iter().map(part).sum()
}

/// A run that was stopped for 50 ms: `pause`, one of the `holes`, of which `near` are so near to it
/// that they may have a part in what comes after it.
struct Stop {
    near: u64,
    answer: Value,
    holes: Vec<(u64, u64)>,
    pause: (u64, u64),
    recording: String,
}

/// Runs `server.toml` and stops it. Whoever is to stop it may come when it is over, and the machine
/// may stop it once more near by: of a few runs it is the first that was stopped once, or the one
/// nearest to that.
fn stopped_once(scratch: &Scratch) -> Stop {
    let arguments = ["server.toml", "--record", "run.txt", "--check"];
    let ns = |value: &Value| value.as_u64().expect("a time");
    let mut best: Option<Stop> = None;
    for _ in 0..5 {
        let answer = stopped(scratch, &arguments, Duration::from_millis(50));
        let holes = answer["holes"].as_array().expect("holes").iter();
        let holes: Vec<_> = holes.map(|hole| (ns(&hole["from_ns"]), ns(&hole["to_ns"]))).collect();
        let Some(&pause) = holes.iter().find(|(from, to)| to - from > 40_000_000) else { continue };
        let near = touching(&holes, pause.0.saturating_sub(2 * PERIOD), pause.1 + PERIOD);
        if best.as_ref().is_none_or(|best| near < best.near) {
            let recording =
                std::fs::read_to_string(scratch.path().join("run.txt")).expect("a recording");
            best = Some(Stop { near, answer, holes, pause, recording });
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
        let Stop { near, answer, holes, pause, recording } = stopped_once(&scratch);
        assert_eq!(answer["real_time"], true);
        let had = had(&told(&recording), &holes);
        let of = |from, length| within(&had, from, length);
        let holes_near = |from: u64, periods: u64| {
            touching(&holes, from.saturating_sub(periods * PERIOD), from + PERIOD)
        };
        // A look may be late, and the begin of each hole is known to a millisecond.
        let over = |budgets: u64, from: u64| {
            let most = budgets * BUDGET + 200_000 + holes_near(from, 1).max(1) * 1_000_000;
            (of(from, PERIOD) > most).then_some(from)
        };
        let excess = match kind {
            // Each period has its own budget, and what a stop took of one is gone.
            "deferrable" | "polling" => (0..40).find_map(|number| over(1, number * PERIOD)),
            // The last of the old budget, and a new one. Holes that are shorter than the stop, or
            // one more beside it, may leave the last of an old one, that of a period that is not
            // over yet, and that of the next, as in Linux.
            _ => over(if near == 1 { 2 } else { 3 }, pause.1).or_else(|| {
                let budgets = |from| if holes_near(from, 2) == 0 { 2 } else { 3 };
                had.iter().find_map(|&(from, _)| over(budgets(from), from))
            }),
        };
        if let Some(from) = excess {
            let is_near = |line: &&str| {
                let told = line.split(' ').next().and_then(|at| at.parse::<u64>().ok());
                told.is_some_and(|told| told + PERIOD > from && told < from + 2 * PERIOD)
            };
            let lines: Vec<_> = recording.lines().filter(is_near).collect();
            panic!(
                "{kind}: {} in 20 ms from {from}; {holes:?}\n{}",
                of(from, PERIOD),
                lines.join("\n")
            );
        }
        let longest = had.iter().map(|&(from, _)| of(from, PERIOD)).max().unwrap_or(0);
        println!(
            "{kind}: at most {longest} ns in any 20 ms, {} after the stop, {near} holes near it",
            of(pause.1, PERIOD)
        );
        let all = of(0, 40 * PERIOD);
        assert!((10 * BUDGET..=41 * BUDGET).contains(&all), "{all} in forty periods");
        // By the kernel's word nobody had the CPU without an order, which ends with the budget.
        let kernel = &answer["executions"][0]["kernel"];
        assert!(kernel["longest_ns"].as_u64().is_some_and(|ns| ns < 2_000_000), "{kernel}");
    }
}
