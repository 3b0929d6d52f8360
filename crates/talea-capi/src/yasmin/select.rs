//! Versions chosen by the program's functions: what the battery holds, or which version at once.

use super::layout::{Battery, Select};
use crate::app::choosing;
use talea_core::engine::Conditions;
use talea_core::mutate;
use talea_runtime::{Candidates, Selection};

const DECLARED: u32 = 1;
const ENERGY: u32 = 2;
const USER: u32 = 6;

/// The functions of a task's versions: the first of each kind.
pub(crate) struct Asked {
    pub(crate) battery: Option<Battery>,
    pub(crate) select: Option<Select>,
}

/// `0[task]`: functions of the task. The engine has a pointer to it, so it must not move.
pub(crate) struct Table(pub(crate) Vec<Asked>);

/// The method as `talea.h` numbers it; functions are passed to the application when it starts.
pub(crate) fn of_talea(selection: u32) -> u32 {
    if selection == USER { DECLARED - 1 } else { selection - 1 }
}

impl Table {
    /// Returns the selection that calls the functions, if the method has some.
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

/// The rule for energy, with a battery that is asked just now.
#[allow(clippy::unnecessary_wraps, reason = "a chooser may name none")]
fn by_battery(of: &Candidates, address: u64) -> Option<u32> {
    let battery = mutate!(
        "yasmin-battery",
        match asked(of, address).and_then(|asked| asked.battery) {
            // SAFETY: the program's promise: it lives as long as the application.
            Some(status) => choosing(|| unsafe { status() }),
            None => of.conditions.battery,
        },
        match asked(of, address).and_then(|asked| asked.battery) {
            // SAFETY: the program's promise: it lives as long as the application.
            Some(status) => choosing(|| unsafe { status() }).max(of.conditions.battery),
            None => of.conditions.battery,
        }
    );
    let conditions = &Conditions { battery, ..*of.conditions };
    Some(Selection::Energy.choose(&Candidates { conditions, ..*of }))
}

fn by_function(of: &Candidates, address: u64) -> Option<u32> {
    let select = asked(of, address).and_then(|asked| asked.select)?;
    let task = i32::try_from(of.task.0).unwrap_or(i32::MAX);
    // SAFETY: the program's promise: it lives as long as the application.
    u32::try_from(choosing(|| unsafe { select(task, of.available, of.job) })).ok()
}
