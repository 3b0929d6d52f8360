//! Plan of a run, and its validation.

use crate::executor::MIN_REMAINDER;
use crate::failure::Failure;
use crate::flow::Flow;
use crate::load::{Arrivals, Load};
use crate::mechanism::RequestedMechanism;
use crate::native;
use crate::options::{MAX_RECORD_CAPACITY, Options};
use crate::programs::{ProgramSource, WantedProgram};
use crate::work::JobBody;
use std::fmt;
use std::sync::Arc;
use talea_core::Time;
use talea_core::cpus::MAX_CPUS;
use talea_core::engine::{Condition, MAX_RUN, NodeId, NodeSpec as Node, Tree};
use talea_core::sched::PolicySpec;
use talea_core::server::ServerKind;
use talea_os::cgroup::rt_group::{RtLimit, limit_of_server};
use talea_os::sched;

/// Task of a root: its load and its body.
pub struct TaskPlan<'a> {
    /// Load of the task.
    pub load: Load,
    /// Body of the task's jobs: [`crate::work::spender`], or a body of the caller.
    pub body: JobBody<'a>,
}

impl fmt::Debug for TaskPlan<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskPlan").field("load", &self.load).finish_non_exhaustive()
    }
}

/// Plan of one root of the system.
#[derive(Debug)]
pub struct RootPlan<'a> {
    /// Tree of the root.
    pub tree: &'a Tree,
    /// `tasks[n]`: load and body of task `n` of the engine.
    pub tasks: Vec<TaskPlan<'a>>,
    /// Changes of battery, mode and permissions, in order of time.
    pub changes: Vec<(Time, Condition)>,
    /// `flows[n]`: flow of channel `n` of the tree. Empty unless jobs report their tokens
    /// ([`Load::explicit_tokens`]). Tokens in a flow at the start count as activations at time
    /// zero. Tokens that activated no job are in the flow at the end.
    pub flows: Vec<Arc<Flow>>,
    /// `cpus[c]`: kernel number of CPU `c` of the tree. No other root may have the same CPU.
    pub cpus: Vec<u32>,
}

pub(super) fn check(roots: &[RootPlan<'_>], options: &Options) -> Result<(), Failure> {
    let wrong = |why: String| Err(Failure::Plan(why));
    if !options.band.is_valid() {
        return wrong(format!(
            "{:?} is not a valid priority band: required are 1 ≤ bottom, bottom + 2 ≤ top ≤ 98",
            options.band
        ));
    }
    if options.duration > MAX_RUN {
        return wrong(format!("a run of {} is longer than the maximum", options.duration));
    }
    if options.record_capacity > MAX_RECORD_CAPACITY {
        return wrong(format!(
            "a record of {} entries is too large: at most {MAX_RECORD_CAPACITY}",
            options.record_capacity
        ));
    }
    let mut seen = Vec::new();
    for root in roots {
        check_budgets(root.tree).map_err(Failure::Plan)?;
        if root.cpus.len() != root.tree.cpus as usize {
            return wrong(format!(
                "a root with {} CPUs was given {}",
                root.tree.cpus,
                root.cpus.len()
            ));
        }
        for (task, plan) in root.tasks.iter().enumerate() {
            if matches!(plan.load.arrivals, Arrivals::Periodic { period, .. } if period.is_zero()) {
                return wrong(format!("task {task} has a job every 0 ns"));
            }
        }
        if root.tasks.iter().any(|task| task.load.is_program()) {
            check_programs(root, options).map_err(Failure::Plan)?;
        }
        for &cpu in &root.cpus {
            if cpu as usize >= MAX_CPUS {
                return wrong(format!(
                    "CPU {cpu} is beyond the last supported one, {}",
                    MAX_CPUS - 1
                ));
            }
            if seen.contains(&cpu) {
                return wrong(format!("CPU {cpu} was given twice"));
            }
            seen.push(cpu);
        }
    }
    Ok(())
}

/// Plans each root for Linux, if the options request that mechanism.
pub(super) fn linux_plans(
    roots: &[RootPlan<'_>],
    options: &Options,
) -> Result<Vec<Option<native::Plan>>, String> {
    if options.mechanism == RequestedMechanism::Engine {
        return Ok(roots.iter().map(|_| None).collect());
    }
    if !options.priorities {
        return Err(
            "without real-time priorities Linux does not keep the order of the tasks".to_owned()
        );
    }
    let quantum = sched::quantum()
        .map_err(|error| format!("the kernel's quantum cannot be read: {error}"))?;
    let of = |root: &RootPlan<'_>| {
        let loads: Vec<&Load> = root.tasks.iter().map(|task| &task.load).collect();
        let end = Time::ZERO + options.duration;
        let plan = native::plan(root.tree, &loads, options.band.top, quantum, end);
        plan.map(Some)
            .map_err(|why| format!("Linux alone cannot schedule {}: {why}", root_name(root.tree)))
    };
    roots.iter().map(of).collect()
}

/// Returns the name of a root.
fn root_name(tree: &Tree) -> &str {
    match tree.get(Tree::ROOT).map(|node| &node.spec) {
        Some(Node::Scheduler(spec)) => &spec.name,
        _ => "a root",
    }
}

/// Returns the name of the first task of a root that is a program.
fn first_program_name<'a>(root: &RootPlan<'a>) -> &'a str {
    let tasks = root.tree.nodes().filter_map(|(_, node)| match &node.spec {
        Node::Task(task) => Some(task.name.as_str()),
        Node::Scheduler(_) => None,
    });
    let mut programs = tasks.zip(&root.tasks).filter(|(_, plan)| plan.load.is_program());
    programs.next().map_or("a task", |(name, _)| name)
}

