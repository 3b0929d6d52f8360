//! Refused calls of a program, as lines on standard error.
//!
//! A program may repeat a refused call without end. So a line is printed once per thread and
//! reason, for at most [`MAX_THREADS`] threads per reason and [`MAX_REASONS`] reasons. The rest is
//! counted.

use std::collections::{BTreeMap, BTreeSet};
use talea_core::mutate;
use talea_os::{Thread, Tid, proc};
use talea_study::output::{count, note};

/// Maximum number of threads with a line for the same reason.
const MAX_THREADS: usize = 8;
/// Maximum number of different reasons.
const MAX_REASONS: usize = 64;

/// Refused calls of a run.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    /// Threads with a line, for each reason.
    printed: BTreeMap<String, BTreeSet<Tid>>,
    /// Number of refused calls without a line.
    silent: usize,
}

impl Refusals {
    /// Prints that a call of the thread was refused, if the limits allow it.
    pub(super) fn note(&mut self, thread: &Thread, asked: &str, error: &anyhow::Error) {
        if self.admit(thread.tid(), &format!("{error:#}")) {
            note(&format!("{} asks for {asked}, refused: {error:#}", named(thread)));
        }
    }

    /// Whether a line is to be printed; counts the call otherwise.
    fn admit(&mut self, tid: Tid, reason: &str) -> bool {
        let is_full = self.printed.len() >= MAX_REASONS;
        let is_new = match self.printed.get_mut(reason) {
            Some(threads) => mutate!(
                "run-intercept-once",
                threads.len() < MAX_THREADS && threads.insert(tid),
                true
            ),
            None if is_full => false,
            None => {
                self.printed.insert(reason.to_owned(), BTreeSet::from([tid]));
                true
            }
        };
        self.silent += usize::from(!is_new);
        is_new
    }

    /// Prints the number of refused calls without a line.
    pub(super) fn note_rest(&self) {
        if self.silent > 0 {
            note(&format!("{} more refused", count(self.silent, "call")));
        }
    }
}

/// Names a thread by its number and its name.
pub(super) fn named(thread: &Thread) -> String {
    let tid = thread.tid();
    let name = proc::comm(tid).unwrap_or_default();
    let name: String = name.chars().filter(|letter| !letter.is_control()).collect();
    format!("thread {tid} ({name})")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_printed_once_per_thread_and_reason_within_the_limits() {
        let mut refusals = Refusals::default();
        let tid = |number| Tid::new(number).expect("positive");
        assert!(refusals.admit(tid(1), "a rule"));
        assert!(!refusals.admit(tid(1), "a rule"));
        assert!(refusals.admit(tid(1), "another rule"));
        let more = (2..100).filter(|&number| refusals.admit(tid(number), "a rule")).count();
        assert_eq!(more, MAX_THREADS - 1);
        let reasons = (0..100).filter(|i| refusals.admit(tid(1), &i.to_string())).count();
        assert_eq!(reasons, MAX_REASONS - 2);
        assert_eq!(refusals.silent, 1 + (98 - more) + (100 - reasons));
    }
}
