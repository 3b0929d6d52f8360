//! Adoption of the grants of an earlier daemon.
//!
//! | record in the state file | result |
//! | --- | --- |
//! | its owner exists | the spec keeps its place, id and token, and can be claimed |
//! | no owner or no plugin exists, its thread exists | restored, then the record is erased |
//! | no owner or no plugin exists, nor its thread | the record is erased |
//!
//! An unclaimed spec exists as long as the process that created or last claimed it, or its thread
//! if the thread is its owner. A process that connects again must claim it in time: see
//! `unclaimed.rs`. The broker makes no admission test, because an earlier daemon has
//! already given the grant. The broker applies the attributes of the ledger to the threads after
//! the last record. Thus it changes no thread twice while it fills the ledger.

use crate::broker::{Broker, WatchOwner};
use crate::drift;
use crate::input::{Effect, ForeignCall, Groups, LogEvent, Peer, ProcessId, ThreadFacts};
use crate::plugin::Offer;
use crate::plugin_set::SpecSlot;
use crate::spec::{Attached, Lifetime, PendingOp, Spec};
use crate::trail::AuditEvent;
use talea_core::mutate;
use talea_core::{Attr, Charge, Monotonic};
use talea_proto::Owner;
use talea_proto::message::Notes;
use talea_proto::record::Record;

impl Broker {
    pub(crate) fn adopt(
        &mut self,
        slot: u32,
        record: &Record,
        facts: Option<ThreadFacts>,
        lingers: bool,
        process_alive: bool,
        groups: Option<Groups>,
    ) {
        let id = record.spec;
        if id.0 == 0 || self.ids.get(id).is_some() {
            // An invalid record, or a second copy from a crash between two writes.
            self.forget_unused(facts.map(Ok));
            return self.emit(Effect::EraseRecord { slot });
        }
        mutate!("recovery-adopt-ids", self.next_id = self.next_id.max(id.0.saturating_add(1)));

        let thread = self.same_thread(record, facts);
        let plugin = self.plugin_set.find(&record.plugin);
        let peer = creator(record, groups);
        let spec = self.adopted_spec(record, plugin, peer, thread.is_some(), process_alive);
        let (owner, process_watched, process) =
            (spec.task.owner, spec.lifetime.process_watched, spec.lifetime.process);
        let subject = spec.subject;
        assert!(self.specs.insert_at(slot, spec), "slot {slot} is adopted twice");
        if plugin.is_some() {
            self.ids.insert(id, slot);
            self.users.insert_id(record.uid, id, record.token, slot);
        }
        self.users.account(subject).specs += 1;
        if process_watched {
            self.watch_process(process, WatchOwner::Spec(slot));
        }
        self.note_unclaimed(slot);
        if let Some(plugin) = plugin {
            self.plugin_set.adopt(plugin, SpecSlot(slot), record);
            let placed = self.plugin_set.placement(SpecSlot(slot));
            let spec = self.specs.at_mut(slot);
            spec.offer = Offer {
                cpu: placed.cpu,
                runtime: placed.runtime,
                charge: placed.charge,
                notes: placed.notes,
                priority: record.priority,
                terms: record.terms,
            };
            let client = spec.client;
            self.rules.charge(self.clients.snapshot(client), plugin, placed.charge);
            self.note_exclusive(slot);
            self.note_level(slot);
            self.notify_scheduled(slot);
        }
        if thread.is_none()
            && mutate!("recovery-lingers", lingers, true)
            && let Some(period) = record.task.params.period
        {
            // The spec may have had a thread until a moment ago (R36).
            self.keep_zero_lag(slot, Some(self.now.saturating_add(period)));
        }
        let tid = thread.map(|(facts, _)| facts.tid);
        let has_thread = thread.is_some();
        if let Some((facts, previous)) = thread {
            let applied = record.thread.map_or(facts.attr, |thread| thread.applied);
            let found = drift::adopted(&facts.attr, &applied, &previous);
            self.add_thread(slot, Attached::new(&facts, previous, found));
            let attached = self.specs.at_mut(slot).thread.as_mut();
            attached.expect("the thread was just added").trail.is_recorded = true;
            self.sync_limit(slot);
            if let Some(plugin) = plugin {
                self.plugin_set.set_attached(SpecSlot(slot), true);
                self.notify_plugin(plugin, record.uid, ForeignCall::Attach { spec: id });
            }
        }
        mutate!("trail-adopt", self.record_spec(slot, None, AuditEvent::Adopt { has_thread }));
        let ended = owner == Owner::Thread && record.thread.is_some() && thread.is_none();
        if plugin.is_some() && !ended && self.is_owned(slot) {
            self.counters.adopted += 1;
            self.emit(Effect::WriteRecord { slot });
            self.adopted.unverified.push(slot);
            self.log(LogEvent::Adopted { spec: id, uid: record.uid, tid });
            self.detach_if_foreign(slot);
            self.leave_offline_cpu(slot);
        } else {
            self.specs.at_mut(slot).lifetime.disowned = true;
            self.log(LogEvent::Dropped { spec: id });
            self.release_if_unowned(slot);
        }
    }

