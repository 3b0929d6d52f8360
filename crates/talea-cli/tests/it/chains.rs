//! Chains in a file: analysed, simulated, required, and measured on real threads.

use crate::compare::compared;
use crate::harness::{Scratch, json, run};
use std::fmt::Write;
use talea_kernel_tests::{Bench, needs_root};

/// Returns a file with three tasks on two CPUs in a chain with these requirements; `varies` is the
/// cost of the second task.
pub(crate) fn system(varies: &str, offsets: bool, required: &str) -> String {
    let mut text = "duration = \"1s\"\n".to_owned();
    for cpu in ["cpu0", "cpu1"] {
        let _ = write!(text, "\n[[scheduler]]\nname = \"{cpu}\"\npolicy = \"fp\"\n");
    }
    let tasks = [
        ("camera", "cpu0", 30, "30ms", "\"4ms\""),
        ("detect", "cpu0", 20, "40ms", varies),
        ("brake", "cpu1", 10, "10ms", "\"1ms\""),
    ];
    for (name, root, priority, period, cost) in tasks {
        let _ = write!(
            text,
            "\n[[task]]\nname = \"{name}\"\nin = \"{root}\"\npriority = {priority}\nperiod = \"{period}\"\ncost = {cost}\n"
        );
        if offsets {
            text.push_str("offset = \"0\"\n");
        }
    }
    let chain = "tasks = [\"camera\", \"detect\", \"brake\"]";
    let _ = write!(text, "\n[[chain]]\nname = \"stop\"\n{chain}\n{required}");
    text
}

/// Returns the first chain of the report.
fn chain(scratch: &Scratch, arguments: &[&str]) -> (Option<i32>, serde_json::Value) {
    let ended = run(scratch, &[arguments, &["--json"]].concat());
    let code = ended.code;
    (code, json(&ended.out)["chains"][0].clone())
}

#[test]
fn a_requirement_is_proved_refuted_or_unknown() {
    let scratch = Scratch::new();
    // Age: 30 ms, 40 ms + 14 ms, and 1 ms; for the reaction another 10 ms.
    for (reaction, age, verdicts, codes) in [
        ("95ms", "85ms", ["proved", "proved"], (0, 0)),
        ("94.9ms", "85ms", ["unknown", "proved"], (1, 0)),
        ("95ms", "30ms", ["proved", "refuted"], (1, 1)),
    ] {
        let required = format!("reaction = \"{reaction}\"\nage = \"{age}\"\n");
        let cost = "{ min = \"6ms\", max = \"10ms\" }";
        scratch.file("system.toml", &system(cost, false, &required));
        let (code, found) = chain(&scratch, &["analyze", "system.toml"]);
        let verdict = |latency: &str| found[latency]["verdict"].as_str().map(str::to_owned);
        assert_eq!([verdict("reaction"), verdict("age")].map(Option::unwrap), verdicts, "{found}");
        assert_eq!(
            (found["reaction"]["bound_ns"].as_u64(), code),
            (Some(95_000_000), Some(codes.0))
        );
        assert_eq!(found["age"]["bound_ns"].as_u64(), Some(85_000_000));
        let settled_by = found["settled_by"].as_str();
        let is_unknown = verdicts.contains(&"unknown");
        assert_eq!(settled_by.is_some_and(|change| change.contains("`offset`")), is_unknown);
        assert!(is_unknown || settled_by.is_none(), "{settled_by:?}");
        let (code, measured) = chain(&scratch, &["simulate", "system.toml"]);
        assert_eq!((code, measured["holds"].as_bool()), (Some(codes.1), Some(codes.1 == 0)));
        for latency in ["reaction", "age"] {
            let longest = measured[&format!("{latency}_max_ns")].as_u64().expect("a latency");
            assert!(longest <= found[latency]["bound_ns"].as_u64().expect("a bound"), "{measured}");
        }
    }
}

#[test]
fn known_phases_have_the_latencies_of_the_simulation() {
    let scratch = Scratch::new();
    scratch.file("system.toml", &system("\"10ms\"", true, "age = \"35ms\"\n"));
    let (code, found) = chain(&scratch, &["analyze", "system.toml"]);
    assert_eq!(found["kind"], "exact");
    assert_eq!(code, Some(1), "{found}");
    assert_eq!(found["age"]["verdict"], "refuted");
    let (_, measured) = chain(&scratch, &["simulate", "system.toml"]);
    for latency in ["reaction", "age"] {
        assert_eq!(
            measured[&format!("{latency}_max_ns")],
            found[latency]["bound_ns"],
            "{measured}"
        );
    }
}

