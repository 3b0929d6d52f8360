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
    let longest = answer["holes"]
        .as_array()
        .expect("holes")
        .iter()
        .map(|hole| hole["to_ns"].as_u64().unwrap_or(0) - hole["from_ns"].as_u64().unwrap_or(0));
    assert!(longest.max().is_some_and(|ns| ns > 40_000_000), "and the hole is seen: {}", answer["holes"]);
}

/// When a client had the CPU: `told` are the times at which its work was told, and how much it was since the last time. It was done just
/// before, and not while the CPU stood still; who tells may be awake before the one who sees that it goes on.
fn had(told: &[(u64, u64)], holes: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let mut had = Vec::new();
    for &(at, work) in told {
        let (mut to, mut left) = (at, work);
        for &(from, until) in holes.iter().rev().filter(|hole| hole.0 < at) {
            let begin = to.saturating_sub(left).max(until.min(to));
            had.push((begin, to));
            left -= to - begin;
            if left == 0 {
                break;
            }
            to = from;
        }
        had.push((to.saturating_sub(left), to));
    }
    had
}

/// How much of it lies in so much from there on.
fn within(had: &[(u64, u64)], from: u64, length: u64) -> u64 {
    let part = |&(a, b): &(u64, u64)| b.min(from + length).saturating_sub(a.max(from));
    had.iter().map(part).sum()
}

#[test]
fn l24_after_a_stop_of_50_ms_a_server_gives_its_budget_in_each_period_and_makes_up_for_nothing() {
    needs_root!();
    let _bench = Bench::new("stops_l24");
    let scratch = Scratch::new();
    const BUDGET: u64 = 4_000_000;
    const PERIOD: u64 = 20_000_000;
    for kind in ["deferrable", "polling", "sporadic", "cbs"] {
        let text = format!(
            "duration = \"800ms\"\n[[scheduler]]\nname = \"cpu\"\npolicy = \"{}\"\n[[scheduler]]\nname = \"net\"\nin = \"cpu\"\n\
             server = \"{kind}\"\nbudget = \"4ms\"\nperiod = \"20ms\"\n{}[[task]]\nname = \"greedy\"\nin = \"net\"\n\
             period = \"800ms\"\ncost = \"700ms\"\n",
            if kind == "cbs" { "edf" } else { "fp" },
            if kind == "cbs" { "" } else { "priority = 9\n" },
        );
        scratch.file("server.toml", &text);
        let arguments = ["server.toml", "--record", "run.txt", "--check"];
        let ns = |value: &Value| value.as_u64().expect("a time");
        // Whoever is to stop it may come when it is over.
        let run = (0..5).find_map(|_| {
            let answer = stopped(&scratch, &arguments, Duration::from_millis(50));
            let holes = answer["holes"].as_array().expect("holes").iter();
            let holes: Vec<_> = holes.map(|hole| (ns(&hole["from_ns"]), ns(&hole["to_ns"]))).collect();
            let stop = *holes.iter().find(|(from, to)| to - from > 40_000_000)?;
            Some((answer, holes, stop))
        });
        let (answer, holes, stop) = run.expect("the stop is seen");
        assert_eq!(answer["real_time"], true);
        let recording = std::fs::read_to_string(scratch.path().join("run.txt")).expect("a recording");
        let ran = |line: &str| match line.split(' ').collect::<Vec<_>>()[..] {
            [at, "ran", "0", work] => Some((at.parse().expect("a time"), work.parse().expect("a work"))),
            _ => None,
        };
        let told: Vec<(u64, u64)> = recording.lines().filter_map(ran).collect();
        let had = had(&told, &holes);
        let of = |from, length| within(&had, from, length);
        let periods = (0..40).map(|number| of(number * PERIOD, PERIOD)).max().unwrap_or(0);
        let windows = had.iter().map(|&(from, _)| of(from, PERIOD)).max().unwrap_or(0);
        let next = of(stop.1, PERIOD);
        println!(
            "{kind}: at most {periods} ns in a period, {windows} in any 20 ms, {next} in those after the stop"
        );
        // A look may be late, and the begin of a hole is known to a millisecond.
        let most = |budgets: u64| budgets * BUDGET + 1_200_000;
        let is_near = |line: &&str| {
            let at = line.split(' ').next().and_then(|at| at.parse::<u64>().ok());
            at.is_some_and(|at| at + PERIOD > stop.0 && at < stop.1 + 2 * PERIOD)
        };
        let near = || recording.lines().filter(is_near).collect::<Vec<_>>().join("\n");
        match kind {
            // Each period has its own budget, and what a stop took of one is gone.
            "deferrable" | "polling" => {
                assert!(periods <= most(1), "{kind}: {periods}; {holes:?}\n{}", near());
            }
            // The last of the old budget, and a new one.
            _ => assert!(next.max(windows) <= most(2), "{kind}: {next}, {windows}; {holes:?}\n{}", near()),
        }
        let all = of(0, 40 * PERIOD);
        assert!((10 * BUDGET..=most(41)).contains(&all), "{all} in forty periods");
        // By the kernel's word nobody had the CPU without an order, which ends with the budget.
        let kernel = &answer["executions"][0]["kernel"];
        assert!(kernel["longest_ns"].as_u64().is_some_and(|ns| ns < 2_000_000), "{kernel}");
    }
}
