//! Protocol between `talead` and a `talea-plugin-host` over their sequenced-packet socket.
//!
//! Model: one [`HostSetup`] first, then requests, one at a time, each with one [`HostResponse`].
//! Messages are fixed structures in the native byte order: both ends are always built and run
//! together. The daemon does not trust the host: an invalid length, ticket, verdict or place ends
//! the plugin's service, never the daemon.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Users of hosts when the daemon runs as root. The range lies outside those of accounts, of
/// subordinate users and of `DynamicUser=` (61184 to 65519), whose uids the service manager assigns
/// without a look at running processes.
///
/// Reference: systemd, `UIDS-GIDS.md`: 60706 to 61183 are unused.
pub const HOST_UIDS: core::ops::RangeInclusive<u32> = 60_706..=61_183;

/// Version of these structures; the host refuses any other version.
pub const HOST_VERSION: u32 = 2;
/// Maximum length of the module path and of the argument, in bytes.
pub const TEXT_MAX: usize = 4096;
/// Maximum length of a message, in bytes.
pub const HOST_MESSAGE_MAX: usize = size_of::<HostSetup>() + 2 * TEXT_MAX;

/// First message to the host: the module to load. The daemon passes the host's standard error with
/// it to a host that a service manager has started. The module's path and the argument follow it,
/// without terminators.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct HostSetup {
    /// Version of the structures: [`HOST_VERSION`].
    pub version: u32,
    /// Lowest kernel priority of the instance.
    pub priority_low: i32,
    /// Highest kernel priority of the instance.
    pub priority_high: i32,
    /// Length of the module's path.
    pub module_len: u16,
    /// Length of the argument.
    pub argument_len: u16,
    /// CPUs on which the instance may place tasks.
    pub cpus: [u64; 16],
    /// Name of the instance, zero-terminated.
    pub name: [u8; 32],
}

/// Function of ReTiF's Table 4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum PluginFunction {
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

impl PluginFunction {
    /// Returns the function with this number, if there is one.
    pub fn from_number(number: u32) -> Option<PluginFunction> {
        [
            PluginFunction::Accept,
            PluginFunction::Change,
            PluginFunction::Schedule,
            PluginFunction::Release,
            PluginFunction::Attach,
            PluginFunction::Detach,
        ]
        .into_iter()
        .find(|&call| call as u32 == number)
    }
}

/// Flag in [`HostRequest::flags`]: accept the task even if a test fails.
pub const IGNORE_ADMISSION: u32 = 1;

/// One call of a plugin function. Fields that the function does not use are zero, and so are
/// parameters that the task does not declare.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct HostRequest {
    /// Number of the request; repeated in the response.
    pub ticket: u64,
    /// Id of the spec; with `change`, of the spec that would be replaced.
    pub spec: u64,
    /// Period T in nanoseconds.
    pub period_ns: u64,
    /// Runtime Q in nanoseconds.
    pub runtime_ns: u64,
    /// Desired runtime Q^d in nanoseconds.
    pub desired_ns: u64,
    /// Deadline D in nanoseconds.
    pub deadline_ns: u64,
    /// Priority P, from 1 (lowest) to 99 (highest).
    pub priority: u32,
    /// Flags: [`IGNORE_ADMISSION`].
    pub flags: u32,
    /// Number of the [`PluginFunction`].
    pub call: u32,
    /// CPU of the placement, for `schedule`.
    pub place_cpu: i32,
    /// Kernel priority of the placement, for `schedule`.
    pub place_priority: i32,
    /// Reserved, zero.
    pub reserved: u32,
    /// CPUs on which a placement would be accepted, for `accept` and `change`.
    pub cpus: [u64; 16],
}

/// Result of a call. The response to [`HostSetup`] (`ticket` 0) has the result of `init`, or a
/// [`failure`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct HostResponse {
    /// Number of the request.
    pub ticket: u64,
    /// Return value of the function; 0 for functions without one.
    pub verdict: i32,
    /// CPU of the placement.
    pub cpu: i32,
    /// Kernel priority of the placement.
    pub priority: i32,
    /// Reserved, zero.
    pub reserved: u32,
}

/// Verdicts on [`HostSetup`] that come from the host itself; the host writes the reason to its
/// standard error. The values are outside the range that an `init` would return.
pub mod failure {
    /// The module could not be loaded, or has no usable `talea_plugin_entry`.
    pub const LOAD: i32 = i32::MIN;
    /// The capabilities could not be dropped; no module was loaded.
    pub const SANDBOX: i32 = i32::MIN + 1;
}
