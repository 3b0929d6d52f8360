//! Reference models: formulas as printed in their papers, and a CPU that is simulated instant by
//! instant.

use talea_analysis::Sporadic;
use talea_analysis::verdict::Release;

/// Task as plain numbers C, T, D, J, B.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plain {
    pub(crate) c: u64,
    pub(crate) t: u64,
    pub(crate) d: u64,
    pub(crate) j: u64,
    pub(crate) b: u64,
}

pub(crate) fn plain(tasks: &[Sporadic]) -> Vec<Plain> {
    let one = |task: &Sporadic| Plain {
        c: task.cost.as_ns(),
        t: task.period.as_ns(),
        d: task.deadline.as_ns(),
        j: task.jitter.as_ns(),
        b: task.blocking.as_ns(),
    };
    tasks.iter().map(one).collect()
}

/// Returns Σ C/T as a fraction over one denominator, which fits for small sets.
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

/// Evaluates Tindell's equations as printed: response from release and from arrival; `None` in
/// overload.
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
            let more: u64 =
                tasks[..at].iter().map(|task| (w + task.j).div_ceil(task.t) * task.c).sum();
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

/// Evaluates Spuri's equations with jitter as printed: response from release and from arrival. The
/// function tries every arrival up to a hyperperiod beyond the last jitter. The tasks must not be
/// in overload.
pub(crate) fn edf_response(tasks: &[Plain], at: usize) -> (u64, u64) {
    let own = tasks[at];
    let blocking = tasks.iter().map(|task| task.b).max().unwrap_or(0) as i64;
    let latest = tasks.iter().map(|task| task.j + task.d).max().unwrap_or(0);
    let (mut release, mut arrival) = (0, 0);
    for alpha in 0..(hyperperiod(tasks) + own.j + latest) as i64 {
        let arrives = alpha - own.j as i64;
        let due = arrives + own.d as i64;
        let mut x = 1;
        loop {
            let others =
                tasks.iter().enumerate().filter(|&(other, _)| other != at).map(|(_, task)| {
                    let (t, j) = (task.t as i64, task.j as i64);
                    let released = (x + j + t - 1).div_euclid(t);
                    let urgent = (due - task.d as i64 + j).div_euclid(t) + 1;
                    released.min(urgent).max(0) * task.c as i64
                });
            let next = blocking
                + (alpha.div_euclid(own.t as i64) + 1) * own.c as i64
                + others.sum::<i64>();
            if next == x {
                break;
            }
            x = next;
        }
        arrival = arrival.max(x - arrives);
        if alpha >= own.j as i64 {
            release = release.max(x - arrives);
        }
    }
    (release as u64, arrival as u64)
}

/// Evaluates the equations of limited preemption under EDF with jitter: response from release and
/// from arrival. `sections` has the longest and the last section of each task. The function tries
/// every arrival up to a hyperperiod beyond the last jitter, and every task that may block. The
/// tasks must not be in overload.
pub(crate) fn limited_edf_response(
    tasks: &[Plain],
    sections: &[(u64, u64)],
    at: usize,
) -> (u64, u64) {
    let own = tasks[at];
    let tail = sections[at].1 as i64 - 1;
    let largest = tasks.iter().map(|task| task.b).max().unwrap_or(0) as i64;
    let latest = tasks.iter().map(|task| task.j + task.d).max().unwrap_or(0);
    let (mut release, mut arrival) = (0, 0);
    for alpha in 0..(hyperperiod(tasks) + own.j + latest) as i64 {
        let arrives = alpha - own.j as i64;
        let due = arrives + own.d as i64;
        let blocks = |&other: &usize| other != at && tasks[other].d as i64 > due;
        for blocker in (0..tasks.len()).filter(blocks).map(Some).chain([None]) {
            let blocking = blocker.map_or(0, |other| sections[other].0 as i64 - 1);
            // The last section starts after this time in the window.
            let mut start = 0;
            loop {
                let others =
                    (0..tasks.len()).filter(|&other| other != at && Some(other) != blocker);
                let others = others.map(|other| {
                    let task = tasks[other];
                    let (t, j) = (task.t as i64, task.j as i64);
                    let released = (start + j).div_euclid(t) + 1;
                    let urgent = (due - task.d as i64 + j).div_euclid(t) + 1;
                    released.min(urgent).max(0) * task.c as i64
                });
                let before = alpha.div_euclid(own.t as i64) * own.c as i64;
                let next =
                    largest + blocking + before + own.c as i64 - tail - 1 + others.sum::<i64>();
                if next == start {
                    break;
                }
                start = next;
            }
            let end = start + 1 + tail;
            arrival = arrival.max(end - arrives);
            if alpha >= own.j as i64 {
                release = release.max(end - arrives);
            }
        }
    }
    (release as u64, arrival as u64)
}

