//! Audit trail: a record of each grant, refusal, overrun, demotion and change of a thread.
//!
//! Model: the broker queues records ([`Broker::poll_audit`]), and the driver stores them. Records
//! are data beside the effects, because no effect depends on them and the driver sends a reply
//! first.
//!
//! | record | about |
//! | --- | --- |
//! | grant, adopt, claim, change, release | a spec: it is accepted, and ends once |
//! | attach; detach or demotion | a thread: it becomes real-time under a grant, and stops once |
//! | overrun | a thread that has exceeded its limit |
//! | drift | other credentials, CPUs or attributes than those of the grant |
//! | refusal | a request that was refused |
//! | starved, reload | the machine and the rules |
//!
//! *Complete and bounded.* In a window of one second, the trail has at most
//! `MAX_RECORDS_PER_SUBJECT` single records about one subject, and one per process and cause for
//! refusals. Further ones are *counted*. After the window, one record for each process and cause
//! has their number and the times of the first and the last one. Beyond
//! `MAX_COUNTS_PER_SUBJECT` of these, one record for each kind counts the rest, without the
//! process.
//!
//! Invariants.
//!
//! 1. The sum of all counts of a kind is the number of its events.
//! 2. Grants and adoptions minus releases are the specs; attaches minus detaches and demotions are
//!    the attached threads. (`Broker::audit` compares both.)

use crate::broker::{Broker, Timer};
use crate::input::{Errno, ProcessId, SessionId, ThreadId, Uids};
use crate::session::Session;
use crate::spec::{Attached, Spec};
use crate::subjects::Subject;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use talea_core::{Attr, Monotonic, Span, Work, mutate};
use talea_proto::message::{DetachCause, Name};
use talea_proto::refusal::PluginText;
use talea_proto::{Code, Counters, Field, Refusal, Request, SpecId};

const SECOND_NS: u64 = 1_000_000_000;
/// Maximum number of single records about one subject per second.
const MAX_RECORDS_PER_SUBJECT: u32 = 128;
/// Maximum number of counted causes of one subject per second.
const MAX_COUNTS_PER_SUBJECT: u32 = 128;

/// Record of the audit trail.
#[derive(Clone, Debug, PartialEq)]
pub struct AuditRecord {
    /// Subject that the record is charged to; `None` for a record about the daemon.
    pub subject: Option<Subject>,
    /// Time of the event, or of the first one.
    pub first: Monotonic,
    /// Time of the last event.
    pub last: Monotonic,
    /// Number of events.
    pub count: u64,
    /// User of the grant or of the refused request; [`u32::MAX`] for several users together.
    pub uid: u32,
    /// Process of the grant or of the refused request; zeros for several processes together.
    pub process: ProcessId,
    /// Spec, or the first of several; 0 without a spec.
    pub spec: SpecId,
    /// Plugin of the spec, or the one that a refused request names.
    pub plugin: Option<Name>,
    /// Location of the first rule that admits the client, or of the rule that refuses the request.
    pub rule: Option<Arc<str>>,
    /// Thread, if the event concerns one.
    pub thread: Option<AuditThread>,
    /// User of the request, if it is not `uid`.
    pub by: Option<u32>,
    /// The event.
    pub event: AuditEvent,
}

/// Thread of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuditThread {
    /// Thread id in the daemon's PID namespace.
    pub tid: u32,
    /// Its process.
    pub tgid: u32,
    /// Start time in clock ticks since boot; 0 if the inode identifies the thread.
    pub start: u64,
    /// Inode of its pidfd, unique for this boot; 0 if the kernel has no unique inodes.
    pub inode: u64,
}

