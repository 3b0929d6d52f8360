//! CPU stalls: intervals in which a CPU executed nothing, as `hwlat` and `osnoise` report them.
//!
//! A monitor is a thread on the CPU with a priority above everything that the run orders, woken at
//! a fixed period. If it is late, the scheduler is not the cause: the hypervisor, firmware, or the
//! kernel with interrupts off took the CPU away. A probe costs about 20 µs on a virtual machine.
//! Stalls up to [`DETECTION_LIMIT`] may stay undetected. A stall is reported from the planned probe
//! to the real one: that much is certain, and its true start is unknown.
//!
//! Runs have monitors of their own; [`Monitor`] is for measurements without one.

use crate::native::worker::set_policy_when_free;
use crate::root_shared::PriorityMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use talea_core::mutate;
use talea_core::{CpuSet, Monotonic, Span, Time, Work};
use talea_os::sched::{self, Attr, Policy};
use talea_os::{Tid, clock};

/// Interval in which nothing ran. The times are run time, or CLOCK_MONOTONIC if a [`Monitor`]
/// detected the stall.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stall<T = Time> {
    /// Number of the CPU in the kernel.
    pub cpu: u32,
    /// Time for which the probe was planned.
    pub from: T,
    /// Time of the probe.
    pub to: T,
}

/// Point in time of a clock.
pub trait TimePoint: Copy {
    /// Returns the length from `earlier` to `self`.
    fn since(self, earlier: Self) -> Span;
}

impl TimePoint for Time {
    fn since(self, earlier: Time) -> Span {
        Time::since(self, earlier)
    }
}

impl TimePoint for Monotonic {
    fn since(self, earlier: Monotonic) -> Span {
        Monotonic::since(self, earlier)
    }
}

impl<T: TimePoint> Stall<T> {
    /// Returns the lower bound of the length.
    pub fn length(&self) -> Span {
        self.to.since(self.from)
    }
}

impl Stall {
    /// Returns the earliest time at which the stall may have begun.
    pub fn earliest_start(&self) -> Time {
        Time::from_ns(self.from.as_ns().saturating_sub(PROBE_PERIOD.as_ns()))
    }

    /// Whether the stall, or its effect for `after` behind its end, may overlap an interval.
    pub fn may_affect(&self, from: Time, to: Time, after: Span) -> bool {
        self.earliest_start() <= to && from <= self.to.saturating_add(after)
    }
}

impl Stall<Monotonic> {
    /// Converts the interval to run time; `zero` is the start of the run.
    fn to_run_time(self, zero: Monotonic) -> Stall {
        Stall { cpu: self.cpu, from: self.from.run_time(zero), to: self.to.run_time(zero) }
    }
}

/// Period of probes: a stall may have started this long before it was detected.
pub const PROBE_PERIOD: Span = Span::from_ns(1_000_000);
/// Lateness that is the ordinary cost of a wake-up.
const WAKEUP_LATENCY: Span = Span::from_ns(300_000);
/// Length up to which a stall may stay undetected. A stall that starts just after a probe delays
/// the next probe by no more than a wake-up does.
pub const DETECTION_LIMIT: Span = Span::from_ns(PROBE_PERIOD.as_ns() + WAKEUP_LATENCY.as_ns());
/// Offset of a run's probes from multiples of the period. A probe takes some ten microseconds from
/// the running thread. Events of a system described in (tenths of) milliseconds occur at other
/// times.
const PROBE_OFFSET: Span = Span::from_ns(620_000);
/// Maximum number of recorded stalls. More stalls add no information.
const MAX_STALLS: usize = 20_000;

/// Configuration of a monitor.
#[derive(Clone, Copy, Debug)]
pub struct ProbeConfig {
    /// Period of probes. The CPU time of the monitor is proportional to their number.
    pub period: Span,
    /// Lateness that is the ordinary cost of a wake-up.
    pub latency: Span,
}

