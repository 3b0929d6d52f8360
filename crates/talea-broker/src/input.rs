//! Inputs and effects of the broker.

use crate::subjects::Subject;
use crate::ungranted::RealTimeThread;
use talea_core::setup::{OnOverrun, Setup};
use talea_core::{Attr, CpuSet, Monotonic, Span, Work};
use talea_proto::message::{Caveat, DetachCause};
use talea_proto::record::{DeadlineTerms, Record};
use talea_proto::refusal::PluginText;
use talea_proto::{Refusal, Reply, Request, SpecId};

/// Number of a connection; assigned by the driver, never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u64);

/// Number of a thread that the driver holds by pidfd; assigned by the driver, never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ThreadId(pub u64);

/// Number that relates an effect to the input with its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// POSIX error number from the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub i32);

/// Unique identity of a process: a process id alone is reused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessId {
    /// Process id in the daemon's PID namespace; 0 if it has none there.
    pub pid: u32,
    /// Start time in clock ticks since boot; 0 when unknown.
    pub start: u64,
}

/// Peer of a connection, as reported by the kernel at connect.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Peer {
    /// Process id in the daemon's PID namespace; 0 if it has none there.
    pub pid: u32,
    /// Start time of that process in clock ticks since boot; 0 when unknown.
    pub pid_start: u64,
    /// Effective user id.
    pub uid: u32,
    /// Effective group id.
    pub gid: u32,
    /// Supplementary group ids.
    pub groups: Vec<u32>,
}

/// Process that a front end acts for, found by the driver through the pidfd of the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The process, as if it had connected: [`Peer::uid`] is its effective user.
    pub peer: Peer,
    /// User ids, from the kernel.
    pub uids: Uids,
}

/// User ids of a thread, from the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Uids {
    /// Real user id.
    pub real: u32,
    /// Effective user id.
    pub effective: u32,
    /// Saved user id.
    pub saved: u32,
}

impl Uids {
    /// Returns the ids of a thread that runs as one user only.
    pub const fn all(uid: u32) -> Uids {
        Uids { real: uid, effective: uid, saved: uid }
    }

    /// Returns an id that differs from `uid`, if there is one.
    pub fn other_than(&self, uid: u32) -> Option<u32> {
        [self.effective, self.real, self.saved].into_iter().find(|&id| id != uid)
    }
}

/// Thread named by a request, as found by the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadFacts {
    /// Handle of the driver. Two requests for the same thread may have different handles; `tid` and
    /// `inode` together identify the thread, or `tid` and `start` if `inode` is 0.
    pub thread: ThreadId,
    /// Thread id in the daemon's PID namespace.
    pub tid: u32,
    /// Id of the thread's process in the daemon's PID namespace.
    pub tgid: u32,
    /// User ids, from the kernel.
    pub uids: Uids,
    /// Start time in clock ticks since boot, unique together with `tid`; may be 0 if `inode` is
    /// not.
    pub start: u64,
    /// Inode of the pidfd, if the kernel has unique ones; otherwise 0.
    pub inode: u64,
    /// Current attributes, to be restored at the end of the grant.
    pub attr: Attr,
    /// Whether the thread's control group permits FIFO and RR.
    pub fifo: bool,
    /// RLIMIT_RTTIME of the thread; `None` means no limit.
    pub rt_time: Option<Work>,
}

/// Order to set a nice value, with the request that it answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NiceOrder {
    /// Connection of the request.
    pub session: SessionId,
    /// Number of the request.
    pub seq: u32,
    /// The thread.
    pub thread: ThreadFacts,
    /// Nice value, −20 to 19.
    pub nice: i8,
    /// User of the request, or `None`: see [`Effect::Apply`].
    pub owner: Option<u32>,
}

/// Reason why the driver could not find the thread named by a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThreadError {
    /// The thread does not exist or has exited.
    Gone,
    /// The thread id is from another PID namespace.
    TidNotAccepted,
    /// The passed descriptor is not a pidfd of a thread.
    NotAThread,
    /// The kernel reported another error.
    Kernel(Errno),
}

