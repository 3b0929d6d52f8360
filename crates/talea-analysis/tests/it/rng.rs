//! Random small sets from fixed seeds; a soak run has more of them.

use talea_analysis::Sporadic;
use talea_core::{Span, Work};
pub(crate) use talea_sim::rng::Rng;

/// Returns a task from C, T and D.
pub(crate) fn task(cost: u64, period: u64, deadline: u64) -> Sporadic {
    Sporadic::new(Work::from_ns(cost), Span::from_ns(period), Span::from_ns(deadline))
}

/// Returns tasks from triples (C, T, D).
pub(crate) fn set(tasks: &[(u64, u64, u64)]) -> Vec<Sporadic> {
    tasks.iter().map(|&(cost, period, deadline)| task(cost, period, deadline)).collect()
}

/// Relation of D and T.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Deadlines {
    Constrained,
    Arbitrary,
}

/// Returns `n` random tasks with periods up to `longest`. Each has a load of at most `percent` of a
/// CPU (but C ≥ 1).
pub(crate) fn random(
    rng: &mut Rng,
    n: u64,
    longest: u64,
    percent: u64,
    deadlines: Deadlines,
) -> Vec<Sporadic> {
    let one = |rng: &mut Rng| {
        let period = rng.between(2, longest);
        let cost = rng.between(1, (period * percent / 100).clamp(1, period));
        let deadline = match deadlines {
            Deadlines::Constrained => rng.between(cost, period),
            Deadlines::Arbitrary => rng.between(cost, 3 * period),
        };
        task(cost, period, deadline)
    };
    (0..n).map(|_| one(rng)).collect()
}

/// Returns the tasks with T from 2 to 6, C up to 3 and D below, equal to and above T.
pub(crate) fn short_tasks() -> Vec<Sporadic> {
    let mut tasks = Vec::new();
    for period in 2..=6 {
        for cost in 1..=3.min(period) {
            for deadline in [cost, period, period + 2] {
                tasks.push(task(cost, period, deadline));
            }
        }
    }
    tasks
}

/// Passes all lists of `count` of the choices to `visit`, with repetition and in every order.
pub(crate) fn every<T: Copy>(choices: &[T], count: usize, mut visit: impl FnMut(&[T])) {
    let mut at = vec![0; count];
    let mut chosen: Vec<T> = vec![choices[0]; count];
    loop {
        for (slot, &index) in chosen.iter_mut().zip(&at) {
            *slot = choices[index];
        }
        visit(&chosen);
        let Some(place) = at.iter().position(|&index| index + 1 < choices.len()) else { return };
        at[place] += 1;
        at[..place].fill(0);
    }
}

/// Returns the number of random sets in a test: `usual`, or twenty times as many in `cargo xtask
/// soak`.
pub(crate) fn rounds(usual: u64) -> u64 {
    if round().is_some() { 20 * usual } else { usual }
}

/// Returns the random number generator of a test. The seed is the same in every ordinary run and
/// different in each round of a soak run.
pub(crate) fn rng(test: u64) -> Rng {
    Rng::new(test | round().unwrap_or(0) << 40)
}

/// Returns the number of the soak round; `None` in an ordinary run.
pub(crate) fn round() -> Option<u64> {
    std::env::var_os("TALEA_SOAK")
        .map(|round| round.to_str().and_then(|round| round.parse().ok()).unwrap_or(1))
}
