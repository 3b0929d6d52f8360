//! Requests and replies as values.

use crate::refusal::{Answer, Refusal};
use alloc::boxed::Box;
use alloc::vec::Vec;
use talea_core::{Attr, Charge, CpuSet, Params, Span, Work};

/// Names an accepted task specification; never zero, never used twice by one daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SpecId(pub u64);

/// Proof of having created a spec; needed to claim it from another connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token(pub [u8; 16]);

/// Whose end ends a grant (design, section 9; checklist R29).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Owner {
    /// The connection that asked: the grant ends with it.
    #[default]
    Session,
    /// The process at the other end of the connection.
    Process,
    /// The attached thread: the grant lives until that thread ends or somebody entitled releases
    /// it.
    Thread,
}

/// A name of at most 31 bytes, padded with zeros.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Name(pub [u8; 32]);

/// A task specification as requested.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Task {
    /// The declared parameters.
    pub params: Params,
    /// The only plugin to ask, if one is named.
    pub plugin: Option<Name>,
    /// CPUs the task should run on; empty means no wish.
    pub cpus: CpuSet,
    /// Whether `cpus` is a condition rather than a wish.
    pub cpus_mandatory: bool,
    /// Take the task even though its plugin's test fails (needs a rule).
    pub ignore_admission: bool,
    /// Whose end ends the grant.
    pub owner: Owner,
}

/// How a request names a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Named {
    /// By the pidfd that comes with the message.
    Pidfd,
    /// By its number in the daemon's PID namespace.
    Number(u32),
    /// The same, of a thread of the process that has connected; no other is taken for it.
    Own(u32),
}

impl Named {
    /// The number, where there is one.
    pub fn number(self) -> Option<u32> {
        match self {
            Named::Pidfd => None,
            Named::Number(tid) | Named::Own(tid) => Some(tid),
        }
    }
}

/// What a client asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// First message of a connection; the daemon answers with the version to use.
    Hello {
        /// Oldest version that the client speaks.
        min: u16,
        /// Newest version that the client speaks.
        max: u16,
    },
    /// Accept a task.
    Create(Task),
    /// Accept all of these tasks or none.
    CreateGroup(Vec<Task>),
    /// Replace the parameters of a spec; on refusal everything stays as it was.
    Change {
        /// Which spec.
        spec: SpecId,
        /// Its new form; the owner is not changed.
        task: Task,
    },
    /// Give a spec back.
    Release(SpecId),
    /// Make a thread real-time under a spec.
    Attach {
        /// Which spec.
        spec: SpecId,
        /// Which thread.
        thread: Named,
    },
    /// Put the spec's thread back to what it was.
    Detach(SpecId),
    /// What is known of a spec.
    Query(SpecId),
    /// Take over a spec of the same user, from before a reconnection.
    Claim {
        /// Which spec.
        spec: SpecId,
        /// The token given at create.
        token: Token,
    },
    /// Would this task be accepted? What does every plugin say? Nothing is changed.
    Explain(Task),
    /// The daemon's state in numbers.
    Status,
    /// The `index`-th plugin, in order of precedence.
    Plugin(u32),
    /// What plugin `plugin` has on its `index`-th CPU.
    PluginCpu {
        /// Index of the plugin.
        plugin: u32,
        /// Index into the plugin's CPUs, lowest first.
        index: u32,
    },
    /// The first spec whose id is at least this one (for listing).
    NextSpec(SpecId),
    /// The first connection whose number is at least this one (for listing).
    NextSession(u64),
    /// Root only: stop the daemon; with `release`, give everything back first.
    Stop {
        /// Demote every thread and forget every grant.
        release: bool,
    },
}

