//! What the world tells the broker, and what the broker asks of the world.

use talea_core::setup::Setup;
use talea_core::{Attr, CpuSet, Span, Time};
use talea_proto::message::But;
use talea_proto::record::Record;
use talea_proto::{Refusal, Reply, Request, SpecId};

/// One connection; numbers are given by the driver and never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u64);

/// One thread that the driver holds by pidfd; numbers are given by the driver and never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ThreadId(pub u64);

/// Connects an effect with its [`Input::Done`] or [`Input::Answered`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// A POSIX error number as the kernel gave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub i32);

/// One process for ever: a process id alone names another process tomorrow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessId {
    /// Process id in our PID namespace; 0 when it has none there.
    pub pid: u32,
    /// Start time in clock ticks since boot; 0 when unknown.
    pub start: u64,
}

/// Who is at the other end of a connection, as the kernel says at connect.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Peer {
    /// Process id in our PID namespace; 0 when it has none there.
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

/// A thread that a request names, as the driver found it just now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadFacts {
    /// The driver's handle. Two requests that name the same thread may carry different handles;
    /// `tid` and `inode` together tell, or `start` where that is 0.
    pub thread: ThreadId,
    /// Thread id in our PID namespace.
    pub tid: u32,
    /// Its process.
    pub tgid: u32,
    /// Its effective user id, from the kernel.
    pub euid: u32,
    /// Start time in clock ticks since boot, which with `tid` names a thread for ever; may be 0
    /// where `inode` is not.
    pub start: u64,
    /// Inode of its pidfd, where the kernel gives unique ones; else 0.
    pub inode: u64,
    /// What it is now; to be put back at the end.
    pub attr: Attr,
}

/// Why the driver could not find the thread that a request names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThreadError {
    /// No such thread, or it has ended.
    Gone,
    /// A bare thread id from another PID namespace.
    BareTid,
    /// The descriptor that came along is not a pidfd of a thread.
    NotAThread,
    /// The kernel said otherwise.
    Kernel(Errno),
}

/// What the world tells the broker.
#[expect(
    clippy::large_enum_variant,
    reason = "requests are what the broker mostly hears; a box each would cost more"
)]
#[derive(Clone, Debug)]
pub enum Input {
    /// A connection was accepted.
    Connected {
        /// Its number.
        session: SessionId,
        /// Who it is.
        peer: Peer,
    },
    /// A request arrived.
    Asked {
        /// From whom.
        session: SessionId,
        /// Its number on that connection; goes back with the reply.
        seq: u32,
        /// What is asked.
        request: Request,
        /// For attach: the thread that was named, resolved by the driver.
        thread: Option<Result<ThreadFacts, ThreadError>>,
        /// Fresh random bits for a token.
        entropy: u128,
    },
    /// A message that could not be decoded arrived.
    Garbled {
        /// From whom.
        session: SessionId,
        /// Its number, if that much could be read; else 0.
        seq: u32,
        /// What was wrong.
        refusal: Refusal,
    },
    /// A connection ended.
    Hungup {
        /// Which.
        session: SessionId,
    },
    /// An attached thread is another user's than it was: its credentials have changed. Told before
    /// the request for which it matters.
    Became {
        /// Which.
        thread: ThreadId,
        /// Its effective user id now, from the kernel.
        euid: u32,
    },
    /// A watched thread ended.
    ThreadGone {
        /// Which.
        thread: ThreadId,
    },
    /// A watched process ended.
    ProcessGone {
        /// Which.
        process: ProcessId,
    },
    /// An effect that carried a ticket was carried out, and not quite as it says: what comes after
    /// [`Effect::Apply`] is [`But::Asleep`], and the thread's CPUs are set; after
    /// [`Effect::Restore`] any of the others.
    DoneBut {
        /// Which.
        ticket: Ticket,
        /// What is missing.
        but: But,
    },
    /// An [`Effect::Apply`] can't be carried out yet: the thread has overdrawn its last deadline
    /// budget, and has what it had.
    NotBefore {
        /// Which.
        ticket: Ticket,
        /// When it can.
        at: Time,
    },
    /// An effect that carried a ticket was carried out, or not.
    Done {
        /// Which.
        ticket: Ticket,
        /// How it went.
        result: Result<(), Errno>,
    },
    /// A foreign plugin answered, or its time ran out (`None`).
    Answered {
        /// Which question.
        ticket: Ticket,
        /// Its answer.
        answer: Option<ForeignAnswer>,
    },
    /// A foreign plugin's host ended or broke the protocol.
    PluginDown {
        /// Index of the plugin.
        plugin: u32,
    },
    /// The administrator's file was read again: rules and quotas of this setup hold from now on.
    /// Its plugins must be those of the start.
    Reloaded {
        /// The new setup.
        setup: Box<Setup>,
    },
    /// At start, before anything else: a grant of an earlier daemon that may live on.
    Adopt {
        /// Where the state file has it; it stays there. Given in rising order.
        slot: u32,
        /// What the state file says.
        record: Box<Record>,
        /// The thread, if the record names one and it still lives.
        thread: Option<ThreadFacts>,
        /// Whether the owning process, if the record names one, still lives.
        process_alive: bool,
        /// The groups of that process, or else of a thread of the same user: those by which rules
        /// for groups count the grant until it is claimed. `None` when neither is left.
        groups: Option<Groups>,
    },
    /// The time that [`crate::Broker::next_wakeup`] named has come.
    Timer,
}

