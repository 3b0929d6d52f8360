//! Reference models of the tests for several CPUs, as printed in their papers: no reciprocals, no
//! piecewise linear sums, one unit of time per step.

use talea_analysis::Sporadic;

/// Returns C, D, T of each task.
pub(super) fn numbers(tasks: &[Sporadic]) -> Vec<(i128, i128, i128)> {
    let number = |x: u64| i128::from(x);
    tasks
        .iter()
        .map(|task| {
            (number(task.cost.as_ns()), number(task.deadline.as_ns()), number(task.period.as_ns()))
        })
        .collect()
}

/// Returns the largest work of a task in a window of length `x`, if its first job there starts
/// `lag` after the release.
fn workload((c, _, t): (i128, i128, i128), x: i128, lag: i128) -> i128 {
    let length = x + lag;
    length / t * c + c.min(length % t)
}

/// Returns the work of jobs that are due in a window of length `x` and complete `slack` before
/// their deadlines.
fn due((c, _, t): (i128, i128, i128), x: i128, slack: i128) -> i128 {
    x / t * c + c.min((x % t - slack).max(0))
}

/// Returns the demand h(t) of a task for t = `x`.
fn demand((c, d, t): (i128, i128, i128), x: i128) -> i128 {
    if x < d { 0 } else { ((x - d) / t + 1) * c }
}

fn largest(mut values: Vec<i128>, count: i128) -> i128 {
    values.sort_unstable_by(|a, b| b.cmp(a));
    values.into_iter().take(usize::try_from(count).unwrap()).sum()
}

/// Reference model of Bertogna, Cirinei and Lipari, ECRTS 2005. Returns whether each task is
/// proved.
pub(super) fn bcl(tasks: &[Sporadic], cpus: u32) -> Vec<bool> {
    let (tasks, m) = (numbers(tasks), i128::from(cpus));
    let proved = |k: usize| {
        let (ck, dk, _) = tasks[k];
        let (mut sum, mut between) = (0, false);
        for (_, &(c, d, t)) in tasks.iter().enumerate().filter(|&(i, _)| i != k) {
            let n = (dk - d).div_euclid(t) + 1;
            let work = n * c + c.min((dk - n * t).max(0));
            sum += work.min(dk - ck);
            between |= 0 < work && work <= dk - ck;
        }
        sum < m * (dk - ck) || (sum == m * (dk - ck) && between)
    };
    (0..tasks.len()).map(proved).collect()
}

/// Reference model of the iterative test of Bertogna, Cirinei and Lipari, IEEE TPDS 20(4), 2009.
/// Returns the slacks, or `None` if a task is not proved.
pub(super) fn bcl_iterative(tasks: &[Sporadic], cpus: u32) -> Option<Vec<i128>> {
    let (tasks, m) = (numbers(tasks), i128::from(cpus));
    let mut slacks = vec![0; tasks.len()];
    loop {
        let before = slacks.clone();
        let mut all = true;
        for k in 0..tasks.len() {
            let (ck, dk, _) = tasks[k];
            let others = (0..tasks.len()).filter(|&i| i != k);
            let sum: i128 = others.map(|i| due(tasks[i], dk, slacks[i]).min(dk - ck + 1)).sum();
            let slack = dk - ck - sum / m;
            all &= slack >= 0;
            slacks[k] = slacks[k].max(slack);
        }
        if all {
            return Some(slacks);
        }
        if slacks == before {
            return None;
        }
    }
}

/// Tasks that interfere, and their workload bound.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Rule {
    Any,
    Edf,
    Fp,
}

/// Reference model of Bertogna and Cirinei, RTSS 2007. Returns the response-time bounds, or `None`
/// if a task has no bound within its deadline.
pub(super) fn bertogna_cirinei(rule: Rule, tasks: &[Sporadic], cpus: u32) -> Option<Vec<i128>> {
    let (tasks, m) = (numbers(tasks), i128::from(cpus));
    let mut bounds: Vec<i128> = tasks.iter().map(|&(_, d, _)| d).collect();
    loop {
        let before = bounds.clone();
        let mut all = true;
        for k in 0..tasks.len() {
            let (ck, dk, _) = tasks[k];
            let fixed = |x: i128| {
                let others =
                    (0..tasks.len()).filter(|&i| if rule == Rule::Fp { i < k } else { i != k });
                let sum: i128 = others
                    .map(|i| {
                        let (c, d, _) = tasks[i];
                        let mut work = workload(tasks[i], x, bounds[i] - c);
                        if rule == Rule::Edf {
                            work = work.min(due(tasks[i], dk, d - bounds[i]));
                        }
                        work.min(x - ck + 1)
                    })
                    .sum();
                x == ck + sum / m
            };
            match (ck..=dk).find(|&x| fixed(x)) {
                Some(x) => bounds[k] = bounds[k].min(x),
                None if rule == Rule::Fp => return None,
                None => all = false,
            }
        }
        if all {
            return Some(bounds);
        }
        if bounds == before {
            return None;
        }
    }
}

