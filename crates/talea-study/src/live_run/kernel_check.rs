//! Check of the orders of a run against the kernel's `sched_switch` events.

use serde::Serialize;
use talea_core::engine::TaskId;
use talea_core::{Span, Time};
use talea_exec::kernel_check::{unordered_execution, violations};
use talea_exec::stalls::{DETECTION_LIMIT, PROBE_PERIOD};
use talea_exec::{ExecInterval, LostTime, OrderViolation, RootReport, Stall};

/// Result of the check for one root.
#[derive(Clone, Debug, Serialize)]
pub struct KernelCheck {
    /// Number of intervals in which a worker had a CPU without interruption.
    pub stays: usize,
    /// Total time in which workers ran without an order: until an order took effect, and from the
    /// end of a job until its worker slept.
    pub out_of_order_ns: u64,
    /// Longest interval outside of stalls in which a worker ran without an order.
    pub longest_ns: u64,
    /// Longest time outside of stalls in which a CPU violated an order: the CPU was idle or ran
    /// another thread of Talea.
    pub unobeyed_ns: u64,
    /// Intervals outside of stalls in which a worker ran without an order for longer than the
    /// tolerance.
    #[serde(skip)]
    pub unordered: Vec<ExecInterval>,
    /// Orders that were violated for longer than the tolerance. These are defects of Talea, which
    /// nothing excuses.
    #[serde(skip)]
    pub faults: Vec<OrderViolation>,
}

impl KernelCheck {
    /// Whether the kernel's events do not contradict the orders.
    pub fn is_obeyed(&self) -> bool {
        self.unordered.is_empty() && self.faults.is_empty()
    }
}

/// Share of an order that dispatchers may use, in thousandths.
const DISPATCHER_PERMILLE: u64 = 20;

/// Checks a root on `cpus`. Returns `None` if the kernel reported no events. The check always
/// tolerates the detection limit of stalls, because a shorter stall may be the cause.
pub fn check(
    real: &RootReport,
    cpus: &[u32],
    (stalls, length): (&[Stall], Span),
    tolerance: Span,
) -> Option<KernelCheck> {
    let ran = real.executed.as_ref()?;
    let tolerance = tolerance.max(DETECTION_LIMIT);
    let stalls = widened(cpus, stalls);
    let is_excused =
        |out: &ExecInterval| stalls.iter().any(|&(from, to)| out.from <= to && from <= out.to);
    let all = match &real.native {
        Some(course) => course.unordered_execution(ran, Time::ZERO + length),
        None => unordered_execution(cpus.len() as u32, &real.record, ran),
    };
    let counted: Vec<ExecInterval> = all.iter().copied().filter(|out| !is_excused(out)).collect();
    let violated = order_violations(real, &stalls, length);
    let is_long = |one: &OrderViolation| {
        let share = Span::from_ns(one.to.since(one.from).as_ns() / 1_000 * DISPATCHER_PERMILLE);
        one.length() > tolerance + share
    };
    Some(KernelCheck {
        stays: ran.len(),
        out_of_order_ns: all.iter().map(|out| out.length().as_ns()).sum(),
        longest_ns: counted.iter().map(|out| out.length().as_ns()).max().unwrap_or(0),
        unobeyed_ns: violated.iter().map(|one| one.length().as_ns()).max().unwrap_or(0),
        unordered: counted.into_iter().filter(|out| out.length() > tolerance).collect(),
        faults: violated.into_iter().filter(is_long).collect(),
    })
}

/// Returns the stalls on these CPUs, widened by the probe period. The dispatcher of another CPU may
/// execute an order, so any stall of the root is an excuse.
fn widened(cpus: &[u32], stalls: &[Stall]) -> Vec<(Time, Time)> {
    let of = |stall: &Stall| (stall.earliest_start(), stall.to.saturating_add(PROBE_PERIOD));
    stalls.iter().filter(|stall| cpus.contains(&stall.cpu)).map(of).collect()
}

