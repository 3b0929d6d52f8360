//! L3C's requirement that an unused EDF band costs nothing, on real threads.

use crate::harness::{Scratch, run};
use serde_json::Value;
use std::fmt::Write;
use talea_kernel_tests::{Bench, Runs, needs_root};

fn ns(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no time"))
}

/// The configuration of L1 to L3 with time to spare between all that happens: a table, a busy
/// partition, two levels above it.
const PLAIN: &str = r#"
duration = "400ms"
[[scheduler]]
name = "cpu"
policy = "fp"
[[scheduler]]
name = "table"
in = "cpu"
policy = "partitions"
frame = "20ms"
[[scheduler.slot]]
owner = "tp1"
length = "10ms"
[[scheduler.slot]]
owner = "tp2"
length = "10ms"
[[scheduler]]
name = "tp1"
in = "table"
policy = "fp"
[[scheduler]]
name = "tp2"
in = "table"
policy = "fp"
[[task]]
name = "busy"
in = "tp1"
period = "3600s"
cost = "600s"
[[task]]
name = "a"
in = "tp2"
period = "40ms"
offset = "10ms"
cost = "4ms"
[[task]]
name = "b"
in = "cpu"
priority = 100
period = "25ms"
offset = "3ms"
cost = "2ms"
[[task]]
name = "c"
in = "cpu"
priority = 200
period = "50ms"
offset = "17ms"
cost = "1ms"
"#;

/// A system with an EDF band of servers without requests.
fn with_idle_band() -> String {
    let mut text = format!(
        "{PLAIN}[[scheduler]]\nname = \"band\"\nin = \"cpu\"\npolicy = \"edf\"\npriority = 150\n"
    );
    for kind in ["polling", "deferrable", "sporadic", "cbs"] {
        let _ = write!(
            text,
            "[[scheduler]]\nname = \"{kind}\"\nin = \"band\"\nserver = \"{kind}\"\nbudget = \"2ms\"\nperiod = \"20ms\"\n\
             [[task]]\nname = \"{kind}-client\"\nin = \"{kind}\"\nperiod = \"20ms\"\ncost = \"1ms\"\narrivals = []\n"
        );
    }
    text
}

/// CPU time of the dispatchers in millionths, the orders without their times, and whether there
/// were stalls.
fn executed(scratch: &Scratch, file: &str) -> (u64, Vec<String>, bool) {
    let ended = run(scratch, &["execute", file, "--json", "--record", "run.txt"]);
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    let answer: Value = serde_json::from_str(&ended.out).expect("JSON");
    let recording = std::fs::read_to_string(scratch.path().join("run.txt")).expect("a recording");
    let order = |line: &str| {
        let (_, order) = line.split_once(' ')?;
        (order.starts_with("run ") || order.starts_with("idle ")).then(|| order.to_owned())
    };
    let stalls = answer["stalls"].as_array().is_some_and(|stalls| !stalls.is_empty());
    (
        ns(&answer["executions"][0]["scheduler_ppm"]),
        recording.lines().filter_map(order).collect(),
        stalls,
    )
}

/// Runs of both in turns: whether those with a band cost no more, beside what runs of the same
/// differ by. `None` if the difference of equal runs is too large.
fn costs_nothing(scratch: &Scratch) -> Option<bool> {
    let (mut plain, mut band) = (Vec::new(), Vec::new());
    let (mut same, mut differ) = (0, 0);
    for round in 0..8 {
        // In turns, and now the one first and now the other.
        let files =
            if round % 2 == 0 { ["plain.toml", "band.toml"] } else { ["band.toml", "plain.toml"] };
        let found = files.map(|file| executed(scratch, file));
        for (file, (cost, ..)) in files.iter().zip(&found) {
            if *file == "plain.toml" { plain.push(*cost) } else { band.push(*cost) }
        }
        // A stall may invert two orders.
        let [(_, one, stalls), (_, other, others)] = found;
        if one == other {
            assert!(one.len() > 60, "{} orders", one.len());
            same += 1;
        } else if !stalls && !others {
            differ += 1;
        }
    }
    assert_eq!(differ, 0, "orders of runs without stalls");
    let middle = |of: &mut Vec<u64>| {
        of.sort_unstable();
        (of[of.len() / 4], of[of.len() / 2], of[of.len() * 3 / 4])
    };
    let ((low, without, high), (_, with, _)) = (middle(&mut plain), middle(&mut band));
    println!(
        "{same} of 8 with the same orders; {without} ppm without ({low} to {high}), {with} ppm with a band"
    );
    let noise = high - low;
    (noise * 3 <= without && same > 0).then_some(with <= without + without * 3 / 100 + noise)
}

/// Dispatching cost with a band relative to the cost without, in thousandths: the median of
/// interleaved pairs of runs.
fn thousandths_of_pairs(scratch: &Scratch, pairs: u32) -> u64 {
    let one = |pair: u32| {
        let is_plain_first = pair.is_multiple_of(2);
        let files =
            if is_plain_first { ["plain.toml", "band.toml"] } else { ["band.toml", "plain.toml"] };
        let [(first, ..), (second, ..)] = files.map(|file| executed(scratch, file));
        let (plain, band) = if is_plain_first { (first, second) } else { (second, first) };
        band * 1_000 / plain
    };
    let mut found: Vec<u64> = (0..pairs).map(one).collect();
    found.sort_unstable();
    let at = |percent: usize| found[found.len() * percent / 100];
    println!(
        "with a band {} ‰ of without, {pairs} pairs, half of them {} to {}",
        at(50),
        at(25),
        at(75)
    );
    at(50)
}

#[test]
fn l9_l10_an_unused_band_changes_no_order_on_real_threads_and_costs_nothing_measurable() {
    needs_root!();
    let _bench = Bench::new("cli_l3c_band");
    let scratch = Scratch::new();
    scratch.file("plain.toml", PLAIN);
    scratch.file("band.toml", &with_idle_band());
    if std::env::var_os("TALEA_SOAK").is_some() {
        let found = thousandths_of_pairs(&scratch, 80);
        assert!(found < 1_030, "an unused band: {found} ‰ of the dispatching cost without it");
    }
    // Medians of few runs differ by chance. A band with a cost costs something in each try.
    let mut runs = Runs::at_least(1);
    let costs_something = (0..3).all(|_| runs.repeat(|| costs_nothing(&scratch)) == Some(false));
    assert!(!costs_something, "an unused band costs something in each try");
}
