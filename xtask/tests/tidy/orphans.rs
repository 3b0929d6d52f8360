//! Test that every Rust file is compiled, which means reachable by `mod` from what cargo builds.
//!
//! The compiler accepts a file without a `mod` line. A test suite in such a file never runs.
//!
//! The test reads the sources, and not the compiler's dependency files, which survive a removed
//! line. Files that `cfg` excludes count as reached.

use crate::modules::{self, Declared};
use crate::{metadata, none, root, sources};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Manifests of the built targets: the manifest of the workspace, and that of the fuzzer's own
/// workspace.
const MANIFESTS: [&str; 2] = ["Cargo.toml", "fuzz/Cargo.toml"];

#[test]
fn every_rust_file_is_compiled() {
    let read = |path: &Path| std::fs::read_to_string(root().join(path)).ok();
    let mut findings = Vec::new();
    let reached = reach(&targets(), &read, &mut findings);
    for path in sources(&["rs"]).iter().filter(|path| !reached.contains(*path)) {
        findings.push(format!(
            "{}: no `mod` and no target reaches it, so it is never compiled",
            path.display()
        ));
    }
    none(&findings);
}

/// Test programs that the test command runs in separate steps.
const ELSEWHERE: [&str; 3] = [
    "tests/guest/tests/domains/main.rs",
    "tests/guest/tests/it/main.rs",
    "tests/guest/tests/services/main.rs",
];

/// Checks that manifests do not exclude tests, by `test = false` or `autotests = false`.
#[test]
fn every_target_has_its_tests_run() {
    let mut findings = Vec::new();
    for package in metadata("Cargo.toml")["packages"].as_array().expect("packages") {
        let mut built = BTreeSet::new();
        for target in package["targets"].as_array().expect("targets") {
            let kinds: Vec<_> = target["kind"]
                .as_array()
                .expect("kinds")
                .iter()
                .map(|kind| kind.as_str())
                .collect();
            let path = Path::new(target["src_path"].as_str().expect("a path"));
            let tested = target["test"].as_bool().expect("test");
            let elsewhere = ELSEWHERE.iter().any(|program| path.ends_with(program));
            if !tested
                && !elsewhere
                && !kinds.contains(&Some("custom-build"))
                && !kinds.contains(&Some("example"))
            {
                findings.push(format!("{}: `test = false` in its manifest", path.display()));
            }
            built.insert(path.to_owned());
        }
        let manifest = Path::new(package["manifest_path"].as_str().expect("a path"));
        let tests = manifest.with_file_name("tests");
        for path in
            std::fs::read_dir(tests).into_iter().flatten().flatten().map(|entry| entry.path())
        {
            let main = if path.is_dir() { path.join("main.rs") } else { path };
            if main.is_file()
                && main.extension().is_some_and(|end| end == "rs")
                && !built.contains(&main)
            {
                findings
                    .push(format!("{}: a test program that is no target of cargo", main.display()));
            }
        }
    }
    none(&findings);
}

/// Returns the root files of all targets, as paths from the root.
fn targets() -> Vec<PathBuf> {
    let mut roots = Vec::new();
    for manifest in MANIFESTS {
        for package in metadata(manifest)["packages"].as_array().expect("packages") {
            for target in package["targets"].as_array().expect("targets") {
                let path = Path::new(target["src_path"].as_str().expect("a path"));
                roots.push(path.strip_prefix(root()).expect("in the tree").to_owned());
            }
        }
    }
    roots
}

/// Returns every file that `roots` reach. A module without a file is a finding. The cause is an
/// error in this function, because the compiler has accepted the module.
fn reach(
    roots: &[PathBuf],
    read: &dyn Fn(&Path) -> Option<String>,
    findings: &mut Vec<String>,
) -> BTreeSet<PathBuf> {
    let mut reached = BTreeSet::new();
    // Each file with whether its modules are beside it, as for `main.rs` and `mod.rs`, or in a
    // folder of its name.
    let mut open: Vec<(PathBuf, bool)> = roots.iter().map(|path| (path.clone(), true)).collect();
    while let Some((path, beside)) = open.pop() {
        if !reached.insert(path.clone()) {
            continue;
        }
        let Some(text) = read(&path) else {
            findings.push(format!("{}: cannot be read", path.display()));
            continue;
        };
        for declared in modules::declared(&text) {
            let candidates = candidates(&path, beside, &declared);
            match candidates.iter().find(|(file, _)| read(file).is_some()) {
                Some(found) => open.push(found.clone()),
                None => findings.push(format!("{}: no file for {declared:?}", path.display())),
            }
        }
    }
    reached
}