/// What the daemon answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// To [`Request::Hello`].
    Welcome {
        /// The version to use from here on.
        version: u16,
        /// Differs from one start of the daemon to the next.
        instance: u64,
    },
    /// To create, change and claim.
    Granted(Granted),
    /// To [`Request::CreateGroup`], in the order of the request.
    GrantedGroup(Vec<Granted>),
    /// Done, nothing to tell.
    Done,
    /// To attach, detach and release: done, and something is not quite as asked.
    DoneBut(But),
    /// No, and why. Being refused is normal.
    Refused(Box<Refusal>),
    /// To query and [`Request::NextSpec`].
    Spec(Box<SpecInfo>),
    /// To [`Request::Explain`]: what each plugin says, and which one would get the task.
    Explained {
        /// Index into `answers` of the plugin that would be chosen.
        chosen: Option<u32>,
        /// One answer a plugin that was asked.
        answers: Vec<Answer>,
        /// What the request itself would be answered if nobody is chosen, its own list of answers
        /// included.
        refusal: Option<Box<Refusal>>,
    },
    /// To [`Request::Status`].
    Status(Box<Status>),
    /// To [`Request::Plugin`].
    Plugin(Box<PluginInfo>),
    /// To [`Request::PluginCpu`].
    PluginCpu(CpuInfo),
    /// To [`Request::NextSession`].
    Session(SessionInfo),
    /// There is nothing at this index or beyond.
    End,
}

/// What is not quite as asked although it was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum But {
    /// The thread has its place, and is real-time from its next wake-up: it sleeps in another root
    /// domain, and the kernel gives no deadline to a thread there. Until then the spec shows no
    /// attributes.
    Asleep,
    /// None of the CPUs that the thread had before can be used any more; it may use all.
    Wider,
    /// The kernel no longer grants the policy that the thread had before, and said this; it is an
    /// ordinary thread.
    Demoted {
        /// The kernel's error number.
        errno: i32,
    },
}

/// How a grant is enforced by the kernel.
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
    /// All of them.
    pub const ALL: [Mechanism; 4] =
        [Mechanism::Fifo, Mechanism::Rr, Mechanism::DeadlinePinned, Mechanism::DeadlineGlobal];

    /// A stable word for programs.
    pub fn word(self) -> &'static str {
        match self {
            Mechanism::Fifo => "fifo",
            Mechanism::Rr => "rr",
            Mechanism::DeadlinePinned => "deadline-pinned",
            Mechanism::DeadlineGlobal => "deadline-global",
        }
    }
}

/// Things that the holder of a grant should know. A set of bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Notes(pub u32);

impl Notes {
    /// No schedulability test covers this task (a runtime is missing, here or beside it on the
    /// CPU).
    pub const NOT_PROVED: Notes = Notes(1);
    /// The test failed and was ignored on request.
    pub const ADMISSION_IGNORED: Notes = Notes(1 << 1);
    /// The accepted runtime is below the desired one.
    pub const BELOW_DESIRED: Notes = Notes(1 << 2);
    /// Other periods or priorities share this task's kernel priority.
    pub const LEVEL_SHARED: Notes = Notes(1 << 3);
    /// The plugin serves the task partially (a recommended parameter is missing).
    pub const PARTIAL: Notes = Notes(1 << 4);
    /// A CPU wish could not be met.
    pub const CPU_WISH_IGNORED: Notes = Notes(1 << 5);
    /// The budget is not enforced by the kernel for this mechanism.
    pub const BUDGET_NOT_ENFORCED: Notes = Notes(1 << 6);
    /// The order of kernel priorities that this one has its place in is that of all CPUs of the
    /// plugin, not of the task's alone.
    pub const COMMON_LEVELS: Notes = Notes(1 << 7);

    /// Whether every bit of `other` is set.
    pub fn contains(self, other: Notes) -> bool {
        self.0 & other.0 == other.0
    }

    /// Every note with a stable word for programs.
    pub const WORDS: [(Notes, &'static str); 8] = [
        (Notes::NOT_PROVED, "not-proved"),
        (Notes::ADMISSION_IGNORED, "admission-ignored"),
        (Notes::BELOW_DESIRED, "below-desired"),
        (Notes::LEVEL_SHARED, "level-shared"),
        (Notes::PARTIAL, "partial"),
        (Notes::CPU_WISH_IGNORED, "cpu-wish-ignored"),
        (Notes::BUDGET_NOT_ENFORCED, "budget-not-enforced"),
        (Notes::COMMON_LEVELS, "common-levels"),
    ];

    /// The stable words of the bits that are set.
    pub fn words(self) -> impl Iterator<Item = &'static str> {
        Notes::WORDS.into_iter().filter(move |(note, _)| self.contains(*note)).map(|(_, word)| word)
    }

