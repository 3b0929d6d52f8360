//! Rate limit of the log lines that clients cause.
//!
//! Model: a window is one second of the monotonic clock. In a window, at most
//! [`MAX_LINES_PER_SUBJECT`] lines about one subject are logged and at most [`MAX_LINES`] in total.
//! One line after the window counts the suppressed ones. The counts belong to the window and not to
//! a connection or a user, so a client does not reset them by reconnecting.

use crate::subjects::Subject;
use std::collections::BTreeMap;
use talea_core::Monotonic;
use talea_core::mutate;

const SECOND_NS: u64 = 1_000_000_000;
/// Maximum number of lines about one subject per second.
const MAX_LINES_PER_SUBJECT: u32 = 20;
/// Maximum number of lines about all subjects per second.
const MAX_LINES: u32 = 200;

/// Counts of the current window.
#[derive(Debug, Default)]
pub(crate) struct LogLimit {
    /// Number of the window: seconds of the monotonic clock.
    window: u64,
    logged: u32,
    /// Logged and suppressed lines about each subject.
    subjects: BTreeMap<Subject, (u32, u64)>,
    /// Number of suppressed lines.
    suppressed: u64,
}

impl LogLimit {
    /// Counts a line about a subject. Returns whether the line may be logged.
    pub(crate) fn allows(&mut self, subject: Subject, now: Monotonic) -> bool {
        let window = now.as_ns() / SECOND_NS;
        if self.window != window {
            *self = LogLimit { window, ..LogLimit::default() };
        }
        let (logged, suppressed) = self.subjects.entry(subject).or_default();
        let allows =
            mutate!("quota-log", *logged < MAX_LINES_PER_SUBJECT && self.logged < MAX_LINES, true);
        if allows {
            *logged += 1;
            self.logged += 1;
        } else {
            *suppressed += 1;
            self.suppressed += 1;
        }
        allows
    }

    /// Whether lines of the current window are suppressed and not yet reported.
    pub(crate) fn has_suppressed(&self) -> bool {
        self.suppressed > 0
    }

    /// Returns the start of the next window.
    pub(crate) fn end(&self) -> Monotonic {
        Monotonic::from_ns((self.window + 1).saturating_mul(SECOND_NS))
    }

    /// Returns the number of suppressed lines and the subject of most of them, and resets the
    /// number.
    pub(crate) fn take_suppressed(&mut self) -> Option<(u64, Subject)> {
        let most = self.subjects.iter().max_by_key(|(_, (_, suppressed))| *suppressed);
        let subject = most.map(|(&subject, _)| subject)?;
        Some((std::mem::take(&mut self.suppressed), subject)).filter(|(lines, _)| *lines > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attack_9_lines_are_limited_per_subject_and_in_total() {
        let (mut limit, at) = (LogLimit::default(), |ms| Monotonic::from_ns(ms * 1_000_000));
        let (alice, bob) = (Subject::UNSERVED, Subject::ROOT);
        let mut count = |subject, from, n: u64| {
            (from..from + n).filter(|&ms| limit.allows(subject, at(ms))).count()
        };
        assert_eq!(count(alice, 0, 100), 20);
        assert_eq!(count(bob, 100, 10), 10);
        assert_eq!(count(alice, 200, 100), 0);
        // The next second.
        assert_eq!(count(alice, 1_000, 100), 20);
        assert_eq!(limit.take_suppressed(), Some((80, alice)));
        assert_eq!(limit.take_suppressed(), None);
        let mut broker =
            |uid: u32| (0..20).filter(|_| limit.allows(Subject::user(uid), at(2_000))).count();
        let logged: usize = (1..=50).map(&mut broker).sum();
        assert_eq!(logged, 200);
    }
}
