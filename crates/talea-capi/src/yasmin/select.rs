//! Selection of versions by the program's functions: one for the charge of the battery, or one for
//! the version itself.

use super::layout::{Battery, Select};
use crate::app::choosing;
use talea_core::engine::Conditions;
use talea_core::mutate;
use talea_runtime::{Candidates, Selection};

const DECLARED: u32 = 1;
const ENERGY: u32 = 2;
const USER: u32 = 6;

/// Functions of a task's versions: the first of each kind.
pub(crate) struct Asked {
    pub(crate) battery: Option<Battery>,
    pub(crate) select: Option<Select>,
}

/// Functions of all tasks: `0[n]` has those of task `n`. The engine has a pointer to the table, so
/// the table must not move.
pub(crate) struct Table(pub(crate) Vec<Asked>);

/// Converts the method to the number of `talea.h`. The methods with functions become others,
/// because the start passes the functions to the application.
pub(crate) fn of_talea(selection: u32) -> u32 {
    if selection == USER { DECLARED - 1 } else { selection - 1 }
}

impl Table {
    /// Returns the selection that calls the functions, if the method has any.
    pub(crate) fn selection(&self, method: u32) -> Option<Selection> {
        let address = std::ptr::from_ref(self).expose_provenance() as u64;
        match method {
            ENERGY => Some(Selection::UserWithContext(by_battery, address)),
            USER => Some(Selection::UserWithContext(by_function, address)),
            _ => None,
        }
    }
}

fn asked(of: &Candidates, address: u64) -> Option<&'static Asked> {
    // SAFETY: `Table::selection` put it there, and the application keeps it boxed until no machine
    // is left that could ask.
    let table = unsafe { &*std::ptr::with_exposed_provenance::<Table>(address as usize) };
    table.0.get(of.task.0 as usize)
}

/// Selects the version by energy, with the charge that the program's function returns now.
#[allow(clippy::unnecessary_wraps, reason = "a chooser may name none")]
fn by_battery(of: &Candidates, address: u64) -> Option<u32> {
    let known = of.conditions.battery;
    let battery = asked(of, address).and_then(|asked| asked.battery).map_or(known, |status| {
        // SAFETY: the program's promise: it lives as long as the application.
        let battery = choosing(|| unsafe { status() });
        mutate!("yasmin-battery", battery, battery.max(known))
    });
    let conditions = &Conditions { battery, ..*of.conditions };
    Some(Selection::Energy.choose(&Candidates { conditions, ..*of }))
}

fn by_function(of: &Candidates, address: u64) -> Option<u32> {
    let select = asked(of, address).and_then(|asked| asked.select)?;
    let task = i32::try_from(of.task.0).unwrap_or(i32::MAX);
    // SAFETY: the program's promise: it lives as long as the application.
    u32::try_from(choosing(|| unsafe { select(task, of.available, of.job) })).ok()
}
