//! Who really ran when: the kernel's word against the machine's orders.
//!
//! The kernel writes down every switch ([`talea_os::switches`]). A worker is *out of order* while
//! it has a CPU on which the machine has not ordered it to run. Some microseconds of that belong to
//! each order (until it takes effect), to each end of a job (until its worker sleeps) and to each
//! time that a worker is awake by itself (until it has looked); more than that is something that
//! should not have been.

use crate::course::{Course, Turn};
use crate::record::Entry;
use talea_core::machine::TaskId;
use talea_core::mutate;
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

/// A CPU of a root without a pause in the hands of nobody, or of one of our own that is no worker
/// of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stood {
    /// The CPU, as the machine of its root counts.
    pub cpu: u32,
    /// From when.
    pub from: Time,
    /// To when.
    pub to: Time,
}

/// When the CPUs `numbers` were idle or ran one of `ours`, from `zero` on.
pub(crate) fn of_others(stays: &[Stay], ours: &[Tid], numbers: &[u32], zero: Time) -> Vec<Stood> {
    let of_run = |at: Time| Time::from_ns(at.as_ns().saturating_sub(zero.as_ns()));
    let stood = |stay: &Stay| {
        let cpu = numbers.iter().position(|&number| number == stay.cpu)? as u32;
        let is_ours = mutate!(
            "exec-truth-idle",
            stay.thread.is_none_or(|tid| ours.contains(&tid)),
            stay.thread.is_some_and(|tid| ours.contains(&tid))
        );
        (is_ours && stay.to > zero).then(|| Stood {
            cpu,
            from: of_run(stay.from),
            to: of_run(stay.to),
        })
    };
    stays.iter().filter_map(stood).collect()
}

/// A time in which a CPU belonged to a worker by order, and how much of it the CPU was idle or one
/// of our own other threads had it. That is nobody's doing but ours: a wake that was missed, a
/// priority or a mask that is wrong, a gate that is shut, a timer that was late for a worker that
/// was not called because of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unobeyed {
    /// The CPU, as the machine of its root counts.
    pub cpu: u32,
    /// Who was ordered to run; nothing, where the kernel alone was to find somebody.
    pub task: Option<TaskId>,
    /// From when.
    pub from: Time,
    /// To when.
    pub to: Time,
    /// In which pieces it did not.
    pub pieces: Vec<(Time, Time)>,
}

impl Unobeyed {
    /// How long that was in all.
    pub fn by(&self) -> Span {
        Span::from_ns(self.pieces.iter().map(|(from, to)| to.since(*from).as_ns()).sum())
    }
}

/// Orders of a record that were not obeyed at once, from its first step to its last; `excused`
/// takes from a piece what is somebody else's, and `blind` are tasks of which the kernel's switches
/// say nothing: programs.
pub fn unobeyed(
    cpus: u32,
    record: &[Entry],
    (ran, stood): (&[Ran], &[Stood]),
    excused: &dyn Fn(Time, Time) -> Vec<(Time, Time)>,
    blind: &dyn Fn(TaskId) -> bool,
) -> Vec<Unobeyed> {
    let Some(last) = record.last() else { return Vec::new() };
    let mut all = Vec::new();
    for (cpu, orders) in (0..).zip(orders(cpus, record)) {
        let orders = orders.into_iter().filter(|&(task, ..)| !blind(task));
        let orders = orders.map(|(task, from, to)| (Some(task), from, to.min(last.now)));
        all.extend(against(cpu, orders, (ran, stood), excused));
    }
    all
}

/// The same for times in which a CPU belongs to a task, or to any.
pub(crate) fn against(
    cpu: u32,
    times: impl Iterator<Item = (Option<TaskId>, Time, Time)>,
    (ran, stood): (&[Ran], &[Stood]),
    excused: &dyn Fn(Time, Time) -> Vec<(Time, Time)>,
) -> Vec<Unobeyed> {
    // Sorted: a CPU has one thread at a time.
    let mut stays: Vec<(Time, Time, Option<TaskId>)> = Vec::new();
    stays.extend(
        ran.iter().filter(|stay| stay.cpu == cpu).map(|stay| (stay.from, stay.to, Some(stay.task))),
    );
    stays
        .extend(stood.iter().filter(|stay| stay.cpu == cpu).map(|stay| (stay.from, stay.to, None)));
    stays.sort_unstable();
    let of = |(task, from, to): (Option<TaskId>, Time, Time)| {
        let first = stays.partition_point(|&(_, end, _)| end <= from);
        let mut pieces = Vec::new();
        for &(begin, end, who) in stays[first..].iter().take_while(|&&(begin, ..)| begin < to) {
            let is_meant = if task.is_none() { who.is_some() } else { who == task };
            if !is_meant {
                pieces.extend(excused(begin.max(from), end.min(to)));
            }
        }
        (!pieces.is_empty()).then_some(Unobeyed { cpu, task, from, to, pieces })
    };
    times.filter_map(of).collect()
}

