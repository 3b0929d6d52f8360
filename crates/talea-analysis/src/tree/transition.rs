//! Transitions between the modes of a root: bounds on the delay of a switch, and on responses
//! across the switch.
//!
//! Model: a driver runs the tree of the old mode, and a switch to a new mode is requested at any
//! time. [`SwitchRule`] gives the switch instant s. Until s the jobs of the old mode are released
//! and run as if nothing was requested. At s the sources of the old mode end, and the driver starts
//! the engine of the new mode with full budgets, first slots and a time zero of its own. Sources of
//! the new mode count their offsets from s. A job that is released at s belongs to the new mode.
//!
//! # Theorem
//!
//! If no job that was released before s is pending at s, each job of both modes keeps the response
//! bound that the analysis of its own mode alone gives.
//!
//! Proof. Old mode: the run up to s is the beginning of a run of the old mode alone. Each of its
//! jobs completes by s, so its response is that of the same job in that run. New mode: at s no job
//! is pending, and the engine, the budgets and the sources are those of the start of a run. The
//! run from s on is a run of the new mode alone, with all times shifted by s. By induction this
//! holds for any number of switches. ∎
//!
//! The proof uses no property of the policy, so it includes FP and EDF. (Without an idle instant,
//! EDF is not safe across a switch even if both modes are feasible: Real and Crespo, *Mode change
//! protocols for real-time systems*, Real-Time Systems 26, 2004.) The theorem for FP is that of
//! Tindell and Alonso, *A very simple protocol for mode changes in priority preemptive systems*,
//! 1996. A task that runs in both modes has the larger of its two bounds.
//!
//! # No pending job at an idle instant
//!
//! A root without tables switches at the first idle instant, but at the latest after its longest
//! period. The *longest busy period* L is the least L > 0 with
//!
//! L = Σ ⌈(L + Jᵢ) / Tᵢ⌉ · Cᵢ.
//!
//! Let a request at r find pending jobs, and let b ≤ r be the last instant before r at which no
//! earlier job was pending. While a job is pending, the CPU executes a job (assumptions 1 to 3). In
//! [b, b + x) at most ⌈(x + Jᵢ) / Tᵢ⌉ jobs of task i are released. At b + L, the CPU has executed
//! for L, unless an idle instant came before. L is at least the work of all jobs that are released
//! in [b, b + L). So there is an idle instant by b + L ≤ r + L, whatever the policy. If L is at
//! most the longest period, every switch is at an idle instant, at most L after its request.
//!
//! Assumptions: 1. one CPU, without stalls and overheads; 2. schedulers without servers, and with
//! policies of Talea (each executes a job if one is pending); 3. jobs do not suspend themselves, do
//! not wait for their separation, and use neither accelerators, resources nor channels; 4. as
//! [`super`].
//!
//! # No pending job at the end of a frame
//!
//! A root with tables switches at the end of its major frame F, so the delay is at most F, exactly.
//! A job that straddles the end of a frame continues in slots that the analysis of the old mode
//! does not know. It is excluded if each task is
//!
//! - periodic with known phase o, T divides F and (o mod T) + J + R ≤ T for its response bound R.
//!   The last job that arrives before the end k · F of a frame arrives by k · F - T + (o mod T), so
//!   it completes by k · F; or
//! - released by entries of an off-line table with hyperperiod F, and start + R ≤ F for each of
//!   these entries.
//!
//! Nothing else is proved: [`SwitchBound::is_clean`] then states the reason.

use super::root_model::RootModel;
use super::task_bound::TaskBound;
use super::task_model::read_task;
use alloc::vec::Vec;
use talea_core::Span;
use talea_core::engine::{NodeId, NodeSpec, SwitchRule, TaskSpec, Tree};
use talea_core::mutate;
use talea_core::sched::PolicySpec;
use talea_core::workload::{Arrivals, Overheads, Source};

/// Bound on the delay of each switch from a mode of a root to any other mode.
#[derive(Clone, Debug)]
pub struct SwitchBound {
    /// Rule that gives the switch instant.
    pub rule: SwitchRule,
    /// Longest time from a request to the switch instant.
    pub delay: Span,
    /// Whether no job is pending at any switch instant. Then each job keeps the response bound of
    /// its own mode. Otherwise no response across the switch is proved.
    pub is_clean: Result<(), NotClean>,
}

