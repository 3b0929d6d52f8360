//! Plain threads: the baselines of Table 2 and Figure 2.

use crate::placement::enter;
use std::io;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use talea_core::{Span, Work};
use talea_os::sched::{self, Attr, Policy};
use talea_os::{Tid, clock};

/// Priority of the measured threads: above the workers of a run, which have at most 91, and below
/// the run's dispatchers.
pub(super) const PRIORITY: u8 = 92;

/// Scheduling class of a thread of Table 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// SCHED_FIFO, pinned to a CPU.
    Fifo,
    /// SCHED_DEADLINE, on any CPU: the kernel does not permit an affinity.
    Deadline,
}

/// Budget of a deadline thread in a period.
const BUDGET: Work = Work::from_ns(1_000_000);
/// Time from the start of the first thread to the first activation.
const LEAD: Span = Span::from_ns(20_000_000);

/// Returns the lateness of threads that all sleep until the same times, in ns.
pub(super) fn sleepers(
    kind: Kind,
    cpus: &[u32],
    threads: usize,
    period: Span,
    times: u64,
) -> io::Result<Vec<u64>> {
    let zero = clock::now() + LEAD;
    let sleeper = |number: usize| {
        let cpu = cpus[number % cpus.len()];
        move || -> io::Result<Vec<u64>> {
            match kind {
                Kind::Fifo => enter(cpu, Policy::Fifo(PRIORITY))?,
                Kind::Deadline => {
                    let policy = Policy::Deadline { runtime: BUDGET, deadline: period, period };
                    sched::set(Tid::current(), &Attr::grant(policy))?;
                }
            }
            let mut late = Vec::with_capacity(times as usize);
            for k in 0..times {
                let due = zero + Span::from_ns(period.as_ns() * k);
                clock::sleep_until(due);
                late.push(clock::now().since(due).as_ns());
            }
            Ok(late)
        }
    };
    let threads: Vec<_> = (0..threads).map(|number| std::thread::spawn(sleeper(number))).collect();
    let mut all = Vec::new();
    for thread in threads {
        all.extend(thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?);
    }
    Ok(all)
}

/// Runs cyclictest. Returns its least, largest and mean latency in µs, or `None` if it is not
/// installed.
pub(super) fn cyclictest(threads: usize, period: Span, times: u64) -> Option<[f64; 3]> {
    let number = |number: u64| number.to_string();
    let ended = Command::new("cyclictest")
        .args(["-q", "-m", "-d", "0", "-p", &PRIORITY.to_string(), "-t", &threads.to_string()])
        .args(["-i", &number(period.as_ns() / 1_000), "-l", &number(times)])
        .stdin(Stdio::null())
        .output()
        .ok()?;
    read_cyclictest(&String::from_utf8_lossy(&ended.stdout))
}

/// Parses all lines of the form `T: 0 ( 123) P:92 I:10000 C: 100 Min: 3 Act: 5 Avg: 6 Max: 19`.
fn read_cyclictest(text: &str) -> Option<[f64; 3]> {
    let after = |line: &str, name: &str| -> Option<f64> {
        line.split_once(name)?.1.split_whitespace().next()?.parse().ok()
    };
    let of =
        |name: &str| -> Vec<f64> { text.lines().filter_map(|line| after(line, name)).collect() };
    let (least, most, mean) = (of("Min:"), of("Max:"), of("Avg:"));
    let count = mean.len();
    (count > 0 && least.len() == count && most.len() == count).then(|| {
        [
            least.into_iter().fold(f64::INFINITY, f64::min),
            most.into_iter().fold(0.0, f64::max),
            mean.iter().sum::<f64>() / count as f64,
        ]
    })
}

/// Process with the paper's load, which ends when the value is dropped.
pub(super) struct Stress(Child);

impl Stress {
    /// Starts stress-ng, which ends by itself after `seconds`. Returns `None` if it is not
    /// installed.
    pub(super) fn start(seconds: u64) -> Option<Stress> {
        let child = Command::new("stress-ng")
            .args(["-C", "8", "-c", "8", "-T", "8", "-y", "8", "-q", "-t"])
            .arg(format!("{seconds}s"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        // Time in which stress-ng starts its processes.
        std::thread::sleep(Duration::from_secs(1));
        Some(Stress(child))
    }
}

impl Drop for Stress {
    fn drop(&mut self) {
        if let Some(pid) = rustix::process::Pid::from_raw(self.0.id() as i32) {
            // On this signal stress-ng ends all of its processes. An error means that it has ended.
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::INT);
        }
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cyclictest_says_is_read_and_nothing_else_is() {
        let said = "# /dev/cpu_dma_latency set to 0us\n\
                    T: 0 (  901) P:92 I:10000 C:    100 Min:      3 Act:    5 Avg:    6 Max:      19\n\
                    T: 1 (  902) P:92 I:10000 C:    100 Min:      2 Act:    5 Avg:    8 Max:      90\n";
        assert_eq!(read_cyclictest(said), Some([2.0, 90.0, 7.0]));
        assert_eq!(read_cyclictest("T: 0 Min: 3 Avg: x Max: 4"), None);
        assert_eq!(read_cyclictest(""), None);
    }
}
