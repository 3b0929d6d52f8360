//! Comparison of the list of keys with the reader, the manual and the defaults in code.
#![allow(clippy::disallowed_methods, reason = "the manual and the sample are files")]

mod common;

use common::manual::has_every_key;
use common::{names, target};
use talea_config::key::{FileSection, Key};
use talea_config::keys::{KEYS, KINDS, Section};
use talea_config::{self as config, DaemonSetup};
use talea_core::setup::Quota;

/// Returns a file that has only `key`, with `value`. A plugin's key is in a plugin of `kind`.
fn file(key: &Key<Section>, kind: &str, value: &str) -> String {
    let name = key.name;
    match key.section {
        Section::Top => format!("{name} = {value}\n"),
        Section::Daemon => format!("[daemon]\n{name} = {value}\n"),
        Section::Quota => format!("[daemon.quota]\n{name} = {value}\n"),
        Section::Plugin if name == "kind" => format!("[[plugin]]\nkind = {value}\n"),
        Section::Plugin => format!("[[plugin]]\nkind = \"{kind}\"\n{name} = {value}\n"),
        Section::Rule => format!("[[rule]]\n{name} = {value}\n"),
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
        (Section::Daemon, "audit_directory", format!("{:?}", daemon.audit_directory)),
        (Section::Daemon, "audit_mib", daemon.audit_mib.to_string()),
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

#[test]
fn the_manual_has_every_key_and_no_other() {
    has_every_key("configuration.md", &Section::ALL);
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
            panic!("{}\n{text}", talea_config::diagnostic::render(&found, false));
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
        .unwrap_or_else(|found| panic!("{}", talea_config::diagnostic::render(&found, false)));
    assert!(!loaded.setup.rules.is_empty(), "the examples have rules");
}
