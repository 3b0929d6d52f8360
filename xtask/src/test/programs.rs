//! Test programs: the programs that cargo has built, their needs, and their execution.
//!
//! A new program needs the machine for itself until a list of this module contains the program.

use super::{Verdict, libtest, machine::Reading, report::Report};
use crate::shell::{self, cargo};
use anyhow::Result;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

/// Requirement of the tests of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Needs {
    /// The tests neither change the state of the machine nor measure time.
    Nothing,
    /// The tests change the state of the machine: policies, control groups, users, daemons. The
    /// tests judge no measured time, so that builds and pure tests may run at the same time.
    State,
    /// The tests judge measured times, and need the machine for themselves.
    Machine,
}

/// Packages whose tests neither change the state of the machine nor measure time.
const PURE: [&str; 15] = [
    "policy-edf-us",
    "policy-llf",
    "server-saver",
    "talea-analysis",
    "talea-broker",
    "talea-config",
    "talea-core",
    "talea-deploy",
    "talea-guest-tests",
    "talea-import",
    "talea-proto",
    "talea-sim",
    "talea-study",
    "talea-system",
    "xtask",
];

/// Other programs by package and name, with the needs of their tests.
const PROGRAMS: [(&str, &str, Needs); 7] = [
    ("talea-cli", "talea", Needs::Nothing),
    ("talea-cli", "demo", Needs::State),
    ("talea-governor", "talea-governor", Needs::Nothing),
    ("talea-lab", "talea-lab", Needs::Nothing),
    ("talea-lab", "lab", Needs::State),
    ("talea-rtkit", "talea-rtkit", Needs::Nothing),
    ("talea-rtkit", "it", Needs::State),
];

/// Part of a program: the needs of its tests, and the words that select the tests.
type Part = (Needs, &'static [&'static str]);

/// Programs whose tests differ in their needs. The command runs such a program once per part. A
/// part has the tests whose names contain one of its words. A last part has all other tests, and
/// needs the machine.
const DIVIDED: [(&str, &str, &[Part]); 3] = [
    ("talea-cli", "it", &[(Needs::Nothing, &CLI_PURE), (Needs::State, &CLI_STATE)]),
    ("talea-lab", "it", &[(Needs::Nothing, &["speed::"]), (Needs::State, &["live::"])]),
    ("talea-kernel-tests", "it", &[(Needs::State, &KERNEL_STATE)]),
];
const CLI_PURE: [&str; 19] = [
    "analyze::",
    "answers::",
    "browser::",
    "chapters::",
    "check::",
    "exits::",
    "generate::",
    "generated::",
    "import::",
    "manual::",
    "new::",
    "perfetto::",
    "run::",
    "simulate::",
    "sweep::",
    "synthesize::",
    "systems::",
    "tests::",
    "witness::",
];
/// Tests of the commands beside a real daemon.
const CLI_STATE: [&str; 2] = ["intercept::", "live::"];
/// Tests of the daemon's decisions, and of the state that the daemon leaves behind.
const KERNEL_STATE: [&str; 15] = [
    "abuse::",
    "choice::",
    "claims::",
    "confined::",
    "files::",
    "foreign::",
    "identity::",
    "order::",
    "owners::",
    "ownership::",
    "putback::",
    "restart::",
    "rules::",
    "smoke::",
    "survival::",
];

/// Programs with the longest run times. These programs start first, so that no core idles at the
/// end of the phase.
const LONGEST: [(&str, &str); 6] = [
    ("talea-kernel-tests", "it"),
    ("talea-cli", "it"),
    ("talea-lab", "it"),
    ("talea-analysis", "it"),
    ("talea-broker", "talea_broker"),
    ("xtask", "install"),
];

/// Test program, with the selection of its tests.
#[derive(Clone, Debug)]
pub(crate) struct TestProgram {
    package: String,
    /// Kind of the program's target: `lib`, `bin` or `test`.
    kind: String,
    name: String,
    path: PathBuf,
    /// Folder of the package, which is the working directory of the tests.
    dir: PathBuf,
    arguments: Vec<String>,
    variables: Vec<(String, String)>,
    needs: Needs,
    title: String,
}

