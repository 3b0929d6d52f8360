//! Waits for a device in which a worker keeps its CPU idle.
//!
//! The switch trace shows an idle CPU during such a wait, and the CPU clock of the worker stands
//! still, although the worker follows its order. [`outside`] returns the rest of an order.

use talea_core::Time;
use talea_core::engine::TaskId;

/// Wait for a device in which a worker keeps its CPU idle, unless another task preempts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeviceHold {
    /// Task of the worker.
    pub task: TaskId,
    /// Start.
    pub from: Time,
    /// End: the time at which the device completes, or the end of the segment.
    pub to: Time,
}

/// Maximum number of records of a run.
const MAX_RECORDS: usize = 20_000;

/// Recorded waits of a run. Their memory is allocated before the run.
#[derive(Clone, Debug)]
pub(crate) struct DeviceHolds {
    records: Vec<DeviceHold>,
    /// Tasks whose jobs may wait.
    tasks: Vec<TaskId>,
}

impl DeviceHolds {
    /// Creates the records of a run in which jobs of `tasks` may wait.
    pub(crate) fn new(tasks: Vec<TaskId>) -> DeviceHolds {
        let room = if tasks.is_empty() { 0 } else { MAX_RECORDS + tasks.len() };
        DeviceHolds { records: Vec::with_capacity(room), tasks }
    }

    /// Records a wait. After the maximum, one record without an end stands for all further waits of
    /// each task.
    pub(crate) fn push(&mut self, hold: DeviceHold) {
        if self.records.len() < MAX_RECORDS - 1 {
            self.records.push(hold);
        } else if self.records.len() == MAX_RECORDS - 1 {
            let further = |&task: &TaskId| DeviceHold { task, to: Time::NEVER, ..hold };
            self.records.extend(self.tasks.iter().map(further));
            self.records.push(hold);
        }
    }

    /// Returns the records, and `pending` waits, as [`outside`] needs them.
    pub(crate) fn sorted(&self, pending: impl Iterator<Item = DeviceHold>) -> Vec<DeviceHold> {
        let mut all: Vec<DeviceHold> = self.records.iter().copied().chain(pending).collect();
        all.sort_unstable();
        all
    }
}

/// Returns the parts of an order of `task` outside of its waits. `holds` are sorted; those of one
/// task overlap only if one of them has no end.
///
/// O(log n + k) for n waits, of which k are in the order.
pub(crate) fn outside(
    holds: &[DeviceHold],
    task: TaskId,
    from: Time,
    to: Time,
) -> Vec<(Time, Time)> {
    let own = &holds[holds.partition_point(|hold| hold.task < task)..];
    let own = &own[..own.partition_point(|hold| hold.task == task)];
    let first = own.partition_point(|hold| hold.to <= from);
    let (mut left, mut begin) = (Vec::new(), from);
    for hold in own[first..].iter().take_while(|hold| hold.from < to) {
        if begin < hold.from {
            left.push((begin, hold.from));
        }
        begin = begin.max(hold.to);
    }
    if begin < to {
        left.push((begin, to));
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hold(task: u32, from: u64, to: u64) -> DeviceHold {
        DeviceHold { task: TaskId(task), from: Time::from_ns(from), to: Time::from_ns(to) }
    }

    fn outside_of(holds: &[DeviceHold], task: u32, from: u64, to: u64) -> Vec<(u64, u64)> {
        let parts = outside(holds, TaskId(task), Time::from_ns(from), Time::from_ns(to));
        parts.into_iter().map(|(from, to)| (from.as_ns(), to.as_ns())).collect()
    }

    #[test]
    fn the_rest_of_an_order_is_outside_of_its_own_waits() {
        let mut holds = DeviceHolds::new(vec![TaskId(1), TaskId(2)]);
        for record in [hold(2, 10, 20), hold(1, 10, 20), hold(1, 30, 40)] {
            holds.push(record);
        }
        let holds = holds.sorted([hold(1, 60, 90)].into_iter());
        assert_eq!(outside_of(&holds, 1, 0, 100), [(0, 10), (20, 30), (40, 60), (90, 100)]);
        assert_eq!(outside_of(&holds, 1, 12, 35), [(20, 30)]);
        assert_eq!(outside_of(&holds, 1, 61, 89), []);
        assert_eq!(outside_of(&holds, 2, 12, 35), [(20, 35)]);
        assert_eq!(outside_of(&holds, 0, 12, 35), [(12, 35)]);
    }

    #[test]
    fn waits_beyond_the_maximum_have_no_end() {
        let mut holds = DeviceHolds::new(vec![TaskId(0), TaskId(1)]);
        let room = holds.records.capacity();
        for at in 0..2 * MAX_RECORDS as u64 {
            holds.push(hold(0, 10 * at, 10 * at + 5));
        }
        assert_eq!(holds.records.capacity(), room, "no memory is allocated in a run");
        let holds = holds.sorted(std::iter::empty());
        assert_eq!(outside_of(&holds, 0, 7, 20), [(7, 10), (15, 20)]);
        let late = 10 * MAX_RECORDS as u64;
        for task in [0, 1] {
            assert_eq!(outside_of(&holds, task, late, late + 100), []);
        }
    }
}
