//! Hosts of foreign plugins in a simulation: the test answers their calls.

use super::Simulation;
use crate::input::{ForeignAnswer, ForeignCall, Input};
use talea_proto::SpecId;

impl Simulation {
    /// Answers a call of a foreign plugin with `answer`; `None` is a time-out. Returns false if
    /// there is no call.
    pub fn answer_call(&mut self, answer: impl Fn(&ForeignCall) -> Option<ForeignAnswer>) -> bool {
        let Some((&ticket, (_, question, _))) = self.calls.iter().next() else { return false };
        let answer = answer(question);
        self.calls.remove(&ticket);
        self.handle_input(Input::PluginAnswered { ticket, answer });
        true
    }

    /// Records that a foreign plugin gets this call.
    pub(super) fn note_call(&mut self, plugin: u32, call: &ForeignCall) {
        let held = self.hosts.held.entry(plugin).or_default();
        match call {
            ForeignCall::Schedule { spec, .. } => drop(held.insert(*spec)),
            ForeignCall::Release { spec } => drop(held.remove(spec)),
            _ => {}
        }
    }

    /// Whether the plugin of the oldest call has the deadline class.
    pub(super) fn is_deadline_called(&self) -> bool {
        let plugin = self.calls.values().next().map(|(plugin, ..)| *plugin as usize);
        plugin.is_some_and(|plugin| self.setup().plugins[plugin].kind.is_deadline())
    }

    /// Passes new levels of a foreign plugin, as part of the answer to its call in flight.
    pub fn rank(&mut self, plugin: u32, ranks: Vec<(SpecId, i32)>, more: bool) {
        self.handle_input(Input::PluginRanked { plugin, ranks, more });
    }

    /// Ends a foreign plugin's host.
    pub fn fail_host(&mut self, plugin: u32) {
        self.calls.retain(|_, (asked, ..)| *asked != plugin);
        self.handle_input(Input::HostFailed { plugin });
    }

    /// Starts an ended host of a foreign plugin again. No effect on the others.
    pub fn restart_host(&mut self, plugin: u32) {
        if self.hosts.ended.remove(&plugin) {
            self.handle_input(Input::HostServes { plugin });
        }
    }
}
