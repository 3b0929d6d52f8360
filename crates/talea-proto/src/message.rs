//! Requests and replies as values.

pub use crate::name::Name;
pub use crate::notes::Notes;
pub use crate::token::Token;

use crate::counters::Counters;
use crate::refusal::{PluginAnswer, Refusal};
use alloc::boxed::Box;
use alloc::vec::Vec;
use talea_core::{Attr, Charge, CpuSet, Params, Priority, Span, Work};

/// Identifier of an accepted task specification; never zero, never reused by one daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SpecId(pub u64);

/// Owner of a grant: the object whose end ends the grant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Owner {
    /// The requesting connection: the grant ends with it.
    #[default]
    Session,
    /// The process at the client's end of the connection.
    Process,
    /// The attached thread: the grant lives until that thread exits or an authorised client
    /// releases it.
    Thread,
}

/// A task specification as requested.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Task {
    /// The declared parameters.
    pub params: Params,
    /// The only plugin to consider, if the request names one.
    pub plugin: Option<Name>,
    /// Preferred or mandatory CPUs of the task; empty means no preference.
    pub cpus: CpuSet,
    /// Whether `cpus` is mandatory instead of a preference.
    pub cpus_mandatory: bool,
    /// Whether the daemon accepts the task even if its plugin's admission test fails (requires a
    /// rule).
    pub ignore_admission: bool,
    /// Owner of the grant.
    pub owner: Owner,
    /// Thread that the task is meant for: its allowed CPUs, its control group and its resource
    /// limits restrict the placement. The thread affects only the answer to the request; no spec
    /// stores the reference.
    pub thread: Option<ThreadRef>,
    /// Whether the task is exclusive: until the spec ends, the daemon places no other task on its
    /// CPU. Only an executor, which schedules its threads itself, requests this.
    pub exclusive: bool,
}

/// Period of [`Task::whole_cpu`]. The runtime is the same.
const WHOLE_PERIOD_NS: u64 = 1_000_000_000;

impl Task {
    /// Returns the exclusive task of an executor that takes all of a CPU. The priority lets a
    /// plugin without a test serve it, too.
    pub fn whole_cpu(cpu: u32) -> Task {
        let params = Params {
            period: Some(Span::from_ns(WHOLE_PERIOD_NS)),
            runtime: Some(Work::from_ns(WHOLE_PERIOD_NS)),
            priority: Some(Priority(1)),
            ..Params::default()
        };
        Task {
            params,
            cpus: CpuSet::single(cpu),
            cpus_mandatory: true,
            exclusive: true,
            owner: Owner::Process,
            ..Task::default()
        }
    }
}

/// Reference to a thread in a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThreadRef {
    /// The pidfd passed with the message.
    Pidfd,
    /// A thread id in the daemon's PID namespace.
    Tid(u32),
    /// A thread id in the daemon's PID namespace. The thread must belong to the connected process.
    OwnTid(u32),
}

impl ThreadRef {
    /// Returns the thread id, if the reference contains one.
    pub fn tid(self) -> Option<u32> {
        match self {
            ThreadRef::Pidfd => None,
            ThreadRef::Tid(tid) | ThreadRef::OwnTid(tid) => Some(tid),
        }
    }
}

/// A request of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// First message of a connection; the daemon answers with the version to use.
    Hello {
        /// Oldest version that the client supports.
        min: u16,
        /// Newest version that the client supports.
        max: u16,
    },
    /// Accept a task.
    Create(Task),
    /// Accept all of these tasks or none.
    CreateGroup(Vec<Task>),
    /// Replace the parameters of a spec; a refusal has no effect.
    Change {
        /// The spec.
        spec: SpecId,
        /// New parameters; the owner is not changed.
        task: Task,
    },
    /// Release a spec.
    Release(SpecId),
    /// Make a thread real-time under a spec.
    Attach {
        /// The spec.
        spec: SpecId,
        /// The thread.
        thread: ThreadRef,
    },
    /// Restore the previous attributes of the spec's thread.
    Detach(SpecId),
    /// Make a thread without a grant an ordinary thread with this nice value, and with
    /// reset-on-fork. The daemon restores nothing later.
    Nice {
        /// Nice value, −20 (favoured) to 19.
        nice: i8,
        /// The thread.
        thread: ThreadRef,
    },
    /// Report a spec.
    Query(SpecId),
    /// Derive the tokens of the grants of this connection from a secret of the client, by
    /// [`Token::derived`], instead of random tokens. So the client knows the token of a grant
    /// before the reply, and can claim the spec if the reply is lost. The secret begins with the
    /// number of the library. After a restart of the daemon, it also starts the time for the claims
    /// of that library ([`Token::library`]).
    Seed(Token),
    /// Serve this connection from now on as if the process of the passed pidfd had connected:
    /// under its user's rules and quotas. Only a front end of the configuration and the superuser
    /// may request this, once for each connection, before the connection has a spec, and never for
    /// a process of the superuser. The daemon reads the process's credentials from the kernel.
    ActFor {
        /// User that all user ids of the process must name.
        uid: u32,
    },
    /// Take over a spec of the same user that was created on an earlier connection.
    Claim {
        /// The spec; 0 stands for the spec with this token.
        spec: SpecId,
        /// Token returned at creation.
        token: Token,
    },
    /// Report whether this task would be accepted, with the answer of every plugin. The request has
    /// no effect.
    Explain(Task),
    /// Report the state of the daemon.
    Status,
    /// Report the counts of events since the start of the daemon.
    Counters,
    /// Report the `index`-th plugin, in order of precedence.
    Plugin(u32),
    /// Report the usage of plugin `plugin` on its `index`-th CPU.
    PluginCpu {
        /// Index of the plugin.
        plugin: u32,
        /// Index into the plugin's CPUs, lowest first.
        index: u32,
    },
    /// Report the first spec with at least this id (for listing).
    NextSpec(SpecId),
    /// Report the first connection with at least this number (for listing).
    NextSession(u64),
    /// Stop the daemon (superuser only); with `release`, release every grant first.
    Stop {
        /// Whether every thread is restored and every grant released first.
        release: bool,
    },
}

