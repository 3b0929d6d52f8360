//! Accepted task specifications and their state between reserve, apply and confirm.
//!
//! Invariants.
//!
//! 1. A spec with a [`PendingOp`] other than [`PendingOp::Idle`] has a thread. The result of the
//!    effect with this thread's ticket completes or continues the operation, unless a retry is
//!    armed.
//! 2. A thread keeps the attributes to restore until the kernel has confirmed the restore.
//!
//! | operation | started by | kernel accepts | kernel refuses |
//! | --- | --- | --- | --- |
//! | *attaching* | attach | *idle*, thread attached | *restoring* (attach failed) |
//! | *changing* | change | *idle*, new terms | *idle*, old terms |
//! | *restoring* | detach (also forced), release, no owner | *idle*, or spec ends | `restore.rs` |

use crate::input::{Errno, Limit, ProcessId, SessionId, ThreadId, Ticket, Uids};
use crate::plugin::Offer;
use crate::subjects::Subject;
use crate::trail::EndCause;
use talea_core::{Attr, Monotonic};
use talea_proto::message::{Caveat, DetachCause, SpecId, Task, Token};
use talea_proto::{Owner, Refusal};

/// An accepted task specification.
#[derive(Debug)]
pub(crate) struct Spec {
    /// Id; zero while the spec is reserved for an incomplete group.
    pub(crate) id: SpecId,
    /// Secret required for claims.
    pub(crate) token: Token,
    /// User that created the spec.
    pub(crate) uid: u32,
    /// Subject that the spec is charged to.
    pub(crate) subject: Subject,
    /// Conditions of the end of the spec.
    pub(crate) lifetime: Lifetime,
    /// Client whose rules count the spec.
    pub(crate) client: u32,
    /// Connection that the spec is bound to, and the spec's position in its list.
    pub(crate) session: Option<(SessionId, u32)>,
    /// The request.
    pub(crate) task: Task,
    /// Whether the spec is in the ledger. An adopted spec without its plugin only waits until its
    /// thread is restored.
    pub(crate) in_ledger: bool,
    /// Index of the plugin that serves the spec.
    pub(crate) plugin: u32,
    /// Terms of the grant.
    pub(crate) offer: Offer,
    /// Reason why the daemon has detached the last thread, if no other is attached since.
    pub(crate) detached: Option<DetachCause>,
    /// Attached thread.
    pub(crate) thread: Option<Box<Attached>>,
    /// Time until which the kernel still counts the bandwidth of a thread that has left the spec
    /// (R36); in the past if there is none.
    pub(crate) zero_lag_until: Monotonic,
    /// Operation in progress.
    pub(crate) step: PendingOp,
}

/// Conditions of the end of a spec.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lifetime {
    /// Process whose exit may end the spec.
    pub(crate) process: ProcessId,
    /// Whether that process is watched for this spec.
    pub(crate) process_watched: bool,
    /// Whether that process has exited.
    pub(crate) process_exited: bool,
    /// Whether the spec was adopted and not claimed yet: then it exists as long as its process.
    pub(crate) unclaimed: bool,
    /// End of the time for a claim, once the process has connected again.
    pub(crate) claim_until: Option<Monotonic>,
    /// Whether the owner has ended, regardless of other conditions.
    pub(crate) disowned: bool,
    /// User whose request ends the spec.
    pub(crate) released_by: Option<u32>,
}

impl Lifetime {
    /// Returns the state of a spec of a living process that nothing ends yet.
    pub(crate) fn of(process: ProcessId) -> Lifetime {
        Lifetime {
            process,
            process_watched: false,
            process_exited: false,
            unclaimed: false,
            claim_until: None,
            disowned: false,
            released_by: None,
        }
    }

    /// Whether the spec waits for a claim, which its process may still make.
    fn awaits_claim(&self) -> bool {
        self.unclaimed && !self.process_exited
    }
}

/// Thread attached to a spec.
#[derive(Debug)]
pub(crate) struct Attached {
    /// Handle of the driver.
    pub(crate) thread: ThreadId,
    /// Thread id in the daemon's PID namespace.
    pub(crate) tid: u32,
    /// Process of the thread.
    pub(crate) tgid: u32,
    /// Start time, unique together with `tid`.
    pub(crate) start: u64,
    /// Inode of the pidfd; 0 if the kernel has no unique inodes.
    pub(crate) inode: u64,
    /// Last known user ids.
    pub(crate) uids: Uids,
    /// Attributes before the grant, restored at its end.
    pub(crate) previous: Attr,
    /// Last ordered attributes.
    pub(crate) applied: Attr,
    /// Last ordered limit.
    pub(crate) limit: Option<Limit>,
    /// Ticket of the last unanswered apply or restore.
    pub(crate) ticket: Option<Ticket>,
    /// Attempts to set the attributes.
    pub(crate) attempts: Attempts,
    /// Whether the thread has exited while an operation was in progress.
    pub(crate) exited: bool,
    /// Time at which the thread was last returned to the CPUs of its grant.
    pub(crate) returned_at: Option<Monotonic>,
    /// Data for the audit trail.
    pub(crate) trail: ThreadTrail,
}

