//! Tests that each mutation point in the source has an entry in the registry and a unique name, and
//! that each plugin, rule property and message has a point.

use crate::{none, read, sources};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

const REGISTRY: &str = "xtask/mutations.toml";

/// Returns the names in the registry.
fn registered() -> Vec<String> {
    let entries: BTreeMap<String, toml::Value> = toml::from_str(&read(Path::new(REGISTRY)))
        .unwrap_or_else(|error| panic!("{REGISTRY}: {error}"));
    entries.into_keys().collect()
}

/// Returns the names of the points in a source text: the string after `mutate!(`.
fn points(text: &str) -> impl Iterator<Item = &str> {
    text.split("mutate!(").skip(1).filter_map(|rest| {
        let (name, _) = rest.trim_start().strip_prefix('"')?.split_once('"')?;
        Some(name)
    })
}

#[test]
fn the_registry_lists_every_mutation_point_once() {
    let mut places: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
    for path in sources(&["rs"]) {
        // The macro's own documentation, and this suite.
        if path.starts_with("xtask") || path.ends_with("talea-core/src/mutation.rs") {
            continue;
        }
        for name in points(&read(&path)) {
            places.entry(name.to_owned()).or_default().push(path.clone());
        }
    }
    let registered = registered();
    let mut findings = Vec::new();
    for (name, paths) in &places {
        if !registered.contains(name) {
            findings.push(format!("{}: {name} has no line in {REGISTRY}", paths[0].display()));
        }
        if paths.len() > 1 {
            findings.push(format!("{}: {name} is used twice", paths[1].display()));
        }
    }
    for name in registered {
        if !places.contains_key(&name) {
            findings.push(format!("{REGISTRY}: no mutation point has the name {name}"));
        }
    }
    none(&findings);
}

/// The test compares the names of the points, such as `plugin-edf-…`, `rule-max-period` and
/// `message-attach-…`, with the plugins, properties and messages in the code.
#[test]
fn every_plugin_rule_property_and_message_has_a_mutation() {
    let registered = registered();
    let setup = read(Path::new("crates/talea-core/src/setup.rs"));
    let op = read(Path::new("crates/talea-proto/src/wire/op.rs"));
    let requests =
        op.split("pub mod ").find(|part| part.starts_with("request ")).expect("the requests");
    let mut findings = Vec::new();
    for (kind, names) in [
        ("plugin", words(&setup, "PluginKind::")),
        ("rule", words(&setup, "Bound::")),
        ("message", constants(requests)),
    ] {
        assert!(names.len() >= 5, "{kind}: {names:?}");
        for name in names {
            let name = format!("{kind}-{}", name.replace('_', "-"));
            let prefix = format!("{name}-");
            if !registered.iter().any(|other| *other == name || other.starts_with(&prefix)) {
                findings.push(format!("{REGISTRY} has no {name} and no {prefix}…"));
            }
        }
    }
    none(&findings);
}

/// Returns the words in lines such as `Kind::Edf(_) => "edf",`.
fn words(text: &str, kind: &str) -> Vec<String> {
    let lines =
        text.lines().filter_map(|line| line.trim_start().strip_prefix(kind)?.split_once(" => \""));
    lines.filter_map(|(_, rest)| rest.strip_suffix("\",").map(str::to_owned)).collect()
}

/// Returns the lower-case names in lines such as `pub const NEXT_SPEC: u16 = 14;`.
fn constants(text: &str) -> Vec<String> {
    let names = text
        .lines()
        .filter_map(|line| line.trim_start().strip_prefix("pub const ")?.split_once(':'));
    names.map(|(name, _)| name.to_lowercase()).collect()
}
