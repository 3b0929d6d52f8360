//! By what the tasks of a root are made to run, and why by that.

use crate::stage::Hold;
use std::fmt;

/// What whoever asks for a run wants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wish {
    /// The scheduler machine decides, and its orders are obeyed by what there is a right to.
    #[default]
    Machine,
    /// Linux alone, or no run.
    Native,
}

/// What a root got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Means {
    /// The dispatcher moves priorities.
    Flip,
    /// Threads are stopped and let go, without priorities.
    Gates,
    /// Programs are frozen and let go as groups.
    Freeze,
    /// Threads by priorities, programs as groups.
    FlipAndFreeze,
    /// Linux produces the schedule.
    Native,
}

impl fmt::Display for Means {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Means::Flip => "flip",
            Means::Gates => "gates",
            Means::Freeze => "freeze",
            Means::FlipAndFreeze => "flip and freeze",
            Means::Native => "native",
        })
    }
}

/// Both, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chosen {
    /// What.
    pub means: Means,
    /// Why.
    pub why: String,
}

impl Chosen {
    /// What obeys the machine's orders on a root with so many tasks, of which so many are programs.
    pub(crate) fn for_orders(hold: Hold, tasks: usize, programs: usize) -> Chosen {
        let (means, why) = match (hold, programs) {
            (Hold::Nothing, _) => (Means::Gates, "threads have no real-time priorities"),
            (Hold::Given, _) => (Means::Gates, "priorities were given once and are not moved"),
            (Hold::Own, 0) => (Means::Flip, "the dispatcher moves priorities"),
            (Hold::Own, some) if some == tasks => (Means::Freeze, "programs are stopped as groups"),
            (Hold::Own, _) => (Means::FlipAndFreeze, "priorities for threads, groups for programs"),
        };
        Chosen { means, why: why.to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_root_gets_what_fits_its_tasks_and_its_rights() {
        let name =
            |hold, tasks, programs| Chosen::for_orders(hold, tasks, programs).means.to_string();
        assert_eq!(name(Hold::Own, 3, 0), "flip");
        assert_eq!(name(Hold::Own, 3, 3), "freeze");
        assert_eq!(name(Hold::Own, 3, 1), "flip and freeze");
        assert_eq!(name(Hold::Nothing, 3, 0), "gates");
        assert_eq!(Means::Native.to_string(), "native");
    }
}
