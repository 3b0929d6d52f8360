//! What measurements must reach, and whether they do. Ratios, differences and bytes: absolute times belong to the machine.

use serde::Serialize;
use std::fmt::Write;

/// One bar.
#[derive(Debug, Serialize)]
pub(super) struct Bar {
    pub(super) what: String,
    pub(super) found: String,
    pub(super) met: bool,
}

/// How that is said.
pub(super) const fn verdict(met: bool) -> &'static str {
    if met { "met" } else { "MISSED" }
}

/// A line for each.
pub(super) fn text(bars: &[Bar]) -> String {
    bars.iter().fold(String::new(), |mut text, Bar { what, found, met }| {
        let _ = writeln!(text, "{:6}  {what}: {found}", verdict(*met));
        text
    })
}

/// The lowest and the highest.
pub(super) fn range(values: impl Iterator<Item = f64> + Clone) -> (f64, f64) {
    (values.clone().fold(f64::INFINITY, f64::min), values.fold(0.0, f64::max))
}