/// Event of a record.
#[derive(Clone, Debug, PartialEq)]
pub enum AuditEvent {
    /// A spec was accepted.
    Grant {
        /// CPU of the placement.
        cpu: Option<u32>,
    },
    /// A grant of an earlier daemon was adopted.
    Adopt {
        /// Whether it has a thread.
        has_thread: bool,
    },
    /// A client has taken a spec over.
    Claim,
    /// The terms of a spec were changed.
    Change {
        /// CPU of the placement.
        cpu: Option<u32>,
    },
    /// A spec has ended.
    Release(SpecEnd),
    /// A thread has become real-time under a spec.
    Attach,
    /// A thread is no longer real-time under a spec.
    Detach(ThreadEnd),
    /// The daemon or an administrator has ended the grant of a thread.
    Demotion(DemotionCause),
    /// A thread is not as its grant says.
    Drift(Box<Seen>),
    /// A thread has exceeded its limit; the count is the number of overruns.
    Overrun {
        /// CPU time that the thread had consumed of its budget at the last overrun.
        consumed: Work,
        /// Budget in each period.
        budget: Work,
        /// The period.
        period: Span,
    },
    /// A request was refused.
    Refusal {
        /// Name of the request.
        request: &'static str,
        /// Reason.
        code: Code,
        /// Field concerned.
        field: Field,
        /// Requested value.
        asked: u64,
        /// Limit.
        limit: u64,
        /// Error number of the kernel, or 0.
        errno: Errno,
        /// First plugin from outside that has given a reason, with the reason.
        reason: Option<Box<(Name, PluginText)>>,
    },
    /// Ordinary threads get no time on a CPU, and no thread of a grant is the cause.
    Starved {
        /// The CPU.
        cpu: u32,
    },
    /// Other rules and quotas are in force.
    Reload,
    /// A thread without a grant has got a nice value.
    Nice {
        /// The nice value.
        nice: i8,
    },
}

/// Cause of the end of a spec.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpecEnd {
    /// A request of its user.
    Requested,
    /// A request of the superuser for another user.
    Administrator,
    /// Its owner has ended: the connection, the process or the thread.
    OwnerEnded,
    /// The daemon stops and releases every grant.
    Stopped,
}

/// Cause of the end of a thread's grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThreadEnd {
    /// A request of its user.
    Requested,
    /// The thread has exited.
    Exited,
    /// The owner of the spec has ended.
    OwnerEnded,
    /// The daemon stops and releases every grant.
    Stopped,
}

/// Cause of a demotion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DemotionCause {
    /// The thread was detached: it starved a CPU, drifted, or its CPU went off-line.
    Detached(DetachCause),
    /// It exceeded its budget, or its CPU time is not known.
    Overrun,
    /// A request of the superuser for another user.
    Administrator,
}

/// State of a thread that has drifted.
#[derive(Clone, Debug, PartialEq)]
pub enum Seen {
    /// Its user ids.
    Uids(Uids),
    /// Its attributes.
    Attr(Attr),
}

/// End of a thread's grant: a detach or a demotion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EndCause {
    Detach(ThreadEnd),
    Demotion(DemotionCause),
}

/// Request that a connection waits for, for the record of its refusal.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    request: &'static str,
    spec: SpecId,
    plugin: Option<Name>,
}

impl Asked {
    /// A message that could not be decoded.
    pub(crate) const NOTHING: Asked =
        Asked { request: "unreadable", spec: SpecId(0), plugin: None };

    pub(crate) fn new(request: &Request) -> Asked {
        let none = SpecId(0);
        let (request, spec, plugin) = match request {
            Request::Hello { .. } => ("hello", none, None),
            Request::Create(task) => ("create", none, task.plugin),
            Request::CreateGroup(_) => ("create-group", none, None),
            Request::Change { spec, task } => ("change", *spec, task.plugin),
            Request::Release(spec) => ("release", *spec, None),
            Request::Attach { spec, .. } => ("attach", *spec, None),
            Request::Detach(spec) => ("detach", *spec, None),
            Request::Nice { .. } => ("nice", none, None),
            Request::Query(spec) => ("query", *spec, None),
            Request::Seed(_) => ("seed", none, None),
            Request::ActFor { .. } => ("act-for", none, None),
            Request::Claim { spec, .. } => ("claim", *spec, None),
            Request::Explain(_) => ("explain", none, None),
            Request::Status => ("status", none, None),
            Request::Counters => ("counters", none, None),
            Request::Plugin(_) | Request::PluginCpu { .. } => ("plugin", none, None),
            Request::NextSpec(_) | Request::NextSession(_) => ("list", none, None),
            Request::Stop { .. } => ("stop", none, None),
        };
        Asked { request, spec, plugin }
    }
}

/// Events that are counted together: subject, user, process, kind, code and field.
type Key = (Option<Subject>, u32, ProcessId, u8, u16, u16);

