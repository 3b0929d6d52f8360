//! `cargo xtask mutate [WORD]...`: shows that the tests can fail.
//!
//! Model: a mutation point `mutate!("name", code, mutant)` in the source breaks one mechanism while
//! the environment variable `TALEA_MUTATION` names it (`talea_core::mutation`).
//! `xtask/mutations.toml` lists for each point the tests of which one must fail then. A point that
//! concerns several groups of rows has tests for each group, and one test of each group must fail.
//! One build with `--cfg mutate` serves all points. Words select points by name.
//!
//! A failed test kills a mutant only if the same test passes without the mutation. The end of a
//! test program without a named failure kills the mutant if the run without the mutation passes.
//! The command ends tests of pure crates at the first failure. Tests that change the machine run to
//! their end, because they have to restore what they changed. No point breaks the code that
//! restores the machine.
//!
//! The test command does not run this command, which takes about an hour.

use crate::shell::{self, cargo, root};
use anyhow::{Context, Result, bail, ensure};
use lexopt::{Arg, Parser, ValueExt};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// Path of the registry of points. The registry lists for each point the tests of which one must
/// fail.
const REGISTRY: &str = "xtask/mutations.toml";
/// Time limit of one test run in seconds. A mutant may make its tests wait forever.
const TIMEOUT_S: u32 = 300;
/// Crates whose tests change nothing outside their process.
const PURE: [&str; 9] = [
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

/// Selection of tests: arguments of `cargo test` in an entry of the registry.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Clone)]
struct TestSelection {
    package: String,
    target: Target,
    /// Words that select tests by name, and options of the test program.
    filters: Vec<String>,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Clone)]
enum Target {
    /// The unit tests of the library and of the programs, and the integration tests.
    Every,
    Lib,
    /// The unit tests of a program, or of all programs of the package.
    Bin(Option<String>),
    Test(String),
}

/// Test program that cargo has built.
#[derive(Debug, Clone)]
struct TestProgram {
    package: String,
    dir: PathBuf,
    kind: String,
    name: String,
    path: PathBuf,
}

/// Result of running the selected tests once.
#[derive(Debug)]
struct TestRun {
    is_green: bool,
    failed: Vec<String>,
    /// Reason of the last test that skipped itself.
    skipped: Option<String>,
}

/// Result of one mutation.
enum Outcome {
    /// This test failed.
    Killed(String),
    Survived,
    /// The tests show nothing, for this reason.
    Inconclusive(String),
}

/// Runs the mutate command.
pub(crate) fn run(args: &mut Parser) -> Result<ExitCode> {
    let mut words = Vec::new();
    while let Some(arg) = args.next()? {
        match arg {
            Arg::Value(word) => words.push(word.string()?),
            other => return Err(other.unexpected().into()),
        }
    }
    let mut points = read_registry()?;
    points.retain(|point, _| words.is_empty() || words.iter().any(|word| point.0.contains(word)));
    if points.is_empty() {
        bail!("{REGISTRY}: no point has a name with one of these words: {}", words.join(" "));
    }
    let programs = build()?;
    check_selections(&programs, points.values())?;
    let mut unmutated: BTreeMap<&TestSelection, TestRun> = BTreeMap::new();
    let (mut killed, mut survived, mut inconclusive) = (0, 0, 0);
    for ((name, group), selection) in &points {
        let label = if group.is_empty() { name.clone() } else { format!("{name} ({group})") };
        if !unmutated.contains_key(selection) {
            unmutated.insert(selection, test(&programs, selection, None)?);
        }
        let before = &unmutated[selection];
        let outcome = test(&programs, selection, Some((name, before)))?.against(before);
        match outcome {
            Outcome::Killed(by) => {
                killed += 1;
                println!("{label}: killed by {by}");
            }
            Outcome::Survived => {
                survived += 1;
                println!("{label}: SURVIVED cargo test {selection}");
            }
            Outcome::Inconclusive(why) => {
                inconclusive += 1;
                println!("{label}: INCONCLUSIVE: {why}");
            }
        }
    }
    println!("{killed} killed, {survived} survived, {inconclusive} inconclusive");
    Ok(if survived + inconclusive == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Name of a point, and a group of rows; the group is empty for a point with one selection.
type Point = (String, String);

fn read_registry() -> Result<BTreeMap<Point, TestSelection>> {
    let text = std::fs::read_to_string(root().join(REGISTRY)).context(REGISTRY)?;
    let entries: toml::Table = toml::from_str(&text).context(REGISTRY)?;
    let mut points = BTreeMap::new();
    let mut add = |name: &str, group: &str, args: &toml::Value| {
        let args = args.as_str().context("a text was expected");
        let selection = args.and_then(TestSelection::parse);
        let selection = selection.with_context(|| format!("{REGISTRY}: {name}"))?;
        points.insert((name.to_owned(), group.to_owned()), selection);
        anyhow::Ok(())
    };
    for (name, value) in &entries {
        match value {
            toml::Value::Table(groups) => {
                groups.iter().try_for_each(|(group, args)| add(name, group, args))?;
            }
            args => add(name, "", args)?,
        }
    }
    Ok(points)
}

impl TestSelection {
    fn parse(args: &str) -> Result<TestSelection> {
        let mut words = args.split_whitespace().map(str::to_owned).peekable();
        ensure!(words.next().as_deref() == Some("-p"), "{args:?} does not begin with -p CRATE");
        let package = words.next().context("no crate after -p")?;
        let target = match words.peek().map(String::as_str) {
            Some("--lib") => Target::Lib,
            Some("--bins") => Target::Bin(None),
            Some("--bin") => {
                words.next();
                Target::Bin(Some(words.peek().context("no name after --bin")?.clone()))
            }
            Some("--test") => {
                words.next();
                Target::Test(words.peek().context("no name after --test")?.clone())
            }
            _ => Target::Every,
        };
        if target != Target::Every {
            words.next();
        }
        let filters = words.filter(|word| word != "--").collect();
        Ok(TestSelection { package, target, filters })
    }

    fn has(&self, program: &TestProgram) -> bool {
        self.package == program.package
            && match &self.target {
                Target::Every => true,
                Target::Lib => program.kind == "lib",
                Target::Bin(name) => {
                    program.kind == "bin" && name.as_ref().is_none_or(|name| *name == program.name)
                }
                Target::Test(name) => program.kind == "test" && *name == program.name,
            }
    }
}

impl std::fmt::Display for TestSelection {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "-p {}", self.package)?;
        match &self.target {
            Target::Every => {}
            Target::Lib => write!(out, " --lib")?,
            Target::Bin(None) => write!(out, " --bins")?,
            Target::Bin(Some(name)) => write!(out, " --bin {name}")?,
            Target::Test(name) => write!(out, " --test {name}")?,
        }
        self.filters.iter().try_for_each(|filter| write!(out, " {filter}"))
    }
}

