//! What the kernel does not take yet, and what it did not quite do.
//!
//! *A thread asleep in another root domain.* A sleeping thread stays where it fell asleep, whatever
//! its affinity says, and the kernel admits it to the deadline class only where it is. The driver
//! has told it its CPUs, so it moves when it wakes. Nobody can wake it, and it may well be asleep
//! because it waits for our answer: so an attach is answered at once ([`But::Asleep`]), the books
//! hold its place, and the order is given again, soon at first and then less and less often. Until
//! it is taken the spec shows no attributes. What can't wait is a change: a thread keeps what it
//! has until it can have what comes next, and the new terms may not cover the old attributes; so
//! that is refused.
//!
//! *A thread in debt.* One that has overdrawn its last deadline budget must not enter the class
//! before it has paid. An attach and a change wait for that, up to [`PATIENCE`], at nobody else's
//! cost: the attach has its place in the books, and the change gives everything back and is decided
//! anew when its time has come. Whoever owes more is refused.
//!
//! Bound: a sleeping thread is looked at twice as late each time, down to once in [`LAST_LOOK`];
//! those of one user together about once in [`SHARE`], however many they are.

use crate::broker::{Broker, Timer};
use crate::input::{Errno, LogEvent, SessionId, Ticket};
use crate::refuse::{ESRCH, plain};
use crate::spec::{Asker, Restoring, Step, Undo};
use talea_core::mutate;
use talea_core::{Span, Time};
use talea_proto::message::But;
use talea_proto::{Code, Field, SpecId, Task};

/// How long a request waits for a thread's debt.
pub(crate) const PATIENCE: Span = Span::from_ns(500_000_000);
/// When a thread that was found asleep is looked at first: most have waited for the answer.
const FIRST_LOOK: u64 = 1_000_000;
/// And at least so often.
const LAST_LOOK: u64 = 1_000_000_000;
/// Between two looks at threads of one user.
const SHARE: u64 = 10_000_000;

/// The kernel's word for "not now".
const EAGAIN: Errno = Errno(11);
/// Its word for a deadline thread outside of its domain.
const EPERM: Errno = Errno(1);

/// A change that waits for its thread's debt.
#[derive(Debug)]
pub(crate) struct Parked {
    at: Time,
    asker: Asker,
    spec: SpecId,
    task: Task,
}

impl Broker {
    /// An order was carried out, almost.
    pub(crate) fn done_but(&mut self, ticket: Ticket, but: But) {
        let Some((slot, step, gone)) = self.answered_order(ticket) else { return };
        match (step, but) {
            (step, _) if gone => {
                self.found_awake(slot);
                self.finish_order(slot, step, Err(ESRCH));
            }
            (Step::Restoring(restoring), but) => {
                self.found_awake(slot);
                self.restored_but(slot, restoring, but);
            }
            (Step::Changing(undo), _) => self.finish_order(slot, Step::Changing(undo), Err(EPERM)),
            (step, _) => {
                self.found_asleep(slot);
                if let Step::Attaching(asker) = step {
                    self.attached_but(slot, asker);
                }
                self.look_again(slot);
            }
        }
    }

    /// An order can't be carried out before `at`.
    pub(crate) fn not_before(&mut self, ticket: Ticket, at: Time) {
        let Some((slot, step, gone)) = self.answered_order(ticket) else { return };
        self.found_awake(slot);
        match step {
            step if gone => self.finish_order(slot, step, Err(ESRCH)),
            Step::Attaching(asker) if self.may_wait(asker.session, at) => {
                self.takes_long(asker.session);
                self.specs.at_mut(slot).step = Step::Attaching(asker);
                self.retry_at(slot, at);
            }
            Step::Changing(undo) if self.may_wait(undo.asker.session, at) => {
                self.park(slot, &undo, at)
            }
            // Nobody has asked: an earlier daemon was killed as it took the thread out, or put it
            // in.
            Step::Idle
                if at
                    <= mutate!(
                        "broker-later-taken-over",
                        self.now.saturating_add(PATIENCE),
                        self.now
                    ) =>
            {
                self.retry_at(slot, at)
            }
            step => self.finish_order(slot, step, Err(EAGAIN)),
        }
    }

