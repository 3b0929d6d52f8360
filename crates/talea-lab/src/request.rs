//! Requests of the experiments: each of them fits.

use talea_client::Refusal;

/// Converts a refusal to an error, because each request of an experiment fits.
pub(crate) fn granted<T>(
    outcome: Result<Result<T, Refusal>, talea_client::Failure>,
) -> anyhow::Result<T> {
    outcome?.map_err(|refusal| anyhow::anyhow!("{refusal}"))
}

/// Renders nanoseconds as microseconds with one digit.
pub(crate) fn us(ns: u64) -> String {
    format!("{}.{}", ns / 1000, ns % 1000 / 100)
}
