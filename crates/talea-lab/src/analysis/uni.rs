//! Tests for one CPU.

use super::rows::{Bench, Draw};
use talea_analysis::Sporadic;
use talea_analysis::Verdict;
use talea_analysis::uni::{Scratch, edf_response, fp_response, np_edf, qpa};
use talea_sim::generate::Deadlines;

/// Sets with periods of 1 ms to 1 s, with which other tools were measured.
const IMPLICIT: Draw = Draw { percent: 90, shortest_ms: 1, deadlines: Deadlines::Implicit };
/// Rule for deadlines from 0.7 of the slack upward.
const CONSTRAINED_DEADLINES: Deadlines = Deadlines::Constrained { from: 700 };
const CONSTRAINED: Draw = Draw { percent: 95, shortest_ms: 1, deadlines: CONSTRAINED_DEADLINES };

fn fp(tasks: usize) -> impl FnMut(&Vec<Sporadic>) -> bool {
    let (mut scratch, mut out) = (Scratch::new(), vec![None; tasks]);
    move |set| fp_response::bounds(set, &mut scratch, &mut out) == Ok(true)
}

fn fp_meets(_: usize) -> impl FnMut(&Vec<Sporadic>) -> bool {
    let mut scratch = Scratch::new();
    move |set| fp_response::meets(set, &mut scratch) == Ok(true)
}

fn edf(tasks: usize) -> impl FnMut(&Vec<Sporadic>) -> bool {
    let (mut scratch, mut out) = (Scratch::new(), vec![None; tasks]);
    move |set| edf_response::bounds(set, &mut scratch, &mut out) == Ok(true)
}

fn non_preemptive_edf(tasks: usize) -> impl FnMut(&Vec<Sporadic>) -> bool {
    let (mut scratch, mut out) = (Scratch::new(), vec![None; tasks]);
    move |set| np_edf::bounds(set, &mut scratch, &mut out) == Ok(true)
}

fn non_preemptive_demand(_: usize) -> impl FnMut(&Vec<Sporadic>) -> bool {
    let mut scratch = Scratch::new();
    move |set| matches!(np_edf::verdict_in(set, &mut scratch), Verdict::Proved { .. })
}

fn demand(_: usize) -> impl FnMut(&Vec<Sporadic>) -> bool {
    let mut scratch = Scratch::new();
    move |set| qpa::find(set, &mut scratch) == Ok(qpa::Finding::Fits)
}

/// Measures the rows of this module.
pub(super) fn measure(bench: &mut Bench) {
    let response = fp_response::INFO.name;
    let thresholds = Some([2_000_000, 600_000, 100_000]);
    bench.case((response, "implicit, U = 0.9"), thresholds, |tasks| IMPLICIT.sets(tasks), fp);
    bench.case((response, "constrained, U = 0.95"), None, |tasks| CONSTRAINED.sets(tasks), fp);
    let verdict = "fp-response-times, verdict only";
    bench.case((verdict, "implicit, U = 0.9"), None, |tasks| IMPLICIT.sets(tasks), fp_meets);
    let thresholds = Some([1_000_000, 500_000, 150_000]);
    bench.case(
        (qpa::INFO.name, "constrained, U = 0.95"),
        thresholds,
        |tasks| CONSTRAINED.sets(tasks),
        demand,
    );
    let close = Draw { percent: 99, ..CONSTRAINED };
    bench.case(
        (qpa::INFO.name, "constrained, U = 0.99"),
        thresholds,
        |tasks| close.sets(tasks),
        demand,
    );
    let response = edf_response::INFO.name;
    let thresholds = Some([100_000, 15_000, 1_500]);
    bench.case((response, "implicit, U = 0.9"), thresholds, |tasks| IMPLICIT.sets(tasks), edf);
    bench.case((response, "constrained, U = 0.95"), None, |tasks| CONSTRAINED.sets(tasks), edf);
    let response = np_edf::RESPONSE_TIMES.name;
    let thresholds = Some([50_000, 10_000, 1_000]);
    let sets = |tasks| IMPLICIT.sets(tasks);
    bench.case((response, "implicit, U = 0.9"), thresholds, sets, non_preemptive_edf);
    let sets = |tasks| CONSTRAINED.sets(tasks);
    bench.case((response, "constrained, U = 0.95"), None, sets, non_preemptive_edf);
    let sets = |tasks| IMPLICIT.sets(tasks);
    let demand = np_edf::INFO.name;
    bench.case((demand, "implicit, U = 0.9"), None, sets, non_preemptive_demand);
}
