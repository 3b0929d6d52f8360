//! Tests for several CPUs: four CPUs, and periods of 10 ms to 1 s, with which other tools were
//! measured.

use super::rows::{Bench, Draw};
use talea_analysis::Sporadic;
use talea_analysis::multi::bertogna_cirinei::{self, GlobalPolicy};
use talea_analysis::multi::{Scratch, baruah, bcl, da_lc, ff_dbf, gfb, guan, portfolio};
use talea_sim::generate::Deadlines;

const CPUS: u32 = 4;
/// Maximum number of windows that a test examines. No set of this module needs as many.
const MAX_WINDOWS: u64 = 1 << 24;

/// Draws sets with implicit deadlines: U = 1.6 for ten tasks, otherwise 2.
fn implicit(tasks: usize) -> Vec<Vec<Sporadic>> {
    let percent = if tasks == 10 { 160 } else { 200 };
    Draw { percent, shortest_ms: 10, deadlines: Deadlines::Implicit }.sets(tasks)
}

/// Draws sets of which the plain BCL test accepts about half.
fn half_accepted(tasks: usize) -> Vec<Vec<Sporadic>> {
    let percent = match tasks {
        10 => 58,
        20 => 28,
        _ => 20,
    };
    Draw { percent, shortest_ms: 10, deadlines: Deadlines::Implicit }.sets(tasks)
}

/// Draws sets with deadlines from 0.7 of the slack upward and loads that the density test does not
/// decide.
fn constrained(tasks: usize) -> Vec<Vec<Sporadic>> {
    Draw { percent: 240, shortest_ms: 10, deadlines: Deadlines::Constrained { from: 700 } }
        .sets(tasks)
}

/// Wraps a test with its own scratch memory.
fn with_scratch(
    mut accepts: impl FnMut(&[Sporadic], &mut Scratch) -> bool,
) -> impl FnMut(&Vec<Sporadic>) -> bool {
    let mut scratch = Scratch::new();
    move |set| accepts(set, &mut scratch)
}

/// Measures the rows of this module.
pub(super) fn measure(bench: &mut Bench) {
    const PEERS: &str = "m = 4, implicit, U = 1.6 or 2";
    let response = |policy| {
        move |_: usize| {
            with_scratch(move |set, scratch| {
                bertogna_cirinei::responses(policy, set, CPUS, scratch) == Ok(None)
            })
        }
    };
    let guan =
        |_: usize| with_scratch(|set, scratch| guan::responses(set, CPUS, scratch) == Ok(None));
    let plain =
        |_: usize| with_scratch(|set, scratch| bcl::plain_slacks(set, CPUS, scratch) == Ok(None));
    let iterative = |_: usize| {
        with_scratch(|set, scratch| bcl::iterative_slacks(set, CPUS, scratch) == Ok(None))
    };
    let baruah = |_: usize| {
        with_scratch(|set, scratch| baruah::accepts(set, CPUS, MAX_WINDOWS, scratch).is_ok())
    };
    let first = |_: usize| {
        with_scratch(|set, scratch| {
            portfolio::first_accepting(GlobalPolicy::Edf, set, CPUS, MAX_WINDOWS, scratch).is_ok()
        })
    };

    let thresholds = Some([10_000_000, 6_000_000, 3_000_000]);
    bench.case((gfb::INFO.name, PEERS), thresholds, implicit, |_| {
        |set: &Vec<Sporadic>| gfb::accepts(set, CPUS)
    });
    let thresholds = Some([2_000_000, 300_000, 60_000]);
    bench.case(
        (bcl::PLAIN.name, "m = 4, implicit, half accepted, all slacks"),
        thresholds,
        half_accepted,
        plain,
    );
    bench.case((bcl::ITERATIVE.name, PEERS), None, implicit, iterative);
    let thresholds = Some([40_000, 15_000, 3_000]);
    bench.case(
        (bertogna_cirinei::EDF.name, PEERS),
        thresholds,
        implicit,
        response(GlobalPolicy::Edf),
    );
    bench.case(
        (bertogna_cirinei::FP.name, PEERS),
        thresholds,
        implicit,
        response(GlobalPolicy::FixedPriority),
    );
    bench.case((guan::INFO.name, PEERS), thresholds, implicit, guan);
    bench.case((da_lc::INFO.name, PEERS), None, implicit, |_| {
        with_scratch(|set, scratch| da_lc::test(set, CPUS, scratch).is_proved())
    });
    bench.case((baruah::INFO.name, PEERS), None, implicit, baruah);
    bench.case((ff_dbf::INFO.name, "m = 4, constrained, U = 2.4"), None, constrained, |_| {
        with_scratch(|set, scratch| ff_dbf::speed(set, CPUS, MAX_WINDOWS, scratch).is_ok())
    });
    bench.case((portfolio::INFO.name, "m = 4, constrained, U = 2.4"), None, constrained, first);
}
