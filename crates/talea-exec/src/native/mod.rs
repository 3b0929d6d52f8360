//! Roots that Linux schedules alone: no dispatcher, no orders.
//!
//! Model: one pinned worker per task, which sleeps until the absolute times at which its jobs may
//! run. The policies of the workers are the whole schedule (`plan`):
//!
//! | policy of the root | threads | guarantee |
//! | --- | --- | --- |
//! | `fp`, `rm`, `dm`, `criticality` | SCHED_FIFO, a level per priority (per task in case of ties) | the order |
//! | `fifo` | SCHED_FIFO, one level | the order |
//! | `rr` with the kernel's quantum | SCHED_RR, one level | outcomes |
//! | `edf` | SCHED_DEADLINE, a reservation per task | outcomes |
//!
//! Outcomes are response times and deadlines. A SCHED_RR time slice may begin with what an earlier
//! job left of it, and of two equal deadlines the kernel takes either first. So the engine cannot
//! predict that order, and such a run is not replayed.
//!
//! The workers record their jobs and report them after the run ([`NativeReport`]). Of the engine
//! only the rules for releases, deadlines and backlogs are used (`queue`), with a test against it.
//!
//! Absent on purpose: servers, partitions and everything else that decides while a job runs; and
//! budgets other than those of SCHED_DEADLINE, which the kernel enforces at its tick unless HRTICK
//! is on.

mod plan;
pub(crate) mod queue;
pub(crate) mod report;
pub(crate) mod worker;

use talea_core::Span;

/// Maximum period of a reservation in the kernel, with default bounds.
const MAX_DL_PERIOD: Span = Span::from_ns(4_194_304_000);

pub use plan::Guarantee;
pub(crate) use plan::{Plan, plan};
pub use report::{JobRecord, NativeReport};
