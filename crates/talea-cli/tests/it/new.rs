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

/// Returns the text of the fence of a page with this first line.
fn fence<'a>(page: &'a str, first: &str) -> &'a str {
    let at = page.find(first).unwrap_or_else(|| panic!("no {first}")) + first.len();
    page[at..].split("```").next().expect("a first part").trim_start_matches('\n')
}

/// The output of `cargo run` in the tutorial: before the change of the policy, and after it.
#[test]
fn the_tutorial_of_a_policy_prints_what_it_shows() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/manual/tutorial-policy.md");
    let page = std::fs::read_to_string(path).expect("the tutorial");
    let scratch = Scratch::new();
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let ended = run(&scratch, &["new", "policy", "shortest", "--source", source]);
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    let project = scratch.path().join("policy-shortest");
    std::fs::write(project.join("overload.toml"), fence(&page, "```toml overload.toml"))
        .expect("written");
    let command = "$ cargo run --quiet -- overload.toml";
    let shown: Vec<&str> = page.split(command).skip(1).collect();
    assert_eq!(shown.len(), 2, "a run before the change and one after it");
    let check = |shown: &str| {
        let (ran, said) = cargo(&project, &["run", "--quiet", "--", "overload.toml"]);
        let shown = shown.split("```").next().expect("a first part").trim();
        assert!(ran && said.trim() == shown, "{said}");
    };
    check(shown[0]);
    let lib = std::fs::read_to_string(project.join("src/lib.rs")).expect("the policy");
    let start = lib.find("    /// Returns the latest start time").expect("the function");
    let end = start + lib[start..].find("    }\n").expect("its end") + 6;
    let changed = format!("{}{}{}", &lib[..start], fence(&page, "```rust src/lib.rs"), &lib[end..]);
    std::fs::write(project.join("src/lib.rs"), changed).expect("written");
    check(shown[1]);
    let (passed, said) = cargo(&project, &["test", "the_policy_keeps_the_contract"]);
    assert!(passed && said.contains("the_policy_keeps_the_contract_of_all_policies ... ok"));
}
