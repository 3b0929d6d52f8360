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
mod model;
mod necessary;
mod problem;
mod squeaky_wheel;

pub use check::{Flaw, check};
pub use model::{Choice, Infeasible, Job, Piece, Problem, Synthesis};
pub use problem::{Unsuitable, entries, from_tree};

use crate::test_info::{Platform, TestInfo, TestKind};

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
