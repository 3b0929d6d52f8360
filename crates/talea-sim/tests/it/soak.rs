//! Number of test cases: a few seconds in `cargo xtask test`, all of them under `cargo xtask soak`
//! (`TALEA_SOAK`).

/// Returns `few`; under soak `all`.
pub(crate) fn many(few: u64, all: u64) -> u64 {
    if round().is_some() { all } else { few }
}

/// Returns the seed of a case: constant in ordinary runs, different in each round of a soak.
pub(crate) fn seed(case: u64) -> u64 {
    case | round().unwrap_or(0) << 40
}

fn round() -> Option<u64> {
    std::env::var_os("TALEA_SOAK")
        .map(|round| round.to_str().and_then(|round| round.parse().ok()).unwrap_or(1))
}
