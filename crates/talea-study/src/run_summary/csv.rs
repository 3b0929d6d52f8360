//! File of jobs: a line for each completed job.

use super::exec_intervals::JobExecution;
use crate::report::TaskLine;
use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use talea_sim::Completion;

/// Writer of the file of jobs.
pub(super) type Csv = BufWriter<File>;

/// Columns of LITMUS^RT's `st-job-stats`, with place and time. New columns are added at the end.
pub(super) const COLUMNS: &str = "task,job,release_ns,deadline_ns,end_ns,cpu,late,\
    period_ns,response_ns,lateness_ns,tardiness_ns,forced,ran_ns,preemptions,migrations";

/// Writes a completed job, in the order of [`COLUMNS`].
pub(super) fn line(
    file: &mut Csv,
    task: &TaskLine,
    job: &Completion,
    ran: &JobExecution,
) -> io::Result<()> {
    let Completion { release, deadline, end, cpu, .. } = *job;
    let (release, deadline, end) = (release.as_ns(), deadline.as_ns(), end.as_ns());
    write!(
        file,
        "{},{},{release},{deadline},{end},{},{}",
        task.name,
        job.job,
        cpu.0,
        u8::from(job.is_late())
    )?;
    let lateness = i128::from(end) - i128::from(deadline);
    let (tardiness, response) = (end.saturating_sub(deadline), job.response().as_ns());
    write!(
        file,
        ",{},{response},{lateness},{tardiness},{}",
        task.period_ns,
        u8::from(ran.overrun)
    )?;
    writeln!(file, ",{},{},{}", ran.total.as_ns(), ran.preemptions, ran.migrations)
}
