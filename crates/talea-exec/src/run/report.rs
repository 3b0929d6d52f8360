//! Reports of a run.

use crate::device_holds::{DeviceHold, outside};
use crate::dispatcher::DispatcherStats;
use crate::job_stats::JobStats;
use crate::kernel_check::{ExecInterval, IdleInterval};
use crate::lost_time::LostTime;
use crate::mechanism::MechanismChoice;
use crate::mechanism::audit::Consumed;
use crate::mechanism::freeze::StoppedTime;
use crate::native;
use crate::programs::ProgramReport;
use crate::record::RecordEntry;
use crate::rights::ObservedPolicies;
use crate::schedule_log::ScheduleLog;
use crate::stalls::Stall;
use talea_core::mutate;
use talea_core::{Monotonic, Span, Time, Work};

/// Report of a root.
#[derive(Clone, Debug)]
pub struct RootReport {
    /// Mechanism of the root's tasks.
    pub mechanism: MechanismChoice,
    /// Jobs that the workers recorded, if Linux scheduled the root. Then `record` is empty.
    pub native: Option<native::NativeReport>,
    /// Events that were delivered to the root's engine, and the engine's orders.
    pub record: Vec<RecordEntry>,
    /// Number of entries without room. The record ends where the first of them is missing.
    pub lost: u64,
    /// `consumed[n]`: CPU time of task `n`.
    pub consumed: Vec<Consumed>,
    /// `dispatchers[c]`: statistics of the dispatcher of CPU `c`.
    pub dispatchers: Vec<DispatcherStats>,
    /// Number of refused jobs.
    pub refused: u64,
    /// `job_stats[n]`: statistics of all jobs of task `n`, including jobs without room in the
    /// record.
    pub job_stats: Vec<JobStats>,
    /// `programs[n]`: report of the program of task `n`.
    pub programs: Vec<Option<ProgramReport>>,
    /// Waits for a device in which workers kept their CPU idle, sorted.
    pub holds: Vec<DeviceHold>,
    /// `stopped_times[n]`: CPU time that the program of task `n` consumed while it was stopped.
    pub stopped_times: Vec<Option<StoppedTime>>,
    /// Intervals in which the root's CPUs made less progress than ordered, in order of their ends.
    /// Only known if workers were audited.
    pub lost_times: Vec<LostTime>,
    /// Execution of the root's workers from the switch trace. `None` if the trace was not requested
    /// or is incomplete.
    pub executed: Option<Vec<ExecInterval>>,
    /// Intervals from the switch trace in which the root's CPUs were idle or ran a dispatcher of
    /// the run.
    pub idle: Option<Vec<IdleInterval>>,
}

impl RootReport {
    /// Returns the CPU time of dispatchers, and of workers beside their jobs, because workers step
    /// the engine, too. SF3P calls this time scheduler overhead. Without an audit it contains only
    /// the CPU time of dispatchers.
    pub fn scheduling(&self) -> Work {
        let dispatchers: u64 = self.dispatchers.iter().map(|effort| effort.cpu_time.as_ns()).sum();
        let workers: u64 = self.consumed.iter().map(|consumed| consumed.stray().as_ns()).sum();
        Work::from_ns(dispatchers + workers)
    }

    /// Returns the total time in which CPUs belonged to workers that made no progress.
    pub fn total_lost_time(&self) -> Span {
        match &self.native {
            Some(course) => course.total_lost_time(self.executed.as_deref()),
            None => total_loss(self),
        }
    }
}

/// Returns the total loss of a run whose workers were audited.
///
/// The total includes the delays from an order to its worker and from the end of a job to the
/// dispatcher. It does not include the CPU time of dispatchers, and the waits for devices.
fn total_loss(root: &RootReport) -> Span {
    let end = root.record.last().map_or(Time::ZERO, |entry| entry.now);
    let log = ScheduleLog::from_record(root.dispatchers.len() as u32, &root.record);
    let orders = log.intervals().into_iter().flatten();
    let owned = orders.flat_map(|(task, from, to)| {
        let to = to.min(end);
        mutate!("exec-loss-holds", outside(&root.holds, task, from, to), vec![(from, to)])
    });
    let owned: u64 = owned.map(|(from, to)| to.since(from).as_ns()).sum();
    let done: u64 = root.consumed.iter().map(|consumed| consumed.ordered.as_ns()).sum();
    let scheduling = root.scheduling().as_ns();
    Span::from_ns(owned.saturating_sub(done + scheduling))
}

/// Report of a run.
#[derive(Clone, Debug)]
pub struct Report {
    /// Start of the run on CLOCK_MONOTONIC. It is time zero of all other times.
    pub zero: Monotonic,
    /// `roots[r]`: report of root `r`.
    pub roots: Vec<RootReport>,
    /// Stalls of all monitored CPUs.
    pub stalls: Vec<Stall>,
    /// Length of the run. Shorter than planned if the run was cancelled.
    pub length: Span,
    /// Policies of the run's threads at the start.
    pub policies: ObservedPolicies,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mechanism::MechanismKind;
    use crate::record::RecordKind;
    use talea_core::engine::{Cpu, Order, TaskId};

    #[test]
    fn a_wait_for_a_device_with_an_idle_cpu_is_no_lost_time() {
        let at = |ms: u64| Time::from_ns(ms * 1_000_000);
        let run = Order::Run { cpu: Cpu(0), task: TaskId(0), job: 0, version: 0 };
        let idle = Order::Idle { cpu: Cpu(0) };
        let entries = [(0, run), (40, idle)];
        let entry = |(number, (ms, order))| RecordEntry {
            number,
            now: at(ms),
            kind: RecordKind::Order(order),
        };
        let root = |holds| RootReport {
            mechanism: MechanismChoice { kind: MechanismKind::Priority, reason: String::new() },
            native: None,
            record: (0..).zip(entries).map(entry).collect(),
            lost: 0,
            consumed: vec![Consumed::new(Work::from_ns(9_000_000), Work::from_ns(9_000_000))],
            dispatchers: vec![DispatcherStats::default()],
            refused: 0,
            job_stats: Vec::new(),
            programs: vec![None],
            holds,
            stopped_times: vec![None],
            lost_times: Vec::new(),
            executed: None,
            idle: None,
        };
        let hold = DeviceHold { task: TaskId(0), from: at(5), to: at(35) };
        assert_eq!(root(vec![hold]).total_lost_time(), Span::from_ns(1_000_000));
        assert_eq!(root(Vec::new()).total_lost_time(), Span::from_ns(31_000_000));
    }
}