/// Reason why jobs may be pending at the switch instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotClean {
    /// Node that causes it.
    pub node: NodeId,
    /// The cause, for users.
    pub why: &'static str,
}

/// Returns the bound on switches from the mode `old`, whose tasks have the response bounds
/// `bounds`, in the order of its tasks. The new mode does not matter.
///
/// # Panics
/// If there is not one source and one bound for each task.
pub fn switch_bound(old: &RootModel<'_>, bounds: &[TaskBound]) -> SwitchBound {
    let tasks = tasks(old, bounds);
    let rule = SwitchRule::of(old.tree);
    if let Some(frame) = rule.major_frame() {
        let is_clean = ends_with_frame(old, &tasks, frame);
        return SwitchBound { rule, delay: frame, is_clean };
    }
    let busy = longest_busy_period(old, &tasks).and_then(|busy| {
        let why = "the longest busy period exceeds the longest period, after which the switch does not wait for an idle instant";
        let is_short = busy <= rule.longest_period();
        is_short.then_some(busy).ok_or(NotClean { node: Tree::ROOT, why })
    });
    SwitchBound { rule, delay: busy.unwrap_or(rule.max_delay()), is_clean: busy.map(|_| ()) }
}

/// Task of the old mode.
struct OldTask<'a> {
    node: NodeId,
    spec: &'a TaskSpec,
    source: &'a Source,
    bound: &'a TaskBound,
}

fn tasks<'a>(old: &RootModel<'a>, bounds: &'a [TaskBound]) -> Vec<OldTask<'a>> {
    let specs = old.tree.nodes().filter_map(|(node, of)| match &of.spec {
        NodeSpec::Task(spec) => Some((node, spec)),
        NodeSpec::Scheduler(_) => None,
    });
    let tasks: Vec<OldTask<'a>> = specs
        .zip(old.sources.iter().zip(bounds))
        .map(|((node, spec), (source, bound))| OldTask { node, spec, source, bound })
        .collect();
    assert_eq!((tasks.len(), tasks.len()), (old.sources.len(), bounds.len()), "one for each task");
    tasks
}

/// Returns the longest busy period L of a root without tables.
fn longest_busy_period(old: &RootModel<'_>, tasks: &[OldTask<'_>]) -> Result<Span, NotClean> {
    let no = |node, why| NotClean { node, why };
    is_plain(old)?;
    if old.tree.cpus > 1 {
        return Err(no(Tree::ROOT, "no test known for idle instants of several CPUs"));
    }
    for (node, of) in old.tree.nodes() {
        let NodeSpec::Scheduler(spec) = &of.spec else { continue };
        let is_table =
            matches!(spec.policy, PolicySpec::Partitions { .. } | PolicySpec::Table { .. });
        if is_table {
            return Err(no(node, "the frames have no common end within a run"));
        }
        if matches!(spec.policy, PolicySpec::Custom { .. }) {
            return Err(no(node, "a policy from outside may leave the CPU idle"));
        }
    }
    let mut demands = Vec::new();
    for task in tasks {
        if task.spec.enforced {
            return Err(no(task.node, "its jobs may wait for their minimum separation"));
        }
        if !task.spec.uses.is_empty() {
            return Err(no(task.node, "no test known for idle instants beside shared resources"));
        }
        let model = read_task(old.tree, task.node, task.spec, task.source);
        let task = model.map_err(|no| NotClean { node: no.node, why: no.reason.text() })?.task;
        let [cost, period, jitter] =
            [task.cost.as_ns(), task.period.as_ns(), task.jitter.as_ns()].map(u128::from);
        demands.push((cost, period, jitter));
    }
    // Lost time is at most `lost` in one busy period.
    let lost = u128::from(old.lost.as_ns());
    let longest = u128::from(SwitchRule::of(old.tree).longest_period().as_ns());
    let work = |busy: u128| {
        demands.iter().fold(lost, |sum, (cost, period, jitter)| {
            let jobs = mutate!(
                "analysis-switch-busy",
                (busy + jitter).div_ceil(*period),
                (busy + jitter) / *period
            );
            sum + jobs.max(1) * cost
        })
    };
    // A longer busy period than the longest period is as good as none.
    let (mut busy, mut steps) = (work(1), old.steps);
    loop {
        let next = work(busy);
        if next == busy || next > longest {
            let longest = u128::from(u64::MAX);
            return Ok(Span::from_ns(next.min(longest) as u64));
        }
        busy = next;
        let why = "the analysis reached its step limit";
        steps = steps.checked_sub(demands.len() as u64 + 1).ok_or(no(Tree::ROOT, why))?;
    }
}

