//! `cargo xtask guest`: tests on emulated machines.
//!
//! Model: [`kernel`] downloads a Debian kernel. [`archive`] packs the tests, their libraries and a
//! first process into an initial file system. [`emulator`] boots kernel and file system under QEMU.
//! The command installs nothing, except the emulator if that is permitted.
//!
//! | machine | CPUs | clock | tests |
//! | --- | --- | --- | --- |
//! | default | one | counts instructions (`-icount`): the load of the host has no effect | `guest` |
//! | `--free` | two | of the host | `guest` |
//! | `--systemd` ([`services`]) | two | of the host | `services` |
//! | `--eight` | eight | of the host | `domains` |
//!
//! If the kernel, the user space or the emulator is missing, the command is skipped. With
//! `TALEA_GUEST=required` the command fails.

mod apt;
mod archive;
mod emulator;
mod kernel;
mod services;
mod userland;

use crate::shell::{self, cargo};
use crate::test::{Verdict, ensure_packages};
use anyhow::{Context, Result, bail};
use emulator::Machine;
use kernel::Kernel;
use lexopt::{Arg, Parser, ValueExt};
use services::Prepared;
use std::path::PathBuf;
use std::process::ExitCode;

const USAGE: &str = "\
cargo xtask guest [--kernel NAME] [--free | --systemd | --eight] [--append WORDS] [WORD]...

  --kernel NAME  the Debian kernel [6.12-rt; with --eight 6.1-rt]
  --free         two CPUs and the host's clock: figures mean nothing then
  --systemd      the tests of the installed units, under systemd with cgroup v2
  --eight        the tests of root domains, on eight CPUs
  --append WORDS more words for the kernel's command line, such as lsm=yama
  WORD           only tests with this word in their names
";

/// Selection of tests, and the machine that runs the tests.
struct Guest {
    /// `None` for the default of the machine.
    kernel: Option<Kernel>,
    machine: Machine,
    append: String,
    words: Vec<String>,
}

/// Runs the guest command.
pub(crate) fn run(args: &mut Parser) -> Result<ExitCode> {
    let mut guest = Guest::default(Machine::Counting);
    while let Some(arg) = args.next()? {
        match arg {
            Arg::Long("kernel") => {
                guest.kernel = Some(Kernel::named(&args.value()?.string()?)?);
            }
            Arg::Long("free") => guest.machine = Machine::Free,
            Arg::Long("systemd") => guest.machine = Machine::Services,
            Arg::Long("eight") => guest.machine = Machine::Eight,
            Arg::Long("append") => guest.append = args.value()?.string()?,
            Arg::Long("help") | Arg::Short('h') => {
                print!("{USAGE}");
                return Ok(ExitCode::SUCCESS);
            }
            Arg::Value(word) => guest.words.push(word.string()?),
            other => return Err(other.unexpected().into()),
        }
    }
    Ok(match guest.test(&mut |line| println!("{line}"))? {
        Verdict::Passed => ExitCode::SUCCESS,
        Verdict::Failed(why) => {
            println!("{why}");
            ExitCode::FAILURE
        }
        Verdict::Skipped(why) => {
            println!("skipped: {why}");
            ExitCode::SUCCESS
        }
    })
}

/// Runs every timing test on the default kernel, as a step of the test command.
pub(crate) fn test(line: &mut dyn FnMut(&str)) -> Result<Verdict> {
    Guest::default(Machine::Counting).test(line)
}

/// Runs every test of the installed units, as a step of the test command.
pub(crate) fn test_services(line: &mut dyn FnMut(&str)) -> Result<Verdict> {
    Guest::default(Machine::Services).test(line)
}

/// Runs every test of root domains, as a step of the test command.
pub(crate) fn test_eight(line: &mut dyn FnMut(&str)) -> Result<Verdict> {
    Guest::default(Machine::Eight).test(line)
}

/// Programs that the tests of root domains start, with their packages.
const DOMAIN_PROGRAMS: [(&str, &str); 4] = [
    ("talea-daemon", "talead"),
    ("talea-governor", "talea-governor"),
    ("talea-kernel-tests", "talea-test-agent"),
    ("talea-plugin-host", "talea-plugin-host"),
];

impl Guest {
    fn default(machine: Machine) -> Guest {
        Guest { kernel: None, machine, append: String::new(), words: Vec::new() }
    }

