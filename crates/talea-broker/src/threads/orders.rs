//! Orders for the attributes of attached threads.

use super::{AttrChange, RETRY_AFTER};
use crate::broker::{Broker, Timer};
use crate::input::{Effect, Errno, LogEvent, ThreadFacts, ThreadId, Ticket};
use crate::plugin_set::SpecSlot;
use crate::refuse::ESRCH;
use crate::spec::{Attached, PendingOp};
use talea_core::mutate;
use talea_core::{Attr, CpuSet, Monotonic, Policy};
use talea_proto::Owner;

/// Precedence of a policy in the kernel: the deadline class, then real-time priorities.
fn rank(policy: &Policy) -> i16 {
    match policy {
        Policy::Deadline { .. } => 100,
        Policy::Fifo(priority) | Policy::Rr(priority) => priority.0.into(),
        Policy::Other { .. } | Policy::Batch { .. } | Policy::Idle => 0,
    }
}

impl Broker {
    /// Returns the attributes to restore at the end of a grant. Attributes that come from another
    /// grant are not the thread's own (R28). A thread created by an attached thread inherits its
    /// CPUs. A thread left behind by an earlier daemon without a record still has the mark of a
    /// grant: reset-on-fork, with a single CPU or the deadline class.
    pub(crate) fn original_attr(&self, facts: &ThreadFacts) -> Attr {
        let mut attr = facts.attr;
        let left_behind = attr.policy.is_real_time() && attr.reset_on_fork;
        if mutate!("life-thread-previous", left_behind, false)
            && (attr.cpus.len() == 1 || matches!(attr.policy, Policy::Deadline { .. }))
        {
            return self.default_attr();
        }
        let family = self.threads.of_process(facts.tgid);
        let mut relatives = family.filter_map(|slot| self.specs.get(slot)?.thread.as_ref());
        // A thread that may use every CPU has inherited no confinement.
        if attr.cpus != self.platform.cpus
            && let Some(relative) = relatives.find(|relative| relative.applied.cpus == attr.cpus)
        {
            attr.cpus = relative.previous.cpus;
        }
        attr
    }

    /// Returns the attached thread with this identity, if there is one.
    pub(crate) fn thread_named(&self, identity: (u32, u64)) -> Option<&Attached> {
        let slot = self.threads.slot_of_identity(identity)?;
        self.specs.at(slot).thread.as_deref()
    }

    /// Returns the attributes of an ordinary thread, used if the previous ones are unknown.
    pub(crate) fn default_attr(&self) -> Attr {
        Attr { policy: Policy::Other { nice: 0 }, reset_on_fork: false, cpus: self.platform.cpus }
    }

    /// Attaches a thread to a spec and watches for its exit. The caller orders its limit.
    pub(crate) fn add_thread(&mut self, slot: u32, attached: Attached) {
        let thread = attached.thread;
        self.threads.insert(&attached, slot);
        let before = self.specs.at_mut(slot).thread.replace(Box::new(attached));
        assert!(before.is_none(), "slot {slot} has a thread already");
        self.specs.at_mut(slot).detached = None;
        self.counters.attached += 1;
        self.canaries.is_stale = true;
        self.start_inspections();
        mutate!("recovery-order", self.emit(Effect::WriteRecord { slot }));

        self.emit(Effect::WatchThread { thread });
        self.start_sharing(slot);
    }

    /// Removes the thread of a spec from every list.
    pub(crate) fn remove_thread(&mut self, slot: u32) -> Box<Attached> {
        self.mark_awake(slot);
        self.stop_sharing(slot);
        let attached = self.specs.at_mut(slot).thread.take().expect("the spec has a thread");
        self.threads.remove(&attached, slot);
        if let Some(at) = attached.attempts.retry_at {
            self.timers.remove(&(at, Timer::Retry(slot)));
        }
        self.counters.attached -= 1;
        self.canaries.is_stale = true;
        self.canaries.detached(self.now, self.specs.at(slot).subject, &attached);
        self.stop_inspections();
        self.emit(Effect::ForgetThread { thread: attached.thread });
        self.record_thread_end(slot, &attached);
        attached
    }

