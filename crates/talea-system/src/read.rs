//! Reader of each table by itself, before names are resolved.

mod curve;
mod health;
mod modes;
mod parts;
mod preemption;
mod program;
mod scheduler;
mod task;
mod values;

use crate::draft::{Draft, Named};
use crate::keys::Section;
use crate::registry::Registry;
pub(crate) use modes::modes;
use talea_config::source::Findings;
use toml::de::DeTable;
use values::{Table, list};

/// Reads the contents of one file into `draft`.
pub(super) fn file(
    document: &DeTable<'_>,
    file: usize,
    registry: &Registry,
    draft: &mut Draft,
    findings: &mut Findings<'_>,
) {
    let top = Table::new(Section::Top, document, 0..0, findings);
    if let Some(field) = top.take("duration") {
        draft.duration = field.duration(findings).or(draft.duration);
    }
    if let Some(field) = top.take("seed") {
        draft.seed = field.integer(0, u32::MAX, findings).map(u64::from).or(draft.seed);
    }
    for table in list(&top, "scheduler", Section::Scheduler, findings) {
        match scheduler::scheduler(&table, file, registry, findings) {
            Some(scheduler) => draft.schedulers.push(scheduler),
            None => draft.broken.extend(broken(&table, file)),
        }
    }
    for table in list(&top, "task", Section::Task, findings) {
        match task::task(&table, file, findings) {
            Some(task) => draft.tasks.push(task),
            None => draft.broken.extend(broken(&table, file)),
        }
    }
    for table in list(&top, "accelerator", Section::Accelerator, findings) {
        match parts::accelerator(&table, file, findings) {
            Some(accelerator) => draft.accelerators.push(accelerator),
            None => draft.broken.extend(broken(&table, file)),
        }
    }
    for table in list(&top, "resource", Section::Resource, findings) {
        match parts::resource(&table, file, findings) {
            Some(resource) => draft.resources.push(resource),
            None => draft.broken.extend(broken(&table, file)),
        }
    }
    for table in list(&top, "channel", Section::Channel, findings) {
        let channel = parts::channel(&table, file, findings);
        draft.lost_channels |= channel.is_none();
        draft.channels.extend(channel);
    }
    for table in list(&top, "chain", Section::Chain, findings) {
        draft.chains.extend(parts::chain(&table, file, findings));
    }
    if let Some(field) = top.take("overheads") {
        parts::overheads(&field, file, draft, findings);
    }
    for table in list(&top, "stall", Section::Stall, findings) {
        draft.stalls.extend(parts::stall(&table, file, findings));
    }
    for table in list(&top, "change", Section::Change, findings) {
        draft.changes.extend(parts::change(&table, findings).into_iter().flatten());
    }
    for table in list(&top, "expect", Section::Expect, findings) {
        draft.expectations.extend(parts::expectation(&table, file, findings));
    }
}

/// Returns the name of an item that could not be read.
fn broken(table: &Table<'_>, file: usize) -> Option<Named> {
    let field = table.take("name")?;
    Some(Named { name: field.value.as_str()?.to_owned(), file, at: field.at })
}
