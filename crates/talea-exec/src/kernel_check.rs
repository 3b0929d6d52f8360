//! Comparison of the kernel's switch trace with the orders of the engine.
//!
//! The kernel records every context switch ([`talea_os::switch_trace`]). *Unordered execution*: a
//! worker has a CPU without an order of the engine. Some microseconds of that belong to each order
//! (until it takes effect), to each end of a job (until its worker sleeps), and to each expiry of a
//! release timer (until its worker has checked it). Longer intervals are errors.

use crate::device_holds::{DeviceHold, outside};
use crate::record::RecordEntry;
use crate::schedule_log::ScheduleLog;
use talea_core::engine::TaskId;
use talea_core::mutate;
use talea_core::{Monotonic, Span, Time};
use talea_os::Tid;
use talea_os::switch_trace::RunInterval;

/// Uninterrupted execution of a worker on a CPU, from the switch trace, in run time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExecInterval {
    /// CPU of the root.
    pub cpu: u32,
    /// Task of the worker.
    pub task: TaskId,
    /// Start.
    pub from: Time,
    /// End.
    pub to: Time,
}

impl ExecInterval {
    /// Returns the length of the interval.
    pub fn length(&self) -> Span {
        self.to.since(self.from)
    }
}

/// Returns the execution of threads `tids` on CPUs `numbers` from `zero` on. `tids[n]` is the
/// worker of task `n`, and `numbers[c]` the kernel's number of CPU `c` of the root.
pub(crate) fn worker_intervals(
    intervals: &[RunInterval],
    tids: &[Tid],
    numbers: &[u32],
    zero: Monotonic,
) -> Vec<ExecInterval> {
    let executed = |interval: &RunInterval| {
        let task = tids.iter().position(|&tid| interval.thread == Some(tid))?;
        // Execution on other CPUs can only be before the run; it gets a CPU that does not exist.
        let cpu =
            numbers.iter().position(|&number| number == interval.cpu).unwrap_or(numbers.len());
        let (cpu, task) = (cpu as u32, TaskId(task as u32));
        (interval.to > zero).then(|| ExecInterval {
            cpu,
            task,
            from: interval.from.run_time(zero),
            to: interval.to.run_time(zero),
        })
    };
    intervals.iter().filter_map(executed).collect()
}

/// Interval in which a CPU of a root was idle or ran a dispatcher of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdleInterval {
    /// CPU of the root.
    pub cpu: u32,
    /// Start.
    pub from: Time,
    /// End.
    pub to: Time,
}

/// Returns the intervals from `zero` on in which CPUs `numbers` were idle or ran one of `run_tids`.
pub(crate) fn idle_intervals(
    intervals: &[RunInterval],
    run_tids: &[Tid],
    numbers: &[u32],
    zero: Monotonic,
) -> Vec<IdleInterval> {
    let idle = |interval: &RunInterval| {
        let cpu = numbers.iter().position(|&number| number == interval.cpu)? as u32;
        let is_ours = mutate!(
            "exec-truth-idle",
            interval.thread.is_none_or(|tid| run_tids.contains(&tid)),
            interval.thread.is_some_and(|tid| run_tids.contains(&tid))
        );
        (is_ours && interval.to > zero).then(|| IdleInterval {
            cpu,
            from: interval.from.run_time(zero),
            to: interval.to.run_time(zero),
        })
    };
    intervals.iter().filter_map(idle).collect()
}

/// Order that the CPU did not follow at once: the CPU was idle, or ran another thread of the run.
///
/// The cause is in the executor: a missed wake-up, a wrong priority or affinity, a closed stop
/// gate, or a late release timer. A worker with a release timer gets no wake system call, so a late
/// timer delays the job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderViolation {
    /// CPU of the root.
    pub cpu: u32,
    /// Dispatched task; `None` where the kernel chooses among all tasks.
    pub task: Option<TaskId>,
    /// Start of the order.
    pub from: Time,
    /// End of the order.
    pub to: Time,
    /// Intervals in which the CPU did not follow the order.
    pub intervals: Vec<(Time, Time)>,
}

impl OrderViolation {
    /// Returns the total length of the intervals in which the CPU did not follow the order.
    pub fn length(&self) -> Span {
        Span::from_ns(self.intervals.iter().map(|(from, to)| to.since(*from).as_ns()).sum())
    }
}

