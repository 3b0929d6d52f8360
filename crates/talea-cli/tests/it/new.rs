//! `talea new`.

use crate::harness::{Scratch, run, talea};
use std::path::Path;
use std::process::{Command, Stdio};

/// Runs cargo on a project of the test, without a registry.
fn cargo(project: &Path, arguments: &[&str]) -> (bool, String) {
    let ended = Command::new(env!("CARGO"))
        .args(arguments)
        .arg("--offline")
        .current_dir(project)
        // Kept between runs: the second one builds only the project.
        .env("CARGO_TARGET_DIR", Path::new(env!("CARGO_TARGET_TMPDIR")).join("new"))
        .env("CARGO_TERM_COLOR", "never")
        .env_remove("RUSTFLAGS")
        .stdin(Stdio::null())
        .output()
        .expect("cargo can be started");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (ended.status.success(), text(&ended.stdout) + &text(&ended.stderr))
}

#[test]
fn s19_y21_l8_a_new_policy_compiles_passes_its_tests_and_runs() {
    let scratch = Scratch::new();
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let ended = run(&scratch, &["new", "POLICY", "best-of-all", "--source", source]);
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    assert!(ended.out.contains("cd policy-best-of-all && cargo test"), "{}", ended.out);
    let project = scratch.path().join("policy-best-of-all");
    let lib = std::fs::read_to_string(project.join("src/lib.rs")).expect("the policy");
    assert!(lib.contains("struct BestOfAllPolicy") && !lib.contains("llf"), "{lib}");
    let (passed, said) = cargo(&project, &["test"]);
    assert!(passed && said.contains(" ... ok") && !said.contains("l8_"), "{said}");
    let (ran, said) = cargo(&project, &["run", "--quiet", "--", "system.toml"]);
    assert!(ran && said.contains("loop: 100 jobs, 0 late"), "{said}");
}

/// A name may contain that of the example.
#[test]
fn a_policy_called_almost_like_the_example_compiles() {
    let scratch = Scratch::new();
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let ended = run(&scratch, &["new", "policy", "my-llf", "--source", source]);
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    let (passed, said) = cargo(&scratch.path().join("policy-my-llf"), &["check", "--tests"]);
    assert!(passed, "{said}");
}

#[test]
fn what_cannot_be_begun_is_refused_and_nothing_is_overwritten() {
    let scratch = Scratch::new();
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    for name in ["edf", "Nice", "1st", "a b", "a--b", "a-", "", "../up"] {
        let ended = run(&scratch, &["new", "policy", name, "--source", source]);
        assert_eq!(ended.code, Some(2), "{name:?}: {}", ended.err);
        assert!(ended.err.contains("policy") || name.is_empty(), "{name:?}: {}", ended.err);
    }
    assert_eq!(run(&scratch, &["new", "server", "x"]).code, Some(2));
    scratch.file("mine", "something");
    let ended = run(&scratch, &["new", "policy", "mine", "--source", source, "--dir", "."]);
    assert!(ended.code == Some(1) && ended.err.contains("not empty"), "{}", ended.err);
    let ended = run(&scratch, &["new", "policy", "mine", "--source", "nowhere"]);
    assert!(ended.code == Some(1) && ended.err.contains("source tree"), "{}", ended.err);
    // The source tree is found from inside of it.
    let inside = talea(&scratch)
        .current_dir(Path::new(source).join("docs"))
        .args(["new", "policy", "mine", "--dir"])
        .arg(scratch.path().join("new"))
        .output()
        .expect("talea can be started");
    assert!(inside.status.success(), "{inside:?}");
    assert!(scratch.path().join("new/src/main.rs").is_file());
}
