//! Root domains: the sets of CPUs within which the scheduler balances and SCHED_DEADLINE admits.
//!
//! The kernel does not list the root domains; they follow from the cpusets. Version 1: with
//! `sched_load_balance` in the root set, there is one domain of all CPUs that are not isolated.
//! Without it, there is one for each connected union of the topmost sets that balance. Version 2:
//! there is one per valid partition, and one for the remaining CPUs. CPUs that no set balances
//! share the kernel's default domain. A pinned deadline thread cannot cover the span of that domain
//! unless it has one CPU.
//!
//! Reference: `generate_sched_domains` in `kernel/cgroup/cpuset.c`; measured on cgroup v1 and v2.

use super::cgroups::{Cgroups, Hierarchy};
use super::sys_root::SysRoot;
use talea_core::CpuSet;

/// Root domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Domain {
    /// CPUs of the domain.
    pub cpus: CpuSet,
    /// Whether the kernel moves threads between the CPUs of the domain.
    pub balanced: bool,
}

pub(super) fn read(
    root: &SysRoot,
    cgroups: &Cgroups,
    online: &CpuSet,
    isolated: &CpuSet,
) -> Vec<Domain> {
    let (sets, rest_balanced) = match &cgroups.cpuset {
        Hierarchy::V1(at) => (version_1(root, at), false),
        Hierarchy::V2(at) => (version_2(root, at), true),
        Hierarchy::Absent => (vec![*online], false),
    };
    assemble(sets, rest_balanced, online, isolated)
}

/// Merges overlapping sets. CPUs in no set form the rest (version 2) or are unbalanced (version 1).
fn assemble(
    sets: Vec<CpuSet>,
    rest_balanced: bool,
    online: &CpuSet,
    isolated: &CpuSet,
) -> Vec<Domain> {
    let usable = online.difference(isolated);
    let mut domains: Vec<CpuSet> = Vec::new();
    for set in sets {
        let mut merged = set.intersection(&usable);
        if merged.is_empty() {
            continue;
        }
        domains.retain(|other| {
            let apart = other.intersection(&merged).is_empty();
            if !apart {
                merged = merged.union(other);
            }
            apart
        });
        domains.push(merged);
    }
    domains.sort_unstable_by_key(|set| set.iter().next());
    let named = domains.iter().fold(CpuSet::EMPTY, |all, set| all.union(set));
    let mut domains: Vec<Domain> =
        domains.into_iter().map(|cpus| Domain { cpus, balanced: true }).collect();
    let rest = usable.difference(&named);
    if !rest.is_empty() {
        domains.push(Domain { cpus: rest, balanced: rest_balanced });
    }
    let alone = online.intersection(isolated);
    if !alone.is_empty() {
        domains.push(Domain { cpus: alone, balanced: false });
    }
    domains
}

/// Reads the topmost sets that balance. Sets below them are irrelevant.
fn version_1(root: &SysRoot, at: &str) -> Vec<CpuSet> {
    let read = |name: &str| {
        // Mounted with `noprefix`, as on Android, the names have no prefix.
        let prefixed = format!("{at}/cpuset.{name}");
        let path = if root.path(&prefixed).exists() { prefixed } else { format!("{at}/{name}") };
        (root.number(&path), root.cpus(&path))
    };
    if read("sched_load_balance").0 != Some(0) {
        return read("effective_cpus").1.or(read("cpus").1).into_iter().collect();
    }
    root.children(at).iter().flat_map(|name| version_1(root, &format!("{at}/{name}"))).collect()
}

/// Reads the valid partitions, at any depth.
fn version_2(root: &SysRoot, at: &str) -> Vec<CpuSet> {
    let mut found = Vec::new();
    for name in root.children(at) {
        let below = format!("{at}/{name}");
        let state = root.text(&format!("{below}/cpuset.cpus.partition")).unwrap_or_default();
        // An isolated partition is in `isolated` where the kernel reports it; its CPUs are not
        // balanced.
        if state == "root" {
            found.extend(root.cpus(&format!("{below}/cpuset.cpus.effective")));
        }
        found.extend(version_2(root, &below));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(text: &str) -> CpuSet {
        CpuSet::parse(text).expect("a CPU list")
    }

    fn spans(sets: &[&str], rest: bool, isolated: CpuSet) -> Vec<(String, bool)> {
        assemble(sets.iter().map(|text| set(text)).collect(), rest, &set("0-7"), &isolated)
            .into_iter()
            .map(|domain| (domain.cpus.to_string(), domain.balanced))
            .collect()
    }

    #[test]
    fn overlapping_sets_are_one_domain() {
        assert_eq!(
            spans(&["0-1", "4", "1-2"], false, CpuSet::EMPTY),
            [("0-2".into(), true), ("4".into(), true), ("3,5-7".into(), false)]
        );
    }

    #[test]
    fn the_cpus_outside_all_partitions_form_a_domain() {
        assert_eq!(
            spans(&["3"], true, CpuSet::EMPTY),
            [("3".into(), true), ("0-2,4-7".into(), true)]
        );
    }

    #[test]
    fn isolated_cpus_form_an_unbalanced_domain() {
        assert_eq!(
            spans(&["0-7"], false, set("6-7")),
            [("0-5".into(), true), ("6-7".into(), false)]
        );
    }
}
