//! `talea import`: the output is a system file that runs.

use crate::harness::{Scratch, run, snapshot};

const SF3P: &str = include_str!("../../../talea-import/tests/sf3p/tdmatop.xml");

const RT_APP: &str = "{
  /* Two periodic threads and a shell. */
  \"global\": { \"duration\": 2, \"default_policy\": \"SCHED_FIFO\", \"pi_enabled\": true },
  \"tasks\": {
    \"control\": { \"priority\": 20, \"run\": 1000, \"lock\": \"bus\", \"run\": 500, \"unlock\": \"bus\", \"run\": 500,
      \"timer\": { \"ref\": \"unique\", \"period\": 10000, \"mode\": \"absolute\" } },
    \"video\": { \"priority\": 10, \"phases\": {
      \"still\": { \"loop\": 2, \"run\": 5000, \"timer\": { \"ref\": \"t\", \"period\": 40000, \"mode\": \"absolute\" } },
      \"moving\": { \"run\": 9000, \"timer\": { \"ref\": \"t\", \"period\": 40000, \"mode\": \"absolute\" } } } },
    \"shell\": { \"policy\": \"SCHED_OTHER\", \"loop\": 2, \"run\": 3000, \"sleep\": 100000, }
  }
}
";

#[test]
fn s1_s18_an_example_of_sf3p_becomes_a_file_that_runs() {
    let scratch = Scratch::new();
    scratch.file("tdmatop.xml", SF3P);
    let ended = run(&scratch, &["import", "tdmatop.xml"]);
    snapshot("import-sf3p", &ended.transcript());
    scratch.file("tdmatop.toml", &ended.out);
    let simulated = run(&scratch, &["simulate", "tdmatop.toml", "--json"]);
    assert_eq!(simulated.code, Some(0), "{}", simulated.err);
    let answer: serde_json::Value = serde_json::from_str(&simulated.out).expect("JSON");
    assert_eq!(answer["roots"][0]["tasks"].as_array().map(Vec::len), Some(4));
}

#[test]
fn a_workload_of_rt_app_becomes_a_file_that_runs() {
    let scratch = Scratch::new();
    scratch.file("load.json", RT_APP);
    let ended = run(&scratch, &["import", "load.json"]);
    snapshot("import-rt-app", &ended.transcript());
    scratch.file("load.toml", &ended.out);
    let simulated = run(&scratch, &["simulate", "load.toml"]);
    assert_eq!(simulated.code, Some(0), "{}", simulated.err);
    // With more CPUs the shell cannot be expressed beside them.
    let ended = run(&scratch, &["import", "load.json", "--cpus", "2"]);
    assert_eq!(ended.code, Some(2));
    assert!(ended.out.is_empty() && ended.err.contains("is not of SCHED_FIFO"), "{}", ended.err);
}

#[test]
fn s22_errors_go_to_standard_error_with_their_position() {
    let scratch = Scratch::new();
    scratch.file("bad.xml", &SF3P.replace("TDMA", "TDMB"));
    let ended = run(&scratch, &["import", "bad.xml"]);
    snapshot("import-sf3p-malformed", &ended.transcript());
    assert_eq!((ended.code, ended.out.as_str()), (Some(2), ""));
    scratch.file("bad.json", &RT_APP.replace("\"sleep\"", "\"iorun\""));
    let ended = run(&scratch, &["import", "bad.json"]);
    snapshot("import-rt-app-malformed", &ended.transcript());
    assert_eq!((ended.code, ended.out.as_str()), (Some(2), ""));
    assert_eq!(run(&scratch, &["import", "missing.xml"]).code, Some(2));
}