impl ProbeConfig {
    /// Configuration of the monitors of runs.
    pub const FOR_RUNS: ProbeConfig = ProbeConfig { period: PROBE_PERIOD, latency: WAKEUP_LATENCY };

    /// Returns the stall of a probe on `cpu` that was planned for `due` and ran at `awake`. Returns
    /// `None` if the probe was not late.
    fn stall(&self, cpu: u32, due: Monotonic, awake: Monotonic) -> Option<Stall<Monotonic>> {
        (awake > mutate!("exec-stall-ordinary", due + self.latency, due)).then_some(Stall {
            cpu,
            from: due,
            to: awake,
        })
    }

    /// Returns the time of the next probe, a multiple of the period after `due`. Missed probes are
    /// not repeated.
    fn next_probe(&self, due: Monotonic, awake: Monotonic) -> Monotonic {
        let missed = awake.since(due).as_ns() / self.period.as_ns();
        mutate!(
            "exec-stall-aside",
            due + Span::from_ns((missed + 1) * self.period.as_ns()),
            due + Span::from_ns(missed * self.period.as_ns()) + self.period + awake.since(due)
        )
    }
}

/// A monitor that runs until it is stopped.
#[derive(Debug)]
pub struct Monitor {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<io::Result<Vec<Stall<Monotonic>>>>,
}

impl Monitor {
    /// Starts a monitor on `cpu` as a SCHED_FIFO thread. `priority` must be above all threads whose
    /// delays the monitor explains.
    pub fn start(cpu: u32, priority: u8, config: ProbeConfig) -> Monitor {
        let stop = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            sched::set_affinity(Tid::current(), &CpuSet::single(cpu))?;
            sched::set(Tid::current(), &Attr::grant(Policy::Fifo(priority)))?;
            Ok(probe_periodically(cpu, clock::now(), &seen, config))
        });
        Monitor { stop, thread }
    }

    /// Stops the monitor, and returns the stalls on CLOCK_MONOTONIC. Returns an error if the
    /// monitor had no right to its priority.
    pub fn stop(self) -> io::Result<Vec<Stall<Monotonic>>> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

/// Gives the calling thread the CPU and the priority of the monitor of `cpu`.
pub(crate) fn enter_fifo(cpu: u32, priorities: PriorityMap) -> io::Result<()> {
    sched::set_affinity(Tid::current(), &CpuSet::single(cpu))?;
    priorities.set_watchdog(Tid::current())
}

/// Period of the monitor of SCHED_DEADLINE workers.
///
/// No priority is above SCHED_DEADLINE, so this monitor has a reservation of six thousandths of the
/// CPU. The reservation has a shorter deadline than the workers' reservations, and the monitor
/// probes less often.
const RESERVED_PERIOD: Span = Span::from_ns(10_000_000);

/// Time after its last wake-up until a monitor with a reservation has a full budget. A monitor that
/// wakes between deadline and period gets the next budget at the end of that period, and a full one
/// a period later.
pub(crate) const RESERVATION_WARMUP: Span = Span::from_ns(2 * RESERVED_PERIOD.as_ns());

/// Gives the calling thread the CPU and the reservation of the monitor of SCHED_DEADLINE workers on
/// `cpu`.
pub(crate) fn enter_reserved(cpu: u32) -> io::Result<()> {
    sched::set_affinity(Tid::current(), &CpuSet::single(cpu))?;
    let runtime = Work::from_ns(60_000);
    let (deadline, period) =
        (WAKEUP_LATENCY, RESERVED_PERIOD.checked_sub(WAKEUP_LATENCY).unwrap_or(RESERVED_PERIOD));
    set_policy_when_free(Policy::Deadline { runtime, deadline, period })
}

