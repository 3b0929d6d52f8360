//! Tasks of a description, as the tests want them.

use super::answer::{NoTest, Reason};
use crate::Sporadic;
use crate::uni::LONGEST;
use talea_core::machine::{Body, NodeId, TaskSpec, Tree};
use talea_core::mutate;
use talea_core::workload::{Act, Arrivals, Cost, Source};
use talea_core::{Span, Work};

/// A task, and how far its source goes along with the worst case.
#[derive(Clone, Copy, Debug)]
pub(super) struct Leaf {
    pub(super) task: Sporadic,
    pub(super) reach: Reach,
}

/// Which worst cases a source can bring about: jobs as close as can be, each at its worst cost,
/// from an instant on that suits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    /// From any instant on, at some time: sporadic jobs that may come late drift through all of
    /// them.
    Any,
    /// From one that is given in each period, the first being seen as late as can be.
    Fixed {
        /// The first, as seen.
        first: Span,
        /// How late that is.
        jitter: Span,
    },
    /// None that is known.
    None,
}

/// The leaf at `node`.
pub(super) fn leaf(
    tree: &Tree,
    node: NodeId,
    spec: &TaskSpec,
    source: &Source,
) -> Result<Leaf, NoTest> {
    let no = |reason| NoTest { node, reason };
    // First what stops everybody: whoever waits for one lends his urgency to others, wherever they
    // are.
    if spec.versions.iter().any(|version| !version.accelerators.is_empty()) {
        return Err(no(Reason::Accelerators));
    }
    if spec.inherits
        || tree.channels.iter().any(|channel| channel.from == node || channel.to == node)
    {
        return Err(no(Reason::Graph));
    }
    if source.is_endless() {
        return Err(no(Reason::Endless));
    }
    if let Some(reason) = marks(&source.cost) {
        return Err(no(reason));
    }
    let (period, jitter) = match &source.arrivals {
        Arrivals::Periodic { period, jitter, .. } => (*period, *jitter),
        Arrivals::Sporadic { separation, .. } => (*separation, Span::ZERO),
        Arrivals::List(_) | Arrivals::Seen(_) if spec.enforced => (spec.period, Span::ZERO),
        // Jobs that somebody activates, whenever he likes (docs/model.md, section 3).
        Arrivals::List(times) if times.is_empty() => return Err(no(Reason::Arrivals)),
        Arrivals::Seen(times) => {
            let apart = times.windows(2).map(|two| two[1].0.since(two[0].0)).min();
            let late = times.iter().map(|&(nominal, seen)| seen.max(nominal).since(nominal)).max();
            (apart.unwrap_or(Span::from_ns(LONGEST - 1)), late.unwrap_or(Span::ZERO))
        }
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
    let task = mutate!(
        "tree-jitter",
        Sporadic { jitter, ..Sporadic::new(cost, period, spec.deadline) },
        Sporadic {
            jitter: Span::from_ns(jitter.as_ns() / 8),
            ..Sporadic::new(cost, period, spec.deadline)
        }
    );
    let reach = if spec.enforced || !reaches_most(&source.cost) {
        Reach::None
    } else {
        match source.arrivals {
            Arrivals::Sporadic { slack, .. } if !slack.is_zero() => Reach::Any,
            Arrivals::Sporadic { offset, .. } => Reach::Fixed { first: offset, jitter },
            Arrivals::Periodic { offset, .. } => offset
                .checked_add(jitter)
                .map_or(Reach::None, |first| Reach::Fixed { first, jitter }),
            Arrivals::List(_) | Arrivals::Seen(_) => Reach::None,
        }
    };
    Ok(Leaf { task, reach })
}

/// Whether all jobs in a row may cost the most.
fn reaches_most(cost: &Cost) -> bool {
    mutate!(
        "tree-exact-costs",
        match cost {
            // Nothing is reckoned with as a nanosecond.
            Cost::Constant(most) | Cost::Uniform { max: most, .. } => !most.is_zero(),
            Cost::Pair { high, share, .. } => *share > 0 && !high.is_zero(),
            Cost::List(list) => list.iter().all(|one| *one == cost.most() && !one.is_zero()),
            Cost::Versions(costs) =>
                costs.iter().all(|one| one.most() == cost.most() && reaches_most(one)),
            Cost::Marked { of, .. } => reaches_most(of),
        },
        match cost {
            // Nothing is reckoned with as a nanosecond.
            Cost::Constant(most) | Cost::Uniform { max: most, .. } => !most.is_zero(),
            Cost::Pair { high, .. } => !high.is_zero(),
            Cost::List(list) => list.iter().all(|one| *one == cost.most() && !one.is_zero()),
            Cost::Versions(costs) =>
                costs.iter().all(|one| one.most() == cost.most() && reaches_most(one)),
            Cost::Marked { of, .. } => reaches_most(of),
        }
    )
}

/// Something that jobs do on their way of which no test is known.
pub(super) fn marks(cost: &Cost) -> Option<Reason> {
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
