//! Plate K over trees: what is simulated is never beyond the bound, and reaches it where that is said to be exact.

use super::made::{FAMILIES, Family, Made, made};
use crate::dice::{dice, rounds};
use std::collections::BTreeMap;
use talea_analysis::card::Kind;
use talea_analysis::tree::{Answer, Reason, Roots};
use talea_core::workload::{Arrivals, Cost};
use talea_core::{Span, Time};
use talea_sim::{Jobs, World};

/// What came out of a family.
#[derive(Default)]
struct Tally {
    trees: u64,
    tasks: u64,
    bounded: u64,
    reached: u64,
    exact: u64,
    /// Simulated over bound, in thousandths, summed.
    tightness: u64,
    reasons: BTreeMap<&'static str, u64>,
}

fn simulate(made: &Made, until: u64) -> Vec<(Span, u64)> {
    let machine = made.tree.build().expect("a tree");
    let mut world = World::new(machine, made.tree.cpus, &made.workload).with_overheads(made.overheads);
    let mut jobs = Jobs::default();
    world.run(Time::from_ns(until), &mut jobs);
    let mut found = vec![(Span::ZERO, 0); made.workload.sources.len()];
    for job in &jobs.ended {
        let one = &mut found[job.task.0 as usize];
        *one = (one.0.max(job.response()), one.1 + 1);
    }
    found
}

fn check(made: &Made, tally: &mut Tally) {
    let until = 700;
    let mut roots = Roots::new(&made.tree, &made.workload.sources);
    roots.overheads = made.overheads;
    roots.steps = 1 << 15;
    let answers: Vec<Answer> = roots.bounds();
    let found = simulate(made, until);
    tally.trees += 1;
    let together = made.workload.sources.iter().all(|source| {
        matches!(source.arrivals, Arrivals::Periodic { offset: Span::ZERO, jitter: Span::ZERO, .. })
            && matches!(source.cost, Cost::Constant(_))
    });
    for ((answer, source), (longest, ended)) in answers.iter().zip(&made.workload.sources).zip(found) {
        tally.tasks += 1;
        let bound = match &answer.bound {
            Ok(bound) => *bound,
            Err(no) => {
                *tally.reasons.entry(no.reason.text()).or_default() += 1;
                continue;
            }
        };
        assert!(longest <= bound, "{longest:?} > {answer:?}\n{:#?}\n{:#?}", made.tree, made.workload);
        if let Arrivals::Periodic { offset, period, .. } = source.arrivals {
            // None is still under way that should have ended.
            let due = (until - 1).checked_sub(bound.as_ns() + offset.as_ns());
            let due = due.map_or(0, |due| due / period.as_ns() + 1);
            assert!(ended >= due, "{ended} of {due} ended: {answer:?}\n{:#?}", made.tree);
        }
        tally.bounded += 1;
        tally.reached += u64::from(longest == bound);
        tally.tightness += longest.as_ns() * 1_000 / bound.as_ns().max(1);
        if answer.kind == Kind::Exact && together && answer.test.policy == "FP" && bound.as_ns() < until / 2 {
            assert_eq!(longest, bound, "exact: {answer:?}\n{:#?}\n{:#?}", made.tree, made.workload);
            assert_eq!(answer.is_refuted(), longest > answer.deadline, "a refutation is a miss");
            tally.exact += 1;
        }
    }
}

#[test]
fn no_simulated_response_is_beyond_its_bound() {
    let mut dice = dice(50);
    for family in FAMILIES {
        let mut tally = Tally::default();
        for _ in 0..rounds(1_500) {
            check(&made(&mut dice, family), &mut tally);
        }
        let Tally { trees, tasks, bounded, reached, exact, tightness, reasons } = &tally;
        println!(
            "{family:?}: {trees} trees, {tasks} tasks, {bounded} bounded, {reached} reached ({exact} exact ones), simulated/bound {} per mille",
            tightness / bounded.max(&1)
        );
        for (reason, count) in reasons {
            println!("    {count} {reason}");
        }
        assert!(*bounded > tasks / 3, "{family:?}: bounds are found");
        assert!(family != Family::Flat || *exact > trees / 4, "{family:?}: {exact} exact");
    }
    assert_eq!(Reason::Limit.text(), "the analysis gave up at its limit");
}