/// Returns the order violations from the first step of a record to its last: the orders during
/// which the CPU was idle or ran another thread of the run.
///
/// `subtract_excused` subtracts the parts of an interval that have another cause. `holds` are the
/// sorted waits in which a worker keeps its CPU idle. `is_exempt` is true for tasks that the switch
/// trace does not show: programs.
pub fn violations(
    cpus: u32,
    record: &[RecordEntry],
    (executed, idle): (&[ExecInterval], &[IdleInterval]),
    subtract_excused: &dyn Fn(Time, Time) -> Vec<(Time, Time)>,
    holds: &[DeviceHold],
    is_exempt: &dyn Fn(TaskId) -> bool,
) -> Vec<OrderViolation> {
    let Some(last) = record.last() else { return Vec::new() };
    let mut all = Vec::new();
    for (cpu, orders) in (0..).zip(ScheduleLog::from_record(cpus, record).intervals()) {
        let orders = orders.into_iter().filter(|&(task, ..)| !is_exempt(task));
        let orders = orders.flat_map(|(task, from, to)| {
            let to = to.min(last.now);
            let parts =
                mutate!("exec-check-holds", outside(holds, task, from, to), vec![(from, to)]);
            parts.into_iter().map(move |(from, to)| (Some(task), from, to))
        });
        all.extend(violations_in(cpu, orders, (executed, idle), subtract_excused));
    }
    all
}

/// Returns the violations on one CPU within the given intervals, in which the CPU belongs to one
/// task or to any task.
pub(crate) fn violations_in(
    cpu: u32,
    times: impl Iterator<Item = (Option<TaskId>, Time, Time)>,
    (executed, idle): (&[ExecInterval], &[IdleInterval]),
    subtract_excused: &dyn Fn(Time, Time) -> Vec<(Time, Time)>,
) -> Vec<OrderViolation> {
    // Sorted: a CPU has one thread at a time.
    let mut on_cpu: Vec<(Time, Time, Option<TaskId>)> = Vec::new();
    on_cpu.extend(
        executed
            .iter()
            .filter(|interval| interval.cpu == cpu)
            .map(|interval| (interval.from, interval.to, Some(interval.task))),
    );
    on_cpu.extend(
        idle.iter()
            .filter(|interval| interval.cpu == cpu)
            .map(|interval| (interval.from, interval.to, None)),
    );
    on_cpu.sort_unstable();
    let of = |(task, from, to): (Option<TaskId>, Time, Time)| {
        let first = on_cpu.partition_point(|&(_, end, _)| end <= from);
        let mut intervals = Vec::new();
        for &(begin, end, runs) in on_cpu[first..].iter().take_while(|&&(begin, ..)| begin < to) {
            let is_meant = if task.is_none() { runs.is_some() } else { runs == task };
            if !is_meant {
                intervals.extend(subtract_excused(begin.max(from), end.min(to)));
            }
        }
        (!intervals.is_empty()).then_some(OrderViolation { cpu, task, from, to, intervals })
    };
    times.filter_map(of).collect()
}

