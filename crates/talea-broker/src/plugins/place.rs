//! Which CPU next: worst fit, with wishes first.
//!
//! The paper tries the least loaded CPU only. Where the test is monotone in load that is as good as trying all; the
//! tests of `rm`, and what plugins owe to each other, are not monotone, so the next CPUs in order of load are tried
//! too, up to [`TRIES`], which keeps a question O(CPUs + log n).

use talea_core::CpuSet;

/// How many CPUs a question may try.
pub(crate) const TRIES: usize = 8;

/// The members of `cpus` by ascending `load`, those of `wished` before all others, at most [`TRIES`].
///
/// `load` must differ from CPU to CPU: end it with the CPU's number, so that the lowest wins a tie.
pub(crate) fn worst_fit<K: Ord + Copy>(
    cpus: CpuSet,
    wished: &CpuSet,
    load: impl Fn(u32) -> K,
) -> impl Iterator<Item = u32> {
    let first = cpus.intersection(wished);
    let mut last: Option<K> = None;
    let mut turns = [first, cpus.difference(&first)].into_iter();
    let mut now = turns.next();
    let next = move || {
        while let Some(group) = &now {
            let beyond =
                group.iter().map(|cpu| (load(cpu), cpu)).filter(|(key, _)| last.is_none_or(|l| *key > l));
            if let Some((key, cpu)) = beyond.min_by_key(|(key, _)| *key) {
                last = Some(key);
                return Some(cpu);
            }
            last = None;
            now = turns.next();
        }
        None
    };
    std::iter::from_fn(next).take(TRIES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r13_cpus_come_least_loaded_first_and_wishes_before_all() {
        let cpus: CpuSet = [1, 3, 5, 70, 71].into_iter().collect();
        let load =
            |cpu: u32| ([9, 4, 7, 4, 0][[1, 3, 5, 70, 71].iter().position(|&c| c == cpu).unwrap()], cpu);
        let order = |wished: &[u32]| -> Vec<u32> {
            worst_fit(cpus, &wished.iter().copied().collect(), load).collect()
        };
        assert_eq!(order(&[]), [71, 3, 70, 5, 1]);
        assert_eq!(order(&[1, 5, 99]), [5, 1, 71, 3, 70]);
        assert_eq!(worst_fit(CpuSet::first(64), &CpuSet::EMPTY, |cpu| cpu).count(), TRIES);
        assert_eq!(worst_fit(CpuSet::EMPTY, &cpus, |cpu| cpu).count(), 0);
    }
}
