//! "No", with the numbers that teach what would have worked.
//!
//! Flat on purpose: one code, the field it is about, what was asked and where the bound lies, so
//! that the same value travels over the wire, into a log line, into C and into a sentence.

mod text;
mod words;

use crate::message::{Name, Notes};
use alloc::string::String;
use alloc::vec::Vec;
use talea_core::{Charge, Span, Work};

/// Why a request was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Code {
    /// No access rule lets this client ask for this (ReTiF 4.1, requirement 1).
    NotAllowed = 1,
    /// An access rule's bound is exceeded; `rule` names it.
    RuleBound = 2,
    /// A rule bounds something that the request leaves out and the plugin could not hold (checklist
    /// R22).
    RuleOmission = 3,
    /// No plugin can serve the request; `answers` says what each said.
    NoPlugin = 4,
    /// The named plugin does not exist.
    UnknownPlugin = 5,
    /// There is no such spec, or it is not visible to this client.
    NoSuchSpec = 6,
    /// The spec belongs to another user or connection.
    NotYours = 7,
    /// The thread does not exist (any more).
    NoSuchThread = 8,
    /// The thread belongs to another user.
    OthersThread = 9,
    /// The thread is attached to another spec already.
    ThreadTaken = 10,
    /// The spec has a thread already; detach it first.
    SpecTaken = 11,
    /// The spec has no thread.
    NotAttached = 12,
    /// The kernel refused; `errno` says how.
    Kernel = 13,
    /// A quota is exhausted: `limit` is its size, `asked` what is held.
    Quota = 14,
    /// The request makes no sense; `field` names the part.
    Malformed = 15,
    /// No common protocol version.
    Version = 16,
    /// The token is wrong.
    BadToken = 17,
    /// Only root may ask this.
    NotRoot = 18,
    /// A thread id is only understood from the daemon's own PID namespace, and one that is said to
    /// be the client's own only of its process; pass a pidfd.
    BareTid = 19,
    /// The daemon is stopping.
    Stopping = 20,
    /// An operation on this spec is still under way.
    Busy = 21,
}

/// The part of a request that an answer is about; it also fixes the unit of `asked`, `limit` and
/// `fits`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u16)]
pub enum Field {
    /// The request as a whole.
    #[default]
    Request = 0,
    /// T, nanoseconds.
    Period = 1,
    /// Q, nanoseconds.
    Runtime = 2,
    /// Q^d, nanoseconds.
    Desired = 3,
    /// D, nanoseconds.
    Deadline = 4,
    /// P, 1..=99.
    Priority = 5,
    /// Utilisation, millionths of a CPU.
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
}

/// A refusal with its numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Why.
    pub code: Code,
    /// About what; fixes the unit of the numbers.
    pub field: Field,
    /// What was asked for.
    pub asked: u64,
    /// The bound that it met.
    pub limit: u64,
    /// The kernel's error number, with [`Code::Kernel`]; else 0.
    pub errno: i32,
    /// Which task of a group; 0 otherwise.
    pub index: u32,
    /// The access rule: where it was written, such as `talead.toml:12`.
    pub rule: Option<String>,
    /// What each plugin said, with [`Code::NoPlugin`].
    pub answers: Vec<Answer>,
}

/// What one plugin said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Its index in order of precedence.
    pub plugin: u32,
    /// Its name.
    pub name: Name,
    /// What it said.
    pub verdict: Said,
}

/// A plugin's word, for people and programs outside the broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said {
    /// It can serve the request in full.
    Ok {
        /// Where.
        cpu: Option<u32>,
        /// At what cost.
        charge: Charge,
        /// What to know.
        notes: Notes,
    },
    /// It can serve the request in part.
    Partial {
        /// Where.
        cpu: Option<u32>,
        /// At what cost.
        charge: Charge,
        /// What to know.
        notes: Notes,
    },
    /// It can't.
    No(No),
    /// It was not asked: an access rule keeps this client from it (code and field of the denial).
    Denied {
        /// `NotAllowed`, `RuleBound` or `RuleOmission`.
        code: Code,
        /// About what.
        field: Field,
        /// What was asked for.
        asked: u64,
        /// The rule's bound.
        limit: u64,
    },
}

/// A plugin's "no" and what would have fitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct No {
    /// Why.
    pub reason: Reason,
    /// About what; fixes the unit of the numbers.
    pub field: Field,
    /// The CPU where the request came closest to fitting.
    pub cpu: Option<u32>,
    /// What was asked for.
    pub asked: u64,
    /// Where the bound lies.
    pub limit: u64,
    /// What would have fitted instead, in the unit of `field`; 0 when nothing is known that would.
    pub fits: u64,
    /// Why it does not fit, where an exact test said so.
    pub witness: Option<Witness>,
}

/// Why a deadline could be missed, as a fact that can be checked by hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Witness {
    /// Under fixed priorities: released together with all that is as urgent or more, a task would
    /// end too late.
    Late {
        /// Whether it is the task of the request; else it is one that is served already.
        own: bool,
        /// Its period.
        period: Span,
        /// Its deadline, which counts from its release.
        deadline: Span,
        /// When it would end, counted likewise; `None` if that grows without bound.
        response: Option<Span>,
    },
    /// Under earliest deadline first: too much would be due within a window.
    Demand {
        /// Length of the window; all tasks are released at its beginning.
        at: Span,
        /// What is due within it.
        demand: Work,
        /// What there is within it.
        supply: Work,
    },
}

/// The kinds of "no" that plugins give.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Reason {
    /// A mandatory parameter is missing.
    Missing = 1,
    /// A parameter is outside what the kernel or the plugin can do.
    OutOfRange = 2,
    /// Parameters contradict each other (Q > D, Q^d < Q, D > T where that is not served).
    Contradiction = 3,
    /// The admission test fails on every CPU.
    NoRoom = 4,
    /// None of the plugin's CPUs is acceptable.
    NoCpu = 5,
    /// Every priority level is taken and sharing is switched off.
    NoLevel = 6,
    /// Guarantees given by another plugin would be broken.
    WouldBreakOthers = 7,
    /// This machine can't do what the plugin needs (the daemon's log says what).
    Unsupported = 8,
    /// The plugin is out of service.
    OutOfService = 9,
    /// A foreign plugin said no, without a reason that we know.
    Foreign = 10,
}