/// Input of the broker.
#[expect(
    clippy::large_enum_variant,
    reason = "most inputs are requests; boxing each would cost more"
)]
#[derive(Clone, Debug)]
pub enum Input {
    /// A connection was accepted.
    Connected {
        /// Number of the connection.
        session: SessionId,
        /// Peer of the connection.
        peer: Peer,
    },
    /// A request was received.
    Received {
        /// Connection of the request.
        session: SessionId,
        /// Number of the request on its connection; repeated in the reply.
        seq: u32,
        /// The request.
        request: Request,
        /// Thread named by an attach request or by the (first) task, resolved by the driver; `None`
        /// if the request names no thread.
        thread: Option<Result<ThreadFacts, ThreadError>>,
        /// Process of a [`Request::ActFor`]; `None` if no descriptor was passed.
        caller: Option<Box<Result<Caller, ThreadError>>>,
        /// Random bits for a token, which no other input contains.
        entropy: u128,
    },
    /// A message that could not be decoded was received.
    Undecodable {
        /// Connection of the message.
        session: SessionId,
        /// Number of the message; 0 if it could not be read.
        seq: u32,
        /// Reason, as a refusal.
        refusal: Refusal,
    },
    /// A connection ended.
    Disconnected {
        /// The connection.
        session: SessionId,
    },
    /// The credentials of a thread that the driver holds have changed: the thread has started a
    /// set-user-id program or changed its user ids, for example by `setresuid`. The driver passes
    /// this input when the kernel reports the change, when an [`Effect::Inspect`] detects it, and
    /// before a `Request::Change` of the thread's spec.
    CredentialsChanged {
        /// The thread.
        thread: ThreadId,
        /// New user ids, from the kernel.
        uids: Uids,
    },
    /// An [`Effect::Inspect`] has found attributes that differ from those applied last.
    AttrChanged {
        /// The thread.
        thread: ThreadId,
        /// Current attributes, from the kernel.
        attr: Attr,
    },
    /// The driver did not execute an [`Effect::Apply`], because the thread is not as the broker
    /// assumes.
    NotApplied {
        /// Ticket of the effect.
        ticket: Ticket,
        /// State of the thread that prevented the effect.
        found: Found,
    },
    /// The driver has executed an [`Effect::CheckCanaries`].
    CanariesChecked {
        /// CPUs with a canary that has not run since it was asked.
        silent: CpuSet,
        /// CPU times of the attached FIFO and RR threads on these CPUs.
        consumed: Vec<(ThreadId, Work)>,
    },
    /// CPU time of an attached FIFO or RR thread. While a canary is silent, the driver passes it
    /// immediately before the first apply and before a restore.
    CpuTime {
        /// The thread.
        thread: ThreadId,
        /// CPU time since the start of the thread.
        consumed: Work,
    },
    /// The real-time threads of the machine, without those of the kernel. The driver passes them
    /// before a request for which they matter.
    RealTimeThreads {
        /// All of them, grants included.
        threads: Vec<RealTimeThread>,
    },
    /// A thread has exceeded a limit with [`OnOverrun::Demote`]; the driver has demoted it.
    Overrun {
        /// The thread.
        thread: ThreadId,
    },
    /// A thread has exceeded its limit. The driver reports it in the next inspection, and before
    /// the end of the limit.
    Overran {
        /// The thread.
        thread: ThreadId,
        /// Number of overruns since the thread was attached.
        overruns: u64,
        /// CPU time that the thread had consumed of its budget at the last one.
        consumed: Work,
    },
    /// A watched thread exited.
    ThreadExited {
        /// The thread.
        thread: ThreadId,
    },
    /// A watched process exited.
    ProcessExited {
        /// The process.
        process: ProcessId,
    },
    /// The driver executed an effect with a restriction. For [`Effect::Apply`] the restriction is
    /// [`Caveat::PendingWakeup`]: the thread's CPUs are set, and it has no policy of a grant. For
    /// [`Effect::Restore`] the restriction is any of the others.
    DoneWithCaveat {
        /// Ticket of the effect.
        ticket: Ticket,
        /// The restriction.
        caveat: Caveat,
    },
    /// The driver cannot execute an [`Effect::Apply`] yet, because the thread has overrun its last
    /// deadline budget. The thread's attributes are unchanged.
    NotBefore {
        /// Ticket of the effect.
        ticket: Ticket,
        /// Earliest time for the next attempt.
        at: Monotonic,
    },
    /// The driver executed an effect with a ticket, or the kernel refused it.
    Done {
        /// Ticket of the effect.
        ticket: Ticket,
        /// Result of the kernel.
        result: Result<(), Errno>,
    },
    /// The driver executed an [`Effect::SetNice`], or the kernel refused it.
    NiceSet {
        /// The order.
        order: Box<NiceOrder>,
        /// Result of the kernel.
        result: Result<(), Errno>,
    },
    /// A foreign plugin answered, or its call timed out (`None`).
    PluginAnswered {
        /// Ticket of the call.
        ticket: Ticket,
        /// Answer of the plugin.
        answer: Option<ForeignAnswer>,
    },
    /// A foreign plugin has given its specs new levels. The driver passes this directly before the
    /// answer to the notification.
    PluginRanked {
        /// Index of the plugin.
        plugin: u32,
        /// New kernel priorities of the specs.
        ranks: Vec<(SpecId, i32)>,
        /// Whether the plugin may have more of them.
        more: bool,
    },
    /// The host of a foreign plugin exited or violated the protocol.
    HostFailed {
        /// Index of the plugin.
        plugin: u32,
    },
    /// CPUs went off-line or came back.
    CpusChanged {
        /// CPUs that are off-line now.
        offline: CpuSet,
    },
    /// The host of a foreign plugin is not ready at the start of the daemon.
    HostStarting {
        /// Index of the plugin.
        plugin: u32,
    },
    /// The host of a foreign plugin that is out of service has initialised its plugin.
    HostServes {
        /// Index of the plugin.
        plugin: u32,
    },
    /// The configuration was reloaded: the rules and quotas of this setup apply from now on. Its
    /// plugins must be those of the start.
    Reloaded {
        /// The new setup.
        setup: Box<Setup>,
    },
    /// A grant of an earlier daemon to adopt. Passed at start, before any other input.
    Adopt {
        /// Slot of the record in the state file; it stays there. Slots are passed in increasing
        /// order.
        slot: u32,
        /// Record from the state file.
        record: Box<Record>,
        /// Thread of the record, if it still exists.
        thread: Option<ThreadFacts>,
        /// Whether the kernel may still count the bandwidth of the record's deadline thread, which
        /// has exited.
        lingers: bool,
        /// Whether the process of the record still exists.
        process_alive: bool,
        /// Groups of that process, or else of a thread of the same user. Rules for groups count the
        /// grant under these groups until it is claimed. `None` if neither exists.
        groups: Option<Groups>,
    },
    /// The state file has room for the records of the slots below `slots`. The driver passes this
    /// after the last [`Input::Adopt`], and before a request that creates specs if
    /// [`crate::Broker::wanted_slots`] asks for more.
    RecordSlots {
        /// Number of slots whose records can be written without a failure.
        slots: u32,
        /// Error that prevented a larger number.
        errno: Errno,
    },
    /// The time of [`crate::Broker::next_wakeup`] has been reached.
    Timer,
}

