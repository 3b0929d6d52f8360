//! Load of the machine during a job, by which a reader judges a failed kernel test.
//!
//! Steal is CPU time that the hypervisor withheld from runnable threads. Load and pressure say how
//! many threads waited for a CPU. Sources: `/proc/stat`, `/proc/loadavg`, `/proc/pressure/cpu`,
//! `uname`.

use std::fmt::Write;

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
