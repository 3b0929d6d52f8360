//! Comparison of the list of keys with the reader, the manual and the defaults in code.
#![allow(clippy::disallowed_methods, reason = "the manual and the sample are files")]

mod common;

use common::{names, target};
use std::fmt::Write;
use talea_core::setup::Quota;
use talea_system::config::keys::{KEYS, KINDS, Key, Section};
use talea_system::config::{self, DaemonSetup};

/// Returns a file that has only `key`, with `value`. A plugin's key is in a plugin of `kind`.
fn file(key: &Key, kind: &str, value: &str) -> String {
    let name = key.name;
    match key.section {
        Section::Top | Section::System => format!("{name} = {value}\n"),
        Section::Daemon => format!("[daemon]\n{name} = {value}\n"),
        Section::Quota => format!("[daemon.quota]\n{name} = {value}\n"),
        Section::Plugin if name == "kind" => format!("[[plugin]]\nkind = {value}\n"),
        Section::Plugin => format!("[[plugin]]\nkind = \"{kind}\"\n{name} = {value}\n"),
        Section::Rule => format!("[[rule]]\n{name} = {value}\n"),
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
        Section::Channel => {
            format!("[[channel]]\nsize = 8\n{name} = {value}\n").replace("size = 8\nsize", "size")
        }
        _ => format!("{}\n{name} = {value}\n", key.section.header()),
    }
}

