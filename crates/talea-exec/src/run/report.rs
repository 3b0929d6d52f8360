//! Reports of a run.

use crate::dispatcher::DispatcherStats;
use crate::job_stats::JobStats;
use crate::kernel_check::{ExecInterval, IdleInterval};
use crate::lost_time::{self, LostTime};
use crate::mechanism::MechanismChoice;
use crate::mechanism::audit::Consumed;
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
    /// Mechanism of its tasks.
    pub mechanism: MechanismChoice,
    /// Jobs that its workers recorded, if Linux scheduled it; then `record` is empty.
    pub native: Option<native::NativeReport>,
    /// Events delivered to its engine, and orders.
    pub record: Vec<RecordEntry>,
    /// Entries without room; the record ends where the first of them is missing.
    pub lost: u64,
    /// CPU time, by task.
    pub consumed: Vec<Consumed>,
    /// Statistics of its dispatchers, by CPU.
    pub dispatchers: Vec<DispatcherStats>,
    /// Number of refused jobs.
    pub refused: u64,
    /// Statistics of jobs, recorded or not, by task.
    pub job_stats: Vec<JobStats>,
    /// Reports of programs, by task.
    pub programs: Vec<Option<ProgramReport>>,
    /// Intervals in which its CPUs made less progress than ordered, as far as workers were audited,
    /// by their ends.
    pub lost_times: Vec<LostTime>,
    /// Execution of its workers by the switch trace, if that was requested and is complete.
    pub executed: Option<Vec<ExecInterval>>,
    /// Intervals in which its CPUs were idle or ran a dispatcher of the run, from the switch trace.
    pub idle: Option<Vec<IdleInterval>>,
}

impl RootReport {
    /// CPU time of dispatchers, and of workers beside their jobs: workers step the engine, too.
    /// SF3P calls it scheduler overhead. Without an audit only that of dispatchers.
    pub fn scheduling(&self) -> Work {
        let dispatchers: u64 = self.dispatchers.iter().map(|effort| effort.cpu_time.as_ns()).sum();
        let workers: u64 = self.consumed.iter().map(|consumed| consumed.stray().as_ns()).sum();
        Work::from_ns(dispatchers + workers)
    }

    /// Total time in which CPUs belonged to workers that made no progress.
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
    /// Start on CLOCK_MONOTONIC: time zero of all other times.
    pub zero: Monotonic,
    /// Reports, by root.
    pub roots: Vec<RootReport>,
    /// Stalls of all monitored CPUs.
    pub stalls: Vec<Stall>,
    /// Length: shorter than planned if the run was cancelled.
    pub length: Span,
    /// Policies of its threads at the start.
    pub policies: ObservedPolicies,
}

/// Reason why there was no run, or why it was ended.
#[derive(Debug)]
pub enum Failure {
    /// The plan cannot be executed.
    Plan(String),
    /// A tree cannot be built.
    Tree(TreeError),
    /// The kernel refused something that needs a right: CAP_SYS_NICE, or RLIMIT_RTPRIO up to the
    /// watchdog's priority.
    NoRight(io::Error),
    /// The kernel refused something else.
    Os(io::Error),
    /// The run did not end by itself and was ended.
    Hung,
    /// A policy or version selector panicked with this message; most likely one of the application.
    /// The state of the engine was unknown, so the run was ended at once.
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