/// A reply of the daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Reply to [`Request::Hello`].
    Welcome {
        /// Protocol version of all later messages.
        version: u16,
        /// Random number of this daemon instance; differs after each start of the daemon.
        instance: u64,
    },
    /// Reply to create, change and claim.
    Granted(Granted),
    /// Reply to [`Request::CreateGroup`], in the order of the request.
    GrantedGroup(Vec<Granted>),
    /// The request succeeded; there is no result value.
    Done,
    /// Reply to attach, detach and release: the request succeeded with a restriction.
    DoneWithCaveat(Caveat),
    /// The request was refused. A refusal is a normal answer.
    Refused(Box<Refusal>),
    /// Reply to query and [`Request::NextSpec`].
    Spec(Box<SpecInfo>),
    /// Reply to [`Request::Explain`]: the answer of each plugin, and the plugin that would serve
    /// the task.
    Explained {
        /// Index into `answers` of the plugin that would serve the task.
        chosen: Option<u32>,
        /// One answer for each plugin considered.
        answers: Vec<PluginAnswer>,
        /// The refusal of the request itself if no plugin would serve it, including the list of
        /// answers.
        refusal: Option<Box<Refusal>>,
    },
    /// Reply to [`Request::Status`].
    Status(Box<Status>),
    /// Reply to [`Request::Counters`].
    Counters(Box<Counters>),
    /// Reply to [`Request::Plugin`].
    Plugin(Box<PluginInfo>),
    /// Reply to [`Request::PluginCpu`].
    PluginCpu(CpuInfo),
    /// Reply to [`Request::NextSession`].
    Session(SessionInfo),
    /// No element exists at this index or beyond.
    End,
}

/// Restriction of a successful operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caveat {
    /// The thread's reservation is held, and the thread becomes real-time at its next wake-up: it
    /// sleeps in another root domain, where the kernel does not admit it to the deadline class.
    /// Until then the spec reports no attributes.
    PendingWakeup,
    /// None of the thread's previous CPUs can be used any more; the thread may use all CPUs.
    AffinityWidened,
    /// The kernel refused the thread's previous policy with this error; the thread is now an
    /// ordinary thread.
    PolicyLost {
        /// The kernel's error number.
        errno: i32,
    },
}

/// Kernel mechanism that enforces a grant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mechanism {
    /// `SCHED_FIFO` on one CPU.
    #[default]
    Fifo,
    /// `SCHED_RR` on one CPU.
    Rr,
    /// `SCHED_DEADLINE` confined to one CPU by a cpuset partition.
    DeadlinePinned,
    /// `SCHED_DEADLINE` over a whole root domain.
    DeadlineGlobal,
}

impl Mechanism {
    /// All mechanisms.
    pub const ALL: [Mechanism; 4] =
        [Mechanism::Fifo, Mechanism::Rr, Mechanism::DeadlinePinned, Mechanism::DeadlineGlobal];

    /// Returns the name of the mechanism that programs can rely on.
    pub fn stable_name(self) -> &'static str {
        match self {
            Mechanism::Fifo => "fifo",
            Mechanism::Rr => "rr",
            Mechanism::DeadlinePinned => "deadline-pinned",
            Mechanism::DeadlineGlobal => "deadline-global",
        }
    }
}

