//! Checker of tables: plain loops over plain definitions, without any code of the search.

use super::model::{Piece, Problem};
use talea_core::Span;
use talea_core::mutate;

/// First flaw of a table. Numbers are indices of pieces or jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// The piece names a missing job, choice or CPU, or is empty.
    InvalidPiece {
        /// Index of the piece.
        piece: usize,
    },
    /// The piece is on a CPU that its job may not use.
    Cpu {
        /// Index of the piece.
        piece: usize,
    },
    /// Two pieces on one CPU, or of one task, overlap.
    Overlap {
        /// Index of the later piece in the table.
        piece: usize,
        /// Index of the earlier piece in the table.
        other: usize,
    },
    /// Two pieces hold the same accelerator at the same time.
    Accelerator {
        /// Index of the later piece in the table.
        piece: usize,
        /// Index of the earlier piece in the table.
        other: usize,
    },
    /// The piece begins before its job is released, or ends after the job's deadline or the
    /// hyperperiod.
    Outside {
        /// Index of the piece.
        piece: usize,
    },
    /// The job has pieces in different versions.
    Versions {
        /// Index of the job.
        job: usize,
    },
    /// The job is preempted although it must not be.
    Interrupted {
        /// Index of the job.
        job: usize,
    },
    /// The job receives an amount of work other than the cost of its version.
    Work {
        /// Index of the job.
        job: usize,
    },
    /// The job starts before a predecessor has completed.
    Order {
        /// Index of the job.
        job: usize,
        /// Index of the predecessor.
        before: usize,
    },
}

/// Checks a table against its problem. The check takes O(p²) for p pieces.
///
/// # Errors
/// The first flaw of the table.
pub fn check(problem: &Problem, pieces: &[Piece]) -> Result<(), Flaw> {
    for (number, piece) in pieces.iter().enumerate() {
        let job = problem.jobs.get(piece.job).ok_or(Flaw::InvalidPiece { piece: number })?;
        if job.choices.get(piece.choice).is_none()
            || piece.cpu >= problem.cpus
            || piece.start >= piece.end
        {
            return Err(Flaw::InvalidPiece { piece: number });
        }
        if job.cpus >> piece.cpu & 1 == 0 {
            return Err(Flaw::Cpu { piece: number });
        }
        if piece.start < job.release || piece.end > job.deadline || piece.end > problem.hyperperiod
        {
            return Err(Flaw::Outside { piece: number });
        }
        for (other, before) in pieces[..number].iter().enumerate() {
            if before.end <= piece.start || piece.end <= before.start {
                continue;
            }
            let (mine, theirs) = (job.task, problem.jobs[before.job].task);
            if before.cpu == piece.cpu || mine == theirs {
                return Err(Flaw::Overlap { piece: number, other });
            }
            let held = |piece: &Piece| problem.jobs[piece.job].choices[piece.choice].accelerators;
            if held(piece) & held(before) != 0 {
                return Err(Flaw::Accelerator { piece: number, other });
            }
        }
    }
    for (number, job) in problem.jobs.iter().enumerate() {
        let mine = || pieces.iter().filter(|piece| piece.job == number);
        let Some(first) = mine().next() else { return Err(Flaw::Work { job: number }) };
        if mine().any(|piece| piece.choice != first.choice) {
            return Err(Flaw::Versions { job: number });
        }
        let choice = &job.choices[first.choice];
        if mine().count() > 1 && (!problem.preemptive || choice.accelerators != 0) {
            return Err(Flaw::Interrupted { job: number });
        }
        let useful =
            |piece: &Piece| piece.end.checked_sub(piece.start)?.checked_sub(problem.overhead);
        let work = mine().try_fold(Span::ZERO, |sum, piece| Some(sum + useful(piece)?));
        if work != Some(choice.cost) {
            return Err(Flaw::Work { job: number });
        }
        for &before in &job.predecessors {
            let ended =
                pieces.iter().filter(|piece| piece.job == before).map(|piece| piece.end).max();
            if mutate!(
                "offline-chain",
                ended.is_none_or(|end| mine().any(|piece| piece.start < end)),
                ended.is_none_or(|end| mine().any(|piece| piece.start < end) && false)
            ) {
                return Err(Flaw::Order { job: number, before });
            }
        }
    }
    Ok(())
}
