//! Rules of the workspace, as tests.
//!
//! The tests check properties that a reviewer would otherwise check in each review: dependencies
//! between crates, the places of `unsafe`, the first line and the length of a file, forbidden text,
//! the language, and links.
#![forbid(unsafe_code)]

mod cases;
mod code_map;
mod dependencies;
mod files;
mod generated;
mod language;
mod links;
mod modules;
mod mutations;
mod orphans;
mod purity;
mod structure;
mod unsafe_code;

use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns the root folder of the workspace.
fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace")
}

/// Returns the source files with one of these extensions, as paths from the root.
fn sources(extensions: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open: Vec<PathBuf> =
        ["crates", "xtask", "tests", "examples", "fuzz", "docs", "etc", ".ci"]
            .iter()
            .map(PathBuf::from)
            .collect();
    while let Some(dir) = open.pop() {
        for entry in std::fs::read_dir(root().join(&dir)).into_iter().flatten().flatten() {
            let path = dir.join(entry.file_name());
            if entry.path().is_dir() {
                // Cases keep the words of their reports.
                let is_ours = !path.ends_with("target") && !path.ends_with("corpus");
                if is_ours && path != Path::new("tests/cases") {
                    open.push(path);
                }
            } else if path.extension().is_some_and(|end| extensions.iter().any(|&want| end == want))
            {
                found.push(path);
            }
        }
    }
    for entry in std::fs::read_dir(root()).expect("the root").flatten() {
        let path = PathBuf::from(entry.file_name());
        if path.extension().is_some_and(|end| extensions.iter().any(|&want| end == want)) {
            found.push(path);
        }
    }
    found.sort();
    found
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(root().join(path))
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns the names of the crates under `crates/`, sorted.
fn crates() -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(root().join("crates"))
        .expect("crates/")
        .flatten()
        .filter(|entry| entry.path().join("Cargo.toml").is_file())
        .map(|entry| entry.file_name().into_string().expect("a plain name"))
        .collect();
    names.sort();
    names
}

/// Returns cargo's metadata of the packages of a manifest, without a registry.
fn metadata(manifest: &str) -> serde_json::Value {
    let output = Command::new(env!("CARGO"))
        .args([
            "metadata",
            "--format-version",
            "1",
            "--no-deps",
            "--offline",
            "--manifest-path",
            manifest,
        ])
        .current_dir(root())
        .output()
        .expect("cargo metadata");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// Panics with one line per finding, if there is any finding.
fn none(findings: &[String]) {
    assert!(findings.is_empty(), "\n{}\n", findings.join("\n"));
}