/// Returns the bounds under fixed priorities without the cap on the interference of one task, as in
/// the tool that produced `BERT`. `None` if a task has no bound within its deadline.
pub(super) fn uncapped(tasks: &[Sporadic], cpus: u32) -> Option<Vec<i128>> {
    let (tasks, m) = (numbers(tasks), i128::from(cpus));
    let mut bounds: Vec<i128> = Vec::new();
    for (k, &(ck, dk, _)) in tasks.iter().enumerate() {
        let mut x = ck;
        if k as i128 >= m {
            loop {
                let sum: i128 = (0..k).map(|i| workload(tasks[i], x, bounds[i] - tasks[i].0)).sum();
                let next = ck + sum / m;
                if next == x || next > dk {
                    x = next;
                    break;
                }
                x = next;
            }
        }
        if x > dk {
            return None;
        }
        bounds.push(x);
    }
    Some(bounds)
}

/// Reference model of Guan et al., RTSS 2009. Returns the response-time bounds, or `None` if a task
/// has no bound within its deadline.
pub(super) fn guan(tasks: &[Sporadic], cpus: u32) -> Option<Vec<i128>> {
    let (tasks, m) = (numbers(tasks), i128::from(cpus));
    let mut bounds: Vec<i128> = Vec::new();
    for &(ck, dk, _) in &tasks {
        let fixed = |x: i128| {
            let (mut sum, mut gains) = (0, Vec::new());
            for (&(c, _, t), &bound) in tasks.iter().zip(&bounds) {
                let roof = x - ck + 1;
                let without = (x / t * c + c.min(x % t)).min(roof);
                let z = (x - c).max(0);
                let with = (z / t * c + c + (z % t - (t - bound)).max(0).min(c - 1)).min(roof);
                sum += without;
                gains.push((with - without).max(0));
            }
            x == ck + (sum + largest(gains, m - 1)) / m
        };
        // By the paper a task among the first m is never held up; the formula says so too.
        bounds.push((ck..=dk).find(|&x| fixed(x))?);
    }
    Some(bounds)
}

/// Reference model of DA-LC (Davis and Burns 2011). Returns whether the last of `tasks` is proved
/// below the others.
pub(super) fn da_lc(tasks: &[Sporadic], cpus: u32) -> bool {
    let (tasks, m) = (numbers(tasks), i128::from(cpus));
    let (&(ck, dk, _), above) = tasks.split_last().unwrap();
    let (mut sum, mut gains) = (0, Vec::new());
    for &(c, d, t) in above {
        let without = workload((c, d, t), dk, 0).min(dk - ck + 1);
        sum += without;
        gains.push(workload((c, d, t), dk, d - c).min(dk - ck + 1) - without);
    }
    ck + (sum + largest(gains, m - 1)) / m <= dk
}

/// Reference model of Baruah, RTSS 2007. Returns whether the set is proved with every A up to
/// `longest`.
pub(super) fn bar(tasks: &[Sporadic], cpus: u32, longest: i128) -> bool {
    let (tasks, m) = (numbers(tasks), i128::from(cpus));
    let fits = |k: usize, a: i128| {
        let (ck, dk, _) = tasks[k];
        let t = a + dk;
        let (mut sum, mut gains) = (0, Vec::new());
        for (i, &task) in tasks.iter().enumerate() {
            let (own, cap) = if i == k { (ck, a) } else { (0, t - ck + 1) };
            let without = (demand(task, t) - own).min(cap);
            let with = (due(task, t, 0) - own).min(cap);
            sum += without;
            gains.push(with - without);
        }
        sum + largest(gains, m - 1) <= m * (t - ck)
    };
    (0..tasks.len()).all(|k| (0..=longest).all(|a| fits(k, a)))
}

/// Returns the shortest window up to `longest` in which jobs that are due need more than the
/// supply.
pub(super) fn overfull(tasks: &[Sporadic], cpus: u32, longest: i128) -> Option<i128> {
    let (tasks, m) = (numbers(tasks), i128::from(cpus));
    (1..=longest).find(|&t| tasks.iter().map(|&task| demand(task, t)).sum::<i128>() > m * t)
}

/// Reference model of FF-DBF (Baruah et al., ECRTS 2009). Returns whether the set is proved for σ =
/// `up`/`down`, at every quarter up to `longest`.
pub(super) fn ff_dbf(
    tasks: &[Sporadic],
    cpus: u32,
    (up, down): (i128, i128),
    longest: i128,
) -> bool {
    let (tasks, m) = (numbers(tasks), i128::from(cpus));
    // All times in quarters, all work times 4·`down`.
    (1..=4 * longest).all(|t| {
        let forced = |&(c, d, period): &(i128, i128, i128)| {
            let (q, r) = (t / (4 * period), t % (4 * period));
            let next =
                if r >= 4 * d { c * 4 * down } else { (c * 4 * down - (4 * d - r) * up).max(0) };
            q * c * 4 * down + next
        };
        tasks.iter().map(forced).sum::<i128>() <= (m * down - (m - 1) * up) * t
    })
}
