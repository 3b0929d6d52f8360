//! Limit on the CPU time and the memory of a command that reads a system file or a recording.
//!
//! The tests of `talea analyze` are pseudo-polynomial, and searches, simulations and pages grow
//! with the ratios of a file's numbers: a file of a kilobyte can demand hours. So a thread watches
//! the process, and ends it with the verdict *unknown* and with what was spent.

use crate::answer;
use crate::exit::Exit;
use crate::options::duration;
use crate::output;
use serde::Serialize;
use std::io::Write;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;
use talea_core::{Span, Work, mutate};
use talea_os::{clock, proc};

/// Default limit on the CPU time.
const DEFAULT_TIME: Span = Span::from_ns(10_000_000_000);
/// Default limit on the resident memory, in bytes.
const DEFAULT_MEMORY: u64 = 1 << 30;
/// Time between two checks.
const CHECK_PERIOD: Duration = Duration::from_millis(20);

/// Option `--limit`.
#[derive(clap::Args, Debug)]
pub struct LimitArgs {
    /// Stop with the verdict unknown at this CPU time (30s, 10min) or memory (512MiB, 4GiB). May be
    /// given for both. The defaults are 10s and 1GiB.
    #[arg(long = "limit", value_name = "TIME|MEMORY", value_parser = bound)]
    bounds: Vec<Bound>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bound {
    Time(Span),
    Memory(u64),
}

fn bound(text: &str) -> Result<Bound, String> {
    let units = [("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30)];
    let Some((number, unit)) =
        units.iter().find_map(|&(name, unit)| Some((text.strip_suffix(name)?, unit)))
    else {
        return duration(text).map(Bound::Time).map_err(|why| {
            format!("{why}; a limit is a time (30s) or an amount of memory (512MiB, 4GiB)")
        });
    };
    match number.trim().parse::<u64>().ok().and_then(|number| number.checked_mul(unit)) {
        Some(bytes @ 1..) => Ok(Bound::Memory(bytes)),
        _ => Err("the amount of memory must be a whole number above 0, such as 512MiB".to_owned()),
    }
}

/// CPU time and memory that a process has consumed.
#[derive(Serialize, Clone, Copy, Debug, PartialEq, Eq)]
struct Spent {
    cpu_time_ns: u64,
    memory_bytes: u64,
}

impl Spent {
    fn now() -> Spent {
        Spent {
            cpu_time_ns: clock::process_cpu_time().as_ns(),
            // Without /proc only the time is limited.
            memory_bytes: proc::resident_memory().unwrap_or(0),
        }
    }
}

/// JSON output of a command that its limit has ended.
#[derive(Serialize)]
struct LimitReport {
    verdict: &'static str,
    why: String,
    spent: Spent,
}

/// Number of events a second that no computer simulates.
const EVENTS_MAX: u64 = 100_000_000;
/// Number of events a second that each computer simulates.
const EVENTS_MIN: u64 = 1_000_000;

/// Comparison of a simulation with the limit, before it begins.
#[derive(Debug, PartialEq, Eq)]
enum Forecast {
    Within,
    /// The simulation may reach the limit.
    Doubtful(String),
    /// The simulation reaches the limit.
    Beyond(String),
}

/// Compares an estimated number of events with a limit on the CPU time.
fn forecast(events: u64, length: Span, limit: Span) -> Forecast {
    let within = |rate: u64| {
        u128::from(events) * 1_000_000_000 <= u128::from(rate) * u128::from(limit.as_ns())
    };
    let text = format!("{length} of this system are about {} events", rounded(events));
    let remedy = "--duration shortens the run, --limit gives more time";
    if !mutate!("cli-forecast", within(EVENTS_MAX), true) {
        Forecast::Beyond(format!("{text}, too many for the limit of {limit} of CPU time; {remedy}"))
    } else if !within(EVENTS_MIN) {
        Forecast::Doubtful(format!("{text}, and the limit is {limit} of CPU time; {remedy}"))
    } else {
        Forecast::Within
    }
}

/// Writes a number with two digits and a power of ten.
fn rounded(number: u64) -> String {
    let power = number.max(1).ilog10();
    if power < 6 {
        return number.to_string();
    }
    let digits = number / 10_u64.pow(power - 1);
    format!("{}.{} * 10^{power}", digits / 10, digits % 10)
}

impl LimitArgs {
    /// Announces a simulation that may reach the limit on the CPU time. Refuses one that reaches
    /// the limit on any computer, with the verdict *unknown*.
    pub fn announce(&self, events: u64, length: Span, json: bool) -> anyhow::Result<Option<Exit>> {
        match forecast(events, length, self.time()) {
            Forecast::Within => Ok(None),
            Forecast::Doubtful(text) => {
                output::note(&text);
                Ok(None)
            }
            Forecast::Beyond(why) => {
                if json {
                    let spent = Spent::now();
                    output::print_json(&LimitReport { verdict: "unknown", why, spent })?;
                } else {
                    output::note(&format!("unknown: {why}"));
                }
                Ok(Some(Exit::Failure))
            }
        }
    }

    /// Limit on the CPU time.
    fn time(&self) -> Span {
        let given = self.bounds.iter().rev().find_map(|bound| match bound {
            Bound::Time(span) => Some(*span),
            Bound::Memory(_) => None,
        });
        given.unwrap_or(DEFAULT_TIME)
    }

    /// Watches this process until the result is dropped. Beyond the limit, the process ends with
    /// exit code 1.
    pub fn watch(&self, json: bool) -> anyhow::Result<Watch> {
        let (mut time, mut memory) = (DEFAULT_TIME, DEFAULT_MEMORY);
        for bound in &self.bounds {
            match *bound {
                Bound::Time(span) => time = span,
                Bound::Memory(bytes) => memory = bytes,
            }
        }
        let (ended, is_over) = channel::<()>();
        let thread =
            std::thread::Builder::new().name("talea-budget".to_owned()).spawn(move || {
                while is_over.recv_timeout(CHECK_PERIOD) == Err(RecvTimeoutError::Timeout) {
                    let spent = Spent::now();
                    if let Some(why) = exceeded(spent, time, memory) {
                        return give_up(why, spent, json);
                    }
                }
            })?;
        Ok(Watch { ended: Some(ended), thread: Some(thread) })
    }
}

/// Returns the reason to end, if a limit is exceeded.
fn exceeded(spent: Spent, time: Span, memory: u64) -> Option<String> {
    if mutate!("cli-limit", spent.cpu_time_ns > time.as_ns(), false) {
        let time = Work::from_ns(time.as_ns());
        Some(format!("the limit of {time} of CPU time is spent; --limit gives more"))
    } else if spent.memory_bytes > memory {
        let mebibytes = memory >> 20;
        Some(format!("the limit of {mebibytes} MiB of memory is reached; --limit gives more"))
    } else {
        None
    }
}

/// Ends the process with the verdict *unknown*, unless the command has begun its answer.
fn give_up(why: String, spent: Spent, json: bool) {
    if !answer::limit_begins() {
        return;
    }
    if json {
        // The exit code says that there is no verdict, also if nothing can be printed.
        if let Ok(text) = output::to_json(&LimitReport { verdict: "unknown", why, spent }) {
            let _ = std::io::stdout().lock().write_all(text.as_bytes());
        }
    } else {
        let time = Work::from_ns(spent.cpu_time_ns / 1_000_000 * 1_000_000);
        let mebibytes = spent.memory_bytes >> 20;
        output::note(&format!("unknown: {why} (spent: {time} and {mebibytes} MiB)"));
    }
    std::process::exit(i32::from(Exit::Failure.code()))
}

/// Watch over this process; dropping it ends the watch.
pub struct Watch {
    ended: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Watch {
    fn drop(&mut self) {
        drop(self.ended.take());
        if let Some(thread) = self.thread.take() {
            // The thread does not panic; without it there is no limit to end.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_is_a_time_or_an_amount_of_memory() {
        assert_eq!(bound("30s"), Ok(Bound::Time(Span::from_ns(30_000_000_000))));
        assert_eq!(bound("2GiB"), Ok(Bound::Memory(2 << 30)));
        assert_eq!(bound("1 KiB"), Ok(Bound::Memory(1 << 10)));
        for wrong in ["", "0s", "0MiB", "-1GiB", "4GB", "99999999999999GiB", "1.5GiB"] {
            assert!(bound(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn s22_a_simulation_beyond_the_limit_is_refused_before_it_begins() {
        let (year, limit) = (Span::from_ns(31_536_000_000_000_000), DEFAULT_TIME);
        let Forecast::Beyond(why) = forecast(31_536_000_000_000, year, limit) else {
            panic!("3 * 10^13 events in 10 s of CPU time");
        };
        assert!(why.contains("about 3.1 * 10^13 events") && why.contains("limit of 10s"), "{why}");
        assert!(matches!(forecast(900_000_000, year, limit), Forecast::Doubtful(_)));
        assert_eq!(forecast(9_000_000, year, limit), Forecast::Within);
        let ages = Span::from_ns(u64::MAX);
        assert!(matches!(forecast(u64::MAX, year, ages), Forecast::Beyond(_)));
        assert_eq!(rounded(999_999), "999999");
    }

    #[test]
    fn attack_21_each_limit_ends_the_command_with_its_reason() {
        let spent = Spent { cpu_time_ns: 2_000_000_000, memory_bytes: 300 << 20 };
        let second = Span::from_ns(1_000_000_000);
        let why = exceeded(spent, second, 1 << 30).expect("too long");
        assert!(why.contains("1s of CPU time"), "{why}");
        let why = exceeded(spent, DEFAULT_TIME, 256 << 20).expect("too much");
        assert!(why.contains("256 MiB"), "{why}");
        assert_eq!(exceeded(spent, DEFAULT_TIME, DEFAULT_MEMORY), None);
    }
}