    /// Records and orders new attributes for an attached thread.
    pub(crate) fn order_apply(&mut self, slot: u32, attr: Attr) {
        let ticket = self.ticket(slot);
        let attached = self.specs.at_mut(slot).thread.as_mut().expect("an order needs a thread");
        let on_record = attached.applied == attr;
        attached.applied = attr;
        attached.ticket = Some(ticket);
        let thread = attached.thread;
        if let Some(at) = attached.attempts.retry_at.take() {
            self.timers.remove(&(at, Timer::Retry(slot)));
        }
        if !on_record {
            self.canaries.is_stale = true;
            self.emit(Effect::WriteRecord { slot });
        }
        let owner = self.owner(slot);
        self.emit(Effect::Apply { ticket, thread, attr, owner });
    }

    /// Orders new attributes for every attached thread whose attributes a decision has changed, and
    /// for those of `more`: the changed spec, or the adopted specs.
    pub(crate) fn apply_moves(&mut self, more: &[u32]) {
        let mut moved = std::mem::take(&mut self.buffers.moved);
        self.plugin_set.drain_moved(&mut moved);
        let mut moves = std::mem::take(&mut self.buffers.moves);
        moves.clear();
        for slot in moved.iter().map(|slot| slot.0).chain(more.iter().copied()) {
            let Some(spec) = self.specs.get(slot).filter(|spec| spec.in_ledger) else { continue };
            let Some(thread) = &spec.thread else { continue };
            // Any other operation in progress compares the attributes again at its end.
            if !(spec.is_idle()
                || matches!(spec.step, PendingOp::Changing(_)) && more.contains(&slot))
            {
                continue;
            }
            let attr = self.plugin_set.attr(SpecSlot(slot));
            if attr != thread.applied {
                let (from, to) = (rank(&thread.applied.policy), rank(&attr.policy));
                let order = if to >= from { (false, -to) } else { (true, to) };
                moves.push(AttrChange { slot, attr, order });
            }
        }
        moves.sort_unstable_by_key(|m| (m.order, m.slot));
        moves.dedup_by_key(|m| m.slot);
        for m in &moves {
            self.order_apply(m.slot, m.attr);
        }
        self.buffers.moved = moved;
        self.buffers.moves = moves;
    }

    /// Orders the current attributes of the spec, after another operation.
    pub(crate) fn apply_current(&mut self, slot: u32) {
        let attr = self.plugin_set.attr(SpecSlot(slot));
        if self.specs.at(slot).thread.as_ref().is_some_and(|thread| thread.applied != attr) {
            self.order_apply(slot, attr);
        }
    }

    /// Takes the operation of an answered order, and whether its thread has exited meanwhile.
    /// `None` for an order that a later one has replaced, or whose thread is forgotten.
    pub(crate) fn take_answered(&mut self, ticket: Ticket) -> Option<(u32, PendingOp, bool)> {
        let slot = ticket.0 as u32;
        let spec = self.specs.get_mut(slot)?;
        let thread = spec.thread.as_mut().filter(|thread| thread.ticket == Some(ticket))?;
        thread.ticket = None;
        Some((slot, std::mem::take(&mut spec.step), thread.exited))
    }

    /// Handles the kernel's result of an order.
    pub(crate) fn done(&mut self, ticket: Ticket, result: Result<(), Errno>) {
        let Some((slot, step, exited)) = self.take_answered(ticket) else { return };
        self.mark_awake(slot);
        self.finish_order(slot, step, if exited { Err(ESRCH) } else { result });
    }

    /// Continues the operation that an order was part of.
    pub(crate) fn finish_order(&mut self, slot: u32, step: PendingOp, result: Result<(), Errno>) {
        match step {
            PendingOp::Idle => self.reapply_done(slot, result),
            PendingOp::Attaching(reply_to) => self.attach_done(slot, reply_to, result),
            PendingOp::Changing(rollback) => self.change_done(slot, &rollback, result),
            PendingOp::Restoring(restoring) => self.restore_done(slot, restoring, result),
        }
        self.detach_if_foreign(slot);
        self.leave_offline_cpu(slot);
    }