/// Returns the programs of a root: element `n` is the program of task `n`. One that the run starts
/// has the tightest limit of the servers above it.
pub(super) fn programs(root: &RootPlan<'_>) -> Vec<Option<ProgramSource>> {
    let tasks = root.tree.nodes().filter(|(_, node)| matches!(node.spec, Node::Task(_)));
    let wanted = |((node, _), plan): ((NodeId, _), &TaskPlan<'_>)| {
        if let Some(group) = &plan.load.group {
            return Some(ProgramSource::Group(Arc::clone(group)));
        }
        let words = plan.load.program.clone()?;
        let servers = root.tree.ancestors(node).filter_map(|(_, scheduler)| scheduler.reservation);
        // A server that continues after its budget, and one from outside, may grant more.
        let hard = servers.filter(|server| {
            !matches!(server.kind, ServerKind::SoftCbs | ServerKind::Custom { .. })
        });
        let share = |limit: &RtLimit| {
            u128::from(limit.runtime.as_ns()) * u128::from(u64::MAX)
                / u128::from(limit.period.as_ns().max(1))
        };
        let limits = hard.filter_map(|server| limit_of_server(server.budget, server.period));
        let account = plan.load.account.clone();
        let limit = limits.min_by_key(share);
        Some(ProgramSource::Start(WantedProgram { words, account, limit }))
    };
    tasks.zip(&root.tasks).map(wanted).collect()
}

/// Checks that programs can be tasks of this root in this run.
fn check_programs(root: &RootPlan<'_>, options: &Options) -> Result<(), String> {
    if root.tree.cpus > 1 {
        let (name, task, cpus) = (root_name(root.tree), first_program_name(root), root.tree.cpus);
        Err(format!(
            "{name} has {cpus} CPUs, and its task {task} is a program, which cannot migrate: put it below a root with one CPU"
        ))
    } else if !options.priorities {
        Err("programs need real-time priorities and cgroups, which only root has".to_owned())
    } else if !options.band.has_program_levels() {
        Err(format!(
            "{:?} has no priorities for programs: required is bottom + 4 ≤ top",
            options.band
        ))
    } else {
        Ok(())
    }
}

/// Checks that budgets and quanta are long enough to be enforced.
///
/// # Errors
/// The node and its value, as a sentence without a full stop.
pub fn check_budgets(tree: &Tree) -> Result<(), String> {
    for (_, node) in tree.nodes() {
        match &node.spec {
            Node::Task(_) => {}
            Node::Scheduler(spec) => {
                let quantum = match spec.policy {
                    PolicySpec::RoundRobin { quantum } => Some(quantum),
                    _ => None,
                };
                let budget = spec.reservation.map(|reservation| reservation.budget);
                for (what, work) in [("quantum", quantum), ("budget", budget)] {
                    if let Some(work) = work.filter(|work| work.as_ns() < MIN_REMAINDER.as_ns()) {
                        let name = &spec.name;
                        return Err(format!(
                            "{name}: a {what} of {work} is too short to be enforced: at least {MIN_REMAINDER}"
                        ));
                    }
                }
            }
        }
    }
    Ok(())
}
