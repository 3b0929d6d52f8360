//! Looking at a machine at work: the events of SF3P's Table I.

use super::tree::NodeId;
use crate::Time;

/// What passes between a runnable and its parent (SF3P Table I). `Ready` goes from child to parent,
/// as the paper draws it (docs/model.md, section 2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Signal {
    /// Parent to child: it has the CPU.
    Activate,
    /// Parent to child: it has it no longer.
    Deactivate,
    /// Child to parent: it has something to run.
    Ready,
    /// Child to parent: it has nothing to run any more.
    Finished,
    /// Child to parent: its criteria have changed.
    Update,
}

/// Whoever wants to see them. `()` sees nothing and costs nothing.
pub trait Watch {
    /// Whether anybody looks.
    const ON: bool;
    /// `signal` concerns `node`, as child.
    fn see(&mut self, now: Time, signal: Signal, node: NodeId);
}

impl Watch for () {
    const ON: bool = false;
    fn see(&mut self, _now: Time, _signal: Signal, _node: NodeId) {}
}
