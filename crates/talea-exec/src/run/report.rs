//! Reports of a run.

use crate::dispatcher::DispatcherStats;
use crate::job_stats::JobStats;
use crate::kernel_check::{ExecInterval, IdleInterval};
use crate::lost_time::{self, LostTime};
use crate::mechanism::MechanismChoice;
use crate::mechanism::audit::Consumed;
use crate::mechanism::freeze::StoppedTime;
use crate::native;
use crate::programs::ProgramReport;
use crate::record::RecordEntry;
use crate::rights::ObservedPolicies;
use crate::stalls::Stall;
use std::fmt;
use std::io;
use talea_core::engine::TreeError;
use talea_core::{Monotonic, Span, Work};

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
            None => lost_time::total(self),
        }
    }
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

/// Reason why there was no run, or why it was ended.
#[derive(Debug)]
pub enum Failure {
    /// The plan cannot be executed.
    Plan(String),
    /// A tree cannot be built.
    Tree(TreeError),
    /// The kernel refused an operation that needs CAP_SYS_NICE, or RLIMIT_RTPRIO up to the
    /// watchdog's priority.
    NoRight(io::Error),
    /// The kernel refused another operation.
    Os(io::Error),
    /// The run did not end by itself, so the watchdog ended it.
    Hung,
    /// A policy or version selector, probably of the application, panicked with this message. The
    /// state of the engine was unknown, so the run was ended at once.
    Panicked(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Plan(why) => f.write_str(why),
            Failure::Tree(wrong) => write!(f, "node {} of the tree: {}", wrong.node.0, wrong.kind),
            Failure::NoRight(error) => write!(
                f,
                "no right to real-time priorities ({error}): run it as root or with CAP_SYS_NICE, outside control \
                 groups without real-time runtime; `talea simulate` needs no right"
            ),
            Failure::Os(error) => write!(f, "the kernel refused: {error}"),
            Failure::Hung => {
                f.write_str("the run did not end by itself and was ended by its watchdog")
            }
            Failure::Panicked(said) => write!(
                f,
                "a scheduling decision panicked, and the run was ended: {said} (a policy or version selector of the application must not \
                 panic; if it has none, this is a bug in Talea)"
            ),
        }
    }
}

impl std::error::Error for Failure {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Failure::NoRight(error) | Failure::Os(error) => Some(error),
            _ => None,
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        if error.kind() == io::ErrorKind::PermissionDenied {
            Failure::NoRight(error)
        } else {
            Failure::Os(error)
        }
    }
}
