//! Executor: runs the scheduling engine on real threads.
//!
//! Model: each root of a system has an engine, and each of its CPUs a *dispatcher*. A dispatcher is
//! a pinned FIFO thread at the top of the priority band that sleeps in one futex wait for
//! notifications and timers. When it wakes, it delivers the pending events to the engine (consumed
//! CPU time, completions, releases) and polls its orders. A [`Mechanism`] applies the orders to the
//! *workers*, one thread per task, below the dispatcher in the band. The loop mirrors the
//! simulator's: the same engine, the same events in the same order, the same orders. docs/model.md
//! lists the obligations of a driver.
//!
//! Strict: only dispatched workers run, and no thread spins to keep others out, as long as the
//! dispatched job computes. If a job sleeps or blocks without reporting it, a preempted job may
//! continue meanwhile on a root with one CPU.
//!
//! | module | content |
//! | --- | --- |
//! | [`run`] | set-up and tear-down of a run |
//! | `dispatcher` | loop of a dispatcher |
//! | `executor` | body of the loop, without threads: state of tasks, CPUs and releases |
//! | `root_state` | state behind the root lock, and the threads that step it |
//! | `worker` | loop of a worker |
//! | [`programs`] | programs instead of workers |
//! | [`mechanism`] | moving workers and programs |
//! | [`native`] | roots that Linux schedules alone |
//! | [`record`], [`replay`] | recorded events and orders; the same from a fresh engine |
//! | [`schedule_log`] | the schedule as a list of changes |
//! | [`kernel_check`] | orders against the kernel's switch trace |
//! | [`stalls`] | CPU stalls |
//! | [`work`], [`load`] | job bodies; releases and costs |
#![forbid(unsafe_code)]

mod device_holds;
mod dispatcher;
mod executor;
mod failure;
pub mod flow;
mod job_stats;
pub mod kernel_check;
pub mod load;
mod lost_time;
mod mailbox;
pub mod mechanism;
mod mpsc_stack;
pub mod native;
mod options;
pub mod panics;
mod policy_monitor;
pub mod programs;
pub mod record;
pub mod replay;
pub mod rights;
mod root_shared;
mod root_state;
pub mod run;
mod run_clock;
mod run_control;
pub mod schedule_log;
pub mod stalls;
mod statistics;
mod successor;
pub mod suspension;
mod suspension_state;
#[cfg(test)]
mod tests;
mod watchdog;
pub mod work;
mod worker;
mod worker_slot;

pub use device_holds::DeviceHold;
pub use flow::Flow;
pub use job_stats::JobStats;
pub use kernel_check::{ExecInterval, IdleInterval, OrderViolation};
pub use load::{Arrival, Arrivals, JobGenerator, Load};
pub use lost_time::LostTime;
pub use mechanism::{
    Deferred, Mechanism, MechanismChoice, MechanismKind, RequestedMechanism, StoppedTime,
};
pub use programs::{Isolation, ProgramExit, ProgramReport};
pub use record::{RecordEntry, RecordKind, RecordSink};
pub use rights::{ObservedPolicies, RightsProvider, RunThreads};
pub use run::{
    Band, Failure, Options, Report, RootPlan, RootReport, TaskPlan, check_budgets, execute,
    execute_granted, execute_streaming, execute_until,
};
pub use run_control::{RunControl, SwitchRequest};
pub use schedule_log::{ScheduleEvent, ScheduleLog};
pub use stalls::Stall;
pub use statistics::{RootStatistics, TaskStatistics};
pub use successor::TreeInForce;
pub use suspension::suspend_job;
pub use suspension_state::WorkerReport;
pub use work::{Calibration, Job, JobBody};
