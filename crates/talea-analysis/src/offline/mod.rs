//! Off-line tables. A table states which job runs on which CPU, when and in which version, so that
//! no job is late. The table is computed before the run.
//!
//! YASMIN's dispatcher executes a table (section 3.4: "a schedule is computed off-line";
//! docs/model.md, section 9). A [`Problem`] lists the jobs of one hyperperiod. [`from_tree`] builds
//! it from a described tree. [`synthesize`] searches for a table. [`check()`], which shares no code
//! with the search, verifies the result.
//!
//! The problem is NP-hard even without accelerators (Garey and Johnson 1979, SS8 and SS11). So
//! there are four results: a table; a proof that there is none ([`Infeasible`], by true deadlines
//! and unavoidable costs); no search, because a job cannot complete within the hyperperiod if every
//! entry pays the overhead; or no table found, with the best attempt.
//!
//! Assumptions:
//! 1. Times are integer nanoseconds, and every job costs at least one.
//! 2. Jobs arrive at known times: strictly periodic, offset and jitter allowed.
//! 3. Costs are worst-case costs, and starting an entry costs `overhead` more.
//! 4. A job completes within the hyperperiod in which it arrives.
//! 5. A version holds its accelerators from its start to its end, and is not preempted then.
//! 6. Jobs of one task run one after the other.
//! 7. A job can start when its predecessors have completed.

mod check;
mod list_scheduler;
mod necessary;
mod problem;
mod squeaky_wheel;

pub use check::{Flaw, check};
pub use problem::{Unsuitable, entries, from_tree};

use crate::test_info::{Platform, TestInfo, TestKind};
use alloc::vec::Vec;
use talea_core::Span;

/// Entry of this test in the catalogue.
pub const INFO: TestInfo = TestInfo {
    name: "table-synthesis",
    policy: "off-line table",
    platform: Platform::Global,
    model: "periodic with offsets, jitter, graphs, versions, accelerators",
    kind: TestKind::Sufficient,
    paper: "Graham, BSTJ 45(9), 1966 (lists); Joslin and Clements, J. Artificial Intelligence Research 10, 1999 (squeaky wheel)",
    sustainable: "costs (entries keep their times)",
    tests: &[
        "crates/talea-analysis/tests/it/offline.rs::every_table_found_passes_the_checker_and_meets_all_deadlines_in_simulation",
        "crates/talea-analysis/tests/it/offline.rs::on_one_cpu_without_extras_exactly_the_feasible_sets_are_solved",
    ],
};

/// Version in which a job can be executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// Index of the version; `None` for a task without versions.
    pub version: Option<u32>,
    /// Worst-case cost, at least 1.
    pub cost: Span,
    /// Accelerators that the version holds, bit k for number k.
    pub accelerators: u64,
}

/// One job of the hyperperiod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// Index of the task, in the order of the tree.
    pub task: usize,
    /// Earliest start, as an offset in the hyperperiod.
    pub release: Span,
    /// Latest completion, as an offset in the hyperperiod.
    pub deadline: Span,
    /// True deadline, which is after `deadline` if the hyperperiod cuts the true deadline.
    pub due: Span,
    /// Possible versions, at least one.
    pub choices: Vec<Choice>,
    /// Jobs that must have completed before this job starts, with smaller indices than this job.
    pub predecessors: Vec<usize>,
    /// Permitted CPUs, bit k for CPU k.
    pub cpus: u64,
}

/// Input of the table synthesis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Length of the table.
    pub hyperperiod: Span,
    /// Number of CPUs, up to 64.
    pub cpus: u32,
    /// Cost of starting an entry.
    pub overhead: Span,
    /// Part of `overhead` that no job avoids on any CPU. Proofs may count this part.
    pub overhead_least: Span,
    /// Whether a job without accelerators may be executed in several pieces.
    pub preemptive: bool,
    /// Jobs. A predecessor has a smaller index than its successors.
    pub jobs: Vec<Job>,
}

