//! Competition of a node: the supply, interference and blocking that its bound accounts for.

use super::node_supply::NodeSupply;
use crate::supply::InterferenceCurve;
use alloc::vec::Vec;
use talea_core::engine::NodeId;

/// Supply, interference and blocking under which a task or a server competes.
#[derive(Clone, Debug)]
pub(super) struct Context {
    pub(super) supply: NodeSupply,
    /// Interference: curves of all work that is served before the node.
    pub(super) above: Vec<InterferenceCurve>,
    /// Blocking once per busy window, in nanoseconds.
    pub(super) blocking: u64,
    /// Scheduler whose deadlines order the other competitors. With `true` the arrivals order them
    /// instead.
    pub(super) level: Option<(NodeId, bool)>,
    /// Interfering tasks of a flat task set: only tasks, directly below a dedicated CPU. The
    /// sources of these tasks alone decide whether a bound is exact.
    pub(super) flat: Option<Vec<NodeId>>,
    /// Flat task set below a non-preemptive root.
    pub(super) non_preemptive: Option<NonPreemptive>,
}

impl Context {
    /// Creates a context without interference on `supply`.
    pub(super) fn top(supply: NodeSupply) -> Context {
        Context {
            supply,
            above: Vec::new(),
            blocking: 0,
            level: None,
            flat: None,
            non_preemptive: None,
        }
    }
}

/// Flat task set on a non-preemptive CPU.
#[derive(Clone, Debug)]
pub(super) struct NonPreemptive {
    /// Interfering tasks; empty under EDF.
    pub(super) above: Vec<NodeId>,
    /// Other tasks. A job of one of them may have started before the release.
    pub(super) below: Vec<NodeId>,
}
