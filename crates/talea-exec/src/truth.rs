//! Who really ran when: the kernel's word against the machine's orders.
//!
//! The kernel writes down every switch ([`talea_os::switches`]). A worker is *out of order* while it has a CPU on which the machine
//! has not ordered it to run. Some microseconds of that belong to each order (until it takes effect) and to each end of a job (until
//! its worker sleeps); more than that is something that should not have been.

use crate::course::{Course, Turn};
use crate::record::Entry;
use talea_core::machine::TaskId;
use talea_core::{Span, Time};
use talea_os::Tid;
use talea_os::switches::Stay;

/// A worker on a CPU without a pause, by the kernel's word, on the run's own time line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ran {
    /// The CPU, as the machine of its root counts.
    pub cpu: u32,
    /// Whose worker.
    pub task: TaskId,
    /// From when.
    pub from: Time,
    /// To when.
    pub to: Time,
}

impl Ran {
    /// For how long.
    pub fn length(&self) -> Span {
        self.to.since(self.from)
    }
}

/// What threads `tids`, by task, did on the CPUs `numbers`, by CPU of their root, from `zero` on.
pub(crate) fn of_workers(stays: &[Stay], tids: &[Tid], numbers: &[u32], zero: Time) -> Vec<Ran> {
    let of_run = |at: Time| Time::from_ns(at.as_ns().saturating_sub(zero.as_ns()));
    let ran = |stay: &Stay| {
        let task = tids.iter().position(|&tid| stay.thread == Some(tid))?;
        // Elsewhere than on its root's CPUs it can only be before the run: one that does not exist.
        let cpu = numbers.iter().position(|&number| number == stay.cpu).unwrap_or(numbers.len());
        let (cpu, task) = (cpu as u32, TaskId(task as u32));
        (stay.to > zero).then(|| Ran { cpu, task, from: of_run(stay.from), to: of_run(stay.to) })
    };
    stays.iter().filter_map(ran).collect()
}

/// Everything that workers of a root did without an order, from the first step of the record to its last.
pub fn out_of_order(cpus: u32, record: &[Entry], ran: &[Ran]) -> Vec<Ran> {
    let (Some(first), Some(last)) = (record.first(), record.last()) else { return Vec::new() };
    let orders = orders(cpus, record);
    let mut all = Vec::new();
    for stay in ran {
        let mut from = stay.from.max(first.now);
        let to = stay.to.min(last.now);
        // On a CPU of another root nobody was ordered to run.
        let here = orders.get(stay.cpu as usize).map_or(&[][..], Vec::as_slice);
        let mut at = here.partition_point(|&(_, begin, _)| begin <= from).saturating_sub(1);
        let mut put = |from: Time, to: Time| {
            if from < to {
                all.push(Ran { from, to, ..*stay });
            }
        };
        while let Some(&(task, begin, end)) = here.get(at).filter(|&&(_, begin, _)| begin < to) {
            at += 1;
            if task != stay.task || end <= from {
                continue;
            }
            put(from, begin.max(from));
            from = from.max(end);
        }
        put(from, to);
    }
    all
}

/// By CPU: whom it was ordered to run, from when to when, in order.
fn orders(cpus: u32, record: &[Entry]) -> Vec<Vec<(TaskId, Time, Time)>> {
    let mut orders: Vec<Vec<(TaskId, Time, Time)>> = vec![Vec::new(); cpus as usize];
    let mut open: Vec<Option<(TaskId, Time)>> = vec![None; cpus as usize];
    for &(now, turn) in Course::of(cpus, record).timed() {
        let (cpu, next) = match turn {
            // What follows on its CPU is told at the same instant.
            Turn::Ended { .. } => continue,
            Turn::Runs { cpu, task, .. } => (cpu.0 as usize, Some((task, now))),
            Turn::Rests { cpu } => (cpu.0 as usize, None),
        };
        if let Some((task, since)) = std::mem::replace(&mut open[cpu], next) {
            orders[cpu].push((task, since, now));
        }
    }
    for (cpu, open) in open.into_iter().enumerate() {
        orders[cpu].extend(open.map(|(task, since)| (task, since, Time::NEVER)));
    }
    orders
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::What;
    use talea_core::machine::{Cpu, Order};

    fn at(us: u64) -> Time {
        Time::from_ns(us * 1_000)
    }

    fn record() -> Vec<Entry> {
        let run =
            |cpu, task| What::Ordered(Order::Run { cpu: Cpu(cpu), task: TaskId(task), job: 0, version: 0 });
        let idle = What::Ordered(Order::Idle { cpu: Cpu(0) });
        let told =
            [(0, run(0, 0)), (10, run(0, 1)), (20, run(0, 0)), (30, idle), (40, run(1, 0)), (60, What::Step)];
        let entry = |(number, (us, what))| {
            [Entry { number, now: at(us), what: What::Step }, Entry { number, now: at(us), what }]
        };
        (0..).zip(told).flat_map(entry).collect()
    }

    #[test]
    fn what_has_an_order_is_in_order_and_the_rest_is_not() {
        let check = |cpu, task, from, to, expected: &[(u64, u64)]| {
            let ran = Ran { cpu, task: TaskId(task), from: at(from), to: at(to) };
            let seen = out_of_order(2, &record(), &[ran]);
            let seen: Vec<_> = seen.iter().map(|out| (out.from, out.to)).collect();
            let expected: Vec<_> = expected.iter().map(|&(from, to)| (at(from), at(to))).collect();
            assert_eq!(seen, expected, "{ran:?}");
        };
        check(0, 0, 1, 9, &[]);
        check(0, 0, 1, 12, &[(10, 12)]);
        check(0, 0, 1, 25, &[(10, 20)]);
        check(0, 1, 5, 25, &[(5, 10), (20, 25)]);
        check(0, 0, 28, 33, &[(30, 33)]);
        // Elsewhere than it was ordered to, and where it was.
        check(1, 0, 22, 45, &[(22, 40)]);
        check(1, 0, 41, 59, &[]);
        // Beyond the record nothing is known.
        check(1, 1, 55, 99, &[(55, 60)]);
        check(7, 0, 0, 50, &[(0, 50)]);
    }
}
