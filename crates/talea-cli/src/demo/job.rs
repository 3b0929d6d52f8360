//! Run of the audio job: its start, its main thread, and the times that it reports.

use super::tempdir::TempDir;
use anyhow::{Context, bail};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use talea_core::{Monotonic, Span, Work};

/// Relative deadline of a block: a block must be complete when the next one is released.
pub(super) const DEADLINE: Span = Span::from_ns(10_000_000);

/// Declared cost of a block, as in examples/convolver.
pub(super) const RUNTIME: Work = Work::from_ns(4_000_000);

/// Times of one block, as the job reports them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Block {
    /// Nominal start, which does not depend on earlier blocks.
    pub(super) release: Monotonic,
    pub(super) completion: Monotonic,
    /// CPU time of the block, by the kernel's clock of the job's thread.
    pub(super) computed: Work,
}

impl Block {
    /// Returns the response time, from nominal release to completion.
    pub(super) fn response(&self) -> Span {
        self.completion.since(self.release)
    }
}

/// Size of the job, which is the same in each run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size {
    pub(super) microphones: u32,
    /// CPU time of one block.
    pub(super) block: Span,
}

/// CPU time that a block is to need, in µs.
const BLOCK_US: u32 = 2_000;

/// Asks the job for the size with which a block needs [`BLOCK_US`] on this computer.
pub(super) fn calibrate(tempdir: &TempDir) -> anyhow::Result<Size> {
    let output = tempdir
        .command("convolver")
        .arg(tempdir.path("talea.wav"))
        .args(["--calibrate", &BLOCK_US.to_string()])
        .stdin(Stdio::null())
        .output()
        .context("the job cannot be started")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let size = number(&text, "microphones=").zip(number(&text, "block_ns="));
    let Some((microphones, block)) = size.filter(|_| output.status.success()) else {
        bail!("the job cannot measure itself: {text}{}", String::from_utf8_lossy(&output.stderr));
    };
    Ok(Size { microphones: microphones as u32, block: Span::from_ns(block) })
}

/// Running job. Dropping the value before the end of the job kills the job.
pub(super) struct Job {
    child: Child,
    lines: BufReader<std::process::ChildStdout>,
    errors: std::path::PathBuf,
    /// Main thread of the job.
    pub(super) tid: u32,
}

impl Job {
    /// Starts `command`, which is the job or executes it, and waits until the job is ready.
    pub(super) fn start(tempdir: &TempDir, mut command: Command) -> anyhow::Result<Job> {
        let errors = tempdir.path("errors");
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(std::fs::File::create(&errors)?)
            .spawn()
            .context("the job cannot be started")?;
        let lines = BufReader::new(child.stdout.take().context("no pipe to the job")?);
        let mut job = Job { child, lines, errors, tid: 0 };
        let line = job.line()?;
        match number(&line, "ready pid=") {
            Some(pid) => job.tid = pid as u32,
            None => bail!("{}", job.why()),
        }
        Ok(job)
    }

    /// Returns the arguments of the job.
    pub(super) fn arguments(
        tempdir: &TempDir,
        size: Size,
        seconds: u32,
        csv: &Path,
    ) -> Vec<std::ffi::OsString> {
        let mut arguments = vec![tempdir.path("talea.wav").into_os_string()];
        arguments.extend(["--microphones".into(), size.microphones.to_string().into()]);
        arguments.extend(["--seconds".into(), seconds.to_string().into()]);
        arguments.extend(["--csv".into(), csv.into()]);
        arguments
    }

    /// Waits for the end of the job. Returns the blocks of the job and the checksum of its output.
    pub(super) fn finish(
        mut self,
        csv: &Path,
        patience: Duration,
    ) -> anyhow::Result<(Vec<Block>, String)> {
        let start = Instant::now();
        loop {
            match self.child.try_wait()? {
                Some(status) if status.success() => break,
                Some(_) => bail!("{}", self.why()),
                None if start.elapsed() > patience => {
                    bail!("the job did not end within {} s", patience.as_secs())
                }
                None => std::thread::sleep(Duration::from_millis(20)),
            }
        }
        let line = self.line()?;
        let checksum = line.split("checksum=").nth(1).unwrap_or_default().trim().to_owned();
        let text = std::fs::read_to_string(csv).context("the job wrote no times")?;
        Ok((read_times(&text)?, checksum))
    }

    fn line(&mut self) -> anyhow::Result<String> {
        let mut line = String::new();
        self.lines.read_line(&mut line)?;
        Ok(line)
    }

    /// Describes the failure of the job: its exit status and its error output.
    fn why(&mut self) -> String {
        let status =
            self.child.wait().map_or_else(|error| error.to_string(), |status| status.to_string());
        let said = std::fs::read_to_string(&self.errors).unwrap_or_default();
        format!("the job gave up ({status}): {}", said.trim())
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the number that follows `key`.
fn number(text: &str, key: &str) -> Option<u64> {
    let rest = text.split(key).nth(1)?;
    rest[..rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len())].parse().ok()
}

fn read_times(text: &str) -> anyhow::Result<Vec<Block>> {
    text.lines()
        .skip(1)
        .map(|line| {
            let fields: Vec<u64> = line.split(',').map_while(|field| field.parse().ok()).collect();
            match fields[..] {
                [_, release, _start, completion, computed] if release <= completion => Ok(Block {
                    release: Monotonic::from_ns(release),
                    completion: Monotonic::from_ns(completion),
                    computed: Work::from_ns(computed),
                }),
                _ => bail!("the job wrote nonsense: {line}"),
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_and_nonsense_is_not() {
        let blocks = read_times(
            "block,release_ns,start_ns,completion_ns,computed_ns\n0,100,110,300,9\n1,200,300,350,40\n",
        )
        .unwrap();
        assert_eq!(blocks.len(), 2);
        assert_eq!(blocks[1].response(), Span::from_ns(150));
        assert_eq!(blocks[1].computed, Work::from_ns(40));
        for nonsense in ["0,100,110,90,9", "0,100", "0,100,x,300,9", "0,100,110,300,9,1", ""] {
            assert!(read_times(&format!("head\n{nonsense}\n")).is_err(), "{nonsense}");
        }
        assert_eq!(number("microphones=32 block_ns=1990", "block_ns="), Some(1990));
    }
}