/// An accepted task specification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Granted {
    /// Identifier of the spec.
    pub spec: SpecId,
    /// Secret required to claim the spec after a reconnection.
    pub token: Token,
    /// Index of the plugin that serves the spec.
    pub plugin: u32,
    /// CPU on which the task is placed; `None` for all CPUs of the plugin.
    pub cpu: Option<u32>,
    /// Q^a: the accepted runtime; `None` when no runtime was declared.
    pub runtime: Option<Work>,
    /// Charge of the task.
    pub charge: Charge,
    /// Current kernel priority; 0 for the deadline class.
    pub priority: u8,
    /// Kernel mechanism that enforces the grant.
    pub mechanism: Mechanism,
    /// Enforcement granularity: maximum overrun of the budget before the kernel or the daemon
    /// throttles the thread. Zero if the budget is enforced exactly, or not at all (see the notes).
    pub granularity: Span,
    /// Remarks for the holder.
    pub notes: Notes,
}

/// Complete description of a spec.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpecInfo {
    /// The grant. The token is zero unless the spec is bound to the requesting connection.
    pub granted: Granted,
    /// The request.
    pub task: Task,
    /// The plugin's name.
    pub plugin_name: Name,
    /// User that created the spec.
    pub uid: u32,
    /// Process that created or last claimed the spec, in the daemon's PID namespace.
    pub pid: u32,
    /// The attached thread, if any, in the daemon's PID namespace.
    pub tid: Option<u32>,
    /// Attributes applied to the thread; `None` also while a thread sleeps that is to receive them
    /// ([`Caveat::PendingWakeup`]).
    pub attr: Option<Attr>,
    /// Overruns of the attached thread; zeros if the daemon does not limit the thread.
    pub overruns: Overruns,
    /// Reason why the daemon has detached the last thread, while no other is attached.
    pub detached: Option<DetachCause>,
}

/// Overruns of an attached thread since its limit began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Overruns {
    /// Number of overruns.
    pub count: u64,
    /// Time of the last overrun in nanoseconds on `CLOCK_MONOTONIC`; 0 if there was none.
    pub last_ns: u64,
    /// Whether the thread waits at ordinary priority for its next refill.
    pub is_throttled: bool,
}

/// Reason why the daemon has detached a thread by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum DetachCause {
    /// The thread no longer runs as the owner of the grant: it has started a set-user-id program,
    /// or has changed its real, effective or saved user id.
    Credentials = 1,
    /// The thread has left the CPUs of its grant twice within ten seconds.
    Affinity = 2,
    /// The thread or an administrator has changed its policy or priority.
    Policy = 3,
    /// The thread has left ordinary threads no time on its CPU.
    Starvation = 4,
    /// The CPU of the grant went off-line.
    Offline = 5,
}

impl DetachCause {
    /// All causes.
    pub const ALL: [DetachCause; 5] = [
        DetachCause::Credentials,
        DetachCause::Affinity,
        DetachCause::Policy,
        DetachCause::Starvation,
        DetachCause::Offline,
    ];
}

/// Counters of the daemon.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Random number of this daemon instance; differs after each start of the daemon.
    pub instance: u64,
    /// The daemon's process id.
    pub pid: u32,
    /// Nanoseconds since the start of the daemon.
    pub uptime_ns: u64,
    /// Number of plugins.
    pub plugins: u32,
    /// Number of connections.
    pub sessions: u32,
    /// Number of specs.
    pub specs: u32,
    /// Number of attached threads.
    pub attached: u32,
    /// Number of requests received since the start, including refused ones.
    pub requests: u64,
    /// Number of requests refused since the start.
    pub refused: u64,
    /// Number of grants adopted from an earlier daemon.
    pub adopted: u32,
    /// Number of access rules in force.
    pub rules: u32,
    /// Number of wake-ups of the daemon's event loop. Shows that the periods of clients do not wake
    /// the daemon.
    pub wakeups: u64,
}

/// Description of a plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PluginInfo {
    /// Position in order of precedence.
    pub index: u32,
    /// Name of the plugin.
    pub name: Name,
    /// Name of the plugin's kind.
    pub kind: Name,
    /// CPUs on which the plugin may place tasks.
    pub cpus: CpuSet,
    /// Lowest and highest kernel priority of the plugin's band; zeros for the deadline class.
    pub band: (u8, u8),
    /// Number of specs that the plugin serves.
    pub specs: u32,
    /// Whether the plugin is out of service (a foreign plugin that failed).
    pub out_of_service: bool,
}

/// Usage of one plugin on one CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuInfo {
    /// Number of the CPU in the kernel.
    pub cpu: u32,
    /// Charge that this plugin could still grant on the CPU.
    pub free: Charge,
    /// Charge that all plugins have granted on the CPU, with the CPU's part of the charges on its
    /// root domain.
    pub used: Charge,
    /// Number of this plugin's specs on the CPU.
    pub specs: u32,
}

/// Description of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionInfo {
    /// Number of the connection.
    pub session: u64,
    /// Process id of the peer.
    pub pid: u32,
    /// User id of the peer.
    pub uid: u32,
    /// Number of specs that the connection holds.
    pub specs: u32,
}
