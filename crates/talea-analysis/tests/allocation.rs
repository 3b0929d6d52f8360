//! Tests without a list result allocate nothing in a scratch that has held as many tasks.
//!
//! The file is a separate binary, because the counting allocator applies to the whole program. The
//! allocator counts per thread.

use allocation_counter::measure;
use talea_analysis::Sporadic;
use talea_analysis::multi::bertogna_cirinei::{self, GlobalPolicy};
use talea_analysis::multi::{Scratch, baruah, bcl, ff_dbf, gfb, guan};
use talea_analysis::uni::{self, edf_in_fp, edf_response, fp_response, np_fp, qpa};
use talea_core::{Span, Work};

/// Returns `count` tasks, each with a share of `load` thousandths of a CPU. The deadlines are a
/// little shorter than the periods.
fn set(count: u64, load: u64) -> Vec<Sporadic> {
    let task = |at: u64| {
        let period = 1_000_000 + 137_731 * at;
        let (cost, deadline) = (period * load / (1_000 * count), period - 1_000);
        Sporadic::new(Work::from_ns(cost), Span::from_ns(period), Span::from_ns(deadline))
    };
    (0..count).map(task).collect()
}

type Test = fn(&[Sporadic], &mut Scratch) -> bool;

const TESTS: [(&str, Test); 8] = [
    ("gfb", |set, _| gfb::accepts(set, 4)),
    ("bcl", |set, scratch| bcl::plain_slacks(set, 4, scratch) == Ok(None)),
    ("bcl-iterative", |set, scratch| bcl::iterative_slacks(set, 4, scratch) == Ok(None)),
    ("bertogna-cirinei-edf", |set, scratch| responses(GlobalPolicy::Edf, set, scratch)),
    ("bertogna-cirinei-fp", |set, scratch| responses(GlobalPolicy::FixedPriority, set, scratch)),
    ("guan", |set, scratch| guan::responses(set, 4, scratch) == Ok(None)),
    ("bar", |set, scratch| baruah::accepts(set, 4, 1 << 20, scratch).is_ok()),
    ("ff-dbf", |set, scratch| ff_dbf::speed(set, 4, 1 << 20, scratch).is_ok()),
];

fn responses(policy: GlobalPolicy, set: &[Sporadic], scratch: &mut Scratch) -> bool {
    bertogna_cirinei::responses(policy, set, 4, scratch) == Ok(None)
}

#[test]
fn tests_for_several_cpus_allocate_nothing_in_a_scratch_that_is_large_enough() {
    // Sets that every test accepts, sets that few accept, and fewer tasks than before.
    let sets = [set(30, 1_500), set(30, 3_300), set(7, 2_500), set(30, 3_990)];
    for (name, test) in TESTS {
        let mut scratch = Scratch::new();
        let first: Vec<bool> = sets.iter().map(|set| test(set, &mut scratch)).collect();
        for (set, first) in sets.iter().zip(first) {
            let mut again = !first;
            let counted = measure(|| again = test(set, &mut scratch));
            assert_eq!(counted.count_total, 0, "{name}, {} tasks", set.len());
            assert_eq!(again, first, "{name}: what was there before changes the answer");
        }
    }
}

type TestOfOne = fn(&[Sporadic], &mut uni::Scratch, &mut [Option<uni::Bound>]) -> bool;

/// `LEVELS[n]`: level of task `n`; two tasks share a level.
const LEVELS: [u32; 30] = {
    let mut levels = [0; 30];
    let mut at = 0;
    while at < 30 {
        levels[at] = at as u32 / 2;
        at += 1;
    }
    levels
};

const TESTS_OF_ONE: [(&str, TestOfOne); 6] = [
    ("fp-response-times", |set, scratch, out| fp_response::bounds(set, scratch, out) == Ok(true)),
    ("fp-response-times, verdict", |set, scratch, _| fp_response::meets(set, scratch) == Ok(true)),
    ("edf-response-times", |set, scratch, out| edf_response::bounds(set, scratch, out) == Ok(true)),
    ("edf-demand", |set, scratch, _| qpa::find(set, scratch) == Ok(qpa::Finding::Fits)),
    ("edf-in-fp-response-times", |set, scratch, out| {
        edf_in_fp::bounds(set, &LEVELS[..set.len()], scratch, out) == Ok(true)
    }),
    ("np-fp-response-times", |set, scratch, out| np_fp::bounds(set, scratch, out) == Ok(true)),
];

#[test]
fn tests_for_one_cpu_allocate_nothing_in_a_scratch_that_is_large_enough() {
    // Not if ΣU is within 2^-60 of one: then the exact sum is computed.
    let sets = [set(30, 600), set(30, 950), set(7, 800), set(30, 1_200)];
    for (name, test) in TESTS_OF_ONE {
        let mut scratch = uni::Scratch::new();
        let mut out = vec![None; 30];
        let first: Vec<bool> =
            sets.iter().map(|set| test(set, &mut scratch, &mut out[..set.len()])).collect();
        for (set, first) in sets[..3].iter().zip(first) {
            let mut again = !first;
            let counted = measure(|| again = test(set, &mut scratch, &mut out[..set.len()]));
            assert_eq!(counted.count_total, 0, "{name}, {} tasks", set.len());
            assert_eq!(again, first, "{name}: what was there before changes the answer");
        }
    }
}
