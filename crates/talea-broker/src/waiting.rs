//! Requests that wait until the kernel no longer counts the bandwidth of ended grants.
//!
//! The kernel counts a deadline thread that has left for up to one period (R36, `zero_lag` in
//! threads.rs). A request that fits without such holds is therefore not refused at once.
//!
//! | a plugin rejects the task and would serve it | next state |
//! | --- | --- |
//! | without the holds that end within [`MAX_WAIT`] | *waiting*, evaluated again at each end |
//! | without all holds | rejected; the rejection has the delay (`Witness::Held`) |
//! | in neither case | rejected |
//!
//! A waiting request reserves nothing, except the earlier tasks of its group, and delays no other
//! request. An explanation waits like the request itself, so both give the same answer.
//!
//! An attach to which the kernel answers EBUSY although the ledger has room waits in the same way:
//! a deadline thread without a grant may have ended a moment ago. Such an attach keeps its
//! reservation and is repeated every [`KERNEL_RETRY`].

mod holds;

use crate::admission::{AdmissionRequest, RequestKind};
use talea_core::{Monotonic, Span};

/// Maximum time that a request waits for zero-lag holds.
const MAX_WAIT: Span = Span::from_ns(1_000_000_000);
/// Delay between two attempts of an attach that the kernel's admission test refuses.
const KERNEL_RETRY: Span = Span::from_ns(10_000_000);

/// Request that waits for the end of a zero-lag hold.
#[derive(Debug)]
pub(crate) struct WaitingRequest {
    at: Monotonic,
    request: Box<AdmissionRequest>,
}

impl WaitingRequest {
    /// Whether the request holds the handle of a thread.
    pub(crate) fn names_thread(&self) -> bool {
        matches!(self.request.kind, RequestKind::Replace { .. })
    }
}
