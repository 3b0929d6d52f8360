//! Trees that follow each other in a running root.

use talea_core::Time;
use talea_core::engine::{Condition, Engine, SwitchCause, SwitchRule};

/// Tree that a root of a run has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TreeInForce {
    /// Number of the [`SwitchRequest`](crate::SwitchRequest); 0 for the tree of the plan.
    pub number: u64,
    /// Run time at which the tree began: the start of its first frames.
    pub began: Time,
    /// Cause of the switch; `None` for the tree of the plan.
    pub cause: Option<SwitchCause>,
}

/// Engine of the tree to which a root switches. After the switch, what the root had before.
#[derive(Debug)]
pub(crate) struct Successor {
    /// Number by which the caller knows the tree.
    pub(crate) number: u64,
    pub(crate) engine: Engine,
    pub(crate) rule: SwitchRule,
    /// Changes of conditions since the switch instant, in order of time.
    pub(crate) changes: Vec<(Time, Condition)>,
}