/// Checks what no test covers: stalls, overheads, servers.
fn is_plain(old: &RootModel<'_>) -> Result<(), NotClean> {
    let no = |node, why| Err(NotClean { node, why });
    if !old.stalls.is_empty() {
        return no(Tree::ROOT, "no test known for switches on CPUs with stalls");
    }
    if old.overheads != Overheads::default() {
        return no(Tree::ROOT, "no test known for switches with overheads");
    }
    for (node, of) in old.tree.nodes() {
        if let NodeSpec::Scheduler(spec) = &of.spec
            && spec.reservation.is_some()
        {
            return no(node, "its jobs may wait for the budget of the server");
        }
    }
    Ok(())
}

/// Checks that every job completes in the major frame in which it arrives.
fn ends_with_frame(
    old: &RootModel<'_>,
    tasks: &[OldTask<'_>],
    frame: Span,
) -> Result<(), NotClean> {
    is_plain(old)?;
    if !old.lost.is_zero() {
        let why = "no test known for switches with lost CPU time";
        return Err(NotClean { node: Tree::ROOT, why });
    }
    let table = match old.tree.get(Tree::ROOT).map(|root| &root.spec) {
        Some(NodeSpec::Scheduler(spec)) => match &spec.policy {
            PolicySpec::Table { hyperperiod, entries } if *hyperperiod == frame => Some(entries),
            _ => None,
        },
        _ => None,
    };
    let children: Vec<NodeId> = old
        .tree
        .nodes()
        .filter(|(_, node)| node.parent == Some(Tree::ROOT))
        .map(|(node, _)| node)
        .collect();
    for task in tasks {
        let no = |why| NotClean { node: task.node, why };
        let channels = &old.tree.channels;
        if channels.iter().any(|channel| channel.from == task.node || channel.to == task.node) {
            return Err(no("no test known for switches of graphs"));
        }
        let Ok(response) = task.bound.bound else {
            return Err(no("its response has no bound, so a job may be pending"));
        };
        let own = table.into_iter().flatten().filter(|entry| {
            entry.activates && children.get(entry.owner as usize) == Some(&task.node)
        });
        let mut starts = own.map(|entry| entry.start).peekable();
        let ends = |start: Span, within: Span| {
            start
                .checked_add(response)
                .is_some_and(|end| mutate!("analysis-switch-straddle", end <= within, true))
        };
        if starts.peek().is_some() {
            if !starts.all(|start| ends(start, frame)) {
                return Err(no("a job of an entry may be pending at the end of the frame"));
            }
            continue;
        }
        let Arrivals::Periodic { offset, period, jitter } = task.source.arrivals else {
            return Err(no("its jobs may arrive at any instant of the frame"));
        };
        if table.is_none() && !old.phases_known {
            return Err(no(
                "its jobs may arrive at any instant of the frame, because the file states no `offset`",
            ));
        }
        if task.spec.enforced || !frame.as_ns().is_multiple_of(period.as_ns()) {
            return Err(no("its period does not divide the frame"));
        }
        let phase = Span::from_ns(offset.as_ns() % period.as_ns());
        if !phase.checked_add(jitter).is_some_and(|latest| ends(latest, period)) {
            return Err(no(
                "a job may be pending at the end of the frame: its bound, from its offset on, exceeds its period",
            ));
        }
    }
    Ok(())
}
