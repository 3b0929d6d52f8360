//! Off-line tables: who runs where from when to when, in a version chosen beforehand, so that
//! nothing is ever late.
//!
//! For YASMIN's dispatcher (section 3.4: "a schedule is computed off-line"; docs/model.md, section
//! 9). A [`Problem`] has the jobs of one hyperperiod; it is made of a described tree
//! ([`from_tree`]) or by hand. [`synthesize`] looks for a table, and what it finds is held against
//! the problem by [`check()`], which shares no code with the search.
//!
//! The problem is NP-hard already without accelerators (Garey and Johnson 1979, SS8 and SS11), so
//! there are three answers: a table; a proof that there is none ([`Impossible`], by when jobs are
//! really due and by costs that nothing spares them); or neither, with what came closest.
//!
//! Assumptions: 1. integer nanoseconds, every job costs at least one; 2. jobs arrive at known
//! times: strictly periodic, offset and jitter allowed; 3. costs are worst costs, and starting an
//! entry costs `overhead` more; 4. a job ends within the hyperperiod in which it arrives; 5. a
//! version holds its accelerators from its begin to its end, and then is not interrupted; 6. jobs
//! of one task run one after the other; 7. what a job needs from others is there when these have
//! ended.

mod bounds;
mod check;
mod list;
mod problem;
mod squeaky;

pub use check::{Flaw, check};
pub use problem::{Unsuitable, entries, from_tree};

use crate::card::{Card, Kind, Platform};
use alloc::vec::Vec;
use talea_core::Span;

/// Its catalogue entry.
pub const CARD: Card = Card {
    name: "table-synthesis",
    policy: "off-line table",
    platform: Platform::Global,
    model: "periodic with offsets, jitter, graphs, versions, accelerators",
    kind: Kind::Sufficient,
    paper: "Graham, Bell System Technical Journal 45(9), 1966 (lists); Joslin and Clements, J. Artificial Intelligence Research 10, 1999 (squeaky wheel)",
    sustainable: "costs (entries keep their times)",
    tests: &[
        "crates/talea-analysis/tests/it/offline.rs::whatever_is_found_passes_the_checker_and_the_machine_misses_nothing_with_it",
        "crates/talea-analysis/tests/it/offline.rs::on_one_cpu_without_extras_exactly_the_feasible_sets_are_solved",
    ],
};

/// A way to do a job: a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// Index of the version; `None` for a task that has none.
    pub version: Option<u32>,
    /// Worst cost, at least 1.
    pub cost: Span,
    /// Accelerators that it holds, bit k for number k.
    pub accelerators: u64,
}

/// One job of the hyperperiod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// The task, numbered in the order of the tree.
    pub task: usize,
    /// Not before; an offset in the hyperperiod.
    pub release: Span,
    /// Ended by; an offset in the hyperperiod.
    pub deadline: Span,
    /// When it is really due: after that where the hyperperiod cuts it.
    pub due: Span,
    /// At least one.
    pub choices: Vec<Choice>,
    /// Jobs that must have ended before it begins, with smaller numbers than its own.
    pub after: Vec<usize>,
    /// CPUs that it may use, bit k for CPU k.
    pub cpus: u64,
}

/// What a table is to be made for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Its length.
    pub hyperperiod: Span,
    /// Up to 64.
    pub cpus: u32,
    /// What beginning an entry costs.
    pub overhead: Span,
    /// What of that no job is spared, wherever it runs: what proofs may count.
    pub overhead_least: Span,
    /// Whether a job without accelerators may be computed in several pieces.
    pub preemptive: bool,
    /// Whoever comes first in a chain has the smaller number.
    pub jobs: Vec<Job>,
}

/// An uninterrupted stretch of one job on one CPU, with the overhead at its begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Index into the problem's jobs.
    pub job: usize,
    /// Index into the job's choices, the same in all of its pieces.
    pub choice: usize,
    /// Where.
    pub cpu: u32,
    /// Offset in the hyperperiod.
    pub start: Span,
    /// Offset in the hyperperiod.
    pub end: Span,
}

/// What came of the search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Synthesis {
    /// A table, by start.
    Found {
        /// Its entries.
        pieces: Vec<Piece>,
        /// How often the list was reordered before.
        rounds: u32,
    },
    /// There is none.
    Impossible(Impossible),
    /// None is looked for: this job can't end by its deadline within the hyperperiod if every entry
    /// costs all of the overhead. A table whose entries go on in the next hyperperiod, or that
    /// saves overhead, there may be.
    Narrow {
        /// The job.
        job: usize,
        /// The earliest that it ends so.
        end: Span,
    },
    /// None was found in so many rounds, which proves nothing.
    NotFound {
        /// How many jobs were late in the best try.
        late: usize,
        /// One of them, the latest.
        job: usize,
        /// How late.
        by: Span,
    },
}

/// Why there is no table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Impossible {
    /// Even if nobody else were there, this job could not end in time after what it waits for.
    Chain {
        /// The job.
        job: usize,
        /// The earliest that it can end.
        end: Span,
    },
    /// What must be computed between these offsets is more than all CPUs can do.
    Window {
        /// From.
        from: Span,
        /// To.
        to: Span,
        /// CPU time that is needed at least.
        need: u128,
    },
}

/// Looks for a table, reordering the list up to `rounds` times. The same problem has the same
/// answer. With n jobs in p pieces on m CPUs a round takes O(n · versions · m · p).
///
/// # Panics
/// If the problem is not one: no CPU or more than 64, a job without a choice, without cost, without
/// a CPU, or after a later one.
pub fn synthesize(problem: &Problem, rounds: u32) -> Synthesis {
    problem.assert_well_formed();
    if let Some(why) = bounds::impossible(problem) {
        return Synthesis::Impossible(why);
    }
    let frame = match bounds::Frame::of(problem, |job| job.deadline, problem.overhead) {
        Ok(frame) => frame,
        Err((job, end)) => return Synthesis::Narrow { job, end },
    };
    let answer = squeaky::search(problem, &frame, rounds);
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
            assert!(job.after.iter().all(|&before| before < at), "a job after a later one");
            assert!(job.deadline <= self.hyperperiod, "a job beyond the hyperperiod");
            assert!(job.deadline <= job.due, "due before its deadline");
        }
        assert!(self.overhead_least <= self.overhead, "no overhead is spared more than there is");
        let most = |job: &Job| job.choices.iter().map(|choice| choice.cost + self.overhead).max();
        let all = self.jobs.iter().filter_map(most).try_fold(self.hyperperiod, Span::checked_add);
        assert!(
            all.is_some_and(|all| all.as_ns() <= u64::MAX / 2),
            "more work than times can hold"
        );
    }
}

/// `a − b` where `b` is known not to be larger.
fn minus(a: Span, b: Span) -> Span {
    a.checked_sub(b).expect("not larger")
}
