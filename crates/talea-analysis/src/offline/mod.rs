//! Off-line tables: which job runs on which CPU, when and in which version, decided before the run
//! so that no job is late.
//!
//! For YASMIN's dispatcher (section 3.4: "a schedule is computed off-line"; docs/model.md, section
//! 9). A [`Problem`] lists the jobs of one hyperperiod; it is built from a described tree
//! ([`from_tree`]) or manually. [`synthesize`] searches for a table. [`check()`], which shares no
//! code with the search, verifies the result.
//!
//! The problem is NP-hard even without accelerators (Garey and Johnson 1979, SS8 and SS11), so
//! there are three results: a table; a proof that there is none ([`Infeasible`], by true deadlines
//! and unavoidable costs); or neither, with the closest attempt.
//!
//! Assumptions: 1. integer nanoseconds, every job costs at least one; 2. jobs arrive at known
//! times: strictly periodic, offset and jitter allowed; 3. costs are worst-case costs, and starting
//! an entry costs `overhead` more; 4. a job completes within the hyperperiod in which it arrives;
//! 5. a version holds its accelerators from its start to its end, and is not preempted then; 6.
//! jobs of one task run one after the other; 7. a job can start when its predecessors have
//! completed.

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

/// Catalogue entry.
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
    /// Accelerators that it holds, bit k for number k.
    pub accelerators: u64,
}

/// One job of the hyperperiod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// The task, numbered in the order of the tree.
    pub task: usize,
    /// Earliest start; an offset in the hyperperiod.
    pub release: Span,
    /// Latest completion; an offset in the hyperperiod.
    pub deadline: Span,
    /// True deadline. It is after `deadline` if the hyperperiod cuts it.
    pub due: Span,
    /// Possible versions, at least one.
    pub choices: Vec<Choice>,
    /// Jobs that must have completed before it starts, with smaller numbers than its own.
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
    /// Part of that cost that no job avoids on any CPU; proofs may count it.
    pub overhead_least: Span,
    /// Whether a job without accelerators may be executed in several pieces.
    pub preemptive: bool,
    /// Jobs. A predecessor in a chain has the smaller number.
    pub jobs: Vec<Job>,
}

/// Uninterrupted execution of one job on one CPU, with the overhead at its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Index into the problem's jobs.
    pub job: usize,
    /// Index into the job's choices, the same in all of its pieces.
    pub choice: usize,
    /// CPU.
    pub cpu: u32,
    /// Offset in the hyperperiod.
    pub start: Span,
    /// Offset in the hyperperiod.
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
    /// There is no table.
    Infeasible(Infeasible),
    /// No search: this job cannot complete by its deadline within the hyperperiod if every entry
    /// pays all of the overhead. There may be a table whose entries continue in the next
    /// hyperperiod, or that avoids overhead.
    Narrow {
        /// The job.
        job: usize,
        /// Its earliest completion.
        end: Span,
    },
    /// The search found no table within its rounds, which proves nothing.
    NotFound {
        /// Number of late jobs in the best attempt.
        late: usize,
        /// The latest of them.
        job: usize,
        /// Its lateness.
        by: Span,
    },
}

/// Reason why there is no table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Infeasible {
    /// This job cannot complete in time after its predecessors, even without other jobs.
    Chain {
        /// The job.
        job: usize,
        /// Its earliest completion.
        end: Span,
    },
    /// The demand between these offsets exceeds the capacity of all CPUs.
    Window {
        /// Start of the window.
        from: Span,
        /// End of the window.
        to: Span,
        /// CPU time needed at least.
        need: u128,
    },
}

/// Searches for a table, reordering the list up to `rounds` times. The search is deterministic.
/// With n jobs in p pieces on m CPUs a round takes O(n · versions · m · p).
///
/// # Panics
/// If the problem is malformed: no CPU or more than 64, or a job without a choice, without cost,
/// without a CPU, or after a later one.
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

/// `a − b`, with `b` known not to be larger.
fn minus(a: Span, b: Span) -> Span {
    a.checked_sub(b).expect("not larger")
}
