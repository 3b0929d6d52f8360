//! Refusals with the numbers that show which request would succeed.
//!
//! A refusal is flat: one code, the field concerned, the requested value and the limit. Therefore
//! the same value can be sent over the wire, written to the log, converted to C and printed as a
//! sentence.

pub mod remedies;
mod stable_names;
mod text;

use crate::name::Name;
use crate::notes::Notes;
use alloc::string::String;
use alloc::vec::Vec;
use talea_core::cpus::MAX_CPUS;
use talea_core::mutate;
use talea_core::{Charge, CpuSet, Span, Work};

/// Reason for the refusal of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Code {
    /// No access rule allows this request for this client (ReTiF 4.1, requirement 1).
    NotAllowed = 1,
    /// The request exceeds the bound of an access rule; `rule` names the rule.
    RuleBound = 2,
    /// An access rule bounds a parameter that the request omits, so the plugin could not enforce
    /// the bound (R22).
    RuleOmission = 3,
    /// No plugin can serve the request; `answers` has the answer of each plugin.
    NoPlugin = 4,
    /// The named plugin does not exist.
    UnknownPlugin = 5,
    /// No such spec exists, or it is not visible to this client.
    NoSuchSpec = 6,
    /// The spec belongs to another user or connection.
    NotOwner = 7,
    /// The thread does not exist (any more).
    NoSuchThread = 8,
    /// The thread belongs to another user.
    ForeignThread = 9,
    /// The thread is attached to another spec already.
    ThreadTaken = 10,
    /// The spec has a thread already; detach it first.
    SpecTaken = 11,
    /// The spec has no thread.
    NotAttached = 12,
    /// The kernel refused the operation; `errno` is its error number.
    Kernel = 13,
    /// A quota is exhausted: `limit` is its size, `asked` the usage that the request would need.
    Quota = 14,
    /// The request is invalid; `field` names the part.
    Malformed = 15,
    /// The client and the daemon have no common protocol version.
    Version = 16,
    /// The token is wrong.
    BadToken = 17,
    /// The request is reserved for the superuser.
    NotRoot = 18,
    /// The thread id is not accepted: thread ids are valid only in the daemon's PID namespace, and
    /// a thread declared as the client's own must belong to the client's process. A pidfd is always
    /// accepted.
    TidNotAccepted = 19,
    /// The daemon is stopping.
    Stopping = 20,
    /// Another operation on this spec is in progress.
    Busy = 21,
    /// The daemon has no room in its state file for the record of the spec: the next daemon would
    /// not know the grant. `errno` is the error number of the kernel.
    NotRecorded = 22,
    /// Threads of the user have left ordinary threads no time on a CPU of the spec: the user's next
    /// attach there must wait. `limit` is the time that is left, in nanoseconds.
    Starvation = 23,
    /// The connection may not act for this user: only a front end of the configuration may act for
    /// users other than the superuser.
    NotFrontEnd = 24,
}

/// Part of a request that an answer refers to; it determines the unit of `asked`, `limit` and
/// `fits`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u16)]
pub enum Field {
    /// The request as a whole.
    #[default]
    Request = 0,
    /// Period T, nanoseconds.
    Period = 1,
    /// Runtime Q, nanoseconds.
    Runtime = 2,
    /// Desired runtime Q^d, nanoseconds.
    Desired = 3,
    /// Deadline D, nanoseconds.
    Deadline = 4,
    /// Priority P, 1..=99.
    Priority = 5,
    /// Utilization, millionths of a CPU.
    Utilization = 6,
    /// The ignore-admission flag.
    IgnoreAdmission = 7,
    /// The plugin name.
    Plugin = 8,
    /// The CPU set.
    Cpus = 9,
    /// Number of specs.
    Specs = 10,
    /// Number of connections.
    Sessions = 11,
    /// The owner.
    Owner = 12,
    /// The thread.
    Thread = 13,
    /// The number of priority levels.
    Levels = 14,
    /// The number of tasks in a group.
    Group = 15,
    /// The message's length or operation.
    Message = 16,
    /// Nice value n as 20 − n, 1 to 40: a larger number is more favoured, as in RLIMIT_NICE.
    Nice = 17,
}