/// A job reads at its release and writes at its deadline: 30 ms + 40 ms of the first two tasks in
/// place of their responses.
#[test]
fn logical_execution_time_is_analysed_and_simulated_and_not_executed() {
    let scratch = Scratch::new();
    let required = "reaction = \"151ms\"\nage = \"141ms\"\n";
    let text = system("\"10ms\"", false, required)
        .replace("name = \"camera\"\n", "name = \"camera\"\nlogical_execution_time = true\n")
        .replace("name = \"detect\"\n", "name = \"detect\"\nlogical_execution_time = true\n");
    scratch.file("system.toml", &text);
    let (code, found) = chain(&scratch, &["analyze", "system.toml"]);
    assert_eq!(code, Some(0), "{found}");
    assert_eq!(found["age"]["bound_ns"].as_u64(), Some(141_000_000));
    let (code, measured) = chain(&scratch, &["simulate", "system.toml"]);
    assert_eq!(code, Some(0), "{measured}");
    // The image of a camera job is at least as old as its deadline and that of a detection.
    let age = measured["age_max_ns"].as_u64().expect("an age");
    assert!((71_000_000..=141_000_000).contains(&age), "{measured}");
    let jobs = measured["age_jobs"].as_array().expect("jobs");
    let length = |job: &serde_json::Value| {
        job["write_ns"].as_u64().expect("a write") - job["read_ns"].as_u64().expect("a read")
    };
    assert_eq!(jobs.iter().map(length).collect::<Vec<_>>(), [30_000_000, 40_000_000, 1_000_000]);
    let ended = run(&scratch, &["execute", "system.toml"]);
    assert_eq!(ended.code, Some(3), "{}", ended.err);
    assert!(ended.err.contains("camera has `logical_execution_time`"), "{}", ended.err);
    let channel = format!("{text}\n[[channel]]\nfrom = \"camera\"\nto = \"detect\"\n");
    scratch.file("system.toml", &channel);
    let ended = run(&scratch, &["analyze", "system.toml"]);
    assert_eq!(ended.code, Some(2), "{}", ended.err);
    assert!(ended.err.contains("has `logical_execution_time` and a channel"), "{}", ended.err);
}

/// The page of a run has the jobs that carry the data of the worst latencies.
#[test]
fn the_page_has_the_jobs_of_the_longest_latencies() {
    let scratch = Scratch::new();
    scratch.file("system.toml", &system("\"10ms\"", false, ""));
    let (_, measured) = chain(&scratch, &["simulate", "system.toml", "--html", "page.html"]);
    let page = std::fs::read_to_string(scratch.path().join("page.html")).expect("a page");
    let data = page.split_once("application/json\">").expect("data").1;
    let data = json(data.split_once("</script>").expect("an end").0);
    for (drawn, kind) in [(0, "reaction"), (1, "age")] {
        let drawn = &data["chains"][drawn];
        assert_eq!((drawn["name"].as_str(), drawn["kind"].as_str()), (Some("stop"), Some(kind)));
        let end = drawn["jobs"][4][2].as_u64().expect("a write");
        let length = end - drawn["start"].as_u64().expect("a begin");
        assert_eq!(measured[format!("{kind}_max_ns")].as_u64(), Some(length));
        for (place, job) in
            measured[format!("{kind}_jobs")].as_array().expect("jobs").iter().enumerate()
        {
            assert_eq!(job["job"], drawn["jobs"][2][place]);
            let root = &data["roots"][drawn["jobs"][0][place].as_u64().expect("a root") as usize];
            let task = &root["tasks"][drawn["jobs"][1][place].as_u64().expect("a task") as usize];
            assert_eq!(job["task"], task["name"]);
        }
    }
}

#[test]
fn a_chain_with_an_error_is_refused_with_a_remedy() {
    let scratch = Scratch::new();
    let text = system("\"10ms\"", false, "");
    let tasks = "tasks = [\"camera\", \"detect\", \"brake\"]";
    for (other, what) in [
        ("tasks = [\"camera\"]", "the number of tasks in a chain is 1"),
        ("tasks = [\"camera\", \"camera\"]", "is twice in a chain"),
        ("tasks = [\"camera\", \"detekt\"]", "did you mean `detect`?"),
    ] {
        scratch.file("system.toml", &text.replace(tasks, other));
        let ended = run(&scratch, &["simulate", "system.toml"]);
        assert_eq!(ended.code, Some(2), "{other}");
        assert!(ended.err.contains(what), "{other}: {}", ended.err);
    }
}

#[test]
fn a_pipeline_on_real_threads_keeps_the_bounds_of_its_chain() {
    needs_root!();
    let _bench = Bench::new("cli_chains");
    let scratch = Scratch::new();
    let mut text =
        "duration = \"600ms\"\n\n[[scheduler]]\nname = \"cpu0\"\npolicy = \"fp\"\n".to_owned();
    let tasks = [("camera", 20), ("filter", 30), ("detect", 15), ("brake", 10)];
    for (priority, (name, period)) in (1..).zip(tasks) {
        let _ = write!(
            text,
            "\n[[task]]\nname = \"{name}\"\npriority = {priority}\nperiod = \"{period}ms\"\ncost = \"1ms\"\n"
        );
    }
    text.push_str("\n[[chain]]\ntasks = [\"camera\", \"filter\", \"detect\", \"brake\"]\n");
    scratch.file("system.toml", &text);
    let ended = compared(&scratch, &["system.toml", "--json"]);
    let found = &json(&ended.out)["chains"][0];
    assert_eq!(found["name"], "camera -> filter -> detect -> brake");
    assert!(found["finding"].is_null(), "{found}");
    if ended.code == Some(0) {
        for latency in ["reaction", "age"] {
            let ns = |name: &str| found[latency][name].as_u64().expect("a latency");
            let tolerance = 4 * (2_000_000 + ns("bound_ns") / 50);
            assert!(ns("measured_max_ns") <= ns("bound_within_reason_ns") + tolerance, "{found}");
            assert!(ns("simulated_max_ns") <= ns("bound_ns"), "{found}");
        }
    }
}