impl TestProgram {
    /// Returns the test program that a message of cargo describes; `None` for any other message.
    fn in_message(message: &Value) -> Option<TestProgram> {
        let path = message["executable"].as_str()?;
        if message["reason"] != "compiler-artifact" || message["profile"]["test"] != true {
            return None;
        }
        let target = &message["target"];
        let kind = match target["kind"][0].as_str()? {
            kind @ ("bin" | "test") => kind,
            _ => "lib",
        };
        let dir = Path::new(message["manifest_path"].as_str()?).parent()?;
        // `path+file:///.../talea-core#0.1.0`, or `path+file:///.../kernel#talea-kernel-tests@0.1.0`.
        let (folder, version) = message["package_id"].as_str()?.rsplit_once('#')?;
        let package = match version.split_once('@') {
            Some((name, _)) => name,
            None => folder.rsplit('/').next()?,
        };
        let name = target["name"].as_str()?;
        let listed = PROGRAMS.iter().find(|&&(of, program, _)| (of, program) == (package, name));
        let needs = match listed {
            Some(&(_, _, needs)) => needs,
            None if PURE.contains(&package) => Needs::Nothing,
            None => Needs::Machine,
        };
        Some(TestProgram {
            package: package.to_owned(),
            kind: kind.to_owned(),
            name: name.to_owned(),
            path: path.into(),
            dir: dir.to_owned(),
            arguments: Vec::new(),
            variables: Vec::new(),
            needs,
            title: format!("{package} {kind} {name}"),
        })
    }

    /// Returns the parts of the program, or the whole program. Each test is in exactly one part.
    fn parts(self) -> Vec<TestProgram> {
        let is_it =
            |(package, name, _): &&(&str, &str, _)| self.package == *package && self.name == *name;
        let Some((_, _, divisions)) = DIVIDED.iter().find(is_it) else { return vec![self] };
        let mut skips: Vec<String> = Vec::new();
        let mut parts = Vec::new();
        for (needs, words) in *divisions {
            let mut part = self.clone();
            part.needs = *needs;
            part.title += &format!(", {needs:?}").to_lowercase();
            part.arguments.extend(words.iter().map(|&word| word.to_owned()));
            part.arguments.extend(skips.iter().cloned());
            parts.push(part);
            skips.extend(words.iter().flat_map(|&word| ["--skip", word]).map(str::to_owned));
        }
        let mut rest = self;
        rest.title += ", rest";
        rest.arguments.extend(skips);
        parts.push(rest);
        parts
    }

    /// Returns the position of the program in the order of starts; all programs outside [`LONGEST`]
    /// share the last position.
    fn rank(&self) -> usize {
        let is_it = |&(package, name): &(&str, &str)| self.package == package && self.name == name;
        LONGEST.iter().position(is_it).unwrap_or(LONGEST.len())
    }

    pub(super) fn title(&self) -> &str {
        &self.title
    }

    pub(super) fn needs(&self) -> Needs {
        self.needs
    }

    /// Returns the command that runs the whole program again.
    pub(super) fn rerun(&self) -> String {
        match self.kind.as_str() {
            "lib" => format!("cargo test -p {} --lib", self.package),
            kind => format!("cargo test -p {} --{kind} {}", self.package, self.name),
        }
    }

    /// Sets an environment variable of the program's process.
    pub(crate) fn set(&mut self, variable: &str, value: &str) {
        self.variables.push((variable.to_owned(), value.to_owned()));
    }

    /// Runs the program to its end. Returns `None` if the program was killed at the time limit.
    pub(super) fn run(&self, line: &mut dyn FnMut(&str)) -> Result<Option<ExitStatus>> {
        let mut command = Command::new(&self.path);
        command.args(&self.arguments).arg("--show-output").current_dir(&self.dir);
        if self.needs == Needs::Nothing {
            let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
            command.arg(format!("--test-threads={}", (cores / 2).max(1)));
        }
        command.env("CARGO_MANIFEST_DIR", &self.dir);
        // `target/PROFILE/deps/it-0123456789abcdef`: the step has built the programs under test.
        if let Some(folder) = self.path.parent().and_then(Path::parent) {
            command.env("TALEA_BIN_DIR", folder);
        }
        for (variable, value) in &self.variables {
            command.env(variable, value);
        }
        shell::status(command, line)
    }

