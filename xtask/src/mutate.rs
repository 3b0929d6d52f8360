//! `cargo xtask mutate [WORD]...`: tests that can't fail show nothing.
//!
//! Each patch in xtask/mutations/ breaks one mechanism. It is applied to a copy of the tree, the
//! tests that it names are run, and must fail. A patch begins with two lines: `what:`, the
//! mechanism and how it is broken, and `tests:`, the arguments of `cargo test`. Words select
//! patches by name. Not part of the gate: it takes long.
//!
//! A red test counts only if it was green without the mutation, in the same tree and the same way.
//! Tests of pure crates are ended at the first one; those that touch the machine run to their end,
//! for they have to put back what they changed. For the same reason no patch breaks what puts the
//! machine itself back: a mutated process can be ended, a switch that it left turned stays.

use crate::shell::{self, root};
use anyhow::{Context, Result, bail};
use lexopt::{Arg, Parser, ValueExt};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::ControlFlow;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

const DIR: &str = "xtask/mutations";
/// A mutation may make its tests wait for ever.
const PATIENCE_S: u32 = 600;
/// Crates whose tests can be killed at any time.
const PURE: [&str; 6] =
    ["talea-core", "talea-analysis", "talea-sim", "talea-system", "talea-proto", "talea-broker"];

struct Mutation {
    name: String,
    what: String,
    tests: Vec<String>,
    patch: PathBuf,
    /// Files that it changes, from the root.
    files: Vec<PathBuf>,
}

enum Fate {
    Killed(String),
    Survived,
    /// The patch or the mutated code is no good.
    Broken(String),
}

/// Runs the command.
pub(crate) fn run(args: &mut Parser) -> Result<ExitCode> {
    let mut words = Vec::new();
    while let Some(arg) = args.next()? {
        match arg {
            Arg::Value(word) => words.push(word.string()?),
            other => return Err(other.unexpected().into()),
        }
    }
    let mutations = read(&words)?;
    let tree = shell::target_dir().join("mutate/tree");
    copy_tree(&tree)?;
    // All of them first: after each mutation what it touched is compiled again.
    let mut before: BTreeMap<&[String], Outcome> = BTreeMap::new();
    for mutation in &mutations {
        if !before.contains_key(mutation.tests.as_slice()) {
            println!("unmutated: cargo test {}", mutation.tests.join(" "));
            before.insert(&mutation.tests, test(&mutation.tests, &tree, None)?);
        }
    }
    let (mut killed, mut survived, mut broken) = (0, 0, 0);
    for mutation in &mutations {
        println!("{}: {}", mutation.name, mutation.what);
        match try_out(mutation, &tree, &before[mutation.tests.as_slice()])? {
            Fate::Killed(by) => {
                killed += 1;
                println!("  killed by {by}");
            }
            Fate::Survived => {
                survived += 1;
                println!("  SURVIVED: cargo test {}", mutation.tests.join(" "));
            }
            Fate::Broken(why) => {
                broken += 1;
                println!("  BROKEN: {why}");
            }
        }
    }
    println!("{killed} killed, {survived} survived, {broken} broken");
    Ok(if survived + broken == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn read(words: &[String]) -> Result<Vec<Mutation>> {
    let mut paths: Vec<PathBuf> = fs::read_dir(root().join(DIR))?
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|end| end == "patch"))
        .collect();
    paths.sort();
    let all = paths.into_iter().map(parse).collect::<Result<Vec<_>>>()?;
    let chosen = |mutation: &Mutation| {
        words.is_empty() || words.iter().any(|word| mutation.name.contains(word))
    };
    let mutations: Vec<_> = all.into_iter().filter(chosen).collect();
    if mutations.is_empty() {
        bail!("no patch in {DIR} is called like that");
    }
    Ok(mutations)
}

