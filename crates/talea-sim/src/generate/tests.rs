//! What is promised of every method, and how uniform each one is: against exact distributions,
//! against rejection, and against each other. Seeds are fixed, so that nothing here is luck.

use super::dag::{Shape, edges, longest_path};
use super::*;
use crate::dice::Dice;

const PARTS: f64 = CPU as f64;

fn same(n: usize, min: u64, max: u64) -> Vec<Bounds> {
    vec![Bounds { min, max }; n]
}

fn percent(parts: u64) -> u64 {
    parts * CPU / 100
}

#[test]
fn sums_are_exact_and_bounds_are_kept_by_every_method() {
    let mut dice = Dice::new(1);
    for round in 0..100 {
        let n = dice.between(1, 40) as usize;
        let cap = percent(dice.between(10, 100));
        let floor = dice.below(cap / 4);
        let equal = same(n, floor, cap);
        let unequal: Vec<Bounds> = (0..n)
            .map(|_| {
                let min = dice.below(cap / 2);
                Bounds { min, max: dice.between(min, cap) }
            })
            .collect();
        for method in Method::ALL {
            let bounds =
                if method == Method::RandFixedSum || round % 2 == 0 { &equal } else { &unequal };
            let least: u64 = bounds.iter().map(|bound| bound.min).sum();
            let most: u64 = bounds.iter().map(|bound| bound.max).sum();
            let total = dice.between(least, most);
            let shares = Shares::new(method, total, bounds).expect("bounds allow it");
            for _ in 0..4 {
                // Throwing away may give up; no method may break its word.
                let Ok(drawn) = (if method == Method::UUniFastDiscard && n > 4 {
                    continue;
                } else {
                    shares.draw(&mut dice)
                }) else {
                    assert_ne!(method, Method::RandFixedSum, "nothing is thrown away");
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
    let mut dice = Dice::new(2);
    for n in [20, 40, 80, 120] {
        for tenths in [2, 6, 10, 14, 18, 20] {
            let shares =
                Shares::new(Method::Drs, tenths * CPU / 10, &same(n, 0, CPU)).expect("room");
            for _ in 0..20 {
                assert_eq!(
                    shares.draw(&mut dice).expect("a vector").iter().sum::<u64>(),
                    tenths * CPU / 10
                );
            }
        }
    }
}

/// What can be reached at all is reached: totals at both ends, fixed shares, one task.
#[test]
fn corners_have_one_answer_each() {
    let mut dice = Dice::new(3);
    let draw = |method, total, bounds: &[Bounds], dice: &mut Dice| {
        Shares::new(method, total, bounds).expect("allowed").draw(dice).expect("a vector")
    };
    for method in Method::ALL {
        assert_eq!(draw(method, 7, &same(1, 0, CPU), &mut dice), [7]);
        assert_eq!(draw(method, 0, &same(3, 0, CPU), &mut dice), [0, 0, 0]);
    }
    for method in [Method::RandFixedSum, Method::Drs] {
        assert_eq!(draw(method, 3 * CPU, &same(3, 0, CPU), &mut dice), [CPU; 3]);
        assert_eq!(draw(method, 15, &same(3, 5, 5), &mut dice), [5, 5, 5]);
    }
    let mixed = [Bounds { min: 4, max: 4 }, Bounds { min: 0, max: 10 }, Bounds { min: 1, max: 1 }];
    assert_eq!(draw(Method::Drs, 9, &mixed, &mut dice), [4, 4, 1]);
}

#[test]
fn what_can_not_be_is_refused_with_what_could() {
    let refused =
        |method, total, bounds: &[Bounds]| Shares::new(method, total, bounds).expect_err("refused");
    for method in Method::ALL {
        assert_eq!(refused(method, 1, &[]), Impossible::Tasks(0));
        let total = Impossible::Total { total: 3 * CPU, least: 0, most: 2 * CPU };
        assert_eq!(refused(method, 3 * CPU, &same(2, 0, CPU)), total);
        assert_eq!(
            total.to_string(),
            "utilisations within these bounds add up to 0 at least and 2 at most, not to 3"
        );
        let crossed = Bounds { min: 2, max: 1 };
        assert_eq!(refused(method, 2, &[crossed]), Impossible::Bounds(crossed));
        assert!(matches!(refused(method, 5, &same(2, 3, CPU)), Impossible::Total { least: 6, .. }));
    }
    let unequal = [Bounds { min: 0, max: 1 }, Bounds { min: 0, max: 2 }];
    assert_eq!(
        refused(Method::RandFixedSum, 2, &unequal),
        Impossible::Unequal(Method::RandFixedSum)
    );
    // All but the full cube's corner is thrown away.
    let full =
        Shares::new(Method::UUniFastDiscard, 10 * CPU - 1, &same(10, 0, CPU)).expect("allowed");
    assert!(matches!(
        full.draw(&mut Dice::new(1)),
        Err(Impossible::Unlikely { unequal: false, .. })
    ));
    // Nobody is sent to a method that refuses his bounds.
    let mut bounds = same(10, 0, CPU);
    bounds[0].min = 1;
    let full = Shares::new(Method::UUniFastDiscard, 10 * CPU - 1, &bounds).expect("allowed");
    let said = full.draw(&mut Dice::new(1)).expect_err("unlikely").to_string();
    assert!(said.contains("drs") && said.contains("not draw uniformly"), "{said}");
    assert!(!said.contains("randfixedsum"), "{said}");
}

/// The volume of the part of the unit cube of `m` dimensions whose components add up to at most
/// `x`: Irwin and Hall.
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

/// Pearson's statistic.
fn chi_square(seen: &[u64], expected: &[f64]) -> f64 {
    seen.iter().zip(expected).map(|(&n, e)| (n as f64 - e) * (n as f64 - e) / e).sum()
}

/// What a statistic with so many degrees of freedom exceeds once in a thousand times: Wilson and
/// Hilferty, 1931.
fn critical(freedom: usize) -> f64 {
    let f = freedom as f64;
    let base = 1.0 - 2.0 / (9.0 * f) + 3.0902 * (2.0 / (9.0 * f)).sqrt();
    f * base * base * base
}

/// Bins of equal width of the first share against the exact distribution: uniform over the slice of
/// the unit cube.
fn marginal(method: Method, n: usize, total: f64, draws: usize) -> (f64, f64) {
    const BINS: usize = 20;
    let shares = Shares::new(method, (total * PARTS) as u64, &same(n, 0, CPU)).expect("room");
    let mut dice = Dice::new(11);
    let mut seen = [0u64; BINS];
    for _ in 0..draws {
        let first = shares.draw(&mut dice).expect("a vector")[0] as f64 / PARTS;
        seen[((first * BINS as f64) as usize).min(BINS - 1)] += 1;
    }
    let rest = n as u32 - 1;
    // Of the others' sums, those between total - x and total.
    let at = |x: f64| irwin_hall(rest, total) - irwin_hall(rest, total - x);
    let mut expected = Vec::new();
    for bin in 0..BINS {
        let share = at((bin + 1) as f64 / BINS as f64) - at(bin as f64 / BINS as f64);
        expected.push(share / at(1.0) * draws as f64);
    }
    // Bins in which next to nothing is expected are one.
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
fn uunifast_discard_and_randfixedsum_are_uniform_by_the_exact_distribution_of_a_share() {
    for (n, total) in [(2, 0.7), (2, 1.5), (3, 0.9), (3, 1.5), (5, 1.2), (5, 2.5), (8, 3.0)] {
        for method in [Method::UUniFastDiscard, Method::RandFixedSum] {
            let (statistic, limit) = marginal(method, n, total, 20_000);
            assert!(statistic < limit, "{method:?} n={n} U={total}: {statistic:.1} of {limit:.1}");
        }
    }
    // Where nothing but the sum counts nothing may be thrown away, however many tasks there are.
    for (n, total) in [(10, 5.0), (12, 9.3), (14, 6.6)] {
        let (statistic, limit) = marginal(Method::RandFixedSum, n, total, 20_000);
        assert!(statistic < limit, "RandFixedSum n={n} U={total}: {statistic:.1} of {limit:.1}");
    }
}

/// Where no two bounds can be broken at once, a blown-up simplex is a whole one.
#[test]
fn drs_is_uniform_where_no_two_bounds_can_be_broken_at_once() {
    for (n, total) in [(2, 0.7), (2, 1.5), (3, 1.9), (5, 1.6), (8, 1.99)] {
        let (statistic, limit) = marginal(Method::Drs, n, total, 20_000);
        assert!(statistic < limit, "n={n} U={total}: {statistic:.1} of {limit:.1}");
    }
}

/// Cells of the plane of the first two shares, each as wide as a tenth of its bound.
fn cells(method: Method, total: u64, bounds: &[Bounds], draws: usize, seed: u64) -> Vec<u64> {
    let shares = Shares::new(method, total, bounds).expect("room");
    let mut dice = Dice::new(seed);
    let mut seen = vec![0u64; 100];
    for _ in 0..draws {
        let drawn = shares.draw(&mut dice).expect("a vector");
        let cell = |at: usize| {
            let bound = bounds[at];
            (((drawn[at] - bound.min) * 10 / (bound.max - bound.min)) as usize).min(9)
        };
        seen[cell(0) * 10 + cell(1)] += 1;
    }
    seen
}

/// How far apart two samples of the same size are: statistic, its limit, and half the sum of the
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

/// The plain twin: draw from the whole simplex, throw away what breaks a bound.
#[test]
fn randfixedsum_fills_the_plane_as_rejection_does() {
    for (n, total, min, max) in
        [(3, 150, 0, 100), (3, 90, 10, 50), (4, 170, 20, 60), (6, 240, 0, 70)]
    {
        let bounds = same(n, percent(min), percent(max));
        let [twin, ours] = [Method::UUniFastDiscard, Method::RandFixedSum]
            .map(|method| cells(method, percent(total), &bounds, 40_000, 5 + method as u64));
        let (statistic, limit, _) = apart(&twin, &ours);
        assert!(statistic < limit, "n={n} U={total}: {statistic:.1} of {limit:.1}");
    }
}

/// The claim of the paper that does not hold, and by how much: the share of all vectors that lie
/// elsewhere than they should, less what two samples of a uniform source differ by.
#[test]
fn drs_is_not_uniform_where_several_unequal_bounds_can_be_broken_at_once() {
    let bounds = [10, 10, 10, 100, 100].map(|max| Bounds { min: 0, max: percent(max) });
    let sample = |method, seed| cells(method, percent(100), &bounds, 20_000, seed);
    let twin = sample(Method::UUniFastDiscard, 21);
    let (statistic, limit, noise) = apart(&twin, &sample(Method::UUniFastDiscard, 22));
    assert!(statistic < limit, "rejection is uniform: {statistic:.1} of {limit:.1}");
    let (statistic, limit, off) = apart(&twin, &sample(Method::Drs, 23));
    assert!(statistic > 4.0 * limit, "told apart: {statistic:.1} of {limit:.1}");
    assert!((0.1..0.2).contains(&(off - noise)), "{off:.3}, of which noise {noise:.3}");
}

/// What YASMIN draws: one CPU a task at most, and a total far below half of their number.
#[test]
fn y16_drs_can_not_be_told_from_uniform_where_totals_are_small() {
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
    // Only what is asked for changes.
    let periods = |set: Vec<Task>| set.into_iter().map(|task| task.period).collect::<Vec<_>>();
    assert_eq!(periods(set(CPU, 1, 0)), periods(set(CPU / 2, 1, 0)));
}

/// Drawn once and kept: what a release changes here changes everybody's experiments.
#[test]
fn the_first_set_of_seed_1_is_the_one_that_it_always_was() {
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
fn periods_are_log_uniform_and_the_largest_is_as_likely_as_it_should_be() {
    let ns = Span::from_ns;
    let periods = Periods::LogUniform { min: ns(1_000), max: ns(1_000_000), granularity: ns(1) };
    let mut dice = Dice::new(4);
    let mut decades = [0u64; 3];
    for _ in 0..30_000 {
        let period = periods.draw(&mut dice).as_ns();
        decades[((period as f64).log10() as usize - 3).min(2)] += 1;
    }
    assert!(chi_square(&decades, &[10_000.0; 3]) < critical(2), "{decades:?}");
    // Multiples of 10 from 10 to 30: shares ln 2, ln 1.5 and ln 4/3 of ln 4.
    let coarse = Periods::LogUniform { min: ns(10), max: ns(30), granularity: ns(10) };
    let mut seen = [0u64; 3];
    for _ in 0..30_000 {
        seen[coarse.draw(&mut dice).as_ns() as usize / 10 - 1] += 1;
    }
    let expected = [2.0_f64, 1.5, 4.0 / 3.0].map(|ratio| ratio.ln() / 4.0_f64.ln() * 30_000.0);
    assert!(chi_square(&seen, &expected) < critical(2), "{seen:?} {expected:?}");
    let list = Periods::List([1, 2, 5, 10].map(ns).to_vec());
    let mut seen = [0u64; 11];
    (0..20_000).for_each(|_| seen[list.draw(&mut dice).as_ns() as usize] += 1);
    assert!(
        chi_square(&[seen[1], seen[2], seen[5], seen[10]], &[5_000.0; 4]) < critical(3),
        "{seen:?}"
    );
}

#[test]
fn periods_that_can_not_be_are_refused() {
    let ns = Span::from_ns;
    let range = |min, max, granularity| {
        Periods::LogUniform { min: ns(min), max: ns(max), granularity: ns(granularity) }.check()
    };
    assert_eq!(range(10, 100, 10), Ok(()));
    assert_eq!(range(0, 100, 10), Err(Impossible::NoPeriod));
    assert_eq!(range(10, 100, 0), Err(Impossible::NoPeriod));
    assert_eq!(range(100, 10, 10), Err(Impossible::PeriodRange { min: ns(100), max: ns(10) }));
    let ragged = Impossible::Granularity { limit: ns(105), granularity: ns(10) };
    assert_eq!(range(10, 105, 10), Err(ragged));
    assert_eq!(range(1, u64::MAX, 1), Err(Impossible::PeriodTooLong(ns(u64::MAX))));
    assert_eq!(Periods::List(vec![]).check(), Err(Impossible::NoPeriod));
    assert_eq!(Periods::List(vec![ns(0)]).check(), Err(Impossible::NoPeriod));
    for (tasks, wrong) in [(0, Impossible::Tasks(0)), (1_001, Impossible::Tasks(1_001))] {
        assert_eq!(generate(&Spec { tasks, ..spec(Method::Drs) }, 1, 0), Err(wrong));
    }
    let bounds = vec![Bounds::ONE_CPU; 3];
    let wrong = Impossible::BoundsCount { given: 3, tasks: 20 };
    assert_eq!(generate(&Spec { bounds, ..spec(Method::Drs) }, 1, 0), Err(wrong));
}

#[test]
fn graphs_have_as_many_edges_as_is_likely_and_no_circles() {
    let mut dice = Dice::new(6);
    for (shape, pairs) in [
        (Shape::ErdosRenyi { probability: 300 }, 190.0),
        // Of 190 pairs three in four lie in different layers.
        (Shape::Layered { layers: 4, probability: 300 }, 142.5),
    ] {
        let mut count = 0;
        for _ in 0..400 {
            let edges = edges(20, shape, &mut dice);
            assert!(edges.iter().all(|&(from, to)| from < to && to < 20));
            count += edges.len();
        }
        let mean = count as f64 / 400.0;
        assert!((mean - 0.3 * pairs).abs() < 1.5, "{shape:?}: {mean}");
    }
    assert_eq!(
        edges(3, Shape::ErdosRenyi { probability: 1_000 }, &mut dice),
        [(0, 1), (0, 2), (1, 2)]
    );
    assert!(edges(5, Shape::Layered { layers: 1, probability: 1_000 }, &mut dice).is_empty());
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
    assert_eq!(refused(Graphs { nodes_min: 0, ..graphs }), Impossible::Nodes { min: 0, max: 12 });
    assert_eq!(
        refused(Graphs { shape: Shape::Layered { layers: 0, probability: 1 }, ..graphs }),
        Impossible::Layers
    );
    let shape = Shape::ErdosRenyi { probability: 1_001 };
    assert_eq!(refused(Graphs { shape, ..graphs }), Impossible::Probability(1_001));
}
