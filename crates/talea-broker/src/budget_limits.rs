//! Limits of attached threads: a thread may consume no more CPU time than its grant provides.
//!
//! The kernel enforces the budget of a deadline thread. The driver enforces the budget of a FIFO or
//! RR thread ([`Effect::Limit`]): the accepted runtime in each declared period, by a sporadic
//! server (`talea_core::server::meter`), so that the thread interferes with lower priorities no
//! more than the admission test has assumed. ReTiF (JSA 2021), section 3.2, leaves this to the
//! kernel's real-time throttling.
//!
//! A thread without a runtime or a period gets its share of the rules that bind its client
//! ([`crate::rules::shares`]). Without such a rule the grant is unlimited: its notes
//! contain [`Notes::UNLIMITED`].
//!
//! | declared | `max_utilization` binds the client | limit |
//! | --- | --- | --- |
//! | runtime and period | - | the runtime in each period |
//! | runtime and deadline | yes | the runtime in each deadline: the charge in the rule |
//! | less | yes | the share in each [`WINDOW`]; none if it is a whole CPU |
//! | no period, or no runtime | no | none |
//!
//! *Order.* A share that shrinks is ordered before the attach that has caused it, so that the
//! limits in force never exceed the rule. All other changes follow at the end of the input.

use crate::broker::Broker;
use crate::input::{Effect, Limit, LogEvent, ThreadId};
use crate::plugin_set::Placement;
use crate::rules::shares::{MIN_SHARE, WINDOW};
use crate::spec::{PendingOp, RestoreReason};
use crate::trail::{DemotionCause, EndCause};
use talea_core::setup::OnOverrun;
use talea_core::{Charge, Span, Work, mutate};
use talea_proto::message::Notes;
use talea_proto::{Refusal, Task};

impl Broker {
    /// Returns the limit that the driver enforces on the spec's thread; `None` if it enforces none.
    pub(crate) fn limit_of(&self, slot: u32) -> Option<Limit> {
        let spec = self.specs.at(slot);
        let (task, runtime) = (&spec.task, spec.offer.runtime);
        let limited = self.budget_of(spec.plugin, task, runtime, spec.client, Some(slot));
        let limited = limited.filter(|_| spec.in_ledger);
        let on_overrun = self.reaction(spec.plugin, limited, spec.client)?;
        limited.map(|(budget, period)| Limit { budget, period, on_overrun, uid: spec.uid })
    }

    /// Returns the budget and the period that a task may consume on `plugin`, by its declaration or
    /// by the client's rules.
    fn budget_of(
        &self,
        plugin: u32,
        task: &Task,
        runtime: Option<Work>,
        client: u32,
        slot: Option<u32>,
    ) -> Option<(Work, Span)> {
        if let Some(declared) = runtime.zip(task.params.period) {
            return Some(declared);
        }
        let share = self.rules.share(self.clients.snapshot(client), plugin, slot)?;
        let charged = runtime.zip(task.params.density_span());
        mutate!("limit-rule-share", Some(charged.unwrap_or((share, WINDOW))), None)
    }

    /// Whether the spec's thread, if any, gets a share: the spec has no charge of its own.
    pub(crate) fn is_sharing(&self, slot: u32) -> bool {
        let spec = self.specs.at(slot);
        let charged = spec.offer.runtime.and_then(|runtime| spec.task.params.charge_of(runtime));
        spec.in_ledger && charged.is_none()
    }

    /// Returns the charge that the rules count for the spec.
    pub(crate) fn ruled_charge(&self, slot: u32) -> Charge {
        let spec = self.specs.at(slot);
        let is_counted = spec.thread.is_some() && self.is_sharing(slot);
        let minimum = if is_counted { MIN_SHARE } else { Charge::ZERO };
        spec.offer.charge.saturating_add(minimum)
    }

    /// Adds the attached thread of the spec to those that share the client's rules.
    pub(crate) fn start_sharing(&mut self, slot: u32) {
        if self.is_sharing(slot) && self.specs.at(slot).thread.is_some() {
            let spec = self.specs.at(slot);
            self.rules.add_sharing(self.clients.snapshot(spec.client), spec.plugin, slot);
        }
    }

    /// Reverts [`Broker::start_sharing`], before the thread, the task, the plugin or the client of
    /// the spec changes.
    pub(crate) fn stop_sharing(&mut self, slot: u32) {
        if self.is_sharing(slot) && self.specs.at(slot).thread.is_some() {
            let spec = self.specs.at(slot);
            self.rules.remove_sharing(self.clients.snapshot(spec.client), spec.plugin, slot);
        }
    }

