//! What `talead` and a `talea-plugin-host` say to each other over their socketpair.
//!
//! Model: one [`Setup`] first, then questions, one at a time, each with one [`Answer`]. Messages
//! are fixed structures in the machine's own byte order: both ends are always built and run
//! together. The daemon treats what comes back as a stranger's word: a length, ticket, verdict or
//! place that makes no sense means the end of the plugin, never an assertion.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The version of these structures; the host refuses another.
pub const HOST_VERSION: u32 = 1;
/// Longest module path and longest argument, in bytes.
pub const TEXT_MAX: usize = 4096;
/// No message between the two is longer.
pub const HOST_MESSAGE_MAX: usize = size_of::<Setup>() + 2 * TEXT_MAX;

/// First message to the host: what to load. The module's path and the argument follow it, without
/// terminators.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Setup {
    /// [`HOST_VERSION`].
    pub version: u32,
    /// Least urgent kernel priority of the instance.
    pub priority_low: i32,
    /// Most urgent one.
    pub priority_high: i32,
    /// Length of the module's path.
    pub module_len: u16,
    /// Length of the argument.
    pub argument_len: u16,
    /// Where the instance may place tasks.
    pub cpus: [u64; 16],
    /// Its name, zero-terminated.
    pub name: [u8; 32],
}

/// Which function of Table 4 is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Call {
    /// `accept`.
    Accept = 1,
    /// `change`.
    Change = 2,
    /// `schedule`.
    Schedule = 3,
    /// `release`.
    Release = 4,
    /// `attach`.
    Attach = 5,
    /// `detach`.
    Detach = 6,
}

impl Call {
    /// From its number.
    pub fn from_number(number: u32) -> Option<Call> {
        [Call::Accept, Call::Change, Call::Schedule, Call::Release, Call::Attach, Call::Detach]
            .into_iter()
            .find(|&call| call as u32 == number)
    }
}

/// The flag of [`Question::flags`] that says: take the task although a test fails.
pub const IGNORE_ADMISSION: u32 = 1;

/// One call. Fields that a call has no use for are zero, as is what a task does not declare.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Question {
    /// Comes back in the answer.
    pub ticket: u64,
    /// The task's id; with `change`, the one that would be replaced.
    pub spec: u64,
    /// T in nanoseconds.
    pub period_ns: u64,
    /// Q in nanoseconds.
    pub runtime_ns: u64,
    /// Q^d in nanoseconds.
    pub desired_ns: u64,
    /// D in nanoseconds.
    pub deadline_ns: u64,
    /// P, 1..=99.
    pub priority: u32,
    /// [`IGNORE_ADMISSION`].
    pub flags: u32,
    /// A [`Call`].
    pub call: u32,
    /// With `schedule`: where.
    pub place_cpu: i32,
    /// With `schedule`: at which kernel priority.
    pub place_priority: i32,
    /// Zero.
    pub reserved: u32,
    /// With `accept` and `change`: where an answer would be accepted.
    pub cpus: [u64; 16],
}

/// What a call returned. To [`Setup`] (`ticket` 0) the verdict is that of `init`, or a [`failure`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Answer {
    /// Of the question.
    pub ticket: u64,
    /// What the function returned; 0 for those that return nothing.
    pub verdict: i32,
    /// Where.
    pub cpu: i32,
    /// At which kernel priority.
    pub priority: i32,
    /// Zero.
    pub reserved: u32,
}

/// Verdicts on [`Setup`] that come from the host itself; the reason is on its stderr. They lie
/// outside what an `init` would choose.
pub mod failure {
    /// The object could not be loaded, or has no usable `talea_plugin_entry`.
    pub const LOAD: i32 = i32::MIN;
    /// The rights could not be dropped; nothing was loaded.
    pub const SANDBOX: i32 = i32::MIN + 1;
}
