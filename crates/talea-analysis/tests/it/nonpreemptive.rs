//! Non-preemptive jobs: published examples, reference models, and the simulator with every possible
//! blocking job.

use crate::plain::{self, Plain, plain};
use crate::replay::{self, Order};
use crate::rng::{Deadlines, every, random, rng, rounds, set, short_tasks, task};
use talea_analysis::uni::{Scratch, fp_response, np_edf, np_fp, qpa};
use talea_analysis::verdict::Release;
use talea_analysis::{Sporadic, Verdict, Witness};
use talea_core::{Span, Work};

fn bounds(tasks: &[Sporadic]) -> Vec<Option<(u64, u64)>> {
    let mut out = vec![None; tasks.len()];
    np_fp::bounds(tasks, &mut Scratch::new(), &mut out).expect("in range");
    out.iter()
        .map(|bound| bound.map(|bound| (bound.release.as_ns(), bound.arrival.as_ns())))
        .collect()
}

#[test]
fn davis_2007_the_third_message_misses_in_its_second_job() {
    // Table 2: C = 1 ms each, T = 2.5, 3.5, 3.5, D = 2.5, 3.25, 3.25. The earlier analysis says 3
    // for C; its second instance takes 3.5. With a blocking job of a nanosecond in place of none.
    let ms = |tenths: u64| tenths * 100_000;
    let tasks = set(&[
        (ms(10), ms(25), ms(25)),
        (ms(10), ms(35), ms(325) / 10),
        (ms(10), ms(35), ms(325) / 10),
    ]);
    let bounds: Vec<u64> =
        bounds(&tasks).into_iter().map(|bound| bound.expect("U < 1").0).collect();
    assert_eq!(bounds, [ms(20) - 1, ms(30) - 1, ms(35)]);
    let Verdict::Refuted { witness } = np_fp::verdict(&tasks) else { panic!("3.5 > 3.25") };
    assert!(matches!(witness, Witness::Miss { task: 2, job: 1, .. }), "{witness:?}");
    replay::misses(&tasks, &witness, Order::Priority, false);
}

#[test]
fn jeffay_1991_a_long_job_of_a_slow_task_blocks() {
    // A job of C blocks for C − 1: the first task has 2 to spare.
    assert!(np_edf::verdict(&set(&[(1, 3, 3), (3, 5, 5)])).is_proved());
    let tasks = set(&[(1, 3, 3), (4, 12, 12)]);
    let Verdict::Refuted { witness } = np_edf::verdict(&tasks) else { panic!("1 + 4 − 1 > 3") };
    replay::late(&tasks, &witness, false);
    assert!(qpa::verdict(&tasks).is_proved(), "with preemption it would work");
    assert!(np_edf::verdict(&set(&[(1, 3, 3), (3, 12, 12)])).is_proved());
}

/// Evaluates the equations as printed, for as many jobs as two hyperperiods have.
fn reference(tasks: &[Plain], at: usize) -> Option<(u64, u64)> {
    if plain::is_overloaded(&tasks[..=at]) {
        return None;
    }
    let own = tasks[at];
    let below = tasks[at + 1..].iter().map(|task| task.c - 1).max().unwrap_or(0);
    let (mut release, mut arrival) = (0, 0);
    for q in 0..2 * plain::hyperperiod(&tasks[..=at]) / own.t + own.j + 2 {
        let mut w = 0;
        loop {
            let more: u64 =
                tasks[..at].iter().map(|task| ((w + task.j) / task.t + 1) * task.c).sum();
            let next = own.b + below + q * own.c + more;
            if next == w {
                break;
            }
            w = next;
        }
        let end = w + own.c;
        // A job that arrives after its predecessors have completed belongs to another busy period.
        if q > 0 && end + own.j <= q * own.t {
            break;
        }
        release = release.max(end.saturating_sub((q * own.t).saturating_sub(own.j)));
        arrival = arrival.max((end + own.j).saturating_sub(q * own.t));
    }
    Some((release, arrival))
}

#[test]
fn the_equations_as_printed_give_the_same() {
    let mut rng = rng(41);
    for _ in 0..rounds(5_000) {
        let count = rng.between(1, 5);
        let mut tasks = random(&mut rng, count, 16, 120 / count, Deadlines::Arbitrary);
        for task in &mut tasks {
            task.jitter = Span::from_ns(rng.below(3) * rng.below(7));
            task.blocking = Work::from_ns(rng.below(2) * rng.below(5));
        }
        let numbers = plain(&tasks);
        let expected: Vec<_> = (0..tasks.len()).map(|at| reference(&numbers, at)).collect();
        assert_eq!(bounds(&tasks), expected, "{tasks:?}");
    }
}

