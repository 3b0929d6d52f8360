//! Properties of `talea-import` that must hold for any bytes. Panics where one does not.

#[path = "system.rs"]
pub(crate) mod system;

use system::config::{AnyName, complaints_are_sound};
use system::description;
use talea_config::{Diagnostic, FILE_MAX, Severity, Target, diagnostic};
use talea_core::CpuSet;
use talea_core::cpus::MAX_CPUS;
use talea_import::{File, a653, poet, retif, rtapp, sf3p};

/// ReTiF's files: the plugins, and after a zero byte the rules.
pub(crate) fn import_retif(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let (plugins, rules) = match text.split_once('\0') {
        Some((plugins, rules)) => (plugins, Some(File { origin: "rules", text: rules })),
        None => (text.as_ref(), None),
    };
    match retif(File { origin: "plugins", text: plugins }, rules) {
        Err(found) => assert!(!found.is_empty(), "refused without a complaint"),
        Ok(toml) => {
            let everything = Target::new(CpuSet::first(MAX_CPUS as u32));
            if toml.len() > FILE_MAX {
                return;
            }
            if let Err(found) = talea_config::read(&toml, "imported", &AnyName, &everything) {
                panic!("{}\n{toml}", diagnostic::render(&found, false));
            }
        }
    }
}

/// An SF3P simulation: what is imported can be built and simulated.
pub(crate) fn import_sf3p(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    imported(sf3p(File { origin: "fuzz", text: &text }), &text);
}

/// A configuration of a653rs-linux, likewise.
pub(crate) fn import_a653(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    imported(a653(File { origin: "fuzz", text: &text }), &text);
}

/// A task set of POET, likewise.
pub(crate) fn import_poet(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    imported(poet(File { origin: "fuzz", text: &text }), &text);
}

/// An rt-app workload, likewise; the first byte is the number of CPUs, if it is a digit.
pub(crate) fn import_rtapp(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let cpus = text.chars().next().and_then(|c| c.to_digit(10)).filter(|cpus| *cpus > 0);
    let text = if cpus.is_some() { &text[1..] } else { &text };
    imported(rtapp(File { origin: "fuzz", text }, cpus), text);
}

fn imported(result: Result<String, Vec<Diagnostic>>, text: &str) {
    match result {
        Err(found) => {
            assert!(
                found.iter().any(|d| d.severity == Severity::Error),
                "refused without an error"
            );
            complaints_are_sound(&found, text.as_bytes());
        }
        Ok(toml) if toml.len() > FILE_MAX => {}
        Ok(toml) => {
            if let Err(found) = talea_system::read(&toml, "imported", &()) {
                panic!("{}\n{toml}", diagnostic::render(&found, false));
            }
            description(toml.as_bytes());
        }
    }
}
