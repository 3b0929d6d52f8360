//! `talea import-…`: other programs' files in, ours on standard output.

use crate::args::ImportArgs;
use crate::exit::Exit;
use crate::output::print;
use anyhow::Context;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use talea_system::Diagnostic;
use talea_system::import::{self, File};

/// Turn a simulation of SF3P (RSP 2014), in its XML, into a system file on standard output.
///
/// What a system file can't hold is refused with its place and a reason; what it holds differently
/// is said in notes at the top.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example: talea import-sf3p edf.xml > edf.toml && talea simulate edf.toml")]
pub(crate) struct Sf3pArgs {
    /// The simulation.
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

/// Turn a workload of rt-app, in its JSON, into a system file on standard output.
///
/// Keys may repeat, and the relaxed grammar of workgen is read as well. What lies between two
/// timers becomes a job, a thread without timers one job that suspends itself. What a task can't
/// hold is refused with its place and a reason; what it holds differently is said in notes at the
/// top.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Example: talea import-rt-app --cpus 2 load.json > load.toml && talea simulate load.toml"
)]
pub(crate) struct RtAppArgs {
    /// The workload.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// CPUs of the machine; as many as the file names, unless said otherwise.
    #[arg(long, value_name = "M", value_parser = clap::value_parser!(u32).range(1..=64))]
    cpus: Option<u32>,
}

fn read(path: &Path) -> anyhow::Result<(String, String)> {
    let text =
        std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok((path.display().to_string(), text))
}

fn finish(result: Result<String, Vec<Diagnostic>>) -> anyhow::Result<Exit> {
    match result {
        Ok(text) => {
            print(&text)?;
            Ok(Exit::Ok)
        }
        Err(diagnostics) => {
            // The result goes to standard output, usually into a file; complaints must not end up
            // in it.
            let color = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
            let text = talea_system::diagnostic::render(&diagnostics, color);
            let _ = std::io::stderr().lock().write_all(text.as_bytes());
            Ok(Exit::Usage)
        }
    }
}

/// ReTiF's two files.
pub(crate) fn retif(args: &ImportArgs) -> anyhow::Result<Exit> {
    let conf = read(&args.conf)?;
    let rules = args.rules.as_deref().map(read).transpose()?;
    let rules = rules.as_ref().map(|(origin, text)| File { origin, text });
    finish(import::retif(File { origin: &conf.0, text: &conf.1 }, rules))
}

/// A simulation of SF3P.
pub(crate) fn sf3p(args: &Sf3pArgs) -> anyhow::Result<Exit> {
    let (origin, text) = read(&args.file)?;
    finish(import::sf3p(File { origin: &origin, text: &text }))
}

/// A workload of rt-app.
pub(crate) fn rtapp(args: &RtAppArgs) -> anyhow::Result<Exit> {
    let (origin, text) = read(&args.file)?;
    finish(import::rtapp(File { origin: &origin, text: &text }, args.cpus))
}
