//! Modes in system files: each mode is the system that results from its changes.

use std::collections::BTreeSet;
use std::path::Path;
use talea_system::{Beside, System, diagnostic, read, write};

const FILE: &str = r#"
duration = "200ms"

[[scheduler]]
name = "cpu0"
policy = "partitions"
frame = "40ms"

[[scheduler.slot]]
owner = "vision"
length = "20ms"

[[scheduler.slot]]
owner = "control"
length = "20ms"

[[scheduler]]
name = "vision"
in = "cpu0"
policy = "fifo"

[[scheduler]]
name = "control"
in = "cpu0"
policy = "rm"

[[task]]
name = "camera"
in = "vision"
period = "40ms"
cost = "18ms"

[[task]]
name = "loop"
in = "control"
period = "40ms"
cost = "10ms"
count = 2

[[task]]
name = "filter"
in = "vision"
cost = "1ms"

[[channel]]
from = "camera"
to = "filter"

[[chain]]
name = "path"
tasks = ["camera", "filter"]

[[expect]]
task = "loop*"
misses = 0
"#;

fn parsed(text: &str) -> System {
    read(text, "f", &()).unwrap_or_else(|found| panic!("{}", diagnostic::render(&found, false)))
}

/// Returns the text of a system, which is the same for equal systems.
fn text(system: &System) -> String {
    write(system).expect("it has a text")
}

#[test]
fn d40_a_mode_is_exactly_the_system_that_results_from_its_changes() {
    let modes = r#"
[[mode]]
name = "all"

[[mode]]
name = "slow"
initial = true
[[mode.task]]
name = "loop"
period = "80ms"
[[mode.scheduler]]
name = "cpu0"
frame = "80ms"
slot = [{ owner = "control", length = "40ms" }, { owner = "vision", length = "40ms" }]

[[mode]]
name = "safe"
tasks = ["lo*"]
fallback = true
"#;
    let system = parsed(&format!("{FILE}{modes}"));
    let about: Vec<_> =
        system.modes.iter().map(|mode| (mode.name.as_str(), mode.initial, mode.fallback)).collect();
    assert_eq!(about, [("all", false, false), ("slow", true, false), ("safe", false, true)]);
    let slots = FILE.find("[[scheduler.slot]]").expect("a slot");
    let after = FILE.find("[[scheduler]]\nname = \"vision\"").expect("a scheduler");
    let slow = format!(
        "{}[[scheduler.slot]]\nowner = \"control\"\nlength = \"40ms\"\n[[scheduler.slot]]\n\
         owner = \"vision\"\nlength = \"40ms\"\n{}",
        FILE[..slots].replace("40ms", "80ms"),
        &FILE[after..].replace("40ms\"\ncost = \"10ms", "80ms\"\ncost = \"10ms")
    );
    let (camera, loops) = (
        FILE.find("[[task]]").expect("a task"),
        FILE.find("[[task]]\nname = \"loop\"").expect("it"),
    );
    let filter = FILE.find("[[task]]\nname = \"filter\"").expect("a task");
    let expect = FILE.find("[[expect]]").expect("an expectation");
    let safe = format!("{}{}{}", &FILE[..camera], &FILE[loops..filter], &FILE[expect..]);
    for (name, described) in [("all", FILE), ("slow", &slow), ("safe", &safe)] {
        let mode = system.clone().in_mode(name).expect(name);
        assert_eq!(text(&mode), text(&parsed(described)), "{name}");
        assert!(mode.modes.is_empty());
    }
    // The system itself is that of the initial mode.
    assert_eq!(text(&system), text(&parsed(&slow)));
    assert!(parsed(FILE).modes.is_empty());
    let unknown = system.in_mode("slwo").expect_err("no mode");
    assert!(unknown.contains("did you mean slow?"), "{unknown}");
}

#[test]
fn d40_faults_of_one_mode_name_it_and_stand_at_its_lines() {
    let text = format!(
        "{FILE}\n[[mode]]\nname = \"a\"\n[[mode]]\nname = \"b\"\n[[mode.task]]\nname = \"loop\"\nperiod = \"x\"\n"
    );
    let found = read(&text, "f", &()).expect_err("refused");
    let line = text.lines().count();
    assert!(found.iter().any(|found| found.line as usize == line), "{found:?}");
    assert!(found.iter().all(|found| found.what.contains("in mode `b`")), "{found:?}");
    // A fault of all modes stands alone.
    let text =
        format!("{}\n[[mode]]\nname = \"a\"\n[[mode]]\nname = \"b\"\n", FILE.replace("18ms", "x"));
    let found = read(&text, "f", &()).expect_err("refused");
    assert!(found.iter().all(|found| !found.what.contains("in mode")), "{found:?}");
    let alone: BTreeSet<String> = found.iter().map(ToString::to_string).collect();
    assert_eq!(alone.len(), found.len(), "{found:?}");
    // A task without its activation.
    let text =
        format!("{FILE}\n[[mode]]\nname = \"a\"\n[[mode]]\nname = \"b\"\ntasks = [\"filter\"]\n");
    let found = read(&text, "f", &()).expect_err("refused");
    let names_mode = |d: &talea_system::Diagnostic| d.what.contains("in mode `b`");
    assert!(found.iter().all(names_mode), "{found:?}");
}

#[test]
fn d40_a_mode_changes_the_tables_of_its_own_file() {
    let part = "[[task]]\nname = \"extra\"\nin = \"control\"\nperiod = \"80ms\"\ncost = \"1ms\"\n";
    let include = Beside(|path: &Path| match path.to_str() {
        Some("part.toml") => Ok(part.to_owned()),
        _ => Err("it is not here".to_owned()),
    });
    let with =
        |more: &str| read(&format!("include = [\"part.toml\"]\n{FILE}{more}"), "f", &include);
    let named = with("[[mode]]\nname = \"a\"\n[[mode]]\nname = \"b\"\ntasks = [\"extra\"]\n");
    let named = named.unwrap_or_else(|found| panic!("{found:?}"));
    assert_eq!(named.modes[1].system.roots[0].tasks, ["extra"]);
    let changed = "[[mode]]\nname = \"a\"\n[[mode.task]]\nname = \"extra\"\nperiod = \"1s\"\n";
    let found = with(changed).expect_err("refused");
    assert!(found[0].what.contains("is in another file"), "{found:?}");
    assert!(found[0].remedy.contains("part.toml"), "{found:?}");
}
