//! Output files of a run: jobs, trace, page, plot.

use super::chains::{ChainSummary, drawn_chains};
use super::csv::{COLUMNS, Csv};
use super::recorder::{RunRecorder, Trace};
use crate::output::write_file;
use crate::report::{self, DrawnRoot, Outline, RunPage};
use anyhow::Context;
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};
use talea_core::Span;
use talea_core::engine::Engine;

/// Options for the output files.
#[derive(clap::Args, Debug)]
pub struct FileArgs {
    /// Write every completed job to FILE: task, number, release, deadline, end, CPU, whether it was
    /// late, period, response, lateness, tardiness, whether a table stopped it, execution time,
    /// preemptions and migrations. Times are nanoseconds.
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Write all events to FILE as a trace for Perfetto: dispatches, arrivals, deadlines, misses,
    /// budgets.
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Write a page with the zoomable schedule and the response times to FILE. The page is
    /// self-contained.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write the beginning of the schedule to FILE as SVG: at most 20 of the longest periods.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

impl FileArgs {
    /// Whether a file is requested.
    pub fn is_any(&self) -> bool {
        [&self.csv, &self.trace, &self.html, &self.svg].into_iter().any(Option::is_some)
    }
}

/// Open output files.
pub struct Files<'a> {
    args: &'a FileArgs,
    csv: Option<Csv>,
    trace: Option<Trace>,
}

fn cannot_write(path: &Path) -> String {
    format!("cannot write {}", path.display())
}

fn create(path: &Path) -> anyhow::Result<File> {
    File::create(path).with_context(|| cannot_write(path))
}

fn create_csv(path: &Path) -> anyhow::Result<Csv> {
    let mut file = BufWriter::new(create(path)?);
    writeln!(file, "{COLUMNS}").with_context(|| cannot_write(path))?;
    Ok(file)
}

impl<'a> Files<'a> {
    /// Creates the files before the run, so that errors appear early.
    pub fn create(args: &'a FileArgs) -> anyhow::Result<Files<'a>> {
        Ok(Files {
            args,
            csv: args.csv.as_deref().map(create_csv).transpose()?,
            trace: args.trace.as_deref().map(create).transpose()?.map(Trace::new),
        })
    }

    /// Returns the sink of the next root.
    pub fn recorder<'s>(
        &'s mut self,
        outline: &'s Outline,
        machine: &Engine,
        duration: Span,
    ) -> RunRecorder<'s> {
        let is_drawn = self.args.html.is_some() || self.args.svg.is_some();
        RunRecorder::new(
            outline,
            machine,
            duration,
            is_drawn,
            self.csv.as_mut(),
            self.trace.as_mut(),
        )
    }

    /// Writes page and plot, and flushes the other files.
    pub fn finish(
        self,
        title: String,
        seed: u64,
        duration: Span,
        roots: Vec<DrawnRoot<'_>>,
        chains: &[ChainSummary],
    ) -> anyhow::Result<()> {
        let duration_ns = duration.as_ns();
        let chains = drawn_chains(chains);
        let picture = RunPage { title, seed, roots, chains, duration_ns, head: Vec::new() };
        if let Some(path) = &self.args.html {
            write_file(path, &report::html(&picture)?)?;
        }
        if let Some(path) = &self.args.svg {
            let tasks = picture.roots.iter().flat_map(|root| &root.outline.tasks);
            let longest = tasks.map(|task| task.period_ns).max().unwrap_or(0);
            let until = longest.saturating_mul(20).clamp(1, duration.as_ns().max(1));
            write_file(path, &report::svg(&picture, until))?;
        }
        if let (Some(mut file), Some(path)) = (self.csv, &self.args.csv) {
            file.flush().with_context(|| cannot_write(path))?;
        }
        if let (Some(trace), Some(path)) = (self.trace, &self.args.trace) {
            trace.finish().with_context(|| cannot_write(path))?;
        }
        Ok(())
    }
}
