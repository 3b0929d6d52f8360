//! Writer of `[[task]]` with its versions, critical sections and suspensions.

use super::values::{Unwritable, bits, cpus, pair, span, time, unless, unwritable, work};
use crate::keys::{FAILURE_ACTIONS, RESTART_EXITS};
use talea_config::write::text;
use talea_core::engine::{Affinity, Backlog, NodeId, Preemption, TaskSpec, Tree};
use talea_core::health::{Health, OnFailure, Restart, RestartOn};
use talea_core::workload::distances::DistanceSpec;
use talea_core::workload::{Arrivals, Cost, JobStep, Source, StepAction};
use talea_core::{Span, Work};

/// Position of a task in the tree.
pub(super) struct Place<'t> {
    pub(super) tree: &'t Tree,
    pub(super) id: NodeId,
    /// Name of the scheduler above the task.
    pub(super) parent: &'t str,
    /// Whether an offset of zero is written, too.
    pub(super) phases_known: bool,
    /// Whether jobs read at their release and write at their deadline.
    pub(super) is_logical: bool,
}

/// Program of a task.
pub(super) struct Program<'t> {
    pub(super) words: &'t [String],
    pub(super) user: Option<&'t str>,
    pub(super) health: &'t Health,
}

pub(super) fn write(
    out: &mut String,
    place: &Place<'_>,
    spec: &TaskSpec,
    source: &Source,
    program: Option<&Program<'_>>,
) -> Result<(), Unwritable> {
    out.push_str("\n[[task]]\n");
    pair(out, "name", &text(&spec.name));
    pair(out, "in", &text(place.parent));
    if let Some(program) = program {
        let words: Vec<String> = program.words.iter().map(|word| text(word)).collect();
        pair(out, "program", &format!("[{}]", words.join(", ")));
        if let Some(user) = program.user {
            pair(out, "user", &text(user));
        }
        health(out, program.health);
    }
    if program.is_some() && source.is_endless() {
        // It always wants the CPU, and is never late.
        standing(out, place, spec);
        return Ok(());
    }
    if !spec.inherits {
        pair(out, "period", &span(spec.period));
        unless(spec.period, spec.deadline, |deadline| pair(out, "deadline", &span(deadline)));
    }
    if spec.enforced {
        pair(out, "enforce", "true");
    }
    if place.is_logical {
        pair(out, "logical_execution_time", "true");
    }
    standing(out, place, spec);
    if let Some(cost) = source.cost.by_version().first() {
        preemption(out, spec, cost);
    }
    if !is_activated(place) {
        arrivals(out, place, spec, &source.arrivals)?;
    }
    let costs = source.cost.by_version();
    if spec.versions.is_empty() {
        let [cost] = costs[..] else {
            return unwritable(&spec.name, "its one version has several costs");
        };
        pair(out, "cost", &self::cost(cost));
        marks(out, place, spec, cost)?;
        waits(cost).for_each(|step| wait(out, step, None));
        return Ok(());
    }
    // Keys of the task itself stand before its tables.
    for (at, version) in spec.versions.iter().enumerate() {
        let Some(cost) = costs.get(at).or(costs.last()) else {
            return unwritable(&spec.name, "its versions have no cost");
        };
        out.push_str("\n[[task.version]]\n");
        pair(out, "name", &text(&version.name));
        pair(out, "cost", &self::cost(cost));
        let names =
            version.accelerators.iter().map(|id| text(&place.tree.accelerators[id.0 as usize]));
        let names: Vec<String> = names.collect();
        unless("", names.join(", ").as_str(), |names| {
            pair(out, "accelerators", &format!("[{names}]"));
        });
        unless(0, version.energy, |energy| pair(out, "energy", &energy.to_string()));
        // As long as it may take at most, unless something else is said.
        if version.time != cost.max() {
            pair(out, "time", &work(version.time));
        }
        unless(u64::MAX, version.modes, |modes| pair(out, "modes", &bits(modes)));
        unless(0, version.needs, |needs| pair(out, "needs", &bits(needs)));
    }
    let Some(first) = costs.first() else { return Ok(()) };
    marks(out, place, spec, first)?;
    // A wait of all versions is written once.
    let all_wait = costs.iter().all(|cost| waits(cost).eq(waits(first)));
    if all_wait {
        waits(first).for_each(|step| wait(out, step, None));
    } else {
        for (cost, version) in costs.iter().zip(&spec.versions) {
            waits(cost).for_each(|step| wait(out, step, Some(&version.name)));
        }
    }
    Ok(())
}

