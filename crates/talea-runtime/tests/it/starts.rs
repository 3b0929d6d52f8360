//! Start times of jobs: by a table from a file, and by how dispatchers wait.

use crate::timed::{Timed, compute};
use crate::verdict::{Shown, is_so};
use crate::{MS, one_of_some};
use std::time::Duration;
use talea_kernel_tests::{Bench, Runs, kernel, needs, needs_root};
use talea_runtime::{Config, Task, WaitMode};

const HYPERPERIOD: Duration = Duration::from_millis(20);

/// Table for two CPUs, with idle time between the entries.
const SCHEDULE: &str = r#"
[[scheduler]]
name = "application"
policy = "table"
cpus = 2
hyperperiod = "20ms"

[[scheduler.entry]]
cpu = 0
owner = "a"
start = "1ms"
length = "3ms"

[[scheduler.entry]]
cpu = 0
owner = "b"
start = "7ms"
length = "4ms"

[[scheduler.entry]]
cpu = 1
owner = "c"
start = "5ms"
length = "3ms"

[[scheduler.entry]]
cpu = 1
owner = "d"
start = "13ms"
length = "5ms"
"#;
/// Starts of the entries, in ms.
const STARTS: [u32; 4] = [1, 7, 5, 13];

#[test]
fn y11_jobs_of_a_table_from_a_file_start_on_time_for_a_thousand_hyperperiods() {
    needs_root!();
    let cpus: Vec<u32> = kernel::cpus().iter().take(2).collect();
    needs!("two CPUs", cpus.len() == 2);
    let is_soak = std::env::var_os("TALEA_SOAK").is_some();
    let rounds = if is_soak { 1_000 } else { 40 };
    is_so(&mut Runs::at_least(1), "starts by a table", || {
        // One lock per attempt: seven of a thousand rounds take longer than a test may lock the
        // system.
        let bench = Bench::new("runtime_starts");
        let path = bench.write("schedule.toml", SCHEDULE);
        let mut timed = Timed::new(Config { cpus: cpus.clone(), ..Config::default() });
        for name in ["a", "b", "c", "d"] {
            let task = timed.task(Task::periodic(name, HYPERPERIOD));
            timed.version(task, "v0", MS, || compute(MS));
        }
        let text = std::fs::read_to_string(&path).expect("a file");
        let table = timed.app.read_table(&text).expect("a table");
        timed.app.set_table(Some(table));
        let seen = timed.run(HYPERPERIOD * rounds);
        let (mut errors, mut lost) = (Vec::new(), 0);
        for (done, start) in seen.done.iter().zip(STARTS) {
            for done in done {
                let from = HYPERPERIOD * done.job as u32 + MS * start;
                assert!(done.begin >= from, "before its entry at {from:?}: {done:?}");
            }
            // The last ones may not have ended.
            for job in 0..rounds - 1 {
                let from = HYPERPERIOD * job + MS * start;
                // A job that did not end within its entry continues in a later one, and so may
                // those behind it.
                if seen.is_affected(from, from + MS, HYPERPERIOD) {
                    lost += 1;
                    continue;
                }
                let done = done.iter().find(|done| done.job == u64::from(job));
                errors.push(done.map_or(Duration::MAX, |done| done.begin.saturating_sub(from)));
            }
        }
        errors.sort_unstable();
        let at = |share: usize| {
            errors.get(errors.len() * share / 1_000).copied().unwrap_or(Duration::MAX)
        };
        let saw = format!(
            "{rounds} hyperperiods: start error p50 {:?}, p99 {:?}, p99.9 {:?} of {} jobs, {lost} excluded by stalls",
            at(500),
            at(990),
            at(999),
            errors.len()
        );
        println!("{saw}");
        // The 99th percentile of a thousand rounds; with forty the median, and the others within
        // the entry.
        let limit = if is_soak { at(990) } else { at(500) };
        Shown {
            is_so: limit < Duration::from_micros(200),
            // A quarter of them.
            is_enough: errors.len() >= rounds as usize,
            is_calm: seen.is_calm(),
            saw,
        }
    });
}

/// Returns the median start error of empty jobs, the thousandths of a CPU that dispatchers and
/// workers consumed, and whether there was no CPU stall.
fn idle(waiting: WaitMode, period: Duration) -> (Duration, u128, bool) {
    let cpus: Vec<u32> = kernel::cpus().iter().take(1).collect();
    let mut timed = Timed::new(Config { cpus, wait_mode: waiting, ..Config::default() });
    let task = timed.task(Task::periodic("idle", period));
    timed.version(task, "only", MS / 10, || {});
    let seen = timed.run(400 * MS);
    let mut errors: Vec<Duration> = seen.done[0]
        .iter()
        .map(|done| done.begin.saturating_sub(period * done.job as u32))
        .collect();
    errors.sort_unstable();
    let used = (seen.report.scheduling_time + seen.report.worker_time).as_nanos();
    (errors[errors.len() / 2], used * 1_000 / seen.report.length.as_nanos(), seen.is_calm())
}

#[test]
fn y15_sleeping_uses_little_cpu_time_and_spinning_all_that_it_may_and_starts_sooner() {
    needs_root!();
    let _bench = Bench::new("runtime_awake");
    let mut seen = Vec::new();
    let is = one_of_some(|| {
        let (_, asleep, _) = idle(WaitMode::Sleep, 10 * MS);
        let (error_asleep, ..) = idle(WaitMode::Sleep, 2 * MS);
        // It may spin for half of each wait, so that other threads get a CPU at all.
        let (error_awake, awake, is_calm) = idle(WaitMode::Spin(MS), 2 * MS);
        seen.push((asleep, awake, error_asleep, error_awake));
        // A late wake-up, after a CPU stall, shortens the spinning.
        let least = if is_calm { 450 } else { 10 * asleep.max(10) };
        asleep < 20 && (least..=560).contains(&awake) && error_awake < error_asleep
    });
    println!("thousandths of a CPU asleep and awake, middle start error of each: {seen:?}");
    assert!(is, "thousandths of a CPU asleep and awake, middle start error of each: {seen:?}");
}
