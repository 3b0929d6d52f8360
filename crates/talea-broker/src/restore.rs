//! Restore of a thread's attributes at the end of its grant (R28).
//!
//! The ledger and the record keep the grant until the kernel has confirmed the restore: until then
//! the thread may still be real-time, and a daemon that starts meanwhile must know it.
//!
//! | attempt | attributes | kernel accepts | kernel refuses |
//! | --- | --- | --- | --- |
//! | 1 | the previous ones | *restored* | attempt 2 |
//! | 2 | ordinary, on all CPUs | *restored*, affinity widened or policy lost | attempt 3 |
//! | 3 | ordinary, affinity unchanged | *restored*, policy lost | *refused* |
//!
//! The kernel can refuse the previous attributes if a CPU is offline or a limit has changed. In
//! state *refused* a requesting client receives the error and keeps its grant. After a failed
//! attach, the spec loses the thread nevertheless. In all other cases the broker repeats the
//! attempts once per second until one succeeds or the thread exits.

use crate::broker::{Broker, Timer};
use crate::input::{Effect, Errno, LogEvent};
use crate::plugin_set::SpecSlot;
use crate::refuse::{ESRCH, kernel_refusal};
use crate::spec::{PendingOp, ReplyTo, RestoreReason, Restoring};
use crate::threads::RETRY_AFTER;
use talea_core::mutate;
use talea_proto::message::Caveat;
use talea_proto::{Refusal, Reply};

impl Broker {
    /// Starts the restore of the spec's thread; the reply follows its completion.
    pub(crate) fn start_restore(
        &mut self,
        slot: u32,
        reply_to: Option<ReplyTo>,
        refusal: Option<Box<Refusal>>,
        reason: RestoreReason,
    ) {
        if self.specs.at(slot).in_ledger {
            self.plugin_set.set_attached(SpecSlot(slot), false);
        }
        let spec = self.specs.at_mut(slot);
        if let Some(at) = spec.thread.as_mut().and_then(|thread| thread.attempts.retry_at.take()) {
            self.timers.remove(&(at, Timer::Retry(slot)));
        }
        let spec = self.specs.at_mut(slot);
        spec.step = PendingOp::Restoring(Restoring {
            refused: 0,
            errno: ESRCH,
            reply_to,
            refusal,
            caveat: None,
            reason,
        });
        self.order_restore(slot);
    }

    /// Orders the set of attributes for the current attempt.
    pub(crate) fn order_restore(&mut self, slot: u32) {
        let (ticket, ordinary) = (self.ticket(slot), self.default_attr());
        let spec = self.specs.at_mut(slot);
        let PendingOp::Restoring(restoring) = &spec.step else {
            unreachable!("only while a restore is in progress")
        };
        let attached = spec.thread.as_mut().expect("a restore needs a thread");
        let attr = match restoring.refused {
            0 => attached.previous,
            1 => ordinary,
            _ => Broker::without_affinity(ordinary),
        };
        attached.ticket = Some(ticket);
        // The restore ends it.
        attached.limit = None;
        let (thread, applied) = (attached.thread, attached.applied);
        let owner = self.owner(slot);
        self.emit(Effect::Restore { ticket, thread, attr, applied, owner });
    }

    pub(crate) fn restore_done(
        &mut self,
        slot: u32,
        mut restoring: Restoring,
        result: Result<(), Errno>,
    ) {
        let errno = match result {
            // The kernel has refused the previous attributes.
            Ok(()) if restoring.refused > 0 => {
                let was_urgent = (self.specs.at(slot).thread.as_ref())
                    .is_some_and(|thread| thread.previous.policy.is_real_time());
                let caveat = if was_urgent || restoring.refused > 1 {
                    Caveat::PolicyLost { errno: restoring.errno.0 }
                } else {
                    Caveat::AffinityWidened
                };
                return self.restored_with_caveat(slot, restoring, caveat);
            }
            Ok(()) | Err(ESRCH) => return self.restored(slot, restoring),
            Err(errno) => errno,
        };
        if restoring.refused == 0 {
            restoring.errno = errno;
        }
        restoring.refused += 1;
        if restoring.refused < 3 {
            self.specs.at_mut(slot).step = PendingOp::Restoring(restoring);
            return self.order_restore(slot);
        }
        self.restore_refused(slot, restoring);
    }

    /// Completes a restore: the thread is restored or has exited.
    pub(crate) fn restored(&mut self, slot: u32, restoring: Restoring) {
        let Restoring { reply_to, refusal, caveat, reason, .. } = restoring;
        let free_at = self.zero_lag(slot).filter(|_| reason != RestoreReason::AttachFailed);
        self.remove_thread(slot);
        if reason != RestoreReason::AttachFailed && self.specs.at(slot).in_ledger {
            self.notify_detached(slot);
        }
        match reason {
            RestoreReason::Release | RestoreReason::OwnerGone => self.drop_spec(slot, free_at),
            RestoreReason::AttachFailed | RestoreReason::Detach | RestoreReason::Forced => {
                self.keep_zero_lag(slot, free_at);
                self.emit(Effect::WriteRecord { slot });
            }
        }
        if let Some(reply_to) = reply_to {
            let done = caveat.map_or(Reply::Done, Reply::DoneWithCaveat);
            self.reply_or_refuse(reply_to, refusal.map_or(Ok(done), Err));
        }
        if !matches!(reason, RestoreReason::Release | RestoreReason::OwnerGone) {
            self.release_if_unowned(slot);
        }
    }

    /// Handles the refusal of all three sets of attributes.
    fn restore_refused(&mut self, slot: u32, mut restoring: Restoring) {
        let (errno, now) = (restoring.errno, self.now);
        let attached =
            self.specs.at_mut(slot).thread.as_mut().expect("its restore was just refused");
        let (tid, first) = (attached.tid, attached.attempts.note_refusal());
        if first {
            let subject = self.specs.at(slot).subject;
            self.log_about(subject, LogEvent::RestoreFailed { tid, errno });
        }
        match restoring.reason {
            RestoreReason::AttachFailed => self.restored(slot, restoring),
            RestoreReason::Detach | RestoreReason::Release => {
                self.thread_stays(slot);
                self.plugin_set.set_attached(SpecSlot(slot), true);
                if let Some(reply_to) = restoring.reply_to {
                    self.refuse(reply_to, kernel_refusal(errno));
                }
                self.sync_limit(slot);
                // The kernel may have applied a part.
                let attr = self.plugin_set.attr(SpecSlot(slot));
                self.order_apply(slot, attr);
                self.release_if_unowned(slot);
            }
            RestoreReason::OwnerGone | RestoreReason::Forced => {
                if let Some(reply_to) = restoring.reply_to.take() {
                    self.refuse(reply_to, kernel_refusal(errno));
                }
                restoring.refused = 0;
                let at = now.saturating_add(RETRY_AFTER);
                let spec = self.specs.at_mut(slot);
                spec.step = PendingOp::Restoring(restoring);
                let thread = spec.thread.as_mut().expect("its restore was just refused");
                thread.attempts.retry_at = Some(at);
                mutate!("recovery-refused-restore", self.timers.insert((at, Timer::Retry(slot))));

                self.restore_failed += 1;
            }
        }
    }
}