/// Variant of [`probe_fifo`] for a thread that called [`enter_reserved`]. Each stall starts earlier
/// by the difference of the two probe periods, because the probes in between are missing.
pub(crate) fn probe_reserved(cpu: u32, zero: Monotonic, stop: &AtomicBool) -> Vec<Stall> {
    let earlier = Span::from_ns(RESERVED_PERIOD.as_ns() - PROBE_PERIOD.as_ns());
    let extend = |stall: Stall<Monotonic>| {
        Stall { from: stall.from.saturating_sub(earlier), ..stall }.to_run_time(zero)
    };
    let config = ProbeConfig { period: RESERVED_PERIOD, ..ProbeConfig::FOR_RUNS };
    // Its reservation must rest for a whole period.
    let stalls = probe(cpu, zero, stop, config, |_, awake| awake + RESERVED_PERIOD);
    stalls.into_iter().map(extend).collect()
}

/// Probes `cpu` from `zero` on until `stop` is set.
pub(crate) fn probe_fifo(cpu: u32, zero: Monotonic, stop: &AtomicBool) -> Vec<Stall> {
    let stalls = probe_periodically(cpu, zero + PROBE_OFFSET, stop, ProbeConfig::FOR_RUNS);
    stalls.into_iter().map(|stall| stall.to_run_time(zero)).collect()
}

fn probe_periodically(
    cpu: u32,
    begin: Monotonic,
    stop: &AtomicBool,
    config: ProbeConfig,
) -> Vec<Stall<Monotonic>> {
    probe(cpu, begin, stop, config, |due, awake| config.next_probe(due, awake))
}

fn probe(
    cpu: u32,
    begin: Monotonic,
    stop: &AtomicBool,
    config: ProbeConfig,
    next: impl Fn(Monotonic, Monotonic) -> Monotonic,
) -> Vec<Stall<Monotonic>> {
    let mut stalls = Vec::with_capacity(MAX_STALLS);
    let mut due = begin;
    while !stop.load(Ordering::Relaxed) && stalls.len() < MAX_STALLS {
        clock::sleep_until(due);
        let awake = clock::now();
        stalls.extend(config.stall(cpu, due, awake));
        due = next(due, awake);
    }
    stalls
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_certain_lateness_is_a_stall() {
        let at = |us: u64| Monotonic::from_ns(us * 1_000);
        let config =
            ProbeConfig { period: Span::from_ns(250_000), latency: Span::from_ns(100_000) };
        let stall = |awake| config.stall(1, at(1_000), awake);
        assert_eq!(stall(at(1_000)), None);
        assert_eq!(stall(at(1_060)), None, "an ordinary wake-up");
        assert_eq!(stall(at(1_100)), None);
        assert_eq!(stall(at(1_350)), Some(Stall { cpu: 1, from: at(1_000), to: at(1_350) }));
    }

    #[test]
    fn probes_keep_their_period_and_missed_ones_are_not_repeated() {
        let at = |us: u64| Monotonic::from_ns(us * 1_000);
        let next = |due, awake| ProbeConfig::FOR_RUNS.next_probe(at(due), at(awake));
        assert_eq!([next(620, 620), next(620, 641), next(620, 1_619)], [at(1_620); 3]);
        assert_eq!([next(620, 1_620), next(620, 4_000)], [at(2_620), at(4_620)]);
    }

    #[test]
    fn a_stall_of_the_detection_limit_is_detected_wherever_it_starts() {
        let is_seen = |begin: u64, length: u64| {
            let due = begin.next_multiple_of(PROBE_PERIOD.as_ns());
            let awake = due.max(begin + length);
            ProbeConfig::FOR_RUNS
                .stall(0, Monotonic::from_ns(due), Monotonic::from_ns(awake))
                .is_some()
        };
        let begins = || (1..=PROBE_PERIOD.as_ns()).step_by(777);
        assert!(begins().all(|begin| is_seen(begin, DETECTION_LIMIT.as_ns())));
        // Starting just after a probe, it delays the next one by no more than a wake-up does.
        assert!(!is_seen(1, DETECTION_LIMIT.as_ns() - 1));
        assert!(!begins().any(|begin| is_seen(begin, WAKEUP_LATENCY.as_ns())));
    }
}
