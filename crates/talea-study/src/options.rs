//! Options and values of options that several commands have.

use crate::output;
use clap::Args;
use serde::Serialize;
use talea_config::duration::parse_span;
use talea_sim::generate::CPU;

/// Output format.
#[derive(Args, Debug, Clone, Copy)]
pub struct Output {
    /// Print JSON with stable names instead of text.
    #[arg(long)]
    pub json: bool,
}

impl Output {
    /// Prints a report as JSON, or its text.
    pub fn print<T: Serialize>(
        self,
        report: &T,
        text: impl FnOnce() -> String,
    ) -> anyhow::Result<()> {
        if self.json { output::print_json(report) } else { output::print(&text()) }
    }
}

/// Parses a duration with its unit.
pub fn duration(text: &str) -> Result<talea_core::Span, String> {
    match parse_span(text) {
        Ok(span) if span.is_zero() => Err("it must not be zero".to_owned()),
        Ok(span) => Ok(span),
        Err(error) => Err(error.to_string()),
    }
}

/// Parses the length of a run. The limit is that of system files: sums of times must fit into 64
/// bits.
pub fn run_length(text: &str) -> Result<talea_core::Span, String> {
    match duration(text)? {
        span if span > talea_core::engine::MAX_RUN => Err("it is longer than 73 years".to_owned()),
        span => Ok(span),
    }
}

/// Parses a decimal number of CPUs into parts of a [`CPU`].
pub fn parts(text: &str) -> Result<u64, String> {
    let charge = talea_config::decimal::parse_charge(text).map_err(|error| error.to_string())?;
    // A charge is rounded up by less than a part. Rounding down restores the written number, to
    // twelve decimals.
    let (whole, rest) = (charge.bits() >> 64, charge.bits() & u128::from(u64::MAX));
    Ok(whole as u64 * CPU + ((rest * u128::from(CPU)) >> 64) as u64)
}