/// Reason why the driver has not executed an [`Effect::Apply`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// The user ids of the thread are not all those of [`Effect::Apply::owner`].
    Credentials(Uids),
    /// The policy is not one that a grant has given: see [`crate::drift::is_given`].
    Attr(Attr),
}

/// Groups of a process, from the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Groups {
    /// Effective group.
    pub effective: u32,
    /// Supplementary groups.
    pub supplementary: Vec<u32>,
}

/// Effect that the driver must execute. Plain data, so that tests can inspect it.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Send a reply.
    Reply {
        /// Connection of the reply.
        session: SessionId,
        /// Number of the request.
        seq: u32,
        /// The reply.
        reply: Reply,
    },
    /// Close a connection.
    Close {
        /// The connection.
        session: SessionId,
    },
    /// Close a connection whose hello is overdue, unless it has an unread message: a late driver
    /// must not close a client that was in time. If it closes the connection, the driver answers
    /// with [`Input::Disconnected`].
    CloseIfSilent {
        /// The connection.
        session: SessionId,
    },
    /// Stop reading from this connection until [`Effect::ResumeReading`].
    SuspendReading {
        /// The connection.
        session: SessionId,
    },
    /// Resume reading from this connection.
    ResumeReading {
        /// The connection.
        session: SessionId,
    },
    /// Set the attributes of a thread. The driver answers with [`Input::Done`],
    /// [`Input::DoneWithCaveat`] or [`Input::NotBefore`], or with [`Input::NotApplied`] if the
    /// thread is not as assumed.
    Apply {
        /// Ticket for the answer.
        ticket: Ticket,
        /// The thread.
        thread: ThreadId,
        /// New attributes.
        attr: Attr,
        /// User that all user ids of the thread must name at the time of the call; `None` for a
        /// grant of the superuser.
        owner: Option<u32>,
    },
    /// Make a thread without a grant an ordinary thread with a nice value and reset-on-fork. The
    /// driver answers with [`Input::NiceSet`]; the error is EPERM if the user ids of the thread are
    /// not all `owner`.
    SetNice(Box<NiceOrder>),
    /// Restore the attributes of a thread, as far as [`crate::drift::restored`] says for its
    /// current attributes and credentials. The driver answers with [`Input::Done`] or
    /// [`Input::DoneWithCaveat`]. The runtime of a deadline thread is shrunk first.
    Restore {
        /// Ticket for the answer.
        ticket: Ticket,
        /// The thread.
        thread: ThreadId,
        /// Attributes to restore.
        attr: Attr,
        /// Last ordered attributes.
        applied: Attr,
        /// User of the grant, or `None`: see [`Effect::Apply`]. A thread with other user ids is
        /// only demoted.
        owner: Option<u32>,
    },
    /// Compare the next `threads` attached threads with what was applied to them last, starting
    /// after the last thread of the previous call. The differences are reported as
    /// [`Input::CredentialsChanged`] and [`Input::AttrChanged`].
    Inspect {
        /// Maximum number of threads.
        threads: u32,
    },
    /// Report whether the canaries of these CPUs have run since they were asked last, and ask those
    /// that have. The driver answers with [`Input::CanariesChecked`], if it has canaries, and
    /// gets no further order before.
    CheckCanaries {
        /// The CPUs.
        cpus: CpuSet,
    },
    /// Enforce this limit on the thread from now on, in place of an earlier one. The limit ends
    /// with [`Effect::Restore`] or [`Effect::ForgetThread`].
    Limit {
        /// The thread.
        thread: ThreadId,
        /// The limit; `None` ends the enforcement.
        limit: Option<Limit>,
    },
    /// Report the exit of this thread.
    WatchThread {
        /// The thread.
        thread: ThreadId,
    },
    /// Close the handle of this thread.
    ForgetThread {
        /// The thread.
        thread: ThreadId,
    },
    /// Report the exit of this process; immediately if it has already exited or its start time
    /// differs.
    WatchProcess {
        /// The process.
        process: ProcessId,
    },
    /// Stop watching this process.
    ForgetProcess {
        /// The process.
        process: ProcessId,
    },
    /// Write [`crate::Broker::record`] of this slot to the state file before the next effect is
    /// executed. A slot without a record is cleared (a later [`Effect::EraseRecord`] has superseded
    /// this effect).
    WriteRecord {
        /// Slot in the broker and in the file.
        slot: u32,
    },
    /// Clear a slot of the state file.
    EraseRecord {
        /// The slot.
        slot: u32,
    },
    /// Call a foreign plugin. The driver answers with [`Input::PluginAnswered`] within `timeout`.
    CallPlugin {
        /// Ticket for the answer.
        ticket: Ticket,
        /// Index of the plugin.
        plugin: u32,
        /// The call.
        call: Box<ForeignCall>,
        /// Time-out of the call.
        timeout: Span,
    },
    /// Stop the host of a foreign plugin that is no longer called. Its outstanding answers are
    /// void.
    StopHost {
        /// Index of the plugin.
        plugin: u32,
    },
    /// Stop the daemon.
    Exit,
    /// Write an event to the log.
    Log(LogEvent),
}

