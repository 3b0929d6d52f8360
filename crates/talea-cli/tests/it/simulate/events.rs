//! Events of a run beside its jobs.

use crate::harness::{Scratch, run};
use serde_json::{Value, json};

/// Returns the line below the tables, and the counters.
fn events(system: &str) -> (String, Value) {
    let scratch = Scratch::new();
    scratch.file("system.toml", system);
    let text = run(&scratch, &["simulate", "system.toml"]);
    assert_eq!(text.code, Some(0), "{}", text.err);
    let line =
        text.out.lines().find(|line| line.starts_with("events: ")).unwrap_or_default().to_owned();
    let ended = run(&scratch, &["simulate", "system.toml", "--json"]);
    let answer: Value = serde_json::from_str(&ended.out).expect("JSON");
    (line, answer["roots"][0]["events"].clone())
}

fn numbers([overruns, not_activated, overflows, underflows, deadlocks]: [u64; 5]) -> Value {
    json!({
        "overruns": overruns, "not_activated": not_activated,
        "overflows": overflows, "underflows": underflows, "deadlocks": deadlocks,
    })
}

#[test]
fn y11_overruns_of_a_table_are_counted() {
    let table = "duration = \"100ms\"\n[[scheduler]]\nname = \"p\"\npolicy = \"table\"\nhyperperiod = \"10ms\"\n\
        [[scheduler.entry]]\nowner = \"a\"\nlength = \"5ms\"\n\
        [[task]]\nname = \"a\"\nperiod = \"20ms\"\ncost = \"6ms\"\n";
    let (line, json) = events(table);
    assert_eq!(line, "events: 5 overruns of a table's entry");
    assert_eq!(json, numbers([5, 0, 0, 0, 0]));
    // Continued in the next entry, or no overrun.
    for better in [
        table.replace("\"5ms\"\n", "\"5ms\"\ncontinues = true\n"),
        table.replace("\"6ms\"", "\"5ms\""),
    ] {
        assert_eq!(events(&better), (String::new(), numbers([0; 5])));
    }
}

#[test]
fn y10_missing_and_lost_tokens_are_counted() {
    let graph = |channel: &str| {
        format!(
            "duration = \"100ms\"\n[[scheduler]]\nname = \"p\"\npolicy = \"edf\"\n\
             [[task]]\nname = \"a\"\nperiod = \"10ms\"\ncost = \"1ms\"\n[[task]]\nname = \"b\"\ncost = \"1ms\"\n\
             [[channel]]\nfrom = \"a\"\nto = \"b\"\n{channel}"
        )
    };
    // Every other of ten jobs pushes nothing.
    let (line, json) = events(&graph("size = 4\npush = [1, 0]\n"));
    assert_eq!(line, "events: 5 jobs without a token for a channel");
    assert_eq!(json, numbers([0, 5, 0, 0, 0]));
    // One of three tokens does not fit; one of the two tokens for the last jobs exists.
    let (line, json) = events(&graph("size = 2\ntokens = 2\npush = [3]\npop = [2]\n"));
    assert_eq!(
        (line.as_str(), &json),
        ("events: 10 tokens lost in a full channel", &numbers([0, 0, 10, 0, 0]))
    );
    let (line, json) = events(&graph("size = 2\npop = [2]\n"));
    assert_eq!(
        (line.as_str(), &json),
        ("events: 10 tokens missing in an empty channel", &numbers([0, 0, 0, 10, 0]))
    );
    assert_eq!(events(&graph("size = 2\n")), (String::new(), numbers([0; 5])));
}

#[test]
fn a_deadlock_is_reported_with_the_closing_task() {
    let section = |resource: &str, start: u32, length: u32| {
        format!(
            "[[task.section]]\nresource = \"{resource}\"\nstart = \"{start}ms\"\nlength = \"{length}ms\"\n"
        )
    };
    let system = |protocol: &str| {
        let resource =
            |name: &str| format!("[[resource]]\nname = \"{name}\"\nprotocol = \"{protocol}\"\n");
        format!(
            "duration = \"100ms\"\n[[scheduler]]\nname = \"p\"\npolicy = \"fp\"\n{}{}\
             [[task]]\nname = \"low\"\nperiod = \"100ms\"\ncost = \"6ms\"\n{}{}\
             [[task]]\nname = \"high\"\noffset = \"2ms\"\nperiod = \"98ms\"\npriority = 1\ncost = \"6ms\"\n{}{}",
            resource("one"),
            resource("two"),
            section("one", 1, 4),
            section("two", 3, 1),
            section("two", 1, 4),
            section("one", 3, 1),
        )
    };
    let (line, json) = events(&system("inheritance"));
    assert_eq!(line, "events: 1 deadlock, closed by low: its jobs wait forever");
    assert_eq!(json, numbers([0, 0, 0, 0, 1]));
    assert_eq!(events(&system("ceiling")), (String::new(), numbers([0; 5])));
}
