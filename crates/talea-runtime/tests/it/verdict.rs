//! What a few tries on a machine that may stand still say.
//!
//! Model: each try looks at what no hole has touched, and says whether there was enough of that.
//! With enough of it, right is right and ends the matter; wrong may be what nobody saw disturb it,
//! but not in five tries of seven. A try with too little says nothing, whatever it shows. Where
//! nothing is known in the end, that is said aloud; it is a failure where everything is required
//! and the machine stood still in none of the tries: then it was not the machine that left so
//! little to look at.

use std::fmt::Write;

/// So many tries.
const TRIES: usize = 7;
/// So many wrong ones with enough to go by are no accident.
const WRONG: usize = 5;

/// What a try has shown.
pub(crate) struct Shown {
    /// In what nothing has touched.
    pub(crate) is_so: bool,
    /// Whether there was enough of that.
    pub(crate) is_enough: bool,
    /// Whether no CPU stood still.
    pub(crate) is_calm: bool,
    /// In words.
    pub(crate) saw: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Right,
    Wrong,
    /// Nothing is known, and whether that was the machine's fault.
    Open {
        was_disturbed: bool,
    },
}

/// As many tries as it takes.
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

/// Whether it is so in a few tries; whether anything is known. What is wrong in five tries with
/// enough to go by is a failure.
pub(crate) fn is_so(what: &str, tries: impl FnMut() -> Shown) -> bool {
    let mut seen = String::new();
    match judge(tries, &mut seen) {
        Verdict::Right => return true,
        Verdict::Wrong => panic!("{what}:\n{seen}"),
        Verdict::Open { was_disturbed } => {
            let is_required =
                std::env::var_os("TALEA_KERNEL_TESTS").is_some_and(|v| v == "required");
            assert!(
                was_disturbed || !is_required,
                "{what}: on a calm machine too little to go by:\n{seen}"
            );
        }
    }
    eprintln!("INCONCLUSIVE, nothing is known of this: {what}:\n{seen}");
    false
}

/// Of a row of tries, each right or wrong or nothing (too little), and whether the machine was
/// calm.
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
fn five_wrong_tries_of_seven_are_a_failure_on_any_machine_and_too_little_to_go_by_is_no_answer() {
    let (right, wrong, little) = ((Some(true), false), (Some(false), false), (None, false));
    assert_eq!(judged(&[wrong, little, wrong, little, wrong, wrong, wrong]), Verdict::Wrong);
    assert_eq!(judged(&[wrong; 5]), Verdict::Wrong);
    assert_eq!(judged(&[wrong, little, wrong, right]), Verdict::Right);
    let open = |was_disturbed| Verdict::Open { was_disturbed };
    // A right one with too little is none.
    assert_eq!(judged(&[wrong, wrong, little, little, little, little, little]), open(true));
    assert_eq!(judged(&[little; 7]), open(true));
    assert_eq!(judged(&[(None, true); 7]), open(false));
}