/// Numbers of records about one subject in the current window.
#[derive(Clone, Copy, Debug, Default)]
struct Numbers {
    single: u32,
    counts: u32,
}

/// Queue of records, and the counts of the current window.
#[derive(Debug, Default)]
pub(crate) struct Trail {
    queue: VecDeque<AuditRecord>,
    /// Number of the window: seconds of the monotonic clock.
    window: u64,
    numbers: BTreeMap<Option<Subject>, Numbers>,
    /// Counted events; a record without events is the pattern of equal refusals.
    counted: BTreeMap<Key, AuditRecord>,
    /// Whether a record counts events.
    has_counts: bool,
    /// Events of the checks.
    balance: Balance,
    /// Events of each kind, without refusals.
    events: Counters,
}

/// Sums over all records, for the checks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Balance {
    /// Grants and adoptions minus releases.
    pub(crate) specs: i64,
    /// Attaches and adopted threads minus detaches and demotions.
    pub(crate) threads: i64,
    pub(crate) refusals: u64,
    pub(crate) overruns: u64,
}

impl Balance {
    /// Adds the events of a record.
    pub(crate) fn add(&mut self, record: &AuditRecord) {
        let count = record.count as i64;
        match &record.event {
            AuditEvent::Grant { .. } => self.specs += count,
            AuditEvent::Adopt { has_thread } => {
                self.specs += count;
                self.threads += if *has_thread { count } else { 0 };
            }
            AuditEvent::Release(_) => self.specs -= count,
            AuditEvent::Attach => self.threads += count,
            AuditEvent::Detach(_) | AuditEvent::Demotion(_) => self.threads -= count,
            AuditEvent::Refusal { .. } => self.refusals += record.count,
            AuditEvent::Overrun { .. } => self.overruns += record.count,
            _ => {}
        }
    }
}

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

impl AuditEvent {
    /// Returns the number of the kind.
    fn kind(&self) -> u8 {
        match self {
            AuditEvent::Grant { .. } => 0,
            AuditEvent::Adopt { .. } => 1,
            AuditEvent::Claim => 2,
            AuditEvent::Change { .. } => 3,
            AuditEvent::Release(_) => 4,
            AuditEvent::Attach => 5,
            AuditEvent::Detach(_) => 6,
            AuditEvent::Demotion(_) => 7,
            AuditEvent::Drift(_) => 8,
            AuditEvent::Overrun { .. } => 9,
            AuditEvent::Refusal { .. } => 10,
            AuditEvent::Starved { .. } => 11,
            AuditEvent::Reload => 12,
            AuditEvent::Nice { .. } => 13,
        }
    }

    /// Returns the numbers that distinguish the causes of one kind.
    fn cause(&self) -> (u16, u16) {
        match self {
            AuditEvent::Refusal { code, field, .. } => (*code as u16, *field as u16),
            AuditEvent::Release(end) => (*end as u16, 0),
            AuditEvent::Adopt { has_thread } => (u16::from(*has_thread), 0),
            AuditEvent::Detach(end) => (*end as u16, 0),
            AuditEvent::Demotion(DemotionCause::Detached(cause)) => (*cause as u16, 0),
            AuditEvent::Demotion(DemotionCause::Overrun) => (100, 0),
            AuditEvent::Demotion(DemotionCause::Administrator) => (101, 0),
            _ => (0, 0),
        }
    }
}