fn parse(patch: PathBuf) -> Result<Mutation> {
    let name = patch.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let text = fs::read_to_string(&patch).with_context(|| name.clone())?;
    let line = |key: &str| {
        let found = text.lines().find_map(|line| line.strip_prefix(key));
        found.map(|rest| rest.trim().to_owned()).with_context(|| format!("{name}: no line {key:?}"))
    };
    let (what, tests) = (line("what:")?, line("tests:")?);
    let files =
        text.lines().filter_map(|line| line.strip_prefix("+++ b/")).map(PathBuf::from).collect();
    Ok(Mutation {
        name,
        what,
        tests: tests.split_whitespace().map(str::to_owned).collect(),
        patch,
        files,
    })
}

/// What a run of tests said.
struct Outcome {
    green: bool,
    compiles: bool,
    failed: Vec<String>,
    /// Why a test skipped itself, if one did.
    skipped: Option<String>,
}

impl Outcome {
    /// What a mutation has earned, given how its tests were without it.
    fn against(&self, before: &Outcome) -> Fate {
        let new: Vec<_> = self.failed.iter().filter(|name| !before.failed.contains(name)).collect();
        match (self.compiles, new.first()) {
            _ if !before.compiles => {
                Fate::Broken("the code does not compile without it".to_owned())
            }
            (false, _) => Fate::Broken("the mutated code does not compile".to_owned()),
            (true, Some(first)) if new.len() == 1 => Fate::Killed((*first).clone()),
            (true, Some(first)) => Fate::Killed(format!("{first} and {} more", new.len() - 1)),
            // Neither green nor a failed test: a test program ended, or was ended, before it could
            // say so.
            (true, None) if !self.green && before.green => {
                Fate::Killed("the end of its test program".to_owned())
            }
            // Whatever would have noticed is busy with something else: a machine that others use,
            // or that lacks something. That shows nothing.
            (true, None) if !self.green => {
                Fate::Broken(format!("{} fails without it, too", before.failed.join(", ")))
            }
            (true, None) if self.skipped.is_some() => Fate::Broken(format!(
                "a test skipped itself: {}",
                self.skipped.as_deref().unwrap_or_default()
            )),
            (true, None) => Fate::Survived,
        }
    }
}

fn try_out(mutation: &Mutation, tree: &Path, unmutated: &Outcome) -> Result<Fate> {
    let mut apply = Command::new("git");
    apply.arg("apply").arg(&mutation.patch).current_dir(tree);
    // The copy lies inside the repository, and is none of its files.
    apply.env("GIT_CEILING_DIRECTORIES", tree.parent().unwrap_or(tree));
    let before = mutation
        .files
        .iter()
        .map(|file| fs::read(tree.join(file)))
        .collect::<Result<Vec<_>, _>>()?;
    let mut complaint = String::new();
    let applied = shell::stream(apply, |line| complaint.push_str(line))?;
    let fate = if applied {
        test(&mutation.tests, tree, Some(unmutated))?.against(unmutated)
    } else {
        Fate::Broken(complaint)
    };
    for (file, bytes) in mutation.files.iter().zip(before) {
        fs::write(tree.join(file), bytes)?;
    }
    Ok(fate)
}

/// Runs tests, as far as there is something to learn beyond how they were `before`.
fn test(tests: &[String], tree: &Path, before: Option<&Outcome>) -> Result<Outcome> {
    let mut cargo = Command::new("timeout");
    cargo.arg(PATIENCE_S.to_string()).arg("cargo").args(["test", "--locked", "--no-fail-fast"]);
    // With the reasons why tests skipped themselves.
    cargo.args(tests).args(["--", "--show-output"]).current_dir(tree);
    cargo.env("CARGO_TARGET_DIR", shell::target_dir().join("mutate/target"));
    // `timeout` would make one itself, but not before it runs.
    cargo.process_group(0);
    let before = before.filter(|_| tests.iter().any(|word| PURE.contains(&word.as_str())));
    let (mut failed, mut compiles, mut skipped) = (Vec::new(), true, None);
    let green = shell::stream_while(cargo, |line| {
        compiles &= !line.starts_with("error: could not compile");
        let name = line.strip_prefix("test ").and_then(|rest| rest.strip_suffix(" ... FAILED"));
        failed.extend(name.map(str::to_owned));
        skipped = line.strip_prefix("skipped: ").map(str::to_owned).or(skipped.take());
        match (name, before) {
            (Some(name), Some(before)) if !before.failed.iter().any(|known| known == name) => {
                ControlFlow::Break(())
            }
            _ => ControlFlow::Continue(()),
        }
    })?;
    Ok(Outcome { green, compiles, failed, skipped })
}

