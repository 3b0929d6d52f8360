//! Claims about a figure, and whether they hold.

use super::stall_filter::Responses;
use serde::Serialize;
use std::time::{Duration, Instant};
use talea_core::mutate;
use talea_study::exit::Exit;
use talea_study::output::{Tone, note, paint};

/// Verdict on a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Holds,
    /// Stalls of the computer exclude too much of the measurement.
    Inconclusive,
    Contradicts,
}

impl Verdict {
    /// Returns the verdict of a measurement: inconclusive if too little of the measurement counts.
    pub(super) fn of(is_so: bool, is_inconclusive: bool) -> Verdict {
        match (is_inconclusive, is_so) {
            (true, _) => Verdict::Inconclusive,
            (false, true) => Verdict::Holds,
            (false, false) => Verdict::Contradicts,
        }
    }

    /// Returns the worse of two verdicts.
    pub(super) fn and(self, other: Verdict) -> Verdict {
        match (&self, &other) {
            (_, Verdict::Contradicts) | (Verdict::Holds, _) => other,
            _ => self,
        }
    }

    pub(super) fn word(&self) -> &'static str {
        match self {
            Verdict::Holds => "holds",
            Verdict::Inconclusive => "inconclusive",
            Verdict::Contradicts => "contradicts",
        }
    }

    pub(super) fn exit(&self) -> Exit {
        match self {
            Verdict::Holds => Exit::Ok,
            Verdict::Inconclusive => Exit::Inconclusive,
            Verdict::Contradicts => Exit::Failure,
        }
    }
}

impl Serialize for Verdict {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.word())
    }
}

/// Statement that a figure supports.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Claim {
    /// Requirement to which the claim belongs (`docs/requirements.md`).
    pub(super) row: &'static str,
    pub(super) says: String,
    /// Observation that confirms or contradicts the claim.
    pub(super) seen: String,
    pub(super) verdict: Verdict,
}

impl Claim {
    pub(super) fn line(&self, color: bool) -> String {
        let tone = match self.verdict {
            Verdict::Holds => Tone::Good,
            Verdict::Inconclusive => Tone::Doubtful,
            Verdict::Contradicts => Tone::Bad,
        };
        let Claim { row, says, seen, .. } = self;
        format!("{row} {says}: {seen}: {}", paint(self.verdict.word(), tone, color))
    }
}

/// Number of contradictions that are conclusive. Stalls that are too short to be detected may cause
/// one contradiction, but a wrong scheduler contradicts in each run.
const CONTRADICTIONS: u32 = 3;
/// Maximum number of attempts.
const MAX_ATTEMPTS: u32 = 6;

/// Repeats an experiment while a claim is inconclusive and `patience` has not elapsed, or after a
/// contradiction.
///
/// Returns the last attempt. Contradictions in fewer than [`CONTRADICTIONS`] attempts are
/// inconclusive.
pub(super) fn settle<T>(
    what: &str,
    patience: Duration,
    mut attempt: impl FnMut() -> anyhow::Result<(T, Vec<Claim>)>,
) -> anyhow::Result<(T, Vec<Claim>)> {
    let begun = Instant::now();
    let mut contradictions = 0;
    for number in 1.. {
        let (seen, mut claims) = attempt()?;
        let verdict =
            claims.iter().fold(Verdict::Holds, |worst, claim| worst.and(claim.verdict.clone()));
        contradictions += u32::from(verdict == Verdict::Contradicts);
        let is_over = match verdict {
            Verdict::Holds => true,
            Verdict::Contradicts => contradictions == CONTRADICTIONS,
            Verdict::Inconclusive => begun.elapsed() > patience,
        };
        if is_over || number == MAX_ATTEMPTS {
            for claim in &mut claims {
                if claim.verdict == Verdict::Contradicts
                    && mutate!(
                        "lab-l3c-tries",
                        contradictions < CONTRADICTIONS,
                        contradictions <= CONTRADICTIONS
                    )
                {
                    claim.verdict = Verdict::Inconclusive;
                }
            }
            return Ok((seen, claims));
        }
        for claim in claims.iter().filter(|claim| claim.verdict != Verdict::Holds) {
            note(&format!("{what}, once more: {}", claim.line(false)));
        }
    }
    unreachable!("it ends after {MAX_ATTEMPTS}")
}

/// Repeats a measurement while stalls exclude too much of it and `patience` has not elapsed.
/// Returns the last measurement.
pub(super) fn undisturbed<T>(
    patience: Duration,
    mut measure: impl FnMut() -> anyhow::Result<(T, Responses)>,
) -> anyhow::Result<(T, Responses)> {
    let begun = Instant::now();
    for _ in 1..MAX_ATTEMPTS {
        let (seen, waits) = measure()?;
        if !waits.are_inconclusive() || begun.elapsed() > patience {
            return Ok((seen, waits));
        }
    }
    measure()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(verdict: Verdict) -> Vec<Claim> {
        vec![Claim { row: "L0", says: "it".to_owned(), seen: "seen".to_owned(), verdict }]
    }

    fn settled(verdicts: &[Verdict]) -> (usize, Verdict) {
        settled_with(Duration::from_mins(1), verdicts)
    }

    fn settled_with(patience: Duration, verdicts: &[Verdict]) -> (usize, Verdict) {
        let mut count = 0;
        let ((), claims) = settle("it", patience, || {
            count += 1;
            Ok(((), claim(verdicts[(count - 1) % verdicts.len()].clone())))
        })
        .expect("no error");
        (count, claims[0].verdict.clone())
    }

    #[test]
    fn what_holds_once_holds_and_what_contradicts_every_time_does_and_the_rest_says_nothing() {
        use Verdict::{Contradicts, Holds, Inconclusive};
        assert_eq!(settled(&[Holds]), (1, Holds));
        assert_eq!(settled(&[Contradicts, Inconclusive, Holds]), (3, Holds));
        assert_eq!(settled(&[Contradicts]), (3, Contradicts));
        assert_eq!(settled(&[Inconclusive]), (6, Inconclusive));
        assert_eq!(
            settled(&[Contradicts, Inconclusive, Inconclusive, Inconclusive]),
            (6, Inconclusive)
        );
        let at_once = |verdicts: &[Verdict]| settled_with(Duration::ZERO, verdicts);
        assert_eq!(at_once(&[Inconclusive, Holds]), (1, Inconclusive));
        assert_eq!(at_once(&[Contradicts, Holds]), (2, Holds));
        assert_eq!(Verdict::of(true, true), Inconclusive);
        assert_eq!(Inconclusive.and(Contradicts).and(Holds).exit(), Exit::Failure);
        assert_eq!(Holds.and(Inconclusive).exit(), Exit::Inconclusive);
    }
}