    /// Returns the thread that the driver found, with its attributes before the grant. Returns
    /// `None` if it is not the thread of the record, or is attached to another spec.
    fn same_thread(
        &mut self,
        record: &Record,
        facts: Option<ThreadFacts>,
    ) -> Option<(ThreadFacts, Attr)> {
        let facts = facts?;
        let same = record.thread.filter(|thread| {
            (thread.tid, thread.inode) == (facts.tid, facts.inode)
                && (thread.start == facts.start || thread.inode != 0)
        });
        let same = same.filter(|_| !self.threads.has(&facts));
        if same.is_none() {
            self.forget_unused(Some(Ok(facts)));
        }
        same.map(|thread| (facts, thread.previous))
    }

    fn adopted_spec(
        &mut self,
        record: &Record,
        plugin: Option<u32>,
        peer: Peer,
        has_thread: bool,
        process_alive: bool,
    ) -> Spec {
        let process = ProcessId { pid: record.pid, start: record.pid_start };
        let owner = record.task.owner;
        let unclaimed = owner != Owner::Thread || !has_thread;
        let offer = Offer {
            cpu: record.cpu,
            runtime: record.runtime,
            charge: Charge::ZERO,
            notes: Notes::default(),
            priority: record.priority,
            terms: record.terms,
        };
        let client = self.clients.insert(peer, &self.rules);
        if record.is_from_front_end {
            self.clients.set_front_end(client, None);
        }
        Spec {
            id: record.spec,
            token: record.token,
            uid: record.uid,
            subject: self.subject_of_specs(record.uid),
            lifetime: Lifetime {
                process_watched: unclaimed && process_alive && process.pid != 0,
                process_exited: mutate!("recovery-adopt-dead", !process_alive, false),
                unclaimed,
                ..Lifetime::of(process)
            },
            client,
            session: None,
            task: record.task,
            in_ledger: plugin.is_some(),
            plugin: plugin.unwrap_or(0),
            offer,
            detached: None,
            thread: None,
            zero_lag_until: Monotonic::ZERO,
            step: PendingOp::Idle,
        }
    }

    /// Updates the adopted threads to the attributes of the ledger, after the last record.
    pub(crate) fn apply_adopted(&mut self) {
        if !self.adopted.unverified.is_empty() {
            let slots = std::mem::take(&mut self.adopted.unverified);
            self.apply_moves(&slots);
        }
    }
}

/// Returns the peer whose rules apply until the grant is claimed. Without groups (the kernel's "no
/// id"), only rules for all users and for the user apply.
fn creator(record: &Record, groups: Option<Groups>) -> Peer {
    let (gid, groups) =
        groups.map_or((u32::MAX, Vec::new()), |groups| (groups.effective, groups.supplementary));
    Peer { pid: record.pid, pid_start: record.pid_start, uid: record.uid, gid, groups }
}
