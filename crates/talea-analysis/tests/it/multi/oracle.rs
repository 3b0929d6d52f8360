//! Verdicts and response times of independent tools for sets on several CPUs. tests/data/README.md
//! describes the cases and their origin.

use super::plain;
use serde_json::Value;
use std::collections::BTreeMap;
use talea_analysis::multi::bertogna_cirinei::{self, GlobalPolicy};
use talea_analysis::multi::{Scratch, baruah, bcl, da_lc, ff_dbf, gfb, guan, necessary, portfolio};
use talea_analysis::{Inconclusive, Sporadic, Verdict};

/// Limit of windows, above the need of any case of the oracle.
const POINTS: u64 = 1 << 20;

struct Case {
    id: u64,
    family: String,
    cpus: u32,
    tasks: Vec<Sporadic>,
    value: Value,
}

impl Case {
    fn verdict(&self, group: &str, name: &str) -> Option<bool> {
        self.value[group][name].as_u64().map(|verdict| verdict == 1)
    }

    fn bounds(&self, name: &str) -> Option<Vec<u64>> {
        let list = self.value[name].as_array()?;
        Some(list.iter().map(|bound| bound.as_u64().expect("a bound")).collect())
    }

    /// Whether a job of the synchronous schedule misses its deadline.
    fn misses(&self, policy: GlobalPolicy) -> bool {
        let name = if policy == GlobalPolicy::Edf { "edf_first_miss" } else { "fp_first_miss" };
        self.value["sync_sim"][name].as_i64().expect("a time or -1") >= 0
    }
}

fn cases() -> Vec<Case> {
    let lines = include_str!("../../data/global.jsonl").lines();
    let cases = lines.map(|line| {
        let value: Value = serde_json::from_str(line).expect("JSON");
        let task = |task: &Value| {
            let number = |at: usize| task[at].as_u64().expect("a number");
            super::task(number(0), number(2), number(1))
        };
        Case {
            id: value["id"].as_u64().expect("id"),
            family: value["fam"].as_str().expect("family").to_owned(),
            cpus: value["m"].as_u64().expect("m") as u32,
            tasks: value["tasks"].as_array().expect("tasks").iter().map(task).collect(),
            value,
        }
    });
    let cases: Vec<Case> = cases.collect();
    assert!(cases.len() >= 400, "{} cases", cases.len());
    cases
}

type Test = fn(&[Sporadic], u32, &mut Scratch) -> Verdict;

/// Tests with their names in the oracle: policy of the oracle, name of a verdict, name of the
/// bounds, and the test of this crate.
const TESTS: [(&str, &str, &str, Test); 6] = [
    ("gedf", "GFB", "", |tasks, cpus, _| gfb::test(tasks, cpus)),
    ("gedf", "BCL", "", bcl::plain),
    ("gedf", "BCLI", "", bcl::iterative),
    ("gedf", "RTA", "gedf_RTA_R", edf),
    ("gedf", "BAR", "", |tasks, cpus, scratch| baruah::test(tasks, cpus, POINTS, scratch)),
    ("gfp", "GUAN", "guan_R", guan::test),
];

fn edf(tasks: &[Sporadic], cpus: u32, scratch: &mut Scratch) -> Verdict {
    bertogna_cirinei::test(GlobalPolicy::Edf, tasks, cpus, scratch)
}

fn fp(tasks: &[Sporadic], cpus: u32, scratch: &mut Scratch) -> Verdict {
    bertogna_cirinei::test(GlobalPolicy::FixedPriority, tasks, cpus, scratch)
}

fn any_policy(tasks: &[Sporadic], cpus: u32, scratch: &mut Scratch) -> Verdict {
    bertogna_cirinei::test(GlobalPolicy::WorkConserving, tasks, cpus, scratch)
}

fn ns(verdict: &Verdict) -> Vec<u64> {
    match verdict {
        Verdict::Proved { bounds } => bounds.iter().map(|bound| bound.as_ns()).collect(),
        _ => Vec::new(),
    }
}

