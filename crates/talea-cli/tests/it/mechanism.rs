//! `--mechanism`: the mechanism of a run, and files that --mechanism linux refuses.

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
fn s18_each_root_reports_its_mechanism_and_the_reason() {
    needs_root!();
    let _bench = Bench::new("cli_mechanism");
    let scratch = Scratch::new();
    scratch.file("flat.toml", FLAT);
    let execution = |arguments: &[&str]| {
        let ended = run(&scratch, &[&["execute", "flat.toml", "--json"], arguments].concat());
        json(&ended.out)["executions"][0].clone()
    };
    for (arguments, mechanism, why) in [
        (&[][..], "priority", "the dispatcher sets priorities"),
        (&["--mechanism", "priority"], "priority", "the dispatcher sets priorities"),
        (&["--mechanism", "linux"], "linux", "SCHED_FIFO levels 92 to 93"),
        (&["--mechanism", "signal"], "signal", "threads have no real-time priorities"),
    ] {
        let report = execution(arguments);
        assert_eq!(
            (report["mechanism"].as_str(), report["mechanism_why"].as_str()),
            (Some(mechanism), Some(why)),
            "{arguments:?}"
        );
        // Without a dispatcher the scheduling cost is the CPU time of workers outside of their
        // jobs.
        let (all, workers) = (report["scheduler_ppm"].as_u64(), report["stray_ppm"].as_u64());
        assert!(workers > Some(0) && all >= workers, "{report}");
        assert_eq!(all > workers, mechanism != "linux", "{report}");
    }
}

#[test]
fn s18_l12_a_run_by_linux_agrees_and_has_the_same_reports() {
    needs_root!();
    let _bench = Bench::new("cli_linux");
    let scratch = Scratch::new();
    scratch.file("flat.toml", FLAT);
    let ended =
        compared(&scratch, &["flat.toml", "--mechanism", "linux", "--json", "--html", "page.html"]);
    let answer = json(&ended.out);
    let of = &answer["runs"][0]["roots"][0];
    assert_eq!(of["mechanism"], "linux");
    assert_eq!(
        (of["conclusive"].as_bool(), of["agrees"].as_bool()),
        (Some(true), Some(true)),
        "{of}"
    );
    // Start and end of each job of either task were checked against the order, except excluded and
    // perturbed ones.
    let root = &answer["roots"][0];
    let [jobs, excluded, perturbed] =
        ["jobs", "excluded", "perturbed"].map(|of| root[of].as_u64().expect("a count"));
    assert_eq!(of["instants"].as_u64(), Some(2 * (jobs - excluded - perturbed)), "{root}");
    let page = std::fs::read_to_string(scratch.path().join("page.html")).expect("a page");
    assert!(page.contains("cpu0, measured"));
    let files = ["--csv", "jobs.csv", "--trace", "run.trace", "--svg", "run.svg"];
    // With a stall the last jobs end after the run: then the run is repeated.
    let lines = (0..10).map(|_| {
        let report = run(
            &scratch,
            &[&["execute", "flat.toml", "--mechanism", "linux"][..], &files].concat(),
        );
        assert!(
            report.out.contains("mechanism linux: SCHED_FIFO levels 92 to 93"),
            "{}{}",
            report.out,
            report.err
        );
        let jobs = std::fs::read_to_string(scratch.path().join("jobs.csv")).expect("jobs");
        let lines = jobs.lines().filter(|line| line.contains("fast")).count();
        assert!(lines <= 40, "{jobs}");
        lines
    });
    assert_eq!(lines.into_iter().find(|&lines| lines == 40), Some(40));
}

#[test]
fn s4_s22_systems_that_linux_cannot_schedule_are_refused_with_the_reason() {
    let scratch = Scratch::new();
    let refused = |text: &str, arguments: &[&str]| {
        scratch.file("system.toml", text);
        let ended = run(
            &scratch,
            &[&["execute", "system.toml", "--mechanism", "linux"], arguments].concat(),
        );
        assert_eq!((ended.code, ended.out.as_str()), (Some(3), ""), "{}", ended.err);
        ended.err
    };
    assert!(refused(SYSTEM, &[]).contains("cpu0: `net` is a server"));
    assert!(refused(FLAT, &["--record", "run.txt"]).contains("--mechanism linux gives none"));
    let turns = FLAT.replace("policy = \"rm\"", "policy = \"rr\"\nquantum = \"3ms\"");
    assert!(refused(&turns, &[]).contains("not 3ms"));
}
