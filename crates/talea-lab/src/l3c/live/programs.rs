//! Programs of a deployed trial. They know nothing of Talea: they sleep, compute, and write what
//! they measured to a file.
//!
//! Each waits for the file `--start`, which has time zero in nanoseconds of CLOCK_MONOTONIC.

use super::matrix;
use anyhow::{Context, ensure};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;
use talea_core::{Monotonic, Span, Work};
use talea_os::clock;
use talea_study::exit::Exit;
use talea_study::options;

/// Time after which a program no longer waits for its start.
const PATIENCE: Duration = Duration::from_mins(1);
/// Pause between two looks at the file.
const POLL_PERIOD: Duration = Duration::from_millis(5);

/// Common options of the programs.
#[derive(clap::Args, Debug)]
struct RunFiles {
    /// File with time zero.
    #[arg(long, value_name = "FILE")]
    start: PathBuf,
    /// Time after zero at which the program ends.
    #[arg(long, value_name = "DURATION", value_parser = options::duration)]
    length: Span,
    /// File for the results.
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
}

/// Options of `talea-lab jobs`.
#[derive(clap::Args, Debug)]
pub(crate) struct JobsArgs {
    #[command(flatten)]
    files: RunFiles,
    #[arg(long, value_name = "DURATION", value_parser = options::duration)]
    period: Span,
    /// First release in nanoseconds after zero.
    #[arg(long, value_name = "NS", default_value = "0")]
    offset: u64,
    /// CPU time of a job.
    #[arg(long, value_name = "DURATION", value_parser = options::duration)]
    cost: Span,
}

/// Options of `talea-lab products`.
#[derive(clap::Args, Debug)]
pub(crate) struct ProductsArgs {
    #[command(flatten)]
    files: RunFiles,
}

/// Executes periodic jobs, and writes the release and the end of each in nanoseconds after zero.
pub(crate) fn jobs(args: &JobsArgs) -> anyhow::Result<Exit> {
    let zero = wait_for_start(&args.files.start)?;
    let first = zero + Span::from_ns(args.offset);
    ensure!(clock::now() < first, "the program was ready after its first release");
    let mut text = String::with_capacity(1 << 20);
    let end = zero + args.files.length;
    let releases = (0..).map(|number| first + Span::from_ns(number * args.period.as_ns()));
    for release in releases.take_while(|&release| release < end) {
        clock::sleep_until(release);
        let begin = clock::thread_cpu_time();
        let done = begin.checked_add(Work::from_ns(args.cost.as_ns())).context("a short cost")?;
        while clock::thread_cpu_time() < done {}
        let ended = clock::now().since(zero).as_ns();
        let _ = writeln!(text, "{} {ended}", release.since(zero).as_ns());
    }
    write(&args.files.out, &text)
}

/// Computes products of matrices, and writes their number from zero on.
pub(crate) fn products(args: &ProductsArgs) -> anyhow::Result<Exit> {
    let zero = wait_for_start(&args.files.start)?;
    let (end, mut count) = (zero + args.files.length, 0_u64);
    matrix::multiply(|| {
        // A look at the clock costs as much as a product.
        let goes_on = !count.is_multiple_of(64) || clock::now() < end;
        count += 1;
        goes_on
    });
    write(&args.files.out, &count.to_string())
}

fn wait_for_start(file: &Path) -> anyhow::Result<Monotonic> {
    let begin = clock::now();
    while clock::now().since(begin).as_ns() < PATIENCE.as_nanos() as u64 {
        if let Ok(text) = std::fs::read_to_string(file) {
            let zero = text.trim().parse().context("time zero is no number")?;
            return Ok(Monotonic::from_ns(zero));
        }
        std::thread::sleep(POLL_PERIOD);
    }
    anyhow::bail!("{} does not appear", file.display())
}

/// Writes a file that appears with its whole text.
fn write(file: &Path, text: &str) -> anyhow::Result<Exit> {
    let temporary = file.with_extension("new");
    std::fs::write(&temporary, text).and_then(|()| std::fs::rename(&temporary, file))?;
    Ok(Exit::Ok)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn d33_a_program_writes_the_nominal_release_and_the_end_of_each_job() {
        let folder = std::env::temp_dir().join(format!("talea-lab-jobs-{}", std::process::id()));
        std::fs::create_dir(&folder).expect("a folder");
        let files = RunFiles {
            start: folder.join("start"),
            length: Span::from_ns(21_000_000),
            out: folder.join("out"),
        };
        let zero = clock::now() + Span::from_ns(50_000_000);
        std::fs::write(&files.start, zero.as_ns().to_string()).expect("a file");
        let [period, cost] = [10_000_000, 100_000].map(Span::from_ns);
        let args = JobsArgs { files, period, offset: 1_000_000, cost };
        jobs(&args).expect("it ends");
        let text = std::fs::read_to_string(folder.join("out")).expect("results");
        let lines: Vec<Vec<u64>> = text
            .lines()
            .map(|line| line.split(' ').map(|word| word.parse().expect("a number")).collect())
            .collect();
        let releases: Vec<u64> = lines.iter().map(|line| line[0]).collect();
        assert_eq!(releases, [1_000_000, 11_000_000]);
        assert!(lines.iter().all(|line| line[1] >= line[0] + 100_000), "{text}");
        assert!(jobs(&args).is_err(), "its first release has passed");
        std::fs::remove_dir_all(&folder).expect("ours");
    }
}
