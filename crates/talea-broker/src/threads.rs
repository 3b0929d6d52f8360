//! Attached threads: which they are, what they have been told to be, and what the kernel said to
//! that.
//!
//! A thread is named by its id and its pidfd's inode, or its start time where there is none, never
//! by its id alone (checklist R32). When a decision moves the kernel priorities of threads that are
//! attached already, they are told in an order that never turns theirs round: those that rise, the
//! highest first; then those that fall, the lowest first. Proof: the move keeps the order of every
//! pair but those with the changed spec, so of two that rise the upper one is out of the way before
//! the lower one arrives, of two that fall the lower one, and of one that rises and one that falls
//! past no common level neither is in the way. The changed spec is sorted in with the others, so
//! the pairs that it is meant to turn round turn at one instant.

use crate::broker::{Broker, Timer};
use crate::input::{Effect, Errno, LogEvent, ThreadFacts, ThreadId, Ticket};
use crate::refuse::ESRCH;
use crate::spec::{Attached, Step};
use crate::suite::Slot;
use talea_core::mutate;
use talea_core::{Attr, CpuSet, Policy, Span, Time};
use talea_proto::Owner;
use talea_proto::record::RecordThread;

/// How long a refused order rests before it is given again.
pub(crate) const RETRY_AFTER: Span = Span::from_ns(1_000_000_000);

/// A thread on its way to other attributes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Move {
    slot: u32,
    attr: Attr,
    /// Rising ones first, from above; then falling ones, from below.
    order: (bool, i16),
}

/// Which threads run first: the deadline class, then by real-time priority.
fn rank(policy: &Policy) -> i16 {
    match policy {
        Policy::Deadline { .. } => 100,
        Policy::Fifo(priority) | Policy::Rr(priority) => priority.0.into(),
        Policy::Other { .. } | Policy::Batch { .. } | Policy::Idle => 0,
    }
}

impl ThreadFacts {
    /// What names the thread for ever.
    pub(crate) fn identity(&self) -> (u32, u64) {
        identity(self.tid, self.inode, self.start)
    }
}

/// An inode is never used again in this boot, and a start time not for the same number: either
/// tells.
fn identity(tid: u32, inode: u64, start: u64) -> (u32, u64) {
    (tid, if inode == 0 { start } else { inode })
}

impl Attached {
    pub(crate) fn new(facts: &ThreadFacts, previous: Attr, given: Attr) -> Attached {
        Attached {
            thread: facts.thread,
            tid: facts.tid,
            tgid: facts.tgid,
            start: facts.start,
            inode: facts.inode,
            euid: facts.euid,
            previous,
            given,
            ticket: None,
            naps: 0,
            gone: false,
            failing: false,
            retry_at: None,
        }
    }

    /// What names it for ever.
    pub(crate) fn identity(&self) -> (u32, u64) {
        identity(self.tid, self.inode, self.start)
    }

    pub(crate) fn record(&self) -> RecordThread {
        let Attached { tid, tgid, start, inode, previous, given, .. } = *self;
        RecordThread { tid, tgid, start, inode, previous, given }
    }
}

impl Broker {
    /// What a thread gets back one day. Values that a grant has left on it are not its own
    /// (checklist R28): a child is born with the CPUs of an attached thread of its process, and a
    /// thread that an earlier daemon left behind without a trace still has the mark of a grant,
    /// reset-on-fork on a single CPU.
    pub(crate) fn previous_of(&self, facts: &ThreadFacts) -> Attr {
        let mut attr = facts.attr;
        let left_behind = attr.policy.is_real_time() && attr.reset_on_fork;
        if mutate!("life-thread-previous", left_behind, false)
            && (attr.cpus.len() == 1 || matches!(attr.policy, Policy::Deadline { .. }))
        {
            return self.ordinary();
        }
        let family = self.families.range((facts.tgid, 0)..=(facts.tgid, u32::MAX));
        let mut relatives = family.filter_map(|&(_, slot)| self.specs.get(slot)?.thread.as_ref());
        if let Some(relative) = relatives.find(|relative| relative.given.cpus == attr.cpus) {
            attr.cpus = relative.previous.cpus;
        }
        attr
    }

    /// The attached thread of this identity.
    pub(crate) fn thread_named(&self, identity: (u32, u64)) -> Option<&Attached> {
        let slot = *self.identities.get(&identity)?;
        self.specs.at(slot).thread.as_deref()
    }

    /// What a thread becomes when nothing better is known.
    pub(crate) fn ordinary(&self) -> Attr {
        Attr { policy: Policy::Other { nice: 0 }, reset_on_fork: false, cpus: self.machine.cpus }
    }