/// Writes the health of a program.
fn health(out: &mut String, health: &Health) {
    if let Some(ready) = health.ready {
        pair(out, "ready", &span(ready));
    }
    let [_, idle, ignore] = FAILURE_ACTIONS;
    unless(OnFailure::Restart, health.on_failure, |action| {
        pair(out, "on_failure", &text(if action == OnFailure::Idle { idle } else { ignore }));
    });
    unless(Restart::default(), health.restart, |restart| {
        let [failure, always] = RESTART_EXITS;
        let when = if restart.when == RestartOn::Always { always } else { failure };
        let (within, backoff) = (span(restart.within), span(restart.backoff));
        let (when, attempts) = (text(when), restart.attempts);
        let values = format!(
            "{{ when = {when}, attempts = {attempts}, within = {within}, backoff = {backoff} }}"
        );
        pair(out, "restart", &values);
    });
}

/// Returns the waits of a job for devices.
fn waits(cost: &Cost) -> impl Iterator<Item = &JobStep> {
    let steps = match cost {
        Cost::WithSteps { steps, .. } => &steps[..],
        _ => &[],
    };
    let is_wait =
        |step: &&JobStep| matches!(step.action, StepAction::Suspend(_) | StepAction::Occupy { .. });
    steps.iter().filter(is_wait)
}

/// Writes a wait of one version, or of all.
fn wait(out: &mut String, step: &JobStep, version: Option<&str>) {
    let (length, cpu_use) = match step.action {
        StepAction::Suspend(length) => (length, None),
        StepAction::Occupy { length, is_spinning: true } => (length, Some("spin")),
        StepAction::Occupy { length, is_spinning: false } => (length, Some("hold")),
        _ => return,
    };
    out.push_str("\n[[task.suspension]]\n");
    within(out, step.at, Work::from_ns(length.as_ns()));
    for (key, value) in [("while", cpu_use), ("version", version)] {
        if let Some(value) = value {
            pair(out, key, &text(value));
        }
    }
}

/// Writes the keys that a program without recurring jobs has, too.
fn standing(out: &mut String, place: &Place<'_>, spec: &TaskSpec) {
    // A node that says nothing has what its roots have.
    let is_node = place.tree.channels.iter().any(|channel| channel.to == place.id);
    for (key, value) in [("priority", spec.priority), ("criticality", spec.criticality)] {
        if !spec.inherits && (value > 0 || is_node) {
            pair(out, key, &value.to_string());
        }
    }
    unless(Backlog::default(), spec.backlog, |backlog| {
        pair(out, "backlog", &backlog.capacity.to_string());
    });
    unless(Affinity::ANY, spec.affinity, |affinity| pair(out, "affinity", &cpus(affinity)));
}

/// Writes where siblings may preempt a job.
fn preemption(out: &mut String, spec: &TaskSpec, cost: &Cost) {
    let steps = match cost {
        Cost::WithSteps { steps, .. } => &steps[..],
        _ => &[],
    };
    if spec.preemption == Preemption::AtPoints {
        let is_point = |step: &&JobStep| step.action == StepAction::PreemptionPoint;
        let points: Vec<String> = steps.iter().filter(is_point).map(|step| work(step.at)).collect();
        pair(out, "preemption_points", &format!("[{}]", points.join(", ")));
    }
    for step in steps {
        if let StepAction::FloatingSections { longest, last } = step.action {
            pair(out, "nonpreemptive_max", &work(longest));
            unless(Work::ZERO, last, |last| pair(out, "nonpreemptive_last", &work(last)));
        }
    }
}

/// Whether a graph, or the table above the task, activates its jobs.
fn is_activated(place: &Place<'_>) -> bool {
    use talea_core::engine::NodeSpec;
    use talea_core::sched::PolicySpec;
    if place.tree.channels.iter().any(|channel| channel.to == place.id) {
        return true;
    }
    let Some(parent) = place.tree.get(place.id).and_then(|node| node.parent) else { return false };
    let Some(NodeSpec::Scheduler(above)) = place.tree.get(parent).map(|node| &node.spec) else {
        return false;
    };
    let PolicySpec::Table { entries, .. } = &above.policy else { return false };
    let number = place.tree.children(parent).position(|(child, _)| child == place.id);
    entries.iter().any(|entry| entry.activates && Some(entry.owner as usize) == number)
}

