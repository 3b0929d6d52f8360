//! Short constructors of tasks.

use talea_core::{Params, Priority, Span, Work};
use talea_proto::message::Name;
use talea_proto::{Owner, Task};

pub(crate) fn ms(milliseconds: u64) -> Span {
    Span::from_ns(milliseconds * 1_000_000)
}

pub(crate) fn work_us(microseconds: u64) -> Work {
    Work::from_ns(microseconds * 1_000)
}

/// Returns a task with only a period in ms: for `rm`.
pub(crate) fn periodic(period_ms: u64) -> Task {
    Task { params: Params { period: Some(ms(period_ms)), ..Params::default() }, ..Task::default() }
}

/// Returns a task with a period in ms and a runtime in µs.
pub(crate) fn reserved(period_ms: u64, runtime_us: u64) -> Task {
    let params = Params {
        period: Some(ms(period_ms)),
        runtime: Some(work_us(runtime_us)),
        ..Params::default()
    };
    Task { params, ..Task::default() }
}

/// Returns a task with only a priority: for `rr` and `fp`.
pub(crate) fn ranked(priority: u8) -> Task {
    let params = Params { priority: Some(Priority(priority)), ..Params::default() };
    Task { params, ..Task::default() }
}

/// Returns the task for one plugin.
pub(crate) fn with(plugin: &str, task: Task) -> Task {
    Task { plugin: Name::new(plugin), ..task }
}

/// Returns the task with this owner.
pub(crate) fn owned_by(owner: Owner, task: Task) -> Task {
    Task { owner, ..task }
}