    /// Enters a thread under a spec and asks to hear of its end.
    pub(crate) fn enter_thread(&mut self, slot: u32, attached: Attached) {
        let Attached { thread, tid, tgid, .. } = attached;
        let taken = self.identities.insert(attached.identity(), slot).is_some()
            || self.threads.insert(thread, slot).is_some()
            || !self.families.insert((tgid, slot));
        assert!(!taken, "thread {tid} is attached twice");
        let before = self.specs.at_mut(slot).thread.replace(Box::new(attached));
        assert!(before.is_none(), "slot {slot} has a thread already");
        self.counters.attached += 1;
        mutate!(
            "recovery-order",
            {
                self.emit(Effect::Remember { slot });
            },
            {}
        );

        self.emit(Effect::Watch { thread });
    }

    /// Strikes the thread of a spec off every list.
    pub(crate) fn strike_thread(&mut self, slot: u32) -> Box<Attached> {
        self.found_awake(slot);
        let attached = self.specs.at_mut(slot).thread.take().expect("there was a thread");
        self.identities.remove(&attached.identity());
        self.threads.remove(&attached.thread);
        self.families.remove(&(attached.tgid, slot));
        if let Some(at) = attached.retry_at {
            self.timers.remove(&(at, Timer::Retry(slot)));
        }
        self.counters.attached -= 1;
        self.emit(Effect::Forget { thread: attached.thread });
        attached
    }

    /// Records and orders new attributes for an attached thread.
    pub(crate) fn order(&mut self, slot: u32, attr: Attr) {
        let ticket = self.ticket(slot);
        let attached =
            self.specs.at_mut(slot).thread.as_mut().expect("only threads are ordered about");
        let on_record = attached.given == attr;
        attached.given = attr;
        attached.ticket = Some(ticket);
        let thread = attached.thread;
        if let Some(at) = attached.retry_at.take() {
            self.timers.remove(&(at, Timer::Retry(slot)));
        }
        if !on_record {
            self.emit(Effect::Remember { slot });
        }
        self.emit(Effect::Apply { ticket, thread, attr });
    }

    /// Tells every attached thread whose attributes a decision has moved, and those of `more`: the
    /// spec that was changed, or those that were adopted.
    pub(crate) fn apply_moves(&mut self, more: &[u32]) {
        let mut moved = std::mem::take(&mut self.moved);
        self.suite.drain_moved(&mut moved);
        let mut moves = std::mem::take(&mut self.moves);
        moves.clear();
        for slot in moved.iter().map(|slot| slot.0).chain(more.iter().copied()) {
            let Some(spec) = self.specs.get(slot).filter(|spec| spec.booked) else { continue };
            let Some(thread) = &spec.thread else { continue };
            // Whatever else is under way there compares once more when it is through.
            if !(spec.is_idle() || matches!(spec.step, Step::Changing(_)) && more.contains(&slot)) {
                continue;
            }
            let attr = self.suite.attr(Slot(slot));
            if attr != thread.given {
                let (from, to) = (rank(&thread.given.policy), rank(&attr.policy));
                let order = if to >= from { (false, -to) } else { (true, to) };
                moves.push(Move { slot, attr, order });
            }
        }
        moves.sort_unstable_by_key(|m| (m.order, m.slot));
        moves.dedup_by_key(|m| m.slot);
        for m in &moves {
            self.order(m.slot, m.attr);
        }
        self.moved = moved;
        self.moves = moves;
    }

    /// Brings a thread to what its spec says now, after something else was under way.
    pub(crate) fn settle(&mut self, slot: u32) {
        let attr = self.suite.attr(Slot(slot));
        if self.specs.at(slot).thread.as_ref().is_some_and(|thread| thread.given != attr) {
            self.order(slot, attr);
        }
    }

    /// What an answered order was part of, and whether its thread has ended meanwhile. `None` for
    /// one that a younger one has replaced, or whose thread is forgotten.
    pub(crate) fn answered_order(&mut self, ticket: Ticket) -> Option<(u32, Step, bool)> {
        let slot = ticket.0 as u32;
        let spec = self.specs.get_mut(slot)?;
        let thread = spec.thread.as_mut().filter(|thread| thread.ticket == Some(ticket))?;
        thread.ticket = None;
        Some((slot, std::mem::take(&mut spec.step), thread.gone))
    }

    /// The kernel has carried an order out, or not.
    pub(crate) fn done(&mut self, ticket: Ticket, result: Result<(), Errno>) {
        let Some((slot, step, gone)) = self.answered_order(ticket) else { return };
        self.found_awake(slot);
        self.finish_order(slot, step, if gone { Err(ESRCH) } else { result });
    }

