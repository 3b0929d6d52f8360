//! Results of independent tools: `tests/data/sbf.csv`, `tests/data/hierarchical.jsonl`. No row is
//! skipped.

use crate::rng::task;
use serde_json::Value;
use talea_analysis::supply::{ExplicitDeadline, PeriodicResource, Supply, edf, fp};
use talea_analysis::{Sporadic, Verdict};
use talea_core::{Span, Work};

#[test]
fn every_supply_bound_and_its_inverse_are_those_of_the_oracle() {
    let mut rows = 0;
    for line in include_str!("../../data/sbf.csv").lines().skip(1) {
        let row: Vec<u64> =
            line.split(',').map(|number| number.parse().expect("a number")).collect();
        let &[budget, deadline, period, window, sbf, need, min_time] = &row[..] else {
            panic!("{line}")
        };
        let (budget, period) = (Work::from_ns(budget), Span::from_ns(period));
        let supply = ExplicitDeadline::new(budget, period, Span::from_ns(deadline));
        assert_eq!(supply.sbf(Span::from_ns(window)).as_ns(), sbf, "{line}");
        assert_eq!(supply.time_for(Work::from_ns(need)), Some(Span::from_ns(min_time)), "{line}");
        if Span::from_ns(deadline) == period {
            let supply = PeriodicResource::new(budget, period);
            assert_eq!(supply.sbf(Span::from_ns(window)).as_ns(), sbf, "{line}");
        }
        rows += 1;
    }
    println!("supply bounds: {rows} rows, 0 skipped");
    assert_eq!(rows, 360, "all of the file");
}

#[test]
fn every_verdict_of_tasks_in_a_periodic_resource_is_that_of_the_oracle() {
    let (mut rows, mut proved, mut unknown) = (0, [0, 0], 0);
    for line in include_str!("../../data/hierarchical.jsonl").lines() {
        let row: Value = serde_json::from_str(line).expect("JSON");
        let number = |value: &Value| value.as_u64().expect("a number");
        let supply = PeriodicResource::new(
            Work::from_ns(number(&row["Q"])),
            Span::from_ns(number(&row["P"])),
        );
        let tasks: Vec<Sporadic> = (row["tasks"].as_array().expect("tasks").iter())
            .map(|one| task(number(&one[0]), number(&one[1]), number(&one[2])))
            .collect();
        let verdicts =
            [fp::verdict(&tasks, &supply, u64::MAX), edf::verdict(&tasks, &supply, u64::MAX)];
        for (at, (verdict, name)) in verdicts.iter().zip(["fp_ok", "edf_ok"]).enumerate() {
            unknown += u64::from(matches!(verdict, Verdict::Unknown { .. }));
            assert_eq!(verdict.is_proved(), number(&row[name]) == 1, "{name} {line}: {verdict:?}");
            proved[at] += u64::from(verdict.is_proved());
        }
        rows += 1;
    }
    println!(
        "tasks in a periodic resource: {rows} rows, {unknown} unknown, 0 skipped; proved {proved:?} under FP, EDF"
    );
    assert_eq!((rows, unknown), (240, 0), "all of the file");
}
