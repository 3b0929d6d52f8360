//! Tests that pure crates use no clock, thread, file, socket or process: a pure crate is `no_std`,
//! or a clippy.toml forbids these functions.

use crate::{crates, none, read};
use std::path::Path;

/// Crates that must stay pure.
pub(crate) const PURE: [&str; 9] = [
    "talea-core",
    "talea-analysis",
    "talea-sim",
    "talea-config",
    "talea-system",
    "talea-import",
    "talea-proto",
    "talea-broker",
    "talea-deploy",
];

/// Pure crates without std.
const WITHOUT_STD: [&str; 2] = ["talea-core", "talea-proto"];

/// Paths that the clippy.toml of each pure crate must forbid.
const FORBIDDEN: &[&str] = &[
    "std::time::Instant::now",
    "std::time::SystemTime::now",
    "std::thread::spawn",
    "std::thread::sleep",
    "std::fs::read",
    "std::fs::read_to_string",
    "std::fs::write",
    "std::fs::File::open",
    "std::fs::File::create",
    "std::env::var",
    "std::process::exit",
    "std::process::Command",
    "std::net::TcpStream",
    "std::net::UdpSocket",
    "std::os::unix::net::UnixStream",
];

#[test]
fn every_pure_crate_forbids_input_and_output() {
    let mut findings = Vec::new();
    for name in PURE {
        let text = read(&Path::new("crates").join(name).join("clippy.toml"));
        for path in FORBIDDEN {
            if !text.contains(&format!("\"{path}\"")) {
                findings.push(format!("crates/{name}/clippy.toml does not forbid {path}"));
            }
        }
    }
    none(&findings);
}

#[test]
fn the_lowest_crates_have_no_std() {
    for name in WITHOUT_STD {
        let text = read(&Path::new("crates").join(name).join("src/lib.rs"));
        assert!(text.contains("\n#![no_std]\n"), "crates/{name}/src/lib.rs");
    }
}

#[test]
fn every_crate_uses_the_lints_of_the_workspace() {
    for name in crates() {
        let text = read(&Path::new("crates").join(&name).join("Cargo.toml"));
        assert!(text.contains("[lints]\nworkspace = true\n"), "crates/{name}/Cargo.toml");
    }
}
