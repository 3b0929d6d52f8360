//! Protocol between `talead` and a `talea-plugin-host` over their sequenced-packet socket.
//!
//! Model: one [`HostSetup`] first, then requests, one at a time, each with one [`HostResponse`].
//! Messages are fixed structures in the native byte order: both ends are always built and run
//! together. The daemon does not trust the host: an invalid length, ticket, verdict or place ends
//! the plugin's service, never the daemon.

use crate::refusal::PLUGIN_TEXT_MAX;
use alloc::vec::Vec;
use talea_core::mutate;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Users of hosts when the daemon runs as root. The range lies outside those of accounts, of
/// subordinate users and of `DynamicUser=` (61184 to 65519), whose uids the service manager assigns
/// without a look at running processes.
///
/// Reference: systemd, `UIDS-GIDS.md`: 60706 to 61183 are unused.
pub const HOST_UIDS: core::ops::RangeInclusive<u32> = 60_706..=61_183;

/// Version of these structures; the host refuses any other version.
pub const HOST_VERSION: u32 = 3;
/// Maximum length of the module path and of the argument, in bytes.
pub const TEXT_MAX: usize = 4096;
/// Maximum length of a message to the host, in bytes.
pub const HOST_MESSAGE_MAX: usize = size_of::<HostSetup>() + 2 * TEXT_MAX;
/// Maximum number of new levels in one response.
pub const RANKS_MAX: usize = 256;
/// Maximum length of a response, in bytes.
pub const RESPONSE_MAX: usize = size_of::<HostResponse>() + RANKS_MAX * size_of::<HostRank>();

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
    /// Kernel class of the instance's threads: a [`class`].
    pub class: u32,
    /// Reserved, zero.
    pub reserved: u32,
    /// Share of a CPU that the kernel admits to the deadline class, in units of 2^-64; `u64::MAX`
    /// for a whole CPU or more.
    pub deadline_share: u64,
    /// Shortest period of the deadline class in nanoseconds.
    pub period_min_ns: u64,
    /// Longest period of the deadline class in nanoseconds.
    pub period_max_ns: u64,
}

/// Kernel classes in [`HostSetup::class`].
pub mod class {
    /// `SCHED_FIFO`.
    pub const FIFO: u32 = 1;
    /// `SCHED_RR`.
    pub const RR: u32 = 2;
    /// `SCHED_DEADLINE`.
    pub const DEADLINE: u32 = 3;
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
    /// `rank`, which also follows each notification: the rest of the new levels.
    Rank = 7,
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
            PluginFunction::Rank,
        ]
        .into_iter()
        .find(|&call| call as u32 == number)
    }
}

/// Flag in [`HostRequest::flags`]: accept the task even if a test fails.
pub const IGNORE_ADMISSION: u32 = 1;

/// Placement of a task, without its CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct HostPlace {
    /// CPU; -1 for all CPUs of the plugin.
    pub cpu: i32,
    /// Kernel priority; 0 in the deadline class.
    pub priority: i32,
    /// Granted runtime in nanoseconds; 0 if the task declares none.
    pub runtime_ns: u64,
    /// Deadline in nanoseconds, in the deadline class.
    pub deadline_ns: u64,
    /// Period in nanoseconds, in the deadline class.
    pub period_ns: u64,
}

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
    /// Reserved, zero.
    pub reserved: u32,
    /// Placement, for `schedule`.
    pub place: HostPlace,
    /// CPUs on which a placement would be accepted, for `accept` and `change`; CPUs of the
    /// placement, for `schedule`.
    pub cpus: [u64; 16],
    /// CPUs that the client prefers, for `accept` and `change`; empty without a preference.
    pub preferred: [u64; 16],
}

impl HostRequest {
    /// Request with only zeros.
    pub const ZERO: HostRequest = HostRequest {
        ticket: 0,
        spec: 0,
        period_ns: 0,
        runtime_ns: 0,
        desired_ns: 0,
        deadline_ns: 0,
        priority: 0,
        flags: 0,
        call: 0,
        reserved: 0,
        place: HostPlace { cpu: 0, priority: 0, runtime_ns: 0, deadline_ns: 0, period_ns: 0 },
        cpus: [0; 16],
        preferred: [0; 16],
    };
}

impl HostResponse {
    /// Response to a request without a result.
    pub const NOTHING: HostResponse = HostResponse {
        ticket: 0,
        verdict: 0,
        cpu: -1,
        priority: 0,
        ranks: 0,
        runtime_ns: 0,
        deadline_ns: 0,
        period_ns: 0,
        cpus: [0; 16],
        reason: [0; PLUGIN_TEXT_MAX],
    };
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
    /// Number of [`HostRank`]s that follow, at most [`RANKS_MAX`].
    pub ranks: u32,
    /// Granted runtime in nanoseconds; 0 for the runtime of the request.
    pub runtime_ns: u64,
    /// Chosen deadline in nanoseconds; 0 for the deadline of the request.
    pub deadline_ns: u64,
    /// Chosen period in nanoseconds; 0 for the period of the request.
    pub period_ns: u64,
    /// CPUs of the placement; empty for `cpu` alone.
    pub cpus: [u64; 16],
    /// Reason of a rejection, zero-terminated unless it has the full length.
    pub reason: [u8; PLUGIN_TEXT_MAX],
}

impl HostResponse {
    /// Returns the response and the new levels of a message; `None` if the message has a wrong
    /// length or a wrong number of levels.
    pub fn read_message(message: &[u8]) -> Option<(HostResponse, Vec<HostRank>)> {
        let (response, rest) = HostResponse::read_from_prefix(message).ok()?;
        let (ranks, rest) = rest.as_chunks::<{ size_of::<HostRank>() }>();
        let is_whole = rest.is_empty()
            && ranks.len() <= RANKS_MAX
            && mutate!("proto-host-ranks", response.ranks as usize == ranks.len(), true);
        let ranks: Option<Vec<HostRank>> =
            ranks.iter().map(|rank| HostRank::read_from_bytes(rank).ok()).collect();
        ranks.filter(|_| is_whole).map(|ranks| (response, ranks))
    }
}

/// New level of a task that the plugin holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct HostRank {
    /// Id of the spec.
    pub spec: u64,
    /// New kernel priority.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_has_as_many_levels_as_it_says() {
        let rank = HostRank { spec: 3, priority: 9, reserved: 0 };
        for (said, stored) in [(0, 0), (2, 2), (RANKS_MAX, RANKS_MAX), (0, 1), (2, 1), (257, 257)] {
            let response = HostResponse { ranks: said as u32, ..HostResponse::NOTHING };
            let mut message = response.as_bytes().to_vec();
            for _ in 0..stored {
                message.extend_from_slice(rank.as_bytes());
            }
            let read = HostResponse::read_message(&message);
            let expected = (said == stored && said <= RANKS_MAX)
                .then(|| (response, alloc::vec![rank; stored]));
            assert_eq!(read, expected, "{said} {stored}");
            message.push(0);
            assert_eq!(HostResponse::read_message(&message), None);
        }
    }
}
