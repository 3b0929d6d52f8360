//! `talea-lab all`: all experiments, one after another, into one directory.
//!
//! Each experiment is a separate run of this program. Its output is written to `NAME.txt`, its
//! plots and raw data to files beside that file, and at the end its exit code to `NAME.exit`. A
//! later call keeps complete results, whatever their verdict. It repeats experiments that were
//! interrupted, failed or were inconclusive.

use crate::papers;
use anyhow::{Context, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use talea_study::exit::{Exit, usage};
use talea_study::output::{self, Table, note};

/// Options of `talea-lab all`.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Directory of the results, written and read.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Only those whose names begin so.
    #[arg(long, value_name = "NAME", default_value = "")]
    only: String,
    /// Small numbers where an experiment has them: shows that everything works.
    #[arg(long)]
    quick: bool,
    /// Only say what there is, and what has been made.
    #[arg(long)]
    list: bool,
}

/// Entry of the list of experiments.
#[derive(Clone, Copy, Debug)]
struct Experiment {
    name: &'static str,
    words: &'static [&'static str],
    /// Whether the experiment has the option `--out`.
    draws: bool,
    /// Arguments of a short run.
    quick: &'static [&'static str],
}

const fn table(name: &'static str, words: &'static [&'static str]) -> Experiment {
    Experiment { name, words, draws: false, quick: &[] }
}

const fn drawn(name: &'static str, words: &'static [&'static str]) -> Experiment {
    Experiment { name, words, draws: true, quick: &[] }
}

const fn quickly(experiment: Experiment) -> Experiment {
    Experiment { quick: &["--quick"], ..experiment }
}

const fn few(experiment: Experiment) -> Experiment {
    Experiment { quick: &["--sets", "2", "--seconds", "1"], ..experiment }
}

/// All experiments. Those without special rights are first.
const EXPERIMENTS: &[Experiment] = &[
    drawn("l3c-fig4", &["l3c", "fig4"]),
    drawn("l3c-fig5", &["l3c", "fig5"]),
    drawn("l3c-fig6", &["l3c", "fig6"]),
    drawn("l3c-fig7", &["l3c", "fig7"]),
    drawn("l3c-fig8", &["l3c", "fig8"]),
    table("l3c-fig4-bounds", &["l3c", "fig4", "--bounds"]),
    table("l3c-fig5-bounds", &["l3c", "fig5", "--bounds"]),
    table("l3c-fig6-bounds", &["l3c", "fig6", "--bounds"]),
    table("l3c-fig7-bounds", &["l3c", "fig7", "--bounds"]),
    drawn("sf3p-fig4", &["sf3p", "fig4"]),
    drawn("sf3p-fig6", &["sf3p", "fig6"]),
    drawn("sf3p-table2", &["sf3p", "table2"]),
    table("sf3p-fig4-bounds", &["sf3p", "fig4", "--bounds"]),
    table("sf3p-table2-bounds", &["sf3p", "table2", "--bounds"]),
    drawn("yasmin-fig5", &["yasmin", "fig5"]),
    quickly(table("sim", &["sim"])),
    quickly(table("analysis", &["analysis"])),
    quickly(table("admission", &["admission"])),
    quickly(drawn("l3c-fig4-live", &["l3c", "fig4", "--live"])),
    quickly(drawn("l3c-fig5-live", &["l3c", "fig5", "--live"])),
    quickly(drawn("l3c-fig6-live", &["l3c", "fig6", "--live"])),
    // Figure 8 is made by the same runs.
    quickly(drawn("l3c-fig7-live", &["l3c", "fig7", "--live"])),
    few(drawn("sf3p-fig6-live", &["sf3p", "fig6", "--live"])),
    few(drawn("sf3p-fig7-live", &["sf3p", "fig7", "--live"])),
    few(drawn("sf3p-fig8-live", &["sf3p", "fig8", "--live"])),
    few(drawn("sf3p-fig9-live", &["sf3p", "fig9", "--live"])),
    few(drawn("sf3p-table2-live", &["sf3p", "table2", "--live"])),
    few(drawn("sf3p-six-live", &["sf3p", "six", "--live"])),
    quickly(drawn("yasmin-fig5-live", &["yasmin", "fig5", "--live"])),
    quickly(table("yasmin-table2", &["yasmin", "table2"])),
    quickly(drawn("yasmin-fig2", &["yasmin", "fig2"])),
    quickly(table("exec", &["exec"])),
    quickly(table("ipc", &["ipc"])),
    table("wakeup", &["wakeup"]),
    quickly(drawn("retif-fig3", &["retif", "fig3"])),
    quickly(drawn("retif-fig4", &["retif", "fig4"])),
    quickly(drawn("retif-fig5", &["retif", "fig5"])),
];

/// Runs all experiments without a complete result.
pub(super) fn run(args: &Args) -> anyhow::Result<Exit> {
    fs::create_dir_all(&args.out)
        .with_context(|| format!("cannot create {}", args.out.display()))?;
    let chosen: Vec<_> =
        EXPERIMENTS.iter().filter(|one| one.name.starts_with(&args.only)).collect();
    if chosen.is_empty() {
        let names: Vec<_> = EXPERIMENTS.iter().map(|one| one.name).collect();
        let names = names.join(", ");
        return Err(usage(format!("no experiment begins with {}: {names}", args.only)));
    }
    let mut table = Table::new("EXPERIMENT | OUTCOME | >TOOK | WHAT IT SAYS");
    let mut codes = Vec::new();
    for (number, one) in chosen.iter().enumerate() {
        let text = args.out.join(format!("{}.txt", one.name));
        let begun = Instant::now();
        let (code, took) = match (outcome_in(&args.out, one.name)?, args.list) {
            // A complete result is kept, whatever its verdict.
            (Some(code), true) | (Some(code @ (0 | 7)), false) => (Some(code), "kept".to_owned()),
            (None, true) => (None, String::new()),
            (_, false) => {
                note(&format!("{} of {}: {}", number + 1, chosen.len(), one.name));
                let code = make(one, args, &text)?;
                (Some(code), seconds(begun.elapsed()))
            }
        };
        codes.extend(code);
        let word = code.map_or("not yet", word);
        table.row(vec![one.name.to_owned(), word.to_owned(), took, text.display().to_string()]);
    }
    let papers = papers::write(&args.out)?;
    output::print(&format!(
        "{}the papers' figures beside these: {}\n",
        table.render(),
        papers.display()
    ))?;
    Ok(exit(&codes))
}

/// Whether there is an experiment of this name.
#[cfg(test)]
pub(crate) fn is_experiment(name: &str) -> bool {
    EXPERIMENTS.iter().any(|one| one.name == name)
}

fn seconds(took: Duration) -> String {
    format!("{:.1} s", took.as_secs_f64())
}

/// Returns the exit code of an earlier run of an experiment.
fn outcome_in(folder: &Path, name: &str) -> anyhow::Result<Option<i32>> {
    let path = folder.join(format!("{name}.exit"));
    match fs::read_to_string(&path) {
        // A file without a number was not written completely.
        Ok(text) => Ok(text.trim().parse().ok()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
}

/// Runs one experiment, writes its exit code to a file and returns it.
fn make(one: &Experiment, args: &Args, text: &Path) -> anyhow::Result<i32> {
    let ended = args.out.join(format!("{}.exit", one.name));
    let _ = fs::remove_file(&ended);
    let to = fs::File::create(text).with_context(|| format!("cannot write {}", text.display()))?;
    let mut command = Command::new(std::env::current_exe()?);
    command.args(one.words).stdin(Stdio::null()).stdout(to.try_clone()?).stderr(to);
    if one.draws {
        command.arg("--out").arg(&args.out);
    }
    if args.quick {
        command.args(one.quick);
    }
    let status = command.status().with_context(|| format!("{} can't be started", one.name))?;
    // An interruption of one experiment ends all of them.
    let Some(code) = status.code() else { bail!("{} was ended: {status}", one.name) };
    fs::write(&ended, format!("{code}\n"))
        .with_context(|| format!("cannot write {}", ended.display()))?;
    Ok(code)
}

fn word(code: i32) -> &'static str {
    match code {
        0 => "done",
        3 => "not on this machine",
        6 => "inconclusive",
        7 => "below threshold",
        _ => "failed",
    }
}

/// Returns the most severe result. Experiments that are impossible on this computer do not count.
fn exit(codes: &[i32]) -> Exit {
    if codes.iter().any(|code| !matches!(code, 0 | 3 | 6 | 7)) {
        Exit::Failure
    } else if codes.contains(&7) {
        Exit::BelowThreshold
    } else if codes.contains(&6) {
        Exit::Inconclusive
    } else {
        Exit::Ok
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_a_file_and_no_two_are_the_same() {
        for (number, one) in EXPERIMENTS.iter().enumerate() {
            let is_plain = |letter: char| {
                letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '-'
            };
            assert!(one.name.chars().all(is_plain), "{}", one.name);
            assert!(
                EXPERIMENTS[..number].iter().all(|other| other.name != one.name),
                "{} twice",
                one.name
            );
        }
    }

    #[test]
    fn one_that_failed_outweighs_one_that_said_nothing() {
        assert_eq!(exit(&[0, 3]), Exit::Ok);
        assert_eq!(exit(&[0, 6, 3]), Exit::Inconclusive);
        assert_eq!(exit(&[0, 7, 6]), Exit::BelowThreshold);
        assert_eq!(exit(&[6, 1, 7, 0]), Exit::Failure);
    }
}
