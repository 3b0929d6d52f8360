//! Global EDF by forced-forward demand: the test with the best speed-up factor, evaluated for all
//! σ.
//!
//! Assumptions: those of [`super`], 1 to 4.
//!
//! S. Baruah, V. Bonifaci, A. Marchetti-Spaccamela and S. Stiller, "Implementation of a
//! speedup-optimal global EDF schedulability test", ECRTS 2009; "Improved multiprocessor global
//! schedulability analysis", Real-Time Systems 46(1), 2010. The test accepts if for some σ ≥ δ_max
//! and all t: Σ ff_i(t, σ) ≤ (m − (m−1)·σ)·t. The term ff_i is the work of i's jobs that are due by
//! t, and (C − σ·d)⁺ of the next job, which is due d later. This part must be done before t if the
//! job is executed at speed σ from its release on.
//!
//! Sufficient. The test accepts every feasible sporadic set of m CPUs, if the CPUs are 2 − 1/m
//! times as fast. The test dominates [`super::gfb`]; for D = T both are the same test. The
//! sustainability of the test is not proved here.
//!
//! *Relevant t*: the left side minus the right is continuous and piecewise linear in t. The slope
//! falls only where a job is due, so absolute deadlines are enough. Because ff_i(t) ≤ (t + T −
//! D)·C/T, no t beyond Σ (T − D)·C/T / (m − (m−1)·σ − U) is relevant.
//!
//! *Relevant σ*: for one t the left side minus the right is convex in σ. So the σ that satisfy t
//! are an interval, and the σ that satisfy all t are an interval, too. The search goes up from
//! δ_max. If σ does not satisfy t, the root of the tangent is not above the interval of t, and is
//! the next σ. If the tangent does not fall, all remaining σ are beyond the interval, and no σ
//! satisfies t. σ is a fraction of two sums of costs and times, so the search is exact. (Tools that
//! try σ in steps refuse sets without need.)

use super::gfb;
use super::load::{Deadlines, early, utilisation, window_max};
use super::prepared::{PreparedTask, Scratch};
use crate::Sporadic;
use crate::test_info::{Platform, TestInfo, TestKind};
use crate::verdict::{Inconclusive, Verdict};
use alloc::vec::Vec;
use talea_core::mutate;

/// Entry of this test in the catalogue.
pub const INFO: TestInfo = TestInfo {
    name: "ff-dbf",
    policy: "global EDF",
    platform: Platform::Global,
    model: "sporadic, D ≤ T, preemptive",
    kind: TestKind::Sufficient,
    paper: "Baruah, Bonifaci, Marchetti-Spaccamela and Stiller, ECRTS 2009 and Real-Time Systems 46(1), 2010",
    sustainable: "",
    tests: &[
        "crates/talea-analysis/tests/it/multi/reference_models.rs::ff_dbf_finds_a_speed_whenever_there_is_one",
        "crates/talea-analysis/tests/it/multi/reach.rs::every_accepted_small_set_meets_every_deadline_under_all_arrivals",
    ],
};

/// Speed σ of at most one CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Speed {
    /// Numerator of σ.
    pub numerator: u64,
    /// Denominator of σ.
    pub denominator: u64,
}

/// Runs the test. The verdict is `Unknown` for `Limit` if more than `points_max` pairs of t and σ
/// would have to be evaluated.
pub fn test(tasks: &[Sporadic], cpus: u32, points_max: u64, scratch: &mut Scratch) -> Verdict {
    match speed(tasks, cpus, points_max, scratch) {
        Ok(_) => Verdict::Proved { bounds: Vec::new() },
        Err(verdict) => verdict,
    }
}

/// Returns the least σ that satisfies the condition.
///
/// # Errors
/// Any verdict except `Proved`.
pub fn speed(
    tasks: &[Sporadic],
    cpus: u32,
    points_max: u64,
    scratch: &mut Scratch,
) -> Result<Speed, Verdict> {
    let unknown = |why| Err(Verdict::Unknown { why });
    let m = scratch.read(tasks, cpus)?;
    let Scratch { rows, next, due, .. } = scratch;
    let denser = |a: &usize, b: &usize| {
        let cross =
            |x: &PreparedTask, y: &PreparedTask| u128::from(x.cost) * u128::from(y.deadline);
        cross(&rows[*a], &rows[*b]).cmp(&cross(&rows[*b], &rows[*a]))
    };
    let Some(densest) = (0..rows.len()).max_by(denser) else {
        return Ok(Speed { numerator: 0, denominator: 1 });
    };
    let mut speed = Speed { numerator: rows[densest].cost, denominator: rows[densest].deadline };
    // With D = T, or at the bound itself, no t has to be evaluated.
    if gfb::accepts(tasks, cpus) {
        return Ok(speed);
    }
    let insufficient = Inconclusive::Insufficient { task: densest };
    let early = early(rows);
    let mut points = 0;
    loop {
        let Some(until) = horizon(early, rows, m, speed) else { return unknown(insufficient) };
        if until > window_max(rows, m) {
            return unknown(Inconclusive::Limit);
        }
        let begun = speed;
        let mut deadlines = Deadlines::new(rows, next, due);
        while let Some(now) = deadlines.advance(until) {
            points += 1;
            if points > points_max {
                return unknown(Inconclusive::Limit);
            }
            match satisfied(rows, &deadlines, m, now, speed) {
                Some(higher) => speed = higher,
                None => return unknown(insufficient),
            }
        }
        // Times that were evaluated at lower speeds have to be evaluated again.
        mutate!(
            "multi-ff-dbf",
            if speed == begun {
                return Ok(speed);
            },
            if speed == begun || true {
                return Ok(speed);
            }
        )
    }
}

