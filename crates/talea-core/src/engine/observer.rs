//! Observation of a running engine: the signals of SF3P's Table I.

use super::ids::NodeId;
use crate::Time;

/// Signals between a runnable and its parent (SF3P Table I).
///
/// `Ready` goes from child to parent, as in the paper's figures (docs/model.md, section 2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Signal {
    /// Parent to child: the child has the CPU.
    Activate,
    /// Parent to child: the child has lost the CPU.
    Deactivate,
    /// Child to parent: the child has become eligible.
    Ready,
    /// Child to parent: the child is no longer eligible.
    Finished,
    /// Child to parent: the criteria of the child have changed.
    Update,
}

/// Receiver of signals. The type `()` receives none and costs nothing.
pub trait Observer {
    /// Whether the engine reports signals.
    const ENABLED: bool;
    /// Receives a `signal` about `node`, the child of the pair.
    fn on_signal(&mut self, now: Time, signal: Signal, node: NodeId);
}

impl Observer for () {
    const ENABLED: bool = false;
    fn on_signal(&mut self, _now: Time, _signal: Signal, _node: NodeId) {}
}