/// A refusal with its numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Reason for the refusal.
    pub code: Code,
    /// Field concerned; determines the unit of `asked` and `limit`.
    pub field: Field,
    /// Requested value.
    pub asked: u64,
    /// Limit that the request exceeds or falls below.
    pub limit: u64,
    /// Error number of the kernel, with [`Code::Kernel`] and [`Code::NotRecorded`]; otherwise 0.
    pub errno: i32,
    /// Index of the task in a group; otherwise 0.
    pub index: u32,
    /// Location of the access rule, such as `talead.toml:12`.
    pub rule: Option<String>,
    /// Answers of the plugins, if they were asked and none serves the request; otherwise empty.
    pub answers: Vec<PluginAnswer>,
}

/// Answer of one plugin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PluginAnswer {
    /// Index of the plugin in order of precedence.
    pub plugin: u32,
    /// Name of the plugin.
    pub name: Name,
    /// Verdict of the plugin.
    pub verdict: PluginVerdict,
    /// Reason in the words of a plugin from outside; empty if there is none.
    pub text: PluginText,
}

/// Maximum length of the text of a plugin from outside, in bytes.
pub const PLUGIN_TEXT_MAX: usize = 96;

/// Text of a plugin from outside: printable ASCII, at most [`PLUGIN_TEXT_MAX`] bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PluginText([u8; PLUGIN_TEXT_MAX]);

impl PluginText {
    /// The empty text.
    pub const NONE: PluginText = PluginText([0; PLUGIN_TEXT_MAX]);

    /// Returns the text of these bytes up to the first zero. A byte that is not printable ASCII
    /// becomes a question mark, so that the text can be logged and shown anywhere.
    pub fn from_untrusted(bytes: &[u8; PLUGIN_TEXT_MAX]) -> PluginText {
        let mut text = [0; PLUGIN_TEXT_MAX];
        for (to, &byte) in text.iter_mut().zip(bytes.iter().take_while(|&&byte| byte != 0)) {
            let printable = mutate!("proto-plugin-text", is_printable(byte), true);
            *to = if printable { byte } else { b'?' };
        }
        PluginText(text)
    }

    /// Returns the text of these bytes; `None` if they are not zero-padded printable ASCII.
    pub(crate) fn from_wire(bytes: [u8; PLUGIN_TEXT_MAX]) -> Option<PluginText> {
        (PluginText::from_untrusted(&bytes).0 == bytes).then_some(PluginText(bytes))
    }

    /// Returns the bytes, zero-padded.
    pub fn bytes(&self) -> &[u8; PLUGIN_TEXT_MAX] {
        &self.0
    }

    /// Returns the text.
    pub fn as_str(&self) -> &str {
        let end = self.0.iter().position(|&byte| byte == 0).unwrap_or(PLUGIN_TEXT_MAX);
        str::from_utf8(&self.0[..end]).unwrap_or("")
    }
}

impl Default for PluginText {
    fn default() -> PluginText {
        PluginText::NONE
    }
}

impl core::fmt::Debug for PluginText {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.as_str().fmt(f)
    }
}

fn is_printable(byte: u8) -> bool {
    matches!(byte, b' '..=b'~')
}

/// Verdict of a plugin, for users and programs outside the broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PluginVerdict {
    /// The plugin can serve the request in full.
    Ok {
        /// CPU of the placement; `None` for all CPUs of the plugin.
        cpu: Option<u32>,
        /// Charge of the task.
        charge: Charge,
        /// Remarks for the holder.
        notes: Notes,
    },
    /// The plugin can serve the request in part.
    Partial {
        /// CPU of the placement; `None` for all CPUs of the plugin.
        cpu: Option<u32>,
        /// Charge of the task.
        charge: Charge,
        /// Remarks for the holder.
        notes: Notes,
    },
    /// The plugin cannot serve the request.
    No(Rejection),
    /// The plugin was not asked, because an access rule denies it to this client.
    Denied {
        /// `NotAllowed`, `RuleBound` or `RuleOmission`.
        code: Code,
        /// Field concerned; determines the unit of `asked` and `limit`.
        field: Field,
        /// Requested value.
        asked: u64,
        /// Bound of the rule.
        limit: u64,
    },
}

