//! Effects that the kernel defers, and restores with a restriction.
//!
//! *Sleep in another root domain.* The kernel admits a thread to the deadline class only in the
//! root domain where it is. A sleeping thread stays there until it wakes, whatever its affinity is.
//! The driver sets its CPUs, so the thread is in the right domain when it wakes. The daemon cannot
//! wake it, and the thread may be waiting for the reply to this very request.
//!
//! | operation | kernel's result | next state |
//! | --- | --- | --- |
//! | *attaching* | asleep elsewhere | *idle*, reply `Caveat::PendingWakeup`, retry armed |
//! | *idle* | asleep elsewhere | *idle*, retry armed with doubled delay |
//! | *idle* | accepted or refused | *idle*, the spec reports attributes again |
//! | *changing* | asleep elsewhere | *idle*, reply with [`Notes::PENDING_WAKEUP`], retry armed |
//!
//! A request is therefore answered at once, and the ledger has its reservation. A thread that has
//! attributes of old terms when its change is answered loses them: the driver makes it an ordinary
//! thread, as a detach does. The new terms do not cover the old policy on the new CPUs.
//!
//! *Overrun.* A thread that has overrun its last deadline budget must not enter the class before
//! the overrun is compensated.
//!
//! | operation | kernel's result | next state |
//! | --- | --- | --- |
//! | *attaching* | asleep elsewhere | *idle*, reply `Caveat::PendingWakeup`, retry armed |
//! | *changing* | not before a time within [`MAX_DEFER`] | rolled back, *deferred change* |
//! | *deferred change* | the time is reached | evaluated like a new request |
//! | *idle* | not before a time within [`MAX_DEFER`] | *idle*, retry armed |
//! | *attaching*, *changing* | not before a later time | refused with EAGAIN |
//!
//! A deferred attach keeps its reservation. A deferred change reserves nothing for its new terms,
//! so other clients can use the capacity.
//!
//! Bound: the retry delay of a sleeping thread doubles up to [`MAX_RETRY_NS`]. The retries for all
//! sleeping threads of one user are at least about [`RETRY_SPACING_NS`] apart.

mod changes;

use crate::spec::ReplyTo;
use talea_core::{Monotonic, Span};
use talea_proto::{SpecId, Task};

/// Maximum time that a request waits for the end of a thread's overrun.
pub(crate) const MAX_DEFER: Span = Span::from_ns(500_000_000);
/// Delay of the first retry for a sleeping thread, in nanoseconds: most threads wait for the reply.
const FIRST_RETRY_NS: u64 = 1_000_000;
/// Maximum delay between retries, in nanoseconds.
const MAX_RETRY_NS: u64 = 1_000_000_000;
/// Minimum average distance between retries for the threads of one user, in nanoseconds.
const RETRY_SPACING_NS: u64 = 10_000_000;

/// Change that waits for the end of its thread's overrun.
#[derive(Debug)]
pub(crate) struct DeferredChange {
    at: Monotonic,
    reply_to: ReplyTo,
    spec: SpecId,
    task: Task,
}