/// The groups of a process, as the kernel says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Groups {
    /// Its effective group.
    pub effective: u32,
    /// Its supplementary groups.
    pub supplementary: Vec<u32>,
}

/// What the broker asks of the world. Data, so that a test can read it.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Send a reply.
    Reply {
        /// To whom.
        session: SessionId,
        /// To which request.
        seq: u32,
        /// What.
        reply: Reply,
    },
    /// End a connection.
    Close {
        /// Which.
        session: SessionId,
    },
    /// Do not read from this connection until [`Effect::Arm`].
    Disarm {
        /// Which.
        session: SessionId,
    },
    /// Read from this connection again.
    Arm {
        /// Which.
        session: SessionId,
    },
    /// Set a thread's attributes; answer with [`Input::Done`].
    Apply {
        /// For the answer.
        ticket: Ticket,
        /// Which thread.
        thread: ThreadId,
        /// What it becomes.
        attr: Attr,
    },
    /// Put a thread's attributes back; answer with [`Input::Done`]. A deadline thread is shrunk
    /// first.
    Restore {
        /// For the answer.
        ticket: Ticket,
        /// Which thread.
        thread: ThreadId,
        /// What it becomes.
        attr: Attr,
    },
    /// Tell when this thread ends.
    Watch {
        /// Which.
        thread: ThreadId,
    },
    /// This thread is of no further interest; close what is held of it.
    Forget {
        /// Which.
        thread: ThreadId,
    },
    /// Tell when this process ends; at once if it has ended already or its start time is another.
    WatchProcess {
        /// Which.
        process: ProcessId,
    },
    /// This process is of no further interest.
    ForgetProcess {
        /// Which.
        process: ProcessId,
    },
    /// Write [`crate::Broker::record`] of this slot to the state file, before what follows is
    /// carried out; a slot without a record is cleared (a later [`Effect::Erase`] has overtaken
    /// this one).
    Remember {
        /// The slot, in the broker and in the file.
        slot: u32,
    },
    /// Clear a slot of the state file.
    Erase {
        /// Which.
        slot: u32,
    },
    /// Put a question to a foreign plugin; answer with [`Input::Answered`] within its time-out.
    Ask {
        /// For the answer.
        ticket: Ticket,
        /// Index of the plugin.
        plugin: u32,
        /// What is asked.
        question: Box<ForeignQuestion>,
        /// How long the answer may take.
        timeout: Span,
    },
    /// End the host of a foreign plugin that will not be asked any more. What it has still to
    /// answer is void.
    EndHost {
        /// Index of the plugin.
        plugin: u32,
    },
    /// End the daemon.
    Exit,
    /// Something that an administrator would want to read.
    Log(LogEvent),
}