/// Rejection by a plugin, with the value that would fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// Reason for the rejection.
    pub reason: RejectionReason,
    /// Field concerned; determines the unit of `asked`, `limit` and `fits`.
    pub field: Field,
    /// CPU on which the request is closest to fitting.
    pub cpu: Option<u32>,
    /// Requested value.
    pub asked: u64,
    /// Limit of the plugin.
    pub limit: u64,
    /// Value that would fit, in the unit of `field`; 0 if no such value is known.
    pub fits: u64,
    /// Witness, if there is one.
    pub witness: Option<Witness>,
}

/// Witness of a rejection: a possible deadline miss that can be checked manually, or the zero-lag
/// holds that prevent the grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Witness {
    /// Under fixed priorities: a task released together with all tasks of equal or higher priority
    /// would complete after its deadline.
    DeadlineMiss {
        /// Whether the task is that of the request; otherwise it is an already accepted task.
        own: bool,
        /// Period of the task.
        period: Span,
        /// Deadline of the task, relative to its release.
        deadline: Span,
        /// Response time of the task; `None` if it grows without bound.
        response: Option<Span>,
    },
    /// Under earliest deadline first: the demand within a window would exceed the supply.
    Demand {
        /// Length of the window, which begins with the simultaneous release of all tasks.
        at: Span,
        /// Demand within the window.
        demand: Work,
        /// Supply within the window.
        supply: Work,
    },
    /// The request fits when the zero-lag holds of ended grants are over.
    Held {
        /// Time until then.
        free_in: Span,
    },
}

/// Reason for a rejection by a plugin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum RejectionReason {
    /// A mandatory parameter is missing.
    Missing = 1,
    /// A parameter is outside the range of the kernel or the plugin.
    OutOfRange = 2,
    /// Parameters contradict each other (Q > D, Q^d < Q, D > T where that is not served).
    Contradiction = 3,
    /// The admission test fails on every CPU.
    NoRoom = 4,
    /// None of the plugin's CPUs is acceptable.
    NoCpu = 5,
    /// Every priority level is taken and sharing is switched off.
    NoLevel = 6,
    /// The task would break guarantees of another plugin.
    WouldBreakOthers = 7,
    /// This machine lacks a feature that the plugin needs (the daemon's log names it).
    Unsupported = 8,
    /// The plugin is out of service.
    OutOfService = 9,
    /// A foreign plugin rejected the task and gave no reason.
    Foreign = 10,
    /// The thread may use none of the plugin's CPUs, or not the whole root domain that a deadline
    /// thread needs. `limit` has the thread's CPUs, see [`Rejection::outside_mask`].
    OutsideMask = 11,
    /// The thread's control group has no real-time runtime.
    NoRealTimeGroup = 12,
    /// The thread's RLIMIT_RTTIME (`limit`) is zero, or less than the runtime (`asked`; 0 if none
    /// is declared): the kernel would kill its process.
    TimeLimit = 13,
    /// The admission test fails on every CPU, because of deadline threads without a grant.
    NoRoomBesideUngranted = 14,
    /// An executor has reserved the CPUs: `asked` is its process, `limit` the first of its CPUs.
    Reserved = 15,
    /// The plugin's CPUs are off-line: `limit` is the first of them.
    Offline = 16,
}

impl Rejection {
    /// Returns the rejection for a thread that may use only the CPUs of `mask`. The numbers contain
    /// the mask as far as it fits: `asked` is the first of its CPUs, divided by 64, `limit` has a
    /// bit for each CPU of that block of 64, and `fits` is the number of all its CPUs.
    pub fn outside_mask(mask: &CpuSet) -> Rejection {
        let block = mask.iter().next().unwrap_or(0) / 64;
        Rejection {
            reason: RejectionReason::OutsideMask,
            field: Field::Cpus,
            cpu: None,
            asked: block.into(),
            limit: mask.words()[block as usize],
            fits: mask.len().into(),
            witness: None,
        }
    }

    /// Returns the first CPUs of the mask of [`Rejection::outside_mask`], and the number of those
    /// that are missing; `None` for any other rejection.
    pub fn mask(&self) -> Option<(CpuSet, u64)> {
        let block = usize::try_from(self.asked).ok().filter(|&block| block < MAX_CPUS / 64)?;
        let mut words = [0; MAX_CPUS / 64];
        words[block] = self.limit;
        let cpus = CpuSet::from_words(words);
        (self.reason == RejectionReason::OutsideMask)
            .then(|| (cpus, self.fits.saturating_sub(cpus.len().into())))
    }
}
