//! Comparison of the list of keys of a system file with the reader, the manual and the core.
#![allow(clippy::disallowed_methods, reason = "the manual and the seed are files")]

#[path = "../../talea-config/tests/common/manual.rs"]
mod manual;

use manual::has_every_key;
use talea_config::key::{FileSection, Form, Key};
use talea_system::keys::{KEYS, SECTIONS, Section};
use talea_system::{self as system, Diagnostic, diagnostic};

/// Returns a file that has only `key`, with `value`. The key of a scheduler is in one of policy
/// `kind`.
fn file(key: &Key<Section>, kind: &str, value: &str) -> String {
    let name = key.name;
    match key.section {
        Section::Top => format!("{name} = {value}\n"),
        Section::Scheduler => format!("[[scheduler]]\npolicy = \"{kind}\"\n{name} = {value}\n"),
        Section::Slot => {
            format!(
                "[[scheduler]]\npolicy = \"partitions\"\n[[scheduler.slot]]\n{name} = {value}\n"
            )
        }
        Section::Entry => {
            format!("[[scheduler]]\npolicy = \"table\"\n[[scheduler.entry]]\n{name} = {value}\n")
        }
        Section::Task => format!("[[task]]\n{name} = {value}\n"),
        Section::Version | Section::CriticalSection | Section::Suspension => {
            format!("[[task]]\n{}\n{name} = {value}\n", key.section.header())
        }
        Section::Curve => {
            let beside = match name {
                "jobs" => "trace = [\"0\", \"3ms\", \"20ms\"]\n",
                "within" => "burst = 3\n",
                "separation" => "jitter = \"25ms\"\n",
                _ => "",
            };
            format!("[[task]]\nperiod = \"10ms\"\n[task.curve]\n{beside}{name} = {value}\n")
        }
        Section::Restart => {
            format!("[[task]]\nprogram = [\"true\"]\n[task.restart]\n{name} = {value}\n")
        }
        Section::Channel => {
            format!("[[channel]]\nsize = 8\n{name} = {value}\n").replace("size = 8\nsize", "size")
        }
        _ => format!("{}\n{name} = {value}\n", key.section.header()),
    }
}

/// Returns a system file with this key, in a scheduler that may have it ([`file`]).
fn system_file(key: &Key<Section>, value: &str) -> String {
    let kind = match key.name {
        "quantum" => "rr",
        "frame" | "slot" | "lending" => "partitions",
        "hyperperiod" | "entry" => "table",
        _ => "edf",
    };
    if (key.section, key.name) == (Section::Scheduler, "affinity") {
        return format!("[[scheduler]]\npolicy = \"edf\"\nin = \"cpu0\"\naffinity = {value}\n");
    }
    if (key.section, key.name) == (Section::Scheduler, "weight") {
        return format!(
            "[[scheduler]]\npolicy = \"edf\"\nselection = \"trade-off\"\nweight = {value}\n"
        );
    }
    if key.section == Section::Task
        && ["user", "ready", "on_failure", "restart"].contains(&key.name)
    {
        return format!("[[task]]\nprogram = [\"true\"]\n{} = {value}\n", key.name);
    }
    if (key.section, key.name) == (Section::Task, "nonpreemptive_last") {
        return format!("[[task]]\nnonpreemptive_max = \"1ms\"\nnonpreemptive_last = {value}\n");
    }
    match (key.section, key.name) {
        (Section::Scheduler, "policy") => format!("[[scheduler]]\npolicy = {value}\n"),
        (Section::Scheduler, "budget" | "period" | "deadline" | "offset") => {
            format!("[[scheduler]]\npolicy = \"edf\"\nserver = \"cbs\"\n{} = {value}\n", key.name)
        }
        _ => file(key, kind, value),
    }
}

