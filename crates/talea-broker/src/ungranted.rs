//! Real-time threads without a grant, for example of other programs or of an administrator.
//!
//! The kernel counts their deadline bandwidth in its admission test, and a deadline thread outranks
//! every FIFO thread. The ledger therefore charges each of them like a claim without an end; a
//! request that does not fit beside them is refused, and not by the kernel at attach. A FIFO or RR
//! thread has no declared demand, so the broker only notes it ([`Notes::UNGRANTED_ABOVE`]).
//!
//! Model: the driver passes all real-time threads of user space before a request for which they
//! matter ([`crate::Input::RealTimeThreads`]). The broker ignores the attached ones.
//!
//! [`Notes::UNGRANTED_ABOVE`]: talea_proto::message::Notes::UNGRANTED_ABOVE

mod claims;

use talea_core::{CpuSet, Policy};

/// A real-time thread of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RealTimeThread {
    /// Thread id in the daemon's PID namespace.
    pub tid: u32,
    /// CPUs that the thread may use.
    pub cpus: CpuSet,
    /// Policy of the thread.
    pub policy: Policy,
}
