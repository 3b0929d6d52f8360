//! Load of the machine during a job, by which a reader judges a failed kernel test, and the limit
//! of real-time threads, which the kernel tests need.
//!
//! Steal is CPU time that the hypervisor withheld from runnable threads. Load and pressure say how
//! many threads waited for a CPU. Sources: `/proc/stat`, `/proc/loadavg`, `/proc/pressure/cpu`,
//! `uname`.

use std::fmt::Write;
use std::process::{Child, Command, Stdio};

/// CPU time of all CPUs since the machine started, in clock ticks: total, idle time and steal.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Reading {
    all: u64,
    idle: u64,
    steal: u64,
}

impl Reading {
    /// Reads the current values.
    pub(super) fn now() -> Reading {
        Reading::of(&std::fs::read_to_string("/proc/stat").unwrap_or_default())
    }

    /// Parses the line `cpu  user nice system idle iowait irq softirq steal guest guest_nice`.
    /// `user` and `nice` include the time of guests.
    fn of(stat: &str) -> Reading {
        let line = stat.lines().find_map(|line| line.strip_prefix("cpu ")).unwrap_or_default();
        let ticks: Vec<u64> =
            line.split_whitespace().take(8).filter_map(|word| word.parse().ok()).collect();
        let at = |index: usize| ticks.get(index).copied().unwrap_or(0);
        Reading { all: ticks.iter().sum(), idle: at(3) + at(4), steal: at(7) }
    }

    /// Describes steal, idle time, load and pressure since the reading.
    pub(super) fn until_now(self) -> String {
        let mut text = self.until(Reading::now());
        let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
        let load: Vec<_> = load.split(' ').take(3).collect();
        let _ = write!(text, ", load {}", load.join(" "));
        let pressure = std::fs::read_to_string("/proc/pressure/cpu").unwrap_or_default();
        if let Some(some) = pressure.lines().next().and_then(|line| line.strip_prefix("some ")) {
            let averages: Vec<_> = some.split(' ').take(3).collect();
            let _ = write!(text, ", waited for a CPU {} (%)", averages.join(" "));
        }
        text
    }

    fn until(self, end: Reading) -> String {
        let permille = |now: u64, then: u64| {
            now.saturating_sub(then) * 1000 / end.all.saturating_sub(self.all).max(1)
        };
        let (steal, idle) = (permille(end.steal, self.steal), permille(end.idle, self.idle));
        format!("steal {}.{} %, idle {} %", steal / 10, steal % 10, idle / 10)
    }
}

/// Kernel with its default limit of real-time threads, 950 ms in each second.
///
/// Some machines start with -1. Then the kernel admits every `SCHED_DEADLINE` thread and throttles
/// no control group, so tests of refusals and budgets fail. Dropping this, or the end of this
/// process, restores the former value.
pub(super) struct RtLimit(Child);

impl RtLimit {
    const FILE: &str = "/proc/sys/kernel/sched_rt_runtime_us";
    const DEFAULT: &str = "950000";

    /// Sets the default limit if the kernel has none and `may_change` is true. Prints the change,
    /// or the command that an administrator has to run.
    pub(super) fn ensure(may_change: bool) -> Option<RtLimit> {
        let before = std::fs::read_to_string(RtLimit::FILE).ok()?;
        if before.trim() != "-1" {
            return None;
        }
        println!("kernel.sched_rt_runtime_us is -1: without a limit, kernel tests fail");
        let command = format!("sysctl kernel.sched_rt_runtime_us={}", RtLimit::DEFAULT);
        if !may_change {
            println!("set the limit with: {command}");
            return None;
        }
        // The shell continues when its input ends, also after a kill of this process. A terminal
        // sends its signals to the shell, too.
        let restore = format!("trap '' INT TERM HUP; read end; echo -1 > {}", RtLimit::FILE);
        let guard = Command::new("sh").args(["-c", &restore]).stdin(Stdio::piped()).spawn().ok()?;
        match std::fs::write(RtLimit::FILE, RtLimit::DEFAULT) {
            Ok(()) => println!("{command} (until the end of this command)"),
            Err(error) => println!("{command}: {error}"),
        }
        Some(RtLimit(guard))
    }
}

impl Drop for RtLimit {
    fn drop(&mut self) {
        self.0.stdin = None;
        let _ = self.0.wait();
    }
}

/// Returns the name of the kernel and the number of CPUs.
pub(super) fn name() -> String {
    let uname = rustix::system::uname();
    let cpus = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    let word = |text: &std::ffi::CStr| text.to_string_lossy().into_owned();
    format!(
        "{} {} {} {}, {cpus} CPUs",
        word(uname.sysname()),
        word(uname.release()),
        word(uname.version()),
        word(uname.machine())
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steal_is_a_share_of_all_cpu_time() {
        let before = Reading::of("cpu  100 0 100 100 0 0 0 0 0 0\ncpu0 1 2 3\n");
        let after = Reading::of("cpu  150 0 100 120 5 0 0 25 50 0\n");
        assert_eq!(before.until(after), "steal 25.0 %, idle 25 %");
        assert_eq!(before.until(before), "steal 0.0 %, idle 0 %");
    }

    #[test]
    fn this_machine_can_be_read() {
        assert!(Reading::now().all > 0);
        assert!(Reading::now().until_now().contains("load "));
        assert!(name().starts_with("Linux "), "{}", name());
    }
}
