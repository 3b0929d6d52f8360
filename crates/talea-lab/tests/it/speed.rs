//! `talea-lab` from the outside, small: what its answers are made of, never how fast this machine
//! is.

use crate::harness::{Scratch, finish, run, talea};
use serde_json::Value;

fn quick(scratch: &Scratch) -> Value {
    let ended =
        finish(talea(scratch).args(["sim", "--quick", "--json"]).env("TMPDIR", scratch.path()));
    assert_eq!((ended.code, ended.err.as_str()), (Some(0), ""));
    serde_json::from_str(&ended.out).expect("JSON")
}

/// A middle that something can be read from: positive, and between its quarters.
fn check(middle: &Value) {
    let [from, median, to] =
        ["from", "median", "to"].map(|name| middle[name].as_f64().expect("a finite number"));
    assert!(0.0 < from && from <= median && median <= to, "{middle}");
}

#[test]
fn lab_sim_tells_of_every_case_what_it_simulated_beside_the_reference() {
    let scratch = Scratch::new();
    let answer = quick(&scratch);
    let cases = answer["cases"].as_array().expect("cases");
    let of = |case: &Value| {
        let text = |name: &str| case[name].as_str().expect("text").to_owned();
        (text("policy"), case["cpus"].as_u64(), text("sink"))
    };
    let kinds: Vec<_> = cases.iter().map(of).collect();
    let kind = |policy: &str, cpus, sink: &str| (policy.to_owned(), Some(cpus), sink.to_owned());
    let expected = [
        kind("G-EDF, U = 1.5", 2, "counters"),
        kind("G-EDF, U = 1.5", 2, "records"),
        kind("G-EDF, U = 1.5", 2, "trace"),
        kind("G-RM, U = 1.3", 2, "counters"),
        kind("EDF, U = 0.9", 1, "counters"),
        kind("RM, U = 0.7", 1, "counters"),
    ];
    assert_eq!(kinds, expected);
    for case in cases {
        for name in ["million_jobs_per_second", "reference_seconds", "scaled"] {
            check(&case[name]);
        }
        // Two stretches of about 2,500 jobs, a quarter of that with a trace: that many have ended,
        // whatever it took.
        let jobs = case["jobs"].as_u64().expect("a count");
        let about = if case["sink"] == "trace" { 1_250 } else { 5_000 };
        assert!(jobs.abs_diff(about) < about / 10, "{jobs} jobs: {case}");
    }
    // The same simulation, with any sink.
    assert_eq!(cases[0]["jobs"], cases[1]["jobs"]);
    assert_eq!(quick(&scratch)["cases"][0]["jobs"], cases[0]["jobs"]);
    let left = std::fs::read_dir(scratch.path()).expect("the folder").count();
    assert_eq!(left, 0, "the traces are removed again");
}

#[test]
fn lab_sim_tells_what_a_decision_takes_by_tasks_and_levels() {
    let scratch = Scratch::new();
    let decisions = &quick(&scratch)["decisions"];
    let cases = decisions["cases"].as_array().expect("cases");
    let sizes: Vec<_> =
        cases.iter().map(|case| (case["tasks"].as_u64(), case["levels"].as_u64())).collect();
    let expected =
        [(100, 1), (1_000, 1), (10_000, 1), (1_000, 2), (1_000, 3), (1_000, 4), (1_000, 5)];
    assert_eq!(sizes, expected.map(|(tasks, levels)| (Some(tasks), Some(levels))));
    for case in cases {
        for name in ["nanoseconds", "reference_seconds", "scaled"] {
            check(&case[name]);
        }
    }
    // A difference of two measurements: on a machine that others use it may even be less than
    // nothing.
    assert!(decisions["level"]["median"].is_number(), "{decisions}");
}

#[test]
fn lab_sim_prints_two_tables_and_at_which_pace() {
    let scratch = Scratch::new();
    let ended = run(&scratch, &["sim", "--quick"]);
    assert_eq!((ended.code, ended.err.as_str()), (Some(0), ""));
    let columns =
        |line: &str| line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).count();
    let [jobs, decisions] = ["POLICY", "READY TASKS"].map(|head| {
        let mut lines = ended.out.lines().skip_while(|line| !line.trim_start().starts_with(head));
        let wide = columns(lines.next().unwrap_or_else(|| panic!("no {head}:\n{}", ended.out)));
        lines.take_while(|line| columns(line) == wide).count()
    });
    assert_eq!((jobs, decisions), (6, 7), "{}", ended.out);
    let last = ended.out.lines().last();
    assert_eq!(
        last,
        Some("medians of stretches, scaled to the pace at which the reference loop takes 0.153 s")
    );
}
