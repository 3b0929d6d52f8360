//! Schedules as charts. `#` runs, `.` waits, `!` marks the first tick after a missed deadline.
//!
//! Each chart is compared with the chart in the source. With `TALEA_BLESS` set, the test rewrites
//! the source.

use crate::bridge::Record;
use std::panic::Location;
use talea_core::engine::{Migration, SchedulerSpec, TaskSpec, Tree};
use talea_core::sched::{PolicySpec, Slot};
use talea_core::{Span, Time, Work};
use talea_sim::{Arrivals, Cost, Simulation, Source, Workload};

/// Task of a chart.
struct Row {
    name: String,
    work: u64,
    period: u64,
    deadline: u64,
    priority: u64,
    offset: u64,
}

/// Parses `a work=2 period=5; b work=4 period=7 deadline=6 priority=3 offset=1`.
fn rows(tasks: &str) -> Vec<Row> {
    let row = |task: &str| {
        let given = |key: &str| {
            let words = task.split_whitespace().filter_map(|word| word.split_once('='));
            words
                .filter(|word| word.0 == key)
                .map(|word| word.1.parse().expect("a number"))
                .next_back()
        };
        let period = given("period").expect("a period");
        Row {
            name: task.split_whitespace().next().expect("a name").into(),
            work: given("work").expect("work"),
            period,
            deadline: given("deadline").unwrap_or(period),
            priority: given("priority").unwrap_or(0),
            offset: given("offset").unwrap_or(0),
        }
    };
    tasks.split(';').map(row).collect()
}

