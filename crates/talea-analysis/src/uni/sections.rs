//! Sections of a job that no other job of the same CPU preempts.

use crate::Sporadic;
use crate::verdict::Inconclusive;
use talea_core::Work;

/// Non-preemptive sections of each job of a task.
///
/// | model | `longest` | `last` |
/// | --- | --- | --- |
/// | preemptive | 1 ns | 1 ns |
/// | non-preemptive | C | C |
/// | fixed preemption points | the longest section | the section after the last point |
/// | floating sections | the longest section | 1 ns |
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Sections {
    /// Length of the longest section, from 1 ns to the cost.
    pub longest: Work,
    /// Length of the section that ends with the job, from 1 ns to `longest`.
    pub last: Work,
}

impl Sections {
    /// Preemptive job: each nanosecond is a section.
    pub const PREEMPTIVE: Sections = Sections { longest: Work::from_ns(1), last: Work::from_ns(1) };

    /// Returns the section of a non-preemptive job of `task`.
    pub fn whole(task: &Sporadic) -> Sections {
        Sections { longest: task.cost, last: task.cost }
    }

    /// Returns the longest blocking by a section: it has begun at least a nanosecond before.
    pub(crate) fn blocking(self) -> u64 {
        self.longest.as_ns() - 1
    }

    /// Returns the part of the last section after its first nanosecond.
    pub(crate) fn tail(self) -> u64 {
        self.last.as_ns() - 1
    }

    /// Checks that the sections are within a job of this cost, of the task number `task`.
    ///
    /// # Errors
    /// [`Inconclusive::Assumption`] 8.
    pub(crate) fn check(self, cost: u64, task: usize) -> Result<Sections, Inconclusive> {
        let (longest, last) = (self.longest.as_ns(), self.last.as_ns());
        if 1 <= last && last <= longest && longest <= cost {
            Ok(self)
        } else {
            Err(Inconclusive::Assumption { number: 8, task })
        }
    }
}
