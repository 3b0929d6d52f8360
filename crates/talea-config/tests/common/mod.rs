//! Computer that the tests' files are for.
#![allow(dead_code, reason = "each test file uses its part")]

pub(crate) mod large;
pub(crate) mod manual;
pub(crate) mod table;

use talea_config::{Names, Target};
use talea_core::CpuSet;

/// Number of CPUs of the computer.
pub(crate) const TARGET_CPUS: u32 = 4;

/// Users and groups of the computer.
pub(crate) struct Table;

impl Names for Table {
    fn user(&self, name: &str) -> Option<u32> {
        [("root", 0), ("alice", 1000)].iter().find(|(known, _)| *known == name).map(|&(_, id)| id)
    }

    fn group(&self, name: &str) -> Option<u32> {
        [("audio", 29), ("realtime", 99), ("pipewire", 108)]
            .iter()
            .find(|(known, _)| *known == name)
            .map(|&(_, id)| id)
    }
}

/// Returns the users and groups of the computer.
pub(crate) fn names() -> Table {
    Table
}

/// Returns a computer with the CPUs `0..cpus`.
pub(crate) fn target(cpus: u32) -> Target {
    Target::new(CpuSet::first(cpus))
}
