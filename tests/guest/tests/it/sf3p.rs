//! SF3P's rows where they are about time.

use crate::scene::{ms, run, run_beside, us};
use std::fmt::Write;
use talea_core::Span;
use talea_import::{File, sf3p};

/// Imports a file with a duration of three seconds instead of one.
fn imported(name: &str, text: &str) -> String {
    let file = sf3p(File { origin: name, text }).expect("one of SF3P's own files");
    let longer = file.replacen("duration = \"1s\"", "duration = \"3s\"", 1);
    assert_ne!(file, longer, "{name} has a duration of a second");
    longer
}

/// SF3P's own files for three seconds each; response times within 0.5 ms are asked for.
#[test]
fn s1_s18_the_six_examples_keep_the_simulators_time() {
    // In the last two, jobs are as long as what is left of their slots.
    for (name, text, longer) in [
        ("edf.xml", include_str!("../../../../crates/talea-import/tests/sf3p/edf.xml"), Span::ZERO),
        (
            "fifo.xml",
            include_str!("../../../../crates/talea-import/tests/sf3p/fifo.xml"),
            Span::ZERO,
        ),
        (
            "fixedpriority.xml",
            include_str!("../../../../crates/talea-import/tests/sf3p/fixedpriority.xml"),
            Span::ZERO,
        ),
        (
            "fixedprioritytop.xml",
            include_str!("../../../../crates/talea-import/tests/sf3p/fixedprioritytop.xml"),
            Span::ZERO,
        ),
        ("tdma.xml", include_str!("../../../../crates/talea-import/tests/sf3p/tdma.xml"), us(20)),
        (
            "tdmatop.xml",
            include_str!("../../../../crates/talea-import/tests/sf3p/tdmatop.xml"),
            us(20),
        ),
    ] {
        println!("{name}");
        run_beside(&imported(name, text), longer).keeps_time(us(500), us(500));
    }
}

/// EDF in a tree of one to five levels: the same schedule, and a level costs a job no more than so
/// many instructions; on a machine that does several at once that is a fraction of half a
/// microsecond.
#[test]
fn s5_s10_a_level_costs_next_to_nothing() {
    let mut used = Vec::new();
    for levels in 1..=5u32 {
        let mut text =
            "duration = \"1s\"\n[[scheduler]]\nname = \"cpu\"\npolicy = \"edf\"\n".to_owned();
        let mut above = "cpu".to_owned();
        // Writing to a String can't fail.
        for level in 1..levels {
            let name = format!("level{level}");
            let _ = write!(
                text,
                "[[scheduler]]\nname = \"{name}\"\nin = \"{above}\"\npolicy = \"edf\"\n"
            );
            above = name;
        }
        for (task, period) in [10, 14, 22, 35].into_iter().enumerate() {
            let _ = write!(
                text,
                "[[task]]\nname = \"t{task}\"\nin = \"{above}\"\nperiod = \"{period}ms\"\ncost = \"300us\"\n"
            );
        }
        let run = run(&text);
        run.keeps_time(us(300), us(300));
        let jobs: usize = (0..4).map(|task| run.ends(&format!("t{task}")).len()).sum();
        let effort: u64 = run.report.dispatchers.iter().map(|effort| effort.cpu_time.as_ns()).sum();
        used.push(effort / jobs as u64);
    }
    println!("dispatcher time per job by levels: {used:?} ns");
    let slope = (used[4].saturating_sub(used[0])) / 4;
    assert!(slope <= 700, "{slope} ns for each further level; at most 700");
}

/// Releases at k·P + offset for ten seconds: no drift, none lost.
#[test]
fn s14_releases_do_not_drift() {
    let run = run(r#"
        duration = "10s"
        [[scheduler]]
        name = "cpu"
        policy = "fp"
        [[task]]
        name = "clock"
        priority = 2
        period = "7ms"
        offset = "3ms"
        cost = "100us"
        [[task]]
        name = "other"
        priority = 1
        period = "70ms"
        cost = "2500us"
        "#);
    run.keeps_time(us(300), us(300));
    let ends = run.ends("clock");
    assert_eq!(ends.len(), 1_429);
    let lag =
        |&(simulated, real): &(talea_core::Time, talea_core::Time)| real.since(simulated).as_ns();
    let (first, last) = (lag(&ends[1]), lag(&ends[1_428]));
    // A drift of a microsecond a period would be more than a millisecond by now.
    assert!(
        first.abs_diff(last) < us(300).as_ns(),
        "{first} ns behind at first, {last} ns at last"
    );
}

/// A job beyond its deadline is counted from its nominal release.
#[test]
fn s15_the_backlog_has_the_order_of_its_own_deadlines() {
    // SF3P's defect D4: there the second job of `a` (deadline 40) ran after `x` (54).
    let run = run(r#"
        duration = "59ms"
        [[scheduler]]
        name = "cpu"
        policy = "edf"
        [[task]]
        name = "a"
        period = "20ms"
        cost = "10ms"
        [[task]]
        name = "b"
        period = "100ms"
        deadline = "18ms"
        cost = "15ms"
        [[task]]
        name = "x"
        period = "100ms"
        deadline = "30ms"
        offset = "24ms"
        cost = "10ms"
        "#);
    run.keeps_time(us(300), us(300));
    assert!(run.ends("a")[1].1 < run.ends("x")[0].1);
    assert!(run.ends("x")[0].1 > talea_core::Time::ZERO + ms(40));
}
