//! Results of independent tools for sets on one processor, `tests/data/uniproc.jsonl`.
//!
//! The columns are C, T, D and, in two families, J or B, in fixed-priority order. `fp_R` is the
//! response from release to completion under preemptive fixed priorities (null: no bound). `fp_ok`
//! states whether each response plus its jitter is at most D. `edf_R` and `edf_ok` are the same
//! under EDF with ties in any way. They are absent for the families with jitter and blocking. The
//! values are from the crate `response-time-analysis` 0.3.2 and SchedCAT. The sets are random and
//! were made for these data. Rows are skipped for one reason only, which the test prints.

use crate::rng::task;
use serde_json::Value;
use talea_analysis::Sporadic;
use talea_analysis::Verdict;
use talea_analysis::uni::{Scratch, edf_response, fp_response, qpa};
use talea_core::{Span, Work};

pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) tasks: Vec<Sporadic>,
    pub(crate) family: String,
    fp: Option<(Vec<Option<u64>>, bool)>,
    edf: Option<(Vec<Option<u64>>, bool)>,
}

/// All rows of the file.
pub(crate) fn rows() -> Vec<Row> {
    let numbers = |value: &Value| -> Vec<Option<u64>> {
        value.as_array().expect("a list").iter().map(Value::as_u64).collect()
    };
    let read = |line: &str| {
        let row: Value = serde_json::from_str(line).expect("JSON");
        let family = row["fam"].as_str().expect("a family").to_owned();
        let one = |values: &Value| {
            let values: Vec<u64> =
                numbers(values).into_iter().map(|value| value.expect("a number")).collect();
            let plain = task(values[0], values[1], values[2]);
            match (family.as_str(), values.get(3)) {
                ("jit", Some(&jitter)) => Sporadic { jitter: Span::from_ns(jitter), ..plain },
                ("blk", Some(&blocking)) => Sporadic { blocking: Work::from_ns(blocking), ..plain },
                (_, None) => plain,
                (family, _) => panic!("a fourth number in family {family}"),
            }
        };
        let tasks = row["tasks"].as_array().expect("tasks").iter().map(one).collect();
        let answer = |times: &str, verdict: &str| {
            let verdict = row.get(verdict)?.as_u64()? == 1;
            Some((numbers(row.get(times)?), verdict))
        };
        Row {
            name: format!("{} {}", family, row["id"]),
            tasks,
            fp: answer("fp_R", "fp_ok"),
            edf: answer("edf_R", "edf_ok"),
            family,
        }
    };
    include_str!("../data/uniproc.jsonl").lines().map(read).collect()
}

/// Prints the numbers of rows that a test has decided, left open and skipped.
fn report(test: &str, answered: u64, unknown: u64, skipped: u64, reason: &str) {
    println!("{test}: {answered} rows, {unknown} unknown, {skipped} skipped{reason}");
    assert_eq!(unknown, 0, "{test} must have an answer to every row");
}

#[test]
fn every_fixed_priority_response_time_and_verdict_is_that_of_the_oracle() {
    let mut scratch = Scratch::new();
    let (mut answered, mut unknown, mut bounds) = (0, 0, 0);
    for row in rows() {
        let (expected, expected_ok) = row.fp.as_ref().expect("every row has them");
        let mut out = vec![None; row.tasks.len()];
        match fp_response::bounds(&row.tasks, &mut scratch, &mut out) {
            Ok(ok) => assert_eq!(ok, *expected_ok, "{}", row.name),
            Err(_) => unknown += 1,
        }
        let got: Vec<Option<u64>> =
            out.iter().map(|bound| bound.map(|bound| bound.release.as_ns())).collect();
        assert_eq!(got, *expected, "{}", row.name);
        assert_eq!(fp_response::meets(&row.tasks, &mut scratch), Ok(*expected_ok), "{}", row.name);
        let verdict = fp_response::verdict(&row.tasks);
        assert_eq!(verdict.is_proved(), *expected_ok, "{}", row.name);
        answered += 1;
        bounds += got.len();
    }
    report("fixed-priority response times", answered, unknown, 0, "");
    assert_eq!((answered, bounds), (1_812, 13_691), "all of the file");
}

#[test]
fn every_edf_response_time_and_verdict_is_that_of_the_oracle() {
    let mut scratch = Scratch::new();
    let (mut answered, mut skipped, mut unknown, mut bounds) = (0, 0, 0, 0);
    for row in rows() {
        let Some((expected, expected_ok)) = &row.edf else {
            assert!(["jit", "blk"].contains(&row.family.as_str()), "{}", row.name);
            skipped += 1;
            continue;
        };
        let mut out = vec![None; row.tasks.len()];
        match edf_response::bounds(&row.tasks, &mut scratch, &mut out) {
            Ok(ok) => assert_eq!(ok, *expected_ok, "{}", row.name),
            Err(_) => unknown += 1,
        }
        let got: Vec<Option<u64>> =
            out.iter().map(|bound| bound.map(|bound| bound.release.as_ns())).collect();
        assert_eq!(got, *expected, "{}", row.name);
        for verdict in [edf_response::verdict(&row.tasks), qpa::verdict(&row.tasks)] {
            unknown += u64::from(matches!(verdict, Verdict::Unknown { .. }));
            assert_eq!(verdict.is_proved(), *expected_ok, "{}", row.name);
        }
        answered += 1;
        bounds += got.len();
    }
    report(
        "EDF response times and demand",
        answered,
        unknown,
        skipped,
        " (jitter, blocking: the oracle has no answer)",
    );
    assert_eq!((answered, skipped, bounds), (1_571, 241, 12_214), "all of the file");
}
