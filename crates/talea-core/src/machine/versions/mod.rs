//! Versions of a task: the same interface, another cost (YASMIN section 3.2).
//!
//! Model: when a job is first dispatched, the candidates are the versions whose accelerators are
//! free, and one [`Selection`] per root picks among them. The rules (docs/model.md, section 7) are
//! total: a job always has a version. What the machine can't know, the battery, the mode and the
//! mask, is told to it as [`Condition`]s while it runs.
//!
//! Plain twin: a sorted list, in the tests.

use super::TaskId;
use super::sharing::AcceleratorId;
use crate::Work;
use crate::mutate;
use alloc::string::String;
use alloc::vec::Vec;

#[cfg(test)]
mod tests;

/// One way to do what a task does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Version {
    /// For people.
    pub name: String,
    /// Held from the first dispatch of the job to its end, all or none.
    pub accelerators: Vec<AcceleratorId>,
    /// What a job uses up, in the unit of the battery: *energy* and *trade-off*.
    pub energy: u64,
    /// What a job takes: *trade-off*.
    pub time: Work,
    /// The modes in which it is meant to be used, bit k for mode k: *mode*.
    pub modes: u64,
    /// The permissions that it needs, a bit each: *mask*.
    pub needs: u64,
}

impl Version {
    /// A version without accelerators, for any mode, that needs no permission.
    pub fn new(name: &str) -> Version {
        Version { name: name.into(), modes: u64::MAX, ..Version::default() }
    }
}

/// How a root picks among the candidates.
#[derive(Clone, Copy, Debug, Default)]
pub enum Selection {
    /// The first in the order of declaration.
    #[default]
    Declared,
    /// The largest energy that the battery still holds; when it holds none of them, the least.
    Energy,
    /// The least `weight · energy + (1000 - weight) · time`, with the time in nanoseconds.
    TradeOff {
        /// Thousandths: 0 looks at time only, 1000 at energy only.
        weight: u32,
    },
    /// The first that is meant for the current mode; else the last.
    Mode,
    /// The first whose needs are all permitted; else the last.
    Mask,
    /// What a function says; the last if it names none of the candidates.
    User(Chooser),
    /// The same with a number that the function is given along: whose it is, where several
    /// applications share a function.
    Given(GivenChooser, u64),
}

/// A selection from outside: the number of a version. Asked in the middle of a decision: one that
/// panics leaves a machine of which nothing is known, so whoever drives that ends with it.
pub type Chooser = fn(&Candidates) -> Option<u32>;

/// One that is given a number of whoever declared it.
pub type GivenChooser = fn(&Candidates, u64) -> Option<u32>;

/// What a [`Chooser`] chooses from.
#[derive(Clone, Copy, Debug)]
pub struct Candidates<'a> {
    /// Whose job it is.
    pub task: TaskId,
    /// All versions of the task.
    pub versions: &'a [Version],
    /// Bit k: version k can be had.
    pub free: u64,
    /// Which job of its task, from 0.
    pub job: u64,
    /// What was last said about the world.
    pub conditions: &'a Conditions,
}

impl Candidates<'_> {
    /// The versions that can be had, with their numbers.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (u32, &Version)> {
        let free = self.free;
        self.versions
            .iter()
            .enumerate()
            .map(|(at, version)| (at as u32, version))
            .filter(move |&(at, _)| free >> at & 1 == 1)
    }
}

/// The world, as far as versions depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conditions {
    /// What the battery holds, in the unit of [`Version::energy`].
    pub battery: u64,
    /// The current mode, 0..=63.
    pub mode: u8,
    /// The permissions that are given.
    pub permitted: u64,
}

impl Default for Conditions {
    /// A full battery, mode 0, everything permitted.
    fn default() -> Conditions {
        Conditions { battery: u64::MAX, mode: 0, permitted: u64::MAX }
    }
}

/// A change of the [`Conditions`], from which the next choice on counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// See [`Conditions::battery`].
    Battery(u64),
    /// See [`Conditions::mode`].
    Mode(u8),
    /// See [`Conditions::permitted`].
    Permitted(u64),
}

impl Conditions {
    pub(super) fn set(&mut self, condition: Condition) {
        match condition {
            Condition::Battery(battery) => self.battery = battery,
            Condition::Mode(mode) => self.mode = mode,
            Condition::Permitted(permitted) => self.permitted = permitted,
        }
    }
}

impl Selection {
    /// The number of the version. For functions that choose by one of these rules, with other
    /// conditions.
    ///
    /// # Panics
    /// If there is no candidate.
    pub fn choose(&self, of: &Candidates) -> u32 {
        let conditions = of.conditions;
        let found = match self {
            Selection::Declared => {
                mutate!("core-version-declared", of.iter().next(), of.iter().next_back())
            }
            Selection::Energy => {
                // Ties go to the first: the least of (what is not used, number).
                let held = of.iter().filter(|(_, version)| version.energy <= conditions.battery);
                mutate!(
                    "core-version-energy-empty",
                    held.min_by_key(|&(at, version)| (
                        mutate!("core-version-energy", u64::MAX - version.energy, version.energy),
                        at
                    ))
                    .or_else(|| of.iter().min_by_key(|&(at, version)| (version.energy, at))),
                    held.min_by_key(|&(at, version)| (u64::MAX - version.energy, at))
                )
            }
            Selection::TradeOff { weight } => of.iter().min_by_key(|&(at, version)| {
                let (energy, time) = (u128::from(version.energy), u128::from(version.time.as_ns()));
                let weight = u128::from(*weight);
                (
                    mutate!(
                        "core-version-trade-off",
                        weight * energy + (1_000 - weight) * time,
                        (1_000 - weight) * energy + weight * time
                    ),
                    at,
                )
            }),
            Selection::Mode => {
                // Of modes beyond those that a version can name, none is in any.
                let is_in = |modes: u64| {
                    modes
                        .checked_shr(conditions.mode.into())
                        .is_some_and(|of| of & 1 == mutate!("core-version-mode", 1, 0))
                };
                of.iter().find(|(_, version)| is_in(version.modes))
            }
            Selection::Mask => of.iter().find(|(_, version)| {
                mutate!(
                    "core-version-mask",
                    version.needs & !conditions.permitted == 0,
                    version.needs & conditions.permitted != 0
                )
            }),
            Selection::User(chooser) => named(of, chooser(of)),
            Selection::Given(chooser, number) => named(of, chooser(of, *number)),
        };
        found.or_else(|| of.iter().next_back()).expect("a candidate").0
    }
}

/// The candidate that a function from outside has named, if it is one.
fn named<'a>(of: &'a Candidates, said: Option<u32>) -> Option<(u32, &'a Version)> {
    mutate!(
        "core-version-user",
        of.iter().find(|&(at, _)| Some(at) == said),
        of.versions
            .iter()
            .enumerate()
            .map(|(at, v)| (at as u32, v))
            .find(|&(at, _)| Some(at) == said)
    )
}
