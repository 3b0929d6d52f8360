//! Tasks of a description, as the tests want them.

use super::answer::{NoTest, Reason};
use crate::Sporadic;
use crate::uni::LONGEST;
use talea_core::machine::{Body, NodeId, TaskSpec, Tree};
use talea_core::workload::{Act, Arrivals, Cost, Source};
use talea_core::{Span, Work};

/// A task with what it is ordered by.
#[derive(Clone, Copy, Debug)]
pub(super) struct Leaf {
    pub(super) task: Sporadic,
    pub(super) priority: u8,
    pub(super) criticality: u8,
    /// What `rm` orders by.
    pub(super) period: Span,
}

/// The leaf at `node`.
pub(super) fn leaf(tree: &Tree, node: NodeId, spec: &TaskSpec, source: &Source) -> Result<Leaf, NoTest> {
    let no = |reason| NoTest { node, reason };
    if spec.inherits || tree.channels.iter().any(|channel| channel.from == node || channel.to == node) {
        return Err(no(Reason::Graph));
    }
    if spec.versions.iter().any(|version| !version.accelerators.is_empty()) {
        return Err(no(Reason::Accelerators));
    }
    if let Some(reason) = marks(&source.cost) {
        return Err(no(reason));
    }
    let (period, jitter) = match &source.arrivals {
        Arrivals::Periodic { period, jitter, .. } => (*period, *jitter),
        Arrivals::Sporadic { separation, .. } => (*separation, Span::ZERO),
        Arrivals::List(_) if spec.enforced => (spec.period, Span::ZERO),
        Arrivals::List(times) => {
            let apart = times.windows(2).map(|two| two[1].since(two[0])).min();
            (apart.unwrap_or(Span::from_ns(LONGEST - 1)), Span::ZERO)
        }
    };
    if period.is_zero() {
        return Err(no(Reason::Arrivals));
    }
    // A job without work still has to be ordered to run: as one of a nanosecond.
    let cost = source.cost.most().max(Work::from_ns(1));
    let numbers = [period, jitter, spec.deadline, Span::from_ns(cost.as_ns())];
    if numbers.iter().any(|number| number.as_ns() >= LONGEST) {
        return Err(no(Reason::Limit));
    }
    let task = Sporadic { jitter, ..Sporadic::new(cost, period, spec.deadline) };
    Ok(Leaf { task, priority: spec.priority, criticality: spec.criticality, period: spec.period })
}

fn marks(cost: &Cost) -> Option<Reason> {
    match cost {
        Cost::Versions(costs) => costs.iter().find_map(marks),
        Cost::Marked { marks, .. } => marks.iter().find_map(|mark| match mark.act {
            Act::Suspend(_) => Some(Reason::Suspension),
            Act::Push(..) | Act::Pop(..) => Some(Reason::Graph),
            Act::Lock(_) | Act::Unlock(_) => None,
        }),
        _ => None,
    }
}

/// Whether there is a scheduler of which `is` holds.
pub(super) fn any_scheduler(
    tree: &Tree,
    is: impl Fn(&talea_core::machine::SchedulerSpec) -> bool,
) -> Option<NodeId> {
    tree.nodes().find_map(|(id, node)| match &node.body {
        Body::Scheduler(spec) if is(spec) => Some(id),
        _ => None,
    })
}