/// A copy of everything that cargo needs; files that are the same stay, so that little is built
/// again.
fn copy_tree(to: &Path) -> Result<()> {
    copy(root(), to, &[".git", "target", ".device"])
}

/// Makes `to` what `from` is, but for what is to be skipped: also what is no longer there goes.
fn copy(from: &Path, to: &Path, skip: &[&str]) -> Result<()> {
    fs::create_dir_all(to)?;
    let mut names = BTreeSet::new();
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (name, kind, target) =
            (entry.file_name(), entry.file_type()?, to.join(entry.file_name()));
        if kind.is_dir() {
            if skip.iter().any(|skipped| name == *skipped)
                || entry.path().starts_with(shell::target_dir())
            {
                continue;
            }
            copy(&entry.path(), &target, skip)?;
        } else if kind.is_file() {
            let new = fs::read(entry.path())?;
            if fs::read(&target).ok().as_ref() != Some(&new) {
                fs::write(&target, new)?;
            }
        }
        names.insert(name);
    }
    for entry in fs::read_dir(to)? {
        let entry = entry?;
        let is_skipped = skip.iter().any(|skipped| entry.file_name() == *skipped);
        if !is_skipped && !names.contains(&entry.file_name()) {
            let gone = entry.path();
            if entry.file_type()?.is_dir() {
                fs::remove_dir_all(gone)?
            } else {
                fs::remove_file(gone)?
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(green: bool, failed: &[&str]) -> Outcome {
        let failed = failed.iter().map(|&name| name.to_owned()).collect();
        Outcome { green, compiles: true, failed, skipped: None }
    }

    #[test]
    fn a_copy_has_what_the_tree_has_and_nothing_of_what_it_had() {
        let dir = std::env::temp_dir().join(format!("talea-mutate-{}", std::process::id()));
        let (from, to) = (dir.join("from"), dir.join("to"));
        let write = |path: PathBuf| {
            fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            fs::write(path, "text").expect("written");
        };
        for path in ["kept/a.rs", "moved/b.rs", ".git/x"] {
            write(from.join(path));
        }
        copy(&from, &to, &[".git", "target"]).expect("copied");
        write(to.join("target/built"));
        fs::remove_dir_all(from.join("moved")).expect("gone");
        write(from.join("kept/c.rs"));
        copy(&from, &to, &[".git", "target"]).expect("copied");
        let there = |path: &str| to.join(path).exists();
        let (is, was) = (
            [there("kept/a.rs"), there("kept/c.rs"), there("target/built")],
            [there("moved"), there(".git")],
        );
        fs::remove_dir_all(&dir).expect("gone");
        assert_eq!((is, was), ([true; 3], [false; 2]));
    }

    #[test]
    fn only_a_test_that_was_green_before_kills() {
        let (green, red) = (outcome(true, &[]), outcome(false, &["flaky"]));
        assert!(matches!(outcome(false, &["r7_change"]).against(&green), Fate::Killed(_)));
        assert!(matches!(outcome(false, &["flaky"]).against(&red), Fate::Broken(_)));
        assert!(matches!(outcome(true, &[]).against(&red), Fate::Survived));
        assert!(matches!(outcome(false, &["flaky", "r7_change"]).against(&red), Fate::Killed(_)));
        assert!(matches!(outcome(true, &[]).against(&green), Fate::Survived));
        assert!(matches!(outcome(false, &[]).against(&green), Fate::Killed(_)));
        let skipped = Outcome { skipped: Some("needs root".to_owned()), ..outcome(true, &[]) };
        assert!(matches!(skipped.against(&green), Fate::Broken(_)));
        let broken = Outcome { compiles: false, ..outcome(false, &[]) };
        assert!(matches!(broken.against(&green), Fate::Broken(_)));
    }
}
