//! Choice of the mechanism of a root, and its reason.

use crate::root_shared::PriorityControl;
use std::fmt;

/// Mechanism that the caller requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RequestedMechanism {
    /// The engine decides. The rights of the process determine the mechanism that applies the
    /// orders.
    #[default]
    Engine,
    /// Linux alone schedules. If Linux cannot, there is no run.
    Linux,
}

/// Mechanism of a root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MechanismKind {
    /// The dispatcher sets priorities.
    Priority,
    /// A signal stops threads and a futex resumes them, without priorities.
    Signal,
    /// The dispatcher freezes and thaws the cgroups of programs.
    Freeze,
    /// The dispatcher sets priorities of threads, and freezes and thaws the cgroups of programs.
    PriorityAndFreeze,
    /// Linux schedules.
    Linux,
}

impl fmt::Display for MechanismKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            MechanismKind::Priority => "priority",
            MechanismKind::Signal => "signal",
            MechanismKind::Freeze => "freeze",
            MechanismKind::PriorityAndFreeze => "priority and freeze",
            MechanismKind::Linux => "linux",
        })
    }
}

/// Mechanism of a root and the reason for it, for reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MechanismChoice {
    /// Mechanism.
    pub kind: MechanismKind,
    /// Reason for the mechanism.
    pub reason: String,
}

impl MechanismChoice {
    /// Chooses the mechanism that applies the orders of the engine on a root with these tasks and
    /// programs.
    pub(crate) fn for_orders(
        hold: PriorityControl,
        tasks: usize,
        programs: usize,
    ) -> MechanismChoice {
        let (means, why) = match (hold, programs) {
            (PriorityControl::None, _) => {
                (MechanismKind::Signal, "threads have no real-time priorities")
            }
            (PriorityControl::Fixed, _) => {
                (MechanismKind::Signal, "priorities were granted once and are fixed")
            }
            (PriorityControl::Full, 0) => {
                (MechanismKind::Priority, "the dispatcher sets priorities")
            }
            (PriorityControl::Full, some) if some == tasks => {
                (MechanismKind::Freeze, "programs are frozen as cgroups")
            }
            (PriorityControl::Full, _) => {
                (MechanismKind::PriorityAndFreeze, "priorities for threads, cgroups for programs")
            }
        };
        MechanismChoice { kind: means, reason: why.to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_root_gets_the_mechanism_for_its_tasks_and_rights() {
        let name = |hold, tasks, programs| {
            MechanismChoice::for_orders(hold, tasks, programs).kind.to_string()
        };
        assert_eq!(name(PriorityControl::Full, 3, 0), "priority");
        assert_eq!(name(PriorityControl::Full, 3, 3), "freeze");
        assert_eq!(name(PriorityControl::Full, 3, 1), "priority and freeze");
        assert_eq!(name(PriorityControl::None, 3, 0), "signal");
        assert_eq!(MechanismKind::Linux.to_string(), "linux");
    }
}
