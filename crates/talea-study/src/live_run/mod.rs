//! Execution of a described system on real threads. Results have the form of a simulation's.
//!
//! Model: [`place()`] assigns CPUs to each root. [`estimate_load()`] simulates the same jobs to
//! estimate the size of the record and the load of the CPUs. [`run`](run()) executes the jobs.
//! [`talea_exec::replay`] feeds the record of a root to a new engine and reports its events to a
//! sink; [`StreamedSummary`] does so while the run goes on. [`check`] compares the orders with the
//! kernel's `sched_switch` events. A [`Recording`] stores all of it in a file.

mod accounts;
mod dry_run;
mod kernel_check;
mod mechanism;
mod native;
mod place;
mod recording;
mod report;
mod run;
mod streamed;

pub use accounts::{Accounts, accounts};
pub use dry_run::{LoadEstimate, estimate_load, estimate_rate, with_changes};
pub use kernel_check::{KernelCheck, check, machine_lost_time};
pub use mechanism::Mechanism;
pub use native::replay_if_native;
pub use place::{CpuAssignment, logical_task, place};
pub use recording::{Recording, SourceTexts};
pub use report::{
    isolation_failure_text, policy_change_text, print_limits, refused_file, replay_error, summarize,
};
pub use run::{LiveRun, PriorityUse, RunSetup, WorkMode, longest_whole_record, run, run_streaming};
pub use streamed::StreamedSummary;
