//! Guarantees and uniformity of every algorithm, compared with exact distributions, with rejection,
//! and with each other. Seeds are fixed, so results are deterministic.

use super::dag::{Shape, edges, longest_path};
use super::*;
use crate::rng::Rng;

const PARTS: f64 = CPU as f64;

fn same(n: usize, min: u64, max: u64) -> Vec<Bounds> {
    vec![Bounds { min, max }; n]
}

fn percent(parts: u64) -> u64 {
    parts * CPU / 100
}

#[test]
fn sums_are_exact_and_bounds_are_kept_by_every_method() {
    let mut rng = Rng::new(1);
    for round in 0..100 {
        let n = rng.between(1, 40) as usize;
        let cap = percent(rng.between(10, 100));
        let floor = rng.below(cap / 4);
        let equal = same(n, floor, cap);
        let unequal: Vec<Bounds> = (0..n)
            .map(|_| {
                let min = rng.below(cap / 2);
                Bounds { min, max: rng.between(min, cap) }
            })
            .collect();
        for method in Method::ALL {
            let bounds =
                if method == Method::RandFixedSum || round % 2 == 0 { &equal } else { &unequal };
            let least: u64 = bounds.iter().map(|bound| bound.min).sum();
            let most: u64 = bounds.iter().map(|bound| bound.max).sum();
            let total = rng.between(least, most);
            let shares = Shares::new(method, total, bounds).expect("bounds allow it");
            for _ in 0..4 {
                // Rejection may fail; no algorithm may break its guarantees.
                let Ok(drawn) = (if method == Method::UUniFastDiscard && n > 4 {
                    continue;
                } else {
                    shares.draw(&mut rng)
                }) else {
                    assert_ne!(method, Method::RandFixedSum, "nothing is rejected");
                    continue;
                };
                assert_eq!(drawn.iter().sum::<u64>(), total, "{method:?}");
                for (share, bound) in drawn.iter().zip(bounds) {
                    assert!(
                        (bound.min..=bound.max).contains(share),
                        "{method:?} {share} {bound:?}"
                    );
                }
            }
        }
    }
}

#[test]
fn y16_drs_finds_vectors_at_the_sizes_of_yasmins_experiments() {
    let mut rng = Rng::new(2);
    for n in [20, 40, 80, 120] {
        for tenths in [2, 6, 10, 14, 18, 20] {
            let shares =
                Shares::new(Method::Drs, tenths * CPU / 10, &same(n, 0, CPU)).expect("room");
            for _ in 0..20 {
                assert_eq!(
                    shares.draw(&mut rng).expect("a vector").iter().sum::<u64>(),
                    tenths * CPU / 10
                );
            }
        }
    }
}

/// Reachable corners are reached: totals at both ends, fixed shares, one task.
#[test]
fn corners_have_one_result_each() {
    let mut rng = Rng::new(3);
    let draw = |method, total, bounds: &[Bounds], rng: &mut Rng| {
        Shares::new(method, total, bounds).expect("allowed").draw(rng).expect("a vector")
    };
    for method in Method::ALL {
        assert_eq!(draw(method, 7, &same(1, 0, CPU), &mut rng), [7]);
        assert_eq!(draw(method, 0, &same(3, 0, CPU), &mut rng), [0, 0, 0]);
    }
    for method in [Method::RandFixedSum, Method::Drs] {
        assert_eq!(draw(method, 3 * CPU, &same(3, 0, CPU), &mut rng), [CPU; 3]);
        assert_eq!(draw(method, 15, &same(3, 5, 5), &mut rng), [5, 5, 5]);
    }
    let mixed = [Bounds { min: 4, max: 4 }, Bounds { min: 0, max: 10 }, Bounds { min: 1, max: 1 }];
    assert_eq!(draw(Method::Drs, 9, &mixed, &mut rng), [4, 4, 1]);
}

