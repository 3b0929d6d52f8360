//! Sporadic model of each described task.

use super::task_bound::{NoBound, Reason};
use crate::Sporadic;
use crate::uni::MAX_PARAMETER_NS;
use talea_core::engine::{NodeId, NodeSpec, Preemption, TaskSpec, Tree};
use talea_core::mutate;
use talea_core::workload::{Arrivals, Cost, Source, StepAction};
use talea_core::{Span, Work};

/// Sporadic model of a task, with the phasings that its source can produce.
#[derive(Clone, Copy, Debug)]
pub(super) struct TaskModel {
    pub(super) task: Sporadic,
    pub(super) phasing: Phasing,
}

/// Worst-case phasings that a source can produce: jobs at minimum separation, each at its worst
/// cost, from some instant on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phasing {
    /// Any instant: a sporadic source with extra separation drifts through all phasings.
    Free,
    /// The first job is released as late as possible, at a fixed offset in each period.
    Fixed {
        /// Latest release of the first job.
        first: Span,
        /// Delay from the arrival of the first job to its release.
        jitter: Span,
    },
    /// No worst-case phasing is known.
    Unknown,
}

/// Returns the model of the task at `node`.
pub(super) fn read_task(
    tree: &Tree,
    node: NodeId,
    spec: &TaskSpec,
    source: &Source,
) -> Result<TaskModel, NoBound> {
    let no = |reason| NoBound { node, reason };
    // Accelerators first, because they affect every task: a waiting task lends its priority to the
    // holder.
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
    let polls = polls(&source.cost);
    if polls && (!spec.uses.is_empty() || spec.preemption != Preemption::Anywhere) {
        return Err(no(Reason::Suspension));
    }
    if let Some(reason) = unsupported_action(&source.cost).filter(|_| !polls) {
        return Err(no(reason));
    }
    let (period, jitter) = match &source.arrivals {
        Arrivals::Periodic { period, jitter, .. } => (*period, *jitter),
        Arrivals::Sporadic { separation, .. } => (*separation, Span::ZERO),
        // Deadlines count from the release, which no sporadic model with jitter states.
        Arrivals::Curve { .. } => return Err(no(Reason::ArrivalCurve)),
        Arrivals::List(_) | Arrivals::Observed(_) if spec.enforced => (spec.period, Span::ZERO),
        // User activations without minimum separation (docs/model.md, section 3).
        Arrivals::List(times)
            if mutate!(
                "tree-activated",
                times.is_empty(),
                times.is_empty() && spec.period.is_zero()
            ) =>
        {
            return Err(no(Reason::Arrivals));
        }
        Arrivals::Observed(times) => {
            let apart = times.windows(2).map(|two| two[1].0.since(two[0].0)).min();
            let late = times.iter().map(|&(nominal, seen)| seen.max(nominal).since(nominal)).max();
            (apart.unwrap_or(Span::from_ns(MAX_PARAMETER_NS - 1)), late.unwrap_or(Span::ZERO))
        }
        Arrivals::List(times) => {
            let apart = times.windows(2).map(|two| two[1].since(two[0])).min();
            (apart.unwrap_or(Span::from_ns(MAX_PARAMETER_NS - 1)), Span::ZERO)
        }
    };
    let period = if period.is_zero() {
        mutate!("analysis-bursts-anywhere", return Err(no(Reason::Arrivals)), Span::from_ns(1_000))
    } else {
        period
    };
    // A job without work is dispatched nevertheless: one nanosecond.
    let cost = mutate!("tree-polling", source.cost.max_with_polling(), source.cost.max())
        .max(Work::from_ns(1));
    let numbers = [period, jitter, spec.deadline, Span::from_ns(cost.as_ns())];
    if numbers.iter().any(|number| number.as_ns() >= MAX_PARAMETER_NS) {
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
    // A device also works while the job is preempted, so polling may cost less.
    let phasing = if spec.enforced || polls || !can_always_cost_most(&source.cost) {
        Phasing::Unknown
    } else {
        match source.arrivals {
            Arrivals::Sporadic { extra_separation: slack, .. } if !slack.is_zero() => Phasing::Free,
            Arrivals::Sporadic { offset, .. } => Phasing::Fixed { first: offset, jitter },
            Arrivals::Periodic { offset, .. } => offset
                .checked_add(jitter)
                .map_or(Phasing::Unknown, |first| Phasing::Fixed { first, jitter }),
            Arrivals::Curve { .. } | Arrivals::List(_) | Arrivals::Observed(_) => Phasing::Unknown,
        }
    };
    Ok(TaskModel { task, phasing })
}

/// Whether all jobs of a sequence can have the maximum cost.
pub(super) fn can_always_cost_most(cost: &Cost) -> bool {
    mutate!(
        "tree-exact-costs",
        match cost {
            // Zero cost is modelled as a nanosecond.
            Cost::Constant(most) | Cost::Uniform { max: most, .. } => !most.is_zero(),
            Cost::Pair { high, share, .. } => *share > 0 && !high.is_zero(),
            Cost::List(list) => list.iter().all(|one| *one == cost.max() && !one.is_zero()),
            Cost::Versions(costs) =>
                costs.iter().all(|one| one.max() == cost.max() && can_always_cost_most(one)),
            Cost::WithSteps { base: of, .. } => can_always_cost_most(of),
        },
        match cost {
            // Zero cost is modelled as a nanosecond.
            Cost::Constant(most) | Cost::Uniform { max: most, .. } => !most.is_zero(),
            Cost::Pair { high, .. } => !high.is_zero(),
            Cost::List(list) => list.iter().all(|one| *one == cost.max() && !one.is_zero()),
            Cost::Versions(costs) =>
                costs.iter().all(|one| one.max() == cost.max() && can_always_cost_most(one)),
            Cost::WithSteps { base: of, .. } => can_always_cost_most(of),
        }
    )
}

/// Whether the only actions of jobs are waits for devices that the jobs poll.
fn polls(cost: &Cost) -> bool {
    let is_polling = |cost: &&Cost| match cost {
        Cost::WithSteps { steps, .. } => steps
            .iter()
            .all(|step| matches!(step.action, StepAction::Occupy { is_spinning: true, .. })),
        _ => true,
    };
    let versions = cost.by_version();
    versions.iter().any(|cost| matches!(cost, Cost::WithSteps { .. }))
        && versions.iter().all(is_polling)
}

/// Returns a reason if jobs contain an action for which no test is known.
pub(super) fn unsupported_action(cost: &Cost) -> Option<Reason> {
    match cost {
        Cost::Versions(costs) => costs.iter().find_map(unsupported_action),
        Cost::WithSteps { steps, .. } => steps.iter().find_map(|step| match step.action {
            StepAction::Suspend(_) | StepAction::Occupy { .. } => Some(Reason::Suspension),
            StepAction::Push(..) | StepAction::Pop(..) => Some(Reason::Graph),
            StepAction::PreemptionPoint | StepAction::FloatingSections { .. } => {
                Some(Reason::Sections)
            }
            StepAction::Lock(_) | StepAction::Unlock(_) => None,
        }),
        _ => None,
    }
}

/// Returns a scheduler that satisfies `is`, if any.
pub(super) fn find_scheduler(
    tree: &Tree,
    is: impl Fn(&talea_core::engine::SchedulerSpec) -> bool,
) -> Option<NodeId> {
    tree.nodes().find_map(|(id, node)| match &node.spec {
        NodeSpec::Scheduler(spec) if is(spec) => Some(id),
        _ => None,
    })
}
