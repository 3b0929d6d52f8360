//! Measurements of `ipc` in one setting.

use crate::samples::Summary;
use crate::tasks::Kind;
use serde::Serialize;

/// Parameters of one measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Setting {
    pub(crate) same_core: bool,
    pub(crate) plugin: Kind,
    pub(crate) specs: usize,
    pub(crate) idle: usize,
    pub(crate) instances: u32,
}

/// Measurements of the operations' baselines.
#[derive(Debug, Serialize)]
pub(crate) struct Baselines {
    /// Raw exchange with the sizes of create.
    pub(crate) raw: Summary,
    /// Raw exchange without the C library's functions around the system calls.
    pub(crate) raw_inlined: Summary,
    /// Raw exchange with the sizes of attach, detach and release.
    pub(crate) raw_small: Summary,
    /// Direct system calls of a program with the rights, which set and restore the attributes.
    pub(crate) direct: Summary,
    /// Scheduling calls among the direct calls, without the inspection of the thread.
    pub(crate) direct_calls: Summary,
}

/// Measurements of one setting.
#[derive(Debug, Serialize)]
pub(crate) struct IpcRow {
    #[serde(flatten)]
    pub(crate) setting: Setting,
    #[serde(flatten)]
    pub(crate) baselines: Baselines,
    pub(crate) create: Summary,
    pub(crate) change: Summary,
    pub(crate) attach: Summary,
    pub(crate) detach: Summary,
    /// Attach and detach as one operation.
    pub(crate) attach_detach: Summary,
    pub(crate) release: Summary,
    /// Medians of all rounds.
    #[serde(flatten)]
    pub(crate) ratios: Ratios,
    pub(crate) rounds: Vec<Ratios>,
    /// Memory of the daemon per existing spec. Only measured with many specs.
    pub(crate) bytes_per_spec: Option<u64>,
    pub(crate) mirrored_bytes_per_spec: Option<u64>,
}

/// Ratios of operations to their baselines in one round.
#[derive(Clone, Copy, Debug, Serialize)]
#[expect(
    clippy::struct_field_names,
    reason = "the names of the JSON, beside others that are no ratios"
)]
pub(crate) struct Ratios {
    pub(crate) create_ratio: f64,
    pub(crate) change_ratio: f64,
    pub(crate) release_ratio: f64,
    pub(crate) attach_detach_ratio: f64,
    /// Ratio of attach and detach to the calls without the inspection of the thread.
    pub(crate) attach_detach_calls_ratio: f64,
    /// Ratios of create and change to the inlined exchange.
    pub(crate) create_inlined_ratio: f64,
    pub(crate) change_inlined_ratio: f64,
}
