//! Supply bound functions against brute force over every pattern that their models allow.

use crate::rng::rng;
use talea_analysis::supply::bounded_delay::BoundedDelay;
use talea_analysis::supply::{Dedicated, ExplicitDeadline, PeriodicResource, Rate, Supply, Table};
use talea_core::sched::Slot;
use talea_core::{Span, Work};

fn span(ns: u64) -> Span {
    Span::from_ns(ns)
}

/// Checks, up to `until`, that `time_for` is the inverse of `sbf`, and the invariants of the trait.
fn is_a_supply(supply: &impl Supply, until: u64) {
    let least: Vec<u64> = (0..=until).map(|at| supply.sbf(span(at)).as_ns()).collect();
    assert_eq!(least[0], 0);
    for at in 1..least.len() {
        assert!(least[at] - least[at - 1] <= 1, "{least:?}");
        for first in 0..=at {
            assert!(least[at] >= least[first] + least[at - first], "superadditive: {least:?}");
        }
    }
    for work in 0..=least[least.len() - 1] {
        let time = least.iter().position(|&there| there >= work).expect("within") as u64;
        assert_eq!(supply.time_for(Work::from_ns(work)), Some(span(time)), "{work}: {least:?}");
    }
}

/// Returns the least supply of each length over all windows and all patterns. A pattern places
/// `budget` anywhere within `deadline` of every period.
fn brute(budget: u64, deadline: u64, period: u64, lengths: u64) -> Vec<u64> {
    // In each period the budget lies in one piece or two; the first and the others are chosen
    // apart, which is enough for the extremes, and checked over every pair.
    let mut patterns: Vec<Vec<bool>> = Vec::new();
    for chosen in 0u32..1 << deadline {
        if u64::from(chosen.count_ones()) == budget {
            patterns.push((0..period).map(|at| at < deadline && chosen >> at & 1 == 1).collect());
        }
    }
    let mut least = vec![u64::MAX; lengths as usize + 1];
    for first in &patterns {
        for others in &patterns {
            let ticks: Vec<bool> = first
                .iter()
                .chain(others.iter().cycle())
                .take((lengths + period) as usize)
                .copied()
                .collect();
            for begin in 0..period as usize {
                let mut sum = 0;
                for (length, least) in least.iter_mut().enumerate() {
                    *least = sum.min(*least);
                    sum += u64::from(ticks.get(begin + length).copied().unwrap_or(false));
                }
            }
        }
    }
    least
}

#[test]
fn shin_and_lee_2003_and_easwaran_2007_are_the_least_of_all_patterns() {
    for period in 1..=5 {
        for deadline in 1..=period {
            for budget in 1..=deadline {
                let lengths = 4 * period;
                let supply =
                    ExplicitDeadline::new(Work::from_ns(budget), span(period), span(deadline));
                let got: Vec<u64> = (0..=lengths).map(|at| supply.sbf(span(at)).as_ns()).collect();
                assert_eq!(
                    got,
                    brute(budget, deadline, period, lengths),
                    "{budget} {deadline} {period}"
                );
                is_a_supply(&supply, lengths);
                // The printed equation.
                let printed = |t: u64| {
                    let Some(beyond) = t.checked_sub(deadline - budget) else { return 0 };
                    let y = beyond / period;
                    y * budget + t.saturating_sub(period + deadline - 2 * budget + y * period)
                };
                let printed: Vec<u64> = (0..=lengths).map(printed).collect();
                assert_eq!(got, printed, "{budget} {deadline} {period}");
            }
        }
    }
    is_a_supply(&PeriodicResource::new(Work::from_ns(3), span(7)), 40);
    is_a_supply(&Dedicated, 20);
}

#[test]
fn mok_2001_a_bounded_delay_is_a_line_cut_to_whole_numbers() {
    for (work, every, delay) in [(1, 3, 0), (2, 3, 4), (5, 7, 2), (1, 1, 9), (0, 4, 1)] {
        let supply =
            BoundedDelay::new(Rate { work: Work::from_ns(work), every: span(every) }, span(delay));
        for at in 0..60u64 {
            assert_eq!(supply.sbf(span(at)).as_ns(), at.saturating_sub(delay) * work / every);
        }
        is_a_supply(&supply, 40);
    }
    let none = BoundedDelay::new(Rate { work: Work::ZERO, every: span(4) }, span(1));
    assert_eq!(none.time_for(Work::from_ns(1)), None);
    assert_eq!(PeriodicResource::new(Work::ZERO, span(4)).time_for(Work::from_ns(1)), None);
}

#[test]
fn mok_2001_a_table_supplies_the_least_of_all_windows() {
    let mut rng = rng(40);
    for _ in 0..3_000 {
        let frame = rng.between(1, 14);
        let owners: Vec<u64> = (0..frame).map(|_| rng.below(3)).collect();
        let mut slots = Vec::new();
        for (at, &owner) in owners.iter().enumerate() {
            if owner < 2 {
                let at = at as u64;
                slots.push(Slot { start: span(at), end: span(at + 1), owner: owner as u32 });
            }
        }
        let lengths = 3 * frame;
        for owner in 0..2 {
            let supply = Table::new(span(frame), &slots, owner as u32);
            let mut least = vec![u64::MAX; lengths as usize + 1];
            for begin in 0..frame {
                let mut sum = 0;
                for (length, least) in least.iter_mut().enumerate() {
                    *least = sum.min(*least);
                    sum += u64::from(owners[((begin + length as u64) % frame) as usize] == owner);
                }
            }
            for (at, least) in least.iter().enumerate() {
                assert_eq!(supply.sbf(span(at as u64)).as_ns(), *least, "{owners:?} {owner} {at}");
            }
            if owners.contains(&owner) {
                is_a_supply(&supply, lengths);
            } else {
                assert_eq!(supply.time_for(Work::from_ns(1)), None);
            }
        }
    }
}

#[test]
fn values_beyond_the_horizon_are_reported() {
    let long = 1 << 59;
    let supply = PeriodicResource::new(Work::from_ns(1), span(long));
    assert_eq!(supply.time_for(Work::from_ns(2)), Some(span(3 * long - 1)));
    assert_eq!(supply.time_for(Work::from_ns(4)), None);
    assert_eq!(supply.sbf(span(u64::MAX)), Work::from_ns(31));
}
