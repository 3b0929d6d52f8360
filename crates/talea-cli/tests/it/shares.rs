//! CPU time of a run's process, by the kernel's accounting.

use crate::harness::{Scratch, json, talea, under_way, used};
use std::process::Stdio;
use std::time::{Duration, Instant};
use talea_kernel_tests::{Bench, needs_root};

/// Half of the CPU is strictly reserved for `busy`, which wants all of it; the other half is for an
/// idle task.
const STRICT: &str = "\
duration = \"2500ms\"
[[scheduler]]
name = \"cpu\"
policy = \"partitions\"
frame = \"20ms\"
[[scheduler.slot]]
owner = \"wants\"
length = \"10ms\"
[[scheduler.slot]]
owner = \"rests\"
length = \"10ms\"
[[scheduler]]
name = \"wants\"
in = \"cpu\"
policy = \"edf\"
[[scheduler]]
name = \"rests\"
in = \"cpu\"
policy = \"edf\"
[[task]]
name = \"busy\"
in = \"wants\"
period = \"5s\"
cost = \"4s\"
[[task]]
name = \"idle\"
in = \"rests\"
period = \"5s\"
cost = \"1ms\"
arrivals = []
";

#[test]
fn s17_an_unused_strict_slot_costs_nothing_and_stays_idle() {
    needs_root!();
    let _bench = Bench::new("shares_s17");
    let scratch = Scratch::new();
    scratch.file("strict.toml", STRICT);
    let child = talea(&scratch)
        .args(["execute", "strict.toml", "--check", "--json"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("talea");
    let pid = child.id();
    under_way(pid, Duration::from_millis(100));
    // The interval begins before the first reading and ends after the second, so it is at least as
    // long as the measured one.
    let begin = Instant::now();
    let before = used(pid);
    // Length of the interval.
    std::thread::sleep(Duration::from_millis(1_600));
    let after = used(pid);
    let window = begin.elapsed().as_nanos() as u64;
    let ended = child.wait_with_output().expect("it ends");
    let answer = json(&String::from_utf8_lossy(&ended.stdout));
    // No worker ran in another slot, nor without an order, by `sched_switch` events.
    assert_eq!(ended.status.code(), Some(0), "{answer}");
    let ppm = |is_wanted: &dyn Fn(&str) -> bool| {
        let sum = |all: &[(String, u64)]| -> u64 {
            all.iter().filter(|(name, _)| is_wanted(name)).map(|(_, used)| used).sum()
        };
        (sum(&after) - sum(&before)) * 1_000_000 / window
    };
    // The monitor is excluded: it probes a thousand times a second, and costs more than all other
    // threads.
    let is_monitor = |name: &str| name.starts_with("exec-monitor");
    let (ours, workers) =
        (ppm(&|name| !is_monitor(name)), ppm(&|name| name.starts_with("exec-task")));
    println!(
        "{ours} millionths of a CPU, of it workers {workers}; the monitor {}",
        ppm(&is_monitor)
    );
    // Stalls only reduce the time: a strict half is never more.
    assert!(
        ours <= 510_000,
        "{ours} millionths of a CPU, {workers} of workers; the slots are 500,000"
    );
    assert!(workers >= 200_000, "the busy one has its slots: {workers}");
}