#[test]
fn an_unknown_form_is_refused_with_the_known_ones() {
    let scratch = Scratch::new();
    scratch.file("module.xml", "<MODULE Name=\"a\"></MODULE>\n");
    scratch.file("system.toml", "duration = \"1s\"\n");
    scratch.file("tdmatop.xml", SF3P);
    scratch.file("load.json", RT_APP);
    for (arguments, part) in [
        (
            &["module.xml"][..],
            "module.xml: the form of XML with the root element <MODULE> is unknown",
        ),
        (&["system.toml"], "system.toml: this is TOML"),
        (&["tdmatop.xml", "load.json"], "tdmatop.xml is sf3p and load.json is rt-app"),
        (&["tdmatop.xml", "tdmatop.xml"], "sf3p is one file"),
        (&["tdmatop.xml", "--cpus", "2"], "--cpus is for rt-app"),
        (&["load.json", "--from", "sf3p"], "load.json:1:1"),
    ] {
        let ended = run(&scratch, &[&["import"], arguments].concat());
        assert_eq!((ended.code, ended.out.as_str()), (Some(2), ""), "{arguments:?}");
        assert!(ended.err.contains(part), "{arguments:?}: {}", ended.err);
    }
    let ended = run(&scratch, &["import", "module.xml"]);
    for form in ["sf3p", "rt-app", "retif", "--from"] {
        assert!(ended.err.contains(form), "{form}: {}", ended.err);
    }
    let named = run(&scratch, &["import", "--from", "SF3P", "tdmatop.xml"]);
    assert_eq!(named.code, Some(0), "{}", named.err);
}

/// Writes a set of the fixture in POET's form.
fn yaml(row: &serde_json::Value) -> String {
    use std::fmt::Write;
    let word = |yes: bool, one: &'static str, other: &'static str| if yes { one } else { other };
    let policy = word(row["policy"] == "fp", "FP", "EDF");
    let model = word(row["preemptive"] == true, "FP", "NP");
    let mut text = format!("scheduling policy: {policy}\npreemption model: {model}\ntask set:\n");
    for (id, task) in row["tasks"].as_array().expect("tasks").iter().enumerate() {
        let _ = writeln!(text, "- id: {id}\n  worst-case execution time: {}", task["cost"]);
        let _ = writeln!(text, "  deadline: {}", task["deadline"]);
        if policy == "FP" {
            let _ = writeln!(text, "  priority: {}", task["priority"]);
        }
        let (period, least) = (task.get("period"), task.get("mit"));
        match (period, least, task.get("curve")) {
            (Some(period), ..) => writeln!(text, "  period: {period}"),
            (_, Some(least), _) => writeln!(text, "  min interarrival: {least}"),
            (.., Some(curve)) => {
                writeln!(text, "  arrival curve: [{}, {}]", curve["horizon"], curve["steps"])
            }
            other => panic!("{other:?}"),
        }
        .expect("a string grows");
    }
    text
}

#[test]
fn the_sets_of_poet_have_the_bounds_of_pyrta() {
    let scratch = Scratch::new();
    let (mut equal, mut less) = (0, 0);
    let fixture = include_str!("../../../talea-analysis/tests/data/poet.jsonl");
    // Every 25th, of each of the four kinds.
    for line in fixture.lines().step_by(25) {
        let row: serde_json::Value = serde_json::from_str(line).expect("JSON");
        let Some(expected) = row["R"].as_array() else { continue };
        scratch.file("set.yaml", &yaml(&row));
        let ended = run(&scratch, &["import", "set.yaml"]);
        assert_eq!(ended.code, Some(0), "{}", ended.err);
        scratch.file("set.toml", &ended.out);
        let ended = run(&scratch, &["analyze", "set.toml", "--json"]);
        assert!(ended.err.is_empty(), "{}: {}", row["id"], ended.err);
        let answer: serde_json::Value = serde_json::from_str(&ended.out).expect("JSON");
        let tasks = answer["roots"][0]["tasks"].as_array();
        let tasks = tasks.unwrap_or_else(|| panic!("{}: {}", row["id"], ended.out));
        for (task, expected) in tasks.iter().zip(expected) {
            let (Some(bound), Some(expected)) = (task["bound_ns"].as_u64(), expected.as_u64())
            else {
                continue;
            };
            // A distance list also excludes what two windows together exclude.
            assert!(bound <= expected, "{}: {bound} above {expected}", row["id"]);
            *(if bound == expected { &mut equal } else { &mut less }) += 1;
        }
    }
    println!("{equal} equal, {less} less");
    assert!(equal > 100 && less < equal, "{equal} {less}");
}
