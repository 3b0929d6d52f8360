//! Simulated responses against bounds. The file runs 10^5 random systems with random releases, over
//! every kind of node on one CPU that [`talea_analysis::uni`] covers. No response exceeds its
//! bound, and proved sets never miss.

use crate::replay::{self, Order};
use crate::rng::{Deadlines, Rng, random, rng, rounds};
use talea_analysis::uni::{Bound, Scratch, edf_in_fp, edf_response, fp_response, np_edf, np_fp};
use talea_analysis::verdict::Release;
use talea_analysis::{Sporadic, Verdict};
use talea_core::Span;
use talea_sim::Completion;

const SYSTEMS: u64 = 20_000;

/// Returns a random set, and releases that its jitter allows.
fn draw(rng: &mut Rng) -> (Vec<Sporadic>, Vec<Release>) {
    let count = rng.between(1, 5);
    let kind = if rng.below(2) == 0 { Deadlines::Constrained } else { Deadlines::Arbitrary };
    let mut tasks = random(rng, count, 40, 130 / count, kind);
    let mut releases = replay::together(&tasks);
    for (task, release) in tasks.iter_mut().zip(&mut releases) {
        task.jitter = Span::from_ns(rng.below(2) * rng.below(20));
        release.first = Span::from_ns(rng.below(2) * rng.below(40));
        release.early = Span::from_ns(rng.between(0, task.jitter.as_ns()));
    }
    (tasks, releases)
}

/// Number of bounds that no response exceeded, and of bounds that a response attained.
#[derive(Default)]
struct Tally {
    kept: u64,
    reached: u64,
    proved: u64,
}

impl Tally {
    fn hold(
        &mut self,
        tasks: &[Sporadic],
        bounds: &[Option<Bound>],
        releases: &[Release],
        ended: &[Completion],
    ) {
        let meets = |(bound, task): (&Option<Bound>, &Sporadic)| {
            bound.is_some_and(|bound| bound.meets(task))
        };
        self.proved += u64::from(bounds.iter().zip(tasks).all(meets));
        for (at, longest) in replay::longest(tasks, ended).into_iter().enumerate() {
            let Some(bound) = bounds[at] else { continue };
            assert!(longest <= bound.release.as_ns(), "task {at} of {tasks:?} {releases:?}");
            self.kept += 1;
            self.reached += u64::from(longest == bound.release.as_ns());
        }
    }

    fn end(&self, name: &str) {
        let Tally { kept, reached, proved } = self;
        println!("{name}: {kept} bounds kept, {reached} of them reached, {proved} sets proved");
        assert!(
            *reached > kept / 20 && *proved > SYSTEMS / 20,
            "{name}: {kept} {reached} {proved}"
        );
    }
}

#[test]
fn fixed_priorities_preemptive_and_not() {
    let mut rng = rng(101);
    let (mut scratch, mut preemptive, mut not) =
        (Scratch::new(), Tally::default(), Tally::default());
    for _ in 0..rounds(SYSTEMS) {
        let (tasks, releases) = draw(&mut rng);
        let mut bounds = vec![None; tasks.len()];
        fp_response::bounds(&tasks, &mut scratch, &mut bounds).expect("in range");
        let ended = replay::simulate(&tasks, &releases, Order::Priority, true, 300);
        preemptive.hold(&tasks, &bounds, &releases, &ended);
        np_fp::bounds(&tasks, &mut scratch, &mut bounds).expect("in range");
        let ended = replay::simulate(&tasks, &releases, Order::Priority, false, 300);
        not.hold(&tasks, &bounds, &releases, &ended);
    }
    preemptive.end("FP");
    not.end("FP, non-preemptive");
}

#[test]
fn deadlines_preemptive_and_not_and_in_bands() {
    let mut rng = rng(102);
    let (mut scratch, mut edf, mut bands) = (Scratch::new(), Tally::default(), Tally::default());
    let mut proved = 0;
    for _ in 0..rounds(SYSTEMS) {
        let (mut tasks, mut releases) = draw(&mut rng);
        for (task, release) in tasks.iter_mut().zip(&mut releases) {
            // The simulator counts deadlines from the release: jitter would move them.
            (task.jitter, release.early) = (Span::ZERO, Span::ZERO);
        }
        let last = rng.below(tasks.len() as u64) as usize;
        let mut bounds = vec![None; tasks.len()];
        edf_response::bounds(&tasks, &mut scratch, &mut bounds).expect("in range");
        let ended = replay::simulate(&tasks, &releases, Order::Deadline { last }, true, 300);
        edf.hold(&tasks, &bounds, &releases, &ended);
        let levels: Vec<u32> = (0..tasks.len()).map(|at| (at as u64 / 2) as u32).collect();
        edf_in_fp::bounds(&tasks, &levels, &mut scratch, &mut bounds).expect("in range");
        let ended = replay::simulate_bands(&tasks, &levels, &releases, last, 300);
        bands.hold(&tasks, &bounds, &releases, &ended);
        if let Verdict::Proved { .. } = np_edf::verdict(&tasks) {
            proved += 1;
            let ended = replay::simulate(&tasks, &releases, Order::Deadline { last }, false, 300);
            assert!(!ended.iter().any(Completion::is_late), "{tasks:?} {releases:?}");
        }
    }
    edf.end("EDF");
    bands.end("EDF in bands");
    assert!(proved > SYSTEMS / 20, "{proved} sets proved for non-preemptive EDF");
}
