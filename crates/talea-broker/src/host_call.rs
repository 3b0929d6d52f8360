//! Calls of foreign plugins and their answers as messages of the host protocol.
//!
//! The driver sends and receives the messages; this module only translates.

use crate::input::{ForeignAnswer, ForeignCall, Ticket};
use talea_core::{CpuSet, Span, Work};
use talea_proto::host::{
    HostPlace, HostRank, HostRequest, HostResponse, IGNORE_ADMISSION, PluginFunction, RANKS_MAX,
};
use talea_proto::refusal::PluginText;
use talea_proto::{SpecId, Task};

/// Returns the message of a call.
pub fn request(call: &ForeignCall, ticket: Ticket) -> HostRequest {
    let bare = HostRequest { ticket: ticket.0, ..HostRequest::ZERO };
    match *call {
        ForeignCall::Accept { ref task, cpus, preferred, replaces, .. } => HostRequest {
            call: if replaces.is_none() { PluginFunction::Accept } else { PluginFunction::Change }
                as u32,
            spec: replaces.map_or(0, |spec| spec.0),
            cpus: *cpus.words(),
            preferred: *preferred.words(),
            ..with_task(&bare, task)
        },
        ForeignCall::Schedule { spec, ref task, cpu, cpus, priority, terms, runtime } => {
            HostRequest {
                call: PluginFunction::Schedule as u32,
                spec: spec.0,
                cpus: *cpus.words(),
                place: HostPlace {
                    cpu: cpu.map_or(-1, |cpu| cpu as i32),
                    priority: priority.into(),
                    runtime_ns: runtime.map_or(0, Work::as_ns),
                    deadline_ns: terms.map_or(0, |terms| terms.deadline.as_ns()),
                    period_ns: terms.map_or(0, |terms| terms.period.as_ns()),
                },
                ..with_task(&bare, task)
            }
        }
        ForeignCall::Release { spec } => about(&bare, PluginFunction::Release, spec),
        ForeignCall::Attach { spec } => about(&bare, PluginFunction::Attach, spec),
        ForeignCall::Detach { spec } => about(&bare, PluginFunction::Detach, spec),
        ForeignCall::Rank => HostRequest { call: PluginFunction::Rank as u32, ..bare },
    }
}

fn about(bare: &HostRequest, call: PluginFunction, spec: SpecId) -> HostRequest {
    HostRequest { call: call as u32, spec: spec.0, ..*bare }
}

fn with_task(bare: &HostRequest, task: &Task) -> HostRequest {
    let params = &task.params;
    HostRequest {
        period_ns: params.period.map_or(0, Span::as_ns),
        runtime_ns: params.runtime.map_or(0, Work::as_ns),
        desired_ns: params.desired.map_or(0, Work::as_ns),
        deadline_ns: params.deadline.map_or(0, Span::as_ns),
        priority: params.priority.map_or(0, |priority| priority.0.into()),
        flags: if task.ignore_admission { IGNORE_ADMISSION } else { 0 },
        ..*bare
    }
}

/// Returns the epoch of the ledger that a call contains; 0 for a notification.
pub fn epoch(call: &ForeignCall) -> u64 {
    match call {
        ForeignCall::Accept { epoch, .. } => *epoch,
        _ => 0,
    }
}

/// Returns the answer of a message, to a call of this epoch.
pub fn answer(response: &HostResponse, epoch: u64) -> ForeignAnswer {
    ForeignAnswer {
        epoch,
        verdict: response.verdict,
        cpu: response.cpu,
        priority: response.priority,
        runtime_ns: response.runtime_ns,
        deadline_ns: response.deadline_ns,
        period_ns: response.period_ns,
        cpus: CpuSet::from_words(response.cpus),
        text: PluginText::from_untrusted(&response.reason),
    }
}

/// Returns the new levels of a message, and whether the plugin may have more.
pub fn ranks(ranks: &[HostRank]) -> (Vec<(SpecId, i32)>, bool) {
    let levels = ranks.iter().map(|rank| (SpecId(rank.spec), rank.priority)).collect();
    (levels, ranks.len() == RANKS_MAX)
}