/// Returns a system file with this key, in a scheduler that may have it ([`file`]).
fn system_file(key: &Key, value: &str) -> String {
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
    if (key.section, key.name) == (Section::Task, "user") {
        return format!("[[task]]\nprogram = [\"true\"]\nuser = {value}\n");
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
    for key in talea_system::system::keys::KEYS {
        let complaints = |value: &str| {
            let text = system_file(key, value);
            let line = u32::try_from(text.lines().count()).expect("a short file");
            let found = talea_system::system::read(&text, "f", &()).err().unwrap_or_default();
            let here = |d: &talea_system::Diagnostic| d.line == line && d.what.contains(key.name);
            found.into_iter().filter(here).collect::<Vec<_>>()
        };
        // A date is right nowhere.
        let found = complaints("1979-05-27");
        assert!(!found.is_empty(), "{} {} is listed but not read", key.section.header(), key.name);
        assert!(found.iter().all(|d| !d.what.contains("unknown key")), "{}: {found:?}", key.name);
        if key.form != talea_system::config::keys::Form::Table {
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
    assert_eq!(kinds.map(|kind| kind.name()), talea_system::system::keys::SERVERS);
    for policy in talea_system::system::keys::POLICIES {
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
        let system = talea_system::system::read(&text, "f", &()).expect(policy);
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
    if let Err(found) = talea_system::system::read(&seed, "everything", &()) {
        panic!("{}", talea_system::diagnostic::render(&found, false));
    }
    for key in talea_system::system::keys::KEYS {
        // Each table by its header, each key where its table is; other files are another seed.
        let header = key.section.header();
        let blocks = seed.split("\n[").map(|block| format!("[{block}"));
        let is_here = |block: &String| match key.section {
            Section::System => block.starts_with("[#"),
            _ => block.starts_with(header),
        };
        let is_said = |block: &String| {
            block.lines().any(|line| line.starts_with(&format!("{} = ", key.name)))
        };
        let is_table = key.form == talea_system::config::keys::Form::Table;
        let has = if is_table {
            seed.contains(key.example)
        } else {
            key.name == "include" || blocks.filter(is_here).any(|block| is_said(&block))
        };
        assert!(has, "{header} {}", key.name);
    }
}

#[test]
fn every_listed_key_is_read_by_the_reader() {
    for key in KEYS {
        let kinds = if key.kinds.is_empty() { &KINDS[..1] } else { key.kinds };
        for kind in kinds {
            // A date is right nowhere.
            let text = file(key, kind, "1979-05-27");
            let line = u32::try_from(text.lines().count()).expect("a short file");
            let found = config::read(&text, "f", &names(), &target(4))
                .expect_err("a date is right nowhere");
            let here: Vec<_> =
                found.iter().filter(|d| d.line == line && d.what.contains(key.name)).collect();
            assert!(
                !here.is_empty(),
                "{} {} is listed but not read: {found:?}",
                key.section.header(),
                key.name
            );
            assert!(here.iter().all(|d| !d.what.contains("unknown key")), "{}: {here:?}", key.name);
        }
    }
}

#[test]
fn every_example_is_right() {
    for key in KEYS.iter().filter(|key| !key.example.starts_with('[')) {
        let kinds = if key.kinds.is_empty() { &KINDS[..1] } else { key.kinds };
        for kind in kinds {
            let text = file(key, kind, key.example);
            let line = u32::try_from(text.lines().count()).expect("a short file");
            let Err(found) = config::read(&text, "f", &names(), &target(4)) else { continue };
            let here: Vec<_> = found.iter().filter(|d| d.is_error() && d.line == line).collect();
            // The plugin of a rule's example is not in this little file.
            assert!(
                here.is_empty() || (key.section, key.name) == (Section::Rule, "plugin"),
                "{}: {here:?}",
                key.name
            );
        }
    }
}

#[test]
fn listed_defaults_are_those_in_code() {
    let quota = Quota::default();
    let daemon = DaemonSetup::default();
    for (section, name, value) in [
        (Section::Quota, "sessions_per_user", quota.sessions_per_user.to_string()),
        (Section::Quota, "sessions", quota.sessions.to_string()),
        (Section::Quota, "sessions_without_rule", quota.sessions_without_rule.to_string()),
        (Section::Quota, "specs_per_user", quota.specs_per_user.to_string()),
        (Section::Quota, "specs", quota.specs.to_string()),
        (Section::Quota, "levels_per_user", quota.levels_per_user.to_string()),
        (Section::Quota, "requests_per_second", quota.requests_per_second.to_string()),
        (Section::Quota, "burst", quota.burst.to_string()),
        (Section::Daemon, "socket", format!("{:?}", daemon.socket)),
        (Section::Daemon, "socket_mode", format!("\"{:04o}\"", daemon.socket_mode)),
        (Section::Daemon, "state_directory", format!("{:?}", daemon.state_directory)),
        (
            Section::Daemon,
            "log_level",
            format!("{:?}", format!("{:?}", daemon.log_level).to_lowercase()),
        ),
    ] {
        assert_eq!(section.key(name).expect("a listed key").default, value, "{name}");
    }
    // A default that can be written says the same as leaving the key out.
    let plain = "[[plugin]]\nname = \"p\"\ncpus = \"0\"\nkind = ";
    for key in Section::Plugin.keys().filter(|key| !key.kinds.is_empty()) {
        for kind in key.kinds {
            let mut text = format!("{plain}\"{kind}\"\n");
            if *kind != "edf" && key.name != "priorities" {
                text.push_str("priorities = \"1-5\"\n");
            }
            if *kind == "foreign" && key.name != "module" {
                text.push_str("module = \"/x.so\"\n");
            }
            if key.default == "required" || key.name == "threshold" {
                continue;
            }
            let read =
                |text: &str| config::read(text, "f", &names(), &target(4)).expect(text).setup;
            assert_eq!(
                read(&format!("{text}{} = {}\n", key.name, key.default)),
                read(&text),
                "{}",
                key.name
            );
        }
    }
}

fn cell(text: &str) -> String {
    let plain =
        text.starts_with('"') || text.parse::<u64>().is_ok() || matches!(text, "true" | "false");
    if plain && !text.contains(' ') { format!("`{text}`") } else { text.to_owned() }
}

/// Returns the tables of the manual, from the list.
fn tables(section: Section) -> String {
    let mut out = String::from(
        "| key | value | default | range | meaning |\n| --- | --- | --- | --- | --- |\n",
    );
    for key in section.keys() {
        let only = match key.kinds {
            [] => String::new(),
            kinds => {
                format!(
                    " Only {}.",
                    kinds.iter().map(|k| format!("`{k}`")).collect::<Vec<_>>().join(", ")
                )
            }
        };
        let (form, default) = (key.form.cell(), cell(key.default));
        let _ = writeln!(
            out,
            "| `{}` | {form} | {default} | {} | {}{only} |",
            key.name, key.range, key.meaning
        );
    }
    out
}

#[test]
fn the_manual_has_every_key_and_no_other() {
    has_every_key("configuration.md", &Section::ALL);
    has_every_key("system.md", &talea_system::system::keys::SECTIONS);
}

fn has_every_key(chapter: &str, sections: &[Section]) {
    let path = format!("{}/../../docs/manual/{chapter}", env!("CARGO_MANIFEST_DIR"));
    let stored = std::fs::read_to_string(&path).expect("the manual");
    let mut fresh = String::new();
    let mut rest = stored.as_str();
    for &section in sections {
        let start = format!("<!-- keys of {} -->\n", section.header());
        let (before, after) =
            rest.split_once(&start).unwrap_or_else(|| panic!("the manual lacks {start}"));
        let (_, after) = after.split_once("<!-- end of keys -->").expect("an end to the table");
        fresh.push_str(before);
        fresh.push_str(&start);
        fresh.push_str(&tables(section));
        fresh.push_str("<!-- end of keys -->");
        rest = after;
    }
    fresh.push_str(rest);
    if std::env::var_os("TALEA_UPDATE").is_some_and(|v| v == "1") {
        std::fs::write(&path, &fresh).expect("the manual can be written");
    }
    assert_eq!(fresh, stored, "{path} is not fresh; TALEA_UPDATE=1 rewrites its tables");
}

#[test]
fn the_manuals_examples_load() {
    let manual = std::fs::read_to_string(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../docs/manual/configuration.md"
    ))
    .expect("the manual");
    let mut examples = 0;
    for block in manual.split("```toml\n").skip(1) {
        let text = block.split("```").next().expect("text before the fence");
        if let Err(found) = config::read(text, "configuration.md", &names(), &target(4)) {
            panic!("{}\n{text}", talea_system::diagnostic::render(&found, false));
        }
        examples += 1;
    }
    assert!(examples > 0);
}

#[test]
fn the_examples_of_the_chapter_on_systems_load() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/manual/system.md");
    let manual = std::fs::read_to_string(path).expect("the manual");
    let mut examples = 0;
    for block in manual.split("```toml\n").skip(1) {
        let text = block.split("```").next().expect("text before the fence");
        if let Err(found) = talea_system::system::read(text, "system.md", &()) {
            panic!("{}\n{text}", talea_system::diagnostic::render(&found, false));
        }
        examples += 1;
    }
    assert!(examples > 0);
}

#[test]
fn r20_the_sample_configuration_loads_and_serves_only_root() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../etc/talead.toml");
    let sample = std::fs::read_to_string(path).expect("the sample");
    for cpus in [1, 2, 64] {
        let loaded = config::read(&sample, "talead.toml", &names(), &target(cpus))
            .expect("the sample loads");
        assert_eq!(loaded.warnings, [], "the sample is beyond doubt");
        assert!(loaded.setup.rules.is_empty(), "no rule, no service");
        assert_eq!(loaded.setup.access, talea_core::setup::Access::Rules);
        assert_eq!(loaded.setup.quota, Quota::default());
        assert_eq!(loaded.daemon, DaemonSetup::default());
        assert!(
            loaded.setup.plugins.iter().all(|p| p.cpus == target(cpus).cpus),
            "\"all\" is every CPU"
        );
    }
}

#[test]
fn what_the_sample_has_in_comments_loads_too() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../etc/talead.toml");
    let sample = std::fs::read_to_string(path).expect("the sample");
    // A comment that starts with `#` and a letter, bracket or quote without a blank is an example.
    let opened: String = sample
        .lines()
        .map(|line| {
            line.strip_prefix('#').filter(|rest| !rest.starts_with([' ', '#'])).unwrap_or(line)
        })
        .fold(String::new(), |mut text, line| {
            text.push_str(line);
            text.push('\n');
            text
        });
    let loaded = config::read(&opened, "talead.toml", &names(), &target(2))
        .unwrap_or_else(|found| panic!("{}", talea_system::diagnostic::render(&found, false)));
    assert!(!loaded.setup.rules.is_empty(), "the examples have rules");
}
