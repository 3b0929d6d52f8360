//! Order of the CPUs for a placement: worst fit, preferred CPUs first.
//!
//! The paper tries only the least loaded CPU. If a test is monotone in the load, that is as good as
//! trying all CPUs. The tests of `rm` and the obligations between plugins are not monotone, so the
//! next CPUs in order of load are tried too, up to [`MAX_CPUS_TRIED`], which keeps the cost of a
//! request at O(CPUs + log n). This number applies to the preferred CPUs and to the others
//! separately: a preference must not become a condition (R35) if many preferred CPUs are full.

use talea_core::CpuSet;
use talea_core::mutate;

/// Maximum number of CPUs tried per request, among the preferred ones and among the others.
pub(crate) const MAX_CPUS_TRIED: usize = 8;

/// Iterates over `cpus` by ascending `load`, the `preferred` ones first, at most [`MAX_CPUS_TRIED`]
/// of each kind.
///
/// `load` must be distinct for each CPU: its last part is the CPU's number, so that the lowest wins
/// a tie.
pub(crate) fn worst_fit<K: Ord + Copy>(
    cpus: CpuSet,
    preferred: &CpuSet,
    load: impl Fn(u32) -> K + Clone,
) -> impl Iterator<Item = u32> {
    let first = cpus.intersection(preferred);
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
        std::iter::from_fn(next).take(MAX_CPUS_TRIED)
    };
    by_load(first).chain(by_load(cpus.difference(&first)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r13_cpus_are_ordered_by_load_and_preferred_ones_come_first() {
        let cpus: CpuSet = [1, 3, 5, 70, 71].into_iter().collect();
        let load = |cpu: u32| {
            ([9, 4, 7, 4, 0][[1, 3, 5, 70, 71].iter().position(|&c| c == cpu).unwrap()], cpu)
        };
        let order = |preferred: &[u32]| -> Vec<u32> {
            worst_fit(cpus, &preferred.iter().copied().collect(), load).collect()
        };
        assert_eq!(order(&[]), [71, 3, 70, 5, 1]);
        assert_eq!(order(&[1, 5, 99]), [5, 1, 71, 3, 70]);
        assert_eq!(worst_fit(CpuSet::first(64), &CpuSet::EMPTY, |cpu| cpu).count(), MAX_CPUS_TRIED);
        assert_eq!(worst_fit(CpuSet::EMPTY, &cpus, |cpu| cpu).count(), 0);
        let preferred = CpuSet::first(20);
        let both: Vec<u32> = worst_fit(CpuSet::first(64), &preferred, |cpu| cpu).collect();
        assert_eq!(
            both,
            (0..MAX_CPUS_TRIED as u32).chain(20..20 + MAX_CPUS_TRIED as u32).collect::<Vec<_>>()
        );
    }
}