/// Attempts to set the attributes of a thread that the kernel has not accepted yet.
#[derive(Debug, Default)]
pub(crate) struct Attempts {
    /// Number of attempts that found the thread asleep in another root domain (deferred.rs); 0 once
    /// it has woken.
    pub(crate) asleep: u8,
    /// Whether the kernel refused the last apply; logged once until one succeeds.
    pub(crate) is_refused: bool,
    /// Time of the next attempt.
    pub(crate) retry_at: Option<Monotonic>,
}

impl Attempts {
    /// Whether the kernel has refused or deferred the last attributes.
    pub(crate) fn are_open(&self) -> bool {
        self.is_refused || self.asleep > 0 || self.retry_at.is_some()
    }

    /// Records a refusal. Returns whether it is the first one since the last success.
    pub(crate) fn note_refusal(&mut self) -> bool {
        !std::mem::replace(&mut self.is_refused, true)
    }
}

/// Data about a thread for the audit trail.
#[derive(Debug, Default)]
pub(crate) struct ThreadTrail {
    /// Whether the audit trail has the attach.
    pub(crate) is_recorded: bool,
    /// Cause of the end of the thread's grant, and the user that has requested it.
    pub(crate) end: Option<(EndCause, Option<u32>)>,
    /// Last limit, also after its end.
    pub(crate) last_limit: Option<Limit>,
    /// Number of overruns on the audit trail.
    overruns: u64,
}

impl ThreadTrail {
    /// Sets the number of overruns since the attach. Returns how many of them are new.
    pub(crate) fn set_overruns(&mut self, overruns: u64) -> u64 {
        overruns.saturating_sub(std::mem::replace(&mut self.overruns, overruns))
    }
}

/// Operation in progress for a spec.
#[derive(Debug, Default)]
pub(crate) enum PendingOp {
    /// No request waits for a result.
    #[default]
    Idle,
    /// The first apply awaits the kernel's result.
    Attaching(ReplyTo),
    /// New attributes await the kernel's result; the old terms are restored on a refusal.
    Changing(Box<Rollback>),
    /// The restore of the previous attributes awaits the kernel's result.
    Restoring(Restoring),
}

/// Request that waits for an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReplyTo {
    /// Connection of the request.
    pub(crate) session: SessionId,
    /// Number of the request.
    pub(crate) seq: u32,
}

/// State before a change, restored if the kernel refuses the change.
#[derive(Debug)]
pub(crate) struct Rollback {
    /// Request of the change.
    pub(crate) reply_to: ReplyTo,
    /// Old request.
    pub(crate) task: Task,
    /// Old plugin.
    pub(crate) plugin: u32,
    /// Old terms.
    pub(crate) offer: Offer,
    /// Old attributes of the thread.
    pub(crate) applied: Attr,
}

/// Restore of a thread in progress.
#[derive(Debug)]
pub(crate) struct Restoring {
    /// Number of sets of attributes that the kernel has refused in this attempt.
    pub(crate) refused: u8,
    /// First error of this attempt.
    pub(crate) errno: Errno,
    /// Request that waits for the result.
    pub(crate) reply_to: Option<ReplyTo>,
    /// Refusal for that request; `None` means success.
    pub(crate) refusal: Option<Box<Refusal>>,
    /// Restriction of the restore.
    pub(crate) caveat: Option<Caveat>,
    /// Operation that the restore belongs to.
    pub(crate) reason: RestoreReason,
}

/// Operation that a restore belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RestoreReason {
    /// The kernel refused the first apply of an attach.
    AttachFailed,
    /// Detach: the spec stays.
    Detach,
    /// Release: the spec ends at its client's request.
    Release,
    /// The daemon detaches the thread: the spec stays.
    Forced,
    /// The spec ends because its owner has ended, or because the daemon releases every grant.
    OwnerGone,
}

impl Spec {
    /// Whether the owner of the grant still exists (R29).
    pub(crate) fn has_owner(&self) -> bool {
        if self.lifetime.disowned {
            return false;
        }
        let claimed = self.session.is_some() || self.lifetime.awaits_claim();
        match self.task.owner {
            Owner::Session => claimed,
            Owner::Process => !self.lifetime.process_exited,
            Owner::Thread => claimed || self.thread.as_ref().is_some_and(|thread| !thread.exited),
        }
    }

    /// Whether no operation is in progress.
    pub(crate) fn is_idle(&self) -> bool {
        matches!(self.step, PendingOp::Idle)
    }
}