    /// Both sets of bits.
    #[must_use]
    pub fn with(self, other: Notes) -> Notes {
        Notes(self.0 | other.0)
    }
}

/// An accepted task specification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Granted {
    /// Its name from here on.
    pub spec: SpecId,
    /// Needed to claim it after a reconnection.
    pub token: Token,
    /// Index of the plugin that serves it.
    pub plugin: u32,
    /// The CPU it is placed on; `None` for a whole domain.
    pub cpu: Option<u32>,
    /// Q^a: the accepted runtime; `None` when no runtime was declared.
    pub runtime: Option<Work>,
    /// What it costs.
    pub charge: Charge,
    /// The kernel priority it would get now; 0 for the deadline class.
    pub priority: u8,
    /// How the kernel enforces it.
    pub mechanism: Mechanism,
    /// How coarsely budgets are enforced.
    pub grain: Span,
    /// What the holder should know.
    pub notes: Notes,
}

/// Everything known of a spec.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpecInfo {
    /// What was granted. The token is zero unless the asker owns the spec.
    pub granted: Granted,
    /// What was asked.
    pub task: Task,
    /// The plugin's name.
    pub plugin_name: Name,
    /// User that created it.
    pub uid: u32,
    /// Process that created it, in the daemon's PID namespace.
    pub pid: u32,
    /// The attached thread, if any, in the daemon's PID namespace.
    pub tid: Option<u32>,
    /// What the thread has been given; `None` also while a thread sleeps that is to get it
    /// ([`But::Asleep`]).
    pub attr: Option<Attr>,
}

/// The daemon in numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Differs from one start of the daemon to the next.
    pub instance: u64,
    /// The daemon's process id.
    pub pid: u32,
    /// Nanoseconds since it started.
    pub uptime_ns: u64,
    /// Plugins loaded.
    pub plugins: u32,
    /// Connections now.
    pub sessions: u32,
    /// Specs now.
    pub specs: u32,
    /// Attached threads now.
    pub attached: u32,
    /// Requests served since start.
    pub requests: u64,
    /// Requests refused since start.
    pub refused: u64,
    /// Grants taken over from an earlier daemon.
    pub adopted: u32,
    /// Access rules in force.
    pub rules: u32,
    /// Times the daemon's loop has woken up, to show that it is not woken by its clients' periods.
    pub wakeups: u64,
}

/// One plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PluginInfo {
    /// Position in order of precedence.
    pub index: u32,
    /// Its name.
    pub name: Name,
    /// Its kind's word.
    pub kind: Name,
    /// Where it may place tasks.
    pub cpus: CpuSet,
    /// Its band, lowest and highest kernel priority; zeros for the deadline class.
    pub band: (u8, u8),
    /// Specs it serves.
    pub specs: u32,
    /// Whether it is out of service (a foreign plugin that failed).
    pub out_of_service: bool,
}

/// One plugin on one CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuInfo {
    /// The kernel's number of the CPU.
    pub cpu: u32,
    /// What this plugin could still give out there.
    pub free: Charge,
    /// What all plugins have given out there.
    pub used: Charge,
    /// Specs of this plugin there.
    pub specs: u32,
}

/// One connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionInfo {
    /// Its number.
    pub session: u64,
    /// The peer's process id.
    pub pid: u32,
    /// The peer's user id.
    pub uid: u32,
    /// Specs it holds.
    pub specs: u32,
}

impl Name {
    /// From text; `None` when it is empty, longer than 31 bytes, or contains a zero.
    pub fn new(text: &str) -> Option<Name> {
        let bytes = text.as_bytes();
        if bytes.is_empty() || bytes.len() > 31 || bytes.contains(&0) {
            return None;
        }
        let mut name = [0; 32];
        name[..bytes.len()].copy_from_slice(bytes);
        Some(Name(name))
    }

    /// As text; what is not UTF-8 reads as `?`.
    pub fn as_str(&self) -> &str {
        let end = self.0.iter().position(|&b| b == 0).unwrap_or(32);
        core::str::from_utf8(&self.0[..end]).unwrap_or("?")
    }
}

impl core::fmt::Debug for Name {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{:?}", self.as_str())
    }
}

impl core::fmt::Display for Name {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(self.as_str())
    }
}
