//! Conclusive runs of a live test.
//!
//! CPU stalls may make a run inconclusive. A test repeats such a run, states how many conclusive
//! runs it needs, and fails with fewer. It prints `conclusive: N of M, at least K` once, from which
//! `cargo xtask test` makes its list of rows.

use std::time::{Duration, Instant};
use talea_core::mutate;

/// Total time in which one test repeats inconclusive runs. The time limit of a test
/// ([`crate::Bench`]) is longer.
const PATIENCE: Duration = Duration::from_mins(3);

/// Count of the runs of one test. Dropping it prints the count, and fails the test if too few runs
/// were conclusive.
pub struct Runs {
    minimum: u32,
    conclusive: u32,
    tries: u32,
    end: Instant,
}

impl Runs {
    /// Returns the count of a test that needs `minimum` conclusive runs.
    pub fn at_least(minimum: u32) -> Runs {
        assert!(minimum > 0, "a test without a conclusive run shows nothing");
        Runs { minimum, conclusive: 0, tries: 0, end: Instant::now() + PATIENCE }
    }

    /// Repeats `run` until it returns the result of a conclusive run: once, and for a part of the
    /// remaining time that leaves as much for each conclusive run that the test still needs.
    pub fn repeat<T>(&mut self, mut run: impl FnMut() -> Option<T>) -> Option<T> {
        let begin = Instant::now();
        let needed = self.minimum.saturating_sub(self.conclusive);
        // A test that has enough spends little on further runs.
        let parts = if needed == 0 { 16 } else { needed };
        let end = begin + self.end.saturating_duration_since(begin) / parts;
        for number in 1.. {
            let result = run();
            self.add(result.is_some());
            if result.is_some() || (number > 1 && Instant::now() >= end) {
                return result;
            }
        }
        None
    }

    /// Adds a run that the test itself repeats.
    pub fn add(&mut self, is_conclusive: bool) {
        self.tries += 1;
        self.conclusive += u32::from(mutate!("rows-conclusive", is_conclusive, false));
    }
}

impl Drop for Runs {
    fn drop(&mut self) {
        let Runs { minimum, conclusive, tries, .. } = *self;
        println!("conclusive: {conclusive} of {tries}, at least {minimum}");
        assert!(
            std::thread::panicking() || conclusive >= minimum,
            "inconclusive: {conclusive} of {tries} runs are conclusive, {minimum} are needed"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_few_conclusive_runs_fail_a_test() {
        let ends = |minimum, conclusive: &[bool]| {
            std::panic::catch_unwind(|| {
                let mut runs = Runs::at_least(minimum);
                for &is in conclusive {
                    runs.add(is);
                }
            })
            .is_ok()
        };
        assert!(ends(1, &[false, true]) && ends(2, &[true, false, true]));
        assert!(!ends(1, &[]) && !ends(1, &[false]) && !ends(3, &[true, false, true]));
    }

    #[test]
    fn an_inconclusive_run_is_repeated_until_the_time_is_spent() {
        let mut runs = Runs::at_least(1);
        let mut results = [None, None, Some(3), Some(4)].into_iter();
        assert_eq!(runs.repeat(|| results.next().expect("a result")), Some(3));
        assert_eq!((runs.conclusive, runs.tries), (1, 3));
        runs.end = Instant::now();
        assert_eq!(runs.repeat(|| None::<u32>), None);
        assert_eq!((runs.conclusive, runs.tries), (1, 5));
    }
}