/// Returns the folder of the mutable build, apart from the ordinary one.
fn build_dir() -> PathBuf {
    shell::target_dir().join("mutate")
}

/// Sets the variables with which a build, or a program that builds, contains the mutants.
fn mutable(command: &mut Command) {
    command.env("CARGO_TARGET_DIR", build_dir()).env("RUSTFLAGS", "--cfg mutate");
}

/// Builds all programs and test programs with every mutant. Returns the test programs.
fn build() -> Result<Vec<TestProgram>> {
    let mut programs = cargo(&["build", "--workspace", "--locked", "--quiet"]);
    mutable(&mut programs);
    ensure!(shell::stream(programs, |line| println!("{line}"))?, "the mutable build failed");
    let mut tests = cargo(&[
        "test",
        "--workspace",
        "--locked",
        "--no-run",
        "--message-format=json-render-diagnostics",
    ]);
    mutable(&mut tests);
    let mut found = Vec::new();
    let built = shell::stream(tests, |line| match serde_json::from_str(line) {
        Ok(message) => found.extend(test_program(&message)),
        Err(_) => println!("{line}"),
    })?;
    ensure!(built, "the mutable build failed");
    Ok(found)
}

/// Returns the test program that a message of cargo describes; `None` for a message about another
/// target.
fn test_program(message: &serde_json::Value) -> Option<TestProgram> {
    let path = message["executable"].as_str()?;
    if message["profile"]["test"] != true {
        return None;
    }
    let target = &message["target"];
    let dir = Path::new(message["manifest_path"].as_str()?).parent()?;
    let kind = match target["kind"][0].as_str()? {
        kind @ ("bin" | "test") => kind,
        _ => "lib",
    };
    let package = message["package_id"].as_str()?;
    // `path+file:///…/talea-core#0.1.0`, or `path+file:///…/kernel#talea-kernel-tests@0.1.0`.
    let (folder, version) = package.rsplit_once('#')?;
    let package = match version.split_once('@') {
        Some((name, _)) => name,
        None => folder.rsplit('/').next()?,
    };
    Some(TestProgram {
        package: package.to_owned(),
        dir: dir.to_owned(),
        kind: kind.to_owned(),
        name: target["name"].as_str()?.to_owned(),
        path: path.into(),
    })
}

/// Fails if an entry selects no test. Then the test has another name, and the entry proves nothing.
fn check_selections<'a>(
    programs: &[TestProgram],
    selections: impl Iterator<Item = &'a TestSelection>,
) -> Result<()> {
    let distinct: BTreeSet<_> = selections.collect();
    let mut empty = Vec::new();
    for selection in distinct {
        let mut has_test = false;
        for program in programs.iter().filter(|program| selection.has(program)) {
            let mut list = Command::new(&program.path);
            list.args(&selection.filters).arg("--list").current_dir(&program.dir);
            list.env("LD_LIBRARY_PATH", build_dir().join("debug/deps"));
            shell::stream(list, |line| has_test |= line.ends_with(": test"))?;
        }
        if !has_test {
            empty.push(format!("cargo test {selection}"));
        }
    }
    ensure!(empty.is_empty(), "{REGISTRY}: these select no test:\n{}", empty.join("\n"));
    Ok(())
}

