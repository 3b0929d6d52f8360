//! The rule by which a measurement counts or is inconclusive, although stalls of the computer
//! excluded a part of it.

use talea_core::mutate;

/// Jobs or requests of a measurement, and those that do not count fully.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exclusions {
    /// Number of all jobs.
    pub total: u64,
    /// Number of jobs about which a stall makes every statement impossible.
    pub excluded: u64,
    /// Number of jobs that lost CPU time within the tolerance. They are only compared with a bound
    /// that includes the lost time.
    pub perturbed: u64,
}

impl Exclusions {
    /// Whether too few jobs count: more than a twentieth is excluded, or more than half is excluded
    /// or perturbed.
    pub fn are_inconclusive(&self) -> bool {
        let Exclusions { total, excluded, perturbed } = *self;
        mutate!(
            "study-validity",
            excluded * 20 > total || (excluded + perturbed) * 2 > total,
            excluded * 20 > total
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_twentieth_may_be_excluded_and_half_perturbed() {
        for (excluded, perturbed, is_inconclusive) in
            [(5, 45, false), (6, 0, true), (5, 46, true), (0, 50, false), (0, 51, true)]
        {
            let of = Exclusions { total: 100, excluded, perturbed };
            assert_eq!(of.are_inconclusive(), is_inconclusive, "{of:?}");
        }
        assert!(!Exclusions::default().are_inconclusive());
    }
}
