//! Schedulability tests for several equal CPUs.
//!
//! Assumptions, which each file of this module refers to by number:
//!
//! 1. m equal CPUs that always serve. Scheduling is preemptive, tasks migrate at no cost, jobs are
//!    sequential, tasks are independent, and there are no overheads. No CPU idles while a job
//!    waits.
//! 2. Time is integer (nanoseconds): jobs arrive, are preempted and end at integers; C ≥ 1, T ≥ 1.
//! 3. No release jitter and no blocking: J = 0, B = 0.
//! 4. D ≤ T.
//!
//! Tasks are sporadic. A synchronous release is *not* the worst case on several CPUs. So no test of
//! this module is exact, and only [`necessary`] refutes.
//!
//! On sustainability: under preemptive G-EDF and G-FP a schedule stays schedulable when jobs cost
//! less (R. Ha and J. Liu, "Validating timing constraints in multiprocessor and distributed
//! real-time systems", ICDCS 1994). Sporadic tasks with larger periods and the same deadlines have
//! fewer legal patterns of arrival. A *test* need not be sustainable: it may refuse a relaxed set
//! although it accepts the unrelaxed set. Each file states in which parameters its test is proved
//! sustainable, with the argument; its catalogue entry lists no other parameters. A later deadline
//! reorders EDF's priorities, so only GFB is proved sustainable in deadlines.

pub mod baruah;
pub mod bcl;
pub mod bertogna_cirinei;
pub mod da_lc;
mod divisor;
pub mod ff_dbf;
pub mod gfb;
pub mod graham;
pub mod guan;
pub mod linux;
mod load;
pub mod necessary;
pub mod partition;
mod piecewise_linear;
pub mod portfolio;
mod prepared;
#[cfg(test)]
pub(crate) mod sets;
pub mod tardiness;

pub use prepared::Scratch;
