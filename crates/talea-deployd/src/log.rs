//! Events, a line each, to standard error.

use std::io::Write;
use talea_core::Monotonic;
use talea_deploy::input::{Exit, FailureCause, RollbackCause, SettingKind};
use talea_deploy::{Event, Inactive};

/// Writes a line.
pub(crate) fn log(line: &str) {
    // A reader that has gone changes nothing. One write: lines of programs do not mix with it.
    let _ = std::io::stderr().write_all(format!("talea-deployd: {line}\n").as_bytes());
}

/// Returns an event as a sentence without a full stop. `now` is the present time.
pub(crate) fn event_text(event: &Event, now: Monotonic) -> String {
    let left = |until: &Monotonic| until.saturating_since(now);
    match event {
        Event::InForce { generation, until: None } => {
            format!("generation {generation} is in force")
        }
        Event::InForce { generation, until: Some(until) } => {
            format!("generation {generation} is in force, to be confirmed within {}", left(until))
        }
        Event::Confirmed { generation } => format!("generation {generation} is confirmed"),
        Event::RolledBack { from, to, cause } => {
            let to = match to {
                Some(to) => format!("generation {to} is in force again"),
                None => "no generation is in force".to_owned(),
            };
            let cause = match cause {
                RollbackCause::Requested => "on request".to_owned(),
                RollbackCause::NotConfirmed => "it was not confirmed".to_owned(),
                RollbackCause::TaskFailed(task) => format!("{task} has failed"),
            };
            format!("generation {from} is rolled back ({cause}): {to}")
        }
        Event::Removed { generation } => format!("generation {generation} is removed"),
        Event::Started { task, process } => format!("{task}: process {} runs", process.pid),
        Event::Failure { task, cause, failures } => {
            format!("{task}: {}, failure {failures}", cause_text(cause))
        }
        Event::BackOff { task, until } => format!("{task}: starts again in {}", left(until)),
        Event::Inactive { task, why } => format!("{task}: {}", inactive_text(*why)),
        Event::Repaired { task, thread, kind, repairs } => format!(
            "{task}: another writer changed the {} of thread {}, repair {repairs}",
            kind_text(*kind),
            thread.tid
        ),
        Event::Contended { task, thread, kind } => format!(
            "{task}: another writer changes the {} of thread {} again and again; it is repaired no \
             longer",
            kind_text(*kind),
            thread.tid
        ),
        Event::SettingRefused { task, thread, kind, error } => format!(
            "{task}: the kernel refuses the {} of thread {}: {}",
            kind_text(*kind),
            thread.tid,
            std::io::Error::from_raw_os_error(error.0)
        ),
    }
}

fn kind_text(kind: SettingKind) -> &'static str {
    match kind {
        SettingKind::Policy => "policy",
        SettingKind::Cpus => "CPUs",
    }
}

fn inactive_text(why: Inactive) -> &'static str {
    match why {
        Inactive::Ended => "has ended and is not started again",
        Inactive::Failed => "has used its attempts and is not started again",
        Inactive::Idle => "has failed and stays idle",
        Inactive::Drained => "is drained",
    }
}

fn cause_text(cause: &FailureCause) -> String {
    match cause {
        FailureCause::Exited(Exit::Code(code)) => format!("exited with status {code}"),
        FailureCause::Exited(Exit::Signal(signal)) => format!("ended by signal {signal}"),
        FailureCause::Vanished => "ended with an unknown status".to_owned(),
        FailureCause::NotStarted(Some(error)) => {
            format!("was not started ({})", std::io::Error::from_raw_os_error(error.0))
        }
        FailureCause::NotStarted(None) => "was not started".to_owned(),
        FailureCause::NotReady => "was not ready in time".to_owned(),
        FailureCause::LeftCpus => "left its CPUs again and again, and is killed".to_owned(),
    }
}
