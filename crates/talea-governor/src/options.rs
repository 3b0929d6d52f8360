//! Command line.

use anyhow::{Context, bail};
use lexopt::{Arg, Parser, ValueExt};
use std::ffi::OsString;
use std::path::PathBuf;
use talea_core::CpuSet;

/// Text of `--help`.
const HELP: &str = "\
talea-governor: governs the control groups of one root of a deployed system

Usage: talea-governor --system FILE --root NAME --cpus LIST --group TASK=DIRECTORY... [--stats FILE]
       talea-governor --release DIRECTORY...

Options:
  --system FILE           system file; - reads its text, without includes, from standard input
  --root NAME             root of the file
  --cpus LIST             CPUs of the root
  --group TASK=DIRECTORY  cgroup v2 directory of a task (absolute), which another process fills
  --stats FILE            statistics, written when SIGUSR1 arrives
  --release               thaw these groups, and make ordinary threads of their threads
  --help                  print this text
  --version               print the version
";

/// Task that the program is to do.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Command {
    /// Govern groups.
    Govern(Options),
    /// Release these groups.
    Release(Vec<PathBuf>),
    /// Print this text.
    Print(String),
}

/// Options of a governor.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Options {
    /// System file; `-` stands for standard input.
    pub(crate) system: PathBuf,
    pub(crate) root: String,
    pub(crate) cpus: CpuSet,
    /// Tasks with the directories of their groups.
    pub(crate) groups: Vec<(String, PathBuf)>,
    pub(crate) stats: Option<PathBuf>,
}

pub(crate) fn parse(words: impl IntoIterator<Item = OsString>) -> anyhow::Result<Command> {
    let mut parser = Parser::from_args(words);
    let (mut system, mut root, mut cpus, mut stats) = (None, None, None, None);
    let (mut groups, mut released, mut releases) = (Vec::new(), Vec::new(), false);
    while let Some(argument) = parser.next()? {
        match argument {
            Arg::Long("system") => system = Some(PathBuf::from(parser.value()?)),
            Arg::Long("root") => root = Some(parser.value()?.string()?),
            Arg::Long("cpus") => {
                let list = parser.value()?.string()?;
                let set = CpuSet::parse(&list)
                    .map_err(|error| anyhow::anyhow!("--cpus {list}: {error}"))?;
                cpus = Some(set);
            }
            Arg::Long("group") => {
                let value = parser.value()?.string()?;
                // A task may have any name. The last separator is before the absolute path.
                let at = value.rfind("=/").with_context(|| {
                    format!("--group {value}: a task, `=` and an absolute path are needed")
                })?;
                groups.push((value[..at].to_owned(), PathBuf::from(&value[at + 1..])));
            }
            Arg::Long("stats") => stats = Some(PathBuf::from(parser.value()?)),
            Arg::Long("release") => releases = true,
            Arg::Long("help") => return Ok(Command::Print(HELP.to_owned())),
            Arg::Long("version") => {
                let version = env!("CARGO_PKG_VERSION");
                return Ok(Command::Print(format!("talea-governor {version}\n")));
            }
            Arg::Value(directory) if releases => released.push(PathBuf::from(directory)),
            other => return Err(other.unexpected().into()),
        }
    }
    if releases {
        if released.is_empty() || system.is_some() || !groups.is_empty() {
            bail!("--release takes directories and no other option");
        }
        return Ok(Command::Release(released));
    }
    Ok(Command::Govern(Options {
        system: system.context("--system is missing")?,
        root: root.context("--root is missing")?,
        cpus: cpus.context("--cpus is missing")?,
        groups,
        stats,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Command, String> {
        parse(line.split_whitespace().map(OsString::from)).map_err(|error| error.to_string())
    }

    #[test]
    fn a_command_line_is_whole_or_refused_with_the_option() {
        let govern = "--system s.toml --root cpu --cpus 1 --group a=/x --group b=c=/y";
        let Ok(Command::Govern(options)) = parsed(govern) else { panic!("it is whole") };
        let groups = [("a".to_owned(), PathBuf::from("/x")), ("b=c".to_owned(), "/y".into())];
        assert_eq!((options.groups, options.stats), (groups.to_vec(), None));
        let released = vec![PathBuf::from("/x"), PathBuf::from("/y")];
        assert_eq!(parsed("--release /x /y"), Ok(Command::Release(released)));
        for (line, part) in [
            ("--root cpu --cpus 1", "--system is missing"),
            ("--system s --cpus 1", "--root is missing"),
            ("--system s --root cpu", "--cpus is missing"),
            ("--system s --root cpu --cpus x", "--cpus x"),
            ("--group a", "--group a"),
            ("--group a=x", "absolute path"),
            ("--release", "takes directories"),
            ("--system s --release /x", "takes directories"),
            ("/x", "unexpected"),
        ] {
            let error = parsed(line).expect_err(line);
            assert!(error.contains(part), "{line}: {error}");
        }
    }
}