#[test]
fn every_verdict_and_every_bound_of_the_oracle_is_equal() {
    let mut scratch = Scratch::new();
    let mut seen = BTreeMap::<&str, (usize, usize, usize)>::new();
    for case in cases() {
        for (group, name, bounds, test) in TESTS {
            let verdict = test(&case.tasks, case.cpus, &mut scratch);
            let there = case.verdict(group, name).expect("a verdict");
            assert_eq!(verdict.is_proved(), there, "{name} of set {}: {verdict:?}", case.id);
            // Beyond that it proves nothing a sufficient test may say nothing; but what a test
            // can't do is no answer.
            let is_answer = match verdict {
                Verdict::Unknown { why: Inconclusive::Insufficient { .. } }
                | Verdict::Proved { .. } => true,
                // BAR is about U < m only.
                Verdict::Unknown { why: Inconclusive::Assumption { number: 5, .. } } => {
                    name == "BAR"
                }
                _ => false,
            };
            assert!(is_answer, "{name} of set {}: {verdict:?}", case.id);
            let (rows, proved, equal) = seen.entry(name).or_default();
            *rows += 1;
            *proved += usize::from(there);
            if let Some(there) = case.bounds(bounds).filter(|_| verdict.is_proved()) {
                assert_eq!(ns(&verdict), there, "{name} of set {}", case.id);
                *equal += there.len();
            }
        }
    }
    for (name, (rows, proved, equal)) in seen {
        let unknown = 100 * (rows - proved) / rows;
        println!(
            "{name}: {rows} rows, 0 skipped, {proved} proved, {unknown} % Unknown as there, {equal} bounds equal"
        );
    }
}

#[test]
fn the_oracle_s_fixed_priority_bounds_lack_a_cap_and_are_never_better() {
    // BERT there is equation 8 without min(·, R − C + 1). With it more sets are accepted and no
    // bound is larger.
    let mut scratch = Scratch::new();
    let (mut equal, mut more, mut smaller) = (0, 0, 0);
    for case in cases() {
        let there = case.verdict("gfp", "BERT").expect("a verdict");
        let uncapped = plain::uncapped(&case.tasks, case.cpus);
        assert_eq!(uncapped.is_some(), there, "set {}", case.id);
        let here = fp(&case.tasks, case.cpus, &mut scratch);
        more += usize::from(here.is_proved() && !there);
        let Some(uncapped) = uncapped else { continue };
        let uncapped: Vec<u64> = uncapped.into_iter().map(|bound| bound as u64).collect();
        assert_eq!(case.bounds("bert_R").expect("bounds"), uncapped, "set {}", case.id);
        equal += uncapped.len();
        let here = ns(&here);
        assert_eq!(here.len(), uncapped.len(), "set {}: the cap lost it", case.id);
        for (here, there) in here.into_iter().zip(uncapped) {
            assert!(here <= there, "set {}", case.id);
            smaller += usize::from(here < there);
        }
    }
    println!(
        "BERT: {equal} bounds equal without the cap; with it {smaller} smaller, {more} sets more"
    );
}

#[test]
fn every_set_that_the_oracle_accepts_by_some_speed_is_accepted() {
    // FFDBF there tries σ in steps: what it finds is found here, and more.
    let mut scratch = Scratch::new();
    let (mut there, mut here, mut by_density) = (0, 0, 0);
    for case in cases() {
        let verdict = ff_dbf::test(&case.tasks, case.cpus, POINTS, &mut scratch);
        assert!(
            !matches!(verdict, Verdict::Unknown { why: Inconclusive::Limit }),
            "set {}",
            case.id
        );
        let accepts = case.verdict("gedf", "FFDBF") == Some(true);
        assert!(verdict.is_proved() || !accepts, "set {}", case.id);
        assert!(!verdict.is_proved() || !case.misses(GlobalPolicy::Edf), "set {}", case.id);
        there += usize::from(accepts);
        here += usize::from(verdict.is_proved());
        by_density += usize::from(case.verdict("gedf", "GFB") == Some(true));
    }
    println!("FFDBF: {there} there, {here} here, {by_density} by density alone");
}