    fn test(&self, line: &mut dyn FnMut(&str)) -> Result<Verdict> {
        if let Some(command) = ensure_packages(&emulator::NEEDED, line)? {
            let why = format!("the guest needs an emulator; install with: {command}");
            return Ok(without(why));
        }
        let dir = shell::target_dir().join("guest-machine");
        std::fs::create_dir_all(&dir).with_context(|| dir.display().to_string())?;
        let default = match self.machine {
            Machine::Eight => kernel::WITH_BOTH_CPUSETS,
            Machine::Counting | Machine::Free | Machine::Services => kernel::KNOWN[0],
        };
        let image = match self.kernel.unwrap_or(default).fetch(&dir)? {
            Ok(image) => image,
            Err(missing) => return Ok(without(missing)),
        };
        let failed = || Ok(Verdict::Failed("the guest's tests did not build".to_owned()));
        let archive = match self.machine {
            Machine::Services => match services::prepare(&dir, line)? {
                Prepared::Archive(archive) => archive,
                Prepared::Missing(why) => return Ok(without(why)),
                Prepared::Failed(verdict) => return Ok(verdict),
            },
            Machine::Eight => {
                let Some(built) = build("domains", "dev", line)? else { return failed() };
                let Some(programs) = build_programs(line)? else { return failed() };
                archive::pack("eight", &built, &programs, &dir)?
            }
            Machine::Counting | Machine::Free => {
                let Some(built) = build("guest", "guest", line)? else { return failed() };
                archive::pack("root", &built, &[], &dir)?
            }
        };
        emulator::boot(&image, &archive, (self.machine, &self.append), &self.words, line)
    }
}

fn without(missing: String) -> Verdict {
    if std::env::var_os("TALEA_GUEST").is_some_and(|value| value == "required") {
        Verdict::Failed(missing)
    } else {
        Verdict::Skipped(missing)
    }
}

/// Programs for the guest.
struct Built {
    init: PathBuf,
    tests: PathBuf,
}

/// Builds the test program `name` and the first process. Returns `None` if they do not compile,
/// after the errors of the compiler.
fn build(name: &str, profile: &str, line: &mut dyn FnMut(&str)) -> Result<Option<Built>> {
    const PACKAGE: &str = "talea-guest-tests";
    let mut command =
        cargo(&["test", "--locked", "--quiet", "--no-run", "--profile", profile, "-p", PACKAGE]);
    command.args(["--test", name, "--message-format", "json-render-diagnostics"]);
    let mut tests = None;
    let done = shell::stream(command, |text| match text.strip_prefix('{') {
        Some(_) => tests = tests.take().or_else(|| executable(name, text)),
        None => line(text),
    })?;
    if !done {
        return Ok(None);
    }
    let Some(tests) = tests else { bail!("cargo built no test program of {PACKAGE}") };
    let folder = if profile == "dev" { "debug" } else { profile };
    let init = shell::target_dir().join(folder).join("talea-guest-init");
    Ok(Some(Built { init, tests }))
}

/// Builds [`DOMAIN_PROGRAMS`] and returns their paths, with that of the program by which the tests
/// copy them. Returns `None` after the errors of the compiler.
fn build_programs(line: &mut dyn FnMut(&str)) -> Result<Option<Vec<PathBuf>>> {
    let mut command = cargo(&["build", "--locked", "--quiet", "--bins"]);
    for (package, _) in DOMAIN_PROGRAMS {
        command.args(["-p", package]);
    }
    let is_built = shell::stream(command, line)?;
    let folder = shell::target_dir().join("debug");
    let built = DOMAIN_PROGRAMS.iter().map(|(_, name)| folder.join(name));
    Ok(is_built.then(|| built.chain([PathBuf::from("/bin/cp")]).collect()))
}

/// Returns the path of the test program `name` in a message of cargo; `None` for a message about
/// another target.
fn executable(name: &str, message: &str) -> Option<PathBuf> {
    let message: serde_json::Value = serde_json::from_str(message).ok()?;
    let is_test = message["profile"]["test"] == true && message["target"]["name"] == name;
    is_test.then(|| message["executable"].as_str().map(PathBuf::from))?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_test_program_is_found_among_cargos_messages() {
        let other = r#"{"reason":"compiler-artifact","target":{"name":"talea-guest-init"},"profile":{"test":false},"executable":"/t/x"}"#;
        assert_eq!(executable("guest", other), None);
        let test = r#"{"reason":"compiler-artifact","target":{"name":"guest"},"profile":{"test":true},"executable":"/t/guest-1"}"#;
        assert_eq!(executable("guest", test), Some(PathBuf::from("/t/guest-1")));
        assert_eq!(executable("guest", "{"), None);
    }
}