    fn reapply_done(&mut self, slot: u32, result: Result<(), Errno>) {
        let now = self.now;
        let thread = self.specs.at_mut(slot).thread.as_mut().expect("its order was just answered");
        match result {
            Ok(()) => thread.attempts.is_refused = false,
            Err(ESRCH) => self.finish_thread_exit(slot),
            Err(errno) => {
                let (first, tid) = (thread.attempts.note_refusal(), thread.tid);
                let at = now.saturating_add(RETRY_AFTER);
                thread.attempts.retry_at = Some(at);
                self.timers.insert((at, Timer::Retry(slot)));
                if first {
                    let subject = self.specs.at(slot).subject;
                    self.log_about(subject, LogEvent::ApplyFailed { tid, errno });
                }
            }
        }
    }

    /// Repeats an order at its retry time.
    pub(crate) fn retry(&mut self, slot: u32) {
        let thread =
            self.specs.at_mut(slot).thread.as_mut().expect("the timer is removed with the thread");
        thread.attempts.retry_at = None;
        match &self.specs.at(slot).step {
            PendingOp::Idle | PendingOp::Attaching(_) => {
                let attr = self.plugin_set.attr(SpecSlot(slot));
                self.order_apply(slot, attr);
            }
            PendingOp::Restoring(_) => {
                self.restore_failed -= 1;
                self.order_restore(slot);
            }
            PendingOp::Changing(_) => unreachable!("a deferred change is rolled back"),
        }
    }

    pub(crate) fn thread_exited(&mut self, thread: ThreadId) {
        let Some(slot) = self.threads.slot_of(thread) else { return };
        let spec = self.specs.at_mut(slot);
        if spec.is_idle() {
            return self.finish_thread_exit(slot);
        }
        let attached = spec.thread.as_mut().expect("the index of threads is consistent");
        attached.exited = true;
        if attached.attempts.retry_at.is_some() {
            let step = std::mem::take(&mut self.specs.at_mut(slot).step);
            if matches!(step, PendingOp::Restoring(_)) {
                self.restore_failed -= 1;
            }
            self.finish_order(slot, step, Err(ESRCH));
        }
    }

    /// Handles the exit of an idle spec's thread: the spec waits for another thread, or ends.
    pub(crate) fn finish_thread_exit(&mut self, slot: u32) {
        let free_at = self.zero_lag(slot);
        let in_ledger = self.specs.at(slot).in_ledger;
        if in_ledger {
            self.plugin_set.set_attached(SpecSlot(slot), false);
        }
        self.remove_thread(slot);
        if in_ledger {
            self.notify_detached(slot);
        }
        // A spec owned by the thread ends with it, even if it is bound to a connection.
        if self.specs.at(slot).task.owner != Owner::Thread && self.is_owned(slot) {
            self.keep_zero_lag(slot, free_at);
            self.emit(Effect::WriteRecord { slot });
        } else {
            self.drop_spec(slot, free_at);
        }
    }

    /// Returns the time at which the bandwidth of a spec would become free if it ended now (R36).
    ///
    /// A reservation that leaves with a partly used budget has been ahead of its share. It has
    /// received exactly its share at its zero-lag time. This is no later than its current deadline,
    /// which is at most one period away: whenever the kernel refills a budget in time, it sets the
    /// deadline to at most now + D with D ≤ T, and it refills a throttled budget at the start of
    /// the next period. A spec outlives its threads, so the time of the last thread is kept while
    /// the spec is in the deadline class. `None` if no bandwidth is held.
    pub(crate) fn zero_lag(&self, slot: u32) -> Option<Monotonic> {
        let spec = self.specs.at(slot);
        let attached = spec.thread.as_ref().and_then(|thread| match thread.applied.policy {
            Policy::Deadline { period, .. } => Some(self.now.saturating_add(period)),
            _ => None,
        });
        let left = Some(spec.zero_lag_until)
            .filter(|&until| until > self.now && spec.in_ledger)
            .filter(|_| {
                let policy = self.plugin_set.attr(SpecSlot(slot)).policy;
                matches!(policy, Policy::Deadline { .. })
            });
        attached.max(left)
    }

    /// Keeps the zero-lag time of a thread that has left its spec.
    pub(crate) fn keep_zero_lag(&mut self, slot: u32, until: Option<Monotonic>) {
        if let Some(until) = until {
            self.specs.at_mut(slot).zero_lag_until = until;
        }
    }

    /// Returns `attr` without an affinity: the current affinity stays.
    pub(crate) fn without_affinity(attr: Attr) -> Attr {
        Attr { cpus: CpuSet::EMPTY, ..attr }
    }
}