/// Draws a line per task, for two periods of the longest, or to the first miss.
fn chart(mut tree: Tree, tasks: &str) -> String {
    let rows = rows(tasks);
    let mut sources = vec![];
    for row in &rows {
        let mut spec = TaskSpec::new(&row.name, Span::from_ns(row.period));
        (spec.deadline, spec.priority) = (Span::from_ns(row.deadline), row.priority as u8);
        tree.task(Tree::ROOT, spec);
        let (offset, period) = (Span::from_ns(row.offset), Span::from_ns(row.period));
        let arrivals = Arrivals::Periodic { offset, period, jitter: Span::ZERO };
        sources.push(Source { arrivals, cost: Cost::Constant(Work::from_ns(row.work)) });
    }
    let length = rows.iter().map(|row| 2 * row.period).max().expect("a task");
    let mut record = Record::new(rows.len(), tree.cpus as usize);
    let engine = tree.build().expect("a tree");
    let mut simulation = Simulation::new(engine, tree.cpus, &Workload { sources, seed: 0 });
    simulation.run(Time::from_ns(length + 1), &mut record);
    record.fill(Time::from_ns(length));
    let (ticks, ends) = (&record.outcome.ticks, &record.outcome.ends);
    let ended = |task: usize, at: u64| ends[task].iter().filter(|&&end| end <= at).count() as u64;
    // Number of jobs that have arrived, or are due, by then.
    let count = |row: &Row, from: u64, at: u64| (at + 1).saturating_sub(from).div_ceil(row.period);
    let is_missed = |task: usize, row: &Row, at: u64| {
        count(row, row.offset + row.deadline, at) > ended(task, at)
    };
    let miss = (0..=length)
        .find(|&at| rows.iter().enumerate().any(|(task, row)| is_missed(task, row, at)));
    let mut text = String::new();
    for (task, row) in rows.iter().enumerate() {
        let mut line = format!("{} |", row.name);
        for at in 0..miss.unwrap_or(length) {
            let is_pending = count(row, row.offset, at) > ended(task, at);
            line.push(match (ticks[at as usize].contains(&Some(task)), is_pending) {
                (true, _) => '#',
                (false, true) => '.',
                (false, false) => ' ',
            });
        }
        if miss.is_some_and(|at| is_missed(task, row, at)) {
            line.push('!');
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// Returns the chart in the source without its indentation.
fn plain(chart: &str) -> String {
    let lines = chart.lines().map(str::trim).filter(|line| !line.is_empty());
    lines.flat_map(|line| [line, "\n"]).collect()
}

#[track_caller]
#[allow(clippy::disallowed_methods, reason = "on request, a test corrects its own source")]
fn check_tree(tree: Tree, tasks: &str, expected: &str) {
    let found = chart(tree, tasks);
    if found == plain(expected) {
        return;
    }
    if std::env::var_os("TALEA_BLESS").is_some_and(|value| !value.is_empty()) {
        let file = format!("{}/tests/it/charts.rs", env!("CARGO_MANIFEST_DIR"));
        let source = std::fs::read_to_string(&file).expect("this file");
        let line = Location::caller().line() as usize;
        let before: usize = source.split_inclusive('\n').take(line - 1).map(str::len).sum();
        let literal = format!("\"{expected}\"");
        let at = before + source[before..].find(&literal).expect("the chart follows its call");
        let rows: String = found.lines().flat_map(|row| ["        ", row, "\n"]).collect();
        let written = format!("{}\"\n{rows}    \"{}", &source[..at], &source[at + literal.len()..]);
        std::fs::write(&file, written).expect("this file can be written");
        return;
    }
    panic!("expected\n{}found\n{found}TALEA_BLESS=1 rewrites it", plain(expected));
}

#[track_caller]
fn check(policy: PolicySpec, tasks: &str, expected: &str) {
    check_tree(Tree::new(1, SchedulerSpec::new("root", policy)), tasks, expected);
}

#[test]
fn s1_edf_meets_what_rate_monotonic_misses() {
    let tasks = "a work=2 period=5; b work=4 period=7";
    check(
        PolicySpec::Edf,
        tasks,
        "
        a |##   .##  ..##
        b |..#### .####
    ",
    );
    check(
        PolicySpec::RateMonotonic,
        tasks,
        "
        a |##   ##
        b |..###..!
    ",
    );
}

#[test]
fn s1_deadline_monotonic_meets_what_rate_monotonic_misses() {
    let tasks = "a work=2 period=6; b work=3 period=8 deadline=4";
    check(
        PolicySpec::DeadlineMonotonic,
        tasks,
        "
        a |...## ##    ##
        b |###     ###
    ",
    );
    check(
        PolicySpec::RateMonotonic,
        tasks,
        "
        a |##
        b |..##!
    ",
    );
}

#[test]
fn s1_fifo_serves_in_the_order_of_arrival_and_round_robin_in_turns() {
    let tasks = "a work=4 period=12; b work=2 period=12 offset=1; c work=3 period=12 offset=2";
    check(
        PolicySpec::Fifo,
        tasks,
        "
        a |####        ####
        b | ...##       ...##
        c |  ....###     ....###
    ",
    );
    check(
        PolicySpec::RoundRobin { quantum: Work::from_ns(2) },
        tasks,
        "
        a |###....#    ###....#
        b | ..##        ..##
        c |  ...##.#     ...##.#
    ",
    );
}

#[test]
fn s13_without_preemption_a_job_runs_to_completion() {
    let tasks = "a work=2 period=8 offset=1 priority=2; b work=5 period=16 priority=1";
    check(
        PolicySpec::FixedPriority,
        tasks,
        "
        a | ##      ##      ##      ##
        b |#..####         #..####
    ",
    );
    let root = SchedulerSpec {
        preemptive: false,
        ..SchedulerSpec::new("root", PolicySpec::FixedPriority)
    };
    check_tree(
        Tree::new(1, root),
        tasks,
        "
        a | ....##  ##      ....##  ##
        b |#####           #####
    ",
    );
}

#[test]
fn s17_a_strict_table_leaves_a_slot_idle_and_a_lending_one_does_not() {
    let table = |lending| {
        let slot = |start, end, owner| Slot {
            start: Span::from_ns(start),
            end: Span::from_ns(end),
            owner,
        };
        PolicySpec::Partitions {
            frame: Span::from_ns(8),
            slots: vec![slot(0, 4, 0), slot(4, 8, 1)],
            lending,
        }
    };
    let tasks = "a work=2 period=16; b work=7 period=16";
    check(
        table(false),
        tasks,
        "
        a |##              ##
        b |....####....### ....####....###
    ",
    );
    check(
        table(true),
        tasks,
        "
        a |##              ##
        b |..#######       ..#######
    ",
    );
}

#[test]
fn y2_global_edf_on_two_cpus_with_and_without_job_migration() {
    let tasks = "a work=10 period=30; b work=8 period=28; c work=8 period=14 offset=2";
    let tree = |migration| {
        let mut tree = Tree::new(2, SchedulerSpec::new("root", PolicySpec::Edf));
        tree.migration = migration;
        tree
    };
    check_tree(
        tree(Migration::Anytime),
        tasks,
        "
        a |##......########              ......##########
        b |########                    ########                    ####
        c |  ########      ########      ########      ########      ##
    ",
    );
    check_tree(
        tree(Migration::JobBoundaries),
        tasks,
        "
        a |##........########            ......##########
        b |########                    ########                    ####
        c |  ########      ########      ########      ########      ##
    ",
    );
}