    /// Runs the program, prints its output at once, and adds its results to `report`.
    pub(crate) fn run_into(&self, report: &mut Report) {
        let start = Reading::now();
        let mut output = Vec::new();
        println!("== {}", self.title);
        let end = self.run(&mut |line| {
            println!("{line}");
            output.push(line.to_owned());
        });
        let results = libtest::results(&self.title, end, &output);
        report.tests(&self.title, Some(&self.rerun()), results, start);
    }
}

/// Builds all programs that the tests run, in one call, and returns the test programs. Cargo
/// selects the features of a dependency per call, and another selection compiles the dependents of
/// that dependency again.
pub(super) fn build(line: &mut dyn FnMut(&str)) -> Result<(Verdict, Vec<TestProgram>)> {
    build_with(&["--workspace"], line)
}

/// Builds the optimised test programs of `cargo xtask soak`.
pub(crate) fn build_release(line: &mut dyn FnMut(&str)) -> Result<(Verdict, Vec<TestProgram>)> {
    build_with(&["--workspace", "--exclude", "xtask", "--release"], line)
}

fn build_with(
    selection: &[&str],
    line: &mut dyn FnMut(&str),
) -> Result<(Verdict, Vec<TestProgram>)> {
    let mut command = cargo(&["build", "--lib", "--bins", "--tests", "--examples", "--locked"]);
    command.args(selection).args(["--quiet", "--message-format", "json-render-diagnostics"]);
    let mut programs = Vec::new();
    let built = shell::stream(command, |text| match serde_json::from_str(text) {
        Ok(message) => programs.extend(TestProgram::in_message(&message)),
        Err(_) => line(text),
    })?;
    if !built {
        return Ok((
            Verdict::Failed("the build failed, and no test has run".to_owned()),
            Vec::new(),
        ));
    }
    let mut programs: Vec<_> = programs.into_iter().flat_map(TestProgram::parts).collect();
    programs.sort_by_key(TestProgram::rank);
    Ok((Verdict::Passed, programs))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(package: &str, kind: &str, name: &str) -> TestProgram {
        let message = serde_json::json!({
            "reason": "compiler-artifact",
            "executable": "/t/debug/deps/x-1",
            "profile": { "test": true },
            "target": { "kind": [kind], "name": name },
            "manifest_path": "/s/folder/Cargo.toml",
            "package_id": format!("path+file:///s/folder#{package}@0.1.0"),
        });
        TestProgram::in_message(&message).expect("a test program")
    }

    #[test]
    fn a_program_needs_the_machine_unless_it_is_listed() {
        assert_eq!(program("talea-core", "lib", "talea_core").needs(), Needs::Nothing);
        assert_eq!(program("talea-cli", "test", "demo").needs(), Needs::State);
        assert_eq!(program("talea-runtime", "test", "it").needs(), Needs::Machine);
        let library = program("talea-capi", "cdylib", "talea");
        assert_eq!(library.needs(), Needs::Machine);
        assert_eq!(library.rerun(), "cargo test -p talea-capi --lib");
    }

    #[test]
    fn each_test_of_a_divided_program_is_in_one_part() {
        let parts = program("talea-cli", "test", "it").parts();
        let needs: Vec<_> = parts.iter().map(TestProgram::needs).collect();
        assert_eq!(needs, [Needs::Nothing, Needs::State, Needs::Machine]);
        // The selection of libtest: any word that is no option, and no skipped word.
        let selects = |part: &TestProgram, test: &str| {
            let (mut words, mut skips) = (Vec::new(), Vec::new());
            let mut arguments = part.arguments.iter();
            while let Some(word) = arguments.next() {
                if word == "--skip" {
                    skips.extend(arguments.next());
                } else {
                    words.push(word);
                }
            }
            let has = |words: &[&String]| words.iter().any(|&word| test.contains(word.as_str()));
            (words.is_empty() || has(&words)) && !has(&skips)
        };
        for (test, part) in [("run::a", 0), ("live::run::a", 0), ("live::a", 1), ("rows::a", 2)] {
            let selected: Vec<_> = (0..3).filter(|&i| selects(&parts[i], test)).collect();
            assert_eq!(selected, [part], "{test}");
        }
        assert_eq!(program("talea-sim", "test", "it").parts().len(), 1);
    }

    #[test]
    fn only_test_programs_are_found_in_the_messages_of_cargo() {
        let library = serde_json::json!({ "reason": "compiler-artifact", "executable": null });
        assert!(TestProgram::in_message(&library).is_none());
    }
}
