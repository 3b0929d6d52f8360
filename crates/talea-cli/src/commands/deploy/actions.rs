//! Actions of a deployment on the computer, as a list.

use serde::Serialize;
use std::fmt;
use talea_core::health::{Health, OnFailure, RestartOn};
use talea_core::{Attr, Policy};
use talea_deploy::mechanism::{IDLE_PROGRAM_LEVEL, MAX_LEVEL, Mechanism, RootPlan, START_LEVEL};
use talea_deploy::{Difference, RootSpec, TaskSpec};

/// Change of the computer.
#[derive(Serialize)]
#[serde(tag = "action", rename_all = "kebab-case")]
pub(super) enum Action {
    /// A governor, with a thread on the root's CPU.
    StartGovernor { root: String, policy: String, cpus: String },
    /// A control group for a program.
    CreateGroup { task: String },
    /// A program.
    StartProgram {
        task: String,
        program: Vec<String>,
        user: Option<String>,
        /// Time within which it must be ready.
        ready_ns: Option<u64>,
        /// Consequence of a failure, in words.
        on_failure: String,
    },
    /// Policy and CPUs of all threads of a program.
    SetAttributes { task: String, policy: String, cpus: String },
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Action::StartGovernor { root, policy, cpus } => {
                write!(f, "{root}: start a governor, whose dispatcher has {policy} on CPU {cpus}")
            }
            Action::CreateGroup { task } => write!(f, "{task}: create a control group"),
            Action::StartProgram { task, program, user, ready_ns, on_failure } => {
                write!(f, "{task}: start {}", program.join(" "))?;
                if let Some(user) = user {
                    write!(f, " as {user}")?;
                }
                if let Some(ready) = ready_ns {
                    write!(f, ", ready within {}", talea_study::run_summary::short(*ready))?;
                }
                write!(f, "; a failure {on_failure}")
            }
            Action::SetAttributes { task, policy, cpus } => {
                write!(f, "{task}: set all its threads to {policy} on CPU {cpus}")
            }
        }
    }
}

fn policy_text(attr: &Attr) -> String {
    match attr.policy {
        Policy::Fifo(priority) => format!("SCHED_FIFO {}", priority.0),
        Policy::Rr(priority) => format!("SCHED_RR {}", priority.0),
        ref other => format!("{other:?}"),
    }
}

fn failure_text(health: &Health) -> String {
    let restart = &health.restart;
    let text = match health.on_failure {
        OnFailure::Idle => "leaves it idle".to_owned(),
        OnFailure::Ignore => "is ignored".to_owned(),
        OnFailure::Restart => format!(
            "restarts it, at most {} times in {}, first after {}",
            restart.attempts, restart.within, restart.backoff
        ),
    };
    match restart.when {
        RestartOn::Always if health.on_failure == OnFailure::Restart => {
            format!("or a success {text}")
        }
        _ => text,
    }
}

/// Returns the actions for a task: all for one that is new or starts again, its attributes for one
/// that is adjusted, none for one that is unchanged.
pub(super) fn of_task(
    root: &RootSpec,
    plan: &RootPlan,
    task: &TaskSpec,
    difference: &Difference,
) -> Vec<Action> {
    let has = |names: &[String]| names.contains(&task.name);
    let starts = has(&difference.new) || has(&difference.restarted);
    let cpus = root.cpus.to_string();
    let mut actions = Vec::new();
    if task.governed.is_some() {
        let policy = format!("SCHED_FIFO {MAX_LEVEL}");
        let start = Action::StartGovernor { root: root.name.clone(), policy, cpus };
        return starts.then_some(start).into_iter().collect();
    }
    let name = || task.name.clone();
    if starts {
        actions.push(Action::CreateGroup { task: name() });
        actions.push(Action::StartProgram {
            task: name(),
            program: task.command.words.clone(),
            user: task.command.user.clone(),
            ready_ns: task.health.ready.map(talea_core::Span::as_ns),
            on_failure: failure_text(&task.health),
        });
    }
    if starts || has(&difference.adjusted) {
        let policy = match plan.mechanism {
            Mechanism::Freeze => format!(
                "SCHED_RR {START_LEVEL} while it runs, SCHED_RR {IDLE_PROGRAM_LEVEL} while it is idle, and \
                 SCHED_FIFO 1 while it is frozen,"
            ),
            Mechanism::Linux => policy_text(&task.attr),
        };
        actions.push(Action::SetAttributes { task: name(), policy, cpus });
    }
    actions
}