impl Trail {
    /// Adds the events of a record. Returns whether a record after the window will count them.
    fn add(&mut self, record: AuditRecord, now: Monotonic) -> bool {
        let window = now.as_ns() / SECOND_NS;
        if self.window != window && !self.has_counts {
            self.window = window;
            self.numbers.clear();
            self.counted.clear();
        }
        let (code, field) = record.event.cause();
        let kind = record.event.kind();
        let key = (record.subject, record.uid, record.process, kind, code, field);
        if let Some(counted) = self.counted.get_mut(&key) {
            counted.count(&record);
            self.has_counts = true;
            return true;
        }
        let is_refusal = matches!(record.event, AuditEvent::Refusal { .. });
        let numbers = self.numbers.entry(record.subject).or_default();
        if mutate!("trail-limit", numbers.single < MAX_RECORDS_PER_SUBJECT, true) {
            numbers.single += 1;
            if mutate!("trail-equal-refusals", is_refusal, false) {
                self.counted.insert(key, AuditRecord { count: 0, ..record.clone() });
            }
            self.queue.push_back(record);
            return false;
        }
        self.has_counts = true;
        if numbers.counts < MAX_COUNTS_PER_SUBJECT {
            numbers.counts += 1;
            self.counted.insert(key, record);
            return true;
        }
        // The sums of the checks distinguish these causes.
        let cause = if matches!(record.event, AuditEvent::Adopt { .. }) { code } else { 0 };
        let of_all = (record.subject, u32::MAX, ProcessId::default(), kind, cause, 0);
        if let Some(counted) = self.counted.get_mut(&of_all) {
            mutate!("trail-rest", counted.count(&record));
        } else {
            let rest = AuditRecord {
                uid: u32::MAX,
                process: ProcessId::default(),
                plugin: None,
                rule: None,
                thread: None,
                by: None,
                ..record
            };
            self.counted.insert(of_all, rest);
        }
        true
    }

    /// Queues the records of the counted events, and begins a new window.
    fn flush(&mut self) {
        let counted = std::mem::take(&mut self.counted);
        self.numbers.clear();
        self.has_counts = false;
        self.queue.extend(counted.into_values().filter(|record| record.count > 0));
    }

    fn end(&self) -> Monotonic {
        Monotonic::from_ns((self.window + 1).saturating_mul(SECOND_NS))
    }
}

impl AuditRecord {
    /// Adds the events of an equal record.
    fn count(&mut self, other: &AuditRecord) {
        if self.count == 0 {
            self.first = other.first;
        }
        self.count += other.count;
        self.last = other.last;
    }
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
        let is_on_trail = |thread: &Attached| thread.is_on_trail;
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
            process: spec.process,
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
        let end = match spec.released_by {
            Some(by) if by == spec.uid => SpecEnd::Requested,
            Some(_) => SpecEnd::Administrator,
            None if self.stopping.is_some_and(|stopping| stopping.release) => SpecEnd::Stopped,
            None => SpecEnd::OwnerEnded,
        };
        let record = self.audit_record(spec, None, spec.released_by, AuditEvent::Release(end));
        mutate!("trail-release", self.record_event(record));
    }

    /// Records that the thread of a spec was attached.
    pub(crate) fn record_attach(&mut self, slot: u32, session: SessionId) {
        let session = self.sessions.get(&session);
        let by =
            session.map(|session| self.clients.front_end(session.client).unwrap_or(session.uid));
        if let Some(thread) = self.specs.at_mut(slot).thread.as_mut() {
            thread.is_on_trail = true;
            mutate!("trail-attach", self.record_spec(slot, by, AuditEvent::Attach));
        }
    }

    /// Records the end of the grant of a thread that has just been removed from its spec.
    pub(crate) fn record_thread_end(&mut self, slot: u32, thread: &Attached) {
        if !mutate!("trail-failed-attach", thread.is_on_trail, true) {
            return;
        }
        let (event, by) = match thread.end {
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
            thread.end.get_or_insert((cause, by));
        }
    }

    /// Forgets why the grant of the spec's thread was to end: the kernel has refused the restore.
    pub(crate) fn thread_stays(&mut self, slot: u32) {
        let spec = self.specs.at_mut(slot);
        spec.released_by = None;
        if let Some(thread) = spec.thread.as_mut() {
            thread.end = None;
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
        let Some(&slot) = self.threads.get(&thread) else { return };
        let attached = self.specs.at_mut(slot).thread.as_mut();
        let attached = attached.expect("the index of threads is consistent");
        let before = std::mem::replace(&mut attached.overruns, overruns);
        let count = overruns.saturating_sub(before);
        // A restore has already ended the limit.
        let limit = attached.last_limit;
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

impl AuditEvent {
    /// Whether the event is one of the spec's thread.
    fn concerns_thread(&self) -> bool {
        matches!(
            self,
            AuditEvent::Attach
                | AuditEvent::Adopt { .. }
                | AuditEvent::Drift(_)
                | AuditEvent::Overrun { .. }
        )
    }
}