/// Uninterrupted execution of one job on one CPU, with the overhead at its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Index into the problem's jobs.
    pub job: usize,
    /// Index into the choices of the job, the same in all of its pieces.
    pub choice: usize,
    /// Number of the CPU.
    pub cpu: u32,
    /// Start, as an offset in the hyperperiod.
    pub start: Span,
    /// End, as an offset in the hyperperiod.
    pub end: Span,
}

/// Result of the search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Synthesis {
    /// A table, sorted by start.
    Found {
        /// Entries of the table.
        pieces: Vec<Piece>,
        /// Number of times the list was reordered.
        rounds: u32,
    },
    /// No table exists.
    Infeasible(Infeasible),
    /// The search was not run. Job `job` cannot complete by its deadline within the hyperperiod if
    /// every entry pays all of the overhead. There may be a table whose entries continue in the
    /// next hyperperiod, or that avoids overhead.
    Narrow {
        /// Index of the job.
        job: usize,
        /// Earliest completion of the job.
        end: Span,
    },
    /// The search found no table within its rounds, which proves nothing.
    NotFound {
        /// Number of late jobs in the best attempt.
        late: usize,
        /// Index of the latest job in the best attempt.
        job: usize,
        /// Lateness of that job.
        by: Span,
    },
}

/// Reason why no table exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Infeasible {
    /// This job cannot complete in time after its predecessors, even without other jobs.
    Chain {
        /// Index of the job.
        job: usize,
        /// Earliest completion of the job.
        end: Span,
    },
    /// The demand between these offsets exceeds the capacity of all CPUs.
    Window {
        /// Start of the window.
        from: Span,
        /// End of the window.
        to: Span,
        /// Least CPU time that is needed within the window.
        need: u128,
    },
}

/// Searches for a table and reorders the list up to `rounds` times. The search is deterministic.
/// With n jobs in p pieces on m CPUs a round takes O(n · versions · m · p).
///
/// # Panics
/// If the problem is malformed: no CPU or more than 64, a job without a choice, a cost or a CPU, a
/// predecessor with a larger index, or inconsistent times.
pub fn synthesize(problem: &Problem, rounds: u32) -> Synthesis {
    problem.assert_well_formed();
    if let Some(why) = necessary::infeasibility(problem) {
        return Synthesis::Infeasible(why);
    }
    let frame = match necessary::JobWindows::of(problem, |job| job.deadline, problem.overhead) {
        Ok(frame) => frame,
        Err((job, end)) => return Synthesis::Narrow { job, end },
    };
    let answer = squeaky_wheel::search(problem, &frame, rounds);
    if let Synthesis::Found { pieces, .. } = &answer {
        assert_eq!(check(problem, pieces), Ok(()), "the checker does not agree with the search");
    }
    answer
}

impl Problem {
    fn assert_well_formed(&self) {
        assert!((1..=64).contains(&self.cpus), "1 to 64 CPUs");
        let all = u64::MAX >> (64 - self.cpus);
        for (at, job) in self.jobs.iter().enumerate() {
            assert!(!job.choices.is_empty(), "a job without a choice");
            assert!(job.choices.iter().all(|choice| !choice.cost.is_zero()), "a job without cost");
            assert!(job.cpus & all != 0, "a job without a CPU");
            assert!(job.predecessors.iter().all(|&before| before < at), "a job after a later one");
            assert!(job.deadline <= self.hyperperiod, "a job beyond the hyperperiod");
            assert!(job.deadline <= job.due, "due before its deadline");
        }
        assert!(
            self.overhead_least <= self.overhead,
            "the unavoidable overhead is at most the overhead"
        );
        let most = |job: &Job| job.choices.iter().map(|choice| choice.cost + self.overhead).max();
        let all = self.jobs.iter().filter_map(most).try_fold(self.hyperperiod, Span::checked_add);
        assert!(
            all.is_some_and(|all| all.as_ns() <= u64::MAX / 2),
            "more work than times can hold"
        );
    }
}

/// Returns `a − b`. The caller knows that `b` is not larger.
fn minus(a: Span, b: Span) -> Span {
    a.checked_sub(b).expect("not larger")
}
