//! What became of a run.

use crate::dispatcher::Effort;
use crate::holes::Hole;
use crate::mechanism::Chosen;
use crate::mechanism::audit::Consumed;
use crate::native;
use crate::programs::ProgramReport;
use crate::record::Entry;
use crate::rights::Standing;
use crate::stretch::{self, Stretch};
use crate::tally::Tally;
use crate::truth::{Ran, Stood};
use std::fmt;
use std::io;
use talea_core::machine::TreeError;
use talea_core::{Span, Time, Work};

/// What became of a root.
#[derive(Clone, Debug)]
pub struct RootReport {
    /// By what its tasks were made to run.
    pub chosen: Chosen,
    /// What its workers have seen, where no machine gave orders; then there is no record.
    pub native: Option<native::Course>,
    /// What went into its machine and what came out.
    pub record: Vec<Entry>,
    /// Entries that found no room; then the record ends where the first of them should be.
    pub lost: u64,
    /// By task.
    pub consumed: Vec<Consumed>,
    /// By CPU.
    pub effort: Vec<Effort>,
    /// Jobs for which there was no room.
    pub refused: u64,
    /// By task: what became of its jobs, recorded or not.
    pub tallies: Vec<Tally>,
    /// By task: of those that are programs.
    pub programs: Vec<Option<ProgramReport>>,
    /// When its CPUs did less than they were told to, as far as its workers were audited: in the
    /// order of their ends.
    pub stretches: Vec<Stretch>,
    /// Who really ran where and when, by the kernel's word, if it was asked and has lost nothing.
    pub ran: Option<Vec<Ran>>,
    /// When its CPUs were idle or had one of the run's dispatchers, in the same way.
    pub stood: Option<Vec<Stood>>,
}

impl RootReport {
    /// What dispatchers have used, and workers beside their jobs: a worker that has finished, or
    /// whose job comes, steps the machine itself. SF3P's scheduler overhead. Of a run that was not
    /// audited only what dispatchers have used.
    pub fn scheduling(&self) -> Work {
        let dispatchers: u64 = self.effort.iter().map(|effort| effort.used.as_ns()).sum();
        let workers: u64 = self.consumed.iter().map(|consumed| consumed.stray().as_ns()).sum();
        Work::from_ns(dispatchers + workers)
    }

    /// For how long CPUs belonged to workers that got nothing done.
    pub fn stretched(&self) -> Span {
        match &self.native {
            Some(course) => course.stretched(self.ran.as_deref()),
            None => stretch::of(self),
        }
    }
}

/// What became of a run.
#[derive(Clone, Debug)]
pub struct Report {
    /// When it began, on the machine's monotonic clock: time zero of everything else here.
    pub zero: Time,
    /// By root.
    pub roots: Vec<RootReport>,
    /// On all CPUs, where a monitor looked.
    pub holes: Vec<Hole>,
    /// How long it was: shorter than planned if it was called off.
    pub length: Span,
    /// How the kernel scheduled its threads when it began.
    pub standing: Standing,
}

/// Why there was no run, or no end to it.
#[derive(Debug)]
pub enum Failure {
    /// The plan can't be executed.
    Plan(String),
    /// A tree can't be built.
    Tree(TreeError),
    /// The kernel refused something that needs a right: CAP_SYS_NICE, or RLIMIT_RTPRIO up to the
    /// watchdog's priority.
    NoRight(io::Error),
    /// The kernel refused something else.
    Os(io::Error),
    /// It did not end by itself and was ended.
    Hung,
    /// Whoever decides who runs panicked, a policy or a chooser of versions that is not Talea's
    /// most likely, and said this. What the machine held then is not known, so the run was ended at
    /// once.
    Fell(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Plan(why) => f.write_str(why),
            Failure::Tree(wrong) => write!(f, "node {} of the tree: {}", wrong.node.0, wrong.why),
            Failure::NoRight(error) => write!(
                f,
                "no right to real-time priorities ({error}): run it as root or with CAP_SYS_NICE, outside control \
                 groups without real-time runtime; `talea simulate` needs no right"
            ),
            Failure::Os(error) => write!(f, "the kernel refused: {error}"),
            Failure::Hung => {
                f.write_str("the run did not end by itself and was ended by its watchdog")
            }
            Failure::Fell(said) => write!(
                f,
                "what decides who runs panicked, and the run was ended: {said} (a policy or a chooser of versions of yours may not \
                 panic; where there is none, it is a bug of Talea's)"
            ),
        }
    }
}

impl std::error::Error for Failure {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Failure::NoRight(error) | Failure::Os(error) => Some(error),
            _ => None,
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        if error.kind() == io::ErrorKind::PermissionDenied {
            Failure::NoRight(error)
        } else {
            Failure::Os(error)
        }
    }
}
