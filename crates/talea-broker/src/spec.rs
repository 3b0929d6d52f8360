//! One accepted task specification, and where it stands between reserve, apply and confirm.
//!
//! Invariants: a spec whose [`Step`] is not [`Step::Idle`] has a thread, and the ticket of that
//! thread is the one whose [`crate::Input::Done`] moves it on. A thread's record keeps the
//! attributes to put back until the kernel has said that they are back.

use crate::input::{Errno, ProcessId, SessionId, ThreadId, Ticket};
use crate::plugin::Offer;
use crate::restore::Way;
use talea_core::{Attr, Time};
use talea_proto::message::{But, SpecId, Task, Token};
use talea_proto::{Owner, Refusal};

/// One accepted task specification.
#[derive(Debug)]
pub(crate) struct Spec {
    /// Its name; [`SpecId`] zero while it is reserved for a group that is not complete.
    pub(crate) id: SpecId,
    /// Proof for claims.
    pub(crate) token: Token,
    /// User that created it.
    pub(crate) uid: u32,
    /// Process whose end may end it.
    pub(crate) process: ProcessId,
    /// Whether the broker has asked to hear of that end.
    pub(crate) watched: bool,
    /// Whether that end has come.
    pub(crate) process_gone: bool,
    /// Whose rules it is booked under.
    pub(crate) client: u32,
    /// The connection that commands it, and its place in that connection's list.
    pub(crate) session: Option<(SessionId, u32)>,
    /// Adopted and not claimed yet: lives as long as its process.
    pub(crate) awaiting: bool,
    /// What was asked.
    pub(crate) task: Task,
    /// Whether the books know it; an adopted spec whose plugin is gone only waits for its thread to
    /// be put back.
    pub(crate) booked: bool,
    /// Whether its owner has ended, whatever else speaks for it.
    pub(crate) disowned: bool,
    /// Who serves it.
    pub(crate) plugin: u32,
    /// On what terms.
    pub(crate) offer: Offer,
    /// The attached thread.
    pub(crate) thread: Option<Box<Attached>>,
    /// Until when its bandwidth is still owed to a thread that has left it (checklist R36); in the
    /// past when to none.
    pub(crate) lags_until: Time,
    /// What is under way.
    pub(crate) step: Step,
}

/// A thread under a spec.
#[derive(Debug)]
pub(crate) struct Attached {
    /// The driver's handle.
    pub(crate) thread: ThreadId,
    /// Its id in our PID namespace.
    pub(crate) tid: u32,
    /// Its process.
    pub(crate) tgid: u32,
    /// Its start time, which with `tid` names it for ever.
    pub(crate) start: u64,
    /// Its pidfd's inode.
    pub(crate) inode: u64,
    /// Its effective user id when the driver looked last.
    pub(crate) euid: u32,
    /// What it was before and shall be again.
    pub(crate) previous: Attr,
    /// What it was told to be last.
    pub(crate) given: Attr,
    /// The youngest order to the kernel that has not been answered.
    pub(crate) ticket: Option<Ticket>,
    /// How often it was found asleep where it can't be given what it was promised (later.rs); 0
    /// once it is awake.
    pub(crate) naps: u8,
    /// Whether it has ended while an order was under way.
    pub(crate) gone: bool,
    /// Whether the kernel refused the last order; logged once until one succeeds.
    pub(crate) failing: bool,
    /// When the last order is given again.
    pub(crate) retry_at: Option<Time>,
}

/// What is under way for a spec.
#[derive(Debug, Default)]
pub(crate) enum Step {
    /// Nothing that a request waits for.
    #[default]
    Idle,
    /// The first apply is with the kernel.
    Attaching(Asker),
    /// New parameters are with the kernel; the old ones come back if it refuses.
    Changing(Box<Undo>),
    /// The previous attributes are on their way back.
    Restoring(Restoring),
}

/// Who waits for an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Asker {
    /// On which connection.
    pub(crate) session: SessionId,
    /// For which request.
    pub(crate) seq: u32,
}

/// What a change puts back when the kernel refuses it.
#[derive(Debug)]
pub(crate) struct Undo {
    /// Who waits.
    pub(crate) asker: Asker,
    /// The old request.
    pub(crate) task: Task,
    /// The old plugin.
    pub(crate) plugin: u32,
    /// The old terms.
    pub(crate) offer: Offer,
    /// What the thread had.
    pub(crate) given: Attr,
}

/// The way back of a thread.
#[derive(Debug)]
pub(crate) struct Restoring {
    /// How many sets of attributes the kernel has refused in this round.
    pub(crate) refused: u8,
    /// What it said first in this round.
    pub(crate) errno: Errno,
    /// Who waits for the end of it.
    pub(crate) asker: Option<Asker>,
    /// What they are told; `None` means success.
    pub(crate) answer: Option<Box<Refusal>>,
    /// What was not quite put back.
    pub(crate) but: Option<But>,
    /// What it is part of.
    pub(crate) way: Way,
}

impl Spec {
    /// Whether somebody is left for whom the grant exists (checklist R29).
    pub(crate) fn has_owner(&self) -> bool {
        if self.disowned {
            return false;
        }
        let claimed = self.session.is_some() || (self.awaiting && !self.process_gone);
        match self.task.owner {
            Owner::Session => claimed,
            Owner::Process => !self.process_gone,
            Owner::Thread => claimed || self.thread.as_ref().is_some_and(|thread| !thread.gone),
        }
    }

    /// Whether no request waits for anything here.
    pub(crate) fn is_idle(&self) -> bool {
        matches!(self.step, Step::Idle)
    }
}
