//! `--mechanism`: by what a file runs, and what Linux alone can't hold.

use crate::compare::compared;
use crate::execute::SYSTEM;
use crate::harness::{Scratch, json, run};
use talea_kernel_tests::{Bench, needs_root};

const FLAT: &str = "\
duration = \"400ms\"
[[scheduler]]
name = \"cpu0\"
policy = \"rm\"
[[task]]
name = \"fast\"
period = \"10ms\"
cost = \"1ms\"
[[task]]
name = \"slow\"
period = \"41ms\"
cost = \"9ms\"
";

#[test]
fn s18_each_root_says_by_what_it_ran_and_why() {
    needs_root!();
    let _bench = Bench::new("cli_mechanism");
    let scratch = Scratch::new();
    scratch.file("flat.toml", FLAT);
    let execution = |arguments: &[&str]| {
        let ended = run(&scratch, &[&["execute", "flat.toml", "--json"], arguments].concat());
        json(&ended.out)["executions"][0].clone()
    };
    for (arguments, mechanism, why) in [
        (&[][..], "flip", "the dispatcher moves priorities"),
        (&["--mechanism", "flip"], "flip", "the dispatcher moves priorities"),
        (&["--mechanism", "native"], "native", "SCHED_FIFO levels 92 to 93"),
        (&["--mechanism", "gates"], "gates", "threads have no real-time priorities"),
    ] {
        let told = execution(arguments);
        assert_eq!(
            (told["mechanism"].as_str(), told["mechanism_why"].as_str()),
            (Some(mechanism), Some(why)),
            "{arguments:?}"
        );
        // Linux alone has no dispatcher: what scheduling costs is what workers do beside their
        // jobs.
        let (all, workers) = (told["scheduler_ppm"].as_u64(), told["stray_ppm"].as_u64());
        assert!(workers > Some(0) && all >= workers, "{told}");
        assert_eq!(all > workers, mechanism != "native", "{told}");
    }
}

#[test]
fn s18_l12_what_linux_alone_runs_agrees_as_well_and_is_told_and_drawn_alike() {
    needs_root!();
    let _bench = Bench::new("cli_native");
    let scratch = Scratch::new();
    scratch.file("flat.toml", FLAT);
    let ended = compared(
        &scratch,
        &["flat.toml", "--mechanism", "native", "--json", "--html", "page.html"],
    );
    let answer = json(&ended.out);
    let of = &answer["runs"][0]["roots"][0];
    assert_eq!(of["mechanism"], "native");
    if ended.code == Some(0) {
        assert_eq!(
            (of["conclusive"].as_bool(), of["agrees"].as_bool()),
            (Some(true), Some(true)),
            "{of}"
        );
        // Begin and end of each job of either task were held to the order, but for those that a
        // hole has touched or brushed.
        let root = &answer["roots"][0];
        let [jobs, excluded, brushed] =
            ["jobs", "excluded", "brushed"].map(|of| root[of].as_u64().expect("a count"));
        assert_eq!(of["instants"].as_u64(), Some(2 * (jobs - excluded - brushed)), "{root}");
    } else {
        // Nothing is said of it for a reason that is told.
        let excluded = of["excluded"].as_u64() > Some(0);
        assert!(excluded || of["is_stretched"].as_bool() == Some(true), "{:?}: {of}", ended.code);
        assert_eq!(of["faults"].as_u64(), Some(0), "{of}");
    }
    let page = std::fs::read_to_string(scratch.path().join("page.html")).expect("a page");
    assert!(page.contains("cpu0, measured"));
    let files = ["--csv", "jobs.csv", "--trace", "run.trace", "--svg", "run.svg"];
    // Under a hole the last ones end after the run: then it is made again.
    let lines = (0..10).map(|_| {
        let told = run(
            &scratch,
            &[&["execute", "flat.toml", "--mechanism", "native"][..], &files].concat(),
        );
        assert!(
            told.out.contains("mechanism native: SCHED_FIFO levels 92 to 93"),
            "{}{}",
            told.out,
            told.err
        );
        let jobs = std::fs::read_to_string(scratch.path().join("jobs.csv")).expect("jobs");
        let lines = jobs.lines().filter(|line| line.contains("fast")).count();
        assert!(lines <= 40, "{jobs}");
        lines
    });
    assert_eq!(lines.into_iter().find(|&lines| lines == 40), Some(40));
}

#[test]
fn s4_s22_what_linux_alone_cannot_hold_is_refused_with_the_reason() {
    let scratch = Scratch::new();
    let refused = |text: &str, arguments: &[&str]| {
        scratch.file("system.toml", text);
        let ended = run(
            &scratch,
            &[&["execute", "system.toml", "--mechanism", "native"], arguments].concat(),
        );
        assert_eq!((ended.code, ended.out.as_str()), (Some(3), ""), "{}", ended.err);
        ended.err
    };
    assert!(refused(SYSTEM, &[]).contains("cpu0: `net` is a server"));
    assert!(refused(FLAT, &["--record", "run.txt"]).contains("Linux alone gives none"));
    let turns = FLAT.replace("policy = \"rm\"", "policy = \"rr\"\nquantum = \"3ms\"");
    assert!(refused(&turns, &[]).contains("not of 3ms"));
}