/// Everything that workers of a root did without an order, from the first step of the record to its
/// last.
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
        mutate!(
            "exec-truth",
            {
                put(from, to);
            },
            {}
        );
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
        let run = |cpu, task| {
            What::Ordered(Order::Run { cpu: Cpu(cpu), task: TaskId(task), job: 0, version: 0 })
        };
        let idle = What::Ordered(Order::Idle { cpu: Cpu(0) });
        let told = [
            (0, run(0, 0)),
            (10, run(0, 1)),
            (20, run(0, 0)),
            (30, idle),
            (40, run(1, 0)),
            (60, What::Step),
        ];
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

    #[test]
    fn an_idle_cpu_and_another_of_ours_are_held_against_an_order_and_strangers_are_not() {
        let ran = |cpu, task, from, to| Ran { cpu, task: TaskId(task), from: at(from), to: at(to) };
        let stood = |cpu, from, to| Stood { cpu, from: at(from), to: at(to) };
        let all = |excused: &dyn Fn(Time, Time) -> Vec<(Time, Time)>, blind: u32| {
            // Task 0 is ordered at 0, task 1 at 10, task 0 at 20 up to 30, and on the other CPU at
            // 40.
            let ran = [ran(0, 0, 3, 12), ran(0, 1, 12, 18), ran(0, 0, 22, 30), ran(1, 0, 41, 60)];
            let stood = [stood(0, 0, 3), stood(0, 20, 21), stood(0, 30, 60), stood(1, 0, 41)];
            let told =
                unobeyed(2, &record(), (&ran, &stood), excused, &|task| task == TaskId(blind));
            let told =
                told.into_iter().map(|one| (one.cpu, one.task, one.from, one.by().as_ns() / 1_000));
            told.collect::<Vec<_>>()
        };
        let none = |from, to| vec![(from, to)];
        let (a, b) = (Some(TaskId(0)), Some(TaskId(1)));
        // From 18 to 20 and from 21 to 22 a stranger has the CPU; behind 30 nobody was to.
        let expected = [(0, a, at(0), 3), (0, b, at(10), 2), (0, a, at(20), 1), (1, a, at(40), 1)];
        assert_eq!(all(&none, 9), expected);
        assert_eq!(all(&none, 1), [expected[0], expected[2], expected[3]]);
        let late = |from: Time, to: Time| if from < at(10) { Vec::new() } else { vec![(from, to)] };
        assert_eq!(all(&late, 9), expected[1..]);
    }

    #[test]
    fn where_any_worker_will_do_only_the_others_count() {
        let ran = [Ran { cpu: 0, task: TaskId(3), from: at(5), to: at(8) }];
        let stood =
            [Stood { cpu: 0, from: at(0), to: at(5) }, Stood { cpu: 0, from: at(8), to: at(20) }];
        let times = [(None, at(2), at(10))];
        let told = against(0, times.into_iter(), (&ran, &stood), &|from, to| vec![(from, to)]);
        assert_eq!(told.len(), 1);
        assert_eq!(told[0].pieces, [(at(2), at(5)), (at(8), at(10))]);
    }

    #[test]
    fn who_is_nobody_and_who_is_ours_is_kept_and_who_is_neither_is_not() {
        let tid = |number| Tid::new(number).expect("a number");
        let stay = |cpu, thread, from, to| Stay { cpu, thread, from: at(from), to: at(to) };
        let stays = [
            stay(4, None, 1, 2),
            stay(4, None, 5, 20),
            stay(4, Some(tid(7)), 20, 30),
            stay(4, Some(tid(8)), 30, 40),
            stay(9, None, 10, 50),
        ];
        let told = of_others(&stays, &[tid(7)], &[3, 4], at(10));
        let expected =
            [(0, 10), (10, 20)].map(|(from, to)| Stood { cpu: 1, from: at(from), to: at(to) });
        assert_eq!(told, expected);
    }
}