    /// Checks that a thread of the spec gets the minimum share.
    pub(crate) fn check_share(&self, slot: u32) -> Result<(), Box<Refusal>> {
        let spec = self.specs.at(slot);
        if !self.is_sharing(slot) {
            return Ok(());
        }
        let snapshot = self.clients.snapshot(spec.client);
        let admitted = self.rules.admit_sharing(snapshot, spec.plugin, None);
        admitted.map_err(|denial| self.ruled_out(&denial))
    }

    /// Orders the limits of all threads whose share has changed, except the one of `last`, for
    /// which the caller does.
    pub(crate) fn sync_shares(&mut self, last: Option<u32>) {
        if !self.rules.has_changed() {
            return;
        }
        for slot in self.rules.take_changed() {
            if last != Some(slot) {
                mutate!("limit-rule-sync", self.sync_limit(slot));
            }
        }
    }

    /// Returns the reaction to overruns of a task with this budget and period; `None` if the driver
    /// does not limit it.
    fn reaction(
        &self,
        plugin: u32,
        declared: Option<(Work, Span)>,
        client: u32,
    ) -> Option<OnOverrun> {
        let setup = self.setup.plugins.get(plugin as usize)?;
        let (budget, period) = declared?;
        let is_limited = self.platform.enforcement.is_some()
            && setup.band.is_some()
            && !budget.is_zero()
            && budget.as_ns() < period.as_ns();
        let ruled = self.rules.on_overrun(self.clients.snapshot(client), plugin);
        is_limited.then_some(ruled.unwrap_or(setup.on_overrun))
    }

    /// Orders the limit of the spec's thread if it has changed.
    pub(crate) fn sync_limit(&mut self, slot: u32) {
        let limit = mutate!("limit-none", self.limit_of(slot), None);
        let spec = self.specs.at_mut(slot);
        let Some(attached) = &mut spec.thread else { return };
        // A restore has ended the limit.
        if attached.limit != limit && !matches!(spec.step, PendingOp::Restoring(_)) {
            attached.limit = limit;
            attached.trail.last_limit = limit.or(attached.trail.last_limit);
            let thread = attached.thread;
            self.emit(Effect::Limit { thread, limit });
        }
    }

    /// Returns the enforcement granularity of a grant.
    pub(crate) fn enforcement_granularity(&self, slot: u32, placed: &Placement) -> Span {
        match (self.limit_of(slot), self.platform.enforcement) {
            (Some(_), Some(granularity)) => granularity,
            _ => placed.granularity,
        }
    }

    /// Returns `notes`, corrected by whether the driver enforces the budget and whether a budget is
    /// declared.
    pub(crate) fn enforcement_notes(
        &self,
        plugin: u32,
        task: &Task,
        runtime: Option<Work>,
        client: u32,
        slot: Option<u32>,
        notes: Notes,
    ) -> Notes {
        let is_declared = runtime.is_some() && task.params.period.is_some();
        let is_kernel = self.setup.plugins.get(plugin as usize).is_some_and(|p| p.band.is_none());
        let limited = self.budget_of(plugin, task, runtime, client, slot);
        match self.reaction(plugin, limited, client) {
            _ if is_kernel => notes,
            Some(OnOverrun::Throttle | OnOverrun::Demote) => {
                notes.without(Notes::BUDGET_NOT_ENFORCED)
            }
            Some(OnOverrun::Notify) if is_declared => notes.with(Notes::BUDGET_NOT_ENFORCED),
            None if is_declared => notes,
            Some(OnOverrun::Notify) | None => notes.with(Notes::UNLIMITED),
        }
    }

    /// Detaches a thread that the driver has demoted because of an overrun; the spec stays. No
    /// effect while an operation of the spec is in progress.
    pub(crate) fn overrun(&mut self, thread: ThreadId) {
        let Some(slot) = self.threads.slot_of(thread) else { return };
        let spec = self.specs.at(slot);
        let (uid, subject) = (spec.uid, spec.subject);
        let tid = spec.thread.as_ref().map_or(0, |thread| thread.tid);
        if spec.is_idle() {
            self.log_about(subject, LogEvent::Demoted { tid, uid });
            self.note_thread_end(slot, EndCause::Demotion(DemotionCause::Overrun), None);
            self.start_restore(slot, None, None, RestoreReason::Detach);
        }
    }
}