#[test]
fn impossible_sets_are_refused_with_the_possible_range() {
    let refused =
        |method, total, bounds: &[Bounds]| Shares::new(method, total, bounds).expect_err("refused");
    for method in Method::ALL {
        assert_eq!(refused(method, 1, &[]), GenerationError::Tasks(0));
        let total = GenerationError::Total { total: 3 * CPU, least: 0, most: 2 * CPU };
        assert_eq!(refused(method, 3 * CPU, &same(2, 0, CPU)), total);
        assert_eq!(
            total.to_string(),
            "utilisations within these bounds add up to 0 at least and 2 at most, not to 3"
        );
        let crossed = Bounds { min: 2, max: 1 };
        assert_eq!(refused(method, 2, &[crossed]), GenerationError::Bounds(crossed));
        assert!(matches!(
            refused(method, 5, &same(2, 3, CPU)),
            GenerationError::Total { least: 6, .. }
        ));
    }
    let unequal = [Bounds { min: 0, max: 1 }, Bounds { min: 0, max: 2 }];
    assert_eq!(
        refused(Method::RandFixedSum, 2, &unequal),
        GenerationError::Unequal(Method::RandFixedSum)
    );
    // All vectors except the corner of the full cube are rejected.
    let full =
        Shares::new(Method::UUniFastDiscard, 10 * CPU - 1, &same(10, 0, CPU)).expect("allowed");
    assert!(matches!(
        full.draw(&mut Rng::new(1)),
        Err(GenerationError::Unlikely { unequal: false, .. })
    ));
    // The message does not recommend an algorithm that refuses these bounds.
    let mut bounds = same(10, 0, CPU);
    bounds[0].min = 1;
    let full = Shares::new(Method::UUniFastDiscard, 10 * CPU - 1, &bounds).expect("allowed");
    let message = full.draw(&mut Rng::new(1)).expect_err("unlikely").to_string();
    assert!(message.contains("drs") && message.contains("not uniform"), "{message}");
    assert!(!message.contains("randfixedsum"), "{message}");
}

/// Returns the volume of the part of the unit cube of `m` dimensions with a component sum of at
/// most `x` (Irwin and Hall).
fn irwin_hall(m: u32, x: f64) -> f64 {
    let (mut sum, mut binomial, mut factorial) = (0.0, 1.0, 1.0);
    for k in 0..=m {
        if f64::from(k) < x {
            sum +=
                if k % 2 == 0 { 1.0 } else { -1.0 } * binomial * (x - f64::from(k)).powi(m as i32);
        }
        binomial *= f64::from(m - k) / f64::from(k + 1);
        factorial *= f64::from(k.max(1));
    }
    sum / factorial
}

/// Returns Pearson's statistic.
fn chi_square(seen: &[u64], expected: &[f64]) -> f64 {
    seen.iter().zip(expected).map(|(&n, e)| (n as f64 - e) * (n as f64 - e) / e).sum()
}

/// Returns the value that a statistic with `freedom` degrees of freedom exceeds once in a thousand
/// times.
///
/// Wilson and Hilferty, 1931.
fn critical(freedom: usize) -> f64 {
    let f = freedom as f64;
    let base = 1.0 - 2.0 / (9.0 * f) + 3.0902 * (2.0 / (9.0 * f)).sqrt();
    f * base * base * base
}

/// Compares bins of the first share with the exact distribution: uniform over the slice of the unit
/// cube.
fn marginal(method: Method, n: usize, total: f64, draws: usize) -> (f64, f64) {
    const BINS: usize = 20;
    let shares = Shares::new(method, (total * PARTS) as u64, &same(n, 0, CPU)).expect("room");
    let mut rng = Rng::new(11);
    let mut seen = [0u64; BINS];
    for _ in 0..draws {
        let first = shares.draw(&mut rng).expect("a vector")[0] as f64 / PARTS;
        seen[((first * BINS as f64) as usize).min(BINS - 1)] += 1;
    }
    let rest = n as u32 - 1;
    // Sums of the other shares between total - x and total.
    let at = |x: f64| irwin_hall(rest, total) - irwin_hall(rest, total - x);
    let mut expected = Vec::new();
    for bin in 0..BINS {
        let share = at((bin + 1) as f64 / BINS as f64) - at(bin as f64 / BINS as f64);
        expected.push(share / at(1.0) * draws as f64);
    }
    // Bins with a tiny expectation are merged.
    let (mut bins, mut few) = ((Vec::new(), Vec::new()), (0, 0.0));
    for (&n, &e) in seen.iter().zip(&expected) {
        if e < 20.0 {
            few = (few.0 + n, few.1 + e);
        } else {
            bins.0.push(n);
            bins.1.push(e);
        }
    }
    assert!(few.0 as f64 <= few.1 + 10.0 + 5.0 * few.1.sqrt(), "{method:?}: {few:?}");
    (chi_square(&bins.0, &bins.1), critical(bins.0.len() - 1))
}