/// Log lines; healthy is silent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogEvent {
    /// First refusal of its cause on a session.
    Refused {
        /// Of which user.
        uid: u32,
        /// Of which process.
        pid: u32,
        /// What was said.
        refusal: Box<Refusal>,
    },
    /// A thread that was put back is not quite what it was.
    NotAsBefore {
        /// Which thread id.
        tid: u32,
        /// Whose grant it had.
        uid: u32,
        /// What is missing.
        but: But,
    },
    /// A thread could not be put back; it is tried again.
    RestoreFailed {
        /// Which thread id.
        tid: u32,
        /// What the kernel said.
        errno: Errno,
    },
    /// An attached thread whose kernel priority had to move could not be moved; it is tried again.
    ApplyFailed {
        /// Which thread id.
        tid: u32,
        /// What the kernel said.
        errno: Errno,
    },
    /// A spec was taken over from an earlier daemon.
    Adopted {
        /// Which.
        spec: SpecId,
        /// Whose.
        uid: u32,
        /// Its thread, if any.
        tid: Option<u32>,
    },
    /// A grant of an earlier daemon has nobody left and was given back.
    Dropped {
        /// Which.
        spec: SpecId,
    },
    /// A foreign plugin is out of service.
    PluginOut {
        /// Its name.
        name: String,
        /// Why.
        why: String,
    },
    /// A foreign plugin answered outside its bounds.
    PluginLied {
        /// Its name.
        name: String,
        /// What it said.
        what: String,
    },
    /// A reload was refused; the old rules stay.
    ReloadRefused {
        /// Why.
        why: String,
    },
    /// A user is over its request rate (once per user and second).
    RateLimited {
        /// Which.
        uid: u32,
    },
}

/// A question of ReTiF's Table 4 to a plugin outside.
#[derive(Clone, Debug, PartialEq)]
pub enum ForeignQuestion {
    /// Could you serve this? (`accept`, and `change` with the spec that would be replaced.)
    Accept {
        /// The request.
        task: talea_proto::Task,
        /// The CPUs on which an answer would be accepted.
        cpus: CpuSet,
        /// The spec that would be replaced.
        replaces: Option<SpecId>,
        /// The ledger's epoch; comes back in the answer.
        epoch: u64,
    },
    /// It is yours now (`schedule`).
    Schedule {
        /// Its id.
        spec: SpecId,
        /// The request.
        task: talea_proto::Task,
        /// Where.
        cpu: u32,
        /// At which kernel priority.
        priority: u8,
    },
    /// It is no longer yours (`release`).
    Release {
        /// Its id.
        spec: SpecId,
    },
    /// A thread is attached to it (`attach`).
    Attach {
        /// Its id.
        spec: SpecId,
    },
    /// Its thread is detached (`detach`).
    Detach {
        /// Its id.
        spec: SpecId,
    },
}

/// A foreign plugin's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForeignAnswer {
    /// The epoch of the question.
    pub epoch: u64,
    /// 1 OK, 0 partial, −1 no; anything else is a lie.
    pub verdict: i32,
    /// Where.
    pub cpu: i32,
    /// At which kernel priority.
    pub priority: i32,
}

/// What the broker must know of the machine; the driver probes it once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// CPUs online.
    pub cpus: CpuSet,
    /// The sets of CPUs over which the kernel balances and admits `SCHED_DEADLINE`.
    pub root_domains: Vec<CpuSet>,
    /// CPUs on which a deadline thread can be confined to one CPU (a partition exists or can be
    /// made).
    pub partitionable: CpuSet,
    /// The same with `confine = "partition"` (cgroup v1 opt-in).
    pub partitionable_opt_in: CpuSet,
    /// Largest share of each CPU that the kernel admits to `SCHED_DEADLINE`; more than one CPU when
    /// its admission test is off.
    pub deadline_share: talea_core::Charge,
    /// Shortest and longest `SCHED_DEADLINE` period.
    pub deadline_period: (Span, Span),
    /// How coarsely the kernel polices deadline budgets: a tick, or zero with HRTICK.
    pub grain: Span,
    /// Whether FIFO and RR are open to a thread of the root cgroup.
    pub fifo: bool,
}

impl Machine {
    /// A machine of `count` CPUs in one root domain with a stock kernel; for tests and declared
    /// machines.
    pub fn declared(count: u32) -> Machine {
        let cpus = CpuSet::first(count);
        Machine {
            cpus,
            root_domains: vec![cpus],
            partitionable: CpuSet::EMPTY,
            partitionable_opt_in: cpus,
            deadline_share: talea_core::Charge::ratio(9, 10),
            deadline_period: (Span::from_ns(100_000), Span::from_ns(4_194_304_000)),
            grain: Span::from_ns(4_000_000),
            fifo: true,
        }
    }
}