/// Limit on the CPU time of a FIFO or RR thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// CPU time in each period.
    pub budget: Work,
    /// Period, longer than the budget.
    pub period: Span,
    /// Reaction to an overrun.
    pub on_overrun: OnOverrun,
    /// User of the grant.
    pub uid: u32,
}

/// Event for the log. Successful requests are not logged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogEvent {
    /// First refusal with this code and field on a session.
    Refused {
        /// User of the session.
        uid: u32,
        /// Process of the session.
        pid: u32,
        /// The refusal.
        refusal: Box<Refusal>,
    },
    /// A thread was restored with a restriction.
    RestoredWithCaveat {
        /// Thread id.
        tid: u32,
        /// User of the grant.
        uid: u32,
        /// The restriction.
        caveat: Caveat,
    },
    /// The kernel refused all attempts to restore a thread.
    RestoreFailed {
        /// Thread id.
        tid: u32,
        /// Error of the kernel.
        errno: Errno,
    },
    /// The kernel refused new attributes of an attached thread; the broker repeats the attempt.
    ApplyFailed {
        /// Thread id.
        tid: u32,
        /// Error of the kernel.
        errno: Errno,
    },
    /// The daemon has detached a thread from its spec.
    Detached {
        /// Thread id.
        tid: u32,
        /// User of the grant.
        uid: u32,
        /// Reason.
        cause: DetachCause,
    },
    /// Ordinary threads get no time on a CPU, and no thread of a FIFO or RR grant is the cause.
    StarvedByOthers {
        /// The CPU.
        cpu: u32,
    },
    /// A thread has left the CPUs of its grant and was returned to them.
    ReturnedToCpus {
        /// Thread id.
        tid: u32,
        /// User of the grant.
        uid: u32,
    },
    /// A thread was demoted because it exceeded its budget.
    Demoted {
        /// Thread id.
        tid: u32,
        /// User of the grant.
        uid: u32,
    },
    /// A spec of an earlier daemon was adopted.
    Adopted {
        /// The spec.
        spec: SpecId,
        /// User of the spec.
        uid: u32,
        /// Thread of the spec, if any.
        tid: Option<u32>,
    },
    /// The broker released a grant of an earlier daemon, because its owner or its plugin no longer
    /// exists.
    Dropped {
        /// The spec.
        spec: SpecId,
    },
    /// A foreign plugin serves again.
    PluginInService {
        /// Name of the plugin.
        name: String,
    },
    /// A foreign plugin is out of service.
    PluginOutOfService {
        /// Name of the plugin.
        name: String,
        /// Reason.
        why: String,
    },
    /// A foreign plugin answered outside its bounds.
    PluginOutOfBounds {
        /// Name of the plugin.
        name: String,
        /// The invalid part of the answer.
        what: String,
    },
    /// A reload was refused; the old rules stay in force.
    ReloadRefused {
        /// Reason.
        why: String,
    },
    /// A subject exceeds the request rate (logged at most once per subject and second).
    RateLimited {
        /// The subject.
        subject: Subject,
    },
    /// Log lines were suppressed in the last second.
    Suppressed {
        /// Number of lines.
        lines: u64,
        /// Subject of most of them.
        subject: Subject,
    },
}

