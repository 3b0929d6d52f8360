//! Assignment of CPUs to roots: each root gets the next available CPUs, in the order of the file.

use crate::exit::not_executable;
use talea_core::CpuSet;
use talea_os::{Tid, sched};
use talea_system::System;

/// `assignment[root]`: the kernel's numbers of the root's CPUs.
pub type CpuAssignment = Vec<Vec<u32>>;

/// Assigns CPUs to each root, from `wanted` or from all CPUs that this process may use.
///
/// # Errors
/// The reason why that is not possible (`NotExecutable`).
pub fn place(system: &System, wanted: Option<&CpuSet>) -> anyhow::Result<CpuAssignment> {
    if let Some(task) = logical_task(system) {
        return Err(not_executable(format!(
            "{task} has `logical_execution_time`: no output waits for its deadline on real threads, so such files can be simulated (talea simulate), not executed"
        )));
    }
    let usable =
        sched::get_affinity(Tid::current()).map_err(|error| not_executable(error.to_string()))?;
    let cpus: Vec<u32> = system.roots.iter().map(|root| root.tree.cpus).collect();
    assign(&cpus, &usable, wanted).map_err(not_executable)
}

/// Returns a task with logical execution time, if there is one: no run has it.
pub fn logical_task(system: &System) -> Option<&str> {
    system.roots.iter().find_map(|root| {
        let task = root.logical.iter().position(|&is_logical| is_logical)?;
        Some(root.tasks[task].as_str())
    })
}

fn assign(
    roots: &[u32],
    usable: &CpuSet,
    wanted: Option<&CpuSet>,
) -> Result<CpuAssignment, String> {
    let from = wanted.unwrap_or(usable);
    let missing = from.difference(usable);
    if !missing.is_empty() {
        return Err(format!("CPU {missing} is not available: this process may use {usable}"));
    }
    let needed: u32 = roots.iter().sum();
    if needed > from.len() {
        let (has, source) = match wanted {
            Some(_) => (from, "--cpus names"),
            None => (usable, "this process may use"),
        };
        return Err(format!(
            "the file describes {}, and {source} {} ({has}): more can be simulated (talea simulate), not executed",
            crate::output::count(needed as usize, "CPU"),
            has.len(),
        ));
    }
    let mut free = from.iter();
    Ok(roots.iter().map(|&cpus| free.by_ref().take(cpus as usize).collect()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(text: &str) -> CpuSet {
        CpuSet::parse(text).expect("a list")
    }

    #[test]
    fn roots_get_the_next_cpus_in_their_order() {
        assert_eq!(assign(&[1, 2], &set("0-3"), None), Ok(vec![vec![0], vec![1, 2]]));
        assert_eq!(
            assign(&[1, 2], &set("0-7"), Some(&set("2,5-7"))),
            Ok(vec![vec![2], vec![5, 6]])
        );
        assert_eq!(assign(&[], &set("0"), None), Ok(Vec::new()));
    }

    #[test]
    fn what_the_machine_has_not_is_said_with_numbers() {
        let few = assign(&[3, 1], &set("0-1"), None).expect_err("four of two");
        assert!(few.contains("describes 4 CPUs") && few.contains("2 (0-1)"), "{few}");
        let few = assign(&[2], &set("0-1"), Some(&set("1"))).expect_err("two of one");
        assert!(few.contains("--cpus names 1 (1)"), "{few}");
        let none = assign(&[1], &set("0-1"), Some(&set("0,7"))).expect_err("not there");
        assert!(none.contains("CPU 7") && none.contains("0-1"), "{none}");
    }
}