    /// What follows from an order that was part of `step`.
    pub(crate) fn finish_order(&mut self, slot: u32, step: Step, result: Result<(), Errno>) {
        match step {
            Step::Idle => self.moved_done(slot, result),
            Step::Attaching(asker) => self.attach_done(slot, asker, result),
            Step::Changing(undo) => self.change_done(slot, &undo, result),
            Step::Restoring(restoring) => self.restore_done(slot, restoring, result),
        }
    }

    fn moved_done(&mut self, slot: u32, result: Result<(), Errno>) {
        let now = self.now;
        let thread = self.specs.at_mut(slot).thread.as_mut().expect("its order was just answered");
        match result {
            Ok(()) => thread.failing = false,
            Err(ESRCH) => self.thread_ended(slot),
            Err(errno) => {
                let (first, tid) = (!std::mem::replace(&mut thread.failing, true), thread.tid);
                let at = now.saturating_add(RETRY_AFTER);
                thread.retry_at = Some(at);
                self.timers.insert((at, Timer::Retry(slot)));
                if first {
                    self.log(LogEvent::ApplyFailed { tid, errno });
                }
            }
        }
    }

    /// The time for another attempt has come.
    pub(crate) fn retry(&mut self, slot: u32) {
        let thread =
            self.specs.at_mut(slot).thread.as_mut().expect("its timer ends with the thread");
        thread.retry_at = None;
        match &self.specs.at(slot).step {
            Step::Idle | Step::Attaching(_) => {
                let attr = self.suite.attr(Slot(slot));
                self.order(slot, attr);
            }
            Step::Restoring(_) => {
                self.stuck -= 1;
                self.order_restore(slot);
            }
            Step::Changing(_) => unreachable!("a change that must wait is taken back"),
        }
    }

    pub(crate) fn thread_gone(&mut self, thread: ThreadId) {
        let Some(&slot) = self.threads.get(&thread) else { return };
        let spec = self.specs.at_mut(slot);
        if spec.is_idle() {
            return self.thread_ended(slot);
        }
        let attached = spec.thread.as_mut().expect("the list of threads is kept");
        attached.gone = true;
        if attached.retry_at.is_some() {
            let step = std::mem::take(&mut self.specs.at_mut(slot).step);
            if matches!(step, Step::Restoring(_)) {
                self.stuck -= 1;
            }
            self.finish_order(slot, step, Err(ESRCH));
        }
    }

    /// The thread of an idle spec has ended (facts S14): the spec waits for another one, or ends
    /// with it.
    pub(crate) fn thread_ended(&mut self, slot: u32) {
        let free_at = self.zero_lag(slot);
        let booked = self.specs.at(slot).booked;
        if booked {
            self.suite.attached(Slot(slot), false);
        }
        self.strike_thread(slot);
        if booked {
            self.tell_detached(slot);
        }
        // What belonged to the thread ends with it, also while a connection commands it.
        if self.specs.at(slot).task.owner != Owner::Thread && self.is_owned(slot) {
            self.keep_lag(slot, free_at);
            self.emit(Effect::Remember { slot });
        } else {
            self.drop_spec(slot, free_at);
        }
    }

    /// When the bandwidth of a spec may be given to others, were it to end now (checklist R36).
    ///
    /// A reservation that leaves with its budget partly used has been ahead of its share; it has
    /// had exactly its share at its zero-lag time, which is no later than its current deadline,
    /// which in turn is at most one period away (the kernel sets it to at most now + D, D ≤ T,
    /// whenever it refills a budget in time; one that it throttles is refilled at the start of the
    /// next period). A spec outlives its threads, so the last one's time is kept, and holds as long
    /// as the spec is in the deadline class. `None` when nothing is owed to anybody.
    pub(crate) fn zero_lag(&self, slot: u32) -> Option<Time> {
        let spec = self.specs.at(slot);
        let attached = spec.thread.as_ref().and_then(|thread| match thread.given.policy {
            Policy::Deadline { period, .. } => Some(self.now.saturating_add(period)),
            _ => None,
        });
        let left =
            Some(spec.lags_until).filter(|&until| until > self.now && spec.booked).filter(|_| {
                let policy = self.suite.attr(Slot(slot)).policy;
                matches!(policy, Policy::Deadline { .. })
            });
        attached.max(left)
    }

    /// The thread of a spec that stays has left it: others wait for its zero-lag time, whenever the
    /// spec ends.
    pub(crate) fn keep_lag(&mut self, slot: u32, until: Option<Time>) {
        if let Some(until) = until {
            self.specs.at_mut(slot).lags_until = until;
        }
    }

    /// The CPUs of the machine, for whoever put "leave as it is".
    pub(crate) fn leave_cpus(attr: Attr) -> Attr {
        Attr { cpus: CpuSet::EMPTY, ..attr }
    }
}
