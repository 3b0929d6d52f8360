//! Records of the events of the broker.

use super::{
    Asked, AuditEvent, AuditRecord, AuditThread, Balance, DemotionCause, EndCause, SpecEnd,
    ThreadEnd,
};
use crate::broker::{Broker, Timer};
use crate::input::{Errno, ProcessId, SessionId, ThreadId};
use crate::session::Session;
use crate::spec::{Attached, Spec};
use std::sync::Arc;
use talea_core::{Monotonic, Work, mutate};
use talea_proto::message::Name;
use talea_proto::refusal::PluginText;
use talea_proto::{Counters, Refusal, SpecId};

/// Adds the events of a record to the count of their kind. Refusals have other counts, because not
/// every refusal has a record.
fn count_events(counters: &mut Counters, record: &AuditRecord) {
    let count = match &record.event {
        AuditEvent::Grant { .. } => &mut counters.grants,
        AuditEvent::Adopt { .. } => &mut counters.adoptions,
        AuditEvent::Claim => &mut counters.claims,
        AuditEvent::Change { .. } => &mut counters.changes,
        AuditEvent::Release(_) => &mut counters.releases,
        AuditEvent::Attach => &mut counters.attaches,
        AuditEvent::Detach(_) => &mut counters.detaches,
        AuditEvent::Demotion(_) => &mut counters.demotions,
        AuditEvent::Drift(_) => &mut counters.drifts,
        AuditEvent::Overrun { .. } => &mut counters.overruns,
        AuditEvent::Starved { .. } => &mut counters.starvations,
        AuditEvent::Reload => &mut counters.reloads,
        AuditEvent::Nice { .. } => &mut counters.nice_changes,
        AuditEvent::Refusal { .. } => return,
    };
    *count += record.count;
}

impl Broker {
    /// Removes and returns the oldest record of the audit trail; `None` if there is none.
    pub fn poll_audit(&mut self) -> Option<AuditRecord> {
        self.trail.queue.pop_front()
    }

    /// Whether [`Broker::poll_audit`] has a record.
    pub fn has_audit(&self) -> bool {
        !self.trail.queue.is_empty()
    }

    /// Queues the records of the events that are counted now, before the driver ends.
    pub fn flush_audit(&mut self) {
        if self.trail.has_counts {
            self.timers.remove(&(self.trail.end(), Timer::AuditCounts));
            self.trail.flush();
        }
    }

    /// Queues the records of the events that the last window has counted.
    pub(crate) fn audit_window_ended(&mut self) {
        mutate!("trail-counts", self.trail.flush(), {
            self.trail.counted.clear();
            self.trail.flush();
        });
    }

    /// Returns the slots with a spec and with a thread that the trail must have.
    pub(crate) fn audited(&self) -> (i64, i64) {
        let specs = self.specs.iter().filter(|(_, spec)| spec.id.0 != 0).count();
        let is_on_trail = |thread: &Attached| thread.trail.is_recorded;
        let threads =
            self.specs.iter().filter(|(_, spec)| spec.thread.as_deref().is_some_and(is_on_trail));
        (specs as i64, threads.count() as i64)
    }

    /// Whether the end of the window at `at` has counts to report.
    pub(crate) fn has_audit_counts_until(&self, at: Monotonic) -> bool {
        self.trail.has_counts && self.trail.end() == at
    }

    /// Returns the events of each kind, without refusals.
    pub(crate) fn audited_events(&self) -> Counters {
        self.trail.events
    }

    pub(crate) fn audit_balance(&self) -> Balance {
        self.trail.balance
    }

    pub(crate) fn record_event(&mut self, record: AuditRecord) {
        self.trail.balance.add(&record);
        mutate!("trail-events", count_events(&mut self.trail.events, &record));
        let had_counts = self.trail.has_counts;
        if self.trail.add(record, self.now) && !had_counts {
            self.timers.insert((self.trail.end(), Timer::AuditCounts));
        }
    }

