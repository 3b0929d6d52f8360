//! Numbers at the ends of the range: no value wraps, and no test hangs.

use crate::rng::{Deadlines, random, rng, rounds, task};
use talea_analysis::uni::{
    MAX_PARAMETER_NS, Scratch, edf_in_fp, edf_response, fp_response, np_edf, np_fp, qpa,
};
use talea_analysis::verdict::Inconclusive;
use talea_analysis::{Sporadic, Verdict, Witness};
use talea_core::{Span, Work};

/// Returns `tasks` with every time multiplied by 2^`bits`.
fn widened(tasks: &[Sporadic], bits: u32) -> Vec<Sporadic> {
    let span = |span: Span| Span::from_ns(span.as_ns() << bits);
    let work = |work: Work| Work::from_ns(work.as_ns() << bits);
    let one = |task: &Sporadic| Sporadic {
        cost: work(task.cost),
        period: span(task.period),
        deadline: span(task.deadline),
        jitter: span(task.jitter),
        blocking: work(task.blocking),
    };
    tasks.iter().map(one).collect()
}

/// Returns `verdict` with every time multiplied by 2^`bits`.
fn widened_verdict(verdict: Verdict, bits: u32) -> Verdict {
    let span = |span: Span| Span::from_ns(span.as_ns() << bits);
    match verdict {
        Verdict::Proved { bounds } => {
            Verdict::Proved { bounds: bounds.into_iter().map(span).collect() }
        }
        Verdict::Refuted { witness: Witness::Miss { task, job, response, mut releases } } => {
            for release in &mut releases {
                (release.first, release.early) = (span(release.first), span(release.early));
            }
            Verdict::Refuted {
                witness: Witness::Miss { task, job, response: span(response), releases },
            }
        }
        other => other,
    }
}

#[test]
fn in_other_units_the_same_set_has_the_same_answers() {
    let mut rng = rng(91);
    let mut limits = 0;
    for _ in 0..rounds(3_000) {
        let count = rng.between(1, 5);
        // Sums of such sets stay below 2^10, and busy periods below 2^11 as a rule.
        let mut tasks = random(&mut rng, count, 60, 110 / count, Deadlines::Arbitrary);
        for task in &mut tasks {
            task.jitter = Span::from_ns(rng.below(3) * rng.below(20));
            task.blocking = Work::from_ns(rng.below(2) * rng.below(9));
        }
        let levels: Vec<u32> = (0..tasks.len()).map(|at| (at / 2) as u32).collect();
        for bits in [1, 30, 49] {
            let wide = widened(&tasks, bits);
            let pairs = [
                (fp_response::verdict(&tasks), fp_response::verdict(&wide)),
                (edf_response::verdict(&tasks), edf_response::verdict(&wide)),
                (edf_in_fp::verdict(&tasks, &levels), edf_in_fp::verdict(&wide, &levels)),
            ];
            for (narrow, wide_verdict) in pairs {
                if wide_verdict == (Verdict::Unknown { why: Inconclusive::Limit }) {
                    limits += 1;
                    continue;
                }
                assert_eq!(widened_verdict(narrow, bits), wide_verdict, "{tasks:?} {bits}");
            }
            // Which instant is found differs, whether there is one doesn't.
            let verdict = qpa::verdict(&wide);
            if verdict == (Verdict::Unknown { why: Inconclusive::Limit }) {
                limits += 1;
            } else {
                assert_eq!(
                    qpa::verdict(&tasks).is_proved(),
                    verdict.is_proved(),
                    "{tasks:?} {bits}"
                );
            }
        }
    }
    assert!(limits < rounds(3_000), "{limits} answers beyond the horizon");
}

#[test]
fn arbitrary_numbers_get_a_quick_answer() {
    let mut rng = rng(92);
    let mut known = 0;
    for _ in 0..rounds(3_000) {
        let any = |rng: &mut talea_sim::rng::Rng| {
            let bits = rng.below(65);
            if bits == 64 { rng.next() } else { rng.next() & ((1 << bits) - 1) }
        };
        let tasks: Vec<Sporadic> = (0..rng.between(0, 6))
            .map(|_| {
                let mut task = task(any(&mut rng), any(&mut rng), any(&mut rng));
                if rng.below(2) == 0 {
                    (task.jitter, task.blocking) =
                        (Span::from_ns(any(&mut rng)), Work::from_ns(any(&mut rng)));
                }
                if rng.below(4) > 0 {
                    // Something that may work.
                    task.period = Span::from_ns(task.period.as_ns() % MAX_PARAMETER_NS);
                    task.cost =
                        Work::from_ns(task.cost.as_ns() % (task.period.as_ns() / 2 + 1) + 1);
                    task.deadline = Span::from_ns(task.deadline.as_ns() % MAX_PARAMETER_NS);
                    (task.jitter, task.blocking) = (Span::ZERO, Work::ZERO);
                }
                task
            })
            .collect();
        let mut few = Scratch::with_limit(100_000);
        let levels = vec![0; tasks.len()];
        for verdict in [
            fp_response::verdict_in(&tasks, &mut few),
            edf_response::verdict_in(&tasks, &mut few),
            qpa::verdict_in(&tasks, &mut few),
            edf_in_fp::verdict_in(&tasks, &levels, &mut few),
            np_fp::verdict_in(&tasks, &mut few),
            np_edf::verdict_in(&tasks, &mut few),
        ] {
            known += u64::from(!matches!(verdict, Verdict::Unknown { .. }));
        }
        let _ = fp_response::meets(&tasks, &mut few);
    }
    assert!(known > rounds(3_000), "{known} answers");
}

#[test]
fn a_set_that_would_take_long_is_inconclusive() {
    // The first task leaves a nanosecond of each 2^40: the last needs 2^18 of them, one at a time.
    let long = 1 << 40;
    let tasks = [task(long - 1, long, long), task(1 << 18, 1 << 59, 1 << 59)];
    let mut few = Scratch::with_limit(1 << 16);
    for verdict in
        [fp_response::verdict_in(&tasks, &mut few), edf_response::verdict_in(&tasks, &mut few)]
    {
        assert_eq!(verdict, Verdict::Unknown { why: Inconclusive::Limit });
    }
    assert!(fp_response::verdict(&tasks).is_proved(), "proved without the step limit");
}
