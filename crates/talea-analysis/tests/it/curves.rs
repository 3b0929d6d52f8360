//! Arrival curves: the bounds of another tool, and of the tests for sporadic tasks.

use crate::rng::{Deadlines, random, rng, rounds};
use serde_json::Value;
use talea_analysis::uni::curve_response::{CurveTask, edf_bounds, fp_bounds};
use talea_analysis::uni::{
    ArrivalCurve, Arrivals, CurveError, DEFAULT_STEP_LIMIT, Scratch, Sections, limited_edf,
    limited_fp,
};
use talea_analysis::verdict::Inconclusive;
use talea_core::{Span, Work};

fn curve(value: &Value) -> ArrivalCurve {
    let number = |value: &Value| value.as_u64().expect("a number");
    let steps: Vec<(Span, u64)> = (value["steps"].as_array().expect("steps").iter())
        .map(|step| (Span::from_ns(number(&step[0])), number(&step[1])))
        .collect();
    ArrivalCurve::new(Span::from_ns(number(&value["horizon"])), &steps).expect("a curve")
}

#[test]
fn every_bound_of_poets_sets_is_that_of_pyrta() {
    let (mut equal, mut open, mut curves) = (0, 0, 0);
    for line in include_str!("../data/poet.jsonl").lines() {
        let row: Value = serde_json::from_str(line).expect("JSON");
        let tasks = row["tasks"].as_array().expect("tasks");
        let of_task: Vec<Option<ArrivalCurve>> =
            tasks.iter().map(|task| task.get("curve").map(curve)).collect();
        let preemptive = row["preemptive"].as_bool().expect("a model");
        let tasks: Vec<CurveTask<'_>> = tasks
            .iter()
            .zip(&of_task)
            .map(|(task, curve)| {
                let number = |name: &str| task.get(name).and_then(Value::as_u64);
                let cost = Work::from_ns(number("cost").expect("a cost"));
                let section = if preemptive { Work::from_ns(1) } else { cost };
                let arrivals = if let Some(curve) = curve {
                    Arrivals::Curve(curve)
                } else {
                    let period = number("period").or(number("mit")).expect("a period");
                    Arrivals::Periodic { period: Span::from_ns(period), jitter: Span::ZERO }
                };
                CurveTask {
                    cost,
                    deadline: Span::from_ns(number("deadline").expect("a deadline")),
                    arrivals,
                    sections: Sections { longest: section, last: section },
                    level: u32::MAX - number("priority").unwrap_or(0) as u32,
                }
            })
            .collect();
        curves += of_task.iter().flatten().count();
        let bounds = match row["policy"].as_str() {
            Some("fp") => fp_bounds(&tasks, DEFAULT_STEP_LIMIT),
            _ => edf_bounds(&tasks, DEFAULT_STEP_LIMIT),
        };
        let bounds = bounds.unwrap_or_else(|why| panic!("{}: {why:?}", row["id"]));
        let Some(expected) = row["R"].as_array() else {
            open += tasks.len();
            continue;
        };
        for (bound, expected) in bounds.iter().zip(expected) {
            match expected.as_u64() {
                Some(expected) => {
                    assert_eq!(bound.map(Span::as_ns), Some(expected), "{}", row["id"]);
                    equal += 1;
                }
                None => open += 1,
            }
        }
    }
    println!("{equal} equal, {open} without a bound of pyRTA, {curves} curves");
    assert!(equal > 3_000 && curves > 2_500, "{equal} {curves}");
}

#[test]
fn sporadic_tasks_have_the_bounds_of_their_own_tests() {
    let mut rng = rng(81);
    let mut scratch = Scratch::new();
    for _ in 0..rounds(4_000) {
        let count = rng.between(1, 5);
        let mut tasks = random(&mut rng, count, 24, 130 / count, Deadlines::Arbitrary);
        let sections: Vec<Sections> = tasks
            .iter()
            .map(|task| {
                let longest = rng.between(1, task.cost.as_ns());
                let last = rng.between(1, longest);
                Sections { longest: Work::from_ns(longest), last: Work::from_ns(last) }
            })
            .collect();
        let curve_tasks = |tasks: &[talea_analysis::Sporadic]| -> Vec<CurveTask<'static>> {
            (0..)
                .zip(tasks)
                .map(|(level, task)| CurveTask {
                    cost: task.cost,
                    deadline: task.deadline,
                    arrivals: Arrivals::Periodic { period: task.period, jitter: task.jitter },
                    sections: sections[level as usize],
                    level,
                })
                .collect()
        };
        let mut out = vec![None; tasks.len()];
        limited_edf::bounds(&tasks, |at| sections[at], &mut scratch, &mut out).expect("in range");
        let expected: Vec<_> = out.iter().map(|bound| bound.map(|bound| bound.release)).collect();
        assert_eq!(edf_bounds(&curve_tasks(&tasks), 1 << 20), Ok(expected), "{tasks:?}");
        // Under EDF jitter means something else: deadlines count from the release here.
        for task in &mut tasks {
            task.jitter = Span::from_ns(rng.below(3) * rng.below(9));
        }
        let overload = limited_fp::bounds(&tasks, |at| sections[at], &mut scratch, &mut out);
        overload.expect("in range");
        let expected: Vec<_> = out.iter().map(|bound| bound.map(|bound| bound.release)).collect();
        let found = fp_bounds(&curve_tasks(&tasks), 1 << 20);
        if found == Err(Inconclusive::Limit) {
            // Full CPUs with jitter have an endless busy window.
            continue;
        }
        assert_eq!(found, Ok(expected), "{tasks:?}");
    }
}

#[test]
fn lists_that_are_no_curves_are_refused() {
    let ns = Span::from_ns;
    let new = |steps: &[(u64, u64)]| {
        let steps: Vec<(Span, u64)> = steps.iter().map(|&(at, jobs)| (ns(at), jobs)).collect();
        ArrivalCurve::new(ns(10), &steps).err()
    };
    assert_eq!(new(&[(1, 2), (4, 3)]), None);
    for first in [&[][..], &[(2, 1)], &[(1, 0)], &[(0, 1)]] {
        assert_eq!(new(first), Some(CurveError::FirstStep));
    }
    assert_eq!(new(&[(1, 2), (1, 3)]), Some(CurveError::Order(1)));
    assert_eq!(new(&[(1, 2), (3, 2)]), Some(CurveError::Order(1)));
    assert_eq!(new(&[(1, 2), (10, 3)]), Some(CurveError::Horizon(1)));
}