    /// Records an event of a spec, with its thread for an event of the thread.
    pub(crate) fn record_spec(&mut self, slot: u32, by: Option<u32>, event: AuditEvent) {
        let spec = self.specs.at(slot);
        let thread = spec.thread.as_deref().filter(|_| event.concerns_thread());
        let record = self.audit_record(spec, thread, by, event);
        self.record_event(record);
    }

    fn audit_record(
        &self,
        spec: &Spec,
        thread: Option<&Attached>,
        by: Option<u32>,
        event: AuditEvent,
    ) -> AuditRecord {
        let rule = self.clients.snapshot(spec.client).first_rule(spec.plugin);
        AuditRecord {
            subject: Some(spec.subject),
            first: self.now,
            last: self.now,
            count: 1,
            uid: spec.uid,
            process: spec.lifetime.process,
            spec: spec.id,
            plugin: spec.in_ledger.then(|| self.plugin_name(spec.plugin)),
            rule: rule.and_then(|rule| self.rules.shared_origin(rule)),
            thread: thread.map(|thread| AuditThread {
                tid: thread.tid,
                tgid: thread.tgid,
                start: thread.start,
                inode: thread.inode,
            }),
            by: by.filter(|&by| by != spec.uid),
            event,
        }
    }

    /// Records an event of a spec that has just been removed.
    pub(crate) fn record_release(&mut self, spec: &Spec) {
        let end = match spec.lifetime.released_by {
            Some(by) if by == spec.uid => SpecEnd::Requested,
            Some(_) => SpecEnd::Administrator,
            None if self.stopping.is_some_and(|stopping| stopping.release) => SpecEnd::Stopped,
            None => SpecEnd::OwnerEnded,
        };
        let record =
            self.audit_record(spec, None, spec.lifetime.released_by, AuditEvent::Release(end));
        mutate!("trail-release", self.record_event(record));
    }

    /// Records that the thread of a spec was attached.
    pub(crate) fn record_attach(&mut self, slot: u32, session: SessionId) {
        let session = self.sessions.get(&session);
        let by =
            session.map(|session| self.clients.front_end(session.client).unwrap_or(session.uid));
        if let Some(thread) = self.specs.at_mut(slot).thread.as_mut() {
            thread.trail.is_recorded = true;
            mutate!("trail-attach", self.record_spec(slot, by, AuditEvent::Attach));
        }
    }

    /// Records the end of the grant of a thread that has just been removed from its spec.
    pub(crate) fn record_thread_end(&mut self, slot: u32, thread: &Attached) {
        if !mutate!("trail-failed-attach", thread.trail.is_recorded, true) {
            return;
        }
        let (event, by) = match thread.trail.end {
            None => (AuditEvent::Detach(ThreadEnd::Exited), None),
            Some((EndCause::Detach(end), by)) => (AuditEvent::Detach(end), by),
            Some((EndCause::Demotion(cause), by)) => (AuditEvent::Demotion(cause), by),
        };
        let spec = self.specs.at(slot);
        let record = self.audit_record(spec, Some(thread), by, event);
        mutate!("trail-detach", self.record_event(record));
    }

    /// Notes why the grant of the spec's thread ends; the first cause counts.
    pub(crate) fn note_thread_end(&mut self, slot: u32, cause: EndCause, by: Option<u32>) {
        if let Some(thread) = self.specs.at_mut(slot).thread.as_mut() {
            thread.trail.end.get_or_insert((cause, by));
        }
    }

    /// Forgets why the grant of the spec's thread was to end: the kernel has refused the restore.
    pub(crate) fn thread_stays(&mut self, slot: u32) {
        let spec = self.specs.at_mut(slot);
        spec.lifetime.released_by = None;
        if let Some(thread) = spec.thread.as_mut() {
            thread.trail.end = None;
        }
    }