/// Returns one release pattern for each task of `behind`: the task arrives a nanosecond before all
/// others, which are released together.
fn patterns(tasks: &[Sporadic], behind: impl Iterator<Item = usize>) -> Vec<Vec<Release>> {
    let mut patterns = vec![replay::together(tasks)];
    for first in behind {
        let one = Release { first: Span::from_ns(1), early: Span::ZERO };
        let mut pattern = vec![one; tasks.len()];
        pattern[first].first = Span::ZERO;
        patterns.push(pattern);
    }
    patterns
}

fn fp_equals_the_simulation(tasks: &[Sporadic]) -> bool {
    let numbers = plain(tasks);
    let verdict = np_fp::verdict(tasks);
    match &verdict {
        Verdict::Refuted { witness } => replay::misses(tasks, witness, Order::Priority, false),
        Verdict::Proved { .. } => {}
        Verdict::Unknown { why } => panic!("{why:?}: {tasks:?}"),
    }
    let bounds = bounds(tasks);
    if bounds.iter().any(Option::is_none) {
        return false;
    }
    let until = 2 * plain::hyperperiod(&numbers) + 20;
    for (at, bound) in bounds.iter().enumerate() {
        let mut longest = 0;
        // Of several blocking jobs the longest decides.
        for pattern in patterns(tasks, at + 1..tasks.len()) {
            // Those below come once only; and those that are behind, never.
            let ended = replay::simulate(tasks, &pattern, Order::Priority, false, until);
            let responses = replay::longest(tasks, &ended);
            for (response, bound) in responses.iter().zip(&bounds) {
                assert!(*response <= bound.expect("no overload").0, "{tasks:?} {pattern:?}");
            }
            longest = longest.max(responses[at]);
        }
        assert_eq!(longest, bound.expect("no overload").0, "task {at} of {tasks:?}");
    }
    verdict.is_proved()
}

#[test]
fn fp_bounds_are_the_longest_simulated_responses() {
    let mut choices = Vec::new();
    for period in 2..=6 {
        for cost in 1..=period / 2 {
            choices.push(task(cost, period, period));
        }
    }
    let (mut proved, mut all) = (0u64, 0u64);
    every(&choices, 3, |tasks| {
        proved += u64::from(fp_equals_the_simulation(tasks));
        all += 1;
    });
    println!("{all} sets, {proved} schedulable");
    assert!(proved > all / 10 && proved < all * 9 / 10, "{proved} of {all}");
}

/// Compares the verdict with simulations in which each task in turn arrives just before all others.
fn edf_equals_the_simulation(tasks: &[Sporadic]) -> bool {
    let numbers = plain(tasks);
    let verdict = np_edf::verdict(tasks);
    match &verdict {
        Verdict::Refuted { witness: Witness::Overload { .. } } => return false,
        Verdict::Refuted { witness } => replay::late(tasks, witness, false),
        Verdict::Proved { .. } => {}
        Verdict::Unknown { why } => panic!("{why:?}: {tasks:?}"),
    }
    let latest = numbers.iter().map(|task| task.d).max().expect("a task");
    let until = latest + 2 * plain::hyperperiod(&numbers) + 20;
    let misses = |pattern: &Vec<Release>| {
        let ended = replay::simulate(tasks, pattern, Order::Deadline { last: 0 }, false, until);
        ended.iter().any(talea_sim::Completion::is_late)
    };
    let missed = patterns(tasks, 0..tasks.len()).iter().any(misses);
    assert_eq!(missed, !verdict.is_proved(), "{tasks:?}");
    verdict.is_proved()
}

#[test]
fn edf_verdicts_are_those_of_the_simulation() {
    let choices = short_tasks();
    let (mut proved, mut all) = (0u64, 0u64);
    let mut count = |tasks: &[Sporadic]| {
        proved += u64::from(edf_equals_the_simulation(tasks));
        all += 1;
    };
    every(&choices, 2, &mut count);
    let mut rng = rng(42);
    for _ in 0..rounds(1_500) {
        let size = rng.between(1, 4);
        count(&random(&mut rng, size, 14, 110 / size, Deadlines::Arbitrary));
    }
    println!("{all} sets, {proved} schedulable");
    assert!(proved > all / 10 && proved < all * 9 / 10, "{proved} of {all}");
}

#[test]
fn preemption_never_harms_the_most_urgent_and_a_single_task_is_unaffected() {
    let mut rng = rng(43);
    for _ in 0..rounds(2_000) {
        let tasks = random(&mut rng, 3, 30, 33, Deadlines::Constrained);
        let mut out = vec![None; 3];
        fp_response::bounds(&tasks, &mut Scratch::new(), &mut out).expect("in range");
        let preemptive = out[0].expect("alone").release.as_ns();
        assert!(bounds(&tasks)[0].expect("alone").0 >= preemptive);
        let alone = &tasks[..1];
        assert_eq!(bounds(alone)[0].expect("alone").0, preemptive);
        assert!(
            qpa::verdict(&tasks).is_proved() || !np_edf::verdict(&tasks).is_proved(),
            "{tasks:?}"
        );
    }
}