/// Returns Σ (T − D)·C/T / (m − (m−1)·σ − U), rounded up; `None` if the divisor is not positive, or
/// is below the rounding to 2^-32.
fn horizon(early: u128, rows: &[PreparedTask], cpus: u64, speed: Speed) -> Option<u64> {
    // Below 2^125, as cpus < 2^32 and σ's numerator < 2^61.
    let others = (u128::from(cpus - 1) * u128::from(speed.numerator)) << 32;
    let used = others.div_ceil(u128::from(speed.denominator)) + u128::from(utilisation(rows).1);
    let idle = (u128::from(cpus) << 32).checked_sub(used).filter(|&idle| idle > 0)?;
    // A sum of costs, so below 2^61.
    Some(u64::try_from((early << 32).div_ceil(idle)).unwrap_or(u64::MAX))
}

/// Returns the least speed from `speed` on that satisfies the window up to `now`; `None` if no
/// speed does.
///
/// Nothing overflows: `numerator` ≤ `denominator` < 2^61 (a sum of times to deadlines, each at most
/// T). Demands, times m·t, and sums of costs are below 2^62. So no sum of two products reaches
/// 2^127.
fn satisfied(
    rows: &[PreparedTask],
    deadlines: &Deadlines<'_>,
    cpus: u64,
    now: u64,
    speed: Speed,
) -> Option<Speed> {
    let mut speed = speed;
    loop {
        let (up, down) = (i128::from(speed.numerator), i128::from(speed.denominator));
        // Work that is forced forward: its cost, and its time before its deadline.
        let (mut cost, mut ahead) = (0i128, 0i128);
        for (row, &next) in rows.iter().zip(&*deadlines.next) {
            let (c, d) = (i128::from(row.cost), i128::from(next - now));
            if c * down > mutate!("multi-ff-dbf-ahead", d, 2 * d) * up {
                cost += c;
                ahead += d;
            }
        }
        let (m, t) = (i128::from(cpus), i128::from(now));
        // demand + cost − σ·ahead ≤ m·t − (m−1)·σ·t
        let (least, steep) = (i128::from(deadlines.demand) + cost - m * t, ahead - (m - 1) * t);
        if least * down <= steep * up {
            return Some(speed);
        }
        if steep <= 0 || least > steep {
            return None;
        }
        // 0 < σ < least/steep ≤ 1.
        speed = Speed { numerator: least as u64, denominator: steep as u64 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::multi::sets::{implicit, set};

    #[test]
    fn a_speed_above_every_density_can_show_what_the_densest_does_not() {
        // At 1/2 the first two are due at 10, and the four others would have to be ahead by 5 each:
        // 10 + 20 of 25. At 17/33 they are ahead by 40/11 and the window holds, as does the one of
        // 100.
        let mut tasks = set(&[(5, 10, 1_000); 2]);
        tasks.extend(set(&[(50, 100, 1_000); 4]));
        assert!(!gfb::test(&tasks, 4).is_proved());
        let found = speed(&tasks, 4, 1_000, &mut Scratch::new());
        assert_eq!(found, Ok(Speed { numerator: 170, denominator: 330 }));
    }

    #[test]
    fn for_implicit_deadlines_it_is_the_density_test() {
        for third in [3u64, 4] {
            let tasks = implicit(&[(1, 2), (1, 2), (third - 2, third)]);
            let verdict = test(&tasks, 2, 1_000, &mut Scratch::new());
            assert_eq!(verdict.is_proved(), gfb::test(&tasks, 2).is_proved(), "{tasks:?}");
        }
        assert!(test(&[], 0, 0, &mut Scratch::new()).is_proved());
    }

    #[test]
    fn the_point_limit_is_reported() {
        let mut tasks = set(&[(5, 10, 1_000); 2]);
        tasks.extend(set(&[(50, 100, 1_000); 4]));
        let limit = Verdict::Unknown { why: Inconclusive::Limit };
        assert_eq!(test(&tasks, 4, 1, &mut Scratch::new()), limit);
    }
}