#[test]
fn no_set_is_accepted_that_an_exact_test_refuses_or_a_simulation_refutes() {
    let mut scratch = Scratch::new();
    let by_edf: [(&str, Test); 6] = [
        ("gfb", TESTS[0].3),
        ("bcl", bcl::plain),
        ("bcl-iterative", bcl::iterative),
        ("response times", edf),
        ("bar", TESTS[4].3),
        ("any policy", any_policy),
    ];
    let by_fp: [(&str, Test); 4] = [
        ("response times", fp),
        ("guan", guan::test),
        ("da-lc", da_lc::test),
        ("any policy", any_policy),
    ];
    let (mut accepted, mut exact) = (0, 0);
    for case in cases() {
        for (policy, tests) in
            [(GlobalPolicy::Edf, &by_edf[..]), (GlobalPolicy::FixedPriority, &by_fp[..])]
        {
            for (name, test) in tests {
                if test(&case.tasks, case.cpus, &mut scratch).is_proved() {
                    accepted += 1;
                    assert!(!case.misses(policy), "{name} of set {}", case.id);
                    if policy == GlobalPolicy::FixedPriority
                        && let Some(feasible) = case.verdict("gfp", "EXACT")
                    {
                        exact += 1;
                        assert!(feasible, "{name} of set {}", case.id);
                    }
                }
            }
        }
        // No tool of the oracle accepts an infeasible set.
        let refuted = necessary::test(&case.tasks, case.cpus, POINTS, &mut scratch);
        if matches!(refuted, Verdict::Refuted { .. }) {
            for (group, name) in [
                ("gedf", "GFB"),
                ("gedf", "RTA"),
                ("gedf", "BAR"),
                ("gfp", "GUAN"),
                ("gfp", "EXACT"),
            ] {
                assert_ne!(case.verdict(group, name), Some(true), "{name} of set {}", case.id);
            }
        }
    }
    println!("{accepted} acceptances, {exact} of them against an exact test");
}

#[test]
fn the_portfolio_accepts_every_set_that_one_test_accepts() {
    let mut scratch = Scratch::new();
    let mut by = BTreeMap::<(String, &str), usize>::new();
    let mut refuted = 0;
    for case in cases() {
        for policy in [GlobalPolicy::Edf, GlobalPolicy::FixedPriority, GlobalPolicy::WorkConserving]
        {
            let answer =
                portfolio::first_accepting(policy, &case.tasks, case.cpus, POINTS, &mut scratch);
            let there = match policy {
                GlobalPolicy::Edf => {
                    ["GFB", "BCL", "BCLI", "RTA", "BAR"]
                        .iter()
                        .any(|name| case.verdict("gedf", name) == Some(true))
                        || ff_dbf::test(&case.tasks, case.cpus, POINTS, &mut scratch).is_proved()
                }
                GlobalPolicy::FixedPriority => case.verdict("gfp", "GUAN") == Some(true),
                GlobalPolicy::WorkConserving => {
                    any_policy(&case.tasks, case.cpus, &mut scratch).is_proved()
                }
            };
            assert_eq!(answer.is_ok(), there, "set {} {policy:?}: {answer:?}", case.id);
            match answer {
                Ok(accepted) => {
                    *by.entry((format!("{policy:?}, {}", case.family), accepted.by.name))
                        .or_default() += 1;
                }
                Err(verdict) => refuted += usize::from(matches!(verdict, Verdict::Refuted { .. })),
            }
        }
    }
    for ((whose, name), count) in by {
        println!("{whose}: {count} first by {name}");
    }
    println!("{refuted} refuted");
}
