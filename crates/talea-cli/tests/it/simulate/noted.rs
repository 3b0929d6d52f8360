//! What happens beside jobs, and that a run says so.

use crate::harness::{Scratch, run};
use serde_json::{Value, json};

/// The line below the tables, and the numbers.
fn noted(system: &str) -> (String, Value) {
    let scratch = Scratch::new();
    scratch.file("system.toml", system);
    let text = run(&scratch, &["simulate", "system.toml"]);
    assert_eq!(text.code, Some(0), "{}", text.err);
    let line =
        text.out.lines().find(|line| line.starts_with("noted: ")).unwrap_or_default().to_owned();
    let ended = run(&scratch, &["simulate", "system.toml", "--json"]);
    let answer: Value = serde_json::from_str(&ended.out).expect("JSON");
    (line, answer["roots"][0]["noted"].clone())
}

fn numbers([overruns, not_activated, overflows, underflows, deadlocks]: [u64; 5]) -> Value {
    json!({
        "overruns": overruns, "not_activated": not_activated,
        "overflows": overflows, "underflows": underflows, "deadlocks": deadlocks,
    })
}

#[test]
fn y11_an_overrun_of_a_table_is_counted_in_the_answer() {
    let table = "duration = \"100ms\"\n[[scheduler]]\nname = \"p\"\npolicy = \"table\"\nhyperperiod = \"10ms\"\n\
        [[scheduler.entry]]\nowner = \"a\"\nlength = \"5ms\"\n\
        [[task]]\nname = \"a\"\nperiod = \"20ms\"\ncost = \"6ms\"\n";
    let (line, json) = noted(table);
    assert_eq!(line, "noted: 5 overruns of a table's entry");
    assert_eq!(json, numbers([5, 0, 0, 0, 0]));
    // Meant, and not at all.
    for better in [
        table.replace("\"5ms\"\n", "\"5ms\"\ngoes_on = true\n"),
        table.replace("\"6ms\"", "\"5ms\""),
    ] {
        assert_eq!(noted(&better), (String::new(), numbers([0; 5])));
    }
}

#[test]
fn y10_tokens_that_lack_or_are_lost_are_counted_in_the_answer() {
    let graph = |channel: &str| {
        format!(
            "duration = \"100ms\"\n[[scheduler]]\nname = \"p\"\npolicy = \"edf\"\n\
             [[task]]\nname = \"a\"\nperiod = \"10ms\"\ncost = \"1ms\"\n[[task]]\nname = \"b\"\ncost = \"1ms\"\n\
             [[channel]]\nfrom = \"a\"\nto = \"b\"\n{channel}"
        )
    };
    // Every other job of ten puts nothing in.
    let (line, json) = noted(&graph("size = 4\npush = [1, 0]\n"));
    assert_eq!(line, "noted: 5 jobs without a token for a channel");
    assert_eq!(json, numbers([0, 5, 0, 0, 0]));
    // One of three has no room; of two that the jobs at its end take, one is there.
    let (line, json) = noted(&graph("size = 2\ntokens = 2\npush = [3]\npop = [2]\n"));
    assert_eq!(
        (line.as_str(), &json),
        ("noted: 10 tokens lost in a full channel", &numbers([0, 0, 10, 0, 0]))
    );
    let (line, json) = noted(&graph("size = 2\npop = [2]\n"));
    assert_eq!(
        (line.as_str(), &json),
        ("noted: 10 tokens missing in an empty channel", &numbers([0, 0, 0, 10, 0]))
    );
    assert_eq!(noted(&graph("size = 2\n")), (String::new(), numbers([0; 5])));
}

#[test]
fn a_deadlock_is_said_with_who_has_closed_it() {
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
    let (line, json) = noted(&system("inheritance"));
    assert_eq!(line, "noted: 1 deadlock, closed by low: who waits there waits for ever");
    assert_eq!(json, numbers([0, 0, 0, 0, 1]));
    assert_eq!(noted(&system("ceiling")), (String::new(), numbers([0; 5])));
}
