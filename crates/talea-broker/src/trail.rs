//! Audit trail: a record of each grant, refusal, overrun, demotion and change of a thread.
//!
//! Model: the broker queues records ([`crate::Broker::poll_audit`]), and the driver stores them.
//! Records are data beside the effects, because no effect depends on them and the driver sends a
//! reply first.
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

mod events;

use crate::input::{Errno, ProcessId, Uids};
use crate::subjects::Subject;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use talea_core::{Attr, Monotonic, Span, Work, mutate};
use talea_proto::message::{DetachCause, Name};
use talea_proto::refusal::PluginText;
use talea_proto::{Code, Counters, Field, Request, SpecId};

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
