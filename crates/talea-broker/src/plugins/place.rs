//! Which CPU next: worst fit, with wishes first.
//!
//! The paper tries the least loaded CPU only. Where the test is monotone in load that is as good as
//! trying all; the tests of `rm`, and what plugins owe to each other, are not monotone, so the next
//! CPUs in order of load are tried too, up to [`TRIES`], which keeps a question O(CPUs + log n).
//! That many of those wished for, then that many of the others: a wish must not become a condition
//! (checklist R35) where the CPUs wished for are many and full.

use talea_core::CpuSet;
use talea_core::mutate;

/// How many CPUs a question may try, of those wished for and of the others.
pub(crate) const TRIES: usize = 8;

/// The members of `cpus` by ascending `load`, those of `wished` before all others, at most
/// [`TRIES`] of either.
///
/// `load` must differ from CPU to CPU: end it with the CPU's number, so that the lowest wins a tie.
pub(crate) fn worst_fit<K: Ord + Copy>(
    cpus: CpuSet,
    wished: &CpuSet,
    load: impl Fn(u32) -> K + Clone,
) -> impl Iterator<Item = u32> {
    let first = cpus.intersection(wished);
    let by_load = move |group: CpuSet| {
        let mut last: Option<K> = None;
        let load = load.clone();
        let next = move || {
            let beyond = group
                .iter()
                .map(|cpu| (load(cpu), cpu))
                .filter(|(key, _)| last.is_none_or(|l| *key > l));
            let (key, cpu) = mutate!(
                "plugin-place-worst-fit",
                beyond.min_by_key(|(key, _)| *key),
                beyond.max_by_key(|(key, _)| *key)
            )?;
            last = Some(key);
            Some(cpu)
        };
        std::iter::from_fn(next).take(TRIES)
    };
    by_load(first).chain(by_load(cpus.difference(&first)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r13_cpus_come_least_loaded_first_and_wishes_before_all() {
        let cpus: CpuSet = [1, 3, 5, 70, 71].into_iter().collect();
        let load = |cpu: u32| {
            ([9, 4, 7, 4, 0][[1, 3, 5, 70, 71].iter().position(|&c| c == cpu).unwrap()], cpu)
        };
        let order = |wished: &[u32]| -> Vec<u32> {
            worst_fit(cpus, &wished.iter().copied().collect(), load).collect()
        };
        assert_eq!(order(&[]), [71, 3, 70, 5, 1]);
        assert_eq!(order(&[1, 5, 99]), [5, 1, 71, 3, 70]);
        assert_eq!(worst_fit(CpuSet::first(64), &CpuSet::EMPTY, |cpu| cpu).count(), TRIES);
        assert_eq!(worst_fit(CpuSet::EMPTY, &cpus, |cpu| cpu).count(), 0);
        let wished = CpuSet::first(20);
        let both: Vec<u32> = worst_fit(CpuSet::first(64), &wished, |cpu| cpu).collect();
        assert_eq!(both, (0..TRIES as u32).chain(20..20 + TRIES as u32).collect::<Vec<_>>());
    }
}
