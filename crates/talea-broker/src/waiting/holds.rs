//! Waits for zero-lag holds and for the admission test of the kernel.

use super::{KERNEL_RETRY, MAX_WAIT, WaitingRequest};
use crate::admission::{AdmissionRequest, Evaluation, plugin_request};
use crate::broker::{Broker, Timer};
use crate::input::SessionId;
use crate::pending_changes::Blocked;
use crate::plugin::RuntimeCap;
use crate::plugin_set::SpecSlot;
use crate::spec::{PendingOp, ReplyTo};
use talea_core::mutate;
use talea_core::{Monotonic, Policy, Span};
use talea_proto::Rejection;
use talea_proto::refusal::{RejectionReason, Witness};

/// Rounds a delay up to milliseconds, because the period that bounds the delay is no exact value
/// either.
fn in_ms(delay: Span) -> Span {
    const MS: u64 = 1_000_000;
    Span::from_ns(delay.as_ns().div_ceil(MS).saturating_mul(MS))
}

impl Broker {
    /// Returns the rejection of a plugin, or the time at which it must be asked again because a
    /// zero-lag hold ends.
    pub(crate) fn beside_holds(
        &mut self,
        evaluation: &mut Evaluation,
        plugin: u32,
        no: Rejection,
    ) -> Result<Rejection, Monotonic> {
        let about_room = matches!(
            no.reason,
            RejectionReason::NoRoom
                | RejectionReason::WouldBreakOthers
                | RejectionReason::NoRoomBesideUngranted
        );
        let Some(next) = self.plugin_set.next_expiry().filter(|_| about_room) else {
            return Ok(no);
        };
        if evaluation.is_served() || self.plugin_set.is_foreign(plugin) {
            return Ok(no);
        }
        let latest = *evaluation.wait_until.get_or_insert(self.now.saturating_add(MAX_WAIT));
        let leaving = self.leaving_slot(evaluation).map(SpecSlot);
        let ask = plugin_request(&evaluation.task, RuntimeCap::default(), &evaluation.scope);
        let mut fits_at = |until| self.plugin_set.fits_without_holds(plugin, &ask, leaving, until);
        if mutate!("broker-waits", fits_at(latest).is_some(), false) {
            return Err(next);
        }
        let last = Monotonic::from_ns(Monotonic::NEVER.as_ns() - 1);
        let witness = fits_at(last).map(|at| Witness::Held { free_in: in_ms(at.since(self.now)) });
        Ok(Rejection { witness: witness.or(no.witness), ..no })
    }

    /// Suspends a request until `at`.
    pub(crate) fn wait_for_hold(&mut self, at: Monotonic, request: AdmissionRequest) {
        let session = request.reply_to.session;
        self.wait_external(session);
        self.timers.insert((at, Timer::ResumeWaiting(session)));
        self.waiting.insert(session, WaitingRequest { at, request: Box::new(request) });
    }

    /// Evaluates a waiting request again.
    pub(crate) fn resume_waiting(&mut self, session: SessionId) {
        let Some(WaitingRequest { request, .. }) = self.waiting.remove(&session) else { return };
        if self.changes.is_any() {
            return self.changes.block(Blocked::Resume(request, None));
        }
        self.run_admission(*request, None);
    }

    /// Removes the waiting requests that are `wanted`.
    pub(crate) fn take_waiting(
        &mut self,
        wanted: impl Fn(&AdmissionRequest) -> bool,
    ) -> Vec<AdmissionRequest> {
        let mut taken = Vec::new();
        for (session, waiting) in std::mem::take(&mut self.waiting) {
            if wanted(&waiting.request) {
                self.timers.remove(&(waiting.at, Timer::ResumeWaiting(session)));
                taken.push(*waiting.request);
            } else {
                self.waiting.insert(session, waiting);
            }
        }
        taken
    }

    /// Whether the attach of a deadline thread may wait for the kernel's admission test.
    pub(crate) fn may_wait_for_kernel(&mut self, slot: u32, reply_to: ReplyTo) -> bool {
        let latest = self.now.saturating_add(MAX_WAIT);
        let is_deadline = (self.specs.at(slot).thread.as_ref())
            .is_some_and(|thread| matches!(thread.applied.policy, Policy::Deadline { .. }));
        let next = self.now.saturating_add(KERNEL_RETRY);
        let in_time = self
            .sessions
            .get_mut(&reply_to.session)
            .is_some_and(|session| next <= *session.wait_until.get_or_insert(latest));
        mutate!("broker-waits-kernel", is_deadline && in_time, false)
    }

    /// Repeats the attach later.
    pub(crate) fn wait_for_kernel(&mut self, slot: u32, reply_to: ReplyTo) {
        self.wait_external(reply_to.session);
        self.specs.at_mut(slot).step = PendingOp::Attaching(reply_to);
        self.arm_retry(slot, self.now.saturating_add(KERNEL_RETRY));
    }
}