/// Call of a foreign plugin (ReTiF, Table 4).
#[derive(Clone, Debug, PartialEq)]
pub enum ForeignCall {
    /// `accept`, or `change` with the spec to be replaced: can the plugin serve the task?
    Accept {
        /// The task.
        task: talea_proto::Task,
        /// CPUs on which a placement would be accepted.
        cpus: CpuSet,
        /// CPUs that the client prefers; empty without a preference.
        preferred: CpuSet,
        /// Spec to be replaced, if any.
        replaces: Option<SpecId>,
        /// Epoch of the ledger; repeated in the answer.
        epoch: u64,
    },
    /// `schedule`: the spec is now served by the plugin.
    Schedule {
        /// Id of the spec.
        spec: SpecId,
        /// The task.
        task: talea_proto::Task,
        /// CPU of the placement; `None` for a whole root domain, or all CPUs of the plugin.
        cpu: Option<u32>,
        /// CPUs of the thread.
        cpus: CpuSet,
        /// Kernel priority; 0 in the deadline class.
        priority: u8,
        /// Deadline and period, in the deadline class.
        terms: Option<DeadlineTerms>,
        /// Granted runtime Q^a; `None` if the task declares no runtime.
        runtime: Option<Work>,
    },
    /// `release`: the spec is no longer served by the plugin.
    Release {
        /// Id of the spec.
        spec: SpecId,
    },
    /// `attach`: a thread is attached to the spec.
    Attach {
        /// Id of the spec.
        spec: SpecId,
    },
    /// `detach`: the thread of the spec is detached.
    Detach {
        /// Id of the spec.
        spec: SpecId,
    },
    /// `rank`: the plugin has more new levels of its specs than one answer holds.
    Rank,
}