#[test]
fn uunifast_discard_and_randfixedsum_match_the_exact_distribution_of_a_share() {
    for (n, total) in [(2, 0.7), (2, 1.5), (3, 0.9), (3, 1.5), (5, 1.2), (5, 2.5), (8, 3.0)] {
        for method in [Method::UUniFastDiscard, Method::RandFixedSum] {
            let (statistic, limit) = marginal(method, n, total, 20_000);
            assert!(statistic < limit, "{method:?} n={n} U={total}: {statistic:.1} of {limit:.1}");
        }
    }
    // If only the sum counts, no vector may be rejected, for any number of tasks.
    for (n, total) in [(10, 5.0), (12, 9.3), (14, 6.6)] {
        let (statistic, limit) = marginal(Method::RandFixedSum, n, total, 20_000);
        assert!(statistic < limit, "RandFixedSum n={n} U={total}: {statistic:.1} of {limit:.1}");
    }
}

/// If no two bounds can be exceeded at once, a scaled simplex is complete.
#[test]
fn drs_is_uniform_if_no_two_bounds_can_be_exceeded_at_once() {
    for (n, total) in [(2, 0.7), (2, 1.5), (3, 1.9), (5, 1.6), (8, 1.99)] {
        let (statistic, limit) = marginal(Method::Drs, n, total, 20_000);
        assert!(statistic < limit, "n={n} U={total}: {statistic:.1} of {limit:.1}");
    }
}

/// Counts cells of the plane of the first two shares, each as wide as a tenth of its bound.
fn cells(method: Method, total: u64, bounds: &[Bounds], draws: usize, seed: u64) -> Vec<u64> {
    let shares = Shares::new(method, total, bounds).expect("room");
    let mut rng = Rng::new(seed);
    let mut seen = vec![0u64; 100];
    for _ in 0..draws {
        let drawn = shares.draw(&mut rng).expect("a vector");
        let cell = |at: usize| {
            let bound = bounds[at];
            (((drawn[at] - bound.min) * 10 / (bound.max - bound.min)) as usize).min(9)
        };
        seen[cell(0) * 10 + cell(1)] += 1;
    }
    seen
}

/// Compares two samples of the same size. Returns the statistic, its limit, and half the sum of the
/// differences as a share.
fn apart(one: &[u64], other: &[u64]) -> (f64, f64, f64) {
    let (mut statistic, mut freedom, mut difference, mut all) = (0.0, 0, 0.0, 0.0);
    for (&a, &b) in one.iter().zip(other) {
        let (a, b) = (a as f64, b as f64);
        if a + b >= 20.0 {
            statistic += (a - b) * (a - b) / (a + b);
            freedom += 1;
        }
        difference += (a - b).abs();
        all += a + b;
    }
    (statistic, critical(freedom - 1), difference / all)
}

/// Reference model: rejection from the whole simplex.
#[test]
fn randfixedsum_fills_the_plane_as_rejection_does() {
    for (n, total, min, max) in
        [(3, 150, 0, 100), (3, 90, 10, 50), (4, 170, 20, 60), (6, 240, 0, 70)]
    {
        let bounds = same(n, percent(min), percent(max));
        let [model, ours] = [Method::UUniFastDiscard, Method::RandFixedSum]
            .map(|method| cells(method, percent(total), &bounds, 40_000, 5 + method as u64));
        let (statistic, limit, _) = apart(&model, &ours);
        assert!(statistic < limit, "n={n} U={total}: {statistic:.1} of {limit:.1}");
    }
}

/// Refutes the claim of the paper. The test measures the share of misplaced vectors, less the
/// difference between two samples of a uniform source.
#[test]
fn drs_is_not_uniform_if_several_unequal_bounds_can_be_exceeded_at_once() {
    let bounds = [10, 10, 10, 100, 100].map(|max| Bounds { min: 0, max: percent(max) });
    let sample = |method, seed| cells(method, percent(100), &bounds, 20_000, seed);
    let model = sample(Method::UUniFastDiscard, 21);
    let (statistic, limit, noise) = apart(&model, &sample(Method::UUniFastDiscard, 22));
    assert!(statistic < limit, "rejection is uniform: {statistic:.1} of {limit:.1}");
    let (statistic, limit, off) = apart(&model, &sample(Method::Drs, 23));
    assert!(statistic > 4.0 * limit, "distinguishable: {statistic:.1} of {limit:.1}");
    assert!((0.1..0.2).contains(&(off - noise)), "{off:.3}, of which noise {noise:.3}");
}

/// YASMIN's parameters: at most one CPU per task, and a total far below half of their number.
#[test]
fn y16_drs_is_indistinguishable_from_uniform_for_small_totals() {
    for (n, total) in [(14, 3.0), (20, 0.2), (20, 2.0)] {
        let (statistic, limit) = marginal(Method::Drs, n, total, 20_000);
        assert!(statistic < limit, "n={n} U={total}: {statistic:.1} of {limit:.1}");
    }
}