    /// Whether the request of this connection may wait until `at`. One whose client has gone waits
    /// for nobody.
    fn may_wait(&mut self, session: SessionId, at: Time) -> bool {
        let latest = self.now.saturating_add(PATIENCE);
        self.sessions
            .get_mut(&session)
            .is_some_and(|session| at <= *session.patient_until.get_or_insert(latest))
    }

    /// Everything is as before the change, which is decided anew at `at`.
    fn park(&mut self, slot: u32, undo: &Undo, at: Time) {
        let (asker, id, task) = (undo.asker, self.specs.at(slot).id, self.specs.at(slot).task);
        self.changing -= 1;
        self.take_back(slot, undo);
        self.takes_long(asker.session);
        self.parked.insert(asker.session, Parked { at, asker, spec: id, task });
        self.timers.insert((at, Timer::Again(asker.session)));
        self.reconsider(slot);
    }

    /// The time of a parked change has come.
    pub(crate) fn ask_again(&mut self, session: SessionId) {
        if let Some(Parked { asker, spec, task, .. }) = self.parked.remove(&session) {
            self.change(asker, spec, task);
        }
    }

    /// Nobody waits for this connection's change any more.
    pub(crate) fn unpark(&mut self, session: SessionId) -> Option<Asker> {
        let parked = self.parked.remove(&session)?;
        self.timers.remove(&(parked.at, Timer::Again(session)));
        Some(parked.asker)
    }

    /// The daemon is stopping: whoever has a change parked hears so.
    pub(crate) fn refuse_parked(&mut self) {
        while let Some(&session) = self.parked.keys().next() {
            if let Some(asker) = self.unpark(session) {
                self.refuse(asker, plain(Code::Stopping, Field::Request));
            }
        }
    }

    /// The thread sleeps where it can't be given what it was promised.
    fn found_asleep(&mut self, slot: u32) {
        let spec = self.specs.at_mut(slot);
        let uid = spec.uid;
        let thread = spec.thread.as_mut().expect("its order was just answered");
        let first = thread.naps == 0;
        thread.naps = thread.naps.saturating_add(1);
        if first {
            self.users.of(uid).sleepers += 1;
        }
    }

    /// The kernel has answered something else about it, or it is of no further interest.
    pub(crate) fn found_awake(&mut self, slot: u32) {
        let spec = self.specs.at_mut(slot);
        let uid = spec.uid;
        let Some(thread) = spec.thread.as_mut() else { return };
        if std::mem::take(&mut thread.naps) > 0 {
            self.users.of(uid).sleepers -= 1;
        }
    }

    /// Has the order given again, unless something else is under way there already.
    fn look_again(&mut self, slot: u32) {
        let Some(spec) = self.specs.get(slot).filter(|spec| spec.is_idle()) else { return };
        let Some(thread) = &spec.thread else { return };
        if thread.ticket.is_some() || thread.retry_at.is_some() || thread.naps == 0 {
            return;
        }
        let rest = (FIRST_LOOK << (thread.naps - 1).min(20)).min(LAST_LOOK);
        let others = u64::from(self.users.of(spec.uid).sleepers - 1);
        let at = self.now.saturating_add(Span::from_ns(rest.max(others * SHARE)));
        self.retry_at(slot, at);
    }

    pub(crate) fn retry_at(&mut self, slot: u32, at: Time) {
        let thread =
            self.specs.at_mut(slot).thread.as_mut().expect("only threads are ordered about");
        thread.retry_at = Some(at);
        self.timers.insert((at, Timer::Retry(slot)));
    }

    /// The thread is back, but not quite what it was: whoever asked hears so, and the log in any
    /// case, because the owner of a thread that lost a policy of its own may not be the one who
    /// asked.
    pub(crate) fn restored_but(&mut self, slot: u32, mut restoring: Restoring, but: But) {
        let spec = self.specs.at(slot);
        if let Some(thread) = &spec.thread {
            let (tid, uid) = (thread.tid, spec.uid);
            self.log(LogEvent::NotAsBefore { tid, uid, but });
        }
        restoring.but = Some(but);
        self.restored(slot, restoring);
    }
}