/// Returns every execution of a root's workers without an order, from the first step of the record
/// to its last.
pub fn unordered_execution(
    cpus: u32,
    record: &[RecordEntry],
    executed: &[ExecInterval],
) -> Vec<ExecInterval> {
    let (Some(first), Some(last)) = (record.first(), record.last()) else { return Vec::new() };
    let orders = ScheduleLog::from_record(cpus, record).intervals();
    let mut all = Vec::new();
    for interval in executed {
        let mut from = interval.from.max(first.now);
        let to = interval.to.min(last.now);
        // A CPU of another root has no order for it.
        let here = orders.get(interval.cpu as usize).map_or(&[][..], Vec::as_slice);
        let mut at = here.partition_point(|&(_, begin, _)| begin <= from).saturating_sub(1);
        let mut put = |from: Time, to: Time| {
            if from < to {
                all.push(ExecInterval { from, to, ..*interval });
            }
        };
        while let Some(&(task, begin, end)) = here.get(at).filter(|&&(_, begin, _)| begin < to) {
            at += 1;
            if task != interval.task || end <= from {
                continue;
            }
            put(from, begin.max(from));
            from = from.max(end);
        }
        mutate!("exec-truth", put(from, to));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::RecordKind;
    use talea_core::engine::{Cpu, Order};

    fn at(us: u64) -> Time {
        Time::from_ns(us * 1_000)
    }

    fn record() -> Vec<RecordEntry> {
        let run = |cpu, task| {
            RecordKind::Order(Order::Run { cpu: Cpu(cpu), task: TaskId(task), job: 0, version: 0 })
        };
        let idle = RecordKind::Order(Order::Idle { cpu: Cpu(0) });
        let found = [
            (0, run(0, 0)),
            (10, run(0, 1)),
            (20, run(0, 0)),
            (30, idle),
            (40, run(1, 0)),
            (60, RecordKind::Step),
        ];
        let entry = |(number, (us, what))| {
            [
                RecordEntry { number, now: at(us), kind: RecordKind::Step },
                RecordEntry { number, now: at(us), kind: what },
            ]
        };
        (0..).zip(found).flat_map(entry).collect()
    }

    #[test]
    fn execution_without_an_order_is_unordered() {
        let check = |cpu, task, from, to, expected: &[(u64, u64)]| {
            let executed = ExecInterval { cpu, task: TaskId(task), from: at(from), to: at(to) };
            let seen = unordered_execution(2, &record(), &[executed]);
            let seen: Vec<_> = seen.iter().map(|out| (out.from, out.to)).collect();
            let expected: Vec<_> = expected.iter().map(|&(from, to)| (at(from), at(to))).collect();
            assert_eq!(seen, expected, "{executed:?}");
        };
        check(0, 0, 1, 9, &[]);
        check(0, 0, 1, 12, &[(10, 12)]);
        check(0, 0, 1, 25, &[(10, 20)]);
        check(0, 1, 5, 25, &[(5, 10), (20, 25)]);
        check(0, 0, 28, 33, &[(30, 33)]);
        // On another CPU than ordered, and on the ordered one.
        check(1, 0, 22, 45, &[(22, 40)]);
        check(1, 0, 41, 59, &[]);
        // Behind the record nothing is known.
        check(1, 1, 55, 99, &[(55, 60)]);
        check(7, 0, 0, 50, &[(0, 50)]);
    }

    #[test]
    fn idle_time_and_threads_of_the_run_violate_an_order_and_foreign_threads_do_not() {
        let executed = |cpu, task, from, to| ExecInterval {
            cpu,
            task: TaskId(task),
            from: at(from),
            to: at(to),
        };
        let idle = |cpu, from, to| IdleInterval { cpu, from: at(from), to: at(to) };
        let hold = DeviceHold { task: TaskId(0), from: at(20), to: at(25) };
        let all = |subtract_excused: &dyn Fn(Time, Time) -> Vec<(Time, Time)>, is_exempt: u32| {
            let holds = if is_exempt == 8 { &[hold][..] } else { &[] };
            // Task 0 is dispatched at 0, task 1 at 10, task 0 at 20 until 30, and at 40 on the
            // other CPU.
            let executed = [
                executed(0, 0, 3, 12),
                executed(0, 1, 12, 18),
                executed(0, 0, 22, 30),
                executed(1, 0, 41, 60),
            ];
            let idle = [idle(0, 0, 3), idle(0, 20, 21), idle(0, 30, 60), idle(1, 0, 41)];
            let found =
                violations(2, &record(), (&executed, &idle), subtract_excused, holds, &|task| {
                    task == TaskId(is_exempt)
                });
            let found = found
                .into_iter()
                .map(|one| (one.cpu, one.task, one.from, one.length().as_ns() / 1_000));
            found.collect::<Vec<_>>()
        };
        let none = |from, to| vec![(from, to)];
        let (a, b) = (Some(TaskId(0)), Some(TaskId(1)));
        // From 18 to 20 and from 21 to 22 a foreign thread has the CPU; behind 30 there is no
        // order.
        let expected = [(0, a, at(0), 3), (0, b, at(10), 2), (0, a, at(20), 1), (1, a, at(40), 1)];
        assert_eq!(all(&none, 9), expected);
        assert_eq!(all(&none, 1), [expected[0], expected[2], expected[3]]);
        // The wait ends at 25, and its order at 30.
        assert_eq!(all(&none, 8), [expected[0], expected[1], expected[3]]);
        let late = |from: Time, to: Time| if from < at(10) { Vec::new() } else { vec![(from, to)] };
        assert_eq!(all(&late, 9), expected[1..]);
    }

    #[test]
    fn without_a_task_only_non_workers_violate() {
        let executed = [ExecInterval { cpu: 0, task: TaskId(3), from: at(5), to: at(8) }];
        let idle = [
            IdleInterval { cpu: 0, from: at(0), to: at(5) },
            IdleInterval { cpu: 0, from: at(8), to: at(20) },
        ];
        let times = [(None, at(2), at(10))];
        let found =
            violations_in(0, times.into_iter(), (&executed, &idle), &|from, to| vec![(from, to)]);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].intervals, [(at(2), at(5)), (at(8), at(10))]);
    }

    #[test]
    fn idle_intervals_contain_idle_time_and_threads_of_the_run() {
        let monotonic = |us: u64| Monotonic::from_ns(us * 1_000);
        let tid = |number| Tid::new(number).expect("a number");
        let interval = |cpu, thread, from, to| RunInterval {
            cpu,
            thread,
            from: monotonic(from),
            to: monotonic(to),
        };
        let intervals = [
            interval(4, None, 1, 2),
            interval(4, None, 5, 20),
            interval(4, Some(tid(7)), 20, 30),
            interval(4, Some(tid(8)), 30, 40),
            interval(9, None, 10, 50),
        ];
        let found = idle_intervals(&intervals, &[tid(7)], &[3, 4], monotonic(10));
        let expected = [(0, 10), (10, 20)].map(|(from, to)| IdleInterval {
            cpu: 1,
            from: at(from),
            to: at(to),
        });
        assert_eq!(found, expected);
    }
}