/// A foreign plugin's answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ForeignAnswer {
    /// Epoch of the call.
    pub epoch: u64,
    /// 1: OK, 0: partial, −1: no; any other value violates the protocol.
    pub verdict: i32,
    /// CPU of the placement.
    pub cpu: i32,
    /// Kernel priority.
    pub priority: i32,
    /// Granted runtime in nanoseconds; 0 for the runtime of the request.
    pub runtime_ns: u64,
    /// Deadline in nanoseconds; 0 for that of the request.
    pub deadline_ns: u64,
    /// Period in nanoseconds; 0 for that of the request.
    pub period_ns: u64,
    /// CPUs of the thread; empty for `cpu` alone.
    pub cpus: CpuSet,
    /// Reason of a rejection; empty if the plugin gives none.
    pub text: PluginText,
}

/// Facts about the machine; the driver probes them once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Platform {
    /// CPUs of the machine.
    pub cpus: CpuSet,
    /// Those of them that are off-line at the start.
    pub offline: CpuSet,
    /// CPUs of a thread whose affinity and cpuset were never restricted: all but the isolated ones.
    pub default_cpus: CpuSet,
    /// Root domains: sets of CPUs over which the kernel balances and admits `SCHED_DEADLINE`.
    pub root_domains: Vec<CpuSet>,
    /// CPUs on which a deadline thread can be confined to one CPU (a partition exists or can be
    /// made).
    pub partitionable: CpuSet,
    /// CPUs with such a partition made by `confine = "partition"` (opt-in for cgroup v1).
    pub partitionable_opt_in: CpuSet,
    /// Maximum share of each CPU that the kernel admits to `SCHED_DEADLINE`; more than one CPU if
    /// its admission test is off.
    pub deadline_share: talea_core::Charge,
    /// Minimum and maximum `SCHED_DEADLINE` period.
    pub deadline_period: (Span, Span),
    /// Enforcement granularity of deadline budgets: a tick, or zero with HRTICK.
    pub granularity: Span,
    /// Whether a thread of the root cgroup may use FIFO and RR.
    pub fifo: bool,
    /// Granularity with which the driver enforces budgets of FIFO and RR threads: what a thread
    /// may consume beyond its budget at p99. `None` if it enforces none.
    pub enforcement: Option<Span>,
}

impl Platform {
    /// Returns a platform of `count` CPUs in one root domain with a stock kernel; for tests and
    /// declared machines.
    pub fn declared(count: u32) -> Platform {
        let cpus = CpuSet::first(count);
        Platform {
            cpus,
            offline: CpuSet::EMPTY,
            default_cpus: cpus,
            root_domains: vec![cpus],
            partitionable: CpuSet::EMPTY,
            partitionable_opt_in: cpus,
            deadline_share: talea_core::Charge::ratio(9, 10),
            deadline_period: (Span::from_ns(100_000), Span::from_ns(4_194_304_000)),
            granularity: Span::from_ns(4_000_000),
            fifo: true,
            enforcement: Some(Span::from_ns(150_000)),
        }
    }
}
