//! How many cases: a few seconds' worth in the gate, the whole number under `cargo xtask soak`
//! (`TALEA_SOAK`).

/// `few`, or under soak `all`.
pub(crate) fn many(few: u64, all: u64) -> u64 {
    if round().is_some() { all } else { few }
}

/// The seed of a case: the same in every ordinary run, another one in each round of a soak.
pub(crate) fn seed(case: u64) -> u64 {
    case | round().unwrap_or(0) << 40
}

fn round() -> Option<u64> {
    std::env::var_os("TALEA_SOAK")
        .map(|round| round.to_str().and_then(|round| round.parse().ok()).unwrap_or(1))
}
