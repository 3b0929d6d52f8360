//! Mechanism of a root, and the attributes of the threads of its programs.
//!
//! | mechanism | roots | threads of a program |
//! | --- | --- | --- |
//! | *linux* | one CPU, one preemptive scheduler: `fp`, `rm`, `dm`, `criticality`, `fifo`, `rr` with the kernel's quantum | `SCHED_FIFO` at the level of the task, or `SCHED_RR` |
//! | *freeze* | all others with one CPU | a governor freezes and thaws the control group of the program by the engine's orders |
//!
//! The kernel alone keeps a *linux* root in force, so it outlives every process of Talea. Children
//! of a program inherit its policy, as in a run (decision 10). The governor of a *freeze* root is a
//! process of its own; [`crate::generation::Role`] has what the machine does for it.

use std::collections::BTreeSet;
use std::fmt;
use talea_core::engine::{NodeSpec, Preemption, TaskSpec, Tree};
use talea_core::sched::PolicySpec;
use talea_core::{Attr, CpuSet, Policy, Priority, Span, mutate};

/// Highest level of a program's threads. The dispatchers of runs have it, too, on other CPUs.
pub const MAX_LEVEL: u8 = 93;
/// Lowest level. It is above threaded interrupts, which are FIFO 50.
pub const MIN_LEVEL: u8 = 51;
/// Level of the threads of a program that no thread of it wants the CPU for, under *freeze*. A
/// program that is ordered to run is one level below.
pub const IDLE_PROGRAM_LEVEL: u8 = 92;
/// Level of the threads of a program that runs under *freeze*, also of one that starts.
pub const START_LEVEL: u8 = IDLE_PROGRAM_LEVEL - 1;

/// Mechanism of a root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mechanism {
    /// The kernel schedules the threads by their attributes.
    Linux,
    /// A governor freezes and thaws the control groups of programs.
    Freeze,
}

impl fmt::Display for Mechanism {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Mechanism::Linux => "linux",
            Mechanism::Freeze => "freeze",
        })
    }
}

/// Plan of one root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RootPlan {
    /// The mechanism.
    pub mechanism: Mechanism,
    /// Reason for the mechanism, as part of a sentence.
    pub reason: String,
    /// `attrs[t]`: attributes of the threads of the program of task `t`. Under *freeze*, those with
    /// which it starts.
    pub attrs: Vec<Attr>,
}

/// Plans a root on `cpus`. `quantum` is the kernel's quantum of `SCHED_RR`, if it is known.
pub fn plan(tree: &Tree, cpus: CpuSet, quantum: Option<Span>) -> RootPlan {
    let (mechanism, reason, policies) = match linux(tree, quantum) {
        Ok((policies, reason)) => (Mechanism::Linux, reason, policies),
        Err(reason) => {
            let level = Policy::Rr(Priority(START_LEVEL));
            let is_task = |spec: &NodeSpec| matches!(spec, NodeSpec::Task(_));
            let tasks = tree.nodes().filter(|(_, node)| is_task(&node.spec)).count();
            (Mechanism::Freeze, reason, vec![level; tasks])
        }
    };
    let attrs = policies.into_iter().map(|policy| Attr { policy, reset_on_fork: false, cpus });
    RootPlan { mechanism, reason, attrs: attrs.collect() }
}

/// Returns the policies of a root that the kernel schedules alone, or the reason why it cannot.
fn linux(tree: &Tree, quantum: Option<Span>) -> Result<(Vec<Policy>, String), String> {
    let (policy, tasks) = flat_tasks(tree)?;
    let keys: Vec<u64> = match policy {
        PolicySpec::FixedPriority => {
            tasks.iter().map(|task| u64::from(u8::MAX - task.priority)).collect()
        }
        PolicySpec::RateMonotonic => tasks.iter().map(|task| task.period.as_ns()).collect(),
        PolicySpec::DeadlineMonotonic => tasks.iter().map(|task| task.deadline.as_ns()).collect(),
        PolicySpec::CriticalityMonotonic => {
            tasks.iter().map(|task| u64::from(u8::MAX - task.criticality)).collect()
        }
        PolicySpec::Fifo => vec![0; tasks.len()],
        PolicySpec::RoundRobin { quantum: wanted } => {
            if quantum.is_some_and(|quantum| quantum.as_ns() == wanted.as_ns()) {
                let policies = vec![Policy::Rr(Priority(MAX_LEVEL)); tasks.len()];
                return Ok((policies, "the kernel's SCHED_RR has the quantum".to_owned()));
            }
            return Err("the kernel's SCHED_RR has another quantum".to_owned());
        }
        other => return Err(format!("Linux has no policy like `{}` for programs", other.name())),
    };
    // `fp` shares a level among equal priorities; elsewhere the first task of the file is ahead.
    let is_shared = matches!(policy, PolicySpec::FixedPriority | PolicySpec::Fifo);
    let keys: Vec<(u64, usize)> = keys
        .into_iter()
        .enumerate()
        .map(|(at, key)| (key, if is_shared { 0 } else { at }))
        .collect();
    let distinct: BTreeSet<_> = keys.iter().copied().collect();
    let room = usize::from(MAX_LEVEL - MIN_LEVEL) + 1;
    if distinct.len() > room {
        return Err(format!(
            "it needs {} levels, and {MIN_LEVEL} to {MAX_LEVEL} are {room}",
            distinct.len()
        ));
    }
    let level = |key: &(u64, usize)| {
        let rank = distinct.range(..key).count() as u8;
        Policy::Fifo(Priority(MAX_LEVEL - mutate!("deploy-levels", rank, 0)))
    };
    let levels = if distinct.len() == 1 { "one level" } else { "levels in the order of the tasks" };
    Ok((keys.iter().map(level).collect(), format!("SCHED_FIFO, {levels}")))
}

/// Returns the policy and the tasks of a root that is one preemptive scheduler on one CPU.
fn flat_tasks(tree: &Tree) -> Result<(&PolicySpec, Vec<&TaskSpec>), String> {
    if tree.cpus != 1 {
        return Err(format!("its root has {} CPUs", tree.cpus));
    }
    if !tree.channels.is_empty() {
        return Err("its tasks are a graph".to_owned());
    }
    let (mut root, mut tasks) = (None, Vec::new());
    for (_, node) in tree.nodes() {
        match &node.spec {
            NodeSpec::Scheduler(spec) if spec.reservation.is_some() => {
                return Err(format!("{} is a server, whose budget must be kept", spec.name));
            }
            NodeSpec::Scheduler(spec) if node.parent.is_some() => {
                return Err(format!("{} is a scheduler below another one", spec.name));
            }
            NodeSpec::Scheduler(spec) if !spec.preemptive => {
                return Err(format!("{} is not preemptive", spec.name));
            }
            NodeSpec::Scheduler(spec) => root = Some(&spec.policy),
            NodeSpec::Task(spec) if !spec.versions.is_empty() || !spec.uses.is_empty() => {
                return Err(format!("{} has versions or locks resources", spec.name));
            }
            NodeSpec::Task(spec) if spec.preemption != Preemption::Anywhere => {
                return Err(format!("{} has nonpreemptive sections", spec.name));
            }
            NodeSpec::Task(spec) => tasks.push(spec),
        }
    }
    root.map(|policy| (policy, tasks)).ok_or_else(|| "it has no scheduler".to_owned())
}