    /// Notes the request of `session` to end the grant of the spec's thread.
    pub(crate) fn note_requested_end(&mut self, slot: u32, session: SessionId) {
        let by = self.sessions.get(&session).map(|session| session.uid);
        let is_own = by.is_none_or(|by| by == self.specs.at(slot).uid);
        let cause = if is_own {
            EndCause::Detach(ThreadEnd::Requested)
        } else {
            EndCause::Demotion(DemotionCause::Administrator)
        };
        self.note_thread_end(slot, cause, by);
    }

    /// Records a refusal of the current request of a connection.
    pub(crate) fn record_refusal(&mut self, session: SessionId, asked: Asked, refusal: &Refusal) {
        let Some(session) = self.sessions.get(&session) else { return };
        let event = AuditEvent::Refusal {
            request: asked.request,
            code: refusal.code,
            field: refusal.field,
            asked: refusal.asked,
            limit: refusal.limit,
            errno: Errno(refusal.errno),
            reason: mutate!("trail-reason", given_reason(refusal), None),
        };
        let record = AuditRecord {
            spec: asked.spec,
            plugin: asked.plugin,
            rule: refusal.rule.as_deref().map(Arc::from),
            ..self.session_record(session, event)
        };
        mutate!("trail-refusal", self.record_event(record));
    }

    /// Records that a thread has got a nice value on a request of this connection.
    pub(crate) fn record_nice(&mut self, session: SessionId, thread: AuditThread, nice: i8) {
        let Some(session) = self.sessions.get(&session) else { return };
        let rule = self.clients.snapshot(session.client).nice_rule();
        let record = self.session_record(session, AuditEvent::Nice { nice });
        let rule = rule.and_then(|rule| self.rules.shared_origin(rule));
        self.record_event(AuditRecord { rule, thread: Some(thread), ..record });
    }

    /// Returns the record of an event of a connection, without a spec and a thread.
    fn session_record(&self, session: &Session, event: AuditEvent) -> AuditRecord {
        AuditRecord {
            subject: Some(session.subject),
            uid: session.uid,
            process: session.process,
            by: self.clients.front_end(session.client),
            ..self.daemon_record(event)
        }
    }

    /// Returns the record of an event of the daemon itself.
    fn daemon_record(&self, event: AuditEvent) -> AuditRecord {
        AuditRecord {
            subject: None,
            first: self.now,
            last: self.now,
            count: 1,
            uid: 0,
            process: ProcessId::default(),
            spec: SpecId(0),
            plugin: None,
            rule: None,
            thread: None,
            by: None,
            event,
        }
    }

    /// Records an event of the daemon itself.
    pub(crate) fn record_daemon_event(&mut self, event: AuditEvent) {
        self.record_event(self.daemon_record(event));
    }

    /// Records the overruns of a thread since the last report. `overruns` is their number since
    /// the thread was attached.
    pub(crate) fn overran(&mut self, thread: ThreadId, overruns: u64, consumed: Work) {
        let Some(slot) = self.threads.slot_of(thread) else { return };
        let attached = self.specs.at_mut(slot).thread.as_mut();
        let attached = attached.expect("the index of threads is consistent");
        let count = attached.trail.set_overruns(overruns);
        // A restore has already ended the limit.
        let limit = attached.trail.last_limit;
        let Some(limit) = limit.filter(|_| count > 0) else { return };
        let spec = self.specs.at(slot);
        let (budget, period) = (limit.budget, limit.period);
        let event = AuditEvent::Overrun { consumed, budget, period };
        let record = self.audit_record(spec, spec.thread.as_deref(), None, event);
        mutate!("trail-overrun", self.record_event(AuditRecord { count, ..record }));
    }
}

/// Returns the first reason that a plugin from outside has given, with the plugin's name.
fn given_reason(refusal: &Refusal) -> Option<Box<(Name, PluginText)>> {
    let reason = refusal.answers.iter().find(|answer| answer.text != PluginText::NONE);
    reason.map(|answer| Box::new((answer.name, answer.text)))
}
