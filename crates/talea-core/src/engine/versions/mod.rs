//! Versions of a task: the same interface with different costs (YASMIN section 3.2).
//!
//! Model: at the first dispatch of a job, the candidates are the versions whose accelerators are
//! free. One [`Selection`] per root chooses among them. The rules (docs/model.md, section 7) are
//! total: a job always has a version. Battery, mode and mask are unknown to the engine; the driver
//! reports them as [`Condition`]s.
//!
//! Reference model: the minimum by definition, and results by hand, in the tests.

use super::ids::{AcceleratorId, TaskId};
use crate::Work;
use crate::mutate;
use alloc::string::String;
use alloc::vec::Vec;

#[cfg(test)]
mod tests;

/// One implementation of a task.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Version {
    /// Name for display.
    pub name: String,
    /// Accelerators held from the first dispatch of the job to its completion, all or none.
    pub accelerators: Vec<AcceleratorId>,
    /// Energy of a job in the unit of the battery, for *energy* and *trade-off*.
    pub energy: u64,
    /// Execution time of a job, for *trade-off*.
    pub time: Work,
    /// Bit mask of intended modes, bit k for mode k; for *mode*.
    pub modes: u64,
    /// Bit mask of required permissions, for *mask*.
    pub needs: u64,
}

impl Version {
    /// Creates a version without accelerators, for any mode, without required permissions.
    pub fn new(name: &str) -> Version {
        Version { name: name.into(), modes: u64::MAX, ..Version::default() }
    }
}

/// Rule by which a root chooses among the candidates.
#[derive(Clone, Copy, Debug, Default)]
pub enum Selection {
    /// The first version in the order of declaration.
    #[default]
    Declared,
    /// The version with the largest energy that the battery still holds. If there is none, the
    /// version with the smallest energy.
    Energy,
    /// The version with the smallest `weight · energy + (1000 - weight) · time`, with the time in
    /// nanoseconds.
    TradeOff {
        /// Weight in thousandths: 0 for time only, 1000 for energy only.
        weight: u32,
    },
    /// The first version intended for the current mode, otherwise the last.
    Mode,
    /// The first version whose required permissions are all granted, otherwise the last.
    Mask,
    /// The version that a function returns. If that version is no candidate, the last candidate.
    User(VersionSelector),
    /// The version that a function with a context number returns, for applications that share a
    /// function.
    UserWithContext(ContextSelector, u64),
}

/// External selector, which returns the number of a version.
///
/// The engine calls the selector during a decision. A panic leaves the engine in an unknown state,
/// so a panic must end the driver, too.
pub type VersionSelector = fn(&Candidates) -> Option<u32>;

/// External selector with the context number of its registration.
pub type ContextSelector = fn(&Candidates, u64) -> Option<u32>;

/// Arguments of a [`VersionSelector`].
#[derive(Clone, Copy, Debug)]
pub struct Candidates<'a> {
    /// Task of the job.
    pub task: TaskId,
    /// All versions of the task.
    pub versions: &'a [Version],
    /// Bit mask of the candidates, bit k for version k: the available versions, or all versions if
    /// none is available.
    pub available: u64,
    /// Number of the job, from 0.
    pub job: u64,
    /// Last reported conditions.
    pub conditions: &'a Conditions,
}

impl Candidates<'_> {
    /// Iterates over the candidates, with their numbers.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (u32, &Version)> {
        let free = self.available;
        self.versions
            .iter()
            .enumerate()
            .map(|(at, version)| (at as u32, version))
            .filter(move |&(at, _)| free >> at & 1 == 1)
    }
}

/// Conditions that the selection of versions depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conditions {
    /// Charge of the battery, in the unit of [`Version::energy`].
    pub battery: u64,
    /// Current mode, 0..=63.
    pub mode: u8,
    /// Bit mask of granted permissions.
    pub permitted: u64,
}

impl Default for Conditions {
    /// Returns a full battery, mode 0, and all permissions.
    fn default() -> Conditions {
        Conditions { battery: u64::MAX, mode: 0, permitted: u64::MAX }
    }
}

/// A change of the [`Conditions`], effective from the next selection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// New value of [`Conditions::battery`].
    Battery(u64),
    /// New value of [`Conditions::mode`].
    Mode(u8),
    /// New value of [`Conditions::permitted`].
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
    /// Returns the number of the selected version. The function is public for selectors that use a
    /// rule of [`Selection`] with other conditions.
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
                // Ties go to the first: the minimum of (unused energy, number).
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
                // Modes beyond the bit mask belong to no version.
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
            Selection::UserWithContext(chooser, number) => {
                named(of, chooser(of, mutate!("core-version-given", *number, 1)))
            }
        };
        found.or_else(|| of.iter().next_back()).expect("a candidate").0
    }
}

/// Returns the candidate with the number `said`, which an external selector returned. `None` if
/// that version is no candidate.
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
