//! The plain twins: formulas as their papers print them.

use talea_analysis::Sporadic;

/// C, T, J, B as numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plain {
    pub(crate) c: u64,
    pub(crate) t: u64,
    pub(crate) j: u64,
    pub(crate) b: u64,
}

pub(crate) fn plain(tasks: &[Sporadic]) -> Vec<Plain> {
    let one = |task: &Sporadic| Plain {
        c: task.cost.as_ns(),
        t: task.period.as_ns(),
        j: task.jitter.as_ns(),
        b: task.blocking.as_ns(),
    };
    tasks.iter().map(one).collect()
}

/// Σ C/T as a fraction over one denominator, which fits for small sets.
pub(crate) fn utilisation(tasks: &[Plain]) -> (u128, u128) {
    let all: u128 = hyperperiod(tasks).into();
    (tasks.iter().map(|task| u128::from(task.c) * (all / u128::from(task.t))).sum(), all)
}

pub(crate) fn is_overloaded(tasks: &[Plain]) -> bool {
    let (sum, all) = utilisation(tasks);
    sum > all
}

pub(crate) fn hyperperiod(tasks: &[Plain]) -> u64 {
    fn gcd(a: u64, b: u64) -> u64 {
        if a == 0 { b } else { gcd(b % a, a) }
    }
    tasks.iter().fold(1, |all, task| all / gcd(all, task.t) * task.t)
}

/// Tindell's equations, as they stand: from release and from arrival; `None` in overload.
pub(crate) fn fp_response(tasks: &[Plain], at: usize) -> Option<(u64, u64)> {
    if is_overloaded(&tasks[..=at]) {
        return None;
    }
    let own = tasks[at];
    let (mut release, mut arrival) = (0, 0);
    // Beyond two hyperperiods everything repeats, or is less.
    for q in 0..=2 * hyperperiod(&tasks[..=at]) / own.t + own.j {
        let mut w = 1;
        loop {
            let more: u64 = tasks[..at].iter().map(|task| (w + task.j).div_ceil(task.t) * task.c).sum();
            let next = (q + 1) * own.c + own.b + more;
            if next == w {
                break;
            }
            w = next;
        }
        release = release.max(w - (q * own.t).saturating_sub(own.j));
        arrival = arrival.max(w + own.j - q * own.t);
        if w + own.j <= (q + 1) * own.t {
            break;
        }
    }
    Some((release, arrival))
}
