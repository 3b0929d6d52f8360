//! Roots whose schedule Linux itself produces: no dispatcher, no orders.
//!
//! Model: a worker for each task, pinned, which sleeps to the absolute times at which its own jobs
//! may run. What it is told the kernel of is all there is of scheduling (`plan`):
//!
//! | policy of the root | threads | what is promised |
//! | --- | --- | --- |
//! | `fp`, `rm`, `dm`, `criticality` | SCHED_FIFO, a level for each priority (for each task, where ties go to the lower one) | the order |
//! | `fifo` | SCHED_FIFO, one level | the order |
//! | `rr` with the kernel's own quantum | SCHED_RR, one level | outcomes |
//! | `edf` | SCHED_DEADLINE, a reservation for each task | outcomes |
//!
//! Outcomes are responses and deadlines. A turn of SCHED_RR may begin with what an earlier job left
//! of it, and of two equal deadlines the kernel takes any first; so who ran when is not the
//! machine's to say there, and nothing of such a run is replayed.
//!
//! What came and went is kept by the workers themselves and told afterwards ([`Course`]); the
//! machine only lends its rules for releases, deadlines and backlogs (`queue`), with a test against
//! it.
//!
//! Absent on purpose: servers, partitions and everything else that takes a decision while a job
//! runs; and budgets beside those of SCHED_DEADLINE, which the kernel looks after at its tick
//! unless HRTICK is on.

pub(crate) mod course;
mod plan;
pub(crate) mod queue;
pub(crate) mod worker;

use talea_core::Span;

/// Of a reservation, where nobody has moved the bounds.
const LONGEST_PERIOD: Span = Span::from_ns(4_194_304_000);

pub use course::{Course, Life, Piece};
pub use plan::Promise;
pub(crate) use plan::{Plan, plan};
