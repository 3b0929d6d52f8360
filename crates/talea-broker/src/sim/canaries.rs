//! Simulated canaries.

use std::collections::BTreeMap;
use talea_core::{CpuSet, Work};

/// State of the canaries.
#[derive(Debug, Default)]
pub struct Canaries {
    /// CPUs with a canary that does not run.
    pub starved: CpuSet,
    /// CPU times by thread id.
    pub consumed: BTreeMap<u32, Work>,
    /// CPUs of the last check.
    pub checked: CpuSet,
}