fn arrivals(
    out: &mut String,
    place: &Place<'_>,
    spec: &TaskSpec,
    arrivals: &Arrivals,
) -> Result<(), Unwritable> {
    let offset_of = |out: &mut String, offset: Span| {
        if place.phases_known || !offset.is_zero() {
            pair(out, "offset", &span(offset));
        }
    };
    let of_period = |distance: Span| {
        if distance == spec.period {
            return Ok(());
        }
        let why = format!(
            "its jobs come every {distance} and its period is {}; a file has one",
            spec.period
        );
        unwritable(&spec.name, why)
    };
    match arrivals {
        Arrivals::Periodic { offset, period, jitter } => {
            of_period(*period)?;
            offset_of(out, *offset);
            unless(Span::ZERO, *jitter, |jitter| pair(out, "jitter", &span(jitter)));
        }
        Arrivals::Sporadic { offset, separation, extra_separation } => {
            of_period(*separation)?;
            offset_of(out, *offset);
            pair(out, "separation_max", &span(*separation + *extra_separation));
        }
        Arrivals::Curve { offset, distances, extra_delay } => {
            offset_of(out, *offset);
            let mut parts = Vec::new();
            match distances.spec() {
                DistanceSpec::List(list) => {
                    let list: Vec<String> = list.iter().copied().map(span).collect();
                    parts.push(format!("distances = [{}]", list.join(", ")));
                }
                DistanceSpec::Jittered { period, jitter, separation } => {
                    of_period(*period)?;
                    parts.push(format!("jitter = {}", span(*jitter)));
                    unless(Span::ZERO, *separation, |separation| {
                        parts.push(format!("separation = {}", span(separation)));
                    });
                }
            }
            unless(Span::ZERO, *extra_delay, |extra| {
                parts.push(format!("extra_delay = {}", span(extra)));
            });
            pair(out, "curve", &format!("{{ {} }}", parts.join(", ")));
        }
        Arrivals::List(times) => {
            let times: Vec<String> = times.iter().map(|&at| time(at)).collect();
            pair(out, "arrivals", &format!("[{}]", times.join(", ")));
        }
        Arrivals::Observed(_) => {
            return unwritable(&spec.name, "its arrivals are seen late one by one");
        }
    }
    Ok(())
}

fn cost(cost: &Cost) -> String {
    match cost {
        Cost::Constant(each) => work(*each),
        Cost::Uniform { min, max } => format!("{{ min = {}, max = {} }}", work(*min), work(*max)),
        Cost::Pair { low, high, share } => {
            format!("{{ low = {}, high = {}, share = {share} }}", work(*low), work(*high))
        }
        Cost::List(costs) => {
            let costs: Vec<String> = costs.iter().copied().map(work).collect();
            format!("[{}]", costs.join(", "))
        }
        Cost::WithSteps { base: of, .. } => self::cost(of),
        // Not below itself: `Cost::by_version` has taken it apart.
        Cost::Versions(_) => unreachable!("a version has no versions"),
    }
}

/// Writes critical sections. The channels write the tokens.
fn marks(
    out: &mut String,
    place: &Place<'_>,
    spec: &TaskSpec,
    cost: &Cost,
) -> Result<(), Unwritable> {
    let Cost::WithSteps { steps: marks, .. } = cost else { return Ok(()) };
    for (at, mark) in marks.iter().enumerate() {
        match &mark.action {
            StepAction::Lock(resource) => {
                let ends = |other: &&JobStep| other.action == StepAction::Unlock(*resource);
                let Some(end) = marks[at..].iter().find(ends) else {
                    return unwritable(&spec.name, "it locks and never unlocks");
                };
                out.push_str("\n[[task.section]]\n");
                pair(out, "resource", &text(&place.tree.resources[resource.0 as usize].name));
                within(out, mark.at, end.at.checked_sub(mark.at).unwrap_or(Work::ZERO));
            }
            StepAction::Unlock(_)
            | StepAction::Suspend(_)
            | StepAction::Occupy { .. }
            | StepAction::Push(..)
            | StepAction::Pop(..)
            | StepAction::PreemptionPoint
            | StepAction::FloatingSections { .. } => {}
        }
    }
    Ok(())
}

fn within(out: &mut String, start: Work, length: Work) {
    pair(out, "start", &work(start));
    pair(out, "length", &work(length));
}