fn spec(method: Method) -> Spec {
    let ms = |n: u64| Span::from_ns(n * 1_000_000);
    Spec {
        tasks: 20,
        total: percent(150),
        bounds: vec![Bounds::ONE_CPU],
        method,
        periods: Periods::LogUniform { min: ms(5), max: ms(1_000), granularity: ms(1) },
        deadlines: Deadlines::Constrained { from: 500 },
        graphs: None,
    }
}

#[test]
fn the_utilisation_of_a_set_is_its_total_to_a_nanosecond_in_each_period() {
    for method in Method::ALL {
        for number in 0..50 {
            let tasks = generate(&spec(method), 1, number).expect("a set");
            assert_eq!(tasks.len(), 20);
            let (mut sum, mut slack) = (0.0, 0.0);
            for task in &tasks {
                let (cost, period) = (task.cost.as_ns(), task.period.as_ns());
                assert!(period % 1_000_000 == 0 && (5_000_000..=1_000_000_000).contains(&period));
                assert!(1 <= cost && cost <= period);
                let half = cost + (period - cost) / 2;
                assert!((half..=period).contains(&task.deadline.as_ns()), "{task:?}");
                sum += cost as f64 / period as f64;
                slack += 1.0 / period as f64;
            }
            assert!(sum <= 1.5 + slack && sum > 1.5 - slack - 1e-12, "{sum}");
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_set_and_another_number_another_one() {
    let set = |total, seed, number| {
        generate(&Spec { total, ..spec(Method::RandFixedSum) }, seed, number).expect("a set")
    };
    assert_eq!(set(CPU, 1, 0), set(CPU, 1, 0));
    assert_ne!(set(CPU, 1, 0), set(CPU, 1, 1));
    assert_ne!(set(CPU, 1, 0), set(CPU, 2, 0));
    // Only the requested value changes.
    let periods = |set: Vec<Task>| set.into_iter().map(|task| task.period).collect::<Vec<_>>();
    assert_eq!(periods(set(CPU, 1, 0)), periods(set(CPU / 2, 1, 0)));
}

/// Recorded results: a change here would change the experiments of every user.
#[test]
fn the_first_set_of_seed_1_never_changes() {
    let sums = Method::ALL.map(|method| {
        let tasks = generate(&spec(method), 1, 0).expect("a set");
        // FNV-1a.
        tasks
            .iter()
            .flat_map(|task| [task.period.as_ns(), task.cost.as_ns(), task.deadline.as_ns()])
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, n| (hash ^ n).wrapping_mul(0x0100_0000_01b3))
    });
    assert_eq!(
        sums,
        [11_448_104_298_355_235_234, 15_921_351_439_179_774_916, 11_448_104_298_355_235_234]
    );
}

#[test]
fn periods_are_log_uniform_including_the_largest() {
    let ns = Span::from_ns;
    let periods = Periods::LogUniform { min: ns(1_000), max: ns(1_000_000), granularity: ns(1) };
    let mut rng = Rng::new(4);
    let mut decades = [0u64; 3];
    for _ in 0..30_000 {
        let period = periods.draw(&mut rng).as_ns();
        decades[((period as f64).log10() as usize - 3).min(2)] += 1;
    }
    assert!(chi_square(&decades, &[10_000.0; 3]) < critical(2), "{decades:?}");
    // Multiples of 10 from 10 to 30: shares ln 2, ln 1.5 and ln 4/3 of ln 4.
    let coarse = Periods::LogUniform { min: ns(10), max: ns(30), granularity: ns(10) };
    let mut seen = [0u64; 3];
    for _ in 0..30_000 {
        seen[coarse.draw(&mut rng).as_ns() as usize / 10 - 1] += 1;
    }
    let expected = [2.0_f64, 1.5, 4.0 / 3.0].map(|ratio| ratio.ln() / 4.0_f64.ln() * 30_000.0);
    assert!(chi_square(&seen, &expected) < critical(2), "{seen:?} {expected:?}");
    let list = Periods::List([1, 2, 5, 10].map(ns).to_vec());
    let mut seen = [0u64; 11];
    (0..20_000).for_each(|_| seen[list.draw(&mut rng).as_ns() as usize] += 1);
    assert!(
        chi_square(&[seen[1], seen[2], seen[5], seen[10]], &[5_000.0; 4]) < critical(3),
        "{seen:?}"
    );
}

#[test]
fn impossible_periods_are_refused() {
    let ns = Span::from_ns;
    let range = |min, max, granularity| {
        Periods::LogUniform { min: ns(min), max: ns(max), granularity: ns(granularity) }.check()
    };
    assert_eq!(range(10, 100, 10), Ok(()));
    assert_eq!(range(0, 100, 10), Err(GenerationError::NoPeriod));
    assert_eq!(range(10, 100, 0), Err(GenerationError::NoPeriod));
    assert_eq!(range(100, 10, 10), Err(GenerationError::PeriodRange { min: ns(100), max: ns(10) }));
    let ragged = GenerationError::Granularity { limit: ns(105), granularity: ns(10) };
    assert_eq!(range(10, 105, 10), Err(ragged));
    assert_eq!(range(1, u64::MAX, 1), Err(GenerationError::PeriodTooLong(ns(u64::MAX))));
    assert_eq!(Periods::List(vec![]).check(), Err(GenerationError::NoPeriod));
    assert_eq!(Periods::List(vec![ns(0)]).check(), Err(GenerationError::NoPeriod));
    for (tasks, wrong) in [(0, GenerationError::Tasks(0)), (1_001, GenerationError::Tasks(1_001))] {
        assert_eq!(generate(&Spec { tasks, ..spec(Method::Drs) }, 1, 0), Err(wrong));
    }
    let bounds = vec![Bounds::ONE_CPU; 3];
    let wrong = GenerationError::BoundsCount { given: 3, tasks: 20 };
    assert_eq!(generate(&Spec { bounds, ..spec(Method::Drs) }, 1, 0), Err(wrong));
}

#[test]
fn graphs_have_the_expected_number_of_edges_and_no_cycles() {
    let mut rng = Rng::new(6);
    for (shape, pairs) in [
        (Shape::ErdosRenyi { probability: 300 }, 190.0),
        // Three in four of the 190 pairs lie in different layers.
        (Shape::Layered { layers: 4, probability: 300 }, 142.5),
    ] {
        let mut count = 0;
        for _ in 0..400 {
            let edges = edges(20, shape, &mut rng);
            assert!(edges.iter().all(|&(from, to)| from < to && to < 20));
            count += edges.len();
        }
        let mean = count as f64 / 400.0;
        assert!((mean - 0.3 * pairs).abs() < 1.5, "{shape:?}: {mean}");
    }
    assert_eq!(
        edges(3, Shape::ErdosRenyi { probability: 1_000 }, &mut rng),
        [(0, 1), (0, 2), (1, 2)]
    );
    assert!(edges(5, Shape::Layered { layers: 1, probability: 1_000 }, &mut rng).is_empty());
    assert_eq!(longest_path(&[5, 1, 7, 2], &[(0, 1), (0, 3), (1, 2)]), 13);
    assert_eq!(longest_path(&[], &[]), 0);
}

#[test]
fn the_nodes_of_a_graph_share_its_cost() {
    let graphs = Graphs {
        nodes_min: 3,
        nodes_max: 12,
        shape: Shape::Layered { layers: 3, probability: 400 },
    };
    let spec = Spec { graphs: Some(graphs), ..spec(Method::RandFixedSum) };
    let mut sizes = std::collections::BTreeSet::new();
    for number in 0..20 {
        for task in generate(&spec, 1, number).expect("a set") {
            let sum: u64 = task.nodes.iter().map(|node| node.cost.as_ns()).sum();
            assert_eq!(sum, task.cost.as_ns());
            assert!(
                task.nodes
                    .iter()
                    .enumerate()
                    .all(|(at, node)| node.after.iter().all(|&from| from < at))
            );
            sizes.insert(task.nodes.len());
        }
    }
    assert_eq!(sizes.into_iter().collect::<Vec<_>>(), (3..=12).collect::<Vec<_>>());
    let refused = |graphs| {
        generate(&Spec { graphs: Some(graphs), ..spec.clone() }, 1, 0).expect_err("refused")
    };
    assert_eq!(
        refused(Graphs { nodes_min: 0, ..graphs }),
        GenerationError::Nodes { min: 0, max: 12 }
    );
    assert_eq!(
        refused(Graphs { shape: Shape::Layered { layers: 0, probability: 1 }, ..graphs }),
        GenerationError::Layers
    );
    let shape = Shape::ErdosRenyi { probability: 1_001 };
    assert_eq!(refused(Graphs { shape, ..graphs }), GenerationError::Probability(1_001));
}
