//! Jobs of a hyperperiod, tables, and results of the search.

use alloc::vec::Vec;
use talea_core::Span;

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

impl Problem {
    /// Checks what [`synthesize`](super::synthesize) requires.
    ///
    /// # Panics
    /// If the problem is malformed.
    pub(super) fn assert_well_formed(&self) {
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
pub(super) fn minus(a: Span, b: Span) -> Span {
    a.checked_sub(b).expect("not larger")
}