/// Returns the parts of an interval outside of these stalls.
fn subtract(from: Time, to: Time, stalls: &[(Time, Time)]) -> Vec<(Time, Time)> {
    let mut left = vec![(from, to)];
    for &(begin, end) in stalls {
        let pieces =
            left.into_iter().flat_map(|(from, to)| [(from, to.min(begin)), (from.max(end), to)]);
        left = pieces.filter(|(from, to)| from < to).collect();
    }
    left
}

/// Returns the violated orders outside of these stalls.
fn order_violations(
    real: &RootReport,
    stalls: &[(Time, Time)],
    length: Span,
) -> Vec<OrderViolation> {
    let (Some(ran), Some(stood)) = (&real.executed, &real.idle) else { return Vec::new() };
    let excused = |from, to| subtract(from, to, stalls);
    if let Some(course) = &real.native {
        return course.violations((ran, stood), Time::ZERO + length, &excused);
    }
    // The trace has no threads of programs.
    let is_exempt = |task: TaskId| real.programs.get(task.0 as usize).is_some_and(Option::is_some);
    let cpus = real.dispatchers.len() as u32;
    violations(cpus, &real.record, (ran, stood), &excused, &real.holds, &is_exempt)
}

/// Returns the lost time that excuses contradictions. It does not include the time in which a CPU
/// was idle or ran another thread of Talea.
pub fn machine_lost_time(
    real: &RootReport,
    cpus: &[u32],
    (stalls, length): (&[Stall], Span),
) -> Vec<LostTime> {
    let faults = order_violations(real, &widened(cpus, stalls), length);
    subtract_violations(&real.lost_times, &faults)
}

fn subtract_violations(stretches: &[LostTime], faults: &[OrderViolation]) -> Vec<LostTime> {
    let of = |stretch: &LostTime| {
        let on_its_cpu = faults.iter().filter(|fault| fault.cpu == stretch.cpu);
        let ours = on_its_cpu.flat_map(|fault| &fault.intervals).map(|&(from, to)| {
            let (from, to) = (from.max(stretch.from), to.min(stretch.to));
            if from < to { to.since(from).as_ns() } else { 0 }
        });
        LostTime {
            amount: Span::from_ns(stretch.amount.as_ns().saturating_sub(ours.sum())),
            ..*stretch
        }
    };
    stretches.iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(us: u64) -> Time {
        Time::from_ns(us * 1_000)
    }

    #[test]
    fn stalls_are_subtracted_from_violated_orders() {
        let left = |stalls: &[(u64, u64)]| {
            let stalls: Vec<_> = stalls.iter().map(|&(from, to)| (at(from), at(to))).collect();
            let left = subtract(at(10), at(20), &stalls).into_iter();
            left.map(|(from, to)| (from.as_ns() / 1_000, to.as_ns() / 1_000)).collect::<Vec<_>>()
        };
        assert_eq!(left(&[]), [(10, 20)]);
        assert_eq!(left(&[(0, 12), (15, 16), (19, 30)]), [(12, 15), (16, 19)]);
        assert_eq!(left(&[(30, 40)]), [(10, 20)]);
        assert_eq!(left(&[(0, 40)]), []);
    }

    #[test]
    fn lost_time_excuses_only_without_the_violated_orders() {
        let stretch = |cpu, by: u64| LostTime {
            cpu,
            from: at(100),
            to: at(500),
            amount: Span::from_ns(by * 1_000),
        };
        let fault = |pieces: &[(u64, u64)]| OrderViolation {
            cpu: 0,
            task: Some(TaskId(0)),
            from: at(0),
            to: at(900),
            intervals: pieces.iter().map(|&(from, to)| (at(from), at(to))).collect(),
        };
        let left = |stretch: LostTime, faults: &[OrderViolation]| {
            subtract_violations(&[stretch], faults)[0].amount.as_ns() / 1_000
        };
        assert_eq!(left(stretch(0, 300), &[]), 300);
        // Fifty microseconds of it before the interval, and a hundred inside.
        assert_eq!(left(stretch(0, 300), &[fault(&[(50, 150), (300, 350)])]), 200);
        assert_eq!(left(stretch(0, 300), &[fault(&[(0, 900)])]), 0);
        assert_eq!(left(stretch(1, 300), &[fault(&[(0, 900)])]), 300, "on another CPU");
    }
}
