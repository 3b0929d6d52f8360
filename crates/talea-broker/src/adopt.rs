//! Adoption: what an earlier daemon granted goes on (design, section 9).
//!
//! Each record of the state file whose owner still lives gets its place, its name and its token
//! back, and waits to be claimed. Unclaimed, it lives as long as the process that created it (or
//! its thread, if that owns it). A record without an owner whose thread still lives has its thread
//! put back first. Nothing is tested: it was promised. Threads are brought to what the books say
//! once all records are in, so that none is moved to and fro while the books fill.

use crate::broker::{Broker, Holder};
use crate::input::{Effect, ForeignQuestion, Groups, LogEvent, Peer, ProcessId, ThreadFacts};
use crate::plugin::Offer;
use crate::spec::{Attached, Spec, Step};
use crate::suite::Slot;
use talea_core::mutate;
use talea_core::{Attr, Charge, Time};
use talea_proto::Owner;
use talea_proto::message::Notes;
use talea_proto::record::Record;

impl Broker {
    pub(crate) fn adopt(
        &mut self,
        slot: u32,
        record: &Record,
        facts: Option<ThreadFacts>,
        process_alive: bool,
        groups: Option<Groups>,
    ) {
        let id = record.spec;
        if id.0 == 0 || self.ids.get(id).is_some() {
            // Not ours, or a second copy from a crash between two writes.
            self.drop_facts(facts.map(Ok));
            return self.emit(Effect::Erase { slot });
        }
        mutate!(
            "recovery-adopt-ids",
            {
                self.next_id = self.next_id.max(id.0.saturating_add(1));
            },
            {}
        );

        let thread = self.same_thread(record, facts);
        let plugin = self.suite.find(&record.plugin);
        let peer = creator(record, groups);
        let spec = self.adopted_spec(record, plugin, peer, thread.is_some(), process_alive);
        let (owner, watched, process) = (spec.task.owner, spec.watched, spec.process);
        let client = spec.client;
        assert!(self.specs.insert_at(slot, spec), "slot {slot} is adopted twice");
        if plugin.is_some() {
            self.ids.insert(id, slot);
            self.users.of(record.uid).ids.insert(id, slot);
        }
        self.users.of(record.uid).specs += 1;
        if watched {
            self.watch_process(process, Holder::Spec(slot));
        }
        if let Some(plugin) = plugin {
            self.suite.adopt(plugin, Slot(slot), record);
            let placed = self.suite.placed(Slot(slot));
            let spec = self.specs.at_mut(slot);
            spec.offer = Offer {
                cpu: placed.cpu,
                runtime: placed.runtime,
                charge: placed.charge,
                notes: placed.notes,
                priority: record.priority,
            };
            self.rules.charge(self.clients.snapshot(client), plugin, placed.charge);
            self.tell_scheduled(slot);
        }
        if thread.is_none()
            && let Some(period) = record.task.params.period
        {
            // It may have had one until a moment ago (checklist R36).
            self.keep_lag(slot, Some(self.now.saturating_add(period)));
        }
        let tid = thread.map(|(facts, _)| facts.tid);
        if let Some((facts, previous)) = thread {
            self.enter_thread(slot, Attached::new(&facts, previous, facts.attr));
            if let Some(plugin) = plugin {
                self.suite.attached(Slot(slot), true);
                self.tell(plugin, ForeignQuestion::Attach { spec: id });
            }
        }
        let ended = owner == Owner::Thread && record.thread.is_some() && thread.is_none();
        if plugin.is_some() && !ended && self.is_owned(slot) {
            self.counters.adopted += 1;
            self.emit(Effect::Remember { slot });
            self.unsettled.push(slot);
            self.log(LogEvent::Adopted { spec: id, uid: record.uid, tid });
        } else {
            self.specs.at_mut(slot).disowned = true;
            self.log(LogEvent::Dropped { spec: id });
            self.reconsider(slot);
        }
    }

    /// The thread of the record, if that is what the driver found.
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
        let taken = self.identities.contains_key(&facts.identity());
        let same = same.filter(|_| !taken && !self.threads.contains_key(&facts.thread));
        if same.is_none() {
            self.drop_facts(Some(Ok(facts)));
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
        let awaiting = owner != Owner::Thread || !has_thread;
        let offer = Offer {
            cpu: record.cpu,
            runtime: record.runtime,
            charge: Charge::ZERO,
            notes: Notes::default(),
            priority: record.priority,
        };
        Spec {
            id: record.spec,
            token: record.token,
            uid: record.uid,
            process,
            watched: awaiting && process_alive && process.pid != 0,
            process_gone: mutate!("recovery-adopt-dead", !process_alive, false),
            client: self.clients.insert(peer, &self.rules),
            session: None,
            awaiting,
            task: record.task,
            booked: plugin.is_some(),
            disowned: false,
            plugin: plugin.unwrap_or(0),
            offer,
            thread: None,
            lags_until: Time::ZERO,
            step: Step::Idle,
        }
    }

    /// Every record is in: brings the adopted threads to what the books say, in one go.
    pub(crate) fn settle_adopted(&mut self) {
        if !self.unsettled.is_empty() {
            let slots = std::mem::take(&mut self.unsettled);
            self.apply_moves(&slots);
        }
    }
}

/// Whose rules hold until the grant is claimed. Without groups (the number is the kernel's "no id")
/// only rules for everybody and for the user do.
fn creator(record: &Record, groups: Option<Groups>) -> Peer {
    let (gid, groups) =
        groups.map_or((u32::MAX, Vec::new()), |groups| (groups.effective, groups.supplementary));
    Peer { pid: record.pid, pid_start: record.pid_start, uid: record.uid, gid, groups }
}