#[test]
fn every_listed_key_of_a_system_file_is_read_and_its_example_is_right() {
    for key in KEYS {
        let complaints = |value: &str| {
            let text = system_file(key, value);
            let line = u32::try_from(text.lines().count()).expect("a short file");
            let found = system::read(&text, "f", &()).err().unwrap_or_default();
            let here = |d: &Diagnostic| d.line == line && d.what.contains(key.name);
            found.into_iter().filter(here).collect::<Vec<_>>()
        };
        // A date is right nowhere.
        let found = complaints("1979-05-27");
        assert!(!found.is_empty(), "{} {} is listed but not read", key.section.header(), key.name);
        assert!(found.iter().all(|d| !d.what.contains("unknown key")), "{}: {found:?}", key.name);
        if key.form != Form::Table {
            let found = complaints(key.example);
            // What the example includes is not beside this little file.
            assert!(found.is_empty() || key.name == "include", "{}: {found:?}", key.name);
        }
    }
}

#[test]
fn words_of_a_system_file_are_the_names_in_the_core() {
    use talea_core::server::ServerKind;
    let kinds = [
        ServerKind::Polling,
        ServerKind::Deferrable,
        ServerKind::Sporadic,
        ServerKind::HardCbs,
        ServerKind::SoftCbs,
    ];
    assert_eq!(kinds.map(|kind| kind.name()), talea_system::keys::SERVERS);
    for policy in talea_system::keys::POLICIES {
        // Everything that one of them may need; what another one needs is a complaint about another
        // key.
        let text = format!("[[scheduler]]\nname = \"r\"\npolicy = \"{policy}\"\n");
        let more = match policy {
            "rr" => "quantum = \"1ms\"\n",
            "partitions" => {
                "frame = \"1ms\"\n[[scheduler.slot]]\nowner = \"t\"\nlength = \"1ms\"\n"
            }
            "table" => {
                "hyperperiod = \"1ms\"\n[[scheduler.entry]]\nowner = \"t\"\nlength = \"1ms\"\n"
            }
            _ => "",
        };
        let text = text + more + "[[task]]\nname = \"t\"\nperiod = \"1ms\"\ncost = \"1us\"\n";
        let system = system::read(&text, "f", &()).expect(policy);
        let root = system.roots[0].tree.nodes().next().expect("a root").1;
        let talea_core::engine::NodeSpec::Scheduler(spec) = &root.spec else {
            panic!("a root is a scheduler")
        };
        assert_eq!(spec.policy.name(), policy);
    }
}

#[test]
fn the_fuzzers_seed_has_every_key_of_a_system_file_and_loads() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/seeds/system/everything");
    let seed = std::fs::read_to_string(path).expect("the seed");
    if let Err(found) = system::read(&seed, "everything", &()) {
        panic!("{}", diagnostic::render(&found, false));
    }
    for key in KEYS {
        // Each table by its header, each key where its table is; other files are another seed.
        let header = key.section.header();
        let blocks = seed.split("\n[").map(|block| format!("[{block}"));
        let is_here = |block: &String| match key.section {
            Section::Top => block.starts_with("[#"),
            _ => block.starts_with(header),
        };
        let is_said = |block: &String| {
            block.lines().any(|line| line.starts_with(&format!("{} = ", key.name)))
        };
        let is_table = key.form == Form::Table;
        let has = if is_table {
            seed.contains(key.example)
        } else {
            key.name == "include" || blocks.filter(is_here).any(|block| is_said(&block))
        };
        assert!(has, "{header} {}", key.name);
    }
}

#[test]
fn the_examples_of_the_chapter_on_systems_load() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/manual/system.md");
    let manual = std::fs::read_to_string(path).expect("the manual");
    let mut examples = 0;
    for block in manual.split("```toml\n").skip(1) {
        let text = block.split("```").next().expect("text before the fence");
        if let Err(found) = system::read(text, "system.md", &()) {
            panic!("{}\n{text}", diagnostic::render(&found, false));
        }
        examples += 1;
    }
    assert!(examples > 0);
}

#[test]
fn the_chapter_on_systems_has_every_key_and_no_other() {
    has_every_key("system.md", &SECTIONS);
}