/// Returns the possible paths of a module's file. Each path comes with whether that file's own
/// modules are beside it (The Rust Reference, "Module source filenames" and "The path attribute").
fn candidates(file: &Path, beside: bool, declared: &Declared) -> Vec<(PathBuf, bool)> {
    let folder = file.parent().unwrap_or(Path::new(""));
    let own = if beside { folder.to_owned() } else { file.with_extension("") };
    if let Some(named) = &declared.path {
        // Relative to the file's folder, or to that of the inline modules.
        let from = if declared.within.is_empty() { folder } else { &own };
        return vec![(tidy(&within(from, &declared.within).join(named)), true)];
    }
    let from = within(&own, &declared.within);
    let name = &declared.name;
    vec![(from.join(format!("{name}.rs")), false), (from.join(name).join("mod.rs"), true)]
}

fn within(folder: &Path, modules: &[String]) -> PathBuf {
    modules.iter().fold(folder.to_owned(), |folder, name| folder.join(name))
}

/// Normalizes a path lexically: resolves `.` and `..` without access to the file system.
fn tidy(path: &Path) -> PathBuf {
    path.iter().fold(PathBuf::new(), |mut clean, part| {
        match part.to_str() {
            Some(".") => {}
            Some("..") => drop(clean.pop()),
            _ => clean.push(part),
        }
        clean
    })
}

/// Returns the reached files of a tree of paths with texts, and the findings.
fn reached_in(tree: &[(&str, &str)], roots: &[&str]) -> (Vec<String>, Vec<String>) {
    let read = |path: &Path| {
        tree.iter().find(|(name, _)| Path::new(name) == path).map(|(_, text)| (*text).to_owned())
    };
    let roots: Vec<_> = roots.iter().map(PathBuf::from).collect();
    let mut findings = Vec::new();
    let reached = reach(&roots, &read, &mut findings);
    (reached.iter().map(|path| path.display().to_string()).collect(), findings)
}

#[test]
fn a_file_without_its_line_is_not_reached() {
    let tree = |lib| {
        [
            ("src/lib.rs", lib),
            ("src/one.rs", "mod deep;"),
            ("src/one/deep.rs", ""),
            ("src/two/mod.rs", "mod near;"),
            ("src/two/near.rs", ""),
        ]
    };
    let (all, findings) =
        reached_in(&tree("mod one;\n#[cfg(test)]\npub(crate) mod two;"), &["src/lib.rs"]);
    assert_eq!(all.len(), 5, "{all:?}");
    assert!(findings.is_empty(), "{findings:?}");
    let (some, _) = reached_in(&tree("mod one;\n// mod two;"), &["src/lib.rs"]);
    assert_eq!(some, ["src/lib.rs", "src/one/deep.rs", "src/one.rs"]);
    let (none, _) = reached_in(&tree(""), &["src/lib.rs"]);
    assert_eq!(none, ["src/lib.rs"]);
}

#[test]
fn named_files_and_inline_modules_are_followed() {
    let tree = [
        (
            "a/tests/it.rs",
            "#[path = \"../../shared/./kit.rs\"]\nmod kit;\nmod inline { pub mod deep; }",
        ),
        ("shared/kit.rs", "mod part;"),
        ("shared/part.rs", "mod below; mod inline { #[path = \"x.rs\"] mod y; }"),
        ("shared/part/below.rs", ""),
        ("shared/part/inline/x.rs", ""),
        ("a/tests/inline/deep.rs", ""),
        ("a/tests/other.rs", ""),
    ];
    let (reached, findings) = reached_in(&tree, &["a/tests/it.rs"]);
    assert!(findings.is_empty(), "{findings:?}");
    assert_eq!(reached.len(), 6, "{reached:?}");
    assert!(!reached.contains(&"a/tests/other.rs".to_owned()));
}

#[test]
fn a_module_without_a_file_is_a_finding() {
    let (_, findings) = reached_in(&[("src/main.rs", "mod gone;")], &["src/main.rs"]);
    assert_eq!(findings.len(), 1);
    assert!(findings[0].contains("gone"), "{findings:?}");
}