/// Runs the selected tests. `mutation` is a point, whose mutant is active, and the run without the
/// mutant.
fn test(
    programs: &[TestProgram],
    selection: &TestSelection,
    mutation: Option<(&str, &TestRun)>,
) -> Result<TestRun> {
    let mut sum = TestRun { is_green: true, failed: Vec::new(), skipped: None };
    let selected: Vec<_> = programs.iter().filter(|program| selection.has(program)).collect();
    ensure!(!selected.is_empty(), "no test program for cargo test {selection}");
    let mut executed = 0;
    for program in selected {
        let mut command = Command::new("timeout");
        command.arg(TIMEOUT_S.to_string()).arg(&program.path).args(&selection.filters);
        command.arg("--show-output").current_dir(&program.dir);
        mutable(&mut command);
        command.env("TALEA_BIN_DIR", build_dir().join("debug"));
        command.env("CARGO_MANIFEST_DIR", &program.dir);
        command.env("LD_LIBRARY_PATH", build_dir().join("debug/deps"));
        if let Some((name, _)) = mutation {
            command.env("TALEA_MUTATION", name);
        }
        // So that a run that is ended early takes the processes along that its tests have started.
        command.process_group(0);
        let is_pure = PURE.contains(&selection.package.as_str());
        let is_green = shell::stream_while(command, |line| {
            if let Some(reason) = line.strip_prefix("skipped: ") {
                sum.skipped = Some(reason.to_owned());
            }
            if let Some(count) = line.strip_prefix("running ") {
                executed += count.split(' ').next().and_then(|n| n.parse().ok()).unwrap_or(0);
            }
            let name = line.strip_prefix("test ").and_then(|rest| rest.strip_suffix(" ... FAILED"));
            let Some(name) = name else { return ControlFlow::Continue(()) };
            let is_new =
                |(_, before): (&str, &TestRun)| !before.failed.iter().any(|old| old == name);
            sum.failed.push(name.to_owned());
            match mutation {
                Some(mutation) if is_pure && is_new(mutation) => ControlFlow::Break(()),
                _ => ControlFlow::Continue(()),
            }
        })?;
        sum.is_green &= is_green;
    }
    ensure!(executed > 0, "no test is selected by cargo test {selection}");
    Ok(sum)
}

impl TestRun {
    /// Returns the outcome of a mutation with this run. `before` is the run without the mutation.
    fn against(&self, before: &TestRun) -> Outcome {
        let is_new = |name: &&String| !before.failed.contains(name);
        match (self.failed.iter().find(is_new), &self.skipped) {
            (Some(first), _) => Outcome::Killed(first.clone()),
            // The test program died, or was ended at the limit, before it could name a test.
            (None, _) if !self.is_green && before.is_green => {
                Outcome::Killed("the end of its test program".to_owned())
            }
            (None, _) if !self.is_green => Outcome::Inconclusive(format!(
                "these tests fail without the mutation, too: {}",
                before.failed.join(", ")
            )),
            (None, Some(reason)) => {
                Outcome::Inconclusive(format!("a test skipped itself: {reason}"))
            }
            (None, None) => Outcome::Survived,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn test_run(is_green: bool, failed: &[&str]) -> TestRun {
        let failed = failed.iter().map(|&name| name.to_owned()).collect();
        TestRun { is_green, failed, skipped: None }
    }

    #[test]
    fn only_a_test_that_passes_without_the_mutation_kills() {
        let (green, red) = (test_run(true, &[]), test_run(false, &["flaky"]));
        assert!(matches!(test_run(false, &["r7_change"]).against(&green), Outcome::Killed(_)));
        assert!(matches!(test_run(false, &["flaky"]).against(&red), Outcome::Inconclusive(_)));
        assert!(matches!(test_run(true, &[]).against(&red), Outcome::Survived));
        assert!(matches!(
            test_run(false, &["flaky", "r7_change"]).against(&red),
            Outcome::Killed(by) if by == "r7_change"
        ));
        assert!(matches!(test_run(true, &[]).against(&green), Outcome::Survived));
        assert!(matches!(test_run(false, &[]).against(&green), Outcome::Killed(_)));
        let skipped = TestRun { skipped: Some("needs root".to_owned()), ..test_run(true, &[]) };
        assert!(matches!(skipped.against(&green), Outcome::Inconclusive(_)));
    }

    #[test]
    fn a_selection_is_read_as_cargo_reads_it() {
        for args in [
            "-p talea-os",
            "-p talea-os debts",
            "-p talea-os --lib debts",
            "-p talea-cli --bin talea compare",
            "-p talea-cli --bins",
            "-p talea-sim --test it y11 strict",
        ] {
            assert_eq!(TestSelection::parse(args).expect(args).to_string(), args);
        }
        assert!(TestSelection::parse("--lib").is_err());
        assert!(TestSelection::parse("-p talea-os --test").is_err());
    }
}
