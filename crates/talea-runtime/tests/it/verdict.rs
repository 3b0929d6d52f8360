//! Verdict of a few attempts on a system that may have CPU stalls.
//!
//! Model: each attempt excludes the jobs that a stall affected, and states whether enough is left.
//! If so, a success ends the test; a failure may have an undetected cause, but not in five attempts
//! of seven. An attempt with too little left is inconclusive, and so are seven attempts without a
//! success or five failures. They are one of the runs that the test counts ([`Runs`]). The test
//! fails where all tests are required and no attempt had a stall, because then stalls are not the
//! reason.

use std::fmt::Write;
use talea_kernel_tests::Runs;

/// Number of attempts.
const TRIES: usize = 7;
/// Number of conclusive failures that cannot be accidental.
const WRONG: usize = 5;

/// Result of an attempt.
pub(crate) struct Shown {
    /// Whether the attempt succeeded, apart from the excluded part.
    pub(crate) is_so: bool,
    /// Whether enough of the attempt is left.
    pub(crate) is_enough: bool,
    /// Whether there was no CPU stall.
    pub(crate) is_calm: bool,
    /// Description.
    pub(crate) saw: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Right,
    Wrong,
    /// Inconclusive, and whether stalls are the reason.
    Open {
        was_disturbed: bool,
    },
}

/// Makes as many attempts as necessary.
fn judge(mut tries: impl FnMut() -> Shown, seen: &mut String) -> Verdict {
    let (mut wrong, mut was_disturbed) = (0, false);
    for _ in 0..TRIES {
        let shown = tries();
        if shown.is_enough && shown.is_so {
            return Verdict::Right;
        }
        wrong += usize::from(shown.is_enough);
        was_disturbed |= shown.is_enough || !shown.is_calm;
        let little = if shown.is_enough { "" } else { " (too little to go by)" };
        let stood = if shown.is_calm { "" } else { " (a CPU stood still)" };
        let _ = writeln!(seen, "{}{little}{stood}", shown.saw);
        if wrong == WRONG {
            return Verdict::Wrong;
        }
    }
    Verdict::Open { was_disturbed }
}

/// Repeats attempts until a few succeed, as one of the runs of a test. Panics after five conclusive
/// failures of seven.
pub(crate) fn is_so(runs: &mut Runs, what: &str, mut tries: impl FnMut() -> Shown) {
    runs.repeat(|| {
        let mut seen = String::new();
        match judge(&mut tries, &mut seen) {
            Verdict::Right => return Some(()),
            Verdict::Wrong => panic!("{what}:\n{seen}"),
            Verdict::Open { was_disturbed } => {
                let is_required =
                    std::env::var_os("TALEA_KERNEL_TESTS").is_some_and(|v| v == "required");
                assert!(
                    was_disturbed || !is_required,
                    "{what}: inconclusive without a stall:\n{seen}"
                );
            }
        }
        println!("{what}: inconclusive:\n{seen}");
        None
    });
}

/// Returns the verdict of these attempts: success, failure or nothing (too little), and whether
/// there was no stall.
#[cfg(test)]
fn judged(row: &[(Option<bool>, bool)]) -> Verdict {
    let mut row = row.iter();
    let next = || {
        let &(shown, is_calm) = row.next().expect("no more tries than these");
        Shown {
            is_so: shown.unwrap_or(true),
            is_enough: shown.is_some(),
            is_calm,
            saw: String::new(),
        }
    };
    judge(next, &mut String::new())
}

#[test]
fn five_failed_attempts_of_seven_are_a_failure_and_too_little_data_is_inconclusive() {
    let (right, wrong, little) = ((Some(true), false), (Some(false), false), (None, false));
    assert_eq!(judged(&[wrong, little, wrong, little, wrong, wrong, wrong]), Verdict::Wrong);
    assert_eq!(judged(&[wrong; 5]), Verdict::Wrong);
    assert_eq!(judged(&[wrong, little, wrong, right]), Verdict::Right);
    let open = |was_disturbed| Verdict::Open { was_disturbed };
    // A success with too little is none.
    assert_eq!(judged(&[wrong, wrong, little, little, little, little, little]), open(true));
    assert_eq!(judged(&[little; 7]), open(true));
    assert_eq!(judged(&[(None, true); 7]), open(false));
}