/// Returns the least t with h(t) + b(t) > t, of all t up to two hyperperiods beyond the longest
/// deadline.
pub(crate) fn first_excess(tasks: &[Plain]) -> Option<u64> {
    let latest = tasks.iter().map(|task| task.d).max().unwrap_or(0);
    (0..=latest + 2 * hyperperiod(tasks)).find(|&t| demand(tasks, t) + blocking(tasks, t) > t)
}

/// Returns the demand h(t).
pub(crate) fn demand(tasks: &[Plain], t: u64) -> u64 {
    let due = tasks.iter().filter(|task| task.d <= t + task.j);
    due.map(|task| ((t + task.j - task.d) / task.t + 1) * task.c).sum()
}

/// Returns the blocking b(t).
fn blocking(tasks: &[Plain], t: u64) -> u64 {
    let passed = || tasks.iter().filter(|task| task.d <= t + task.j);
    let Some(last) = passed().map(|task| task.d as i64 - task.j as i64).max() else { return 0 };
    passed()
        .filter(|task| task.d as i64 - task.j as i64 == last)
        .map(|task| task.b)
        .max()
        .unwrap_or(0)
}

/// Job with times that may be negative.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Job {
    pub(crate) task: usize,
    pub(crate) number: u64,
    pub(crate) arrival: i64,
    pub(crate) release: i64,
    pub(crate) due: i64,
    pub(crate) cost: u64,
    pub(crate) end: i64,
}

/// Returns the jobs that arrive before `until` if tasks are released as in `releases`.
pub(crate) fn jobs(tasks: &[Sporadic], releases: &[Release], until: i64) -> Vec<Job> {
    let mut all = Vec::new();
    for (at, (task, release)) in plain(tasks).iter().zip(releases).enumerate() {
        let first = release.first.as_ns() as i64;
        for number in 0.. {
            let arrival = first + (number * task.t) as i64 - release.early.as_ns() as i64;
            if arrival >= until {
                break;
            }
            let (released, due) = (arrival.max(first), arrival + task.d as i64);
            all.push(Job {
                task: at,
                number,
                arrival,
                release: released,
                due,
                cost: task.c,
                end: i64::MAX,
            });
        }
    }
    all
}

/// Runs the jobs on one CPU up to `until`. At each instant the job with the least key runs; of
/// equal jobs the job with the lowest task and number. `may_preempt` says whether a job may be
/// preempted after this part of its cost. Jobs that do not complete keep an end of `i64::MAX`.
pub(crate) fn run(
    mut jobs: Vec<Job>,
    may_preempt: impl Fn(&Job, u64) -> bool,
    until: i64,
    key: impl Fn(&Job) -> i64,
) -> Vec<Job> {
    let mut left: Vec<u64> = jobs.iter().map(|job| job.cost).collect();
    let mut under_way = None;
    let mut now = jobs.iter().map(|job| job.release).min().unwrap_or(0);
    while now < until {
        let ready = (0..jobs.len()).filter(|&at| jobs[at].release <= now && left[at] > 0);
        let first = ready.min_by_key(|&at| (key(&jobs[at]), jobs[at].task, jobs[at].number));
        let Some(first) = under_way.or(first) else {
            let next = jobs.iter().map(|job| job.release).filter(|&release| release > now).min();
            let Some(next) = next else { break };
            now = next;
            continue;
        };
        left[first] -= 1;
        now += 1;
        let is_bound =
            |at: usize| left[at] > 0 && !may_preempt(&jobs[at], jobs[at].cost - left[at]);
        under_way = Some(first).filter(|&at| is_bound(at));
        if left[first] == 0 {
            jobs[first].end = now;
        }
    }
    jobs
}
